"""Helper functions of translated code for products of matrices. What they compute is as in `values/matrices.py`.

A helper lays the factors' elements out in memory and goes through the result row by row, its eight columns at once. The
cut products of a sum are whole numbers of fewer than 32 bits, so they are added as integers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.emitter import Code, Value, bits
from ringup.silicon.shader.host.lds_helpers import lds_locate
from ringup.silicon.shader.host.memory_helpers import unless_empty
from ringup.silicon.shader.host.memory_shape import CONTEXT, DONE, Helper, give, helper, local, take
from ringup.silicon.shader.host.memory_shape import Shape as Access
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator.local_helpers import MASK, SHARED, unless_wrong
from ringup.silicon.shader.nv.values.matrices import GROUP, HALF_ROWS, OTHERS, Shape
from ringup.silicon.shader.nv.values.rounding import F16_NAN, F32_NAN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROW, COLUMNS = f"<{LANES} x i32>", f"<{OTHERS} x i32>"
# The exponent of zero: below that of every product, also beside the largest one of another factor.
_OF_ZERO, _NO_PRODUCT = -1000, -500
_BIASES = {"float": (127, 23), "double": (1023, 52)}
# The least exponent of each format.
_LOWEST = {"F16": -14, "BF16": -126, "TF32": -126}


class Floats(NamedTuple):
    """A product of floats: the factors' kind (F16, BF16, TF32), whether sums are f16, how many products are added at
    once and how many bits below the largest exponent count.
    """

    shape: Shape
    kind: str
    narrow: bool
    at_once: int
    bits: int

    @property
    def fits(self) -> bool:
        """Whether cut products, each below 4 * 2**bits, and the addend add up in 32 bits."""
        return (4 * self.at_once + 2) << self.bits < 1 << 31

    @property
    def real(self) -> str:
        """The type in which products are exact."""
        return "float" if self.kind == "F16" else "double"


class Integers(NamedTuple):
    """A product of integers: the factors' kinds (U8, S8, U4, S4), whether the sum is clamped."""

    shape: Shape
    kinds: tuple[str, str]
    saturates: bool


class _Factor(NamedTuple):
    """Elements in memory; the exponents (i32) of floats are behind each other like them."""

    elements: Value
    exponents: Value
    type: str


def counts(shape: Shape, *, narrow: bool) -> tuple[int, int, int]:
    """Return how many registers hold A, B and the sums."""
    row_halves = shape.rows // HALF_ROWS
    return shape.halves * row_halves, shape.halves, row_halves * (1 if narrow else 2)


def _arguments(shape: Shape, *, narrow: bool) -> list[list[Value]]:
    every = counts(shape, narrow=narrow)
    return [
        [Value(f"%{name}{number}", ROW) for number in range(count)] for name, count in zip("abc", every, strict=True)
    ]


def _parts(code: Code, row: Value, packed: int) -> Value:
    """Return the elements of a register, unsigned: lane by lane."""
    if packed < OTHERS:
        return code.bitcast(row, f"<{LANES * packed} x i{32 // packed}>")
    pairs = code.bitcast(row, f"<{4 * LANES} x i8>")
    low = code.op("and", pairs, code.const(15, pairs.type))
    high = code.op("lshr", pairs, code.const(4, pairs.type))
    count = pairs.lanes
    return code.shuffle(low, high, [side * count + at for at in range(count) for side in (0, 1)])


def _columns_first(code: Code, parts: Value) -> Value:
    """Return B's elements with the eight columns of a row behind each other."""
    depth = parts.lanes // OTHERS
    return code.shuffle(parts, None, [column * depth + k for k in range(depth) for column in range(OTHERS)])


def _left_place(shape: Shape, k: int) -> int:
    """Return how far the element at `k` is behind the first one of its row in A's memory."""
    run = GROUP * shape.packed
    return k // run * shape.rows * run + k % run


def _float_of(code: Code, parts: Value, kind: str) -> Value:
    """Return elements as f32."""
    if kind == "F16":
        return code.cast("fpext", code.cast("bitcast", parts, "half"), "float")
    words = code.resize(parts, "i32")
    name, by = ("shl", 16) if kind == "BF16" else ("and", -0x2000)
    return code.cast("bitcast", code.op(name, words, code.const(by, words.type)), "float")


