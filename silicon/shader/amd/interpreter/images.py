"""RDNA4's images without a sampler: loads, stores and atomics of texels, and what a resource says of its size.

Source: RDNA4 ISA reference, "Vector Memory Image Instructions"; Mesa gfx12-rsrc.json (fields that the reference lacks);
AMD's addrlib, gfx12SwizzlePattern.h and gfx12addrlib.cpp (where texels lie). Mip levels below the first, multisampled
images, blocks of three dimensions, and formats that buffers lack are refused. Compression is transparent: memory is as
if nothing were compressed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.images import ADDRESS_FIELDS, COORDINATES
from ringup.silicon.shader.amd.interpreter.atomics import operation
from ringup.silicon.shader.amd.interpreter.buffer import (
    arranged,
    components_of,
    deliver_components,
    finish_load,
    loaded,
)
from ringup.silicon.shader.amd.interpreter.formats import FORMATS, INVALID, BufferFormat, pack
from ringup.silicon.shader.amd.interpreter.memory import memory_flush
from ringup.silicon.shader.amd.interpreter.spaces import (
    GlobalSpace,
    Transfer,
    atomic,
    byte_addresses,
    deliver,
    numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringup.silicon.shader.amd.interpreter.step import Addresses, Lanes, Step

# By number: log2 of a block's bytes. 5 to 7 are blocks of three dimensions.
LINEAR, BLOCKS = 0, {1: 8, 2: 12, 3: 16, 4: 18}
# Types of resources, and values of DIM, whose last coordinate is a slice or a face.
TYPE_1D, TYPE_2D, TYPE_3D, TYPE_CUBE, TYPE_1D_ARRAY, TYPE_2D_ARRAY = range(8, 14)
_ONE_SLICE = (TYPE_1D, TYPE_2D)
DIM_1D_ARRAY, MULTISAMPLED = 4, (6, 7)
# By log2 of a texel's bytes: the coordinate of each bit of a place in 256 bytes, from the texel's own bits up. Bits
# above alternate, y first.
_MICRO = ("xxyxyyxy", "xyxyxyx", "xyxyxy", "xyxxy", "xyxy")
# Bytes to which rows of a linear image are aligned, and rows as slices count them.
ROW_BYTES, SLICE_ROW_BYTES = 128, 256
# The names that memory's atomics have.
_OPERATIONS = {
    "swap": "swap_b", "cmpswap": "cmpswap_b", "add_uint": "add_u", "sub_uint": "sub_u", "min_int": "min_i", "min_uint": "min_u",
    "max_int": "max_i", "max_uint": "max_u", "and": "and_b", "or": "or_b", "xor": "xor_b", "inc_uint": "inc_u", "dec_uint": "dec_u",
    "add_flt": "add_f", "min_flt": "min_num_f", "max_flt": "max_num_f",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resource:
    """An image resource descriptor (T#). `last_slice` counts from the first slice of the image."""

    base: int
    format: int
    width: int
    height: int
    pitch: int
    selects: tuple[int, ...]
    mode: int
    type: int
    first_slice: int
    last_slice: int
    first_level: int
    last_level: int
    max_mip: int


def resource(words: int) -> Resource:
    """Unpack the 256 bits of a descriptor, or 128 and zeros.

    Source: "Image Resource Definition"; SW_MODE is in gfx12-rsrc.json only.
    """

    def bits(high: int, low: int) -> int:
        return words >> low & (1 << high - low + 1) - 1

    kind = bits(127, 124)
    has_slices = kind not in _ONE_SLICE
    return Resource(
        bits(39, 0) << 8, bits(56, 49), bits(77, 62) + 1, bits(93, 78) + 1, 0 if has_slices else bits(143, 128) + 1,
        tuple(bits(98 + 3 * at, 96 + 3 * at) for at in range(4)), bits(120, 116), kind,
        bits(157, 144) if has_slices and kind != TYPE_3D else 0, bits(141, 128) if has_slices else 0,
        bits(61, 57), bits(115, 111), bits(48, 44),
    )  # fmt: skip


def _places(log2_bytes: int) -> Iterator[tuple[str, int]]:
    """Yield the coordinate and its bit, for each bit of a place in a block above the texel's own."""
    number = {"x": 0, "y": 0}
    for axis in _MICRO[log2_bytes]:
        yield axis, number[axis]
        number[axis] += 1
    while True:
        for axis in "yx":
            yield axis, number[axis]
            number[axis] += 1


def texel_offsets(image: Resource, size_bytes: int, x: Addresses, y: Addresses, z: Addresses) -> Addresses:
    """Return the byte offsets of texels from the first one of a resource's base, whose low bits change their places."""
    if image.mode == LINEAR:
        row = max(image.pitch, -(-image.width // max(ROW_BYTES // size_bytes, 1)) * max(ROW_BYTES // size_bytes, 1))
        slice_row = -(-row * size_bytes // SLICE_ROW_BYTES) * SLICE_ROW_BYTES
        return x * size_bytes + y * (row * size_bytes) + z * (slice_row * image.height)
    log2_block, log2_bytes = BLOCKS[image.mode], size_bytes.bit_length() - 1
    places = [one for one, _ in zip(_places(log2_bytes), range(log2_block - log2_bytes), strict=False)]
    wide, high = (1 << sum(axis == one for axis, _ in places) for one in "xy")
    inside = np.zeros_like(x)
    for at, (axis, bit) in enumerate(places):
        inside |= ((x if axis == "x" else y) >> bit & 1) << log2_bytes + at
    # The low bits of the base move texels within their blocks.
    inside ^= image.base & (1 << log2_block) - 1
    blocks_wide, blocks_high = -(-max(image.pitch, image.width) // wide), -(-image.height // high)
    block = (z * blocks_high + y // high) * blocks_wide + x // wide
    return (block << log2_block) + inside - (image.base & (1 << log2_block) - 1)


def image_memory(step: Step) -> None:
    """Execute a VIMAGE instruction, without rays."""
    mnemonic = step.ins.mnemonic
    if "bvh" in mnemonic or "pck" in mnemonic or step.field["dim"] in MULTISAMPLED:
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: rays, packed texels and multisampled images")
    words = step.regs.scalar(step.field["rsrc"], 4 if step.field["r128"] else 8)
    image, lanes = resource(words), step.regs.exec_lanes()
    if mnemonic == "image_get_resinfo":
        _size(step, image, lanes)
        return
    fmt = FORMATS.get(image.format)
    if fmt is None and image.format != INVALID:
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: format {image.format}")
    # Without a format, or with a buffer, nothing is accessed.
    is_bound = fmt is not None and image.type >= TYPE_1D
    fmt = fmt if fmt is not None and is_bound else FORMATS[1]
    if is_bound and (image.max_mip or image.mode not in (LINEAR, *BLOCKS)):
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: mip levels, or swizzle mode {image.mode}")
    some, addresses = _texels(step, image, fmt, lanes if is_bound else np.zeros_like(lanes), lanes)
    verb = mnemonic.split("_")[1]
    if verb == "atomic":
        _atomic(step, mnemonic.removeprefix("image_atomic_"), some, addresses, lanes)
        return
    chosen = [at for at in range(4) if (step.field["dmask"] or 1) >> at & 1]
    is_d16 = bool(step.field["d16"])
    at = byte_addresses(addresses, fmt.size_bytes)
    if verb == "load":
        data, _ = GlobalSpace(step).read(at, some)
        selects = tuple(image.selects[one] for one in chosen)
        words_of = loaded(fmt, data, some, selects, len(chosen), is_d16=is_d16) * bool(step.field["dmask"])
        deliver_components(step, step.field["vdata"], words_of, len(chosen), lanes, is_d16=is_d16, is_high=False)
        return
    given = components_of(step, step.field["vdata"], fmt, len(chosen), lanes, is_d16=is_d16, is_high=False)
    packed = np.zeros((lanes.size, fmt.size_bytes), np.uint8)
    for lane in np.flatnonzero(some):
        # Missing components get the first one.
        texel = [int(given[0, lane])] * 4
        for number, one in enumerate(chosen):
            texel[one] = int(given[number, lane])
        packed[lane] = np.frombuffer(pack(fmt, arranged(image.selects, texel)), np.uint8)
    GlobalSpace(step).write(at, some, packed, None)
    step.issue(step.orders.stores)


def _coordinates(step: Step, lanes: Lanes) -> list[Addresses]:
    """Return the coordinates as DIM has them, and the mip level if the instruction has one."""
    count = COORDINATES[step.field["dim"]] + ("_mip" in step.ins.mnemonic)
    names, found = ADDRESS_FIELDS["VIMAGE"], []
    for at in range(count):
        number = at // 2 if step.field["a16"] else at
        word = step.regs.vector(step.field[names[number]], lanes).astype(np.int64)
        found.append(word >> 16 * (at % 2) & 0xFFFF if step.field["a16"] else word)
    return found


def _texels(step: Step, image: Resource, fmt: BufferFormat, bound: Lanes, lanes: Lanes) -> tuple[Lanes, Addresses]:
    """Return the lanes whose texel is in the image, and their addresses. The others read zeros and store nothing."""
    coordinates = _coordinates(step, lanes)
    nothing = np.zeros(lanes.size, np.int64)
    level = coordinates.pop() if "_mip" in step.ins.mnemonic else nothing
    x, dim = coordinates[0], step.field["dim"]
    y, z = (nothing, coordinates[1]) if dim == DIM_1D_ARRAY else (*coordinates[1:], nothing, nothing)[:2]
    z = z + image.first_slice
    height = 1 if image.type in (TYPE_1D, TYPE_1D_ARRAY) else image.height
    some = bound & (x < image.width) & (y < height) & (z <= image.last_slice) & (level == 0)
    at = image.base + texel_offsets(image, fmt.size_bytes, *(np.where(some, one, 0) for one in (x, y, z)))
    return some, at


def _atomic(step: Step, name: str, some: Lanes, addresses: Addresses, lanes: Lanes) -> None:
    compares = name == "cmpswap"
    size = step.field["dmask"].bit_count() * 4 // (1 + compares)
    kind = name if name.startswith("pk_") else f"{_OPERATIONS[name]}{8 * size}"
    first = step.field["vdata"]
    sources = numbers(step, first, size, lanes)
    more = numbers(step, first + size // 4, size, lanes) if compares else sources
    function = operation(kind, memory_flush(step, kind))
    at = byte_addresses(addresses, size)
    found, _ = atomic(step, GlobalSpace(step), at, size, some, function, sources, more)
    if not step.field["glc"]:
        step.issue(step.orders.stores)
        return
    deliver(step, first, Transfer(size), np.where(some[:, None], found, np.uint8(0)), None, lanes, step.orders.loads)
    finish_load(step, first, size // 4, lanes)


def _size(step: Step, image: Resource, lanes: Lanes) -> None:
    """image_get_resinfo: width, height, depth or slices, and levels, of a level of the view."""
    level = step.regs.vector(step.field["vaddr0"], lanes).astype(np.int64) + image.first_level
    slices = image.last_slice - image.first_slice + 1
    width, height = (np.maximum(one >> level, 1) for one in (image.width, image.height))
    depth = np.maximum(slices >> level, 1) if image.type == TYPE_3D else np.full_like(level, slices)
    levels = np.full_like(level, image.last_level - image.first_level + 1)
    chosen = [at for at in range(4) if step.field["dmask"] >> at & 1]
    words = np.stack([(width, height, depth, levels)[at] for at in chosen]).astype(np.uint32)
    deliver_components(step, step.field["vdata"], words, len(chosen), lanes, is_d16=False, is_high=False)
