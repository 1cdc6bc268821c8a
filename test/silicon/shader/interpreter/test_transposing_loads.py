"""RDNA4's loads of matrices whose rows are columns in memory, alone and before a product, compared with NumPy's.

Source: RDNA4 ISA reference, "WMMA Load-Transpose Instructions", "Matrix Element Storage in VGPRs". Which lane gets what
was measured on gfx1201: ROCm's "RDNA4 WMMA transpose load builtins" for elements of 16 bits, global_load_tr_probe.hip
for bytes.
"""

from __future__ import annotations

import numpy as np
import pytest

from ringup.errors import Unmodelled

A, B, PLACES, OUT = 0x200_0000, 0x210_0000, 0x220_0000, 0x230_0000
ARGS = {"user_sgprs": (A, 0, B, 0, PLACES, 0, OUT, 0)}
SIDE = 16
SIZES = [32, 64]
# An offset that no lane may use.
NOWHERE = 0x7FFF_FF00
LOADS = {16: "global_load_tr_b128", 8: "global_load_tr_b64"}


def registers(first, bits):
    return f"v{first}" if bits == 32 else f"v[{first}:{first + bits // 32 - 1}]"


def offsets(rdna4, *columns):
    """Put a number for each lane into memory for v10, v11 and so on; return the program that loads these."""
    rdna4.buffer(PLACES, np.concatenate(columns))
    size = 4 * len(columns[0])
    loads = [f"global_load_addtid_b32 v{10 + at}, s[4:5] offset:{size * at}" for at in range(len(columns))]
    return "\n".join([*loads, "s_wait_loadcnt 0x0"])


def near(lanes, values):
    """Return the offsets of lanes; those of the upper lanes of a wave64 are wrong, since a load ignores them."""
    return np.where(np.arange(lanes) < 32, values, NOWHERE)


