"""Reserved bits: bits of an instruction that its opcode does not use and that must hold one value.

Source: RDNA3 ISA reference, "Microcode Formats", for the fields. Which of them a decoder requires was measured with
LLVM 22, by flipping every bit of every opcode. Hardware ignores most of them.
"""

from __future__ import annotations

import re

from ringup.autogen.isa import FormatFacts, InstructionFacts
from ringup.silicon.shader.amd.decoding.generations import CDNA3, RDNA3, RDNA4, Generation
from ringup.silicon.shader.amd.decoding.images import has_spare_address

_VOP = {
    "SOPP": ("simm16",), "VOP1": ("vdst",), "VOP3": ("clmp", "omod", "vdst", "neg", "abs", "opsel"), "VOP3SD": ("neg", "omod"),
    "VOP3P": ("clmp", "opsel", "neg", "neg_hi"), "FLAT": ("sve",), "GLOBAL": ("sve",),
}  # fmt: skip
_DS = ("addr", "data0", "data1", "offset0", "offset1", "vdst")
# By generation and format: the fields that must be zero (or the value in `_FIXED`) in opcodes that do not use them.
_ZERO_IF_UNUSED = {
    RDNA3.family: _VOP | {
        "SMEM": ("dlc", "glc"), "DS": (*_DS, "gds"), "MTBUF": ("tfe",), "MUBUF": ("dlc", "glc", "idxen", "offen", "tfe"),
        "MIMG": ("d16", "ssamp"),
    },
    CDNA3.family: {
        **{one: _VOP[one] for one in ("SOPP", "VOP1", "VOP3", "VOP3SD", "VOP3P")}, "DS": (*_DS, "gds", "acc"), "FLAT": ("saddr", "lds"),
        "GLOBAL": ("lds", "acc"), "SCRATCH": ("acc",), "MUBUF": ("lds", "idxen", "acc"),
        "VOP3P-MAI": ("cbsz", "abid", "blgp"), "VOP3PX2": ("abid",),
    },
    RDNA4.family: _VOP | {
        "DS": _DS, "MUBUF": ("tfe",), "VIMAGE": ("d16", "vaddr4"), "VSAMPLE": ("d16", "samp"),
    },
}  # fmt: skip
_FIXED = {
    RDNA3.family: {"FLAT": {"saddr": 124}},
    CDNA3.family: {"VOP3PX2": {"abid": 1}},
    RDNA4.family: {"FLAT": {"saddr": 124}, "GLOBAL": {"saddr": 124}},
}
# Of image_bvh*_intersect_ray.
_RAYS = {
    "MIMG": dict.fromkeys(("glc", "dlc", "slc", "dim", "lwe", "tfe"), 0) | {"dmask": 15},
    "VIMAGE": dict.fromkeys(("th", "scope", "dim", "tfe"), 0) | {"dmask": 15},
}
# RDNA4's prefetches and probes have a number of five bits in sdata.
_LENGTH_BITS = 31
# Products of matrices and of 8-bit floats: they ignore op_sel_hi, whose bits must be set.
_WHOLE = ("v_wmma", "v_swmmac", "v_dot4_f32")
_SET = {"opsel_hi": 3, "opsel_hi2": 1}
# Bits in no field. Those of MUBUF are the sign of an offset that may not be negative.
_ZERO_BITS = {
    RDNA3.family: {"VOP3P": 1 << 23, "LDSDIR": 3 << 22},
    CDNA3.family: {},
    RDNA4.family: {"VOP3P": 1 << 23, "LDSDIR": 1 << 22, "DS": 1 << 17, "MUBUF": 1 << 95},
}

