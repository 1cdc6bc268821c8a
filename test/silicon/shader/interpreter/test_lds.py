"""The local data share. Source: RDNA3 ISA reference, "Data Share Indexed and Atomic Access", "LDS & GDS
Instructions".
"""

import numpy as np
import pytest

from ringup.errors import Unmodelled

OUT, NONE = 0x30_0000, 0xAAAA_AAAA
ARGS = {"user_sgprs": (OUT, 0), "enable_group_id": (False, False, False), "lds_size_bytes": 8192}
START = """
    v_lshlrev_b32_e32 v1, 2, v0
    v_lshlrev_b32_e32 v9, 4, v0
"""
# Fill LDS by 32 lanes with 16 bytes each: dword i holds 0x04030201 * (i % 16) + 0x80000080.
PREPARE = {
    32: "v_mov_b32_e32 v12, 0x80000080\n v_mov_b32_e32 v13, 0x84838281\n v_mov_b32_e32 v14, 0x88868482\n v_mov_b32_e32 v15, 0x8c898683\n"
    "ds_store_b128 v9, v[12:15]\n s_waitcnt lgkmcnt(0)\n",
}
WORDS = [0x8000_0080, 0x8483_8281, 0x8886_8482, 0x8C89_8683]


def run(machine, program, *, size=32, **args):
    """Run `program`, then store v[2:5] of every lane and return them as (lane, register). They start as 0xAAAAAAAA."""
    machine.arena.regions.clear()
    out = machine.buffer(OUT, np.zeros(size * 4))
    fills = "".join(f"v_mov_b32_e32 v{at}, 0xaaaaaaaa\n" for at in range(2, 6))
    machine.run(
        START + fills + program + "\ns_waitcnt lgkmcnt(0)\nglobal_store_b128 v9, v[2:5], s[0:1]\ns_endpgm\n",
        **(ARGS | {"wave_size": size, "group_size": (size, 1, 1)} | args),
    )
    return out.reshape(size, 4)


@pytest.mark.parametrize(
    ("load", "values"),
    [
        ("ds_load_u8 v2, v9", [0x80]),
        ("ds_load_i8 v2, v9", [0xFFFF_FF80]),
        ("ds_load_u16 v2, v9 offset:4", [0x8281]),
        ("ds_load_i16 v2, v9 offset:4", [0xFFFF_8281]),
        ("ds_load_u8_d16 v2, v9 offset:4", [0xAAAA_0081]),
        ("ds_load_i8_d16_hi v2, v9 offset:4", [0xFF81_AAAA]),
        ("ds_load_u16_d16_hi v2, v9 offset:4", [0x8281_AAAA]),
        ("ds_load_b32 v2, v9 offset:12", WORDS[3:]),
        ("ds_load_b64 v[2:3], v9 offset:8", WORDS[2:]),
        ("ds_load_b96 v[2:4], v9", WORDS[:3]),
        ("ds_load_b128 v[2:5], v9", WORDS),
        ("ds_load_2addr_b32 v[2:3], v9 offset0:3 offset1:1", [WORDS[3], WORDS[1]]),
        ("ds_load_2addr_b64 v[2:5], v9 offset0:1 offset1:0", [WORDS[2], WORDS[3], WORDS[0], WORDS[1]]),
    ],
)
def test_loads(machine, load, values):
    found = run(machine, PREPARE[32] + load)
    assert (found[:, : len(values)] == values).all()
    assert (found[:, len(values) :] == 0xAAAA_AAAA).all()


def test_stores_of_parts_and_pairs(machine):
    program = """
        v_mov_b32_e32 v12, 0x44332211
        v_mov_b32_e32 v13, 0
        ds_store_b128 v9, v[12:15]
        ds_store_b8 v9, v12 offset:4
        ds_store_b8_d16_hi v9, v12 offset:5
        ds_store_b16_d16_hi v9, v12 offset:6
        ds_store_2addr_b32 v9, v12, v13 offset0:2 offset1:3
        s_waitcnt lgkmcnt(0)
        ds_load_b128 v[2:5], v9
    """
    assert (run(machine, program) == [0x4433_2211, 0x4433_3311, 0x4433_2211, 0]).all()


