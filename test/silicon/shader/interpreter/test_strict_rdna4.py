"""Undefined values in RDNA4's own instructions: they spread as in others, and may not decide anything."""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

OUT = 0x30_0000
ARGS = {"user_sgprs": (OUT, 0), "vgpr_count": 64}
STORE = "v_lshlrev_b32_e32 v1, 2, v0\n global_store_b32 v1, v4, s[0:1]\n s_endpgm"
ZEROS = "".join(f"v_mov_b32_e32 v{one}, 0\n" for one in range(8, 32))
PRODUCT = "v_wmma_f32_16x16x16_f16 v[40:47], v[8:11], v[12:15], v[16:23]\n"


@pytest.fixture
def out(rdna4):
    return rdna4.buffer(OUT, np.zeros(64))


@pytest.mark.parametrize(
    "text",
    ["s_add_f32 s4, s5, 1.0", "s_fmac_f32 s4, 1.0, 1.0", "s_cvt_i32_f32 s4, s5", "s_add_nc_u64 s[4:5], s[6:7], 1", "v_s_exp_f32 s4, s5",
     "s_minimum_f16 s4, s5, 1.0"],
)  # fmt: skip
def test_a_scalar_result_of_an_undefined_source_may_not_be_compared(rdna4, text):
    rdna4.run(f"{text}\n s_mov_b32 s8, s4\n s_endpgm", **ARGS)
    found = rdna4.broken(f"{text}\n s_cmp_eq_u32 s4, 0\n s_cbranch_scc1 .L\n .L: s_endpgm", **ARGS)
    assert found.kind == "uninitialised"


@pytest.mark.parametrize("text", ["s_add_f32 s4, 1.0, 1.0", "s_min_num_f32 s4, 1.0, 2.0", "s_sub_nc_u64 s[4:5], 1, 2"])
def test_a_scalar_sum_of_rdna4_keeps_scc(rdna4, out, text):
    rdna4.run(f"s_cmp_eq_u32 0, 0\n {text}\n s_cselect_b32 s6, 7, 5\n v_mov_b32_e32 v4, s6\n{STORE}", **ARGS)
    assert out[0] == 7
    # It defines no SCC either.
    found = rdna4.broken(f"{text}\n s_cbranch_scc1 .L\n .L: s_endpgm", **ARGS)
    assert found.kind == "uninitialised"


def test_scc_of_an_undefined_float_may_not_decide_a_branch(rdna4):
    found = rdna4.broken("s_cmp_lt_f32 s5, 1.0\n s_cbranch_scc1 .L\n .L: s_endpgm", **ARGS)
    assert found.kind == "uninitialised"
    assert "s5, which was never written" in found.detail


@pytest.mark.parametrize("text", ["s_sleep_var s5", "ds_bpermute_fi_b32 v4, v5, v0", "v_permlane16_var_b32 v4, v0, v5"])
def test_an_undefined_value_may_not_name_a_lane_or_a_time(rdna4, text):
    found = rdna4.broken(f"v_mov_b32_e32 v4, 0\n {text}\n s_endpgm", **ARGS)
    assert found.kind == "uninitialised"


def test_a_row_of_a_product_is_undefined_where_its_row_of_a_is(rdna4, out):
    # Lane 3 of A's registers was never written: row 3 of D, which is register 3 of the lanes 0 to 15.
    undefined = ZEROS + "s_mov_b32 exec_lo, 0xfffffff7\n v_mov_b32_e32 v32, 0\n s_mov_b32 exec_lo, -1\n"
    product = PRODUCT.replace("v[8:11]", "v[32:35]")
    filled = "".join(f"v_mov_b32_e32 v{one}, 0\n" for one in (33, 34, 35))
    for register in range(8):
        program = f"{undefined}{filled}{product} v_mov_b32_e32 v4, v{40 + register}\n{STORE}"
        if register == 3:
            assert rdna4.broken(program, **ARGS).kind == "uninitialised"
        else:
            rdna4.run(program, **ARGS)


