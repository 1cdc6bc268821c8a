"""Texture instructions on both engines, with NumPy and the formulas of Vulkan's specification as references."""

import struct

import numpy as np
import pytest
from nak.images import (
    FLOAT,
    ONE_FLOAT,
    SINT,
    SNORM,
    UINT,
    UNORM,
    ZERO,
    A,
    B,
    expected,
    header,
    in_blocks,
    pools,
    sampler,
)
from nak.registers import LAUNCHED, Program, both

from ringup.autogen.nv import textures as facts
from ringup.errors import GuestError
from ringup.silicon.shader.nv.interpreter.engine import Interpreter

LANES = 32
R32, R8 = facts.TEXHEAD_BL_COMPONENTS_SIZES_R32, facts.TEXHEAD_BL_COMPONENTS_SIZES_R8
FLOATS = (FLOAT,) * 4
RED = {"y_source": ZERO, "z_source": ZERO, "w_source": ONE_FLOAT}


def given(**rows):
    """Registers by number: what lanes load before the instruction; `R8=...`."""
    found = np.zeros((LAUNCHED, LANES), np.uint32)
    for name, values in rows.items():
        values = np.broadcast_to(np.asarray(values), LANES)
        found[int(name[1:])] = values.astype(np.float32).view(np.uint32) if values.dtype.kind == "f" else values
    return found


def texels(target, texts, registers, arrays, headers, samplers=()):
    """Run instructions on both engines and return the registers, which must be the same."""
    tables, said = pools(len(arrays), headers, samplers)
    one, other = both(target, lambda program: program.add(*texts), registers, [*arrays, *tables], **said)
    assert np.array_equal(one, other)
    return one


def f32(values):
    return np.ascontiguousarray(values).view(np.float32)


# formats --------------------------------------------------------------------------------------------------------------

# By name of COMPONENTS: bits of R, G, B and A, lowest first. The origin is the name, and Mesa's nil_formats.csv.
LAYOUTS = {
    "R32_G32_B32_A32": (32, 32, 32, 32), "R32_G32_B32": (32, 32, 32), "R16_G16_B16_A16": (16, 16, 16, 16), "R32_G32": (32, 32),
    "A8B8G8R8": (8, 8, 8, 8), "A2B10G10R10": (10, 10, 10, 2), "R16_G16": (16, 16), "R32": (32,), "A4B4G4R4": (4, 4, 4, 4),
    "A1B5G5R5": (5, 5, 5, 1), "B5G6R5": (5, 6, 5), "G8R8": (8, 8), "R16": (16,), "R8": (8,), "BF10GF11RF11": (11, 11, 10),
    "Z16": (16,), "X8Z24": (24, 8), "Z24S8": (8, 24), "ZF32": (32,),
}  # fmt: skip
KINDS = {
    "R32_G32_B32_A32": (FLOAT, UINT, SINT), "R32_G32_B32": (FLOAT,), "R16_G16_B16_A16": (FLOAT, UNORM, SNORM, UINT, SINT),
    "R32_G32": (UINT,), "A8B8G8R8": (UNORM, SNORM, UINT, SINT), "A2B10G10R10": (UNORM, UINT), "R16_G16": (FLOAT,),
    "R32": (FLOAT, SINT), "A4B4G4R4": (UNORM,), "A1B5G5R5": (UNORM,), "B5G6R5": (UNORM,), "G8R8": (SNORM,),
    "R16": (UNORM, SINT), "R8": (UNORM, SNORM, UINT, SINT), "BF10GF11RF11": (FLOAT,), "Z16": (UNORM,), "X8Z24": (UNORM,),
    "Z24S8": (UINT,), "ZF32": (FLOAT,),
}  # fmt: skip
FORMATS = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]


def component(value, width, kind):
    """The register of a component, by NumPy's conversions."""
    number = value - (1 << width) if value >> width - 1 else value
    if kind == FLOAT and width < 32:
        # a float of 11 or 10 bits is an f16 whose sign and low bits are left out
        half = value if width == 16 else value << 15 - width
        return int(np.array(half, np.uint16).view(np.float16).astype(np.float32).view(np.uint32))
    if kind in (UINT, FLOAT):
        return value
    if kind == SINT:
        return number & 0xFFFF_FFFF
    real = value / ((1 << width) - 1) if kind == UNORM else max(number / ((1 << width - 1) - 1), -1.0)
    return struct.unpack("<I", struct.pack("<f", real))[0]