def _exponents(code: Code, values: Value, lowest: int) -> Value:
    """Return the exponents of f32; denormals have the least of their format."""
    words = code.cast("bitcast", values, "i32")
    size = code.op("and", words, code.const(0x7FFF_FFFF, words.type))
    exponent = code.op("sub", code.op("lshr", size, code.const(23, words.type)), code.const(127, words.type))
    exponent = code.intrinsic("smax", exponent, code.const(lowest, words.type))
    is_zero = code.icmp("eq", size, code.const(0, words.type))
    return code.select(is_zero, code.const(_OF_ZERO, words.type), exponent)


def _factor(code: Code, rows: Sequence[Value], form: Floats, order: Callable[[Code, Value], Value] | None) -> _Factor:
    """Lay the elements of a factor out in memory."""
    count = LANES * form.shape.packed
    size = count * len(rows)
    found = _Factor(local(code, form.real, size), local(code, "i32", size), form.real)
    for number, row in enumerate(rows):
        parts = _parts(code, row, form.shape.packed)
        values = _float_of(code, order(code, parts) if order else parts, form.kind)
        code.store(_exponents(code, values, _LOWEST[form.kind]), code.gep(found.exponents, count * number, "i32"), 16)
        values = code.cast("fpext", values, form.real)
        code.store(values, code.gep(found.elements, count * number, form.real), 16)
    return found


def _pairs(code: Code, first: Value, second: Value) -> Value:
    """Return the elements of two registers alternately: eight rows of sums."""
    return code.shuffle(first, second, [side * LANES + lane for lane in range(LANES) for side in (0, 1)])


def _each_row(code: Code, shape: Shape, body: Callable[[Value, Value], None]) -> None:
    """Emit a loop over the result's rows. `body` gets the places (i64) of the row in the sums and in A's memory."""
    code.jump("rows")
    code.block("rows")
    code.line("%row = phi i64 [ 0, %entry ], [ %row.next, %rows ]")
    row = Value("%row", "i64")
    body(*(code.op("mul", row, code.const(size, "i64")) for size in (OTHERS, GROUP * shape.packed)))
    code.line("%row.next = add i64 %row, 1")
    code.branch(code.icmp("ult", Value("%row.next", "i64"), code.const(shape.rows, "i64")), "rows", "done")
    code.block("done")


