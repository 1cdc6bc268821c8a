"""gfx950 on both engines: what CDNA4 adds to CDNA3. Programs are LLVM's; numbers are NumPy's and ml_dtypes'.

Source: CDNA4 ISA reference.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.common.launch import CDNA4_START, occupancy
from ringup.silicon.shader.common.state import Dispatch

OUT, IN = 0x7000_0000, 0x7100_0000
LANES = np.arange(64)
USER = (OUT, 0, IN, 0)
SMALL = {
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
WIDE = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PAIRS = list(itertools.product(SMALL, WIDE))
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def run(cdna4, text, registers, results, fill=0):
    """Run `text` with (lane, dword) arrays in VGPRs from the given numbers. Return (lane, dword) of `results`: the
    first VGPR, and how many, which hold `fill` before.
    """
    given = {first + at: array[:, at] for first, array in registers.items() for at in range(array.shape[1])}
    first, count = results
    # Each call has memory of its own.
    place = len(cdna4.arena.regions) << 16
    out = cdna4.buffer(OUT + place, np.zeros((count, 64)))
    cdna4.buffer(IN + place, np.stack([one.astype(np.uint32) for one in given.values()]))
    lines = [
        "v_lshlrev_b32 v1, 2, v0",
        "v_mov_b32 v2, v1",
        *(f"v_mov_b32 v{first + at}, {fill:#x}" for at in range(count)),
    ]
    for number in given:
        lines += [f"global_load_dword v{number}, v1, s[2:3]", "v_add_u32 v1, 0x100, v1"]
    lines += ["s_waitcnt vmcnt(0)", text, "s_nop 15", "s_nop 7"]
    for at in range(count):
        lines += [f"global_store_dword v2, v{first + at}, s[0:1]", "v_add_u32 v2, 0x100, v2"]
    cdna4.run("\n".join([*lines, "s_endpgm"]), user_sgprs=(OUT + place, 0, IN + place, 0), vgpr_count=128)
    return np.ascontiguousarray(out.reshape(count, 64).T)


def packed(codes, bits):
    """Return (lane, element) as (lane, dword)."""
    found = [sum(int(code) << bits * at for at, code in enumerate(lane)) for lane in codes]
    count = -(-codes.shape[1] * bits // 32)
    return np.array([[one >> 32 * at & 0xFFFF_FFFF for at in range(count)] for one in found], np.uint32)


def unpacked(dwords, bits, count):
    found = [sum(int(word) << 32 * at for at, word in enumerate(lane)) for lane in dwords]
    return np.array([[one >> bits * at & (1 << bits) - 1 for at in range(count)] for one in found], np.uint8)


def numbers_of(kind, codes):
    return codes.astype(np.uint8).view(SMALL[kind]).astype(np.float64)


def raw(wide, values):
    """Return (lane, element) of wide floats as (lane, dword)."""
    return np.ascontiguousarray(values.astype(WIDE[wide])).view("<u4")


def scales(draw):
    """Return exponents around that of one, and floats that have them."""
    exponents = draw.integers(121, 134, 64)
    return 2.0 ** (exponents - 127), (
        exponents.astype(np.uint32) << 23 | draw.integers(0, 1 << 23, 64).astype(np.uint32)
    )[:, None]


# conversions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("small", "wide"), PAIRS)
def test_small_floats_are_widened_and_scaled(cdna4, small, wide):
    draw = np.random.default_rng([*small.encode(), *wide.encode()])
    factors, scale = scales(draw)
    bits, count = BITS[small], 32 if BITS[small] == 6 else 2
    codes = draw.integers(0, 1 << bits, (64, count))
    with np.errstate(over="ignore"):
        expected = (numbers_of(small, codes) * factors[:, None]).astype(WIDE[wide])
    results = count * np.dtype(WIDE[wide]).itemsize // 4
    source = packed(codes, bits)
    name = f"v_cvt_scalef32_pk{'32' if bits == 6 else ''}_{wide}_{small}"
    sources = f"v[8:{7 + source.shape[1]}]" if bits == 6 else "v8"
    target = f"v[32:{31 + results}]" if results > 1 else "v32"
    found = run(cdna4, f"{name} {target}, {sources}, v20", {8: source, 20: scale}, (32, results))
    np.testing.assert_array_equal(found.view(WIDE[wide]).astype(float), expected.astype(float))


@pytest.mark.parametrize(("small", "wide"), PAIRS)
def test_wide_floats_are_scaled_and_rounded_to_nearest_even(cdna4, small, wide):
    draw = np.random.default_rng([*small.encode(), *wide.encode()])
    factors, scale = scales(draw)
    bits, count = BITS[small], 32 if BITS[small] == 6 else 2
    # With f16 what is scaled must fit.
    largest = 0.3 * float(ml_dtypes.finfo(SMALL[small]).max)
    if (small, wide) == ("bf8", "f16"):
        factors, scale = factors / 64, scale - (6 << 23)
    numbers = np.clip(draw.standard_normal((64, count)) * largest / 3, -largest, largest)
    values = (numbers * factors[:, None]).astype(WIDE[wide])
    expected = (values.astype(np.float64) / factors[:, None]).astype(SMALL[small])
    source = raw(wide, values)
    if bits == 6 and wide == "f32":
        source = np.concatenate([source[:, ::2], source[:, 1::2]], axis=1)
        text = f"v_cvt_scalef32_2xpk16_{small}_f32 v[80:85], v[8:23], v[24:39], v60"
    elif bits == 6:
        text = f"v_cvt_scalef32_pk32_{small}_{wide} v[80:85], v[8:23], v60"
    else:
        second = "v9, " if wide == "f32" else ""
        halves = "0,0,0,1" if wide == "f32" or bits == 4 else "0,0,1"
        text = f"v_cvt_scalef32_pk_{small}_{wide} v80, v8, {second}v60 op_sel:[{halves}]"
    found = run(cdna4, text, {8: source, 60: scale}, (80, 6 if bits == 6 else 1), fill=0x5A5A_5A5A)
    if bits != 6:
        assert (found[:, 0] & 0xFF == 0x5A).all()
        place = 16
        found = found >> place
    np.testing.assert_array_equal(numbers_of(small, unpacked(found, bits, count)), expected.astype(float))


@pytest.mark.parametrize(("small", "infinite", "nan"), [("fp8", 0x7F, 0x7F), ("bf8", 0x7C, 0x7E), ("fp4", 7, 7)])
def test_what_a_small_float_cannot_be(cdna4, small, infinite, nan):
    values = np.resize(np.array([1e9, -np.inf, np.nan, 0.0], np.float32), 64)[:, None]
    one = np.full((64, 1), 0x3F80_0000, np.uint32)
    text = f"v_cvt_scalef32_pk_{small}_f32 v80, v8, v8, v9"
    found = run(cdna4, text, {8: values.view(np.uint32), 9: one}, (80, 1))[:4, 0] & (1 << BITS[small]) - 1
    sign = 1 << BITS[small] - 1
    assert found.tolist() == [infinite, infinite | sign, nan, 0]
    # A scale of all ones makes NaN of everything.
    broken = run(cdna4, text, {8: values.view(np.uint32), 9: one * 0 + 0x7F80_0000}, (80, 1))[3, 0] & sign - 1
    assert broken == nan


def test_random_bits_decide_how_often_a_number_is_rounded_up(cdna4):
    # 1 + 3/8 of FP8's last place, in 64 lanes with evenly spaced random numbers.
    value, noise = np.full((64, 1), 1 + 3 / 64, np.float32), (LANES.astype(np.uint64) << 26).astype(np.uint32)[:, None]
    one = np.full((64, 1), 0x3F80_0000, np.uint32)
    registers = {8: value.view(np.uint32), 9: noise, 10: one}
    found = run(cdna4, "v_cvt_scalef32_sr_fp8_f32 v80, v8, v9, v10 op_sel:[0,0,1,0]", registers, (80, 1))[:, 0] >> 8
    assert np.bincount(found, minlength=58)[[56, 57]].tolist() == [40, 24]
    # FP4 of two floats: the second number has the next random number.
    pair = np.full((64, 2), 1.25, np.float32)
    registers = {8: pair.view(np.uint32), 10: noise, 11: one}
    found = run(cdna4, "v_cvt_scalef32_sr_pk_fp4_f32 v80, v[8:9], v10, v11", registers, (80, 1))[:, 0]
    after = noise[:, 0] << 1 ^ np.where(noise[:, 0] >> 31, 197, 0).astype(np.uint32)
    assert (found & 15).tolist() == [2 + (one >= 1 << 31) for one in noise[:, 0]]
    assert (found >> 4).tolist() == [2 + (one >= 1 << 31) for one in after]


def test_octets_are_those_of_ocp(cdna4):
    draw = np.random.default_rng(4)
    values = (draw.standard_normal((64, 2)) * 20).astype(np.float32)
    found = run(
        cdna4,
        "v_cvt_pk_fp8_f32 v80, v8, v9\n s_nop 1\n v_cvt_pk_f32_fp8 v[82:83], v80",
        {8: values.view(np.uint32)},
        (80, 4),
    )
    codes = values.astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(found[:, 0].astype(np.uint16), np.ascontiguousarray(codes).view(np.uint16)[:, 0])
    np.testing.assert_array_equal(np.ascontiguousarray(found[:, 2:]).view(np.float32), codes.astype(np.float32))
    text = "v_cvt_pk_bf16_f32 v80, v8, v9\n v_cvt_pk_f16_f32 v81, v8, v9"
    found = run(cdna4, text, {8: values.view(np.uint32)}, (80, 2))
    np.testing.assert_array_equal(found[:, 0], raw("bf16", values)[:, 0])
    np.testing.assert_array_equal(found[:, 1], raw("f16", values)[:, 0])


# other vector instructions --------------------------------------------------------------------------------------------


def test_a_truth_table_gives_each_bit(cdna4):
    words = np.random.default_rng(6).integers(0, 1 << 32, (64, 3), np.uint32)
    tables = (0xCA, 0x96, 0x01, 0xE8)
    text = "\n".join(f"v_bitop3_b32 v{80 + at}, v8, v9, v10 bitop3:{table:#x}" for at, table in enumerate(tables))
    found = run(cdna4, text, {8: words}, (80, 4))
    for at, table in enumerate(tables):
        bits = [(words[:, place][:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(int) for place in range(3)]
        expected = table >> (4 * bits[0] + 2 * bits[1] + bits[2]) & 1
        assert (found[:, at] == (expected << np.arange(32)).sum(axis=1)).all()


def test_shifted_integers_are_saturated_to_bytes(cdna4):
    pair = np.random.default_rng(7).integers(-3000, 3000, (64, 2)).astype(np.int32)
    text = "v_ashr_pk_i8_i32 v80, v8, v9, 2\n v_ashr_pk_u8_i32 v81, v8, v9, 3"
    found = run(cdna4, text, {8: pair.view(np.uint32)}, (80, 2))
    for at, (low, high, by) in enumerate(((-128, 127, 2), (0, 255, 3))):
        octets = np.clip(pair >> by, low, high) & 0xFF
        assert found[:, at].tolist() == (octets[:, 0] | octets[:, 1] << 8).tolist()


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_of_two_registers_are_swapped(cdna4, rows):
    start = np.stack([LANES + 100, LANES + 200], axis=1)
    text = f"v_mov_b32 v80, v8\n v_mov_b32 v81, v9\n s_nop 1\n v_permlane{16 * rows}_swap_b32 v80, v81"
    found = run(cdna4, text, {8: start}, (80, 2))
    is_upper = LANES // (16 * rows) % 2 == 1
    assert found[:, 0].tolist() == np.where(is_upper, LANES - 16 * rows + 200, LANES + 100).tolist()
    assert found[:, 1].tolist() == np.where(is_upper, LANES + 200, LANES + 16 * rows + 100).tolist()


def test_minima_of_three_give_nan_for_a_nan(cdna4):
    values = np.random.default_rng(8).standard_normal((64, 3)).astype(np.float32)
    values[3, 1] = np.nan
    found = run(
        cdna4, "v_minimum3_f32 v80, v8, v9, v10\n v_maximum3_f32 v81, v8, v9, v10", {8: values.view(np.uint32)}, (80, 2)
    )
    np.testing.assert_array_equal(found[:, 0].view(np.float32), values.min(axis=1))
    np.testing.assert_array_equal(np.ascontiguousarray(found[:, 1]).view(np.float32), values.max(axis=1))


# matrix products ------------------------------------------------------------------------------------------------------


def held(matrix, count):
    """Return A, or B with its columns first, by lane: `count` elements follow each other along K."""
    size = len(matrix)
    return np.array([matrix[lane % size, lane // size * count :][:count] for lane in range(64)])


def scattered(size):
    """Return the lane and register of D[i][j]."""
    i, j = np.indices((size, size))
    groups = 64 // size
    return i // 4 % groups * size + j, i // (4 * groups) * 4 + i % 4


def multiplied(cdna4, name, a, b, c, tail="", kind=np.float32, more=None):
    """Run a product of A and B, by lane in dwords, and return D."""
    size, (lane, register) = len(c), scattered(len(c))
    addend = np.zeros((64, size * size // 64), kind)
    addend[lane, register] = c
    count = addend.shape[1]
    text = f"{name} v[64:{63 + count}], v[8:{7 + a.shape[1]}], v[16:{15 + b.shape[1]}], v[32:{31 + count}]{tail}"
    registers = {8: a, 16: b, 32: addend.view(np.uint32)} | (more or {})
    return run(cdna4, text, registers, (64, count)).view(kind)[lane, register]


DENSE = {
    "v_mfma_f32_16x16x32_f16": np.float16, "v_mfma_f32_32x32x16_bf16": ml_dtypes.bfloat16, "v_mfma_i32_16x16x64_i8": np.int8,
    "v_mfma_i32_32x32x32_i8": np.int8, "v_mfma_f32_16x16x32_fp8_bf8": None,
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_deeper_products_of_integers_are_numpys(cdna4, name):
    size, _, depth = (int(one) for one in name.split("_")[3].split("x"))
    draw = np.random.default_rng(depth)
    a, b, c = (
        draw.integers(-7, 8, (size, depth)),
        draw.integers(-7, 8, (depth, size)),
        draw.integers(-60, 60, (size, size)),
    )
    kinds = (DENSE[name],) * 2 if DENSE[name] else (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    if not DENSE[name]:
        b = b // 2 * 2
    count = size * depth // 64
    left, right = (
        np.ascontiguousarray(held(one, count).astype(kind)).view("<u4")
        for one, kind in zip((a, b.T), kinds, strict=True)
    )
    kind = np.int32 if "_i32_" in name else np.float32
    found = multiplied(cdna4, name, left, right, c.astype(kind), kind=kind)
    np.testing.assert_array_equal(found, a @ b + c)


FORMATS = list(SMALL)


@pytest.mark.parametrize("pair", [(0, 0), (0, 4), (2, 1), (3, 2), (4, 4), (1, 3)])
@pytest.mark.parametrize("size", [16, 32])
def test_products_of_small_floats_with_scales(cdna4, size, pair):
    depth = 2048 // size
    draw = np.random.default_rng([size, *pair])
    forms = [FORMATS[one] for one in pair]
    # Quarters of small integers: FP4, FP6 and BF6 have all of them, and every sum is exact.
    values = np.array([0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2, 3, -4])
    a, b = (draw.choice(values, (size, depth)) for _ in forms)
    c = draw.integers(-60, 60, (size, size)).astype(np.float32)
    left, right = (
        packed(held(one, 32).astype(SMALL[form]).view(np.uint8), BITS[form])
        for one, form in zip((a, b), forms, strict=True)
    )
    tail = "".join(f" {name}:{one}" for name, one in zip(("cbsz", "blgp"), pair, strict=True) if one)
    name = f"f32_{size}x{size}x{depth}_f8f6f4"
    found = multiplied(cdna4, f"v_mfma_{name}", left, right, c, tail)
    np.testing.assert_array_equal(found, a @ b.T + c)
    # A scale of each row of A and column of B for 32 elements: its lane's third byte, and its lane's lowest.
    exponents = draw.integers(125, 130, (2, 64))
    registers = {56: (exponents[0] << 16 | 0x7700_7777)[:, None], 57: (exponents[1] | 0x1234_5600)[:, None]}
    by_block = [2.0 ** (one.reshape(-1, size).T - 127) for one in exponents]
    found = multiplied(
        cdna4, f"v_mfma_scale_{name}", left, right, c, f", v56, v57 op_sel_hi:[1,0,0]{tail}", more=registers
    )
    blocks = [one.reshape(size, -1, 32) * scale[:, :, None] for one, scale in zip((a, b), by_block, strict=True)]
    expected = np.einsum("ibk,jbk->ij", *blocks) + c
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_a_deeper_sparse_product_takes_places_from_its_index(cdna4):
    draw = np.random.default_rng(11)
    size, depth = 16, 64
    kept, places = (
        draw.integers(-7, 8, (size, depth // 2)),
        np.sort(draw.permuted(np.tile(np.arange(4), (size * 16, 1)), axis=1)[:, :2]),
    )
    places = places.reshape(size, depth // 2)
    a = np.zeros((size, depth), int)
    at = places + np.arange(depth // 2) // 2 * 4
    a[np.arange(size)[:, None], at] = kept
    b, c = draw.integers(-7, 8, (depth, size)), draw.integers(-60, 60, (size, size))

    def halves(matrix):
        """Return by lane the elements of both halves of K."""
        parts = np.split(matrix, 2, axis=1)
        return np.concatenate([held(one, one.shape[1] // 4) for one in parts], axis=1)

    left, right = (np.ascontiguousarray(halves(one).astype(np.float16)).view("<u4") for one in (kept, b.T))
    index = np.array([sum(int(one) << 2 * at for at, one in enumerate(lane)) for lane in halves(places)], np.uint32)
    lane, register = scattered(size)
    addend = np.zeros((64, 4), np.float32)
    addend[lane, register] = c
    text = """
      v_mov_b64 v[64:65], v[32:33]
      v_mov_b64 v[66:67], v[34:35]
      s_nop 1
      v_smfmac_f32_16x16x64_f16 v[64:67], v[8:11], v[16:23], v40 abid:1
    """
    registers = {8: left, 16: right, 32: addend.view(np.uint32), 40: (index << 16)[:, None]}
    found = run(cdna4, text, registers, (64, 4)).view(np.float32)[lane, register]
    np.testing.assert_array_equal(found, a @ b + c)


def test_xf32_is_gone(cdna4):
    # LLVM, gfx942: v_mfma_f32_16x16x8_xf32 v[4:7], v[0:1], v[2:3], v[4:7]
    found = cdna4.broken(".long 0xd3be0004, 0x04120500\n s_endpgm", vgpr_count=8)
    assert found.kind == "illegal"


# LDS ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "bits"), [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b96_tr_b6", 6), ("b64_tr_b4", 4)])
def test_rows_in_lds_are_loaded_as_columns(cdna4, name, bits):
    size_bytes = 12 if bits == 6 else 8
    rows = size_bytes * 8 // bits
    draw = np.random.default_rng(bits)
    # By 16 lanes: rows of 16 elements, of which each lane gives the address of a part.
    elements = draw.integers(0, 1 << bits, (4, rows, 16))
    source = np.concatenate([packed(one.reshape(16, -1), bits) for one in elements])
    words = size_bytes // 4
    stores = "\n".join(f"ds_write_b32 v3, v{8 + at} offset:{4 * at}" for at in range(words))
    text = f"""
      v_mul_u32_u24 v3, {size_bytes if size_bytes == 8 else 16}, v0
      {stores}
      s_waitcnt lgkmcnt(0)
      ds_read_{name} v[80:{79 + words}], v3
      s_waitcnt lgkmcnt(0)
    """
    out = cdna4.buffer(OUT, np.zeros((words, 64)))
    cdna4.buffer(IN, np.ascontiguousarray(source.T))
    lines = ["v_lshlrev_b32 v1, 2, v0", "v_mov_b32 v2, v1"]
    for at in range(words):
        lines += [f"global_load_dword v{8 + at}, v1, s[2:3]", "v_add_u32 v1, 0x100, v1"]
    lines += ["s_waitcnt vmcnt(0)", text]
    for at in range(words):
        lines += [f"global_store_dword v2, v{80 + at}, s[0:1]", "v_add_u32 v2, 0x100, v2"]
    cdna4.run("\n".join([*lines, "s_endpgm"]), user_sgprs=USER, vgpr_count=96, lds_size_bytes=1024)
    found = (
        unpacked(out.reshape(words, 64).T, bits, rows)
        if bits < 16
        else np.ascontiguousarray(out.reshape(words, 64).T).view("<u2")
    )
    np.testing.assert_array_equal(found.reshape(4, 16, rows), elements.transpose(0, 2, 1))


@pytest.mark.parametrize("words", [3, 4])
def test_lanes_have_four_dwords_each_in_loads_to_lds(cdna4, words):
    out, source = cdna4.buffer(OUT, np.zeros(64)), np.arange(256) + 1000
    cdna4.buffer(IN, source)
    text = f"""
      s_mov_b32 m0, 0x20000
      v_lshlrev_b32 v1, 4, v0
      s_nop 0
      global_load_lds_dwordx{words} v1, s[2:3]
      s_waitcnt vmcnt(0)
      v_add_u32 v3, 0x20000, v1
      ds_read_b32 v2, v3 offset:{4 * words - 4}
      v_lshlrev_b32 v1, 2, v0
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v2, s[0:1]
      s_endpgm
    """
    cdna4.run(text, user_sgprs=USER, lds_size_bytes=0x20400)
    assert out.tolist() == source[words - 1 :: 4].tolist()


def test_a_compute_unit_has_160_kib_of_lds():
    def fitting(lds_bytes):
        return occupancy(
            Dispatch(
                pc=0, wave_size=64, group_size=(64, 1, 1), group_count=(1, 1, 1), vgpr_count=8, lds_size_bytes=lds_bytes
            ),
            CDNA4_START,
        )

    assert [fitting(one) for one in (160 * 1024, 160 * 1024 + 4, 1280 * 8, 1280 * 8 + 4)] == [1, 0, 16, 14]


# wait states ----------------------------------------------------------------------------------------------------------

PRODUCT = "v_mfma_f32_16x16x32_f16 v[4:7], v[8:11], v[12:15], v[4:7]"
ZEROS = "".join(f"v_mov_b32 v{one}, 0\n" for one in range(32)) + "s_nop 4\n"
FACTORS = "\n".join(f"v_mov_b32 v{at}, 0" for at in (*range(8, 16), 41))
# What is computed from registers or LDS that nobody wrote, and its first lane that is undefined.
UNDEFINED = {
    "a scale of a row": (
        f"""{FACTORS}
        s_mov_b64 exec, -9
        v_mov_b32 v40, 0
        s_mov_b64 exec, -1
        s_nop 7
        v_mfma_scale_f32_16x16x128_f8f6f4 v[20:23], v[8:11], v[12:15], 0, v40, v41 cbsz:4 blgp:4
        s_nop 15
        global_store_dwordx2 v1, v[20:21], s[0:1]
        s_nop 0
        global_store_dword v1, v23, s[0:1]""",
        "lane 0 of v23",
    ),
    "a scale of a column": (
        f"""{FACTORS}
        s_mov_b64 exec, -9
        v_mov_b32 v40, 0
        s_mov_b64 exec, -1
        s_nop 7
        v_mfma_scale_f32_16x16x128_f8f6f4 v[20:23], v[8:11], v[12:15], 0, v41, v40 cbsz:4 blgp:4
        s_nop 15
        global_store_dword v1, v20, s[0:1]""",
        "lane 3 of v20",
    ),
    "rows that are exchanged": (
        """v_mov_b32 v8, 0
        s_nop 7
        v_permlane32_swap_b32 v8, v9
        s_nop 7
        global_store_dword v1, v8, s[0:1]""",
        "lane 32 of v8",
    ),
    "LDS that is loaded transposed": (
        """v_lshlrev_b32 v3, 3, v0
        s_mov_b64 exec, 0xffff
        ds_write_b64 v3, v[0:1]
        s_mov_b64 exec, -1
        s_waitcnt lgkmcnt(0)
        ds_read_b64_tr_b16 v[8:9], v3
        s_waitcnt lgkmcnt(0)
        global_store_dword v1, v9, s[0:1]""",
        "lane 16 of v9",
    ),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_what_comes_of_what_nobody_wrote_may_not_be_stored(cdna4, case):
    text, where = UNDEFINED[case]
    cdna4.buffer(OUT, np.zeros((2, 64)))
    found = cdna4.broken(
        f"v_lshlrev_b32 v1, 2, v0\n{text}\ns_endpgm", user_sgprs=(OUT, 0), vgpr_count=48, lds_size_bytes=1024
    )
    assert found.kind == "uninitialised"
    assert where in found.detail


# LLVM 22, GCNHazardRecognizer, gfx950: what follows, and how many wait states later.
WAITS = {
    "a product's result is read": (PRODUCT, "v_mov_b32 v20, v4", 8),
    "a product of octets takes longer": (
        "v_mfma_f32_16x16x128_f8f6f4 v[4:7], v[8:15], v[16:23], v[4:7]", "v_mov_b32 v28, v4", 12
    ),
    "a product of f64 takes longer": ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]", "v_mov_b32 v20, v0", 19),
    "a product's addend overlaps": (PRODUCT, "v_mfma_f32_16x16x32_f16 v[6:9], v[16:19], v[20:23], v[6:9]", 6),
    "rows are swapped": ("v_mov_b32 v4, 1", "v_permlane32_swap_b32 v4, v5", 2),
    "a part of a register is read": ("v_cvt_scalef32_pk_fp8_f32 v4, v5, v6, v7", "v_mov_b32 v8, v4", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_an_instruction_that_follows_too_early_is_refused(cdna4, case):
    first, second, needed = WAITS[case]

    def text(between):
        return (
            f"{ZEROS}{first}\n"
            + f"s_nop {between - 1}\n" * (0 < between < 17)
            + "s_nop 15\n" * (between > 16)
            + (f"s_nop {between - 17}\n" if between > 16 else "")
            + f"{second}\n s_endpgm"
        )

    cdna4.run(text(needed), vgpr_count=40)
    assert cdna4.broken(text(needed - 1), vgpr_count=40).kind == "hazard"
