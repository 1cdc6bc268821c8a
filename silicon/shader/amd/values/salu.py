"""The scalar ALU: integers of 32 and 64 bits and SCC. Branches, waits, messages and hardware registers are elsewhere.

Source: RDNA3 ISA reference, "SOP2", "SOPK", "SOP1" and "SOPC Instructions".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ringup.silicon.shader.amd.values.context import Ctx, Scalar

MASKS = {32: 0xFFFF_FFFF, 64: 0xFFFF_FFFF_FFFF_FFFF}
_Result = tuple[int | None, int | None]


def signed(value: int, bits: int) -> int:
    """Return the low `bits` of `value` as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits and value >> bits - 1 else value


def _with_zero_test(bits: int, compute: Callable[..., int]) -> Scalar:
    """Return an operation that sets SCC if the result is not zero."""

    def run(_: Ctx, *sources: int) -> _Result:
        result = compute(*sources) & MASKS[bits]
        return result, int(result != 0)

    return run


def _without_scc(bits: int, compute: Callable[..., int]) -> Scalar:
    return lambda _, *sources: (compute(*sources) & MASKS[bits], None)


def _add_sub_unsigned(sign: int, with_scc: bool) -> Scalar:
    def run(ctx: Ctx, a: int, b: int) -> _Result:
        total = a + sign * (b + (ctx.scc if with_scc else 0))
        return total & MASKS[32], int(not 0 <= total <= MASKS[32])

    return run


def _add_sub_signed(sign: int) -> Scalar:
    """Return a sum or difference that sets SCC on signed overflow."""

    def run(_: Ctx, a: int, b: int) -> _Result:
        total = signed(a, 32) + sign * signed(b, 32)
        return total & MASKS[32], int(total != signed(total, 32))

    return run


def _shift_add(count: int) -> Scalar:
    def run(_: Ctx, a: int, b: int) -> _Result:
        total = (a << count) + b
        return total & MASKS[32], int(total > MASKS[32])

    return run


def _choose(is_signed: bool, is_better: Callable[[int, int], bool]) -> Scalar:
    """Return a selection that sets SCC if it takes the first source.

    UNKNOWN: SCC of s_max on RDNA4 for equal sources. Its document has a table with > and a formula with >=.
    """

    def run(_: Ctx, a: int, b: int) -> _Result:
        first, second = (signed(a, 32), signed(b, 32)) if is_signed else (a, b)
        taken = is_better(first, second)
        return (a if taken else b), int(taken)

    return run


def _extract(bits: int, is_signed: bool) -> Scalar:
    """Extract the field at S1[5:0] (S1[4:0] for 32 bits) of S1[22:16] bits."""

    def run(a: int, b: int) -> int:
        offset, width = b & bits - 1, b >> 16 & 0x7F
        field = (signed(a, bits) if is_signed else a) >> offset
        if width >= bits:
            return field
        return signed(field, width) if is_signed else field & (1 << width) - 1

    return _with_zero_test(bits, run)


def _field_mask(bits: int) -> Scalar:
    return _without_scc(bits, lambda a, b: (1 << (a & bits - 1)) - 1 << (b & bits - 1))


def _pack(first_high: int, second_high: int) -> Scalar:
    def run(_: Ctx, a: int, b: int) -> _Result:
        return (a >> 16 * first_high & 0xFFFF) | (b >> 16 * second_high & 0xFFFF) << 16, None

    return run


def _select(ctx: Ctx, a: int, b: int) -> _Result:
    return (a if ctx.scc else b), None


def _move_if_scc(ctx: Ctx, _: int, value: int) -> _Result:
    return (value & MASKS[ctx.ins.defs[0].size_bits] if ctx.scc else None), None


def _set_bit(bits: int, to: int) -> Scalar:
    def run(_: Ctx, old: int, index: int) -> _Result:
        bit = 1 << (index & bits - 1)
        return (old | bit if to else old & ~bit), None

    return run