# Bit i: the neg and abs bits of VOP3 source i may be set without effect. For other opcodes: the sources for which neg
# or op_sel has an effect.
_SIGNS_TAKEN = {
    "v_cmpx_class_f32": 3, "v_cmpx_class_f64": 3, "v_ldexp_f32": 3, "v_ldexp_f64": 3, "v_trig_preop_f64": 3, "v_cvt_pk_u8_f32": 7,
    "v_permlane16_b32": 0, "v_permlanex16_b32": 0, "v_cndmask_b16": 3, "v_permlane16_var_b32": 0, "v_permlanex16_var_b32": 0,
    "v_cvt_f32_fp8": 0, "v_cvt_f32_bf8": 0,
}  # fmt: skip
_OPSEL_ZERO = {
    "v_mov_b16": 6, "v_add_nc_u16": 4, "v_sub_nc_u16": 4, "v_add_nc_i16": 4, "v_sub_nc_i16": 4, "v_pack_b32_f16": 4,
    "v_cvt_pk_norm_i16_f16": 4, "v_cvt_pk_norm_u16_f16": 4, "v_minimum_f16": 4, "v_maximum_f16": 4, "v_permlane16_var_b32": 4,
    "v_permlanex16_var_b32": 4, "v_cvt_pk_fp8_f32": 4, "v_cvt_pk_bf8_f32": 4, "v_cvt_pk_f32_fp8": 6, "v_cvt_pk_f32_bf8": 6,
    "v_cvt_f32_fp8": 12, "v_cvt_f32_bf8": 12, "v_cvt_sr_fp8_f32": 3, "v_cvt_sr_bf8_f32": 3,
}  # fmt: skip
# Of GCN: fields of registers that may be accumulation registers; instructions that only LDS has; sources whose sign
# bits may be set; halves that there are not.
_ACC_FIELDS = frozenset(("vdst", "data", "data0", "data1", "vdata"))
_NEVER_GDS = frozenset(("ds_nop", "ds_permute_b32", "ds_bpermute_b32"))
_GCN_SIGNS = {
    "v_dot2c_i32_i16": 3, "v_dot4c_i32_i8": 3, "v_dot8c_i32_i4": 3, "v_ldexp_f16": 3, "v_ldexp_f32": 3, "v_ldexp_f64": 3,
    "v_cvt_pkaccum_u8_f32": 3, "v_trig_preop_f64": 3, "v_cvt_pk_u8_f32": 7, "v_cvt_sr_fp8_f32": 7, "v_cvt_sr_bf8_f32": 7,
}  # fmt: skip
_GCN_OPSEL_ZERO = {"v_bitop3_b32": 15} | dict.fromkeys(
    ("v_cvt_pk_norm_i16_f16", "v_cvt_pk_norm_u16_f16", "v_add_nc_i16", "v_sub_nc_i16", "v_pack_b32_f16", "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32"),
    4,
)  # fmt: skip
# Of CDNA4: conversions with a scale, and those of two sources.
_SCALED = re.compile(r"v_cvt_scalef32_(sr_)?(pk_)?(fp8|bf8|fp4)_\w+|v_ashr_pk_\w+")
_OF_TWO = re.compile(
    r"v_cvt_scalef32_(pk_)?(f32|f16|bf16)_\w+|v_cvt_scalef32_pk_(fp8|bf8)_b?f16|v_cvt_sr_b?f16_f32|v_cvt_pk_bf16_f32"
)
# Bits of ABID, ABS and NEG of a scale that is loaded apart, which LLVM ignores.
_APART = {"abid": 11, "cbsz": 3, "blgp": 3}
_SOURCES = frozenset(("src0", "src1", "src2"))


