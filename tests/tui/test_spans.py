"""Coloured tokens as lines that grow at their end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.spans import Span, SpanFlow

PIECES = st.lists(st.text(alphabet="ab \n日é", max_size=6), max_size=60)


def flow_of(pieces: list[str], width: int) -> SpanFlow:
    flow = SpanFlow(width)
    for number, piece in enumerate(pieces):
        flow.append(Span(piece, "draft" if number % 2 else "plain", number))
    return flow


def text_of(flow: SpanFlow) -> str:
    return "".join(line.text + ("" if line.continues else "\n") for line in flow.lines)[:-1]


@settings(deadline=None)
@given(PIECES, st.integers(4, 30))
def test_the_lines_join_to_the_text(pieces: list[str], width: int) -> None:
    assert text_of(flow_of(pieces, width)) == "".join(pieces)


@settings(deadline=None)
@given(PIECES, st.integers(4, 30), st.integers(4, 30))
def test_another_width_gives_the_lines_that_it_would_have_given(
    pieces: list[str], width: int, other: int
) -> None:
    flow = flow_of(pieces, width)
    flow.set_width(other)
    assert [line.text for line in flow.lines] == [line.text for line in flow_of(pieces, other).lines]


@settings(deadline=None)
@given(PIECES, st.integers(4, 30))
def test_every_line_knows_where_it_starts(pieces: list[str], width: int) -> None:
    text = "".join(pieces)
    for line in flow_of(pieces, width).lines:
        assert text[line.start : line.start + len(line.text)] == line.text


def test_a_sealed_line_is_never_touched_again() -> None:
    flow = flow_of(["one two three four five six "], 10)
    sealed = flow.lines[:-1]
    before = [list(line.pieces) for line in sealed]
    for number in range(200):
        flow.append(Span("more ", "draft", number))
    assert flow.lines[: len(sealed)] == sealed
    assert [line.pieces for line in sealed] == before


def test_neighbours_of_one_style_are_one_piece() -> None:
    flow = SpanFlow(80)
    for number in range(5):
        flow.append(Span("ab", "draft", number))
    assert flow.lines[-1].pieces == [("ababababab", "draft")]


def test_a_round_is_found_by_its_text_and_the_text_by_its_round() -> None:
    flow = flow_of(["zero", "one", "\n", "three"], 80)
    assert flow.extent(1) == (4, 7)
    assert flow.round_at(5) == 1
    assert flow.round_at(8) == 3
    assert flow.extent(9) is None


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_narrowest_widths_still_hold_text(width: int) -> None:
    assert text_of(flow_of(["hello 日本 world"], width)) == "hello 日本 world"
