"""RDNA4's samples of one level of detail, compared with NumPy: filters, clamps, borders, slices.

Source: RDNA4 ISA reference, "Image Opcodes with a Sampler", "Image Sampler".
"""

from __future__ import annotations

import numpy as np
import pytest

from ringup.errors import Unmodelled

IMAGE, COORDINATES, OUT = 0x200_0000, 0x300_0000, 0x400_0000
TYPES = {"1D": 8, "2D": 9, "3D": 10, "2D_ARRAY": 13}
F32, F32X4, U32 = 22, 63, 20
LINEAR, MODE_4KB = 0, 2
POINT, BILINEAR = 0, 1
WRAP, MIRROR, CLAMP, BORDER = 0, 1, 2, 6
WHITE = 2


def descriptor(kind, width, height=1, *, fmt=F32, mode=LINEAR, last=0):
    """Return the eight words of a T# over IMAGE."""
    whole = IMAGE >> 8
    fields = (
        (fmt, 49),
        (width - 1, 62),
        (height - 1, 78),
        (4, 96),
        (5, 99),
        (6, 102),
        (7, 105),
        (mode, 116),
        (TYPES[kind], 124),
        (last, 128),
    )
    for value, low in fields:
        whole |= value << low
    return [whole >> 32 * at & 0xFFFF_FFFF for at in range(8)]


def sampler(*, clamp=CLAMP, mag=POINT, low=POINT, border=0, unnormalized=0, most=15.0):
    """Return the four words of an S#."""
    whole = clamp * 0o111 | unnormalized << 15 | int(most * 256) << 45 | mag << 84 | low << 86 | border << 126
    return [whole >> 32 * at & 0xFFFF_FFFF for at in range(4)]


def run(rdna4, words, how, kind, *coordinates, dmask=1, mnemonic="image_sample_lz", tail=""):
    """Sample with coordinates by lane; return four f32 a lane."""
    arena = rdna4.arena
    arena.regions[:] = [one for one in arena.regions if one[0].gpu_va not in (OUT, COORDINATES)]
    arena.epoch += 1
    out = rdna4.buffer(OUT, np.zeros(128), np.float32)
    values = np.array([np.resize(one, 32) for one in coordinates], np.float32)
    rdna4.buffer(COORDINATES, np.concatenate([np.array([*words, *how], np.uint32), values.ravel().view(np.uint32)]))
    loads = [f"global_load_addtid_b32 v{10 + at}, s[2:3] offset:{48 + 128 * at}" for at in range(len(values))]
    data = "v2" if dmask.bit_count() == 1 else f"v[2:{1 + dmask.bit_count()}]"
    names = ", ".join(f"v{10 + at}" for at in range(len(values)))
    names = names if len(values) == 1 else f"[{names}]"
    text = "\n".join([
        *loads, "s_load_b256 s[8:15], s[2:3], 0x0", "s_load_b128 s[16:19], s[2:3], 0x20", "v_lshlrev_b32_e32 v1, 4, v0",
        *(f"v_mov_b32_e32 v{at}, 0" for at in range(2, 6)), "s_wait_kmcnt 0x0", "s_wait_loadcnt 0x0",
        f"{mnemonic} {data}, {names}, s[8:15], s[16:19] dmask:{dmask} dim:SQ_RSRC_IMG_{kind}{tail}", "s_wait_samplecnt 0x0",
        "global_store_b128 v1, v[2:5], s[0:1]", "s_endpgm",
    ])  # fmt: skip
    rdna4.run(text, user_sgprs=(OUT, 0, COORDINATES, 0))
    return out.reshape(32, 4)


def clamped(index, size, clamp):
    """Return a texel's index, None for the border."""
    if clamp == WRAP:
        return index % size
    if clamp == MIRROR:
        return index % (2 * size) if index % (2 * size) < size else 2 * size - 1 - index % (2 * size)
    if clamp == BORDER and not 0 <= index < size:
        return None
    return min(max(index, 0), size - 1)


def mean(texels, places, clamp, border):
    """Return the weighted mean of texels around a place, in texels, for an array of any rank; x is last."""
    total = 0.0
    for corner in np.ndindex(*(2,) * len(places)):
        weight, index = 1.0, []
        for high, place, size in zip(corner, places, texels.shape[::-1], strict=True):
            first = int(np.floor(place - 0.5))
            part = place - 0.5 - first
            weight *= part if high else 1 - part
            index.append(clamped(first + high, size, clamp))
        total += weight * (border if None in index else texels[tuple(index[::-1])])
    return total


