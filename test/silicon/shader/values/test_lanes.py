"""Lane reads, writes, permutations and counts of the interpreter's ALU, lane by lane as the ISA document's
loops say.
"""

from __future__ import annotations

import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.common.state import M0, WaveState

SIZES = [32, 64]
MASKS = {32: [0xFFFF_FFFF, 0, 0xF0F0_3C01, 0x8000_0000], 64: [(1 << 64) - 1, 0, 0x0123_4567_89AB_CDE0, 1 << 40]}
CASES = [(lanes, mask) for lanes in SIZES for mask in MASKS[lanes]]


@pytest.fixture(scope="module")
def run(assemble, interpreted):
    """`run(text, lanes, mask, **scalars)` executes one instruction on random registers. It returns the wave, and its
    VGPRs from before.
    """

    def execute(text, lanes, mask=-1, **scalars):
        wave = WaveState(lanes, 40)
        wave.vgprs[:] = (
            np.random.default_rng(4).integers(0, 1 << 32, wave.vgprs.shape, dtype=np.uint64).astype(np.uint32)
        )
        mask &= (1 << lanes) - 1
        wave.sgprs[126:128] = mask & 0xFFFF_FFFF, mask >> 32
        for name, value in scalars.items():
            wave.sgprs[M0 if name == "m0" else int(name[1:])] = value
        before = wave.vgprs.copy()
        (call,) = interpreted([decode(assemble(text, lanes))], lanes, 40)
        call(wave)
        return wave, before

    return execute


def active(mask, lane):
    return bool(mask >> lane & 1)


@pytest.mark.parametrize(("lanes", "mask"), CASES)
def test_the_first_lane_is_the_lowest_active_one_or_lane_0(lanes, mask, run):
    wave, before = run("v_readfirstlane_b32 s3, v2", lanes, mask)
    first = next((lane for lane in range(lanes) if active(mask, lane)), 0)
    assert wave.sgprs[3] == before[2, first]


@pytest.mark.parametrize("lane", [0, 5, 31, 37, 63, 0xFFFF_FFFF])
@pytest.mark.parametrize(("lanes", "mask"), CASES)
def test_a_lane_is_read_and_written_whatever_exec_says(lanes, mask, lane, run):
    wave, before = run("v_readlane_b32 s3, v2, s4", lanes, mask, s4=lane)
    assert wave.sgprs[3] == before[2, lane % lanes]
    wave, before = run("v_writelane_b32 v1, s5, s4", lanes, mask, s4=lane, s5=0xDEAD_BEEF)
    before[1, lane % lanes] = 0xDEAD_BEEF
    assert (wave.vgprs == before).all()


# Selectors: a rotation (the document's example), and lane 15 - i.
SELECTORS = [(0x8765_4321, 0x0FED_CBA9), (0x89AB_CDEF, 0x0123_4567), (0, 0), (0x1357_9BDF, 0xFFFF_0000)]


# Fetch inactive lanes, and bound control.
@pytest.mark.parametrize("flags", [0, 1, 2, 3])
@pytest.mark.parametrize(("mnemonic", "flip"), [("v_permlane16_b32", 0), ("v_permlanex16_b32", 1)])
@pytest.mark.parametrize(("lanes", "mask"), CASES)
def test_rows_are_permuted_by_selectors_of_four_bits(lanes, mask, mnemonic, flip, flags, run):
    for low, high in SELECTORS:
        text = f"{mnemonic} v1, v2, s4, s5 op_sel:[{flags & 1},{flags >> 1}]"
        wave, before = run(text, lanes, mask, s4=low, s5=high)
        for lane in range(lanes):
            row, place = lane >> 4 ^ flip, lane & 15
            source = row * 16 + ((high << 32 | low) >> 4 * place & 15)
            wanted = before[1, lane]
            if active(mask, lane) and (flags & 1 or active(mask, source)):
                wanted = before[2, source]
            elif active(mask, lane) and flags & 2:
                wanted = 0
            assert wave.vgprs[1, lane] == wanted, (text, lane)


