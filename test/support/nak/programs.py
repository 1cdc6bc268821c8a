"""Small compute shaders, each with its arguments and what must be in them afterwards."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from nak.builder import Builder, Shader


class Program(NamedTuple):
    """A shader; `check` gets the finished run and looks at the arguments. It runs in two groups of `size` threads."""

    shader: Shader
    arguments: list
    check: object
    size: int


PROGRAMS = {}


def program(make):
    """Add the maker of a program to `PROGRAMS`."""
    PROGRAMS[make.__name__] = make
    return make


@program
def a_loop_whose_threads_leave_at_different_times_converges(target, draw):
    b = Builder(target)
    counts, out = b.argument(), b.argument()
    index = b.number(32)
    bound = b.load(b.place(counts, index))
    turn, set_turn = b.variable(b.const(0))
    total, set_total = b.variable(b.const(0))

    def body():
        b.choose(b.op("uge", turn(), bound), b.leave)
        set_total(b.op("iadd", total(), b.op("imul", turn(), turn())))
        is_odd = b.op("ine", b.op("iand", turn(), b.const(1)), b.const(0))
        b.choose(is_odd, lambda: set_total(b.op("ixor", total(), b.const(0x55))))
        set_turn(b.op("iadd", turn(), b.const(1)))

    b.loop(body)
    b.store(b.place(out, index), total())
    counts, out = draw.integers(0, 40, 64).astype(np.uint32), np.zeros(64, np.uint32)

    def check(done):
        for count, found in zip(counts.tolist(), out.tolist(), strict=True):
            expected = 0
            for turn in range(count):
                expected = expected + turn * turn ^ 0x55 * (turn & 1)
            assert found == expected
        # Threads that ran alone would take more than twice as many.
        assert done.instructions < 2500

    return Program(b.compile(), [counts, out], check, 32)


@program
def a_group_exchanges_through_shared_memory_behind_a_barrier(target, draw):
    b = Builder(target, (64, 1, 1), 256)
    source, out = b.argument(), b.argument()
    index, thread = b.number(64), b.thread()
    b.store(b.op("imul", thread, b.const(4)), b.load(b.place(source, index)), "shared")
    b.barrier()
    other = b.op("imul", b.op("isub", b.const(63), thread), b.const(4))
    b.store(b.place(out, index), b.load(other, space="shared"))
    source, out = draw.integers(0, 1 << 31, 128).astype(np.uint32), np.zeros(128, np.uint32)

    def check(_):
        assert np.array_equal(out.reshape(2, 64), source.reshape(2, 64)[:, ::-1])

    return Program(b.compile(), [source, out], check, 64)


@program
def atomics_count_every_thread(target, draw):
    b = Builder(target)
    source, out, before = b.argument(), b.argument(), b.argument()
    index = b.number(32)
    value = b.load(b.place(source, index))
    old = b.atomic("iadd", b.place(out, b.op("iand", value, b.const(3))), b.const(1))
    b.store(b.place(before, index), old)
    b.atomic("umax", b.place(out, b.const(4)), value)
    b.atomic("fadd", b.place(out, b.const(5)), b.const(0.5))
    source = draw.integers(0, 1000, 64).astype(np.uint32)
    out, before = np.zeros(8, np.uint32), np.zeros(64, np.uint32)

    def check(_):
        assert np.array_equal(out[:4], np.bincount(source & 3, minlength=4))
        assert out[4] == source.max()
        assert out[5:6].view(np.float32)[0] == 32
        for low in range(4):
            assert sorted(before[source & 3 == low]) == list(range(out[low]))

    return Program(b.compile(), [source, out, before], check, 32)


@program
def votes_and_shuffles_reach_the_lanes_of_a_warp(target, draw):
    b = Builder(target)
    source, out = b.argument(), b.argument()
    index = b.number(32)
    value = b.load(b.place(source, index))
    found = [
        b.intrinsic("ballot", b.op("ult", value, b.const(500)), count=1),
        b.intrinsic("shuffle_xor", value, b.const(5), count=1),
        b.intrinsic("shuffle", value, b.op("iand", value, b.const(31)), count=1),
    ]
    for number, one in enumerate(found):
        b.store(b.place(out, b.op("iadd", b.op("imul", index, b.const(3)), b.const(number))), one)
    source, out = draw.integers(0, 1000, 64).astype(np.uint32), np.zeros((64, 3), np.uint32)

    def check(_):
        warps, lanes = source.reshape(2, 32), np.arange(32)
        masks = [sum(1 << int(lane) for lane in lanes if warp[lane] < 500) for warp in warps]
        assert np.array_equal(out[:, 0], np.repeat(masks, 32))
        assert np.array_equal(out[:, 1], warps[:, lanes ^ 5].ravel())
        assert np.array_equal(out[:, 2], np.take_along_axis(warps, (warps & 31).astype(int), 1).ravel())

    return Program(b.compile(), [source, out], check, 32)


@program
def f64_is_fused_and_rounded_once(target, draw):
    b = Builder(target)
    x, y, out = b.argument(), b.argument(), b.argument()
    index = b.number(32)
    left, right = b.load(b.place(x, index, 8), 64), b.load(b.place(y, index, 8), 64)
    b.store(b.place(out, index, 8), b.op("ffma", left, right, b.const(1.25, 64)))
    x, y, out = *draw.normal(size=(2, 64)), np.zeros(64)

    def check(_):
        assert out.tolist() == [float(Fraction(a) * Fraction(b) + Fraction(1.25)) for a, b in zip(x, y, strict=True)]

    return Program(b.compile(), [x, y, out], check, 32)


@program
def f16_is_fused_and_rounded_once(target, draw):
    b = Builder(target)
    source, out = b.argument(), b.argument()
    index = b.number(32)
    value = b.load(b.place(source, index, 2), 16)
    b.store(b.place(out, index, 2), b.op("ffma", value, value, b.const(0.5, 16)))
    source, out = draw.normal(size=64).astype(np.float16), np.zeros(64, np.float16)

    def check(_):
        assert np.array_equal(out, (source.astype(float) ** 2 + 0.5).astype(np.float16))

    return Program(b.compile(), [source, out], check, 32)


@program
def int64_is_made_of_halves_with_carries(target, draw):
    b = Builder(target)
    x, y, out = b.argument(), b.argument(), b.argument()
    index = b.number(32)
    left, right = b.load(b.place(x, index, 8), 64), b.load(b.place(y, index, 8), 64)
    count = b.op("u2u32", b.op("iand", right, b.const(63, 64)))
    value = b.op("iadd", b.op("imul", left, right), b.op("ishl", left, count))
    value = b.op("bcsel", b.op("ilt", left, right), value, b.op("isub", left, right))
    b.store(b.place(out, index, 8), b.op("ixor", value, b.op("ishr", right, b.const(7))))
    x, y, out = *draw.integers(-(2**62), 2**62, (2, 64)), np.zeros(64, np.int64)

    def check(_):
        with np.errstate(all="ignore"):
            assert np.array_equal(out, np.where(x < y, x * y + (x << (y & 63)), x - y) ^ (y >> 7))

    return Program(b.compile(), [x, y, out], check, 32)


@program
def division_of_integers(target, draw):
    b = Builder(target)
    x, y, out = b.argument(), b.argument(), b.argument()
    index = b.number(32)
    left, right = b.load(b.place(x, index)), b.load(b.place(y, index))
    value = b.op("ixor", b.op("udiv", left, right), b.op("ishl", b.op("umod", left, right), b.const(1)))
    b.store(b.place(out, index), b.op("iadd", value, b.op("idiv", left, right)))
    x, y = draw.integers(0, 2**32, 64).astype(np.uint32), draw.integers(1, 2**14, 64).astype(np.uint32)
    out = np.zeros(64, np.uint32)

    def check(_):
        signed = [
            abs(a) // b * (1 if a >= 0 else -1) for a, b in zip(x.view(np.int32).tolist(), y.tolist(), strict=True)
        ]
        assert np.array_equal(out, ((x // y) ^ (x % y << 1)) + np.array(signed).astype(np.uint32))

    return Program(b.compile(), [x, y, out], check, 32)


@program
def functions_of_floats_are_close(target, draw):
    b = Builder(target)
    source, out = b.argument(), b.argument()
    index = b.number(32)
    x = b.load(b.place(source, index))
    size = b.op("fabs", x)
    value = b.op("fadd", b.op("fadd", b.op("fsin", x), b.op("fexp2", x)), b.op("flog2", size))
    value = b.op("fmin", b.op("fadd", b.op("fmul", value, b.op("frcp", x)), b.op("fsqrt", size)), b.const(100.0))
    value = b.op("fadd", value, b.op("ffloor", x))
    whole = b.op("i2f32", b.op("f2i32", b.op("fmul", x, b.const(10.0))))
    b.store(b.place(out, index), b.op("fadd", value, whole))
    source, out = draw.uniform(-4, 4, 64).astype(np.float32), np.zeros(64, np.float32)

    def check(_):
        x = source.astype(float)
        size = np.abs(x)
        expected = np.minimum((np.sin(x) + np.exp2(x) + np.log2(size)) / x + np.sqrt(size), 100) + np.floor(x)
        assert np.allclose(out, expected + np.trunc(source * np.float32(10)), rtol=2e-5, atol=1e-5)

    return Program(b.compile(), [source, out], check, 32)


@program
def masks_begin_at_a_bit_and_have_a_width(target, draw):
    b = Builder(target)
    x, out, width = b.argument(), b.argument(), b.argument(32)
    index = b.number(32)
    value = b.load(b.place(x, index))
    own = b.op("bfm", b.op("ushr", value, b.const(8)), value)
    same = b.op("bfm", width, b.const(3))
    b.store(b.place(out, index), b.op("ixor", own, same))
    x, out = draw.integers(0, 1 << 16, 64).astype(np.uint32), np.zeros(64, np.uint32)

    def check(_):
        own = ((1 << (x >> 8 & 31).astype(np.uint64)) - 1) << (x & 31).astype(np.uint64)
        assert np.array_equal(out, own.astype(np.uint32) ^ np.uint32(0xF8))

    return Program(b.compile(), [x, out, np.uint32(5)], check, 32)


@program
def bits_are_found_counted_and_reversed(target, draw):
    b = Builder(target)
    x, out = b.argument(), b.argument()
    index = b.number(32)
    value = b.load(b.place(x, index))
    found = b.op("iadd", b.op("imul", b.op("ifind_msb", value), b.const(100)), b.op("ufind_msb", value))
    other = b.op("ixor", b.op("bitfield_reverse", value), b.op("bit_count", value))
    b.store(b.place(out, index), b.op("iadd", found, b.op("imul", b.op("find_lsb", value), other)))
    x = draw.integers(0, 1 << 32, 64).astype(np.uint32) >> draw.integers(0, 32, 64).astype(np.uint32)
    x[:4], x[4:24] = (0, 0xFFFF_FFFF, 0x8000_0000, 1), ~x[4:24]
    out = np.zeros(64, np.uint32)

    def check(_):
        expected = []
        for one in x.tolist():
            signed = ((one ^ 0xFFFF_FFFF) if one >> 31 else one).bit_length() - 1
            other = int(f"{one:032b}"[::-1], 2) ^ one.bit_count()
            lowest = (one & -one).bit_length() - 1
            expected.append((signed * 100 + one.bit_length() - 1 + lowest * other) & 0xFFFF_FFFF)
        assert out.tolist() == expected

    return Program(b.compile(), [x, out], check, 32)
