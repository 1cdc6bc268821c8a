"""Numbers that a card or its firmware states of itself: checked against what can be before they enter arithmetic, a
loop or an allocation.

A number that cannot be is often none at all, but what memory and registers read as when nothing answered or nobody has
written them.
"""

from __future__ import annotations

from ringup.errors import FirmwareError, RingupError

UNWRITTEN = "the pattern of memory that nobody has written"
PATTERNS = {  # of 32 bits
    0xDEAD_BEEF: UNWRITTEN,
    0xCAFE_DEAD: "the pattern that drivers test scratch registers with",  # amdgpu gfx_v11_0.c, gfx_v11_0_ring_test_ring
    0xBAAD_F00D: UNWRITTEN,
    0xFEED_FACE: UNWRITTEN,
    0x5A5A_5A5A: UNWRITTEN,
    0x6B6B_6B6B: "the pattern of memory that was given back",
}
BAD, BAD_SHIFT = 0xBAD, 20  # 0xbadbad00 and its kin: what buses and firmware answer for a place that is not there


def pattern(value: int, bits: int = 32) -> str:
    """Say of which pattern a number of so many bits is; empty for one that may be meant."""
    if value == 0:
        return "all zeros"
    if value == (1 << bits) - 1:
        return "all ones: nothing answered"
    low, high = value & 0xFFFF_FFFF, value >> 32
    if bits > 32 and high not in (0, low):
        return ""
    if low in PATTERNS:
        return PATTERNS[low]
    return "the pattern of a place that is not there" if low >> BAD_SHIFT == BAD else ""


def named(value: int, bits: int = 32) -> str:
    """Return a number in hex, and behind it what it is where it is a pattern and no number."""
    why = pattern(value, bits)
    return f"{value:#x} ({why})" if why else f"{value:#x}"


def within(
    value: int,
    low: int,
    high: int,
    what: str,
    *,
    bits: int = 32,
    error: type[RingupError] = FirmwareError,
    todo: str = "",
) -> int:
    """Return a stated number that can be one: `low` to `high`, both included. Raises `error`, which gives the number
    and the bounds.
    """
    if low <= value <= high:
        return value
    shown = f"{named(value, bits)}, {value} in decimal" if value > 9 else named(value, bits)
    raise error(f"{what} is stated as {shown}; {low} to {high} can be" + (f"; {todo}" if todo else ""))
