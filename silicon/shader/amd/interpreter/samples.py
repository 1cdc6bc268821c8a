"""RDNA4's images with a sampler: one level of detail, by the nearest texel or a weighted mean of neighbours.

These are the instructions that compute shaders have, `image_sample_lz` and `image_sample_l`. Source: RDNA4 ISA
reference, "Image Opcodes with a Sampler", "Image Sampler"; `common/sampling.py`. GUESS: slices are rounded to nearest.
Derivatives, comparisons, offsets, cubes, anisotropy and borders in a register are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.images import ADDRESS_FIELDS, COORDINATES
from ringup.silicon.shader.amd.interpreter.buffer import deliver_components
from ringup.silicon.shader.amd.interpreter.formats import FORMATS, INVALID, BufferFormat, to_d16, unpack
from ringup.silicon.shader.amd.interpreter.images import BLOCKS, LINEAR, TYPE_1D, Resource, resource, texel_offsets
from ringup.silicon.shader.amd.interpreter.spaces import GlobalSpace, byte_addresses
from ringup.silicon.shader.common.sampling import Wrap, between, taps
from ringup.silicon.shader.common.texels import F32_ONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.interpreter.step import Addresses, Lanes, Step

    Floats = NDArray[np.float64]

BY_LOD, AT_ZERO = "image_sample_l", "image_sample_lz"
# By DIM: how many coordinates are places, of those before a slice.
_AXES = {0: 1, 1: 2, 2: 3, 4: 1, 5: 2}
POINT, BILINEAR = 0, 1
Z_POINT, Z_LINEAR = 1, 2
_WRAPS = {0: Wrap.REPEAT, 1: Wrap.MIRROR, 2: Wrap.CLAMP, 6: Wrap.BORDER}
CLAMP_BORDER = 6
# By type: the components of a border.
_BORDERS = {0: (0, 0, 0, 0), 1: (0, 0, 0, F32_ONE), 2: (F32_ONE,) * 4}
SELECT_R, SELECT_ONE = 4, 1


class Sampler(NamedTuple):
    """A sampler descriptor (S#). Levels of detail are in texels of the view."""

    clamps: tuple[int, int, int]
    is_unnormalized: bool
    blends: bool
    min_lod: float
    max_lod: float
    bias: float
    mag: int
    min: int
    z: int
    border: int


def sampler(words: int) -> Sampler:
    """Unpack the 128 bits of a descriptor. Source: "Image Sampler Definition"."""

    def bits(high: int, low: int) -> int:
        return words >> low & (1 << high - low + 1) - 1

    bias = bits(77, 64)
    return Sampler(
        (bits(2, 0), bits(5, 3), bits(8, 6)), bool(bits(15, 15)), bits(30, 29) == 0, bits(44, 32) / 256, bits(57, 45) / 256,
        (bias - (bias >> 13 << 14)) / 256, bits(85, 84), bits(87, 86), bits(89, 88), bits(127, 126),
    )  # fmt: skip


def image_samples(step: Step) -> None:
    """Execute a VSAMPLE instruction."""
    mnemonic, dim = step.ins.mnemonic, step.field["dim"]
    if mnemonic not in (BY_LOD, AT_ZERO) or dim not in _AXES:
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: samples by derivatives, of neighbours, compared, or of cubes")
    image = resource(step.regs.scalar(step.field["rsrc"], 4 if step.field["r128"] else 8))
    how, lanes = sampler(step.regs.scalar(step.field["samp"], 4)), step.regs.exec_lanes()
    fmt = FORMATS.get(image.format)
    is_bound = image.format != INVALID and image.type >= TYPE_1D
    if is_bound and (fmt is None or image.max_mip or image.mode not in (LINEAR, *BLOCKS)):
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: format {image.format}, mip levels or swizzle {image.mode}")
    given = _coordinates(step, lanes)
    bits = np.zeros((4, lanes.size), np.uint32)
    if fmt is not None and is_bound and lanes.any():
        _check(step, how, fmt)
        bits = _sampled(step, image, how, fmt, given, lanes)
    words = []
    for at in range(4):
        if (step.field["dmask"] or 1) >> at & 1:
            select = image.selects[at]
            one = 1 if fmt is not None and fmt.is_integer else F32_ONE
            constant = np.full(lanes.size, one if select == SELECT_ONE else 0, np.uint32)
            words.append(bits[select - SELECT_R] if select >= SELECT_R else constant)
    found = np.stack(words) * np.uint32(bool(step.field["dmask"]))
    is_d16 = bool(step.field["d16"])
    if is_d16:
        shaped = fmt or FORMATS[1]
        found = np.array([[to_d16(shaped, int(one)) for one in row] for row in found], np.uint32)
    deliver_components(
        step, step.field["vdata"], found, len(words), lanes, is_d16=is_d16, is_high=False, order=step.orders.samples
    )


def _check(step: Step, how: Sampler, fmt: BufferFormat) -> None:
    axes = _AXES[step.field["dim"]]
    filters = {how.mag, how.min}
    if not _WRAPS.keys() >= set(how.clamps[:axes]) or filters - {POINT, BILINEAR} or not how.blends:
        raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x}: clamps {how.clamps}, filters {filters}")
    if CLAMP_BORDER in how.clamps[:axes] and how.border not in _BORDERS:
        raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x}: a border in a register")
    if fmt.is_integer and BILINEAR in filters:
        raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x}: means of integers")


