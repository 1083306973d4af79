"""Answers as Markdown."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tui.lines import Line
from tui.markdown_view import blocks, render


def page(text: str, width: int = 40) -> list[str]:
    return [
        ("".join(part for part, _ in line.gutter) + line.text).rstrip()
        for line in render(blocks(text), width)
    ]


def lines(text: str, width: int = 40) -> list[Line]:
    return render(blocks(text), width)


def test_blocks_stand_apart_by_one_line() -> None:
    assert page("# Title\nText\n\nmore") == ["Title", "", "Text", "", "more"]


def test_lists_keep_their_numbers_and_bullets() -> None:
    assert page("3. three\n4. four\n") == ["3. three", "4. four"]
    assert page("- one\n- two\n  - deep\n") == ["• one", "• two", "  ◦ deep"]


def test_a_wrapped_item_hangs_under_its_text() -> None:
    assert page("- one two three", 10) == ["• one two", "  three"]


def test_quotes_have_a_bar_on_every_line() -> None:
    assert page("> one two three\n>\n> e", 12) == ["▎ one two", "▎ three", "▎", "▎ e"]


def test_code_is_coloured_and_keeps_its_lines() -> None:
    found = lines("```python\ndef f():\n    return 1\n```")
    assert [line.text for line in found] == ["", "def f():", "    return 1"]
    assert ("def", "keyword on-surface") in found[1].pieces


def test_code_in_an_unknown_language_is_shown_as_it_is() -> None:
    assert [line.text for line in lines("```nonsense\n<x>\n```")][-1] == "<x>"


def test_an_unfinished_fence_is_code_to_the_end() -> None:
    assert [line.text for line in lines("```\nx = 1\ny = 2")] == ["x = 1", "y = 2"]


def test_a_wide_table_is_wrapped_into_the_width() -> None:
    found = page("| a | b |\n|---|---|\n| one | " + "word " * 12 + "|", 30)
    assert all(cell_len(line.rstrip()) <= 30 for line in found)
    assert found[0].startswith("a")


@pytest.mark.parametrize("text", ["[/]", "[bold]x[/bold]", "[/red", "a [link=x]b", "[@click=app.bell]x[/]"])
def test_brackets_are_text(text: str) -> None:
    assert page(text) == [text]


def test_html_is_text() -> None:
    assert page("<b>x</b>") == ["<b>x</b>"]


def test_escape_bytes_and_entities_of_them_are_shown() -> None:
    assert "\x1b" not in "".join(page("a \x1b[31m b &#27;[0m `\x1b` \n\n```\n\x1b]0;t\x07\n```"))


def test_a_link_says_where_it_leads() -> None:
    assert page("[here](https://example.org)") == ["here (https://example.org)"]


@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_narrow_pages_lose_no_text(width: int) -> None:
    text = "- a **bold** item\n  - deeper\n    - deepest\n\n> quoted `code`\n\n1. x"
    shown = "".join(line.text for line in lines(text, width)).replace(" ", "")
    for word in ("bold", "deeper", "deepest", "quoted", "code", "x"):
        assert word in shown
