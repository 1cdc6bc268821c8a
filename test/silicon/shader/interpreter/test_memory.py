"""Global, scratch, flat and scalar memory. Source: RDNA3 ISA reference, chapters 8 and 11, "Float Memory Atomics"."""

import numpy as np
import pytest

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "enable_group_id": (False, False, False)}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
BYTES = np.array([0x81, 0x02, 0x83, 0xF4] * 64, np.uint8)


def loaded(machine, instruction, *, strict=True, setup="", **args):
    """Run a load into v2 (and v3), which start as 0xAAAAAAAA. Return each lane's result as (lane, register)."""
    out = machine.buffer(OUT, np.zeros(128))
    machine.run(
        f"""
        v_lshlrev_b32_e32 v1, 2, v0
        v_lshlrev_b32_e32 v9, 3, v0
        v_mov_b32_e32 v2, 0xaaaaaaaa
        v_mov_b32_e32 v3, 0xaaaaaaaa
        {setup}
        {instruction}
        s_waitcnt vmcnt(0) lgkmcnt(0)
        global_store_b64 v9, v[2:3], s[2:3]
        s_endpgm
    """,
        strict=strict,
        **(ARGS | args),
    )
    return out[:64].reshape(32, 2)


@pytest.mark.parametrize(
    ("load", "value"),
    [
        ("u8", 0x81),
        ("i8", 0xFFFF_FF81),
        ("u16", 0x0281),
        ("i16", 0x0281),
        ("b32", 0xF483_0281),
        ("d16_u8", 0xAAAA_0081),
        ("d16_i8", 0xAAAA_FF81),
        ("d16_b16", 0xAAAA_0281),
        ("d16_hi_u8", 0x0081_AAAA),
        ("d16_hi_i8", 0xFF81_AAAA),
        ("d16_hi_b16", 0x0281_AAAA),
    ],
)
@pytest.mark.parametrize("unit", ["global", "flat"])
def test_loads_extend_or_fill_a_half(machine, unit, load, value):
    machine.arena.place(IN, BYTES.tobytes())
    setup = "v_mov_b32_e32 v5, s1\n v_add_nc_u32_e32 v4, s0, v1"
    place = "v[4:5], off" if unit == "global" else "v[4:5]"
    found = loaded(machine, f"{unit}_load_{load} v2, {place}", setup=setup)
    assert (found == [value, 0xAAAA_AAAA]).all()


def test_wide_loads_straddle_regions(machine):
    machine.arena.place(IN, BYTES[:126].tobytes())
    machine.arena.place(IN + 126, BYTES[126:].tobytes())
    found = loaded(machine, "global_load_b64 v[2:3], v1, s[0:1]")
    assert (found == 0xF483_0281).all()


def test_stores_take_bytes_and_high_halves(machine):
    out = machine.arena.place(OUT, 256)
    machine.run(
        LANE
        + """
        v_mov_b32_e32 v2, 0x44332211
        global_store_b8 v1, v2, s[2:3]
        global_store_d16_hi_b8 v1, v2, s[2:3] offset:1
        global_store_d16_hi_b16 v1, v2, s[2:3] offset:2
        s_endpgm
    """,
        **ARGS,
    )
    assert out[:8].tolist() == [0x11, 0x33, 0x33, 0x44] * 2


def test_offsets_are_signed_and_the_lane_is_added(machine):
    machine.buffer(IN, np.arange(256))
    assert loaded(machine, "global_load_b32 v2, v1, s[0:1] offset:-4", setup="v_add_nc_u32_e32 v1, 8, v1")[
        :, 0
    ].tolist() == [1 + lane for lane in range(32)]
    machine.arena.regions = machine.arena.regions[:1]
    assert loaded(machine, "global_load_addtid_b32 v2, s[0:1] offset:12")[:, 0].tolist() == [
        3 + lane for lane in range(32)
    ]


def test_the_highest_of_colliding_lanes_is_stored(machine):
    out = machine.buffer(OUT, np.zeros(4))
    machine.run("v_mov_b32_e32 v1, 0\n global_store_b32 v1, v0, s[2:3]\n s_endpgm", **ARGS)
    assert out[0] == 31