def random_texel(draw, widths, kind):
    parts = []
    for width in widths:
        value = int(draw.integers(0, 1 << width, dtype=np.uint64))
        if kind == FLOAT:
            # no NaN, which may get other bits
            exponent = {32: 0xFF << 23, 16: 0x1F << 10, 11: 0x1F << 6, 10: 0x1F << 5}[width]
            value = value & ~(exponent & -exponent) if value & exponent == exponent else value
        parts.append(value)
    word = sum(part << sum(widths[:at]) for at, part in enumerate(parts))
    return word, parts


@pytest.mark.seeds(2)
def test_texels_of_all_formats_become_registers(seed):
    """Each lane has a format of its own, in a buffer of some texels."""
    draw = np.random.default_rng(seed)
    headers, data, wanted, index = [], bytearray(), np.zeros((4, LANES), np.uint32), np.zeros(LANES, np.int64)
    for lane in range(LANES):
        name, kind = FORMATS[(lane + 7 * seed) % len(FORMATS)]
        widths = LAYOUTS[name]
        size = sum(widths) // 8
        data += bytes(-len(data) % 16)
        at, count = len(data), 5
        headers.append(
            header(0, "BUFFER", (count,), getattr(facts, f"TEXHEAD_BL_COMPONENTS_SIZES_{name}"), (kind,) * 4, offset=at)
        )
        index[lane] = draw.integers(0, count)
        for number in range(count):
            word, parts = random_texel(draw, widths, kind)
            data += word.to_bytes(size, "little")
            if number == index[lane]:
                for one, (part, width) in enumerate(zip(parts, widths, strict=True)):
                    wanted[one, lane] = component(part, width, kind)
    registers = given(R8=index.astype(np.uint32), R12=np.arange(LANES, dtype=np.uint32))
    found = texels(
        "sm_86", ["TLD.B.LZ R18, R16, R8, R12, 1D"], registers, [np.frombuffer(bytes(data), np.uint8)], headers
    )
    assert np.array_equal(found[16:20], wanted)


def test_srgb_is_decoded_but_not_alpha():
    image = np.arange(4 * LANES, dtype=np.uint8)
    head = header(
        0, "FLAT", (LANES, 1), facts.TEXHEAD_BL_COMPONENTS_SIZES_A8B8G8R8, (UNORM,) * 4, pitch=128, s_r_g_b_conversion=1
    )
    registers = given(R8=np.arange(LANES, dtype=np.uint32), R9=0, R12=0)
    found = f32(texels("sm_89", ["TLD.B.LZ R18, R16, R8, R12, 2D"], registers, [image], [head])[16:20])
    real = image.reshape(LANES, 4).T / 255
    linear = np.where(real <= 0.04045, real / 12.92, ((real + 0.055) / 1.055) ** 2.4)
    assert np.allclose(found[:3], linear[:3], rtol=3e-7, atol=0)
    assert np.array_equal(found[3], real[3].astype(np.float32))


def test_results_come_from_the_sources_of_the_header():
    image = np.array([0.25, 0.5, 0.75, 1.5], np.float32)
    head = header(
        0, "FLAT", (1, 1), facts.TEXHEAD_BL_COMPONENTS_SIZES_R32_G32_B32_A32, FLOATS, pitch=32, x_source=A, y_source=ZERO,
        z_source=ONE_FLOAT, w_source=B,
    )  # fmt: skip
    # the mask leaves the first one out
    found = f32(texels("sm_75", ["TLD.B.LZ R18, R16, R8, R12, 2D, 0xe"], given(R8=0, R12=0, R19=9), [image], [head]))
    assert found[16:19, 0].tolist() == [0.0, 1.0, 0.75]
    assert found[19].view(np.uint32)[0] == 9


# places ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tall", "deep", "size"), [(0, 0, (9, 70)), (1, 0, (33, 40)), (2, 2, (5, 29, 21)), (4, 1, (2, 130, 5))]
)
def test_texels_lie_in_blocks_as_the_manual_says(tall, deep, size):
    draw = np.random.default_rng(tall)
    shape = (1, *size)[-3:]
    image = draw.integers(0, 1 << 32, shape, dtype=np.uint32)
    data = in_blocks(image.view(np.uint8), tall, deep)
    kind = "3D" if len(size) == 3 else "2D"
    head = header(0, kind, shape[::-1], R32, (UINT,) * 4, gobs_per_block_height=tall, gobs_per_block_depth=deep)
    z, y, x = (draw.integers(0, one, LANES).astype(np.uint32) for one in shape)
    found = texels(
        "sm_86", [f"TLD.B.LZ RZ, R16, R8, R12, {kind}, 0x1"], given(R8=x, R9=y, R10=z, R12=0), [data], [head]
    )
    assert np.array_equal(found[16], image[z, y, x])


