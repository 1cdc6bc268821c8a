"""A run of virtual addresses and the memory behind it."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """A run of virtual addresses. `space` is where it lies: vram, host, zero (reads give 0, writes are dropped) or
    nothing (bus error).
    """

    space: str
    address: int
    size_bytes: int
    # the page-table entry; 0 where no page table translated the address
    flags: int
