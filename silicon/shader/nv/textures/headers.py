"""Texture headers and samplers: 32 bytes each, in tables that an index selects.

Source: clc597tex.h of open-gpu-doc (fields), Mesa's nil/tic.rs (what they mean, and that a header of zeros is one
without a texture since Volta).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ringup.autogen.nv import textures as facts
from ringup.errors import Unmodelled
from ringup.silicon.shader.common.sampling import Wrap
from ringup.silicon.shader.nv.textures.formats import BadHeader, TexelFormat, format_of

ENTRY_BYTES = 32
MAX_LOG2 = 5
ZERO, FIRST_SOURCE, ONE_INT, ONE_FLOAT = (
    facts.TEXHEAD_BL_X_SOURCE_IN_ZERO, facts.TEXHEAD_BL_X_SOURCE_IN_R, facts.TEXHEAD_BL_X_SOURCE_IN_ONE_INT,
    facts.TEXHEAD_BL_X_SOURCE_IN_ONE_FLOAT,
)  # fmt: skip
BUFFER, BLOCKS, PITCH = (
    facts.TEXHEAD_BL_HEADER_VERSION_SELECT_ONE_D_BUFFER, facts.TEXHEAD_BL_HEADER_VERSION_SELECT_BLOCKLINEAR,
    facts.TEXHEAD_BL_HEADER_VERSION_SELECT_PITCH,
)  # fmt: skip
ONE_D, TWO_D, THREE_D, CUBEMAP, ONE_D_ARRAY, TWO_D_ARRAY, ONE_D_BUFFER, TWO_D_NO_MIPMAP, CUBEMAP_ARRAY = (
    facts.TEXHEAD_BL_TEXTURE_TYPE_ONE_D, facts.TEXHEAD_BL_TEXTURE_TYPE_TWO_D, facts.TEXHEAD_BL_TEXTURE_TYPE_THREE_D,
    facts.TEXHEAD_BL_TEXTURE_TYPE_CUBEMAP, facts.TEXHEAD_BL_TEXTURE_TYPE_ONE_D_ARRAY,
    facts.TEXHEAD_BL_TEXTURE_TYPE_TWO_D_ARRAY, facts.TEXHEAD_BL_TEXTURE_TYPE_ONE_D_BUFFER,
    facts.TEXHEAD_BL_TEXTURE_TYPE_TWO_D_NO_MIPMAP, facts.TEXHEAD_BL_TEXTURE_TYPE_CUBEMAP_ARRAY,
)  # fmt: skip
_HAS_FACES = (CUBEMAP, CUBEMAP_ARRAY)
_IS_FLAT = (ONE_D, ONE_D_ARRAY)
FACES = 6
_FRACTION = 256


@dataclass(frozen=True, slots=True)
class Texture:
    """What a header describes. Sizes are in texels of level 0; `layers` counts faces too; `depth` is that of 3D.

    `block` are the logarithms of GOBs of a block along y and z, and of those that rows are padded to. `levels` is how
    many there are in memory, `first_level` and `last_level` those of the view. `sources` choose the four results.
    """

    kind: int
    memory: int
    base: int
    format: TexelFormat
    sources: tuple[int, ...]
    width: int
    height: int = 1
    depth: int = 1
    layers: int = 1
    block: tuple[int, int, int] = (0, 0, 0)
    pitch: int = 0
    levels: int = 1
    first_level: int = 0
    last_level: int = 0
    min_lod: float = 0.0
    is_srgb: bool = False
    is_normalized: bool = False

    @property
    def has_faces(self) -> bool:
        """Whether layers are faces of cubes."""
        return self.kind in _HAS_FACES


@dataclass(frozen=True, slots=True)
class Sampler:
    """What a sampler describes. `border` are the registers of its colour, `srgb_border` its three bytes for sRGB."""

    wraps: tuple[Wrap, Wrap, Wrap]
    compare: int
    is_srgb: bool
    mag: int
    min: int
    mip: int
    is_anisotropic: bool
    cube_edges: int
    reduction: int
    bias: float
    is_unnormalized: bool
    min_lod: float
    max_lod: float
    border: tuple[int, ...]
    srgb_border: tuple[int, ...]


@lru_cache(maxsize=1024)
def texture_of(words: int) -> Texture | None:
    """Return what 256 bits describe, None without a texture. Raises `BadHeader`, `Unmodelled`."""
    if not words:
        return None
    head = facts.TEXHEAD_BL(words)
    version, kind = head.header_version, head.texture_type
    fmt = format_of(head.components, (head.r_data_type, head.g_data_type, head.b_data_type, head.a_data_type))
    sources = (head.x_source, head.y_source, head.z_source, head.w_source)
    if 1 in sources:
        raise BadHeader(f"results come from {sources}")
    if version == BUFFER:
        if kind != ONE_D_BUFFER:
            raise BadHeader(f"a buffer of texture type {kind}")
        line = facts.TEXHEAD_1D(words)
        base = line.address_bits31to0 | line.address_bits48to32 << 32
        width = (line.width_minus_one_bits15to0 | line.width_minus_one_bits31to16 << 16) + 1
        return Texture(kind, version, base, fmt, sources, width)
    if fmt.size_bytes & fmt.size_bytes - 1:
        raise BadHeader(f"texels of {fmt.size_bytes} bytes outside a buffer")
    if version == PITCH:
        flat = facts.TEXHEAD_PITCH(words)
        if kind != TWO_D_NO_MIPMAP:
            raise BadHeader(f"lines with a pitch of texture type {kind}")
        return Texture(
            kind, version, flat.address_bits31to5 << 5 | flat.address_bits48to32 << 32, fmt, sources,
            flat.width_minus_one + 1, (flat.height_minus_one | flat.height_minus_one_bit16 << 16) + 1,
            pitch=flat.pitch_bits20to5 << 5, is_srgb=bool(flat.s_r_g_b_conversion), is_normalized=bool(flat.normalized_coords),
        )  # fmt: skip
    if version != BLOCKS:
        raise Unmodelled(f"a texture header of version {version}: with a colour key")
    return _blocks(head, fmt, sources)


def _blocks(head: facts.TEXHEAD_BL, fmt: TexelFormat, sources: tuple[int, ...]) -> Texture:
    kind = head.texture_type
    if kind not in (ONE_D, TWO_D, THREE_D, CUBEMAP, ONE_D_ARRAY, TWO_D_ARRAY, TWO_D_NO_MIPMAP, CUBEMAP_ARRAY):
        raise Unmodelled(f"a texture of type {kind}")
    if head.multi_sample_count or head.gob3d or head.gobs_per_block_width or head.gob_depth_offset:
        raise Unmodelled("a texture of several samples, or of GOBs with a depth")
    block = head.gobs_per_block_height, head.gobs_per_block_depth, head.tile_width_in_gobs
    if max(block) > MAX_LOG2:
        raise BadHeader(f"blocks of 2^{block[0]} GOBs by 2^{block[1]}")
    if head.border_size != facts.TEXHEAD_BL_BORDER_SIZE_BORDER_SAMPLER_COLOR:
        raise Unmodelled("a border in the texture")
    depth = (head.depth_minus_one | head.depth_minus_one_bit14 << 14) + 1
    layers = 1 if kind == THREE_D else depth * (FACES if kind in _HAS_FACES else 1)
    height = (head.height_minus_one | head.height_minus_one_bit16 << 16) + 1
    return Texture(
        kind, BLOCKS, head.address_bits31to9 << 9 | head.address_bits48to32 << 32, fmt, sources, head.width_minus_one + 1,
        1 if kind in _IS_FLAT else height, depth if kind == THREE_D else 1, layers, block, 0, head.max_mip_level + 1,
        head.res_view_min_mip_level, head.res_view_max_mip_level, head.min_lod_clamp / _FRACTION,
        bool(head.s_r_g_b_conversion), bool(head.normalized_coords),
    )  # fmt: skip


_WRAPS = {
    facts.TEXSAMP0_ADDRESS_U_WRAP: Wrap.REPEAT, facts.TEXSAMP0_ADDRESS_U_MIRROR: Wrap.MIRROR,
    facts.TEXSAMP0_ADDRESS_U_CLAMP_TO_EDGE: Wrap.CLAMP, facts.TEXSAMP0_ADDRESS_U_BORDER: Wrap.BORDER,
    facts.TEXSAMP0_ADDRESS_U_MIRROR_ONCE_CLAMP_TO_EDGE: Wrap.MIRROR_ONCE,
    facts.TEXSAMP0_ADDRESS_U_MIRROR_ONCE_BORDER: Wrap.MIRROR_ONCE_BORDER,
}  # fmt: skip


@lru_cache(maxsize=1024)
def sampler_of(words: int) -> Sampler:
    """Return what 256 bits describe. Raises `BadHeader`, `Unmodelled`."""

    def word(number: int) -> int:
        return words >> 32 * number & 0xFFFF_FFFF

    first, second, third = facts.TEXSAMP0(word(0)), facts.TEXSAMP1(word(1)), facts.TEXSAMP2(word(2))
    fourth = facts.TEXSAMP3(word(3))
    modes = first.address_u, first.address_v, first.address_p
    if not _WRAPS.keys() >= set(modes):
        raise Unmodelled(f"a sampler that wraps as {modes}: half of the border")
    if first.forced_invalid or 0 in (second.mag_filter, second.min_filter, second.mip_filter):
        raise BadHeader("a sampler without filters")
    if second.mag_filter > facts.TEXSAMP1_MAG_FILTER_MAG_LINEAR:
        raise Unmodelled("a sampler with filters for coverage")
    bias = second.mip_lod_bias
    u, v, p = (_WRAPS[one] for one in modes)
    return Sampler(
        (u, v, p), first.depth_compare_func, bool(first.s_r_g_b_conversion), second.mag_filter, second.min_filter,
        second.mip_filter, bool(first.max_anisotropy) and second.min_filter == facts.TEXSAMP1_MIN_FILTER_MIN_ANISO,
        second.cubemap_interface_filtering, second.reduction_filter, (bias - (bias >> 12 << 13)) / _FRACTION,
        bool(second.float_coord_normalization), third.min_lod_clamp / _FRACTION, third.max_lod_clamp / _FRACTION,
        tuple(word(number) for number in range(4, 8)),
        (third.s_r_g_b_border_color_r, fourth.s_r_g_b_border_color_g, fourth.s_r_g_b_border_color_b),
    )  # fmt: skip
