"""What differs in GCN's encodings: numbers of scalar registers, accumulation registers, SDWA, operands of 16 bits.

The decoder turns fields and rows of GCN into those that RDNA3 has, so that the engines have one rule for both. Source:
CDNA3 ISA reference, "Scalar ALU Operands", "Microcode Formats", "SDWA", "Accumulation VGPRs".
"""

from __future__ import annotations

from collections.abc import Mapping

from ringup.autogen.isa import InstructionFacts, OperandFacts
from ringup.silicon.shader.amd.decoding import operands as enc

# An accumulation register's number is this many above its own.
FIRST_ACC = 256
SDWA, DPP = 249, 250
NO_ADDRESS = 127
# M0 and NULL have each other's numbers. GCN has no NULL: no operand takes it.
_SWAPPED = {124: enc.M0, 125: enc.NULL}
_NOT_SWAPPED = {"SMEM": ("sbase", "soffset"), "MUBUF": ("srsrc",), "MTBUF": ("srsrc",)}
_SCALAR_KINDS = frozenset(("sgpr", "ttmp", "vcc", "m0", "exec"))
_VECTOR_FORMATS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD"))
_HALF_TYPES = frozenset(("f16", "i16", "u16", "b16"))
# Their 16-bit types are halves of whole dwords.
_WHOLE = ("v_pk_", "v_cvt_scalef32_", "v_cvt_sr_", "v_cvt_pk_bf16_", "v_sat_pk_", "v_dot", "v_sad_u16")
# Of those with a 16-bit type these give two.
_PAIRS = ("v_pack_", "v_cvt_pk")
# A flag of a row: its 16-bit result is one, and clears the other half of its register.
FILLS = "fills"
_WHOLE_FIELDS = {"v_mad_u32_u16": ("src2",), "v_mad_i32_i16": ("src2",)}
# They keep the other half of their register; all others clear it. Source: LLVM GCNSubtarget.cpp,
# zeroesHigh16BitsOfDest; CDNA3 ISA reference, "V_DIV_FIXUP_F16" and "V_DIV_FIXUP_LEGACY_F16".
_KEEPS = ("v_mac_f16", "v_madmk_f16", "v_madak_f16")
_OFFSET = OperandFacts("soffset", "use", ("sgpr", "ttmp", "vcc", "m0", "exec", "null"), 32, "")
# Formats of matrix products.
MATRICES = frozenset(("VOP3P-MAI", "VOP3PX2"))
# Registers of A or B of a product of small floats by their format: FP8, BF8, FP6, BF6, FP4.
# Source: CDNA4 ISA reference, "8-bit and Smaller Matrix Operations and Layouts".
_FACTOR_DWORDS = (8, 8, 6, 6, 4)
FACTOR_FORMATS = {"src0": "cbsz", "src1": "blgp"}
# By bit of the field `acc`: the operand that is an accumulation register.
_ACC_SOURCES = ("src0", "src1")
# dpp_ctrl: quad permutations; shifts and rotations of a row and of the wave; mirrors; broadcasts of a row's end and of
# any of its lanes.
_BROADCASTS = ((0x150, 0x15F),)
_CONTROLS = (
    (0, 0xFF), (0x101, 0x10F), (0x111, 0x11F), (0x121, 0x12F), (0x130, 0x130), (0x134, 0x134), (0x138, 0x138), (0x13C, 0x13C),
    (0x140, 0x143), *_BROADCASTS,
)  # fmt: skip
# Their second source is an integer.
_INTEGER_SECOND = ("v_ldexp_f16", "v_cmp_class", "v_cmpx_class")
_FROM_OCTETS, FROM_EIGHT_BITS = "v_cvt_f32_ubyte", ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_")
# In a DPP dword of these, signs have no effect.
ANY_SIGNS = ("v_ldexp_f16", "v_dot2c_i32", "v_dot4c_i32", "v_dot8c_i32")
_FLOATS = frozenset(("f16", "bf16", "f32", "f64"))
# MODE.gpr_idx_en: the low byte of M0 is added to the numbers of VGPRs, of those operands whose bit in M0 is set.
MODE_INDEXED = 1 << 27
INDEXED = {"src0": 12, "src1": 13, "vsrc1": 13, "src2": 14, "vdst": 15}
# Before the mnemonic of an instruction of whose registers M0 selects some.
INDEXED_PREFIX = "v_indexed_"
# Bytes and words that SDWA selects: the whole dword is 6.
WHOLE_DWORD = 6
# Fields of v_bitop3 that contain its truth table, high bits first.
TABLE_FIELDS = ("omod", "abs", "neg")
# What happens to the rest of the destination, besides zeros.
SIGN_EXTEND, PRESERVE = 1, 2


def row_of(row: InstructionFacts) -> InstructionFacts:
    """Return an instruction with operands as RDNA3's facts have them: 16 bits are 16, scalar loads take a register."""
    if row.format == "SMEM":
        return row._replace(operands=tuple(_OFFSET if one.field == "offset" else one for one in row.operands))
    if row.format not in _VECTOR_FORMATS or row.mnemonic.startswith(_WHOLE):
        return row
    narrow = row._replace(operands=tuple(_narrow(row, one) for one in row.operands))
    result = narrow.operands[0] if narrow.operands else None
    is_one = result is not None and result.size_bits == 32 and result.type in _HALF_TYPES
    return narrow._replace(flags=narrow.flags | {FILLS}) if is_one and not row.mnemonic.startswith(_PAIRS) else narrow


def _narrow(row: InstructionFacts, one: OperandFacts) -> OperandFacts:
    if one.type not in _HALF_TYPES or one.size_bits != 32 or one.field in _WHOLE_FIELDS.get(row.mnemonic, ()):
        return one
    clears = one.direction != "use" and not row.mnemonic.startswith(_KEEPS)
    return one if clears else one._replace(size_bits=16)


