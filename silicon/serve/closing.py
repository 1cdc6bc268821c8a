"""Closing what consists of several: none stays open because another did not close."""

from __future__ import annotations

import logging
from collections.abc import Callable

LOG = logging.getLogger(__name__)


def try_each(*steps: Callable[[], object]) -> None:
    """Do every step, then raise the first error there was; others are logged."""
    caught: list[BaseException] = []
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  the first is raised when all was tried
            caught.append(error)
    for other in caught[1:]:
        LOG.warning("closing: %s", other, exc_info=other if LOG.isEnabledFor(logging.DEBUG) else None)
    if caught:
        raise caught[0]
