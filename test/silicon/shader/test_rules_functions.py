"""Rules of transcendental functions compared with extended precision and the document's examples; conversions of halves
on hosts without instructions for them; a compiled division.
"""

from __future__ import annotations

import numpy as np
import pytest

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.amd.writer import arithmetic
from ringup.silicon.shader.common.state import WaveState

LANES, VGPRS, MODE = 64, 8, 0x3F0
TURN = 2 * np.longdouble("3.14159265358979323846264338327950288")


def vop1(mnemonic, target=1, source=0):
    """Encode `mnemonic` of one VGPR into another. Source: RDNA3 ISA reference, "VOP1": 0x7e at bit 31, vdst 24:17, op
    16:9, src0 8:0.
    """
    (op,) = (one.op for one in isa.target("gfx1100").by_mnemonic(mnemonic) if one.format == "VOP1")
    return decode((0x7E00_0000 | target << 17 | op << 9 | 256 + source).to_bytes(4, "little"))


def filled(values):
    """Return a wave with every lane active and `values` in v0."""
    wave = WaveState(LANES, VGPRS)
    wave.sgprs[126:128] = 0xFFFF_FFFF
    wave.vgprs[0, : len(values)] = values
    return wave


@pytest.fixture(scope="module")
def evaluate(translated):
    """`evaluate(mnemonic, bits)` returns the bits that the rule makes of up to 64 values."""
    built = {}

    def run(mnemonic, values):
        if mnemonic not in built:
            (built[mnemonic],) = translated([vop1(mnemonic)], LANES, VGPRS, MODE)
        wave = filled(values)
        built[mnemonic](wave)
        return wave.vgprs[1, : len(values)].copy()

    return run


def sine(turns):
    return np.sin(TURN * (turns - np.rint(turns)))


def cosine(turns):
    return np.sin(TURN * (np.longdouble(0.25) - abs(turns - np.rint(turns))))


