"""Vector integers compared with Python's: every opcode on random and extreme numbers, wrapped and saturated."""

import random

import numpy as np
import pytest

M16, M32, M64 = 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def s16(value):
    return signed(value, 16)


def s24(value):
    return signed(value, 24)


def s32(value):
    return signed(value, 32)


def u24(value):
    return value & 0xFF_FFFF


def octets(value, count=4):
    return [value >> 8 * i & 0xFF for i in range(count)]


def median(a, b, c):
    return sorted((a, b, c))[1]


def numbers(count, seed, bits=32):
    rng = random.Random(seed)
    special = [0, 1, 2, 15, 16, 31, 32, 33, 63, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7F_FFFF, 0x80_0000, 0xFF_FFFF, 0x7FFF_FFFF,
               0x8000_0000,               0xFFFF_FFFF, 0xFFFF_FF80, 0xFFFF_8000, 1 << 63, M64, M64 >> 1, 1 << 32]  # fmt: skip
    found = [
        rng.choice(special) if rng.randrange(2) else rng.getrandbits(rng.randrange(1, bits + 1)) for _ in range(count)
    ]
    return [one & (1 << bits) - 1 for one in found]


def sad(a, b):
    return sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True))


def masked_sad(a, b):
    return sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True) if y)


def permuted(a, b, select):
    pool = octets(b) + octets(a)
    table = pool + [0xFF * (pool[i] >> 7) for i in (1, 3, 5, 7)] + [0]
    return sum((table[one] if one < 13 else 0xFF) << 8 * i for i, one in enumerate(octets(select)))


def average(a, b, rounding):
    return sum((x + y + (z & 1) >> 1) << 8 * i for i, (x, y, z) in enumerate(zip(a, b, rounding, strict=True)))


def first_one(text):
    return text.find("1")


def same_as_first(a):
    text = f"{a:032b}"
    return text.find("1" if text[0] == "0" else "0")


# Mnemonic to the exact result. The type says how it is cut.
RESULTS = {
    "v_mov_b32": lambda a: a, "v_not_b32": lambda a: ~a, "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_clz_i32_u32": lambda a: first_one(f"{a:032b}"), "v_ctz_i32_b32": lambda a: first_one(f"{a:032b}"[::-1]), "v_cls_i32": same_as_first,
    "v_and_b32": lambda a, b: a & b, "v_or_b32": lambda a, b: a | b, "v_xor_b32": lambda a, b: a ^ b, "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31), "v_lshrrev_b32": lambda a, b: b >> (a & 31), "v_ashrrev_i32": lambda a, b: s32(b) >> (a & 31),
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b, "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_mul_lo_u32": lambda a, b: a * b, "v_mul_hi_u32": lambda a, b: a * b >> 32, "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c, "v_or3_b32": lambda a, b, c: a | b | c, "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c, "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31), "v_add3_u32": lambda a, b, c: a + b + c, "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfe_u32": lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1,
    "v_bfe_i32": lambda a, b, c: signed(s32(a) >> (b & 31), c & 31) if c & 31 else 0,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c, "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3), "v_perm_b32": permuted,
    "v_lerp_u8": lambda a, b, c: average(octets(a), octets(b), octets(c)),
}  # fmt: skip

# These saturate with the clamp bit, to the type of the result.
SATURATING = {
    "v_add_nc_u32": lambda a, b: a + b, "v_sub_nc_u32": lambda a, b: a - b, "v_subrev_nc_u32": lambda a, b: b - a,
    "v_add_nc_i32": lambda a, b: s32(a) + s32(b), "v_sub_nc_i32": lambda a, b: s32(a) - s32(b),
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b), "v_mul_u32_u24": lambda a, b: u24(a) * u24(b),
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + s32(c), "v_mad_u32_u24": lambda a, b, c: u24(a) * u24(b) + c,
    "v_mad_u32_u16": lambda a, b, c: (a & M16) * (b & M16) + c, "v_mad_i32_i16": lambda a, b, c: s16(a) * s16(b) + s32(c),
    "v_sad_u8": lambda a, b, c: sad(a, b) + c, "v_sad_hi_u8": lambda a, b, c: (sad(a, b) << 16) + c,
    "v_msad_u8": lambda a, b, c: masked_sad(a, b) + c,
    "v_sad_u16": lambda a, b, c: abs((a & M16) - (b & M16)) + abs((a >> 16) - (b >> 16)) + c, "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32, "v_mul_hi_u32_u24": lambda a, b: u24(a) * u24(b) >> 32,
}  # fmt: skip
ORDER = {"min": min, "max": max, "min3": min, "max3": max, "med3": median, "minmax": lambda a, b, c: max(min(a, b), c),
         "maxmin": lambda a, b, c: min(max(a, b), c)}  # fmt: skip
