"""The offset of `ds_swizzle_b32`: converts a permutation of lanes, spelled `swizzle(BROADCAST,8,7)`, to 16 bits and
back.

Source: ISA documents, "DS_SWIZZLE_B32"; LLVM AMDGPUOperandSyntax, "swizzle pattern".
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.errors import CompileError

QUAD_MODE, ROTATE_MODE, FFT_MODE = 0x8000, 0xC000, 0xE000
MODES = ("QUAD_PERM", "BITMASK_PERM", "BROADCAST", "SWAP", "REVERSE", "ROTATE", "FFT")


def swizzle_text(value: int) -> str:
    """Return the text of a non-zero offset of `ds_swizzle_b32`: the plain number if no permutation expresses all its
    bits.
    """
    text = _describe(value)
    if text is None or read_swizzle(*_arguments(text)) != value:
        return str(value)
    return f"swizzle({text})"


def _arguments(text: str) -> tuple[str, list[int | str]]:
    mode, *rest = text.split(",")
    return mode, [part.strip('"') if part.startswith('"') else int(part) for part in rest]


def _describe(value: int) -> str | None:
    if value & 0xF000 == FFT_MODE or value & 0xF000 == 0xF000:
        return f"FFT,{value & 0x1F}"
    if value & 0xE000 == ROTATE_MODE:
        return f"ROTATE,{value >> 10 & 1},{value >> 5 & 0x1F}"
    if value & 0xFF00 == QUAD_MODE:
        return "QUAD_PERM," + ",".join(str(value >> 2 * i & 3) for i in range(4))
    if value & 0x8000:
        return None
    keep, put, turn = value & 0x1F, value >> 5 & 0x1F, value >> 10 & 0x1F
    if keep == 0x1F and put == 0 and turn and turn & turn - 1 == 0:
        return f"SWAP,{turn}"
    if keep == 0x1F and put == 0 and turn and turn & turn + 1 == 0:
        return f"REVERSE,{turn + 1}"
    size = 32 - keep
    if turn == 0 and size > 1 and size & size - 1 == 0 and put < size:
        return f"BROADCAST,{size},{put}"
    digits = ""
    for bit in (16, 8, 4, 2, 1):
        zero, one = bool(put & bit) ^ bool(turn & bit), bool((keep | put) & bit) ^ bool(turn & bit)
        digits += ("1" if zero else "0") if zero == one else ("i" if zero else "p")
    return f'BITMASK_PERM,"{digits}"'


def read_swizzle(mode: str, numbers: Sequence[int | str]) -> int:
    """Return the offset for a swizzle of that mode and those numbers."""
    if mode == "BITMASK_PERM":
        return _bitmask(numbers)
    if mode not in MODES or not all(isinstance(number, int) for number in numbers):
        raise CompileError(f"swizzle({mode}): the modes are {', '.join(MODES)}, followed by numbers")
    given = [int(number) for number in numbers]
    if mode == "QUAD_PERM" and len(given) == 4 and all(0 <= number < 4 for number in given):
        return QUAD_MODE | sum(number << 2 * i for i, number in enumerate(given))
    if mode == "BROADCAST" and len(given) == 2 and given[0] in (2, 4, 8, 16, 32) and 0 <= given[1] < given[0]:
        return 32 - given[0] | given[1] << 5
    if mode == "SWAP" and len(given) == 1 and given[0] in (1, 2, 4, 8, 16):
        return 0x1F | given[0] << 10
    if mode == "REVERSE" and len(given) == 1 and given[0] in (2, 4, 8, 16, 32):
        return 0x1F | given[0] - 1 << 10
    if mode == "ROTATE" and len(given) == 2 and given[0] in (0, 1) and 0 <= given[1] < 32:
        return ROTATE_MODE | given[0] << 10 | given[1] << 5
    if mode == "FFT" and len(given) == 1 and 0 <= given[0] < 32:
        return FFT_MODE | given[0]
    raise CompileError(
        f"swizzle({mode},{','.join(map(str, given))}): QUAD_PERM takes four lanes below 4, BROADCAST a group of 2 to 32 and a lane in it,"
        " SWAP 1 to 16, REVERSE 2 to 32, ROTATE a direction 0 or 1 and 0 to 31, FFT 0 to 31"
    )


def _bitmask(numbers: Sequence[int | str]) -> int:
    if len(numbers) != 1 or not isinstance(numbers[0], str) or len(numbers[0]) != 5 or set(numbers[0]) - set("01pi"):
        raise CompileError('swizzle(BITMASK_PERM, "01pip"): five characters of 0, 1, p (keep) and i (invert)')
    keep = put = turn = 0
    for bit, digit in zip((16, 8, 4, 2, 1), numbers[0], strict=True):
        keep |= bit if digit in "pi" else 0
        put |= bit if digit == "1" else 0
        turn |= bit if digit == "i" else 0
    return keep | put << 5 | turn << 10
