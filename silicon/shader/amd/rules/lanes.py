"""Moves between lanes, and between vector and scalar registers; selection and exchange.

Source: RDNA3 ISA reference, "V_READLANE_B32", "V_PERMLANE16_B32", "V_MBCNT_LO_U32_B32", "V_CNDMASK_B32" and related
instructions; CDNA3 ISA reference, "VGPR Indexing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.gcn import INDEXED, INDEXED_PREFIX
from ringup.silicon.shader.amd.writer.dpp import ROW
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.emitter import Value

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Wave


@rule("v_cndmask_b32", "v_cndmask_b16")
def _cndmask(wave: Wave, ins: Instruction) -> None:
    kind = "i16" if ins.mnemonic.endswith("b16") else "i32"
    no, yes, mask = ins.uses
    value = wave.code.select(wave.mask(mask), wave.src(yes, kind, ins), wave.src(no, kind, ins))
    wave.put(ins.defs[0], value, ins)


@rule("v_swap_b32", "v_swap_b16")
def _swap(wave: Wave, ins: Instruction) -> None:
    kind = "i16" if ins.mnemonic.endswith("b16") else "i32"
    a, b = ins.operands
    first, second = wave.src(a, kind), wave.src(b, kind)
    wave.put(a, second)
    wave.put(b, first)


# one lane -------------------------------------------------------------------------------------------------------------


@rule("v_readfirstlane_b32")
def _readfirstlane(wave: Wave, ins: Instruction) -> None:
    code, value = wave.code, wave.vgpr(ins.uses[0].index)
    if wave.full:
        wave.put_scalar(ins.defs[0], code.extract(value, 0))
        return
    active = wave.exec_bits()
    lane = code.intrinsic("cttz", active, Value("false", "i1"), overload=(active.type,))
    no_lane = code.icmp("eq", active, code.const(0, active.type))
    wave.put_scalar(ins.defs[0], code.extract(value, code.select(no_lane, code.const(0, lane.type), lane)))


def _lane(wave: Wave, operand: Operand) -> Value:
    return wave.code.op("and", wave.scalar(operand, "i32"), wave.code.const(wave.lanes - 1, "i32"))


@rule("v_readlane_b32")
def _readlane(wave: Wave, ins: Instruction) -> None:
    source, select = ins.uses
    wave.put_scalar(ins.defs[0], wave.code.extract(wave.vgpr(source.index), _lane(wave, select)))


@rule("v_writelane_b32")
def _writelane(wave: Wave, ins: Instruction) -> None:
    source, select = (one for one in ins.uses if one.direction == "use")
    value, lane = wave.splat(wave.scalar(source, "i32")), wave.splat(_lane(wave, select))
    chosen = wave.code.icmp("eq", wave.lane_numbers(), lane)
    wave.set_vgpr(ins.defs[0].index, value, chosen, masked=False)


def _below(wave: Wave, ins: Instruction, first: int) -> None:
    """Count the bits of S0 for lanes from `first` up that are below the lane itself; add S1."""
    code, (mask, add) = wave.code, ins.uses
    lower = [(1 << max(0, min(lane - first, 32))) - 1 for lane in range(wave.lanes)]
    found = code.op("and", wave.src(mask, "i32", ins), code.lane_const(lower, "i32"))
    wave.put(ins.defs[0], code.op("add", code.intrinsic("ctpop", found), wave.src(add, "i32", ins)), ins)


@rule("v_mbcnt_lo_u32_b32")
def _mbcnt_lo(wave: Wave, ins: Instruction) -> None:
    _below(wave, ins, 0)


@rule("v_mbcnt_hi_u32_b32")
def _mbcnt_hi(wave: Wave, ins: Instruction) -> None:
    _below(wave, ins, 32)


# all lanes ------------------------------------------------------------------------------------------------------------


@rule("v_permlane64_b32")
def _permlane64(wave: Wave, ins: Instruction) -> None:
    """Exchange the halves of a wave64; nothing happens in a wave32."""
    if wave.lanes == 64:
        value = wave.vgpr(ins.uses[0].index)
        wave.put(ins.defs[0], wave.code.shuffle(value, None, [lane ^ 32 for lane in range(64)]), ins)


@rule("v_permlane16_b32", "v_permlanex16_b32")
def _permlane16(wave: Wave, ins: Instruction) -> None:
    """Gather within rows of 16 lanes (x16: from the other row of a pair) by four bits a lane, the same for every row.

    op_sel 0 reads inactive lanes, op_sel 1 makes them 0. Without both a lane that selects an inactive lane keeps its
    old value.
    """
    code, lanes = wave.code, range(wave.lanes)
    source, low, high = (one for one in ins.uses if one.direction == "use")
    eights = [wave.splat(wave.scalar(one, "i32")) for one in (low, high)]
    words = code.shuffle(eights[0], eights[1], [lane + wave.lanes * (lane % ROW // 8) for lane in lanes])
    nibbles = code.op("lshr", words, code.lane_const([lane % 8 * 4 for lane in lanes], "i32"))
    _gather(wave, ins, nibbles, fetches=source.high, bounds=low.high)


@rule("v_permlane16_var_b32", "v_permlanex16_var_b32")
def _permlane16_var(wave: Wave, ins: Instruction) -> None:
    """Gather as above, by four bits of the lane's own selector."""
    source, selector = (one for one in ins.uses if one.direction == "use")
    _gather(wave, ins, wave.vgpr(selector.index), fetches=source.high, bounds=selector.high)


