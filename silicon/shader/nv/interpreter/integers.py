"""Integer instructions, moves and predicates.

Sources: Mesa's NAK, ir.rs, the evaluators of its constant folder (MIT); PTX ISA, "Integer Arithmetic Instructions",
"Extended-Precision", "Logic and Shift Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import PT, Kind
from ringup.silicon.shader.nv.state import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.nv.decoding.instruction import Operand
    from ringup.silicon.shader.nv.interpreter.step import Flags, Lanes, Step, Wide

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


def _iadd3(step: Step) -> None:
    """Add three integers. The predicates say whether the sum, in 64 bits, reaches 2^32 and 2^33.

    A negated source is its complement plus one, in 33 bits. With `.X` two predicates are added.
    """
    if step.ins.has("64"):
        _iadd64(step)
        return
    rd, pu, pv, *sources = step.ins.operands
    total = np.zeros(LANES, np.uint64)
    extended = step.ins.has("X")
    for source in sources[:3]:
        bits = step.raw(source)
        if source.negate and not extended:
            total += (~bits).astype(np.uint64) + np.uint64(1)
        else:
            total += (~bits if source.invert or source.negate else bits).astype(np.uint64)
    for carry in sources[3:]:
        total += step.flags(carry).astype(np.uint64)
    step.write(rd, total.astype(np.uint32))
    step.set_flags(pu, total >> _32 >= 1)
    step.set_flags(pv, total >> _32 >= 2)


def _iadd64(step: Step) -> None:
    """Add three pairs of uniform registers; an immediate is extended with its sign."""
    rd, *sources = (one for one in step.ins.operands if one.kind is not Kind.UNIFORM_PREDICATE)
    if any(one.value != PT for one in step.ins.operands if one.kind is Kind.UNIFORM_PREDICATE):
        raise Unmodelled(f"{step.ins.text}: carries of 64 bits")
    total = np.zeros(LANES, np.uint64)
    for source in sources:
        is_short = source.kind is Kind.IMMEDIATE
        bits = np.full(LANES, _extended(source.value), np.uint64) if is_short else step.raw64(source)
        total = total + (np.uint64(0) - bits if source.negate else bits)
    step.write64(rd, total)


def _extended(bits: int) -> int:
    return bits | 0xFFFF_FFFF << 32 if bits >> 31 else bits


def _product(step: Step, a: Operand, b: Operand) -> Wide:
    left, right = step.raw(a), step.raw(b)
    if step.ins.has("U32"):
        return left.astype(np.uint64) * right.astype(np.uint64)
    return (left.view(np.int32).astype(np.int64) * right.view(np.int32).astype(np.int64)).view(np.uint64)


def _imad(step: Step) -> None:
    """Multiply and add: 32 bits; `.WIDE` adds a pair of registers to the whole product; `.HI` uses its upper half."""
    ins = step.ins
    if ins.has("X"):
        raise Unmodelled(f"{ins.text}: IMAD with a carry")
    rd, *rest = ins.operands
    carry = rest.pop(0) if rest[0].kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE) else None
    a, b, c = rest[:3]
    product = _product(step, a, b)
    if ins.has("WIDE"):
        addend = step.raw64(c) if c.kind is not Kind.IMMEDIATE else step.raw(c).astype(np.uint64)
        if c.negate:
            addend = np.uint64(0) - addend
        total = product + addend
        step.write64(rd, total)
        if carry is not None:
            step.set_flags(carry, total < product)
        return
    if ins.has("HI"):
        product >>= _32
    step.write(rd, product.astype(np.uint32) + step.u32(c))


def _idp(step: Step) -> None:
    """Add the products of four bytes, or of two halves of one source and two bytes of the other.

    Source: PTX ISA, dp4a, dp2a.
    """
    rd, a, b, c = step.ins.operands
    signs = [one for one in step.ins.modifiers if one[1:] in ("8", "16")]
    count, first = (2, 2 * step.ins.has("HI")) if step.ins.has("2A") else (4, 0)
    total = step.u32(c).astype(np.int64)
    for at in range(count):
        left = _part(step.raw(a), at, signs[0])
        total = total + left * _part(step.raw(b), first + at, signs[1])
    step.write(rd, total.astype(np.uint32))


def _part(bits: Lanes, number: int, kind: str) -> NDArray[np.int64]:
    """Return part `number` of words; `kind` is a sign and the bits of a part: S8."""
    width = int(kind[1:])
    part = (bits >> np.uint32(width * number)).astype(np.int64) & (1 << width) - 1
    return part - (part >> width - 1 << width) if kind[0] == "S" else part


def _lea(step: Step) -> None:
    """Shift the first source left and add the second; `.HI` adds the upper half of the shifted pair."""
    ins = step.ins
    rd, pu, a, b, *rest = ins.operands
    source = step.raw(a)
    addend = step.raw(b)
    if ins.has("HI"):
        upper = step.raw(rest[0])
        shift = np.uint64(rest[1].value)
        pair = source.astype(np.uint64) | upper.astype(np.uint64) << _32
        carries = rest[2:]
    else:
        pair, shift, carries = source.astype(np.uint64), np.uint64(rest[0].value), rest[1:]
    if a.negate:
        pair = np.uint64(0) - pair
    elif a.invert:
        pair = ~pair
    shifted = pair << shift
    part = shifted >> _32 if ins.has("HI") else shifted & _LOW
    total = part + (~addend if b.invert else addend).astype(np.uint64)
    if b.negate:
        total = part + (~addend).astype(np.uint64) + np.uint64(1)
    for carry in carries:
        total += step.flags(carry).astype(np.uint64)
    step.write(rd, total.astype(np.uint32))
    step.set_flags(pu, total >> _32 >= 1)


def _lop3(step: Step) -> None:
    """Look three bits up in a table. The predicate says whether the result is not zero (`.PAND`: and Pp)."""
    *results, a, b, c, table, accumulated = step.ins.operands
    bits = [step.raw(one) for one in (a, b, c)]
    found = _table(table.value, bits)
    step.write(results[-1], found)
    if len(results) > 1:
        some = found != 0
        given = step.flags(accumulated)
        step.set_flags(results[0], some & given if step.ins.has("PAND") else some | given)


def _table(table: int, bits: list[Lanes]) -> Lanes:
    found = np.zeros(LANES, np.uint32)
    for index in range(8):
        if table >> index & 1:
            term = np.full(LANES, 0xFFFF_FFFF, np.uint32)
            for at, one in enumerate(bits):
                term &= one if index >> 2 - at & 1 else ~one
            found |= term
    return found


def _plop3(step: Step) -> None:
    """Look three predicates up in two tables."""
    pu, pv, a, b, c, first, second = step.ins.operands
    bits = [np.where(step.flags(one), np.uint32(1), np.uint32(0)) for one in (a, b, c)]
    for result, table in ((pu, first), (pv, second)):
        step.set_flags(result, _table(table.value, bits) & np.uint32(1) != 0)


def _shf(step: Step) -> None:
    """Shift a pair of registers (low, high), and take one half. `.W` wraps the count, else it is clamped."""
    ins = step.ins
    rd, low, count, high = ins.operands
    pair = step.raw(low).astype(np.uint64) | step.raw(high).astype(np.uint64) << _32
    bits = 64 if ins.has("S64") or ins.has("U64") else 32
    shift = step.raw(count)
    shift = shift & np.uint32(bits - 1) if ins.has("W") else np.minimum(shift, np.uint32(bits))
    # Shifts by 64 give zero.
    in_range, by = shift < 64, np.minimum(shift, np.uint32(63)).astype(np.uint64)
    if ins.has("L"):
        shifted = pair << by
    elif ins.has("S32") or ins.has("S64"):
        shifted = (pair.view(np.int64) >> by.astype(np.int64)).view(np.uint64)
    else:
        shifted = pair >> by
    shifted = np.where(in_range, shifted, np.uint64(0))
    step.write(rd, (shifted >> _32 if ins.has("HI") else shifted).astype(np.uint32))


def _prmt(step: Step) -> None:
    """Gather bytes of a pair by selectors of four bits; bit 3 of one repeats the byte's sign. Source: PTX ISA, prmt."""
    rd, a, selector, b = step.ins.operands
    pair = step.raw(a).astype(np.uint64) | step.raw(b).astype(np.uint64) << _32
    select = step.raw(selector)
    mode = next(iter(step.ins.modifiers), "")
    result = np.zeros(LANES, np.uint32)
    for at in range(4):
        which = _selected(select, at, mode)
        byte = (pair >> (which & np.uint32(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint8)
        sign = np.where(byte & 0x80, np.uint8(0xFF), np.uint8(0))
        byte = np.where(which & np.uint32(8), sign, byte)
        result |= byte.astype(np.uint32) << np.uint32(8 * at)
    step.write(rd, result)


def _selected(select: Lanes, at: int, mode: str) -> Lanes:
    """Return the selector of byte `at`."""
    first, here = select & np.uint32(3), np.uint32(at)
    found: dict[str, Callable[[], Lanes]] = {
        "": lambda: select >> np.uint32(4 * at) & np.uint32(15), "F4E": lambda: first + here,
        "B4E": lambda: first - here & np.uint32(7), "RC8": lambda: first, "ECL": lambda: np.maximum(first, here),
        "ECR": lambda: np.minimum(first, here),
        "RC16": lambda: (first & np.uint32(1)) * np.uint32(2) + np.uint32(at & 1),
    }  # fmt: skip
    return found[mode]()


def _sel(step: Step) -> None:
    rd, a, b, choice = step.ins.operands
    step.write(rd, np.where(step.flags(choice), step.u32(a), step.u32(b)))


def _mov(step: Step) -> None:
    rd, source, *_ = step.ins.operands
    step.write(rd, step.raw(source))


def _imnmx(step: Step) -> None:
    rd, a, b, least = step.ins.operands
    left, right = step.u32(a), step.u32(b)
    less = left < right if step.ins.has("U32") else left.view(np.int32) < right.view(np.int32)
    step.write(rd, np.where(less == step.flags(least), left, right))


COMPARISONS: dict[str, Callable[[Lanes, Lanes], Flags]] = {
    "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater, "NE": np.not_equal, "GE": np.greater_equal,
}  # fmt: skip


def combined(step: Step, found: Flags, accumulated: Operand) -> None:
    """Write both predicates of a comparison: the result and its complement, combined with a predicate.

    Source: PTX ISA, setp.
    """
    pu, pv = step.ins.operands[:2]
    given = step.flags(accumulated)
    for result, value in ((pu, found), (pv, ~found)):
        if step.ins.has("OR"):
            value = value | given
        elif step.ins.has("XOR"):
            value = value ^ given
        else:
            value = value & given
        step.set_flags(result, value)


def _isetp(step: Step) -> None:
    ins = step.ins
    _, _, a, b, accumulated, *low = ins.operands
    left, right = step.u32(a), step.u32(b)
    how = next((one for one in ins.modifiers if one in (*COMPARISONS, "F", "T")), "F")
    if how in ("F", "T"):
        found = np.full(LANES, how == "T")
    elif ins.has("U32"):
        found = COMPARISONS[how](left, right)
    else:
        found = left.view(np.int32) < right.view(np.int32) if how == "LT" else _signed(how, left, right)
    if ins.has("EX"):
        # The comparison of the lower half decides between equal ones.
        found = np.where(left == right, step.flags(low[0]), found)
    combined(step, found, accumulated)


def _signed(how: str, left: Lanes, right: Lanes) -> Flags:
    flip = np.uint32(0x8000_0000)
    return COMPARISONS[how](left ^ flip, right ^ flip)


def _flo(step: Step) -> None:
    """Find the highest bit that is set, of a signed number the highest that is not the sign. `.SH`: as a distance from
    bit 31. Without one the result is all ones. Source: PTX ISA, bfind.
    """
    rd, pu, source = step.ins.operands
    bits = step.u32(source)
    if not step.ins.has("U32"):
        bits = np.where(bits >> np.uint32(31), ~bits, bits)
    highest = np.array([one.bit_length() - 1 for one in bits.tolist()], np.int64)
    some = highest >= 0
    found = np.where(some, 31 - highest if step.ins.has("SH") else highest, -1)
    step.write(rd, found.astype(np.uint32))
    step.set_flags(pu, some)


def _popc(step: Step) -> None:
    rd, source = step.ins.operands
    step.write(rd, np.array([one.bit_count() for one in step.u32(source).tolist()], np.uint32))


def _brev(step: Step) -> None:
    rd, source = step.ins.operands
    step.write(rd, np.array([int(f"{one:032b}"[::-1], 2) for one in step.u32(source).tolist()], np.uint32))


def _iabs(step: Step) -> None:
    rd, source = step.ins.operands
    step.write(rd, np.abs(step.u32(source).view(np.int32).astype(np.int64)).astype(np.uint32))


def _bmsk(step: Step) -> None:
    """Make a mask of `b` bits from bit `a` on; `.W` wraps both at 32. Source: PTX ISA, bmsk."""
    rd, a, b = step.ins.operands
    place, width = step.raw(a).astype(np.uint64), step.raw(b).astype(np.uint64)
    if step.ins.has("W"):
        place, width = place & np.uint64(31), width & np.uint64(31)
    else:
        place, width = np.minimum(place, _32), np.minimum(width, _32)
    step.write(rd, (((np.uint64(1) << width) - np.uint64(1)) << place).astype(np.uint32))


def _sgxt(step: Step) -> None:
    """Extend a number of `b` bits. Source: PTX ISA, szext."""
    rd, a, b = step.ins.operands
    width = step.raw(b)
    width = width & np.uint32(31) if step.ins.has("W") else np.minimum(width, np.uint32(32))
    spare = (np.uint32(32) - width).astype(np.uint64)
    wide = step.raw(a).astype(np.uint64) << (spare + _32)
    spare += _32
    found = wide >> spare
    if not step.ins.has("U32"):
        found = (wide.view(np.int64) >> spare.astype(np.int64)).view(np.uint64)
    step.write(rd, np.where(width == 0, np.uint32(0), found.astype(np.uint32)))


RULES: dict[str, Callable[[Step], None]] = {
    "IADD3": _iadd3, "UIADD3": _iadd3, "IMAD": _imad, "UIMAD": _imad, "IDP": _idp, "LEA": _lea, "ULEA": _lea,
    "LOP3": _lop3, "ULOP3": _lop3, "PLOP3": _plop3, "UPLOP3": _plop3, "SHF": _shf, "USHF": _shf, "PRMT": _prmt,
    "UPRMT": _prmt, "SEL": _sel, "USEL": _sel, "MOV": _mov, "UMOV": _mov, "IMNMX": _imnmx, "ISETP": _isetp,
    "UISETP": _isetp, "FLO": _flo, "UFLO": _flo, "POPC": _popc, "UPOPC": _popc, "BREV": _brev, "UBREV": _brev,
    "IABS": _iabs, "BMSK": _bmsk, "UBMSK": _bmsk, "SGXT": _sgxt, "USGXT": _sgxt,
}  # fmt: skip
