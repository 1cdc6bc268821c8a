"""Moves of values between lanes whose numbers differ in the bits of a mask.

RDNA's DPP has them all within a row of 16. GFX9's has a few, and two of them make the others. Between rows, the LDS
hardware moves values, without using LDS memory: ds_swizzle within 32 lanes, ds_bpermute between the halves of a wave.
Source: CDNA3 ISA reference, "DPP Control", "DS_SWIZZLE_B32", "DS_BPERMUTE_B32".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ringup.compiler.amd.instructions.code import Operand
from ringup.compiler.amd.instructions.targets import Row

if TYPE_CHECKING:
    from ringup.compiler.amd.select.emitter import Emitter, Place

# The lanes of a row.
ROW: Final = 16
# Distances that one DPP control of gfx9 moves by.
_CONTROLS: Final[Mapping[int, Mapping[str, object]]] = {
    1: {"quad_perm": (1, 0, 3, 2)}, 2: {"quad_perm": (2, 3, 0, 1)}, 3: {"quad_perm": (3, 2, 1, 0)}, 7: {"row_half_mirror": 1},
    8: {"row_ror": 8}, 15: {"row_mirror": 1},
}  # fmt: skip
# Source: LLVM SIDefines.h, Swizzle: bit 15 clear; and-mask 4:0, or-mask 9:5, xor-mask 14:10, of the 32 lanes of a half.
_SWIZZLE_KEEP, _SWIZZLE_XOR = 0x1F, 10


def everywhere(row: Row) -> dict[str, object]:
    """Return the modifiers of a DPP move in all lanes. On RDNA, registers of inactive lanes are read as they are. On
    gfx9, they count as 0.
    """
    found: dict[str, object] = {"row_mask": 15, "bank_mask": 15, "bound_ctrl": 1}
    return found | {"fi": 1} if row.row_xmask else found


def exchange_of(row: Row, distance: int) -> dict[str, object] | None:
    """Return the modifiers with which one instruction reads the lane at a distance; None if DPP has no such control."""
    if not 0 < distance < ROW:
        return None
    if row.row_xmask:
        return {"row_xmask": distance, **everywhere(row)}
    control = _CONTROLS.get(distance)
    return None if control is None else {**control, **everywhere(row)}


def lanes(e: Emitter, to: Place, of: Operand, distance: int) -> None:
    """Move one dword between lanes at a distance, on gfx9."""
    if distance & 32:
        own, at = e.temporary(), e.temporary()
        e.emit("v_mbcnt_lo_u32_b32", own, -1, 0)
        e.emit("v_mbcnt_hi_u32_b32", own, -1, own)
        e.emit("v_lshlrev_b32", at, 2, own)
        e.emit("v_xor_b32", at, distance << 2, at)
        return e.emit("ds_bpermute_b32", to, at, of)
    if distance & ROW:
        return e.emit("ds_swizzle_b32", to, of, offset=distance << _SWIZZLE_XOR | _SWIZZLE_KEEP)
    control = exchange_of(e.row, distance)
    if control is not None:
        return e.emit("v_mov_b32", to, of, **control)
    first = next(one for one in (15, 8, 7) if one ^ distance in (1, 2, 3))
    half = e.temporary()
    for place, source, step in ((half, of, first), (to, half, first ^ distance)):
        e.emit("v_mov_b32", place, source, **_CONTROLS[step], **everywhere(e.row))
    return None
