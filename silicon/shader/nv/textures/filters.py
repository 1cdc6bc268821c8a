"""What a texture unit makes of coordinates: levels of detail, faces of cubes, the nearest texel, means, comparisons.

Sources: Vulkan 1.3, "Level-of-Detail Operation", "Cube Map Face Selection", "Texel Filtering", "Depth Compare
Operation", which NVIDIA's chips implement; `common/sampling.py`. GUESS: a level of detail has eight bits below the
point, as mipmapPrecisionBits of Mesa's NVK says; the means of two levels are rounded before they are blended; where
three faces meet, the missing texel is the mean of the other three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringup.autogen.nv import textures as facts
from ringup.errors import Unmodelled
from ringup.silicon.shader.common.sampling import between, taps
from ringup.silicon.shader.common.texels import F32_ONE, component_to_register, linear_of
from ringup.silicon.shader.nv.textures.headers import FACES, FIRST_SOURCE, ONE_FLOAT, ONE_INT, ZERO, Sampler, Texture
from ringup.silicon.shader.nv.textures.places import addresses, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ringup.silicon.shader.common.sampling import Floats, Indices, Lanes

    Words = NDArray[np.uint32]
    # Loads bytes of global memory.
    Load = Callable[[int, int], bytes]

LOD_STEPS = 256
_CONSTANTS = {ZERO: 0, ONE_INT: 1, ONE_FLOAT: F32_ONE}
# TEXSAMP0_DEPTH_COMPARE_FUNC: what the reference must be to the texel
_COMPARE: dict[int, Callable[[Floats, Floats], Lanes]] = {
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_NEVER: lambda one, other: np.zeros(one.size, np.bool_),
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_LESS: np.less, facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_EQUAL: np.equal,
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_LEQUAL: np.less_equal, facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_GREATER: np.greater,
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_NOTEQUAL: np.not_equal,
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_GEQUAL: np.greater_equal,
    facts.TEXSAMP0_DEPTH_COMPARE_FUNC_ZC_ALWAYS: lambda one, other: np.ones(one.size, np.bool_),
}  # fmt: skip
_SEAMLESS = (
    facts.TEXSAMP1_CUBEMAP_INTERFACE_FILTERING_AUTO_SPAN_SEAM,
    facts.TEXSAMP1_CUBEMAP_INTERFACE_FILTERING_AUTO_CROSS_SEAM,
)
# By face: the axis that a direction mostly points along, and the axes of s and t, each with its sign.
_FACES = (
    ((0, 1), (2, -1), (1, -1)), ((0, -1), (2, 1), (1, -1)), ((1, 1), (0, 1), (2, 1)), ((1, -1), (0, 1), (2, -1)),
    ((2, 1), (0, 1), (1, -1)), ((2, -1), (0, -1), (1, -1)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """What lanes ask of a texture. `places` are coordinates, `offsets` are in texels, `reference` is compared with."""

    texture: Texture
    sampler: Sampler
    load: Load
    places: Sequence[Floats]
    layers: Indices
    offsets: Sequence[Indices]
    reference: Floats | None
    lanes: Lanes


def read(texture: Texture, load: Load, level: int, indices: Sequence[Indices], some: Lanes, *, is_srgb: bool) -> Words:
    """Return R, G, B and A `(component, lane)` of texels at x, y, z and layer; zero in other lanes."""
    at = addresses(texture, level, *(np.where(some, one, 0) for one in indices))
    found = np.zeros((4, some.size), np.uint32)
    known: dict[int, list[int]] = {}
    for lane in np.flatnonzero(some):
        address = int(at[lane])
        if address not in known:
            texel = int.from_bytes(load(address, texture.format.size_bytes), "little")
            known[address] = texture.format.unpack(texel, is_srgb=is_srgb)
        found[:, lane] = known[address]
    return found


def arranged(texture: Texture, found: Words, is_border: Lanes | None = None) -> Words:
    """Return the four results from R, G, B and A.

    GUESS: a border's components are the results where these are no constants, since NVK swizzles borders itself.
    """
    results = []
    for number, source in enumerate(texture.sources):
        if source in _CONSTANTS:
            results.append(np.full(found.shape[1], _CONSTANTS[source], np.uint32))
        elif is_border is None:
            results.append(found[source - FIRST_SOURCE])
        else:
            results.append(np.where(is_border, found[number], found[source - FIRST_SOURCE]))
    return np.stack(results)


# levels of detail -----------------------------------------------------------------------------------------------------


def lod_of(texture: Texture, along_x: Sequence[Floats], along_y: Sequence[Floats], *, is_scaled: bool) -> Floats:
    """Return the level of detail for the derivatives of coordinates: log2 of the longer one in texels."""
    sizes = size_of(texture, texture.first_level)
    squares = []
    for derivative in (along_x, along_y):
        parts = [one * (sizes[axis] if is_scaled else 1) for axis, one in enumerate(derivative)]
        squares.append(np.sum([part * part for part in parts], axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        longest: Floats = 0.5 * np.log2(np.maximum(squares[0], squares[1]))
    return longest


def clamped_lod(texture: Texture, how: Sampler, lod: Floats, least: Floats | float = 0.0) -> Floats:
    """Return the level of detail from the view's first level on, with the bias and bounds of the sampler."""
    lod = np.nan_to_num(lod + how.bias, posinf=1e3, neginf=-1e3)
    lod = np.clip(lod, how.min_lod, max(how.max_lod, how.min_lod))
    rounded: Floats = np.floor(np.maximum(np.maximum(lod, texture.min_lod), least) * LOD_STEPS + 0.5) / LOD_STEPS
    return rounded


