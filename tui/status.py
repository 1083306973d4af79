"""Gathers what the status line shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui.figures import drafters, rate, speed_up
from tui.status_line import Status, guessing_text

if TYPE_CHECKING:
    from tui.app import ChatApp


def status_of(app: ChatApp) -> Status:
    """The figures of the answer that streams, else of the last one."""
    answering, loader = app.answering, app.loader
    status = Status(
        models=loader.models,
        doing=loader.doing,
        context_used=answering.context_used,
        context_tokens=loader.context_tokens,
    )
    meter, stats = answering.meter, answering.last_stats
    if meter is not None:
        status.passes = tuple(meter.passes)
        if meter.tokens:
            status.guessing = guessing_text(
                meter.drafter, meter.guesses, parked=meter.parked, speculate=app.choices.speculate
            )
        status.first_s = meter.first_s
    if answering.answer is not None and meter is not None:
        status.tokens_per_s = meter.tokens_per_s
        status.acceptance = meter.acceptance_rate
        status.per_pass = meter.tokens_per_pass
        if meter.prompt_tokens:
            status.context_used = meter.prompt_tokens + meter.tokens
        if not meter.tokens and not status.doing:
            status.doing = answering.answer.waiting
        plain = meter.plain_tokens_per_s or answering.plain_tokens_per_s
        if plain and status.tokens_per_s:
            status.speed_up = status.tokens_per_s / plain
    elif stats is not None:
        known: dict[str, Any] = stats
        status.tokens_per_s = rate(known)
        status.acceptance = known.get("acceptance_rate")
        status.per_pass = known.get("tokens_per_pass")
        status.speed_up = speed_up(known)
        status.first_s = known.get("ttft_s")
        status.memory_bytes = known.get("peak_memory_bytes")
        if not status.guessing:
            status.guessing = drafters(known)
    if hasattr(app, "saved"):
        status.unsaved = app.saved.unsaved
    return status
