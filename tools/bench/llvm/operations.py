"""Operations of the machine IR as LLVM IR: one line of text for each, or a small function if one line is not enough.

Source: LLVM LangRef (instructions, `llvm.*` intrinsics); IntrinsicsAMDGPU.td (`llvm.amdgcn.*`). For the
hardware's own approximations (`rcp`, `exp2`) the target's intrinsic is used; for correct rounding LLVM's generic one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ringup.compiler.machine.ir import I32, Type, Value
from ringup.errors import CompileError

ELEMENTS = {
    "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "void": "void",
}  # fmt: skip


def text_of(type_: Type) -> str:
    """Return a type as LLVM writes it."""
    element = ELEMENTS[type_.element]
    return element if type_.count == 1 else f"<{type_.count} x {element}>"


def mangled(type_: Type) -> str:
    """Return a type as in names of intrinsics: `f32`, `v8f32`."""
    return type_.element if type_.count == 1 else f"v{type_.count}{type_.element}"


def constant(number: float, type_: Type) -> str:
    """Return a scalar constant; floats by their bits, an f32 by the bits of the equal double."""
    if type_.element == "i1":
        return "true" if number else "false"
    if not type_.is_float:
        return str(int(number) & (1 << type_.bits) - 1)
    with np.errstate(over="ignore"):
        if type_.element == "f16":
            return f"0xH{int(np.float16(number).view(np.uint16)):04X}"
        if type_.element == "bf16":
            bits = int(np.float32(number).view(np.uint32))
            return f"0xR{(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF:04X}"
        exact = np.float64(np.float32(number)) if type_.element == "f32" else np.float64(number)
    return f"0x{int(exact.view(np.uint64)):016X}"


class Writer(Protocol):
    """The part of the function that operations use."""

    wave_size: int
    target: str

    def of(self, value: Value) -> str:
        """Return the name or constant of a value."""
        ...

    def line(self, text: str) -> str:
        """Write an instruction that has a result; return the result's name."""
        ...


# operation: instruction. {t} the type, {m} the type in names, {s} the type of the first operand, {a} {b} {c} operands
_LOGIC = {
    name: f"{name} {{t}} {{a}}, {{b}}" for name in ("add", "sub", "mul", "and", "or", "xor", "fadd", "fsub", "fmul")
}
_CHOICES = {
    name: f"call {{t}} @llvm.{to}.{{m}}({{t}} {{a}}, {{t}} {{b}})"
    for name, to in {
        "min_s": "smin", "max_s": "smax", "min_u": "umin", "max_u": "umax", "fmin": "minnum", "fmax": "maxnum",
    }.items()
}  # fmt: skip
_FUNCTIONS = {
    name: f"call {{t}} @llvm.{to}.{{m}}({{t}} {{a}})"
    for name, to in {
        "fabs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "fsqrt": "sqrt", "bit_count": "ctpop",
        "rcp": "amdgcn.rcp", "rsq": "amdgcn.rsq", "sqrt": "amdgcn.sqrt", "sin_turns": "amdgcn.sin", "frexp_mantissa": "amdgcn.frexp.mant",
    }.items()
}  # fmt: skip
_COMPARES = {
    name: f"{to} {{s}} {{a}}, {{b}}"
    for name, to in {
        "eq": "icmp eq", "ne": "icmp ne", "lt_s": "icmp slt", "le_s": "icmp sle", "lt_u": "icmp ult", "le_u": "icmp ule",
        "feq": "fcmp oeq", "fne": "fcmp une", "flt": "fcmp olt", "fle": "fcmp ole",
    }.items()
}  # fmt: skip
_CASTS = {
    name: f"{to} {{s}} {{a}} to {{t}}"
    for name, to in {
        "zext": "zext", "sext": "sext", "truncate": "trunc", "bitcast": "bitcast", "to_float_s": "sitofp", "to_float_u": "uitofp",
    }.items()
}  # fmt: skip
_DIVISIONS = {
    "div_u": "udiv {t} {a}, {b}", "div_s": "sdiv {t} {a}, {b}", "rem_u": "urem {t} {a}, {b}", "rem_s": "srem {t} {a}, {b}",
    "div": "fdiv {t} {a}, {b}",
}  # fmt: skip
LINES: dict[str, str] = {
    **_LOGIC, **_CHOICES, **_FUNCTIONS, **_COMPARES, **_CASTS, **_DIVISIONS,
    "fneg": "fneg {t} {a}", "fma": "call {t} @llvm.fma.{m}({t} {a}, {t} {b}, {t} {c})",
    "select": "select i1 {a}, {t} {b}, {t} {c}",
    "leading_zeros": "call {t} @llvm.ctlz.{m}({t} {a}, i1 false)",
    "ldexp": "call {t} @llvm.ldexp.{m}.i32({t} {a}, i32 {b})",
    "frexp_exponent": "call i32 @llvm.amdgcn.frexp.exp.i32.{n}({s} {a})",
    "to_int_s": "call {t} @llvm.fptosi.sat.{m}.{n}({s} {a})", "to_int_u": "call {t} @llvm.fptoui.sat.{m}.{n}({s} {a})",
    "dot2": "call float @llvm.amdgcn.fdot2(<2 x half> {a}, <2 x half> {b}, float {c}, i1 false)",
    "dot4_s": "call i32 @llvm.amdgcn.sudot4(i1 true, i32 {a}, i1 true, i32 {b}, i32 {c}, i1 false)",
    "dot4_u": "call i32 @llvm.amdgcn.udot4(i32 {a}, i32 {b}, i32 {c}, i1 false)",
}  # fmt: skip