def _levels(texture: Texture, how: Sampler, lod: Floats) -> tuple[Indices, Indices, Floats]:
    """Return the two levels, and the weight of the second one."""
    last = texture.last_level - texture.first_level
    first = np.zeros(lod.size, np.int64)
    part = np.zeros(lod.size)
    if how.mip == facts.TEXSAMP1_MIP_FILTER_MIP_POINT:
        first = np.clip(np.ceil(lod + 0.5) - 1, 0, last).astype(np.int64)
    elif how.mip == facts.TEXSAMP1_MIP_FILTER_MIP_LINEAR:
        bounded = np.clip(lod, 0, last)
        first = np.floor(bounded).astype(np.int64)
        part = bounded - first
    first += texture.first_level
    return first, np.minimum(first + 1, texture.last_level), part


def sampled(query: Query, lod: Floats) -> Words:
    """Return the four results at a level of detail that `clamped_lod` has made."""
    texture, how = query.texture, query.sampler
    linear = facts.TEXSAMP1_MAG_FILTER_MAG_LINEAR
    is_linear = np.where(lod <= 0, how.mag == linear, how.min >= facts.TEXSAMP1_MIN_FILTER_MIN_LINEAR)
    if texture.format.is_integer and is_linear[query.lanes].any():
        raise Unmodelled("means of integers")
    first, second, part = _levels(texture, how, lod)
    found = _of_levels(query, first, query.lanes, is_linear)
    blends = query.lanes & (part > 0)
    if blends.any():
        if texture.format.is_integer:
            raise Unmodelled("means of integers")
        other = _of_levels(query, second, blends, is_linear).view(np.float32).astype(np.float64)
        values = found.view(np.float32).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            mean = (values * (1 - part) + other * part).astype(np.float32).view(np.uint32)
        found = np.where(blends, mean, found)
    return found


def _of_levels(query: Query, levels: Indices, lanes: Lanes, is_linear: Lanes) -> Words:
    found = np.zeros((4, lanes.size), np.uint32)
    for level in np.unique(levels[lanes]):
        some = lanes & (levels == level)
        found = np.where(some, _of_level(query, int(level), some, is_linear), found)
    return found


# texels of one level --------------------------------------------------------------------------------------------------


def _of_level(query: Query, level: int, lanes: Lanes, is_linear: Lanes) -> Words:
    """Return the mean of the texels around a place, or the least or greatest of them."""
    reduction = query.sampler.reduction
    nearest = np.zeros((4, lanes.size), np.uint32)
    total = np.zeros((4, lanes.size))
    exact = np.ones(lanes.size, np.bool_)
    seen = np.zeros(lanes.size, np.bool_)
    for number, (weight, results) in enumerate(_results(query, level, lanes, is_linear, every=False)):
        if not number:
            nearest = results
        exact &= (weight == 1) if not number else (weight == 0)
        if query.texture.format.is_integer:
            continue
        some, values = lanes & (weight > 0), results.view(np.float32).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            if reduction == facts.TEXSAMP1_REDUCTION_FILTER_RED_NONE:
                total += np.where(some, weight * np.where(some, values, 0), 0)
            else:
                least = reduction == facts.TEXSAMP1_REDUCTION_FILTER_RED_MINIMUM
                both = np.minimum(total, values) if least else np.maximum(total, values)
                total = np.where(some, np.where(seen, both, values), total)
        seen |= some
    with np.errstate(over="ignore"):
        mean = total.astype(np.float32).view(np.uint32)
    return np.where(exact, nearest, mean)


def gathered(query: Query, component: int) -> Words:
    """Return one component of the four texels around a place: left below, right below, right above, left above."""
    every = np.ones(query.lanes.size, np.bool_)
    corners = _results(query, query.texture.first_level, query.lanes, every, every=True)
    above_left, below_left, above_right, below_right = (results[component] for _, results in corners)
    return np.stack([below_left, below_right, above_right, above_left])


def _results(
    query: Query, level: int, lanes: Lanes, is_linear: Lanes, *, every: bool
) -> Iterator[tuple[Floats, Words]]:
    """Yield the texels of a mean, x outside and y inside, each with its weight; those without one only with `every`."""
    texture, how = query.texture, query.sampler
    sizes, places, layers = size_of(texture, level), query.places, query.layers
    if texture.has_faces:
        face, *places = _face(*query.places)
        layers = layers * FACES + face
    is_scaled = texture.is_normalized and not how.is_unnormalized
    firsts, parts = [], []
    for axis, place in enumerate(places):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = place * sizes[axis] if is_scaled else place
        first, part = between(scaled, is_linear)
        firsts.append(first + query.offsets[axis] if axis < len(query.offsets) else first)
        parts.append(part)
    if texture.has_faces and how.cube_edges in _SEAMLESS:
        yield from _across_edges(query, level, layers, firsts, parts, lanes)
        return
    nothing = np.zeros(lanes.size, np.int64)
    for weight, indices, is_border in taps(firsts, parts, how.wraps, sizes):
        x, y, z = (*indices, nothing, nothing)[:3]
        some = lanes if every else lanes & (weight > 0)
        yield weight, _texels(query, level, (x, y, z, layers), some, is_border)