def levels_in_memory(shape, layers, levels, tall, deep, draw):
    """Return the levels of each layer, and memory: Mesa's nil/image.rs, "Self::new", by hand for this test's sizes."""
    images, data = [], bytearray()
    for _ in range(layers):
        images.append([])
        layer = bytearray()
        for level in range(levels):
            one = tuple(max(size >> level, 1) for size in shape)
            image = draw.integers(0, 1 << 32, one, dtype=np.uint32)
            images[-1].append(image)
            own_tall, own_deep = tall, deep
            while own_tall and 8 << own_tall >= 2 * one[1]:
                own_tall -= 1
            while own_deep and 1 << own_deep >= 2 * one[0]:
                own_deep -= 1
            layer += in_blocks(image.view(np.uint8), own_tall, own_deep).tobytes()
        data += layer + bytes(-len(layer) % (512 << tall + deep))
    return images, np.frombuffer(bytes(data), np.uint8)


@pytest.mark.parametrize(("kind", "shape", "layers", "tall", "deep"), [
    ("ARRAY_2D", (1, 45, 37), 3, 2, 0), ("3D", (12, 20, 33), 1, 1, 3), ("ARRAY_1D", (1, 1, 150), 4, 0, 0),
])  # fmt: skip
def test_levels_and_layers_follow_each_other(kind, shape, layers, tall, deep):
    draw = np.random.default_rng(layers)
    images, data = levels_in_memory(shape, layers, 5, tall, deep, draw)
    size = (*shape[::-1][:2], layers if "ARRAY" in kind else shape[0])
    # The view leaves out the first level.
    head = header(
        0, kind, size, R32, (UINT,) * 4, gobs_per_block_height=tall, gobs_per_block_depth=deep, max_mip_level=4,
        res_view_min_mip_level=1, res_view_max_mip_level=4,
    )  # fmt: skip
    level, layer = draw.integers(0, 5, LANES), draw.integers(0, layers + 1, LANES)
    # some are one texel outside
    z, y, x = (draw.integers(0, np.maximum(one >> 1 + level, 1) + 1) for one in shape)
    wanted = np.zeros(LANES, np.uint32)
    z, y = z if kind == "3D" else z * 0, y if kind != "ARRAY_1D" else y * 0
    for lane in range(LANES):
        if level[lane] < 4 and ("ARRAY" not in kind or layer[lane] < layers):
            image = images[layer[lane] if "ARRAY" in kind else 0][1 + level[lane]]
            place = z[lane], y[lane], x[lane]
            if all(at < one for at, one in zip(place, image.shape, strict=True)):
                wanted[lane] = image[place]
    places = {"ARRAY_2D": (layer, x, y), "3D": (x, y, z), "ARRAY_1D": (layer, x)}[kind]
    rows = {f"R{8 + at}": one.astype(np.uint32) for at, one in enumerate(places)}
    registers = given(**rows, R12=0, R13=level.astype(np.uint32))
    found = texels("sm_86", [f"TLD.B.LL RZ, R16, R8, R12, {kind}, 0x1"], registers, [data], [head])
    assert np.count_nonzero(wanted) > 4
    assert np.array_equal(found[16], wanted)


def test_sizes_and_levels_are_those_of_the_view():
    heads = [
        header(0, "2D", (37, 21), R32, FLOATS, max_mip_level=5, res_view_min_mip_level=1, res_view_max_mip_level=3),
        header(0, "3D", (64, 32, 16), R32, FLOATS, max_mip_level=6, res_view_max_mip_level=6),
        header(0, "ARRAY_1D", (50, 1, 7), R32, FLOATS), header(0, "ARRAY_CUBE", (16, 16, 3), R32, FLOATS),
        header(0, "BUFFER", (100_000,), R8, (UINT,) * 4), 0,
    ]  # fmt: skip
    handle, level = np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)
    handle[:8], level[:8] = [0, 0, 0, 1, 2, 3, 4, 5], [0, 2, 3, 2, 0, 0, 0, 0]
    found = texels(
        "sm_86",
        ["TXQ.B R18, R16, R8, TEX_HEADER_DIMENSION, 0xf"],
        given(R8=handle, R9=level),
        [np.zeros(512, np.uint8)],
        heads,
    )
    assert found[16:20, :8].T.tolist() == [
        [18, 10, 1, 3], [4, 2, 1, 3], [0, 0, 0, 3], [16, 8, 4, 7], [50, 7, 1, 1], [16, 16, 3, 1], [100_000, 1, 1, 1], [0, 0, 0, 0],
    ]  # fmt: skip