def operands(w: Writer, v: Value) -> dict[str, str]:
    """Return the values of a line's placeholders."""
    first = v.args[0].type if v.args else v.type
    names = {letter: w.of(one) for letter, one in zip("abc", v.args, strict=False)}
    return {"t": text_of(v.type), "m": mangled(v.type), "s": text_of(first), "n": mangled(first), **names}


def _not(w: Writer, v: Value) -> str:
    return w.line(f"xor {text_of(v.type)} {w.of(v.args[0])}, {'true' if v.type.element == 'i1' else -1}")


_SHIFTS = {"shl": "shl", "shr_u": "lshr", "shr_s": "ashr"}


def _shift(w: Writer, v: Value) -> str:
    """Shift; LLVM needs the amount, an i32 here, as wide as the shifted value."""
    amount = w.of(v.args[1])
    if v.type.bits != v.args[1].type.bits:
        amount = w.line(f"{'zext' if v.type.bits > 32 else 'trunc'} i32 {amount} to {text_of(v.type)}")
    return w.line(f"{_SHIFTS[v.op]} {text_of(v.type)} {w.of(v.args[0])}, {amount}")


def _upper_half(w: Writer, v: Value) -> str:
    extend = "sext" if v.op == "mul_hi_s" else "zext"
    a, b = (w.line(f"{extend} i32 {w.of(one)} to i64") for one in v.args)
    product = w.line(f"mul i64 {a}, {b}")
    upper = w.line(f"lshr i64 {product}, 32")
    return w.line(f"trunc i64 {upper} to i32")


def _mad(w: Writer, v: Value) -> str:
    a, b, c = map(w.of, v.args)
    return w.line(f"add i32 {w.line(f'mul i32 {a}, {b}')}, {c}")


def _mad_wide(w: Writer, v: Value) -> str:
    a, b = (w.line(f"zext i32 {w.of(one)} to i64") for one in v.args[:2])
    return w.line(f"add i64 {w.line(f'mul nuw i64 {a}, {b}')}, {w.of(v.args[2])}")


def _exponential(w: Writer, v: Value) -> str:
    """Write the hardware's own function; for f32 it flushes denormals, like the machine IR."""
    name = {"exp2": "exp2", "log2": "log2"}[v.op]
    if v.type.element == "f32":
        name = {"exp2": "amdgcn.exp2", "log2": "amdgcn.log"}[v.op]
    return w.line(f"call {text_of(v.type)} @llvm.{name}.{mangled(v.type)}({text_of(v.type)} {w.of(v.args[0])})")


def _between_floats(w: Writer, v: Value) -> str:
    source = v.args[0]
    if source.type == v.type:
        return w.of(source)
    # f16 and bf16: by way of f32, which holds both
    if source.type.bits == v.type.bits:
        wide = w.line(f"fpext {text_of(source.type)} {w.of(source)} to float")
        return w.line(f"fptrunc float {wide} to {text_of(v.type)}")
    return w.line(
        f"{'fpext' if v.type.bits > source.type.bits else 'fptrunc'} {text_of(source.type)} {w.of(source)} to "
        f"{text_of(v.type)}"
    )


def _vector(w: Writer, v: Value) -> str:
    type_, element = text_of(v.type), ELEMENTS[v.type.element]
    if all(one.op == "const" for one in v.args):
        return f"<{', '.join(f'{element} {w.of(one)}' for one in v.args)}>"
    made = "poison"
    for i, one in enumerate(v.args):
        made = w.line(f"insertelement {type_} {made}, {element} {w.of(one)}, i32 {i}")
    return made


