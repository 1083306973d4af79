"""Faults inside the app: the log has the traceback, the user one sentence and what to do."""

from __future__ import annotations

import signal
import stat
import sys
import termios
from contextlib import closing
from pathlib import Path

import pytest
from scripted import Script, answer_of
from stage import stage

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.places import places
from tests.terminal import Terminal

BROKEN = (
    "import sys, tui.transcript; tui.transcript.Transcript.render_lines = lambda self, crop: 1 / 0; "
    "sys.argv = ['mlxspec', 'run']; from mlxspec.cli import main; main()"
)
STREAMING = (
    "import sys; sys.path.insert(0, 'tests/tui'); from scripted import *; from tui.app import ChatApp; "
    "from tui.launch import run_app; script = Script([answer_of('word ' * 40)], hang=20); "
    "sys.exit(run_app(ChatApp(engine=lambda _: ScriptedEngine(script))))"
)
LEAVE_SCREEN, SHOW_CURSOR = "\x1b[?1049l", "\x1b[?25h"


def test_a_widget_that_raises_ends_the_app_with_a_sentence_and_a_log(home: Path) -> None:
    with Terminal(sys.executable, "-c", BROKEN) as terminal:
        before = termios.tcgetattr(terminal._keyboard)
        assert terminal.wait() == 1
        assert termios.tcgetattr(terminal._keyboard) == before
    for told in (terminal.screen, terminal.screen.split(LEAVE_SCREEN)[-1]):
        assert "mlxspec: Something inside mlxspec failed (ZeroDivisionError: division by zero)." in told
        assert "The details are in" in told
    assert "Traceback" not in terminal.screen
    assert terminal.screen.rindex(SHOW_CURSOR) > terminal.screen.rindex("\x1b[?25l")
    log = home / "data" / "mlxspec.log"
    assert "ZeroDivisionError" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_app_with_the_answer_saved_and_the_terminal_as_it_was(sign: signal.Signals) -> None:
    with Terminal(sys.executable, "-c", STREAMING) as terminal:
        terminal.wait_for("sk anything")
        terminal.type("go\r")
        terminal.wait_for("word")
        terminal.process.send_signal(sign)
        assert terminal.wait() == 128 + sign
    assert LEAVE_SCREEN in terminal.screen
    with closing(Store.open(places())) as store:
        chat = store.last()
        assert chat is not None
        question, answer = store.path(chat.id)
    assert question.content == "go"
    assert answer.content.startswith("word")
    assert answer.state is MessageState.STOPPED


async def test_a_command_that_fails_is_a_notice_and_the_chat_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(Script([answer_of("fine")])) as s:
        monkeypatch.setitem(s.app.actions._commands, "stats", lambda _: 1 / 0)
        await s.send("/stats")
        assert "Something inside mlxspec failed (ZeroDivisionError: division by zero)." in s.notices
        assert (await s.ask("x")).text == "fine"
    assert "ZeroDivisionError" in places().log.read_text()


async def test_background_work_that_fails_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.clipboard.copy", lambda _: 1 / 0)
    async with stage(Script([answer_of("fine")])) as s:
        await s.ask("x")
        await s.press("ctrl+y")
        await s.until(lambda: "ZeroDivisionError" in s.notices)
