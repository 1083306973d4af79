"""A conversation -> the token ids that the target reads.

The model's chat template says how turns are written. What people and models wrote is text and nothing
else: a control token inside it, such as `<|im_end|>`, is encoded as the characters it is made of, so that
no message can end its turn or begin another (transformers' `sanitize_control_tokens`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.errors import UnsupportedModel, UsageError

ROLES = ("system", "user", "assistant")

# Text that no template contains, to see what a template does with a message.
_PROBE = "mlxspec-probe"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: `role` is "system", "user" or "assistant"."""

    role: str
    content: str

    def __post_init__(self) -> None:
        # Templates paste roles into their control tokens, where nothing is sanitised.
        if self.role not in ROLES:
            raise ValueError(f"{self.role!r} is no role; roles are {', '.join(ROLES)}")


def render(tokenizer: Any, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
    """The ids of the whole conversation and of the beginning of the next answer.

    A system message goes into the first user message where the template has no place for it. A model
    without a chat template gets the text to continue, with the beginning-of-text token that its tokenizer
    asks for. `think` turns reasoning on or off where the template has that switch; None leaves it alone.

    Args:
        tokenizer: mlx-lm's TokenizerWrapper, or a Hugging Face tokenizer.
        messages: at least one, a system message only as the first.
        think: see above.

    Raises:
        UnsupportedModel: the template refuses the conversation.
        UsageError: a control token in the text cannot be written as text with this tokenizer.
    """
    if not has_chat_template(tokenizer):
        return _continued(tokenizer, messages)
    if messages[0].role == "system" and not _takes_system(tokenizer):
        messages = _system_in_first_question(messages)
    options = {}
    if think is not None and (switch := _thinking_switch(tokenizer)):
        options[switch] = think
    from jinja2.exceptions import TemplateError

    try:
        return _apply(tokenizer, _dicts(messages), options)
    except TemplateError as error:
        raise UnsupportedModel(
            f"This model's chat template refuses the conversation: {error}.",
            hint="Begin a new conversation, leave out the system text, or use another model.",
        ) from error


def user_turn(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids before what a user says first and those behind it, as the chat template writes them.

    The tokenizer has a template. The second list ends where the answer begins.

    Raises:
        UnsupportedModel: the template changes what it is given, or gives no text.
    """
    before, found, after = _text(tokenizer, _dicts([Message("user", _PROBE)]), {}).partition(_PROBE)
    if not found:
        raise UnsupportedModel(
            "This model's chat template changes what a user says.", hint="Use another model."
        )

    def ids(text: str) -> list[int]:
        return list(_unwrapped(tokenizer).encode(text, add_special_tokens=False))

    return ids(before), ids(after)


def has_chat_template(tokenizer: Any) -> bool:
    """Can the model chat? Without a template it continues text."""
    if (known := getattr(tokenizer, "has_chat_template", None)) is not None:
        return bool(known)
    return getattr(tokenizer, "chat_template", None) is not None


def has_thinking_switch(tokenizer: Any) -> bool:
    """Does the template write another prompt when thinking is off?"""
    return has_chat_template(tokenizer) and _thinking_switch(tokenizer) is not None


def _apply(tokenizer: Any, conversation: list[dict[str, str]], options: dict[str, bool]) -> list[int]:
    plain = _unwrapped(tokenizer)
    try:
        if _writes_its_own_prompt(tokenizer):
            return _encode_own_prompt(tokenizer, conversation, options)
        # Not by mlx-lm's wrapper: it turns thinking on where nobody asked for it.
        ids = plain.apply_chat_template(
            conversation,
            tokenize=True,
            add_generation_prompt=True,
            sanitize_control_tokens=True,
            return_dict=False,
            **options,
        )
    except ValueError as error:
        if "sanitize" not in str(error):
            raise
        raise UsageError(
            f"The text holds a control token that this model cannot read as text ({error}).",
            hint="Write it with a space inside, or leave it out.",
        ) from error
    return list(ids)


def _encode_own_prompt(
    tokenizer: Any,
    conversation: list[dict[str, str]],
    options: dict[str, bool],
) -> list[int]:
    """Sanitise around a renderer in Python, which knows nothing of `sanitize_control_tokens`."""
    import re

    from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

    plain = _unwrapped(tokenizer)
    names = sorted((name for name in plain.added_tokens_encoder if not name.isspace()), key=len, reverse=True)
    control = re.compile("|".join(map(re.escape, names)) or "(?!)")
    text = _text(tokenizer, mark_control_tokens(conversation, control), options)
    return list(encode_marked_chat(plain, text))


def _text(tokenizer: Any, conversation: list[dict[str, str]], options: dict[str, bool]) -> str:
    renderer = tokenizer if _writes_its_own_prompt(tokenizer) else _unwrapped(tokenizer)
    text = renderer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True, **options)
    if not isinstance(text, str):
        raise UnsupportedModel(
            "This model's tokenizer writes its prompts in a way of its own that gives no text.",
            hint="Use another model.",
        )
    return text


def _takes_system(tokenizer: Any) -> bool:
    """False when the template raises at a system message, or leaves it out without a word."""
    from jinja2.exceptions import TemplateError

    probe = _dicts([Message("system", _PROBE), Message("user", "Hello")])
    try:
        return _PROBE in _text(tokenizer, probe, {})
    except TemplateError:
        return False


def _thinking_switch(tokenizer: Any) -> str | None:
    """The name of the template's variable that turns thinking on and off."""
    from jinja2.exceptions import TemplateError

    probe = _dicts([Message("user", "Hello")])
    try:
        for name in ("enable_thinking", "thinking"):
            if _text(tokenizer, probe, {name: True}) != _text(tokenizer, probe, {name: False}):
                return name
    except TemplateError:
        return None
    return None


def _system_in_first_question(messages: Sequence[Message]) -> list[Message]:
    system, *rest = messages
    if not rest or rest[0].role != "user":
        return [Message("user", system.content), *rest]
    return [Message("user", f"{system.content}\n\n{rest[0].content}"), *rest[1:]]


def _continued(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The joined text: an answer follows its question directly, a question begins a new paragraph."""
    text = ""
    for message in messages:
        text += message.content if message.role == "assistant" or not text else f"\n\n{message.content}"
    ids = list(tokenizer.encode(text, add_special_tokens=True, split_special_tokens=True))
    # Some tokenizers close every text; here it is to go on.
    while len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        ids.pop()
    return ids


def _writes_its_own_prompt(tokenizer: Any) -> bool:
    from transformers import PreTrainedTokenizerBase

    if getattr(tokenizer, "_chat_template", None) is not None:  # one of mlx-lm's renderers
        return True
    own = type(_unwrapped(tokenizer)).apply_chat_template
    return own is not PreTrainedTokenizerBase.apply_chat_template


def _unwrapped(tokenizer: Any) -> Any:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    return tokenizer._tokenizer if isinstance(tokenizer, TokenizerWrapper) else tokenizer


def _dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
