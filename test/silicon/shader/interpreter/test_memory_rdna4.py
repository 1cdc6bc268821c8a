"""Memory as RDNA4 has it: its offsets, small scalar loads, atomics and permutations.

Source: RDNA4 ISA reference, chapters 8, 11 and 12, "Float Memory Atomics".
"""

import ml_dtypes
import numpy as np
import pytest

from ringup.errors import Unmodelled

IN, OUT, SCRATCH = 0x200_0000, 0x300_0000, 0x80_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "lds_size_bytes": 1024}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
STORE = "s_wait_idle\n global_store_b32 v1, v2, s[2:3]\n s_endpgm\n"


@pytest.fixture
def out(rdna4):
    return rdna4.buffer(OUT, np.zeros(64))


SCALAR_LOADS = [
    ("s_load_u8 s4, s[0:1], 0x1", 0x82), ("s_load_i8 s4, s[0:1], 0x1", 0xFFFF_FF82), ("s_load_u16 s4, s[0:1], 0x2", 0x8483),
    ("s_load_i16 s4, s[0:1], 0x2", 0xFFFF_8483), ("s_load_b32 s4, s[0:1], -0x700000", 0x1234),
    ("s_load_b96 s[4:6], s[0:1], 0x0", 0x8483_8281), ("s_load_b32 s4, s[0:1], s8 offset:-0x4", 0x8887_8685),
    ("s_buffer_load_u8 s4, s[12:15], 0x3", 0x84), ("s_buffer_load_i16 s4, s[12:15], 0x6", 0xFFFF_8887),
    ("s_buffer_load_u16 s4, s[12:15], 0x40", 0),  # beyond the end
]  # fmt: skip


@pytest.mark.parametrize(("load", "value"), SCALAR_LOADS, ids=[one for one, _ in SCALAR_LOADS])
def test_scalar_loads_extend_and_have_24_bits_of_offset(rdna4, out, load, value):
    rdna4.arena.place(IN, bytes(range(0x81, 0xC1)))
    rdna4.buffer(IN - 0x70_0000, [0x1234])
    describe = "s_mov_b64 s[12:13], s[0:1]\n s_mov_b32 s14, 64\n s_mov_b32 s15, 0\n s_mov_b32 s8, 8\n"
    rdna4.run(f"{LANE}{describe}{load}\n s_wait_kmcnt 0x0\n v_mov_b32_e32 v2, s4\n{STORE}", **ARGS)
    assert out[0] == value


def test_a_half_loaded_at_an_odd_address_is_misaligned(rdna4):
    rdna4.arena.place(IN, bytes(64))
    assert rdna4.broken("s_load_u16 s4, s[0:1], 0x1\n s_endpgm", **ARGS).kind == "alignment"


def test_prefetches_do_nothing_that_a_program_sees(rdna4, out):
    rdna4.run(
        f"{LANE} s_prefetch_data s[0:1], 0x0, null, 8\n s_prefetch_inst_pc_rel 0x0, null, 3\n v_mov_b32_e32 v2, 4\n{STORE}",
        **ARGS,
    )
    assert out[0] == 4


@pytest.mark.parametrize("offset", [0x7F_FFF0, -0x80_0000])
@pytest.mark.parametrize("unit", ["global", "flat"])
def test_vector_offsets_have_24_bits_and_a_sign(rdna4, out, unit, offset):
    rdna4.buffer(IN + offset, np.arange(64))
    address = "v[4:5], off" if unit == "global" else "v[4:5]"
    setup = "v_mov_b32_e32 v5, s1\n v_add_nc_u32_e32 v4, s0, v1\n"
    rdna4.run(f"{LANE}{setup}{unit}_load_b32 v2, {address} offset:{offset}\n{STORE}", **ARGS)
    assert out[:32].tolist() == list(range(32))


def test_scratch_offsets_in_registers_have_a_sign(rdna4, out):
    rdna4.buffer(SCRATCH, np.zeros(1024))
    rdna4.run(
        f"""{LANE}
        v_mov_b32_e32 v4, -8
        v_mov_b32_e32 v5, 7
        s_mov_b32 s4, -4
        scratch_store_b32 v4, v5, s4 offset:28     // 28 - 8 - 4
        scratch_load_b32 v2, off, off offset:16
        {STORE}""",
        **ARGS, scratch_base=SCRATCH, scratch_wave_bytes=32 * 64,
    )  # fmt: skip
    assert out[:32].tolist() == [7] * 32


