"""Python's search for garbage, paused while much is made that stays."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Do not look for garbage in the body: it makes many objects that stay, and no cycles.

    Python looks through all objects of the process again and again meanwhile, which takes a third of the time of a
    translation. This holds for all threads.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
