"""Integer, packing, dot-product and conversion rules compared with the document's pseudo-code on Python's integers and
floats.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.common.state import WaveState

LANES, VGPRS, MODE = 32, 32, 0x3F0
# Operand sizes. A word W is v0, v1, v2, a pair D v[0:1], v[2:3], v[4:5], a half H v0.l, v1.h, v2.l.
W, D, H = 32, 64, 16
M32 = 0xFFFF_FFFF


def s(value, bits=32):
    """Return the low bits as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def u24(value):
    return value & 0xFF_FFFF


def field(value, low, count):
    return value >> low & (1 << count) - 1


def limited(value, bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def clz(value):
    return 32 - value.bit_length() if value else -1


def ctz(value):
    return (value & -value).bit_length() - 1


def by_bytes(function, *words):
    return sum(function(*(field(one, 8 * i, 8) for one in words)) << 8 * i for i in range(4))


def distance(a, b, count=4, width=8, masked=False):
    pairs = [(field(a, width * i, width), field(b, width * i, width)) for i in range(count)]
    return sum(abs(x - y) for x, y in pairs if y or not masked)


def permuted(a, b, selectors):
    data = a << 32 | b

    def byte(select):
        if select >= 13:
            return 0xFF
        if select == 12:
            return 0
        if select >= 8:
            return 0xFF * (data >> 8 * (2 * (select - 8) + 1) + 7 & 1)
        return field(data, 8 * select, 8)

    return by_bytes(byte, selectors)


def quad(a, b, c, step, masked):
    return sum(
        (distance(field(a, 8 * i, 32), b, masked=masked) + field(c, step * i, step) & (1 << step) - 1) << step * i
        for i in range(4)
    )


def packed(function, *words):
    return sum((int(function(*(field(one, 16 * i, 16) for one in words))) & 0xFFFF) << 16 * i for i in range(2))


def median(a, b, c):
    return sorted((a, b, c))[1]


def signed(function, bits=32):
    return lambda *values: function(*(s(one, bits) for one in values))


def dot(a, b, c, width, a_signed, b_signed):
    def elements(word, is_signed):
        found = [field(word, i, width) for i in range(0, 32, width)]
        return [s(one, width) for one in found] if is_signed else found

    return sum(x * y for x, y in zip(elements(a, a_signed), elements(b, b_signed), strict=True)) + c


# Mnemonic to the sizes of the sources, the size of the result, and the value before it is cut to that size.
ROWS = {
    "v_add_nc_u32": ((W, W), W, lambda a, b: a + b), "v_sub_nc_u32": ((W, W), W, lambda a, b: a - b),
    "v_subrev_nc_u32": ((W, W), W, lambda a, b: b - a), "v_add_nc_i32": ((W, W), W, signed(lambda a, b: a + b)),
    "v_sub_nc_i32": ((W, W), W, signed(lambda a, b: a - b)), "v_mul_lo_u32": ((W, W), W, lambda a, b: a * b),
    "v_mul_hi_u32": ((W, W), W, lambda a, b: a * b >> 32), "v_mul_hi_i32": ((W, W), W, lambda a, b: s(a) * s(b) >> 32),
    "v_mul_u32_u24": ((W, W), W, lambda a, b: u24(a) * u24(b)), "v_mul_i32_i24": ((W, W), W, signed(lambda a, b: a * b, 24)),
    "v_mul_hi_u32_u24": ((W, W), W, lambda a, b: u24(a) * u24(b) >> 32),
    "v_mul_hi_i32_i24": ((W, W), W, lambda a, b: s(a, 24) * s(b, 24) >> 32),
    "v_mad_u32_u24": ((W, W, W), W, lambda a, b, c: u24(a) * u24(b) + c),
    "v_mad_i32_i24": ((W, W, W), W, lambda a, b, c: s(a, 24) * s(b, 24) + s(c)),
    "v_lshlrev_b32": ((W, W), W, lambda a, b: b << (a & 31)), "v_lshrrev_b32": ((W, W), W, lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32": ((W, W), W, lambda a, b: s(b) >> (a & 31)), "v_and_b32": ((W, W), W, lambda a, b: a & b),
    "v_or_b32": ((W, W), W, lambda a, b: a | b), "v_xor_b32": ((W, W), W, lambda a, b: a ^ b), "v_xnor_b32": ((W, W), W, lambda a, b: ~(a ^ b)),
    "v_not_b32": ((W,), W, lambda a: ~a), "v_min_i32": ((W, W), W, signed(min)), "v_max_i32": ((W, W), W, signed(max)),
    "v_min_u32": ((W, W), W, min), "v_max_u32": ((W, W), W, max), "v_min3_i32": ((W, W, W), W, signed(min)),
    "v_max3_u32": ((W, W, W), W, max), "v_med3_i32": ((W, W, W), W, signed(median)), "v_med3_u32": ((W, W, W), W, median),
    "v_minmax_i32": ((W, W, W), W, signed(lambda a, b, c: max(min(a, b), c))), "v_maxmin_u32": ((W, W, W), W, lambda a, b, c: min(max(a, b), c)),
    "v_bfe_u32": ((W, W, W), W, lambda a, b, c: field(a, b & 31, c & 31)),
    "v_bfe_i32": ((W, W, W), W, lambda a, b, c: s(s(a) >> (b & 31), c & 31) if c & 31 else 0),
    "v_bfi_b32": ((W, W, W), W, lambda a, b, c: a & b | ~a & c), "v_bfm_b32": ((W, W), W, lambda a, b: (1 << (a & 31)) - 1 << (b & 31)),
    "v_alignbit_b32": ((W, W, H), W, lambda a, b, c: (a << 32 | b) >> (c & 31)),
    "v_alignbyte_b32": ((W, W, H), W, lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)), "v_perm_b32": ((W, W, W), W, permuted),
    "v_bfrev_b32": ((W,), W, lambda a: int(f"{a:032b}"[::-1], 2)), "v_clz_i32_u32": ((W,), W, clz), "v_ctz_i32_b32": ((W,), W, ctz),
    "v_cls_i32": ((W,), W, lambda a: clz(a ^ s(a) >> 31 & M32)), "v_bcnt_u32_b32": ((W, W), W, lambda a, b: a.bit_count() + b),
    "v_lshl_add_u32": ((W, W, W), W, lambda a, b, c: (a << (b & 31)) + c), "v_add_lshl_u32": ((W, W, W), W, lambda a, b, c: a + b << (c & 31)),
    "v_lshl_or_b32": ((W, W, W), W, lambda a, b, c: a << (b & 31) | c), "v_and_or_b32": ((W, W, W), W, lambda a, b, c: a & b | c),
    "v_or3_b32": ((W, W, W), W, lambda a, b, c: a | b | c), "v_xor3_b32": ((W, W, W), W, lambda a, b, c: a ^ b ^ c),
    "v_xad_u32": ((W, W, W), W, lambda a, b, c: (a ^ b) + c), "v_add3_u32": ((W, W, W), W, lambda a, b, c: a + b + c),
    "v_lerp_u8": ((W, W, W), W, lambda a, b, c: by_bytes(lambda x, y, z: x + y + (z & 1) >> 1, a, b, c)),
    "v_sad_u8": ((W, W, W), W, lambda a, b, c: distance(a, b) + c), "v_sad_hi_u8": ((W, W, W), W, lambda a, b, c: (distance(a, b) << 16) + c),
    "v_sad_u16": ((W, W, W), W, lambda a, b, c: distance(a, b, 2, 16) + c), "v_sad_u32": ((W, W, W), W, lambda a, b, c: abs(a - b) + c),
    "v_msad_u8": ((W, W, W), W, lambda a, b, c: distance(a, b, masked=True) + c),
    "v_qsad_pk_u16_u8": ((D, W, D), D, lambda a, b, c: quad(a, b, c, 16, False)),
    "v_mqsad_pk_u16_u8": ((D, W, D), D, lambda a, b, c: quad(a, b, c, 16, True)),
    "v_lshlrev_b64": ((W, D), D, lambda a, b: b << (a & 63)), "v_lshrrev_b64": ((W, D), D, lambda a, b: b >> (a & 63)),
    "v_ashrrev_i64": ((W, D), D, lambda a, b: s(b, 64) >> (a & 63)),
    "v_add_nc_u16": ((H, H), H, lambda a, b: a + b), "v_sub_nc_i16": ((H, H), H, signed(lambda a, b: a - b, 16)),
    "v_mul_lo_u16": ((H, H), H, lambda a, b: a * b), "v_lshlrev_b16": ((H, H), H, lambda a, b: b << (a & 15)),
    "v_lshrrev_b16": ((H, H), H, lambda a, b: b >> (a & 15)), "v_ashrrev_i16": ((H, H), H, lambda a, b: s(b, 16) >> (a & 15)),
    "v_and_b16": ((H, H), H, lambda a, b: a & b), "v_max_i16": ((H, H), H, signed(max, 16)), "v_min_u16": ((H, H), H, min),
    "v_med3_i16": ((H, H, H), H, signed(median, 16)), "v_mad_u16": ((H, H, H), H, lambda a, b, c: a * b + c),
    "v_mad_i16": ((H, H, H), H, signed(lambda a, b, c: a * b + c, 16)), "v_mad_u32_u16": ((H, H, W), W, lambda a, b, c: a * b + c),
    "v_mad_i32_i16": ((H, H, W), W, lambda a, b, c: s(a, 16) * s(b, 16) + s(c)), "v_not_b16": ((H,), H, lambda a: ~a),
    "v_cvt_i32_i16": ((H,), W, lambda a: s(a, 16)), "v_cvt_u32_u16": ((H,), W, lambda a: a), "v_mov_b16": ((H,), H, lambda a: a),
    "v_pk_add_u16": ((W, W), W, lambda a, b: packed(lambda x, y: x + y, a, b)),
    "v_pk_sub_i16": ((W, W), W, lambda a, b: packed(lambda x, y: x - y, a, b)),
    "v_pk_mad_i16": ((W, W, W), W, lambda a, b, c: packed(lambda x, y, z: x * y + z, a, b, c)),
    "v_pk_mul_lo_u16": ((W, W), W, lambda a, b: packed(lambda x, y: x * y, a, b)),
    "v_pk_lshlrev_b16": ((W, W), W, lambda a, b: packed(lambda x, y: y << (x & 15), a, b)),
    "v_pk_ashrrev_i16": ((W, W), W, lambda a, b: packed(lambda x, y: s(y, 16) >> (x & 15), a, b)),
    "v_pk_max_i16": ((W, W), W, lambda a, b: packed(signed(max, 16), a, b)), "v_pk_min_u16": ((W, W), W, lambda a, b: packed(min, a, b)),
    "v_dot4_u32_u8": ((W, W, W), W, lambda a, b, c: dot(a, b, c, 8, False, False)),
    "v_dot8_u32_u4": ((W, W, W), W, lambda a, b, c: dot(a, b, c, 4, False, False)),
    "v_dot4_i32_iu8 neg_lo:[1,0,0]": ((W, W, W), W, lambda a, b, c: dot(a, b, s(c), 8, True, False)),
    "v_dot4_i32_iu8 neg_lo:[1,1,0]": ((W, W, W), W, lambda a, b, c: dot(a, b, s(c), 8, True, True)),
    "v_dot8_i32_iu4 neg_lo:[0,1,0]": ((W, W, W), W, lambda a, b, c: dot(a, b, s(c), 4, False, True)),
    "v_sat_pk_u8_i16": ((W,), H, lambda a: limited(s(a, 16), 8, False) | limited(s(a >> 16, 16), 8, False) << 8),
    "v_cvt_pk_u16_u32": ((W, W), W, lambda a, b: limited(a, 16, False) | limited(b, 16, False) << 16),
    "v_cvt_pk_i16_i32": ((W, W), W, lambda a, b: limited(s(a), 16, True) & 0xFFFF | (limited(s(b), 16, True) & 0xFFFF) << 16),
}  # fmt: skip
# With CLAMP the value is limited to the result's range, signed or not.
SATURATING = {
    "v_add_nc_u32": False, "v_sub_nc_u32": False, "v_subrev_nc_u32": False, "v_add_nc_i32": True, "v_sub_nc_i32": True, "v_mul_u32_u24": False,
    "v_mul_i32_i24": True, "v_mad_u32_u24": False, "v_mad_i32_i24": True, "v_sad_u8": False, "v_sad_hi_u8": False, "v_sad_u16": False,
    "v_sad_u32": False, "v_msad_u8": False, "v_add_nc_u16": False, "v_sub_nc_i16": True, "v_mad_u16": False, "v_mad_i16": True,
    "v_mad_u32_u16": False, "v_mad_i32_i16": True, "v_dot4_u32_u8": False, "v_dot8_u32_u4": False, "v_dot4_i32_iu8 neg_lo:[1,1,0]": True,
    "v_dot8_i32_iu4 neg_lo:[0,1,0]": True,
}  # fmt: skip
TARGETS = {W: "v10", D: "v[10:11]", H: "v10.h"}


def line(name, clamp):
    """Return the assembly text of a row."""
    mnemonic, _, modifiers = name.partition(" ")
    sizes, result, _ = ROWS[name]
    sources = [
        {W: f"v{i}" if D not in sizes else f"v{2 * i}", D: f"v[{2 * i}:{2 * i + 1}]", H: f"v{i}.{'lhl'[i]}"}[size]
        for i, size in enumerate(sizes)
    ]
    return " ".join([mnemonic, ", ".join([TARGETS[result], *sources]), modifiers, "clamp" if clamp else ""])


EDGES = (
    0,
    1,
    M32,
    0x8000_0000,
    0x7FFF_FFFF,
    0x8000,
    0x7FFF,
    0xFFFF,
    0x00FF_FFFF,
    0x0080_0000,
    0x7FFF_8000,
    0x8080_8080,
    0x0C0D_0800,
    0x0B0A_0907,
)


def random_words(rng):
    return [
        [rng.choice(EDGES) if rng.randrange(3) == 0 else rng.getrandbits(32) for _ in range(LANES)]
        for _ in range(VGPRS)
    ]


def operand(words, sizes, i, lane):
    """Return source i as an unsigned number."""
    if sizes[i] == D:
        return words[2 * i][lane] | words[2 * i + 1][lane] << 32
    word = words[2 * i if D in sizes else i][lane]
    return word if sizes[i] == W else word >> 16 if i == 1 else word & 0xFFFF


@pytest.fixture(scope="module")
def results(assemble, translated):
    """Run every row, and those that saturate also with CLAMP. Yield name, clamp, words before, and VGPRs after."""
    cases = [(name, clamp) for name in ROWS for clamp in (False, True) if not clamp or name in SATURATING]
    code, at, instructions = assemble("\n".join(line(*one) for one in cases)), 0, []
    while at < len(code):
        instructions.append(decode(code, at))
        at += instructions[-1].size_bytes
    rng = random.Random(11)
    found = []
    for case, rule in zip(cases, translated(instructions, LANES, VGPRS, MODE), strict=True):
        for _ in range(3):
            words = random_words(rng)
            wave = WaveState(LANES, VGPRS)
            wave.sgprs[126] = M32
            wave.vgprs[:] = words
            rule(wave)
            found.append((*case, words, wave.vgprs.copy()))
    return found


def test_integer_rules_compute_the_documents_pseudo_code(results):
    wrong = []
    for name, clamp, words, after in results:
        sizes, size, function = ROWS[name]
        for lane in range(LANES):
            sources = [operand(words, sizes, i, lane) for i in range(len(sizes))]
            value = function(*sources)
            if clamp:
                value = limited(value, size, SATURATING[name])
            value &= (1 << size) - 1
            old = words[10][lane]
            true = [value & M32, value >> 32] if size == D else [value << 16 | old & 0xFFFF] if size == H else [value]
            mine = [int(after[10 + i][lane]) for i in range(len(true))]
            if mine != true:
                wrong.append(
                    f"{line(name, clamp)}: {[hex(one) for one in sources]} gives {[hex(one) for one in mine]}, not {[hex(one) for one in true]}"
                )
                break
    assert not wrong, "\n".join(wrong)


# floats to integers and back ------------------------------------------------------------------------------------------


def whole(value, bits, is_signed):
    """Truncate and saturate; NaN is 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return limited(math.copysign(1, value) * 2**70, bits, is_signed)
    return limited(math.trunc(value), bits, is_signed)


def fraction(value, is_signed):
    """Return a 16-bit fraction, rounded to even."""
    if math.isnan(value):
        return 0
    scale, low = (32767, -1.0) if is_signed else (65535, 0.0)
    return round(min(max(value, low), 1.0) * scale)


FLOATS = [
    0.0, -0.0, 0.5, 0.49999997, 1.5, 2.5, -0.5, -1.5, 255.0, 255.5, 256.0, 65535.0, 65536.0, -32768.0, 32767.5, 2147483520.0,
    2147483648.0,
    4294967040.0, 4294967296.0, -2147483648.0, -2147483904.0, 1e30, -1e30,
    math.inf, -math.inf, math.nan, 1e-40, 0.1, -0.3, 8388609.0, 0.99999, 3e-5,
]  # fmt: skip
CONVERSIONS = {
    "v_cvt_i32_f32_e32 v10, v0": lambda a, b, old: int(whole(a, 32, True)),
    "v_cvt_u32_f32_e32 v10, v0": lambda a, b, old: int(whole(a, 32, False)),
    "v_cvt_floor_i32_f32_e32 v10, v0": lambda a, b, old: int(whole(math.floor(a) if math.isfinite(a) else a, 32, True)),
    "v_cvt_nearest_i32_f32_e32 v10, v0": lambda a, b, old: int(whole(math.floor(a + 0.5) if math.isfinite(a) else a, 32, True)),
    "v_cvt_pk_i16_f32 v10, v0, v1": lambda a, b, old: int(whole(a, 16, True)) & 0xFFFF | (int(whole(b, 16, True)) & 0xFFFF) << 16,
    "v_cvt_pk_u16_f32 v10, v0, v1": lambda a, b, old: int(whole(a, 16, False)) | int(whole(b, 16, False)) << 16,
    "v_cvt_pk_norm_i16_f32 v10, v0, v1": lambda a, b, old: fraction(a, True) & 0xFFFF | (fraction(b, True) & 0xFFFF) << 16,
    "v_cvt_pk_norm_u16_f32 v10, v0, v1": lambda a, b, old: fraction(a, False) | fraction(b, False) << 16,
    "v_cvt_pk_u8_f32 v10, v0, 2, v10": lambda a, b, old: old & 0xFF00_FFFF | int(whole(a, 8, False)) << 16,
}  # fmt: skip


def test_floats_become_integers_by_truncation_and_saturate(assemble, translated):
    code, at, instructions = assemble("\n".join(CONVERSIONS)), 0, []
    while at < len(code):
        instructions.append(decode(code, at))
        at += instructions[-1].size_bytes
    first = np.array(FLOATS, np.float32)
    second = np.roll(first, 7)
    for (text, function), rule in zip(CONVERSIONS.items(), translated(instructions, LANES, VGPRS, MODE), strict=True):
        wave = WaveState(LANES, VGPRS)
        wave.sgprs[126] = M32
        wave.vgprs[0], wave.vgprs[1], wave.vgprs[10] = first.view(np.uint32), second.view(np.uint32), 0x8765_4321
        rule(wave)
        true = [function(float(a), float(b), 0x8765_4321) & M32 for a, b in zip(first, second, strict=True)]
        assert [(text, *one) for one in zip(FLOATS, map(int, wave.vgprs[10]), strict=True)] == [
            (text, *one) for one in zip(FLOATS, true, strict=True)
        ]


def test_packing_towards_zero_never_grows_a_number(assemble, translated):
    (rule,) = translated([decode(assemble("v_cvt_pk_rtz_f16_f32 v10, v0, v1"))], LANES, VGPRS, MODE)
    rng = np.random.default_rng(5)
    for _ in range(200):
        bits = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        # These lie within the range of half as well.
        bits = np.where(rng.integers(0, 2, LANES) == 1, bits & np.uint32(0x8FFF_FFFF) | np.uint32(0x3000_0000), bits)
        wave = WaveState(LANES, VGPRS)
        wave.sgprs[126] = M32
        wave.vgprs[0] = bits
        rule(wave)
        value = bits.view(np.float32)
        found = (wave.vgprs[10] & np.uint32(0xFFFF)).astype(np.uint16)
        halves = found.view(np.float16).astype(np.float32)
        above = (found + np.uint16(1)).view(np.float16).astype(np.float32)
        finite = np.isfinite(value)
        assert (abs(halves[finite]) <= abs(value[finite])).all()
        inner = finite & (abs(value) < 65504)
        assert (abs(above[inner]) > abs(value[inner])).all()
        assert (abs(halves[finite & (abs(value) >= 65504)]) == 65504).all()
        assert np.isnan(halves[np.isnan(value)]).all()
