"""Rules of strict mode that RDNA4 has in its own words: programs that break one, and programs that keep it.

`test_wait_counters.py` has which counter covers which operation, `test_strict_rdna4.py` undefined values and SGPRs,
`test_split_barriers.py` barriers. Source: RDNA4 ISA reference, "Data Dependency Resolution", "Instruction Clauses",
"Wave Matrix Multiply Accumulate".
"""

import re

import numpy as np
import pytest

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "lds_size_bytes": 1024, "vgpr_count": 48}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
STORED = "ds_store_b32 v1, v0\n s_wait_dscnt 0x0\n"
FLAT = "v_mov_b32_e32 v4, s0\n v_mov_b32_e32 v5, s1\n"
END = "\ns_endpgm\n"


@pytest.fixture
def buffers(rdna4):
    rdna4.buffer(IN, np.arange(256))
    rdna4.buffer(OUT, np.zeros(256))
    return rdna4


# Registers in flight. Each counter counts alone, and the one of scalars is a wait for everything or for nothing.
EARLY = {
    "later of two loads": (
        "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v3, v1, s[0:1]\n s_wait_loadcnt 0x1\n v_mov_b32_e32 v4, v3",
        "v3 is still .*wait on loadcnt",
    ),
    "load overwritten": ("global_load_b32 v2, v1, s[0:1]\n v_mov_b32_e32 v2, 0", "v2 is still .*loadcnt"),
    "scalar loads come back in any order": (
        "s_load_b32 s8, s[0:1], 0x0\n s_load_b32 s9, s[0:1], 0x4\n s_wait_kmcnt 0x1\n s_mov_b32 s10, s8", "s8 is still .*kmcnt",
    ),
    "wide scalar loads count twice": (
        "s_load_b96 s[8:10], s[0:1], 0x0\n s_wait_kmcnt 0x1\n s_mov_b32 s12, s9", "s9 is still",
    ),
    "a load of LDS by the counter of scalars": (
        f"{STORED}ds_load_b32 v2, v1\n s_wait_kmcnt 0x0\n v_mov_b32_e32 v3, v2", "v2 is still .*wait on dscnt",
    ),
    "both counters by the half of one": (
        f"{STORED}global_load_b32 v2, v1, s[0:1]\n ds_load_b32 v3, v1\n s_wait_loadcnt_dscnt 0x1\n v_mov_b32_e32 v4, v3",
        "v3 is still .*dscnt",
    ),
    "a flat load of memory by the counter of LDS": (
        f"{FLAT}flat_load_b32 v2, v[4:5]\n s_wait_dscnt 0x0\n v_mov_b32_e32 v3, v2", "v2 is still .*wait on loadcnt",
    ),
    "load by another unit into the same register": (
        f"{STORED}global_load_b32 v2, v1, s[0:1]\n ds_load_b32 v2, v1", "v2 is still",
    ),
    "address that is loaded": ("s_load_b64 s[8:9], s[0:1], 0x0\n s_load_b32 s10, s[8:9], 0x0", "s8 is still"),
    "high half behind the low one": (
        "v_mov_b32_e32 v2, 0\n global_load_d16_b16 v2, v1, s[0:1]\n global_load_d16_hi_b16 v2, v1, s[0:1] offset:4\n"
        "s_wait_loadcnt 0x1\n v_cvt_f32_f16_e32 v3, v2.h", "v2 is still",
    ),
    "a source that M0 picks": (
        "v_mov_b32_e32 v8, 8\n global_load_b32 v9, v1, s[0:1]\n s_mov_b32 m0, 1\n v_movrels_b32_e32 v2, v8", "v9 is still",
    ),
    "a direct load": (
        f"{STORED}s_mov_b32 m0, 0x20000\n ds_direct_load v2\n v_mov_b32_e32 v3, v2", "v2 is still .*wait on expcnt",
    ),
}  # fmt: skip
IN_TIME = {
    "older of two loads": (
        "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v3, v1, s[0:1]\n s_wait_loadcnt 0x1\n v_mov_b32_e32 v4, v2"
    ),
    "a load of LDS behind a scalar one": (
        f"{STORED}ds_load_b32 v2, v1\n s_load_b32 s8, s[0:1], 0x0\n s_wait_dscnt 0x0\n v_mov_b32_e32 v3, v2\n s_wait_kmcnt 0x0"
    ),
    "older load of LDS": f"{STORED}ds_load_b32 v2, v1\n ds_load_b32 v3, v1\n s_wait_dscnt 0x1\n v_mov_b32_e32 v4, v2",
    "both counters in one": (
        f"{STORED}global_load_b32 v2, v1, s[0:1]\n ds_load_b32 v3, v1\n s_wait_loadcnt_dscnt 0x0\n v_add_nc_u32_e32 v4, v2, v3"
    ),
    "a flat load of memory": f"{FLAT}flat_load_b32 v2, v[4:5]\n s_wait_loadcnt 0x0\n v_mov_b32_e32 v3, v2",
    "the source of a store": "global_store_b32 v1, v0, s[2:3]\n v_mov_b32_e32 v0, 0",
    "a load behind a store to the same address": "global_store_b32 v1, v0, s[2:3]\n global_load_b32 v2, v1, s[2:3]",
    "low half before the high one": (
        "v_mov_b32_e32 v2, 0\n global_load_d16_b16 v2, v1, s[0:1]\n global_load_d16_hi_b16 v2, v1, s[0:1] offset:4\n"
        "s_wait_loadcnt 0x1\n v_cvt_f32_f16_e32 v3, v2.l"
    ),
    "a half beside the one that is loaded": (
        "v_mov_b32_e32 v2, v0\n global_load_d16_hi_b16 v2, v1, s[0:1]\n v_mov_b16_e32 v2.l, 0"
    ),
    "a transcendental result at once": "v_rcp_f32_e32 v2, v0\n v_add_nc_u32_e32 v3, v2, v2",
}  # fmt: skip