def _extract(w: Writer, v: Value) -> str:
    return w.line(f"extractelement {text_of(v.args[0].type)} {w.of(v.args[0])}, i32 {v.imm}")


def _packed(w: Writer, v: Value) -> str:
    line = LINES.get(v.imm)
    if line is None:
        raise CompileError(f"packed {v.imm} has no line of LLVM IR here")
    return w.line(line.format(**operands(w, v)))


def _by_dwords(w: Writer, value: Value, move: Callable[[str], str]) -> str:
    """Return a value whose dwords were moved between lanes, narrow ones widened for it."""
    type_ = value.type
    bits = type_.bits * type_.count
    text, name = text_of(type_), w.of(value)
    if bits < 32:
        plain = f"i{bits}"
        if type_.is_float:
            name = w.line(f"bitcast {text} {name} to {plain}")
        number = w.line(f"zext {plain} {name} to i32")
        narrow = w.line(f"trunc i32 {move(number)} to {plain}")
        return w.line(f"bitcast {plain} {narrow} to {text}") if type_.is_float else narrow
    if bits == 32:
        number = name if type_ == I32 else w.line(f"bitcast {text} {name} to i32")
        moved = move(number)
        return moved if type_ == I32 else w.line(f"bitcast i32 {moved} to {text}")
    count = bits // 32
    dwords, made = w.line(f"bitcast {text} {name} to <{count} x i32>"), "poison"
    for i in range(count):
        moved = move(w.line(f"extractelement <{count} x i32> {dwords}, i32 {i}"))
        made = w.line(f"insertelement <{count} x i32> {made}, i32 {moved}, i32 {i}")
    return w.line(f"bitcast <{count} x i32> {made} to {text}")


# DPP control: the lane of the row of 16 whose number differs in these bits. Source: RDNA3 ISA reference, "DPP16"
ROW_XMASK = 0x160
ROW_SHR = 0x110  # the lane that many positions lower in the row


# gfx9: the DPP controls that exchange lanes, by distance. Source: CDNA3 ISA reference, "DPP Control"
GFX9_EXCHANGES = {1: 0xB1, 2: 0x4E, 3: 0x1B, 7: 0x141, 8: 0x128, 15: 0x140}


def _gfx9_exchange(w: Writer, number: str, mask: int) -> str:
    """Exchange by DPP, once or twice, by a swizzle within 32 lanes, or by a permutation of all."""
    if mask & 32:
        lane = w.line("call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)")
        lane = w.line(f"call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 {lane})")
        place = w.line(f"xor i32 {w.line(f'shl i32 {lane}, 2')}, {mask << 2}")
        return w.line(f"call i32 @llvm.amdgcn.ds.bpermute(i32 {place}, i32 {number})")
    if mask & 16:
        return w.line(f"call i32 @llvm.amdgcn.ds.swizzle(i32 {number}, i32 {mask << 10 | 0x1F})")
    controls = GFX9_EXCHANGES
    first = mask if mask in controls else next(one for one in (15, 8, 7) if one ^ mask in controls)
    for one in (first, first ^ mask):
        if one:
            number = w.line(
                f"call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 {number}, i32 {controls[one]}, i32 15, i32 15, i1 true)"
            )
    return number


def _shuffle_xor(w: Writer, v: Value) -> str:
    """Exchange within rows of 16 by DPP, across two rows by permlanex16: the shortest form that the target has."""
    mask: int = v.imm
    if w.target.startswith("gfx9"):
        return _by_dwords(w, v.args[0], lambda number: _gfx9_exchange(w, number, mask))
    if mask & 32:
        raise CompileError("shuffle_xor across halves of a wave64 has no line of LLVM IR here")

    def move(number: str) -> str:
        if mask & 16:
            low, high = (sum((first + i ^ mask & 15) << 4 * i for i in range(8)) for first in (0, 8))
            return w.line(
                f"call i32 @llvm.amdgcn.permlanex16.i32(i32 poison, i32 {number}, i32 {low}, i32 "
                f"{high}, i1 true, i1 false)"
            )
        if not mask:
            return number
        return w.line(
            f"call i32 @llvm.amdgcn.update.dpp.i32(i32 poison, i32 {number}, i32 "
            f"{ROW_XMASK + mask}, i32 15, i32 15, i1 true)"
        )

    return _by_dwords(w, v.args[0], move)


def _shuffle_up(w: Writer, v: Value) -> str:
    def move(number: str) -> str:
        return w.line(
            f"call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 {number}, i32 {ROW_SHR + v.imm}, i32 15, i32 15, i1 true)"
        )

    return _by_dwords(w, v.args[0], move)