def test_lanes_that_are_off_touch_nothing(machine):
    out = machine.buffer(OUT, np.full(32, 7))
    machine.run(LANE + "s_mov_b32 exec_lo, 0x5\n global_store_b32 v1, v0, s[2:3]\n s_endpgm", **ARGS)
    assert out.tolist() == [0, 7, 2] + [7] * 29


SCRATCH = {"scratch_base": 0x50_0000, "scratch_wave_bytes": 32 * 64}


def test_scratch_interleaves_lanes_by_dword(machine):
    """Addr = SCRATCH_BASE + (offset / 4) * 4 * 32 + offset % 4 + TID * 4."""
    memory = machine.arena.place(0x50_0000, 2 * 32 * 64)
    machine.run(
        """
        s_mov_b32 s8, 16
        v_mov_b32_e32 v1, 4
        v_mov_b32_e32 v2, 0x44332211
        v_mov_b32_e32 v3, 0x88776655
        scratch_store_b64 off, v[2:3], off offset:8
        scratch_store_b32 v1, v0, s8 offset:4
        scratch_store_b8 v1, v2, off offset:1
        scratch_store_b16 off, v0, s8 offset:-13
        s_endpgm
    """,
        **ARGS,
        **SCRATCH,
        group_size=(64, 1, 1),
    )
    words = memory.view("<u4").reshape(2, 16, 32)
    assert (words[:, 2] == 0x4433_2211).all()
    assert (words[:, 3] == 0x8877_6655).all()
    assert (words[:, 6] == np.arange(64).reshape(2, 32)).all()
    assert (words[:, 1] & 0xFF00 == 0x1100).all()
    # Two bytes at 3: the last byte of dword 0 and the first of dword 1.
    assert (words[:, 0] >> 24 == np.arange(64).reshape(2, 32)).all()


def test_flat_addresses_go_where_their_aperture_says(machine):
    """In one instruction, lanes 0 to 7 reach LDS, lanes 8 to 15 scratch, and the others memory."""
    machine.buffer(IN, np.arange(100, 132))
    memory = machine.arena.place(0x50_0000, 32 * 64)
    memory.view("<u4").reshape(16, 32)[3] = np.arange(200, 232)
    found = loaded(
        machine,
        "flat_load_b32 v2, v[4:5] offset:12",
        setup="""
        v_add_nc_u32_e32 v6, 1, v0
        ds_store_b32 v1, v6
        v_add_nc_u32_e32 v4, s0, v1
        v_mov_b32_e32 v5, s1
        v_add_nc_u32_e32 v4, -12, v4
        s_mov_b32 exec_lo, 0xff
        v_mov_b32_e32 v4, v1
        v_mov_b32_e32 v5, 0x10000
        s_mov_b32 exec_lo, 0xff00
        v_mov_b32_e32 v4, 0
        v_mov_b32_e32 v5, 0x20000
        s_mov_b32 exec_lo, -1
    """,
        lds_size_bytes=128,
        shared_aperture=1,
        private_aperture=2,
        **SCRATCH,
    )
    expected = (
        [lane + 4 for lane in range(8)] + [200 + lane for lane in range(8, 16)] + [100 + lane for lane in range(16, 32)]
    )
    assert found[:, 0].tolist() == expected


def test_global_accesses_may_not_reach_an_aperture(machine):
    machine.buffer(OUT, np.zeros(128))
    violation = machine.broken(
        "v_mov_b32_e32 v4, 0\n v_mov_b32_e32 v5, 0x10000\n global_load_b32 v2, v[4:5], off\n s_endpgm",
        **ARGS,
        shared_aperture=1,
        lds_size_bytes=64,
    )
    assert violation.kind == "memory"
    assert "aperture" in violation.detail


# ---- atomics: (old, data, compare) to the new value, from a source other than the model

