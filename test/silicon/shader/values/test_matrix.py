"""Matrix multiplications of the interpreter's ALU compared with NumPy's own. Elements lie where AMD's article on WMMA
draws them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.common.state import MODE, WaveState

SIDE = 16
# The first registers.
A, B, C, D = 8, 16, 24, 32
SIZES = [32, 64]
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.fixture(scope="module")
def run(assemble, interpreted):
    """`run(text, wave)` executes one instruction."""

    def execute(text, wave):
        lanes = wave.wave_size
        (call,) = interpreted([decode(assemble(text, lanes))], lanes, 48)
        call(wave)

    return execute


def wave_of(lanes, mask=0xFFFF_FFFF):
    wave = WaveState(lanes, 48)
    rng = np.random.default_rng(2)
    wave.vgprs[:] = rng.integers(0, 1 << 32, wave.vgprs.shape, dtype=np.uint64).astype(np.uint32)
    wave.sgprs[126:128] = mask
    wave.words[MODE] = 0x1F0
    return wave


def place_factor(wave, first, rows):
    """Store each row of a matrix (rows as bytes) in its lane and in the lane's copies."""
    dwords = np.ascontiguousarray(rows).view(np.uint8).reshape(SIDE, -1).view("<u4")
    for lane in range(wave.wave_size):
        wave.vgprs[first : first + dwords.shape[1], lane] = dwords[lane % SIDE]


