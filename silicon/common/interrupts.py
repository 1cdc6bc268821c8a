"""Interrupts of a card on their way to the host: kept while nobody listens, counted, waited for in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.silicon.common.clock import VirtualClock


class Interrupts:
    """A transport's `Interrupts`: vectors that came and were not taken yet. A listener, such as a virtual machine, gets
    them at once.
    """

    # an edge that comes while it is pending adds nothing to a real vector; kept apart here so that tests can count
    LIMIT = 4096

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self._clock = clock
        self._listener: Callable[[int], None] | None = None
        self.pending: deque[int] = deque(maxlen=self.LIMIT)
        self.count = 0

    def deliver(self, vector: int) -> None:
        """Take a message from the card."""
        self.count += 1
        if self._listener is not None:
            self._listener(vector)
        else:
            self.pending.append(vector)

    def listen(self, listener: Callable[[int], None] | None) -> None:
        """Hand vectors to `listener` from now on, those that are pending first; None: keep them until somebody asks."""
        self._listener = listener
        while listener is not None and self.pending:
            listener(self.pending.popleft())

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Let time pass until an interrupt is pending or `timeout_us` later; return the vectors that came and forget
        them.
        """
        if self._clock is not None:
            self._clock.run_until(self.pending.__len__, timeout_us)
        return self.take()

    def take(self) -> tuple[int, ...]:
        """Return the pending vectors without waiting and forget them."""
        taken = tuple(self.pending)
        self.pending.clear()
        return taken

    def clear(self) -> None:
        """Forget what is pending: the function was reset."""
        self.pending.clear()
