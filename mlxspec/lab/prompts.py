"""The prompts that mlxspec measures with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mlxspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt and the kind of text that it asks for."""

    domain: str
    prompt: str


def bench_prompts() -> list[BenchPrompt]:
    """The 24 prompts that come with mlxspec: eight kinds of text, three each."""
    return parse_prompts(
        resources.files("mlxspec.lab").joinpath("bench.jsonl").read_text(encoding="utf-8"), "bench.jsonl"
    )


def read_prompts(path: Path) -> list[BenchPrompt]:
    """The prompts of a JSON Lines file with `prompt` and, if wanted, `domain` in each line.

    Raises:
        UsageError: the file cannot be read, is empty, or has a line that is not such an object.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8.", hint="Give a JSON Lines file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path} cannot be read: {reason}.", hint="Give a text file that is there."
        ) from error
    return parse_prompts(text, str(path))


def chosen_prompts(file: Path | None, text: str | None, limit: int | None) -> tuple[BenchPrompt, ...]:
    """The prompts of a file, or one text, or those that come with mlxspec; the first `limit` of them.

    Raises:
        UsageError: file and text are given, one of them is no good, or the limit is below 1.
    """
    if file is not None and text is not None:
        raise UsageError("Both --prompts and --prompt are given.", hint="Give one of them.")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit cannot be {limit}.", hint="Give --limit 1 or more, or leave it out.")
    if text is not None and not _is_text(text):
        raise UsageError("The prompt is empty, or no UTF-8.", hint='Write one: --prompt "Tell a story."')
    if file is not None:
        prompts = read_prompts(file)
    else:
        prompts = bench_prompts() if text is None else [BenchPrompt("prompt", text)]
    return tuple(prompts[:limit])


def parse_prompts(text: str, name: str) -> list[BenchPrompt]:
    """As `read_prompts`, from the file's text; `name` is for the messages."""
    prompts: list[BenchPrompt] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            prompt, domain = record["prompt"], record.get("domain", "all")
        except (ValueError, KeyError, TypeError, AttributeError):
            prompt = domain = None
        if not _is_text(prompt) or not _is_text(domain):
            raise UsageError(
                f"Line {number} of {name} is no prompt.",
                hint='Write one object a line, such as {"domain": "code", "prompt": "Write a loop."}.',
            )
        prompts.append(BenchPrompt(domain, prompt))
    if not prompts:
        raise UsageError(f"{name} has no prompts.", hint="Write one JSON object with a prompt on each line.")
    return prompts


def _is_text(value: object) -> bool:
    """Is it a string that says something, and can be written as UTF-8?"""
    try:
        return isinstance(value, str) and bool(value.strip()) and bool(value.encode("utf-8"))
    except UnicodeEncodeError:
        return False