def test_strides_of_64_elements(machine):
    program = """
        ds_store_2addr_stride64_b32 v1, v0, v1 offset0:1 offset1:2
        s_waitcnt lgkmcnt(0)
        ds_load_b32 v2, v1 offset:256
        ds_load_b32 v3, v1 offset:512
    """
    found = run(machine, program)
    assert (found[:, 0] == np.arange(32)).all()
    assert (found[:, 1] == 4 * np.arange(32)).all()


def test_the_lane_is_the_address_of_addtid(machine):
    program = (
        "s_mov_b32 m0, 0x100\n ds_store_addtid_b32 v0 offset:4\n s_waitcnt lgkmcnt(0)\n ds_load_b32 v2, v1 offset:0x104"
    )
    assert (run(machine, program)[:, 0] == np.arange(32)).all()


def test_atomics_beyond_the_allocation_find_zero_each(machine):
    """A lane that meets others there does not see their results."""
    program = (
        "v_mov_b32_e32 v12, 0x3000\n v_mov_b32_e32 v13, 5\n ds_add_rtn_u32 v2, v12, v13\n ds_max_rtn_u32 v3, v12, v13"
    )
    assert run(machine, program, strict=False)[:, :2].tolist() == [[0, 0]] * 32


def test_beyond_the_allocation_reads_zero_and_writes_nothing(machine):
    program = """
        ds_store_b32 v1, v0
        ds_store_b64 v1, v[0:1] offset:0x1f80
        s_waitcnt lgkmcnt(0)
        ds_load_b32 v2, v1 offset:0x2000
        ds_load_b64 v[4:5], v1 offset:0x1f80
        ds_load_b32 v3, v1 offset:0x1f80
    """
    found = run(machine, program, strict=False)
    assert (found[:, 0] == 0).all()
    # The last lane's second dword lies outside. Nothing of it is stored, and a load of both dwords gives zero.
    assert found[31, 1:].tolist() == [124 - 4, 0, 0]
    assert found[30, 1] == 30


@pytest.mark.parametrize(
    ("atomic", "data", "more", "new", "returned"),
    [
        ("ds_add_rtn_u32 v2, v1, v6", 5, 0, 15, 10),
        ("ds_sub_rtn_u32 v2, v1, v6", 5, 0, 5, 10),
        ("ds_rsub_rtn_u32 v2, v1, v6", 5, 0, 0xFFFF_FFFB, 10),
        ("ds_inc_rtn_u32 v2, v1, v6", 10, 0, 0, 10),
        ("ds_dec_rtn_u32 v2, v1, v6", 9, 0, 9, 10),
        ("ds_min_rtn_i32 v2, v1, v6", 0xFFFF_FFFF, 0, 0xFFFF_FFFF, 10),
        ("ds_max_rtn_u32 v2, v1, v6", 11, 0, 11, 10),
        ("ds_and_rtn_b32 v2, v1, v6", 6, 0, 2, 10),
        ("ds_or_rtn_b32 v2, v1, v6", 5, 0, 15, 10),
        ("ds_xor_rtn_b32 v2, v1, v6", 3, 0, 9, 10),
        ("ds_mskor_rtn_b32 v2, v1, v6, v7", 3, 1, 9, 10),
        ("ds_storexchg_rtn_b32 v2, v1, v6", 7, 0, 7, 10),
        ("ds_cmpstore_rtn_b32 v2, v1, v6, v7", 7, 10, 7, 10),
        ("ds_cmpstore_rtn_b32 v2, v1, v6, v7", 7, 11, 10, 10),
        ("ds_wrap_rtn_b32 v2, v1, v6, v7", 4, 100, 6, 10),
        ("ds_wrap_rtn_b32 v2, v1, v6, v7", 11, 100, 110, 10),
        ("ds_add_u32 v1, v6", 5, 0, 15, 0xAAAA_AAAA),
        ("ds_add_rtn_f32 v2, v1, v6", 0x3F80_0000, 0, 0x3F80_0000, 10),  # 10 is a denormal
        ("ds_max_rtn_f32 v2, v1, v6", 0x3F80_0000, 0, 0x3F80_0000, 10),
    ],
)
def test_atomics(machine, atomic, data, more, new, returned):
    program = f"""
        v_mov_b32_e32 v5, 10
        v_mov_b32_e32 v6, {data:#x}
        v_mov_b32_e32 v7, {more:#x}
        ds_store_b32 v1, v5
        {atomic}
        ds_load_b32 v3, v1
    """
    found = run(machine, program, float_mode=0xF0)
    assert (found[:, 0] == returned).all()
    assert (found[:, 1] == new).all()


