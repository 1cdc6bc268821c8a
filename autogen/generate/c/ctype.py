"""C's types for the macro evaluator: gcc on x86-64, where int has 32 and long 64 bits."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ringup.autogen.generate.c.tokens import Unreadable

Kind = Literal["int", "float", "pointer", "record", "array", "void", "function"]


@dataclass(frozen=True, slots=True)
class CType:
    """One type.

    Sizes are in bytes. `rank` orders integers and floats for the usual conversions. `target` is the pointed-to or
    element type.
    """

    kind: Kind
    name: str
    size: int = 0
    align: int = 1
    signed: bool = False
    rank: int = 0
    target: CType | None = None
    members: Callable[[], Mapping[str, Place]] | None = None


class Place(NamedTuple):
    """A member: byte offset and type. `bits` is a bit-field's width; a bit-field has no address."""

    offset: int
    type: CType
    bits: int | None = None


class Names(Protocol):
    """The meaning of identifiers that are not macros. Each method returns None for an unknown name."""

    def typedef(self, name: str) -> CType | None: ...

    def tag(self, keyword: str, name: str) -> CType | None: ...

    def enumerator(self, name: str) -> tuple[int, CType] | None: ...


class NoNames:
    """No types and no enumerators."""

    def typedef(self, name: str) -> CType | None:
        return None

    def tag(self, keyword: str, name: str) -> CType | None:
        return None

    def enumerator(self, name: str) -> tuple[int, CType] | None:
        return None


def _integer(name: str, size: int, signed: bool, rank: int) -> CType:
    return CType("int", name, size, size, signed, rank)


BOOL = _integer("_Bool", 1, False, 0)
CHAR = _integer("char", 1, True, 1)
SCHAR, UCHAR = _integer("signed char", 1, True, 1), _integer("unsigned char", 1, False, 1)
SHORT, USHORT = _integer("short", 2, True, 2), _integer("unsigned short", 2, False, 2)
INT, UINT = _integer("int", 4, True, 3), _integer("unsigned int", 4, False, 3)
LONG, ULONG = _integer("long", 8, True, 4), _integer("unsigned long", 8, False, 4)
LLONG, ULLONG = _integer("long long", 8, True, 5), _integer("unsigned long long", 8, False, 5)
INT128, UINT128 = _integer("__int128", 16, True, 6), _integer("unsigned __int128", 16, False, 6)
FLOAT = CType("float", "float", 4, 4, True, 1)
DOUBLE = CType("float", "double", 8, 8, True, 2)
LONG_DOUBLE = CType("float", "long double", 16, 16, True, 3)  # computed with a double's precision
VOID = CType("void", "void", 1, 1)  # gcc: sizeof(void) is 1
FUNCTION = CType("function", "function", 1, 1)
UNSIGNED = {
    signed.rank: unsigned for signed, unsigned in ((INT, UINT), (LONG, ULONG), (LLONG, ULLONG), (INT128, UINT128))
}


def pointer(target: CType) -> CType:
    return CType("pointer", f"{target.name} *", 8, 8, False, 0, target)


def array(target: CType, count: int) -> CType:
    if count < 0 or count * target.size >= 1 << 63:
        raise Unreadable(f"an array of {count} elements")
    return CType("array", f"{target.name} [{count}]", count * target.size, target.align, False, 0, target)


def promote(kind: CType) -> CType:
    """Apply C's integer promotion: everything narrower than int becomes int."""
    return INT if kind.kind == "int" and kind.rank < INT.rank else kind


def common(left: CType, right: CType) -> CType:
    """Return the type to which both operands of an arithmetic operator are converted."""
    if left.kind == "float" or right.kind == "float":
        floats = [kind for kind in (left, right) if kind.kind == "float"]
        return max(floats, key=lambda kind: kind.rank)
    left, right = promote(left), promote(right)
    if left.signed == right.signed:
        return left if left.rank >= right.rank else right
    signed, unsigned = (left, right) if left.signed else (right, left)
    if unsigned.rank >= signed.rank:
        return unsigned
    return signed if signed.size > unsigned.size else UNSIGNED[signed.rank]


def wrap(number: int, kind: CType) -> int:
    """Return `number` wrapped to the width of an integer type."""
    if kind is BOOL:
        return int(number != 0)
    bits = kind.size * 8
    number &= (1 << bits) - 1
    return number - (1 << bits) if kind.signed and number >> (bits - 1) else number


def convert(number: int | float, kind: CType) -> int | float:
    """Return `number` converted to an arithmetic or pointer type."""
    if kind.kind == "float":
        try:
            return struct.unpack("<f", struct.pack("<f", number))[0] if kind.size == 4 else float(number)
        except OverflowError:
            raise Unreadable(f"{number} does not fit {kind.name}") from None
    if isinstance(number, float):
        if kind is BOOL:
            return int(number != 0)
        bits = kind.size * 8
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if kind.signed else (0, 1 << bits)
        if not low - 1 < number < high:
            raise Unreadable(f"{number} does not fit {kind.name}")
        return int(number)
    return wrap(number, kind)
