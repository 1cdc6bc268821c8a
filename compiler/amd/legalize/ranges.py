"""Upper bounds of integers, read as unsigned. They allow 24-bit multiplications, shifts instead of divisions, and
folded offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.machine.ir import Loop, Value

Bounds = dict[Value, int]
# The maximum depth of operations; below that, the type's own bound is used.
DEPTH = 12


def top(value: Value, bounds: Bounds, group_size: int, depth: int = DEPTH) -> int:
    """Return an upper bound of the value, read as unsigned. `bounds` holds known bounds, and new
    ones are added to it.
    """
    known = bounds.get(value)
    if known is None:
        limit = (1 << value.type.bits) - 1
        rule = _RULES.get(value.op) if depth else None
        found = limit if rule is None else rule(value, lambda one: top(one, bounds, group_size, depth - 1), group_size)
        known = found if 0 <= found < limit else limit
        if depth:
            bounds[value] = known
    return known


def enter_loop(loop: Loop, bounds: Bounds) -> None:
    """Record the bound of a loop's index, if the start is constant and not negative, and the stop is constant."""
    start, stop = loop.start, loop.stop
    if start.op == "const" and stop.op == "const" and isinstance(start.imm, int) and isinstance(stop.imm, int):
        half = 1 << 31
        if start.imm < half and start.imm < stop.imm < half:
            bounds[loop.index] = stop.imm - 1


Rule = Callable[[Value, Callable[[Value], int], int], int]


def _constant(value: Value) -> int:
    return value.imm if value.op == "const" and isinstance(value.imm, int) else -1


def _shift_left(v: Value, of: Callable[[Value], int], group: int) -> int:
    amount = _constant(v.args[1])
    return of(v.args[0]) << amount if amount >= 0 else -1


def _shift_right(v: Value, of: Callable[[Value], int], group: int) -> int:
    amount = _constant(v.args[1])
    return of(v.args[0]) >> amount if amount >= 0 else of(v.args[0])


def _shift_right_signed(v: Value, of: Callable[[Value], int], group: int) -> int:
    bound = of(v.args[0])
    return _shift_right(v, of, group) if bound < 1 << v.type.bits - 1 else -1


def _covering(v: Value, of: Callable[[Value], int], group: int) -> int:
    return (1 << max(of(v.args[0]), of(v.args[1])).bit_length()) - 1


def _quotient(v: Value, of: Callable[[Value], int], group: int) -> int:
    return of(v.args[0]) // max(_constant(v.args[1]), 1) if _constant(v.args[1]) != 0 else -1


def _remainder(v: Value, of: Callable[[Value], int], group: int) -> int:
    divisor = _constant(v.args[1])
    return min(divisor - 1, of(v.args[0])) if divisor > 0 else -1


_RULES: dict[str, Rule] = {
    "const": lambda v, of, group: _constant(v),
    "thread_id": lambda v, of, group: group - 1,
    "lane_id": lambda v, of, group: min(group - 1, 63),
    "wave_id": lambda v, of, group: group - 1,
    "zext": lambda v, of, group: of(v.args[0]) if v.args[0].type.count == 1 else -1,
    "add": lambda v, of, group: of(v.args[0]) + of(v.args[1]),
    "mul": lambda v, of, group: of(v.args[0]) * of(v.args[1]),
    "mad": lambda v, of, group: of(v.args[0]) * of(v.args[1]) + of(v.args[2]),
    "and": lambda v, of, group: min(of(v.args[0]), of(v.args[1])),
    "or": _covering,
    "xor": _covering,
    "shl": _shift_left,
    "shr_u": _shift_right,
    "shr_s": _shift_right_signed,
    "min_u": lambda v, of, group: min(of(v.args[0]), of(v.args[1])),
    "max_u": lambda v, of, group: max(of(v.args[0]), of(v.args[1])),
    "select": lambda v, of, group: (
        max(of(v.args[1]), of(v.args[2])) if v.type.count == 1 and not v.type.is_float else -1
    ),
    "div_u": _quotient,
    "rem_u": _remainder,
    "bit_count": lambda v, of, group: 32,
    "leading_zeros": lambda v, of, group: 32,
}
