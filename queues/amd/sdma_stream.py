"""Streams of a copy queue: copies, fills, rectangles, stamps and small stores, built from the SDMA engine's packets.

Commands run in order. A copy that reads what an earlier copy of the stream wrote needs a `barrier` between the two.
"""

from __future__ import annotations

import struct

from ringup.queues.amd.packets import KernelEvent, Version, Waits
from ringup.queues.amd.sdma import Sdma
from ringup.queues.amd.sdma_copy import copy_all, copy_rect_all, fill_all
from ringup.queues.dword_stream import DwordStream
from ringup.queues.dwords import to_bytes
from ringup.queues.queue import Owner

WORD = struct.Struct("<I")
# the bits of an address or a size that are zero in whole dwords; otherwise the engine uses its slow mode
WHOLE = 3
COPY_OPERANDS = ("count", "src_addr", "dst_addr")
# bytes: INDIRECT must end at a multiple of eight dwords
CALL_PERIOD = 32


class SdmaCommands:
    """The packets of a copy engine that a queue itself needs."""

    kind = "sdma"
    call_period = CALL_PERIOD

    def __init__(
        self,
        version: Version,
        vmid: int,
        *,
        interrupts: bool = True,
        word_bits: int = 64,
        event: KernelEvent | None = None,
    ) -> None:
        """`vmid`: the queue's address space, for indirect packets; a queue without privileges has its own in any case.
        `interrupts`: whether a timeline's signal interrupts the host. `word_bits`: the size of the timeline's word, 32
        or 64. `event`: what the interrupt is for, where a kernel passes it on.
        """
        self.sdma, self._vmid = Sdma(version), vmid
        self._waits = Waits(self.sdma.wait_mem)
        self._trap = self.sdma.trap() if interrupts else []
        if event:
            # ORDER: behind the timeline's fences, so whoever the event wakes sees the timeline's value
            self._trap = [*self.sdma.fence64(event.slot_va, event.number), *self.sdma.trap(event.number)]
        self.pad = to_bytes(self.sdma.nop())
        acquire = self.sdma.acquire_user() if self.sdma.row.gcr is not None else []
        copy = self.sdma.template(self.sdma.copy_linear(0, 0, 4))
        self.copy, self.fill_copy = copy.data, copy.filler(*(f"COPY_LINEAR.{name}" for name in COPY_OPERANDS))
        # ORDER: the copies of the submission before end before caches are invalidated
        self.begin = to_bytes(self.sdma.wait_idle() + acquire)
        half = 4 * len(self.sdma.fence(0, 0))
        # FENCE stores 32 bits, its last dword. The low half is stored first: a reader that comes between the two fences
        # sees an older count, never a newer one
        places = ((half - 4, WORD, 0), (2 * half - 4, WORD, 32))
        self.signal_places = places[: word_bits // 32]

    def padding(self, count: int) -> bytes:
        """Return `count` packets of one dword each."""
        return self.pad * count

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Store `value` when all earlier copies have ended, then interrupt the host."""
        fence = self.sdma.fence64 if len(self.signal_places) > 1 else self.sdma.fence
        return to_bytes(fence(gpu_va, value) + self._trap)

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Hold the queue until the dword at `gpu_va` is at least the low half of `value`."""
        return self._waits(gpu_va, value & 0xFFFF_FFFF)

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Run an indirect buffer in the queue's address space."""
        return to_bytes(self.sdma.indirect(gpu_va, size_bytes // 4, self._vmid, at_dwords=at_bytes // 4))


class CopyStream(DwordStream):
    """Commands of a copy queue. Addresses are GPU virtual: `Buffer.gpu_va` plus an offset."""

    def __init__(self, commands: SdmaCommands, owner: Owner) -> None:
        super().__init__(commands, owner)
        self.sdma = commands.sdma
        self._copy, self._fill_copy, self._most = commands.copy, commands.fill_copy, commands.sdma.row.copy_max_bytes

    def copy(self, target_va: int, source_va: int, size_bytes: int) -> None:
        """Copy any number of bytes; the ranges may overlap."""
        # one packet
        if (
            self.around is None
            and not (target_va | source_va | size_bytes) & WHOLE
            and 0 < size_bytes <= self._most
            and abs(target_va - source_va) >= size_bytes
        ):
            body = self.body
            at = len(body)
            body += self._copy
            try:
                self._fill_copy(body, at, size_bytes - 1, source_va, target_va)
            # an address does not fit the packet: the builder below raises an error that names it
            except struct.error:
                del body[at:]
            else:
                return
        self._add(f"copy {size_bytes}", copy_all(self.sdma, target_va, source_va, size_bytes))

    def copy_rect(
        self,
        target_va: int,
        target_pitch_bytes: int,
        source_va: int,
        source_pitch_bytes: int,
        width_bytes: int,
        height: int,
    ) -> None:
        """Copy `height` rows of `width_bytes`, which begin a pitch apart. The planes may not overlap."""
        self._add(
            f"copy {width_bytes} x {height}",
            copy_rect_all(self.sdma, target_va, target_pitch_bytes, source_va, source_pitch_bytes, width_bytes, height),
        )

    def fill(self, gpu_va: int, value: int, size_bytes: int) -> None:
        """Fill a multiple of 4 bytes with a dword."""
        self._add(f"fill {size_bytes}", fill_all(self.sdma, gpu_va, value, size_bytes))

    def store(self, gpu_va: int, *dwords: int) -> None:
        """Store dwords at `gpu_va` (4-byte aligned)."""
        self.append(self.sdma.write(gpu_va, *dwords))

    def barrier(self) -> None:
        """Make later commands wait for all earlier copies and see what they wrote."""
        self.append(self.sdma.wait_idle())

    def stamp(self, gpu_va: int) -> None:
        """Store the 64-bit reference clock at `gpu_va` (8-byte aligned) when all earlier copies have ended."""
        self.append(self.sdma.wait_idle() + self.sdma.store_clock(gpu_va))
