"""Conversions of typed buffers, and float atomics, compared with NumPy's own."""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.atomics import (
    F32,
    F64,
    Flush,
    float_add,
    float_cmpswap,
    float_select,
    operation,
)
from ringup.silicon.shader.amd.interpreter.formats import FORMATS, pack, unpack
from ringup.silicon.shader.common.texels import f32_to_small_float, small_float_to_f32

KEEP = Flush(inputs=False, outputs=False)
SPECIAL = [0, 0x8000_0000, 1, 0x8000_0001, 0x007F_FFFF, 0x0080_0000, 0x3F80_0000, 0xBF80_0000, 0x7F7F_FFFF, 0xFF7F_FFFF, 0x7F80_0000,
           0xFF80_0000]  # fmt: skip


def floats(count=3000):
    random = np.random.default_rng(7).integers(0, 1 << 32, count, np.uint64).tolist()
    return [one for one in SPECIAL + random if not F32.is_nan(one)]


def bits(value, dtype="<u4"):
    return int(np.asarray(value).view(dtype))


def test_every_half_float_widens_as_numpy_does():
    halves = np.arange(1 << 16, dtype=np.uint16)
    wanted = halves.view(np.float16).astype(np.float32)
    for half, want in zip(halves.tolist(), wanted, strict=True):
        if np.isnan(want):
            assert F32.is_nan(small_float_to_f32(half, 16))
        else:
            assert small_float_to_f32(half, 16) == bits(want)


def test_floats_narrow_to_halves_as_numpy_does():
    near = [
        small_float_to_f32(half, 16) + step for half in range(0, 0x7C00, 97) for step in (0, 0x0FFF, 0x1000, 0x1001)
    ]
    for one in floats() + near:
        with np.errstate(over="ignore"):
            want = np.uint32(one).view(np.float32).astype(np.float16)
        assert f32_to_small_float(one, 16) == bits(want, "<u2"), hex(one)


@pytest.mark.parametrize("width", [10, 11])
def test_small_floats_come_back(width):
    infinity = 0x1F << width - 5
    for one in range(infinity + 1):
        assert f32_to_small_float(small_float_to_f32(one, width), width) == one
    assert f32_to_small_float(0xBF80_0000, width) == 0


@pytest.mark.parametrize("number", FORMATS)
def test_elements_come_back_from_their_registers(number):
    fmt = FORMATS[number]
    rng = np.random.default_rng(number)
    for _ in range(200):
        element = rng.bytes(fmt.size_bytes)
        registers = unpack(fmt, element)
        if fmt.kind == "float" and any(F32.is_nan(one) for one in registers):
            continue
        again = unpack(fmt, pack(fmt, registers))
        # The two most negative SNORM numbers have one value.
        assert again == registers


def test_float_atomics_add_as_numpy_does():
    values = floats()
    for old, src in zip(values, values[::-1], strict=True):
        with np.errstate(all="ignore"):
            want = np.uint32(old).view(np.float32) + np.uint32(src).view(np.float32)
        if not np.isnan(want):
            assert float_add(F32, KEEP, old, src) == bits(want), (hex(old), hex(src))


def test_float_atomics_order_as_numpy_does():
    values = floats()
    for old, src in zip(values, values[::-1], strict=True):
        pair = np.array([old, src], np.uint32).view(np.float32)
        if pair[0] != pair[1]:
            assert float_select(F32, KEEP, old, src, largest=False) == bits(pair.min())
            assert float_select(F32, KEEP, old, src, largest=True) == bits(pair.max())


def test_doubles_follow_the_same_rules():
    one, infinity = 0x3FF0 << 48, 0x7FF0 << 48
    # A signalling NaN becomes quiet.
    assert float_select(F64, KEEP, one, infinity | 1, largest=True) == infinity | 1 << 51 | 1
    # -0 equals 0.
    assert float_cmpswap(F64, KEEP, 1 << 63, one, 0) == one
    assert operation("min_f64", KEEP)(1, 1 << 63 | 1, 0) == 1 << 63 | 1


def test_a_compare_of_flushed_denormals_stores_a_flushed_one():
    flush = Flush(inputs=True, outputs=False)
    assert float_cmpswap(F32, flush, 1, 0x8000_0003, 2) == 0x8000_0000
    assert float_cmpswap(F32, KEEP, 1, 3, 2) == 1
