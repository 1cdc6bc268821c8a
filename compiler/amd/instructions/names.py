"""Names of instructions that differ between generations. Selection and the passes use GFX11's names.

GFX12's names are set at the end of selection. GFX9's are looked up where facts, text or bytes are needed (`spelled`),
so that the passes know one name for each access. Source: LLVM AMDGPU, AMDGPUAsmGFX9, AMDGPUAsmGFX940, AMDGPUAsmGFX11
and AMDGPUAsmGFX12 (instruction lists).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from ringup.autogen.isa import target as facts_of

GFX12_NAMES: Final = {
    "s_add_u32": "s_add_co_u32", "s_addc_u32": "s_add_co_ci_u32", "s_sub_u32": "s_sub_co_u32", "s_subb_u32": "s_sub_co_ci_u32",
    "s_add_i32": "s_add_co_i32", "s_sub_i32": "s_sub_co_i32", "v_mad_u64_u32": "v_mad_co_u64_u32", "v_mad_i64_i32": "v_mad_co_i64_i32",
    "global_atomic_min_f32": "global_atomic_min_num_f32", "global_atomic_max_f32": "global_atomic_max_num_f32",
    "s_min_f32": "s_min_num_f32", "s_max_f32": "s_max_num_f32", "s_min_f16": "s_min_num_f16", "s_max_f16": "s_max_num_f16",
    **{f"v_{name}_f{bits}": f"v_{name}_num_f{bits}" for name in ("min", "max") for bits in (16, 32, 64)},
    **{f"v_{name}_f{bits}": f"v_{name}_num_f{bits}" for name in ("min3", "max3", "med3") for bits in (16, 32)},
    **{f"v_pk_{name}_f16": f"v_pk_{name}_num_f16" for name in ("min", "max")},
}  # fmt: skip

_DWORDS: Final = {"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4"}
_LOADS: Final = _DWORDS | {"u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort"}
_STORES: Final = _DWORDS | {"b8": "byte", "b16": "short", "d16_hi_b8": "byte_d16_hi"}
_SUFFIXES: Final = {"u32": "", "u64": "_x2", "b32": "", "b64": "_x2", "i32": "", "i64": "_x2"}
_GFX9_NAMES: Final = {
    **{f"s_load_b{32 * count}": f"s_load_dword{f'x{count}' if count > 1 else ''}" for count in (1, 2, 4, 8, 16)},
    **{f"{place}_load_{one}": f"{place}_load_{other}" for place in ("global", "buffer", "scratch") for one, other in _LOADS.items()},
    **{f"{place}_store_{one}": f"{place}_store_{other}" for place in ("global", "buffer", "scratch") for one, other in _STORES.items()},
    **{f"ds_load_{one}": f"ds_read_{one}" for one in ("b32", "b64", "b96", "b128", "u8", "i8", "u16", "i16")},
    **{f"ds_store_{one}": f"ds_write_{one}" for one in ("b32", "b64", "b96", "b128", "b8", "b16", "b8_d16_hi")},
    **{f"ds_{one}_2addr_{bits}": f"ds_{other}2_{bits}" for one, other in (("load", "read"), ("store", "write")) for bits in ("b32", "b64")},
    **{f"ds_{one}_2addr_stride64_{bits}": f"ds_{other}2st64_{bits}"
       for one, other in (("load", "read"), ("store", "write")) for bits in ("b32", "b64")},
    **{f"global_atomic_{name}_{kind}{bits}": f"global_atomic_{sign}{name}{_SUFFIXES[f'{kind}{bits}']}"
       for name in ("min", "max") for kind, sign in (("i", "s"), ("u", "u")) for bits in (32, 64)},
    **{f"global_atomic_{name}_u{bits}": f"global_atomic_{name}{_SUFFIXES[f'u{bits}']}" for name in ("add", "sub") for bits in (32, 64)},
    **{f"global_atomic_{name}_b{bits}": f"global_atomic_{name}{_SUFFIXES[f'b{bits}']}"
       for name in ("and", "or", "xor", "swap") for bits in (32, 64)},
    **{f"v_{name}_nc_u{bits}": f"v_{name}_u{bits}" for name in ("add", "sub") for bits in (16, 32)},
    "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_co_ci_u32": "v_addc_co_u32", "v_sub_co_ci_u32": "v_subb_co_u32", "v_clz_i32_u32": "v_ffbh_u32",
    "s_clz_i32_u32": "s_flbit_i32_b32", "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64",
}  # fmt: skip
_SPELLED: Final[Mapping[str, Mapping[str, str]]] = {"gfx9": _GFX9_NAMES}


def spelled(target: str, mnemonic: str) -> str:
    """Return a processor's name of an instruction."""
    return spellings(target).get(mnemonic, mnemonic)


@cache
def spellings(target: str) -> Mapping[str, str]:
    """Return the instructions that a processor names differently from the passes."""
    return _SPELLED.get(target[:4], {})


@cache
def has(target: str, mnemonic: str) -> bool:
    """Return whether a processor has an instruction, by its name in the passes."""
    return bool(facts_of(target).by_mnemonic(spelled(target, mnemonic)))
