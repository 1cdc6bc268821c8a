"""Undoing what was begun when what follows it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringup.errors import RingupError

LOG = logging.getLogger(__name__)


@contextmanager
def undone_on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` when what is inside fails or is interrupted. If that fails too, as on a card that is gone, it hides
    nothing.
    """
    try:
        yield
    except BaseException:
        try:
            undo()
        except RingupError as further:
            LOG.info("cleaning up: %s", further)
        raise
