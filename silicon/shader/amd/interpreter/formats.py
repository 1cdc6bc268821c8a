"""Buffer data formats: how the texture unit converts memory on a typed load, and registers on a typed store.

Source: RDNA3 ISA reference, "Data Formats", "D16 Instructions". A format's name lists its components from the highest
bit down; X is the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.silicon.shader.common.texels import (
    component_to_register,
    f32_to_small_float,
    register_to_component,
    signed,
    small_float_to_f32,
)

# (first number, component widths, number types): runs of formats that share their component widths.
_RUNS: tuple[tuple[int, str, str], ...] = (
    (1, "8", "unorm snorm uscaled sscaled uint sint"),
    (7, "16", "unorm snorm uscaled sscaled uint sint float"),
    (14, "8_8", "unorm snorm uscaled sscaled uint sint"),
    (20, "32", "uint sint float"),
    (23, "16_16", "unorm snorm uscaled sscaled uint sint float"),
    (30, "10_11_11", "float"),
    (31, "11_11_10", "float"),
    (32, "10_10_10_2", "unorm snorm uint sint"),
    (36, "2_10_10_10", "unorm snorm uscaled sscaled uint sint"),
    (42, "8_8_8_8", "unorm snorm uscaled sscaled uint sint"),
    (48, "32_32", "uint sint float"),
    (51, "16_16_16_16", "unorm snorm uscaled sscaled uint sint float"),
    (58, "32_32_32", "uint sint float"),
    (61, "32_32_32_32", "uint sint float"),
)
INVALID = 0


@dataclass(frozen=True, slots=True)
class BufferFormat:
    """Component widths, X first, and their number type."""

    widths: tuple[int, ...]
    kind: str

    @property
    def size_bytes(self) -> int:
        """Size of an element."""
        return sum(self.widths) // 8

    @property
    def is_integer(self) -> bool:
        """Whether registers hold integers."""
        return self.kind in ("uint", "sint")

    @property
    def alignment(self) -> int:
        """Alignment of an element in bytes: its component's or its own size, at most a dword."""
        return min(self.size_bytes & -self.size_bytes, 4)


FORMATS = {
    first + at: BufferFormat(tuple(int(one) for one in reversed(widths.split("_"))), kind)
    for first, widths, kinds in _RUNS
    for at, kind in enumerate(kinds.split())
}


def unpack(fmt: BufferFormat, element: bytes) -> list[int]:
    """Return the registers of an element's components."""
    whole, at, found = int.from_bytes(element, "little"), 0, []
    for width in fmt.widths:
        found.append(component_to_register(whole >> at & (1 << width) - 1, width, fmt.kind))
        at += width
    return found


def pack(fmt: BufferFormat, registers: list[int]) -> bytes:
    """Return the element of components; missing ones are 0. UNKNOWN: integers that do not fit lose high bits."""
    whole, at = 0, 0
    for number, width in enumerate(fmt.widths):
        bits = registers[number] if number < len(registers) else 0
        whole |= register_to_component(bits, width, fmt.kind) << at
        at += width
    return whole.to_bytes(fmt.size_bytes, "little")


def to_d16(fmt: BufferFormat, bits: int) -> int:
    """Narrow a loaded component to 16 bits.

    A 32-bit float is truncated, other floats round to nearest even, integers lose their high bits.
    """
    if fmt.is_integer:
        return bits & 0xFFFF
    return f32_to_small_float(bits, 16, truncates=fmt.kind == "float" and fmt.widths[0] == 32)


def from_d16(fmt: BufferFormat, bits: int) -> int:
    """Widen 16 bits of a register for a store."""
    if not fmt.is_integer:
        return small_float_to_f32(bits, 16)
    return signed(bits, 16) & 0xFFFF_FFFF if fmt.kind == "sint" else bits
