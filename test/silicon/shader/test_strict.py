"""Each rule of strict mode: a program that breaks it, and one that keeps it. Source: docs/silicon.md, "Strict mode"."""

import re

import numpy as np
import pytest

from ringup.silicon.shader.common.state import Dispatch

IN, OUT = 0x20_0000, 0x30_0000
NO_IDS = (False, False, False)
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "enable_group_id": NO_IDS, "lds_size_bytes": 1024, "vgpr_count": 24}


@pytest.fixture
def buffers(machine):
    machine.buffer(IN, np.arange(256))
    machine.out = machine.buffer(OUT, np.zeros(256))
    return machine


LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
END = "\ns_endpgm\n"

# Name to program and report.
HAZARDS = {
    "vector load read": ("global_load_b32 v2, v1, s[0:1]\n v_mov_b32_e32 v3, v2", r"v2 is still .*wait on vmcnt"),
    "vector load overwritten": ("global_load_b32 v2, v1, s[0:1]\n v_mov_b32_e32 v2, 0", r"v2 is still .*vmcnt"),
    "later of two loads": (
        "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v3, v1, s[0:1]\n s_waitcnt vmcnt(1)\n v_mov_b32_e32 v4, v3",
        "v3 is still",
    ),
    "scalar load read": ("s_load_b32 s8, s[0:1], 0x0\n s_mov_b32 s9, s8", "s8 is still .*lgkmcnt"),
    "scalar loads come back in any order": (
        "s_load_b32 s8, s[0:1], 0x0\n s_load_b32 s9, s[0:1], 0x4\n s_waitcnt lgkmcnt(1)\n s_mov_b32 s10, s8",
        "s8 is still",
    ),
    "wide scalar loads count twice": (
        "s_load_b64 s[8:9], s[0:1], 0x0\n s_waitcnt lgkmcnt(1)\n s_mov_b32 s10, s9",
        "s9 is still",
    ),
    "LDS load read": (
        "ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n ds_load_b32 v2, v1\n v_mov_b32_e32 v3, v2",
        "v2 is still .*lgkmcnt",
    ),
    "LDS load behind a scalar load": (
        "ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n s_load_b32 s8, s[0:1], 0x0\n s_waitcnt lgkmcnt(1)\n v_mov_b32_e32 v3, v2",
        "v2 is still",
    ),
    "flat load of memory is not waited for with lgkmcnt": (
        "v_mov_b32_e32 v4, s0\n v_mov_b32_e32 v5, s1\n flat_load_b32 v2, v[4:5]\n s_waitcnt lgkmcnt(0)\n v_mov_b32_e32 v3, v2",
        r"v2 is still .*wait on vmcnt",
    ),
    "atomic that returns": (
        "global_atomic_add_u32 v2, v1, v0, s[2:3] glc\n v_mov_b32_e32 v3, v2",
        "v2 is still .*vmcnt",
    ),
    "message that returns": ("s_sendmsg_rtn_b32 s8, 0x83\n s_mov_b32 s9, s8", "s8 is still"),
    "load by another unit into the same register": (
        "global_load_b32 v2, v1, s[0:1]\n ds_load_b32 v2, v1",
        "v2 is still",
    ),
    "store of loaded data": ("global_load_b32 v2, v1, s[0:1]\n global_store_b32 v1, v2, s[2:3]", "v2 is still"),
    "address that is loaded": ("s_load_b64 s[8:9], s[0:1], 0x0\n s_load_b32 s10, s[8:9], 0x0", "s8 is still"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_a_register_in_flight_may_not_be_touched(buffers, name):
    program, report = HAZARDS[name]
    violation = buffers.broken(LANE + program + END, **ARGS)
    assert violation.kind == "hazard"
    assert violation.wave == (0, 0, 0, 0)

    assert re.search(report, violation.detail), violation.detail


RIGHT = {
    "older of two loads": "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v3, v1, s[0:1]\n s_waitcnt vmcnt(1)\n v_mov_b32_e32 v4, v2",
    "loads in order into one register": "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v2, v1, s[0:1]\n s_waitcnt vmcnt(0)",
    "older LDS load": (
        "ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n ds_load_b32 v3, v1\n s_waitcnt lgkmcnt(1)\n v_mov_b32_e32 v4, v2"
    ),
    "LDS load behind a scalar load": (
        "ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n s_load_b32 s8, s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n v_mov_b32_e32 v3, v2"
    ),
    # Two LDS loads are outstanding. Once only one of three is left, the first has returned.
    "LDS loads around a scalar load": (
        "ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n ds_load_b32 v3, v1\n s_load_b32 s8, s[0:1], 0x0\n s_waitcnt lgkmcnt(1)\n"
        "v_mov_b32_e32 v4, v2"
    ),
    "flat load of memory": (
        "v_mov_b32_e32 v4, s0\n v_mov_b32_e32 v5, s1\n flat_load_b32 v2, v[4:5]\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2"
    ),
    "flat load": (
        "v_mov_b32_e32 v4, s0\n v_mov_b32_e32 v5, s1\n flat_load_b32 v2, v[4:5]\n s_waitcnt vmcnt(0) lgkmcnt(0)\n v_mov_b32_e32 v3, v2"
    ),
    "stores need no wait": "global_store_b32 v1, v0, s[2:3]\n v_mov_b32_e32 v0, 0",
    "separate waits": "global_load_b32 v2, v1, s[0:1]\n s_waitcnt_vmcnt null, 0x0\n v_mov_b32_e32 v3, v2",
    "idle": "s_load_b32 s8, s[0:1], 0x0\n s_wait_idle\n s_mov_b32 s9, s8",
    "no lane loads": "s_mov_b32 exec_lo, 0\n global_load_b32 v2, v1, s[0:1]\n s_mov_b32 exec_lo, -1\n v_mov_b32_e32 v2, 0",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_wait_that_covers_a_load_frees_its_register(buffers, name):
    buffers.run(LANE + RIGHT[name] + END, **ARGS)


def test_a_load_of_half_a_register_may_follow_the_one_that_it_completes(buffers):
    # LLVM's SIInsertWaitcnts waits for neither: vector loads return in order.
    program = (
        "global_load_u16 v2, v1, s[0:1]\n global_load_d16_hi_b16 v2, v1, s[0:1] offset:4\n"
        " global_load_d16_b16 v3, v1, s[0:1]\n global_load_d16_hi_b16 v3, v1, s[0:1] offset:4\n s_waitcnt vmcnt(0)\n"
        " v_xor_b32 v3, v2, v3\n v_or_b32 v2, v2, v3\n global_store_b32 v1, v2, s[2:3]"
    )
    buffers.run(LANE + program + END, **ARGS)
    lanes = np.arange(32)
    assert np.array_equal(buffers.out[:32], lanes | lanes + 1 << 16)


def test_a_load_of_half_a_register_may_not_follow_one_of_another_order(buffers):
    program = "ds_store_b32 v1, v0\n ds_load_u16 v2, v1\n global_load_d16_hi_b16 v2, v1, s[0:1]"
    violation = buffers.broken(LANE + program + END, **ARGS)
    assert violation.kind == "hazard"
    assert violation.text.startswith("global_load_d16_hi_b16")


# A program of two waves, each of which stores to LDS. The flag says whether a store is outstanding at the barrier.
BARRIERS = {
    "not waited for": ("ds_store_b32 v1, v0\n s_barrier", True),
    "waited for": ("ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n s_barrier", False),
    "others waited for": ("ds_load_b32 v2, v1\n ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(1)\n s_barrier", True),
    "older one waited for": ("ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(1)\n s_barrier", False),
    "an atomic": ("ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n ds_add_u32 v1, v0\n s_barrier", True),
    "by one way": (
        "s_mov_b32 s8, 2\n .Lagain:\n s_waitcnt lgkmcnt(0)\n s_barrier\n s_sub_u32 s8, s8, 1\n ds_store_b32 v1, v0\n s_cmp_lg_u32 s8, 0\n"
        "s_cbranch_scc1 .Lagain\n s_barrier",
        True,
    ),
    "no lane stores": ("s_mov_b32 exec_lo, 0\n ds_store_b32 v1, v0\n s_mov_b32 exec_lo, -1\n s_barrier", False),
    "loads": (
        "ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n ds_load_b32 v2, v1\n s_barrier\n s_waitcnt lgkmcnt(0)",
        False,
    ),
}


@pytest.mark.parametrize("name", BARRIERS)
def test_what_is_stored_to_lds_is_there_before_a_barrier(buffers, name):
    program, late = BARRIERS[name]
    arguments = ARGS | {"group_size": (64, 1, 1)}
    if not late:
        buffers.run(LANE + program + END, **arguments)
        return
    violation = buffers.broken(LANE + program + END, **arguments)
    assert (violation.kind, violation.text.split()[0]) == ("hazard", "s_barrier")
    assert "LDS is still being stored to" in violation.detail


def test_a_wave_alone_does_not_wait_at_a_barrier(buffers):
    buffers.run(LANE + BARRIERS["not waited for"][0] + END, **ARGS)


# This happens while the high half of v2 is loaded.
OTHER_HALF = {
    "stored": "ds_store_b16 v1, v2",
    "a byte of it stored": "global_store_b8 v1, v2, s[2:3]",
    "read": "v_cvt_f32_f16_e32 v3, v2.l",
    "written": "v_mov_b16_e32 v2.l, 0",
    "computed in place": "v_add_f16_e64 v2.l, v2.l, v0.h",
    "loaded from elsewhere": "ds_load_u16_d16 v2, v1\n s_waitcnt lgkmcnt(0)\n ds_store_b16 v1, v2",
}
SAME_HALF = {
    "stored": "ds_store_b16_d16_hi v1, v2",
    "stored to memory": "global_store_d16_hi_b8 v1, v2, s[2:3]",
    "read": "v_cvt_f32_f16_e32 v3, v2.h",
    "written": "v_mov_b16_e32 v2.h, 0",
    "read with the other": "v_mov_b32_e32 v3, v2",
    "both read": "v_add_f16_e32 v3.l, v2.l, v2.h",
    "an address": "ds_store_b16 v2, v1",
    "stored with the other": "global_store_b32 v1, v2, s[2:3]",
    "loaded from elsewhere": "ds_load_u16_d16_hi v2, v1",
}
LOAD_HIGH = (
    "v_mov_b32_e32 v2, v0\n ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n global_load_d16_hi_b16 v2, v1, s[0:1]\n"
)


@pytest.mark.parametrize("name", OTHER_HALF)
def test_the_other_half_of_what_is_loaded_can_be_used(buffers, name):
    """The LLVM of Triton 3.9 stores one half while the other is being loaded."""
    buffers.run(LANE + LOAD_HIGH + OTHER_HALF[name] + END, **ARGS)


@pytest.mark.parametrize("name", SAME_HALF)
def test_the_half_that_is_loaded_cannot_be_used(buffers, name):
    violation = buffers.broken(LANE + LOAD_HIGH + SAME_HALF[name] + END, **ARGS)
    assert violation.kind == "hazard"
    assert "v2 is still being loaded" in str(violation)


def test_halves_are_waited_for_apart(buffers):
    """The low half returns before the high half, as vector loads return in order."""
    loads = "v_mov_b32_e32 v2, 0\n global_load_d16_b16 v2, v1, s[0:1]\n global_load_d16_hi_b16 v2, v1, s[0:1] offset:4\n s_waitcnt vmcnt(1)\n"
    buffers.run(LANE + loads + "v_cvt_f32_f16_e32 v3, v2.l" + END, **ARGS)
    assert buffers.broken(LANE + loads + "v_cvt_f32_f16_e32 v3, v2.h" + END, **ARGS).kind == "hazard"


def test_a_full_counter_waits_by_itself(buffers):
    loads = "".join(f"global_load_b32 v2, v1, s[0:1] offset:{4 * i}\n" for i in range(64))
    buffers.run(LANE + "global_load_b32 v3, v1, s[0:1]\n" + loads + "v_mov_b32_e32 v4, v3" + END, **ARGS)


def test_hazards_pass_where_strictness_is_off(buffers):
    run = buffers.start(LANE + HAZARDS["vector load read"][0] + END, strict=False, **ARGS)
    assert run.step(100)


STORE_V2, STORE_V3, STORE_V5 = (f"\n global_store_b32 v1, v{one}, s[2:3]" for one in (2, 3, 5))
STORE_S8 = "\n v_mov_b32_e32 v2, s8" + STORE_V2
# An array in v4, v5 and the following registers. The program writes element 1 by its number.
ARRAY = "s_mov_b32 m0, 1\n v_movreld_b32 v4, v0\n"
UNINITIALISED = {
    "stored": ("global_store_b32 v1, v5, s[2:3]", "lane 0 of v5 was never written"),
    "stored whole": ("global_store_b64 v1, v[5:6], s[2:3]", "lane 0 of v5 was never written"),
    "shift that keeps undefined bits": ("s_lshr_b32 s8, s20, 31" + STORE_S8, "comes from s20, which was never written"),
    "scalar that becomes EXEC": ("s_mov_b32 exec_lo, s20", "EXEC would get bits"),
    "scalar comparison": (
        "s_cmp_eq_u32 s20, 0\n s_cbranch_scc1 .Lend\n.Lend:",
        "scc is undefined: it comes from s20, which",
    ),
    "sum of a loop": (
        "s_mov_b32 s8, 2\n.L: v_add_nc_u32_e32 v2, v2, v0\n s_sub_u32 s8, s8, 1\n s_cmp_lg_u32 s8, 0\n s_cbranch_scc1 .L"
        + STORE_V2,
        "of v2",
    ),
    "lanes exchanged": (
        "ds_bpermute_b32 v2, v1, v5\n s_waitcnt lgkmcnt(0)" + STORE_V2,
        "comes from v5, which was never written",
    ),
    "lanes swizzled": (
        "ds_swizzle_b32 v2, v5 offset:0x401f\n s_waitcnt lgkmcnt(0)" + STORE_V2,
        "comes from v5, which was",
    ),
    "ALU operand": ("v_add_nc_u32_e32 v2, v0, v5" + STORE_V2, "lane 0 of v2 is undefined: it comes from v5, which was"),
    "address": ("global_load_b32 v2, v5, s[0:1]", "lane 0 of v5"),
    "scalar operand": ("s_add_u32 s8, s0, s20" + STORE_S8, "comes from s20, which was never written"),
    "scalar operand of a vector instruction": (
        "v_add_nc_u32_e32 v2, s20, v0" + STORE_V2,
        "comes from s20, which was never written",
    ),
    "vcc as a condition": ("s_cbranch_vccz .Lend\n.Lend:", "vcc_lo was never written"),
    "scc as a condition": ("s_cbranch_scc1 .Lend\n.Lend:", "scc was never written"),
    "m0 as an address": ("ds_load_addtid_b32 v2", "m0 was never written"),
    "scalar address": ("s_load_b32 s8, s[20:21], 0x0", "s20 was never written"),
    "one lane": (
        "s_mov_b32 exec_lo, 0xfffffffe\n v_mov_b32_e32 v2, 1\n s_mov_b32 exec_lo, -1\n v_add_nc_u32_e32 v3, v2, v2"
        + STORE_V3,
        "comes from v2, which was never written",
    ),
    "moved on": (
        "v_mov_b32_e32 v2, v5\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
    "scalar moved on": (
        "s_mov_b64 s[8:9], s[20:21]\n s_add_u32 s8, s9, s9" + STORE_S8,
        "comes from s2",
    ),
    "through readfirstlane": (
        "v_readfirstlane_b32 s8, v5\n s_add_u32 s8, s8, s8" + STORE_S8,
        "comes from v5, which was never written",
    ),
    "LDS that nobody wrote": (
        "ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n global_store_b32 v1, v2, s[2:3]",
        "lane 0 of v2 is undefined: it comes from LDS that was never written, loaded at 0x100004",
    ),
    "undefined value through LDS": (
        "ds_store_b32 v1, v5\n s_waitcnt lgkmcnt(0)\n ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v1, v2, s[2:3]",
        "lane 0 of v2",
    ),
    "atomic on LDS that nobody wrote": ("ds_add_u32 v1, v0", "LDS 0x0 was never written"),
    "high half of a sum": (
        "v_mov_b32_e32 v4, 0\n v_mad_u64_u32 v[2:3], null, s0, s0, v[4:5]\n v_add_nc_u32_e32 v3, v3, v3" + STORE_V3,
        "comes from v5, which was never written",
    ),
    "low half of an addend": (
        "v_mad_u64_u32 v[2:3], null, s0, s0, v[4:5]" + STORE_V2,
        "comes from v4, which was never written",
    ),
    "bits of a lane mask": (
        "s_mov_b32 exec_lo, 3\n s_and_not1_b32 s8, s20, exec_lo\n s_add_u32 s8, s8, s8" + STORE_S8,
        "comes from s20, which was never written",
    ),
    "bits that become EXEC": ("s_and_saveexec_b32 s8, s20", "EXEC would get bits"),
    "the high word of what a wide shift moves by bits": (
        "v_mov_b32_e32 v4, v0\n v_lshlrev_b64 v[2:3], 2, v[4:5]" + STORE_V3,
        "comes from v5, which was never written",
    ),
    "the word that a wide shift brings down": (
        "v_mov_b32_e32 v4, v0\n v_lshrrev_b64 v[2:3], 33, v[4:5]" + STORE_V2,
        "comes from v5, which was never written",
    ),
    "how far a wide shift goes": (
        "v_lshrrev_b64 v[2:3], v5, v[0:1]" + STORE_V2,
        "comes from v5, which was never written",
    ),
    "EXEC by M0": ("s_mov_b32 m0, 0\n s_movreld_b32 exec_lo, s20", "EXEC would get bits"),
    "the higher word of EXEC by M0": (
        "s_mov_b32 s21, 0\n s_mov_b32 m0, 0\n s_movreld_b64 exec, s[20:21]",
        "EXEC would get bits",
    ),
    "EXEC by M0, from a source of M0's": ("s_mov_b32 m0, 2\n s_movrelsd_2_b32 exec_lo, s18", "EXEC would get bits"),
    "what an interrupt tells the host": ("s_sendmsg 1", "m0 was never written"),
    "which bytes a permutation takes": (
        "v_perm_b32 v2, v0, v0, v5" + STORE_V2,
        "comes from v5, which was never written",
    ),
    "a permutation of nothing but undefined bytes": (
        "s_mov_b32 s8, 0x0c0c0601\n v_perm_b32 v2, v5, v6, s8\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
    "a permutation that takes one source only, the undefined one": (
        "s_mov_b32 s8, 0x04050607\n v_perm_b32 v2, v5, v0, s8\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
    "a permutation that takes but the second source": (
        "s_mov_b32 s8, 0x09080203\n v_perm_b32 v2, v0, v5, s8\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
    "signs that a permutation takes": (
        "s_mov_b32 s8, 0x0b0a0b0a\n v_perm_b32 v2, v5, v0, s8\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
    "the lane whose selector takes the undefined source": (
        "v_cmp_eq_u32_e32 vcc_lo, 3, v0\n v_cndmask_b32_e64 v2, 0, -1, vcc_lo\n v_and_b32_e32 v2, 0x04040404, v2\n"
        " v_perm_b32 v2, v5, v0, v2\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 3 of v3 is undefined: it comes from v5",
    ),
    "which byte a conversion writes": (
        "v_cvt_f32_u32_e32 v2, v0\n v_cvt_pk_u8_f32 v5, v2, v5, v6" + STORE_V5,
        "lane 0 of v5",
    ),
    "what a mixed sum is of": ("v_fma_mixhi_f16 v2, v0, v5, v0" + STORE_V2, "lane 0 of v2 "),
    "accumulator of a matrix product": (
        "v_mov_b32_e32 v2, 0\n v_mov_b32_e32 v3, 0\n v_wmma_i32_16x16x16_iu4 v[8:15], v[2:3], v[2:3], v[8:15]\n"
        "global_store_b32 v1, v8, s[2:3]",
        "lane 0 of v8 ",
    ),
    "an array's element that nobody wrote": (
        ARRAY + " s_mov_b32 m0, 2\n v_movrels_b32 v3, v4" + STORE_V3,
        "lane 0 of v3 is undefined",
    ),
    "an element that got an undefined value": (
        ARRAY + " v_movreld_b32 v4, v9\n v_mov_b32_e32 v2, v5" + STORE_V2,
        "lane 0 of v2 is undefined: it comes from v9, which was never written",
    ),
    "an element that was exchanged": (
        ARRAY + " s_mov_b32 m0, 0x10002\n v_swaprel_b32 v4, v4" + STORE_V5,
        "lane 0 of v5",
    ),
    "an array of scalars": (
        "s_mov_b32 m0, 1\n s_movrels_b32 s8, s19" + STORE_S8,
        "lane 0 of v2 is undefined: it comes from ",
    ),
    "select of the undefined side": (
        "s_mov_b32 vcc_lo, 1\n v_cndmask_b32_e32 v2, v0, v5, vcc_lo\n v_add_nc_u32_e32 v3, v2, v2" + STORE_V3,
        "lane 0 of v3 is undefined: it comes from v5",
    ),
}


@pytest.mark.parametrize("name", UNINITIALISED)
def test_what_nobody_wrote_may_not_decide(buffers, name):
    program, report = UNINITIALISED[name]
    violation = buffers.broken(LANE + program + END, **ARGS)
    assert violation.kind == "uninitialised"
    assert report in violation.detail


PASSED_ON = {
    "move": "v_mov_b32_e32 v2, v5\n s_mov_b32 s8, s20",
    "spill": "v_mov_b32_e32 v2, 0\n scratch_store_b32 off, v5, off",
    "padding of a wide store": "v_mov_b32_e32 v4, 0\n global_store_b64 v1, v[4:5], s[2:3]",
    "computed, and not used": "v_add_nc_u32_e32 v2, v0, v5\n s_add_u32 s8, s20, s0\n s_cmp_eq_u32 s20, 0",
    "computed, and selected away": (
        "v_max_u32_e32 v2, v0, v5\n v_cmp_gt_u32_e32 vcc_lo, v0, v5\n v_cndmask_b32_e32 v3, v0, v2, vcc_lo\n"
        "s_mov_b32 s8, 0\n v_cndmask_b32_e64 v3, v0, v3, s8" + STORE_V3
    ),
    "scalar computed, and selected away": (
        "s_max_u32 s8, s20, s0\n s_cmp_lg_u32 s0, s0\n s_cselect_b32 s8, s8, s0" + STORE_S8
    ),
    "undefined bits that are shifted out": "s_pack_ll_b32_b16 s9, s20, s0\n s_lshl_b32 s8, s20, 16\n s_lshr_b64 s[8:9], s[0:1], 3"
    + STORE_S8,
    "lanes that are not taken": (
        "s_mov_b32 exec_lo, 1\n v_mov_b32_e32 v2, 5\n s_mov_b32 exec_lo, -1\n v_mov_b32_e32 v3, 0\n"
        "ds_bpermute_b32 v4, v3, v2\n s_waitcnt lgkmcnt(0)\n v_mov_b32_e32 v2, v4" + STORE_V2
    ),
    "lane write": "v_writelane_b32 v5, s20, 3",
    "lane write, then its lane read": "v_writelane_b32 v5, s0, 3\n v_readlane_b32 s8, v5, 3\n s_add_u32 s9, s8, s8",
    "inactive lanes": (
        "s_mov_b32 exec_lo, 1\n v_mov_b32_e32 v2, 1\n v_add_nc_u32_e32 v3, v2, v2\n s_mov_b32 exec_lo, -1"
    ),
    "loaded memory": "global_load_b32 v2, v1, s[2:3]\n s_waitcnt vmcnt(0)\n v_add_nc_u32_e32 v3, v2, v2",
    "half a register": "global_load_d16_b16 v2, v1, s[0:1]\n s_waitcnt vmcnt(0)\n v_add_nc_u32_e32 v3, v2, v2",
    "select of the defined side": (
        "s_mov_b32 vcc_lo, 0\n v_cndmask_b32_e32 v2, v0, v5, vcc_lo\n v_add_nc_u32_e32 v3, v2, v2"
    ),
    "scalar select of the defined side": "s_cmp_eq_u32 s0, s0\n s_cselect_b32 s8, s0, s20\n s_add_u32 s9, s8, s8",
    "exec": "s_and_saveexec_b32 s8, s0",
    "exec by M0": "s_mov_b32 m0, 0\n s_movreld_b32 exec_lo, s0\n s_mov_b32 exec_lo, -1",
    "exec by M0, of the defined register": (
        "s_mov_b32 s20, -1\n s_mov_b32 m0, 2\n s_movrelsd_2_b32 exec_lo, s18\n s_movrelsd_2_b32 s18, s19"
    ),
    "bits of a lane mask that are cut off": (
        "s_and_not1_b32 s8, s20, exec_lo\n s_and_b32 s9, exec_lo, s0\n s_or_b32 s8, s8, s9\n s_add_u32 s9, s8, s8"
    ),
    # A production compiler fills an unwritten register so, half by half and byte by byte.
    "half that a mixed sum keeps": (
        "v_fma_mixhi_f16 v5, v0, v0, v0\n v_fma_mixlo_f16 v5, v0, v0, v0\n v_pk_add_f16 v6, v5, v5"
    ),
    "bytes that a conversion keeps": (
        "v_cvt_f32_u32_e32 v2, v0\n v_cvt_pk_u8_f32 v5, v2, 0, v5\n v_cvt_pk_u8_f32 v5, v2, 1, v5\n v_and_b32_e32 v6, 0xffff, v5"
    ),
    "bytes that a permutation keeps": "s_mov_b32 s8, 0x7060c00\n v_perm_b32 v5, v5, v0, s8\n v_and_b32_e32 v6, 0xffff, v5",
    "a constant byte beside those that a permutation keeps": (
        "s_mov_b32 s8, 0x07060c04\n v_perm_b32 v5, v5, 0, s8\n v_and_b32_e32 v6, 0xff00, v5"
    ),
    "a permutation of constants only": "s_mov_b32 s8, 0x0c0d0cff\n v_perm_b32 v5, v5, v6, s8\n v_and_b32_e32 v6, 1, v5",
    "bytes put together by the short encoding": (
        "v_or_b32_e32 v2, v0, v5" + STORE_V2 + "\n v_or_b32_e32 v2, v5, v0" + STORE_V2
    ),
    "halves put together by the short encoding": (
        "v_cvt_pk_rtz_f16_f32_e32 v2, v0, v5" + STORE_V2 + "\n v_cvt_pk_rtz_f16_f32_e32 v2, v5, v0" + STORE_V2
    ),
    "bytes of two registers that a wide shift puts together": (
        "v_mov_b32_e32 v4, v0\n v_mov_b32_e32 v7, v0\n v_lshrrev_b64 v[2:3], 24, v[4:5]"
        + STORE_V2
        + "\n v_ashrrev_i64 v[2:3], v1, v[6:7]\n v_lshrrev_b64 v[2:3], 8, v[6:7]"
        + STORE_V2
        + "\n v_lshlrev_b64 v[2:3], 24, v[4:5]"
        + STORE_V3
    ),
    "what a wide shift moves out": (
        "v_mov_b32_e32 v4, v0\n v_mov_b32_e32 v7, v0\n v_lshlrev_b64 v[2:3], 33, v[4:5]"
        + STORE_V2
        + STORE_V3
        + "\n v_lshrrev_b64 v[2:3], 33, v[6:7]"
        + STORE_V2
        + STORE_V3
    ),
    "an array's element": ARRAY + "v_movrels_b32 v3, v4" + STORE_V3,
    "an array's element, written and read by name": ARRAY + "v_mov_b32_e32 v2, v5" + STORE_V2,
    "what an exchange put back": ARRAY
    + "s_mov_b32 m0, 0x10002\n v_swaprel_b32 v4, v4\n v_mov_b32_e32 v2, v6"
    + STORE_V2,
    "an array of scalars": "s_mov_b32 m0, 2\n s_movreld_b32 s18, s0\n s_movrels_b32 s8, s18" + STORE_S8,
    "a permutation that takes nothing of an undefined scalar": (
        "s_mov_b32 s8, 0x07060504\n v_perm_b32 v2, v0, s20, s8" + STORE_V2
    ),
    "high half of an addend": "v_mov_b32_e32 v4, 0\n v_mad_u64_u32 v[2:3], null, s0, s0, v[4:5]\n v_add_nc_u32_e32 v6, v2, v2",
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_an_undefined_value_may_be_passed_on(buffers, name):
    buffers.buffer(0x50_0000, np.zeros(1024))
    buffers.run(LANE + PASSED_ON[name] + END, **ARGS, scratch_base=0x50_0000, scratch_wave_bytes=512)


def products(rows, columns, lanes):
    """Return the code of two products into v24 and up, one added to the other. Only these lanes of A and B are
    written.
    """
    half = 256 // lanes
    code = []
    for mask, names in ((rows, (8, 9)), (columns, (10, 11)), ((1 << lanes) - 1, range(24, 24 + half))):
        code += _masked(mask, lanes) + [f"v_mov_b32_e32 v{name}, 0" for name in names]
    product = f"v_wmma_i32_16x16x16_iu4 v[24:{23 + half}], v[8:9], v[10:11], v[24:{23 + half}]"
    return [*code, product, product]


def _masked(mask, lanes):
    halves = (("lo", mask & 0xFFFF_FFFF), ("hi", mask >> 32 & 0xFFFF_FFFF))
    return [f"s_mov_b32 exec_{name}, {word:#x}" for name, word in halves[: lanes // 32]]


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("seed", range(3))
def test_what_nobody_wrote_of_a_matrix_stays_in_its_row_and_column(buffers, seed, lanes):
    """Compilers fill the tiles at a matrix's edge only in part, multiply them, and keep the right results."""
    rng, groups = np.random.default_rng(seed), lanes // 16
    written = rng.random((2, 16)) < 0.8
    copies = np.tile(written, groups)
    # Lanes from 16 up hold copies of the others. The copies count as well.
    copies[1, 16 + seed] = False
    rows, columns = (int.from_bytes(np.packbits(one, bitorder="little").tobytes(), "little") for one in copies)
    written[1, seed] = False
    # By row and column.
    defined = written[0][:, None] & written[1]
    arguments = ARGS | {"vgpr_count": 48, "wave_size": lanes, "group_size": (lanes, 1, 1)}
    right = products(rows, columns, lanes)
    for register in range(16 // groups):
        lanes_of = defined[groups * register : groups * (register + 1)].ravel()
        look = int.from_bytes(np.packbits(lanes_of, bitorder="little").tobytes(), "little")
        right += [*_masked(look, lanes), f"v_add_nc_u32_e32 v2, v{24 + register}, v{24 + register}", STORE_V2]
        if lanes_of.all() or register % 3:
            continue
        wrong = [
            *products(rows, columns, lanes),
            *_masked(~look, lanes),
            f"global_store_b32 v1, v{24 + register}, s[2:3]",
        ]
        violation = buffers.broken(LANE + "\n".join(wrong) + END, **arguments)
        assert violation.kind == "uninitialised"
        assert f"lane {int(lanes_of.argmin())} of v{24 + register} " in violation.detail
    buffers.run(LANE + "\n".join(right) + END, **arguments)


ROWS = "row_mask:0xf bank_mask:0xf"
# v2 is written in lanes 0 to 7.
EIGHT = "s_mov_b32 exec_lo, 0xff\n v_mov_b32_e32 v2, 1\n s_mov_b32 exec_lo, -1\n"
FEW = EIGHT + "s_mov_b32 exec_lo, 0xff\n"
USE = "\nv_add_nc_u32_e32 v4, v3, v3\n v_mov_b32_e32 v3, v4" + STORE_V3
# What DPP reads and writes: program and report. The report is empty if the program keeps the rule.
DPP = {
    # Lane 0 reads lane 12.
    "move": (EIGHT + f"v_mov_b32_dpp v3, v2 row_ror:4 {ROWS}" + USE, "lane 0 of v3"),
    "move of written lanes": (
        EIGHT + "v_mov_b32_dpp v3, v2 row_share:0 row_mask:1 bank_mask:0xf\n s_mov_b32 exec_lo, 0xffff" + USE,
        "",
    ),
    "rows that are not written": ("v_mov_b32_dpp v3, v0 row_ror:4 row_mask:1 bank_mask:0xf" + USE, "lane 16 of v3"),
    "rows of a sum that are not written": (
        "v_add_nc_u32_dpp v3, v0, v0 row_ror:4 row_mask:1 bank_mask:0xf" + USE,
        "lane 16 of v3",
    ),
    "beyond the row": (f"v_mov_b32_dpp v3, v0 row_shr:1 {ROWS}" + USE, "lane 0 of v3"),
    "beyond the row, which reads 0": (f"v_mov_b32_dpp v3, v0 row_shr:1 {ROWS} bound_ctrl:1" + USE, ""),
    "inactive lanes": (FEW + f"v_mov_b32_dpp v3, v2 row_ror:4 {ROWS}" + USE, "lane 0 of v3"),
    "inactive lanes, which read 0": (FEW + f"v_mov_b32_dpp v3, v2 row_ror:4 {ROWS} bound_ctrl:1" + USE, ""),
    "inactive lanes that are moved": (FEW + f"v_mov_b32_dpp v3, v2 row_ror:4 {ROWS} fi:1" + USE, "lane 0 of v3"),
    "inactive lanes that decide": (
        FEW + f"v_add_nc_u32_dpp v3, v2, v0 row_ror:4 {ROWS} fi:1" + STORE_V3,
        "comes from v2",
    ),
    "second source": (
        EIGHT
        + "v_add_nc_u32_dpp v3, v0, v2 row_share:0 row_mask:1 bank_mask:0xf\n s_mov_b32 exec_lo, 0xffff"
        + STORE_V3,
        "lane 8 of v3",
    ),
    "second source in written lanes": (FEW + f"v_add_nc_u32_dpp v3, v0, v2 row_ror:4 {ROWS} fi:1" + STORE_V3, ""),
    "select of the first": (
        EIGHT + f"s_mov_b32 vcc_lo, 0\n v_cndmask_b32_dpp v3, v2, v0, vcc_lo row_share:0 {ROWS}" + USE,
        "lane 16 of v3",
    ),
    "select of the second": (
        EIGHT + f"s_mov_b32 vcc_lo, -1\n v_cndmask_b32_dpp v3, v0, v2, vcc_lo row_share:0 {ROWS}" + USE,
        "lane 8 of v3",
    ),
    "bytes of the first": (
        EIGHT + f"s_mov_b32 s8, 0x07060504\n v_perm_b32_e64_dpp v3, v2, v0, s8 row_share:0 {ROWS}" + USE,
        "lane 16 of v3",
    ),
    "bytes of the second": (
        EIGHT + f"s_mov_b32 s8, 0x03020100\n v_perm_b32_e64_dpp v3, v0, v2, s8 row_share:0 {ROWS}" + USE,
        "lane 8 of v3",
    ),
}


@pytest.mark.parametrize("name", DPP)
def test_lanes_are_followed_to_where_dpp_moves_them(buffers, name):
    program, report = DPP[name]
    if not report:
        buffers.run(LANE + program + END, **ARGS)
        return
    violation = buffers.broken(LANE + program + END, **ARGS)
    assert violation.kind == "uninitialised"
    assert report in violation.detail


OTHERS = {
    "atomic off its size": (
        "v_or_b32_e32 v1, 2, v1\n global_atomic_add_u32 v1, v0, s[2:3]",
        "alignment",
        "multiple|bytes at",
    ),
    "LDS atomic off its size": ("v_or_b32_e32 v1, 1, v1\n ds_add_u32 v1, v0", "alignment", "4 bytes at 0x1"),
    "scalar load off a dword": ("s_load_b32 s8, s[0:1], 0x2", "alignment", "0x200002"),
    "unmapped": ("global_load_b32 v2, v1, s[0:1] offset:-4", "memory", "read of 0x1ffffc: not mapped"),
    "last lane beyond": ("global_load_b32 v2, v1, s[0:1] offset:900", "memory", "not mapped"),
    "read-only": ("global_store_b32 v1, v0, s[4:5]", "memory", "write to 0x400000: not permitted"),
    "LDS beyond the allocation": ("ds_store_b32 v1, v0 offset:900", "memory", "lane 31 reaches LDS 0x400"),
    "VGPR beyond the allocation": ("v_mov_b32_e32 v24, 0", "register", "v24 is beyond the 24"),
    "load that ends beyond": ("global_load_b64 v[23:24], v1, s[0:1]", "register", "v24 is beyond"),
    "scratch without any": ("scratch_store_b32 off, v0, off", "memory", "reaches scratch"),
    "end of the code": ("s_code_end", "illegal", "end of the code"),
    "reserved bits": (".long 0xbf7fffff", "illegal", ""),
    "code that is data": ("s_setpc_b64 s[0:1]", "illegal", "0x200000: not permitted"),
    "reserved message": ("s_sendmsg 0x44", "illegal", "0x44"),
    "trap without a handler": ("s_trap 2", "trap", "trap 2"),
    "jump into an instruction": (
        "s_getpc_b64 s[8:9]\n s_add_u32 s8, s8, 18\n s_addc_u32 s9, s9, 0\n s_setpc_b64 s[8:9]",
        "alignment",
        "program counter would be 0x10001a, which is misaligned",
    ),
    "call of an instruction's half": (
        "s_getpc_b64 s[8:9]\n s_or_b32 s8, s8, 1\n s_swappc_b64 s[10:11], s[8:9]",
        "alignment",
        "program counter would be 0x100009, which is misaligned",
    ),
    "return from no trap": ("s_rfe_b64 s[0:1]", "illegal", "outside a trap handler"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_rules_stop_the_wave_and_are_named(buffers, name):

    buffers.buffer(0x40_0000, np.zeros(256), writable=False)
    program, kind, report = OTHERS[name]
    args = ARGS | {"user_sgprs": (IN, 0, OUT, 0, 0x40_0000, 0)}
    violation = buffers.broken(LANE + program + END, **args)
    assert violation.kind == kind
    assert re.search(report, violation.detail), violation.detail


def test_a_trap_handler_may_not_return_into_an_instruction(buffers):
    violation = buffers.broken("s_or_b32 s0, s0, 2\n s_rfe_b64 s[0:1]" + END, **ARGS, privileged=True)
    assert (violation.kind, violation.gpu_va) == ("alignment", IN | 2)


@pytest.mark.parametrize("strict", [True, False])
def test_code_does_not_begin_within_an_instruction(buffers, strict):
    buffers.start("s_nop 0" + END, **ARGS)
    dispatch = Dispatch(0x10_0002, 32, (32, 1, 1), (1, 1, 1), 24)
    run = buffers.engine.start(dispatch, buffers.arena, buffers.heard, strict=strict)
    assert not run.step(100)
    assert [(one.kind, one.gpu_va) for one in run.violations] == [("alignment", 0x10_0002)]


def test_a_violation_says_lane_and_address(buffers):
    violation = buffers.broken(LANE + "global_load_b32 v2, v1, s[0:1] offset:900" + END, **ARGS)
    assert (violation.lane, violation.gpu_va) == (31, 0x20_0400)
    assert violation.detail.startswith("lane 31: read of 0x200400")


def test_code_may_not_run_past_its_end(buffers):
    violation = buffers.broken("s_nop 0", **ARGS)
    assert (violation.kind, violation.text) == ("illegal", "no instruction")
    assert violation.pc == 0x10_0004


def test_a_misaligned_vector_access_depends_on_the_alignment_mode(buffers):
    program = LANE + "v_or_b32_e32 v1, 2, v1\n global_load_b32 v2, v1, s[0:1]" + END
    buffers.run(program, **(ARGS | {"user_sgprs": (IN, 0, OUT, 0)}))
    violation = buffers.broken(program, **ARGS, mtype_unaligned=False)
    assert violation.kind == "alignment"


def test_a_dispatch_that_broke_a_rule_never_ends_and_others_go_on(buffers):
    program = """
        v_lshlrev_b32_e32 v1, 2, v0
        s_lshl_b32 s5, s4, 7
        v_add_nc_u32_e32 v1, s5, v1
        s_cmp_eq_u32 s4, 0
        s_cbranch_scc1 .Lbad
        v_mov_b32_e32 v2, 1
        global_store_b32 v1, v2, s[2:3]
        s_endpgm
    .Lbad:
        v_mov_b32_e32 v90, 0
        s_endpgm
    """
    run = buffers.start(program, **(ARGS | {"enable_group_id": (True, False, False), "group_count": (3, 1, 1)}))
    assert not run.step(1000)
    assert not run.step(1000)
    assert [(one.kind, one.wave) for one in run.violations] == [("register", (0, 0, 0, 0))]
    assert buffers.out[:96].tolist() == [0] * 32 + [1] * 64


def test_a_violation_reads_as_one_line(buffers):
    violation = buffers.broken("v_mov_b32_e32 v90, 0" + END, **ARGS)
    assert str(violation).startswith("register at 0x100000 in wave (0, 0, 0, 0): v_mov_b32")


# Only one of the two ways waits for the transcendental result.
TWO_WAYS = (
    "s_cmp_{}_u32 s0, s0\n s_cbranch_scc1 .Lwaits\n v_rcp_f32_e32 v2, v0\n s_branch .Luses\n"
    ".Lwaits:\n v_rcp_f32_e32 v2, v0\n s_waitcnt_depctr 0xfff\n .Luses:\n v_mov_b32_e32 v4, 0\n v_add_nc_u32_e32 v3, v2, v2"
)
SEQUENCES = {
    "transcendental result behind a branch": (
        "v_rcp_f32_e32 v2, v0\n v_mov_b32_e32 v4, 0\n s_cbranch_execz .Lnext\n .Lnext:\n v_add_nc_u32_e32 v3, v2, v2",
        "hazard",
        "v2 of a transcendental",
    ),
    "transcendental result that one of two ways waits for": (TWO_WAYS.format("lg"), "hazard", "v2 of a transcendental"),
    "transcendental result of the turn before": (
        "s_mov_b32 s8, 0\n v_mov_b32_e32 v2, 0\n .Lagain:\n v_add_nc_u32_e32 v3, v2, v2\n s_add_i32 s8, s8, 1\n v_mov_b32_e32 v5, 0\n"
        "v_rcp_f32_e32 v2, v0\n s_cmp_lt_u32 s8, 2\n s_cbranch_scc1 .Lagain",
        "hazard",
        "v2 of a transcendental",
    ),
    "permutation behind v_cmpx and a branch": (
        "v_cmpx_eq_u32_e32 v0, v0\n s_cbranch_execz .Lnext\n .Lnext:\n v_permlane16_b32 v2, v0, s0, s0",
        "hazard",
        "v_cmpx",
    ),
    "transcendental result": ("v_rcp_f32_e32 v2, v0\n v_add_nc_u32_e32 v3, v2, v2", "hazard", "v2 of a transcendental"),
    "permutation behind v_cmpx": ("v_cmpx_eq_u32_e32 v0, v0\n v_permlane16_b32 v2, v0, s0, s0", "hazard", "v_cmpx"),
    "WMMA into WMMA": (
        "v_wmma_f32_16x16x16_f16 v[8:15], v[16:23], v[16:23], v[8:15]\n"
        "v_wmma_f32_16x16x16_f16 v[24:31], v[8:15], v[16:23], v[24:31]",
        "hazard",
        "result of the previous WMMA",
    ),
    "clause of two kinds": (
        "s_clause 0x1\n s_load_b32 s8, s[0:1], 0x0\n v_mov_b32_e32 v2, 0",
        "illegal",
        "clause of SMEM",
    ),
    "scalar instruction in a clause": ("s_clause 0x1\n s_mov_b32 s8, 0", "illegal", "inside a clause"),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_instructions_may_not_follow_too_closely(buffers, name):
    program, kind, report = SEQUENCES[name]
    zeroes = "".join(f"v_mov_b32_e32 v{at}, 0\n" for at in range(8, 32))
    violation = buffers.broken(zeroes + program + END, **(ARGS | {"vgpr_count": 48}))
    assert (violation.kind, report in violation.detail) == (kind, True), violation


RIGHT_SEQUENCES = {
    "transcendental result by the way that waits": TWO_WAYS.format("eq"),
    "transcendental result over blocks, late enough": "v_rcp_f32_e32 v2, v0\n"
    + "".join(f"v_mov_b32_e32 v4, 0\n s_cbranch_execz .Lnext{at}\n .Lnext{at}:\n" for at in range(6))
    + "v_add_nc_u32_e32 v3, v2, v2",
    "transcendental result, waited for": "v_rcp_f32_e32 v2, v0\n s_waitcnt_depctr 0xfff\n v_add_nc_u32_e32 v3, v2, v2",
    "transcendental result, behind an access to LDS": "v_rcp_f32_e32 v2, v0\n ds_store_b32 v1, v0\n v_add_nc_u32_e32 v3, v2, v2",
    "transcendental result, behind an access to memory": (
        "v_rcp_f32_e32 v2, v0\n global_load_b32 v4, v1, s[0:1]\n v_add_nc_u32_e32 v3, v2, v2"
    ),
    "transcendental result, late enough": "v_rcp_f32_e32 v2, v0\n"
    + "v_mov_b32_e32 v4, 0\n" * 6
    + "v_add_nc_u32_e32 v3, v2, v2",
    "permutation": "v_cmpx_eq_u32_e32 v0, v0\n v_mov_b32_e32 v4, 0\n v_permlane16_b32 v2, v0, s0, s0",
    "WMMA": (
        "v_wmma_f32_16x16x16_f16 v[8:15], v[16:23], v[16:23], v[8:15]\n v_nop\n"
        "v_wmma_f32_16x16x16_f16 v[24:31], v[8:15], v[16:23], v[24:31]"
    ),
    "accumulation in WMMA": (
        "v_wmma_f32_16x16x16_f16 v[8:15], v[16:23], v[16:23], v[8:15]\n"
        "v_wmma_f32_16x16x16_f16 v[8:15], v[16:23], v[16:23], v[8:15]"
    ),
    "clause": "s_clause 0x1\n s_load_b32 s8, s[0:1], 0x0\n s_load_b32 s9, s[0:1], 0x4\n v_mov_b32_e32 v4, 0",
}


@pytest.mark.parametrize("name", RIGHT_SEQUENCES)
def test_instructions_far_enough_apart_are_right(buffers, name):
    zeroes = "".join(f"v_mov_b32_e32 v{at}, 0\n" for at in range(8, 32))
    buffers.run(LANE + zeroes + RIGHT_SEQUENCES[name] + END, **(ARGS | {"vgpr_count": 48}))
