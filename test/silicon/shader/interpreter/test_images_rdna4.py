"""RDNA4's images without a sampler, compared with NumPy's: where texels lie, formats, ranges, atomics, sizes.

Source: RDNA4 ISA reference, "Vector Memory Image Instructions"; places of texels from AMD's addrlib,
gfx12SwizzlePattern.h and gfx12addrlib.cpp.
"""

from __future__ import annotations

import numpy as np
import pytest

from ringup.errors import Unmodelled

IMAGE, COORDINATES, OUT = 0x200_0000, 0x300_0000, 0x400_0000
TYPES = {"1D": 8, "2D": 9, "3D": 10, "CUBE": 11, "1D_ARRAY": 12, "2D_ARRAY": 13, "2D_MSAA": 14}
# GFX11_FORMAT in gfx12-rsrc.json, by bytes of a texel.
UINT = {1: 5, 2: 11, 4: 20, 8: 48, 16: 61}
UNORM8X4, FLOAT16X2 = 42, 29
LINEAR, MODE_256B, MODE_4KB, MODE_64KB, MODE_256KB, MODE_4KB_3D = range(6)
IDENTITY = (4, 5, 6, 7)


def descriptor(
    kind, width, height=1, *, fmt=20, mode=LINEAR, selects=IDENTITY, last=0, first=0, pitch=0, bits=0, mips=0
):
    """Return the eight words of a T# over IMAGE; `bits` are low bits of its address, in units of 256 bytes."""
    whole = IMAGE >> 8 | bits
    fields = (
        (mips, 44), (fmt, 49), (width - 1, 62), (height - 1, 78), (mode, 116), (TYPES[kind], 124), (pitch - 1 if pitch else last, 128),
        (first, 144), (mips, 111), *((one, 96 + 3 * at) for at, one in enumerate(selects)),
    )  # fmt: skip
    for value, low in fields:
        whole |= value << low
    return [whole >> 32 * at & 0xFFFF_FFFF for at in range(8)]


def run(rdna4, program, words, *coordinates, count=4):
    """Run with the resource in s[0:7], coordinates in v10 and up and 0xAAAAAAAA in v[2:5]; return the latter's final
    values, (lane, register).
    """
    arena = rdna4.arena
    arena.regions[:] = [one for one in arena.regions if one[0].gpu_va not in (OUT, COORDINATES)]
    arena.epoch += 1
    out = rdna4.buffer(OUT, np.zeros(128))
    values = np.array([np.resize(one, 32) for one in coordinates], np.uint32)
    rdna4.buffer(COORDINATES, values.ravel())
    loads = [f"global_load_addtid_b32 v{10 + at}, s[10:11] offset:{128 * at}" for at in range(len(coordinates))]
    fills = [f"v_mov_b32_e32 v{at}, 0xaaaaaaaa" for at in range(2, 6)]
    text = "\n".join([
        *loads, *fills, "v_lshlrev_b32_e32 v1, 4, v0", "s_wait_loadcnt 0x0", program, "s_wait_loadcnt 0x0",
        f"global_store_b{32 * count} v1, v[2:{1 + count}], s[8:9]", "s_endpgm",
    ])  # fmt: skip
    rdna4.run(text, user_sgprs=(*words, OUT, 0, COORDINATES, 0))
    return out.reshape(32, 4)


# By bytes of a texel, the coordinate bits of a place in a block of 256 KiB: GFX12_SW_PATTERN_NIBBLE1 to 4.
PATTERNS = {
    1: "X0 X1 Y0 X2 Y1 Y2 X3 Y3 Y4 X4 Y5 X5 Y6 X6 Y7 X7 Y8 X8", 2: "X0 Y0 X1 Y1 X2 Y2 X3 Y3 X4 Y4 X5 Y5 X6 Y6 X7 Y7 X8",
    4: "X0 Y0 X1 Y1 X2 Y2 Y3 X3 Y4 X4 Y5 X5 Y6 X6 Y7 X7", 8: "X0 Y0 X1 X2 Y1 Y2 X3 Y3 X4 Y4 X5 Y5 X6 Y6 X7",
    16: "X0 Y0 X1 Y1 Y2 X2 Y3 X3 Y4 X4 Y5 X5 Y6 X6",
}  # fmt: skip
BLOCK_BYTES = {MODE_256B: 1 << 8, MODE_4KB: 1 << 12, MODE_64KB: 1 << 16, MODE_256KB: 1 << 18}


