"""The machine IR: structured code of one thread. Every vendor's back end starts from it.

A `Function` is a `Region`: a list of `Value`s, `Loop`s and `If`s, executed in order. A value is computed where it
stands. It is in scope in the rest of its region and in regions inside; a loop's values leave it as `result`. There are
no jumps: control flow consists of loops with uniform trip counts, and conditions without else. Integers have no sign;
operations do (`div_s`, `div_u`). `uniform` values are the same in every thread of a *wave*.

Types: i1 (a condition), i8, i16, i32, i64, f16, bf16, f32, f64. A type with `Type.count` > 1 is a vector of them:
`load`, `lds_load`, `vector` and `matrix` create vectors, and `extract` takes them apart. bf16 and i8 are for memory,
conversions and matrices only: arithmetic has 16, 32 and 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Item: TypeAlias = "Value | Loop | If"


class Type(NamedTuple):
    """Element name and number of elements."""

    element: str
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which no type needs

    @property
    def bits(self) -> int:
        """Return the bits of one element; a condition has one."""
        return ELEMENT_BITS[self.element]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the whole type in memory."""
        return self.bits * self.count // 8

    @property
    def is_float(self) -> bool:
        """Return whether elements are floating point."""
        return "f" in self.element

    def of(self, count: int) -> Type:
        """Return a vector of `count` such elements."""
        return vector_type(self.element, count)

    def __repr__(self) -> str:
        return self.element if self.count == 1 else f"{self.element}x{self.count}"


ELEMENT_BITS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "void": 0,
}
_types: dict[tuple[str, int], Type] = {}


def vector_type(element: str, count: int = 1) -> Type:
    """Return the type of `count` such elements: the same object each time, so `is` compares types."""
    return _types.get((element, count)) or _types.setdefault((element, count), Type(element, count))


VOID, I1, I8, I16, I32, I64 = (vector_type(name) for name in ("void", "i1", "i8", "i16", "i32", "i64"))
F16, BF16, F32, F64 = (vector_type(name) for name in ("f16", "bf16", "f32", "f64"))

Effect = Literal["pure", "read", "write", "barrier"]


class Row(NamedTuple):
    """The signature of an operation: the number of operands (-1: any), its effect, and whether the result is uniform
    when all operands are.
    """

    arity: int
    effect: Effect = "pure"
    keeps_uniform: bool = True


