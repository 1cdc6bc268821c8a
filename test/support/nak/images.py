"""Texture headers and samplers for programs of `registers.py`, images in blocks, and what a sampler should find."""

import math

import numpy as np

from ringup.autogen.nv import textures as facts
from ringup.silicon.nv.compute.launch import Pool
from ringup.silicon.shader.nv import workbench

SNORM, UNORM, SINT, UINT, FLOAT = 1, 2, 3, 4, 7
ZERO, R, G, B, A, ONE_INT, ONE_FLOAT = 0, 2, 3, 4, 5, 6, 7
OWN_BUFFERS = 3
TYPES = {"1D": 0, "2D": 1, "3D": 2, "CUBE": 3, "ARRAY_1D": 4, "ARRAY_2D": 5, "BUFFER": 6, "FLAT": 7, "ARRAY_CUBE": 8}


def address(number):
    """Where the buffer of that number behind the program's own is."""
    return workbench.BUFFERS + (OWN_BUFFERS + number) * workbench.BUFFER_STEP


def header(number, kind, size, sizes, types, **more):
    """A header in words for the image in a buffer. `size`: width, height, and depth, layers or cubes."""
    width, height, depth = (*size, 1, 1)[:3]
    word = {
        "components": sizes, "r_data_type": types[0], "g_data_type": types[1], "b_data_type": types[2], "a_data_type": types[3],
        "x_source": R, "y_source": G, "z_source": B, "w_source": A, "texture_type": TYPES[kind],
    }  # fmt: skip
    at = address(number) + more.pop("offset", 0)
    if kind == "BUFFER":
        word |= {
            "address_bits31to0": at & 0xFFFF_FFFF, "address_bits48to32": at >> 32, "header_version": 0,
            "width_minus_one_bits15to0": width - 1 & 0xFFFF, "width_minus_one_bits31to16": width - 1 >> 16,
        }  # fmt: skip
        return int(facts.TEXHEAD_1D(**word | more))
    word |= {"normalized_coords": 1, "width_minus_one": width - 1, "height_minus_one": height - 1}
    if kind == "FLAT":
        word |= {
            "header_version": 2, "address_bits31to5": at >> 5 & 0x7FF_FFFF, "address_bits48to32": at >> 32,
            "pitch_bits20to5": more.pop("pitch") >> 5,
        }  # fmt: skip
        return int(facts.TEXHEAD_PITCH(**word | more))
    word |= {
        "header_version": 3, "address_bits31to9": at >> 9 & 0x7F_FFFF, "address_bits48to32": at >> 32, "depth_minus_one": depth - 1,
        "border_size": 7,
    }  # fmt: skip
    return int(facts.TEXHEAD_BL(**word | more))


def sampler(wrap=0, mag=1, low=1, mip=1, border=(0, 0, 0, 0), compare=None, **more):
    """A sampler in words; `border` are registers."""
    first = facts.TEXSAMP0(
        address_u=wrap, address_v=wrap, address_p=wrap, s_r_g_b_conversion=1, depth_compare=compare is not None,
        depth_compare_func=compare or 0,
    )  # fmt: skip
    second = facts.TEXSAMP1(mag_filter=mag, min_filter=low, mip_filter=mip, **more)
    third = facts.TEXSAMP2(max_lod_clamp=0xFFF)
    words = [int(first), int(second), int(third), 0, *border]
    return sum(word << 32 * at for at, word in enumerate(words))


def pools(first, headers, samplers=()):
    """Return buffers of the two tables, of which the first has this number, and what a launch says of them."""
    arrays = [
        np.frombuffer(b"".join(one.to_bytes(32, "little") for one in table or [0]), np.uint8).copy()
        for table in (headers, samplers)
    ]
    said = [Pool(address(first + at), max(len(table), 1) - 1) for at, table in enumerate((headers, samplers))]
    return arrays, {"headers": said[0], "samplers": said[1]}


def in_blocks(image, tall_log2, deep_log2):
    """Return an image `(z, y, byte)` in blocks of GOBs.

    Source: the pixel address equations of the Orin manual, as Mesa's nil/copy.rs gives them.
    """
    depth, height, width = image.shape
    across = -(-width // 64)
    tall, deep = 8 << tall_log2, 1 << deep_log2
    down, slabs = -(-height // tall), -(-depth // deep)
    out = np.zeros(across * 64 * down * tall * slabs * deep, np.uint8)
    z, y, x = np.mgrid[:depth, :height, :width]
    order = [(x, 0), (x, 1), (x, 2), (x, 3), (y, 0), (y, 1), (x, 4), (y, 2), (x, 5)]
    inside = sum((axis >> bit & 1) << at for at, (axis, bit) in enumerate(order))
    block = (z // deep * down + y // tall) * across + x // 64
    out[(block * deep + z % deep) * 64 * tall + y % tall // 8 * 512 + inside] = image
    return out


def _index(wrap, at, size):
    """Vulkan's wrapping operation; None for the border."""
    if wrap == 0:
        return at % size
    if wrap == 1:
        turned = at % (2 * size) - size
        return size - 1 - (turned if turned >= 0 else -1 - turned)
    if wrap == 3:
        return at if 0 <= at < size else None
    if wrap == 5:
        at = at if at >= 0 else -1 - at
    return min(max(at, 0), size - 1)


def expected(image, wrap, is_linear, place, border=0.0):
    """What a sampler finds at one place of an image of floats; `place` is in the order of the image's axes."""
    axes = []
    for size, coordinate in zip(image.shape, place, strict=True):
        at = float(coordinate) * size
        if is_linear:
            at = math.floor((at - 0.5) * 256 + 0.5) / 256
            first = math.floor(at)
            axes.append([(first, 1 - (at - first)), (first + 1, at - first)])
        else:
            axes.append([(math.floor(at), 1.0)])
    total = 0.0
    for corner in np.ndindex(*(len(one) for one in axes)):
        weight, index = 1.0, []
        for axis, number in enumerate(corner):
            at, part = axes[axis][number]
            weight *= part
            index.append(_index(wrap, at, image.shape[axis]))
        if weight:
            total += weight * (border if None in index else float(image[tuple(index)]))
    return np.float32(total)
