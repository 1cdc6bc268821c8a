"""Memory of a channel: what every queue has (its ring is the pushbuffer), the GPFIFO, the user area, the error
notifier.
"""

from __future__ import annotations

from ringup.autogen.nv.ram import NV_RAMUSERD_CHAN_SIZE
from ringup.drivers.buffer import Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.submission.queue_memory import PAGE_BYTES, RING_BYTES, QueueMemory, UserSpace
from ringup.queues.nv.gpfifo import BYTES_PER_ENTRY, ENTRY_BYTES, SPARE_ENTRIES

# the power of two that lets all of the pushbuffer ring be in flight
ENTRIES = 1 << (RING_BYTES // BYTES_PER_ENTRY + SPARE_ENTRIES - 1).bit_length()
# of a queue's page: the area in which host and card leave their indices, aligned to its size
USERD_AT = 2 * NV_RAMUSERD_CHAN_SIZE


class ChannelQueueMemory(QueueMemory):
    """Memory of one channel, all of it where both sides reach it."""

    def __init__(self, user: UserSpace, where: Where, name: str) -> None:
        super().__init__(user, where, name)
        with undone_on_error(self.free):
            self.gpfifo = self._keep(
                user, user.alloc(ENTRIES * ENTRY_BYTES, where, visible=True, name=f"{name}: GPFIFO", cached=False)
            )
            self.notifier = self._keep(
                user, user.alloc(PAGE_BYTES, "host", visible=True, name=f"{name}: error notifier", cached=False)
            )