@pytest.mark.parametrize("clamp", [WRAP, MIRROR, CLAMP, BORDER])
@pytest.mark.parametrize("kind", ["1D", "2D", "3D"])
def test_a_mean_of_neighbours_is_weighted_by_their_distance(rdna4, kind, clamp):
    axes = int(kind[0])
    shape = (4, 8, 32)[-axes:]
    draw = np.random.default_rng(axes)
    texels = draw.integers(-50, 50, shape).astype(np.float32)
    # Rows of 128 bytes, slices of rows of 256.
    memory = np.zeros((4, 8, 64), np.float32) if axes == 3 else texels
    if axes == 3:
        memory.reshape(4, -1)[:, : 8 * 32] = texels.reshape(4, -1)
    rdna4.buffer(IMAGE, memory.ravel(), np.float32)
    places = [draw.integers(-8 * size, 16 * size, 32) / 8 for size in shape[::-1]]
    words = descriptor(kind, 32, 8 if axes > 1 else 1, last=3 if axes == 3 else 0)
    how = sampler(clamp=clamp, mag=BILINEAR, border=WHITE)
    found = run(rdna4, words, how, kind, *(one / size for one, size in zip(places, shape[::-1], strict=True)))
    expected = [mean(texels, one, clamp, 1.0) for one in zip(*places, strict=True)]
    assert np.array_equal(found[:, 0], np.array(expected, np.float32))


def test_the_nearest_texel_keeps_its_bits_in_blocks_too(rdna4):
    draw = np.random.default_rng(3)
    memory = rdna4.buffer(IMAGE, draw.integers(0, 1 << 32, 4 << 10))
    x, y = draw.integers(0, 16, 32), draw.integers(0, 16, 32)
    words = descriptor("2D", 16, 16, fmt=U32, mode=MODE_4KB)
    found = run(rdna4, words, sampler(), "2D", (x + 0.5) / 16, (y + 0.25) / 16).view(np.uint32)
    # X0 Y0 X1 Y1 X2 Y2 Y3 X3: GFX12_SW_PATTERN_NIBBLE1 and 2 for four bytes.
    order = ((x, 0), (y, 0), (x, 1), (y, 1), (x, 2), (y, 2), (y, 3), (x, 3))
    at = sum((one >> bit & 1) << number for number, (one, bit) in enumerate(order))
    assert found[:, 0].tolist() == memory[at].tolist()


def test_places_may_be_in_texels_and_slices_are_rounded(rdna4):
    memory = rdna4.buffer(IMAGE, np.arange(3 * 2 * 64), np.float32)
    lane = np.arange(32)
    words = descriptor("2D_ARRAY", 32, 2, last=2)
    z = np.resize([-1, 0.4, 0.6, 1.4, 9], 32)
    found = run(rdna4, words, sampler(unnormalized=1), "2D_ARRAY", lane + 0.5, 1.5, z)
    slices = np.resize([0, 0, 1, 1, 2], 32)
    assert found[:, 0].tolist() == memory[slices * 128 + 32 + lane].tolist()


def test_the_level_of_detail_chooses_the_filter(rdna4):
    rdna4.buffer(IMAGE, np.arange(32), np.float32)
    lod = np.resize([-1.0, 0.0, 0.5, 3.0], 32)
    words, how = descriptor("1D", 32), sampler(mag=BILINEAR, low=POINT)
    found = run(rdna4, words, how, "1D", 4 / 32, lod, mnemonic="image_sample_l")
    assert found[:4, 0].tolist() == [3.5, 3.5, 4, 4]
    found = run(rdna4, words, sampler(mag=BILINEAR, most=0), "1D", 4 / 32, lod, mnemonic="image_sample_l")
    assert found[:4, 0].tolist() == [3.5] * 4


def test_components_are_masked_and_halved(rdna4):
    texels = np.arange(32 * 4, dtype=np.float32)
    rdna4.buffer(IMAGE, texels, np.float32)
    words = descriptor("1D", 32, fmt=F32X4)
    found = run(rdna4, words, sampler(), "1D", (np.arange(32) + 0.5) / 32, dmask=0xA)
    assert found[:, :2].tolist() == texels.reshape(32, 4)[:, 1::2].tolist()


def test_a_register_of_a_sample_is_in_flight_until_its_counter(rdna4):
    rdna4.buffer(IMAGE, np.zeros(32), np.float32)
    program = (
        "v_mov_b32_e32 v1, 0\n image_sample_lz v2, v1, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D\n"
        " s_wait_loadcnt 0x0\n v_mov_b32_e32 v3, v2\n s_endpgm"
    )
    found = rdna4.broken(program, user_sgprs=(*descriptor("1D", 32), *sampler()))
    assert found.kind == "hazard"
    assert "wait on samplecnt" in found.detail


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("image_sample v2, v0, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D", sampler()),
        ("image_sample_c_lz v2, [v0, v0], s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D", sampler()),
        ("image_sample_lz v2, v0, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D", sampler(mag=3)),
        ("image_sample_lz v2, v0, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D", sampler(clamp=BORDER, border=3)),
        ("image_sample_lz v2, v0, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D", sampler(clamp=4)),
    ],
)  # fmt: skip
def test_other_samples_are_refused(rdna4, text, how):
    rdna4.buffer(IMAGE, np.zeros(32), np.float32)
    run_ = rdna4.start(f"{text}\n s_endpgm", strict=False, user_sgprs=(*descriptor("1D", 32), *how))
    with pytest.raises(Unmodelled, match="image_sample"):
        run_.step(100)
