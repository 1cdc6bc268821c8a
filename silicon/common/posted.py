"""Posted writes of a virtual bus: what the host has written and the card has not received.

A memory write on PCI Express is posted: the processor continues, and the write waits in buffers of root complex,
switches and endpoint until it arrives. Here these buffers are one queue for each function, for all its windows:

- Writes arrive in the order in which they were posted, whatever their window.
- A request that waits for a completion (a read of any window, any access to configuration space) pushes everything
  before it.
- Otherwise a write arrives `delay_ns` after it was posted.
- Nothing that the card sends pushes writes: its interrupts and its own writes travel the other way. Nor does a barrier
  of the processor.

So a driver that needs a write to have arrived, and does not access the card next, must read something. When the link is
lost, waiting writes are lost. Windows that are mapped as plain memory (`map`) bypass the queue: a store through such a
view arrives at once.

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
ARRIVE_NS = READ_NS // 2  # GUESS: half of a read's round trip


class PostedWrites:
    """The queue of one function.

    `delay_ns`: how long a write takes by itself; None: until something pushes it, for tests of missing reads.
    `combining`: the processor's buffers before the bus, for windows mapped with write combining; None: there are none.
    `on_refused`: gets the error of a write that the card's model refuses on arrival, for callers that posted it from
    another process; None: the error is raised in the caller that pushes the write or lets time pass.
    """

    def __init__(self, clock: VirtualClock) -> None:
        """`clock` is the machine's: posted writes survive a reset of the card."""
        self.delay_ns: int | None = ARRIVE_NS
        self.combining: Combining | None = None
        self.on_refused: Callable[[RingupError], None] | None = None
        self._clock = clock
        self._waiting: deque[tuple[int, Deliver, int, bytes | memoryview]] = deque()
        self._armed = False

    def post(self, deliver: Deliver, offset: int, data: bytes | memoryview) -> None:
        """Post a write; `deliver(offset, data)` is called when it arrives. Writes in the combining buffers go first."""
        if self.combining is not None:
            self.combining.drain()
        self.send(deliver, offset, data)

    def send(self, deliver: Deliver, offset: int, data: bytes | memoryview) -> None:
        """Post a write that leaves the combining buffers; the other lines stay there."""
        delay_ns = self.delay_ns
        if delay_ns is None:
            self._waiting.append((0, deliver, offset, data))
            return
        self._waiting.append((self._clock.now_ns + delay_ns, deliver, offset, data))
        if not self._armed:
            self._arm(delay_ns)

    def push(self) -> None:
        """Deliver every earlier write, because of a request by the processor that posted them."""
        if self.combining is not None:
            self.combining.drain()
        self.arrive()

    def arrive(self) -> None:
        """Deliver every write on the bus, because of a request by another processor. Lines in this processor's
        combining buffers stay.
        """
        while self._waiting:
            self._arrive_one()

    def lose(self) -> None:
        """Drop all writes in flight: the link is down."""
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
        """Deliver due writes, and start a timer for the next one."""
        self._armed = False
        waiting, now_ns = self._waiting, self._clock.now_ns
        try:
            while waiting and waiting[0][0] <= now_ns:
                self._arrive_one()
        finally:
            if waiting and not self._armed and self.delay_ns is not None:
                self._arm(max(0, waiting[0][0] - self._clock.now_ns))
