"""Storage images, sampled images and texel buffers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from vulkan.case import Array, Case, Image, Shader, draws, equal, near, some_words

# VkImageViewType
VIEW_1D, VIEW_2D, VIEW_3D, VIEW_CUBE, VIEW_1D_ARRAY, VIEW_2D_ARRAY, VIEW_CUBE_ARRAY = range(7)
# VkFormat
R8G8B8A8_UNORM, R8G8B8A8_SNORM, R8G8B8A8_UINT, R8G8B8A8_SRGB, A2B10G10R10_UNORM = 37, 38, 41, 43, 64
R16G16_SFLOAT, R16G16B16A16_SINT, R32_UINT, R32_SINT, R32_SFLOAT = 83, 96, 98, 99, 100
# VkFilter, and VkSamplerMipmapMode
NEAREST, LINEAR = range(2)
# VkSamplerAddressMode
REPEAT, MIRRORED, EDGE, BORDER, MIRROR_ONCE = range(5)
# VkBorderColor
TRANSPARENT, OPAQUE_WHITE = 0, 4


def surface() -> Case:
    width, height, across, down = 37, 29, 40, 32
    image = some_words("surface", width * height).reshape(height, width)
    y, x = np.mgrid[:down, :across]
    there = (x < width) & (y < height)
    texel = np.where(there, image[np.minimum(y, height - 1), np.minimum(x, width - 1)], 0).astype("u4")
    counts = np.zeros((4, 6), "u4")
    for row in range(4):
        for column in range(4):
            counts[row, column] = (texel[row::4, column::4] & 255).sum()
        counts[row, 4] = texel[row::4].max()
    counts[0, 5] = 77
    answers = {
        0: ("u4", equal(image * np.uint32(3) + np.uint32(1))),
        1: ("u4", equal(texel ^ np.uint32(width + 1000 * height))), 2: ("u4", equal(counts)),
    }  # fmt: skip
    images = {0: Image(VIEW_2D, R32_UINT, (width, height, 1)), 2: Image(VIEW_2D, R32_UINT, (6, 4, 1))}
    return Case([image, across * down * 4, 96], answers, ("groups=5,4,1",), images=images)


@dataclass(frozen=True)
class Sampled:
    """A texture of `sampling`, and its sampler."""

    format: int
    mag: int
    min: int
    mip: int
    wrap: int
    border: int = TRANSPARENT


SAMPLED = (
    Sampled(R32_SFLOAT, NEAREST, NEAREST, NEAREST, REPEAT), Sampled(R8G8B8A8_UNORM, LINEAR, LINEAR, LINEAR, MIRRORED),
    Sampled(R16G16_SFLOAT, LINEAR, LINEAR, NEAREST, EDGE),
    Sampled(A2B10G10R10_UNORM, LINEAR, LINEAR, NEAREST, BORDER, OPAQUE_WHITE),
    Sampled(R8G8B8A8_SNORM, NEAREST, LINEAR, NEAREST, BORDER), Sampled(R8G8B8A8_SRGB, NEAREST, LINEAR, LINEAR, MIRROR_ONCE),
)  # fmt: skip


def _colours(kind: int, texels: Array) -> Array:
    """Return R, G, B and A of texels, as Vulkan 1.3, "Format Conversion", has them."""
    count = texels.size
    found = np.tile(np.array([0.0, 0.0, 0.0, 1.0]), (count, 1))
    if kind == R32_SFLOAT:
        found[:, 0] = texels
    elif kind == R16G16_SFLOAT:
        found[:, :2] = texels.view("f2").reshape(count, 2)
    elif kind == A2B10G10R10_UNORM:
        for at, most in enumerate((1023, 1023, 1023, 3)):
            found[:, at] = (texels >> np.uint32(10 * at) & np.uint32(most)) / most
    elif kind == R8G8B8A8_SNORM:
        found[:] = np.maximum(texels.view("i1").reshape(count, 4) / 127, -1)
    else:
        found[:] = texels.view("u1").reshape(count, 4) / 255
    if kind == R8G8B8A8_SRGB:
        low, high = found[:, :3] / 12.92, ((found[:, :3] + 0.055) / 1.055) ** 2.4
        found[:, :3] = np.where(found[:, :3] <= 0.04045, low, high)
    return found


def _wrapped(wrap: int, at: int, size: int) -> int | None:
    """Return a texel's index along an axis, None for the border: Vulkan 1.3, "Wrapping Operation"."""
    if wrap == REPEAT:
        return at % size
    if wrap == MIRRORED:
        turned = at % (2 * size) - size
        return size - 1 - (turned if turned >= 0 else -(1 + turned))
    if wrap == BORDER:
        return at if 0 <= at < size else None
    if wrap == MIRROR_ONCE:
        at = at if at >= 0 else -(1 + at)
    return min(max(at, 0), size - 1)


