"""Doorbells: which dword of BAR 2 belongs to which queue, and ringing it.

A doorbell is 64 bits wide and counted here as the registers count it, in dwords. Compute queues compare a doorbell's
place with CP_HQD_PQ_DOORBELL_CONTROL, SDMA queues with SDMA0_QUEUE0_DOORBELL_OFFSET; NBIO and the command processor
pass on only what lies in their ranges. Source: amdgpu amdgpu_doorbell.h, AMDGPU_NAVI10_DOORBELL_ASSIGNMENT; soc21.c,
soc21_init_doorbell_index; gfx_v11_0_cp_set_doorbell_range.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.amd.bus.access import Halves
from ringup.drivers.transport.seam import Mmio
from ringup.errors import NotSupported

DOORBELL_BAR = 2
# in 64 bit doorbells, as the assignment lists them
_MEC_FIRST = 0x000
_MEC_RINGS = range(0x003, 0x00B)
_MEC_USER = range(0x00D, 0x08B)
_GFX_FIRST, _GFX_LAST = 0x08B, 0x0FF
_SDMA_FIRST, _SDMA_EACH = 0x100, 0x00A
_IH = 0x178
DWORDS = 2  # a doorbell

MEC_RANGE = (_MEC_FIRST * DWORDS, (_MEC_USER.stop - 1) * DWORDS)  # dword index, the last one included
GFX_RANGE = (_GFX_FIRST * DWORDS, _GFX_LAST * DWORDS)
SDMA_FIRST = _SDMA_FIRST * DWORDS
SDMA_EACH = _SDMA_EACH * DWORDS  # dwords of an engine
IH_INDEX = _IH * DWORDS
_COMPUTE: tuple[int, ...] = (*_MEC_RINGS, *_MEC_USER)
COMPUTE_QUEUES = len(_COMPUTE)
SDMA_QUEUES = _SDMA_EACH  # doorbells of an engine; it has 8 queues


def compute_index(number: int) -> int:
    """Return the dword index of the doorbell of compute queue `number`, counted over all pipes."""
    if not 0 <= number < COMPUTE_QUEUES:
        raise ValueError(f"compute queues have {COMPUTE_QUEUES} doorbells, there is no number {number}")
    return _COMPUTE[number] * DWORDS


def sdma_index(engine: int, queue: int) -> int:
    """Return the dword index of the doorbell of a queue of an SDMA engine."""
    if engine not in (0, 1) or not 0 <= queue < SDMA_QUEUES:
        raise ValueError(f"SDMA engines 0 and 1 have {SDMA_QUEUES} doorbells each, there is no {engine}.{queue}")
    return SDMA_FIRST + engine * SDMA_EACH + queue * DWORDS


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
