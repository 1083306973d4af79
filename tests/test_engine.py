"""The engine: one thread, jobs and events, on a tiny model with the real tokenizer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs

from mlxspec.chat.conversation import Message
from mlxspec.decoding.overrides import SamplingOverrides
from mlxspec.engine import Engine, GenerateRequest, Job, LoadRequest
from mlxspec.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    Notice,
    Origin,
    Prefill,
    RoundReport,
    Tokens,
)

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
GREEDY = SamplingOverrides(temperature=0.0)


def make_model(folder: Path, default_model: Path, *, seed: int = 0, context: int = 512) -> Path:
    """A model folder of a few thousand weights, with the default model's tokenizer."""
    folder.mkdir(parents=True)
    for name in TOKENIZER_FILES:
        shutil.copy(default_model / name, folder)
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": 49152,
        "max_position_embeddings": context,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config))
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"}
    )
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Path:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "target", default_model)
    make_model(root / "draft", default_model, seed=0)
    make_model(root / "other", default_model, seed=5)
    foreign = make_model(root / "foreign", default_model, seed=0)
    words = json.loads((foreign / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["Paris"], vocab["London"] = vocab.pop("London", 7001), vocab.pop("Paris", 7002)
    (foreign / "tokenizer.json").write_text(json.dumps(words))
    return root


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


def load(engine: Engine, models: Path, draft: str = "lookup", **options: Any) -> list[Event]:
    named = draft if draft in ("auto", "lookup", "none") else str(models / draft)
    return list(engine.load(LoadRequest(str(models / "target"), named, **options)))


def ask(engine: Engine, *texts: str, **options: Any) -> list[Event]:
    return list(engine.generate(request(*texts, **options)))


def request(*texts: str, **options: Any) -> GenerateRequest:
    roles = ("user", "assistant")
    messages = tuple(Message(roles[i % 2], text) for i, text in enumerate(texts))
    return GenerateRequest(messages, **{"sampling": GREEDY, "max_tokens": 24, "num_draft": 4, **options})


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def failed(events: list[Event]) -> Failed:
    assert isinstance(events[-1], Failed), events[-1]
    return events[-1]


def test_loading_and_answering_say_their_events_in_order(engine: Engine, models: Path) -> None:
    loaded = load(engine, models)[-1]
    assert isinstance(loaded, Loaded)
    assert (loaded.draft, loaded.context_tokens) == ("lookup", 512)
    events = ask(engine, "Hello")
    kinds = [type(event) for event in events]
    assert kinds[0] is Prefill
    assert kinds == sorted(kinds, key=[Prefill, Tokens, Finished].index)
    tokens = [event for event in events if isinstance(event, Tokens)]
    end = finished(events)
    assert end.text == "".join(event.text for event in tokens)
    assert end.ids == tuple(token for event in tokens for token in event.ids)
    assert end.stats.tokens == len(end.ids) == 24
    assert end.reason is FinishReason.LENGTH
    for origin in Origin:
        told = sum(len(event.ids) for event in tokens if event.origin is origin)
        assert told == getattr(end.stats, origin.value)


@pytest.mark.parametrize("draft", ["lookup", "draft", "other"])
def test_drafters_do_not_change_a_greedy_answer(draft: str, engine: Engine, models: Path) -> None:
    load(engine, models, draft="none")
    plain = finished(ask(engine, "Tell me more"))
    load(engine, models, draft=draft)
    speculated = finished(ask(engine, "Tell me more"))
    assert speculated.ids == plain.ids
    assert plain.stats.proposed == 0
    assert speculated.stats.proposed > 0


def test_a_draft_equal_to_the_target_is_always_accepted(engine: Engine, models: Path) -> None:
    load(engine, models, draft="draft")
    stats = finished(ask(engine, "Tell me more", num_draft=4)).stats
    assert stats.drafters["draft_model"].accepted == stats.drafters["draft_model"].proposed > 0


def test_a_seed_means_one_text_with_and_without_speculation(engine: Engine, models: Path) -> None:
    warm = SamplingOverrides(temperature=1.0)
    load(engine, models, draft="draft")
    texts = {
        finished(ask(engine, "Hello", sampling=warm, seed=7, **options)).ids
        for options in ({}, {"num_draft": 8}, {"speculate": False}, {"accept": "coupled"})
    }
    assert len(texts) == 1


def test_a_fresh_seed_is_drawn_and_told(engine: Engine, models: Path) -> None:
    load(engine, models)
    warm = SamplingOverrides(temperature=1.0)
    first, second = (finished(ask(engine, "Hello", sampling=warm)) for _ in range(2))
    assert first.stats.seed != second.stats.seed
    assert first.stats.accept == "block"


def test_swapping_the_draft_keeps_the_target_and_the_chat(engine: Engine, models: Path) -> None:
    load(engine, models, draft="other")
    answer = finished(ask(engine, "Hello"))
    events = load(engine, models, draft="draft")
    assert [type(event).__name__ for event in events] == ["Loading", "Loaded"]
    second = finished(ask(engine, "Hello", answer.text, "And then?"))
    assert second.stats.reused_tokens >= answer.stats.prompt_tokens - 1


def test_a_second_turn_equals_a_cold_one(engine: Engine, models: Path) -> None:
    load(engine, models, draft="draft")
    answer = finished(ask(engine, "Hello"))
    warm = finished(ask(engine, "Hello", answer.text, "And then?"))
    load(engine, models, draft="draft", kv_bits=8)
    load(engine, models, draft="draft")
    cold = finished(ask(engine, "Hello", answer.text, "And then?"))
    assert (warm.ids, cold.stats.reused_tokens) == (cold.ids, 0)
    assert warm.stats.reused_tokens > 0


def test_a_stop_string_is_in_neither_text_nor_ids(engine: Engine, models: Path) -> None:
    from mlxspec.models.loading import load_model

    load(engine, models, draft="draft")
    whole = finished(ask(engine, "Hello", max_tokens=40))
    stop = whole.text[20:26]
    events = ask(engine, "Hello", max_tokens=40, stop=(stop,))
    end = finished(events)
    assert end.reason is FinishReason.STOP
    assert end.text == whole.text[: whole.text.index(stop)]
    assert stop not in "".join(event.text for event in events if isinstance(event, Tokens))
    assert end.stats.tokens == len(end.ids)
    assert end.ids == whole.ids[: len(end.ids)]
    decoded = load_model("target", models / "target").tokenizer.decode(list(end.ids))
    assert decoded.startswith(end.text)


def test_a_cancel_ends_the_answer_and_keeps_what_was_written(engine: Engine, models: Path) -> None:
    load(engine, models, draft="draft")
    job = engine.generate(request("Hello", max_tokens=400))
    seen = 0
    for event in job:
        if isinstance(event, Tokens):
            seen += len(event.ids)
            job.cancel()
    end = job.result
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.CANCELLED
    assert 0 < len(end.ids) == seen < 400
    assert finished(ask(engine, "Hello")).ids[: len(end.ids)] == end.ids[:24]


def test_a_full_context_ends_the_answer_there(engine: Engine, models: Path) -> None:
    load(engine, models, context=60)
    end = finished(ask(engine, "Hello", max_tokens=None))
    assert end.reason is FinishReason.CONTEXT
    assert end.stats.prompt_tokens + end.stats.tokens == 60


def test_a_prompt_longer_than_the_context_is_an_error(engine: Engine, models: Path) -> None:
    load(engine, models, context=60)
    assert failed(ask(engine, "word " * 200)).kind == "PromptTooLong"
    assert finished(ask(engine, "Hello", max_tokens=4)).stats.tokens == 4


def test_a_full_chat_drops_its_oldest_turns_and_says_so(engine: Engine, models: Path) -> None:
    load(engine, models, context=128)
    events = ask(engine, "one " * 40, "two " * 20, "three " * 20, "four", "five?", max_tokens=8)
    assert "oldest 1 turn " in next(event.message for event in events if isinstance(event, Notice))
    assert finished(events).stats.prompt_tokens < 128


def test_rounds_are_reported_when_asked_for(engine: Engine, models: Path) -> None:
    load(engine, models, draft="other")
    events = ask(
        engine, "Hello", report_rounds=True, sampling=SamplingOverrides(temperature=1.0), num_draft=3
    )
    reports = [event for event in events if isinstance(event, RoundReport)]
    assert len(reports) == finished(events).stats.rounds
    guessed = [report for report in reports if report.guesses]
    assert guessed
    assert all(len(r.p) == len(r.q) == len(r.guess_texts) == len(r.guesses) for r in guessed)


@pytest.mark.parametrize(
    ("target", "kind"), [("nowhere/at-all-really", "NotOnDisk"), ("no such name", "UnknownModel")]
)
def test_a_model_that_cannot_be_had_leaves_an_engine_that_works(
    target: str, kind: str, engine: Engine, models: Path
) -> None:
    assert failed(list(engine.load(LoadRequest(target)))).kind == kind
    load(engine, models)
    assert finished(ask(engine, "Hello", max_tokens=2)).stats.tokens == 2


def test_answering_before_loading_is_an_error(engine: Engine) -> None:
    assert failed(ask(engine, "Hello")).hint == "Load a target first."


def test_a_draft_with_other_words_is_refused_and_the_target_stays(engine: Engine, models: Path) -> None:
    load(engine, models)
    refusal = failed(load(engine, models, draft="foreign"))
    assert refusal.kind == "IncompatiblePair"
    assert "Paris" in refusal.message or "London" in refusal.message
    assert finished(ask(engine, "Hello", max_tokens=2)).stats.tokens == 2


def test_a_context_beyond_the_models_is_refused(engine: Engine, models: Path) -> None:
    assert failed(load(engine, models, context=10_000)).exit_code == 2


def test_quantised_caches_answer_as_plain_decoding_with_the_same_cache(engine: Engine, models: Path) -> None:
    load(engine, models, draft="draft", kv_bits=4)
    speculated = finished(ask(engine, "Hello"))
    load(engine, models, draft="none", kv_bits=8)
    load(engine, models, draft="none", kv_bits=4)
    assert finished(ask(engine, "Hello")).ids == speculated.ids


def test_a_fault_is_told_and_logged_and_the_engine_lives_on(
    engine: Engine, models: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxspec.decoding import decode

    load(engine, models)
    good = decode.judge
    monkeypatch.setattr(decode, "judge", lambda *_a, **_k: 1 / 0)
    fault = failed(ask(engine, "Hello"))
    monkeypatch.setattr(decode, "judge", good)
    log = home / "data" / "mlxspec.log"
    assert fault.kind == "EngineError"
    assert str(log) in fault.hint
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert finished(ask(engine, "Hello", max_tokens=3)).stats.tokens == 3


def test_one_thread_owns_mlx(engine: Engine, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlxspec.decoding.cache import PromptCache

    threads: set[str] = set()
    forward = PromptCache.forward

    def recorded(self: PromptCache, tokens: mx.array) -> mx.array:
        threads.add(threading.current_thread().name)
        return forward(self, tokens)

    monkeypatch.setattr(PromptCache, "forward", recorded)
    load(engine, models, draft="draft")
    ask(engine, "Hello")
    assert threads == {"mlxspec-engine"}


def test_a_closed_engine_refuses_jobs_and_ends_what_runs(models: Path) -> None:
    engine = Engine()
    load(engine, models)
    running = engine.generate(request("Hello", max_tokens=400))
    waiting = engine.generate(request("Hello", max_tokens=400))
    engine.close()
    assert running.wait(5)
    assert isinstance(waiting.result, Failed)
    late: Job = engine.generate(request("Hello"))
    assert isinstance(late.result, Failed)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "left alone"])
def test_the_process_ends_cleanly_after_an_answer(close: bool, models: Path) -> None:
    script = (
        "from mlxspec.engine import Engine, GenerateRequest, LoadRequest\n"
        "from mlxspec.chat.conversation import Message\n"
        "engine = Engine()\n"
        f"list(engine.load(LoadRequest({str(models / 'target')!r}, 'lookup')))\n"
        "list(engine.generate(GenerateRequest((Message('user', 'Hello'),), max_tokens=8)))\n"
        f"{'engine.close()' if close else ''}\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_model_without_a_chat_template_continues_the_text_and_says_so(
    engine: Engine, models: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    shutil.copytree(models / "target", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    events = list(engine.load(LoadRequest(str(folder), "lookup")))
    assert any("no chat template" in event.message for event in events if isinstance(event, Notice))
    assert finished(ask(engine, "Once upon a time", max_tokens=2, num_draft=2)).stats.prompt_tokens == 4


def test_what_passes_cost_is_measured_once_and_kept(
    engine: Engine, models: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxspec.engine import pace

    monkeypatch.setattr(pace, "BUDGET_S", 0.01)
    load(engine, models)

    def notices(engine: Engine) -> list[str]:
        return [e.message for e in ask(engine, "Hello", num_draft=None) if isinstance(e, Notice)]

    assert "Measuring" in notices(engine)[0]
    assert notices(engine) == []
    (kept,) = (home / "cache" / "pace").glob("*.json")  # beside one that is being written, maybe
    assert kept.stat().st_mode & 0o777 == 0o600
    for damaged in (False, True):
        if damaged:
            kept.write_text("{}")
        with Engine() as another:
            load(another, models)
            assert bool(notices(another)) is damaged