@pytest.mark.parametrize("name", EARLY)
def test_a_register_in_flight_may_not_be_touched(buffers, name):
    program, report = EARLY[name]
    found = buffers.broken(LANE + program + END, **ARGS)
    assert found.kind == "hazard"
    assert re.search(report, found.detail), found.detail


@pytest.mark.parametrize("name", IN_TIME)
def test_a_register_that_has_returned_can_be_used(buffers, name):
    buffers.run(LANE + IN_TIME[name] + END, **ARGS)


# Two waves store to LDS. Whether a store is in flight at the signal.
BARRIER = "s_barrier_signal -1\n s_barrier_wait -1"
SIGNALS = {
    "others waited for": (f"ds_load_b32 v2, v1\n ds_store_b32 v1, v0\n s_wait_dscnt 0x1\n {BARRIER}", True),
    "older one waited for": (f"ds_store_b32 v1, v0\n ds_load_b32 v2, v1\n s_wait_dscnt 0x1\n {BARRIER}", False),
    "waited for between signal and wait": (
        "ds_store_b32 v1, v0\n s_barrier_signal -1\n s_wait_dscnt 0x0\n s_barrier_wait -1", True,
    ),
    "stored between signal and wait": (
        "s_barrier_signal -1\n ds_store_b32 v1, v0\n s_barrier_wait -1\n s_wait_dscnt 0x0", False,
    ),
    "an atomic": (f"{STORED}ds_add_u32 v1, v0\n {BARRIER}", True),
    "by one way": (
        f"s_mov_b32 s8, 2\n .Lagain:\n s_wait_dscnt 0x0\n {BARRIER}\n s_sub_co_u32 s8, s8, 1\n ds_store_b32 v1, v0\n"
        f"s_cmp_lg_u32 s8, 0\n s_cbranch_scc1 .Lagain\n {BARRIER}", True,
    ),
    "no lane stores": (f"s_mov_b32 exec_lo, 0\n ds_store_b32 v1, v0\n s_mov_b32 exec_lo, -1\n {BARRIER}", False),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNALS)
