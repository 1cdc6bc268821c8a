"""What the readers find in headers, before anything is written: plain frozen data without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BitRange:
    """Bits `hi` down to `lo`, both inclusive: `31:0` in a header."""

    hi: int
    lo: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A name that was seen but not read. `where` is a file name and line without folders."""

    name: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class TypeRef:
    """The type of a member.

    `base` is one of u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char bool ptr or a struct's name (`is_struct`);
    `dims` are array lengths, outermost first, None for a flexible array.
    """

    base: str
    dims: tuple[int | None, ...] = ()
    is_struct: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a struct, including members of anonymous aggregates, with their place in the outermost one.

    `offset_bits` counts from the start of the struct; `width_bits` is the bit-field's width, None for an ordinary
    member.
    """

    name: str
    type: TypeRef
    offset_bits: int
    width_bits: int | None = None


@dataclass(frozen=True, slots=True)
class StructFacts:
    """A complete struct or union. Nested aggregates with a member name but no tag are named `Outer__member`."""

    name: str
    is_union: bool
    size_bytes: int
    align_bytes: int
    members: tuple[Member, ...]
    where: str
    c_name: str = ""  # the type in C (`struct foo`, `FOO_PARAMS`); empty if C cannot name it


@dataclass(frozen=True, slots=True)
class Constant:
    """A macro or enumerator with a value.

    The value is an integer as C computes it (sign included), a float, a string or a bit range.
    """

    name: str
    value: int | float | str | BitRange
    where: str
    enum: str = ""  # the enum's tag or typedef name, if it is an enumerator


@dataclass(frozen=True, slots=True)
class Helper:
    """A function-like macro that the evaluator can call: `NV_PFB_X(i)`, `PACKET3(op, n)`."""

    name: str
    params: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Unit:
    """The result of one parse of a set of headers. Dicts are in order of first appearance."""

    structs: dict[str, StructFacts] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    helpers: dict[str, Helper] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()