# Operation: row. The comments define the meaning; `imm` is in brackets. Floats are IEEE 754 with denormals kept.
OPS: dict[str, Row] = {
    # leaves
    "const": Row(0),  # [int or float] any scalar type; a condition is 0 or 1
    "param": Row(0),  # [number] kernel argument: i64 for a buffer's address, i32/i64/f32 for a scalar; uniform
    "group_id": Row(0),  # [0, 1, 2] i32, uniform
    "thread_id": Row(0, keeps_uniform=False),  # i32, 0 … threads of the group - 1
    "wave_id": Row(0),  # i32, thread_id // lanes of a wave; uniform
    "lane_id": Row(0, keeps_uniform=False),  # i32, thread_id % lanes of a wave
    # integers: i16 (add, sub, mul, shifts, min, max, logic), i32, i64
    "add": Row(2), "sub": Row(2), "mul": Row(2),
    "mul_hi_u": Row(2), "mul_hi_s": Row(2),  # i32: the upper half of the product
    "mad": Row(3),  # a * b + c; i32
    "mad_wide_u": Row(3),  # i32 * i32 + i64 -> i64, unsigned
    "and": Row(2), "or": Row(2), "xor": Row(2), "not": Row(1),  # i1 too
    "shl": Row(2), "shr_u": Row(2), "shr_s": Row(2),  # the amount is i32 and within the width
    "min_s": Row(2), "max_s": Row(2), "min_u": Row(2), "max_u": Row(2),
    # i32, i64; toward zero; by zero: any value, no trap
    "div_u": Row(2), "div_s": Row(2), "rem_u": Row(2), "rem_s": Row(2),
    "bit_count": Row(1), "leading_zeros": Row(1),  # i32 -> i32; of 0: 32
    # floats: f16, f32, f64
    "fadd": Row(2), "fsub": Row(2), "fmul": Row(2), "fma": Row(3),
    "fmin": Row(2), "fmax": Row(2),  # the other operand if one is NaN; of two zeros, either
    "fneg": Row(1), "fabs": Row(1),
    "floor": Row(1), "ceil": Row(1), "trunc": Row(1), "round": Row(1),  # round: to nearest, halves to even
    # the hardware's approximations (1 ulp for f32)
    "rcp": Row(1), "rsq": Row(1), "sqrt": Row(1), "exp2": Row(1), "log2": Row(1),
    "sin_turns": Row(1),  # sin(2 pi x), |x| <= 256; f32
    "ldexp": Row(2),  # x * 2**i; i is i32
    "frexp_mantissa": Row(1), "frexp_exponent": Row(1),  # in [0.5, 1), i32; of 0, infinity, NaN: itself, 0
    "div": Row(2),  # correctly rounded quotient; f16, f32, f64
    "fsqrt": Row(1),  # correctly rounded; f16, f32, f64
    # comparisons -> i1, of integers and floats (ordered: false with NaN, fne true)
    "eq": Row(2), "ne": Row(2), "lt_s": Row(2), "le_s": Row(2), "lt_u": Row(2), "le_u": Row(2),
    "feq": Row(2), "fne": Row(2), "flt": Row(2), "fle": Row(2),
    "select": Row(3),  # (i1, a, b) any type; vectors whole
    # conversions, to the value's type
    "zext": Row(1), "sext": Row(1), "truncate": Row(1),  # integers; from i1: zext
    "to_float_s": Row(1), "to_float_u": Row(1),  # i32/i64 -> f32/f64, i16/i32 -> f16; to nearest even
    "to_int_s": Row(1), "to_int_u": Row(1),  # f16/f32/f64 -> i32/i64, cut off, saturated, NaN 0
    "fconvert": Row(1),  # between float types, bf16 too; to nearest even
    "bitcast": Row(1),  # same bits in all, vectors too (i32x2 <-> i64, f16x2 <-> i32)
    # vectors
    "vector": Row(-1), "extract": Row(1),  # [index]
    # f16x2 . f16x2 + f32 with exact products. RDNA adds all three at once, to a unit of 2**-24 of the largest.
    "dot2": Row(3),
    "dot4_s": Row(3), "dot4_u": Row(3),  # i32 (4 bytes) . i32 (4 bytes) + i32
    "packed": Row(-1),  # [op] f16x2 or i16x2, elementwise: fadd, fmul, fma, fmin, fmax, add, sub, mul
    # Memory. The address is (base: i64 uniform, offset in bytes: i32 unsigned or i64) plus [constant in bytes]. It is a
    # multiple of the size of the whole vector, or of 16 bytes if that is less.
    # (base, offset[, i1 mask]) -> scalar or vector; 0, without an access, where the mask is false
    "load": Row(-1, "read", keeps_uniform=True),
    "store": Row(-1, "write"),  # (base, offset, value[, i1 mask]) -> void
    # [(name, constant)] (base, offset, value[, mask]): add, fadd, min_s … -> the old value
    "atomic": Row(-1, "write", keeps_uniform=False),
    "lds_load": Row(-1, "read", keeps_uniform=False),  # [constant] (offset i32[, mask])
    "lds_store": Row(-1, "write"),  # [constant] (offset i32, value[, mask]) -> void
    "barrier": Row(0, "barrier"),  # waits for all threads of the group; each sees what the others have stored
    # lanes of a wave
    "shuffle_xor": Row(1, keeps_uniform=False),  # [mask] the value of lane_id ^ mask, mask below the wave's size
    # [distance 1..15] the value of lane_id - distance in its row of 16 lanes; 0 in a row's first
    "shuffle_up": Row(1, keeps_uniform=False),
    "shuffle": Row(2, keeps_uniform=False),  # the value of that lane (i32)
    "read_lane": Row(1),  # [lane] uniform
    "first_lane": Row(1),  # all lanes must have the same value; uniform
    # Matrices: fragments of a 16x16x16 product (16x16xK for types with xK), spread over a wave in the target's layout.
    # The result is a * b + c. Floats of 8 bits are i8 vectors: fp8 is OCP's E4M3, bf8 its E5M2, first that of a.
    "matrix": Row(3, keeps_uniform=False),  # [f16 | bf16 | i8 | u8 | f16x32 | bf16x32 | fp8_bf8x32 | … | f32 | f64] f16x16 . f16x16 + f32x8
}  # fmt: skip
# The number of operands without the mask.
MASKED = {"load": 2, "store": 3, "lds_load": 1, "lds_store": 2, "atomic": 3}


