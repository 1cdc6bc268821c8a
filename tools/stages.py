"""Stages of a bring-up as people watch them: a line each while a terminal watches, the log when it is on, else nothing."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

LOG = logging.getLogger(__name__)
WIDTH = 34  # of a stage's name


class StageView:
    """A watcher for `ringup.open(..., watch=StageView())`: shows each stage on standard error when that is a terminal.

    Each line is whole when it is printed, so whatever ends the work leaves the terminal as it was.
    """

    def __init__(self) -> None:
        self._console: Console | None = None
        if sys.stderr.isatty() and not LOG.isEnabledFor(logging.INFO):
            from rich.console import Console  # what only a terminal needs

            self._console = Console(stderr=True, highlight=False)

    def __call__(self, stage: Any) -> None:
        if isinstance(stage, str):
            LOG.info("%s", stage)
            if self._console:
                self._console.print(f"    {stage} ...", style="dim", end="\r", markup=False)
        elif self._console:
            self._end(self._console, stage)

    def _end(self, console: Console, stage: Any) -> None:
        from rich.text import Text

        failed = bool(stage.error)
        marks = ("x", "+") if console.options.ascii_only else ("✗", "✓")
        style = "red" if failed else "green"
        took = f"{stage.took_us / 1000:9.1f} ms"
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
