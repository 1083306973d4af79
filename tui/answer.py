"""An answer in the transcript: coloured tokens while it streams, then Markdown or coloured tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlxspec.events import Origin, RoundReport, Tokens
from tui import figures, legend, thinking
from tui.entry import INDENT, Entry
from tui.lines import Line, Piece, wrapped
from tui.markdown_view import Block, blocks, render
from tui.palette import origin_style
from tui.shown import shown
from tui.spans import Span, SpanFlow
from tui.wrapping import cut_to

THOUGHT: tuple[Piece, ...] = (("  ┊ ", "muted"),)
TAG_CHARACTERS = 24  # the end of the text that is looked at for <think> when a token comes


class AnswerEntry(Entry):
    """One answer.

    Attributes:
        text: what the model wrote, unchanged.
        tokens: the events that it came in.
        message: the id under which it is saved, None while it is not.
        versions: which of how many answers to the same message it is.
        streaming: whether more may come.
        settled: whether it looks complete; a long one takes a moment.
        coloured: which of the two views a complete answer has.
        folded: whether the thinking is hidden.
        waiting: what is shown as long as there is no text.
        note: why the answer is not whole.
        stats: the figures, once it is complete.
        reports: of its rounds, as far as they were told.
    """

    def __init__(
        self, *, coloured: bool = False, message: int | None = None, versions: tuple[int, int] = (1, 1)
    ) -> None:
        super().__init__()
        self.tokens: list[Tokens] = []
        self.reports: dict[int, RoundReport] = {}
        self.message = message
        self.versions = versions
        self.streaming = True
        self.settled = False
        self.coloured = coloured
        self.folded = True
        self.waiting = ""
        self.note = ""
        self.stats: Mapping[str, Any] | None = None
        self.origins: set[str] = set()
        self._texts: list[str] = []
        self._length = 0
        self._text: str | None = None
        self._tail = ""
        self._thoughts: SpanFlow | None = None
        self._flow = SpanFlow(gutter=INDENT)
        self._thinking_now = False
        self._page: list[Block] | None = None
        self._saved_rounds: Callable[[], tuple[list[Tokens], list[RoundReport]]] | None = None

    @classmethod
    def saved(
        cls,
        text: str,
        rounds: Callable[[], tuple[list[Tokens], list[RoundReport]]],
        *,
        message: int,
        versions: tuple[int, int],
    ) -> AnswerEntry:
        """An answer of a saved chat; `rounds` fetches tokens and reports when its colours are asked for."""
        entry = cls(message=message, versions=versions)
        entry.streaming, entry.settled = False, True
        entry._texts, entry._text, entry._length = [text], text, len(text)
        entry._saved_rounds = rounds
        where = thinking.parts(text)
        if where.any:
            flow = entry._thoughts = SpanFlow(gutter=THOUGHT)
            entry._add(flow, Span(shown(text[where.thinking_start : where.thinking_end]), "plain", 0))
        return entry

    @property
    def text(self) -> str:
        """What the model wrote."""
        if self._text is None:
            self._text = "".join(self._texts)
        return self._text

    @property
    def characters(self) -> int:
        """About how long its text is."""
        return self._length

    @property
    def shows_tokens(self) -> bool:
        """Whether the coloured tokens are on the screen."""
        return self.coloured or not self.settled

    @property
    def flows(self) -> list[SpanFlow]:
        """The coloured lines: of the thinking, if there is any, and of the answer."""
        return [self._flow] if self._thoughts is None else [self._thoughts, self._flow]

    def append(self, tokens: Tokens) -> None:
        """Take what was generated."""
        self.tokens.append(tokens)
        if not tokens.text:
            return
        self._texts.append(tokens.text)
        self._length += len(tokens.text)
        self._text = None
        style = origin_style(tokens.origin, tokens.drafter)
        self.origins.add(style)
        span = Span(shown(tokens.text), style, tokens.round)
        tail = self._tail + span.text
        self._tail = tail[-TAG_CHARACTERS:]
        if ">" in span.text and thinking.has_tag(tail):
            self._tail = ""
            self._sort_out_thinking()
            return
        if self._parts is not None and not self._flow.spans and not self._thoughts:
            self._parts = None  # the words about waiting go
        flow = self._thoughts if self._thinking_now and self._thoughts else self._flow
        self._add(flow, span)

    def extend(self, tokens: Iterable[Tokens]) -> None:
        """Take many at once."""
        for one in tokens:
            self.append(one)

    def colour(self, on: bool) -> None:
        """Show a complete answer as coloured tokens, or as Markdown."""
        self.fetch_tokens()
        self.coloured = on
        self.changed()

    def fetch_tokens(self) -> None:
        """Have the tokens of a saved answer at hand, and why they are there."""
        if self._saved_rounds is None:
            return
        (tokens, reports), self._saved_rounds = self._saved_rounds(), None
        text = "".join(one.text for one in tokens)
        if text == self.text:
            self.reports = {report.round: report for report in reports}
        else:  # it was not streamed by this program, so where it came from is unknown
            tokens = [Tokens((), self.text, Origin.PLAIN, None, 0)]
        self._texts, self._text, self._length, self._tail, self._thoughts = [], None, 0, "", None
        self.extend(tokens)

    def finish(self, *, stats: Mapping[str, Any] | None, note: str = "") -> None:
        """Nothing more will come."""
        self.streaming = False
        self.stats = stats
        self.note = note

    def settle(self) -> None:
        """Look as a complete answer does."""
        self.settled = True
        self.changed()

    def read(self) -> None:
        """Read the Markdown now, in whatever thread, so that laying out takes less time later."""
        if self._page is None:
            self._page = blocks(thinking.answer_of(self.text))

    def lay_out(self, width: int) -> list[list[Line]]:
        """Thinking, text, what is to be said about it, its figures."""
        parts: list[list[Line]] = []
        if self._thoughts is not None:
            parts.append([self._fold_line(width)])
            if not self.folded:
                self._thoughts.set_width(width - 4)
                parts.append(self._thoughts.lines)
            parts.append([Line([])])
        if not self._flow.spans and self.streaming:
            parts.append(wrapped([(self.waiting or "…", "muted")], width, gutter=INDENT))
        elif self.shows_tokens:
            self._flow.set_width(width - 2)
            parts.append(self._flow.lines)
        else:
            self.read()
            parts.append(render(self._page or [], width, indent=INDENT))
        if self.settled:
            parts.append(self._footer(width))
        parts.append([Line([])])
        return parts

    def line_of_round(self, round_number: int, width: int) -> int | None:
        """Which of the entry's lines the coloured text of a round begins on; None when it is not shown."""
        nth = 0
        for part in self.parts_at(width):
            for flow in self.flows:
                extent = flow.extent(round_number)
                if part is flow.lines and extent is not None:
                    return nth + flow.line_at(extent[0])
            nth += len(part)
        return None

    def plain_text(self) -> str:
        """The answer without its thinking."""
        return thinking.answer_of(self.text)

    def _add(self, flow: SpanFlow, span: Span) -> None:
        if not flow.spans:
            span = Span(span.text.lstrip(), span.style, span.round)
            if not span.text:
                return
        flow.append(span)

    def _sort_out_thinking(self) -> None:
        """Deal all spans out anew, after a tag."""
        spans = [
            Span(shown(t.text), origin_style(t.origin, t.drafter), t.round) for t in self.tokens if t.text
        ]
        where = thinking.parts("".join(span.text for span in spans))
        self._thinking_now = where.open
        self._thoughts = SpanFlow(gutter=THOUGHT) if where.any else None
        self._flow = SpanFlow(gutter=INDENT)
        at = 0
        for span in spans:
            end = at + len(span.text)
            for flow, start, stop in (
                (self._thoughts, where.thinking_start, where.thinking_end),
                (self._flow, where.answer_start, end),
            ):
                text = span.text[max(start, at) - at : max(0, min(stop, end) - at)]
                if flow is not None and text:
                    self._add(flow, Span(text, span.style, span.round))
            at = end
        self.changed()

    def _fold_line(self, width: int) -> Line:
        assert self._thoughts is not None
        count = sum(len(span.text.split()) for span in self._thoughts.spans)
        arrow = "▸" if self.folded else "▾"
        word = "thinking" if self._thinking_now and self.streaming else "thought"
        text = f"{arrow} {word}" + (f" · {count} words" if count and not self._thinking_now else "")
        return Line([(cut_to(text, width - 2), "muted @fold")], gutter=INDENT)

    def _footer(self, width: int) -> list[Line]:
        lines: list[Line] = []
        if self.outside:
            lines += wrapped(
                [("no longer in the prompt: the context is full", "warning")], width, gutter=INDENT
            )
        if self.note:
            lines += [Line([])] if self.characters else []
            lines += wrapped([(self.note, "warning")], width, gutter=INDENT)
        if self.coloured and self.origins:
            lines += [Line([]), *wrapped(legend.pieces(self.origins), width, gutter=INDENT)]
        about = self._figures(width - 2)
        if about:
            lines += [Line([]), Line(about, gutter=INDENT)]
        if self.marked or self.last_answer:
            lines += wrapped(self._controls(), width, gutter=INDENT)
        return lines

    def _figures(self, width: int) -> list[Piece]:
        text = ""
        for part in figures.summary(self.stats) if self.stats else []:
            longer = f"{text} · {part}" if text else part
            if len(longer) > width:
                break
            text = longer
        return [(text, "muted")] if text else []

    def _controls(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self.versions[1] > 1:
            this, count = self.versions
            pieces += [("‹ ", "accent @branch-before"), (f"{this}/{count}", "muted")]
            pieces += [(" ›", "accent @branch-after"), ("   ", "")]
        other = "markdown" if self.coloured else "tokens"
        about_text = ((other, "view"), ("why", "inspect"), ("copy", "copy")) if self.characters else ()
        for name, action in (*about_text, ("retry", "retry")):
            pieces += [(name, f"accent @{action}"), ("   ", "")]
        return pieces[:-1]
