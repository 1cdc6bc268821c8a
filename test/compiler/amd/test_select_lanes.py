"""Values that cross lanes, packed and dot arithmetic, matrices."""

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.amd.matrices import matrix_layout
from ringup.compiler.amd.select.function import select
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F16, F32, F64, I1, I8, I16, I32, I64, Param, vector_type
from ringup.errors import CompileError

IN, OUT = Param("in", I64, True), Param("out", I64, True, True)


@pytest.mark.parametrize("wave_size", [32, 64])
def test_every_distance_of_an_exchange(same, wave_size):
    b = Builder("test", [OUT], 64, wave_size=wave_size)
    thread = b.op("thread_id", I32)
    number = b.add(b.mul(thread, 3), 1)
    for mask in range(1, wave_size):
        b.store(b.param(0), b.mul(thread, 4), b.op("shuffle_xor", I32, number, imm=mask), constant=mask * 256)
    same(b.function, [np.zeros(64 * wave_size, np.uint32)])


def test_exchanges_across_rows_share_a_constant_that_is_made_once(same):
    b = Builder("test", [OUT], 32)
    thread = b.op("thread_id", I32)
    with b.loop(0, 4, 1, []) as turn:
        far = b.op("shuffle_xor", I32, b.op("shuffle_xor", I32, b.add(b.mul(thread, 3), turn.index), imm=16), imm=17)
        b.store(b.param(0), b.add(b.mul(thread, 4), b.mul(turn.index, 128)), b.op("shuffle_xor", I32, far, imm=16))
    same(b.function, [np.zeros(128, np.uint32)])
    blocks = select(b.function, "gfx1100").blocks
    inside = [one for block in blocks if block.depth for one in block.instrs]
    assert [one.mnemonic for one in inside].count("v_permlanex16_b32") == 3
    assert not [one for one in inside if one.mnemonic == "s_mov_b32"]
    assert [one.operands[1] for one in blocks[0].instrs if one.mnemonic == "s_mov_b32"].count(0x76543210) == 1


@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("kind", [I16, F32, I64, I32.of(2)])
def test_every_distance_down_a_row_of_lanes(same, wave_size, kind):
    """A value that is the same in all lanes is tested too: the first lanes of a row read 0 nevertheless."""
    b = Builder("test", [IN, OUT], 64, wave_size=wave_size)
    thread = b.op("thread_id", I32)
    at, size = b.mul(thread, kind.size_bytes), 64 * kind.size_bytes
    value = b.load(kind, b.param(0), at)
    for distance in range(1, 16):
        b.store(b.param(1), at, b.op("shuffle_up", kind, value, imm=distance), constant=(distance - 1) * size)
    uniform = b.load(kind, b.param(0), b.const(0))
    b.store(b.param(1), at, b.op("shuffle_up", kind, uniform, imm=3), constant=15 * size)
    low = b.op("lt_u", I1, b.op("lane_id", I32), b.const(11))
    for i, one in enumerate(
        (b.op("shuffle_up", I1, low, imm=2), b.op("shuffle_up", I1, b.compare("eq", thread, thread), imm=2))
    ):
        b.store(b.param(1), b.mul(thread, 4), b.op("zext", I32, one), constant=16 * size + 256 * i)
    data = np.random.default_rng(3).integers(1, 256, size, np.uint8)
    same(b.function, [data, np.zeros(16 * size + 512, np.uint8)])


@pytest.mark.parametrize("wave_size", [32, 64])
def test_types_that_cross_lanes(same, wave_size):
    b = Builder("test", [IN, OUT], 64, wave_size=wave_size)
    thread = b.op("thread_id", I32)
    lane = b.op("and", I32, b.add(b.mul(thread, 7), 3), b.const(wave_size - 1))
    stored = 0
    for kind in (I16, F32, F64, I64, F16.of(2), F32.of(4)):
        value = b.load(kind, b.param(0), b.mul(thread, kind.size_bytes))
        for made in (
            b.op("shuffle_xor", kind, value, imm=5), b.op("shuffle_xor", kind, value, imm=wave_size // 2 + 1), b.op("shuffle", kind,
                 value, lane),
            b.op("read_lane", kind, value, imm=wave_size - 3),
        ):  # fmt: skip
            b.store(b.param(1), b.mul(thread, 16), made, constant=stored * 1024)
            stored += 1
    low = b.op("lt_u", I1, b.op("lane_id", I32), b.const(11))
    for made in (
        b.op("shuffle_xor", I1, low, imm=9), b.op("read_lane", I1, low, imm=10), b.op("read_lane", I1, low, imm=11),
        b.op("ne", I1, b.op("first_lane", I32, b.op("shr_u", I32, thread, b.const(6))), b.const(0)),
    ):  # fmt: skip
        b.store(b.param(1), b.mul(thread, 16), b.op("zext", I32, made), constant=stored * 1024)
        stored += 1
    same(b.function, [np.random.default_rng(2).integers(0, 256, 1024, np.uint8), np.zeros(stored * 1024, np.uint8)])


def test_a_reduction_takes_neighbours_in_by_dpp(same):
    b = Builder("test", [IN, OUT], 64)
    at = b.mul(b.op("thread_id", I32), 4)
    value = b.load(F32, b.param(0), at)
    for mask in (1, 2, 4, 8, 16):
        value = b.op("fadd", F32, value, b.op("shuffle_xor", F32, value, imm=mask))
    b.store(b.param(1), at, value)
    same(b.function, [np.random.default_rng(2).normal(size=64).astype(np.float32), np.zeros(64, np.float32)])
    instrs = [one for block in select(b.function, "gfx1100").blocks for one in block.instrs]
    assert sum("row_xmask" in one.modifiers for one in instrs) == 4
    assert not any(one.mnemonic == "v_mov_b32" and one.modifiers for one in instrs)


