"""Display of a bring-up's stages: a line for each on a terminal, log lines if logging is on, else nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

LOG = logging.getLogger(__name__)
WIDTH = 34  # the width of a stage's name


class StageView:
    """A watcher for `ringup.open(..., watch=StageView())`. It shows each stage on standard error if that is a terminal.

    Each line is printed completely, so an interruption leaves the terminal intact. `counted` has what each stage added
    to the count, if there is one.
    """

    def __init__(self, count: Callable[[], int] | None = None, console: Console | None = None) -> None:
        """`count` returns the number of transfers over a slow cable so far. `console`: show the stages there instead,
        terminal or not.
        """
        self._count, self._before = count, 0
        self.counted: list[int] = []
        self._console: Console | None = console
        if console is None and sys.stderr.isatty() and not LOG.isEnabledFor(logging.INFO):
            from rich.console import Console  # only a terminal needs it

            self._console = Console(stderr=True, highlight=False)

    def __call__(self, stage: Any) -> None:
        if isinstance(stage, str):
            self._before = self._count() if self._count else 0
            LOG.info("%s", stage)
            if self._console and self._console.is_terminal and not self._console.record:
                self._console.print(f"    {stage} ...", style="dim", end="\r", markup=False)
            return
        if self._count:
            self.counted.append(self._count() - self._before)
        if self._console:
            self._end(self._console, stage)

    def _end(self, console: Console, stage: Any) -> None:
        from rich.text import Text

        failed = bool(stage.error)
        marks = ("x", "+") if console.options.ascii_only else ("✗", "✓")
        style = "red" if failed else "green"
        took = f"{stage.took_us / 1000:9.1f} ms" + (f"{self.counted[-1]:7} transfers" if self.counted else "")
        console.print(
            Text.assemble(
                (f"  {marks[not failed]} ", style), f"{stage.name:{WIDTH}}", (took, style if failed else "cyan")
            )
        )


def stage_rows(stages: list[Any]) -> list[dict[str, Any]]:
    """Return stages as plain data: name, milliseconds of the transport's clock, bound."""
    return [
        {"name": stage.name, "ms": stage.took_us / 1000, "bound_ms": stage.bound_us / 1000, "error": stage.error}
        for stage in stages
    ]
