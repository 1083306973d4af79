"""The program on a real terminal and at the end of a pipe: colours, keys, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.terminal import CTRL_C, CTRL_D, PATIENCE_S, ROOT, Terminal, command, environment

BLUE, ORANGE, OFF = "\x1b[38;5;75m", "\x1b[4;38;5;214m", "\x1b[0m"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


def run(engine: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(engine, *args),
        input=b"",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=ROOT,
        env=environment(),
    )


# ---------------------------------------------------------------- one question


def test_a_terminal_gets_colours() -> None:
    with Terminal(*command("", "run", "Hi")) as terminal:
        assert terminal.wait() == 0
    assert f"{BLUE}The{OFF}{ORANGE} capital{OFF} is Paris.\r\n" in terminal.screen


@pytest.mark.parametrize(
    ("changes", "args"), [({"NO_COLOR": "1"}, ()), ({"TERM": "dumb"}, ()), ({}, ("--color", "never"))]
)
def test_a_terminal_gets_nothing_but_text_without_colours(
    changes: dict[str, str], args: tuple[str, ...]
) -> None:
    with Terminal(*command("", "run", "Hi", *args), changes=changes) as terminal:
        assert terminal.wait() == 0
    assert "\x1b" not in terminal.screen
    assert "The capital is Paris.\r\n" in terminal.screen


def test_a_terminal_gets_control_characters_as_symbols() -> None:
    with Terminal(*command(r"[token('a\x1b[2Jb\x07\u202ec\td')]", "run", "Hi")) as terminal:
        assert terminal.wait() == 0
    assert "a␛[2Jb␇⟦U+202E⟧c\td" in terminal.screen


def test_a_terminal_sees_loading_and_reading_in_a_line_that_goes_away() -> None:
    engine = "[Prefill(512, 2000, 0), token('Yes.')], loading=[Downloading('m', 'f', 5, 10), Loading('m')]"
    with Terminal(*command(engine, "run", "Hi")) as terminal:
        assert terminal.wait() == 0
    for status in (
        "Fetching m ████████████░░░░░░░░░░░░  50%",
        "Loading m",
        "Reading the prompt: 512 of 2000 tokens",
    ):
        assert f"\r{status}" in terminal.screen
    assert terminal.screen.rsplit("\r", 2)[-2].startswith("Yes.")


def test_ctrl_c_stops_the_answer_keeps_it_and_exits_130() -> None:
    with Terminal(*command("endless(), pause_s=0.01", "run", "Hi", "--stats")) as terminal:
        terminal.wait_for("word word")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert "tokens per pass" in terminal.screen
    # The terminal's own echo of the key may come between words that were on their way.
    assert "word \r\nmlxspec: " in terminal.screen.replace("^C", "")
    assert "Traceback" not in terminal.screen


def test_ctrl_c_stops_loading_and_exits_130() -> None:
    engine = "loading=itertools.repeat(Downloading('m', 'f', 1, 10)), pause_s=0.01"
    with Terminal(*command(engine, "run", "Hi")) as terminal:
        terminal.wait_for("Fetching")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert "stopped" not in terminal.screen
    assert "Traceback" not in terminal.screen


def test_a_second_ctrl_c_kills_a_program_that_does_not_listen() -> None:
    engine = "itertools.chain([token('once')], (time.sleep(600) for _ in [1]))"
    with Terminal(*command(engine, "run", "Hi")) as terminal:
        terminal.wait_for("once")
        terminal.type(CTRL_C)
        time.sleep(0.5)  # two signals at once would be one
        terminal.type(CTRL_C)
        assert terminal.wait() in (130, -signal.SIGINT)


def test_sigint_in_a_pipe_keeps_the_text_and_exits_130() -> None:
    process = subprocess.Popen(
        command("endless(), pause_s=0.01", "run", "Hi"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
        bufsize=0,
    )
    with process:
        assert process.stdout is not None
        out = process.stdout.read(100)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert re.fullmatch(rb"(word )+\n", out + rest)
    assert err == b""


@pytest.mark.parametrize("args", [(), ("--json",), ("--save",)])
def test_a_closed_pipe_ends_quietly(args: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        command("endless(), pause_s=0.001", "run", "Hi", *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


def test_a_pipe_gets_bytes_of_utf8_whatever_the_locale() -> None:
    result = run("[token('é 🎉')]", "run", "Hi")
    assert result.stdout == "é 🎉\n".encode()
    assert result.stderr == b""


# ---------------------------------------------------------------- the line chat


def chat(engine: str = "echo", *args: str) -> Terminal:
    terminal = Terminal(*command(engine, "run", "--plain", *args), changes={"NO_COLOR": "1"})
    terminal.wait_for("you> ")
    return terminal


def test_the_line_chat_answers_and_ctrl_d_leaves() -> None:
    with chat() as terminal:
        terminal.type("Hello\r")
        terminal.wait_for("heard 'Hello'")
        terminal.wait_for("you> ")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0


def test_the_line_chat_keeps_the_conversation() -> None:
    turns = "lambda request: [token(f'{[m.content for m in request.messages]}')]"
    with chat(turns, "--system", "Short.") as terminal:
        terminal.type("one\r")
        terminal.wait_for("""['Short.', 'one']""")
        terminal.wait_for("you> ")
        terminal.type("two\r")
        terminal.wait_for("""'one', "['Short.', 'one']", 'two']""")


def test_ctrl_c_stops_an_answer_and_not_the_chat() -> None:
    with chat("endless(), echo, pause_s=0.01") as terminal:
        terminal.type("go\r")
        terminal.wait_for("word word")
        terminal.type(CTRL_C)
        terminal.wait_for("you> ")
        terminal.type("still there?\r")
        terminal.wait_for("heard 'still there?'")


def test_ctrl_c_at_the_prompt_drops_the_line_and_stays() -> None:
    with chat() as terminal:
        terminal.type("half a li")
        terminal.wait_for("half a li")
        time.sleep(0.2)  # Python misses a Ctrl-C between the echo of a key and the wait for the next one
        terminal.type(CTRL_C)
        terminal.wait_for("you> ")
        terminal.type("whole\r")
        terminal.wait_for("heard 'whole'")


def test_a_marked_paste_of_many_lines_is_one_message() -> None:
    with chat() as terminal:
        terminal.type(f"{PASTE}first\nsecond\n\nfourth{PASTED}")
        terminal.type("\r")
        terminal.wait_for(r"heard 'first\nsecond\n\nfourth'")
    assert "\x1b[?2004h" in terminal.screen  # the terminal was asked to mark pastes


def test_an_unmarked_paste_of_many_lines_is_one_message() -> None:
    with chat() as terminal:
        terminal.type("first\nsecond\nthird\n")
        terminal.wait_for(r"heard 'first\nsecond\nthird'")


def test_commands_are_obeyed_and_mistakes_explained() -> None:
    with chat(
        "lambda request: [token(f'{request.num_draft} {request.seed} {request.sampling}')]"
    ) as terminal:
        for typed, shown in {
            "/k 3": "k: 3",
            "/seed 9": "seed: 9",
            "/set temperature 0.5": "temperature: 0.5",
            "/set": "default: coupled",
            "/draft none": "target: smollm2-135m",
            "/stats": "There is no answer yet.",
            "/set temperature hot": "temperature cannot be 'hot'.",
            "/sed 1": "There is no command /sed.",
            "/inspect": "/inspect needs the full-screen chat.",
            "/help": "Ctrl-D leaves.",
            "go": "3 9 SamplingOverrides(temperature=0.5",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.wait_for(shown)
            terminal.wait_for("you> ")
        terminal.type("/stats\r")
        terminal.wait_for("tokens per pass")
        terminal.wait_for("you> ")
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_chats_are_saved_listed_and_opened_again() -> None:
    turns = "lambda request: [token(f'{len(request.messages)} messages')]"
    with chat(turns) as terminal:
        for typed, shown in {
            "the sky": "1 messages",
            "and the sea": "3 messages",
            "/rename Blue things": "now called Blue things",
            "/new": "A new chat.",
            "another": "1 messages",
            "/chats": "Blue things",
            "/search sky": "the sky",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.wait_for(f"{typed}\r\n")
            terminal.wait_for(shown)
            terminal.wait_for("you> ")
        terminal.type(CTRL_D)
        terminal.wait()
    with chat(turns, "--continue") as terminal:
        terminal.type("/stats\r")
        terminal.wait_for("1 tokens · 50.0 tok/s")
        terminal.wait_for("drafters: lookup 3/4 in 2 rounds")
        terminal.type("more\r")
        terminal.wait_for("3 messages")
        terminal.wait_for("you> ")
        for typed, shown in {
            "/delete": "[y/N]",
            "y": "is deleted.",
            "/stats": "There is no answer yet.",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.wait_for(shown)


def test_an_answer_can_be_tried_again() -> None:
    with chat(
        "[token('first')], [token('second')], lambda request: [token(request.messages[1].content)]"
    ) as terminal:
        for typed, shown in {"go": "first", "/retry": "second", "what did you say?": "second"}.items():
            terminal.type(f"{typed}\r")
            terminal.wait_for(shown)
            terminal.wait_for("you> ")


def test_a_fixed_seed_is_for_further_tries_too() -> None:
    with chat("lambda request: [token(f'seed {request.seed}')]", "--seed", "7") as terminal:
        terminal.type("go\r")
        terminal.wait_for("seed 7")
        terminal.wait_for("you> ")
        terminal.type("/retry\r")
        terminal.wait_for("seed 7")


def test_an_answer_says_whose_words_it_is_once() -> None:
    with chat("[token('two'), token('words')]") as terminal:
        terminal.type("go\r")
        assert terminal.wait_for("words").endswith("smollm2-135m> twowords")


def test_an_earlier_message_can_be_changed_and_the_chat_goes_on_from_there() -> None:
    heard = "lambda request: [token(f'{[m.content for m in request.messages]}')]"
    with chat(heard) as terminal:
        for typed, shown in {"one": "['one']", "two": "'two']"}.items():
            terminal.type(f"{typed}\r")
            terminal.wait_for(shown)
            terminal.wait_for("you> ")
        terminal.type("/edit 9\r")
        terminal.wait_for("There is no message '9'.")
        terminal.type("/edit 1\r")
        terminal.wait_for("Message 1 was: one")
        terminal.wait_for("edit> one")
        terminal.type("!\r")
        terminal.wait_for("['one!']")
        terminal.wait_for("you> ")
        terminal.type("three\r")
        terminal.wait_for("""['one!', "['one!']", 'three']""")
        terminal.wait_for("you> ")
        terminal.type("/chats\r")
        terminal.wait_for("one")
    with chat(heard, "--continue") as terminal:
        terminal.type("four\r")
        terminal.wait_for("'three', ")


def test_an_answer_or_its_code_is_copied(tmp_path: Path) -> None:
    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    program.chmod(0o755)
    path = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "DISPLAY": ":0",
        "WAYLAND_DISPLAY": "",
        "NO_COLOR": "1",
    }
    engine = "[token('see:\\n```\\nx = 1\\n```\\n')]"
    with Terminal(*command(engine, "run", "--plain"), changes=path) as terminal:
        terminal.wait_for("you> ")
        for typed, shown, copied in (
            ("/copy", "There is no answer to copy.", None),
            ("go", "```", None),
            ("/copy", "Copied 19 characters.", "see:\n```\nx = 1\n```\n"),
            ("/copy code", "Copied 5 characters.", "x = 1"),
        ):
            terminal.type(f"{typed}\r")
            terminal.wait_for(shown)
            terminal.wait_for("you> ")
            if copied:
                assert (tmp_path / "copied").read_text() == copied


def test_a_model_that_cannot_be_loaded_ends_the_chat_with_its_reason() -> None:
    engine = "loading=[Failed('NotAModel', 'There is no model.', 'Give a folder.', 1)]"
    with Terminal(*command(engine, "run", "--plain")) as terminal:
        assert terminal.wait() == 1
    assert "There is no model." in terminal.screen


def test_json_without_a_prompt_is_wrong_usage_on_a_terminal() -> None:
    with Terminal(*command("", "run", "--json")) as terminal:
        assert terminal.wait() == 2
    assert "--json needs a prompt." in terminal.screen


APP = "import sys, types; app = types.ModuleType('app'); app.run = {}; sys.modules['tui.launch'] = app; "


def test_the_full_screen_chat_opens_by_default_with_the_options() -> None:
    shown = "lambda **options: print(*options.items()) or 7"
    python, _, script, *args = command("", "run", "--target", "t", "--num-draft", "3", "--system", "s")
    with Terminal(python, "-c", APP.format(shown) + script, *args, "--continue") as terminal:
        assert terminal.wait() == 7
    for option in ("'target', 't'", "'draft', None", "'values', {'k': 3}", "'system', 's'", "'resume', True"):
        assert f"({option})" in terminal.screen


def test_without_the_full_screen_chat_there_is_the_line_chat() -> None:
    python, _, script, *args = command("echo", "run")
    hidden = "import sys; sys.modules['tui.launch'] = None; "
    with Terminal(python, "-c", hidden + script, *args) as terminal:
        terminal.wait_for("this is the line chat")
        terminal.wait_for("you> ")