def prepare(row: InstructionFacts, fields: dict[str, int]) -> None:
    """Give an instruction's fields the numbers that the engines know."""
    for one in row.operands:
        if one.field == "saddr" and fields["saddr"] == NO_ADDRESS:
            fields["saddr"] = enc.NULL
        elif (
            one.field in fields
            and one.field not in _NOT_SWAPPED.get(row.format, ())
            and not _SCALAR_KINDS.isdisjoint(one.kinds)
        ):
            fields[one.field] = _SWAPPED.get(fields[one.field], fields[one.field])
    if "sc0" in fields:
        fields["glc"] = fields["sc0"]
    if row.format == "FLAT":
        fields["saddr"] = enc.NULL
    if row.format == "SCRATCH":
        fields["sve"] = fields["lds"]
    if row.format == "SMEM":
        _scalar_offset(fields)
    if fields.get("acc") and row.format not in MATRICES:
        for name in ("vdst", "data", "data0", "data1", "vdata"):
            if name in fields:
                fields[name] += FIRST_ACC


def _scalar_offset(fields: dict[str, int]) -> None:
    """Set `offset` and `soffset` of a scalar load: an immediate, a register, or both."""
    register = enc.NULL
    if fields["soe"]:
        register = fields["soffset"]
    elif not fields["imm"]:
        register = fields["offset"] & 0x7F
    fields["soffset"] = _SWAPPED.get(register, register) if register != enc.NULL else register
    if not fields["imm"]:
        fields["offset"] = 0


def part(select: int) -> tuple[int, int]:
    """Return the lowest bit and the number of bits of a byte, word or dword that SDWA selects."""
    if select == WHOLE_DWORD:
        return 0, 32
    return (8 * select, 8) if select < 4 else (16 * (select - 4), 16)


def swapped(code: int) -> int:
    """Return the engines' number of a scalar register."""
    return _SWAPPED.get(code, code)


def is_selection(row: InstructionFacts, extra: Mapping[str, int]) -> bool:
    """Return whether the fields of an SDWA dword are not reserved.

    Floats have signs, integers are extended, and only floats are scaled.
    """
    selectors = (extra["src0_sel"], extra["src1_sel"], extra.get("dst_sel", 0))
    if max(selectors) > WHOLE_DWORD or extra.get("dst_u", 0) > PRESERVE:
        return False
    fields = {one.field for one in row.operands}
    for number, name in enumerate(("src0", "vsrc1")):
        signs, extends = extra[f"src{number}_neg"] | extra[f"src{number}_abs"], extra[f"src{number}_sext"]
        if name not in fields:
            if signs | extends | extra[f"src{number}_sel"] | extra[f"s{number}"]:
                return False
        elif extends if takes_signs(row, number) else signs:
            return False
    if row.mnemonic.startswith(FROM_EIGHT_BITS) and extra["dst_sel"] != WHOLE_DWORD:
        return False
    return not extra.get("omod") or row.operands[0].type in _FLOATS


def takes_signs(row: InstructionFacts, number: int) -> bool:
    """Return whether a source has abs and neg in an SDWA or DPP dword."""
    if row.mnemonic.startswith(_INTEGER_SECOND if number else _FROM_OCTETS):
        return False
    name = ("src0", "vsrc1")[number]
    types = [one.type for one in row.operands if one.field == name]
    return bool(types) and (types[0] in _FLOATS or row.mnemonic.startswith("v_cndmask"))


def is_permutation(row: InstructionFacts, control: int) -> bool:
    """Return whether dpp_ctrl is not reserved. 64-bit values have broadcasts only."""
    ranges = _BROADCASTS if "dpp-newbcast" in row.flags else _CONTROLS
    return any(first <= control <= last for first, last in ranges)


def is_acc(row: InstructionFacts, one: OperandFacts, fields: Mapping[str, int]) -> bool:
    """Return whether a VGPR operand of a vector instruction is an accumulation register."""
    if one.kinds == ("agpr",):
        return True
    if row.format not in MATRICES or row.mnemonic.startswith(("v_accvgpr", "v_mfma_ld_scale")):
        return False
    if one.field in _ACC_SOURCES:
        return bool(fields["acc"] >> _ACC_SOURCES.index(one.field) & 1)
    # The indices of a sparse product and scales are never there.
    has_indices = row.mnemonic.startswith("v_smfmac") and one.field == "src2"
    return bool(fields["acc_cd"]) and not has_indices and not one.field.startswith("src_scale")


def factor_of(one: OperandFacts, fields: Mapping[str, int]) -> OperandFacts:
    """Return A or B of a product of small floats with the registers that its format needs."""
    form = fields[FACTOR_FORMATS[one.field]] if one.field in FACTOR_FORMATS else len(_FACTOR_DWORDS)
    return one._replace(size_bits=32 * _FACTOR_DWORDS[form]) if form < len(_FACTOR_DWORDS) else one


def truth_table(fields: Mapping[str, int]) -> int:
    """Return the bits of v_bitop3: bit 4*a + 2*b + c is the result for bits a, b and c of src0, src1 and src2.

    Source: CDNA4 ISA reference, "V_BITOP3_B32".
    """
    high, middle, low = (fields[one] for one in TABLE_FIELDS)
    return high << 6 | middle << 3 | low


def waitcnt(simm16: int) -> tuple[int, int, int]:
    """Return vmcnt, expcnt and lgkmcnt of an s_waitcnt. Source: CDNA3 ISA reference, "S_WAITCNT"."""
    return simm16 & 0xF | simm16 >> 14 << 4, simm16 >> 4 & 7, simm16 >> 8 & 0xF