def test_a_row_may_be_permuted_in_place(run):
    wave, before = run("v_permlane16_b32 v1, v1, s4, s5", 32, s4=0x8765_4321, s5=0x0FED_CBA9)
    assert wave.vgprs[1, :16].tolist() == np.roll(before[1, :16], -1).tolist()


@pytest.mark.parametrize("mask", MASKS[64])
def test_the_halves_of_a_wave64_change_places_from_inactive_lanes_too(mask, run):
    wave, before = run("v_permlane64_b32 v1, v2", 64, mask)
    for lane in range(64):
        assert wave.vgprs[1, lane] == (before[2, lane ^ 32] if active(mask, lane) else before[1, lane])


def test_a_wave32_has_no_halves_to_swap(run):
    wave, before = run("v_permlane64_b32 v1, v2", 32)
    assert (wave.vgprs == before).all()


@pytest.mark.parametrize("lanes", SIZES)
def test_both_counts_of_a_full_mask_number_the_lanes(lanes, run):
    wave, _ = run("v_mbcnt_lo_u32_b32 v1, -1, 0", lanes)
    assert wave.vgprs[1].tolist() == [min(lane, 32) for lane in range(lanes)]
    wave, _ = run("v_mbcnt_hi_u32_b32 v1, -1, 0", lanes)
    assert wave.vgprs[1].tolist() == [max(lane - 32, 0) for lane in range(lanes)]


@pytest.mark.parametrize("lanes", SIZES)
def test_counts_add_the_bits_below_ones_own_lane(lanes, run):
    for mnemonic, first in (("v_mbcnt_lo_u32_b32", 0), ("v_mbcnt_hi_u32_b32", 32)):
        wave, before = run(f"{mnemonic} v1, v2, v3", lanes)
        for lane in range(lanes):
            below = int(before[2, lane]) << first & (1 << lane) - 1
            assert wave.vgprs[1, lane] == (int(before[3, lane]) + below.bit_count()) & 0xFFFF_FFFF


@pytest.mark.parametrize(("lanes", "mask"), CASES)
def test_swaps_exchange_active_lanes(lanes, mask, run):
    lanes_on = np.array([active(mask, lane) for lane in range(lanes)])
    wave, before = run("v_swap_b32 v1, v2", lanes, mask)
    assert (wave.vgprs[1] == np.where(lanes_on, before[2], before[1])).all()
    assert (wave.vgprs[2] == np.where(lanes_on, before[1], before[2])).all()
    wave, before = run("v_swap_b16 v1.h, v2.l", lanes, mask)
    assert (wave.vgprs[1] == np.where(lanes_on, before[1] & 0xFFFF | before[2] << 16, before[1])).all()
    assert (wave.vgprs[2] == np.where(lanes_on, before[2] >> 16 << 16 | before[1] >> 16, before[2])).all()


@pytest.mark.parametrize(
    ("text", "m0", "target", "source"),
    [
        ("v_movreld_b32 v5, v7", 10, 15, 7),
        ("v_movrels_b32 v5, v7", 10, 5, 17),
        ("v_movrelsd_b32 v5, v7", 10, 15, 17),
        ("v_movrelsd_2_b32 v5, v7", 20 << 16 | 10, 25, 17),
    ],
)
def test_m0_moves_register_numbers_as_in_the_documents_examples(text, m0, target, source, run):
    mask = 0xF0F0_3C01
    wave, before = run(text, 32, mask, m0=m0)
    lanes_on = np.array([active(mask, lane) for lane in range(32)])
    before[target] = np.where(lanes_on, before[source], before[target])
    assert (wave.vgprs == before).all()


def test_registers_that_m0_names_are_swapped(run):
    wave, before = run("v_swaprel_b32 v5, v7", 32, m0=20 << 16 | 10)
    before[[25, 17]] = before[[17, 25]]
    assert (wave.vgprs == before).all()
