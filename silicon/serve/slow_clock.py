"""The clock of a guest whose cards are behind goes slower.

A card is a program on the host. One that translates or computes for long answers later than the real one does, and the
guest's driver gives up after its own fixed time. So the guest is stopped for spells meanwhile: none of its clocks goes
on. It always runs in between, so a card that never ends is still found by the driver's time-out, only later.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ringup.errors import RingupError
from ringup.silicon.serve.qmp import Qmp

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger(__name__)
# between looks at the cards, while the guest runs and while it is stopped
LOOK_S, STOPPED_LOOK_S = 0.05, 0.01
# the guest runs at least for so long after a spell
RUNNING_S = 0.1
# The longest spells. Translations end, so that a guest may run for a thirtieth of the time; a program may never end:
# a sixth.
TRANSLATING_S, COMPUTING_S = 3.0, 0.5
# a translation that takes longer is long
PATIENCE_S = 0.3
# TIMEOUT: a guest that was stopped goes on, however long the emulator waits for a card before
ANSWER_S = 600.0
# how far cards are behind before a guest is stopped, and when it goes on
BEHIND_S, CAUGHT_UP_S = 0.3, 0.05


class Lag(NamedTuple):
    """Why the cards are late: a program waits for its translation, or their time is so far behind the guest's."""

    translating: bool
    behind_s: float


class SlowClock:
    """A thread that stops and continues the guest whose emulator has a QMP monitor at `path`.

    It connects when it has to, and leaves a guest alone that does not run for another reason.
    """

    def __init__(self, path: str, lag: Callable[[], Lag]) -> None:
        self.path, self._lag = path, lag
        # The longest spell while the cards compute. Programs that are known to end may have longer ones.
        self.computing_s = COMPUTING_S
        self._ends = threading.Event()
        # the sum of all spells that are over, and when the present one began
        self._stopped: tuple[float, float | None] = 0.0, None
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="a guest's clock", daemon=True)
        self._thread.start()

    @property
    def stopped_s(self) -> float:
        """How long the guest has been stopped."""
        total_s, since_s = self._stopped
        return total_s if since_s is None else total_s + time.monotonic() - since_s

    def end(self) -> None:
        """Let the guest run, soon."""
        self._ends.set()

    def close(self) -> None:
        """Return when the guest runs for good."""
        self.end()
        self._thread.join()

    def _run(self) -> None:
        translating_s: float | None = None
        ran_s = LOOK_S
        while not self._ends.wait(ran_s):
            ran_s = LOOK_S
            lag, now_s = self._lag(), time.monotonic()
            if not lag.translating:
                translating_s = None
            elif translating_s is None:
                translating_s = now_s
            if translating_s is not None and now_s - translating_s > PATIENCE_S:
                self._stop_for(TRANSLATING_S)
                ran_s = RUNNING_S
            elif lag.behind_s > BEHIND_S:
                self._stop_for(self.computing_s)
                ran_s = RUNNING_S

    def _stop_for(self, longest_s: float) -> None:
        """Stop the guest until the cards have caught up, but not for longer."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self.path)
                self._spell(Qmp(connection, ANSWER_S), longest_s)
            self._warned = False
        except (OSError, RingupError) as error:
            if not self._warned:
                LOG.warning("%s: the guest's clock cannot be slowed: %s", self.path, error)
            self._warned = True

    def _spell(self, monitor: Qmp, longest_s: float) -> None:
        if monitor.command("query-status")["status"] != "running":
            return
        try:
            monitor.command("stop")
            began_s = time.monotonic()
            self._stopped = self._stopped[0], began_s
            while time.monotonic() - began_s < longest_s and not self._ends.wait(STOPPED_LOOK_S):
                lag = self._lag()
                if not lag.translating and lag.behind_s < CAUGHT_UP_S:
                    break
        finally:
            self._stopped = self.stopped_s, None
            monitor.command("cont")
