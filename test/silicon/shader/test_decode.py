"""The content of decoded instructions: registers, values, halves, permutations. Encodings are from LLVM's tests
(gfx1100) unless noted.
"""

import pytest

from ringup.silicon.shader.amd.decoding.decode import SCC, SHARED_BASE, IllegalInstruction, decode, of_wave, waitcnt
from ringup.silicon.shader.amd.decoding.generations import RDNA4
from ringup.silicon.shader.amd.decoding.text import text


def operand(code, field):
    (found,) = [one for one in decode(bytes.fromhex(code)).operands if one.field == field]
    return found


# Bytes, field, and the value in the operand's type.
CONSTANTS = [
    ("01f00080", "ssrc1", 0x3F000000),  # s_add_u32 s0, s1, 0.5: a float stays a float in integer arithmetic
    ("02c1808b", "ssrc1", 0xFFFF_FFFF_FFFF_FFFF),  # s_and_b64 s[0:1], s[2:3], -1
    ("02f0808b", "ssrc1", 0x3FE0_0000_0000_0000),  # s_and_b64 s[0:1], s[2:3], 0.5
    ("02ff808b563412af", "ssrc1", 0xAF123456),  # s_and_b64 with a literal: binary operations extend with zeros
    ("ff048086563412af", "ssrc0", 0xFFFF_FFFF_AF12_3456),  # s_ashr_i64: signed ones with the sign
    ("050027d77afe0100563412af", "src1", 0xAF12_3456_0000_0000),  # v_add_f64: the literal is the high half
    ("050003d77dfe010000380000", "src1", 0x3800),  # v_add_nc_u16 with a literal
    ("f0380a7e", "src0", 0x3800),  # v_mov_b16 with 0.5
    ("05400acc7de00118", "src1", 0x3F000000),  # v_pk_add_u16 v5, m0, 0.5
    ("05400ecc7de0f519", "src1", 0x3800),  # v_pk_fma_f16 v5, m0, 0.5, m0
    ("f0040a78", "src0", 0x3800_3800),  # v_pk_fmac_f16 v5, 0.5, v2
    ("054000cc7e82ad19", "src1", 0xFFFF_FFFF),  # v_pk_mad_i16 v5, exec_lo, -1, vcc_hi
    ("104042cc0011ca1b", "src2", 0x3C00_3C00),  # v_wmma_f16_16x16x16_f16 ..., 1.0
    ("104043cc0011ca1b", "src2", 0x3F80_3F80),  # v_wmma_bf16_16x16x16_bf16 ..., 1.0
    ("050120cc7be0ad81", "src1", 0x3F000000),  # v_fma_mix_f32 v5, |ttmp15|, 0.5, -vcc_hi: op_sel_hi 0 is an f32
]


@pytest.mark.parametrize(("code", "field", "bits"), CONSTANTS)
def test_constants_have_the_value_their_operand_takes(code, field, bits):
    found = operand(code, field)
    assert (found.kind, found.index, found.bits) == ("constant", 0, bits)


def shown(code):
    return [(one.direction, one.kind, one.index, one.size_bits) for one in decode(bytes.fromhex(code)).operands]


def test_vcc_and_exec_are_operands_though_no_field_names_them():
    assert shown("01050a40") == [  # v_add_co_ci_u32_e32 v5, vcc_lo, v1, v2, vcc_lo
        ("def", "vgpr", 5, 32),
        ("def", "sgpr", 106, 32),
        ("use", "vgpr", 1, 32),
        ("use", "vgpr", 2, 32),
        ("use", "sgpr", 106, 32),
    ]
    # v_cmpx_eq_i16_e32 0.5, v127.l
    assert shown("f0fe647d")[-1] == ("def", "sgpr", 126, 32)


def test_special_sources_have_their_own_numbers():
    assert operand("05400ecc7cfcfc130bfe0000", "src0").index == 124  # null
    # s_cmp_eq_u64 src_shared_base, s[11:12]
    assert operand("eb0b10bf", "ssrc0").index == SHARED_BASE
    # v_add_f64 v[5:6], -|exec|, src_scc
    assert operand("050127d77efa0120", "src1").index == SCC


