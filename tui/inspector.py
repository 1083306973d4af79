"""Why this token? The proposal and the verdict of one round of an answer."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from mlxspec.events import Origin
from tui.answer import AnswerEntry
from tui.figures import drafter_text, seconds
from tui.links import clickable
from tui.palette import Palette, origin_style
from tui.rounds import Guess, Round, plain_round_s, rounds_of, saved_s
from tui.shown import shown
from tui.wrapping import cut_to

BAR_CELLS = 10
TOKEN_CELLS = 16
_FATES = {"kept": "✓", "rejected": "✗", "unseen": "·"}
_OWN = {
    Origin.RESAMPLED: "the target's word in its place",
    Origin.BONUS: "the target's extra word",
    Origin.PLAIN: "the target's word, nobody guessed",
}


_KEYS = Content("").join(
    [
        clickable("←", "focused.move(-1)"),
        Content(" "),
        clickable("→", "focused.move(1)"),
        Content(" rounds · "),
        clickable("↑", "focused.rejected(-1)"),
        Content(" "),
        clickable("↓", "focused.rejected(1)"),
        Content(" rejected ones · "),
        clickable("Esc closes", "focused.close"),
    ]
)


class Inspector(VerticalScroll, can_focus=True):
    """Beside the chat where there is room, else below it. Takes the keys while it is open."""

    DEFAULT_CSS = """
    Inspector {
        display: none; width: 100%; height: 14; padding: 0 1; scrollbar-size-vertical: 1;
        border: round $accent; background: $background;
    }
    Inspector:focus { background-tint: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False),
        Binding("right", "move(1)", show=False),
        Binding("home", "go(0)", show=False),
        Binding("end", "go(-1)", show=False),
        Binding("down", "rejected(1)", show=False),
        Binding("up", "rejected(-1)", show=False),
        Binding("escape", "close", show=False),
    ]

    class Moved(Message):
        """Another round is looked at."""

        def __init__(self, entry: AnswerEntry, round_number: int) -> None:
            super().__init__()
            self.entry = entry
            self.round = round_number

    class Typed(Message):
        """A character was typed, which is meant for the composer."""

        def __init__(self, character: str) -> None:
            super().__init__()
            self.character = character

    class Closed(Message):
        """It is no longer open."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._entry: AnswerEntry | None = None
        self._rounds: list[Round] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(id="why")

    @property
    def entry(self) -> AnswerEntry | None:
        """The answer that is looked at, None while it is closed."""
        return self._entry

    def open(self, entry: AnswerEntry, round_number: int | None = None) -> None:
        """Look at a round, by default at the first one in which a guess was rejected."""
        entry.fetch_tokens()
        self._entry = entry
        self._rounds = rounds_of(entry.tokens, entry.reports)
        self.display = True
        self.focus()
        if round_number is None:
            at = next((i for i, found in enumerate(self._rounds) if found.rejected), 0)
        else:
            at = next((i for i, found in enumerate(self._rounds) if found.number == round_number), 0)
        self.action_go(at)

    def close(self) -> None:
        """Look at nothing."""
        if self._entry is not None:
            self._entry = None
            self.display = False
            self.post_message(self.Closed())

    def refresh_rounds(self) -> None:
        """More rounds may have come."""
        if self._entry is not None and len(self._entry.tokens):
            self._rounds = rounds_of(self._entry.tokens, self._entry.reports)

    def action_move(self, steps: int) -> None:
        """Look at a round before or behind."""
        if steps > 0 and self._at == len(self._rounds) - 1:
            self.refresh_rounds()
        self.action_go(max(0, min(self._at + steps, len(self._rounds) - 1)))

    def action_go(self, at: int) -> None:
        """Look at this round; -1 is the last one."""
        if at < 0:
            self.refresh_rounds()
            at = len(self._rounds) - 1
        self._at = at
        self._show()

    def action_rejected(self, steps: int) -> None:
        """Look at the next round, or the one before, in which a guess was rejected."""
        self.refresh_rounds()
        at = self._at + steps
        while 0 <= at < len(self._rounds):
            if self._rounds[at].rejected:
                self.action_go(at)
                return
            at += steps

    def action_close(self) -> None:
        """Esc."""
        self.close()

    def on_key(self, event: events.Key) -> None:
        """Nobody types in vain."""
        if event.is_printable and event.character:
            event.stop()
            event.prevent_default()
            self.post_message(self.Typed(event.character))

    def on_click(self, event: events.Click) -> None:
        """A click gives it the keys."""
        event.stop()
        self.focus()

    def _show(self) -> None:
        why = self.query_one("#why", Static)
        if not self._rounds or self._entry is None:
            why.update(Content.styled("Nothing is known of this answer's rounds.", "$muted"))
            return
        found = self._rounds[self._at]
        self.border_title = "Why this token?"
        self.border_subtitle = f"round {self._at + 1} of {len(self._rounds)}"
        why.update(round_text(found, self.palette, plain_s=plain_round_s(self._entry.reports)))
        self.scroll_home(animate=False)
        self.post_message(self.Moved(self._entry, found.number))


def round_text(found: Round, palette: Palette, *, plain_s: float | None) -> Content:
    """A round in words and bars."""
    lines = [_headline(found), Content("")]
    if found.guesses:
        known = any(guess.p is not None for guess in found.guesses)
        head = f"  {'guess':<{TOKEN_CELLS}} "
        if known:
            head += f"{'target p':<{BAR_CELLS + 6}}{drafter_text(found.drafter)} q"
        lines.append(Content.styled(head, "$muted"))
        lines += [_guess_line(guess, found.drafter, palette) for guess in found.guesses]
    if found.next_text is not None and found.next_origin is not None:
        lines += _own_lines(found, palette)
    elif found.guesses:
        lines.append(Content.styled("  the answer ended here", "$muted"))
    lines += [Content(""), *_cost(found, plain_s), Content("")]
    lines.append(_KEYS.stylize_before("$muted"))
    return Content("\n").join(lines)


def token_text(text: str) -> str:
    """A token so that its spaces and newlines can be seen."""
    return shown(text).replace("\n", "⏎").replace(" ", "␣") or "(part of a character)"


def _headline(found: Round) -> Content:
    if not found.guesses:
        why = found.report is not None and found.report.parked
        return Content("Plain round" + (": guessing does not pay here" if why else ""))
    who = {"lookup": "Lookup", "draft": "The draft"}.get(
        drafter_text(found.drafter), drafter_text(found.drafter)
    )
    if found.report is None:
        return Content(f"{who}: {found.kept} guesses kept")
    return Content(f"{who} guessed {len(found.guesses)}, {found.kept} kept")


def _guess_line(guess: Guess, drafter: str | None, palette: Palette) -> Content:
    style = {
        "kept": _colour(palette, origin_style(Origin.ACCEPTED, drafter)),
        "rejected": "$muted strike",
        "unseen": "$muted",
    }[guess.fate]
    mark = Content.styled(f"{_FATES[guess.fate]} ", "$muted" if guess.fate != "kept" else style)
    token = Content.styled(_padded(token_text(guess.text)), style)
    if guess.p is None:
        return mark + token
    if guess.fate == "unseen":
        return mark + token + Content.styled("  not looked at", "$muted")
    bar_style = _colour(palette, origin_style(Origin.ACCEPTED, drafter)) if guess.fate == "kept" else "$muted"
    p = Content.styled(f" {_bar(guess.p)}", bar_style) + Content(f" {_share(guess.p)} ")
    q = "sure" if guess.q is not None and guess.q >= 1 else _share(guess.q)
    return mark + token + p + Content.styled(f" {q}", "$muted")


def _own_lines(found: Round, palette: Palette) -> list[Content]:
    assert found.next_origin is not None
    assert found.next_text is not None
    style = _colour(palette, found.next_origin.value)
    if found.next_origin is Origin.RESAMPLED:
        style = f"{style} underline"
    token = Content.styled(_padded(token_text(found.next_text)), style)
    line = Content.styled("→ ", style) + token
    if found.next_p is not None:
        line += Content.styled(f" {_bar(found.next_p)}", style.replace(" underline", ""))
        line += Content(f" {_share(found.next_p)}")
    return [line, Content.styled(f"  {_OWN[found.next_origin]}", "$muted")]


def _cost(found: Round, plain_s: float | None) -> list[Content]:
    report, many = found.report, "token" if found.tokens == 1 else "tokens"
    if report is None:
        return [
            Content(f"{found.tokens} {many} in one pass"),
            Content.styled("More about its rounds was not kept with this answer.", "$muted"),
        ]
    lines = [Content(f"{found.tokens} {many} in {seconds(report.round_s)}")]
    if found.guesses:
        split = f"guessing {seconds(report.draft_s)}, checking {seconds(report.verify_s)}"
        lines.append(Content.styled(split, "$muted"))
        gain = saved_s(found, plain_s)
        if gain is not None and plain_s is not None:
            word = "saved" if gain >= 0 else "lost"
            style = "$success" if gain >= 0 else "$warning"
            plainly = f"plainly {seconds(found.tokens * plain_s)}: "
            lines.append(
                Content.styled(plainly, "$muted") + Content.styled(f"{seconds(abs(gain))} {word}", style)
            )
    return lines


def _padded(text: str) -> str:
    cut = cut_to(text, TOKEN_CELLS)
    from rich.cells import cell_len

    return cut + " " * (TOKEN_CELLS - cell_len(cut))


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(1.0, share)) * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return text.ljust(BAR_CELLS)


def _share(value: float | None) -> str:
    if value is None:
        return "  – "
    if value >= 0.9995:
        return "1.00"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-") if value > 0 else "0.00"


def _colour(palette: Palette, name: str) -> str:
    return palette.colours.foregrounds[name] if palette.colour else "bold"
