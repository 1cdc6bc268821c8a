"""Conversions to and from 8-bit floats compared with ml_dtypes, and their dot products with exact sums.

Source: RDNA4 ISA reference, "8-bit Math", "OPSEL with FP8 and BF8 Conversions".
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.values.eight_bits import FORMS, as_halves, narrowed, widened
from ringup.silicon.shader.amd.values.floats import ZERO

KINDS = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
ALL = np.arange(256, dtype=np.uint32)


def same(found, expected):
    return ((found == expected) | (np.isnan(found) & np.isnan(expected))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_octet_has_its_value(kind):
    expected = ALL.astype(np.uint8).view(KINDS[kind]).astype(np.float32)
    assert same(widened(FORMS[kind], ALL).view(np.float32), expected)
    halves = as_halves(FORMS[kind], ALL.astype(np.uint8).view("<u4")[:, None]).view(np.float16).ravel()
    assert same(halves.astype(np.float32), expected)


def floats():
    """Return f32 numbers around every 8-bit number, between two of them, and of all magnitudes."""
    draw = np.random.default_rng(8)
    known = np.concatenate([ALL.astype(np.uint8).view(kind).astype(np.float32) for kind in KINDS.values()])
    known = known[np.isfinite(known)]
    between = (known[:-1] + known[1:]) / 2
    bits = np.concatenate([known, between]).astype(np.float32).view(np.uint32)
    return np.concatenate([bits, bits + 1, bits - 1, draw.integers(0, 1 << 32, 20_000, dtype=np.uint64)]).astype(
        np.uint32
    )


@pytest.mark.parametrize("kind", KINDS)
def test_floats_round_to_the_nearest_even_octet(kind):
    bits = floats()
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(KINDS[kind]).view(np.uint8)
    found = narrowed(FORMS[kind], bits)
    is_nan = np.isnan(values)
    assert (found[~is_nan] == expected[~is_nan]).all()
    assert np.isnan(widened(FORMS[kind], found).view(np.float32)[is_nan]).all()


@pytest.mark.parametrize(("kind", "largest"), [("fp8", 0x7E), ("bf8", 0x7B)])
def test_overflow_saturates_where_mode_says_so(kind, largest):
    bits = np.array([0x7F80_0000, 0xFF80_0000, 0x7F00_0000, 0xFF00_0000], np.uint32)
    assert narrowed(FORMS[kind], bits, saturates=True).tolist() == [largest, largest | 0x80] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_truncation_goes_toward_zero(kind):
    bits = floats()
    with np.errstate(invalid="ignore"):
        values = bits.view(np.float32).astype(np.float64)
    largest = float(ml_dtypes.finfo(KINDS[kind]).max)
    some = np.abs(values) <= largest
    found = widened(FORMS[kind], narrowed(FORMS[kind], bits, ZERO)).view(np.float32).astype(np.float64)
    assert (np.abs(found[some]) <= np.abs(values[some])).all()
    step = narrowed(FORMS[kind], bits, ZERO) + 1
    above = widened(FORMS[kind], step).view(np.float32).astype(np.float64)
    inner = some & (np.abs(found) < largest)
    assert (np.abs(above[inner]) > np.abs(values[inner])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_conversions_select_bytes(alu, kind):
    word = 0x3A_39_38_30
    octets = [0x30, 0x38, 0x39, 0x3A]
    values = np.array(octets, np.uint8).view(KINDS[kind]).astype(np.float32).view(np.uint32)
    # The bits of op_sel are reversed.
    for opsel, place in ((0, 0), (2, 1), (1, 2), (3, 3)):
        assert alu(f"v_cvt_f32_{kind}", [word], fields={"opsel": opsel}).tolist() == [values[place]]
    pair = alu(f"v_cvt_pk_f32_{kind}", [0x3830])
    assert pair.tolist() == [int(values[0]) | int(values[1]) << 32]
    packed = alu(f"v_cvt_pk_{kind}_f32", [0], [values[2]], [values[3]])
    assert packed.tolist() == [0x3A39]
    for place in range(4):
        found = alu(f"v_cvt_sr_{kind}_f32", [0x1111_1111], [values[2]], [0], fields={"opsel": place << 2})
        assert found.tolist() == [0x1111_1111 & ~(0xFF << 8 * place) | 0x39 << 8 * place]


@pytest.mark.parametrize(("kind", "bits"), [("fp8", 20), ("bf8", 21)])
def test_noise_decides_how_often_a_number_rounds_up(alu, kind, bits):
    # A quarter of the way from 1 to the next number: a quarter of the noise carries it there.
    value = 0x3F80_0000 + (1 << bits - 2)
    noise = np.arange(0, 1 << 32, 1 << 24, dtype=np.uint64).astype(np.uint32)
    old, source = np.zeros(256, np.uint32), np.full(256, value, np.uint32)
    found = alu(f"v_cvt_sr_{kind}_f32", old, source, noise, fields={"opsel": 0})
    one = int(np.float32(1).astype(KINDS[kind]).view(np.uint8))
    assert (found == one + 1).sum() == 64
    assert ((found == one) | (found == one + 1)).all()


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, repeat=2)))
def test_dot_products_of_exact_sums(alu, first, second):
    draw = np.random.default_rng(4)
    octets = [draw.choice([-3.0, -1.5, -1.0, 0.0, 0.5, 1.0, 2.0, 3.5], (64, 4)) for _ in range(2)]
    addend = draw.integers(-100, 100, 64).astype(np.float32)
    words = [
        np.ascontiguousarray(one.astype(KINDS[kind])).view(np.uint8).view("<u4").ravel()
        for one, kind in zip(octets, (first, second), strict=True)
    ]
    found = alu(f"v_dot4_f32_{first}_{second}", *words, addend.view(np.uint32)).view(np.float32)
    assert found.tolist() == ((octets[0] * octets[1]).sum(axis=1) + addend).tolist()
