"""Vectors: built, taken apart, computed two halves at a time, multiplied as dot products and as matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringup.compiler.amd.instructions.code import Operand, Part
from ringup.compiler.amd.select.emitter import Emitter, Place, bank, number, part
from ringup.compiler.machine.ir import Value
from ringup.errors import CompileError

Rule = Callable[[Emitter, Value, Place], None]

# For `packed`: (operation, element): mnemonic.
_PACKED = {
    ("fadd", "f16"): "v_pk_add_f16", ("fmul", "f16"): "v_pk_mul_f16", ("fma", "f16"): "v_pk_fma_f16", ("fmin", "f16"): "v_pk_min_f16",
    ("fmax", "f16"): "v_pk_max_f16", ("add", "i16"): "v_pk_add_u16", ("sub", "i16"): "v_pk_sub_i16", ("mul", "i16"): "v_pk_mul_lo_u16",
    ("min_s", "i16"): "v_pk_min_i16", ("max_s", "i16"): "v_pk_max_i16", ("min_u", "i16"): "v_pk_min_u16", ("max_u", "i16"): "v_pk_max_u16",
}  # fmt: skip


def _packed(e: Emitter, v: Value, d: Place) -> None:
    name = _PACKED.get((v.imm, v.type.element))
    if name is None:
        raise CompileError(
            f"packed {v.imm} of {v.type} has no instruction; {', '.join(sorted({one for one, _ in _PACKED}))} have"
        )
    count = 3 if v.imm == "fma" else 2
    ones = (1,) * count
    # Constant vectors are put into registers, since an inline constant would fill the lower half of a pair only.
    for i, to in enumerate(e.pieces(d)):
        sources = [e.pieces(e.vector(one))[i] if one in e.bits else e.parts(one)[i] for one in v.args]
        e.valu(name, to, *sources, op_sel_hi=ones)


def _dot(e: Emitter, v: Value, d: Place) -> None:
    a, b, c = v.args
    if v.op == "dot2":
        return e.valu("v_dot2_f32_f16", d, e.any(a), e.any(b), e.any(c))
    if v.op == "dot4_s":
        if e.row.has("v_dot4_i32_i8"):
            return e.valu("v_dot4_i32_i8", d, e.any(a), e.any(b), e.any(c))
        return e.valu("v_dot4_i32_iu8", d, e.any(a), e.any(b), e.any(c), neg_lo=(1, 1, 0))
    return e.valu("v_dot4_u32_u8", d, e.any(a), e.any(b), e.any(c))


# A number, or one for each source.
_Modifier = int | tuple[int, int, int]
_Matrices = Mapping[str, tuple[str, Mapping[str, _Modifier]]]
# For `matrix`: (layout, kind): mnemonic and modifiers.
_WMMA: _Matrices = {
    "f16": ("v_wmma_f32_16x16x16_f16", {}), "bf16": ("v_wmma_f32_16x16x16_bf16", {}),
    "i8": ("v_wmma_i32_16x16x16_iu8", {"neg_lo": (1, 1, 0)}), "u8": ("v_wmma_i32_16x16x16_iu8", {"neg_lo": (0, 0, 0)}),
}  # fmt: skip
_MFMA: _Matrices = {
    "f16": ("v_mfma_f32_16x16x16_f16", {}), "bf16": ("v_mfma_f32_16x16x16_bf16", {}), "i8x32": ("v_mfma_i32_16x16x32_i8", {}),
    "f32": ("v_mfma_f32_16x16x4_f32", {}), "f64": ("v_mfma_f64_16x16x4_f64", {}),
}  # fmt: skip
# The formats of A and B in cbsz and blgp. Source: CDNA4 ISA reference, "Rules for the F8F6F4 MFMA instructions".
_EIGHTHS = {"fp8": 0, "bf8": 1}
_DEEPER: _Matrices = {
    **{kind: _MFMA[kind] for kind in ("f16", "bf16", "f32", "f64")}, "f16x32": ("v_mfma_f32_16x16x32_f16", {}),
    "bf16x32": ("v_mfma_f32_16x16x32_bf16", {}), "i8x64": ("v_mfma_i32_16x16x64_i8", {}),
    **{f"{a}_{b}x32": (f"v_mfma_f32_16x16x32_{a}_{b}", {}) for a in _EIGHTHS for b in _EIGHTHS},
    **{
        f"{a}_{b}x128": ("v_mfma_f32_16x16x128_f8f6f4", {"cbsz": _EIGHTHS[a], "blgp": _EIGHTHS[b]})
        for a in _EIGHTHS for b in _EIGHTHS
    },
}  # fmt: skip
_MATRICES = {"rdna3": _WMMA, "rdna4": _WMMA, "cdna3": _MFMA, "cdna4": _DEEPER}
# Products of several instructions, one for each element of a lane.
_STEPS = frozenset(("f32", "f64"))


def _matrix(e: Emitter, v: Value, d: Place) -> None:
    """Multiply matrices. A and B must not share registers with the result; the addend may be in the same registers."""
    known = _MATRICES[e.row.matrix]
    if v.imm not in known:
        raise CompileError(f"matrix of {v.imm}: {e.row.name} multiplies {', '.join(known)}")
    name, modifiers = known[v.imm]
    a, b, c = v.args
    e.claim(c, d)
    x, y = e.vector(a), e.vector(b)
    z: Operand = 0 if _is_zero(e, c) else e.vector(c)
    to = d
    if any(_reg(one) is _reg(d) for one in (x, y)):
        to = e.temporary("v", d.count)
    if v.imm in _STEPS:
        wide = a.type.bits // 32
        for i in range(a.type.count):
            e.emit(name, to, part(x, i * wide, wide), part(y, i * wide, wide), to if i else z)
    else:
        e.emit(name, to, x, y, z, **modifiers)
    if to is not d:
        for place, one in zip(e.pieces(d), e.pieces(to), strict=True):
            e.move(place, one)


def _is_zero(e: Emitter, value: Value) -> bool:
    return value.op == "vector" and all(e.bits.get(one) == 0 for one in value.args)


def _reg(place: Operand) -> Operand:
    return place.reg if type(place) is Part else place


def _vector(e: Emitter, v: Value, d: Place) -> None:
    """Build a vector. Each element is computed in its place if nothing else has requested it."""
    width = v.type.bits
    if width >= 32:
        step = width // 32
        pairs: list[tuple[Place, Operand]] = []
        for i, one in enumerate(v.args):
            place = part(d, i * step, step)
            if e.claim(one, place):
                continue
            pairs += zip(e.pieces(place), e.parts(one), strict=True)
        return e.copy_all(pairs)
    count = 32 // width
    words = [v.args[i : i + count] for i in range(0, len(v.args), count)]
    made: list[tuple[Place, Operand]] = []
    for to, ones in zip(e.pieces(d), words, strict=True):
        place = to if len(words) == 1 else e.temporary(bank(d))
        _join(e, place, ones, width)
        if place is not to:
            made.append((to, place))
    return e.copy_all(made)


def _join(e: Emitter, d: Place, ones: tuple[Value, ...], width: int) -> None:
    """Combine the narrow elements of one dword."""
    if all(one in e.bits for one in ones):
        return e.move(d, number(sum(e.bits[one] << width * i for i, one in enumerate(ones)), "b32"))
    if bank(d) == "s":
        if width == 16 and len(ones) == 2:
            return e.emit("s_pack_ll_b32_b16", d, e.scalar(ones[0]), e.scalar(ones[1]))
        return _join_scalar(e, d, ones, width)
    if width == 8:
        pairs = [_perm(e, ones[i : i + 2], 0x0C0C0400) for i in range(0, len(ones), 2)]
        if len(pairs) == 1:
            return e.move(d, pairs[0])
        return e.valu("v_perm_b32", d, pairs[1], pairs[0], 0x05040100)
    if len(ones) == 1:
        return e.move(d, e.any(ones[0]))
    # The upper half is computed in its place, next to the lower one.
    if e.row.upper_halves and _rounded(e, ones[1]) and e.claim(ones[0], d):
        return e.valu("v_cvt_f16_f32", d, e.float(ones[1].args[0], "b32"), op_sel=(0, 1))
    (low, low_bytes), (high, high_bytes) = (_half(e, one) for one in ones)
    return e.valu("v_perm_b32", d, high, low, (high_bytes + 0x0404) << 16 | low_bytes)


def _rounded(e: Emitter, one: Value) -> bool:
    """Return whether a value is a conversion from f32 to f16 without another use."""
    return (
        one.type.element == "f16"
        and one.op == "fconvert"
        and one.args[0].type.element == "f32"
        and e.inner(one, "fconvert")
    )


def _half(e: Emitter, one: Value) -> tuple[Operand, int]:
    """Return the dword with a 16-bit number, and the selector of its bytes. The upper half of a vector's dword is read
    where it is.
    """
    if isinstance(one.imm, int) and one.imm % 2 and e.inner(one, "extract"):
        return e.parts(one.args[0])[one.imm // 2], 0x0302
    return e.any(one), 0x0100


def _perm(e: Emitter, ones: tuple[Value, ...], selector: int) -> Operand:
    if len(ones) == 1:
        return e.any(ones[0])
    made = e.temporary()
    # Bytes 0-3 of the selector refer to the second source.
    e.valu("v_perm_b32", made, e.any(ones[1]), e.any(ones[0]), selector)
    return made


def _join_scalar(e: Emitter, d: Place, ones: tuple[Value, ...], width: int) -> None:
    total: Operand = 0
    for i, one in enumerate(ones):
        low, moved, joined = e.temporary("s"), e.temporary("s"), e.temporary("s")
        e.emit("s_and_b32", low, e.scalar(one), (1 << width) - 1)
        e.emit("s_lshl_b32", moved, low, width * i)
        e.emit("s_or_b32", joined, moved, total)
        total = joined
    e.emit("s_mov_b32", d, total)


def _extract(e: Emitter, v: Value, d: Place) -> None:
    """Extract a narrow element from the middle of a dword. Other elements need no instruction."""
    bit = v.imm * v.type.bits
    of = e.parts(v.args[0])[bit // 32]
    if bank(d) == "s":
        return e.emit("s_lshr_b32", d, of, bit % 32)
    return e.valu("v_lshrrev_b32", d, bit % 32, of)


RULES: dict[str, Rule] = {
    "packed": _packed, "dot2": _dot, "dot4_s": _dot, "dot4_u": _dot, "matrix": _matrix, "vector": _vector, "extract": _extract,
}  # fmt: skip