def test_what_is_stored_to_lds_is_there_before_a_signal(buffers, name):
    program, late = SIGNALS[name]
    group = ARGS | {"group_size": (64, 1, 1)}
    if not late:
        buffers.run(LANE + program + END, **group)
        return
    found = buffers.broken(LANE + program + END, **group)
    assert (found.kind, found.text.split()[0]) == ("hazard", "s_barrier_signal")
    assert "LDS is still being stored to" in found.detail


PRODUCT = "v_wmma_f32_16x16x16_f16 v[{0}:{1}], v[{2}:{3}], v[16:19], v[{0}:{1}]\n"
FIRST, AGAIN, NEXT = PRODUCT.format(8, 15, 20, 23), PRODUCT.format(8, 15, 20, 23), PRODUCT.format(24, 31, 8, 11)
SEQUENCES = {
    "a product of a product": (FIRST + NEXT, "result of the previous WMMA"),
    "a product of a product, later": (f"{FIRST}v_nop\n{NEXT}", ""),
    "a sum of products": (FIRST + AGAIN, ""),
    "a sparse product of a product": (
        f"{FIRST}v_swmmac_f32_16x16x32_f16 v[24:31], v[8:11], v[16:23], v32", "result of the previous WMMA",
    ),
    "a permutation behind v_cmpx": ("v_cmpx_eq_u32_e32 v0, v0\n v_permlane16_b32 v2, v0, s0, s0", "v_cmpx"),
    "a variable permutation behind v_cmpx": ("v_cmpx_eq_u32_e32 v0, v0\n v_permlane16_var_b32 v2, v0, v0", "v_cmpx"),
    "a permutation later": ("v_cmpx_eq_u32_e32 v0, v0\n v_nop\n v_permlane16_b32 v2, v0, s0, s0", ""),
    "a clause of two kinds": ("s_clause 0x1\n s_load_b32 s8, s[0:1], 0x0\n v_mov_b32_e32 v2, 0", "clause of SMEM"),
    "a clause of loads": ("s_clause 0x1\n s_load_b32 s8, s[0:1], 0x0\n s_load_u8 s9, s[0:1], 0x4\n v_nop", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_instructions_follow_as_closely_as_they_may(buffers, name):
    program, report = SEQUENCES[name]
    zeros = "".join(f"v_mov_b32_e32 v{at}, 0\n" for at in range(8, 33))
    if report:
        assert report in buffers.broken(zeros + program + END, **ARGS).detail
    else:
        buffers.run(zeros + program + END, **ARGS)


UNDEFINED = {
    "LDS that nobody wrote, stored": (
        "ds_load_b32 v2, v1\n s_wait_dscnt 0x0\n global_store_b32 v1, v2, s[2:3]", "lane 0 of v2",
    ),
    "LDS that nobody wrote, as an address": (
        "ds_load_b32 v2, v1\n s_wait_dscnt 0x0\n global_load_b32 v3, v2, s[0:1]", "lane 0 of v2",
    ),
    "a count where nobody wrote": ("s_mov_b32 m0, 64\n ds_append v2", "LDS 0x40 was never written"),
    "a scalar that becomes EXEC": ("s_mov_b32 exec_lo, s20", "EXEC would get bits"),
    "an index": ("v_mov_b32_e32 v8, 8\n s_mov_b32 m0, s20\n v_movrels_b32_e32 v2, v8", "m0"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDEFINED)
def test_what_nobody_wrote_may_not_decide(buffers, name):
    program, report = UNDEFINED[name]
    found = buffers.broken(LANE + program + END, **ARGS)
    assert (found.kind, report in found.detail) == ("uninitialised", True), found
