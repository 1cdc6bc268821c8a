"""Packed halves, dot products, mixed precision, matrices, lanes, and the modifiers around an operation."""

import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.value_table import Ctx, finish, modify

M16, M32 = 0xFFFF, 0xFFFF_FFFF
KEPT = {"denorm_f32": 3, "denorm_f16_f64": 3}


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def dwords(count, seed):
    rng = random.Random(seed)
    return [
        rng.choice((0, M32, 0x8000_7FFF, 0x7FFF_8000, 0x0001_FFFF)) if rng.randrange(4) == 0 else rng.getrandbits(32)
        for _ in range(count)
    ]


PAIRS = {
    "v_pk_mad_i16": lambda a, b, c: signed(a, 16) * signed(b, 16) + signed(c, 16), "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mul_lo_u16": lambda a, b: a * b, "v_pk_add_i16": lambda a, b: signed(a, 16) + signed(b, 16),
    "v_pk_sub_i16": lambda a, b: signed(a, 16) - signed(b, 16), "v_pk_add_u16": lambda a, b: a + b, "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15), "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_pk_ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15), "v_pk_max_u16": max, "v_pk_min_u16": min,
    "v_pk_max_i16": lambda a, b: max(a, b, key=lambda one: signed(one, 16)),
    "v_pk_min_i16": lambda a, b: min(a, b, key=lambda one: signed(one, 16)),
}  # fmt: skip
SATURATING = ("mad", "add", "sub")


@pytest.mark.parametrize("mnemonic", PAIRS)
@pytest.mark.parametrize("clamp", [False, True])
def test_pairs_of_integers(alu, mnemonic, clamp):
    if clamp and not any(one in mnemonic for one in SATURATING):
        return
    function = PAIRS[mnemonic]
    sources = [dwords(200, f"{i}") for i in range(3 if "mad" in mnemonic else 2)]
    low, high = (-(1 << 15), (1 << 15) - 1) if mnemonic.endswith("i16") else (0, M16)

    def half(row, shift):
        value = function(*(one >> shift & M16 for one in row))
        return (min(max(value, low), high) if clamp else value) & M16

    wanted = [half(row, 0) | half(row, 16) << 16 for row in zip(*sources, strict=True)]
    assert alu(mnemonic, *sources, clamp=clamp).tolist() == wanted


@pytest.mark.parametrize("name", ["add", "mul", "fma", "min", "max"])
def test_pairs_of_floats_are_two_floats(alu, exact, name):
    count = 3 if name == "fma" else 2
    lows, highs = ([exact.samples("f16", 100, f"{half} {i}") for i in range(count)] for half in ("low", "high"))
    sources = [[x | y << 16 for x, y in zip(low, high, strict=True)] for low, high in zip(lows, highs, strict=True)]
    wanted = [
        x | y << 16 for x, y in zip(*(alu(f"v_{name}_f16", *half).tolist() for half in (lows, highs)), strict=True)
    ]
    assert alu(f"v_pk_{name}_f16", *sources).tolist() == wanted
    if name == "fma":
        assert alu("v_pk_fmac_f16", sources[2], sources[0], sources[1]).tolist() == wanted


def steps(exact, form, terms, keep):
    """Add fractions one after another; round each sum to `form`."""
    total = terms[0]
    for term in terms[1:]:
        bits = exact.encode(form, total + term)
        total = exact.decode(form, bits if keep else exact.flush(form, bits))
    return total


# test_dots.py tests those into f32.
@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_dot_products_round_every_step(alu, exact, form):
    mnemonic = f"v_dot2_{form}_{form}"

    def finite(kind, count, seed):
        return [one for one in exact.samples(kind, 4 * count, seed) if not isinstance(exact.decode(kind, one), str)][
            :count
        ]

    halves = [finite(form, 150, f"{mnemonic} {i}") for i in range(4)]
    addends = finite(form, 150, f"{mnemonic} c")
    a, b = ([x | y << 16 for x, y in zip(halves[i], halves[i + 1], strict=True)] for i in (0, 2))
    found = alu(mnemonic, a, b, addends, **KEPT)
    keep = form != "bf16"

    def value(kind, bits):
        return exact.decode(kind, exact.flush(kind, bits) if kind == "bf16" else bits)

    checked = 0
    for a_low, a_high, b_low, b_high, c, got in zip(*halves, addends, found.tolist(), strict=True):
        products = []
        for x, y in ((a_low, b_low), (a_high, b_high)):
            bits = exact.encode(form, value(form, x) * value(form, y))
            products.append(exact.decode(form, bits if keep else exact.flush(form, bits)))
        terms = [*products, value(form, c)]
        if any(isinstance(one, str) for one in terms):
            continue
        try:
            total = steps(exact, form, terms, keep)
        # A step overflowed.
        except TypeError:
            continue
        checked += 1
        assert exact.decode(form, got) == total, (hex(a_low), hex(a_high), hex(b_low), hex(b_high), hex(c))
    assert checked > 60