def required_bits(row: InstructionFacts, fmt: FormatFacts, of: Generation) -> tuple[int, int]:
    """Return (mask, value): an encoding of `row` whose masked bits differ from `value` is illegal."""
    used = _modifier_bits(row)
    for operand in row.operands:
        used[operand.field] = -1
    for flag in row.flags:
        if flag.startswith("needs-"):
            used[flag.removeprefix("needs-").partition("=")[0]] = -1
    wanted = dict.fromkeys(_ZERO_IF_UNUSED[of.family].get(row.format, ()), 0) | _FIXED[of.family].get(row.format, {})
    if row.mnemonic.endswith("intersect_ray"):
        wanted |= _RAYS[row.format]
    if of is RDNA4 and any(one.field == "sdata" and one.kinds == ("imm",) for one in row.operands):
        wanted, used["sdata"] = wanted | {"sdata": 0}, _LENGTH_BITS
    if row.format == "VSAMPLE" and has_spare_address(row.mnemonic):
        wanted["vaddr3"] = 0
    if of is RDNA4 and row.mnemonic.startswith(_WHOLE):
        wanted |= _SET
    # How many sets of indices there are depends on the size of the wave.
    if row.mnemonic.startswith("v_swmmac"):
        used["opsel"] = 3
    if of.is_gcn:
        used |= _of_gcn(row)
    if row.mnemonic == "v_mfma_ld_scale_b32":
        wanted |= {"vdst": 0, "acc_cd": 0}
    if row.format == "VOP3":
        signs = signs_taken(row, of)
        zero = (_GCN_OPSEL_ZERO if of.is_gcn else _OPSEL_ZERO).get(row.mnemonic, 0)
        if of.is_gcn and _OF_TWO.fullmatch(row.mnemonic):
            zero = 4
        used |= {"neg": signs, "abs": signs, "opsel": ~zero}
        if row.mnemonic.startswith("v_cmpx"):
            used["vdst"] = -1
    mask, value = _ZERO_BITS[of.family].get(row.format, 0), 0
    # The sign of the offset.
    if of is RDNA4 and row.mnemonic.startswith(("s_buffer", "s_atc_probe_buffer")):
        mask |= 1 << fmt.fields["offset"][0]
    for name, number in wanted.items():
        hi, lo = fmt.fields[name]
        field = (1 << hi - lo + 1) - 1 & ~used.get(name, 0)
        mask |= field << lo
        value |= (number & field) << lo
    return mask, value


def _modifier_bits(row: InstructionFacts) -> dict[str, int]:
    used: dict[str, int] = {}
    for modifier in row.modifiers:
        used[modifier.field] = used.get(modifier.field, 0) | modifier.bits
    return used


def _of_gcn(row: InstructionFacts) -> dict[str, int]:
    """Return the fields that instructions of GCN use without an operand of their name."""
    fields = {one.field for one in row.operands}
    found = {"acc": -1} if not fields.isdisjoint(_ACC_FIELDS) else {}
    if row.mnemonic in ("v_accvgpr_read_b32", "v_accvgpr_write_b32"):
        found["abid"] = 8
    if row.mnemonic == "v_mfma_ld_scale_b32":
        found |= _APART
    return found | ({"gds": -1} if row.format == "DS" and row.mnemonic not in _NEVER_GDS else {})


def signs_taken(row: InstructionFacts, of: Generation) -> int:
    """Return the sources (bit i: source i) of a VOP3 instruction whose neg and abs bits may be set."""
    used = _modifier_bits(row)
    if of.is_gcn and _OF_TWO.fullmatch(row.mnemonic):
        return 3
    if of.is_gcn and _SCALED.fullmatch(row.mnemonic):
        return 7
    if of.is_gcn:
        return _GCN_SIGNS.get(row.mnemonic, used.get("neg", 0))
    if row.mnemonic in _SIGNS_TAKEN:
        return _SIGNS_TAKEN[row.mnemonic]
    sources = sum(one.field in _SOURCES for one in row.operands)
    return used.get("neg", 0) | ((1 << sources) - 1 if "opsel" in used else 0)


def unused_halves(row: InstructionFacts) -> int:
    """Return the op_sel bits that must be zero once a sign bit is set: those of 16-bit integers, which have no sign
    bits.
    """
    used = _modifier_bits(row)
    if row.format != "VOP3" or "opsel" not in used or "neg" in used:
        return 0
    return ~used["opsel"] & 0xF
