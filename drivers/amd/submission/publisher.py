"""How an engine learns of work: what the host wrote is flushed, the write pointer is stored, the doorbell is rung."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringup.drivers.submission.hardware_queue import Rings


class HostDataPath(Protocol):
    """What flushes the bytes that went through the window into VRAM."""

    def request(self) -> None:
        """Send a flush; it arrives before every later write."""
        ...

    def flush(self) -> None:
        """Send a flush and wait until it has arrived."""
        ...


class Sends(Protocol):
    """A path that collects requests until it is told to send them."""

    def flush(self) -> None:
        """Send what was collected."""
        ...


class Publisher:
    """Publishes the write pointer of one ring.

    The host alone stores the pointer and rings the doorbell; the engine only reads them. All that lies in the ring
    before the pointer is the engine's from then on.
    """

    __slots__ = (
        "_doorbell",
        "_hdp",
        "_minus",
        "_polled",
        "_remote",
        "_store_pointer",
        "_through_window",
        "_unit_bytes",
    )

    def __init__(
        self,
        hdp: HostDataPath,
        store_pointer: Callable[[int], None],
        doorbell: Rings,
        remote: Sends | None = None,
        *,
        unit_bytes: int,
        polled: bool,
        through_window: bool,
        rings_last: bool = False,
    ) -> None:
        """`store_pointer` stores the pointer in memory, where a `polled` engine looks besides hearing its doorbell;
        `unit_bytes`: what pointer and doorbell count. `through_window`: ring and pointer lie in VRAM, and the host
        writes them through its window; else they lie in host memory. `remote`: the path, where it collects requests.
        `rings_last`: the doorbell gets the number of the last unit, not their count, as HSA's queues have it.
        """
        self._minus = int(rings_last)
        self._hdp, self._store_pointer, self._doorbell, self._remote = hdp, store_pointer, doorbell, remote
        self._unit_bytes, self._polled, self._through_window = unit_bytes, polled, through_window

    def publish(self, wptr_bytes: int) -> None:
        """Tell the engine of work.

        ORDER: what the host wrote through the window is in VRAM before the engine learns of it: by the write pointer in
        memory, which SDMA polls, or by its doorbell, before which a pointer that goes through the window is flushed
        itself. A pointer in host memory is seen at once, so there the flush has to have arrived; the others come behind
        it on the same way.
        """
        value, through_window = wptr_bytes // self._unit_bytes, self._through_window
        if self._polled and not through_window:
            self._hdp.flush()
        else:
            self._hdp.request()
        if self._polled or not through_window:
            self._store_pointer(value)
            if through_window:
                self._hdp.request()
        self._doorbell.ring(value - self._minus)
        if self._remote is not None:
            self._remote.flush()
