"""Vector integer arithmetic and logic of 16, 24, 32 and 64 bits; results saturate if the clamp bit is set.

Source: RDNA3 ISA reference, "VOP1", "VOP2" and "VOP3 Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.floats import Bits, Mask

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64


def sign_extended(a: Bits, bits: int) -> Bits:
    """Return the low `bits` of lanes as i64."""
    shift = I64(64 - bits)
    return a.astype(U64).view(I64) << shift >> shift


def zero_extended(a: Bits, bits: int) -> Bits:
    """Return the low `bits` of lanes as i64; `bits` is at most 63."""
    return (a.astype(U64) & U64((1 << bits) - 1)).view(I64)


def _taken(a: Bits, type_: str) -> Bits:
    return (sign_extended if type_[0] == "i" else zero_extended)(a, int(type_[1:]))


def given(ctx: Ctx, values: Bits, type_: str) -> Bits:
    """Return i64 lanes as results of a type (i16, u32…): wrapped, or saturated if the instruction clamps."""
    bits = int(type_[1:])
    if ctx.ins.clamp:
        low = -(1 << bits - 1) if type_[0] == "i" else 0
        values = np.clip(values, low, low + (1 << bits) - 1)
    return values.astype(U64).astype(U32) & U32((1 << bits) - 1)


def _wide(type_: str, compute: Callable[..., Bits], *inputs: str) -> Vector:
    """Return an instruction on i64 lanes, in which sums and products cannot overflow.

    `inputs` are the types of sources (default: the result's).
    """

    def run(ctx: Ctx, *sources: Bits) -> Bits:
        types = inputs or (type_,) * len(sources)
        return given(ctx, compute(*map(_taken, sources, types)), type_)

    return run


def _bits(compute: Callable[..., Bits]) -> Vector:
    """Return an instruction on the plain bits; it wraps."""
    return lambda _, *sources: compute(*sources)


def _low_half(compute: Callable[..., Bits]) -> Vector:
    return lambda _, *sources: compute(*sources) & U32(0xFFFF)


def _median(a: Bits, b: Bits, c: Bits) -> Bits:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _shift(amount: Bits, bits: int) -> Bits:
    return amount & amount.dtype.type(bits - 1)


def _leading(a: Bits) -> Bits:
    """Return the number of leading zeros, -1 if there are only zeros."""
    _, exponents = np.frexp(a.astype(np.float64))
    return np.where(a == 0, -1, 32 - exponents).astype(I32).view(U32)


def _trailing(a: Bits) -> Bits:
    lowest = a & (~a + U32(1))
    return np.where(a == 0, -1, 31 - _leading(lowest).view(I32)).astype(I32).view(U32)


def _leading_signs(a: Bits) -> Bits:
    return _leading(a ^ (a.view(I32) >> I32(31)).view(U32))


def _reversed(a: Bits) -> Bits:
    octets = a.byteswap().view(np.uint8)
    return np.packbits(np.unpackbits(octets, bitorder="little")).view(U32)


def bit_count(a: Bits) -> Bits:
    """Return the number of set bits."""
    return np.bitwise_count(a).astype(U32)


def _octets(a: Bits) -> Bits:
    """Return the bytes of u32 lanes as (lane, byte) i64, low first."""
    return a.astype("<u4").view(np.uint8).reshape(-1, 4).astype(I64)


def _sum_of_differences(a: Bits, b: Bits) -> Bits:
    return np.abs(_octets(a) - _octets(b)).sum(axis=1)


def _masked_differences(a: Bits, b: Bits) -> Bits:
    """Sum differences of bytes; bytes that are 0 in the second operand do not count."""
    return np.where(_octets(b) == 0, 0, np.abs(_octets(a) - _octets(b))).sum(axis=1)


def _half_differences(a: Bits, b: Bits, c: Bits) -> Bits:
    return abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c


def _quad(differences: Callable[[Bits, Bits], Bits], bits: int) -> Vector:
    """Return four sums of differences, for the first operand shifted by one byte more each time; accumulators have
    `bits` bits.
    """

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        sums = [differences((a >> U64(8 * step) & U64(0xFFFF_FFFF)).astype(U32), b) for step in range(4)]
        if bits == 32:
            return np.stack([given(ctx, one + c[:, step].astype(I64), "u32") for step, one in enumerate(sums)], axis=1)
        packed = np.zeros_like(a)
        for step, one in enumerate(sums):
            shift = U64(16 * step)
            old = (c >> shift & U64(0xFFFF)).astype(I64)
            packed |= given(ctx, one + old, "u16").astype(U64) << shift
        return packed

    return run


def _average(a: Bits, b: Bits, rounding: Bits) -> Bits:
    """Average bytes; round up where the low bit of the third operand's byte is set."""
    octets = (_octets(a) + _octets(b) + (_octets(rounding) & 1)) >> 1
    return np.ascontiguousarray(octets.astype(np.uint8)).view("<u4").ravel().astype(U32)


def _byte_permute(a: Bits, b: Bits, select: Bits) -> Bits:
    """Select bytes: 0…7 take bytes of {a, b}, 8…11 the signs of its halves, 12 is 0x00, more is 0xff."""
    pool = np.concatenate([_octets(b), _octets(a)], axis=1)
    signs = np.where(pool[:, 1::2] & 0x80, 0xFF, 0)
    table = np.concatenate([pool, signs, np.zeros((len(a), 1), I64), np.full((len(a), 1), 0xFF)], axis=1)
    octets = np.take_along_axis(table, np.minimum(_octets(select), 13), axis=1)
    return np.ascontiguousarray(octets.astype(np.uint8)).view("<u4").ravel().astype(U32)


def _joined(a: Bits, b: Bits, shift: Bits) -> Bits:
    """Return the low dword of {a, b} >> shift."""
    return ((a.astype(U64) << U64(32) | b) >> shift.astype(U64)).astype(U32)


def _extract_unsigned(a: Bits, offset: Bits, width: Bits) -> Bits:
    return a >> _shift(offset, 32) & ((U32(1) << _shift(width, 32)) - U32(1))


def _extract_signed(a: Bits, offset: Bits, width: Bits) -> Bits:
    count = _shift(width, 32)
    field = (a.view(I32) >> _shift(offset, 32).view(I32)).view(U32)
    rest = (U32(32) - count) & U32(31)
    extended = (field << rest).view(I32) >> rest.view(I32)
    return np.where(count == 0, U32(0), extended.view(U32))


def _carry(sign: int, is_reversed: bool) -> Vector:
    """Return a sum or difference with a carry (borrow) mask out, and in if there is a third source."""

    def run(ctx: Ctx, a: Bits, b: Bits, carry: Mask | None = None) -> tuple[Bits, Mask]:
        first, second = (b, a) if is_reversed else (a, b)
        total = first.astype(I64) + sign * (second.astype(I64) + (0 if carry is None else carry.astype(I64)))
        return given(ctx, total, "u32"), (total < 0) | (total > 0xFFFF_FFFF)

    return run


def _multiply_add_64(is_signed: bool) -> Vector:
    """Return the low 64 bits of a * b + c, and bit 64 of the sum of 65 bits."""

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> tuple[Bits, Mask]:
        views = (I32, I64) if is_signed else (U32, U64)
        rows = zip(a.view(views[0]).tolist(), b.view(views[0]).tolist(), c.view(views[1]).tolist(), strict=True)
        totals = [x * y + z for x, y, z in rows]
        carry = np.array([bool(one >> 64 & 1) for one in totals])
        if ctx.ins.clamp:
            low = -(1 << 63) if is_signed else 0
            totals = [min(max(one, low), low + (1 << 64) - 1) for one in totals]
        return np.array([one & 0xFFFF_FFFF_FFFF_FFFF for one in totals], U64), carry

    return run


def _shifts(bits: int, half: Callable[[Callable[..., Bits]], Vector]) -> dict[str, Vector]:
    """Return the three shifts of a width; the count comes first."""
    unsigned, signed = {16: (U32, np.int16), 32: (U32, I32), 64: (U64, I64)}[bits]

    def arithmetic(count: Bits, a: Bits) -> Bits:
        narrow = a.astype(np.uint16) if bits == 16 else a
        moved = narrow.view(signed) >> _shift(count, bits).astype(signed)
        return moved.view(np.uint16).astype(U32) if bits == 16 else moved.view(unsigned)

    return {
        f"v_lshlrev_b{bits}": half(lambda count, a: a << _shift(count, bits).astype(unsigned)),
        f"v_lshrrev_b{bits}": half(lambda count, a: a >> _shift(count, bits).astype(unsigned)),
        f"v_ashrrev_i{bits}": half(arithmetic),
    }


_ORDER: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    "min3": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "max3": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "med3": _median,
    "minmax": lambda a, b, c: np.maximum(np.minimum(a, b), c),
    "maxmin": lambda a, b, c: np.minimum(np.maximum(a, b), c),
}
_LOGIC: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