@pytest.mark.parametrize(
    ("code", "field", "index", "high"),
    [
        ("f0fe647d", "vsrc1", 127, False),  # v127.l
        ("050803d7fa040200015f0101", "src0", 1, True),  # v_add_nc_u16_e64_dpp v5.l, v1.h, v2.l
        ("050803d7fa040200015f0101", "src1", 2, False),
        ("e904017c81773905", "src0", 1, True),  # v_cmp_f_f16 vcc_lo, v1.h, v2.h dpp8
        ("004d03cd01050e04", "vdst", 0, True),  # v_interp_p2_f16_f32 v0.h, v1.h, v2, v3
    ],
)
def test_the_half_of_a_16_bit_register_is_reported(code, field, index, high):
    found = operand(code, field)
    assert (found.index, found.high) == (index, high)


def test_signs_and_halves_of_packed_sources():
    # v_pk_fma_f16 v5, null, exec_lo, 0xfe0b op_sel:[1,1,1] op_sel_hi:[1,0,0] neg_lo:[1,0,0] neg_hi:[1,0,0]
    first, second = operand("05390ecc7cfcfc2b0bfe0000", "src0"), operand("05390ecc7cfcfc2b0bfe0000", "src1")
    assert (first.sel, first.neg_halves, second.sel) == ((True, True), (True, True), (True, False))
    # v_fma_mix_f32 v5, |ttmp15|, 0.5, -vcc_hi
    mixed = operand("050120cc7be0ad81", "src2")
    assert (mixed.neg, mixed.abs, operand("050120cc7be0ad81", "src0").abs) == (True, False, True)


def test_a_permutation_brings_its_own_source():
    # v_max_f32_dpp v5, v1, v2 row_shr:15 row_mask:0xf bank_mask:0xf
    found = decode(bytes.fromhex("fa040a20011f01ff"))
    assert found.dpp is not None
    assert (found.dpp.ctrl, found.dpp.row_mask, found.dpp.bound_ctrl, found.size_bytes) == (0x11F, 15, False, 8)
    assert [one.index for one in found.uses] == [1, 2]


def test_dual_instructions_share_a_literal():
    # v_dual_fmamk_f32 v255, m0, 0xaf123456, v255 :: v_dual_fmaak_f32 v6, m0, v255, 0xaf123456
    found = decode(bytes.fromhex("7dfe83c87dfe07ff563412af"))
    assert [part.mnemonic for part in found.parts] == ["v_dual_fmamk_f32", "v_dual_fmaak_f32"]
    assert [one.bits for part in found.parts for one in part.operands if one.field == "literal"] == [0xAF123456] * 2
    assert [part.defs[0].index for part in found.parts] == [255, 6]


@pytest.mark.parametrize(
    ("code", "offset"),
    [
        ("b9106edcc6a135c6", -3911),  # global_store_b64
        ("ff0f50e000050203", 4095),  # buffer_load_b32
        ("115f30f4f20f125c", -0xDF00E),  # s_buffer_load_b512 offset:-0xdf00e
        ("7f01e0d901000005", 0x017F),  # ds_load_2addr_stride64_b64 offset0:127 offset1:1
    ],
)
def test_offsets_are_signed_as_their_format_has_it(code, offset):
    assert decode(bytes.fromhex(code)).offset == offset


def test_addresses_that_are_off_are_no_registers():
    assert [one.kind for one in decode(bytes.fromhex("ff0f50e000050203")).operands] == ["vgpr", "off", "sgpr", "sgpr"]
    # global_load_b32 v5, v[1:2], off
    assert operand("000052dc01007c05", "saddr").kind == "off"
    # global_load_b32 v5, v1, s[4:5]
    assert operand("000052dc01000405", "addr").size_bits == 32


def test_an_atomic_writes_its_register_only_when_it_returns():
    # by RDNA3 ISA reference: global_atomic_add_u32
    plain, returning = (
        bytes.fromhex("0000d6dc01027c00"),
        bytes.fromhex("0040d6dc01027c05"),
    )
    assert [one.field for one in decode(plain).defs] == []
    assert [one.field for one in decode(returning).defs] == ["vdst"]


def test_scattered_image_addresses_are_several_operands():
    # image_bvh_intersect_ray v[39:42], [v50, v46, v[20:22], v[40:42]], s[12:15] a16
    found = decode(bytes.fromhex("818f65f0322703002e142800"))
    assert [(one.index, one.size_bits) for one in found.operands[1:5]] == [(50, 32), (46, 32), (20, 96), (40, 96)]


