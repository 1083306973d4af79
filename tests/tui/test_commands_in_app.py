"""The table of commands reaches everything: by slash, key, palette and help."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_files import tiny_model
from scripted import Script, answer_of, failing
from stage import stage
from textual.widgets import OptionList

from mlxspec.chat.commands import COMMANDS, KEYS, Takes, key_text
from mlxspec.events import Loaded
from mlxspec.places import places
from tui.help import help_text
from tui.options import ChatOptions
from tui.palette import Palette

ALL_NAMES = {command.name for command in COMMANDS}


async def test_help_has_every_command_and_every_key() -> None:
    async with stage(size=(110, 100)) as s:
        await s.press("f1")
        for command in COMMANDS:
            assert command.written in s.screen
            if command.key:
                assert key_text(command.key) in s.screen
        for key in KEYS:
            assert key_text(key.key) in s.screen
        await s.press("escape")
        assert "Keys" not in s.screen.split("\n")[2]


async def test_the_app_does_every_command_of_the_table() -> None:
    async with stage() as s:
        assert set(s.app.actions._commands) == {command.name for command in COMMANDS}
        bound = {binding.key for binding in s.app.BINDINGS}  # type: ignore[union-attr]
        assert {command.key for command in COMMANDS if command.key} <= bound


async def test_every_command_works_in_an_empty_chat_and_in_a_full_one() -> None:
    async with stage(Script([answer_of("an answer with `code`\n\n```\nx\n```")])) as s:
        for full in (False, True):
            if full:
                await s.ask("question")
            for command in COMMANDS:
                if command.name in ("quit", "new"):
                    continue
                argument = "/nowhere/else.md" if command.takes is Takes.VALUE else ""
                s.app.action_command(command.name, argument)
                await s.pilot.pause()
                assert s.app.is_running, command.name
                if s.app.screen.is_modal or s.app.inspector.entry is not None:
                    await s.press("escape")
        await s.send("/new")
        assert not s.questions


async def test_an_unknown_command_says_what_may_be_meant_and_keeps_the_text() -> None:
    async with stage() as s:
        await s.send("/exprot x.md")
        assert "There is no command /exprot." in s.screen
        assert "Type /export" in s.screen
        assert s.app.composer.text == "/exprot x.md"


@pytest.mark.parametrize("typed", ["/nonsense", "/k many", "/stats"])
async def test_what_a_command_says_is_seen_wherever_the_reader_is(typed: str) -> None:
    async with stage(Script([answer_of("line\n\n" * 80)])) as s:
        await s.ask("x")
        await s.press("ctrl+home")
        before = s.screen
        await s.send(typed)
        assert s.app.transcript.following
        assert s.screen != before


async def test_a_path_is_no_command() -> None:
    async with stage() as s:
        await s.ask("/usr/bin is full")
        assert s.questions[0].text == "/usr/bin is full"


async def test_a_space_in_front_sends_a_command_as_a_message() -> None:
    async with stage() as s:
        await s.ask(" /new")
        assert s.questions[0].text == "/new"


async def test_suggestions_come_while_a_command_is_typed() -> None:
    async with stage() as s:
        await s.press("slash", "s", "e")
        assert "Find words in all chats" in s.screen
        await s.press("down", "tab")
        assert s.app.composer.text == "/seed "
        await s.press("7", "enter")
        assert s.app.choices.values == {"seed": 7}


async def test_enter_takes_a_half_typed_command() -> None:
    async with stage() as s:
        await s.press("slash", "h", "e", "enter")
        await s.until(lambda: "Keys" in s.screen)


async def test_the_palette_has_all_commands_and_does_them() -> None:
    async with stage(size=(110, 60)) as s:
        await s.press("ctrl+p")
        listed = [option.id for option in s.app.screen.query_one(OptionList).options]
        assert [command.name for command in COMMANDS] == [name for name in listed if name in ALL_NAMES]
        await s.press(*"keys and", "enter")
        assert "Colours" in s.screen
        await s.press("escape", "ctrl+p", *"/rename", "enter")
        assert s.app.composer.text == "/rename "


async def test_parameters_reach_the_request() -> None:
    async with stage() as s:
        await s.send("/set temperature 0.3")
        await s.send("/k 3")
        await s.send("/spec off")
        await s.send("/system Be brief.")
        await s.ask("x")
        request = s.script.requests[0]
        assert request.sampling is not None
        assert request.sampling.temperature == 0.3
        assert request.num_draft == 3
        assert not request.speculate
        assert [(m.role, m.content) for m in request.messages] == [("system", "Be brief."), ("user", "x")]


async def test_the_panel_takes_values_and_says_what_is_wrong() -> None:
    async with stage(size=(110, 40)) as s:
        await s.press("f4")
        await s.press(*"hot", "enter")
        assert "temperature cannot be 'hot'." in s.screen
        await s.press("backspace", "backspace", "backspace", *"0.5", "down", *"0.9", "enter")
        assert s.app.choices.values == {"temperature": 0.5, "top_p": 0.9}
        await s.press("f4", "backspace", "escape")
        assert s.app.choices.values == {"temperature": 0.5, "top_p": 0.9}


async def test_the_panel_shows_what_defaults_stand_for(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "mine")
    (folder / "generation_config.json").write_text('{"temperature": 0.3, "top_k": 40}')
    places().config.mkdir(parents=True)
    places().user_models.write_text(f'[models.mine]\npath = "{folder}"\nsampling = {{ top_p = 0.8 }}\n')
    async with stage(Script(load=[Loaded("mine", "lookup", "cpu", 0.1, 4096)]), size=(100, 30)) as s:
        await s.press("f4")
        for line in ("temperature        default: 0.3", "top-p              default: 0.8"):
            assert line in s.screen
        for default in ("default: 40", "default: 1", "default: block", "default: no limit", "auto", "off"):
            assert f" {default} " in s.screen
        assert "…" not in s.screen


@pytest.mark.parametrize("size", [(80, 24), (50, 18)])
async def test_the_panel_leaves_room_for_its_hints(size: tuple[int, int]) -> None:
    async with stage(size=size) as s:
        await s.press("f4")
        assert "Esc cancels" in s.screen


async def test_a_wrong_value_is_a_message() -> None:
    async with stage() as s:
        await s.send("/set temperature hot")
        assert "temperature cannot be 'hot'." in s.screen
        await s.send("/k many")
        assert "k cannot be 'many'." in s.screen


async def test_models_are_listed_and_swapping_the_draft_keeps_the_chat() -> None:
    async with stage(size=(110, 40)) as s:
        await s.ask("x")
        await s.press("f2")
        await s.until(lambda: "Drafts for smollm2-135m" in s.screen or "smollm2-135m" in s.screen)
        await s.press(*"none", "enter")
        await s.until(lambda: len(s.script.loads) == 2)
        assert s.script.loads[1].draft == "none"
        assert s.script.loads[1].target == s.script.loads[0].target
        assert [q.text for q in s.questions] == ["x"]


async def test_a_draft_that_cannot_serve_says_why_and_the_chat_goes_on() -> None:
    script = Script([answer_of("fine")])
    async with stage(script) as s:
        script.load = [failing("IncompatiblePair", "other cannot draft for tiny: token 7 differs")]
        await s.send("/draft other")
        await s.until(lambda: "token 7 differs" in s.screen)
        await s.until(lambda: len(script.loads) == 3)
        assert [load.draft for load in script.loads] == ["auto", "other", "auto"]  # the one before is back
        script.load = [Loaded("tiny", "lookup", "cpu", 0.1, 4096)]
        await s.send("/draft lookup")
        await s.until(lambda: "tiny + lookup" in s.status)


async def test_copy_says_what_it_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("tui.clipboard.copy", lambda text: copied.append(text) or True)
    async with stage(Script([answer_of("see:\n\n```py\nx = 1\n```\n\nend")])) as s:
        await s.ask("x")
        await s.press("ctrl+y")
        await s.until(lambda: copied)
        await s.press("f7")
        await s.until(lambda: len(copied) == 2)
        assert copied == ["see:\n\n```py\nx = 1\n```\n\nend", "x = 1"]


async def test_the_view_of_all_answers_is_kept_for_the_next_time() -> None:
    async with stage(Script([answer_of("some **bold** words")])) as s:
        await s.ask("x")
        await s.send("/view tokens")
        assert "**bold**" in s.screen
    async with stage(Script([answer_of("some **bold** words")])) as s:
        await s.ask("x")
        assert "**bold**" in s.screen


async def test_a_model_is_fetched_in_a_process_of_its_own_while_the_chat_goes_on(home: Path) -> None:
    folder = home / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(f'[models.mine]\npath = "{folder}"\n')
    async with stage() as s:
        await s.send("/pull mine")
        await s.ask("still here")
        await s.until(lambda: "mine is on disk." in s.notices)
        assert not s.app.actions.models.pulls
        (folder / "config.json").unlink()
        await s.send("/pull mine")
        await s.until(lambda: f"{folder} has no config.json" in s.notices)
        await s.send("/pull nonsense")
        assert "nonsense" in s.notices


async def test_quit_leaves() -> None:
    async with stage() as s:
        await s.send("/quit")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value == 0
    assert s.app.engine.closed  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [16, 40, 60, 100])
def test_help_keeps_names_apart_from_what_they_mean(width: int) -> None:
    lines = help_text(Palette("dark", colour=True), width).plain.split("\n")
    for command in COMMANDS:
        (line,) = [line for line in lines if line.strip().startswith(command.written)]
        assert line.strip().removeprefix(command.written)[:2].strip() == ""


@pytest.mark.parametrize(("size", "hinted"), [((80, 24), True), ((120, 40), True), ((40, 12), False)])
async def test_a_long_list_leaves_room_for_its_keys_and_shows_what_is_above_the_chosen(
    size: tuple[int, int], hinted: bool
) -> None:
    async with stage(size=size, options=ChatOptions(draft="lookahead")) as s:
        await s.send("/draft")
        await s.until(lambda: "lookahead" in s.screen and "auto" in s.screen)
        assert ("Esc close" in s.screen) == hinted


async def test_long_titles_leave_room_for_what_stands_beside_them() -> None:
    async with stage(size=(80, 24)) as s:
        await s.ask("日本語 " * 12 + "title")
        await s.send("/search title")
        await s.until(lambda: "user" in s.screen)
        await s.press("escape")
        await s.send("/chats")
        await s.until(lambda: "2 messages" in s.screen)
        assert f"2 messages · {s.app.saved.id}" in s.screen
