"""Source and destination encodings of the shader cores, and the values of inline and literal constants.

Source: RDNA3 ISA reference, "Scalar ALU Operands", "VALU Instruction Operands", "Inline Constants with Packed Math".
"""

from __future__ import annotations

import struct

FIRST_VGPR = 256
LITERAL = 255
DPP16 = 250
DPP8, DPP8_FI = 233, 234
VCCZ, EXECZ, SCC, LDS_DIRECT = 251, 252, 253, 254
SHARED_BASE, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT = 235, 236, 237, 238
VCC_LO, NULL, M0, EXEC_LO = 106, 124, 125, 126

# Encodings of the scalar file, with their kind as named in `autogen.isa`.
SCALARS = (
    [(code, "sgpr") for code in range(106)]
    + [(106, "vcc"), (107, "vcc")]
    + [(code, "ttmp") for code in range(108, 124)]
    + [(NULL, "null"), (M0, "m0"), (126, "exec"), (127, "exec")]
)
SCALAR_KINDS = dict(SCALARS)

# Sources that are values of the wave or of the card: `Operand.index` is the negated encoding.
SPECIAL = {
    VCCZ: "src_vccz", EXECZ: "src_execz", SCC: "src_scc", LDS_DIRECT: "src_lds_direct", SHARED_BASE: "src_shared_base",
    SHARED_LIMIT: "src_shared_limit", PRIVATE_BASE: "src_private_base", PRIVATE_LIMIT: "src_private_limit",
}  # fmt: skip

FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
INVERSE_TWO_PI = 248  # the bits are given: AMD's rounding is not IEEE's
FLOAT_BITS = {
    size_bits: {code: int.from_bytes(struct.pack(form, value), "little") for code, value in FLOATS.items()}
    | {INVERSE_TWO_PI: two_pi}
    for size_bits, form, two_pi in ((16, "<e", 0x3118), (32, "<f", 0x3E22F983), (64, "<d", 0x3FC45F306DC9C882))
}
INTEGERS = {code: code - 128 for code in range(128, 193)} | {code: 192 - code for code in range(193, 209)}

# Instructions that read a 16-bit inline constant in both halves of the dword.
_REPLICATED = frozenset((
    "v_pk_fmac_f16", "v_dot2acc_f32_f16", "v_dual_dot2acc_f32_f16", "v_dot2_f16_f16",
    "v_wmma_f16_16x16x16_f16",
))  # fmt: skip
_WIDE_FLOATS = frozenset(("v_dot2_f32_f16",))  # f16 sources of these are given f32 constants


def signed(value: int, bits: int) -> int:
    """Return the low `bits` of `value` as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def inline(mnemonic: str, code: int, size_bits: int, type_: str) -> int | None:
    """Return the value of an inline constant, None for another encoding.

    Packed and matrix operands get one element: a dword, or 64 bits of f64. A bf16 is the high half of an f32 constant;
    f16 constants are in the low half of their dword.
    """
    width = 64 if size_bits == 64 or type_ == "f64" else 16 if size_bits == 16 else 32
    if type_ == "bf16":
        value = _number(code, 32, 32)
        return value if value is None else value >> 16 if width == 16 else _twice(value >> 16)
    if type_ == "f16" and width == 32 and mnemonic not in _WIDE_FLOATS:
        value = _number(code, 32, 16)
        return _twice(value & 0xFFFF) if value is not None and mnemonic in _REPLICATED else value
    return _number(code, width, width)


def _number(code: int, width: int, float_width: int) -> int | None:
    if code in INTEGERS:
        return INTEGERS[code] & (1 << width) - 1
    return FLOAT_BITS[float_width].get(code)


def _twice(half: int) -> int:
    return half << 16 | half


def widened(literal: int, size_bits: int, type_: str) -> int:
    """Return the value of a literal dword for an operand. Source: RDNA3 ISA reference, "Literal Expansion to 64
    bits".
    """
    if size_bits != 64:
        return literal & 0xFFFF if size_bits == 16 else literal
    if type_ == "f64":
        return literal << 32
    return signed(literal, 32) & 0xFFFF_FFFF_FFFF_FFFF if type_ == "i64" else literal
