"""gfx942 on the interpreter: what its cores have and RDNA's have not, from the CDNA3 ISA reference."""

import numpy as np
import pytest

from ringup.silicon.shader.common.launch import CDNA3_START, occupancy, start_group
from ringup.silicon.shader.common.state import Dispatch
from ringup.silicon.shader.program import Kernel

OUT, IN = 0x7000_0000, 0x7100_0000
# v1 has the byte offset of the lane's dword; s[0:1] is OUT, s[2:3] is IN.
BEGIN = "v_lshlrev_b32 v1, 2, v0\n"
STORE = "\nglobal_store_dword v1, v2, s[0:1]\ns_endpgm"
USER = (OUT, 0, IN, 0)
LANES = np.arange(64)


def results(cdna3, text, inputs=LANES, **dispatch):
    """Run `text`, which turns v2, the lane's input, into the lane's result in v2; return the results."""
    out = cdna3.buffer(OUT, np.zeros(64))
    cdna3.buffer(IN, inputs)
    body = f"{BEGIN}global_load_dword v2, v1, s[2:3]\ns_waitcnt vmcnt(0)\n{text}{STORE}"
    cdna3.run(body, user_sgprs=USER, **dispatch)
    return out


def test_accumulation_registers_hold_values_of_their_own(cdna3):
    moves = """
      v_accvgpr_write_b32 a3, v2
      v_mov_b32 v3, 7
      v_accvgpr_mov_b32 a5, a3
      v_accvgpr_read_b32 v2, a5
      v_add_u32 v2, v2, v3
    """
    assert results(cdna3, moves, vgpr_count=4, acc_count=8).tolist() == (LANES + 7).tolist()


def test_an_accumulation_register_beyond_the_allocation_is_refused(cdna3):
    found = cdna3.broken("v_accvgpr_write_b32 a4, 1\ns_endpgm", vgpr_count=8, acc_count=4)
    assert (found.kind, found.detail) == ("register", "a4 is beyond the 4 accumulation VGPRs allocated")


def test_memory_reaches_accumulation_registers(cdna3):
    out = cdna3.buffer(OUT, np.zeros(64))
    cdna3.buffer(IN, LANES * 3)
    text = f"{BEGIN}global_load_dword a2, v1, s[2:3]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, a2, s[0:1]\ns_endpgm"
    cdna3.run(text, user_sgprs=USER, acc_count=4)
    assert out.tolist() == (LANES * 3).tolist()


def test_loads_and_stores_share_a_counter_and_return_in_order(cdna3):
    text = (
        BEGIN
        + """
      global_load_dword v2, v1, s[2:3]
      global_store_dword v1, v1, s[0:1]
      s_waitcnt vmcnt(1)
      v_add_u32 v2, 1, v2
      s_endpgm
    """
    )
    cdna3.buffer(OUT, np.zeros(64))
    cdna3.buffer(IN, LANES)
    cdna3.run(text, user_sgprs=USER)
    found = cdna3.broken(text.replace("vmcnt(1)", "vmcnt(2)"), user_sgprs=USER)
    assert found.kind == "hazard"
    assert found.detail.endswith("wait on vmcnt")


@pytest.mark.parametrize(
    ("control", "read"),
    [
        ("row_newbcast:5", LANES // 16 * 16 + 5),
        ("wave_shr:1", np.maximum(LANES - 1, 0)),
        ("row_shl:2", np.where(LANES % 16 < 14, LANES + 2, LANES)),
    ],
    ids=["newbcast", "wave_shr", "row_shl"],
)
def test_lane_permutations(cdna3, control, read):
    end = " bound_ctrl:1" if control.startswith("wave_shr") else ""
    found = results(
        cdna3, f"v_mov_b32 v3, v2\ns_nop 1\nv_mov_b32_dpp v2, v3 {control} row_mask:0xf bank_mask:0xf{end}", LANES + 100
    )
    wanted = read + 100
    if control.startswith("wave_shr"):
        wanted[0] = 0
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v_add_u32_sdwa v2, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1", 0x56 + 0x1234),
        ("v_mov_b32_sdwa v2, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3", 0xFFFF_FFF0),
        ("v_mov_b32_sdwa v3, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0\ns_nop 0\nv_mov_b32 v2, v3", 0x1278_0001),
        ("v_mov_b32_sdwa v2, v2 dst_sel:BYTE_0 dst_unused:UNUSED_SEXT src0_sel:BYTE_3", 0xFFFF_FFF0),
    ],
    ids=["parts", "sext", "preserve", "unused sext"],
)  # fmt: skip
def test_sdwa_takes_and_gives_parts_of_registers(cdna3, text, wanted):
    assert results(cdna3, f"v_mov_b32 v3, 0x12340001\n{text}", np.full(64, 0xF034_5678))[5] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v_mov_b32 v3, -1\nv_add_f16 v3, v2, v2\nv_mov_b32 v2, v3", 0x4400),
        ("v_mov_b32 v3, -1\nv_mac_f16 v3, v2, v2\nv_mov_b32 v2, v3", 0xFFFF_FFFF),
    ],
    ids=["add", "mac"],
)
def test_halves_of_results_are_cleared_except_by_mac(cdna3, text, wanted):
    # -1 is a NaN in both halves.
    assert results(cdna3, text, np.full(64, 0x4000))[0] == wanted