# Bytes for gfx1201, from LLVM's tests or by its assembler; the text; and what the decoder says of an operand or offset.
RDNA4_CODES = [
    ("7cc010ee0100100100c0ffff", "global_atomic_add_u64 v[1:2], v[0:1], v[2:3], off offset:-64 th:TH_ATOMIC_RETURN"),
    ("7c0006ed0000000100c0ffff", "scratch_store_b8 off, v2, off offset:-64"),
    ("854c80be", "s_sendmsg_rtn_b32 s0, 0x85"),
    ("02018080", "s_sub_co_u32 s0, s2, s1"),
    ("ff05787c", "v_cmp_gt_u16_e32 vcc_lo, v127.h, v2.l"),
]


@pytest.mark.parametrize(("code", "shown"), RDNA4_CODES, ids=[shown for _, shown in RDNA4_CODES])
def test_code_of_rdna4_has_its_own_text(code, shown):
    assert text(decode(bytes.fromhex(code), 0, RDNA4)) == shown


def test_three_scalar_registers_begin_at_a_multiple_of_four():
    # s_load_b96 s[104:106], …: LLVM refuses it, since vcc begins at 106.
    with pytest.raises(IllegalInstruction, match="3 registers from sdata 104"):
        decode(bytes.fromhex("07ba20f42a0f074e"), 0, RDNA4)


def test_instructions_that_rdna4_only_renamed_have_one_name_in_the_engines():
    found = decode(bytes.fromhex("7cc010ee0100100100c0ffff"), 0, RDNA4)
    assert (found.mnemonic, found.format, found.offset) == ("global_atomic_add_u64", "GLOBAL", -64)
    assert [one.field for one in found.operands] == ["vdst", "addr", "data", "saddr"]
    subtracted = decode(bytes.fromhex("02018080"), 0, RDNA4)
    assert (subtracted.mnemonic, subtracted.spelling) == ("s_sub_u32", "s_sub_co_u32")


def test_dual_instructions_are_for_a_wave32():
    found = decode(bytes.fromhex("7dfe83c87dfe07ff563412af"))
    assert of_wave(found, 32) is found
    with pytest.raises(IllegalInstruction, match="dual instructions are for a wave32"):
        of_wave(found, 64)


def test_wait_counts_are_taken_apart():
    # s_waitcnt vmcnt(4) expcnt(3) lgkmcnt(2)
    assert waitcnt(0x1023) == (4, 3, 2)


ILLEGAL = [
    ("00000000", "is no instruction"),  # LLVM: v_illegal
    ("0000", "2 bytes left"),
    ("0503", "2 bytes left"),
    ("02ff808b", "without its literal"),
    ("050003d77dfe0100", "without its literal"),
    ("050027d7", "cut short"),
    ("fa0abe20", "DPP16 dword cut short"),
    ("fa0abe20658ff378", "dpp_ctrl 0x18f"),
    ("ebf81aca3f158900", "v_dual_mov_b32 with a vsrcx1"),
    ("f40b24f4822f0cf8", "registers from sbase 104"),
    ("6bfffc864b159d67", "registers from ssrc0 107"),
    ("45ad9fbf", "reserved bits"),  # s_code_end with an immediate
]


@pytest.mark.parametrize(("code", "message"), ILLEGAL)
def test_what_is_no_instruction_is_refused_with_a_reason(code, message):
    with pytest.raises(IllegalInstruction, match=message):
        decode(bytes.fromhex(code))


def test_an_instruction_is_found_at_its_offset():
    data = bytes.fromhex("01f00080" + "050027d77afe0100563412af")
    assert [decode(data, at).mnemonic for at in (0, 4)] == ["s_add_u32", "v_add_f64"]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("231089bf", "s_waitcnt vmcnt(4) expcnt(3) lgkmcnt(2)"),
        ("050127d77efa0120", "v_add_f64 v[5:6], -|exec|, src_scc"),
        ("000521cce9040e4401924492", "v_fma_mixlo_f16_e64_dpp v0, |v1|, -v2, |v3| dpp8:[2,2,2,2,4,4,4,4]"),
        ("7f01e0d901000005", "ds_load_2addr_stride64_b64 v[5:8], v1 offset0:127 offset1:1"),
    ],
)
def test_reports_show_assembly(code, shown):
    assert text(decode(bytes.fromhex(code))) == shown
