"""What is measured of a model's passes."""

from __future__ import annotations

import pytest

from mlxspec.decoding import calibrate
from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.calibrate import CONTEXT_TOKENS, LONG_CONTEXT_TOKENS, measure_curve
from tests.tiny_models import build

PASS_S, CONTEXT_PASS_S, CONTEXT_ROW_S = 1.0, 2e-4, 3e-5


@pytest.fixture
def scripted_passes(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Passes take what a formula says; returns the lengths of the caches that were measured."""
    lengths: set[int] = set()

    def pass_s(cache: PromptCache, rows: int, _clock: object, *, context: int = CONTEXT_TOKENS) -> float:
        cache.rewind_to(context)
        cache.forward(calibrate._filler(rows))
        lengths.add(cache.length - rows)
        return PASS_S + 0.1 * rows + (context - CONTEXT_TOKENS) * (CONTEXT_PASS_S + CONTEXT_ROW_S * rows)

    monkeypatch.setattr(calibrate, "_pass_s", pass_s)
    return lengths


def test_a_longer_context_costs_a_pass_and_each_of_its_rows(scripted_passes: set[int]) -> None:
    curve = measure_curve(build("llama"), clock=lambda: 0.0, budget_s=-1.0)
    assert curve is not None
    assert scripted_passes == {CONTEXT_TOKENS, LONG_CONTEXT_TOKENS}
    assert curve.seconds(5) == pytest.approx(1.5)
    assert curve.context_pass_s == pytest.approx(CONTEXT_PASS_S)
    assert curve.context_row_s == pytest.approx(CONTEXT_ROW_S)


@pytest.mark.parametrize("name", ["mamba", "gemma3_text"])
def test_windows_and_states_do_not_grow(name: str, scripted_passes: set[int]) -> None:
    curve = measure_curve(build(name), clock=lambda: 0.0, budget_s=-1.0)
    assert curve is not None
    assert scripted_passes == {CONTEXT_TOKENS}
    assert curve.context_pass_s == curve.context_row_s == 0.0


def test_stopping_leaves_no_curve() -> None:
    assert measure_curve(build("llama"), clock=lambda: 0.0, budget_s=1.0, cancelled=lambda: True) is None
