"""Conditions: comparisons, selects, and instructions that narrow EXEC.

A condition that varies between lanes is a mask in SGPRs; its bits for inactive lanes are undefined. A uniform one is in
SCC where its use follows directly, else it is a mask of all ones or all zeros. A comparison with a single use is
emitted at that use: into VCC for v_cndmask_b32, into EXEC for an `If`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler.amd.instructions.code import Operand
from ringup.compiler.amd.select.emitter import Emitter, Place, bank, is_scalar
from ringup.compiler.amd.select.integers import mask, nan_pair, nan_test, widen_scalar
from ringup.compiler.machine.ir import Value

Rule = Callable[[Emitter, Value, Place], None]

# Operation: (relation, letter of the type). Below: the relation with swapped operands, and the opposite relation.
_INTEGER = {
    "eq": ("eq", "u"), "ne": ("ne", "u"), "lt_s": ("lt", "i"), "le_s": ("le", "i"), "lt_u": ("lt", "u"), "le_u": ("le", "u"),
}  # fmt: skip
_FLOAT = {"feq": "eq", "fne": "neq", "flt": "lt", "fle": "le"}
_SWAPPED = {
    "eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "neq": "neq", "nlt": "ngt", "nle": "nge", "ngt": "nlt", "nge": "nle",
}  # fmt: skip
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "ge": "lt", "gt": "le"}
# The opposite ones also hold where an operand is NaN.
_OPPOSITE_FLOAT = {"eq": "neq", "neq": "eq", "lt": "nlt", "le": "nle"}
_SCALAR_NAME = {"ne": "lg"}
_SCALAR_FLOAT_NAME = {"neq": "neq"}


def comparison(e: Emitter, v: Value, *, opposite: bool = False) -> tuple[str, Operand, Operand]:
    """Return (relation and type, a, b) of a vector comparison. An operand that is not a VGPR comes first."""
    if v.op in ("or", "and"):
        pair = nan_pair(e, v)
        # `_comparing` has checked it.
        assert pair is not None
        return nan_test(e, *pair)
    a, b = v.args
    bits = a.type.bits
    kind = "b64" if bits == 64 else "b16" if bits == 16 else "b32"
    if v.op in _FLOAT:
        relation = _FLOAT[v.op]
        if opposite:
            relation = _OPPOSITE_FLOAT[relation]
        letter = "f"
        kind = "f16" if bits == 16 else kind
        x, y = e.float(a, kind), e.float(b, kind)
    else:
        relation, letter = _INTEGER[v.op]
        if opposite:
            relation = _OPPOSITE[relation]
        x, y = e.any(a, kind), e.any(b, kind)
    if is_scalar(y) and not is_scalar(x):
        x, y, relation = y, x, _SWAPPED[relation]
    x, y = e.fit((x, y))
    return f"{relation}_{letter}{bits}", x, y


def _comparing(e: Emitter, condition: Value) -> tuple[Value, bool] | None:
    """Return a varying comparison that is emitted at this use, and whether its opposite is needed."""
    if condition in e.bits or condition.uniform or not e.inner_condition(condition):
        return None
    if condition.op == "not":
        (inside,) = condition.args
        if (
            inside.op in COMPARISONS
            and inside.args[0].type.element != "i1"
            and not inside.uniform
            and e.inner_condition(inside)
        ):
            return inside, True
        return None
    if condition.op in ("or", "and"):
        return (condition, False) if nan_pair(e, condition) is not None else None
    return (condition, False) if condition.op in COMPARISONS and condition.args[0].type.element != "i1" else None


def choose(e: Emitter, condition: Value, choices: Sequence[tuple[Place, Operand, Operand]]) -> None:
    """Set each (VGPR, value if true, value if false) by a condition."""
    found = _comparing(e, condition)
    if found is None:
        by: Operand = mask(e, condition)
        if isinstance(by, int):
            made = e.temporary("s", e.lanes)
            e.emit(f"s_mov_{e.b}", made, by)
            by = made
    else:
        condition, opposite = found
        if condition.op in COMPARISONS and all(is_scalar(yes) and not is_scalar(no) for _, yes, no in choices):
            # The short encoding, and that of pairs, takes an operand other than a VGPR only for the value chosen where
            # the condition is false.
            opposite, choices = not opposite, [(to, no, yes) for to, yes, no in choices]
        name, a, b = comparison(e, condition, opposite=opposite)
        e.emit(f"v_cmp_{name}", e.vcc, a, b)
        by = e.vcc
    for to, yes, no in choices:
        first, second = e.fit((no, yes), 1)
        e.emit("v_cndmask_b32", to, first, second, by)


def to_scc(e: Emitter, condition: Value) -> bool:
    """Put a uniform condition into SCC. Return False if SCC holds its opposite."""
    bits = e.bits.get(condition)
    if bits is not None:
        e.emit("s_cmp_eq_u32", 0, 0)
        return bool(bits & 1)
    if (condition.uniform and condition not in e.places) or condition.op in _INTEGER:
        again = (
            condition.op in _INTEGER
            and condition.args[0].type.element != "i1"
            and condition.uniform
            and e.reachable(condition)
        )
        if again or e.inner_condition(condition):
            found = _scc_of(e, condition)
            if found is not None:
                return found
    return _mask_to_scc(e, mask(e, condition))


def _mask_to_scc(e: Emitter, by: Operand) -> bool:
    if e.wave == 64:
        e.emit("s_cmp_lg_u64", by, 0)
    else:
        e.emit("s_cmp_lg_u32", by, 0)
    return True


def _scc_of(e: Emitter, v: Value) -> bool | None:
    """Compute a uniform condition into SCC from its operands. Return None if that needs a mask."""
    op = v.op
    if op == "not":
        return not to_scc(e, v.args[0])
    if op in ("and", "or", "xor"):
        x, y = (mask(e, one) for one in v.args)
        e.emit(f"s_{op}_{e.b}", e.temporary("s", e.lanes), x, y)
        return True
    if op in _INTEGER:
        return _integer_scc(e, v)
    if op in _FLOAT:
        a, b = v.args
        bits = a.type.bits
        if e.row.scalar_floats and bits < 64 and all(one in e.bits or e.known.bank(one) == "s" for one in v.args):
            kind = "f16" if bits == 16 else "b32"
            e.emit(f"s_cmp_{_FLOAT[op]}_f{bits}", e.scalar(a, kind), e.scalar(b, kind))
            return True
        name, x, y = comparison(e, v)
        made = e.temporary("s", e.lanes)
        e.emit(f"v_cmp_{name}", made, x, y)
        return _mask_to_scc(e, made)
    return None


def _integer_scc(e: Emitter, v: Value) -> bool:
    relation, letter = _INTEGER[v.op]
    a, b = v.args
    element = a.type.element
    if element == "i1":
        e.emit(f"s_xor_{e.b}", e.temporary("s", e.lanes), mask(e, a), mask(e, b))
        return relation == "ne"
    if element == "i64":
        return _long_scc(e, relation, letter, a, b)
    x, y = e.scalar(a), e.scalar(b)
    if a.type.bits < 32:
        wide = [e.temporary("s"), e.temporary("s")]
        for to, of in zip(wide, (x, y), strict=True):
            widen_scalar(e, to, of, a.type.bits, letter == "i")
        x, y = wide
    e.emit(f"s_cmp_{_SCALAR_NAME.get(relation, relation)}_{letter}32", x, y)
    return True


def _long_scc(e: Emitter, relation: str, letter: str, a: Value, b: Value) -> bool:
    """Compare 64 bits. For an order, the borrow of a - b is a < b; the sign bits of signed numbers
    are flipped first.
    """
    if relation in ("eq", "ne"):
        x, y = e.scalar_register(a), e.scalar_register(b)
        e.emit(f"s_cmp_{'eq' if relation == 'eq' else 'lg'}_u64", x, y)
        return True
    # a <= b is the opposite of b < a.
    if relation == "le":
        a, b = b, a
    halves = []
    for one in (a, b):
        low, high = e.parts(one) if one in e.bits else e.pieces(e.scalar_register(one))
        if letter == "i":
            moved = e.temporary("s")
            e.emit("s_xor_b32", moved, high, 0x80000000)
            high = moved
        halves.append((low, high))
    (a_low, a_high), (b_low, b_high) = halves
    e.emit("s_sub_u32", e.temporary("s"), a_low, b_low)
    e.emit("s_subb_u32", e.temporary("s"), a_high, b_high)
    return relation == "lt"


def _compare(e: Emitter, v: Value, d: Place) -> None:
    if v.uniform:
        true = _scc_of(e, v)
        return e.emit(f"s_cselect_{e.b}", d, -1 if true else 0, 0 if true else -1)
    if v.args[0].type.element == "i1":
        return e.emit(f"s_xnor_{e.b}" if v.op == "eq" else f"s_xor_{e.b}", d, *(mask(e, one) for one in v.args))
    name, a, b = comparison(e, v)
    return e.emit(f"v_cmp_{name}", d, a, b)


def _select(e: Emitter, v: Value, d: Place) -> None:
    condition, yes, no = v.args
    if v.type.element == "i1":
        return _select_mask(e, condition, yes, no, d)
    count = d.count
    if bank(d) == "s":
        if count == 2 and v.type.count == 1:
            first, second = e.scalar(yes, "b64"), e.scalar(no, "b64")
            true = to_scc(e, condition)
            return e.emit("s_cselect_b64", d, *((first, second) if true else (second, first)))
        pairs = list(zip(_scalars(e, yes, count), _scalars(e, no, count), strict=True))
        true = to_scc(e, condition)
        for to, (x, y) in zip(e.pieces(d), pairs, strict=True):
            e.emit("s_cselect_b32", to, *((x, y) if true else (y, x)))
        return None
    return choose(e, condition, list(zip(e.pieces(d), e.parts(yes, count), e.parts(no, count), strict=True)))


def _scalars(e: Emitter, value: Value, count: int) -> list[Operand]:
    if value in e.bits:
        return e.parts(value, count)
    return list(e.pieces(e.scalar_register(value)))


def _select_mask(e: Emitter, condition: Value, yes: Value, no: Value, d: Place) -> None:
    """Select between conditions."""
    if condition.uniform:
        x, y = mask(e, yes), mask(e, no)
        true = to_scc(e, condition)
        return e.emit(f"s_cselect_{e.b}", d, *((x, y) if true else (y, x)))
    by, x, y = mask(e, condition), mask(e, yes), mask(e, no)
    first, second = e.temporary("s", e.lanes), e.temporary("s", e.lanes)
    e.emit(f"s_and_{e.b}", first, by, x)
    e.emit(f"s_and_not1_{e.b}", second, y, by)
    return e.emit(f"s_or_{e.b}", d, first, second)


def narrow(e: Emitter, condition: Value, saved: Place | None) -> None:
    """Remove the lanes in which a varying condition is false from EXEC. `saved` gets the previous EXEC."""
    found = _comparing(e, condition)
    if found is not None:
        name, a, b = comparison(e, found[0], opposite=found[1])
        if not e.row.compares_to_exec:
            e.emit(f"v_cmp_{name}", e.vcc, a, b)
            return _keep_lanes(e, e.vcc, saved)
        if saved is not None:
            e.emit(f"s_mov_{e.b}", saved, e.exec)
        return e.emit(f"v_cmpx_{name}", a, b)
    if condition.op == "and" and not condition.uniform and condition not in e.bits and e.inner_condition(condition):
        first, second = condition.args
        if first is not second:
            narrow(e, first, saved)
            return narrow(e, second, None)
    return _keep_lanes(e, mask(e, condition), saved)


def _keep_lanes(e: Emitter, by: Operand, saved: Place | None) -> None:
    if saved is not None:
        return e.emit(f"s_and_saveexec_{e.b}", saved, by)
    return e.emit(f"s_and_{e.b}", e.exec, e.exec, by)


COMPARISONS = frozenset((*_INTEGER, *_FLOAT))
RULES: dict[str, Rule] = {**dict.fromkeys(COMPARISONS, _compare), "select": _select}