def _gather(wave: Wave, ins: Instruction, selectors: Value, *, fetches: bool, bounds: bool) -> None:
    """Gather by the low four bits of selectors. `fetches` reads inactive lanes, `bounds` makes them 0."""
    code, lanes = wave.code, range(wave.lanes)
    source = next(one for one in ins.uses if one.field == "src0")
    other = ROW if ins.mnemonic.startswith("v_permlanex16") else 0
    value = wave.vgpr(source.index)
    select = code.op("and", selectors, wave.const(15, "i32"))
    result = value
    for i in range(ROW):
        moved = code.shuffle(value, None, [(lane ^ other) & ~(ROW - 1) | i for lane in lanes])
        result = moved if not i else code.select(code.icmp("eq", select, wave.const(i, "i32")), moved, result)
    enable = None
    if not fetches:
        rows = code.lane_const([(lane ^ other) & ~(ROW - 1) for lane in lanes], "i32")
        place = code.resize(code.op("or", rows, select), wave.mask_type)
        mask = wave.splat(wave.exec_bits())
        valid = code.cast("trunc", code.op("lshr", mask, place), "i1")
        if bounds:
            result = code.select(valid, result, wave.const(0, "i32"))
        else:
            enable = valid
    wave.put(ins.defs[0], result, ins, enable)


# registers that M0 selects --------------------------------------------------------------------------------------------


# How M0 offsets the numbers of source and destination: lowest bit and count of bits. Source: RDNA3 ISA reference, "VGPR
# Indexing"
class _Moved(NamedTuple):
    """The bits of M0 that are added: lowest, how many; on CDNA only if bit `gate` of M0 is set."""

    low: int
    width: int
    gate: int | None = None


_WHOLE, _LOW, _HIGH = _Moved(0, 32), _Moved(0, 10), _Moved(16, 10)
RELATIVE: dict[str, tuple[_Moved | None, _Moved | None]] = {
    "v_movreld_b32": (None, _WHOLE), "v_movrels_b32": (_WHOLE, None), "v_movrelsd_b32": (_WHOLE, _WHOLE),
    "v_movrelsd_2_b32": (_LOW, _HIGH), "v_swaprel_b32": (_LOW, _HIGH),
    f"{INDEXED_PREFIX}mov_b32": (_Moved(0, 8, INDEXED["src0"]), _Moved(0, 8, INDEXED["vdst"])),
}  # fmt: skip


class _Row(NamedTuple):
    """A VGPR whose number is known at run time: its address in the wave's state, and whether it is allocated."""

    place: Value
    exists: Value


def _row(wave: Wave, operand: Operand, moved: _Moved | None) -> _Row:
    """Return the register; one beyond the allocation is VGPR 0, which a source reads then."""
    code = wave.code
    if moved is None:
        number, exists = code.const(operand.index, "i32"), code.const(1, "i1")
    else:
        shift = code.op("lshr", wave.sgpr(state.M0), code.const(moved.low, "i32"))
        offset = code.op("and", shift, code.const((1 << moved.width) - 1, "i32"))
        if moved.gate is not None:
            gate = code.op("lshr", wave.sgpr(state.M0), code.const(moved.gate, "i32"))
            offset = code.select(code.cast("trunc", gate, "i1"), offset, code.const(0, "i32"))
        exists = code.icmp("ult", offset, code.const(wave.vgpr_count - operand.index, "i32"))
        zero = code.const(0, "i32")
        if wave.strict:
            wave.fault(code.invert(exists), "register")
        number = code.select(exists, code.op("add", offset, code.const(operand.index, "i32")), zero)
    word = code.op("mul", code.resize(number, "i64"), code.const(wave.lanes, "i64"))
    place = code.gep(Value("%wave", "ptr"), code.op("add", word, code.const(state.RESERVED_WORDS, "i64")), "i32")
    return _Row(place, exists)


def _store(wave: Wave, row: _Row, value: Value) -> None:
    code = wave.code
    keep = code.op("and", wave.exec(), wave.splat(row.exists))
    code.store(code.select(keep, value, code.load(row.place, wave.row, 64)), row.place, 64)


@rule(*RELATIVE)
def _relative(wave: Wave, ins: Instruction) -> None:
    """Move through the wave's state, in which a register's number gives its address."""
    if ins.dpp is not None or ins.sdwa:
        wave.bail(ins)
        return
    code, (by_source, by_target) = wave.code, RELATIVE[ins.mnemonic]
    target, source = ins.defs[0], ins.operands[-1]
    rows = [_row(wave, one, moved) for one, moved in ((source, by_source), (target, by_target)) if one.kind == "vgpr"]
    for i in range(wave.vgpr_count):
        place = code.gep(Value("%wave", "ptr"), state.RESERVED_WORDS + i * wave.lanes, "i32")
        code.store(wave.vgpr(i), place, 64)
    if source.kind == "vgpr":
        value = wave.modified(code.load(rows[0].place, wave.row, 64), neg=source.neg, abs_=source.abs)
    else:
        value = wave.src(source, "i32")
    if by_target is None:
        wave.put(target, value)
        return
    old = code.load(rows[-1].place, wave.row, 64)
    _store(wave, rows[-1], value)
    if ins.mnemonic == "v_swaprel_b32":
        _store(wave, rows[0], old)
    for i in range(wave.vgpr_count):
        place = code.gep(Value("%wave", "ptr"), state.RESERVED_WORDS + i * wave.lanes, "i32")
        wave.set_vgpr(i, code.load(place, wave.row, 64), masked=False)
