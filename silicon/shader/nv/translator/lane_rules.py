"""Exchanges between lanes, special registers and fences as IR. What they compute is as in `interpreter/exchange.py`,
which names the sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.host.memory_shape import CONTEXT
from ringup.silicon.shader.nv.decoding.instruction import RZ, Kind
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.layout import Field, Own
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable


def _vote(w: Writer) -> None:
    code = w.code
    rd, pu, asked = w.ins.operands
    mask = code.op("and", w.mask_of(asked), w.mask)
    how = w.ins.modifiers[0]
    all_of, none = code.icmp("eq", mask, w.mask), code.icmp("eq", mask, code.const(0, "i32"))
    found = all_of if how == "ALL" else code.invert(none) if how == "ANY" else code.op("or", all_of, none)
    if rd.kind is Kind.UNIFORM:
        w.write(rd, mask)
    elif rd.value != RZ:
        w.write(rd, code.splat(mask, LANES))
    if pu.value != 7:
        is_scalar = pu.kind is Kind.UNIFORM_PREDICATE
        w.set_condition(pu, found if is_scalar else code.select(found, code.const(-1, "i32"), code.const(0, "i32")))


def _shfl(w: Writer) -> None:
    code = w.code
    pu, rd, source, lane, c = w.ins.operands
    bits, which, limits = w.raw(source), w.raw(lane), w.raw(c)
    here = code.lane_const(list(range(LANES)), "i32")
    bound = code.op("and", limits, w.const(31))
    segment = code.op("and", code.op("lshr", limits, w.const(8)), w.const(31))
    outside = code.invert(segment)
    low = code.op("and", here, segment)
    highest = code.op("or", low, code.op("and", bound, outside))
    which = code.op("and", which, w.const(31))
    how = w.ins.modifiers[0]
    if how == "IDX":
        target = code.op("or", low, code.op("and", which, outside))
    else:
        target = code.op({"UP": "sub", "DOWN": "add", "BFLY": "xor"}[how], here, which)
    valid = code.icmp("sge" if how == "UP" else "sle", target, highest)
    target = code.op("and", code.select(valid, target, here), w.const(31))
    w.write(rd, permuted(w, bits, target))
    w.set_condition(pu, valid)


def permuted(w: Writer, bits: Value, lanes: Value) -> Value:
    """Return for each lane another lane's value: through memory, since LLVM has no such operation on vectors."""
    code = w.code
    code.define("shuffled", "@shuffled = internal global [64 x i32] zeroinitializer, align 64")
    place = Value("@shuffled", "ptr")
    code.store(bits, place, 64)
    pointers = code.gep(place, code.resize(lanes, "i64"), "i32")
    every = Value("splat (i1 true)", f"<{LANES} x i1>")
    return code.intrinsic(
        "masked.gather", pointers, Value("4", "i32"), every, Value("zeroinitializer", bits.type),
        result=bits.type, overload=(bits.type, pointers.type),
    )  # fmt: skip


def _r2ur(w: Writer) -> None:
    rd, source = [one for one in w.ins.operands if one.kind in (Kind.REGISTER, Kind.UNIFORM)]
    code = w.code
    found = code.intrinsic("cttz", w.mask, Value("false", "i1"))
    w.write(rd, code.extract(w.register(source.value), code.op("and", found, code.const(31, "i32"))))


def special(w: Writer, name: str) -> Value:
    """Return a special register: a scalar if it is the same for the whole warp."""
    code = w.code
    if name in ("SR_TID.X", "SR_TID.Y", "SR_TID.Z"):
        return w.load(layout.TIDS + LANES * "XYZ".index(name[-1]), f"<{LANES} x i32>")
    if name in ("SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z"):
        return w.load(Field.CTAID_X + "XYZ".index(name[-1]))
    lanes = range(LANES)
    masks = {
        "SR_LANEID": list(lanes), "SR_EQMASK": [1 << one for one in lanes], "SR_LTMASK": [(1 << one) - 1 for one in lanes],
        "SR_LEMASK": [(2 << one) - 1 for one in lanes], "SR_GTMASK": [-(2 << one) & 0xFFFF_FFFF for one in lanes],
        "SR_GEMASK": [-(1 << one) & 0xFFFF_FFFF for one in lanes],
    }  # fmt: skip
    if name in masks:
        return code.lane_const(masks[name], "i32")
    if name == "SRZ":
        return code.const(0, "i32")
    raise NotTranslated(f"{w.ins.text}: the special register {name}")


def _s2r(w: Writer) -> None:
    rd, source = w.ins.operands
    value = special(w, source.name)
    if rd.kind is Kind.UNIFORM and value.lanes:
        found = w.code.intrinsic("cttz", w.mask, Value("false", "i1"))
        value = w.code.extract(value, w.code.op("and", found, w.code.const(31, "i32")))
    w.write(rd, w.shape(value))


def _cs2r(w: Writer) -> None:
    code = w.code
    rd, source = w.ins.operands
    value = code.const(0, "i64")
    if source.name == "SR_CLOCKLO":
        # A clock that never stands still: what all warps of the launch have executed.
        value = code.load(code.gep(CONTEXT, Own.INSTRUCTIONS, "i64"), "i64", 8)
    elif source.name != "SRZ":
        raise NotTranslated(f"{w.ins.text}: this special register")
    if w.ins.has("32"):
        w.write(rd, w.shape(code.resize(value, "i32")))
    else:
        w.write64(rd, w.shape(value))


def _redux(w: Writer) -> None:
    code, ins = w.code, w.ins
    rd, source = ins.operands
    how = next((one for one in ins.modifiers if one != "S32"), "AND")
    signed = "s" if ins.has("S32") else "u"
    names = {
        "AND": ("and", -1), "OR": ("or", 0), "XOR": ("xor", 0), "SUM": ("add", 0),
        "MIN": (signed + "min", 0x7FFF_FFFF if signed == "s" else -1),
        "MAX": (signed + "max", 0x8000_0000 if signed == "s" else 0),
    }  # fmt: skip
    name, neutral = names[how]
    bits = code.select(w.lanes_of(w.mask), w.raw(source), w.code.const(neutral, f"<{LANES} x i32>"))
    w.write(rd, code.intrinsic(f"vector.reduce.{name}", bits, result="i32"))


def nothing(w: Writer) -> None:
    """Fences and cache control: every access has reached memory."""


RULES: dict[str, Callable[[Writer], None]] = {
    "VOTE": _vote, "VOTEU": _vote, "SHFL": _shfl, "R2UR": _r2ur, "S2R": _s2r, "S2UR": _s2r, "CS2R": _cs2r,
    "REDUX": _redux, **dict.fromkeys(("MEMBAR", "CCTL", "ERRBAR", "NOP", "NANOSLEEP", "DEPBAR", "LDGDEPBAR"), nothing),
}  # fmt: skip
