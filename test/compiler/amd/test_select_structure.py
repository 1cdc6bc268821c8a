"""Loops and conditions: selected code on both engines gives the same as the evaluator."""

import numpy as np
import pytest

from ringup.compiler.amd.select.function import select
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F32, I1, I32, I64, Param

OUT = Param("out", I64, True, True)
N = Param("n", I32)


def builder(*params, group=64, wave_size=32):
    b = Builder("test", [*params, OUT], group, wave_size=wave_size)
    thread = b.op("thread_id", I32)
    at = b.add(b.mul(b.op("group_id", I32, imm=0), group), thread)
    return b, b.param(len(params)), at


@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_a_loop_sums_and_swaps_what_it_carries(same, trips, wave_size):
    b, out, at = builder(N, wave_size=wave_size)
    x, y = b.op("to_float_s", F32, at), b.const(3.0, F32)
    with b.loop(0, b.param(0), 1, [x, y, b.const(0), at, b.const(7)]) as loop:
        p, q, total, r, s = loop.carried
        loop.following.extend([q, p, b.add(total, b.mul(loop.index, at)), s, b.add(r, s)])
    for i, one in enumerate(loop.results):
        b.store(out, b.mul(at, 4), one, constant=i * 512)
    same(b.function, [trips, np.zeros(5 * 128, np.uint32)], (2, 1, 1))


def test_nested_loops_keep_an_accumulator_in_place(same):
    b, out, at = builder(N)
    f = b.op("to_float_s", F32, at)
    with b.loop(0, b.param(0), 1, [b.const(0.0, F32), b.const(1)]) as outer:
        with b.loop(0, outer.index, 1, [outer.carried[0], outer.carried[1]]) as inner:
            g = b.op("to_float_s", F32, inner.index)
            inner.following.extend([b.op("fma", F32, f, g, inner.carried[0]), b.mul(inner.carried[1], 3)])
        outer.following.extend([inner.results[0], b.add(inner.results[1], outer.carried[1])])
    b.store(out, b.mul(at, 4), outer.results[0])
    b.store(out, b.mul(at, 4), outer.results[1], constant=256)
    same(b.function, [5, np.zeros(128, np.uint32)])
    inner_loop = [
        str(one) for block in select(b.function, "gfx1100").blocks if block.depth == 2 for one in block.instrs
    ]
    assert sum("v_fmac_f32" in one for one in inner_loop) == 1, inner_loop
    assert not any(one.startswith("v_mov") for one in inner_loop), inner_loop


@pytest.mark.parametrize("wave_size", [32, 64])
def test_nests_of_conditions(same, wave_size):
    b, out, at = builder(N, wave_size=wave_size)
    n = b.param(0)
    bit = b.op("and", I32, at, b.const(1))
    odd = b.op("ne", I1, bit, b.const(0))
    with b.when(b.op("lt_u", I1, at, n)):
        b.store(out, b.mul(at, 4), at)
        with b.when(odd):
            b.store(out, b.mul(at, 4), b.mul(at, 5), constant=512)
            with b.when(b.op("eq", I1, n, b.const(77))):  # uniform
                with b.loop(0, 3, 1, [at]) as loop:
                    with b.when(b.op("lt_u", I1, loop.index, b.op("and", I32, at, b.const(3)))):
                        b.store(out, b.add(b.mul(at, 16), b.mul(loop.index, 4)), loop.carried[0], constant=2048)
                    loop.following.append(b.add(loop.carried[0], 1))
                b.store(out, b.mul(at, 4), loop.results[0], constant=1024)
        with b.when(b.op("and", I1, b.op("not", I1, odd), b.op("lt_u", I1, b.const(10), at))):
            b.store(out, b.mul(at, 4), b.const(9), constant=1536)
    b.store(out, b.mul(at, 4), b.op("zext", I32, odd), constant=4096)
    same(b.function, [77, np.zeros(2048, np.uint32)], (2, 1, 1))


def test_conditions_are_carried_and_combined(same):
    b, out, at = builder(N)
    n = b.param(0)
    small = b.op("lt_u", I1, at, b.const(20))
    some = b.op("lt_u", I1, n, b.const(9))  # uniform
    with b.loop(0, n, 1, [small, b.const(0)]) as loop:
        now, count = loop.carried
        flipped = b.op("xor", I1, now, b.op("eq", I1, loop.index, b.op("and", I32, at, b.const(7))))
        loop.following.extend([flipped, b.add(count, b.op("zext", I32, now))])
    held = b.op("select", I1, loop.results[0], some, b.op("or", I1, small, b.op("not", I1, some)))
    value = b.op("select", I32, held, loop.results[1], b.const(1000))
    value = b.op("select", I32, some, value, b.const(5))
    b.store(out, b.mul(at, 4), value)
    b.store(
        out,
        b.mul(at, 4),
        b.op("zext", I32, b.op("and", I1, held, b.op("eq", I1, small, loop.results[0]))),
        constant=256,
    )
    for trips in (0, 3, 8, 12):
        same(b.function, [trips, np.zeros(128, np.uint32)])


def test_a_group_that_is_no_multiple_of_a_wave(same):
    b, out, at = builder(group=50)
    b.store(out, b.mul(at, 4), b.add(b.mul(b.op("lane_id", I32), 100), b.op("wave_id", I32)))
    same(b.function, [np.zeros(150, np.uint32)], (3, 1, 1))


def test_group_numbers_of_three_axes(same):
    b = Builder("test", [OUT], 32)
    x, y, z = (b.op("group_id", I32, imm=i) for i in range(3))
    number = b.add(b.mul(b.add(b.mul(z, 3), y), 2), x)
    b.store(b.param(0), b.mul(b.add(b.mul(number, 32), b.op("thread_id", I32)), 4), number)
    same(b.function, [np.zeros(2 * 3 * 4 * 32, np.uint32)], (2, 3, 4))


def test_uniform_values_stay_in_scalars():
    b, out, at = builder(N)
    n = b.param(0)
    scaled = b.add(b.mul(n, 12), b.op("shr_u", I32, n, b.const(3)))
    with b.when(b.op("lt_u", I1, scaled, b.const(100))):
        b.store(out, b.mul(at, 4), b.add(at, scaled))
    names = [one.mnemonic for block in select(b.function, "gfx1100").blocks for one in block.instrs]
    assert {"s_mul_i32", "s_cmp_lt_u32", "s_cbranch_scc0"} <= set(names)
    assert not any(one.startswith(("v_mul", "v_cmp")) for one in names)
