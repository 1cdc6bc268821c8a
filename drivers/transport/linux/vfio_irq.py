"""Interrupts of a function through VFIO: each vector is an eventfd that the kernel writes. MSI-X where there is some,
else MSI, else INTx.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

from ringup.autogen.linux import vfio
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import RingupError

INDICES = (vfio.VFIO_PCI_MSIX_IRQ_INDEX, vfio.VFIO_PCI_MSI_IRQ_INDEX, vfio.VFIO_PCI_INTX_IRQ_INDEX)  # best first
# of MSI-X, as many as the maximum of MSI: more than the queues of ringup need
VECTORS = 32
ON = vfio.VFIO_IRQ_SET_DATA_EVENTFD | vfio.VFIO_IRQ_SET_ACTION_TRIGGER
OFF = vfio.VFIO_IRQ_SET_DATA_NONE | vfio.VFIO_IRQ_SET_ACTION_TRIGGER
# `select` cannot wait for file descriptors from this number on. Source: select(2)
FD_SETSIZE = 1024
EVENT_FLAGS = os.EFD_NONBLOCK | os.EFD_CLOEXEC


def irq_info(kernel: Kernel, node: int, index: int) -> tuple[int, int]:
    """Return (vectors, flags) of an interrupt index; none where the function lacks it."""
    info = vfio.vfio_irq_info(argsz=vfio.vfio_irq_info.SIZE, index=index)
    try:
        kernel.call(node, vfio.VFIO_DEVICE_GET_IRQ_INFO, info)
    except OSError:
        return 0, 0
    return (info.count, info.flags) if info.flags & vfio.VFIO_IRQ_INFO_EVENTFD else (0, 0)


def set_irqs(
    kernel: Kernel, node: int, index: int, flags: int, doing: str, events: Sequence[int] = (), count: int = 0
) -> None:
    """Change an index's vectors: from 0 on, `events` or `count` of them."""
    head = vfio.vfio_irq_set.SIZE
    call = bytearray(head) + b"".join(event.to_bytes(4, "little") for event in events)
    fields = vfio.vfio_irq_set.view(call)
    fields.argsz, fields.flags, fields.index, fields.count = len(call), flags, index, len(events) or count
    del fields
    kernel.ask(node, vfio.VFIO_DEVICE_SET_IRQS, call, doing)


def taken(event: int) -> bool:
    """Empty an eventfd; whether anything had come."""
    try:
        os.eventfd_read(event)
    except BlockingIOError:
        return False
    return True


class EventInterrupts:
    """The seam's `Interrupts`. Nothing is enabled until the first `wait`."""

    def __init__(self, kernel: Kernel, node: int) -> None:
        self._kernel, self._node = kernel, node
        found = ((index, *irq_info(kernel, node, index)) for index in INDICES)
        self._index, count, self._flags = next((row for row in found if row[1]), (INDICES[-1], 0, 0))
        self.vectors = min(count, VECTORS)
        self._events: list[int] = []
        self._poll = select.epoll()

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Wait for an interrupt, at most that long; return the vectors that came."""
        if not self._events and self.vectors:
            self._enable()
        timeout_s = max(timeout_us, 0) / 1_000_000
        # `select` has a resolution of microseconds; `epoll` rounds up to milliseconds
        if self._poll.fileno() < FD_SETSIZE:
            select.select([self._poll], [], [], timeout_s)
            timeout_s = 0
        ready = self._poll.poll(timeout_s)
        came = sorted(self._events.index(event) for event, _ in ready if taken(event))
        # a level interrupt is masked by the kernel when it comes
        if came and self._flags & vfio.VFIO_IRQ_INFO_AUTOMASKED:
            actions = vfio.VFIO_IRQ_SET_DATA_NONE | vfio.VFIO_IRQ_SET_ACTION_UNMASK
            set_irqs(self._kernel, self._node, self._index, actions, "letting the next interrupt come", count=1)
        return tuple(came)

    def close(self) -> None:
        """Disable them. Twice is harmless."""
        if self._events:
            with contextlib.suppress(RingupError):  # the function may be gone
                set_irqs(self._kernel, self._node, self._index, OFF, "disabling interrupts")
        while self._events:
            os.close(self._events.pop())
        self._poll.close()

    def _enable(self) -> None:
        events = [os.eventfd(0, EVENT_FLAGS) for _ in range(self.vectors)]
        try:
            set_irqs(self._kernel, self._node, self._index, ON, f"enabling {self.vectors} interrupts", events)
        except BaseException:
            for event in events:
                os.close(event)
            raise
        self._events = events
        for event in events:
            self._poll.register(event, select.EPOLLIN)


class Notice:
    """One of VFIO's own events, such as the kernel's wish to have the function back; absent where the kernel lacks
    it.
    """

    def __init__(self, kernel: Kernel, node: int, index: int) -> None:
        self._event = -1
        self._came = False
        if irq_info(kernel, node, index)[0]:
            self._event = os.eventfd(0, EVENT_FLAGS)
            with undone_on_error(self.close):
                set_irqs(kernel, node, index, ON, "asking for the kernel's notices", [self._event])

    @property
    def came(self) -> bool:
        """Whether it ever came."""
        self._came = self._came or (self._event >= 0 and taken(self._event))
        return self._came

    def close(self) -> None:
        """Stop listening. Twice is harmless."""
        if self._event >= 0:
            os.close(self._event)
            self._event = -1