def _sum(a: Bits, b: Bits) -> Bits:
    return a + b


def _difference(a: Bits, b: Bits) -> Bits:
    return a - b


def _product(a: Bits, b: Bits) -> Bits:
    return a * b


def _product_sum(a: Bits, b: Bits, c: Bits) -> Bits:
    return a * b + c


INT: dict[str, Vector] = {
    f"v_{name}_{type_}": _wide(type_, compute)
    for name, compute in _ORDER.items()
    for type_ in ("i32", "u32", "i16", "u16")
    if not (name in ("minmax", "maxmin") and type_.endswith("16"))
}
INT |= {f"v_{name}_b32": _bits(compute) for name, compute in _LOGIC.items()}
INT |= {f"v_{name}_b16": _low_half(compute) for name, compute in _LOGIC.items()}
INT |= _shifts(16, _low_half) | _shifts(32, _bits) | _shifts(64, _bits)
INT |= {f"v_add_nc_{type_}": _wide(type_, _sum) for type_ in ("u32", "i32", "u16", "i16")}
INT |= {f"v_sub_nc_{type_}": _wide(type_, _difference) for type_ in ("u32", "i32", "u16", "i16")}
INT |= {f"v_mad_{type_}": _wide(type_, _product_sum) for type_ in ("u16", "i16")}
INT |= {
    "v_subrev_nc_u32": _wide("u32", lambda a, b: b - a),
    "v_mul_i32_i24": _wide("i32", _product, "i24", "i24"),
    "v_mul_u32_u24": _wide("u32", _product, "u24", "u24"),
    "v_mul_hi_i32_i24": _wide("i32", lambda a, b: a * b >> 32, "i24", "i24"),
    "v_mul_hi_u32_u24": _wide("u32", lambda a, b: a * b >> 32, "u24", "u24"),
    "v_mad_i32_i24": _wide("i32", _product_sum, "i24", "i24", "i32"),
    "v_mad_u32_u24": _wide("u32", _product_sum, "u24", "u24", "u32"),
    "v_mad_u32_u16": _wide("u32", _product_sum, "u16", "u16", "u32"),
    "v_mad_i32_i16": _wide("i32", _product_sum, "i16", "i16", "i32"),
    "v_mul_hi_i32": _wide("i32", lambda a, b: a * b >> 32),
    "v_mul_hi_u32": _bits(lambda a, b: (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U32)),
    "v_mul_lo_u32": _bits(_product),
    "v_mul_lo_u16": _low_half(_product),
    "v_add_co_u32": _carry(1, False),
    "v_sub_co_u32": _carry(-1, False),
    "v_subrev_co_u32": _carry(-1, True),
    "v_add_co_ci_u32": _carry(1, False),
    "v_sub_co_ci_u32": _carry(-1, False),
    "v_subrev_co_ci_u32": _carry(-1, True),
    "v_mad_u64_u32": _multiply_add_64(False),
    "v_mad_i64_i32": _multiply_add_64(True),
    # Sources may be views of registers that the caller writes before it reads these.
    "v_mov_b32": _bits(np.copy),
    "v_mov_b16": _low_half(lambda a: a),
    "v_cndmask_b32": _bits(lambda a, b, mask: np.where(mask, b, a)),
    "v_cndmask_b16": _low_half(lambda a, b, mask: np.where(mask, b, a)),
    "v_swap_b32": lambda _, a, b: (b.copy(), a.copy()),
    "v_swap_b16": lambda _, a, b: (b.copy(), a.copy()),
    "v_xnor_b32": _bits(lambda a, b: ~(a ^ b)),
    "v_xor3_b32": _bits(lambda a, b, c: a ^ b ^ c),
    "v_or3_b32": _bits(lambda a, b, c: a | b | c),
    "v_and_or_b32": _bits(lambda a, b, c: a & b | c),
    "v_lshl_or_b32": _bits(lambda a, b, c: a << _shift(b, 32) | c),
    "v_lshl_add_u32": _bits(lambda a, b, c: (a << _shift(b, 32)) + c),
    "v_add_lshl_u32": _bits(lambda a, b, c: a + b << _shift(c, 32)),
    "v_add3_u32": _bits(lambda a, b, c: a + b + c),
    "v_xad_u32": _bits(lambda a, b, c: (a ^ b) + c),
    "v_bfrev_b32": _bits(_reversed),
    "v_clz_i32_u32": _bits(_leading),
    "v_ctz_i32_b32": _bits(_trailing),
    "v_cls_i32": _bits(_leading_signs),
    "v_bcnt_u32_b32": _bits(lambda a, b: bit_count(a) + b),
    "v_bfe_u32": _bits(_extract_unsigned),
    "v_bfe_i32": _bits(_extract_signed),
    "v_bfi_b32": _bits(lambda a, b, c: a & b | ~a & c),
    "v_bfm_b32": _bits(lambda a, b: (U32(1) << _shift(a, 32)) - U32(1) << _shift(b, 32)),
    "v_alignbit_b32": _bits(lambda a, b, c: _joined(a, b, c & U32(31))),
    "v_alignbyte_b32": _bits(lambda a, b, c: _joined(a, b, (c & U32(3)) << U32(3))),
    "v_perm_b32": _bits(_byte_permute),
    "v_lerp_u8": _bits(_average),
    "v_sad_u8": lambda ctx, a, b, c: given(ctx, _sum_of_differences(a, b) + c.astype(I64), "u32"),
    "v_sad_hi_u8": lambda ctx, a, b, c: given(ctx, (_sum_of_differences(a, b) << 16) + c.astype(I64), "u32"),
    "v_msad_u8": lambda ctx, a, b, c: given(ctx, _masked_differences(a, b) + c.astype(I64), "u32"),
    "v_sad_u16": _wide("u32", _half_differences),
    "v_sad_u32": _wide("u32", lambda a, b, c: abs(a - b) + c),
    "v_qsad_pk_u16_u8": _quad(_sum_of_differences, 16),
    "v_mqsad_pk_u16_u8": _quad(_masked_differences, 16),
    "v_mqsad_u32_u8": _quad(_masked_differences, 32),
    "v_nop": lambda _: (),
    "v_pipeflush": lambda _: (),
}