def _shuffle(w: Writer, v: Value) -> str:
    place = w.line(f"shl i32 {w.of(v.args[1])}, 2")
    return _by_dwords(
        w, v.args[0], lambda number: w.line(f"call i32 @llvm.amdgcn.ds.bpermute(i32 {place}, i32 {number})")
    )


def _read_lane(w: Writer, v: Value) -> str:
    return _by_dwords(
        w, v.args[0], lambda number: w.line(f"call i32 @llvm.amdgcn.readlane.i32(i32 {number}, i32 {v.imm})")
    )


def _first_lane(w: Writer, v: Value) -> str:
    return _by_dwords(w, v.args[0], lambda number: w.line(f"call i32 @llvm.amdgcn.readfirstlane.i32(i32 {number})"))


# Source: IntrinsicsAMDGPU.td, "WMMA (Wave Matrix Multiply-Accumulate) intrinsics": {x} and {y} as dwords or i16 where
# the types are not floats
_MATRIX = {
    "f16": ("<16 x half>", "<8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half> {x}, <16 x half> {y}, <8 x float> {c})"),
    "bf16": ("<16 x i16>", "<8 x float> @llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16(<16 x i16> {x}, <16 x i16> {y}, <8 x float> {c})"),
    "i8": ("<4 x i32>", "<8 x i32> @llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v4i32("
           "i1 true, <4 x i32> {x}, i1 true, <4 x i32> {y}, <8 x i32> {c}, i1 false)"),
    "u8": ("<4 x i32>", "<8 x i32> @llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v4i32("
           "i1 false, <4 x i32> {x}, i1 false, <4 x i32> {y}, <8 x i32> {c}, i1 false)"),
}  # fmt: skip


# Source: IntrinsicsAMDGPU.td, "MFMA intrinsics"; the three last operands select nothing. f32 and f64 take one element
# of a lane at a time.
_MFMA = {
    "f16": ("<4 x half>", "<4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> {x}, <4 x half> {y}, <4 x float> {c}, i32 0, i32 0, i32 0)"),
    "bf16": ("<4 x i16>", "<4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k("
             "<4 x i16> {x}, <4 x i16> {y}, <4 x float> {c}, i32 0, i32 0, i32 0)"),
    "i8x32": ("i64", "<4 x i32> @llvm.amdgcn.mfma.i32.16x16x32.i8(i64 {x}, i64 {y}, <4 x i32> {c}, i32 0, i32 0, i32 0)"),
    "f32": ("float", "<4 x float> @llvm.amdgcn.mfma.f32.16x16x4f32(float {x}, float {y}, <4 x float> {c}, i32 0, i32 0, i32 0)"),
    "f64": ("double", "<4 x double> @llvm.amdgcn.mfma.f64.16x16x4f64(double {x}, double {y}, <4 x double> {c}, i32 0, i32 0, i32 0)"),
}  # fmt: skip


def _matrix(w: Writer, v: Value) -> str:
    """Multiply 16 x 16 x 16; bf16 travels as i16, bytes as dwords."""
    carrier, call = (_MFMA if w.target.startswith("gfx9") else _MATRIX)[v.imm]
    if v.imm in ("f32", "f64"):
        x, y, total = (w.of(one) for one in v.args)
        type_ = text_of(v.args[0].type)
        for i in range(v.args[0].type.count):
            a, b = (w.line(f"extractelement {type_} {one}, i32 {i}") for one in (x, y))
            total = w.line(f"call {call.format(x=a, y=b, c=total)}")
        return total
    names = [w.of(one) for one in v.args]
    for i, one in enumerate(v.args[:2]):
        if text_of(one.type) != carrier:
            names[i] = w.line(f"bitcast {text_of(one.type)} {names[i]} to {carrier}")
    return w.line(f"call {call.format(x=names[0], y=names[1], c=names[2])}")


RULES: dict[str, Callable[[Writer, Value], str]] = {
    "not": _not, "shl": _shift, "shr_u": _shift, "shr_s": _shift, "mul_hi_u": _upper_half, "mul_hi_s": _upper_half,
    "mad": _mad, "mad_wide_u": _mad_wide, "exp2": _exponential, "log2": _exponential, "fconvert": _between_floats,
    "vector": _vector, "extract": _extract, "packed": _packed, "matrix": _matrix,
    "shuffle_xor": _shuffle_xor, "shuffle_up": _shuffle_up, "shuffle": _shuffle, "read_lane": _read_lane, "first_lane": _first_lane,
}  # fmt: skip
