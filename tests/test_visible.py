"""Nothing that a model, a user or a file name says steers the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.chat.visible import visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("a\rb\bc\0\x7f", "a␍b␈c␀␡"),
        ("\x9b31m", "⟦U+009B⟧31m"),
        ("\u202egnp.exe", "⟦U+202E⟧gnp.exe"),
        ("\u2066x\u2069", "⟦U+2066⟧x⟦U+2069⟧"),
        ("\udcff", "⟦U+DCFF⟧"),
    ],
)
def test_control_characters_become_symbols(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["a\tb\nc", "👩‍👩‍👧‍👦 🏳️‍🌈", "שלום عالم", "e\u0301", "[/] [bold]", "\ufffd", "می‌خواهم"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text


def test_a_name_stays_on_its_line() -> None:
    assert visible_line("a\nb\tc") == "a␊b␉c"


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert {c for c in visible(text) if unicodedata.category(c) in ("Cc", "Cs")} <= {"\n", "\t"}
    assert not {c for c in visible_line(text) if unicodedata.category(c) in ("Cc", "Cs")}