def test_caches_are_invalidated_and_written_back_in_the_counters_of_loads_and_stores(rdna4, out):
    rdna4.run(f"{LANE} v_mov_b32_e32 v2, 3\n global_inv scope:SCOPE_DEV\n global_wb scope:SCOPE_SYS\n global_wbinv scope:SCOPE_SE\n"
              f"s_wait_loadcnt 0x0\n s_wait_storecnt 0x0\n{STORE}", **ARGS)  # fmt: skip
    assert out[0] == 3


@pytest.mark.parametrize("unit", ["global", "scratch"])
def test_blocks_move_the_registers_that_m0_selects_and_keep_places_for_the_others(rdna4, out, unit):
    place = {"global": ("v1, {}, s[4:5]", "{}, v1, s[4:5]"), "scratch": ("v9, {}, off", "{}, v9, off")}[unit]
    memory = rdna4.buffer(IN, np.zeros(4096))
    numbers = "".join(f"v_add_nc_u32_e32 v{16 + at}, {at * 2}, v0\n" for at in range(32))
    # Registers 0, 2 and 31 are stored; registers 2, 3 and 31 are loaded.
    rdna4.run(
        f"""v_lshlrev_b32_e32 v1, 7, v0
        v_lshlrev_b32_e32 v8, 2, v0
        v_mov_b32_e32 v9, 0
        s_mov_b64 s[4:5], s[0:1]
        {numbers}
        s_mov_b32 m0, 0x80000005
        {unit}_store_block {place[0].format("v[16:47]")}
        s_wait_storecnt 0x0
        s_mov_b32 m0, 0x8000000c
        {"".join(f"v_mov_b32_e32 v{16 + at}, 99{chr(10)}" for at in range(32))}
        {unit}_load_block {place[1].format("v[16:47]")}
        v_add_nc_u32_e32 v2, v16, v17     // not in flight
        s_wait_loadcnt 0x0
        v_add3_u32 v2, v2, v18, v19
        v_add_nc_u32_e32 v2, v2, v47
        global_store_b32 v8, v2, s[2:3]
        s_endpgm""",
        **ARGS, vgpr_count=64, scratch_base=IN, scratch_wave_bytes=32 * 128,
    )  # fmt: skip
    assert out[:32].tolist() == [99 + 99 + (lane + 4) + 0 + (lane + 62) for lane in range(32)]
    assert np.count_nonzero(memory) == 32 * 3 - 1


def test_a_register_of_a_block_is_in_flight_until_the_wait(rdna4, out):
    rdna4.buffer(IN, np.zeros(64))
    program = "s_mov_b32 m0, 4\n v_mov_b32_e32 v1, 0\n global_load_block v[16:47], v1, s[0:1]\n v_mov_b32_e32 v2, v{}\n s_endpgm"
    rdna4.run(program.format(17), **ARGS, vgpr_count=64)
    assert "v18 is still being loaded" in rdna4.broken(program.format(18), **ARGS, vgpr_count=64).detail