def _splat_at(code: Code, base: Value, place: Value, offset: int, kind: str) -> Value:
    where = code.gep(code.gep(base, place, kind), offset, kind)
    return code.splat(code.load(where, kind, bits(kind) // 8), OTHERS)


def _power(code: Code, exponent: Value, kind: str) -> Value:
    """Return powers of two as floats."""
    bias, shift = _BIASES[kind]
    word = code.resize(code.op("add", exponent, code.const(bias, exponent.type)), f"i{bits(kind)}", signed=True)
    return code.cast("bitcast", code.op("shl", word, code.const(shift, word.type)), kind)


def _rounded(code: Code, total: Value, of_sum: Value, form: Floats) -> Value:
    """Return the sum as f32: cut, or rounded to odd if it is rounded to f16 later."""
    unit = code.op("sub", of_sum, code.const(form.bits, of_sum.type))
    if form.real == "double":
        exact = code.op("fmul", code.cast("sitofp", total, "double"), _power(code, unit, "double"))
        near = code.cast("fptrunc", exact, "float")
        back = code.cast("fpext", near, "double")
        over = code.fcmp("ogt", code.intrinsic("fabs", back), code.intrinsic("fabs", exact))
        word = code.op("sub", code.cast("bitcast", near, "i32"), code.cast("zext", over, "i32"))
        return code.cast("bitcast", word, "float")
    near = code.cast("sitofp", total, "float")
    back = code.cast("fptosi", near, "i32")
    never = Value("false", "i1")
    over = code.icmp("ugt", *(code.intrinsic("abs", one, never, result=one.type) for one in (back, total)))
    word = code.op("sub", code.cast("bitcast", near, "i32"), code.cast("zext", over, "i32"))
    if form.narrow:
        word = code.op("or", word, code.cast("zext", code.icmp("ne", back, total), "i32"))
    return code.op("fmul", code.cast("bitcast", word, "float"), _power(code, unit, "float"))


def _sum(code: Code, given: Value, pairs: list[tuple[Value, Value]], exponents: list[Value], form: Floats) -> Value:
    """Return the f32 sum of a few products and of the one before, NaN as it comes; for f16 sums, rounded to f16."""
    top = exponents[0]
    for one in exponents[1:]:
        top = code.intrinsic("smax", top, one)
    of_sum = code.intrinsic("smax", top, _exponents(code, given, -126))
    scale = _power(code, code.op("sub", code.const(form.bits, COLUMNS), of_sum), form.real)
    # What is not finite, and what has no product but zeroes, is the plain sum. There the cut one means nothing.
    plain = code.cast("fpext", given, form.real)
    total = code.cast("fptosi", code.op("fmul", plain, scale), "i32")
    for left, right in pairs:
        product = code.op("fmul", left, right)
        plain = code.op("fadd", plain, product)
        total = code.op("add", total, code.cast("fptosi", code.op("fmul", product, scale), "i32"))
    infinite = code.fcmp("ueq", code.intrinsic("fabs", plain), code.real(float("inf"), plain.type))
    is_plain = code.op("or", infinite, code.icmp("slt", top, code.const(_NO_PRODUCT, top.type)))
    found = code.select(is_plain, code.cast("fptrunc", plain, "float"), _rounded(code, total, of_sum, form))
    return code.cast("fpext", code.cast("fptrunc", found, "half"), "float") if form.narrow else found


@cache
def product_of_floats(form: Floats) -> Helper:
    """Return `(A's registers, B's registers, the addend's) -> answer` with the sum's registers."""
    shape = form.shape
    a, b, c = _arguments(shape, narrow=form.narrow)
    half_bytes = LANES * 4 * 2

    def body(code: Code) -> None:
        left, right = _factor(code, a, form, None), _factor(code, b, form, _columns_first)
        sums = local(code, "float", shape.rows * OTHERS)
        for number in range(shape.rows // HALF_ROWS):
            if form.narrow:
                values = _float_of(code, _parts(code, c[number], 2), "F16")
            else:
                values = code.cast("bitcast", _pairs(code, c[2 * number], c[2 * number + 1]), "float")
            code.store(values, code.gep(sums, half_bytes * number), 16)

        def one_row(at: Value, place: Value) -> None:
            where = code.gep(sums, at, "float")
            total = code.load(where, f"<{OTHERS} x float>", 16)
            for start in range(0, shape.depth, form.at_once):
                pairs, exponents = [], []
                for k in range(start, start + form.at_once):
                    offset, columns = _left_place(shape, k), k * OTHERS
                    pairs.append((
                        _splat_at(code, left.elements, place, offset, left.type),
                        code.load(code.gep(right.elements, columns, right.type), f"<{OTHERS} x {right.type}>", 16),
                    ))  # fmt: skip
                    own = code.load(code.gep(right.exponents, columns, "i32"), COLUMNS, 16)
                    exponents.append(code.op("add", _splat_at(code, left.exponents, place, offset, "i32"), own))
                total = _sum(code, total, pairs, exponents, form)
            code.store(total, where, 16)

        _each_row(code, shape, one_row)
        found = []
        for number in range(shape.rows // HALF_ROWS):
            values = code.load(code.gep(sums, half_bytes * number), f"<{2 * LANES} x float>", 16)
            found += _results(code, values, narrow=form.narrow)
        give(code, DONE, None, found)

    kind = f"{form.kind.lower()}{'_to_f16' if form.narrow else ''}"
    name = f"product_{kind}_{shape.rows}x{shape.depth}_{form.at_once}_{form.bits}"
    return helper(name, (*a, *b, *c), body)


def _results(code: Code, values: Value, *, narrow: bool) -> list[Value]:
    """Return the registers of eight rows of sums."""
    is_nan = code.fcmp("uno", values, values)
    if narrow:
        words = code.cast("bitcast", code.cast("fptrunc", values, "half"), "i16")
        return [code.bitcast(code.select(is_nan, code.const(int(F16_NAN), words.type), words), ROW)]
    words = code.cast("bitcast", values, "i32")
    return _apart(code, code.select(is_nan, code.const(int(F32_NAN), words.type), words))


def _apart(code: Code, words: Value) -> list[Value]:
    return [code.shuffle(words, None, range(side, 2 * LANES, 2)) for side in (0, 1)]


def _whole(code: Code, parts: Value, kind: str) -> Value:
    """Return integer elements with their signs, as i32."""
    width = int(kind[1:])
    if kind[0] == "S" and width < bits(parts.type):
        by = code.const(bits(parts.type) - width, parts.type)
        parts = code.op("ashr", code.op("shl", parts, by), by)
    return code.resize(parts, "i32", signed=kind[0] == "S")


@cache
def product_of_integers(form: Integers) -> Helper:
    """Return `(A's registers, B's registers, the addend's) -> answer` with the sum's registers."""
    shape = form.shape
    a, b, c = _arguments(shape, narrow=False)
    count = LANES * shape.packed

    def body(code: Code) -> None:
        left, right, sums = (local(code, "i32", size) for size in (count * len(a), count * len(b), shape.rows * OTHERS))
        for memory, rows, kind in ((left, a, form.kinds[0]), (right, b, form.kinds[1])):
            for number, row in enumerate(rows):
                parts = _parts(code, row, shape.packed)
                parts = _columns_first(code, parts) if memory is right else parts
                code.store(_whole(code, parts, kind), code.gep(memory, count * number, "i32"), 16)
        for number in range(shape.rows // HALF_ROWS):
            code.store(_pairs(code, c[2 * number], c[2 * number + 1]), code.gep(sums, 2 * LANES * number, "i32"), 16)

        def one_row(at: Value, place: Value) -> None:
            where = code.gep(sums, at, "i32")
            total = code.const(0, COLUMNS)
            for k in range(shape.depth):
                own = code.load(code.gep(right, k * OTHERS, "i32"), COLUMNS, 16)
                total = code.op(
                    "add", total, code.op("mul", _splat_at(code, left, place, _left_place(shape, k), "i32"), own)
                )
            given = code.load(where, COLUMNS, 16)
            total = code.intrinsic("sadd.sat", total, given) if form.saturates else code.op("add", total, given)
            code.store(total, where, 16)

        _each_row(code, shape, one_row)
        found = []
        for number in range(shape.rows // HALF_ROWS):
            found += _apart(code, code.load(code.gep(sums, 2 * LANES * number, "i32"), f"<{2 * LANES} x i32>", 16))
        give(code, DONE, None, found)

    kinds = "_".join(form.kinds).lower()
    name = f"product_{kinds}_{shape.rows}x{shape.depth}{'_sat' if form.saturates else ''}"
    return helper(name, (*a, *b, *c), body)


# Where each half of a transposed matrix of eight rows is in the matrix.
_TRANSPOSED = [OTHERS * column + row for row in range(OTHERS) for column in range(OTHERS)]


def transposed(code: Code, row: Value) -> Value:
    """Return a matrix of 8 x 8 halves, a register, transposed."""
    halves = code.bitcast(row, f"<{2 * LANES} x i16>")
    return code.bitcast(code.shuffle(halves, None, _TRANSPOSED), ROW)


@cache
def loaded_matrices(count: int, *, columns: bool) -> Helper:
    """Return `(context, shared, addresses, mask) -> answer` with a register for each matrix of 8 x 8 halves.

    The lanes of the mask have the addresses of rows. It is empty, or has eight lanes for each matrix.
    """
    access = Access(16, 16, LANES)
    address = Value("%address", ROW)
    empty = [Value("zeroinitializer", ROW)] * count

    def body(code: Code) -> None:
        data = local(code, ROW, count)
        unless_empty(code, MASK, empty)
        located = lds_locate(access, strict=True).include(code)
        answer = take(code, located, [f"<{LANES} x i64>", "i32"], CONTEXT, SHARED, address, MASK)
        unless_wrong(code, answer, empty)
        for lane in range(OTHERS * count):
            host = code.cast("inttoptr", code.extract(answer.rows[0], lane), "ptr")
            code.store(code.load(host, "<4 x i32>", 16), code.gep(data, 4 * lane, "i32"), 16)
        rows = [code.load(code.gep(data, number, ROW), ROW, 64) for number in range(count)]
        give(code, DONE, None, [transposed(code, row) for row in rows] if columns else rows)

    return helper(f"loaded_matrices_{count}{'_columns' * columns}", (CONTEXT, SHARED, address, MASK), body)
