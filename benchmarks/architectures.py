"""Every architecture that mlx_lm.models can build small: its caches, how each is rewound, and is it lossless?

    python -m benchmarks.architectures [NAME ...] [--list] [--write]

Tiny random float32 models, windows and chunks of 8 rows. For each: 48 greedy tokens and 32 at temperature 1
under the coupled rule, k = 1, 4, 8, with a draft that errs, with itself as its draft and with lookup, against
plain decoding one token a pass; the same as the draft of a llama; later turns against cold runs; the next
answer after a failure at each forward, rewind, sample and yield of an answer; and quantised caches.

`--write` puts the rows of these architectures into docs/architectures.md; the rows of others stay. Exits with
1 when a check failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import mlxspec  # noqa: F401  (before MLX: chooses the BLAS)

import mlx.core as mx  # isort: skip

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.layer_kinds import leaves_of, way_back
from tests.architecture_checks import (
    Subject,
    check_closed,
    check_draft,
    check_failures,
    check_kv_bits,
    check_target,
    check_turns,
)
from tests.tiny_models import ARCHITECTURES, LEFT_OUT

DOCS = Path(__file__).resolve().parents[1] / "docs" / "architectures.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
GUESSES = (1, 4, 8)
TARGET = "llama"
GREEDY, WARM = 0.0, 1.0
TOKENS = {GREEDY: 48, WARM: 32}
DRAFT_TOKENS = 16
FAILED = "**no**"


@dataclass(frozen=True)
class Row:
    """A line of the table, as text."""

    architecture: str
    caches: str
    same_ids_as_target: str
    same_ids_as_draft: str
    itself_accepted: str
    erring_draft_accepted: str
    reused_in_turns_2_and_3: str
    failures_survived: str
    kv_bits: str
    ties: str


def main() -> int:
    """Run what was asked for and say how it went."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("names", nargs="*", metavar="NAME", help="architectures; all when none is named")
    arguments.add_argument("--list", action="store_true", help="only list the caches of each")
    arguments.add_argument("--write", action="store_true", help="write docs/architectures.md")
    asked = arguments.parse_args()
    names = asked.names or list(ARCHITECTURES)
    if unknown := set(names) - set(ARCHITECTURES):
        arguments.error(f"no such architecture: {', '.join(sorted(unknown))}")
    if asked.list:
        for name in names:
            print(f"{name}: {describe(PromptCache(Subject(name).model))}")
        return 0
    failed = 0
    target = Subject(TARGET)
    for name in names:
        began = time.perf_counter()
        row, faults = examine(name, target)
        failed += bool(faults)
        print(f"{name} ({time.perf_counter() - began:.0f} s): {'; '.join(faults) or 'lossless'}", flush=True)
        if asked.write:
            write({**read(), name: row})
        mx.clear_cache()
    print(f"{len(names) - failed} of {len(names)} architectures passed every check")
    return 1 if failed else 0


def examine(name: str, target: Subject) -> tuple[Row, list[str]]:
    """Everything about one architecture: its row, and the checks that failed."""
    subject = Subject(name)
    faults: list[str] = []
    accepted = {"erring": Counter[str](), "itself": Counter[str]()}

    def attempt(check: Callable[[], str]) -> str:
        try:
            return check()
        except Exception as error:  # a crash of one model is a result too
            faults.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return FAILED

    def as_target() -> str:
        runs = 0
        for temperature in (GREEDY, WARM):
            for draft in ("erring", "itself", "lookup"):
                for k in GUESSES:
                    given = check_target(
                        subject, draft=draft, k=k, temperature=temperature, tokens=TOKENS[temperature]
                    )
                    runs += 1
                    if draft in accepted:
                        accepted[draft].update(accepted=given.accepted, proposed=given.proposed)
        return f"{runs} runs"

    def as_draft() -> str:
        for temperature in (GREEDY, WARM):
            for k in GUESSES:
                check_draft(subject, target, k=k, temperature=temperature, tokens=DRAFT_TOKENS)
        return f"{2 * len(GUESSES)} runs"

    row = Row(
        architecture=name,
        caches=describe(PromptCache(subject.model)),
        same_ids_as_target=attempt(as_target),
        same_ids_as_draft=attempt(as_draft),
        itself_accepted=_share(accepted["itself"]),
        erring_draft_accepted=_share(accepted["erring"]),
        reused_in_turns_2_and_3=attempt(lambda: ", ".join(map(str, check_turns(subject)[:2]))),
        failures_survived=attempt(lambda: str(check_failures(subject) + check_closed(subject))),
        kv_bits=attempt(lambda: check_kv_bits(name)),
        ties=", ".join(f"{margin:.0e}" for margin in subject.ties) or "none",
    )
    return row, faults


def describe(cache: PromptCache) -> str:
    """The caches of a model in words: how many of each kind, and how they give rows back."""
    counts = Counter((type(leaf).__name__, way_back(leaf)) for leaf in leaves_of(cache.layers))
    words = [f"{count} {kind} ({way})" for (kind, way), count in sorted(counts.items())]
    if cache.row_by_row:
        words.append("one row a pass")
    return ", ".join(words)


def read() -> dict[str, Row]:
    """The rows that the docs have."""
    text = DOCS.read_text() if DOCS.exists() else ""
    _, begin, rest = text.partition(BEGIN)
    table, end, _ = rest.partition(END)
    if not (begin and end):
        return {}
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    return {row[0]: Row(*row) for row in cells if len(row) == len(fields(Row)) and row[0] in ARCHITECTURES}


def write(rows: dict[str, Row]) -> None:
    """Replace the table in the docs, which keep their other words."""
    before, begin, rest = DOCS.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{DOCS} has lost its markers {BEGIN} and {END}")
    DOCS.write_text(before + BEGIN + "\n" + "\n".join(_table(rows)) + "\n" + END + after)


def _table(rows: dict[str, Row]) -> Iterator[str]:
    names = [field.name for field in fields(Row)]
    yield "| " + " | ".join(name.replace("_", " ") for name in names) + " |"
    yield "|" + "---|" * len(names)
    for row in sorted(rows.values(), key=lambda row: row.architecture.lower()):
        yield "| " + " | ".join(getattr(row, name) for name in names) + " |"
    passed = sum(FAILED not in vars(row).values() for row in rows.values())
    yield ""
    yield f"{passed} of {len(rows)} architectures passed every check. Not run, of those that mlx-lm has:"
    yield ""
    for name, reason in sorted(LEFT_OUT.items()):
        yield f"- {name}: {reason}."


def _share(counts: Counter[str]) -> str:
    return f"{counts['accepted'] / counts['proposed']:.0%}" if counts["proposed"] else "-"


if __name__ == "__main__":
    sys.exit(main())
