"""Stages of a bring-up as people watch them: a line each while a terminal watches, the log when it is on, else nothing."""

from __future__ import annotations

import logging
import sys
from typing import Any

LOG = logging.getLogger(__name__)


class StageView:
    """A watcher for `ringup.open(..., watch=StageView())`: shows each stage on standard error when that is a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and not LOG.isEnabledFor(logging.INFO)

    def __call__(self, stage: Any) -> None:
        if isinstance(stage, str):
            LOG.info("%s", stage)
            if self._live:
                print(f"  {stage} ...", end="", file=sys.stderr, flush=True)
        elif self._live:
            mark = "\x1b[31mfailed\x1b[0m" if stage.error else f"{stage.took_us / 1000:.1f} ms"
            print(f"\r  {stage.name:32} {mark}\x1b[K", file=sys.stderr, flush=True)


def stage_rows(stages: list[Any]) -> list[dict[str, Any]]:
    """Return stages as plain data: name, milliseconds of the transport's clock, bound."""
    return [
        {"name": stage.name, "ms": stage.took_us / 1000, "bound_ms": stage.bound_us / 1000, "error": stage.error}
        for stage in stages
    ]