def test_registers_are_indexed_by_m0(cdna3):
    text = """
      v_mov_b32 v8, 80
      v_mov_b32 v9, 90
      s_mov_b32 s4, 1
      s_set_gpr_idx_on s4, gpr_idx(SRC0)
      v_mov_b32 v2, v8
      s_set_gpr_idx_off
    """
    assert set(results(cdna3, text).tolist()) == {90}


def test_packed_f32_selects_dwords_of_its_sources(cdna3):
    text = """
      v_mov_b32 v4, 1.0
      v_mov_b32 v5, 2.0
      v_mov_b32 v6, 0.5
      v_mov_b32 v7, 4.0
      v_pk_fma_f32 v[8:9], v[4:5], v[6:7], v[4:5] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0]
      v_add_f32 v2, v8, v9
    """
    # -(2 * 0.5) + 1 and 1 * 4 + 2
    assert results(cdna3, text).view(np.float32)[0] == np.float32(6.0)


def test_loads_go_to_lds_from_m0_up(cdna3):
    text = """
      s_mov_b32 m0, 0x40
      s_nop 0
      global_load_lds_dword v1, s[2:3]
      s_waitcnt vmcnt(0)
      ds_read_b32 v2, v1 offset:0x40
      s_waitcnt lgkmcnt(0)
    """
    assert results(cdna3, text, LANES * 5, lds_size_bytes=1024).tolist() == (LANES * 5).tolist()


def test_compare_and_store_of_lds_takes_the_compared_value_first(cdna3):
    text = """
      ds_write_b32 v1, v2
      v_mov_b32 v4, 3
      v_mov_b32 v5, 99
      s_waitcnt lgkmcnt(0)
      ds_cmpst_b32 v1, v4, v5
      s_waitcnt lgkmcnt(0)
      ds_read_b32 v2, v1
      s_waitcnt lgkmcnt(0)
    """
    assert results(cdna3, text, lds_size_bytes=256).tolist() == np.where(LANES == 3, 99, LANES).tolist()


def test_scratch_is_reached_through_the_architected_register(cdna3):
    cdna3.buffer(0x7200_0000, np.zeros(64 * 64))
    text = """
      scratch_store_dword off, v2, off offset:8
      s_waitcnt vmcnt(0)
      scratch_load_dword v2, off, off offset:8
      s_waitcnt vmcnt(0)
      v_add_u32 v2, v2, flat_scratch_lo
    """
    found = results(cdna3, text, scratch_base=0x7200_0000, scratch_wave_bytes=64 * 64)
    assert found.tolist() == (LANES + 0x7200_0000).tolist()


def test_a_die_has_its_number(cdna3):
    found = results(cdna3, "s_getreg_b32 s8, hwreg(HW_REG_XCC_ID)\nv_mov_b32 v2, s8", xcc_id=5)
    assert found[0] == 5


def test_a_wave_starts_with_its_groups_numbers_behind_the_user_registers():
    dispatch = Dispatch(
        pc=0, wave_size=64, group_size=(32, 4, 1), group_count=(4, 4, 4), vgpr_count=8, user_sgprs=(7, 8),
        enable_group_id=(True, False, True), enable_group_info=True, tidig_comp_cnt=1, scratch_base=0x1_2345_6700,
        scratch_wave_bytes=0x100,
    )  # fmt: skip
    first, second = start_group(dispatch, (1, 2, 3), 0, CDNA3_START).waves
    assert first.sgprs[:5].tolist() == [7, 8, 1, 3, 0x8000_0002]
    assert second.sgprs[4] == 2
    assert int(second.vgprs[0, 33]) == 3 << 10 | 1
    assert second.sgprs[102:104].tolist() == [0x2345_6800, 1]


@pytest.mark.parametrize(
    ("vgprs", "acc", "lds", "groups"), [(64, 0, 0, 8), (128, 128, 0, 2), (256, 256, 0, 1), (8, 0, 40 * 1024, 1)]
)
def test_what_fits_on_a_compute_unit(vgprs, acc, lds, groups):
    dispatch = Dispatch(0, 64, (256, 1, 1), (1, 1, 1), vgprs, acc_count=acc, lds_size_bytes=lds)
    assert occupancy(dispatch, CDNA3_START) == groups


