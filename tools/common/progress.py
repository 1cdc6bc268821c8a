"""Progress of long work: a bar on a terminal, log lines with -v, else nothing."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

LOG = logging.getLogger(__name__)


class Progress:
    """A bar on standard error with a line of text. Silent if standard error is not a terminal; log lines if logging is
    on.
    """

    def __init__(self, title: str, total: int) -> None:
        self._bar = None
        if sys.stderr.isatty() and not LOG.isEnabledFor(logging.INFO):
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description:40.40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(title, total=total)

    def say(self, text: str) -> None:
        """Show the current work."""
        LOG.info("%s", text)
        if self._bar:
            self._bar.update(self._task, description=text)

    def advance(self) -> None:
        """Count one piece of work as done."""
        if self._bar:
            self._bar.advance(self._task)

    def step(self, text: str) -> None:
        """Show the next piece of work, and count it as done."""
        self.say(text)
        self.advance()

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
