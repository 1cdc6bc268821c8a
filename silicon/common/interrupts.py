"""Interrupts from a card to the host: kept while there is no listener, counted, and awaited in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.silicon.common.clock import VirtualClock


class Interrupts:
    """A transport's `Interrupts`: vectors that have arrived and have not been taken. A listener, such as a virtual
    machine, gets them at once.
    """

    # a real vector that is already pending does not count again; here each one is kept, so that tests can count
    LIMIT = 4096

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self._clock = clock
        self._listener: Callable[[int], None] | None = None
        self.pending: deque[int] = deque(maxlen=self.LIMIT)
        self.count = 0

    def deliver(self, vector: int) -> None:
        """Deliver a vector from the card."""
        self.count += 1
        if self._listener is not None:
            self._listener(vector)
        else:
            self.pending.append(vector)

    def listen(self, listener: Callable[[int], None] | None) -> None:
        """Pass vectors to `listener` from now on, pending ones first; None: keep them."""
        self._listener = listener
        while listener is not None and self.pending:
            listener(self.pending.popleft())

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Let time pass until an interrupt is pending or for `timeout_us`; return and remove the pending vectors."""
        if self._clock is not None:
            self._clock.run_until(self.pending.__len__, timeout_us)
        return self.take()

    def take(self) -> tuple[int, ...]:
        """Return and remove the pending vectors without waiting."""
        taken = tuple(self.pending)
        self.pending.clear()
        return taken

    def clear(self) -> None:
        """Drop pending vectors: the function was reset."""
        self.pending.clear()
