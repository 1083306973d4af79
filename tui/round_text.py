"""One round of an answer in words and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from mlxspec.events import Origin
from tui.figures import drafter_text, seconds
from tui.palette import Palette, origin_style
from tui.rounds import Guess, Round, saved_s
from tui.shown import shown
from tui.wrapping import cut_to

BAR_CELLS, LEAST_BAR_CELLS = 10, 3
TOKEN_CELLS, SHORT_TOKEN_CELLS, LEAST_TOKEN_CELLS = 16, 10, 6
BESIDE_CELLS = 21  # of a row, beside its token and its bar
UNSEEN_CELLS = 28
NO_TIME_S = 0.0001  # guessing that took less is not worth a word
_FATES = {"kept": "✓", "rejected": "✗"}
_OWN = {  # what is said of the target's own token
    Origin.RESAMPLED: "put instead",
    Origin.BONUS: "one more",
    Origin.PLAIN: "unguessed",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """How many cells tokens and bars have."""

    token: int
    bar: int

    @classmethod
    def within(cls, width: int) -> Columns:
        """As many as fit beside the rest of a row of `width` cells."""
        both = width - BESIDE_CELLS
        bar = max(LEAST_BAR_CELLS, min(BAR_CELLS, both - SHORT_TOKEN_CELLS))
        return cls(max(LEAST_TOKEN_CELLS, min(TOKEN_CELLS, both - bar)), bar)


def round_text(found: Round, palette: Palette, *, plain_s: float | None, width: int) -> Content:
    """What was guessed, what became of it, and what the round cost. `plain_s`: seconds of a plain round."""
    columns = Columns.within(width)
    lines = [_headline(found)]
    if found.guesses:
        known = any(guess.p is not None for guess in found.guesses)
        head = f"  {'guess':<{columns.token}} "
        if known:
            head += f"{'target p':<{columns.bar + 6}}{drafter_text(found.drafter)} q"
        lines.append(Content.styled(head, "$muted"))
        seen = [guess for guess in found.guesses if guess.fate != "unseen"]
        lines += [_guess_line(guess, found.drafter, palette, columns) for guess in seen]
        if unseen := found.guesses[len(seen) :]:
            lines.append(_unseen_line(unseen))
    if found.next_text is not None and found.next_origin is not None:
        lines.append(_own_line(found, palette, columns))
    elif found.guesses:
        lines.append(Content.styled("  the answer ended here", "$muted"))
    lines += [Content(""), *_cost(found, plain_s)]
    return Content("\n").join(lines)


def token_text(text: str) -> str:
    """A token so that its spaces and newlines can be seen."""
    return shown(text).replace("\n", "⏎").replace(" ", "␣") or "(part of a character)"


def _headline(found: Round) -> Content:
    if not found.guesses:
        why = found.report is not None and found.report.parked
        return Content("Plain round" + (": guessing does not pay here" if why else ""))
    who = "The draft" if found.drafter == "draft_model" else drafter_text(found.drafter).capitalize()
    if found.report is None:
        return Content(f"{who}: {found.kept} guesses kept")
    return Content(f"{who} guessed {len(found.guesses)}, {found.kept} kept")


def _guess_line(guess: Guess, drafter: str | None, palette: Palette, columns: Columns) -> Content:
    style = {
        "kept": _colour(palette, origin_style(Origin.ACCEPTED, drafter)),
        "rejected": "$muted strike",
    }[guess.fate]
    mark = Content.styled(f"{_FATES[guess.fate]} ", "$muted" if guess.fate != "kept" else style)
    token = Content.styled(_padded(token_text(guess.text), columns.token), style)
    if guess.p is None:
        return mark + token
    bar_style = _colour(palette, origin_style(Origin.ACCEPTED, drafter)) if guess.fate == "kept" else "$muted"
    p = Content.styled(f" {_bar(guess.p, columns.bar)}", bar_style) + Content(f" {_share(guess.p)} ")
    q = "sure" if guess.q is not None and guess.q >= 1 else _share(guess.q)
    return mark + token + p + Content.styled(f" {q}", "$muted")


def _unseen_line(guesses: Sequence[Guess]) -> Content:
    texts = " ".join(token_text(guess.text) for guess in guesses)
    return Content.styled(f"· dropped with it: {cut_to(texts, UNSEEN_CELLS)}", "$muted")


def _own_line(found: Round, palette: Palette, columns: Columns) -> Content:
    assert found.next_origin is not None
    assert found.next_text is not None
    style = _colour(palette, found.next_origin.value)
    if found.next_origin is Origin.RESAMPLED:
        style = f"{style} underline"
    token = Content.styled(_padded(token_text(found.next_text), columns.token), style)
    line = Content.styled("→ ", style) + token
    if found.next_p is not None:
        line += Content.styled(f" {_bar(found.next_p, columns.bar)}", style.replace(" underline", ""))
        line += Content(f" {_share(found.next_p)} ")
    return line + Content.styled(f" {_OWN[found.next_origin]}", "$muted")


def _cost(found: Round, plain_s: float | None) -> list[Content]:
    report, many = found.report, "token" if found.tokens == 1 else "tokens"
    if report is None:
        return [
            Content(f"{found.tokens} {many} in one pass"),
            Content.styled("More about its rounds was not kept with this answer.", "$muted"),
        ]
    lines = [Content(f"{found.tokens} {many} in {seconds(report.round_s)}")]
    if found.guesses:
        guessing = f"guessing {seconds(report.draft_s)}, " if report.draft_s >= NO_TIME_S else ""
        lines.append(Content.styled(f"{guessing}checking {seconds(report.verify_s)}", "$muted"))
        gain = saved_s(found, plain_s)
        if gain is not None and plain_s is not None:
            word = "saved" if gain >= 0 else "lost"
            style = "$success" if gain >= 0 else "$warning"
            plainly = f"plainly {seconds(found.tokens * plain_s)}: "
            lines.append(
                Content.styled(plainly, "$muted") + Content.styled(f"{seconds(abs(gain))} {word}", style)
            )
    return lines


def _padded(text: str, cells: int) -> str:
    cut = cut_to(text, cells)
    return cut + " " * (cells - cell_len(cut))


def _bar(share: float, cells: int) -> str:
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return text.ljust(cells)


def _share(value: float | None) -> str:
    if value is None:
        return "  – "
    if value >= 0.9995:
        return "1.00"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-") if value > 0 else "0.00"


def _colour(palette: Palette, name: str) -> str:
    return palette.colours.foregrounds[name] if palette.colour else "bold"
