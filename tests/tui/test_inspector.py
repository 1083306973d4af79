"""Why this token: from the keyboard and with the mouse."""

from __future__ import annotations

import pytest
from scripted import Script, answer_of
from stage import stage

from mlxspec.events import RoundReport
from tui.options import ChatOptions

TEXT = "one two three four five six seven eight nine ten eleven"


async def test_the_inspector_opens_at_the_first_rejected_guess() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        assert "The draft guessed 4, 2 kept" in s.screen
        assert "✗ ␣wrong" in s.screen
        assert "dropped with it: ␣unseen" in s.screen
        assert "→ ␣three" in s.screen
        assert "3 tokens in 60 ms" in s.screen
        assert "60 ms saved" in s.screen
        assert "round 1 of 4" in s.screen


async def test_keys_move_over_the_rounds_and_esc_gives_them_back() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o", "right")
        assert "The draft guessed 3, 3 kept" in s.screen
        assert "one more" in s.screen
        await s.press("down")
        assert "Lookup guessed 4, 2 kept" in s.screen
        await s.press("end")
        assert "Plain round" in s.screen
        await s.press("right", "home", "left")
        assert "round 1 of 4" in s.screen
        await s.press("escape")
        assert s.app.inspector.entry is None
        assert s.app.focused is s.app.composer


async def test_what_is_typed_meanwhile_goes_to_the_composer() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o", "n", "e", "w")
        assert s.app.composer.text == "new"
        assert s.app.inspector.entry is not None
        await s.press("escape")
        assert s.app.inspector.entry is None
        assert s.app.composer.text == "new"


async def test_p_and_q_stay_in_one_row_in_a_narrow_window() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(40, 24)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        rows = s.screen.split("\n")
        assert any("✗ ␣wrong" in row and row.count("0.") == 2 for row in rows)
        assert any("→ ␣three" in row and "put instead" in row for row in rows)


@pytest.mark.parametrize("size", [(40, 24), (20, 6), (3, 2)])
async def test_a_window_that_becomes_narrow_beside_the_inspector_goes_on(size: tuple[int, int]) -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        await s.pilot.resize_terminal(*size)
        await s.pilot.resize_terminal(100, 30)
        await s.until(lambda: "put instead" in s.screen)


async def test_a_click_on_a_token_asks_why() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+t")
        row = next(y for y, line in enumerate(s.screen.split("\n")) if "one two" in line)
        column = s.screen.split("\n")[row].index("nine")
        await s.pilot.click("Transcript", offset=(column, row))
        await s.pilot.pause()
        assert "round 3 of 4" in s.screen


async def test_a_click_on_a_bar_goes_to_its_round() -> None:
    async with stage(Script([answer_of(TEXT * 40)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        assert "▆█▆▂▆█" in s.screen  # tokens of each round
        await s.pilot.click("#rounds", offset=(7, 0))
        await s.until(lambda: "round 8 of" in s.screen)
        assert "       ▲" in s.screen
        await s.press("end")
        await s.pilot.click("#rounds", offset=(0, 0))
        await s.until(lambda: "round 99 of" in s.screen)  # the bars around the end


async def test_the_round_is_marked_in_the_answer() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        background = s.app.palette.style("marked").bgcolor
        marked = "".join(
            segment.text
            for strip in s.app.transcript._strips
            for segment in strip
            if segment.style and segment.style.bgcolor == background
        )
        assert marked == "one two three"


async def test_a_round_far_away_is_brought_onto_the_screen() -> None:
    text = "".join(f"word{number} " for number in range(1500))
    async with stage(Script([answer_of(text)]), size=(130, 20)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        assert "word0 " in s.screen
        await s.press("end")
        assert "word1499" in s.screen


async def test_it_can_be_looked_into_while_it_streams() -> None:
    async with stage(Script([answer_of(TEXT * 10)], hang=20), size=(130, 30)) as s:
        await s.send("x")
        await s.until(lambda: s.answers and len(s.answers[0].tokens) > 8)
        await s.press("ctrl+o", "end")
        seen = s.screen
        assert "round" in seen
        s.script.go.set()
        await s.until(lambda: not s.answers[0].streaming)
        await s.press("end")
        assert s.screen != seen


async def test_an_answer_of_an_earlier_run_is_looked_into_like_one_of_today() -> None:
    async with stage(Script([answer_of(TEXT)]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        seen = s.screen
        assert "0.92" in seen
    async with stage(options=ChatOptions(resume=True), size=(130, 30)) as s:
        await s.press("ctrl+o")
        assert [line[78:] for line in s.screen.split("\n")] == [line[78:] for line in seen.split("\n")]


async def test_what_was_not_kept_of_rounds_is_said() -> None:
    events = [event for event in answer_of(TEXT) if not isinstance(event, RoundReport)]
    async with stage(Script([events]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        assert "The draft: 2 guesses kept" in s.screen
        assert "More about its rounds was not kept" in s.screen


async def test_an_answer_that_has_just_ended_keeps_its_rounds_beside_a_second_try() -> None:
    async with stage(Script([answer_of(TEXT), answer_of(TEXT)]), size=(130, 30)) as s:
        first = await s.ask("x")
        await s.ask("y")
        await s.press("f5")
        await s.until(lambda: len(s.answers) == 2 and not s.answers[1].streaming)
        assert s.answers[0] is first
        assert first.reports


async def test_brackets_in_tokens_are_text() -> None:
    async with stage(Script([answer_of("[/] [red] \x1b[0m four")]), size=(130, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+o")
        assert "✓ [/]" in s.screen
        assert "✓ ␣[red]" in s.screen
