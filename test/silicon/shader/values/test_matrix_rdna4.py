"""RDNA4's products of dense and sparse matrices compared with NumPy's. Elements lie where the document's tables say.

Source: RDNA4 ISA reference, "Matrix Element Storage in VGPRs", "Structured Sparse Matrices".
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.amd.decoding.generations import RDNA4
from ringup.silicon.shader.common.state import WaveState

SIDE = 16
A, B, C, D, INDEX = 8, 16, 24, 32, 40
SIZES = [32, 64]
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
WIDTHS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "iu8": 8, "iu4": 4}


@pytest.fixture(scope="module")
def run(assemble, interpreted):
    """`run(text, wave)` executes one instruction."""

    def execute(text, wave):
        lanes = wave.wave_size
        (call,) = interpreted([decode(assemble(text, lanes, "gfx1201"), 0, RDNA4)], lanes, 48)
        call(wave)

    return execute


def wave_of(lanes):
    wave = WaveState(lanes, 48)
    draw = np.random.default_rng(2)
    wave.vgprs[:] = draw.integers(0, 1 << 32, wave.vgprs.shape, dtype=np.uint64).astype(np.uint32)
    # EXEC has no say.
    wave.sgprs[126:128] = 0x0F0F_0001
    return wave


def bit(number, at):
    return number >> at & 1


# By bits of an element, length of K and lanes: the bits of lane above the column's, the register, and the place in it,
# of row k of B. A has them of its columns. Source: the table of "Matrix Element Storage in VGPRs".
PLACES = {
    (16, 16, 32): lambda k: (bit(k, 2), bit(k, 3) << 1 | bit(k, 1), bit(k, 0)),
    (16, 16, 64): lambda k: (k >> 2, bit(k, 1), bit(k, 0)),
    (8, 16, 32): lambda k: (bit(k, 3), bit(k, 2), k & 3),
    (8, 16, 64): lambda k: (bit(k, 2) << 1 | bit(k, 3), 0, k & 3),
    (4, 16, 32): lambda k: (bit(k, 3), 0, k & 7),
    (4, 16, 64): lambda k: (bit(k, 3), 0, k & 7),
    (4, 32, 32): lambda k: (bit(k, 4), bit(k, 3), k & 7),
    (4, 32, 64): lambda k: (bit(k, 3) << 1 | bit(k, 4), 0, k & 7),
}


def store(wave, register, lane, bits, place, value):
    word = int(wave.vgprs[register, lane]) & ~((1 << bits) - 1 << bits * place)
    wave.vgprs[register, lane] = word | int(value) << bits * place


def raw(matrix, bits):
    """Return the elements of a matrix as numbers of `bits` bits."""
    if matrix.dtype.kind not in "iu":
        return matrix.view(np.uint16 if bits == 16 else np.uint8).astype(int)
    return matrix.astype(int) & (1 << bits) - 1


def place_factor(wave, first, rows, bits):
    """Store (16, K), a row of A or a column of B at a time."""
    length = rows.shape[1]
    for row, line in enumerate(raw(rows, bits)):
        for k, value in enumerate(line):
            group, register, place = PLACES[bits, length, wave.wave_size](k)
            store(wave, first + register, group * SIDE + row, bits, place, value)


def sum_place(lanes, row, column):
    """Return the lane and the number among the lane's elements. Source: "Register format for dense matrix results"."""
    if lanes == 32:
        return row // 8 * 16 + column, row % 8
    return row // 4 % 2 * 32 + row // 8 * 16 + column, row % 4


