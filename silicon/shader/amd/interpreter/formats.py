"""Buffer data formats: how the texture unit converts memory on a typed load, and registers on a typed store.

Source: RDNA3 ISA reference, "Data Formats", "D16 Instructions". A format's name lists its components from the highest
bit down; X is the lowest.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

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
F32_ONE = 0x3F80_0000


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


def f32_bits(value: float) -> int:
    """Round to f32."""
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0x7F80_0000 if value > 0 else 0xFF80_0000


def f32_value(bits: int) -> float:
    """Return the number of f32 bits."""
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def small_float_to_f32(bits: int, width: int) -> int:
    """Widen a float of 16 (signed), 11 or 10 bits: five exponent bits, bias 15."""
    fraction_bits = {16: 10, 11: 6, 10: 5}[width]
    sign = bits >> 15 & 1 if width == 16 else 0
    exponent, fraction = bits >> fraction_bits & 0x1F, bits & (1 << fraction_bits) - 1
    if exponent == 0x1F:
        return sign << 31 | 0x7F80_0000 | fraction << 23 - fraction_bits
    scale = 1 if exponent == 0 else exponent
    mantissa = fraction if exponent == 0 else fraction | 1 << fraction_bits
    return sign << 31 | f32_bits(math.ldexp(mantissa, scale - 15 - fraction_bits))


def f32_to_small_float(bits: int, width: int, *, truncates: bool = False) -> int:
    """Narrow an f32 to 16, 11 or 10 bits, to nearest even or towards zero. Unsigned formats turn negative values into
    0.
    """
    fraction_bits = {16: 10, 11: 6, 10: 5}[width]
    infinity, sign = 0x1F << fraction_bits, bits >> 31
    top = 0x8000 * sign if width == 16 else 0
    magnitude = bits & 0x7FFF_FFFF
    if magnitude > 0x7F80_0000:
        return top | infinity | 1 << fraction_bits - 1
    if sign and width != 16:
        return 0
    if magnitude == 0x7F80_0000:
        return top | infinity
    value = f32_value(magnitude)
    _, power = math.frexp(value)
    exponent = max(power - 1, -14)
    scaled = math.ldexp(value, fraction_bits - exponent)
    rounded = math.floor(scaled) if truncates else round(scaled)
    encoded = (exponent + 14 << fraction_bits) + rounded if value else 0
    if encoded >= infinity:
        encoded = infinity - 1 if truncates else infinity
    return top | encoded


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> width - 1 else value


def component_to_register(value: int, width: int, kind: str) -> int:
    """Convert one component in memory to its 32-bit register."""
    signed = _signed(value, width)
    if kind == "float":
        return value if width == 32 else small_float_to_f32(value, width)
    if kind == "uint":
        return value
    if kind == "sint":
        return signed & 0xFFFF_FFFF
    if kind == "unorm":
        return f32_bits(value / ((1 << width) - 1))
    if kind == "snorm":
        return f32_bits(max(signed / ((1 << width - 1) - 1), -1.0))
    return f32_bits(float(value if kind == "uscaled" else signed))


def register_to_component(bits: int, width: int, kind: str) -> int:
    """Convert a 32-bit register to one component in memory. UNKNOWN: integers that do not fit lose their high bits."""
    mask = (1 << width) - 1
    if kind in ("uint", "sint"):
        return bits & mask
    if kind == "float":
        return bits if width == 32 else f32_to_small_float(bits, width)
    value = f32_value(bits)
    if math.isnan(value):
        return 0
    low, high = (0, mask) if kind.startswith("u") else (-(mask >> 1) - 1, mask >> 1)
    if kind.endswith("norm"):
        low = max(low, -high)
        value = min(max(value, -1.0), 1.0) * high
    return round(min(max(value, low), high)) & mask


def unpack(fmt: BufferFormat, element: bytes) -> list[int]:
    """Return the registers of an element's components."""
    whole, at, found = int.from_bytes(element, "little"), 0, []
    for width in fmt.widths:
        found.append(component_to_register(whole >> at & (1 << width) - 1, width, fmt.kind))
        at += width
    return found


def pack(fmt: BufferFormat, registers: list[int]) -> bytes:
    """Return the element of components; missing ones are 0."""
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
    return _signed(bits, 16) & 0xFFFF_FFFF if fmt.kind == "sint" else bits
