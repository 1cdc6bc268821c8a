"""Rules that move values between lanes, carry between dwords and multiply matrices, compared with NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.common.state import WaveState

VGPRS, MODE = 64, 0x3F0
M32 = 0xFFFF_FFFF


@pytest.fixture(scope="module")
def run(assemble, translated):
    """`run(text, wave)` runs the rules of a few instructions on a wave."""
    built = {}

    def execute(text, wave):
        lanes = wave.wave_size
        if (text, lanes) not in built:
            code, at, found = assemble(text, lanes), 0, []
            while at < len(code):
                found.append(decode(code, at))
                at += found[-1].size_bytes
            built[text, lanes] = translated(found, lanes, VGPRS, MODE)
        for rule in built[text, lanes]:
            rule(wave)

    return execute


def wave_of(lanes, seed=1, active=None):
    rng = np.random.default_rng(seed)
    wave = WaveState(lanes, VGPRS)
    wave.vgprs[:] = rng.integers(0, 1 << 32, (VGPRS, lanes), dtype=np.uint32)
    wave.sgprs[:106] = rng.integers(0, 1 << 32, 106, dtype=np.uint32)
    mask = (1 << lanes) - 1 if active is None else active
    wave.sgprs[126:128] = mask & M32, mask >> 32
    return wave


def on(wave):
    """Return the active lanes as an array."""
    return np.array([wave.exec_mask >> lane & 1 for lane in range(wave.wave_size)], bool)


# one lane -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("active", "lane"), [(0xFFFF_FFFF, 0), (0x0010_0100, 8), (0, 0)])
def test_readfirstlane_takes_the_lowest_active_lane_or_lane_0(active, lane, run):
    wave = wave_of(32, active=active)
    run("v_readfirstlane_b32 s5, v3", wave)
    assert wave.sgprs[5] == wave.vgprs[3, lane]


@pytest.mark.parametrize("lanes", [32, 64])
def test_lane_numbers_of_readlane_and_writelane_wrap_and_ignore_exec(lanes, run):
    wave = wave_of(lanes, active=0)
    before = wave.vgprs.copy()
    wave.sgprs[4] = 100 * lanes + 29
    run("v_readlane_b32 s5, v3, s4\nv_writelane_b32 v7, s5, s4", wave)
    assert wave.sgprs[5] == before[3, 29]
    before[7, 29] = before[3, 29]
    assert np.array_equal(wave.vgprs, before)


@pytest.mark.parametrize("lanes", [32, 64])
def test_masked_bit_count_numbers_the_active_lanes(lanes, run):
    wave = wave_of(lanes, active=0xF0F0_1234_8765_4321 & (1 << lanes) - 1)
    run("v_mbcnt_lo_u32_b32 v1, exec_lo, 0\nv_mbcnt_hi_u32_b32 v1, exec_hi, v1", wave)
    active = on(wave)
    assert np.array_equal(wave.vgprs[1][active], np.arange(active.sum()))


# all lanes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
def test_permlane_gathers_by_four_bits_a_lane(name, lanes, run):
    wave = wave_of(lanes)
    select = int(wave.sgprs[2]) | int(wave.sgprs[3]) << 32
    source = [(lane & ~15 ^ (16 if "x16" in name else 0)) | select >> 4 * (lane & 15) & 15 for lane in range(lanes)]
    true = wave.vgprs[3][source]
    run(f"{name} v1, v3, s2, s3", wave)
    assert np.array_equal(wave.vgprs[1], true)


@pytest.mark.parametrize("modifiers", ["", "op_sel:[1,0]", "op_sel:[0,1]", "op_sel:[1,1]"])
def test_permlane_from_inactive_lanes_fetches_clears_or_keeps(modifiers, run):
    wave = wave_of(32, active=0x5A5A_C3C3)
    before = wave.vgprs.copy()
    select = int(wave.sgprs[2]) | int(wave.sgprs[3]) << 32
    source = np.array([lane & 16 | select >> 4 * (lane & 15) & 15 for lane in range(32)])
    run(f"v_permlane16_b32 v1, v3, s2, s3 {modifiers}", wave)
    active = on(wave)
    fetches, clears = "[1" in modifiers, "1]" in modifiers
    moved = np.where(active[source] | fetches, before[3][source], 0 if clears else before[1])
    assert np.array_equal(wave.vgprs[1], np.where(active, moved, before[1]))


def test_permlane64_exchanges_the_halves_of_a_wave64_only(run):
    wide, narrow = wave_of(64), wave_of(32)
    true, same = np.roll(wide.vgprs[3], 32), narrow.vgprs.copy()
    for wave in (wide, narrow):
        run("v_permlane64_b32 v1, v3", wave)
    assert np.array_equal(wide.vgprs[1], true)
    assert np.array_equal(narrow.vgprs, same)


def test_swaps_exchange_active_lanes_and_halves(run):
    wave = wave_of(32, active=0x0F0F_0F0F)
    before = wave.vgprs.copy()
    run("v_swap_b32 v1, v2\nv_swap_b16 v3.l, v4.h", wave)
    active = on(wave)
    assert np.array_equal(wave.vgprs[1], np.where(active, before[2], before[1]))
    assert np.array_equal(wave.vgprs[2], np.where(active, before[1], before[2]))
    assert np.array_equal(wave.vgprs[3], np.where(active, before[3] & 0xFFFF_0000 | before[4] >> 16, before[3]))
    assert np.array_equal(wave.vgprs[4], np.where(active, before[4] & 0xFFFF | before[3] << 16, before[4]))


@pytest.mark.parametrize("lanes", [32, 64])
def test_registers_are_found_by_m0(lanes, run):
    wave = wave_of(lanes, active=0x9F9F_00FF_3C3C_FF0F & (1 << lanes) - 1)
    true, active = wave.vgprs.copy(), on(wave)

    def move(target, values):
        true[target] = np.where(active, values, true[target])

    wave.sgprs[125] = 10
    run("v_movrels_b32 v5, v7\nv_movreld_b32 v9, v8\nv_movrelsd_b32 v20, v30\nv_movreld_b32 v1, s3", wave)
    for target, values in ((5, true[17].copy()), (19, true[8].copy()), (30, true[40].copy()), (11, wave.sgprs[3])):
        move(target, values)
    wave.sgprs[125] = 20 << 16 | 10
    run("v_movrelsd_2_b32 v5, v7\nv_swaprel_b32 v6, v8", wave)
    move(25, true[17].copy())
    first, second = true[26].copy(), true[18].copy()
    move(26, second)
    move(18, first)
    assert np.array_equal(wave.vgprs, true)


def test_a_register_beyond_the_allocation_reads_as_v0_and_is_not_written(run):
    wave = wave_of(32)
    true = wave.vgprs.copy()
    wave.sgprs[125] = VGPRS
    run("v_movrels_b32 v5, v7\nv_movreld_b32 v9, v8", wave)
    true[5] = true[0]
    assert np.array_equal(wave.vgprs, true)


# carries --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [32, 64])
def test_carries_chain_to_64_bits(lanes, run):
    wave = wave_of(lanes, active=0xFEDC_BA98_7654_3210 & (1 << lanes) - 1)
    a, b = (wave.vgprs[i].astype(object) + (wave.vgprs[i + 1].astype(object) << 32) for i in (0, 2))
    vcc = "vcc" if lanes == 64 else "vcc_lo"
    pair = "s[4:5]" if lanes == 64 else "s4"
    run(
        f"v_add_co_u32 v10, {vcc}, v0, v2\nv_add_co_ci_u32 v11, {vcc}, v1, v3, {vcc}\n"
        f"v_sub_co_u32 v12, {pair}, v0, v2\nv_sub_co_ci_u32 v13, {pair}, v1, v3, {pair}",
        wave,
    )
    active = on(wave)
    for first, sums, place in ((10, a + b, 106), (12, a - b, 4)):
        found = wave.vgprs[first].astype(object) + (wave.vgprs[first + 1].astype(object) << 32)
        assert [x for x, keep in zip(found, active, strict=True) if keep] == [
            x % 2**64 for x, keep in zip(sums, active, strict=True) if keep
        ]
        flags = int(wave.sgprs[place]) | (int(wave.sgprs[place + 1]) << 32 if lanes == 64 else 0)
        assert flags == sum(1 << lane for lane in range(lanes) if active[lane] and not 0 <= sums[lane] < 2**64)


def test_wide_multiply_adds_give_the_65th_bit(run):
    wave = wave_of(32)
    wave.vgprs[0:4, :8] = M32
    a, b, c = (wave.vgprs[i].astype(object) for i in (0, 1, 2))
    c = c + (wave.vgprs[3].astype(object) << 32)
    run("v_mad_u64_u32 v[10:11], s4, v0, v1, v[2:3]\nv_mad_i64_i32 v[12:13], s5, v0, v1, v[2:3]", wave)

    def signed(values, bits):
        return [one - (1 << bits) if one >> bits - 1 else one for one in values]

    sums = {
        10: (a * b + c, 4),
        12: ([x * y + z for x, y, z in zip(signed(a, 32), signed(b, 32), signed(c, 64), strict=True)], 5),
    }
    for first, (total, place) in sums.items():
        found = wave.vgprs[first].astype(object) + (wave.vgprs[first + 1].astype(object) << 32)
        assert list(found) == [one % 2**64 for one in total]
        assert int(wave.sgprs[place]) == sum((one >> 64 & 1) << lane for lane, one in enumerate(total))


# halves, packed and mixed ---------------------------------------------------------------------------------------------


def half_pairs(rng, count=32):
    """Return dwords of two halves of middling size."""
    return rng.uniform(-8, 8, (count, 2)).astype(np.float16).view(np.uint32).reshape(count)


def halves(words):
    return words.view(np.float16).reshape(-1, 2)


def test_packed_halves_follow_selection_and_sign(run):
    rng = np.random.default_rng(2)
    wave = wave_of(32)
    for i in range(3):
        wave.vgprs[i] = half_pairs(rng)
    a, b, c = (halves(wave.vgprs[i].copy()) for i in range(3))
    run("v_pk_fma_f16 v10, v0, v1, v2 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0] neg_hi:[0,0,1]", wave)
    wide = [one.astype(np.float64) for one in (a, b, c)]
    low = (wide[0][:, 1] * -wide[1][:, 0] + wide[2][:, 0]).astype(np.float16)
    high = (wide[0][:, 0] * wide[1][:, 1] - wide[2][:, 1]).astype(np.float16)
    assert np.array_equal(halves(wave.vgprs[10]), np.stack([low, high], axis=1))


def test_mixed_multiply_adds_take_each_source_as_asked(run):
    rng = np.random.default_rng(3)
    wave = wave_of(32)
    wave.vgprs[0] = half_pairs(rng)
    wave.vgprs[1] = rng.uniform(-9, 9, 32).astype(np.float32).view(np.uint32)
    wave.vgprs[2] = half_pairs(rng)
    old = wave.vgprs[11].copy()
    first, second, third = halves(wave.vgprs[0])[:, 1], wave.vgprs[1].view(np.float32), halves(wave.vgprs[2])[:, 0]
    true = (first.astype(np.float64) * abs(second.astype(np.float64)) - third.astype(np.float64)).astype(np.float32)
    how = "v0, |v1|, -v2 op_sel:[1,0,0] op_sel_hi:[1,0,1]"
    run(
        f"v_fma_mix_f32 v10, {how}\nv_fma_mixhi_f16 v11, {how}\nv_fma_mix_f32 v12, 1.0, v1, 1.0 op_sel_hi:[1,0,0]", wave
    )
    assert np.array_equal(wave.vgprs[10].view(np.float32), true)
    assert np.array_equal(halves(wave.vgprs[11])[:, 1], true.astype(np.float16))
    assert np.array_equal(wave.vgprs[11] & 0xFFFF, old & 0xFFFF)
    assert np.array_equal(wave.vgprs[12].view(np.float32), second + np.float32(1))


# matrices -------------------------------------------------------------------------------------------------------------

N = 16


def put_rows(wave, first, matrix, bits):
    """Lay a matrix out as A: lane l holds row l mod 16, with the row's elements packed. B has its columns laid
    out so.
    """
    words = np.zeros((N, N * bits // 32), np.uint32)
    for k in range(N):
        words[:, k * bits // 32] |= (matrix[:, k].astype(np.int64) & (1 << bits) - 1).astype(np.uint32) << np.uint32(
            k * bits % 32
        )
    for i in range(words.shape[1]):
        wave.vgprs[first + i] = np.tile(words[:, i], wave.wave_size // N)


def places(lanes):
    """Return register and lane of each element of C and D."""
    step = lanes // N
    return [(row // step, row % step * N + column, row, column) for row in range(N) for column in range(N)]


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("signs", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("name", "bits"), [("v_wmma_i32_16x16x16_iu8", 8), ("v_wmma_i32_16x16x16_iu4", 4)])
def test_integer_matrices_multiply(name, bits, signs, lanes, run):
    rng = np.random.default_rng(bits)
    # EXEC counts as all ones.
    wave = wave_of(lanes, active=0x1234)
    factors = [rng.integers(-(1 << bits - 1) if one else 0, 1 << bits - one, (N, N)) for one in signs]
    put_rows(wave, 0, factors[0], bits)
    put_rows(wave, 8, factors[1].T, bits)
    added = rng.integers(-1000, 1000, (N, N))
    for register, lane, row, column in places(lanes):
        wave.vgprs[16 + register, lane] = added[row, column] & M32
    count, wide = bits // 2, N * N // lanes
    run(
        f"{name} v[32:{31 + wide}], v[0:{count - 1}], v[8:{7 + count}], v[16:{15 + wide}] neg_lo:[{int(signs[0])},{int(signs[1])},0]",
        wave,
    )
    true = factors[0] @ factors[1] + added
    found = np.zeros((N, N), np.int64)
    for register, lane, row, column in places(lanes):
        found[row, column] = wave.vgprs[32 + register, lane].view(np.int32)
    assert np.array_equal(found, true)


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize(("name", "kind", "result"), [
    ("v_wmma_f32_16x16x16_f16", np.float16, np.float32), ("v_wmma_f32_16x16x16_bf16", ml_dtypes.bfloat16, np.float32),
    ("v_wmma_f16_16x16x16_f16", np.float16, np.float16), ("v_wmma_bf16_16x16x16_bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
], ids=["f32 of f16", "f32 of bf16", "f16", "bf16"])  # fmt: skip
def test_float_matrices_multiply(name, kind, result, lanes, run):
    rng = np.random.default_rng(9)
    wave = wave_of(lanes)
    factors = [rng.uniform(-2, 2, (N, N)).astype(kind) for _ in range(2)]
    put_rows(wave, 0, factors[0].view(np.uint16), 16)
    put_rows(wave, 8, np.ascontiguousarray(factors[1].T).view(np.uint16), 16)
    added = rng.uniform(-2, 2, (N, N)).astype(result)
    wide, narrow = N * N // lanes, result is not np.float32
    bits = added.view(np.uint16 if narrow else np.uint32)
    for register, lane, row, column in places(lanes):
        wave.vgprs[16 + register, lane] = int(bits[row, column]) << (16 if narrow else 0)
    before = wave.vgprs.copy()
    modifiers = "op_sel:[0,0,1]" if narrow else ""
    run(f"{name} v[32:{31 + wide}], v[0:7], v[8:15], v[16:{15 + wide}] {modifiers}", wave)
    found = np.zeros((N, N), np.uint32)
    for register, lane, row, column in places(lanes):
        word = int(wave.vgprs[32 + register, lane])
        if narrow:
            # The half that op_sel does not name stays.
            assert word & 0xFFFF == before[32 + register, lane] & 0xFFFF
        found[row, column] = word >> 16 if narrow else word
    values = found.astype(bits.dtype).view(result).astype(np.float64)
    true = factors[0].astype(np.float64) @ factors[1].astype(np.float64) + added.astype(np.float64)
    # Each of the 16 steps of a sum rounds by half a unit.
    step = {np.float32: 2**-23, np.float16: 2**-10}.get(result, 2**-7)
    assert np.allclose(values, true, rtol=0, atol=8 * step * abs(true).max())