@pytest.mark.parametrize("scale", [0, 1, 2, 3])
def test_swizzled_buffers_take_the_scalar_offset_in_and_scale_their_stride(rdna4, out, scale):
    memory = rdna4.buffer(IN, np.arange(1 << 15))
    stride, element, group, scalar = 16, 4, 8, 8
    words = [IN, stride << 16 | 1 << 30, 64, 22 << 12 | scale << 18]
    describe = "\n".join(f"s_mov_b32 s{12 + at}, {word:#x}" for at, word in enumerate(words))
    load = f"s_mov_b32 s16, {scalar}\n buffer_load_b32 v2, v0, s[12:15], s16 idxen offset:4"
    rdna4.run(f"{LANE}{describe}\n{load}\n{STORE}", **ARGS)
    scaled = stride * (1, 4, 8, 32)[scale]
    # Source: "Swizzled Buffer Addressing"
    places = [
        (index // group * scaled + (4 + scalar) // element * element) * group + index % group * element
        for index in range(32)
    ]
    assert out[:32].tolist() == [int(memory[place // 4]) for place in places]


HALVES = [
    ("global_load_d16_u8 v2, v5, s[0:1]", 0xAAAA_0081), ("global_load_d16_hi_i8 v2, v5, s[0:1]", 0xFF81_AAAA),
    ("global_load_d16_hi_b16 v2, v5, s[0:1]", 0x8281_AAAA), ("buffer_load_d16_b16 v2, off, s[12:15], null", 0xAAAA_8281),
    ("buffer_load_d16_hi_u8 v2, off, s[12:15], null", 0x0081_AAAA), ("ds_load_u16_d16 v2, v5", 0xAAAA_8281),
    ("ds_load_i8_d16_hi v2, v5", 0xFF81_AAAA), ("flat_load_d16_i8 v2, v[6:7]", 0xAAAA_FF81),
]  # fmt: skip


@pytest.mark.parametrize(("load", "value"), HALVES, ids=[one for one, _ in HALVES])
def test_small_loads_fill_a_half(rdna4, out, load, value):
    rdna4.arena.place(IN, bytes(range(0x81, 0xC1)))
    describe = "s_mov_b64 s[12:13], s[0:1]\n s_mov_b32 s14, 64\n s_mov_b32 s15, 0x31016fac\n"
    registers = "v_dual_mov_b32 v5, 0 :: v_dual_mov_b32 v6, s0\n v_mov_b32_e32 v7, s1\n v_mov_b32_e32 v2, 0xaaaaaaaa\n"
    lds = "v_mov_b32_e32 v8, 0x84838281\n ds_store_b32 v5, v8\n s_wait_dscnt 0x0\n"
    rdna4.run(f"{LANE}{describe}{registers}{lds}{load}\n{STORE}", **ARGS)
    assert out[0] == value


def pair(first, second, kind):
    return int(np.array([first, second], kind).view(np.uint32)[0])


NAN, SIGNALLING, DENORMAL = 0x7FC0_0001, 0x7F80_0001, 0x0000_0001
ONE, TWO, MINUS_ZERO = 0x3F80_0000, 0x4000_0000, 0x8000_0000
ATOMICS = [
    ("cond_sub_u32", 5, 7, 5), ("cond_sub_u32", 7, 5, 2), ("sub_clamp_u32", 5, 7, 0), ("sub_clamp_u32", 7, 5, 2),
    ("min_num_f32", ONE, TWO, ONE), ("max_num_f32", ONE, TWO, TWO), ("min_num_f32", ONE, SIGNALLING, ONE),
    ("min_num_f32", NAN, TWO, TWO), ("max_num_f32", NAN, SIGNALLING, SIGNALLING | 1 << 22), ("min_num_f32", 0, MINUS_ZERO, MINUS_ZERO),
    ("max_num_f32", MINUS_ZERO, 0, 0), ("add_f32", DENORMAL, DENORMAL, 2),
    ("pk_add_f16", pair(1.5, -2, np.float16), pair(2, 0.25, np.float16), pair(3.5, -1.75, np.float16)),
    ("pk_add_f16", pair(65504, 1, np.float16), pair(65504, 2**-11, np.float16), pair(np.inf, 1, np.float16)),
    ("pk_add_bf16", pair(1.5, -2, ml_dtypes.bfloat16), pair(2, 0.25, ml_dtypes.bfloat16), pair(3.5, -1.75, ml_dtypes.bfloat16)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "source", "new"), ATOMICS)
@pytest.mark.parametrize("unit", ["global", "ds", "buffer"])
def test_atomics_change_memory_and_return_what_was_there(rdna4, out, unit, name, old, source, new):
    memory = rdna4.buffer(IN, [old])
    stem, _, kind = name.rpartition("_")
    if unit == "ds":
        operation = (
            f"v_mov_b32_e32 v7, {old:#x}\n ds_store_b32 v5, v7\n ds_{stem}_rtn_{kind} v2, v5, v6\n ds_load_b32 v3, v5"
        )
    elif unit == "global":
        operation = f"global_atomic_{name} v2, v5, v6, s[0:1] th:TH_ATOMIC_RETURN\n s_wait_loadcnt 0x0\n global_load_b32 v3, v5, s[0:1]"
    else:
        operation = (
            "s_mov_b64 s[12:13], s[0:1]\n s_mov_b32 s14, 64\n s_mov_b32 s15, 0x31016fac\n v_mov_b32_e32 v2, v6\n"
            f"buffer_atomic_{name} v2, off, s[12:15], null th:TH_ATOMIC_RETURN\n s_wait_loadcnt 0x0\n global_load_b32 v3, v5, s[0:1]"
        )
    rdna4.run(
        f"""s_mov_b32 exec_lo, 1
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), 15
        v_mov_b32_e32 v5, 0
        v_mov_b32_e32 v6, {source:#x}
        {operation}
        s_wait_idle
        global_store_b64 v5, v[2:3], s[2:3]
        s_endpgm""",
        **ARGS,
    )
    assert out[:2].tolist() == [old, new]
    assert unit == "ds" or memory[0] == new


def test_an_atomic_without_the_hint_returns_nothing(rdna4, out):
    memory = rdna4.buffer(IN, [5])
    rdna4.run(
        f"{LANE} v_mov_b32_e32 v2, 3\n v_mov_b32_e32 v5, 0\n global_atomic_add_u32 v5, v2, s[0:1]\n{STORE}", **ARGS
    )
    assert memory[0] == 5 + 32 * 3
    assert out[:32].tolist() == [3] * 32


def test_permutations_reach_across_the_halves_of_a_wave64(rdna4, out):
    rdna4.run(
        f"{LANE} v_xor_b32_e32 v3, 0x80, v1\n ds_bpermute_b32 v2, v3, v0\n{STORE}",
        wave_size=64,
        group_size=(64, 1, 1),
        **ARGS,
    )
    assert out.tolist() == [lane ^ 32 for lane in range(64)]
    rdna4.run(
        f"{LANE} v_xor_b32_e32 v3, 0x80, v1\n ds_permute_b32 v2, v3, v0\n{STORE}",
        wave_size=64,
        group_size=(64, 1, 1),
        **ARGS,
    )
    assert out.tolist() == [lane ^ 32 for lane in range(64)]


@pytest.mark.parametrize(("name", "missing"), [("ds_bpermute_b32", 0), ("ds_bpermute_fi_b32", 1)])
def test_an_inactive_lane_is_read_by_one_permutation_only(rdna4, out, name, missing):
    rdna4.run(
        f"{LANE} v_mov_b32_e32 v2, 0\n v_mov_b32_e32 v3, 4\n s_mov_b32 exec_lo, 1\n {name} v2, v3, v0\n s_mov_b32 exec_lo, -1\n{STORE}",
        **ARGS,
    )
    assert out[0] == missing


@pytest.mark.parametrize(
    "text",
    ["ds_bvh_stack_push8_pop1_rtn_b32 v4, v5, v6, v[8:15]", "image_sample v4, v8, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D"]
)  # fmt: skip
def test_what_is_not_modelled_is_refused_by_name(rdna4, text):
    run = rdna4.start(f"{text}\n s_endpgm", strict=False, **ARGS)
    with pytest.raises(Unmodelled, match=text.split()[0]):
        run.step(100)


def test_lanes_add_in_the_order_of_their_numbers(rdna4, out):
    # Lane l has number 3 * l modulo 32, so most come too early and add nothing.
    memory = rdna4.buffer(IN, [1022, 100])
    rdna4.run(
        f"""{LANE}
        v_mul_u32_u24_e32 v4, 3, v0
        v_and_b32_e32 v4, 31, v4
        v_add_nc_u32_e32 v4, 1022, v4
        v_and_b32_e32 v4, 0x3ff, v4
        v_add_nc_u32_e32 v5, 5, v0
        v_mov_b32_e32 v6, 0
        global_atomic_ordered_add_b64 v[2:3], v6, v[4:5], s[0:1] th:TH_ATOMIC_RETURN
        s_wait_loadcnt 0x0
        v_lshlrev_b32_e32 v1, 3, v0
        global_store_b64 v1, v[2:3], s[2:3]
        s_endpgm""",
        **ARGS,
    )
    number, total, seen = 1022, 100, []
    for lane in range(32):
        seen += [number, total]
        if number == (1022 + 3 * lane % 32) % 1024:
            number, total = (number + 1) % 1024, total + 5 + lane
    assert number == 1
    assert out[:64].tolist() == seen
    assert memory.tolist() == [number, total]