def place(mode, size, width, height, x, y, z=0):
    """Return the byte offset of a texel of a tiled image."""
    bits = PATTERNS[size].split()[: (BLOCK_BYTES[mode] // size).bit_length() - 1]
    wide, high = (2 ** sum(one[0] == axis for one in bits) for axis in "XY")
    inside = sum(({"X": x, "Y": y}[one[0]] >> int(one[1]) & 1) << at for at, one in enumerate(bits))
    across, down = -(-width // wide), -(-height // high)
    return ((z * down + y // high) * across + x // wide) * BLOCK_BYTES[mode] + inside * size


@pytest.mark.parametrize("size", UINT)
@pytest.mark.parametrize("mode", BLOCK_BYTES)
def test_texels_of_a_tiled_image_lie_where_addrlib_places_them(rdna4, mode, size):
    width, height, slices = 300, 70, 3
    draw = np.random.default_rng(size * 8 + mode)
    x, y, z = draw.integers(0, width, 32), draw.integers(0, height, 32), draw.integers(0, slices, 32)
    at = [place(mode, size, width, height, *map(int, one)) for one in zip(x, y, z, strict=True)]
    memory = rdna4.buffer(IMAGE, draw.integers(0, 256, 3 << 20), "u1")
    words = descriptor("2D_ARRAY", width, height, fmt=UINT[size], mode=mode, last=slices - 1)
    count = max(size // 4, 1)
    mask = (1 << min(count, 4)) - 1
    load = f"image_load v[2:{1 + count}], [v10, v11, v12], s[0:7] dmask:{mask} dim:SQ_RSRC_IMG_2D_ARRAY".replace(
        "v[2:2]", "v2"
    )
    found = run(rdna4, load, words, x, y, z)
    expected = [memory[one : one + size].tobytes().ljust(4 * count, b"\0") for one in at]
    assert [row[:count].tobytes() for row in found] == expected


def test_low_bits_of_the_address_move_texels_within_their_blocks(rdna4):
    memory = rdna4.buffer(IMAGE, np.arange(1 << 14))
    lane = np.arange(32)
    words = descriptor("2D", 64, 64, mode=MODE_4KB, bits=5)
    found = run(rdna4, "image_load v2, [v10, v11], s[0:7] dmask:1 dim:SQ_RSRC_IMG_2D", words, lane, 33)
    at = [place(MODE_4KB, 4, 64, 64, int(one), 33) ^ 5 << 8 for one in lane]
    assert found[:, 0].tolist() == [int(memory[one // 4]) for one in at]


@pytest.mark.parametrize(
    ("kind", "coordinates", "width", "height", "last", "pitch"),
    [("1D", "x", 50, 1, 0, 0), ("2D", "xy", 40, 9, 0, 0), ("2D", "xy", 40, 9, 0, 96), ("3D", "xyz", 40, 9, 4, 0),
     ("1D_ARRAY", "xz", 40, 1, 4, 0), ("2D_ARRAY", "xyz", 33, 5, 4, 0), ("CUBE", "xyz", 40, 9, 5, 0)],
)  # fmt: skip
def test_rows_of_a_linear_image_begin_at_multiples_of_128_bytes(rdna4, kind, coordinates, width, height, last, pitch):
    memory = rdna4.buffer(IMAGE, np.arange(1 << 14))
    draw = np.random.default_rng(width)
    places = {"x": draw.integers(0, width, 32), "y": draw.integers(0, height, 32), "z": draw.integers(0, last + 1, 32)}
    given = [places[one] for one in coordinates]
    registers = ", ".join(f"v{10 + at}" for at in range(len(given)))
    words = descriptor(kind, width, height, last=last, pitch=pitch)
    found = run(rdna4, f"image_load v2, [{registers}], s[0:7] dmask:1 dim:SQ_RSRC_IMG_{kind}", words, *given)
    row = pitch or -(-width // 32) * 32
    y, z = (places[one] if one in coordinates else 0 for one in "yz")
    expected = memory[places["x"] + y * row + z * (-(-row // 64) * 64) * height]
    assert found[:, 0].tolist() == expected.tolist()


def test_formats_selects_and_masks_shape_what_is_loaded(rdna4):
    texels = np.random.default_rng(1).integers(0, 256, (32, 4)).astype(np.uint8)
    rdna4.buffer(IMAGE, texels, "u1")
    lane = np.arange(32)
    # Blue, one, zero, red.
    words = descriptor("1D", 32, fmt=UNORM8X4, selects=(6, 1, 0, 4))
    found = run(rdna4, "image_load v[2:5], v10, s[0:7] dmask:0xf dim:SQ_RSRC_IMG_1D", words, lane).view(np.float32)
    blue, red = (texels[:, at] / np.float32(255) for at in (2, 0))
    assert np.array_equal(found, np.stack([blue, np.ones(32), np.zeros(32), red], axis=1).astype(np.float32))
    found = run(rdna4, "image_load v[2:3], v10, s[0:7] dmask:0xa dim:SQ_RSRC_IMG_1D", words, lane).view(np.float32)
    assert np.array_equal(found[:, :2], np.stack([np.ones(32), red], axis=1).astype(np.float32))
    found = run(rdna4, "image_load v2, v10, s[0:7] dmask:0x9 dim:SQ_RSRC_IMG_1D d16", words, lane)
    halves = np.ascontiguousarray(found[:, :1]).view(np.float16)
    assert np.array_equal(halves, np.stack([blue, red], axis=1).astype(np.float16))


def test_a_store_converts_and_gives_missing_components_the_first(rdna4):
    memory = rdna4.buffer(IMAGE, np.zeros(64, np.float16), np.float16)
    lane = np.arange(32)
    program = "v_cvt_f32_u32_e32 v2, v0\n image_store v2, v10, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D"
    run(rdna4, program, descriptor("1D", 32, fmt=FLOAT16X2), lane)
    assert memory.tolist() == np.repeat(lane, 2).tolist()


def test_texels_beyond_the_image_read_zeros_and_are_not_stored(rdna4):
    memory = rdna4.buffer(IMAGE, np.full(1 << 12, 9))
    words = descriptor("2D_ARRAY", 20, 10, last=3, first=2)
    x, y, z = [19, 20, 0, 0, 0xFFFF_FFFF], [9, 0, 10, 0, 0], [1, 0, 0, 2, 0]
    where = "[v10, v11, v12], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_2D_ARRAY"
    found = run(rdna4, f"s_mov_b32 exec_lo, 31\n image_load v2, {where}\n s_mov_b32 exec_lo, -1", words, x, y, z)
    assert found[:5, 0].tolist() == [9, 0, 0, 0, 0]
    run(rdna4, f"s_mov_b32 exec_lo, 31\n image_store v0, {where}\n s_mov_b32 exec_lo, -1", words, x, y, z)
    # Lane 0 stores to slice 3; no other lane stores.
    assert np.flatnonzero(memory != 9).tolist() == [(3 * 10 + 9) * 64 - 9 * 32 + 19]


def test_coordinates_of_16_bits_share_registers(rdna4):
    memory = rdna4.buffer(IMAGE, np.arange(1 << 12))
    lane = np.arange(32)
    words = descriptor("2D_ARRAY", 32, 8, last=3)
    load = "image_load v2, [v10, v11], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_2D_ARRAY a16"
    found = run(rdna4, load, words, lane | lane % 8 << 16, lane % 4)
    assert found[:, 0].tolist() == [int(memory[x + x % 8 * 32 + x % 4 * 64 * 8]) for x in range(32)]


def test_atomics_change_texels_and_return_what_was_there(rdna4):
    memory = rdna4.buffer(IMAGE, np.arange(100, 164))
    lane = np.arange(32)
    words = descriptor("1D", 64)
    atomic = (
        "v_mov_b32_e32 v2, v0\n image_atomic_add_uint v2, v10, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D th:TH_ATOMIC_RETURN"
    )
    found = run(rdna4, atomic, words, 2 * lane)
    assert found[:, 0].tolist() == (100 + 2 * lane).tolist()
    assert memory[::2].tolist() == (100 + 3 * lane).tolist()
    swap = "v_mov_b32_e32 v2, 7\n v_mov_b32_e32 v3, 0x67\n image_atomic_cmpswap v[2:3], v10, s[0:7] dmask:0x3 dim:SQ_RSRC_IMG_1D"
    run(rdna4, swap, words, 2 * lane)
    assert memory[:4].tolist() == [100, 101, 7, 103]


def test_a_resource_says_its_size(rdna4):
    words = descriptor("2D_ARRAY", 100, 30, last=9, first=4)
    found = run(rdna4, "image_get_resinfo v[2:5], v10, s[0:7] dmask:0xf dim:SQ_RSRC_IMG_2D_ARRAY", words, 0)
    assert found[0].tolist() == [100, 30, 6, 1]
    words = descriptor("3D", 100, 30, last=9, mips=3)
    found = run(rdna4, "image_get_resinfo v[2:5], v10, s[0:7] dmask:0xf dim:SQ_RSRC_IMG_3D", words, 2)
    assert found[0].tolist() == [25, 7, 2, 4]


def test_a_register_of_a_texel_is_in_flight_until_the_wait(rdna4):
    rdna4.buffer(IMAGE, np.zeros(64))
    words = descriptor("1D", 32)
    program = "image_load v2, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D\n v_mov_b32_e32 v3, v2\n s_endpgm"
    found = rdna4.broken(program, user_sgprs=words)
    assert found.kind == "hazard"
    assert "v2 is still being loaded" in found.detail
    assert "wait on loadcnt" in found.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image_load v2, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D", descriptor("1D", 32, mips=2)),
        ("image_load v2, [v0, v0, v0], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_2D_MSAA", descriptor("2D_MSAA", 32, 32)),
        ("image_load v2, [v0, v0, v0], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_3D", descriptor("3D", 32, 32, mode=MODE_4KB_3D, last=31)),
        ("image_load_pck v2, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D", descriptor("1D", 32)),
        ("image_load v2, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D", descriptor("1D", 32, fmt=64)),
    ],
)  # fmt: skip
def test_other_images_are_refused(rdna4, text, words):
    rdna4.buffer(IMAGE, np.zeros(64))
    run_ = rdna4.start(f"{text}\n s_endpgm", strict=False, user_sgprs=words)
    with pytest.raises(Unmodelled, match="image_load"):
        run_.step(100)