@pytest.mark.parametrize(
    ("mnemonic", "bits"), [("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4), ("v_dot4_u32_u8", 8), ("v_dot8_u32_u4", 4)]
)
@pytest.mark.parametrize("clamp", [False, True])
def test_dot_products_of_integers(alu, operand, mnemonic, bits, clamp):
    a, b, c = dwords(200, "a"), dwords(200, "b"), dwords(200, "c")
    is_mixed = "_i32_" in mnemonic
    for first in (False, True):
        for second in (False, True):
            operands = [operand("src0", neg_halves=(first, False)), operand("src1", neg_halves=(second, False))]

            def parts(value, is_signed):
                found = [value >> i & (1 << bits) - 1 for i in range(0, 32, bits)]
                return [signed(one, bits) for one in found] if is_signed and is_mixed else found

            wanted = []
            for x, y, z in zip(a, b, c, strict=True):
                total = sum(p * q for p, q in zip(parts(x, first), parts(y, second), strict=True))
                total += signed(z, 32) if is_mixed else z
                low, high = (-(1 << 31), (1 << 31) - 1) if is_mixed else (0, M32)
                wanted.append((min(max(total, low), high) if clamp else total) & M32)
            assert alu(mnemonic, a, b, c, operands=operands, clamp=clamp).tolist() == wanted


def test_mixed_multiply_adds_choose_halves(alu, exact, operand):
    half = {one: exact.encode("f16", Fraction(one)) for one in (1.5, -2.0, 3.0)}
    single = exact.encode("f32", Fraction(10))
    pair = half[1.5] | half[3.0] << 16
    operands = [
        operand("vdst", "both"), operand("src0", sel=(False, True)), operand("src1", sel=(True, True), neg=True),
        operand("src2", sel=(False, False)),
    ]  # fmt: skip
    (found,) = alu("v_fma_mix_f32", [pair], [pair], [single], operands=operands)
    assert exact.decode("f32", int(found)) == Fraction(1.5) * -3 + 10
    (low,) = alu("v_fma_mixlo_f16", [0xAAAA_BBBB], [pair], [pair], [single], operands=operands)
    (high,) = alu("v_fma_mixhi_f16", [0xAAAA_BBBB], [pair], [pair], [single], operands=operands)
    wanted = exact.encode("f16", Fraction("5.5"))
    assert (low, high) == (0xAAAA_0000 | wanted, wanted << 16 | 0xBBBB)
    operands[1] = operand("src0", sel=(False, False), abs=True)
    (clamped,) = alu("v_fma_mixlo_f16", [0], [single | 1 << 31], [pair], [single], operands=operands, clamp=True)
    assert clamped == 0  # 10 * -3 + 10
    (again,) = alu("v_fma_mixlo_f16", [0], [single | 1 << 31], [half[1.5] << 16], [single], operands=operands)
    assert exact.decode("f16", int(again)) == -5  # |-10| * -1.5 + 10


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize(("mnemonic", "kind", "form"), [
    ("v_wmma_f32_16x16x16_f16", np.float16, np.float32), ("v_wmma_f32_16x16x16_bf16", ml_dtypes.bfloat16, np.float32),
    ("v_wmma_f16_16x16x16_f16", np.float16, np.float16), ("v_wmma_bf16_16x16x16_bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
])  # fmt: skip
@pytest.mark.parametrize("high", [0, 1])
def test_matrices_of_floats(alu, operand, lanes, mnemonic, kind, form, high):
    # The integers are small, so every order of adding them is exact.
    rng = np.random.default_rng(3)
    reach = 2 if form is ml_dtypes.bfloat16 else 4
    a, b, c = (rng.integers(-reach, reach + 1, (16, 16)) for _ in range(3))
    rows = np.array([a[lane % 16] for lane in range(lanes)]).astype(kind).view(np.uint32)
    columns = np.array([b[:, lane % 16] for lane in range(lanes)]).astype(kind).view(np.uint32)
    registers = 256 // lanes
    is_narrow = form is not np.float32
    addend = np.zeros((lanes, registers), np.uint32)
    for lane in range(lanes):
        for register in range(registers):
            value = np.array(c[register * (lanes // 16) + lane // 16, lane % 16]).astype(form)
            addend[lane, register] = int(value.view(np.uint16)) << 16 * high if is_narrow else value.view(np.uint32)
    old = np.full((8, lanes), 0x1234_5678, np.uint32)
    found = alu(mnemonic, rows, columns, addend, lanes=lanes, vgprs=old, operands=[operand("vdst", "def", index=0)],
                fields={"opsel": high << 2 if is_narrow else 0})  # fmt: skip
    assert found.shape == (lanes, registers)
    product = a @ b + c
    for lane in range(lanes):
        for register in range(registers):
            wanted = np.array(product[register * (lanes // 16) + lane // 16, lane % 16]).astype(form)
            got = int(found[lane, register])
            if is_narrow:
                assert got >> 16 * (1 - high) & M16 == (0x1234 if high == 0 else 0x5678)
                assert got >> 16 * high & M16 == int(wanted.view(np.uint16))
            else:
                assert got == int(wanted.view(np.uint32))


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("bits", [8, 4])
def test_matrices_of_integers(alu, operand, lanes, bits):
    rng = np.random.default_rng(bits)
    for first in (False, True):
        for second in (False, True):
            ranges = [(-(1 << bits - 1), 1 << bits - 1) if one else (0, 1 << bits) for one in (first, second)]
            a, b = (rng.integers(*one, (16, 16)) for one in ranges)
            c = rng.integers(-(1 << 31), 1 << 31, (16, 16))

            def packed(vector):
                text = sum((int(one) & (1 << bits) - 1) << bits * i for i, one in enumerate(vector))
                return [text >> 32 * i & M32 for i in range(16 * bits // 32)]

            rows = np.array([packed(a[lane % 16]) for lane in range(lanes)], np.uint32)
            columns = np.array([packed(b[:, lane % 16]) for lane in range(lanes)], np.uint32)
            where = [
                [(register * (lanes // 16) + lane // 16, lane % 16) for register in range(256 // lanes)]
                for lane in range(lanes)
            ]
            addend = np.array([[int(c[at]) & M32 for at in row] for row in where], np.uint32)
            operands = [operand("src0", neg_halves=(first, False)), operand("src1", neg_halves=(second, False))]
            for clamp in (False, True):
                total = a @ b + c
                total = np.clip(total, -(1 << 31), (1 << 31) - 1) if clamp else total
                found = alu(
                    f"v_wmma_i32_16x16x16_iu{bits}", rows, columns, addend, lanes=lanes, operands=operands, clamp=clamp
                )
                assert found.tolist() == [[int(total[at]) & M32 for at in row] for row in where]


@pytest.mark.parametrize("lanes", [32, 64])
def test_single_lanes(alu, lanes):
    values = list(range(100, 100 + lanes))
    assert alu("v_readfirstlane_b32", values, exec_mask=0b1010_0000) == 105
    assert alu("v_readfirstlane_b32", values, exec_mask=0) == 100
    assert alu("v_readlane_b32", values, [lanes + 3] * lanes) == 103
    written = alu("v_writelane_b32", values, [7] * lanes, [lanes + 5] * lanes).tolist()
    assert written == [7 if lane == 5 else one for lane, one in enumerate(values)]


@pytest.mark.parametrize("lanes", [32, 64])
def test_rows_are_permuted(alu, lanes):
    # The document's example: a rotation by one.
    values = np.arange(lanes, dtype=np.uint32)
    low, high = [0x8765_4321] * lanes, [0x0FED_CBA9] * lanes
    old = [1000] * lanes
    found = alu("v_permlane16_b32", old, values, low, high, fields={"opsel": 1}).tolist()
    assert found == [lane & ~15 | lane + 1 & 15 for lane in range(lanes)]
    found = alu("v_permlanex16_b32", old, values, low, high, fields={"opsel": 1}).tolist()
    assert found == [(lane & ~15 ^ 16) | lane + 1 & 15 for lane in range(lanes)]
    # Lane 1 is inactive: it is not written, and lane 0 may not read it.
    off = (1 << lanes) - 1 & ~2
    for opsel, first in ((0, 1000), (2, 0), (1, 1)):
        found = alu("v_permlane16_b32", old, values, low, high, exec_mask=off, fields={"opsel": opsel}).tolist()
        assert found[:3] == [first, 1000, 3]


def test_halves_of_a_wave_are_swapped(alu, operand):
    target = [operand("vdst", "def", index=2)]
    registers = np.full((4, 64), 5, np.uint32)
    values = list(range(64))
    assert alu("v_permlane64_b32", values, vgprs=registers, operands=target).tolist() == values[32:] + values[:32]
    # A wave32 has no other half: the instruction does nothing.
    assert alu("v_permlane64_b32", values[:32], vgprs=registers[:, :32], operands=target).tolist() == [5] * 32


@pytest.mark.parametrize("lanes", [32, 64])
def test_lanes_below_are_counted(alu, lanes):
    ones = [M32] * lanes
    low = alu("v_mbcnt_lo_u32_b32", ones, [0] * lanes)
    assert alu("v_mbcnt_hi_u32_b32", ones, low).tolist() == list(range(lanes))
    mask = 0xF0F0_1234
    found = alu("v_mbcnt_lo_u32_b32", [mask] * lanes, [10] * lanes).tolist()
    assert found == [10 + bin(mask & (1 << min(lane, 32)) - 1).count("1") for lane in range(lanes)]


# modifiers ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def result(make_instruction):
    """`result(type_, size_bits, bits, …)` returns what omod and clamp make of the bits of a result."""

    def run(type_, size_bits, bits, clamp=False, omod=0, mnemonic="v_add", **mode):
        ins = make_instruction(mnemonic, type_, size_bits, clamp, omod)
        lane = np.uint64 if size_bits == 64 else np.uint32
        ctx = Ctx(ins, 1, np.ones(1, np.bool_), np.zeros((1, 1), np.uint32), **mode)
        return int(finish(ctx, np.array([bits], lane))[0])

    return run


def test_results_are_clamped_to_0_and_1(result):
    for bits, wanted in (
        (0x4000_0000, 0x3F80_0000),
        (0xBF80_0000, 0),
        (0x8000_0000, 0),
        (0x3F00_0000, 0x3F00_0000),
        (0x7F80_0000, 0x3F80_0000),
    ):
        assert result("f32", 32, bits, clamp=True) == wanted
    assert result("f32", 32, 0x7FC0_0000, clamp=True, dx10_clamp=True) == 0
    assert result("f32", 32, 0x7FC0_0000, clamp=True, dx10_clamp=False) == 0x7FC0_0000
    assert result("f16", 16, 0x4000, clamp=True) == 0x3C00
    assert result("f64", 64, 0x4000 << 48, clamp=True) == 0x3FF0 << 48
    # Both halves.
    assert result("f16", 32, 0x4000_BC00, clamp=True) == 0x3C00_0000
    # Integer operations have saturated their result before.
    assert result("i32", 32, 0x8000_0000, clamp=True) == 0x8000_0000


def test_results_are_scaled_if_denormals_are_not_wanted(result):
    one = 0x3F80_0000
    assert [result("f32", 32, one, omod=omod) for omod in (1, 2, 3)] == [0x4000_0000, 0x4080_0000, 0x3F00_0000]
    assert result("f32", 32, one, omod=1, denorm_f32=2) == one
    assert result("f32", 32, one, omod=1, ieee=True) == one
    # -0 is not kept.
    assert result("f32", 32, 0x8000_0000, omod=1) == 0
    assert result("f32", 32, 0x0080_0000, omod=3) == 0
    assert result("f16", 16, 0x3C00, omod=1, denorm_f16_f64=0) == 0x4000
    assert result("f32", 32, one, omod=1, clamp=True) == one


def test_sources_are_changed_in_sign(operand, make_instruction):
    ins = make_instruction("v_add_f32", "f32", 32)
    bits = np.array([0xBF80_0000], np.uint32)
    for changes, wanted in (
        ({"neg": True}, 0x3F80_0000),
        ({"abs": True}, 0x3F80_0000),
        ({"abs": True, "neg": True}, 0xBF80_0000),
    ):
        assert modify(ins, operand("src0", **changes), bits)[0] == wanted
    half = operand("src0", type_="f16", size_bits=16, neg=True)
    assert modify(ins, half, np.array([0x3C00], np.uint32))[0] == 0xBC00
    double = operand("src0", type_="f64", size_bits=64, neg=True)
    assert modify(ins, double, np.array([1], np.uint64))[0] == 1 << 63 | 1


def test_packed_sources_are_chosen_and_negated_by_half(operand, make_instruction):
    ins = make_instruction("v_pk_add_f16", "f16", 32, encoding="VOP3P")
    bits = np.array([0x1111_2222], np.uint32)
    for sel, wanted in (((False, True), 0x1111_2222), ((True, False), 0x2222_1111), ((True, True), 0x1111_1111)):
        assert modify(ins, operand("src0", type_="f16", sel=sel), bits)[0] == wanted
    assert modify(ins, operand("src0", type_="f16", neg_halves=(True, False)), bits)[0] == 0x1111_A222
    assert modify(ins, operand("src0", type_="f16", neg_halves=(False, True)), bits)[0] == 0x9111_2222
    dot = make_instruction("v_dot4_i32_iu8", "i32", 32, encoding="VOP3P")
    assert modify(dot, operand("src0", type_="iu8", neg_halves=(True, False)), bits)[0] == 0x1111_2222