ATOMICS = [
    ("add_u32", 0xFFFF_FFFE, 5, 3),
    ("sub_u32", 2, 5, 0xFFFF_FFFD),
    ("csub_u32", 2, 5, 0),
    ("csub_u32", 7, 5, 2),
    ("min_i32", 0x8000_0000, 1, 0x8000_0000),
    ("min_u32", 0x8000_0000, 1, 1),
    ("max_i32", 0x8000_0000, 1, 1),
    ("max_u32", 0x8000_0000, 1, 0x8000_0000),
    ("and_b32", 0xF0F0, 0xFF00, 0xF000),
    ("or_b32", 0xF0F0, 0x0F00, 0xFFF0),
    ("xor_b32", 0xF0F0, 0xFFFF, 0x0F0F),
    ("inc_u32", 4, 5, 5),
    ("inc_u32", 5, 5, 0),
    ("dec_u32", 0, 5, 5),
    ("dec_u32", 9, 5, 5),
    ("dec_u32", 3, 5, 2),
    ("swap_b32", 4, 5, 5),
    ("add_f32", 0x3F80_0000, 0x4000_0000, 0x4040_0000),  # 1 + 2
    ("add_f32", 0x0000_0001, 0x3F80_0000, 0x3F80_0000),
    # Inputs are flushed, whatever MODE says.
    ("add_f32", 0x0000_0001, 0x0000_0001, 0),
    ("add_f32", 0x7F80_0000, 0xFF80_0000, 0xFFC0_0000),
    # A signalling NaN becomes quiet.
    ("add_f32", 0x7FA0_0000, 0x3F80_0000, 0x7FE0_0000),
    # A denormal result stays.
    ("add_f32", 0x0080_0000, 0x8080_0001, 0x8000_0001),
    ("min_f32", 0x8000_0000, 0x0000_0000, 0x8000_0000),
    ("min_f32", 0x0000_0000, 0x8000_0000, 0x8000_0000),
    ("max_f32", 0x7FC0_0000, 0x3F80_0000, 0x3F80_0000),
    ("max_f32", 0xBF80_0000, 0x3F80_0000, 0x3F80_0000),
    ("min_f32", 0x3F80_0000, 0x7F81_0000, 0x7FC1_0000),
]


@pytest.mark.parametrize(("name", "old", "data", "new"), ATOMICS)
def test_atomics_change_memory_and_return_what_was_there(machine, name, old, data, new):
    memory = machine.buffer(IN, np.full(32, old))
    found = loaded(
        machine, f"global_atomic_{name} v2, v1, v6, s[0:1] glc", setup=f"v_mov_b32_e32 v6, {data:#x}", float_mode=0xF0
    )
    assert memory.tolist() == [new] * 32
    assert (found[:, 0] == old).all()


@pytest.mark.parametrize(
    ("name", "old", "data", "compare", "new"),
    [
        ("cmpswap_b32", 4, 9, 4, 9),
        ("cmpswap_b32", 4, 9, 5, 4),
        ("cmpswap_f32", 0x8000_0000, 9, 0, 9),
        ("cmpswap_f32", 0x7FC0_0000, 9, 0x7FC0_0000, 0x7FC0_0000),
    ],
)
def test_compare_and_swap_takes_data_then_compare(machine, name, old, data, compare, new):
    memory = machine.buffer(IN, np.full(32, old))
    setup = f"v_mov_b32_e32 v6, {data:#x}\n v_mov_b32_e32 v7, {compare:#x}"
    loaded(machine, f"global_atomic_{name} v2, v1, v[6:7], s[0:1] glc", setup=setup, float_mode=0xF0)
    assert memory.tolist() == [new] * 32


def test_denormals_compare_as_zero_where_mode_flushes_inputs(machine):
    memory = machine.buffer(IN, np.full(32, 0x0000_0001))
    setup = "v_mov_b32_e32 v6, 0x80000002"
    loaded(machine, "global_atomic_min_f32 v2, v1, v6, s[0:1] glc", setup=setup, float_mode=0xC0)
    # -0 is below +0. The stored value is not flushed.
    assert memory.tolist() == [0x8000_0002] * 32


