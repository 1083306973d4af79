"""Where lines break."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.wrapping import breaks, column_to_offset, cut_to

FAMILY = "👩‍👩‍👧‍👦"
GRAPHEMES = st.sampled_from(["a", "b", "é", " ", " ", "日", "本", FAMILY, "👍🏽", "-", "ש"])
TEXTS = st.lists(GRAPHEMES, max_size=40).map("".join)


def lines(text: str, width: int) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *breaks(text, width), len(text)])]


def test_lines_break_at_spaces() -> None:
    assert lines("hello world this is a test", 10) == ["hello ", "world this ", "is a test"]


def test_a_long_word_is_cut() -> None:
    assert lines("aaaaaaaaaa bb", 4) == ["aaaa", "aaaa", "aa ", "bb"]


def test_indented_code_keeps_its_first_word_beside_the_indentation() -> None:
    assert lines("    a_long_name_of_code", 10)[0] == "    a_long"


def test_chinese_and_japanese_break_without_spaces() -> None:
    assert lines("日本語のテキスト", 7) == ["日本語", "のテキ", "スト"]


def test_an_emoji_of_several_people_is_never_cut() -> None:
    assert all(part.count(FAMILY) or not part.strip() for part in lines(FAMILY * 5, 3))


@settings(deadline=None)
@given(TEXTS, st.integers(2, 20))
def test_lines_join_to_the_text_and_fit(text: str, width: int) -> None:
    found = lines(text, width)
    assert "".join(found) == text
    assert all(cell_len(line.rstrip(" ")) <= width for line in found)


@settings(deadline=None)
@given(TEXTS, st.integers(2, 20))
def test_text_that_comes_later_moves_no_break_but_the_last(text: str, width: int) -> None:
    whole = breaks(text, width)
    assert all(place in whole for place in breaks(text[:-1], width)[:-1])


def test_a_column_inside_a_wide_character_means_that_character() -> None:
    assert [column_to_offset("a日b", column) for column in range(5)] == [0, 1, 1, 2, 3]


def test_a_text_is_cut_with_an_ellipsis() -> None:
    assert cut_to("日本語", 4) == "日…"
    assert cut_to("abc", 3) == "abc"
    assert cut_to("abc", 0) == ""
