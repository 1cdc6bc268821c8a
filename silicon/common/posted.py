"""Posted writes of a virtual bus: what the host has written and the card has not got yet.

A memory write on PCI Express is posted: the processor goes on, and the write lies in buffers of root complex, switches
and endpoint until it arrives. Here they are one queue for each function, of all its windows:

- writes arrive in the order in which they were posted, whichever window they are for;
- a request that waits for an answer (a read of any window, any access of configuration space) pushes everything before
  it;
- time brings them, `delay_ns` after each was posted;
- nothing that the card sends pushes them: its interrupts and its own writes travel the other way. Nor does a barrier of
  the processor.

So a driver that needs a write to have arrived, and does not write to the card next, must read something. A link that is
lost loses what is on its way. Windows that give their memory as a plain view (`map`) bypass the queue: what is stored
through a view has arrived.

Source: PCI Express base specification 4.0, 2.4.1, table 2-39 (columns Posted and Non-Posted Request, row Completion);
Linux Documentation/driver-api/device-io.rst, "Differences between I/O access functions" and "Accessing the device".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.errors import RingupError
from ringup.silicon.common.clock import READ_NS, VirtualClock
from ringup.silicon.common.combining import Combining

Deliver = Callable[[int, bytes | memoryview], None]
ARRIVE_NS = READ_NS // 2  # GUESS: one way of a read's two


class PostedWrites:
    """The queue of one function.

    `delay_ns`: how long a write takes by itself; None: until something pushes it, for tests that look for missing
    reads. `combining`: the buffers that a processor has before the bus, for windows that it maps so; None: it has none.
    `on_refused` takes the error of a write that the card's model refuses when it arrives, where who posted it is no
    longer there to be told (another process); None: who pushed it, or let time pass, gets the error.
    """

    def __init__(self, clock: VirtualClock) -> None:
        """`clock` is the machine's: writes on their way outlive a reset of the card."""
        self.delay_ns: int | None = ARRIVE_NS
        self.combining: Combining | None = None
        self.on_refused: Callable[[RingupError], None] | None = None
        self._clock = clock
        self._waiting: deque[tuple[int, Deliver, int, bytes | memoryview]] = deque()
        self._armed = False

    def post(self, deliver: Deliver, offset: int, data: bytes | memoryview) -> None:
        """Send a write on its way; `deliver(offset, data)` is its arrival. What the processor has gathered goes before
        it.
        """
        if self.combining is not None:
            self.combining.drain()
        self.send(deliver, offset, data)

    def send(self, deliver: Deliver, offset: int, data: bytes | memoryview) -> None:
        """Send what leaves the processor's buffers on its way, and leave the rest there."""
        delay_ns = self.delay_ns
        if delay_ns is None:
            self._waiting.append((0, deliver, offset, data))
            return
        self._waiting.append((self._clock.now_ns + delay_ns, deliver, offset, data))
        if not self._armed:
            self._arm(delay_ns)

    def push(self) -> None:
        """Let everything arrive that was posted before, by a request of the processor that posted it."""
        if self.combining is not None:
            self.combining.drain()
        self.arrive()

    def arrive(self) -> None:
        """Let everything arrive that is on the bus, by a request of another processor: what is still in this one's
        buffers stays there.
        """
        while self._waiting:
            self._arrive_one()

    def lose(self) -> None:
        """Forget what is on its way: the link is down."""
        self._waiting.clear()
        if self.combining is not None:
            self.combining.forget()

    def _arrive_one(self) -> None:
        _, deliver, offset, data = self._waiting.popleft()
        try:
            deliver(offset, data)
        except RingupError as error:
            if self.on_refused is None:
                error.add_note(
                    f"It was posted earlier: a write of {len(data)} bytes at {offset:#x}, which arrives now."
                )
                raise
            self.on_refused(error)

    def _arm(self, delay_ns: int) -> None:
        self._armed = True
        self._clock.after(delay_ns / 1_000, self._fall_due)

    def _fall_due(self) -> None:
        """Let arrive what is due, and look again when the next one is."""
        self._armed = False
        waiting, now_ns = self._waiting, self._clock.now_ns
        try:
            while waiting and waiting[0][0] <= now_ns:
                self._arrive_one()
        finally:
            if waiting and not self._armed and self.delay_ns is not None:
                self._arm(max(0, waiting[0][0] - self._clock.now_ns))
