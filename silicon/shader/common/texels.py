"""Components of texels: how memory's bits become 32-bit registers on a load, and registers become bits on a store.

What formats there are, and where their components lie, each vendor says. Sources: Vulkan 1.3, "Fixed-Point Data
Conversions", "Floating-Point Format Conversions", "sRGB EOTF".
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

F32_ONE = 0x3F80_0000


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


def signed(value: int, width: int) -> int:
    """Return a number of two's complement."""
    return value - (1 << width) if value >> width - 1 else value


@lru_cache(maxsize=8192)
def component_to_register(value: int, width: int, kind: str) -> int:
    """Convert one component in memory to its 32-bit register."""
    number = signed(value, width)
    if kind == "float":
        return value if width == 32 else small_float_to_f32(value, width)
    if kind == "uint":
        return value
    if kind == "sint":
        return number & 0xFFFF_FFFF
    if kind == "unorm":
        return f32_bits(value / ((1 << width) - 1))
    if kind == "snorm":
        return f32_bits(max(number / ((1 << width - 1) - 1), -1.0))
    return f32_bits(float(value if kind == "uscaled" else number))


def register_to_component(bits: int, width: int, kind: str, *, clamps: bool = False) -> int:
    """Convert a 32-bit register to one component in memory.

    Integers that do not fit become the nearest ones that do with `clamps`, else they lose their high bits.
    """
    mask = (1 << width) - 1
    if kind == "uint":
        return min(bits, mask) if clamps else bits & mask
    if kind == "sint":
        return min(max(signed(bits, 32), -(mask >> 1) - 1), mask >> 1) & mask if clamps else bits & mask
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


def linear_of(bits: int) -> int:
    """Return the linear value of an sRGB component, both as f32 bits."""
    value = f32_value(bits)
    return f32_bits(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
