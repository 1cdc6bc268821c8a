"""What packets ask of the graphics core's caches. `caches.py` does it, where a card has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Invalidation:
    """What is to be forgotten or written back. `vector`: GL0 and GL1; `second`: the GL2."""

    scalar: bool = False
    vector: bool = False
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
    """The caches of a card, for who executes packets."""

    def invalidate(self, what: Invalidation) -> None:
        """Forget and write back."""
        ...


# AQL's fences. Source: LLVM AMDGPUUsage, "Memory Model GFX10-GFX11"; UNKNOWN: whether the firmware drops the I$ with both
AGENT = Invalidation(scalar=True, vector=True, instructions=True)
WRITE_BACK = Invalidation(second_writeback=True)
SYSTEM = Invalidation(scalar=True, vector=True, instructions=True, second_writeback=True, second_invalidate=True)


def from_gcr(bits: GcrBits, *, instructions: bool = False) -> Invalidation:
    """Read the bits of GCR_CNTL. GL0 without GL1, or the other way, leaves a level that still has the line."""
    return Invalidation(
        scalar=bool(bits.glk_inv),
        vector=bool(bits.glv_inv and bits.gl1_inv),
        instructions=instructions,
        second_writeback=bool(bits.gl2_wb),
        second_invalidate=bool(bits.gl2_inv),
    )
