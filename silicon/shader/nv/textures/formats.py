"""Formats of texels: where a texel's components lie, and what the four data types of a header make of their bits.

Source: TEXHEAD_*_COMPONENTS of clc597tex.h. A name lists components from the highest bit down, one with underscores
from the lowest up; Mesa's nil_formats.csv says the same by the formats of its own that it pairs with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ringup.autogen.nv import textures as facts
from ringup.errors import Unmodelled
from ringup.silicon.shader.common.texels import component_to_register, f32_bits, linear_of, register_to_component

# From the lowest bit up: a component and its width, x for bits that nobody reads.
_LAYOUTS = {
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R32_G32_B32_A32: "R32 G32 B32 A32",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R32_G32_B32: "R32 G32 B32",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R16_G16_B16_A16: "R16 G16 B16 A16",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R32_G32: "R32 G32",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R32_B24G8: "R32 G8 B24",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_X8B8G8R8: "R8 G8 B8 x8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_A8B8G8R8: "R8 G8 B8 A8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_A2B10G10R10: "R10 G10 B10 A2",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R16_G16: "R16 G16",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_G8R24: "R24 G8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_G24R8: "R8 G24",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R32: "R32",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_A4B4G4R4: "R4 G4 B4 A4",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_A5B5G5R1: "R1 G5 B5 A5",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_A1B5G5R5: "R5 G5 B5 A1",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_B5G6R5: "R5 G6 B5",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_B6G5R5: "R5 G5 B6",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_G8R8: "R8 G8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R16: "R16",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_R8: "R8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_G4R4: "R4 G4",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_E5B9G9R9_SHAREDEXP: "R9 G9 B9 x5",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_BF10GF11RF11: "R11 G11 B10",
    # The depth is G where it is the upper part: nil_formats.csv, X8Z24_UNORM and Z24X8_UNORM.
    facts.TEXHEAD_BL_COMPONENTS_SIZES_Z24S8: "R8 G24",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_X8Z24: "R24 G8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_S8Z24: "R24 G8",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_ZF32: "R32",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_ZF32_X24S8: "R32 G8 x24",
    facts.TEXHEAD_BL_COMPONENTS_SIZES_Z16: "R16",
}
_SHARED = facts.TEXHEAD_BL_COMPONENTS_SIZES_E5B9G9R9_SHAREDEXP
_KINDS = {
    facts.TEXHEAD_BL_R_DATA_TYPE_NUM_SNORM: "snorm", facts.TEXHEAD_BL_R_DATA_TYPE_NUM_UNORM: "unorm",
    facts.TEXHEAD_BL_R_DATA_TYPE_NUM_SINT: "sint", facts.TEXHEAD_BL_R_DATA_TYPE_NUM_UINT: "uint",
    facts.TEXHEAD_BL_R_DATA_TYPE_NUM_FLOAT: "float",
}  # fmt: skip
_FLOAT_WIDTHS = (10, 11, 16, 32)


class BadHeader(Exception):
    """A header or a sampler that says nothing: what the texture unit reports as an error."""


class Component(NamedTuple):
    """Some bits of a texel."""

    lo: int
    width: int
    kind: str


@dataclass(frozen=True, slots=True)
class TexelFormat:
    """Where R, G, B and A lie; None for one that there is not. `is_shared`: R, G and B have one exponent above them."""

    size_bytes: int
    components: tuple[Component | None, ...]
    is_shared: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether registers hold integers."""
        return any(one is not None and one.kind in ("uint", "sint") for one in self.components[:1])

    @property
    def is_normalized(self) -> bool:
        """Whether values are between 0 and 1."""
        return self.components[0] is not None and self.components[0].kind == "unorm"

    def unpack(self, texel: int, *, is_srgb: bool = False) -> list[int]:
        """Return the registers of R, G, B and A; a missing one is 0. With `is_srgb` the first three become linear."""
        if self.is_shared:
            # Source: Vulkan 1.3, "Shared Exponent to RGB": the bias is 15, a mantissa has 9 bits.
            scale = 2.0 ** ((texel >> 27) - 15 - 9)
            return [f32_bits((texel >> 9 * at & 0x1FF) * scale) for at in range(3)] + [0]
        found = [
            0 if one is None else component_to_register(texel >> one.lo & (1 << one.width) - 1, one.width, one.kind)
            for one in self.components
        ]
        return [*map(linear_of, found[:3]), found[3]] if is_srgb else found

    def pack(self, registers: list[int]) -> int:
        """Return the texel of R, G, B and A. GUESS: integers are clamped, as Direct3D 11.3 wants of a typed store."""
        if self.is_shared:
            raise Unmodelled("stores of texels with a shared exponent")
        texel = 0
        for one, bits in zip(self.components, registers, strict=True):
            if one is not None:
                texel |= register_to_component(bits, one.width, one.kind, clamps=True) << one.lo
        return texel


@cache
def format_of(sizes: int, types: tuple[int, ...]) -> TexelFormat:
    """Return the format of a header's COMPONENTS and its four data types. Raises `BadHeader`, `Unmodelled`."""
    if sizes == facts.TEXHEAD_BL_COMPONENTS_SIZES_INVALID:
        raise BadHeader("its components have no size")
    if sizes not in _LAYOUTS:
        raise Unmodelled(f"texels of components {sizes:#x}: compressed, video, or with coverage")
    found: list[Component | None] = [None] * 4
    at = 0
    for part in _LAYOUTS[sizes].split():
        width = int(part[1:])
        if part[0] != "x":
            number = "RGBA".index(part[0])
            found[number] = _component(at, width, types[number], is_shared=sizes == _SHARED)
        at += width
    return TexelFormat(at // 8, tuple(found), sizes == _SHARED)


def _component(lo: int, width: int, number: int, *, is_shared: bool) -> Component:
    kind = _KINDS.get(number)
    if kind is None:
        if number:
            raise Unmodelled(f"texels of data type {number}: through f16")
        raise BadHeader("a component has no data type")
    if kind == "float" and width not in _FLOAT_WIDTHS and not is_shared:
        raise BadHeader(f"a float of {width} bits")
    return Component(lo, width, kind)