def test_a_row_of_a_sparse_product_is_undefined_where_its_index_is(rdna4, out):
    undefined = ZEROS + "s_mov_b32 exec_lo, 0xfffffffd\n v_mov_b32_e32 v33, 0\n s_mov_b32 exec_lo, -1\n"
    sums = "".join(f"v_mov_b32_e32 v{one}, 0\n" for one in range(40, 48))
    product = "v_swmmac_f32_16x16x32_f16 v[40:47], v[8:11], v[12:19], v33\n"
    for register, breaks in ((0, False), (1, True), (2, False)):
        program = f"{undefined}{sums}{product} v_mov_b32_e32 v4, v{40 + register}\n{STORE}"
        if breaks:
            assert rdna4.broken(program, **ARGS).kind == "uninitialised"
        else:
            rdna4.run(program, **ARGS)


def test_a_conversion_to_eight_bits_gathers_two_numbers(rdna4, out):
    # As for other packed conversions, one undefined number leaves the register defined.
    rdna4.run(f"v_mov_b32_e32 v5, 1.0\n v_mov_b32_e32 v4, 0\n v_cvt_pk_fp8_f32 v4.l, v5, v6\n{STORE}", **ARGS)
    found = rdna4.broken(f"v_cvt_pk_fp8_f32 v4.l, v5, v6\n{STORE}", **ARGS)
    assert found.kind == "uninitialised"


def test_a_register_beyond_the_allocation_is_refused(rdna4):
    assert rdna4.broken("v_s_exp_f32 s4, 1.0\n v_minimum_f32 v70, v0, v0\n s_endpgm", **ARGS).kind == "register"


# The vector ALU reads a scalar, which is then written and read again. Source: LLVM AMDGPUWaitSGPRHazards.cpp; Mesa
# aco_insert_NOPs.cpp (ten scalar instructions). The corpus for gfx1201 is LLVM 22's code, which breaks no such rule.
TEN = "s_mov_b32 s20, 0\n " * 10
SCALARS_TOO_EARLY = {
    "written by scalars, read by a vector": ("v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n v_mov_b32_e32 v2, s8", "sa_sdst"),
    "written by scalars, read by a scalar": ("v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n s_mov_b32 s9, s8", "sa_sdst"),
    "the other half of a pair": ("v_mov_b32_e32 v1, s8\n s_mov_b32 s9, 1\n v_mov_b32_e32 v2, s9", "sa_sdst"),
    "written by a vector, read by another": (
        "v_mov_b32_e32 v1, s8\n v_readfirstlane_b32 s8, v0\n v_mov_b32_e32 v2, s8", "va_sdst",
    ),
    "VCC of two comparisons": (
        "v_cmp_eq_u32_e32 vcc_lo, 0, v0\n v_cndmask_b32_e32 v1, v0, v0, vcc_lo\n v_cmp_eq_u32_e32 vcc_lo, 1, v0\n"
        " v_cndmask_b32_e32 v1, v0, v0, vcc_lo", "va_vcc",
    ),
    "VCC that a branch reads": (
        "s_mov_b32 vcc_lo, 0\n v_cndmask_b32_e32 v1, v0, v0, vcc_lo\n s_mov_b32 vcc_lo, 0\n s_cbranch_vccz .Lend\n .Lend:",
        "sa_sdst",
    ),
    "a wait for the other ALU": (
        "v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n s_wait_alu depctr_va_sdst(0)\n v_mov_b32_e32 v2, s8", "sa_sdst",
    ),
    "ten scalar instructions later": (f"v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n {TEN}v_mov_b32_e32 v2, s8", "sa_sdst"),
    "too few ds_nop": (
        "v_mov_b32_e32 v1, s8\n ds_nop\n ds_nop\n ds_nop\n s_mov_b32 s8, 1\n v_mov_b32_e32 v2, s8", "sa_sdst",
    ),
    "in the next turn of a loop": (
        "s_mov_b32 s9, 3\n .Lagain:\n s_add_co_i32 s8, s9, 1\n v_mov_b32_e32 v1, s8\n s_sub_co_u32 s9, s9, 1\n"
        " s_cmp_lg_u32 s9, 0\n s_cbranch_scc1 .Lagain", "sa_sdst",
    ),
    "written by a vector in each turn, a pair read by a scalar that no vector reads": (
        "s_mov_b32 s9, 3\n .Lagain:\n v_readfirstlane_b32 s4, v0\n s_sub_co_i32 s9, s9, 1\n"
        " s_cmp_lg_u32 s9, 0\n v_add_nc_u32_e32 v1, s4, v0\n s_cbranch_scc1 .Lagain", "va_sdst",
    ),
    "by one of two ways": (
        "s_cmp_eq_u32 s8, 0\n s_cbranch_scc0 .Lskip\n v_mov_b32_e32 v1, s8\n .Lskip:\n s_mov_b32 s8, 1\n"
        " v_mov_b32_e32 v2, s8", "sa_sdst",
    ),
}  # fmt: skip
SCALARS_IN_TIME = {
    "never read before": "s_mov_b32 s8, 1\n v_mov_b32_e32 v2, s8",
    "waited for": "v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n s_wait_alu depctr_sa_sdst(0)\n v_mov_b32_e32 v2, s8",
    "written by a vector, read by a scalar": "v_mov_b32_e32 v1, s8\n v_readfirstlane_b32 s8, v0\n s_mov_b32 s9, s8\n v_mov_b32_e32 v2, s8",
    # The loop of LLVM 22 that adds a double of each lane.
    "written by a vector in each turn of a loop, another pair read by a scalar": "s_mov_b32 s9, 3\n .Lagain:\n"
    " s_wait_alu depctr_sa_sdst(0)\n v_readlane_b32 s4, v0, s9\n s_sub_co_i32 s9, s9, 1\n s_wait_alu depctr_sa_sdst(0)\n"
    " s_cmp_lg_u32 s9, 0\n v_add_nc_u32_e32 v1, s4, v0\n s_cbranch_scc1 .Lagain",
    "a scalar load between": "v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n s_load_b32 s12, s[0:1], 0x0\n v_mov_b32_e32 v2, s8",
    "eleven scalar instructions later": f"v_mov_b32_e32 v1, s8\n s_mov_b32 s8, 1\n {TEN}s_nop 0\n s_mov_b32 s20, 1\n v_mov_b32_e32 v2, s8",
    "four ds_nop": "v_mov_b32_e32 v1, s8\n ds_nop\n ds_nop\n ds_nop\n ds_nop\n s_mov_b32 s8, 1\n v_mov_b32_e32 v2, s8",
    "EXEC": "s_mov_b32 exec_lo, 1\n v_mov_b32_e32 v1, exec_lo\n s_mov_b32 exec_lo, -1\n v_mov_b32_e32 v2, exec_lo",
    "by the way that does not read it": "s_cmp_eq_u32 s8, 1\n s_cbranch_scc0 .Lskip\n v_mov_b32_e32 v1, s8\n .Lskip:\n"
    " s_mov_b32 s8, 1\n v_mov_b32_e32 v2, s8",
}  # fmt: skip
SCALARS = {"user_sgprs": (OUT, 0, 0, 0, 0, 0, 0, 0, 0, 0)}