def places(lanes):
    """Yield register, lane, row and column of every element of C and D."""
    for register in range(SIDE * SIDE // lanes):
        for lane in range(lanes):
            yield register, lane, register * (lanes // SIDE) + lane // SIDE, lane % SIDE


def place_sum(wave, first, matrix, shift=0):
    for register, lane, row, column in places(wave.wave_size):
        word = int(wave.vgprs[first + register, lane]) & ~((0xFFFF if matrix.itemsize == 2 else 0xFFFF_FFFF) << shift)
        bits = int.from_bytes(matrix[row, column].tobytes(), "little")
        wave.vgprs[first + register, lane] = word | bits << shift


def taken(wave, first, dtype, shift=0):
    """Return the matrix in the registers from `first` on."""
    found = np.zeros((SIDE, SIDE), dtype)
    for register, lane, row, column in places(wave.wave_size):
        bits = int(wave.vgprs[first + register, lane]) >> shift & (1 << 8 * found.itemsize) - 1
        found[row, column] = np.frombuffer(bits.to_bytes(found.itemsize, "little"), dtype)[0]
    return found


def small_integers(seed, dtype):
    """Return numbers whose products and sums every format holds exactly."""
    return np.random.default_rng(seed).integers(-2, 3, (SIDE, SIDE)).astype(dtype)


@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize("kind", HALVES)
def test_exact_products_come_out_at_their_places(kind, lanes, run):
    wave, dtype = wave_of(lanes), HALVES[kind]
    a, b, c = small_integers(1, dtype), small_integers(2, dtype), small_integers(3, np.float32)
    place_factor(wave, A, a)
    place_factor(wave, B, b.T)
    place_sum(wave, C, c)
    run(f"v_wmma_f32_16x16x16_{kind} v[{D}:{D + 7 if lanes == 32 else D + 3}], v[{A}:{A + 7}], v[{B}:{B + 7}], "
        f"v[{C}:{C + 7 if lanes == 32 else C + 3}]", wave)  # fmt: skip
    assert (taken(wave, D, np.float32) == a.astype(np.float64) @ b.astype(np.float64) + c).all()


@pytest.mark.parametrize("is_high", [0, 1])
@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize("kind", HALVES)
def test_a_sum_in_halves_is_in_the_half_that_op_sel_names(kind, lanes, is_high, run):
    wave, dtype, last = wave_of(lanes), HALVES[kind], SIDE * SIDE // lanes - 1
    before = wave.vgprs[D : D + last + 1].copy()
    a, b, c = (small_integers(seed, dtype) for seed in (4, 5, 6))
    place_factor(wave, A, a)
    place_factor(wave, B, b.T)
    place_sum(wave, C, c, 16 * is_high)
    run(f"v_wmma_{kind}_16x16x16_{kind} v[{D}:{D + last}], v[{A}:{A + 7}], v[{B}:{B + 7}], v[{C}:{C + last}] "
        f"op_sel:[0,0,{is_high}]", wave)  # fmt: skip
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert (taken(wave, D, dtype, 16 * is_high).astype(np.float64) == wanted).all()
    kept = np.uint32(0xFFFF if is_high else 0xFFFF_0000)
    assert (wave.vgprs[D : D + last + 1] & kept == before & kept).all()


@pytest.mark.parametrize("neg", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize("bits", [8, 4])
def test_integer_matrices_are_signed_where_neg_says_so(bits, lanes, neg, run):
    wave, last = wave_of(lanes), SIDE * SIDE // lanes - 1
    registers = SIDE * bits // 32
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 1 << bits, (2, SIDE, SIDE))
    c = rng.integers(-(1 << 31), 1 << 31, (SIDE, SIDE)).astype(np.int32)
    for first, rows in ((A, a), (B, b.T)):
        octets = rows if bits == 8 else rows[:, ::2] | rows[:, 1::2] << 4
        place_factor(wave, first, octets.astype(np.uint8))
    place_sum(wave, C, c)
    run(f"v_wmma_i32_16x16x16_iu{bits} v[{D}:{D + last}], v[{A}:{A + registers - 1}], v[{B}:{B + registers - 1}], "
        f"v[{C}:{C + last}] neg_lo:[{neg[0]},{neg[1]},0]", wave)  # fmt: skip
    a, b = (
        np.where(is_signed & (one >> bits - 1), one - (1 << bits), one) for one, is_signed in ((a, neg[0]), (b, neg[1]))
    )
    wanted = (a @ b + c).astype(np.int64)
    assert (taken(wave, D, np.int32) == wanted.astype(np.uint64).astype(np.uint32).view(np.int32)).all()


def test_an_integer_sum_saturates_where_clamp_asks_for_it(run):
    wave = wave_of(32)
    place_factor(wave, A, np.full((SIDE, SIDE), 255, np.uint8))
    place_factor(wave, B, np.full((SIDE, SIDE), 255, np.uint8))
    place_sum(wave, C, np.full((SIDE, SIDE), 0x7FFF_FFF0, np.int32))
    run(f"v_wmma_i32_16x16x16_iu8 v[{D}:{D + 7}], v[{A}:{A + 3}], v[{B}:{B + 3}], v[{C}:{C + 7}] clamp", wave)
    assert (taken(wave, D, np.int32) == 0x7FFF_FFFF).all()


def test_signs_of_halves_and_of_the_addend(run):
    wave = wave_of(32)
    a, b, c = small_integers(8, np.float16), small_integers(9, np.float16), small_integers(10, np.float32)
    place_factor(wave, A, a)
    place_factor(wave, B, b.T)
    place_sum(wave, C, c)
    run(f"v_wmma_f32_16x16x16_f16 v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], v[{C}:{C + 7}] "
        "neg_lo:[1,0,1] neg_hi:[0,1,1]", wave)  # fmt: skip
    a, b = a.astype(np.float64), b.astype(np.float64)
    # The low halves of A: even columns.
    a[:, ::2] *= -1
    # The high halves of B: odd rows.
    b[1::2] *= -1
    assert (taken(wave, D, np.float32) == a @ b - np.abs(c)).all()


def test_exec_and_the_rounding_mode_have_no_say(run):
    results = []
    for mask, mode in ((0xFFFF_FFFF, 0x1F0), (0, 0x1FF), (0x00FF_0001, 0x1F5)):
        wave = wave_of(32, mask)
        wave.words[MODE] = mode
        rng = np.random.default_rng(11)
        place_factor(wave, A, rng.normal(size=(SIDE, SIDE)).astype(np.float16))
        place_factor(wave, B, rng.normal(size=(SIDE, SIDE)).astype(np.float16))
        place_sum(wave, C, rng.normal(size=(SIDE, SIDE)).astype(np.float32))
        run(f"v_wmma_f32_16x16x16_f16 v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], v[{C}:{C + 7}]", wave)
        results.append(wave.vgprs[D : D + 8].copy())
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


@pytest.mark.parametrize("kind", HALVES)
def test_rounded_sums_go_along_k_by_pairs(kind, run):
    """Each step adds a pair of products in f32, then adds the sum so far."""
    wave, dtype = wave_of(32), HALVES[kind]
    rng = np.random.default_rng(12)
    a, b = (rng.normal(size=(SIDE, SIDE)).astype(dtype) for _ in "ab")
    c = rng.normal(size=(SIDE, SIDE)).astype(np.float32)
    place_factor(wave, A, a)
    place_factor(wave, B, b.T)
    place_sum(wave, C, c)
    run(f"v_wmma_f32_16x16x16_{kind} v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], v[{C}:{C + 7}]", wave)
    a, b, total = a.astype(np.float32), b.astype(np.float32), c
    for k in range(0, SIDE, 2):
        total = (np.outer(a[:, k], b[k]) + np.outer(a[:, k + 1], b[k + 1])) + total
    assert (taken(wave, D, np.float32) == total).all()


def test_an_inline_addend_is_in_every_element(run):
    wave = wave_of(32)
    place_factor(wave, A, np.zeros((SIDE, SIDE), np.float16))
    place_factor(wave, B, np.zeros((SIDE, SIDE), np.float16))
    run(f"v_wmma_f32_16x16x16_f16 v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], 1.0", wave)
    assert (taken(wave, D, np.float32) == 1.0).all()
    run(f"v_wmma_f16_16x16x16_f16 v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], 1.0 op_sel:[0,0,1]", wave)
    assert (taken(wave, D, np.float16, 16) == 1.0).all()


@pytest.mark.parametrize("engine", [Interpreter, Translator])
def test_a_wave64_reads_and_writes_but_four_registers_of_sums(engine, machine):
    """In strict mode an unwritten or unallocated register would stop the wave. A factor may directly follow D."""
    zeros = [f"v_mov_b32 v{number}, 0" for number in (*range(4, 28), *range(32, 36))]
    matrices = ["v_wmma_f32_16x16x16_f16 v[28:31], v[4:11], v[12:19], v[20:23]",
                "v_wmma_f32_16x16x16_f16 v[20:23], v[4:11], v[12:19], v[32:35]"]  # fmt: skip
    machine.run(
        "\n".join([*zeros, *matrices, "s_endpgm"]), engine=engine(), wave_size=64, group_size=(64, 1, 1), vgpr_count=36
    )
