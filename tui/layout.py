"""Where the widgets stand, by the size of the window: Textual's style sheet of the chat."""

from __future__ import annotations

CSS = """
#main { height: 1fr; align-horizontal: center; layout: vertical; }
.-wide #main { layout: horizontal; }
.-wide Inspector { width: 52; height: 1fr; }
.-short Inspector { height: 50%; border: none; border-top: solid $accent; }
.-short Inspector #rounds { display: none; }
.-short Composer { border: none; min-height: 1; max-height: 3; padding: 0; }
.-short Suggestions { max-height: 3; }
.-short StatusLine { padding: 0; }
#column { width: 1fr; min-width: 12; max-width: 124; height: 1fr; }  /* TextArea fails without any cells */
"""
HEIGHTS = [(0, "-short"), (14, "-tall")]  # rows from which a class is given to the screen
WIDTHS = [(0, "-narrow"), (84, "-middle"), (116, "-wide")]