def place_sum(wave, first, matrix):
    bits = 8 * matrix.itemsize
    values = matrix.view(f"u{matrix.itemsize}")
    for row in range(SIDE):
        for column in range(SIDE):
            lane, at = sum_place(wave.wave_size, row, column)
            store(wave, first + at * bits // 32, lane, bits, at % (32 // bits), values[row, column])


def taken(wave, first, dtype):
    found = np.zeros((SIDE, SIDE), f"u{np.dtype(dtype).itemsize}")
    bits = 8 * found.itemsize
    for row in range(SIDE):
        for column in range(SIDE):
            lane, at = sum_place(wave.wave_size, row, column)
            found[row, column] = (
                int(wave.vgprs[first + at * bits // 32, lane]) >> bits * (at % (32 // bits)) & (1 << bits) - 1
            )
    return found.view(dtype)


def span(first, bits, count, lanes):
    """Return the registers of `count` elements, spread over the lanes."""
    registers = max(count * bits // 32 // lanes, 1)
    return f"v[{first}:{first + registers - 1}]" if registers > 1 else f"v{first}"


def whole_numbers(seed, shape, dtype):
    """Return numbers whose products and sums every format holds exactly."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


DENSE = [("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("f16", "f16", "f16"), ("bf16", "bf16", "bf16")]
DENSE += [("f32", first, second) for first in ("fp8", "bf8") for second in ("fp8", "bf8")]


@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize(("result", "first", "second"), DENSE)
def test_exact_products_come_out_at_their_places(run, result, first, second, lanes):
    wave, of_sum = wave_of(lanes), FLOATS.get(result, np.float32)
    a, b = whole_numbers(1, (SIDE, SIDE), FLOATS[first]), whole_numbers(2, (SIDE, SIDE), FLOATS[second])
    c = whole_numbers(3, (SIDE, SIDE), of_sum)
    bits, wide = WIDTHS[first], 8 * np.dtype(of_sum).itemsize
    place_factor(wave, A, a, bits)
    place_factor(wave, B, np.ascontiguousarray(b.T), bits)
    place_sum(wave, C, c)
    suffix = first if first == second and bits == 16 else f"{first}_{second}"
    factors = [span(one, bits, 256, lanes) for one in (A, B)]
    sums = [span(one, wide, 256, lanes) for one in (D, C)]
    run(f"v_wmma_{result}_16x16x16_{suffix} {sums[0]}, {factors[0]}, {factors[1]}, {sums[1]}", wave)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert (taken(wave, D, of_sum).astype(np.float64) == wanted).all()


@pytest.mark.parametrize("neg", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize(("bits", "length"), [(8, 16), (4, 16), (4, 32)])
def test_integer_matrices_are_signed_where_neg_says_so(run, bits, length, lanes, neg):
    wave, draw = wave_of(lanes), np.random.default_rng(7)
    a, b = draw.integers(0, 1 << bits, (2, SIDE, length))
    c = draw.integers(-(1 << 31), 1 << 31, (SIDE, SIDE)).astype(np.int32)
    place_factor(wave, A, a, bits)
    place_factor(wave, B, b, bits)
    place_sum(wave, C, c)
    factors = [span(one, bits, SIDE * length, lanes) for one in (A, B)]
    sums = [span(one, 32, 256, lanes) for one in (D, C)]
    run(
        f"v_wmma_i32_16x16x{length}_iu{bits} {sums[0]}, {factors[0]}, {factors[1]}, {sums[1]} neg_lo:[{neg[0]},{neg[1]},0]",
        wave,
    )
    signed = [
        np.where(is_signed & (one >> bits - 1), one - (1 << bits), one)
        for one, is_signed in zip((a, b), neg, strict=True)
    ]
    wanted = (signed[0] @ signed[1].T + c).astype(np.int64)
    assert (taken(wave, D, np.int32) == wanted.astype(np.uint64).astype(np.uint32).view(np.int32)).all()


def test_signs_of_halves_and_of_the_addend(run):
    for lanes in SIZES:
        wave = wave_of(lanes)
        a, b, c = (whole_numbers(seed, (SIDE, SIDE), np.float16) for seed in (8, 9, 10))
        place_factor(wave, A, a, 16)
        place_factor(wave, B, np.ascontiguousarray(b.T), 16)
        place_sum(wave, C, c)
        factors = [span(one, 16, 256, lanes) for one in (A, B, C, D)]
        run(
            f"v_wmma_f16_16x16x16_f16 {factors[3]}, {factors[0]}, {factors[1]}, {factors[2]} neg_lo:[1,0,1] neg_hi:[0,1,1]",
            wave,
        )
        a, b = a.astype(np.float64), b.astype(np.float64)
        a[:, ::2] *= -1
        b[1::2] *= -1
        assert (taken(wave, D, np.float16) == a @ b - np.abs(c)).all()


@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize(("kind", "value"), [("f32", np.float32), ("f16", np.float16)])
def test_an_inline_addend_is_in_every_element(run, kind, value, lanes):
    wave = wave_of(lanes)
    place_factor(wave, A, np.zeros((SIDE, SIDE), np.float16), 16)
    place_factor(wave, B, np.zeros((SIDE, SIDE), np.float16), 16)
    wide = 8 * np.dtype(value).itemsize
    places = span(D, wide, 256, lanes), span(A, 16, 256, lanes), span(B, 16, 256, lanes)
    run(f"v_wmma_{kind}_16x16x16_f16 {', '.join(places)}, 1.0", wave)
    assert (taken(wave, D, value) == 1.0).all()


# ---- sparse

SPARSE = [
    ("f32", "f16", "f16", 32),
    ("f32", "bf16", "bf16", 32),
    ("f16", "f16", "f16", 32),
    ("bf16", "bf16", "bf16", 32),
]
SPARSE += [("f32", first, second, 32) for first in ("fp8", "bf8") for second in ("fp8", "bf8")]
SPARSE += [("i32", "iu8", "iu8", 32), ("i32", "iu4", "iu4", 32), ("i32", "iu4", "iu4", 64)]


def place_parts(wave, first, rows, bits, lanes):
    """Store (16, elements) so that each group of 16 lanes has a part of each row.

    The order of the groups is that of the table's rows in a wave64. Registers hold a part's elements in order.
    """
    order = {32: (0, 1), 64: (0, 2, 1, 3)}[lanes]
    part = rows.shape[1] // len(order)
    for row, line in enumerate(raw(rows, bits)):
        for at, value in enumerate(line):
            group, within = order[at // part], at % part
            store(wave, first + within * bits // 32, group * SIDE + row, bits, within % (32 // bits), value)


@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize("lanes", SIZES)
@pytest.mark.parametrize(("result", "first", "second", "length"), SPARSE)
def test_sparse_matrices_multiply_as_whole_ones(run, result, first, second, length, lanes, key):
    draw, bits = np.random.default_rng(length), WIDTHS[first]
    is_float = first in FLOATS
    of_sum = FLOATS.get(result, np.float32 if is_float else np.int32)
    kinds = [FLOATS.get(one, np.int32) for one in (first, second)]
    kept, b = whole_numbers(5, (SIDE, length // 2), kinds[0]), whole_numbers(6, (length, SIDE), kinds[1])
    c = whole_numbers(7, (SIDE, SIDE), of_sum)
    # Two places of every four, in order.
    places = np.sort(
        np.array([[draw.choice(4, 2, replace=False) for _ in range(length // 4)] for _ in range(SIDE)]), axis=2
    )
    whole = np.zeros((SIDE, length))
    for row in range(SIDE):
        for four in range(length // 4):
            for at in range(2):
                whole[row, 4 * four + places[row, four, at]] = kept[row, 2 * four + at]
    wave = wave_of(lanes)
    # Four-bit elements of a short A are in the low half of a wave64.
    of_a = 32 if (first, length) == ("iu4", 32) else lanes
    place_parts(wave, A, kept, bits, of_a)
    place_parts(wave, B, np.ascontiguousarray(b.T), bits, lanes)
    place_sum(wave, D, c)
    each = length // 2 * SIDE // of_a
    sets = 32 // (2 * each)
    chosen = key if sets > 1 else 0
    index = places.reshape(SIDE, -1)
    shifted = np.zeros((SIDE, length // 2), int)
    shifted[:] = index
    order = {32: (0, 1), 64: (0, 2, 1, 3)}[of_a]
    for row in range(SIDE):
        for at in range(length // 2):
            lane = order[at // each] * SIDE + row
            store(wave, INDEX, lane, 2, chosen * each + at % each, shifted[row, at])
    wide = 8 * np.dtype(of_sum).itemsize
    operands = [
        span(D, wide, 256, lanes),
        span(A, bits, length // 2 * SIDE, lanes),
        span(B, bits, length * SIDE, lanes),
        f"v{INDEX}",
    ]
    suffix = first if first == second and first not in ("fp8", "bf8") else f"{first}_{second}"
    more = f" index_key:{chosen}" if chosen else ""
    more += "" if is_float else " neg_lo:[1,1,0]"
    run(f"v_swmmac_{result}_16x16x{length}_{suffix} {', '.join(operands)}{more}", wave)
    wanted = whole @ b.astype(np.float64) + c.astype(np.float64)
    assert (taken(wave, D, of_sum).astype(np.float64) == wanted).all()


def test_a_product_does_not_read_the_result_of_the_one_before(rdna4):
    """Matrix A, B or the index of a product may not be the result of the one before."""
    zeros = "\n".join(f"v_mov_b32_e32 v{one}, 0" for one in range(8, 41))
    plain = "v_wmma_f32_16x16x16_f16 v[32:39], v[8:11], v[12:15], v[24:31]\n"
    sparse = "v_swmmac_f32_16x16x32_f16 v[24:31], v[8:11], v[16:23], v36\n"
    rdna4.run(f"{zeros}\n{plain} v_nop\n{sparse} s_endpgm")
    assert rdna4.broken(f"{zeros}\n{plain}{sparse} s_endpgm").kind == "hazard"