def _of_level(how: Sampled, level: Array, is_linear: bool, place: Array) -> Array:
    axes: list[list[tuple[int, float]]] = []
    for coordinate, size in zip(place, (level.shape[1], level.shape[0]), strict=True):
        at = float(coordinate) * size
        first = int(np.floor(at - 0.5))
        part = at - 0.5 - first
        axes.append([(first, 1 - part), (first + 1, part)] if is_linear else [(int(np.floor(at)), 1.0)])
    total = np.zeros(4)
    for (x, across), (y, down) in itertools.product(*axes):
        column, row = _wrapped(how.wrap, x, level.shape[1]), _wrapped(how.wrap, y, level.shape[0])
        border = np.full(4, 1.0 if how.border == OPAQUE_WHITE else 0.0)
        total += across * down * (border if column is None or row is None else level[row, column])
    return total


def _expected(how: Sampled, levels: list[Array], place: Array) -> Array:
    """Return what Vulkan 1.3, "Image Operations Steps", makes of a place and its level of detail."""
    lod = min(max(float(place[2]), 0.0), len(levels) - 1.0)
    is_linear = (how.mag if place[2] <= 0 else how.min) == LINEAR
    if how.mip == NEAREST:
        return _of_level(how, levels[int(np.ceil(lod + 0.5)) - 1], is_linear, place[:2])
    low = int(lod)
    high, part = min(low + 1, len(levels) - 1), lod - low
    first, second = (_of_level(how, levels[one], is_linear, place[:2]) for one in (low, high))
    mean: Array = first * (1 - part) + second * part
    return mean


def sampling() -> Case:
    """Weights of texels and levels are multiples of 1/256, so that they are exact."""
    draw, count, sizes = draws("sampling"), 64, ((16, 8), (8, 4), (4, 2))
    places = np.zeros((count, 4), "f4")
    for axis, size in enumerate(sizes[0]):
        places[:, axis] = (2 * draw.integers(-64 * size, 96 * size, count) + 1) / (64 * size)
    places[:, 2] = (2 * draw.integers(-8, 24, count) + 1) / 16
    inputs, images, wanted = [], {}, []
    for number, how in enumerate(SAMPLED):
        texels: Array = draw.integers(0, 1 << 32, sum(x * y for x, y in sizes), dtype=np.uint32)
        if how.format == R32_SFLOAT:
            texels = draw.uniform(-1, 1, texels.size).astype("f4")
        elif how.format == R16G16_SFLOAT:
            texels = draw.uniform(-1, 1, 2 * texels.size).astype("f2").view("u4")
        inputs.append(texels)
        sampler = (how.mag, how.min, how.mip, how.wrap, how.border, 0)
        images[2 + number] = Image(VIEW_2D, how.format, (*sizes[0], 1), levels=len(sizes), sampling=sampler)
        parts = np.split(_colours(how.format, texels), np.cumsum([x * y for x, y in sizes])[:-1])
        levels = [part.reshape(y, x, 4) for part, (x, y) in zip(parts, sizes, strict=True)]
        wanted += [_expected(how, levels, place) for place in places]
    answers = {1: ("f4", near(wanted, 1e-6, 1e-6))}
    return Case([places, 16 * count * len(SAMPLED), *inputs], answers, images=images)


def _levels(draw: np.random.Generator, *shapes: tuple[int, ...]) -> list[Array]:
    """Return levels of random texels; the axes are layers or z, y, x."""
    return [draw.integers(0, 1 << 32, shape, dtype=np.uint32) for shape in shapes]


def fetching() -> Case:
    draw, count = draws("fetching"), 64
    line, lines = _levels(draw, (37,), (18,)), _levels(draw, (3, 21))
    sheets, block = _levels(draw, (4, 12, 20), (4, 6, 10)), _levels(draw, (5, 7, 9), (2, 3, 4))
    cube, (sheet,) = _levels(draw, (6, 4, 4)), _levels(draw, (8, 8))
    words = draw.integers(0, 1 << 32, 100, dtype=np.uint32)
    bytes_of = sheet.view("u1").reshape(8, 8, 4).astype("u4")
    wanted = np.zeros((count, 16), "u4")
    for i in range(count):
        to = np.array([1.0 if i % 3 == at else other for at, other in enumerate((0.25, 0.375, -0.625))])
        x, y = i % 8, i // 8
        green = [bytes_of[row % 8, column % 8, 1] for column, row in ((x - 1, y), (x, y), (x, y - 1), (x - 1, y - 1))]
        word = words[i : i + 1].view("u1").astype(int)
        halves = i & 1
        wanted[i] = [
            line[1][i % 18], lines[0][i % 3, i % 21], sheets[1][i % 4, i % 6, i % 10], block[0][i % 5, i % 7, i % 9],
            block[1][i % 2, i % 3, i % 4], _on_cube(cube[0], -to if i & 4 else to),
            sum(int(one) << 8 * at for at, one in enumerate(green)), sheet[y, x], word @ [1, 3, 5, 7],
            (18 if halves else 37) + 200, 21 + 300, (10 + 600 if halves else 20 + 1200) + 40000,
            4 + 300 + 20000 if halves else 9 + 700 + 50000, 4 + 400, 100, block[0][i % 5, i % 7, i % 9],
        ]  # fmt: skip
    shapes = (
        (VIEW_1D, (37, 1, 1), 1, line), (VIEW_1D_ARRAY, (21, 1, 1), 3, lines), (VIEW_2D_ARRAY, (20, 12, 1), 4, sheets),
        (VIEW_3D, (9, 7, 5), 1, block), (VIEW_CUBE, (4, 4, 1), 6, cube), (VIEW_2D, (8, 8, 1), 1, [sheet]),
    )  # fmt: skip
    images: dict[int, Image | str] = {
        at + 1: Image(
            view, R8G8B8A8_UINT if at == 5 else R32_UINT, size, layers, len(levels), sampling=(NEAREST,) * 3 + (REPEAT, 0, 0)
        )
        for at, (view, size, layers, levels) in enumerate(shapes)
    }  # fmt: skip
    images[7] = f"texels=1,{R8G8B8A8_UINT}"
    data = [np.concatenate([level.ravel() for level in levels]) for *_, levels in shapes]
    return Case([64 * count, *data, words], {0: ("u4", equal(wanted))}, images=images)