class Value:
    """One operation. `type` is the result's type. `uniform`: all lanes of a wave hold the same value. `name` is for the
    printed text.
    """

    __slots__ = ("args", "imm", "name", "op", "type", "uniform")

    def __init__(
        self,
        op: str,
        type_: Type,
        args: tuple[Value, ...] = (),
        imm: object = None,
        *,
        uniform: bool = False,
        name: str = "",
    ) -> None:
        self.op, self.type, self.args, self.uniform, self.name = op, type_, args, uniform, name
        self.imm: Any = imm

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))}:{self.type}"


@dataclass(slots=True, eq=False)
class Region:
    """Code in order."""

    items: list[Item] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Loop:
    """A loop: `index` runs from `start` in steps of `step` (above 0) while it is below `stop`. Start and stop are
    uniform i32 values.

    `carried[i]` holds `initial[i]` at first, and after each iteration `following[i]`, which the body computes.
    `results[i]` is its last value. `index` has op "index", carried values "carried", results "result"; none of the
    three is in a region's items. `at_least_once`: the builder of the loop guarantees one iteration. `unroll` is a hint.
    `expected`: the number of iterations that estimates assume where the bounds are not constants (0: unknown).
    """

    index: Value
    start: Value
    stop: Value
    step: int
    body: Region
    initial: list[Value] = field(default_factory=list)
    carried: list[Value] = field(default_factory=list)
    following: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    at_least_once: bool = False
    unroll: int = 1
    expected: int = 0


@dataclass(slots=True, eq=False)
class If:
    """Run `body` in the threads whose condition holds. A barrier inside needs a condition that is
    uniform in the group.
    """

    condition: Value
    body: Region


class Param(NamedTuple):
    """One kernel argument: a buffer (`i64` address; `written` if the kernel stores to it) or a scalar. `size_bytes` 0:
    unknown.
    """

    name: str
    type: Type
    is_buffer: bool = False
    written: bool = False
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class Function:
    """One kernel. `group_size`: threads of a group (flat). `lds_bytes`: the LDS that the offsets of lds_load and
    lds_store refer to.

    `grid`: the number of groups along x, y, z if it is known at compile time, for estimates only. `wave_size`: 32 or
    64.
    """

    name: str
    params: tuple[Param, ...]
    body: Region
    group_size: int
    lds_bytes: int = 0
    wave_size: int = 32
    grid: tuple[int, int, int] | None = None


def walk(region: Region) -> Sequence[Item]:
    """Return every item in order. Items inside a loop or condition come after the item that contains them."""
    found: list[Item] = []
    stack = [iter(region.items)]
    while stack:
        for item in stack[-1]:
            found.append(item)
            if not isinstance(item, Value):
                stack.append(iter(item.body.items))
                break
        else:
            stack.pop()
    return found