def _coordinates(step: Step, lanes: Lanes) -> list[Floats]:
    names, found = ADDRESS_FIELDS["VSAMPLE"], []
    for at in range(COORDINATES[step.field["dim"]] + (step.ins.mnemonic == BY_LOD)):
        number = at // 2 if step.field["a16"] else at
        word = step.regs.vector(step.field[names[number]], lanes)
        if step.field["a16"]:
            half = (word >> np.uint32(16 * (at % 2))).astype(np.uint16)
            found.append(half.view(np.float16).astype(np.float64))
        else:
            found.append(word.view(np.float32).astype(np.float64))
    return found


def _sampled(
    step: Step, image: Resource, how: Sampler, fmt: BufferFormat, given: list[Floats], lanes: Lanes
) -> NDArray[np.uint32]:
    """Return the four components (components, lanes), as registers."""
    axes, nothing = _AXES[step.field["dim"]], np.zeros(lanes.size, np.int64)
    lod = np.zeros(lanes.size)
    if step.ins.mnemonic == BY_LOD:
        lod = np.clip(np.nan_to_num(given[-1]) + how.bias, how.min_lod, how.max_lod)
    is_mean = np.where(lod > 0, how.min, how.mag) == BILINEAR
    has_slices = COORDINATES[step.field["dim"]] > axes
    depth = image.last_slice - image.first_slice + 1
    sizes = (image.width, image.height, depth)
    slices = (
        np.clip(np.floor(np.nan_to_num(given[axes]) + 0.5), 0, depth - 1).astype(np.int64) if has_slices else nothing
    )
    firsts, parts = [], []
    for axis in range(axes):
        place = given[axis]
        if not (how.is_unnormalized or step.field["unrm"]):
            place = place * sizes[axis]
        is_linear = is_mean
        if axis == 2 and how.z:
            is_linear = np.full(lanes.size, how.z == Z_LINEAR)
        first, part = between(place, is_linear)
        firsts.append(first)
        parts.append(part)
    sums, nearest = np.zeros((4, lanes.size)), np.zeros((4, lanes.size), np.uint32)
    wraps = [_WRAPS[how.clamps[axis]] for axis in range(axes)]
    for number, (weight, places, is_border) in enumerate(taps(firsts, parts, wraps, sizes)):
        indices = places if axes == 3 else [places[0], places[-1] if axes > 1 else nothing, slices + image.first_slice]
        some = lanes & (weight > 0)
        if not some.any():
            continue
        found = _texels(step, image, how, fmt, indices, some, is_border)
        if not number:
            nearest = found
        if not fmt.is_integer:
            sums += np.where(some, weight, 0) * np.where(some, found.view(np.float32).astype(np.float64), 0)
    mean = sums.astype(np.float32).view(np.uint32)
    exact = np.logical_and.reduce([one == 0 for one in parts])
    return np.where(exact, nearest, mean)


def _texels(
    step: Step,
    image: Resource,
    how: Sampler,
    fmt: BufferFormat,
    indices: list[Addresses],
    some: Lanes,
    is_border: Lanes,
) -> NDArray[np.uint32]:
    inside = some & ~is_border
    at = image.base + texel_offsets(image, fmt.size_bytes, *(np.where(inside, one, 0) for one in indices))
    data, _ = GlobalSpace(step).read(byte_addresses(at, fmt.size_bytes), inside)
    found = np.zeros((4, some.size), np.uint32)
    for lane in np.flatnonzero(some):
        components = _BORDERS[how.border] if is_border[lane] else unpack(fmt, data[lane].tobytes())
        found[: len(components), lane] = components
    return found
