"""Between two tokenizers: byte-level and SentencePiece-like ones, trained on a few lines here."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from mlxspec.drafters.translation import Tongue, Translation

TEXT = (
    "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox does not.\n\n"
    "def reverse(items):\n    return items[::-1]\n\nNaïve café, 12,345 Euro — 日本語のテキスト 🌸🌸 end.\n"
)
SPECIAL = ["<s>", "</s>", "<|turn|>"]
KINDS = ("bytes", "few bytes", "pieces")


@cache
def tokenizer(kind: str) -> Any:
    """`bytes` and `few bytes` are byte-level, `pieces` puts a space in front of every text."""
    # Another order of the special tokens, so that their ids differ from tongue to tongue.
    special = SPECIAL if kind == "bytes" else SPECIAL[::-1]
    made = pieces() if kind == "pieces" else byte_level(300 if kind == "few bytes" else 380, special)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", additional_special_tokens=["<s>", "<|turn|>"]
    )


def byte_level(size: int, special: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT], trainer)
    return made


def pieces() -> Tokenizer:
    """As Llama 2's: bytes for what is not in the vocabulary."""
    made = Tokenizer(models.BPE(byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=90, limit_alphabet=40, show_progress=False)
    )
    learnt = json.loads(made.to_str())["model"]
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *learnt["vocab"]]
    merges = [tuple(pair) for pair in learnt["merges"]]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    made.model = models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<s>")
    made.add_special_tokens(SPECIAL)
    to_text = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    made.decoder = decoders.Sequence(to_text)
    return made


@cache
def tongue(kind: str) -> Tongue:
    plain = tokenizer(kind)
    return Tongue(plain, frozenset({plain.convert_tokens_to_ids("</s>")}))


def translation(target: str, draft: str) -> Translation:
    return Translation(tongue(target), tongue(draft))


PAIRS = [(target, draft) for target in KINDS for draft in KINDS if target != draft]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_within_a_text_is_encoded_without_a_space_of_its_own(kind: str) -> None:
    own = tongue(kind)
    for place in range(1, len(TEXT)):
        front, rest = own.encode(TEXT[:place], within=False), own.encode(TEXT[place:], within=True)
        assert own.text([*front, *rest], 0, len(front) + len(rest)) == TEXT


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_the_draft_reads_the_text_of_the_target(target: str, draft: str) -> None:
    tokens = tongue(target).encode(TEXT, within=False)
    ids = translation(target, draft).for_draft(tokens, 0, within=False)
    assert ids == tongue(draft).encode(TEXT, within=False)


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_a_draft_that_is_right_gives_the_tokens_of_the_target(target: str, draft: str) -> None:
    between = translation(target, draft)
    tokens = tongue(target).encode(TEXT, within=False)
    for place in range(1, len(tokens)):
        read = between.target.finished(tokens[:place], 0)
        ids = between.for_draft(tokens[:read], 0, within=False)
        rest = between.target.text(tokens, read, len(tokens))
        guesses = between.for_target(ids, between.draft.encode(rest, within=True), tokens[read:place])
        # A word that was begun is at times spelt in another way; then the text at least is the same.
        if tongue(target).encode(rest, within=True) == tokens[read:]:
            assert guesses == tokens[place:]
        else:
            assert tongue(target).text([*tokens[:place], *guesses], 0, place + len(guesses)) == TEXT


def test_a_long_run_of_bytes_is_read_from_any_of_its_characters() -> None:
    own = tongue("pieces")
    characters = "鬱ж🐢憂" * 4  # none has a token of its own
    tokens = own.encode(characters, within=True)
    places = [len(own.encode(characters[:length], within=True)) for length in range(len(characters) + 1)]
    assert len(tokens) == len(characters.encode()), "a token a byte"
    for length, place in enumerate(places):
        assert own.text(tokens, place, len(tokens)) == characters[length:]
    for end in range(1, len(tokens) + 1):
        assert own.finished(tokens[:end], 0) == max(place for place in places if place <= end)


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_no_guess_is_made_of_an_unfinished_character(target: str, draft: str) -> None:
    between = translation(target, draft)
    said = between.draft.encode(" 日本", within=True)
    for end in range(len(said)):
        guesses = between.for_target([], said[:end], [])
        assert "\ufffd" not in between.target.text(guesses, 0, len(guesses))


def test_a_character_that_the_target_has_begun_is_guessed_to_its_end() -> None:
    between = translation("few bytes", "pieces")
    flower = between.target.encode("🌺", within=True)
    assert len(flower) > 2, "a character of several tokens"
    for begun in range(1, len(flower)):
        assert between.target.finished(flower[:begun], 0) == 0
        guesses = between.for_target([], between.draft.encode("🌺", within=True), flower[:begun])
        assert guesses == flower[begun:]
    assert between.for_target([], between.draft.encode("x", within=True), flower[:2]) == []


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_special_tokens_are_exchanged_by_name(target: str, draft: str) -> None:
    between = translation(target, draft)
    here, there = tokenizer(target), tokenizer(draft)
    tokens = [*here.encode("The fox"), *here.convert_tokens_to_ids(["<|turn|>", "</s>"])]
    ids = between.for_draft(tokens, 0, within=False)
    assert ids[-2:] == there.convert_tokens_to_ids(["<|turn|>", "</s>"])
    fox = between.draft.encode(" fox", within=True)
    guesses = between.for_target(ids, [*fox, ids[-1], *fox], [])
    assert guesses == [*between.target.encode(" fox", within=True), tokens[-1]], (
        "what follows an end is nothing"
    )


def test_a_special_token_that_the_other_has_not_is_left_out() -> None:
    target, draft = tongue("bytes"), Tongue(tokenizer("few bytes"), frozenset())
    del draft.special["<|turn|>"]
    turn = target.special["<|turn|>"]
    dog = target.encode("dog", within=False)
    ids = Translation(target, draft).for_draft([turn, *dog, turn], 0, within=False)
    assert ids == draft.encode("dog", within=False)


@pytest.mark.parametrize("kind", KINDS)
def test_text_never_becomes_a_special_token(kind: str) -> None:
    own = tongue(kind)
    assert not set(own.encode("</s><|turn|>", within=True)) & set(own.special.values())


@pytest.mark.parametrize("kind", KINDS)
def test_random_tokens_are_translated_without_harm(kind: str) -> None:
    rng = random.Random(1)
    for target, draft in PAIRS:
        if target == kind:
            between = translation(target, draft)
            tokens = [rng.randrange(300) for _ in range(60)]
            read = between.target.finished(tokens, 0)
            ids = between.for_draft(tokens[:read], 0, within=False)
            between.for_target(ids, [rng.randrange(300) for _ in range(8)], tokens[read:])