def test_a_wave_of_32_is_refused(cdna3):
    with pytest.raises(ValueError, match="gfx942 has waves of 64 lanes only, not of 32"):
        cdna3.start("s_endpgm", wave_size=32, group_size=(32, 1, 1))


def test_a_kernel_divides_its_registers_at_the_offset_of_the_accumulation_registers():
    kernel = Kernel("k", 0, 0x100, 0, 0, 64, 15, 0, 9, 0, (), is_unified=True, preload_count=4)
    assert (kernel.vgpr_count, kernel.acc_count, kernel.start_bytes) == (40, 88, 256)


def test_a_comparison_that_writes_exec_writes_vcc_too(cdna3):
    text = """
      v_mov_b32 v3, 1
      v_cmpx_gt_u32 vcc, 8, v2
      s_mov_b64 s[8:9], exec
      s_mov_b64 exec, -1
      s_cmp_eq_u64 vcc, s[8:9]
      s_cselect_b32 s4, s8, 0
      v_mov_b32 v2, s4
    """
    assert set(results(cdna3, text).tolist()) == {0xFF}


@pytest.mark.parametrize(
    ("product", "constant", "expected"),
    [
        ("v_mfma_f64_16x16x4_f64 v[12:19], v[4:5], v[6:7]", "1.0", (0, 0x3FF0_0000)),
        ("v_mfma_f64_16x16x4_f64 v[12:19], v[4:5], v[6:7]", "-4", (0xFFFF_FFFC, 0xFFFF_FFFF)),
        ("v_mfma_f64_4x4x4_4b_f64 v[12:13], v[4:5], v[6:7]", "-2.0", (0, 0xC000_0000)),
        ("v_mfma_f32_16x16x16_f16 v[12:15], v[4:5], v[6:7]", "0.5", (0x3F00_0000, 0x3F00_0000)),
        ("v_mfma_i32_16x16x32_i8 v[12:15], v[4:5], v[6:7]", "-4", (0xFFFF_FFFC, 0xFFFF_FFFC)),
    ],
)
def test_a_constant_is_every_element_of_c(cdna3, product, constant, expected):
    """Source: LLVM SIRegisterInfo.td, operands of MFMA: constants of f64 have 64 bits."""
    zeros = "".join(f"v_mov_b32 v{at}, 0\n" for at in range(4, 8))
    odd = "s_mov_b32 s8, 0xaaaaaaaa\n s_mov_b32 s9, s8\n"
    text = f"{zeros}{odd}s_nop 1\n{product}, {constant}\n s_nop 15\n s_nop 2\n v_cndmask_b32 v2, v12, v13, s[8:9]"
    assert results(cdna3, text).tolist() == [*expected] * 32


# ---- wait states

