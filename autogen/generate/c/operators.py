"""C's operators on typed numbers, as gcc computes them on x86-64: signed results wrap, everything is bounded."""

from __future__ import annotations

from ringup.autogen.generate.c import ctype as ct
from ringup.autogen.generate.c.ctype import CType
from ringup.autogen.generate.c.tokens import Unreadable

Number = int | float
_ARITHMETIC = ("int", "float")
_ORDER = ("<", ">", "<=", ">=", "==", "!=")


def unary(sign: str, kind: CType, number: int | float | str) -> tuple[CType, Number]:
    """Apply `+`, `-` or `~`."""
    if kind.kind not in _ARITHMETIC or isinstance(number, str):
        raise Unreadable(f"{sign} before {kind.name}")
    kind = ct.promote(kind)
    if sign == "+":
        return kind, number
    if sign == "-":
        return kind, ct.convert(-number, kind)
    if isinstance(number, float) or kind.kind == "float":
        raise Unreadable(f"~ before {kind.name}")
    return kind, ct.wrap(~number, kind)


def binary(
    sign: str, left_type: CType, left: int | float | str, right_type: CType, right: int | float | str, dead: bool
) -> tuple[CType, Number]:
    """Apply an operator with two operands, other than `&&`, `

    ` and the comma.

    `dead` says that the result is dropped, so it may be invalid.
    """
    if isinstance(left, str) or isinstance(right, str):
        raise Unreadable(f"{sign} between strings")
    if left_type.kind == "pointer" or right_type.kind == "pointer":
        return _pointers(sign, left_type, left, right_type, right)
    if left_type.kind not in _ARITHMETIC or right_type.kind not in _ARITHMETIC:
        raise Unreadable(f"{sign} between {left_type.name} and {right_type.name}")
    if sign in ("<<", ">>"):
        return _shift(sign, left_type, left, right_type, right, dead)
    kind = ct.common(left_type, right_type)
    left, right = ct.convert(left, kind), ct.convert(right, kind)
    if sign in _ORDER:
        return ct.INT, _compare(sign, left, right)
    if isinstance(left, float) or isinstance(right, float):
        return kind, _floats(sign, kind, float(left), float(right), dead)
    return kind, ct.wrap(_integers(sign, kind, left, right, dead), kind)


def _compare(sign: str, left: Number, right: Number) -> int:
    if sign == "<":
        return int(left < right)
    if sign == ">":
        return int(left > right)
    if sign == "<=":
        return int(left <= right)
    if sign == ">=":
        return int(left >= right)
    return int((left == right) == (sign == "=="))


def _floats(sign: str, kind: CType, left: float, right: float, dead: bool) -> Number:
    if sign == "+":
        result = left + right
    elif sign == "-":
        result = left - right
    elif sign == "*":
        result = left * right
    elif sign == "/":
        if right == 0:
            if not dead:
                raise Unreadable("divides by zero")
            return 0.0
        result = left / right
    else:
        raise Unreadable(f"{sign} between floating-point numbers")
    return ct.convert(result, kind)


def _integers(sign: str, kind: CType, left: int, right: int, dead: bool) -> int:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "&":
        return left & right
    if sign == "|":
        return left | right
    if sign == "^":
        return left ^ right
    if right == 0:
        if not dead:
            raise Unreadable("divides by zero")
        return 0
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    if ct.wrap(quotient, kind) != quotient and not dead:
        raise Unreadable(f"overflows {kind.name} in a division")
    return quotient if sign == "/" else left - quotient * right


def _shift(
    sign: str, left_type: CType, left: Number, right_type: CType, right: Number, dead: bool
) -> tuple[CType, int]:
    if isinstance(left, float) or isinstance(right, float):
        raise Unreadable(f"{sign} between floating-point numbers")
    kind = ct.promote(left_type)
    if not 0 <= right < kind.size * 8:
        if not dead:
            raise Unreadable(f"shifts {kind.size * 8} bits by {right if abs(right) < 1 << 64 else 'far more'}")
        return kind, 0
    return kind, ct.wrap(left << right if sign == "<<" else left >> right, kind)


def _pointers(sign: str, left_type: CType, left: Number, right_type: CType, right: Number) -> tuple[CType, Number]:
    if isinstance(left, float) or isinstance(right, float):
        raise Unreadable(f"{sign} between a pointer and a floating-point number")
    if sign in _ORDER:
        return ct.INT, _compare(sign, ct.wrap(left, ct.ULONG), ct.wrap(right, ct.ULONG))
    if sign == "-" and left_type.kind == right_type.kind == "pointer":
        step = max(left_type.target.size if left_type.target else 1, 1)
        return ct.LONG, ct.wrap(left - right, ct.LONG) // step
    if sign == "+" and left_type.kind == "int":
        left_type, left, right_type, right = right_type, right, left_type, left
    if sign not in ("+", "-") or left_type.kind != "pointer" or right_type.kind != "int":
        raise Unreadable(f"{sign} between {left_type.name} and {right_type.name}")
    step = left_type.target.size if left_type.target else 1
    if step < 0:
        raise Unreadable(f"steps over {left_type.name}, whose size is unknown")
    return left_type, ct.wrap(left + right * step if sign == "+" else left - right * step, ct.ULONG)