@pytest.mark.parametrize("name", SCALARS_TOO_EARLY)
def test_a_scalar_that_the_vector_alu_read_is_not_read_anew_too_early(rdna4, name):
    text, field = SCALARS_TOO_EARLY[name]
    rdna4.arena.place(OUT, bytes(64))
    broken = rdna4.broken(f"{text}\n s_endpgm", **SCALARS)
    assert broken.kind == "hazard"
    assert (
        f"the vector ALU read it before it was written again; wait with s_wait_alu depctr_{field}(0)" in broken.detail
    )


@pytest.mark.parametrize("name", SCALARS_IN_TIME)
def test_a_scalar_may_be_read_anew_in_time(rdna4, name):
    rdna4.arena.place(OUT, bytes(64))
    rdna4.run(f"{SCALARS_IN_TIME[name]}\n s_endpgm", **SCALARS)


@pytest.mark.parametrize("name", SCALARS_TOO_EARLY)
@pytest.mark.parametrize("engine", [Interpreter, Translator])
def test_cards_of_other_drivers_run_code_that_leaves_the_wait_out(rdna4, engine, name):
    """Debian 13's Mesa and LLVM leave it out."""
    rdna4.arena.place(OUT, bytes(64))
    rdna4.engine = engine(target="gfx1201", trusts_scalars=True)
    rdna4.run(f"{SCALARS_TOO_EARLY[name][0]}\n s_endpgm", **SCALARS)
