"""Check numbers that a card or its firmware states about itself, before they enter arithmetic, a loop or an allocation.

An impossible number is often not a number at all, but what memory and registers read as if nothing answered or nothing
has been written there.
"""

from __future__ import annotations

from ringup.errors import FirmwareError, RingupError

UNWRITTEN = "the pattern of unwritten memory"
# 32-bit values.
PATTERNS = {
    0xDEAD_BEEF: UNWRITTEN,
    # amdgpu gfx_v11_0.c, gfx_v11_0_ring_test_ring
    0xCAFE_DEAD: "the pattern that drivers test scratch registers with",
    0xBAAD_F00D: UNWRITTEN,
    0xFEED_FACE: UNWRITTEN,
    0x5A5A_5A5A: UNWRITTEN,
    0x6B6B_6B6B: "the pattern of freed memory",
}
# 0xbadbad00 and similar values: answers of buses and firmware for an address that does not exist.
BAD, BAD_SHIFT = 0xBAD, 20


def pattern(value: int, bits: int = 32) -> str:
    """Return which known pattern a number of `bits` bits has; empty if it may be a real number."""
    if value == 0:
        return "all zeros"
    if value == (1 << bits) - 1:
        return "all ones: nothing answered"
    low, high = value & 0xFFFF_FFFF, value >> 32
    if bits > 32 and high not in (0, low):
        return ""
    if low in PATTERNS:
        return PATTERNS[low]
    return "the pattern of an address that does not exist" if low >> BAD_SHIFT == BAD else ""


def named(value: int, bits: int = 32) -> str:
    """Return a number in hex, followed by its pattern if it has one."""
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
    """Return a stated number that is within `low` to `high`, both included.

    Raises `error` otherwise; the message gives the number and the bounds.
    """
    if low <= value <= high:
        return value
    shown = f"{named(value, bits)}, {value} in decimal" if value > 9 else named(value, bits)
    raise error(f"{what} is stated as {shown}; valid are {low} to {high}" + (f"; {todo}" if todo else ""))