def test_packed_and_dot_products(same):
    b = Builder("test", [IN, OUT], 32)
    thread = b.op("thread_id", I32)
    halves = [b.load(F16.of(2), b.param(0), b.mul(thread, 4), constant=128 * i) for i in range(3)]
    shorts = [b.op("bitcast", I16.of(2), one) for one in halves]
    words = [b.op("bitcast", I32, one) for one in halves]
    half = b.op("bitcast", F16.of(2), b.const(0x3C003800))
    made = [
        b.op("packed", F16.of(2), *halves[: 3 if op == "fma" else 2], imm=op)
        for op in ("fadd", "fmul", "fma", "fmin", "fmax")
    ]
    made += [b.op("packed", I16.of(2), *shorts[:2], imm=op) for op in ("add", "sub", "mul")]
    made += [
        b.op("packed", F16.of(2), halves[0], half, imm="fmul"),
        b.vector([b.extract(halves[0], 1), b.extract(halves[1], 0)]),
    ]
    square = b.op("packed", F16.of(2), halves[0], halves[0], imm="fmul")
    # The operands have one sign, because cards differ by a unit for others.
    made += [b.op("dot2", F32, square, half, b.const(1.0, F32))]
    made += [b.op(op, I32, words[0], words[1], words[2]) for op in ("dot4_s", "dot4_u")]
    made += [b.op("fconvert", F32, b.extract(halves[2], 1)), b.op("fma", F32, b.op("fconvert", F32, b.extract(halves[1], 1)),
             b.op("fconvert", F32, b.extract(halves[2], 0)), b.op("to_float_s", F32, thread))]  # fmt: skip
    quads = b.load(I8.of(4), b.param(0), b.mul(thread, 4))
    made += [b.vector([b.extract(quads, i) for i in (3, 1, 0, 2)])]
    for i, one in enumerate(made):
        b.store(b.param(1), b.mul(thread, 4), one, constant=128 * i)
    data = (np.random.default_rng(9).integers(-64, 64, 192) / 8).astype(np.float16)
    same(b.function, [data, np.zeros(32 * len(made), np.uint32)])


@pytest.mark.parametrize("kind", ["f16", "bf16", "i8", "u8"])
@pytest.mark.parametrize("looped", [False, True])
def test_matrices_multiply_as_their_layout_says(same, kind, looped):
    """The numbers are small and whole, so every order of summing gives the same."""
    layout = matrix_layout("gfx1100")
    narrow = {"f16": F16, "bf16": F16, "i8": I8, "u8": I8}[kind]
    narrow = narrow.of(16) if kind != "bf16" else I16.of(16)
    wide = (I32 if kind in ("i8", "u8") else F32).of(8)
    b = Builder("test", [IN, IN._replace(name="b"), OUT], 32)
    lane = b.op("thread_id", I32)
    at = b.mul(lane, narrow.size_bytes)
    element = "bf16" if kind == "bf16" else narrow.element
    a, c = (b.load(narrow, b.param(i), at) for i in range(2))
    a, c = (b.op("bitcast", vector_type(element, 16), one) if kind == "bf16" else one for one in (a, c))
    zero = b.vector([b.const(0, wide.of(1))] * 8)
    if looped:
        with b.loop(0, 3, 1, [zero]) as loop:
            loop.following.append(b.op("matrix", wide, a, c, loop.carried[0], imm=kind))
        made = loop.results[0]
    else:
        made = b.op("matrix", wide, a, c, b.op("matrix", wide, a, c, zero, imm=kind), imm=kind)
    b.store(b.param(2), b.mul(lane, 32), made)
    rng = np.random.default_rng(4)
    low = 0 if kind == "u8" else -8
    left, right = rng.integers(low, 9, (16, 16)), rng.integers(low, 9, (16, 16))
    data = [
        np.array([matrix[cell(lane, i)] for lane in range(32) for i in range(16)])
        for matrix, cell in ((left, layout.a), (right, layout.b))
    ]
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8}[kind]
    out = np.zeros(256, np.int32 if kind in ("i8", "u8") else np.float32)
    *_, got = same(b.function, [*(one.astype(dtype).view(np.uint8) for one in data), out], layout=layout)
    product = (left @ right) * (3 if looped else 2)
    cells = [layout.c(lane, i) for lane in range(32) for i in range(8)]
    assert (got == np.array([product[cell] for cell in cells])).all()
    if looped:
        body = [one for block in select(b.function, "gfx1100").blocks if block.depth for one in block.instrs]
        assert not any(one.mnemonic == "v_mov_b32" for one in body)


def test_what_rdna_lacks_is_refused():
    b = Builder("test", [OUT], 32)
    b.store(b.param(0), b.const(0), b.op("exp2", F64, b.op("to_float_s", F64, b.op("thread_id", I32))))
    with pytest.raises(CompileError, match=r"exp2 of f64: RDNA has no such instruction"):
        select(b.function, "gfx1100")
    with pytest.raises(CompileError, match=r"no instruction selection for gfx906; supported: gfx1100"):
        select(b.function, "gfx906")
