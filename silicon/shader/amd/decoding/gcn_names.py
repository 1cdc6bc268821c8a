"""Mnemonics of GCN that RDNA3 renamed: patterns, and the engines' names.

Source: CDNA3 and RDNA3 ISA references, "Instructions"; the same opcodes under both names.
"""

from __future__ import annotations

import re
from functools import cache

_LOADS = "(s_buffer|s_scratch|s|flat|global|scratch|buffer)"
# The first pattern that matches the whole name decides; what none matches keeps its name.
_PATTERNS = (
    (_LOADS + r"_(load|store)_dword", r"\1_\2_b32"),
    (_LOADS + r"_(load|store)_dwordx2", r"\1_\2_b64"),
    (_LOADS + r"_(load|store)_dwordx3", r"\1_\2_b96"),
    (_LOADS + r"_(load|store)_dwordx4", r"\1_\2_b128"),
    (_LOADS + r"_load_dwordx8", r"\1_load_b256"),
    (_LOADS + r"_load_dwordx16", r"\1_load_b512"),
    (r"(\w+)_load_ubyte", r"\1_load_u8"),
    (r"(\w+)_load_sbyte", r"\1_load_i8"),
    (r"(\w+)_load_ushort", r"\1_load_u16"),
    (r"(\w+)_load_sshort", r"\1_load_i16"),
    (r"(\w+)_load_ubyte_(d16|d16_hi)", r"\1_load_\2_u8"),
    (r"(\w+)_load_sbyte_(d16|d16_hi)", r"\1_load_\2_i8"),
    (r"(\w+)_load_short_(d16|d16_hi)", r"\1_load_\2_b16"),
    (r"(\w+)_store_byte", r"\1_store_b8"),
    (r"(\w+)_store_short", r"\1_store_b16"),
    (r"(\w+)_store_byte_d16_hi", r"\1_store_d16_hi_b8"),
    (r"(\w+)_store_short_d16_hi", r"\1_store_d16_hi_b16"),
    (r"(\w+)_load_lds_dword", r"\1_load_lds_b32"),
    (r"(\w+)_load_lds_dwordx3", r"\1_load_lds_b96"),
    (r"(\w+)_load_lds_dwordx4", r"\1_load_lds_b128"),
    (r"(\w+)_load_lds_ubyte", r"\1_load_lds_u8"),
    (r"(\w+)_load_lds_sbyte", r"\1_load_lds_i8"),
    (r"(\w+)_load_lds_ushort", r"\1_load_lds_u16"),
    (r"(\w+)_load_lds_sshort", r"\1_load_lds_i16"),
    (r"(\w+)_atomic_(add|sub|inc|dec)", r"\1_atomic_\2_u32"),
    (r"(\w+)_atomic_(add|sub|inc|dec)_x2", r"\1_atomic_\2_u64"),
    (r"(\w+)_atomic_s(min|max)", r"\1_atomic_\2_i32"),
    (r"(\w+)_atomic_s(min|max)_x2", r"\1_atomic_\2_i64"),
    (r"(\w+)_atomic_u(min|max)", r"\1_atomic_\2_u32"),
    (r"(\w+)_atomic_u(min|max)_x2", r"\1_atomic_\2_u64"),
    (r"(\w+)_atomic_(and|or|xor|swap|cmpswap)", r"\1_atomic_\2_b32"),
    (r"(\w+)_atomic_(and|or|xor|swap|cmpswap)_x2", r"\1_atomic_\2_b64"),
    (r"(t?buffer_(?:load|store))_format_(d16|d16_hi)_([xyzw]+)", r"\1_\2_format_\3"),
    (r"ds_read2_(b32|b64)", r"ds_load_2addr_\1"),
    (r"ds_read2st64_(b32|b64)", r"ds_load_2addr_stride64_\1"),
    (r"ds_write2_(b32|b64)", r"ds_store_2addr_\1"),
    (r"ds_write2st64_(b32|b64)", r"ds_store_2addr_stride64_\1"),
    (r"ds_wrxchg2_rtn_(b32|b64)", r"ds_storexchg_2addr_rtn_\1"),
    (r"ds_wrxchg2st64_rtn_(b32|b64)", r"ds_storexchg_2addr_stride64_rtn_\1"),
    (r"ds_wrxchg_rtn_(b32|b64)", r"ds_storexchg_rtn_\1"),
    (r"ds_cmpst_(rtn_)?(b32|b64|f32|f64)", r"ds_cmpstore_\1\2"),
    (r"ds_read_(\w+)", r"ds_load_\1"),
    (r"ds_write_(\w+)", r"ds_store_\1"),
    (r"s_ff1_i32_(b32|b64)", r"s_ctz_i32_\1"),
    (r"s_flbit_i32_b32", "s_clz_i32_u32"),
    (r"s_flbit_i32_b64", "s_clz_i32_u64"),
    (r"s_flbit_i32", "s_cls_i32"),
    (r"s_flbit_i32_i64", "s_cls_i32_i64"),
    (r"s_andn2_(b32|b64)", r"s_and_not1_\1"),
    (r"s_orn2_(b32|b64)", r"s_or_not1_\1"),
    (r"s_andn2_(saveexec|wrexec)_b64", r"s_and_not1_\1_b64"),
    (r"s_orn2_saveexec_b64", "s_or_not1_saveexec_b64"),
    (r"s_andn1_(saveexec|wrexec)_b64", r"s_and_not0_\1_b64"),
    (r"s_orn1_saveexec_b64", "s_or_not0_saveexec_b64"),
    (r"v_(add|sub|subrev)_(u32|u16|i32|i16)", r"v_\1_nc_\2"),
    (r"v_addc_co_u32", "v_add_co_ci_u32"),
    (r"v_subb_co_u32", "v_sub_co_ci_u32"),
    (r"v_subbrev_co_u32", "v_subrev_co_ci_u32"),
    (r"v_ffbh_u32", "v_clz_i32_u32"),
    (r"v_ffbl_b32", "v_ctz_i32_b32"),
    (r"v_ffbh_i32", "v_cls_i32"),
    (r"v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"),
    (r"v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"),
    (r"v_cvt_pknorm_(\w+)", r"v_cvt_pk_norm_\1"),
    (r"v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"),
    (r"v_mul_legacy_f32", "v_mul_dx9_zero_f32"),
    (r"v_(cmpx?)_tru_(\w+)", r"v_\1_t_\2"),
    (r"v_dot2c_f32_(b?f16)", r"v_dot2acc_f32_\1"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), name) for pattern, name in _PATTERNS)


@cache
def engine_name(mnemonic: str) -> str:
    """Return the engines' name of an instruction of GCN."""
    for pattern, name in _COMPILED:
        found = pattern.fullmatch(mnemonic)
        if found is not None:
            return found.expand(name)
    return mnemonic