# samplers -------------------------------------------------------------------------------------------------------------

WRAPS = (0, 1, 2, 3, 5)
HALF = 0x3F00_0000


@pytest.mark.parametrize("kind", ["1D", "2D", "3D"])
@pytest.mark.seeds(1)
def test_samplers_find_the_nearest_texel_or_the_mean(kind, seed):
    draw = np.random.default_rng(seed)
    shape = (5, 6, 7)[-int(kind[0]) :]
    image = draw.normal(0, 4, shape).astype(np.float32)
    data = in_blocks(image.reshape((1,) * (3 - image.ndim) + shape).view(np.uint8), 0, 0)
    head = header(0, kind, shape[::-1], R32, FLOATS, **RED)
    samplers = [sampler(wrap, mag, mag, border=(HALF, 0, 0, 0)) for wrap in WRAPS for mag in (1, 2)]
    which = draw.integers(0, len(samplers), LANES)
    places = draw.uniform(-1.5, 2.5, (len(shape), LANES)).astype(np.float32)
    rows = {f"R{8 + at}": one for at, one in enumerate(places)}
    registers = given(**rows, R12=(which << 20).astype(np.uint32))
    found = f32(texels("sm_86", [f"TEX.B.LZ RZ, R16, R8, R12, {kind}, 0x1"], registers, [data], [head], samplers)[16])
    for lane in range(LANES):
        wanted = expected(image, WRAPS[which[lane] // 2], which[lane] % 2, places[::-1, lane], 0.5)
        assert abs(found[lane] - wanted) <= 4e-7 * max(abs(float(wanted)), 1), (lane, found[lane], wanted)


def test_a_level_is_chosen_or_blended_and_magnified_at_zero():
    draw = np.random.default_rng(3)
    images, data = levels_in_memory((1, 16, 16), 1, 3, 1, 0, draw)
    values = [draw.uniform(0, 1, one.shape).astype(np.float32) for one in images[0]]
    data = b"".join(in_blocks(one.view(np.uint8), min(1, one.shape[1] // 16), 0).tobytes() for one in values)
    head = header(0, "2D", (16, 16), R32, FLOATS, gobs_per_block_height=1, max_mip_level=2, res_view_max_mip_level=2)
    samplers = [
        sampler(2, 1, 1, mip=2),
        sampler(2, 1, 1, mip=3),
        sampler(2, 1, 1, mip=1),
        sampler(2, 1, 1, mip=2, mip_lod_bias=256),
    ]
    lod = np.array([-1, 0, 0.5, 0.75, 1, 1.25, 1.5, 9] * 4, np.float32)
    which = np.arange(LANES, dtype=np.uint32) // 8
    registers = given(R8=0.3, R9=0.6, R12=which << 20, R13=lod)
    found = f32(
        texels(
            "sm_89",
            ["TEX.B.LL RZ, R16, R8, R12, 2D, 0x1"],
            registers,
            [np.frombuffer(data, np.uint8)],
            [head],
            samplers,
        )[16]
    )
    at = [float(one[0, int(0.6 * one.shape[1]), int(0.3 * one.shape[2])]) for one in values]
    nearest = [at[0], at[0], at[0], at[1], at[1], at[1], at[1], at[2]]
    blended = [
        at[0],
        at[0],
        (at[0] + at[1]) / 2,
        at[0] / 4 + at[1] * 0.75,
        at[1],
        at[1] * 0.75 + at[2] / 4,
        (at[1] + at[2]) / 2,
        at[2],
    ]
    biased = [at[0], at[1], at[1], at[2], at[2], at[2], at[2], at[2]]
    assert np.allclose(found, [*nearest, *blended, *[at[0]] * 8, *biased], rtol=1e-6)


def test_derivatives_choose_the_level():
    head = header(0, "2D", (16, 16), R32, FLOATS, gobs_per_block_height=1, max_mip_level=2, res_view_max_mip_level=2)
    # 16 x 16 texels of 4 bytes take one block of 2 GOBs, the smaller levels one GOB each
    data = np.concatenate([np.full(256, 0), np.full(128, 1), np.full(128, 2)]).astype(np.float32)
    registers = given(R8=0, R9=0.5, R10=0.5, R12=0.0, R13=0.0, R14=0.0, R15=0.0)
    registers[12, :4] = (np.array([1, 2, 4, 8], np.float32) / 16).view(np.uint32)
    registers[15, 4:8] = (np.array([1, 2, 4, 8], np.float32) / 16).view(np.uint32)
    found = f32(
        texels("sm_86", ["TXD.B RZ, R16, R8, R12, 2D, 0x1"], registers, [data], [head], [sampler(2, 1, 1, mip=3)])[16]
    )
    assert found[:8].tolist() == [0, 1, 2, 2, 0, 1, 2, 2]


def test_neighbours_in_a_quad_choose_the_level():
    data = np.concatenate([np.full(256, 0), np.full(128, 1), np.full(128, 2)]).astype(np.float32)
    head = header(0, "2D", (16, 16), R32, FLOATS, gobs_per_block_height=1, max_mip_level=2, res_view_max_mip_level=2)
    lane = np.arange(LANES)
    apart = np.array([1, 2, 3, 4, 8, 1, 1, 1], np.float32)[lane // 4] / 16
    registers = given(R8=((lane & 1) * apart).astype(np.float32), R9=((lane >> 1 & 1) / 32).astype(np.float32), R12=0)
    texts = ["TEX.B RZ, R16, R8, R12, 2D, 0x1", "TMML.B.LOD RZ, R18, R8, R12, 2D, 0x3"]
    found = texels("sm_86", texts, registers, [data], [head], [sampler(2, 1, 1, mip=3)])
    logs = np.log2(apart * 16)
    assert np.allclose(f32(found[16]), np.minimum(np.round(logs * 256) / 256, 2))
    assert np.array_equal(found[18].astype(np.int64), np.round(logs * 256))
    assert np.array_equal(found[19].astype(np.int64), np.minimum(np.round(logs * 256), 512))


def test_a_gather_has_its_four_texels_in_vulkans_order_with_offsets():
    image = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    head = header(0, "2D", (8, 8), R32, FLOATS, **RED)
    # between the texels 2 and 3 along x, 4 and 5 along y
    registers = given(R8=3 / 8, R9=5 / 8, R12=0, R13=np.uint32(1 | 0xFE << 8))
    texts = ["TLD4.R.B R18, R16, R8, R12, 2D", "TLD4.R.B.AOFFI R22, R20, R8, R12, 2D"]
    found = f32(texels("sm_86", texts, registers, [in_blocks(image.view(np.uint8), 0, 0)], [head], [sampler(2)]))
    assert found[16:20, 0].tolist() == [42, 43, 35, 34]
    assert found[20:24, 0].tolist() == [27, 28, 20, 19]
    four = [(0, 0), (1, 0), (-2, 3), (4, -4)]
    packed = [x & 0xFF | (y & 0xFF) << 8 for x, y in four]
    registers = given(
        R8=3 / 8,
        R9=5 / 8,
        R12=0,
        R13=np.uint32(packed[0] | packed[1] << 16),
        R14=np.uint32(packed[2] | packed[3] << 16),
    )
    found = f32(
        texels(
            "sm_86",
            ["TLD4.R.B.PTP R18, R16, R8, R12, 2D"],
            registers,
            [in_blocks(image.view(np.uint8), 0, 0)],
            [head],
            [sampler(2)],
        )
    )
    assert found[16:20, 0].tolist() == [34 + x + 8 * y for x, y in four]


def test_a_comparison_is_made_before_the_mean():
    image = np.array([[[0.25, 0.75], [0.25, 0.75]]], np.float32)
    head = header(0, "2D", (2, 2), facts.TEXHEAD_BL_COMPONENTS_SIZES_ZF32, FLOATS, **RED)
    registers = given(R8=0.5, R9=0.5, R12=0, R13=0.5)
    found = f32(texels("sm_86", ["TEX.B.LZ.DC RZ, R16, R8, R12, 2D, 0x1"], registers, [in_blocks(image.view(np.uint8), 0, 0)], [head],
                       [sampler(2, 2, 2, compare=1)])[16])  # fmt: skip
    # LESS: 0.5 is less than the right half
    assert found[0] == 0.5


def cube_value(direction):
    """A smooth function of a direction."""
    x, y, z = direction
    return 3 * x + 5 * y + 7 * z


def test_cubes_have_their_faces_and_are_smooth_across_edges():
    """The axes of each face are those of Vulkan 1.3, "Cube Map Face Selection"."""
    size = 16
    faces = np.zeros((6, size, size), np.float32)
    axes = [  # major axis, s, t
        ((1, 0, 0), (0, 0, -1), (0, -1, 0)), ((-1, 0, 0), (0, 0, 1), (0, -1, 0)), ((0, 1, 0), (1, 0, 0), (0, 0, 1)),
        ((0, -1, 0), (1, 0, 0), (0, 0, -1)), ((0, 0, 1), (1, 0, 0), (0, -1, 0)), ((0, 0, -1), (-1, 0, 0), (0, -1, 0)),
    ]  # fmt: skip
    for face, (major, s, t) in enumerate(axes):
        for row in range(size):
            for column in range(size):
                u, v = (2 * column + 1) / size - 1, (2 * row + 1) / size - 1
                direction = np.array(major) + u * np.array(s) + v * np.array(t)
                faces[face, row, column] = cube_value(direction / np.linalg.norm(direction))
    data = np.concatenate([in_blocks(one[None].view(np.uint8), 1, 0) for one in faces])
    head = header(0, "CUBE", (size, size, 1), R32, FLOATS, gobs_per_block_height=1, **RED)
    draw = np.random.default_rng(5)
    directions = draw.normal(0, 1, (3, LANES)).astype(np.float32)
    # near edges and a corner
    directions[:, :8] = np.array([[1, 0.999, 0.2], [1, -0.999, 0.3], [0.999, 1, 0], [0.2, 1, 0.999], [0.2, -1, -0.999], [-1, 0.1, 0.999],
                                  [1, 1, 0.999], [-1, 0.999, -1]]).T  # fmt: skip
    registers = given(R8=directions[0], R9=directions[1], R10=directions[2], R12=np.uint32(0), R13=np.uint32(1 << 20))
    texts = ["TEX.B.LZ RZ, R16, R8, R12, CUBE, 0x1", "TEX.B.LZ RZ, R17, R8, R13, CUBE, 0x1"]
    seamless = facts.TEXSAMP1_CUBEMAP_INTERFACE_FILTERING_AUTO_SPAN_SEAM
    samplers = [sampler(2, mag, mag, cubemap_interface_filtering=seamless) for mag in (1, 2)]
    found = f32(texels("sm_86", texts, registers, [data], [head], samplers))
    wanted = cube_value(directions / np.linalg.norm(directions, axis=0))
    assert np.abs(found[16] - wanted).max() < 1.2
    # The mean of neighbours is much nearer, also where they are on two faces.
    assert np.abs(found[17] - wanted).max() < 0.15


# what is wrong --------------------------------------------------------------------------------------------------------


def refused(head, handle=0, text="TLD.B.LZ R18, R16, R8, R12, 1D", samplers=(), **rows):
    tables, said = pools(1, [head], samplers)
    program = Program("sm_86")
    program.begin()
    program.add(text)
    program.end()
    program.run(
        Interpreter("sm_86", strict=False),
        given(R12=np.uint32(handle), **rows),
        [np.zeros(64, np.uint8), *tables],
        **said,
    )


def test_a_header_beyond_the_table_or_without_a_meaning_is_named():
    fine = header(0, "BUFFER", (4,), R32, FLOATS)
    refused(fine)
    with pytest.raises(GuestError, match="texture header 1 is beyond the last one, 0"):
        refused(fine, 1)
    with pytest.raises(GuestError, match=r"texture header 0, 0x\w+: a component has no data type"):
        refused(header(0, "BUFFER", (4,), R32, (0, 0, 0, 0)))
    with pytest.raises(GuestError, match=r"a float of 8 bits"):
        refused(header(0, "BUFFER", (4,), R8, FLOATS))
    with pytest.raises(GuestError, match=r"sampler 0, 0x\w+: a sampler without filters"):
        refused(header(0, "2D", (4, 4), R32, FLOATS), text="TEX.B.LZ R18, R16, R8, R12, 2D", samplers=[0])


def test_nothing_is_found_without_a_header():
    found = texels(
        "sm_86", ["TLD.B.LZ R18, R16, R8, R12, 1D"], given(R16=5, R17=5, R18=5, R19=5), [np.zeros(64, np.uint8)], [0]
    )
    assert not found[16:20].any()