@pytest.mark.parametrize(("mode", "new"), [(0xF0, 2), (0xC0, 0), (0xD0, 0), (0xE0, 0)])
def test_float_adds_flush_denormals_as_mode_says(machine, mode, new):
    """Bit 4 keeps denormal inputs, bit 5 keeps denormal results. Here both are denormal."""
    program = "v_mov_b32_e32 v6, 1\n ds_store_b32 v1, v6\n ds_add_f32 v1, v6\n ds_load_b32 v2, v1"
    assert (run(machine, program, float_mode=mode)[:, 0] == new).all()


def test_lanes_add_up_at_one_address(machine):
    program = """
        v_mov_b32_e32 v6, 0
        ds_store_b32 v6, v6
        ds_add_rtn_u32 v2, v6, v0
        ds_load_b32 v3, v6
    """
    found = run(machine, program)
    assert found[:, 0].tolist() == [sum(range(lane)) for lane in range(32)]
    assert (found[:, 1] == sum(range(32))).all()


def test_exchange_of_two_places(machine):
    program = """
        ds_store_2addr_b32 v9, v0, v1 offset0:0 offset1:1
        ds_storexchg_2addr_rtn_b32 v[2:3], v9, v1, v0 offset0:0 offset1:1
        ds_load_2addr_b32 v[4:5], v9 offset0:0 offset1:1
    """
    lanes = np.arange(32)
    assert (run(machine, program) == np.stack([lanes, 4 * lanes, 4 * lanes, lanes], axis=1)).all()


def test_append_and_consume_count_active_lanes(machine):
    program = """
        v_mov_b32_e32 v6, 0
        v_mov_b32_e32 v7, 100
        ds_store_b32 v6, v7 offset:64
        s_mov_b32 m0, 32
        s_mov_b32 exec_lo, 0x3ff
        ds_append v2 offset:32
        ds_consume v3 offset:32
        s_mov_b32 exec_lo, -1
        ds_load_b32 v4, v6 offset:64
    """
    found = run(machine, program)
    assert found[:10].tolist() == [[100, 110, 100, 0xAAAA_AAAA]] * 10
    assert found[10:].tolist() == [[0xAAAA_AAAA, 0xAAAA_AAAA, 100, 0xAAAA_AAAA]] * 22


