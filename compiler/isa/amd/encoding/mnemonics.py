"""Spellings of mnemonics: suffixes that select an encoding, and older names that assemblers still accept.

Source: LLVM AMDGPUOperandSyntax, "Instruction mnemonics". Names that differ between generations were checked with
llvm-mc 22.
"""

from __future__ import annotations

import re

_SUFFIXES = {"_e32": ("_e32",), "_e64": ("_e64",), "_e64_dpp": ("_e64_dpp",), "_dpp": ("_dpp",), "_sdwa": ("_sdwa",)}
_SIZES = {
    "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128",
    "dwordx8": "b256", "dwordx16": "b512", "byte": "b8", "short": "b16", "ubyte_d16": "d16_u8", "ubyte_d16_hi": "d16_hi_u8",
    "sbyte_d16": "d16_i8", "sbyte_d16_hi": "d16_hi_i8", "short_d16": "d16_b16", "short_d16_hi": "d16_hi_b16", "byte_d16_hi": "d16_hi_b8",
}  # fmt: skip

_ATOMICS = {
    "add": "add_u32", "sub": "sub_u32", "smin": "min_i32", "umin": "min_u32", "smax": "max_i32", "umax": "max_u32", "and": "and_b32",
    "or": "or_b32", "xor": "xor_b32", "inc": "inc_u32", "dec": "dec_u32", "swap": "swap_b32", "cmpswap": "cmpswap_b32",
    "fcmpswap": "cmpswap_f32", "fmin": "min_f32", "fmax": "max_f32",
}  # fmt: skip


def split_suffix(mnemonic: str) -> tuple[str, tuple[str, ...] | None]:
    """Return the mnemonic without its encoding suffix, and the suffixes that are meant; None: any."""
    for suffix in ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"):
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)], _SUFFIXES[suffix]
    return mnemonic, None


def aliases_of(name: str, generation: int) -> list[str]:
    """Return the present names for a name of an earlier generation."""
    found: list[str] = []
    if generation >= 11:
        match = re.fullmatch(r"((?:s_buffer|s|buffer|global|flat|scratch)_(?:load|store))_(\w+)", name)
        if match and match[2] in _SIZES:
            found.append(f"{match[1]}_{_SIZES[match[2]]}")
        match = re.fullmatch(r"ds_(read|write)(2?)(st64)?_(b32|b64|b96|b128|b8|b16|u8|i8|u16|i16)(_d16)?(_hi)?", name)
        if match:
            two = "_2addr" if match[2] else ""
            action = "load" if match[1] == "read" else "store"
            found.append(
                f"ds_{action}{two}{'_stride64' if match[3] else ''}_{match[4]}{match[5] or ''}{match[6] or ''}"
            )
        match = re.fullmatch(r"ds_wrxchg(2?)(st64)?_rtn_(b32|b64)", name)
        if match:
            found.append(f"ds_storexchg{'_2addr' if match[1] else ''}{'_stride64' if match[2] else ''}_rtn_{match[3]}")
        match = re.fullmatch(r"((?:buffer|flat|global)_atomic)_(\w+?)(_x2)?", name)
        if match and match[2] in _ATOMICS:
            operation = _ATOMICS[match[2]]
            found.append(f"{match[1]}_{operation[:-2] + '64' if match[3] else operation}")
        if name.startswith(("v_cmp_tru_", "v_cmpx_tru_")):
            found.append(name.replace("_tru_", "_t_"))
        found += _ONE_TO_ONE.get(name, ())
    if generation == 12:
        found += _TO_GFX12.get(name, ())
    return found


_ONE_TO_ONE: dict[str, tuple[str, ...]] = {
    "s_andn1_saveexec_b32": ("s_and_not0_saveexec_b32",), "s_andn1_saveexec_b64": ("s_and_not0_saveexec_b64",),
    "s_andn2_saveexec_b32": ("s_and_not1_saveexec_b32",), "s_andn2_saveexec_b64": ("s_and_not1_saveexec_b64",),
    "s_andn2_b32": ("s_and_not1_b32",), "s_andn2_b64": ("s_and_not1_b64",), "s_orn2_b32": ("s_or_not1_b32",), "s_orn2_b64": ("s_or_not1_b64",),
    "s_ff1_i32_b32": ("s_ctz_i32_b32",), "s_ff1_i32_b64": ("s_ctz_i32_b64",), "s_flbit_i32_b32": ("s_clz_i32_u32",),
    "s_flbit_i32_b64": ("s_clz_i32_u64",), "s_flbit_i32": ("s_cls_i32",), "s_flbit_i32_i64": ("s_cls_i32_i64",),
    "v_ffbh_u32": ("v_clz_i32_u32",), "v_ffbl_b32": ("v_ctz_i32_b32",), "v_ffbh_i32": ("v_cls_i32",),
    "v_mul_legacy_f32": ("v_mul_dx9_zero_f32",), "v_fmac_legacy_f32": ("v_fmac_dx9_zero_f32",), "v_fma_legacy_f32": ("v_fma_dx9_zero_f32",),
    "v_dot2c_f32_f16": ("v_dot2acc_f32_f16",), "v_add_u32": ("v_add_nc_u32",), "v_sub_u32": ("v_sub_nc_u32",),
    "v_subrev_u32": ("v_subrev_nc_u32",), "v_mbcnt_lo_u32": ("v_mbcnt_lo_u32_b32",), "v_cvt_pkrtz_f16_f32": ("v_cvt_pk_rtz_f16_f32",),
    "v_cvt_rpi_i32_f32": ("v_cvt_nearest_i32_f32",), "v_cvt_flr_i32_f32": ("v_cvt_floor_i32_f32",),
    "v_cvt_pknorm_i16_f16": ("v_cvt_pk_norm_i16_f16",), "v_cvt_pknorm_u16_f16": ("v_cvt_pk_norm_u16_f16",),
    "v_cvt_pknorm_i16_f32": ("v_cvt_pk_norm_i16_f32",), "v_cvt_pknorm_u16_f32": ("v_cvt_pk_norm_u16_f32",),
    "ds_write_addtid_b32": ("ds_store_addtid_b32",),
    "ds_read_addtid_b32": ("ds_load_addtid_b32",), "s_inst_prefetch": ("s_set_inst_prefetch_distance",),
}  # fmt: skip
_TO_GFX12: dict[str, tuple[str, ...]] = {
    "s_add_u32": ("s_add_co_u32",), "s_sub_u32": ("s_sub_co_u32",), "s_add_i32": ("s_add_co_i32",), "s_sub_i32": ("s_sub_co_i32",),
    "s_addc_u32": ("s_add_co_ci_u32",), "s_subb_u32": ("s_sub_co_ci_u32",), "s_addk_i32": ("s_addk_co_i32",),
    "s_waitcnt_depctr": ("s_wait_alu",), "v_max_f32": ("v_max_num_f32",), "v_min_f32": ("v_min_num_f32",), "v_max_f16": ("v_max_num_f16",),
    "v_min_f16": ("v_min_num_f16",), "v_max_f64": ("v_max_num_f64",), "v_min_f64": ("v_min_num_f64",),
}  # fmt: skip