# The true function, and the arguments for which the result is a normal number: from and to, as powers of two.
EXACT = {
    "exp": (np.exp2, None), "log": (np.log2, (-126, 128)), "rcp": (lambda x: 1 / x, (-125, 125)), "rsq": (lambda x: 1 / np.sqrt(x), (-125, 125)),
    "sqrt": (np.sqrt, (-125, 125)), "sin": (sine, (-30, 8)), "cos": (cosine, (-30, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_single_precision_functions_are_within_one_ulp(name, evaluate):
    rng = np.random.default_rng(len(name))
    function, powers = EXACT[name]
    for turn in range(60):
        x = rng.uniform(-126, 127.9, LANES) if powers is None else 2.0 ** rng.uniform(*powers, LANES)
        if name == "log" and turn % 2:
            x = rng.uniform(0.99, 1.01, LANES)
        x = x.astype(np.float32)
        found = evaluate(f"v_{name}_f32", x.view(np.uint32)).view(np.float32).astype(np.longdouble)
        true = function(x.astype(np.longdouble))
        distance = abs(found - true) / np.spacing(abs(true).astype(np.float32))
        # The document requires 1 ulp.
        assert distance.max() < 0.51


# RDNA3 ISA reference, "Functional examples" of each opcode
EXAMPLES = [
    ("v_exp_f32", {0xFF80_0000: 0, 0x8000_0000: 0x3F80_0000, 0x7F80_0000: 0x7F80_0000}),
    ("v_log_f32", {0xFF80_0000: 0xFFC0_0000, 0xBF80_0000: 0xFFC0_0000, 0x8000_0000: 0xFF80_0000, 0: 0xFF80_0000, 0x3F80_0000: 0,
                   0x7F80_0000: 0x7F80_0000}),
    ("v_rcp_f32", {0xFF80_0000: 0x8000_0000, 0xC000_0000: 0xBF00_0000, 0x8000_0000: 0xFF80_0000, 0: 0x7F80_0000, 0x7F80_0000: 0}),
    ("v_rsq_f32", {0xFF80_0000: 0xFFC0_0000, 0x8000_0000: 0xFF80_0000, 0: 0x7F80_0000, 0x4080_0000: 0x3F00_0000, 0x7F80_0000: 0}),
    ("v_sqrt_f32", {0xFF80_0000: 0xFFC0_0000, 0x8000_0000: 0x8000_0000, 0: 0, 0x4080_0000: 0x4000_0000, 0x7F80_0000: 0x7F80_0000}),
    ("v_sin_f32", {0xFF80_0000: 0xFFC0_0000, 0xFF7F_FFFF: 0, 0x8000_0000: 0x8000_0000, 0x3E80_0000: 0x3F80_0000, 0x7F80_0000: 0xFFC0_0000}),
    ("v_cos_f32", {0xFF80_0000: 0xFFC0_0000, 0xFF7F_FFFF: 0x3F80_0000, 0x8000_0000: 0x3F80_0000, 0x3E80_0000: 0, 0x7F80_0000: 0xFFC0_0000}),
    ("v_rcp_f16", {0xFC00: 0x8000, 0xC000: 0xB800, 0x8000: 0xFC00, 0: 0x7C00, 0x7C00: 0}),
    ("v_sqrt_f16", {0xFC00: 0xFE00, 0x8000: 0x8000, 0: 0, 0x4400: 0x4000, 0x7C00: 0x7C00}),
    ("v_rsq_f16", {0xFC00: 0xFE00, 0x8000: 0xFC00, 0: 0x7C00, 0x4400: 0x3800, 0x7C00: 0}),
    ("v_log_f16", {0xFC00: 0xFE00, 0xBC00: 0xFE00, 0x8000: 0xFC00, 0: 0xFC00, 0x3C00: 0, 0x7C00: 0x7C00}),
    ("v_exp_f16", {0xFC00: 0, 0x8000: 0x3C00, 0x7C00: 0x7C00}),
    ("v_sin_f16", {0xFC00: 0xFE00, 0xFBFF: 0, 0x8000: 0x8000, 0x3400: 0x3C00, 0x7BFF: 0, 0x7C00: 0xFE00}),
    ("v_cos_f16", {0xFC00: 0xFE00, 0xFBFF: 0x3C00, 0x8000: 0x3C00, 0x3400: 0, 0x7BFF: 0x3C00, 0x7C00: 0xFE00}),
    ("v_clz_i32_u32", {0: 0xFFFF_FFFF, 0x8000_00FF: 0, 0x1000_00FF: 3, 0x0000_FFFF: 16, 1: 31}),
    ("v_ctz_i32_b32", {0: 0xFFFF_FFFF, 0xFF00_0001: 0, 0xFF00_0008: 3, 0xFFFF_0000: 16, 0x8000_0000: 31}),
    ("v_cls_i32", {0: 0xFFFF_FFFF, 0x4000_0000: 1, 0x8000_0000: 1, 0x0FFF_FFFF: 4, 0xFFFF_0000: 16, 0xFFFF_FFFE: 31, 0xFFFF_FFFF: 0xFFFF_FFFF}),
]  # fmt: skip


def is_nan(bits, is_half):
    return bits & 0x7FFF > 0x7C00 if is_half else bits & 0x7FFF_FFFF > 0x7F80_0000


@pytest.mark.parametrize(("mnemonic", "pairs"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_of_the_document_hold(mnemonic, pairs, evaluate):
    found = dict(zip(pairs, map(int, evaluate(mnemonic, list(pairs))), strict=True))
    # Any NaN stands for all: the host's NaN has another sign.
    if "_f" in mnemonic:
        is_half = mnemonic.endswith("f16")
        found = {
            one: pairs[one] if is_nan(value, is_half) and is_nan(pairs[one], is_half) else value
            for one, value in found.items()
        }
    assert found == pairs


# halves ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(translated):
    """`converted(mnemonic, bits)` is `evaluate` on a host without instructions for halves, which converts them by
    integers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arithmetic, "HOST_CONVERTS_HALF", False)
        names = ("v_cvt_f32_f16", "v_cvt_f16_f32")
        built = dict(zip(names, translated([vop1(one) for one in names], LANES, VGPRS, MODE), strict=True))

    def run(mnemonic, values):
        found = []
        for first in range(0, len(values), LANES):
            wave = filled(values[first : first + LANES])
            built[mnemonic](wave)
            found.append(wave.vgprs[1].copy())
        return np.concatenate(found)

    return run


def test_every_half_is_widened_without_the_hosts_help(converted):
    halves = np.arange(0x1_0000, dtype=np.uint32)
    true = halves.astype(np.uint16).view(np.float16).astype(np.float32)
    found = converted("v_cvt_f32_f16", halves).view(np.float32)
    assert np.array_equal(found.view(np.uint32)[~np.isnan(true)], true.view(np.uint32)[~np.isnan(true)])
    assert np.isnan(found[np.isnan(true)]).all()


def test_floats_are_narrowed_to_the_nearest_half_without_the_hosts_help(converted):
    rng = np.random.default_rng(3)
    halves = rng.integers(0, 0x7BFF, 20_000).astype(np.uint16).view(np.float16).astype(np.float32)
    # Ties and their neighbours.
    between = (halves + np.spacing(halves.astype(np.float16)).astype(np.float32) / 2).view(np.uint32)
    tested = np.concatenate([between, between + 1, between - 1, rng.integers(0, 1 << 32, 20_032, dtype=np.uint32)])
    tested = tested[: len(tested) // LANES * LANES]
    with np.errstate(over="ignore"):
        true = tested.view(np.float32).astype(np.float16).view(np.uint16)
    found = converted("v_cvt_f16_f32", tested) & 0xFFFF
    nan = np.isnan(tested.view(np.float32))
    assert np.array_equal(found[~nan], true[~nan])
    assert ((found[nan] & 0x7FFF) > 0x7C00).all()


# division: the sequence that LLVM's AMDGPU backend makes of fdiv ------------------------------------------------------

DIVIDE_F32 = """
v_div_scale_f32 v2, null, v1, v1, v0
v_div_scale_f32 v3, vcc_lo, v0, v1, v0
v_rcp_f32 v4, v2
v_fma_f32 v5, -v2, v4, 1.0
v_fma_f32 v4, v5, v4, v4
v_mul_f32 v5, v3, v4
v_fma_f32 v6, -v2, v5, v3
v_fma_f32 v5, v6, v4, v5
v_fma_f32 v6, -v2, v5, v3
v_div_fmas_f32 v5, v6, v4, v5
v_div_fixup_f32 v7, v5, v1, v0
"""
DIVIDE_F64 = """
v_div_scale_f64 v[4:5], null, v[2:3], v[2:3], v[0:1]
v_rcp_f64 v[6:7], v[4:5]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]
v_div_scale_f64 v[10:11], vcc_lo, v[0:1], v[2:3], v[0:1]
v_mul_f64 v[8:9], v[10:11], v[6:7]
v_fma_f64 v[12:13], -v[4:5], v[8:9], v[10:11]
v_div_fmas_f64 v[12:13], v[12:13], v[6:7], v[8:9]
v_div_fixup_f64 v[14:15], v[12:13], v[2:3], v[0:1]
"""


def program(code):
    """Return every instruction of machine code."""
    found, at = [], 0
    while at < len(code):
        found.append(decode(code, at))
        at += found[-1].size_bytes
    return found


def operands(rng, bits, mantissa, count):
    """Return numbers of every size: any exponent, some with few bits of mantissa, and the special ones."""
    raw = rng.integers(0, 1 << (bits - 1), count, dtype=np.uint64) | rng.integers(
        0, 2, count, dtype=np.uint64
    ) << np.uint64(bits - 1)
    raw[::3] &= np.uint64((1 << bits) - (1 << mantissa - 2))
    bias = np.uint64((1 << bits - mantissa - 2) - 1 << mantissa)
    special = [
        0,
        1,
        1 << mantissa,
        bias,
        (1 << bits - 1) - (1 << mantissa),
        (1 << bits - 1) - (1 << mantissa) - 1,
        (1 << mantissa) - 1,
    ]
    raw[1::7] = rng.choice(np.array(special, np.uint64), raw[1::7].size)
    return raw


@pytest.mark.parametrize(
    ("text", "bits", "mantissa", "float_", "word"),
    [(DIVIDE_F32, 32, 23, np.float32, np.uint32), (DIVIDE_F64, 64, 52, np.float64, np.uint64)],
    ids=["f32", "f64"],
)
def test_a_compiled_division_is_the_nearest_quotient(text, bits, mantissa, float_, word, assemble, translated):
    rng = np.random.default_rng(bits)
    steps = translated(program(assemble(text)), 32, 16, MODE)
    size = bits // 32
    for _ in range(150):
        top, bottom = (operands(rng, bits, mantissa, 32).astype(word) for _ in range(2))
        wave = WaveState(32, 16)
        wave.sgprs[126] = 0xFFFF_FFFF
        for first, values in ((0, top), (size, bottom)):
            wave.vgprs[first : first + size] = values.view(np.uint32).reshape(32, size).T
        for step in steps:
            step(wave)
        last = 16 - size if size == 2 else 7
        found = np.ascontiguousarray(wave.vgprs[last : last + size].T).view(word).reshape(32)
        with np.errstate(all="ignore"):
            true = top.view(float_) / bottom.view(float_)
        nan = np.isnan(true)
        assert np.isnan(found.view(float_))[nan].all()
        wrong = np.flatnonzero((found != true.view(word)) & ~nan)
        assert not wrong.size, [
            (hex(top[i]), hex(bottom[i]), hex(found[i]), hex(true.view(word)[i])) for i in wrong[:4]
        ]