@pytest.mark.parametrize("size", [32, 64])
def test_permutations_stay_in_their_half(machine, size):
    lanes = np.arange(size)
    forward = run(machine, "v_add_nc_u32_e32 v6, 4, v1\n ds_permute_b32 v2, v6, v0", size=size)[:, 0]
    backward = run(machine, "v_add_nc_u32_e32 v6, 4, v1\n ds_bpermute_b32 v2, v6, v0", size=size)[:, 0]
    assert (forward == (lanes - 1) % 32 + lanes // 32 * 32).all()
    assert (backward == (lanes + 1) % 32 + lanes // 32 * 32).all()


def test_the_documents_examples_of_permutation(machine):
    """Four lanes: SRC0 = {A, B, C, D}, ADDR = {0, 0, 12, 4}."""
    setup = """
        v_add_nc_u32_e32 v7, 10, v0
        v_mov_b32_e32 v6, 0
        s_mov_b32 s4, 12
        s_mov_b32 s5, 4
        v_writelane_b32 v6, s4, 2
        v_writelane_b32 v6, s5, 3
    """

    def four(operation, mask):
        return run(machine, f"{setup} s_mov_b32 exec_lo, {mask}\n {operation} v2, v6, v7\n s_mov_b32 exec_lo, -1")[
            :4, 0
        ].tolist()

    none = NONE
    assert four("ds_permute_b32", 0xF) == [11, 13, 0, 12]
    assert four("ds_permute_b32", 0xA) == [none, 13, none, 0]
    assert four("ds_bpermute_b32", 0xF) == [10, 10, 13, 11]
    assert four("ds_bpermute_b32", 0xA) == [none, 0, none, 11]


# Examples of the document for the input {1, 2, … 0x20}.
SWIZZLES = {
    0xE000: "1 11 9 19 5 15 d 1d 3 13 b 1b 7 17 f 1f 2 12 a 1a 6 16 e 1e 4 14 c 1c 8 18 10 20",
    0xE010: "1 9 5 d 3 b 7 f 2 a 6 e 4 c 8 10 11 19 15 1d 13 1b 17 1f 12 1a 16 1e 14 1c 18 20",
    0xC020: "2 3 4 5 6 7 8 9 a b c d e f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 20 1",
    0xC420: "20 1 2 3 4 5 6 7 8 9 a b c d e f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f",
    0x801B: "4 3 2 1 8 7 6 5 c b a 9 10 f e d 14 13 12 11 18 17 16 15 1c 1b 1a 19 20 1f 1e 1d",
    0x041F: "2 1 4 3 6 5 8 7 a 9 c b e d 10 f 12 11 14 13 16 15 18 17 1a 19 1c 1b 1e 1d 20 1f",
}


@pytest.mark.parametrize("offset", SWIZZLES)
def test_swizzles_as_the_document_shows_them(machine, offset):
    found = run(machine, f"v_add_nc_u32_e32 v6, 1, v0\n ds_swizzle_b32 v2, v6 offset:{offset:#x}")
    assert found[:, 0].tolist() == [int(one, 16) for one in SWIZZLES[offset].split()]


def test_a_rotation_keeps_the_bits_of_its_mask(machine):
    """The values follow the document's formula. UNKNOWN: its example with a mask fits no formula of its own."""
    found = run(machine, "ds_swizzle_b32 v2, v0 offset:0xc021")
    lanes = np.arange(32)
    assert (found[:, 0] == (lanes & 1 | lanes + 1 & 0x1E)).all()


def test_conflicts_are_counted_by_bank(machine):
    def conflicts(shift):
        program = f"v_lshlrev_b32_e32 v6, {shift}, v0\n ds_store_b32 v6, v0\n s_endpgm\n"
        return machine.run(program, **(ARGS | {"lds_size_bytes": 65536})).counters.lds_conflicts

    # 64 banks of one dword.
    assert [conflicts(shift) for shift in (2, 3, 4, 8)] == [0, 0, 1, 31]


def test_the_global_data_share_is_refused_by_name(machine):
    machine.buffer(OUT, np.zeros(4))
    run = machine.start("s_mov_b32 m0, 0\n ds_add_u32 v0, v0 gds\n s_endpgm", **ARGS)
    with pytest.raises(Unmodelled, match="ds_add_u32 at 0x100004"):
        run.step(10)


@pytest.mark.parametrize(
    ("kind", "value"), [(0, 0x84), (1, 0x8684), (2, 0x0088_8684), (4, 0xFFFF_FF84), (5, 0xFFFF_8684)]
)
def test_direct_loads_fill_whole_quads(machine, kind, value):
    program = f"""
        v_mov_b32_e32 v6, 0x888684
        ds_store_b32 v1, v6
        s_waitcnt lgkmcnt(0)
        s_mov_b32 m0, {kind << 16 | 8:#x}
        s_mov_b32 exec_lo, 0x20
        lds_direct_load v2
        s_waitcnt expcnt(0)
        s_mov_b32 exec_lo, -1
    """
    assert run(machine, program)[:, 0].tolist() == [NONE] * 4 + [value] * 4 + [NONE] * 24
