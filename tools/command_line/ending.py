"""SIGTERM and SIGHUP end a command as ctrl-C does: the card is stopped and no half-written file stays.

By default they end a process at once. Then a card without an IOMMU continues to write to memory that may belong to
another process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ringup.tools.command_line.cli import HUNG_UP, TERMINATED

STATUSES = {signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


class Ended(KeyboardInterrupt):
    """Raised as ctrl-C raises `KeyboardInterrupt`. `status` is the exit status of the command."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = STATUSES[signal.Signals(number)]


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise Ended(number)


@contextmanager
def heard() -> Iterator[None]:
    """Raise `Ended` if one of them arrives meanwhile. A signal that is ignored (nohup) or has another
    handler stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in STATUSES if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
