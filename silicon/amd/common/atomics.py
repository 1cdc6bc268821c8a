"""Atomic operations and comparisons, by the numbers that packets of CP and SDMA use.

Source: navi10_enum.h, TC_OP_ATOMIC_*; RDNA3 ISA reference (what INC and DEC do).
"""

from __future__ import annotations

from collections.abc import Callable

# memory, source, compare, mask of the width -> stored
Operation = Callable[[int, int, int, int], int]


def _signed(value: int, mask: int) -> int:
    return value - mask - 1 if value > mask >> 1 else value


OPERATIONS: dict[int, Operation] = {  # the low five bits of the operation
    0x07: lambda memory, source, compare, mask: source,
    0x08: lambda memory, source, compare, mask: source if memory == compare else memory,
    0x0F: lambda memory, source, compare, mask: memory + source & mask,
    0x10: lambda memory, source, compare, mask: memory - source & mask,
    0x11: lambda memory, source, compare, mask: min(memory, source, key=lambda value: _signed(value, mask)),
    0x12: lambda memory, source, compare, mask: min(memory, source),
    0x13: lambda memory, source, compare, mask: max(memory, source, key=lambda value: _signed(value, mask)),
    0x14: lambda memory, source, compare, mask: max(memory, source),
    0x15: lambda memory, source, compare, mask: memory & source,
    0x16: lambda memory, source, compare, mask: memory | source,
    0x17: lambda memory, source, compare, mask: memory ^ source,
    0x18: lambda memory, source, compare, mask: 0 if memory >= source else memory + 1,
    0x19: lambda memory, source, compare, mask: source if memory == 0 or memory > source else memory - 1,
}
COMPARE: dict[int, Callable[[int, int], bool]] = {  # WAIT_REG_MEM's function, POLL_REGMEM's func. Source: nvd.h
    0: lambda seen, wanted: True,
    1: lambda seen, wanted: seen < wanted,
    2: lambda seen, wanted: seen <= wanted,
    3: lambda seen, wanted: seen == wanted,
    4: lambda seen, wanted: seen != wanted,
    5: lambda seen, wanted: seen >= wanted,
    6: lambda seen, wanted: seen > wanted,
}

SIGNS = {0: "anything, not", 1: "<", 2: "<=", 3: "==", 4: "!=", 5: ">=", 6: ">"}  # the functions of COMPARE in words


def awaited(function: int, reference: int, mask: int, size_bytes: int) -> str:
    """Describe in words what a wait compares with, and the mask if there is one."""
    masked = "" if mask == (1 << 8 * size_bytes) - 1 else f" under mask {mask:#x}"
    return f"wanted is {SIGNS.get(function, '?')} {reference:#x}{masked}"


def describe(code: int) -> tuple[Operation, int, bool] | None:
    """Return an operation, its size in bytes and whether it returns the old value; None for a code that packets cannot
    use.
    """
    operation = OPERATIONS.get(code & 0x1F)
    if operation is None or code > 0x7F:
        return None
    return operation, 8 if code & 0x20 else 4, not code & 0x40
