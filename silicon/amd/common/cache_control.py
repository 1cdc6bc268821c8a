"""Which caches of the graphics core a packet invalidates or writes back. `memory/caches.py` implements it for cards
that have caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Invalidation:
    """Which caches to invalidate or write back. `scalar`: K$; `second`: the GL2."""

    scalar: bool = False
    gl0: bool = False
    gl1: bool = False
    instructions: bool = False
    second_writeback: bool = False
    second_invalidate: bool = False


class GcrBits(Protocol):
    """The fields that GCR_CNTL and RELEASE_MEM's first dword share."""

    glk_inv: int
    glv_inv: int
    gl1_inv: int
    gl2_inv: int
    gl2_wb: int


class CacheControl(Protocol):
    """The caches of a card, as engines that execute packets use them."""

    def invalidate(self, what: Invalidation) -> None:
        """Invalidate and write back the caches named in `what`."""
        ...


# AQL's fences. Source: LLVM AMDGPUUsage, "Memory Model GFX10-GFX11". UNKNOWN: whether the firmware invalidates the I$
# for both scopes
AGENT = Invalidation(scalar=True, gl0=True, gl1=True, instructions=True)
WRITE_BACK = Invalidation(second_writeback=True)
SYSTEM = Invalidation(scalar=True, gl0=True, gl1=True, instructions=True, second_writeback=True, second_invalidate=True)


def from_gcr(bits: GcrBits, *, instructions: bool = False) -> Invalidation:
    """Decode the bits of GCR_CNTL, one for each cache. Source: nvd.h, PACKET3_ACQUIRE_MEM_GCR_CNTL_*."""
    return Invalidation(
        scalar=bool(bits.glk_inv),
        gl0=bool(bits.glv_inv),
        gl1=bool(bits.gl1_inv),
        instructions=instructions,
        second_writeback=bool(bits.gl2_wb),
        second_invalidate=bool(bits.gl2_inv),
    )
