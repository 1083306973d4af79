"""Text comes out whole, exactly once, and no part of a stop string is ever shown."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlxspec.chat.detokenizer import AnswerText, Detokenizer, Piece, StopScanner
from tests.fakes import ByteTokenizer, WordTokenizer

TEXTS = [
    "The capital of France is Paris.\n",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumb, 🇫🇷 country",
    "東京は日本の首都です。한국어 中文",
    "שלום עולם مرحبا بالعالم",
    "e\u0301a\u0308\u0323 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "a literal \ufffd replacement \ufffd\ufffd",
    "  two spaces, a tab\tand\r\nlines\n\n\n",
    "<|im_end|> [/] <0x41> ▁ ##ing",
    "",
]


def byte_level() -> Any:
    """GPT-2's decoder, with tokens that end inside characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    sample = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    sample.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merges: list[tuple[str, str]] = []
    for text in TEXTS:
        characters = [c for token in sample.encode(text).tokens for c in token]
        merges += pairwise(characters)
    merges = list(dict.fromkeys(merges))
    vocabulary = {c: i for i, c in enumerate([*alphabet, *dict.fromkeys(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    return _fast(tokenizer)


def sentence_piece(*, strip: bool) -> Any:
    """Llama's decoder: byte tokens, `▁` for a space, the first one stripped or not."""
    from tokenizers import Tokenizer, decoders, models

    names = [
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁the",
        "▁▁",
        "a",
        "é",
        "ing",
        "\ufffd",
        "、",
        "▁▁▁",
    ]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    tokenizer.add_special_tokens(["<s>"])
    return _fast(tokenizer)


def word_piece() -> Any:
    """BERT's decoder: spaces between words, `##` joins."""
    from tokenizers import Tokenizer, decoders, models

    names = ["[UNK]", "play", "##ing", "##er", ".", ",", "'", "n't", "the", "東"]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    return _fast(tokenizer)


def metaspace() -> Any:
    """The decoder of Unigram models: the first word's space is dropped."""
    from tokenizers import Tokenizer, decoders, models

    names = ["<unk>", "▁", "▁the", "▁a", "b", "▁▁", "é"]
    tokenizer = Tokenizer(models.Unigram([(name, -1.0) for name in names], unk_id=0, byte_fallback=False))
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return _fast(tokenizer)


def _fast(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


MAKERS = {
    "bytes": ByteTokenizer,
    "byte level": byte_level,
    "sentence piece, stripped": lambda: sentence_piece(strip=True),
    "sentence piece": lambda: sentence_piece(strip=False),
    "word piece": word_piece,
    "metaspace": metaspace,
}


@pytest.fixture(scope="module", params=MAKERS, ids=MAKERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


@pytest.fixture(scope="module")
def real_tokenizer(default_model: Any) -> Any:
    from mlx_lm.tokenizer_utils import load

    return load(default_model)


def whole(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def streamed(tokenizer: Any, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.add(i) for i in ids), detokenizer.finish()]


def answered(tokenizer: Any, ids: list[int], stops: tuple[str, ...] = ()) -> tuple[AnswerText, list[Piece]]:
    answer = AnswerText(tokenizer, stops)
    pieces = [piece for i in ids for piece in answer.add(i)]
    return answer, pieces + answer.finish()


def only_what_the_whole_has(pieces: list[str], text: str) -> bool:
    return all(piece in text for piece in pieces)


# ---------------------------------------------------------------- Detokenizer


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_streamed_text_equals_the_decoding_of_random_ids(tokenizer: Any, data: st.DataObject) -> None:
    beyond_the_vocabulary = len(tokenizer) + 5
    ids = data.draw(st.lists(st.integers(0, beyond_the_vocabulary), max_size=120))
    pieces = streamed(tokenizer, ids)
    assert "".join(pieces) == whole(tokenizer, ids)
    assert only_what_the_whole_has(pieces, whole(tokenizer, ids))


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_text_equals_the_decoding_of_text(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(streamed(tokenizer, ids)) == whole(tokenizer, ids)


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_text_of_the_real_tokenizer_equals_its_decoding(real_tokenizer: Any, text: str) -> None:
    ids = real_tokenizer.encode(text, add_special_tokens=False)
    pieces = streamed(real_tokenizer, ids)
    assert "".join(pieces) == whole(real_tokenizer, ids) == text
    assert only_what_the_whole_has(pieces, text)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=80), ids=st.lists(st.integers(0, 49200), max_size=80))
def test_streamed_text_of_the_real_tokenizer_equals_the_decoding_of_random_ids(
    real_tokenizer: Any, text: str, ids: list[int]
) -> None:
    ids = real_tokenizer.encode(text, add_special_tokens=False) + ids
    assert "".join(streamed(real_tokenizer, ids)) == whole(real_tokenizer, ids)


def test_an_emoji_comes_out_with_its_last_byte() -> None:
    pieces = streamed(ByteTokenizer(), list("a😀b".encode()))
    assert pieces == ["a", "", "", "", "😀", "b", ""]


def test_an_unfinished_character_becomes_a_replacement_character_at_the_end_only() -> None:
    pieces = streamed(ByteTokenizer(), list("a😀".encode())[:-1])
    assert pieces == ["a", "", "", "", "\ufffd"]


def test_a_run_of_byte_tokens_that_turns_out_invalid_is_not_shown_before() -> None:
    tokenizer = sentence_piece(strip=True)
    ids = tokenizer.convert_tokens_to_ids(["▁the", "<0xC3>", "<0xA9>", "<0xFF>", "a"])
    assert streamed(tokenizer, ids) == ["the", "", "", "", "\ufffd\ufffd\ufffda", ""]


def test_a_literal_replacement_character_does_not_hold_the_text_up() -> None:
    pieces = streamed(ByteTokenizer(), list(("\ufffd" * 40 + "x").encode()))
    assert "".join(pieces[:-2]) == "\ufffd" * 39
    assert "".join(pieces) == "\ufffd" * 40 + "x"


@pytest.mark.parametrize("unit", ["word ", "\ufffd", "é"])
def test_the_cost_of_a_token_does_not_grow_with_the_answer(unit: str) -> None:
    tokenizer = ByteTokenizer()
    detokenizer = Detokenizer(tokenizer)

    def cost_of(count: int) -> int:
        before = tokenizer.decoded_ids
        for i in range(count):
            detokenizer.add(unit.encode()[i % len(unit.encode())])
        return tokenizer.decoded_ids - before

    count = 600  # whole characters of every unit
    cost_of(count)
    early = cost_of(count)
    cost_of(20 * count)
    assert cost_of(count) <= early + 40


# ---------------------------------------------------------------- StopScanner


def scan(stops: tuple[str, ...], *pieces: str) -> tuple[str, str | None]:
    scanner = StopScanner(stops)
    shown = "".join(scanner.feed(piece) for piece in pieces)
    return shown + scanner.finish(), scanner.found


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert StopScanner().feed("anything") == "anything"


def test_the_beginning_of_a_stop_string_waits() -> None:
    scanner = StopScanner(("</end>",))
    assert scanner.feed("text <") == "text "
    assert scanner.feed("/en") == ""
    assert scanner.feed("ough") == "</enough"
    assert scanner.found is None


def test_a_stop_string_across_pieces_is_found() -> None:
    assert scan(("STOP",), "ab S", "T", "OP more") == ("ab ", "STOP")


def test_a_stop_string_in_the_middle_of_a_long_piece_is_found() -> None:
    assert scan(("STOP",), "x" * 1000 + "STOP" + "y" * 1000) == ("x" * 1000, "STOP")


def test_a_stop_string_after_a_false_start_is_found() -> None:
    assert scan(("aab",), "a", "a", "a", "b") == ("a", "aab")
    assert scan(("\n\nQ",), "\n", "\n\n", "Q") == ("\n", "\n\nQ")


def test_of_two_stop_strings_the_one_that_is_complete_first_counts() -> None:
    assert scan(("abcd", "bc"), "abcd") == scan(("abcd", "bc"), *"abcd") == ("a", "bc")
    assert scan(("c", "abc"), "abc") == ("", "abc")


def test_a_stop_string_that_never_completes_is_text() -> None:
    assert scan(("STOP",), "ST", "O") == ("STO", None)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopScanner(("",))


def first_complete(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The definition, read off the whole text."""
    for end in range(1, len(text) + 1):
        if complete := [stop for stop in stops if text[:end].endswith(stop)]:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4).map(tuple),
    pieces=st.lists(st.text("ab\n", max_size=6), max_size=12),
)
@example(stops=("abab",), pieces=["aba", "bab"])
def test_the_scanner_agrees_with_a_search_of_the_whole_text(
    stops: tuple[str, ...], pieces: list[str]
) -> None:
    assert scan(stops, *pieces) == first_complete(stops, "".join(pieces))


# ---------------------------------------------------------------- AnswerText


def test_each_id_comes_out_with_its_text() -> None:
    answer, pieces = answered(WordTokenizer("Hello", " wor", "ld"), [0, 1, 2])
    assert pieces == [Piece(0, "Hello"), Piece(1, " wor"), Piece(2, "ld")]
    assert (answer.stopped, answer.dropped) == (None, 0)


def test_an_id_inside_a_character_has_no_text_and_the_last_one_carries_it() -> None:
    answer = AnswerText(ByteTokenizer())
    first, second = "é".encode()
    assert answer.add(first) == []
    assert answer.add(second) == [Piece(first, ""), Piece(second, "é")]


def test_an_id_comes_out_when_the_next_one_ends_its_character_and_begins_another() -> None:
    answer = AnswerText(ByteTokenizer())
    assert [answer.add(lead) for lead in (0xC3, 0xC4, 0xC5)] == [
        [],
        [Piece(0xC3, "")],
        [Piece(0xC4, "\ufffd")],
    ]


def test_an_unfinished_character_at_the_end_belongs_to_the_last_id() -> None:
    _, pieces = answered(ByteTokenizer(), [97, 0xF0, 0x9F])
    assert pieces == [Piece(97, "a"), Piece(0xF0, ""), Piece(0x9F, "\ufffd")]


def test_ids_that_may_begin_a_stop_string_come_out_later() -> None:
    answer = AnswerText(WordTokenizer("x", " <", "/", "b"), ("</end>",))
    assert answer.add(0) == [Piece(0, "x")]
    assert answer.add(1) == []
    assert answer.add(2) == []
    assert answer.waiting == 2
    assert answer.add(3) == [Piece(1, " <"), Piece(2, "/"), Piece(3, "b")]
    assert answer.waiting == 0


def test_an_id_before_the_possible_beginning_of_a_stop_string_does_not_wait() -> None:
    answer = AnswerText(WordTokenizer("word", "ST"), ("STOP",))
    assert answer.add(0) == [Piece(0, "word")]
    assert answer.add(1) == []


def test_ids_of_a_stop_string_are_dropped_and_counted() -> None:
    answer, pieces = answered(WordTokenizer("Hi", " ST", "OP", "!"), [0, 1, 2], (" STOP",))
    assert pieces == [Piece(0, "Hi")]
    assert (answer.stopped, answer.dropped) == (" STOP", 2)


def test_an_id_across_the_beginning_of_a_stop_string_keeps_its_first_part() -> None:
    answer, pieces = answered(WordTokenizer("Hi", " you ST", "OP"), [0, 1, 2], ("STOP",))
    assert pieces == [Piece(0, "Hi"), Piece(1, " you ")]
    assert (answer.stopped, answer.dropped) == ("STOP", 1)


def test_a_stop_string_inside_one_id_cuts_that_id() -> None:
    answer, pieces = answered(WordTokenizer("a", "b\n\nc"), [0, 1], ("\n\n",))
    assert pieces == [Piece(0, "a"), Piece(1, "b")]
    assert answer.dropped == 0


def test_ids_after_a_stop_string_do_not_come_out() -> None:
    answer, pieces = answered(WordTokenizer("a", "."), [0, 1, 0, 0], (".",))
    assert pieces == [Piece(0, "a")]
    assert answer.dropped == 3


def test_the_first_half_of_a_character_that_begins_a_stop_string_is_dropped_with_it() -> None:
    answer, pieces = answered(ByteTokenizer(), list("aé!".encode()), ("é!",))
    assert pieces == [Piece(97, "a")]
    assert answer.dropped == 3


def test_an_unfinished_character_can_complete_a_stop_string() -> None:
    answer, pieces = answered(ByteTokenizer(), [97, 98, 0xF0], ("b\ufffd",))
    assert pieces == [Piece(97, "a")]
    assert answer.dropped == 2


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_id_comes_out_once_in_order_and_all_texts_join_to_the_decoding(
    tokenizer: Any, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=60))
    text = whole(tokenizer, ids)
    stops = ()
    if text and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(text) - 1))
        stops = (
            text[start : start + data.draw(st.integers(1, 6))],
            data.draw(st.text(min_size=1, max_size=3)),
        )
    answer, pieces = answered(tokenizer, ids, stops)
    expected, found = first_complete(stops, text)
    assert "".join(piece.text for piece in pieces) == expected
    assert answer.stopped == found
    assert [piece.token_id for piece in pieces] == ids[: len(ids) - answer.dropped]
    assert answer.waiting == 0
