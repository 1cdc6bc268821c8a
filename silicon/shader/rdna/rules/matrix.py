"""Matrix products of a wave: D = A * B + C of 16x16 matrices.

Lane l of A holds row l mod 16, lane l of B column l mod 16, with the 16 elements along K packed into consecutive VGPRs.
Lanes from 16 up repeat them. Lane l of VGPR i of C and D holds row 2*i + l/16 (wave64: 4*i + l/16), column l mod 16. A
product is one helper function of the module. EXEC counts as all ones. Source: RDNA3 ISA reference, "Wave Matrix
Multiply Accumulate (WMMA)".

Float sums run along K by pairs: both products are added, then the sum so far, and every step rounds to nearest even.
QUIRK: cards add pairs as v_dot2 does (`rules/dots.py`), measured for f32 on gfx1151 and gfx1100; sums of both signs
differ from these in their last bits. Source of that: github.com/ROCm/rocm-systems, issue 12056. UNKNOWN: the 16-bit
sums.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.rdna.writer.arithmetic import (
    HOST_FUSES,
    flushed_single,
    from_brain,
    narrowed,
    to_brain,
    widened,
)
from ringup.silicon.shader.rdna.writer.wave import rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringup.silicon.shader.rdna.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.rdna.writer.wave import Wave

N = 16  # rows, columns, and the length of a sum


class Kind(NamedTuple):
    """A matrix opcode: bits of an element of A and B, its type, and that of C and D."""

    width: int
    element: str
    result: str


KINDS = {
    "v_wmma_f32_16x16x16_f16": Kind(16, "f16", "f32"),
    "v_wmma_f32_16x16x16_bf16": Kind(16, "bf16", "f32"),
    "v_wmma_f16_16x16x16_f16": Kind(16, "f16", "f16"),
    "v_wmma_bf16_16x16x16_bf16": Kind(16, "bf16", "bf16"),
    "v_wmma_i32_16x16x16_iu8": Kind(8, "iu8", "i32"),
    "v_wmma_i32_16x16x16_iu4": Kind(4, "iu4", "i32"),
}
SIGNS = 0x8000_8000  # the signs of both halves of a dword


def _column(code: Code, register: Value, kind: Kind, at: int, *, signed: bool) -> Value:
    """Return element `at` of a dword of 16 lanes as floats, or as 32-bit integers."""
    if kind.width == 16:
        raw = code.resize(code.op("lshr", register, code.const(16 * at, register.type)), "i16")
        return widened(code, raw) if kind.element == "f16" else flushed_single(code, from_brain(code, raw))
    spare = 32 - kind.width
    top = code.op("shl", register, code.const(spare - kind.width * at, register.type))
    return code.op("ashr" if signed else "lshr", top, code.const(spare, register.type))


def _opened(code: Code, row: Value, kind: Kind, *, high: bool) -> Value:
    """Return a row of C in the type of the sum."""
    if kind.result == "i32":
        return row
    if kind.result == "f32":
        return code.cast("bitcast", row, "float")
    return _column(code, row, Kind(16, kind.result, "f32"), int(high), signed=False)


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
    if kind.element == "f16":
        return before and k == 0, after and k == 0 and not before
    return before and (k == 0 or not after), after


def _add_pair(
    code: Code, total: Value, factors: list[tuple[Value, Value]], kind: Kind, k: int, denormals: int
) -> Value:
    """Add the products at `k` and `k` + 1 to a row of the result, the two products first."""
    before, after = _flushes(kind, k, denormals)
    low = _rounded(code, code.op("fmul", *factors[0]), kind)
    # Both products are exact, so only their sum is rounded.
    if kind.element == "f16" and kind.result == "f32" and HOST_FUSES:
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
    table = code.emit(f"alloca [{N} x {shape}], align 64", "ptr")
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

    @property
    def name(self) -> str:
        """The function's name."""
        flags = "".join(str(int(one)) for one in (*self.signed, self.high, self.clamp, self.denormals))
        return f"{self.mnemonic}.{self.lanes}.{flags}"


