"""A compute queue that several dies of a graphics core (XCCs) share: each runs every packet of the ring, and its part
of the work-groups of a dispatch. So what must happen once is one die's alone, and what must be over is so when all dies
say it.

Source: PAL's PM4_PFP_PRED_EXEC and soc15d.h, PRED_EXEC (a mask of dies); amdkfd kfd_mqd_manager_v9.c,
init_mqd_v9_4_3 (how dies share a dispatch); gfx942 in LLVM's AMDGPUUsage, "Memory Model gfx942" (each die has a second
level of its own, which keeps what another die stored).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringup.queues.amd.packets import Atomic, Compare
from ringup.queues.amd.pm4 import Pm4
from ringup.queues.amd.pm4_cache import FROM_OUTSIDE, TO_OUTSIDE

FIRST = 1  # the mask of the die that does what must happen once
WORD_BYTES = 4
MEETING_BYTES = 2 * WORD_BYTES


class Dies(NamedTuple):
    """The dies of a queue. `meeting_va`: two dwords by which they wait for one another, in memory that no second level
    keeps; both 0 when the queue is mapped.
    """

    number: int
    meeting_va: int

    def once(self, pm4: Pm4, packets: Sequence[int]) -> list[int]:
        """Return packets that the first die alone runs."""
        return self.on(pm4, 0, packets)

    def on(self, pm4: Pm4, xcc: int, packets: Sequence[int]) -> list[int]:
        """Return packets that one die alone runs."""
        return [*pm4.pred_exec(FIRST << xcc, len(packets)), *packets]

    def meet(self, pm4: Pm4) -> list[int]:
        """Return packets that hold each die until all have come to them.

        Each die counts, and the last one makes the count 0 again. The second count keeps a die that is ahead from
        counting anew before the last one has seen the first count's 0.
        """
        packets = []
        for va in (self.meeting_va, self.meeting_va + WORD_BYTES):
            packets += pm4.atomic_mem(Atomic.INC, va, self.number - 1, bits=32)
            packets += pm4.wait_mem(va, 0, compare=Compare.EQUAL)
        return packets

    def finish(self, pm4: Pm4) -> list[int]:
        """Return packets behind which the dispatches of all dies have ended, and what they stored is in memory."""
        return [*pm4.wait_for_dispatches(), *pm4.acquire_mem(TO_OUTSIDE), *self.meet(pm4)]

    def order(self, pm4: Pm4) -> list[int]:
        """Return packets behind which dispatches of each die see what those before stored on any die."""
        return [*self.finish(pm4), *pm4.acquire_mem(FROM_OUTSIDE)]
