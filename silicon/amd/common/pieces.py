"""A run of virtual addresses and the memory behind it."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """Where a run of virtual addresses lies: `space` is vram, host, zero (reads give 0, writes vanish) or nothing (bus
    error).
    """

    space: str
    address: int
    size_bytes: int
    flags: int  # the page-table entry; 0 for what no table translated