@cache
def _function(variant: Variant) -> Mapping[str, str]:
    """Return the helper and its declarations, by name.

    It takes dword vectors of A, B and C and returns those of D, in the order of registers.
    """
    kind, lanes, code = KINDS[variant.mnemonic], variant.lanes, Code()
    inputs, outputs = N * kind.width // 32, N * N // lanes
    row = f"<{lanes} x i32>"
    names = [
        Value(f"%{letter}{i}", row)
        for letter, count in (("a", inputs), ("b", inputs), ("c", outputs))
        for i in range(count)
    ]
    a, b = ([code.shuffle(one, None, range(N)) for one in names[first : first + inputs]] for first in (0, inputs))
    rows = [code.shuffle(one, None, range(N * i, N * i + N)) for one in names[2 * inputs :] for i in range(lanes // N)]
    floats = kind.result != "i32"
    totals = [_opened(code, one, kind, high=variant.high) for one in rows]
    if not floats and variant.clamp:
        starts, totals = totals, [code.const(0, one.type) for one in totals]
    per_dword = 32 // kind.width
    left, right = (
        [_column(code, one[k // per_dword], kind, k % per_dword, signed=sign) for k in range(N)]
        for one, sign in zip((a, b), variant.signed, strict=True)
    )
    element = _rows_of(code, left)
    for k in range(0, N, 2):
        for i in range(N):
            factors = [(right[at], element(at, i)) for at in (k, k + 1)]
            if floats:
                totals[i] = _add_pair(code, totals[i], factors, kind, k, variant.denormals)
                continue
            for pair in factors:
                totals[i] = code.op("add", totals[i], code.op("mul", *pair))
    if not floats and variant.clamp:
        totals = [code.intrinsic("sadd.sat", one, start) for one, start in zip(totals, starts, strict=True)]
    closed = [_closed(code, one, kind) for one in totals]
    group = lanes // N
    result = f"{{ {', '.join([row] * outputs)} }}"
    whole = "poison"
    for i in range(outputs):
        parts = closed[group * i : group * (i + 1)]
        while len(parts) > 1:
            width = 2 * parts[0].lanes
            parts = [code.shuffle(parts[j], parts[j + 1], range(width)) for j in range(0, len(parts), 2)]
        whole = code.emit(f"insertvalue {result} {whole}, {row} {parts[0].text}, {i}", result).text
    code.line(f"ret {result} {whole}")
    head = f"define internal {result} @{variant.name}({', '.join(f'{row} {one.text}' for one in names)})"
    attributes = 'nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    code.define(variant.name, "\n".join([f"{head} {attributes} {{", *code.lines, "}"]))
    return code.declarations


def undefined_elements(code: Code, a: Value, b: Value, lanes: int, place: int) -> Value:
    """Return as a lane mask which elements in register `place` of D are undefined, from the undefined lanes of A and B.

    They are whole rows and columns. The copies in the upper lanes of A and B count too.
    """
    groups, type_ = lanes // N, a.type
    folded = []
    for mask in (a, b):
        every = mask
        for group in range(1, groups):
            every = code.op("or", every, code.op("lshr", mask, code.const(N * group, type_)))
        folded.append(code.op("and", every, code.const((1 << N) - 1, type_)))
    rows, columns = folded
    found = code.const(0, type_)
    for group in range(groups):
        bit = code.op("and", code.op("lshr", rows, code.const(groups * place + group, type_)), code.const(1, type_))
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


@rule(*KINDS)
def _wmma(wave: Wave, ins: Instruction) -> None:
    code, kind, (a, b, c) = wave.code, KINDS[ins.mnemonic], ins.uses
    inputs, outputs = N * kind.width // 32, N * N // wave.lanes
    is_integer = kind.result == "i32"
    is_narrow = kind.result in ("f16", "bf16")
    signed = (a.neg_halves[0], b.neg_halves[0]) if is_integer else (False, False)
    high = is_narrow and c.sel[0]
    denormals = wave.mode.denorm_f32 if kind.result == "f32" else 3
    variant = Variant(ins.mnemonic, wave.lanes, signed, high, ins.clamp and is_integer, denormals)
    for name, text in _function(variant).items():
        code.define(name, text)
    values = _registers(wave, a, inputs, negated=not is_integer) + _registers(wave, b, inputs, negated=not is_integer)
    values += _matrix_c(wave, c, kind, outputs)
    result = f"{{ {', '.join([wave.row] * outputs)} }}"
    whole = code.call(variant.name, result, *values)
    target = ins.defs[0].index
    for i in range(outputs):
        value = code.emit(f"extractvalue {result} {whole.text}, {i}", wave.row)
        # The other half of each dword is kept.
        if is_narrow:
            kept = code.op("and", wave.vgpr(target + i), wave.const(0xFFFF if high else 0xFFFF_0000, "i32"))
            moved = code.op("shl", value, wave.const(16, "i32")) if high else value
            value = code.op("or", kept, moved)
        wave.set_vgpr(target + i, value, masked=False)