def given(bits, lane, at):
    """Return which of 256 elements is element `at` of a lane of a wave32, if each lane in turn names eight of them."""
    if bits == 8:
        return (lane & 7) + 32 * (lane >> 3 & 1) + 128 * (lane >> 4) + 8 * (at & 3) + 64 * (at >> 2)
    # Four lanes are a row.
    return 32 * (lane // 8 * 2 + at // 4) + at % 4 * 8 + lane % 8


@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize("bits", LOADS)
def test_elements_go_to_the_lanes_that_were_measured(rdna4, bits, lanes):
    dtype, lane, filled = f"u{bits // 8}", np.arange(lanes), bits * 256 // lanes
    memory = rdna4.buffer(B, np.random.default_rng(bits).integers(0, 1 << bits, 256), dtype)
    out = rdna4.buffer(OUT, np.zeros(256), dtype)
    rdna4.run(
        f"""{offsets(rdna4, near(lanes, lane * bits), lane * filled // 8)}
        {LOADS[bits]} {registers(4, filled)}, v10, s[2:3]
        s_wait_loadcnt 0x0
        global_store_b{filled} v11, {registers(4, filled)}, s[6:7]
        s_endpgm""",
        wave_size=lanes, group_size=(lanes, 1, 1), **ARGS,
    )  # fmt: skip
    expected = memory[[[given(bits, one, at) for at in range(8)] for one in range(32)]]
    # The upper lanes of a wave64 have the upper halves.
    assert np.array_equal(out, np.concatenate(np.split(expected, lanes // 32, axis=1)).ravel())


# Bits of an element, lanes: row of B and first column that a lane names; first bytes of its parts of a row of A.
def row_of_b(bits, lane):
    if bits == 16:
        return lane & 3 | (lane >> 2 & 1) << 3 | (lane >> 4 & 1) << 2, lane & 8
    return (lane >> 3 & 3) << 2 | lane & 3, (lane & 4) << 1


LOADS_OF_A = {
    (16, 32): (("b64", 0, lambda lane: lane // 16 * 8), ("b64", 2, lambda lane: 16 + lane // 16 * 8)),
    (16, 64): (("b64", 0, lambda lane: lane // 16 * 8),),
    (8, 32): (("b64", 0, lambda lane: lane // 16 * 8),),
    (8, 64): (("b32", 0, lambda lane: (lane >> 4 & 1) * 8 + (lane >> 5) * 4),),
}  # fmt: skip
PRODUCTS = {16: ("v_wmma_f32_16x16x16_f16", np.float16, ""), 8: ("v_wmma_i32_16x16x16_iu8", np.int8, " neg_lo:[1,1,0]")}


@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize("bits", LOADS)
def test_a_product_with_a_factor_loaded_so_is_that_of_numpy(rdna4, bits, lanes):
    mnemonic, dtype, signs = PRODUCTS[bits]
    draw, lane = np.random.default_rng(lanes + bits), np.arange(lanes)
    a, b = (draw.integers(-8, 9, (SIDE, SIDE)).astype(dtype) for _ in range(2))
    rdna4.buffer(A, a, a.dtype)
    rdna4.buffer(B, b, b.dtype)
    out = rdna4.buffer(OUT, np.zeros(SIDE * SIDE), np.float32 if bits == 16 else np.int32)
    row, column = row_of_b(bits, lane)
    parts = LOADS_OF_A[bits, lanes]
    size, of_lane = bits // 8, 256 // lanes
    text = offsets(
        rdna4,
        near(lanes, (row * SIDE + column) * size),
        (lane // 16 % 2 * 8 + lane // 32 * 4) * 4 * SIDE + lane % 16 * 4,
        *((lane % 16) * SIDE * size + part(lane) for _, _, part in parts),
    )
    of_factor = bits * 256 // lanes
    loads = [
        f"global_load_{name} {registers(16 + at, int(name[1:]))}, v{12 + i}, s[0:1]"
        for i, (name, at, _) in enumerate(parts)
    ]
    stores = [f"global_store_b32 v11, v{24 + at}, s[6:7] offset:{64 * at}" for at in range(of_lane)]
    clear = [f"v_mov_b32_e32 v{24 + at}, 0" for at in range(of_lane)]
    sums = registers(24, 32 * of_lane)
    rdna4.run(
        "\n".join([
            text, *loads, f"{LOADS[bits]} {registers(20, of_factor)}, v10, s[2:3]", *clear, "s_wait_loadcnt 0x0",
            f"{mnemonic} {sums}, {registers(16, of_factor)}, {registers(20, of_factor)}, {sums}{signs}", *stores, "s_endpgm",
        ]),
        wave_size=lanes, group_size=(lanes, 1, 1), **ARGS,
    )  # fmt: skip
    assert np.array_equal(out.reshape(SIDE, SIDE), a.astype(int) @ b.astype(int))


def test_no_lane_loads_nothing_and_some_lanes_are_illegal(rdna4):
    rdna4.buffer(B, np.zeros(64))
    out = rdna4.buffer(OUT, np.zeros(32))
    lane = np.arange(32)
    load = "global_load_tr_b64 v[4:5], v10, s[2:3]\n s_wait_loadcnt 0x0"
    start = f"{offsets(rdna4, lane * 8, lane * 4)}\n v_mov_b32_e32 v4, 7\n v_mov_b32_e32 v5, 7"
    rest = "s_mov_b32 exec_lo, -1\n global_store_b32 v11, v4, s[6:7]\n s_endpgm"
    rdna4.run(f"{start}\n s_mov_b32 exec_lo, 0\n {load}\n {rest}", **ARGS)
    assert out.tolist() == [7] * 32
    some = f"{start}\n s_mov_b32 exec_lo, 3\n {load}\n {rest}"
    assert rdna4.broken(some, **ARGS).detail == "global_load_tr_b64 while a lane is not active"
    run = rdna4.start(some, strict=False, **ARGS)
    with pytest.raises(Unmodelled, match="global_load_tr_b64"):
        run.step(100)


def test_a_register_of_a_factor_is_in_flight_until_the_wait(rdna4):
    rdna4.buffer(B, np.zeros(64))
    program = f"{offsets(rdna4, np.arange(32) * 8)}\n global_load_tr_b64 v[4:5], v10, s[2:3]\n v_mov_b32_e32 v2, v{{}}\n s_endpgm"
    rdna4.run(program.replace("{}", "10"), **ARGS)
    assert "v5 is still being loaded" in rdna4.broken(program.replace("{}", "5"), **ARGS).detail


def test_addresses_of_the_upper_lanes_of_a_wave64_may_be_undefined(rdna4):
    rdna4.buffer(B, np.arange(64))
    rdna4.buffer(PLACES, np.arange(32) * 8)
    rdna4.run(
        """s_mov_b32 exec_hi, 0
        global_load_addtid_b32 v10, s[4:5]
        s_mov_b32 exec_hi, -1
        s_wait_loadcnt 0x0
        global_load_tr_b64 v4, v10, s[2:3]
        s_endpgm""",
        wave_size=64, group_size=(64, 1, 1), **ARGS,
    )  # fmt: skip
