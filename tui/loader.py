"""Loading models in the background: what is fetched, how far it is, what is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlxspec.events import Downloading, Event, Failed, Loaded, Loading, Notice
from tui import collector
from tui.attachments import size_text
from tui.entry import NoticeEntry
from tui.feed import Feed
from tui.figures import drafter_text
from tui.lines import Piece

if TYPE_CHECKING:
    from mlxspec.places import Places
    from tui.app import ChatApp

BAR_CELLS = 24
OTHER_MODELS: tuple[Piece, ...] = (
    ("try again", "accent @load"),
    ("   ", ""),
    ("choose a model", "accent @models"),
)
"""What can be done where no model could be loaded."""

Models = tuple[str | None, str]  # target and draft as they were chosen


class Loader:
    """One load at a time; a second one replaces the first. After a failure the models before serve again.

    Attributes:
        doing: what is being fetched or loaded, "" for nothing.
        loaded: what is in memory; None before the first load.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.doing = ""
        self.loaded: Loaded | None = None
        self._asked: Models = (None, "")
        self._served: Models | None = None  # of the last load that succeeded
        self._refused: Models | None = None  # of the last one that failed
        self._feed: Feed | None = None
        self._progress: NoticeEntry | None = None

    @property
    def context_tokens(self) -> int | None:
        """How many tokens prompt and answer may have together."""
        return None if self.loaded is None else self.loaded.context_tokens

    @property
    def models(self) -> str:
        """The models in words."""
        if self.loaded is None:
            return ""
        if self.loaded.draft == "none":
            return self.loaded.target
        return f"{self.loaded.target} + {drafter_text(self.loaded.draft)}"

    def load(self) -> None:
        """Have the chosen models in memory."""
        choices = self._app.choices
        self._asked = (choices.target, choices.draft)
        if self._feed is not None:  # another wish replaces the one before
            self._feed.stop()
            self._feed.job.cancel()
            self._put_progress_away()
        self.doing = f"loading {choices.target or 'the model'}"
        collector.pause()
        self._feed = Feed(self._app.engine.load(choices.load_request()), self._handle)
        self._app.run_worker(self._feed.run(), exit_on_error=True)
        self._app.page.show_status()

    def load_again(self) -> None:
        """Have in memory what could not be loaded."""
        if self._refused is not None:
            self._load(self._refused)

    def cancel(self) -> bool:
        """Stop fetching. False when nothing is being fetched."""
        if self._progress is None or self._feed is None:
            return False
        self._feed.job.cancel()
        return True

    def _handle(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Downloading():
                    collector.resume()  # it may take hours
                    self._downloading(event)
                case Loading():
                    collector.pause()
                    self._put_progress_away()
                    self.doing = f"loading {event.model}"
                case Notice():
                    self._app.page.say(event.message)
                case Loaded():
                    self._feed = None
                    self._put_progress_away()
                    self.doing, self.loaded = "", event
                    self._served = self._asked
                    collector.resume()
                    self._app.answering.models_loaded(event)
                case Failed():
                    self._feed = None
                    self._put_progress_away()
                    collector.resume()
                    self.doing = ""
                    self._failed(event)
                case _:
                    pass
        self._app.answering.wait_for(self.doing)
        self._app.page.refresh()

    def _downloading(self, event: Downloading) -> None:
        self.doing = f"fetching {event.model}"
        if event.total_bytes:
            self.doing += f" {100 * event.done_bytes // event.total_bytes} %"
        text = download_text(event)
        if self._progress is None:
            hint = "You may type already. Esc stops it; what has come is kept for the next time."
            if place := source_text(self._app.places, event.model, size=not event.total_bytes):
                hint = f"It comes from {place}. It is fetched once and then works without a network.\n{hint}"
            self._progress = NoticeEntry(text, hint, kind="accent")
            self._app.page.put_notice(self._progress, before=self._app.answering.answer)
        else:
            self._progress.message = text
            self._progress.changed()
            self._app.transcript.update_rows()

    def _put_progress_away(self) -> None:
        if self._progress is not None:
            self._app.transcript.take_out(self._progress)
            self._progress = None
            self._app.transcript.update_rows()

    def _failed(self, event: Failed) -> None:
        self._app.page.say(
            event.message,
            event.hint,
            kind="error",
            actions=OTHER_MODELS,
        )
        self._refused = self._asked
        if self._served is not None and self._served != self._asked:
            self._load(self._served)

    def _load(self, models: Models) -> None:
        self._app.choices.target, self._app.choices.draft = models
        self.load()


def source_text(where: Places, name: str, *, size: bool) -> str:
    """Where a model is fetched from, with its size or without; "" when models.toml does not know it."""
    from mlxspec.errors import MlxspecError
    from mlxspec.models.registry import PackageSource, RepoSource, load_registry

    try:
        model = load_registry(where).resolve(name)
    except MlxspecError:
        return ""
    about = f", about {size_text(int(model.download_gb * 1e9))}" if size and model.download_gb else ""
    match model.source:
        case PackageSource(package=package):
            return f"the Python package index, package {package}{about}"
        case RepoSource(repo=repo):
            return f"the Hugging Face Hub, repository {repo}{about}"
        case _:
            return ""


def download_text(event: Downloading) -> str:
    """A bar and the numbers of a download."""
    if not event.total_bytes:
        return f"Fetching {event.model}: {size_text(event.done_bytes)}\n{event.file}"
    share = min(1.0, event.done_bytes / event.total_bytes)
    full = round(share * BAR_CELLS)
    bar = "━" * full + "╌" * (BAR_CELLS - full)
    sizes = f"{size_text(event.done_bytes)} of {size_text(event.total_bytes)}"
    return f"Fetching {event.model}\n{bar} {sizes}"
