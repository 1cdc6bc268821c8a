"""Values of other lanes, and the position of a thread."""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.amd.instructions.code import Operand
from ringup.compiler.amd.select import exchange
from ringup.compiler.amd.select.emitter import Emitter, Place, bank
from ringup.compiler.machine.ir import Value
from ringup.errors import CompileError

Rule = Callable[[Emitter, Value, Place], None]
# Lanes between which DPP moves values. Source: RDNA3 ISA reference, "DPP16".
ROW = 16


def _shuffle_xor(e: Emitter, v: Value, d: Place) -> None:
    """Exchange values with the lane whose number differs in the bits of a mask.

    Within rows of 16 by DPP, between two rows by v_permlanex16, between halves by v_permlane64. Registers of inactive
    lanes are read as they are.
    """
    distance = v.imm
    if not isinstance(distance, int) or not 0 <= distance < e.wave:
        raise CompileError(f"shuffle_xor by {distance}: a wave has {e.wave} lanes")
    source = v.args[0]
    parts = e.parts(source)
    if source in e.bits or e.known.bank(source) == "s" or not distance:
        for to, of in zip(e.pieces(d), parts, strict=True):
            e.move(to, of)
        return
    if not e.row.row_xmask:
        for to, of in zip(e.pieces(d), parts, strict=True):
            exchange.lanes(e, to, of, distance)
        return
    selects: list[Operand] = []
    if distance & 16:
        low, high = (sum((first + i ^ distance & 15) << 4 * i for i in range(8)) for first in (0, 8))
        # The instruction can hold one literal.
        selects = [e.constant(low), high]
    for to, of in zip(e.pieces(d), parts, strict=True):
        now = of
        if distance & 32:
            halves = to if distance == 32 else e.temporary()
            e.valu("v_permlane64_b32", halves, now)
            now = halves
        if distance & 16:
            # op_sel[0]: inactive lanes are read too.
            e.emit("v_permlanex16_b32", to, now, *selects, op_sel=(1, 0))
        elif distance & 15:
            e.emit("v_mov_b32", to, now, row_xmask=distance & 15, row_mask=15, bank_mask=15, bound_ctrl=1, fi=1)


def _shuffle_up(e: Emitter, v: Value, d: Place) -> None:
    """Read the lane that is `distance` places below in the same row of 16, by DPP. Lanes without one get 0. Registers
    of inactive lanes are read as they are.
    """
    distance = v.imm
    if not isinstance(distance, int) or not 0 < distance < ROW:
        raise CompileError(f"shuffle_up by {distance}: a row has {ROW} lanes")
    for to, of in zip(e.pieces(d), e.parts(v.args[0]), strict=True):
        now = of if bank(of) == "v" else e.copied([of], "v")
        e.emit("v_mov_b32", to, now, row_shr=distance, **exchange.everywhere(e.row))


def _shuffle(e: Emitter, v: Value, d: Place) -> None:
    """Read the value of any lane. The LDS hardware moves it, without using LDS memory; on RDNA, it reaches the 32 lanes
    of one half.
    """
    source, lane = v.args
    parts = e.parts(source)
    if source in e.bits or e.known.bank(source) == "s":
        for to, of in zip(e.pieces(d), parts, strict=True):
            e.move(to, of)
        return
    at = e.temporary()
    e.valu("v_lshlrev_b32", at, 2, e.any(lane))
    if e.wave == 32 or e.row.whole_permute:
        for to, of in zip(e.pieces(d), parts, strict=True):
            e.emit("ds_bpermute_b32", to, at, of)
        return
    own, apart = e.temporary(), e.temporary()
    e.emit("v_mbcnt_lo_u32_b32", own, -1, 0)
    e.emit("v_mbcnt_hi_u32_b32", own, -1, own)
    e.valu("v_xor_b32", apart, e.any(lane), own)
    other = e.temporary()
    e.emit("v_and_b32", other, 32, apart)
    for to, of in zip(e.pieces(d), parts, strict=True):
        swapped, near, far = e.temporary(), e.temporary(), e.temporary()
        e.emit("v_permlane64_b32", swapped, of)
        e.emit("ds_bpermute_b32", near, at, of)
        e.emit("ds_bpermute_b32", far, at, swapped)
        e.emit("v_cmp_ne_u32", e.vcc, 0, other)
        e.emit("v_cndmask_b32", to, near, far, e.vcc)


def _read_lane(e: Emitter, v: Value, d: Place) -> None:
    lane = v.imm
    if not isinstance(lane, int) or not 0 <= lane < e.wave:
        raise CompileError(f"read_lane of {lane}: a wave has {e.wave} lanes")
    for to, of in zip(e.pieces(d), e.parts(v.args[0]), strict=True):
        made = to if bank(d) == "s" else e.temporary("s")
        e.emit("v_readlane_b32", made, of, lane)
        if made is not to:
            e.move(to, made)


def _first_lane(e: Emitter, v: Value, d: Place) -> None:
    for to, of in zip(e.pieces(d), e.parts(v.args[0]), strict=True):
        made = to if bank(d) == "s" else e.temporary("s")
        e.emit("v_readfirstlane_b32", made, of)
        if made is not to:
            e.move(to, made)


def _lane_id(e: Emitter, v: Value, d: Place) -> None:
    if e.function.group_size <= e.wave:
        return e.move(d, e.leaves["thread_id"])
    return e.valu("v_and_b32", d, e.wave - 1, e.leaves["thread_id"])


def _wave_id(e: Emitter, v: Value, d: Place) -> None:
    if e.function.group_size <= e.wave:
        return e.move(d, 0)
    first = e.temporary("s")
    e.emit("v_readfirstlane_b32", first, e.leaves["thread_id"])
    return e.emit("s_lshr_b32", d, first, e.wave.bit_length() - 1)


def _thread_id(e: Emitter, v: Value, d: Place) -> None:
    e.move(d, e.leaves["thread_id"])


def _group_id(e: Emitter, v: Value, d: Place) -> None:
    """Read a group's number from where the dispatcher puts it. RDNA4 packs y and z."""
    axis = v.imm
    fixed = e.row.group_ids
    if fixed is None:
        return e.move(d, e.leaves[f"group_id_{axis}"])
    if axis == 0:
        return e.emit("s_mov_b32", d, fixed[0])
    return e.emit("s_and_b32", d, fixed[1], 0xFFFF) if axis == 1 else e.emit("s_lshr_b32", d, fixed[2], 16)


RULES: dict[str, Rule] = {
    "thread_id": _thread_id, "group_id": _group_id,
    "shuffle_xor": _shuffle_xor, "shuffle_up": _shuffle_up, "shuffle": _shuffle, "read_lane": _read_lane, "first_lane": _first_lane,
    "lane_id": _lane_id, "wave_id": _wave_id,
}  # fmt: skip
