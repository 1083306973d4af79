"""Where messages are written: several lines, history, completion, pasted text as it is."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from mlxspec.chat.commands import Completion
from tui.prompt_history import PromptHistory
from tui.suggestions import Suggestions

HINT = "Ask anything, or / for commands"
NEW_LINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")


class Composer(TextArea):
    """A text area that sends at Enter."""

    DEFAULT_CSS = """
    Composer {
        height: auto; max-height: 10; min-height: 3; padding: 0 1;
        border: round $border 60%; background: $background;
        &:focus { border: round $accent; background-tint: transparent; }
        & .text-area--cursor-line { background: transparent; }
        & .text-area--placeholder { color: $muted; }
        &:nocolor .text-area--selection { text-style: reverse; }
        &:nocolor .text-area--cursor { text-style: reverse; }
    }
    """

    class Sent(Message):
        """Enter was pressed on a text that is not empty."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        prompts: PromptHistory,
        suggestions: Suggestions,
        *,
        complete: Callable[[str], list[Completion]],
    ) -> None:
        super().__init__(soft_wrap=True, highlight_cursor_line=False)
        self.prompts = prompts
        self._suggestions = suggestions
        self._complete = complete
        self._settled = False  # whether the text was put here by a choice, and needs no new suggestions
        self._edits: Callable[[str], None] | None = None

    def put(self, text: str) -> None:
        """Replace what is written, with the cursor at its end."""
        self._settled = True
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._suggestions.hide()

    def take(self) -> str:
        """What is written, and nothing is written any more."""
        text = self.text
        self.put("")
        self.prompts.back_to_now()
        return text

    def on_text_area_changed(self, _event: TextArea.Changed) -> None:
        """Suggest what may be meant."""
        if self._settled:
            self._settled = False
            return
        before = self.document.get_text_range((0, 0), self.cursor_location)
        self._suggestions.offer(self._complete(before) if before else [])

    def on_key(self, event: events.Key) -> None:
        """The keys that mean more than in any text area."""
        if self._key(event.key):
            event.stop()
            event.prevent_default()

    def on_resize(self, event: events.Resize) -> None:
        """The hint is there as long as it fits: Textual cannot wrap it into no width at all."""
        self.placeholder = HINT if event.size.width > len(HINT) else ""

    def on_blur(self) -> None:
        """Suggestions belong to what is being written."""
        self._suggestions.hide()

    def on_suggestions_chosen(self, event: Suggestions.Chosen) -> None:
        """A suggestion was clicked."""
        self.accept(event.completion)

    def accept(self, completion: Completion) -> None:
        """Write a suggestion in place of what it completes."""
        after = self.document.get_text_range(self.cursor_location, self.document.end)
        self._settled = not completion.line.endswith((" ", "/"))
        self.load_text(completion.line + after)
        self.move_cursor(_location(completion.line))
        if self._settled:
            self._suggestions.hide()

    def _key(self, key: str) -> bool:
        if key in NEW_LINE_KEYS:
            self.insert("\n")
            return True
        if self._suggestions.offered and self._key_for_suggestions(key):
            return True
        match key:
            case "enter":
                if self.text.strip():
                    self.post_message(self.Sent(self.text))
            case "tab":
                before = self.document.get_text_range((0, 0), self.cursor_location)
                self._suggestions.offer(self._complete(before))
            case "up" if self.cursor_location[0] == 0 and self._on_first_row():
                self._remembered(self.prompts.earlier(self.text))
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                if not self.prompts.recalling:
                    return False
                self._remembered(self.prompts.later())
            case _:
                return False
        return True

    def _key_for_suggestions(self, key: str) -> bool:
        suggestions = self._suggestions
        if key in ("up", "down"):
            suggestions.move(-1 if key == "up" else 1)
        elif key == "escape":
            suggestions.hide()
        elif key == "tab" or (key == "enter" and suggestions.chosen_by_hand):
            self.accept(suggestions.current)
        elif key == "enter" and self.text != suggestions.current.line.rstrip() and self.text.startswith("/"):
            # What is written is not finished: Enter takes the first suggestion, once more sends it.
            self.accept(suggestions.current)
            if not suggestions.offered and self.text == self.text.rstrip():
                self.post_message(self.Sent(self.text))
        else:
            return False
        return True

    def _remembered(self, text: str | None) -> None:
        if text is not None:
            self.put(text)
            if self.prompts.recalling:
                self.move_cursor((0, len(self.document.get_line(0))))

    def _on_first_row(self) -> bool:
        _, row = self.wrapped_document.location_to_offset(self.cursor_location)
        return row == 0


def _location(text: str) -> tuple[int, int]:
    """Where the end of a text is, as row and column."""
    return text.count("\n"), len(text) - text.rfind("\n") - 1
