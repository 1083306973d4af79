"""`mlxspec models`: what can be named, what is here, and what fits this machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from mlxspec.chat.visible import visible_line

if TYPE_CHECKING:
    from mlxspec.models.registry import ModelSpec, Registry, Source
    from mlxspec.places import Places

app = typer.Typer(rich_markup_mode=None, add_completion=False)

CONTEXT_TOKENS = 4096  # a context that is good to chat in; "fits" is judged at it

YES, LIKELY, NO = "yes", "likely", "no"


@dataclass(frozen=True, slots=True)
class Row:
    """One model.

    `size_gb` is what it takes on disk, or what a pull fetches, in 10^9 bytes. `fits` is about model and draft
    together: "yes" and "no" from their files, "likely" from sizes alone; None when nothing is known.
    `only_drafts`: it guesses for another model and cannot answer.
    """

    name: str
    default: bool
    source: str
    size_gb: float | None
    on_disk: bool
    draft: str | None
    fits: str | None
    only_drafts: bool


@app.command()
def models(as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False) -> None:
    """List the models of models.toml. `*` marks the one that answers when no --target is given.

    FITS is about the model with its draft in this machine's memory at 4096 tokens.
    """
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    where = places()
    registry = load_registry(where)
    machine = _Machine.this_one()
    rows = [_row(spec, registry, where, machine) for spec in registry.models.values()]
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    _print_table(rows)
    print(f"\nYour own models can be added in {visible_line(str(where.user_models))}")


@dataclass(frozen=True, slots=True)
class _Machine:
    memory_bytes: int
    float32: bool

    @classmethod
    def this_one(cls) -> _Machine:
        from mlxspec.models.device import dequantise_on_this_device, memory_bytes

        return cls(memory_bytes(), dequantise_on_this_device())


def _row(spec: ModelSpec, registry: Registry, where: Places, machine: _Machine) -> Row:
    from mlxspec.models import sources
    from mlxspec.models.model_folder import is_draft
    from mlxspec.models.registry import ShippedSource

    folder = sources.find(spec, where)
    only_drafts = isinstance(spec.source, ShippedSource) or (folder is not None and is_draft(folder))
    disk_bytes = sources.disk_bytes(spec, where) if folder else 0
    return Row(
        name=spec.name,
        default=spec.name == registry.default_target,
        source=_source(spec.source),
        size_gb=disk_bytes / 1e9 if disk_bytes else spec.download_gb,
        on_disk=folder is not None,
        draft=spec.draft,
        fits=None if only_drafts else _fits(spec, registry.draft_of(spec), where, machine),
        only_drafts=only_drafts,
    )


def _fits(target: ModelSpec, draft: ModelSpec | None, where: Places, machine: _Machine) -> str | None:
    from mlxspec.models import sources
    from mlxspec.models.budget import WORKING_SHARE, estimate, weight_bytes
    from mlxspec.models.known_size import known_size

    sizes = [known_size(spec, sources.find(spec, where)) for spec in (target, draft) if spec is not None]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    if all("model_type" in size.config for size in known):
        budget = estimate(
            known[0],
            known[1] if draft else None,
            context_tokens=CONTEXT_TOKENS,
            available_bytes=machine.memory_bytes,
            float32=machine.float32,
        )
        return YES if budget.fits else NO
    weights = sum(weight_bytes(size, float32=machine.float32) for size in known)
    return LIKELY if weights * (1 + WORKING_SHARE) < machine.memory_bytes else NO


def _source(source: Source) -> str:
    from mlxspec.models.registry import PackageSource, RepoSource, ShippedSource

    match source:
        case PackageSource():
            return f"{source.file} of the package {source.package}"
        case RepoSource():
            return source.repo if source.revision is None else f"{source.repo}@{source.revision}"
        case ShippedSource():
            return "a draft that comes with mlxspec"
        case _:
            return str(source.path)


def _size(size_gb: float | None) -> str:
    """Gigabytes, or megabytes for what is small."""
    if size_gb is None:
        return "?"
    return f"{size_gb:.2f} GB" if size_gb >= 0.05 else f"{size_gb * 1000:.0f} MB"


def _print_table(rows: list[Row]) -> None:
    cells = [("", "NAME", "SIZE", "ON DISK", "FITS", "DRAFT", "SOURCE")]
    for row in rows:
        cells.append(
            (
                "*" if row.default else "",
                row.name,
                _size(row.size_gb),
                YES if row.on_disk else NO,
                "-" if row.only_drafts else row.fits or "?",
                "-" if row.only_drafts else row.draft or "lookup",
                row.source,
            )
        )
    shown = [[visible_line(cell) for cell in line] for line in cells]
    widths = [max(len(line[column]) for line in shown) for column in range(len(cells[0]))]
    for line in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