@pytest.mark.parametrize(
    ("name", "old", "data", "new"),
    [
        ("add_u64", 0xFFFF_FFFF, 1, 1 << 32),
        ("min_i64", 1 << 63, 1, 1 << 63),
        ("max_u64", 1 << 63, 1, 1 << 63),
        ("inc_u64", 1 << 40, 1 << 40, 0),
        ("swap_b64", 3, 1 << 40, 1 << 40),
    ],
)
def test_atomics_work_on_64_bits(machine, name, old, data, new):
    memory = machine.buffer(IN, np.full(32, old, np.uint64), "<u8")
    setup = f"v_mov_b32_e32 v6, {data & 0xFFFFFFFF:#x}\n v_mov_b32_e32 v7, {data >> 32:#x}"
    found = loaded(machine, f"global_atomic_{name} v[2:3], v9, v[6:7], s[0:1] glc", setup=setup)
    assert memory.tolist() == [new] * 32
    assert found.tolist() == [[old & 0xFFFF_FFFF, old >> 32]] * 32


def test_lanes_meet_at_one_address_one_after_the_other(machine):
    memory = machine.buffer(IN, np.zeros(4))
    found = loaded(machine, "global_atomic_add_u32 v2, v6, v0, s[0:1] glc", setup="v_mov_b32_e32 v6, 0")
    assert memory[0] == sum(range(32))
    assert found[:, 0].tolist() == [sum(range(lane)) for lane in range(32)]


# ---- scalar memory


@pytest.mark.parametrize(
    ("load", "values"),
    [
        ("s_load_b32 s8, s[0:1], 0x8", [2]),
        ("s_load_b64 s[8:9], s[0:1], 0x4", [1, 2]),
        ("s_load_b128 s[8:11], s[0:1], s6", [4, 5, 6, 7]),
        ("s_load_b128 s[8:11], s[0:1], s6 offset:0x4", [5, 6, 7, 8]),
        ("s_load_b256 s[8:15], s[4:5], -0x10", [4, 5, 6, 7, 8, 9, 10, 11]),
        ("s_load_b512 s[8:23], s[0:1], null", list(range(16))),
    ],
)
def test_scalar_loads(machine, load, values):
    machine.buffer(IN, np.arange(32))
    out = machine.buffer(OUT, np.zeros(16))
    stores = "".join(
        f"v_mov_b32_e32 v2, s{8 + i}\n global_store_b32 v1, v2, s[2:3] offset:{4 * i}\n" for i in range(len(values))
    )
    machine.run(
        f"v_mov_b32_e32 v1, 0\n {load}\n s_waitcnt lgkmcnt(0)\n {stores} s_endpgm",
        **(ARGS | {"user_sgprs": (IN, 0, OUT, 0, IN + 32, 0, 16)}),
    )
    assert out[: len(values)].tolist() == values


@pytest.mark.parametrize(
    ("stride", "records", "offset", "values"),
    [
        (0, 64, 0, [0, 1, 2, 3]),
        (0, 12, 0, [0, 1, 2, 0]),
        (0, 0, 0, [0, 0, 0, 0]),
        (8, 2, 8, [2, 3, 0, 0]),
        (0, 64, 60, [15, 0, 0, 0]),
    ],
)
def test_scalar_buffer_loads_end_with_their_buffer(machine, stride, records, offset, values):
    machine.buffer(IN, np.arange(32))
    out = machine.buffer(OUT, np.zeros(16))
    stores = "".join(
        f"v_mov_b32_e32 v2, s{12 + i}\n global_store_b32 v1, v2, s[2:3] offset:{4 * i}\n" for i in range(4)
    )
    machine.run(
        f"v_mov_b32_e32 v1, 0\n s_buffer_load_b128 s[12:15], s[4:7], {offset:#x}\n s_waitcnt lgkmcnt(0)\n {stores} s_endpgm",
        **(ARGS | {"user_sgprs": (0, 0, OUT, 0, IN, stride << 16, records, 0)}),
    )
    assert out[:4].tolist() == values
