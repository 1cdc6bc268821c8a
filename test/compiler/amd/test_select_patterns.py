"""Several operations in one instruction: that instruction replaces the others, and the result equals the
evaluator's.
"""

import numpy as np
import pytest

from ringup.compiler.amd.instructions.code import Reg
from ringup.compiler.amd.select.function import select
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F16, F32, I1, I32, I64, Param

C = {
    "lshl_add": ("v_lshl_add_u32", "v_lshlrev_b32", lambda b, x, y, z: b.add(b.op("shl", I32, x, b.const(3)), y)),
    "add3": ("v_add3_u32", "v_add_nc_u32", lambda b, x, y, z: b.add(b.add(x, y), z)),
    "add_lshl": ("v_add_lshl_u32", "v_add_nc_u32", lambda b, x, y, z: b.op("shl", I32, b.add(x, y), b.const(5))),
    "lshl_or": ("v_lshl_or_b32", "v_or_b32", lambda b, x, y, z: b.op("or", I32, b.op("shl", I32, x, b.const(8)), y)),
    "and_or": ("v_and_or_b32", "v_and_b32", lambda b, x, y, z: b.op("or", I32, b.op("and", I32, x, y), z)),
    "or3": ("v_or3_b32", "v_or_b32", lambda b, x, y, z: b.op("or", I32, b.op("or", I32, x, y), z)),
    "xor3": ("v_xor3_b32", "v_xor_b32", lambda b, x, y, z: b.op("xor", I32, z, b.op("xor", I32, x, y))),
    "xad": ("v_xad_u32", "v_xor_b32", lambda b, x, y, z: b.add(z, b.op("xor", I32, x, y))),
    "bfe": ("v_bfe_u32", "v_and_b32", lambda b, x, y, z: b.op("and", I32, b.op("shr_u", I32, x, b.const(7)), b.const(0x1F))),
    "bcnt": ("v_bcnt_u32_b32", "v_add_nc_u32", lambda b, x, y, z: b.add(b.op("bit_count", I32, x), y)),
    "mad24": (
        "v_mad_u32_u24", "v_mul_lo_u32",
        lambda b, x, y, z: b.add(b.mul(b.op("and", I32, x, b.const(0xFFFF)), b.op("shr_u", I32, y, b.const(9))), z),
    ),
    "mul24": ("v_mul_u32_u24", "v_mul_lo_u32", lambda b, x, y, z: b.mul(b.op("and", I32, x, b.const(0xFFF)), 100)),
    "min3": ("v_min3_i32", "v_min_i32", lambda b, x, y, z: b.op("min_s", I32, b.op("min_s", I32, x, y), z)),
    "med3": (
        "v_med3_i32", "v_max_i32",
        lambda b, x, y, z: b.op("min_s", I32, b.op("max_s", I32, x, b.const(0xFFFFFF00)), b.const(255)),
    ),
    "add64": (
        "v_add_co_ci_u32", "v_mov_b64",
        lambda b, x, y, z: b.op("truncate", I32, b.op("shr_u", I64, b.op("add", I64, b.op("zext", I64, x), b.op("zext", I64, y)), b.const(1))),
    ),
}  # fmt: skip
FLOATS = {
    "neg": ("v_fmac_f32", "v_xor_b32", lambda b, x, y, z: b.op("fma", F32, b.op("fneg", F32, x), b.op("fabs", F32, y), z)),
    "clamped": (
        "v_med3_f32", "v_max_f32", lambda b, x, y, z: b.op("fmin", F32, b.op("fmax", F32, x, b.const(-1.0, F32)), b.const(1.5, F32)),
    ),
    "max3": ("v_max3_f32", "v_max_f32", lambda b, x, y, z: b.op("fmax", F32, z, b.op("fmax", F32, x, y))),
    "fmamk": ("v_fmamk_f32", "v_fma_f32", lambda b, x, y, z: b.op("fadd", F32, z, b.op("fma", F32, x, b.const(0.1, F32), z))),
    "fmaak": ("v_fmaak_f32", "v_mov_b32", lambda b, x, y, z: b.op("fma", F32, x, y, b.const(0.1, F32))),
    "mixed": (
        "v_fma_mix_f32", "v_cvt_f32_f16", lambda b, x, y, z: b.op("fma", F32, b.op("fconvert", F32, b.op("fconvert", F16, x)), y, z),
    ),
    "either NaN": (
        "v_cmp_u_f32", "s_or_b32",
        lambda b, x, y, z: b.op("select", F32, b.op("or", I1, b.op("fne", I1, x, x), b.op("fne", I1, y, y)), z, b.const(3.0, F32)),
    ),
    "no NaN": (
        "v_cmp_o_f32", "s_and_b32",
        lambda b, x, y, z: b.op("select", F32, b.op("and", I1, b.op("feq", I1, x, x), b.op("feq", I1, y, y)), z, b.const(3.0, F32)),
    ),
    "not below": (
        "v_cmp_nlt_f32", "s_not_b32", lambda b, x, y, z: b.op("select", F32, b.op("not", I1, b.op("flt", I1, x, y)), z, b.const(1.0, F32)),
    ),
    "byte": (
        "v_cvt_f32_ubyte2", "v_and_b32",
        lambda b, x, y, z: b.op("to_float_u", F32, b.op("and", I32, b.op("shr_u", I32, b.op("bitcast", I32, x), b.const(16)), b.const(255))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*C, *FLOATS])
def test_one_instruction_does_it(same, name):
    kind = I32 if name in C else F32
    there, absent, make = (C | FLOATS)[name]
    b = Builder("pattern", [Param("in", I64, True), Param("out", I64, True, True)], 64)
    at = b.mul(b.op("thread_id", I32), 4)
    values = [b.load(kind, b.param(0), at, constant=256 * i) for i in range(3)]
    made = make(b, *values)
    b.store(b.param(1), at, made)
    rng = np.random.default_rng(2)
    data = rng.integers(0, 1 << 32, 192, np.uint32) if kind == I32 else rng.normal(size=192).astype(np.float32)
    same(b.function, [data, np.zeros(64, np.uint32)])
    lines = [one.mnemonic for block in select(b.function, "gfx1100").blocks for one in block.instrs]
    assert there in lines
    body = lines[[i for i, one in enumerate(lines) if one.startswith("global_load")][-1] :]
    assert absent not in body


def test_what_lies_together_is_not_copied(same):
    b = Builder("whole", [Param("in", I64, True), Param("out", I64, True, True)], 32)
    at = b.mul(b.op("thread_id", I32), 32)
    eight = [b.load(F32.of(4), b.param(0), at, constant=16 * i) for i in range(2)]
    parts = [b.extract(one, i) for one in eight for i in range(4)]
    b.store(b.param(1), at, b.vector(parts[4:]))
    b.store(b.param(1), at, b.vector(parts[2:4]), constant=16)
    b.store(b.param(1), at, b.vector(parts[1:3]), constant=24)
    same(b.function, [np.arange(256, dtype=np.float32), np.zeros(256, np.float32)])
    lines = [one.mnemonic for block in select(b.function, "gfx1100").blocks for one in block.instrs]
    # The thread's number, and two parts that lie crosswise.
    assert lines.count("v_mov_b32") == 3


@pytest.mark.parametrize("count", [2, 8])
def test_halves_are_rounded_into_the_register_they_share(same, count):
    b = Builder("halves", [Param("in", I64, True), Param("out", I64, True, True)], 32)
    at = b.mul(b.op("thread_id", I32), 4)
    wide = [b.load(F32, b.param(0), at, constant=128 * i) for i in range(count)]
    halves = [b.op("fconvert", F16, b.op("fneg", F32, one) if i % 2 else one) for i, one in enumerate(wide)]
    again = b.op("fconvert", F32, halves[0])
    b.store(b.param(1), b.mul(at, count // 2), b.vector(halves))
    b.store(b.param(1), at, b.op("fadd", F32, again, again), constant=64 * count)
    data = np.random.default_rng(4).normal(size=32 * count).astype(np.float32) * 1000
    same(b.function, [data, np.zeros(32 * count + 64, np.float16)])
    lines = [one.mnemonic for block in select(b.function, "gfx1100").blocks for one in block.instrs]
    assert "v_perm_b32" not in lines
    other = [one for block in select(b.function, "gfx1201").blocks for one in block.instrs]
    assert not [one for one in other if one.mnemonic == "v_cvt_f16_f32" and one.modifiers]
    assert lines.count("v_cvt_f16_f32") == count


def test_nan_tests_heed_nan(beside):
    b = Builder("nan", [Param("in", I64, True), Param("out", I64, True, True)], 32)
    at = b.mul(b.op("thread_id", I32), 4)
    x, y = (b.load(F32, b.param(0), at, constant=128 * i) for i in range(2))
    either = b.op("or", I1, b.op("fne", I1, x, x), b.op("fne", I1, y, y))
    neither = b.op("and", I1, b.op("feq", I1, x, x), b.op("feq", I1, y, y))
    b.store(b.param(1), at, b.add(b.op("zext", I32, either), b.mul(b.op("zext", I32, neither), 2)))
    data = np.ones(64, np.float32)
    data[[1, 5, 9, 33, 40]] = np.nan
    data[37] = np.nan
    (_, expected), [(_, got)] = beside(b.function, [data, np.zeros(32, np.uint32)])
    assert (expected == got).all()
    assert sorted(set(got.tolist())) == [1, 2]


CHOICES = {
    "number, if less": lambda b, x, y: b.op(
        "select", F32, b.compare("fle", x, b.const(1.0, F32)), b.const(1.0, F32), x
    ),
    "number, if not less": lambda b, x, y: b.op(
        "select", F32, b.op("not", I1, b.compare("flt", x, y)), b.const(1.0, F32), y
    ),
    "number, else": lambda b, x, y: b.op("select", F32, b.compare("feq", x, y), y, b.const(2.0, F32)),
    "number, if NaN": lambda b, x, y: b.op(
        "select", F32, b.op("or", I1, b.compare("fne", x, x), b.compare("fne", y, y)), b.const(4.0, F32), x
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_takes_a_number_where_the_short_form_has_room(same, name):
    b = Builder("choice", [Param("in", I64, True), Param("out", I64, True, True)], 64)
    at = b.mul(b.op("thread_id", I32), 4)
    x, y = (b.load(F32, b.param(0), at, constant=256 * i) for i in range(2))
    b.store(b.param(1), at, CHOICES[name](b, x, y))
    data = np.random.default_rng(3).choice(np.array([0, -0.0, 1, 1.5, -3, np.inf, -np.inf, np.nan], np.float32), 128)
    same(b.function, [data, np.zeros(64, np.float32)])
    (chosen,) = [
        one for block in select(b.function, "gfx1100").blocks for one in block.instrs if one.mnemonic == "v_cndmask_b32"
    ]
    short = isinstance(chosen.operands[2], Reg) and chosen.operands[2].bank == "v"
    assert short == (name != "number, if NaN")
