"""Undoing what was begun when what follows it fails, and taking down what consists of several parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ringup.errors import RingupError

LOG = logging.getLogger(__name__)
Kinds = type[BaseException] | tuple[type[BaseException], ...]


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


class Teardown:
    """Tries every step of taking something down, in order; `with` raises the first error when all were tried.

    Three kinds of errors: those of `logged` are logged alone, since closing must not hide what went wrong before; the
    first of `kept` is raised at the end, and later ones are logged; any other comes out of its step at once. If the
    body of `with` raises another error, that one comes out, and the kept one is logged too.
    """

    def __init__(
        self, doing: str, *, logged: Kinds = (), kept: Kinds = BaseException, level: int = logging.INFO
    ) -> None:
        """`doing` begins the lines of the log, which have `level`."""
        self._doing, self._logged, self._kept, self._level = doing, logged, kept, level
        self.first: BaseException | None = None

    def attempt(self, step: Callable[[], object]) -> bool:
        """Take one step; return whether it was done."""
        try:
            step()
        except self._logged as error:
            LOG.log(self._level, "%s: %s", self._doing, error)
            return False
        except self._kept as error:
            if self.first is not None:
                LOG.log(self._level, "%s: %s", self._doing, error)
            self.first = self.first or error
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.first is None:
            return
        if error is None:
            raise self.first
        if error is not self.first:
            LOG.log(self._level, "%s: %s", self._doing, self.first)