HALVES = {
    "v_add_nc_u16": lambda a, b: a + b, "v_sub_nc_u16": lambda a, b: a - b, "v_add_nc_i16": lambda a, b: s16(a) + s16(b),
    "v_sub_nc_i16": lambda a, b: s16(a) - s16(b), "v_mad_u16": lambda a, b, c: a * b + c, "v_mad_i16": lambda a, b, c: s16(a) * s16(b) + s16(c),
}  # fmt: skip
HALF_LOGIC = {
    "v_mul_lo_u16": lambda a, b: a * b, "v_and_b16": lambda a, b: a & b, "v_or_b16": lambda a, b: a | b, "v_xor_b16": lambda a, b: a ^ b,
    "v_not_b16": lambda a: ~a, "v_mov_b16": lambda a: a, "v_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_ashrrev_i16": lambda a, b: s16(b) >> (a & 15), "v_cvt_i32_i16": s16, "v_cvt_u32_u16": lambda a: a,
}  # fmt: skip


def columns(function, count=300, bits=32):
    arity = 3 if function in (min, max) else function.__code__.co_argcount
    return [numbers(count, f"{i} {bits}", bits) for i in range(arity)]


def saturated(value, low, high):
    return min(max(value, low), high)


@pytest.mark.parametrize("mnemonic", RESULTS)
def test_dwords(alu, mnemonic):
    function = RESULTS[mnemonic]
    sources = columns(function)
    assert alu(mnemonic, *sources).tolist() == [function(*row) & M32 for row in zip(*sources, strict=True)]


@pytest.mark.parametrize("mnemonic", SATURATING)
@pytest.mark.parametrize("clamp", [False, True])
def test_dwords_that_may_saturate(alu, mnemonic, clamp):
    function = SATURATING[mnemonic]
    is_signed = "_i32" in mnemonic
    low, high = (-(1 << 31), (1 << 31) - 1) if is_signed else (0, M32)
    sources = columns(function)
    wanted = [function(*row) for row in zip(*sources, strict=True)]
    wanted = [(saturated(one, low, high) if clamp else one) & M32 for one in wanted]
    assert alu(mnemonic, *sources, clamp=clamp).tolist() == wanted


@pytest.mark.parametrize("mnemonic", HALVES)
@pytest.mark.parametrize("clamp", [False, True])
def test_halves_that_may_saturate(alu, mnemonic, clamp):
    function = HALVES[mnemonic]
    low, high = (-(1 << 15), (1 << 15) - 1) if mnemonic.endswith("i16") else (0, M16)
    sources = columns(function, bits=16)
    wanted = [function(*row) for row in zip(*sources, strict=True)]
    wanted = [(saturated(one, low, high) if clamp else one) & M16 for one in wanted]
    assert alu(mnemonic, *sources, clamp=clamp).tolist() == wanted


@pytest.mark.parametrize("mnemonic", HALF_LOGIC)
def test_halves(alu, mnemonic):
    function = HALF_LOGIC[mnemonic]
    sources = columns(function, bits=16)
    mask = M32 if "32" in mnemonic else M16
    assert alu(mnemonic, *sources).tolist() == [function(*row) & mask for row in zip(*sources, strict=True)]


@pytest.mark.parametrize("name", ORDER)
@pytest.mark.parametrize("type_", ["i32", "u32", "i16", "u16"])
def test_smallest_largest_and_middle(alu, name, type_):
    if name in ("minmax", "maxmin") and type_.endswith("16"):
        return
    bits = int(type_[1:])
    sources = [numbers(300, f"order {i}", bits) for i in range(2 if name in ("min", "max") else 3)]
    typed = (lambda one: signed(one, bits)) if type_[0] == "i" else (lambda one: one)
    wanted = [ORDER[name](*map(typed, row)) & (1 << bits) - 1 for row in zip(*sources, strict=True)]
    assert alu(f"v_{name}_{type_}", *sources).tolist() == wanted


