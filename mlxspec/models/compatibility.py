"""May this draft guess for this target?

A guess is a token id, so both models must mean the same text by an id. Sizes do not matter: models of
one family pad their logits differently (Qwen2.5: 151,936 and 152,064), and neither do merges, because
the target's tokenizer alone reads the prompt. Tokens that end an answer are ids like others: when the
target ends it, the answer ends, whatever the draft would have done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxspec.models.loading import LoadedModel


def incompatibility(target: LoadedModel, draft: LoadedModel) -> str | None:
    """Why `draft` cannot guess for `target`, as a sentence without its full stop; None when it can.

    Compared are the texts of all ids that both tokenizers name and both models can emit.
    """
    ours, theirs = _texts(target), _texts(draft)
    shared = ours.keys() & theirs.keys()
    if not shared:
        return "their vocabularies share no token ids"
    different = [i for i in shared if ours[i] != theirs[i]]
    if not different:
        return None
    first = min(different)
    return (
        f"{len(different)} of {len(shared)} tokens differ, the first is token {first}: "
        f"{ours[first]!r} in {target.name}, {theirs[first]!r} in {draft.name}"
    )


def _texts(model: LoadedModel) -> dict[int, str]:
    """Token texts by id, added tokens included, as far as the logits reach."""
    return {i: text for text, i in model.tokenizer.get_vocab().items() if i < model.vocab_size}
