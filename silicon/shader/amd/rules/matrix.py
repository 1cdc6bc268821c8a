"""Matrix products of a wave: D = A * B + C of 16x16 matrices.

Lane l of A holds row l mod 16, lane l of B column l mod 16, with the elements along K packed into consecutive VGPRs. On
RDNA3 lanes from 16 up repeat them; lane l of VGPR i of C and D holds row 2*i + l/16 (wave64: 4*i + l/16), column l mod
16. On RDNA4 each group of 16 lanes holds a part of K, and of the rows of C and D, 16-bit elements two to a VGPR. A
sparse product adds to D; its A has two of every four elements along K, and src2 gives their places. A product is one
helper function of the module. EXEC counts as all ones. Source: RDNA3 and RDNA4 ISA references, "Wave Matrix Multiply
Accumulate (WMMA)", "Structured Sparse Matrices".

Float sums run along K by pairs: both products are added, then the sum so far, and every step rounds to nearest even.
QUIRK: cards add pairs as v_dot2 does (`rules/dots.py`), measured for f32 on gfx1151 and gfx1100; sums of both signs
differ from these in their last bits. Source of that: github.com/ROCm/rocm-systems, issue 12056. UNKNOWN: the 16-bit
sums, and the sums of RDNA4.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.decode import SHORT_SPARSE
from ringup.silicon.shader.amd.decoding.generations import OCP
from ringup.silicon.shader.amd.rules.eight_bits import FORMATS as OCTETS
from ringup.silicon.shader.amd.rules.eight_bits import widened_small
from ringup.silicon.shader.amd.writer.arithmetic import (
    HOST_FUSES,
    flushed_single,
    from_brain,
    narrowed,
    to_brain,
    widened,
)
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Wave

N = 16  # rows, columns, and the length of a sum


class Kind(NamedTuple):
    """A matrix opcode: types of an element of A and B, and of C and D, and the length along K."""

    elements: tuple[str, str]
    result: str
    length: int = N
    is_sparse: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the product of two elements is exactly an f32."""
        return self.elements[0] in ("f16", *EIGHT_BITS)


WIDTHS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "iu8": 8, "iu4": 4}
EIGHT_BITS = ("fp8", "bf8")
_PAIRS = tuple((first, second) for first in EIGHT_BITS for second in EIGHT_BITS)
KINDS = {
    "v_wmma_f32_16x16x16_f16": Kind(("f16", "f16"), "f32"),
    "v_wmma_f32_16x16x16_bf16": Kind(("bf16", "bf16"), "f32"),
    "v_wmma_f16_16x16x16_f16": Kind(("f16", "f16"), "f16"),
    "v_wmma_bf16_16x16x16_bf16": Kind(("bf16", "bf16"), "bf16"),
    "v_wmma_i32_16x16x16_iu8": Kind(("iu8", "iu8"), "i32"),
    "v_wmma_i32_16x16x16_iu4": Kind(("iu4", "iu4"), "i32"),
    "v_wmma_i32_16x16x32_iu4": Kind(("iu4", "iu4"), "i32", 32),
    "v_swmmac_f32_16x16x32_f16": Kind(("f16", "f16"), "f32", 32, is_sparse=True),
    "v_swmmac_f32_16x16x32_bf16": Kind(("bf16", "bf16"), "f32", 32, is_sparse=True),
    "v_swmmac_f16_16x16x32_f16": Kind(("f16", "f16"), "f16", 32, is_sparse=True),
    "v_swmmac_bf16_16x16x32_bf16": Kind(("bf16", "bf16"), "bf16", 32, is_sparse=True),
    "v_swmmac_i32_16x16x32_iu8": Kind(("iu8", "iu8"), "i32", 32, is_sparse=True),
    "v_swmmac_i32_16x16x32_iu4": Kind(("iu4", "iu4"), "i32", 32, is_sparse=True),
    "v_swmmac_i32_16x16x64_iu4": Kind(("iu4", "iu4"), "i32", 64, is_sparse=True),
}
KINDS |= {f"v_wmma_f32_16x16x16_{a}_{b}": Kind((a, b), "f32") for a, b in _PAIRS}
KINDS |= {f"v_swmmac_f32_16x16x32_{a}_{b}": Kind((a, b), "f32", 32, is_sparse=True) for a, b in _PAIRS}
SIGNS = 0x8000_8000  # the signs of both halves of a dword
# The groups of 16 lanes in the order of the rows, or parts of K, that they hold on RDNA4. The order is its own inverse.
ORDER = {2: (0, 1), 4: (0, 2, 1, 3)}
# Their A, or their B, has so few elements that the low half of a wave64 holds them.
_SHORT = (("v_wmma_i32_16x16x16_iu4", SHORT_SPARSE), ("v_wmma_i32_16x16x16_iu4",))


