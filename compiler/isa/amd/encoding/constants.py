"""Constants in instructions: the values that the encoding can hold, and the dword that follows for all others.

Source: ISA documents, "Inline Constants" and "Literal Constants"; LLVM AMDGPUOperandSyntax, "Constants" and
"Conversion".
"""

from __future__ import annotations

import math
import struct

from ringup.errors import CompileError

LAST_INLINE_INT = 208  # the code of -16
LITERAL_CODE = 255
INLINE_INTS = {**{value: 128 + value for value in range(65)}, **{-value: 192 + value for value in range(1, 17)}}
INLINE_FLOATS = {0.5: 240, -0.5: 241, 1.0: 242, -1.0: 243, 2.0: 244, -2.0: 245, 4.0: 246, -4.0: 247}
INVERSE_TWO_PI, INVERSE_TWO_PI_CODE = 0.15915494309189532, 248
_INVERSE_TWO_PI_BITS = {"f16": 0x3118, "bf16": 0x3E23, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
HALF_FLOATS = ("f16", "bf16", "fp8", "bf8")
_FORMATS = {"f16": "e", "f32": "f", "f64": "d"}


def float_bits(value: float, kind: str) -> int:
    """Return the bits of a float rounded to `kind` (f16, bf16, f32, f64). Raises `CompileError` for a value out of its
    range.
    """
    if kind == "bf16":
        bits = float_bits(value, "f32")
        if not math.isnan(value):
            bits += 0x7FFF + (bits >> 16 & 1)
        return bits >> 16
    try:
        data = struct.pack("<" + _FORMATS[kind], value)
    except OverflowError:
        raise CompileError(f"{value} is out of the range of {kind}") from None
    bits = int.from_bytes(data, "little")
    if value and not bits & (1 << 8 * len(data) - 1) - 1:
        raise CompileError(f"{value} is too small for {kind}: it would be zero")
    return bits


def _patterns(kind: str) -> dict[int, int]:
    table = {float_bits(value, kind): code for value, code in INLINE_FLOATS.items()}
    return table | {_INVERSE_TWO_PI_BITS[kind]: INVERSE_TWO_PI_CODE}


# For each float format: bits of a float that the encoding can hold, and its code.
PATTERNS = {kind: _patterns(kind) for kind in _INVERSE_TWO_PI_BITS}
ALL_PATTERNS = frozenset(bits for table in PATTERNS.values() for bits in table)
_TEXTS = {code: f"{value:.1f}" for value, code in INLINE_FLOATS.items()}
CODE_VALUES: dict[int, int | float] = {code: value for value, code in INLINE_INTS.items()}
CODE_VALUES |= {code: value for value, code in INLINE_FLOATS.items()} | {INVERSE_TWO_PI_CODE: INVERSE_TWO_PI}


def float_kind(type_: str, size_bits: int) -> str:
    """Return the float format in which an operand reads an inline float, by its type, else by its size. Empty for
    16-bit integers.
    """
    if type_ in ("f16", "bf16", "f32", "f64"):
        return type_
    if size_bits == 16 and type_ in ("fp8", "bf8"):
        return "f16"
    if size_bits == 64:
        return "f64"
    return "" if type_ in ("i16", "u16", "b16") else "f32"


def inline_code(value: int | float, type_: str, size_bits: int) -> int | None:
    """Return the code of a value that an operand of that type and size can read without a literal, None if it needs
    one.
    """
    if isinstance(value, float):
        if value == 0 and math.copysign(1, value) > 0:
            return 128
        code = INLINE_FLOATS.get(value)
        if code is not None:
            return code
        kind = float_kind(type_, size_bits) or "f16"
        bits = float_bits(value, kind)
        return INVERSE_TWO_PI_CODE if bits == _INVERSE_TWO_PI_BITS[kind] else None
    if value >> 63 == 1:
        # Two's complement of 64 bits.
        value -= 1 << 64
    code = INLINE_INTS.get(value)
    if code is not None:
        return code
    if size_bits == 16 or type_ in ("f16", "bf16", "i16", "u16", "b16"):
        kind = float_kind(type_, size_bits)
        if not 0 <= value <= 0xFFFF or not kind:
            return None
        if value in PATTERNS[kind]:
            return PATTERNS[kind][value]
        return INLINE_INTS[value - 0x10000] if size_bits == 16 and value >= 0xFFF0 else None
    if size_bits == 64:
        found = PATTERNS["f64"].get(value)
        if found is None and type_ == "f64" and 0 < value >> 16 <= 0xFFFF:
            # A 32-bit integer is the upper half of a double.
            return PATTERNS["f64"].get(value << 32)
        return found
    if 0xFFFF_FFF0 <= value <= 0xFFFF_FFFF:
        return INLINE_INTS[value - (1 << 32)]
    return PATTERNS["f32"].get(value)


def operand_code(mnemonic: str, value: int | float, type_: str, size_bits: int, generation: int) -> int | None:
    """Return `inline_code` in the way that the instruction's encoding chooses it."""
    code = inline_code(value, type_, size_bits)
    # As LLVM does: the documents do not say what an inline float is in both halves.
    if mnemonic == "v_pk_fmac_f16" and code is not None and code > LAST_INLINE_INT and generation > 9:
        return None
    return code


def literal_bits(value: int | float, type_: str, size_bits: int) -> int:
    """Return the literal dword that makes an operand read `value`. Raises `CompileError` for values that 32 bits cannot
    express.
    """
    if isinstance(value, float):
        kind = float_kind(type_, size_bits) or "f16"
        bits = float_bits(value, kind)
        if kind == "f64":
            if type_ != "f64":
                raise CompileError(f"{value} in a 64-bit operand that is not a float: give its bits as an integer")
            if bits & 0xFFFF_FFFF:
                raise CompileError(
                    f"{value} needs all 64 bits of a double; a literal holds the high 32, move it in two halves"
                )
            return bits >> 32
        return bits
    if value >> 63 == 1:
        value -= 1 << 64
    if size_bits == 16 and not -0x8000 <= value <= 0xFFFF:
        raise CompileError(f"{value:#x} is wider than the 16 bits of this operand")
    if not -0x8000_0000 <= value <= 0xFFFF_FFFF:
        raise CompileError(f"{value:#x} is wider than the 32 bits of a literal; move it in two halves")
    # Of an integer, the upper half holds the sign. Source: llvm-mc 22.
    half = size_bits == 16 and type_ in HALF_FLOATS
    return value & (0xFFFF if half else 0xFFFF_FFFF)


def inline_text(code: int, type_: str, size_bits: int) -> str:
    """Return the text of an inline constant's code."""
    if code <= LAST_INLINE_INT:
        return str(code - 128 if code <= 192 else 192 - code)
    if code == INVERSE_TWO_PI_CODE:
        return {"f64": "0.15915494309189532"}.get(float_kind(type_, size_bits), "0.15915494")
    return _TEXTS[code]