def _texels(query: Query, level: int, indices: Sequence[Indices], some: Lanes, is_border: Lanes) -> Words:
    texture, how = query.texture, query.sampler
    is_srgb = texture.is_srgb and how.is_srgb
    found = read(texture, query.load, level, indices, some & ~is_border, is_srgb=is_srgb)
    if is_border.any():
        border = list(how.border)
        if is_srgb:
            border[:3] = (linear_of(component_to_register(one, 8, "unorm")) for one in how.srgb_border)
        found = np.where(is_border, np.array(border, np.uint32)[:, None], found)
    if query.reference is not None:
        found = found.copy()
        depth = found[0].view(np.float32).astype(np.float64)
        reference = np.clip(query.reference, 0, 1) if texture.format.is_normalized else query.reference
        found[0] = np.where(_COMPARE[how.compare](reference, depth), F32_ONE, 0)
        return arranged(texture, found)
    return arranged(texture, found, is_border)


# cubes ----------------------------------------------------------------------------------------------------------------


def _face(x: Floats, y: Floats, z: Floats) -> tuple[Indices, Floats, Floats]:
    """Return the face that a direction meets, and where, from 0 to 1. Of equal axes z counts most, then y."""
    axes = np.nan_to_num(np.stack([x, y, z]), posinf=1e30, neginf=-1e30)
    sizes = np.abs(axes)
    axis = np.where((sizes[2] >= sizes[0]) & (sizes[2] >= sizes[1]), 2, np.where(sizes[1] >= sizes[0], 1, 0))
    lanes = np.arange(x.size)
    face = 2 * axis + (axes[axis, lanes] < 0)
    along = sizes[axis, lanes]
    across = []
    for number in (1, 2):
        which = np.array([one[number][0] for one in _FACES])[face]
        sign = np.array([one[number][1] for one in _FACES])[face]
        with np.errstate(divide="ignore", invalid="ignore"):
            across.append(np.nan_to_num(0.5 * (sign * axes[which, lanes] / along + 1), nan=0.5))
    return face, across[0], across[1]


def _direction(face: Indices, s: Floats, t: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the direction of a place of a face; s and t may be beyond 0 to 1."""
    axes = np.zeros((3, face.size))
    lanes = np.arange(face.size)
    for number, value in enumerate((np.ones(face.size), 2 * s - 1, 2 * t - 1)):
        which = np.array([one[number][0] for one in _FACES])[face]
        sign = np.array([one[number][1] for one in _FACES])[face]
        axes[which, lanes] = sign * value
    return axes[0], axes[1], axes[2]


def _across_edges(
    query: Query, level: int, layers: Indices, firsts: Sequence[Indices], parts: Sequence[Floats], lanes: Lanes
) -> Iterator[tuple[Floats, Words]]:
    """Yield the texels of a mean, of which some may be on the next face."""
    size = size_of(query.texture, level)[0]
    nothing, nowhere = np.zeros(lanes.size, np.int64), np.zeros(lanes.size, np.bool_)
    found: list[tuple[Floats, Words, Lanes]] = []
    for high_x, high_y in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = firsts[0] + high_x, firsts[1] + high_y
        beyond_x, beyond_y = ((one < 0) | (one >= size) for one in (x, y))
        weight = (parts[0] if high_x else 1 - parts[0]) * (parts[1] if high_y else 1 - parts[1])
        moved, s, t = _face(*_direction(layers % FACES, (x + 0.5) / size, (y + 0.5) / size))
        is_outside = beyond_x ^ beyond_y
        layer = np.where(is_outside, layers // FACES * FACES + moved, layers)
        x = np.where(is_outside, np.clip(np.floor(s * size), 0, size - 1).astype(np.int64), x)
        y = np.where(is_outside, np.clip(np.floor(t * size), 0, size - 1).astype(np.int64), y)
        is_corner = beyond_x & beyond_y
        texels = _texels(query, level, (x, y, nothing, layer), lanes & ~is_corner, nowhere)
        found.append((weight, texels, is_corner))
    values = np.stack([texels.view(np.float32).astype(np.float64) for _, texels, _ in found])
    for weight, texels, is_corner in found:
        if not is_corner.any():
            yield weight, texels
            continue
        corners = np.stack([corner for _, _, corner in found])
        mean = np.where(corners[:, None], 0, values).sum(axis=0) / np.maximum((~corners).sum(axis=0), 1)
        yield weight, np.where(is_corner, mean.astype(np.float32).view(np.uint32), texels)
