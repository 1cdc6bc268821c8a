"""Commands as dwords, as all engines take them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

ONES = 0xFFFF_FFFF


def to_bytes(dwords: Sequence[int]) -> bytes:
    """Return the bytes of commands in memory. Raises a `ValueError` that names what is no dword."""
    try:
        return struct.pack(f"<{len(dwords)}I", *dwords)
    except struct.error as error:
        wrong = next(one for one in dwords if not hasattr(one, "__index__") or not 0 <= one <= ONES)
        raise ValueError(f"commands consist of dwords, whole numbers from 0 to {ONES:#x}, not of {wrong!r}") from error
