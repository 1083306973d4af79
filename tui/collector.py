"""Python's garbage collector, kept out of the way of keys and frames.

While a model is loaded, very many objects come that stay; looking through all of them again and again holds
every thread up (measured: 40 to 90 ms each time).
"""

from __future__ import annotations

import gc


def pause() -> None:
    """Collect nothing: what comes now will stay."""
    gc.disable()


def resume() -> None:
    """Collect again, but never look at what is here already."""
    gc.freeze()
    gc.enable()


def reset() -> None:
    """As it was before."""
    gc.unfreeze()
    gc.enable()
