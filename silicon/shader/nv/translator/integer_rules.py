"""Integer instructions, moves and predicates as IR. What they compute is as in `interpreter/integers.py`, which names
the sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.nv.decoding.instruction import Kind
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.decoding.instruction import Operand

COMPARISONS = {"LT": "lt", "EQ": "eq", "LE": "le", "GT": "gt", "NE": "ne", "GE": "ge"}


def _wide(w: Writer, value: Value) -> Value:
    return w.code.resize(value, "i64")


def _low(w: Writer, value: Value) -> Value:
    return w.code.resize(value, "i32")


def _iadd3(w: Writer) -> None:
    if w.ins.has("64"):
        raise NotTranslated(f"{w.ins.text}: 64 bits")
    rd, pu, pv, *sources = w.ins.operands
    code, extended = w.code, w.ins.has("X")
    if pu.value == 7 and pv.value == 7 and not extended:
        a, b, c = (w.u32(one) for one in sources[:3])
        total = code.op("add", a, b)
        w.write(rd, total if c.text in ("splat (i32 0)", "0") else code.op("add", total, c))
        return
    total = w.const(0, "i64")
    for source in sources[:3]:
        bits = w.raw(source)
        if source.negate and not extended:
            total = code.op("add", total, code.op("add", _wide(w, code.invert(bits)), w.const(1, "i64")))
        else:
            total = code.op("add", total, _wide(w, code.invert(bits) if source.invert or source.negate else bits))
    for carry in sources[3:]:
        total = code.op("add", total, code.cast("zext", w.condition(carry), "i64"))
    upper = code.op("lshr", total, w.const(32, "i64"))
    w.write(rd, _low(w, total))
    w.set_condition(pu, code.icmp("uge", upper, w.const(1, "i64")))
    w.set_condition(pv, code.icmp("uge", upper, w.const(2, "i64")))


def _imad(w: Writer) -> None:
    code, ins = w.code, w.ins
    if ins.has("X"):
        raise NotTranslated(f"{ins.text}: IMAD with a carry")
    rd, *rest = ins.operands
    carry = rest.pop(0) if rest[0].kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE) else None
    a, b, c = rest[:3]
    left, right = w.raw(a), w.raw(b)
    if not ins.has("WIDE") and not ins.has("HI"):
        w.write(rd, code.op("add", code.op("mul", left, right), w.u32(c)))
        return
    signed = not ins.has("U32")
    product = code.op("mul", *(code.resize(one, "i64", signed=signed) for one in (left, right)))
    if ins.has("HI"):
        w.write(rd, code.op("add", _low(w, code.op("lshr", product, w.const(32, "i64"))), w.u32(c)))
        return
    addend = w.raw64(c) if c.kind is not Kind.IMMEDIATE else _wide(w, w.raw(c))
    if c.negate:
        addend = code.op("sub", w.const(0, "i64"), addend)
    total = code.op("add", product, addend)
    w.write64(rd, total)
    if carry is not None and carry.value != 7:
        w.set_condition(carry, code.icmp("ult", total, product))


def _lea(w: Writer) -> None:
    code, ins = w.code, w.ins
    if ins.has("SX32"):
        raise NotTranslated(f"{ins.text}: a sign-extended source")
    rd, pu, a, b, *rest = ins.operands
    source, addend = w.raw(a), w.raw(b)
    high = ins.has("HI")
    if high:
        pair, count, carries = w.joined(source, w.raw(rest[0])), rest[1].value, rest[2:]
    else:
        pair, count, carries = _wide(w, source), rest[0].value, rest[1:]
    if a.negate:
        pair = code.op("sub", w.const(0, "i64"), pair)
    elif a.invert:
        pair = code.invert(pair)
    shifted = code.op("shl", pair, w.const(count, "i64"))
    how, by = ("lshr", 32) if high else ("and", 0xFFFF_FFFF)
    part = code.op(how, shifted, w.const(by, "i64"))
    total = code.op("add", part, _wide(w, code.invert(addend) if b.invert or b.negate else addend))
    if b.negate:
        total = code.op("add", total, w.const(1, "i64"))
    for carry in carries:
        total = code.op("add", total, code.cast("zext", w.condition(carry), "i64"))
    w.write(rd, _low(w, total))
    if pu.value != 7:
        w.set_condition(pu, code.icmp("uge", total, w.const(1 << 32, "i64")))


def table_of(w: Writer, table: int, bits: list[Value]) -> Value:
    """Return what a table of eight entries says of three bits, for all bits of a value at once."""
    code = w.code
    kind = bits[0]
    named = {0x3C: ("xor", 0, 1), 0xC0: ("and", 0, 1), 0xFC: ("or", 0, 1)}
    if table in named:
        how, i, j = named[table]
        return code.op(how, bits[i], bits[j])
    found = code.const(0, kind.type)
    for index in range(8):
        if table >> index & 1:
            term = None
            for at, one in enumerate(bits):
                part = one if index >> 2 - at & 1 else code.invert(one)
                term = part if term is None else code.op("and", term, part)
            assert term is not None
            found = code.op("or", found, term)
    return found


def _lop3(w: Writer) -> None:
    code = w.code
    *results, a, b, c, table, accumulated = w.ins.operands
    found = table_of(w, table.value, [w.raw(one) for one in (a, b, c)])
    w.write(results[-1], found)
    if len(results) > 1 and results[0].value != 7:
        some = code.icmp("ne", found, w.const(0))
        w.set_condition(results[0], code.op("and" if w.ins.has("PAND") else "or", some, w.condition(accumulated)))


def _plop3(w: Writer) -> None:
    pu, pv, a, b, c, first, second = w.ins.operands
    get: Callable[[Operand], Value] = w.flag if w.is_uniform else w.mask_of
    bits = [get(one) for one in (a, b, c)]
    for result, table in ((pu, first), (pv, second)):
        w.set_condition(result, table_of(w, table.value, bits))


def _shf(w: Writer) -> None:
    code, ins = w.code, w.ins
    rd, low, count, high = ins.operands
    bits = 64 if ins.has("S64") or ins.has("U64") else 32
    shift = w.raw(count)
    wraps = ins.has("W")
    limit = w.const(bits - 1 if wraps else bits)
    shift = code.op("and", shift, limit) if wraps else code.intrinsic("umin", shift, limit)
    pair = w.joined(w.raw(low), w.raw(high))
    by = _wide(w, shift)
    if bits == 64 and not wraps:
        by = code.intrinsic("umin", by, w.const(63, "i64"))
    how = "shl" if ins.has("L") else "ashr" if ins.has("S32") or ins.has("S64") else "lshr"
    shifted = code.op(how, pair, by)
    if bits == 64 and not wraps:
        shifted = code.select(code.icmp("ult", shift, w.const(64)), shifted, w.const(0, "i64"))
    w.write(rd, _low(w, code.op("lshr", shifted, w.const(32, "i64")) if ins.has("HI") else shifted))


def _prmt(w: Writer) -> None:
    code, ins = w.code, w.ins
    rd, a, selector, b = ins.operands
    if ins.modifiers:
        raise NotTranslated(f"{ins.text}: this mode")
    pair, select = w.joined(w.raw(a), w.raw(b)), w.raw(selector)
    result = w.const(0)
    for at in range(4):
        which = code.op("and", code.op("lshr", select, w.const(4 * at)), w.const(15))
        place = code.op("shl", code.op("and", which, w.const(7)), w.const(3))
        byte = code.op("and", _low(w, code.op("lshr", pair, _wide(w, place))), w.const(255))
        sign = code.select(code.icmp("uge", byte, w.const(128)), w.const(255), w.const(0))
        byte = code.select(code.icmp("uge", which, w.const(8)), sign, byte)
        result = code.op("or", result, code.op("shl", byte, w.const(8 * at)))
    w.write(rd, result)


def _sel(w: Writer) -> None:
    rd, a, b, choice = w.ins.operands
    w.write(rd, w.code.select(w.condition(choice), w.u32(a), w.u32(b)))


def _mov(w: Writer) -> None:
    rd, source, *_ = w.ins.operands
    w.write(rd, w.raw(source))


def _imnmx(w: Writer) -> None:
    rd, a, b, least = w.ins.operands
    left, right = w.u32(a), w.u32(b)
    sign = "u" if w.ins.has("U32") else "s"
    low, high = (w.code.intrinsic(sign + one, left, right) for one in ("min", "max"))
    w.write(rd, w.code.select(w.condition(least), low, high))


def combined(w: Writer, found: Value, accumulated: Operand) -> None:
    """Write both predicates of a comparison."""
    code = w.code
    how = "or" if w.ins.has("OR") else "xor" if w.ins.has("XOR") else "and"
    given = w.condition(accumulated)
    for result, value in zip(w.ins.operands[:2], (found, None), strict=True):
        if result.value != 7:
            w.set_condition(result, code.op(how, code.invert(found) if value is None else value, given))


def _isetp(w: Writer) -> None:
    code, ins = w.code, w.ins
    _, _, a, b, accumulated, *low = ins.operands
    left, right = w.u32(a), w.u32(b)
    how = next((one for one in ins.modifiers if one in (*COMPARISONS, "F", "T")), "F")
    if how in ("F", "T"):
        found = w.const(how == "T", "i1")
    else:
        name = COMPARISONS[how]
        sign = "" if name in ("eq", "ne") else "u" if ins.has("U32") else "s"
        found = code.icmp(sign + name, left, right)
    if ins.has("EX"):
        found = code.select(code.icmp("eq", left, right), w.condition(low[0]), found)
    combined(w, found, accumulated)


def _flo(w: Writer) -> None:
    code, ins = w.code, w.ins
    rd, pu, source = ins.operands
    bits = w.u32(source)
    if not ins.has("U32"):
        bits = code.op("xor", bits, code.op("ashr", bits, w.const(31)))
    leading = code.intrinsic("ctlz", bits, Value("false", "i1"))
    some = code.icmp("ne", bits, w.const(0))
    place = leading if ins.has("SH") else code.op("sub", w.const(31), leading)
    w.write(rd, code.select(some, place, w.const(-1)))
    w.set_condition(pu, some)


def _unary(name: str) -> Callable[[Writer], None]:
    def rule(w: Writer) -> None:
        rd, source = w.ins.operands
        w.write(rd, w.code.intrinsic(name, w.u32(source)))

    return rule


def _iabs(w: Writer) -> None:
    rd, source = w.ins.operands
    w.write(rd, w.code.intrinsic("abs", w.u32(source), Value("false", "i1")))


def _bmsk(w: Writer) -> None:
    code = w.code
    rd, a, b = w.ins.operands
    place, width = w.raw(a), w.raw(b)
    if w.ins.has("W"):
        place, width = (code.op("and", one, w.const(31)) for one in (place, width))
    else:
        place, width = (code.intrinsic("umin", one, w.const(32)) for one in (place, width))
    ones = code.op("sub", code.op("shl", w.const(1, "i64"), _wide(w, width)), w.const(1, "i64"))
    w.write(rd, _low(w, code.op("shl", ones, _wide(w, place))))


def _sgxt(w: Writer) -> None:
    code = w.code
    rd, a, b = w.ins.operands
    count = w.raw(b)
    wraps = w.ins.has("W")
    width = code.op("and", count, w.const(31)) if wraps else code.intrinsic("umin", count, w.const(32))
    spare = _wide(w, code.op("sub", w.const(64), width))
    spare = code.intrinsic("umin", spare, w.const(63, "i64"))
    shifted = code.op("shl", _wide(w, w.raw(a)), spare)
    found = _low(w, code.op("lshr" if w.ins.has("U32") else "ashr", shifted, spare))
    w.write(rd, code.select(code.icmp("eq", width, w.const(0)), w.const(0), found))


def _idp(w: Writer) -> None:
    """Add products of bytes, or of halves and bytes."""
    code, ins = w.code, w.ins
    rd, a, b, c = ins.operands
    signs = [one for one in ins.modifiers if one[1:] in ("8", "16")]
    count, first = (2, 2 * ins.has("HI")) if ins.has("2A") else (4, 0)
    left, right, total = w.raw(a), w.raw(b), w.u32(c)
    for at in range(count):
        product = code.op("mul", _part(w, left, at, signs[0]), _part(w, right, first + at, signs[1]))
        total = code.op("add", total, product)
    w.write(rd, total)


def _part(w: Writer, bits: Value, number: int, kind: str) -> Value:
    """Return part `number` of words; `kind` is a sign and the bits of a part: S8."""
    code, width = w.code, int(kind[1:])
    left = code.op("shl", bits, w.const(32 - width * (number + 1)))
    return code.op("ashr" if kind[0] == "S" else "lshr", left, w.const(32 - width))


RULES: dict[str, Callable[[Writer], None]] = {
    "IADD3": _iadd3, "UIADD3": _iadd3, "IMAD": _imad, "UIMAD": _imad, "LEA": _lea, "ULEA": _lea, "LOP3": _lop3,
    "ULOP3": _lop3, "PLOP3": _plop3, "UPLOP3": _plop3, "SHF": _shf, "USHF": _shf, "PRMT": _prmt, "UPRMT": _prmt,
    "SEL": _sel, "USEL": _sel, "MOV": _mov, "UMOV": _mov, "IMNMX": _imnmx, "ISETP": _isetp, "UISETP": _isetp,
    "FLO": _flo, "UFLO": _flo, "POPC": _unary("ctpop"), "UPOPC": _unary("ctpop"), "BREV": _unary("bitreverse"),
    "UBREV": _unary("bitreverse"), "IABS": _iabs, "BMSK": _bmsk, "UBMSK": _bmsk, "SGXT": _sgxt,
    "USGXT": _sgxt, "IDP": _idp,
}  # fmt: skip