def test_shifts_of_64_bits(alu):
    counts, values = numbers(200, "count"), numbers(200, "value", 64)
    amounts, wide = np.array(counts, np.uint32), np.array(values, np.uint64)
    for mnemonic, function in {
        "v_lshlrev_b64": lambda a, b: b << (a & 63), "v_lshrrev_b64": lambda a, b: b >> (a & 63),
        "v_ashrrev_i64": lambda a, b: signed(b, 64) >> (a & 63),
    }.items():  # fmt: skip
        assert alu(mnemonic, amounts, wide).tolist() == [
            function(a, b) & M64 for a, b in zip(counts, values, strict=True)
        ]


@pytest.mark.parametrize("name", ["add", "sub", "subrev"])
@pytest.mark.parametrize("clamp", [False, True])
def test_carries_go_in_and_out(alu, name, clamp):
    a, b = numbers(300, "left"), numbers(300, "right")
    carries = [bool(one & 1) for one in numbers(300, "carry")]
    for mnemonic, into in ((f"v_{name}_co_u32", [False] * 300), (f"v_{name}_co_ci_u32", carries)):
        sources = [a, b, np.array(into)] if "_ci" in mnemonic else [a, b]
        value, carry = alu(mnemonic, *sources, clamp=clamp)
        first, second = (b, a) if name == "subrev" else (a, b)
        totals = [x + y + c if name == "add" else x - y - c for x, y, c in zip(first, second, into, strict=True)]
        assert carry.tolist() == [not 0 <= one <= M32 for one in totals]
        assert value.tolist() == [saturated(one, 0, M32) if clamp else one & M32 for one in totals]


@pytest.mark.parametrize(("mnemonic", "is_signed"), [("v_mad_u64_u32", False), ("v_mad_i64_i32", True)])
def test_products_of_64_bits(alu, mnemonic, is_signed):
    a, b, c = numbers(200, "a"), numbers(200, "b"), numbers(200, "c", 64)
    value, carry = alu(mnemonic, a, b, np.array(c, np.uint64))
    totals = [
        signed(x, 32) * signed(y, 32) + signed(z, 64) if is_signed else x * y + z
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert value.tolist() == [one & M64 for one in totals]
    assert carry.tolist() == [bool(one >> 64 & 1) for one in totals]


@pytest.mark.parametrize(
    ("mnemonic", "one"), [("v_qsad_pk_u16_u8", sad), ("v_mqsad_pk_u16_u8", masked_sad), ("v_mqsad_u32_u8", masked_sad)]
)
def test_four_sums_of_differences(alu, mnemonic, one):
    a, b = numbers(100, "a", 64), numbers(100, "b")
    sums = [[one(x >> 8 * i & M32, y) for i in range(4)] for x, y in zip(a, b, strict=True)]
    if mnemonic.endswith("u32_u8"):
        c = np.array([numbers(4, f"c {i}") for i in range(100)], np.uint32)
        found = alu(mnemonic, np.array(a, np.uint64), np.array(b, np.uint32), c).tolist()
        assert found == [
            [x + y & M32 for x, y in zip(row, old, strict=True)] for row, old in zip(sums, c.tolist(), strict=True)
        ]
        return
    c = numbers(100, "c", 64)
    found = alu(mnemonic, np.array(a, np.uint64), np.array(b, np.uint32), np.array(c, np.uint64)).tolist()
    assert found == [
        sum(((x + (old >> 16 * i & M16)) & M16) << 16 * i for i, x in enumerate(row))
        for row, old in zip(sums, c, strict=True)
    ]


def test_the_documents_examples_of_counting(alu):
    assert alu("v_clz_i32_u32", [0, 0x8000_00FF, 0x1000_00FF, 0xFFFF, 1]).tolist() == [M32, 0, 3, 16, 31]
    assert alu("v_ctz_i32_b32", [0, 0xFF00_0001, 0xFF00_0008, 0xFFFF_0000, 0x8000_0000]).tolist() == [M32, 0, 3, 16, 31]
    found = alu("v_cls_i32", [0, 0x4000_0000, 0x8000_0000, 0x0FFF_FFFF, 0xFFFF_0000, 0xFFFF_FFFE, M32])
    assert found.tolist() == [M32, 1, 1, 4, 16, 31, M32]


def test_conditional_moves_and_swaps(alu):
    mask = np.array([False, True])
    assert alu("v_cndmask_b32", [1, 2], [3, 4], mask).tolist() == [1, 4]
    assert alu("v_cndmask_b16", [1, 2], [3, 4], mask).tolist() == [1, 4]
    assert [one.tolist() for one in alu("v_swap_b32", [1, 2], [3, 4])] == [[3, 4], [1, 2]]
    assert [one.tolist() for one in alu("v_swap_b16", [1, 2], [3, 4])] == [[3, 4], [1, 2]]
