"""What the ALUs of CDNA3 have besides RDNA's: pairs of f32, sums of products of integers, copies of accumulation
registers.

Source: CDNA3 ISA reference, "VOP1", "VOP2", "VOP3A", "VOP3P" and "SOP1 Instructions". The interpreter has the same
functions in `values/cdna.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.convert import to_integer
from ringup.silicon.shader.amd.rules.floats import ARITHMETIC
from ringup.silicon.shader.amd.rules.integers import low_bits, saturated
from ringup.silicon.shader.amd.rules.packed import halves
from ringup.silicon.shader.amd.rules.salu import first_one
from ringup.silicon.shader.amd.writer.arithmetic import Float, float_rule, flushed, reads
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.arithmetic import Combine
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Value


@rule("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32", "v_mov_b64")
def _copy(wave: Wave, ins: Instruction) -> None:
    kind = "i64" if ins.mnemonic.endswith("64") else "i32"
    wave.put(ins.defs[0], wave.src(ins.uses[0], kind, ins), ins)


# ---- pairs of f32


def _dword(wave: Wave, operand: Operand, *, high: bool) -> Value:
    """Return a dword of a 64-bit source."""
    code = wave.code
    if operand.kind == "vgpr":
        return wave.vgpr(operand.index + high)
    if operand.kind == "sgpr":
        return wave.splat(wave.sgpr(operand.index + high))
    whole = code.op("lshr", wave.scalar(operand, "i64"), code.const(32 * high, "i64"))
    return wave.splat(code.resize(whole, "i32"))


def _put_pair(wave: Wave, ins: Instruction, low: Value, high: Value) -> None:
    first = ins.defs[0].index
    wave.set_vgpr(first, low)
    wave.set_vgpr(first + 1, high)


def _packed(function: Combine) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        if wave.mode.round("float"):
            wave.bail(ins)
            return
        code, unit, found = wave.code, Float(wave, "f32"), []
        for half in (0, 1):
            sources = []
            for one in ins.uses:
                raw = wave.modified(_dword(wave, one, high=one.sel[half]), neg=one.neg_halves[half], abs_=False)
                sources.append(unit.opened(raw if unit.denormals & 1 else flushed(code, raw, unit.fmt)))
            found.append(unit.result(function(unit, *sources), ins))
        _put_pair(wave, ins, *found)

    return emit


for _name in ("add", "mul", "fma"):
    rule(f"v_pk_{_name}_f32")(_packed(ARITHMETIC[_name]))


@rule("v_pk_mov_b32")
def _packed_move(wave: Wave, ins: Instruction) -> None:
    _put_pair(wave, ins, *(_dword(wave, one, high=one.sel[0]) for one in ins.uses))


# ---- floats


def _multiply_then_add(f: Float, a: Value, b: Value, c: Value) -> Value:
    """Round after each step."""
    product = f.closed(f.op("fmul", a, b))
    if f.denormals != 3:
        product = flushed(f.code, product, f.fmt)
    return f.op("fadd", f.opened(product), c)


for _name in ("v_mac_f16", "v_madmk_f16", "v_madak_f16", "v_mad_f16", "v_mad_legacy_f16"):
    rule(_name)(float_rule("f16", _multiply_then_add))
rule("v_fma_legacy_f16")(float_rule("f16", ARITHMETIC["fma"]))
rule("v_fmac_f64")(float_rule("f64", ARITHMETIC["fma"]))


@rule("v_cvt_pkaccum_u8_f32")
def _insert_byte(wave: Wave, ins: Instruction) -> None:
    """Convert S0 to a byte and put it into byte S1 of the destination."""
    unit, code = Float(wave, "f32"), wave.code
    number, place = (one for one in ins.uses if one.direction == "use")
    byte = saturated(code, to_integer(wave, unit.source(number, ins), "i32", signed=False), "i8", signed=False)
    at = code.op("shl", code.op("and", wave.src(place, "i32", ins), wave.const(3, "i32")), wave.const(3, "i32"))
    kept = code.op("and", wave.vgpr(ins.defs[0].index), code.invert(code.op("shl", wave.const(0xFF, "i32"), at)))
    wave.put(ins.defs[0], code.op("or", kept, code.op("shl", code.resize(byte, "i32"), at)), ins)


# ---- integers


@rule("s_ff0_i32_b32", "s_ff0_i32_b64")
def _first_zero(wave: Wave, ins: Instruction) -> None:
    kind = "i64" if ins.mnemonic.endswith("64") else "i32"
    value = wave.code.invert(wave.scalar(ins.uses[0], kind))
    wave.put_scalar(ins.defs[0], first_one("cttz")(wave.code, value))


def _set_m0(wave: Wave, mask: int, value: Value) -> None:
    code = wave.code
    kept = code.op("and", wave.sgpr(state.M0), code.const(~mask, "i32"))
    wave.set_sgpr(state.M0, code.op("or", kept, value))


def _field(wave: Wave, operand: Operand, mask: int, low: int) -> Value:
    """Return the low bits of a scalar source, moved up."""
    code = wave.code
    some = code.op("and", wave.scalar(operand, "i32"), code.const(mask, "i32"))
    return code.op("shl", some, code.const(low, "i32"))


@rule("s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_set_gpr_idx_mode")
def _set_index(wave: Wave, ins: Instruction) -> None:
    """Set the index in M0, and which operands it is added to. The caller sets MODE."""
    first, *rest = ins.uses
    if ins.mnemonic.endswith("_mode"):
        _set_m0(wave, 0xF000, _field(wave, first, 0xF, 12))
        return
    index = _field(wave, first, 0xFF, 0)
    if not rest:
        _set_m0(wave, 0xFF, index)
        return
    _set_m0(wave, 0xF0FF, wave.code.op("or", index, _field(wave, rest[0], 0xF, 12)))


@rule("v_lshl_add_u64")
def _shift_add(wave: Wave, ins: Instruction) -> None:
    code, (a, by, c) = wave.code, ins.uses
    distance = code.op("and", code.resize(wave.src(by, "i32", ins), "i64"), wave.const(7, "i64"))
    wave.put(
        ins.defs[0], code.op("add", code.op("shl", wave.src(a, "i64", ins), distance), wave.src(c, "i64", ins)), ins
    )


@rule("v_subrev_nc_u16")
def _subtract_reversed(wave: Wave, ins: Instruction) -> None:
    a, b = (wave.src(one, "i16", ins) for one in ins.uses)
    found = wave.code.intrinsic("usub.sat", b, a) if ins.clamp else wave.code.op("sub", b, a)
    wave.put(ins.defs[0], found, ins)


def _dot(width: int, *, signed: bool) -> Rule:
    """Add products of the elements of dwords to S2; with CLAMP the sum saturates."""

    def emit(wave: Wave, ins: Instruction) -> None:
        code, kind = wave.code, "i64" if ins.clamp else "i32"
        a, b, c = (wave.src(one, "i32", ins) for one in reads(ins))
        if width == 16 and ins.format == "VOP3P":
            a, b = (code.bitcast(halves(wave, one, ins), wave.row) for one in ins.uses[:2])
        total = code.resize(c, kind, signed=signed)
        for at in range(0, 32, width):
            moved = (code.op("lshr", one, wave.const(at, "i32")) for one in (a, b))
            factors = (code.resize(low_bits(code, one, width, signed=signed), kind, signed=signed) for one in moved)
            total = code.op("add", total, code.op("mul", *factors))
        wave.put(ins.defs[0], saturated(code, total, "i32", signed=signed) if ins.clamp else total, ins)

    return emit


for _name, _width in (("dot2", 16), ("dot4", 8), ("dot8", 4)):
    rule(f"v_{_name}_i32_i{_width}", f"v_{_name}c_i32_i{_width}")(_dot(_width, signed=True))
rule("v_dot2_u32_u16")(_dot(16, signed=False))
