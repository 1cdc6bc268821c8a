"""Doorbells: which dword of BAR 2 belongs to which queue, and ringing it.

A doorbell is 64 bits wide and counted here as the registers count it, in dwords. Compute queues compare a doorbell's
place with CP_HQD_PQ_DOORBELL_CONTROL, SDMA queues with SDMA0_QUEUE0_DOORBELL_OFFSET; NBIO and the command processor
pass on only what lies in their ranges. Source: amdgpu amdgpu_doorbell.h, AMDGPU_NAVI10_DOORBELL_ASSIGNMENT and
AMDGPU_DOORBELL_ASSIGNMENT_LAYOUT1; soc21.c, soc21_init_doorbell_index; gfx_v11_0_cp_set_doorbell_range;
aqua_vanjaram.c, aqua_vanjaram_doorbell_index_init; gfx_v9_4_3_xcc_kiq_init_register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringup.drivers.memory.access import Halves
from ringup.drivers.transport.seam import Mmio
from ringup.errors import NotSupported

DOORBELL_BAR = 2
DWORDS = 2  # a doorbell


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which doorbells a family of cards gives to which engine; in doorbells of 64 bits, as the kernel lists them.

    `compute`: of compute queues, counted over all pipes. `mec`, `graphics`: first and last of the command processor's
    ranges; without `graphics` there is no graphics ring. `sdma_each`: of a copy engine.
    """

    compute: Sequence[int]
    mec: tuple[int, int]
    graphics: tuple[int, int] | None
    sdma_first: int
    sdma_each: int
    sdma_engines: int
    interrupts: int

    @property
    def ih_index(self) -> int:
        """The dword index of the doorbell of the interrupt ring."""
        return self.interrupts * DWORDS

    @property
    def sdma_index_first(self) -> int:
        """The dword index of the first doorbell of the copy engines."""
        return self.sdma_first * DWORDS

    @property
    def sdma_dwords(self) -> int:
        """The dwords of the doorbells of a copy engine."""
        return self.sdma_each * DWORDS

    @property
    def mec_range(self) -> tuple[int, int]:
        """The dword indices of the first and last doorbell of the compute micro engine."""
        first, last = self.mec
        return first * DWORDS, last * DWORDS

    @property
    def graphics_range(self) -> tuple[int, int] | None:
        """The dword indices of the first and last doorbell of the graphics ring; None without one."""
        return (self.graphics[0] * DWORDS, self.graphics[1] * DWORDS) if self.graphics else None

    def compute_index(self, number: int) -> int:
        """Return the dword index of the doorbell of compute queue `number`, counted over all pipes."""
        if not 0 <= number < len(self.compute):
            raise ValueError(f"compute queues have {len(self.compute)} doorbells, there is no number {number}")
        return self.compute[number] * DWORDS

    def sdma_index(self, engine: int, queue: int) -> int:
        """Return the dword index of the doorbell of a queue of an SDMA engine."""
        if not 0 <= engine < self.sdma_engines or not 0 <= queue < self.sdma_each:
            raise ValueError(
                f"SDMA engines 0 to {self.sdma_engines - 1} have {self.sdma_each} doorbells each, there is no {engine}.{queue}"
            )
        return self.sdma_index_first + engine * self.sdma_dwords + queue * DWORDS


# rings of the kernel's own, then those of users' queues
NAVI10 = Assignment(
    compute=(*range(0x003, 0x00B), *range(0x00D, 0x08B)),
    mec=(0x000, 0x08A),
    graphics=(0x08B, 0x0FF),
    sdma_first=0x100,
    sdma_each=0x00A,
    sdma_engines=2,
    interrupts=0x178,
)
LAYOUT1 = Assignment(
    compute=range(0x008, 0x020),
    # GUESS: of each die of the graphics core. amdgpu gives each 32 doorbells of its own, for its own queues; here one
    # rings a queue on all dies, as amdkfd's do, which lie outside all ranges
    mec=(0x000, 0x0FF),
    graphics=None,
    sdma_first=0x100,
    sdma_each=0x00A,
    sdma_engines=16,
    interrupts=0x1A0,
)
ASSIGNMENTS = {9: LAYOUT1, 11: NAVI10, 12: NAVI10}  # by the major version of the graphics core


class Doorbell:
    """One doorbell: tells a queue that its write pointer has moved."""

    __slots__ = ("_mmio", "_offset", "halved", "index", "ring")

    def __init__(self, mmio: Mmio, index: int, *, halved: bool = False) -> None:
        """`halved`: the path writes dwords only. Then the low half rings, after the high half if that has changed,
        until `ring_both` is called.

        UNKNOWN: no public source says how a doorbell of 64 bits takes two halves. Cards behind USB bridges are known to
        take the low half followed by the high one (tinygrad), so that is used where the low half alone does not work.
        """
        self.index, self._mmio, self._offset, self.halved = index, mmio, index * 4, halved
        if self._offset + 8 > mmio.size_bytes:
            raise NotSupported(
                f"doorbell {index:#x} lies beyond the {mmio.size_bytes // 1024} KiB of BAR {DOORBELL_BAR}; give the BAR its full size"
            )
        # tells the queue its new write pointer: dwords for the command processor, bytes for SDMA; never wrapped
        self.ring: Callable[[int], None] = Halves(self._store, high=0) if halved else self._ring

    def ring_both(self) -> None:
        """Write both halves from now on."""
        self.ring = self._ring_halves

    def _ring_halves(self, value: int) -> None:
        self._store(0, value & 0xFFFF_FFFF)
        self._store(4, value >> 32)

    def _ring(self, value: int) -> None:
        self._mmio.write64(self._offset, value)

    def _store(self, at: int, half: int) -> None:
        self._mmio.write32(self._offset + at, half)

    def ring32(self, value: int) -> None:
        """Write the low half alone, as for the interrupt ring's read pointer."""
        self._mmio.write32(self._offset, value)
