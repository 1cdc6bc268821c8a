"""How often a process of ours looks for garbage."""

from __future__ import annotations

import gc
from typing import Final

NEW_OBJECTS: Final = 100_000


def collect_seldom() -> None:
    """Look for garbage after so many new objects, in a process that is ours to set up.

    A kernel under work is tens of thousands of objects that live until its bytes are there, and leaves no cycles.
    At its own rate, Python spends a tenth of the time of a large graph on looking through them.
    """
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
