"""Products of CDNA4 whose factors are floats of eight, six or four bits, with a scale for each 32 elements along K.

CBSZ and BLGP give the formats of A and B. A product is a helper function of the module, like those of `rules/mfma.py`:
it puts A and B into tables of f64, each element times its scale, and calls the function of a row of D for every row.
The 32 elements of a lane follow each other along K. Their products are added in f64 in the order of K; each such sum is
added to C, and the result is rounded to f32. GUESS: see `interpreter/mfma_scaled.py`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.products import LANES, SCALED_NAMES, Shape, shape_of
from ringup.silicon.shader.amd.rules.eight_bits import Small, widened_small
from ringup.silicon.shader.amd.rules.mfma import ATTRIBUTES, NAN, ROW, compute, defined, matrix_of, table_of
from ringup.silicon.shader.amd.rules.small_floats import FORMS, unpacked
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Code, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave

# By CBSZ or BLGP.
FORMATS = tuple(FORMS[name] for name in ("fp8", "bf8", "fp6", "bf6", "fp4"))
HELD = 32  # elements of A or B in a lane
_NAN_SCALE, _SCALE_BIAS, _BIAS, _FRACTION = 255, 127, 1023, 52
WIDE = f"<{LANES} x double>"


class Variant(NamedTuple):
    """What one helper function depends on."""

    mnemonic: str
    forms: tuple[Small, Small]
    has_scales: bool

    @property
    def name(self) -> str:
        """The function's name."""
        numbers = ".".join(str(FORMATS.index(one)) for one in self.forms)
        return f"{self.mnemonic}.{numbers}"

    @property
    def shape(self) -> Shape:
        """The opcode's."""
        found = shape_of(self.mnemonic)
        assert found is not None
        return found


def _factor(code: Code, exponent: Value) -> Value:
    """Return the scales that exponents of an f32 stand for, as f64."""
    raised = code.op("add", code.resize(exponent, "i64"), code.const(_BIAS - _SCALE_BIAS, f"<{LANES} x i64>"))
    power = code.cast("bitcast", code.op("shl", raised, code.const(_FRACTION, raised.type)), "double")
    is_nan = code.icmp("eq", exponent, code.const(_NAN_SCALE, ROW))
    return code.select(is_nan, code.real(float("nan"), WIDE), power)


def _table(code: Code, registers: list[Value], form: Small, scale: Value | None) -> Value:
    """Return the table of A or B by element of a lane and lane."""
    factor = None if scale is None else _factor(code, scale)
    rows = []
    for one in unpacked(code, registers, form.bits):
        number = code.cast("fpext", widened_small(code, one, form), "double")
        rows.append(number if factor is None else code.op("fmul", number, factor))
    return table_of(code, rows)


def _row(shape: Shape) -> str:
    """Return the function of a row of D: `void row(ptr a, ptr b, ptr c)`, C becoming D."""
    code, row, place = Code(), f"<{shape.size} x double>", Value("%c", "ptr")
    total = code.load(place, f"<{shape.size} x float>", 4)
    for block in range(shape.depth // HELD):
        found = code.real(0.0, row)
        for k in range(HELD):
            at = k * LANES + block * shape.size
            a = code.splat(code.load(code.gep(Value("%a", "ptr"), at, "double"), "double", 8), shape.size)
            b = code.load(code.gep(Value("%b", "ptr"), at, "double"), row, 8)
            found = code.intrinsic("fma", a, b, found)
        total = code.cast("fptrunc", code.op("fadd", code.cast("fpext", total, "double"), found), "float")
    nan = code.bitcast(code.const(NAN, f"<{shape.size} x i32>"), total.type)
    code.store(code.select(code.fcmp("uno", total, total), nan, total), place, 4)
    code.line("ret void")
    return "\n".join(
        [f"define internal void @{_row_name(shape)}(ptr %a, ptr %b, ptr %c) {ATTRIBUTES} {{", *code.lines, "}"]
    )


def _row_name(shape: Shape) -> str:
    return f"row.small.{shape.size}"


@cache
def _function(variant: Variant) -> Mapping[str, str]:
    """Return the helper and its declarations, by name. It takes registers of A, B and C and the exponents of two
    scales, and returns D's.
    """
    shape, code = variant.shape, Code()
    count = shape.size * shape.size // LANES
    a, b = (
        [Value(f"%{letter}{i}", ROW) for i in range(form.bits)]
        for letter, form in zip("ab", variant.forms, strict=True)
    )
    c = [Value(f"%c{i}", ROW) for i in range(count)]
    scales = [Value(f"%scale{i}", ROW) for i in range(2 * variant.has_scales)]
    left, right = (
        _table(code, one, form, scales[at] if scales else None)
        for at, (one, form) in enumerate(zip((a, b), variant.forms, strict=True))
    )
    table = table_of(code, c)
    code.define(_row_name(shape), _row(shape))
    lanes, registers = shape.places
    for i in range(shape.size):
        at = int(registers[0, i, 0]) * LANES + int(lanes[0, i, 0])
        code.call(_row_name(shape), "void", code.gep(left, i, "double"), right, code.gep(table, at, "i32"))
    defined(
        code, variant.name, [*a, *b, *c, *scales], [code.load(code.gep(table, at, ROW), ROW, 64) for at in range(count)]
    )
    return code.declarations


def _exponents(wave: Wave, ins: Instruction, number: int) -> Value:
    """Return the exponents of the scales of A (0) or B (1): a byte of a register, or that of a constant."""
    code, fields = wave.code, ins.fields
    operand = next(one for one in ins.uses if one.field == f"src_scale{number}")
    place = (fields["opsel"] >> number & 1) | (fields["opsel_hi"] >> number & 1) << 1
    shift = 8 * place if operand.kind == "vgpr" else 23
    raw = wave.src(operand, "i32", ins)
    return code.op("and", code.op("lshr", raw, wave.const(shift, "i32")), wave.const(0xFF, "i32"))


@rule(*SCALED_NAMES)
def _product(wave: Wave, ins: Instruction) -> None:
    numbers = [ins.fields[one] for one in ("cbsz", "blgp")]
    if max(numbers) >= len(FORMATS):
        wave.bail(ins)
        return
    operands = {one.field: one for one in ins.uses}
    variant = Variant(ins.mnemonic, (FORMATS[numbers[0]], FORMATS[numbers[1]]), "src_scale0" in operands)
    values = [*matrix_of(wave, operands["src0"], FORMATS[numbers[0]].bits)]
    values += matrix_of(wave, operands["src1"], FORMATS[numbers[1]].bits)
    values += matrix_of(wave, operands["src2"], ins.defs[0].size_bits // 32)
    if variant.has_scales:
        values += [_exponents(wave, ins, at) for at in (0, 1)]
    compute(wave, ins, variant.name, _function(variant), values)
