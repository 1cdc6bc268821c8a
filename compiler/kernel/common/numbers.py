"""Integer expressions as machine IR. The uniform terms of a sum are added up first. Divisions become multiplications
where the range allows.
"""

from __future__ import annotations

from typing import cast

from ringup.compiler.graph.index import MAX_NESTED, Atom, Expr, Int, bounds, is_landing
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I1, I32, I64, Type, Value
from ringup.compiler.machine.scoped import Scoped
from ringup.compiler.schedule.views import Within

INT32 = 1 << 31


def fits(value: Int, type_: Type) -> bool:
    """Return whether every value of the expression is a signed number of the type."""
    lo, hi = bounds(value)
    return type_ is not I32 or (lo >= -INT32 and hi < INT32)


class Numbers:
    """Emits expressions into a builder. `_bound` holds the value of each variable. A run-time value that is not bound
    is used directly.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._bound: dict[Atom, Value] = {}
        self._known: Scoped[tuple[Atom, Type], Value] = Scoped()

    def bind(self, variable: Atom, value: Value) -> None:
        """Set the i32 or i64 value of a variable."""
        self._bound[variable] = value

    def is_uniform(self, atom: Atom) -> bool:
        """Return whether an atom has the same value in every lane of a wave."""
        if atom.kind in ("var", "value"):
            value = self._bound.get(atom, atom.parts[1] if atom.kind == "value" else None)
            return isinstance(value, Value) and value.uniform
        return all(self.is_uniform(one) for part in atom.parts if isinstance(part, Expr) for one in part.variables())

    def enter(self) -> None:
        """Enter a region. Values emitted in it are dropped at its end."""
        self._known.enter()

    def leave(self) -> None:
        """Leave the innermost region."""
        self._known.leave()

    def emit(self, number: Int, type_: Type | None = None) -> Value:
        """Return the number as i32 where it fits, else as i64, or in the requested type. An i32 may be requested where
        the number fits unsigned: sums wrap around.
        """
        if type_ is None:
            type_ = I32 if fits(number, I32) else I64
        if isinstance(number, int):
            return self._builder.const(number, type_)
        uniform, varying = self.parts(number, type_)
        if varying is None:
            return uniform
        return varying if uniform.op == "const" and uniform.imm == 0 else self._builder.add(varying, uniform)

    def parts(self, number: Expr, type_: Type) -> tuple[Value, Value | None]:
        """Return the uniform part of a sum, which includes the constant, and the part that varies between lanes. The
        number is the sum of both.
        """
        build = self._builder
        uniform: Value | None = None
        varying: Value | None = None
        for atom, factor in number.terms:
            term = self._atom(atom, type_)
            if factor != 1:
                term = self._scaled(term, factor)
            if term.uniform:
                uniform = term if uniform is None else build.add(uniform, term)
            else:
                varying = term if varying is None else build.add(varying, term)
        if uniform is None:
            return build.const(number.constant, type_), varying
        return build.add(uniform, number.constant) if number.constant else uniform, varying

    def condition(self, test: Within) -> Value:
        """Return whether a number lies within its bounds. One unsigned comparison checks both ends
        where both can fail.
        """
        build = self._builder
        lo, hi = bounds(test.value)
        low, high = bounds(test.lo), bounds(test.hi)
        type_ = I32 if all(fits(one, I32) for one in (test.value, test.lo, test.hi, test.value - test.lo)) else I64
        if lo >= low[1] or hi < high[0]:
            value = self.emit(test.value, type_)
            if lo >= low[1]:
                return build.compare("lt_s", value, self.emit(test.hi, type_))
            return build.compare("le_s", self.emit(test.lo, type_), value)
        span = self.emit(test.hi - test.lo, type_)
        return build.compare("lt_u", self.emit(test.value - test.lo, type_), span)

    def all_of(self, conditions: list[Within], also: Value | None = None) -> Value | None:
        """Return the conjunction, None if it always holds."""
        found = also
        for one in conditions:
            value = self.condition(one)
            found = value if found is None else self._builder.op("and", I1, found, value)
        return found

    def _scaled(self, term: Value, factor: int) -> Value:
        build = self._builder
        size = abs(factor)
        if size & size - 1 == 0 and factor > 0:
            return build.op("shl", term.type, term, build.const(size.bit_length() - 1))
        return build.mul(term, factor)

    def _atom(self, atom: Atom, type_: Type) -> Value:
        value = self._known.get((atom, type_))
        if value is None:
            if atom.nesting > MAX_NESTED:
                self._emit_nested(atom, type_)
            value = self._made(atom, type_)
            self._known.put((atom, type_), value)
        return value

    def _emit_nested(self, atom: Atom, type_: Type) -> None:
        """Emit deeply nested atoms first, so that `_made` does not exceed Python's recursion limit."""
        found: list[tuple[Atom, Type]] = []
        waiting = [(atom, type_)]
        seen = set(waiting)
        for outer, wanted in waiting:
            if is_landing(outer) and outer is not atom:
                found.append((outer, wanted))
            if outer.nesting:
                inner_type = wanted if outer.kind == "mul" else _type_inside(outer)
                inside = [inner for part in outer.parts if isinstance(part, Expr) for inner, _ in part.terms]
                for one in inside:
                    if (one, inner_type) not in seen and self._known.get((one, inner_type)) is None:
                        seen.add((one, inner_type))
                        waiting.append((one, inner_type))
        for inner, wanted in sorted(found, key=lambda one: one[0].nesting):
            self._atom(inner, wanted)

    def _made(self, atom: Atom, type_: Type) -> Value:
        build = self._builder
        if atom.kind in ("var", "value"):
            bound = self._bound.get(atom)
            return self._as(cast("Value", atom.parts[1]) if bound is None else bound, type_)
        a, b = atom.sides
        if atom.kind == "mul":
            return build.mul(self.emit(a, type_), self.emit(b, type_))
        inner = _type_inside(atom)
        if isinstance(b, int) and isinstance(a, Expr):
            value = self._by_constant(atom.kind, a, b, inner)
        else:
            value = build.op(
                "div_u" if atom.kind == "div" else "rem_u", inner, self.emit(a, inner), self.emit(b, inner)
            )
        return self._as(value, type_)

    def _as(self, value: Value, type_: Type) -> Value:
        if value.type == type_:
            return value
        return self._builder.op("sext" if type_ is I64 else "truncate", type_, value)

    def _by_constant(self, kind: str, a: Expr, b: int, type_: Type) -> Value:
        build = self._builder
        # Floor division of negative numbers: a multiple of the divisor makes them positive first.
        below = -(a.lo // b) if a.lo < 0 else 0
        number = self.emit(a + below * b, type_) if below else self.emit(a, type_)
        if b & b - 1 == 0:
            if kind == "mod":
                return build.op("and", type_, number, build.const(b - 1, type_))
            quotient = build.op("shr_u", type_, number, build.const(b.bit_length() - 1))
        else:
            quotient = self._quotient(number, b, a.hi + below * b)
            if kind == "mod":
                return build.op("sub", type_, number, build.mul(quotient, b))
        return build.add(quotient, -below) if below else quotient

    def _quotient(self, number: Value, b: int, highest: int) -> Value:
        build = self._builder
        magic = reciprocal(b, highest) if number.type is I32 else None
        if magic is None:
            return build.op("div_u", number.type, number, build.const(b, number.type))
        factor, shift = magic
        high = build.op("mul_hi_u", I32, number, build.const(factor))
        return build.op("shr_u", I32, high, build.const(shift)) if shift else high


def _type_inside(atom: Atom) -> Type:
    """Return the type that a quotient or a remainder is computed in."""
    return I32 if all(fits(side, I32) for side in atom.sides) else I64


def reciprocal(divisor: int, highest: int) -> tuple[int, int] | None:
    """Return (factor, shift) with `n // divisor == n * factor >> 32 + shift` for 0 <= n <= highest and a 32-bit factor,
    None if there is none.

    Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication: the factor's error times n
    stays below one step.
    """
    for shift in range(32):
        power = 1 << 32 + shift
        factor = -(-power // divisor)
        if factor >= 1 << 32:
            return None
        if (factor * divisor - power) * highest < power:
            return factor, shift
    return None


__all__ = ["Numbers", "fits", "reciprocal"]
