"""Memory instructions as IR: one access for contiguous lanes in one region, helper functions for everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.atomic_ops import NO_FLUSH, Flush, atomic
from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.host.lds_helpers import lds_gather, lds_locate, lds_scatter
from ringup.silicon.shader.host.memory_helpers import gather, locate, scatter
from ringup.silicon.shader.host.memory_shape import (
    CONTEXT,
    DONE,
    MEMORY,
    Answer,
    Region,
    Shape,
    as_mask,
    take,
)
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, Kind
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator.local_helpers import (
    WINDOW_BYTES,
    generic_gather,
    generic_locate,
    generic_scatter,
    limit,
    local_gather,
    local_scatter,
    part_of,
    with_part,
)
from ringup.silicon.shader.nv.translator.writer import ROW, WIDE, NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.decoding.instruction import Operand

_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_LOCAL_WORDS_BYTES = 4 * LANES
_ATOMICS = {
    "ADD": "add", "AND": "and", "OR": "or", "XOR": "xor", "EXCH": "swap", "INC": "inc", "DEC": "dec", "CAS": "cmpswap",
}  # fmt: skip


def _shape(w: Writer) -> Shape:
    size = _SIZES.get(next((one for one in w.ins.modifiers if one in _SIZES), ""), 4)
    return Shape(size, size, LANES)


def refuse(w: Writer, answer: Answer) -> None:
    """Stop the warp if a helper found a broken rule."""
    code = w.code
    w.fault(code.icmp("ne", answer.status, code.const(DONE, "i64")), answer)


def addresses(w: Writer, operand: Operand, kind: str) -> Value:
    """Return the address of each lane, as a vector of i64 or i32."""
    code, ins = w.code, w.ins
    wide = kind == "i64"
    type_ = WIDE if wide else ROW
    total = code.const(operand.value, type_)
    if operand.register not in (-1, RZ):
        pair = operand.is_wide or (ins.has("E") and operand.uniform < 0)
        if pair and wide:
            own = w.joined(w.register(operand.register), w.register(operand.register + 1))
        else:
            own = code.resize(w.register(operand.register), kind)
        if operand.scale != 1:
            own = code.op("mul", own, code.const(operand.scale, type_))
        total = own if not operand.value else code.op("add", own, total)
    if operand.uniform >= 0:
        base = w.uniform(operand.uniform)
        if wide:
            base = w.joined(base, w.uniform(operand.uniform + 1))
        total = code.op("add", total, code.splat(base, LANES))
    return total


def _either(w: Writer, near: Value, quick: Callable[[], list[Value]], slow: Callable[[], list[Value]]) -> list[Value]:
    """Emit a fast and a slow path to the same values."""
    code = w.code
    fast, other, done = code.fresh("near"), code.fresh("far"), code.fresh("done")
    code.branch(near, fast, other, likely=True)
    code.block(fast)
    ones, one_end = quick(), code.label
    code.jump(done)
    code.block(other)
    others, other_end = slow(), code.label
    code.jump(done)
    code.block(done)
    return [code.phi((a, one_end), (b, other_end)) for a, b in zip(ones, others, strict=True)]


def _near(w: Writer, where: Value, shape: Shape, site: Value) -> tuple[Value, Value]:
    """Return whether all lanes access memory one behind the other in one region, and the host address (pointer)."""
    code = w.code
    region = Region.read(code, site)
    first = code.extract(where, 0)
    steps = code.lane_const(range(0, shape.total_bytes, shape.size_bytes), "i64")
    equal = as_mask(code, code.icmp("eq", where, code.op("add", code.splat(first, LANES), steps)))
    near = code.op("and", code.icmp("eq", equal, code.const(-1, "i32")), region.holds(code, first, shape.total_bytes))
    if w.mask.text != "-1":
        near = code.op("and", near, code.icmp("eq", w.mask, code.const(-1, "i32")))
    low = code.op("and", first, code.const(shape.align - 1, "i64"))
    near = code.op("and", near, code.icmp("eq", low, code.const(0, "i64")))
    host = code.op("add", first, region.delta)
    return near, code.emit(f"inttoptr i64 {host.text} to ptr", "ptr")


def _give(w: Writer, rd: Operand, shape: Shape, rows: list[Value]) -> None:
    code = w.code
    if rd.value == RZ:
        return
    signed = {"S8": 24, "S16": 16}.get(next((one for one in w.ins.modifiers if one in ("S8", "S16")), ""))
    if signed:
        by = code.const(signed, ROW)
        rows = [code.op("ashr", code.op("shl", rows[0], by), by)]
    for number, row in enumerate(rows):
        w.write_register(rd.value + number, row)


def _loaded(w: Writer, place: Operand, shape: Shape) -> list[Value]:
    """Load from global memory."""
    code = w.code
    where, site = addresses(w, place, "i64"), w.site()
    near, host = _near(w, where, shape, site)

    def quick() -> list[Value]:
        return shape.unpack(code, code.load(host, shape.packed, shape.align))

    def slow() -> list[Value]:
        name = gather(shape, strict=True).include(code)
        answer = take(code, name, [shape.row] * shape.rows, CONTEXT, site, w.mask, where)
        refuse(w, answer)
        return answer.rows

    return _either(w, near, quick, slow)


def _ldg(w: Writer) -> None:
    shape = _shape(w)
    rd, place = w.ins.operands[:2]
    _give(w, rd, shape, _loaded(w, place, shape))


def _ldgsts(w: Writer) -> None:
    """Copy from global to shared memory, at once."""
    code, shape = w.code, _shape(w)
    to, place, *rest = w.ins.operands
    if any(one.value != PT or one.invert for one in rest):
        raise NotTranslated(f"{w.ins.text}: a predicate")
    rows = _loaded(w, place, shape)
    name = lds_scatter(shape, strict=True).include(code)
    refuse(w, take(code, name, [], CONTEXT, w.shared(), addresses(w, to, "i32"), w.mask, *rows))


def _data(w: Writer, operand: Operand, shape: Shape) -> list[Value]:
    if operand.value == RZ:
        return [w.code.const(0, ROW)] * shape.rows
    return [w.register(operand.value + number) for number in range(shape.rows)]


def _stg(w: Writer) -> None:
    code, shape = w.code, _shape(w)
    place, source = w.ins.operands[:2]
    where, site = addresses(w, place, "i64"), w.site()
    rows = _data(w, source, shape)
    near, host = _near(w, where, shape, site)

    def quick() -> list[Value]:
        code.store(shape.pack(code, rows), host, shape.align)
        return []

    def slow() -> list[Value]:
        name = scatter(shape, strict=True).include(code)
        refuse(w, take(code, name, [], CONTEXT, site, w.mask, *rows, where))
        return []

    _either(w, near, quick, slow)


def _lds(w: Writer) -> None:
    code, shape = w.code, _shape(w)
    rd, place = w.ins.operands[:2]
    name = lds_gather(shape, strict=True).include(code)
    answer = take(code, name, [shape.row] * shape.rows, CONTEXT, w.shared(), addresses(w, place, "i32"), w.mask)
    refuse(w, answer)
    _give(w, rd, shape, answer.rows)


def _sts(w: Writer) -> None:
    code, shape = w.code, _shape(w)
    place, source = w.ins.operands[:2]
    name = lds_scatter(shape, strict=True).include(code)
    rows = _data(w, source, shape)
    refuse(w, take(code, name, [], CONTEXT, w.shared(), addresses(w, place, "i32"), w.mask, *rows))


def _local_offset(w: Writer, place: Operand, shape: Shape) -> Value | None:
    """Return the place of a local access that all lanes make at one address (i32), checked; None for others."""
    if place.register not in (-1, RZ) or place.uniform >= 0:
        return None
    code, at = w.code, place.value & WINDOW_BYTES - 1
    if at % shape.size_bytes:
        raise NotTranslated(f"{w.ins.text}: misaligned")
    where = code.const(at, "i32")
    beyond = code.icmp("uge", where, limit(code, shape.size_bytes))
    w.fault(beyond, Answer(code.const(MEMORY, "i64"), code.const(at, "i64"), []))
    return where


def _local_word(w: Writer, at: Value, number: int) -> Value:
    """Return the address of a word of local memory, for all lanes."""
    code = w.code
    offset = int(at.text) // 4 * _LOCAL_WORDS_BYTES + number * _LOCAL_WORDS_BYTES
    return code.cast("inttoptr", code.op("add", w.local(), code.const(offset, "i64")), "ptr")


def _ldl(w: Writer) -> None:
    code, shape = w.code, _shape(w)
    rd, place = w.ins.operands[:2]
    at = _local_offset(w, place, shape)
    if at is None:
        name = local_gather(shape).include(code)
        answer = take(code, name, [ROW] * shape.rows, CONTEXT, w.local(), addresses(w, place, "i32"), w.mask)
        refuse(w, answer)
        _give(w, rd, shape, answer.rows)
        return
    rows = [code.load(_local_word(w, at, number), ROW, 4) for number in range(shape.rows)]
    if shape.size_bytes < 4:
        rows = [part_of(code, rows[0], code.const(int(at.text) % 4 * 8, ROW), shape.size_bytes)]
    _give(w, rd, shape, rows)


def _stl(w: Writer) -> None:
    code, shape = w.code, _shape(w)
    place, source = w.ins.operands[:2]
    rows, at = _data(w, source, shape), _local_offset(w, place, shape)
    if at is None:
        name = local_scatter(shape).include(code)
        refuse(w, take(code, name, [], CONTEXT, w.local(), addresses(w, place, "i32"), w.mask, *rows))
        return
    for number, row in enumerate(rows):
        pointer = _local_word(w, at, number)
        if shape.size_bytes < 4:
            shift = code.const(int(at.text) % 4 * 8, ROW)
            row = with_part(code, code.load(pointer, ROW, 4), shift, shape.size_bytes, row)
        if w.mask.text != "-1":
            row = code.select(w.lanes_of(w.mask), row, code.load(pointer, ROW, 4))
        code.store(row, pointer, 4)


def _ld(w: Writer) -> None:
    """Load from a generic address."""
    code, shape = w.code, _shape(w)
    rd, place = w.ins.operands[:2]
    where, site = addresses(w, place, "i64"), w.site()
    name = generic_gather(shape).include(code)
    answer = take(code, name, [ROW] * shape.rows, CONTEXT, site, w.shared(), w.local(), w.mask, where)
    refuse(w, answer)
    _give(w, rd, shape, answer.rows)


def _st(w: Writer) -> None:
    """Store to a generic address."""
    code, shape = w.code, _shape(w)
    place, source = w.ins.operands[:2]
    where, site = addresses(w, place, "i64"), w.site()
    name = generic_scatter(shape).include(code)
    rows = _data(w, source, shape)
    refuse(w, take(code, name, [], CONTEXT, site, w.shared(), w.local(), w.mask, where, *rows))


def _atomic(w: Writer) -> None:
    """Combine lane by lane, lowest first."""
    code, ins = w.code, w.ins
    operands = list(ins.operands)
    at = next(number for number, one in enumerate(operands) if one.kind is Kind.ADDRESS)
    results, (place, *sources) = operands[:at], operands[at:]
    rd = results[-1].value if results else RZ
    shape, name = _atomic_kind(w)
    kind = f"i{8 * shape.size_bytes}"
    data = [_joined_data(w, one, shape) for one in sources if one.kind is Kind.REGISTER]
    # cmpswap compares with its second operand
    first, second = (data[1], data[0]) if len(data) > 1 else (data[0], data[0])
    if ins.name == "ATOMS":
        helper = lds_locate(shape, strict=True).include(code)
        answer = take(code, helper, [WIDE, "i32"], CONTEXT, w.shared(), addresses(w, place, "i32"), w.mask)
    elif ins.name == "ATOM":
        if shape.size_bytes > 4:
            raise NotTranslated(f"{ins.text}: 64 bits at a generic address")
        helper, where = generic_locate(shape).include(code), addresses(w, place, "i64")
        answer = take(code, helper, [WIDE], CONTEXT, w.site(), w.shared(), w.local(), w.mask, where)
    else:
        helper = locate(shape).include(code)
        answer = take(code, helper, [WIDE], CONTEXT, w.site(), w.mask, addresses(w, place, "i64"))
    refuse(w, answer)
    flush = Flush(inputs=True, results=True) if ins.has("FTZ") else NO_FLUSH
    combine = atomic(name, kind, LANES, flush, returns=rd != RZ).include(code)
    olds = take(code, combine, [f"<{LANES} x {kind}>"], answer.rows[0], w.mask, first, second).rows[0]
    if rd == RZ:
        return
    w.write_register(rd, code.resize(olds, "i32"))
    if shape.size_bytes == 8:
        w.write_register(rd + 1, code.resize(code.op("lshr", olds, code.const(32, olds.type)), "i32"))


def _atomic_kind(w: Writer) -> tuple[Shape, str]:
    ins = w.ins
    kind = next((one for one in ins.modifiers if one in ("S32", "64", "S64") or re.fullmatch(r"B?F\d.*", one)), "U32")
    how = next((one for one in ins.modifiers if one in (*_ATOMICS, "MIN", "MAX")), "")
    if how in ("MIN", "MAX"):
        name = ("s" if kind[0] == "S" else "u") + how.lower()
    elif how in _ATOMICS:
        name = _ATOMICS[how]
    else:
        raise NotTranslated(f"{ins.text}: this operation")
    size = 8 if kind.endswith("64") else 4
    if kind[0] in "FB":
        if kind not in ("F32", "F64") or how != "ADD":
            raise NotTranslated(f"{ins.text}: this atomic of floats")
        name = "add_one_nan" if kind == "F32" else "add_plain_float"
    return Shape(size, size, LANES), name


def _joined_data(w: Writer, operand: Operand, shape: Shape) -> Value:
    rows = _data(w, operand, shape)
    return w.joined(*rows) if len(rows) > 1 else rows[0]


def _ldc(w: Writer) -> None:
    """Load constants at an offset, which a register may add to."""
    code, shape = w.code, _shape(w)
    rd, place = w.ins.operands
    is_plain = place.bank >= 0 and place.register in (-1, RZ) and place.uniform < 0
    if is_plain and not place.value % shape.size_bytes and shape.size_bytes >= 4:
        rows = [w.constant(place._replace(value=place.value + 4 * number)) for number in range(shape.rows)]
    elif rd.kind is Kind.UNIFORM:
        rows = [code.extract(row, 0) for row in w.constants_at(place, shape, code.const(1, "i32"))]
    else:
        rows = w.constants_at(place, shape, w.mask)
    if rd.kind is Kind.UNIFORM:
        for number, row in enumerate(rows):
            w.write(rd._replace(value=rd.value + number), row)
    else:
        _give(w, rd, shape, [row if row.lanes else code.splat(row, LANES) for row in rows])


RULES: dict[str, Callable[[Writer], None]] = {
    "LDG": _ldg, "STG": _stg, "LDS": _lds, "STS": _sts, "LDL": _ldl, "STL": _stl, "LD": _ld, "ST": _st, "LDGSTS": _ldgsts,
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _ldc), **dict.fromkeys(("ATOMG", "ATOM", "ATOMS", "RED", "REDG"), _atomic),
}  # fmt: skip