def _reversed(bits: int) -> Scalar:
    return _without_scc(bits, lambda a: int(f"{a:0{bits}b}"[::-1], 2))


def trailing_zeros(value: int) -> int:
    """Return the number of the lowest set bit, -1 if there is none."""
    return (value & -value).bit_length() - 1


def _leading_zeros(value: int, bits: int) -> int:
    return bits - value.bit_length() if value else -1


def _leading_signs(value: int, bits: int) -> int:
    """Return how many leading bits equal the sign bit, -1 if all do."""
    differing = value ^ (MASKS[bits] if value >> bits - 1 else 0)
    return _leading_zeros(differing, bits)


def _replicated(value: int) -> int:
    return sum(3 << 2 * bit for bit in range(32) if value >> bit & 1)


def _quads(value: int, bits: int) -> int:
    """Return one bit for each four bits: whether any is set."""
    return sum(1 << quad for quad in range(bits // 4) if value >> 4 * quad & 0xF)


def _whole_quads(value: int, bits: int) -> int:
    return sum(0xF << 4 * quad for quad in range(bits // 4) if value >> 4 * quad & 0xF)


def _absolute_difference(a: int, b: int) -> int:
    """Return |a - b|. QUIRK: the difference wraps before its sign is taken: 0x80000000 and 0 give 0x80000000."""
    return abs(signed(a - b, 32))


# Operations on the source and EXEC.
_LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b), "and_not0": lambda a, b: ~a & b, "or_not0": lambda a, b: ~a | b, "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
}  # fmt: skip


def _on_exec(bits: int, logic: Callable[[int, int], int], gives_new: bool) -> Scalar:
    """Return the old EXEC (saveexec) or the new one (wrexec); EXEC becomes `logic` of the source and itself."""

    def run(ctx: Ctx, source: int) -> tuple[int, int, int]:
        old = ctx.exec_bits & MASKS[bits]
        new = logic(source, old) & MASKS[bits]
        return (new if gives_new else old), int(new != 0), new

    return run


_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "lg": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le,
}  # fmt: skip


def _compare(bits: int, is_signed: bool, compare: Callable[[Any, Any], bool]) -> Scalar:
    def run(_: Ctx, a: int, b: int) -> _Result:
        if is_signed:
            return None, int(compare(signed(a, bits), signed(b, bits)))
        return None, int(compare(a & MASKS[bits], b & MASKS[bits]))

    return run


def _test_bit(bits: int, wanted: int) -> Scalar:
    return lambda _, a, b: (None, int(a >> (b & bits - 1) & 1 == wanted))


_SIZED: dict[str, Callable[[int], Scalar]] = {
    "s_lshl_b{}": lambda bits: _with_zero_test(bits, lambda a, b: a << (b & bits - 1)),
    "s_lshr_b{}": lambda bits: _with_zero_test(bits, lambda a, b: a >> (b & bits - 1)),
    "s_ashr_i{}": lambda bits: _with_zero_test(bits, lambda a, b: signed(a, bits) >> (b & bits - 1)),
    "s_bfe_u{}": lambda bits: _extract(bits, False),
    "s_bfe_i{}": lambda bits: _extract(bits, True),
    "s_bfm_b{}": _field_mask,
    "s_cselect_b{}": lambda bits: _select,
    "s_mov_b{}": lambda bits: _without_scc(bits, lambda a: a),
    "s_cmov_b{}": lambda bits: _move_if_scc,
    "s_brev_b{}": _reversed,
    "s_ctz_i32_b{}": lambda bits: _without_scc(32, trailing_zeros),
    "s_clz_i32_u{}": lambda bits: _without_scc(32, lambda a: _leading_zeros(a, bits)),
    "s_bitset0_b{}": lambda bits: _set_bit(bits, 0),
    "s_bitset1_b{}": lambda bits: _set_bit(bits, 1),
    "s_bcnt0_i32_b{}": lambda bits: _with_zero_test(32, lambda a: bits - a.bit_count()),
    "s_bcnt1_i32_b{}": lambda bits: _with_zero_test(32, int.bit_count),
    "s_quadmask_b{}": lambda bits: _with_zero_test(bits, lambda a: _quads(a, bits)),
    "s_wqm_b{}": lambda bits: _with_zero_test(bits, lambda a: _whole_quads(a, bits)),
    "s_not_b{}": lambda bits: _with_zero_test(bits, operator.invert),
    "s_bitcmp0_b{}": lambda bits: _test_bit(bits, 0),
    "s_bitcmp1_b{}": lambda bits: _test_bit(bits, 1),
}

SALU: dict[str, Scalar] = {
    "s_add_u32": _add_sub_unsigned(1, False),
    "s_sub_u32": _add_sub_unsigned(-1, False),
    "s_addc_u32": _add_sub_unsigned(1, True),
    "s_subb_u32": _add_sub_unsigned(-1, True),
    "s_add_i32": _add_sub_signed(1),
    "s_sub_i32": _add_sub_signed(-1),
    "s_addk_i32": _add_sub_signed(1),
    "s_absdiff_i32": _with_zero_test(32, _absolute_difference),
    "s_min_i32": _choose(True, operator.lt),
    "s_min_u32": _choose(False, operator.lt),
    "s_max_i32": _choose(True, operator.gt),
    "s_max_u32": _choose(False, operator.gt),
    "s_mul_i32": _without_scc(32, operator.mul),
    "s_add_nc_u64": _without_scc(64, operator.add),
    "s_sub_nc_u64": _without_scc(64, operator.sub),
    "s_mul_u64": _without_scc(64, operator.mul),
    "s_mulk_i32": _without_scc(32, operator.mul),
    "s_mul_hi_u32": _without_scc(32, lambda a, b: a * b >> 32),
    "s_mul_hi_i32": _without_scc(32, lambda a, b: signed(a, 32) * signed(b, 32) >> 32),
    "s_pack_ll_b32_b16": _pack(0, 0),
    "s_pack_lh_b32_b16": _pack(0, 1),
    "s_pack_hh_b32_b16": _pack(1, 1),
    "s_pack_hl_b32_b16": _pack(1, 0),
    "s_movk_i32": _without_scc(32, lambda a: a),
    "s_cmovk_i32": _move_if_scc,
    "s_cls_i32": _without_scc(32, lambda a: _leading_signs(a, 32)),
    "s_cls_i32_i64": _without_scc(32, lambda a: _leading_signs(a, 64)),
    "s_sext_i32_i8": _without_scc(32, lambda a: signed(a, 8)),
    "s_sext_i32_i16": _without_scc(32, lambda a: signed(a, 16)),
    "s_bitreplicate_b64_b32": _without_scc(64, _replicated),
    "s_abs_i32": _with_zero_test(32, lambda a: abs(signed(a, 32))),
    "s_cmp_eq_u64": _compare(64, False, operator.eq),
    "s_cmp_lg_u64": _compare(64, False, operator.ne),
}
SALU |= {name.format(bits): make(bits) for name, make in _SIZED.items() for bits in (32, 64)}
SALU |= {f"s_lshl{count}_add_u32": _shift_add(count) for count in (1, 2, 3, 4)}
for _bits in (32, 64):
    for _name, _logic in _LOGIC.items():
        if not _name.endswith("_not0"):
            SALU[f"s_{_name}_b{_bits}"] = _with_zero_test(_bits, _logic)
        SALU[f"s_{_name}_saveexec_b{_bits}"] = _on_exec(_bits, _logic, False)
        if _name.startswith("and_not"):
            SALU[f"s_{_name}_wrexec_b{_bits}"] = _on_exec(_bits, _logic, True)
for _name, _logic in _COMPARES.items():
    for _type in "iu":
        SALU[f"s_cmp_{_name}_{_type}32"] = SALU[f"s_cmpk_{_name}_{_type}32"] = _compare(32, _type == "i", _logic)
