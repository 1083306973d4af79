"""What is drawn: text of every script, at every size, at the end or where the reader is."""

from __future__ import annotations

import pytest
from scripted import Script, answer_of
from stage import Stage, stage

HOSTILE = "[/] [red]x[/red] \x1b[31mred\x1b[0m \x1b]0;title\x07 日本語 👩‍👩‍👧‍👦 👍🏽 שלום עולם \u202eevil é"


@pytest.mark.parametrize("coloured", [False, True])
async def test_hostile_text_is_text_wherever_it_stands(coloured: bool) -> None:
    async with stage(Script([answer_of(HOSTILE)])) as s:
        s.app.page.coloured = coloured
        await s.ask(HOSTILE)
        screen = s.screen
        assert screen.count("[/] [red]x[/red]") == 2
        assert screen.count("日本語") == 2
        assert screen.count("👩‍👩‍👧‍👦") == 2
        assert not any(bad in screen for bad in "\x1b\x07\u202e")
        await s.press("ctrl+s")
        assert "[/] [red]x" in s.screen


@pytest.mark.parametrize("size", [(20, 6), (33, 9), (80, 24), (120, 40), (300, 100)])
async def test_every_size_shows_the_end_of_the_answer_and_takes_keys(size: tuple[int, int]) -> None:
    async with stage(Script([answer_of("begin " + "日本 word " * 300 + "\n\nthe end")]), size=size) as s:
        await s.ask("x")
        await s.press("h", "i")
        assert s.app.composer.text == "hi"
        for key in ("f1", "escape", "ctrl+o", "right", "escape", "f4", "escape", "ctrl+s", "escape"):
            await s.press(key)
        assert "end" in "".join(line.text for part in s.answers[0].parts_at(size[0]) for line in part)


async def test_resizing_while_it_streams_loses_nothing() -> None:
    words = " ".join(f"w{number}" for number in range(300))
    async with stage(Script([answer_of(words)], tokens_per_s=1500)) as s:
        await s.send("x")
        for size in ((40, 12), (20, 6), (200, 60), (60, 20)):
            await s.pilot.resize_terminal(*size)
            await s.pilot.pause()
        await s.until(lambda: not s.answers[0].streaming)
        assert s.answers[0].text == words
        s.answers[0].colour(True)
        lines = [line.text for part in s.answers[0].parts_at(58) for line in part]
        assert words in "".join(lines)


def visible_words(s: Stage) -> list[str]:
    return [line.strip(" ▐") for line in s.screen.split("\n") if line.strip().startswith("line")]


async def test_the_view_follows_the_end_unless_the_reader_scrolled_up() -> None:
    text = "".join(f"line {number}\n\n" for number in range(200))
    script = Script([answer_of(text), answer_of(text)], tokens_per_s=4000)
    async with stage(script) as s:
        await s.ask("x")
        assert "199" in s.screen
        await s.press("pageup", "pageup")
        there = visible_words(s)
        assert not s.app.transcript.following
        s.app.conversation.ask("again")
        s.app.transcript.scroll_pages(-3)
        await s.pilot.pause()
        there = visible_words(s)
        await s.until(lambda: len(s.answers) == 2 and not s.answers[1].streaming)
        assert visible_words(s) == there
        await s.press("ctrl+end")
        assert s.app.transcript.following
        assert "line 199" in s.screen


async def test_scrolling_down_to_the_end_follows_it_again() -> None:
    async with stage(Script([answer_of("".join(f"line {n}\n\n" for n in range(100)))])) as s:
        await s.ask("x")
        await s.press("pageup", "pageup")
        for _ in range(4):
            await s.press("pagedown")
        assert s.app.transcript.following


async def test_the_wheel_and_the_bar_scroll() -> None:
    async with stage(Script([answer_of("".join(f"line {n}\n\n" for n in range(100)))])) as s:
        await s.ask("x")
        transcript = s.app.transcript
        transcript.scroll_rows(-6)
        assert not transcript.following
        width, height = transcript.size
        await s.pilot.mouse_down("Transcript", offset=(width - 1, 0))
        await s.pilot.mouse_up("Transcript", offset=(width - 1, 0))
        assert "line 0" in s.screen
        await s.pilot.mouse_down("Transcript", offset=(width - 1, height - 1))
        await s.pilot.mouse_up("Transcript", offset=(width - 1, height - 1))
        assert "line 99" in s.screen


async def test_an_answer_settles_into_markdown_and_a_key_brings_the_tokens_back() -> None:
    async with stage(Script([answer_of("some **bold** words")])) as s:
        await s.ask("x")
        assert "some bold words" in s.screen
        await s.press("ctrl+t")
        assert "some **bold** words" in s.screen
        assert "draft's\u00a0guess" in s.screen
        await s.press("ctrl+t")
        assert "some bold words" in s.screen


async def test_thinking_folds_and_unfolds() -> None:
    script = Script([answer_of("<think>secret thoughts</think>\n\nthe answer")])
    async with stage(script) as s:
        answer = await s.ask("x")
        assert "secret" not in s.screen
        assert "▸ thought · 2 words" in s.screen
        await s.press("f6")
        assert "secret thoughts" in s.screen
        await s.press("ctrl+y")
        assert answer.plain_text() == "the answer"


async def test_emoji_and_cjk_are_whole_in_every_frame() -> None:
    script = Script([answer_of("日本語👍🏽 " * 50)], tokens_per_s=1500)
    async with stage(script, size=(31, 16)) as s:
        await s.send("x")
        while not s.answers or s.answers[0].streaming:
            assert "\ufffd" not in s.screen
            await s.pilot.pause(0.01)


async def test_without_colours_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with stage(Script([answer_of("one two three four")])) as s:
        s.app.page.coloured = True
        await s.ask("x")
        strips = s.app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        named = {style.color.name for style in styles if style.color}
        assert named <= {"default"}
        assert any(style.underline for style in styles)
        assert any(style.bold for style in styles)


async def test_a_theme_is_kept_for_the_next_time() -> None:
    async with stage() as s:
        await s.send("/theme light")
        assert s.app.palette.theme == "light"
    async with stage() as s:
        assert s.app.palette.theme == "light"
        assert s.app.current_theme.name == "light"


async def test_the_last_lines_are_copied_as_they_were_written() -> None:
    text = "first paragraph of many words that has to be wrapped\n\nsecond"
    async with stage(Script([answer_of(text)]), size=(30, 30)) as s:
        await s.ask("x")
        await s.press("ctrl+t")
        transcript = s.app.transcript
        rows = s.screen.split("\n")
        top = next(y for y, line in enumerate(rows) if "first" in line)
        end = next(y for y, line in enumerate(rows) if "second" in line)
        await s.pilot.mouse_down("Transcript", offset=(2, top))
        await s.pilot.hover("Transcript", offset=(8, end))
        await s.pilot.mouse_up("Transcript", offset=(8, end))
        assert transcript.selected_text() == text