def _column(code: Code, register: Value, element: str, at: int, *, signed: bool) -> Value:
    """Return element `at` of a dword of 16 lanes as floats, or as 32-bit integers."""
    width = WIDTHS[element]
    if width == 16:
        raw = code.resize(code.op("lshr", register, code.const(16 * at, register.type)), "i16")
        return widened(code, raw) if element == "f16" else flushed_single(code, from_brain(code, raw))
    spare = 32 - width
    top = code.op("shl", register, code.const(spare - width * at, register.type))
    low = code.op("ashr" if signed else "lshr", top, code.const(spare, register.type))
    return widened_small(code, low, OCTETS[OCP][element]) if element in EIGHT_BITS else low


def _opened(code: Code, row: Value, kind: Kind, *, high: bool) -> Value:
    """Return a row of C in the type of the sum."""
    if kind.result == "i32":
        return row
    if kind.result == "f32":
        return code.cast("bitcast", row, "float")
    return _column(code, row, kind.result, int(high), signed=False)


def _closed(code: Code, total: Value, kind: Kind) -> Value:
    """Return a row of D as dwords, halves in the low bits."""
    if kind.result == "i32":
        return total
    if kind.result == "f32":
        return code.cast("bitcast", total, "i32")
    return code.resize(narrowed(code, total) if kind.result == "f16" else to_brain(code, total), "i32")


def _rounded(code: Code, value: Value, kind: Kind) -> Value:
    """Round a step of a float sum to the result's type. Denormals of f16 are kept, those of bf16 are flushed."""
    if kind.result == "f16":
        return widened(code, narrowed(code, value))
    return flushed_single(code, from_brain(code, to_brain(code, value))) if kind.result == "bf16" else value


def _flushes(kind: Kind, k: int, denormals: int) -> tuple[bool, bool]:
    """Return whether a row of the result is flushed before the pair at `k` is added, and after that.

    `denormals` are MODE's bits of f32. A row that the previous step has flushed needs no flush. Pairs of f16 products
    are 0 or at least 2**-48, so their sum with a normal number is never denormal; only C can be.
    """
    if kind.result != "f32":
        return False, False
    before, after = not denormals & 1, not denormals & 2
    if kind.is_exact:
        return before and k == 0, after and k == 0 and not before
    return before and (k == 0 or not after), after


def _add_pair(
    code: Code, total: Value, factors: list[tuple[Value, Value]], kind: Kind, k: int, denormals: int
) -> Value:
    """Add the products at `k` and `k` + 1 to a row of the result, the two products first."""
    before, after = _flushes(kind, k, denormals)
    low = _rounded(code, code.op("fmul", *factors[0]), kind)
    # Both products are exact, so only their sum is rounded.
    if kind.is_exact and kind.result == "f32" and HOST_FUSES:
        pair = code.intrinsic("fma", *factors[1], low)
    else:
        pair = _rounded(code, code.op("fadd", low, _rounded(code, code.op("fmul", *factors[1]), kind)), kind)
    if before:
        total = flushed_single(code, total)
    total = _rounded(code, code.op("fadd", pair, total), kind)
    return flushed_single(code, total) if after else total


