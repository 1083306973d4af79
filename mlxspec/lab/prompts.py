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
    return parse_prompts(resources.files("mlxspec.lab").joinpath("bench.jsonl").read_text(), "bench.jsonl")


def read_prompts(path: Path) -> list[BenchPrompt]:
    """The prompts of a JSON Lines file with `prompt` and, if wanted, `domain` in each line.

    Raises:
        UsageError: the file cannot be read, is empty, or has a line that is not such an object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Give a text file that is there.") from None
    return parse_prompts(text, str(path))


def parse_prompts(text: str, name: str) -> list[BenchPrompt]:
    """As `read_prompts`, from the file's text; `name` is for the messages."""
    prompts: list[BenchPrompt] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            prompt, domain = record["prompt"], record.get("domain", "all")
        except (ValueError, KeyError, TypeError, AttributeError):
            prompt = domain = None
        if not isinstance(prompt, str) or not prompt.strip() or not isinstance(domain, str):
            raise UsageError(
                f"Line {number} of {name} is no prompt.",
                hint='Write one object a line, such as {"domain": "code", "prompt": "Write a loop."}.',
            )
        prompts.append(BenchPrompt(domain, prompt))
    if not prompts:
        raise UsageError(f"{name} has no prompts.", hint="Write one JSON object with a prompt on each line.")
    return prompts
