"""RDNA4's wait counters: which one covers which operation, and what an instruction does without the wait.

Source: RDNA4 ISA reference, "Memory Dependency Counters".
"""

import numpy as np
import pytest

DATA = 0x30_0000
ARGS = {"user_sgprs": (DATA, 0), "lds_size_bytes": 1024}
SETUP = "v_mov_b32_e32 v1, 0\n v_mov_b32_e32 v2, s0\n v_mov_b32_e32 v3, s1\n v_mov_b32_e32 v9, 0\n"

# What starts, the register that it fills, and the waits that cover it.
CASES = [
    ("global_load_b32 v4, v1, s[0:1]", "v4", ["s_wait_loadcnt 0x0"]),
    ("buffer_load_b32 v4, off, s[4:7], null", "v4", ["s_wait_loadcnt 0x0"]),
    ("scratch_load_b32 v4, off, off", "v4", ["s_wait_loadcnt 0x0"]),
    ("global_atomic_add_u32 v4, v1, v9, s[0:1] th:TH_ATOMIC_RETURN", "v4", ["s_wait_loadcnt 0x0"]),
    ("ds_load_b32 v4, v1", "v4", ["s_wait_dscnt 0x0"]),
    ("ds_add_rtn_u32 v4, v1, v9", "v4", ["s_wait_dscnt 0x0"]),
    ("s_load_b32 s12, s[0:1], 0x0", "s12", ["s_wait_kmcnt 0x0"]),
    ("s_load_u8 s12, s[0:1], 0x1", "s12", ["s_wait_kmcnt 0x0"]),
    ("s_sendmsg_rtn_b32 s12, sendmsg(MSG_RTN_GET_REALTIME)", "s12", ["s_wait_kmcnt 0x0"]),
    ("flat_load_b32 v4, v[2:3]", "v4", ["s_wait_loadcnt 0x0"]),
]
COUNTERS = ("loadcnt", "storecnt", "samplecnt", "bvhcnt", "expcnt", "dscnt", "kmcnt")
DISPATCH = ARGS | {"scratch_base": 0x80_0000, "scratch_wave_bytes": 32 * 64}


def program(start, register, waits):
    use = f"v_mov_b32_e32 v5, {register}" if register[0] == "v" else f"s_mov_b32 s13, {register}"
    lds = "ds_store_b32 v1, v9\n s_wait_dscnt 0x0\n"
    describe = "s_mov_b64 s[4:5], s[0:1]\n s_movk_i32 s6, 0x100\n s_mov_b32 s7, 0x31016fac\n"
    return "\n".join([SETUP + lds + describe + start, *waits, use, "s_wait_idle", "s_endpgm"])


@pytest.fixture
def memory(rdna4):
    rdna4.buffer(DATA, np.zeros(256))
    rdna4.buffer(0x80_0000, np.zeros(1024))
    return rdna4


@pytest.mark.parametrize(("start", "register", "waits"), CASES, ids=[case[0].split()[0] for case in CASES])
def test_the_wait_for_its_counter_is_needed_and_enough(memory, start, register, waits):
    memory.run(program(start, register, waits), **DISPATCH)
    needed = {one.split("_")[2].split()[0] for one in waits}
    others = [f"s_wait_{one} 0x0" for one in COUNTERS if one not in needed]
    found = memory.broken(program(start, register, others), **DISPATCH)
    assert found.kind == "hazard"
    assert f"wait on {' and '.join(sorted(needed))}" in found.detail


def test_loads_of_lds_through_flat_need_both_counters(memory):
    aperture = DISPATCH | {"shared_aperture": 1}
    start = "v_mov_b32_e32 v2, 0\n v_mov_b32_e32 v3, 0x10000\n flat_load_b32 v4, v[2:3]"
    both = ["s_wait_loadcnt_dscnt 0x0"]
    memory.run(program(start, "v4", both), **aperture)
    for one in ("s_wait_loadcnt 0x0", "s_wait_dscnt 0x0"):
        assert memory.broken(program(start, "v4", [one]), **aperture).kind == "hazard"


def test_counts_leave_the_last_loads_in_flight(memory):
    loads = "\n".join(f"global_load_b32 v{10 + at}, v1, s[0:1] offset:{4 * at}" for at in range(3))
    memory.run(f"{SETUP}{loads}\n s_wait_loadcnt 0x2\n v_mov_b32_e32 v5, v10\n s_endpgm", **ARGS)
    found = memory.broken(f"{SETUP}{loads}\n s_wait_loadcnt 0x2\n v_mov_b32_e32 v5, v11\n s_endpgm", **ARGS)
    assert "v11 is still being loaded" in found.detail


def test_two_counts_share_an_immediate(memory):
    both = (
        f"{SETUP} ds_store_b32 v1, v9\n s_wait_dscnt 0x0\n global_load_b32 v10, v1, s[0:1]\n ds_load_b32 v11, v1\n ds_load_b32 v12, v1\n"
        "s_wait_loadcnt_dscnt 0x1\n v_add_nc_u32_e32 v5, v10, v11\n"
    )
    memory.run(both + "s_endpgm", **ARGS)
    assert "v12" in memory.broken(both + "v_mov_b32_e32 v6, v12\n s_endpgm", **ARGS).detail


@pytest.mark.parametrize("start", ["global_load_b32 v4, v1, s[0:1]", "ds_load_b32 v4, v1"])
def test_the_old_wait_covers_everything_whatever_its_operand(memory, start):
    memory.run(program(start, "v4", ["s_waitcnt 0xffff"]), **DISPATCH)
