"""Closing several things: each is closed even if closing another fails."""

from __future__ import annotations

import logging
from collections.abc import Callable

LOG = logging.getLogger(__name__)


def try_each(*steps: Callable[[], object]) -> None:
    """Run every step, then raise the first error; the other errors are logged."""
    caught: list[BaseException] = []
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  the first one is raised after all steps
            caught.append(error)
    for other in caught[1:]:
        LOG.warning("closing: %s", other, exc_info=other if LOG.isEnabledFor(logging.DEBUG) else None)
    if caught:
        raise caught[0]
