"""A draft as it is typed."""

from __future__ import annotations

import pytest

from mlxspec.drafters.choice import DraftChoice
from mlxspec.errors import UsageError


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", DraftChoice("auto")),
        ("qwen-0.5b", DraftChoice("qwen-0.5b")),
        ("exit:8", DraftChoice("exit:8")),
        ("a --translate", DraftChoice("a", translate=True)),
        ("a --draft-vocab 8192", DraftChoice("a", vocab=8192)),
        ("a --draft-vocab=12", DraftChoice("a", vocab=12)),
        (" a --draft-vocab 9 --translate ", DraftChoice("a", translate=True, vocab=9)),
        ("./a folder --translate", DraftChoice("./a folder", translate=True)),
        ("./a --translated/b", DraftChoice("./a --translated/b")),
    ],
)
def test_options_stand_behind_the_name(text: str, choice: DraftChoice) -> None:
    assert DraftChoice.parse(text) == choice
    assert DraftChoice.parse(str(choice)) == choice


@pytest.mark.parametrize(
    "text",
    ["", "--translate", " --draft-vocab 3", "a --draft-vocab 0", "a --draft-vocab ten", "a --draft-vocab -1"],
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        DraftChoice.parse(text)