def _on_cube(faces: Array, to: Array) -> int:
    """Return the texel that a direction meets: Vulkan 1.3, "Cube Map Face Selection"."""
    x, y, z = to
    axis = int(np.argmax(np.abs(to)))
    across = ((-z, -y), (z, -y)), ((x, z), (x, -z)), ((x, -y), (-x, -y))
    s, t = across[axis][int(to[axis] < 0)]
    size = faces.shape[1]
    column, row = (int(size * (one / abs(to[axis]) + 1) / 2) for one in (s, t))
    return int(faces[2 * axis + int(to[axis] < 0), row, column])


def painting() -> Case:
    draw, i = draws("painting"), np.arange(64)
    x, y = i % 13, i // 13
    flat = [draw.integers(0, 1 << 32, (5, 13), dtype=np.uint32) for _ in range(4)]
    sheets = draw.integers(-32768, 32768, (2, 5, 13, 4)).astype("i2")
    block = draw.integers(0, 1 << 16, (5, 2, 3), dtype=np.uint32)
    line = np.array([5, -70, 0, -61], "i4")
    after = [one.copy() for one in flat]
    after[0][y, x] = i | i * 3 % 255 << 8 | i * 7 % 255 << 16 | 255 - i << 24
    after[1][y, x] = np.stack([(i + 1) * 0.5, (i + 1) * -0.25]).T.astype("f2").copy().view("u4")[:, 0]
    after[2][y, x] = np.stack([i, -i, i * 0 + 127, i * 0 - 127]).T.astype("i1").copy().view("u4")[:, 0]
    after[3][y, x] = i * 4 | i * 5 << 10 | 1023 << 20 | i % 4 << 30
    sheets_after, block_after, line_after = sheets.copy(), block.copy(), line.copy()
    sheets_after[i % 2, y, x] = np.stack([i, -i, i * 100, -i * 100]).T
    np.add.at(block_after, (i % 5, i % 2, i % 3), i.astype("u4"))
    np.minimum.at(line_after, i % 4, -i)
    words = np.zeros(72, "u4")
    np.bitwise_or.at(words, i % 8, np.uint32(1) << (i // 8).astype("u4"))
    words[8:] = i + 1
    answers = {
        0: ("u4", equal(after[0])), 1: ("u4", equal(after[1])), 2: ("u4", equal(after[2])), 3: ("i2", equal(sheets_after)),
        4: ("u4", equal(block_after)), 5: ("i4", equal(line_after)), 6: ("u4", equal(words)), 7: ("u4", equal(after[3])),
        8: ("i4", equal((-i * 100).astype("i4"))),
    }  # fmt: skip
    sheet = (13, 5, 1)
    images: dict[int, Image | str] = {
        0: Image(VIEW_2D, R8G8B8A8_UNORM, sheet), 1: Image(VIEW_2D, R16G16_SFLOAT, sheet),
        2: Image(VIEW_2D, R8G8B8A8_SNORM, sheet), 3: Image(VIEW_2D_ARRAY, R16G16B16A16_SINT, sheet, 2),
        4: Image(VIEW_3D, R32_UINT, (3, 2, 5)), 5: Image(VIEW_1D, R32_SINT, (4, 1, 1)), 6: f"texels=0,{R32_UINT}",
        7: Image(VIEW_2D, A2B10G10R10_UNORM, sheet),
    }  # fmt: skip
    return Case([*flat[:3], sheets, block, line, 288, flat[3], 256], answers, images=images)


ROWS = (
    Shader("surface", "a storage image: loads, stores, atomics, places outside", surface),
    Shader("sampling", "filters, wraps, borders, levels of detail, six formats", sampling),
    Shader("fetching", "texels of images of every shape, of a cube and of a buffer; sizes; gathers", fetching),
    Shader("painting", "storage images of eight formats and shapes, atomics in them", painting),
)