PRODUCT = "v_mfma_f32_16x16x16_f16 a[0:3], v[4:5], v[6:7], 0"
DOUBLE = "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[4:5], v[6:7], 0"
ZEROS = "\n".join(f"v_mov_b32 v{at}, 0" for at in range(4, 12)) + "\nv_mov_b32 v30, 0\nv_mov_b32 v31, 0\ns_nop 7\n"
# Two instructions, and the wait states that must be between them. Source: LLVM 22, llc -mcpu=gfx942, which puts s_nop
# there; for the carry, AMD's rocRoller and ROCr's blit_copyAligned.s.
FOLLOWING = {
    "a product and a copy of its result": (PRODUCT, "v_accvgpr_read_b32 v8, a0", 7),
    "a product and a store of its result": (PRODUCT, "global_store_dwordx4 v30, a[0:3], s[0:1]", 7),
    "a product and one with its result as A": (
        "v_mfma_f32_4x4x4_16b_f16 v[8:11], v[4:5], v[6:7], 0", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[8:9], v[6:7], 0", 5,
    ),
    "a product and one that adds to all of its result": (PRODUCT, PRODUCT.replace(", 0", ", a[0:3]"), 0),
    "a product of f64 and a copy": (DOUBLE, "v_mov_b32 v10, v8", 6),
    "the vector ALU and a product": ("v_mov_b32 v4, 1", PRODUCT, 2),
    "a transcendental and its reader": ("v_rcp_f32 v8, v4", "v_add_f32 v9, v8, v8", 1),
    "a scalar of the vector ALU and memory": (
        "v_readfirstlane_b32 s0, v30\ns_mov_b32 s1, 0x7000", "global_load_dword v8, v30, s[0:1]", 4,
    ),
    "a carry and the addition that takes it": (
        "v_add_co_u32 v8, vcc, v4, v5", "v_addc_co_u32 v9, vcc, v6, v7, vcc", 0,
    ),
    "a mask and a copy of it": ("v_cmp_eq_u32 vcc, v4, v5", "v_mov_b32 v8, vcc_lo", 2),
    "VCC and v_div_fmas": ("v_cmp_eq_u32 vcc, v4, v5", "v_div_fmas_f32 v8, v4, v5, v6", 4),
    "the vector ALU and a lane permutation": (
        "v_mov_b32 v8, 1", "v_mov_b32_dpp v9, v8 row_shl:1 row_mask:0xf bank_mask:0xf", 2,
    ),
    "a part of a register and its reader": (
        "v_mov_b32_sdwa v8, v4 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0", "v_mov_b32 v9, v8", 1,
    ),
    "M0 and a load to LDS": ("s_mov_b32 m0, 0", "global_load_lds_dword v30, s[2:3]", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLLOWING)
def test_an_instruction_that_follows_too_early_is_refused(cdna3, case):
    first, second, needed = FOLLOWING[case]
    cdna3.buffer(0x7000_0000_0000, np.zeros(4))
    cdna3.buffer(OUT, np.zeros(64))
    cdna3.buffer(IN, np.zeros(64))
    dispatch = {"user_sgprs": USER, "acc_count": 16, "lds_size_bytes": 1024}
    end = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_endpgm"
    between = f"s_nop {needed - 1}\n" if needed else ""
    cdna3.run(f"{ZEROS}{first}\n{between}{second}{end}", **dispatch)
    if needed:
        between = f"s_nop {needed - 2}\n" if needed > 1 else ""
        assert cdna3.broken(f"{ZEROS}{first}\n{between}{second}{end}", **dispatch).kind == "hazard"


def test_wait_states_count_over_the_branch_of_a_loop(cdna3):
    """The last instruction of a turn writes what the first of the next one permutes. The branch is one wait state."""
    text = f"""
      {ZEROS}
      s_mov_b32 s4, 3
    again:
      v_mov_b32_dpp v9, v8 row_shl:1 row_mask:0xf bank_mask:0xf
      s_sub_u32 s4, s4, 1
      s_cmp_lg_u32 s4, 0
      v_mov_b32 v8, 1
      s_nop 0
      s_cbranch_scc1 again
      s_endpgm
    """
    cdna3.run(text)
    found = cdna3.broken(text.replace("s_nop 0\n", "\n"))
    assert (found.kind, found.detail.partition(" was")[0]) == ("hazard", "v8")


def test_a_pair_depends_on_the_dwords_that_it_selects(cdna3):
    text = """
      v_mov_b32 v4, 1.0
      v_pk_add_f32 v[8:9], v[4:5], v[4:5] op_sel_hi:[0,0]
      v_add_f32 v2, v8, v9
    """
    assert results(cdna3, text).view(np.float32)[0] == np.float32(4.0)
    found = cdna3.broken(f"{BEGIN}{text.replace(' op_sel_hi:[0,0]', '')}{STORE}", user_sgprs=USER)
    assert (found.kind, found.detail.split(": ")[0]) == ("uninitialised", "lane 0 of v2 is undefined")


def test_a_die_runs_its_chunks_of_a_grid(cdna3):
    """Chunks of two groups go to three dies in turn. The last chunk is incomplete."""
    out = cdna3.buffer(OUT, np.zeros(16))
    text = """
      s_lshl_b32 s4, s3, 2
      v_mov_b32 v1, s4
      v_mov_b32 v2, 1
      global_atomic_add v1, v2, s[0:1]
      s_endpgm
    """
    ran = {}
    for die in range(3):
        out[:] = 0
        run = cdna3.run(
            text, user_sgprs=(OUT, 0, 0), group_count=(5, 3, 1), enable_group_id=(True, True, False), group_size=(1, 1, 1),
            share=(die, 3, 2),
        )  # fmt: skip
        ran[die] = run.counters.waves
    assert ran == {0: 6, 1: 5, 2: 4}


def test_several_registers_begin_at_an_even_one(cdna3):
    # v_mov_b64 v[3:4], 0, which the assembler refuses
    cdna3.assemble = lambda *_: bytes.fromhex("8070067e 000081bf".replace(" ", ""))
    assert cdna3.broken("").detail == "several VGPRs begin at v3, whose number is odd"


def test_a_lane_is_written_from_vcc(cdna3):
    out = cdna3.buffer(OUT, np.zeros(64))
    text = """
      v_lshlrev_b32 v1, 2, v0
      v_mov_b32 v8, 7
      s_mov_b32 vcc_hi, 0x1234
      v_writelane_b32 v8, vcc_hi, 5
      global_store_dword v1, v8, s[0:1]
      s_endpgm
    """
    cdna3.run(text, user_sgprs=(OUT, 0))
    assert out.tolist() == [0x1234 if lane == 5 else 7 for lane in range(64)]