def _rows_of(code: Code, columns: list[Value]) -> Callable[[int, int], Value]:
    """Store the columns of A in memory, from which a host broadcasts an element to all lanes.

    Return the function that reads an element by column and row.
    """
    shape = columns[0].type
    table = code.emit(f"alloca [{len(columns)} x {shape}], align 64", "ptr")
    # Otherwise LLVM would turn this into shuffles.
    table = code.emit(f'call ptr asm "", "=r,0"(ptr {table.text})', "ptr")
    for k, column in enumerate(columns):
        code.store(column, code.gep(table, k, shape), 64)

    def read(k: int, i: int) -> Value:
        kind = columns[0].element
        return code.splat(code.load(code.gep(table, N * k + i, kind), kind, 4), N)

    return read


class Variant(NamedTuple):
    """What one helper function depends on."""

    mnemonic: str
    lanes: int
    signed: tuple[bool, bool]
    high: bool
    clamp: bool
    denormals: int
    # The matrices are spread over groups of lanes, as on RDNA4.
    is_spread: bool = False
    # which set of indices of a sparse product
    index_set: int = 0

    @property
    def name(self) -> str:
        """The function's name."""
        flags = "".join(str(int(one)) for one in (*self.signed, self.high, self.clamp, self.denormals, self.is_spread))
        return f"{self.mnemonic}.{self.lanes}.{flags}.{self.index_set}"

    @property
    def kind(self) -> Kind:
        """The opcode."""
        return KINDS[self.mnemonic]

    @property
    def groups(self) -> int:
        """How many groups of 16 lanes there are."""
        return self.lanes // N

    @property
    def is_packed(self) -> bool:
        """Whether a register of C and D holds two elements."""
        return self.is_spread and self.kind.result in ("f16", "bf16")

    @property
    def outputs(self) -> int:
        """How many registers C and D have."""
        return N * N // self.lanes // (2 if self.is_packed else 1)

    def holders(self, source: int) -> tuple[int, ...]:
        """Return the groups of lanes that hold A (0) or B (1), in the order along K."""
        if not self.is_spread:
            return (0,)
        return ORDER[2 if self.mnemonic in _SHORT[source] else self.groups]

    def inputs(self, source: int) -> int:
        """Return how many registers A (0) or B (1) has."""
        kept = self.kind.length // (2 if self.kind.is_sparse and not source else 1)
        return kept * WIDTHS[self.kind.elements[source]] // 32 // len(self.holders(source))

    def places(self) -> list[tuple[int, int, bool]]:
        """Return where the rows of C and D are: group of lanes, register, whether in its high half."""
        if not self.is_spread:
            return [(row % self.groups, row // self.groups, self.high) for row in range(N)]
        rows, order, packed = N // self.groups, ORDER[self.groups], 1 + self.is_packed
        return [(order[row // rows], row % rows // packed, bool(row % rows % packed)) for row in range(N)]


def _along_k(code: Code, registers: list[Value], variant: Variant, source: int) -> list[Value]:
    """Return A (0) or B (1) as columns along K: floats, or 32-bit integers, of 16 lanes."""
    element, signed = variant.kind.elements[source], variant.signed[source]
    dwords = [
        code.shuffle(one, None, range(N * group, N * group + N))
        for group in variant.holders(source)
        for one in registers
    ]
    return [_column(code, one, element, at, signed=signed) for one in dwords for at in range(32 // WIDTHS[element])]


def _expanded(code: Code, kept: list[Value], index: Value, variant: Variant) -> list[Value]:
    """Return the whole matrix A; elements between the kept ones are zero."""
    groups = variant.holders(0)
    held = len(kept) // len(groups)
    places = []
    for group in groups:
        bits = code.shuffle(index, None, range(N * group, N * group + N))
        for at in range(held):
            moved = code.op("lshr", bits, code.const(2 * (at + held * variant.index_set), bits.type))
            places.append(code.op("and", moved, code.const(3, bits.type)))
    found = []
    nothing = code.const(0, kept[0].type) if variant.kind.result == "i32" else code.real(0.0, kept[0].type)
    for first in range(0, len(kept), 2):
        for place in range(4):
            value = nothing
            for at in (first, first + 1):
                here = code.icmp("eq", places[at], code.const(place, places[at].type))
                value = code.select(here, kept[at], value)
            found.append(value)
    return found


@cache
def _function(variant: Variant) -> Mapping[str, str]:
    """Return the helper and its declarations, by name.

    It takes dword vectors of A, B and C, and the index of a sparse product, and returns those of D, in the order of
    registers.
    """
    kind, lanes, code = variant.kind, variant.lanes, Code()
    row = f"<{lanes} x i32>"
    a, b, c = (
        [Value(f"%{letter}{i}", row) for i in range(count)]
        for letter, count in (("a", variant.inputs(0)), ("b", variant.inputs(1)), ("c", variant.outputs))
    )
    floats = kind.result != "i32"
    totals = [
        _opened(code, code.shuffle(c[register], None, range(N * group, N * group + N)), kind, high=high)
        for group, register, high in variant.places()
    ]
    if not floats and variant.clamp:
        starts, totals = totals, [code.const(0, one.type) for one in totals]
    left, right = _along_k(code, a, variant, 0), _along_k(code, b, variant, 1)
    index = Value("%index", row)
    if kind.is_sparse:
        left = _expanded(code, left, index, variant)
    element = _rows_of(code, left)
    for k in range(0, kind.length, 2):
        for i in range(N):
            factors = [(right[at], element(at, i)) for at in (k, k + 1)]
            if floats:
                totals[i] = _add_pair(code, totals[i], factors, kind, k, variant.denormals)
                continue
            for pair in factors:
                totals[i] = code.op("add", totals[i], code.op("mul", *pair))
    if not floats and variant.clamp:
        totals = [code.intrinsic("sadd.sat", one, start) for one, start in zip(totals, starts, strict=True)]
    result = f"{{ {', '.join([row] * variant.outputs)} }}"
    whole = "poison"
    for i, parts in enumerate(_registers_of(code, [_closed(code, one, kind) for one in totals], variant)):
        while len(parts) > 1:
            width = 2 * parts[0].lanes
            parts = [code.shuffle(parts[j], parts[j + 1], range(width)) for j in range(0, len(parts), 2)]
        whole = code.emit(f"insertvalue {result} {whole}, {row} {parts[0].text}, {i}", result).text
    code.line(f"ret {result} {whole}")
    names = [*a, *b, *c, *[index] * kind.is_sparse]
    head = f"define internal {result} @{variant.name}({', '.join(f'{row} {one.text}' for one in names)})"
    attributes = 'nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    code.define(variant.name, "\n".join([f"{head} {attributes} {{", *code.lines, "}"]))
    return code.declarations


def _registers_of(code: Code, rows: list[Value], variant: Variant) -> list[list[Value]]:
    """Return by register of D the rows of dwords in its groups of lanes."""
    found: list[list[Value]] = [[rows[0]] * variant.groups for _ in range(variant.outputs)]
    for row, (group, register, high) in zip(rows, variant.places(), strict=True):
        if variant.is_packed and high:
            above = code.op("shl", row, code.const(16, row.type))
            found[register][group] = code.op("or", found[register][group], above)
        else:
            found[register][group] = row
    return found


def undefined_elements(wave: Wave, ins: Instruction, a: Value, b: Value, place: int) -> Value:
    """Return as a lane mask which elements in register `place` of D are undefined, from the undefined lanes of A and B.

    They are whole rows and columns; a register with two elements is undefined if both are. The copies in the upper
    lanes of RDNA3's A and B count too.
    """
    code, type_ = wave.code, a.type
    variant = _variant(wave, ins)
    groups = variant.groups
    folded = []
    for mask in (a, b):
        every = mask
        for group in range(1, groups):
            every = code.op("or", every, code.op("lshr", mask, code.const(N * group, type_)))
        folded.append(code.op("and", every, code.const((1 << N) - 1, type_)))
    rows, columns = folded
    found = code.const(0, type_)
    for group in range(groups):
        bit = code.const(1, type_)
        for number, (holder, register, _) in enumerate(variant.places()):
            if (holder, register) == (group, place):
                bit = code.op("and", bit, code.op("lshr", rows, code.const(number, type_)))
        row = code.op("mul", bit, code.const((1 << N) - 1, type_))
        here = code.op("shl", code.op("or", row, columns), code.const(N * group, type_))
        found = code.op("or", found, here)
    return found


def _registers(wave: Wave, operand: Operand, count: int, *, negated: bool) -> list[Value]:
    """Return the dwords of a matrix, with the signs of halves changed as neg says."""
    found = []
    mask = HALF_SIGNS[operand.neg_halves] if negated else 0
    for i in range(count):
        value = wave.vgpr(operand.index + i)
        found.append(wave.code.op("xor", value, wave.const(mask, "i32")) if mask else value)
    return found


HALF_SIGNS = {(False, False): 0, (True, False): SIGNS & 0xFFFF, (False, True): SIGNS & 0xFFFF_0000, (True, True): SIGNS}


def _matrix_c(wave: Wave, operand: Operand, kind: Kind, count: int) -> list[Value]:
    """Return C: registers, or a constant for every element; neg_hi takes its absolute value, neg changes its sign."""
    code = wave.code
    is_constant = operand.kind == "constant"
    values = [wave.const(operand.bits, "i32") if is_constant else wave.vgpr(operand.index + i) for i in range(count)]
    sign = {"f32": 0x8000_0000, "i32": 0}.get(kind.result, SIGNS)
    negative, absolute = operand.neg_halves
    if absolute and sign:
        values = [code.op("and", one, wave.const(~sign, "i32")) for one in values]
    if negative and sign:
        values = [code.op("xor", one, wave.const(sign, "i32")) for one in values]
    return values


def _variant(wave: Wave, ins: Instruction) -> Variant:
    kind, is_spread = KINDS[ins.mnemonic], not ins.generation.copies_matrices
    a, b, c = (next(one for one in ins.uses if one.field == name) for name in ("src0", "src1", "src2"))
    is_integer = kind.result == "i32"
    signed = (a.neg_halves[0], b.neg_halves[0]) if is_integer else (False, False)
    high = kind.result in ("f16", "bf16") and not is_spread and c.sel[0]
    denormals = wave.mode.denorm_f32 if kind.result == "f32" else 3
    index_set = ins.fields["opsel"] if kind.is_sparse else 0
    return Variant(ins.mnemonic, wave.lanes, signed, high, ins.clamp and is_integer, denormals, is_spread, index_set)


@rule(*KINDS)
def _product(wave: Wave, ins: Instruction) -> None:
    code, variant = wave.code, _variant(wave, ins)
    kind, outputs = variant.kind, variant.outputs
    for name, text in _function(variant).items():
        code.define(name, text)
    fields = {one.field: one for one in ins.uses}
    negated = kind.elements[0] in ("f16", "bf16")
    values = _registers(wave, fields["src0"], variant.inputs(0), negated=negated)
    values += _registers(wave, fields["src1"], variant.inputs(1), negated=negated)
    values += _matrix_c(wave, fields["vdst" if kind.is_sparse else "src2"], kind, outputs)
    if kind.is_sparse:
        values.append(wave.vgpr(fields["src2"].index))
    result = f"{{ {', '.join([wave.row] * outputs)} }}"
    whole = code.call(variant.name, result, *values)
    target, high = ins.defs[0].index, variant.high
    for i in range(outputs):
        value = code.emit(f"extractvalue {result} {whole.text}, {i}", wave.row)
        # The other half of each dword is kept on RDNA3.
        if kind.result in ("f16", "bf16") and not variant.is_spread:
            kept = code.op("and", wave.vgpr(target + i), wave.const(0xFFFF if high else 0xFFFF_0000, "i32"))
            moved = code.op("shl", value, wave.const(16, "i32")) if high else value
            value = code.op("or", kept, moved)
        wave.set_vgpr(target + i, value, masked=False)
