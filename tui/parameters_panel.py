"""All parameters of the chat on one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from mlxspec.chat.parameters import PARAMETERS, Parameter
from mlxspec.errors import UsageError
from tui.choices import Choices
from tui.links import clickable
from tui.shown import one_line

Chosen = tuple[dict[str, object], str]  # values by field, and the system prompt
MOST_ROWS = 22
BOX_SHARE = 0.94  # of the window's width and height

_HINTS = Content(" · ").join(
    [
        clickable("Enter or Ctrl+S takes them", "screen.take"),
        Content("empty: default"),
        Content("Tab next"),
        clickable("Esc cancels", "screen.dismiss(None)"),
    ]
)


class ParametersPanel(ModalScreen[Chosen | None]):
    """Gives all values and the system prompt, or None when they stay as they were.

    `defaults` has what the defaults stand for, by the fields of their parameters, as far as that is known.
    """

    DEFAULT_CSS = """
    ParametersPanel {
        align: center middle; background: $background 70%;
        & > Vertical {
            width: 94%; max-width: 110; height: auto; max-height: 94%;
            border: round $accent; background: $background; padding: 0 1;
        }
        & VerticalScroll { height: auto; scrollbar-size-vertical: 1; }
        & Horizontal { height: 1; }
        & .name { width: 19; }
        & .about { width: 1fr; color: $muted; padding: 0 0 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & Input { width: 22; border: none; height: 1; background: $surface; padding: 0 1; }
        & Input:focus { background: $marked; }
        & TextArea { height: 4; border: none; background: $surface; padding: 0 1; }
        & #problem { color: $error; height: auto; }
        & #hints { color: $muted; }
        &.-short > Vertical { border: none; width: 100%; max-height: 100%; }
        &.-narrow .about { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False, priority=True),
        Binding("ctrl+c", "dismiss(None)", show=False, priority=True),
        Binding("ctrl+s", "take", show=False, priority=True),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def __init__(self, choices: Choices, defaults: Mapping[str, str]) -> None:
        super().__init__()
        self._choices = choices
        self._defaults = defaults

    def compose(self) -> ComposeResult:
        """A row for each parameter, then the system prompt."""
        box = Vertical()
        box.border_title = "Parameters"
        with box:
            with VerticalScroll():
                for parameter in PARAMETERS.values():
                    value = self._choices.values.get(parameter.field)
                    if isinstance(value, tuple):
                        value = value[0] if value else None
                    text = "" if value is None else parameter.show(value)
                    with Horizontal():
                        yield Static(Content(parameter.name), classes="name")
                        yield Input(
                            text,
                            placeholder=self._placeholder(parameter),
                            id=f"value-{parameter.field}",
                            compact=True,
                        )
                        yield Static(Content(parameter.summary), classes="about")
                yield Static(Content("System prompt"))
                yield TextArea(self._choices.system, compact=True, highlight_cursor_line=False)
            yield Static(Content(""), id="problem")
            yield Static(_HINTS, id="hints")

    def _placeholder(self, parameter: Parameter) -> str:
        default = self._defaults.get(parameter.field)
        return parameter.unset if default is None else f"{parameter.unset}: {default}"

    def on_mount(self) -> None:
        """Begin at the first one."""
        self.query(Input).first().focus()

    def on_resize(self, event: events.Resize) -> None:
        """The values leave room for the hints, however many lines these take."""
        short = self.has_class("-short")
        width = event.size.width - 2 if short else int(BOX_SHARE * event.size.width) - 4
        height = event.size.height if short else int(BOX_SHARE * event.size.height) - 2
        hints = -(-_HINTS.cell_length // max(1, width))
        self.query_one(VerticalScroll).styles.max_height = max(1, min(MOST_ROWS, height - hints - 1))

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Enter."""
        self.action_take()

    def action_take(self) -> None:
        """Read all, and close when all make sense."""
        values: dict[str, object] = {}
        for parameter in PARAMETERS.values():
            field = self.query_one(f"#value-{parameter.field}", Input)
            try:
                value = parameter.parse(field.value.strip() if parameter.kind is not str else field.value)
            except UsageError as error:
                self.query_one("#problem", Static).update(Content(one_line(f"{error.message} {error.hint}")))
                field.focus()
                return
            before = self._choices.values.get(parameter.field)
            if isinstance(before, tuple) and len(before) > 1 and value == before[0]:
                value = before  # several stop texts, of which only one is shown
            if value is not None:
                values[parameter.field] = value
        self.dismiss((values, self.query_one(TextArea).text.strip()))
