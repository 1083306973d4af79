"""`--translate`: a draft model with another tokenizer guesses through its text.

Universal assisted generation (Hugging Face and Intel Labs 2024; Timor et al. 2025, "Accelerating LLM
inference with lossless speculative decoding algorithms for heterogeneous vocabularies", its exact match).
The draft reads the committed text in its own ids and goes on greedily; what it says becomes the target's
ids, which are certain guesses (one-hot), and so every acceptance rule stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

from mlxspec.decoding.cache import common_prefix
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.translation import Translation

SEAM_EVERY = 48
"""Tokens after which the text behind the last seam is not encoded again with each round."""

UNSETTLED = 8  # tokens at the end that no seam comes near: they may still be encoded otherwise
WORDLESS = 4 * SEAM_EVERY  # tokens after which a seam need not stand where a word begins


class TranslatedDraft:
    """Guesses by the text of a draft model.

    One host sync a proposal, to read the text. What the draft has read stays in its cache as far as the
    ids of the text stay the same: a word that went on may be spelt with other tokens, and is read again.

    Args:
        draft: the draft model, which sees its own ids alone.
        translation: between the two tokenizers.
        vocab_size: width of the draft's logits.
        context_tokens: the longest sequence that the draft can read, in its own tokens.
    """

    name = "translated"

    def __init__(
        self, draft: DraftModel, translation: Translation, *, vocab_size: int, context_tokens: int
    ) -> None:
        self._draft = draft
        self._translation = translation
        self._context_tokens = context_tokens
        # Certain guesses want the likeliest words, however bold the target is.
        greedy = SamplingParams(temperature=0.0, top_p=1.0)
        self._sampler = Sampler(greedy, vocab_size=vocab_size, rule=Rule.BLOCK, seed=0)
        self._cancelled: Callable[[], bool] = lambda: False
        self._tokens: list[int] = []  # the target's, committed
        self._read = 0  # how many of them `_ids` spells
        self._ids: list[int] = []  # the draft's
        self._guesses: list[int] = []  # the draft's, made behind `_ids` and not followed by others yet
        self._begun = False  # was the draft told of `_ids`?
        # (tokens, ids): so many of each spell the same text, and what follows is encoded by itself.
        self._seams: list[tuple[int, int]] = [(0, 0)]

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`; the text is encoded when a guess is asked for."""
        del sampler
        same = common_prefix(self._tokens, tokens)
        self._seams = [seam for seam in self._seams if seam[0] <= same]
        self._read = self._seams[-1][0]
        self._tokens = list(tokens)
        self._cancelled = cancelled
        self._begun = False

    def offer(self) -> Option:
        """As a draft model; tokens that were not encoded yet count as one of the draft's each."""
        missing = len(self._tokens) - self._read
        spelt = len(self._ids) if self._begun else self._seams[-1][1]
        inner = self._draft.offer()
        room = min(inner.max_k, max(0, self._context_tokens - spelt - missing))
        return Option(self.name, max_k=room, catch_up=inner.catch_up + missing)

    def propose(self, k: int) -> Proposal | None:
        """At most `k` guesses out of `k` of the draft's; None when its text gives none, or when cancelled."""
        self._follow()
        if not self._ids or len(self._ids) + k > self._context_tokens:
            return None
        proposal = self._draft.propose(k)
        if proposal is None:
            return None
        self._guesses = cast(list[int], proposal.tokens.tolist())
        unfinished = self._tokens[self._read :]
        guesses = self._translation.for_target(self._ids, self._guesses, unfinished)[:k]
        return Proposal(mx.array(guesses, mx.uint32)) if guesses else None

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """The draft hears of them with its next proposal, by its own guesses as far as they are the same."""
        del accepted
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Forget the sequence."""
        self._draft.close()
        self._tokens, self._ids, self._guesses = [], [], []
        self._read = 0
        self._seams = [(0, 0)]
        self._begun = False

    def _follow(self) -> None:
        """Spell the committed text in the draft's ids, and tell the draft."""
        ids = self._spelt()
        if self._begun and ids[: len(self._ids)] == self._ids:
            new = ids[len(self._ids) :]
            self._draft.committed(new, common_prefix(new, self._guesses))
        else:
            self._draft.reset(ids, self._sampler, self._cancelled)
        self._ids, self._guesses, self._begun = ids, [], True

    def _spelt(self) -> list[int]:
        translation, tokens = self._translation, self._tokens
        first, kept = self._seams[-1]
        self._read = translation.target.finished(tokens, first)
        ids = self._ids[:kept] if kept else list(translation.draft.beginning)
        if self._read - first > SEAM_EVERY and (seam := self._place_of_seam(first)) is not None:
            ids += translation.for_draft(tokens[:seam], first, within=first > 0)
            self._seams.append((seam, len(ids)))
            first = seam
        return ids + translation.for_draft(tokens[: self._read], first, within=first > 0)

    def _place_of_seam(self, first: int) -> int | None:
        """The last place behind `first`, but not near the end, where a word begins; None to wait for one."""
        target, last = self._translation.target, self._read - UNSETTLED
        for place in range(last, max(first, last - WORDLESS), -1):
            if target.begins_a_word(self._tokens[place]):
                return place
        if last - first < WORDLESS:
            return None
        return target.finished(self._tokens[:last], first)
