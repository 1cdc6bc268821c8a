"""ggml's packed blocks made f32 numbers, as graphs: the bytes stay packed in memory and are unpacked where they are
used.

Each function takes bytes (blocks, bytes of each) and returns f32 (blocks, elements of each). Source: ggml-common.h,
block_q4_0 and on; ggml-quants.c, dequantize_row_*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.tensor import Tensor

# kvalues_iq4nl of ggml-common.h
NON_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# twice the values of e2m1, so that they are whole; OCP Microscaling Formats, "FP4"
TWICE_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


class Block(NamedTuple):
    """A block format of ggml: bytes and elements of one block, and what makes numbers of it."""

    size_bytes: int
    elements: int
    decode: Callable[[Tensor], Tensor]


def dequantised(blocks: Tensor, kind: str) -> Tensor:
    """Return f32 numbers (blocks, elements of each) from bytes (blocks, bytes of each) in ggml's format of that
    name.
    """
    row = BLOCKS[kind]
    if blocks.dtype is not dtypes.uint8 or blocks.ndim != 2 or blocks.shape[1] != row.size_bytes:
        raise ValueError(f"{kind} blocks are uint8 (count, {row.size_bytes}), not {blocks.dtype} {list(blocks.shape)}")
    return row.decode(blocks)


# parts of blocks


def _bytes(blocks: Tensor, start: int, count: int) -> Tensor:
    return cut(blocks, 1, start, start + count)


def _half(blocks: Tensor, at: int) -> Tensor:
    return _bytes(blocks, at, 2).view(dtypes.float16).float()


def _signed(blocks: Tensor, start: int, count: int) -> Tensor:
    return _bytes(blocks, start, count).view(dtypes.int8).float()


def _nibbles(bytes_: Tensor) -> Tensor:
    """Return the low halves of bytes, then the high ones, as int32."""
    return (bytes_ & 15).cat(bytes_ >> 4, axis=-1).int()


def _fields(bytes_: Tensor, runs: int, run: int, bits: int) -> Tensor:
    """Return (blocks, runs, 8 / bits, run) int32: of each run of bytes the lowest fields of all, then the next."""
    shifts = Tensor.arange(0, 8, bits, dtype=dtypes.uint8).reshape((1, 1, 8 // bits, 1))
    separate = bytes_.reshape((-1, runs, 1, run))
    return ((separate >> shifts) & ((1 << bits) - 1)).int()


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    bits = _bytes(blocks, at, 4).view(dtypes.uint32)
    return ((bits >> Tensor.arange(32, dtype=dtypes.uint32)) & 1).int() << 4


def _chosen(codes: Tensor, values: tuple[int, ...]) -> Tensor:
    """Return the signed bytes at codes 0..15 as f32. The table is four constant words, so nothing is fetched."""
    words = [int.from_bytes(bytes(one & 255 for one in values[i : i + 4]), "little") for i in range(0, 16, 4)]
    wide = codes.cast(dtypes.uint32)
    first, second, third, last = (Tensor(one, dtypes.uint32) for one in words)
    word = (wide < 8).where((wide < 4).where(first, second), (wide < 12).where(third, last))
    return ((word >> ((wide & 3) * 8)) & 255).cast(dtypes.uint8).bitcast(dtypes.int8).float()


# blocks of 32


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(_bytes(blocks, 2, 16)) - 8).float()


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(_bytes(blocks, 4, 16)).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * ((_nibbles(_bytes(blocks, 6, 16)) | _fifth_bits(blocks, 2)) - 16).float()


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(_bytes(blocks, 8, 16)) | _fifth_bits(blocks, 4)).float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(blocks, 2, 32)


def _q8_1(blocks: Tensor) -> Tensor:
    """Return the numbers; the sum of the block behind its scale is not needed."""
    return _half(blocks, 0) * _signed(blocks, 4, 32)


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _chosen(_nibbles(_bytes(blocks, 2, 16)), NON_LINEAR)


def _mxfp4(blocks: Tensor) -> Tensor:
    """Return e2m1 numbers with a power of two for every 32, whose exponent is a byte; half of it makes up for the
    doubled table.
    """
    exponent = _bytes(blocks, 0, 1).cast(dtypes.uint32)
    tiny = Tensor(0x0020_0000, dtypes.uint32) << (exponent & 1)
    bits = (exponent < 2).where(tiny, (exponent - 1) << 23)
    return bits.bitcast(dtypes.float32) * _chosen(_nibbles(_bytes(blocks, 1, 16)), TWICE_FP4)


def _nvfp4(blocks: Tensor) -> Tensor:
    """Return e2m1 numbers with an unsigned e4m3 scale for every 16, four times; a scale that is no number is 0."""
    scales = _bytes(blocks, 0, 4) & 127
    halved = (scales.eq(127)).where(Tensor(0.0), scales.bitcast(dtypes.float8_e4m3).float() * 0.5)
    codes = _nibbles(_bytes(blocks, 4, 32).reshape((-1, 4, 8)))
    return (halved.unsqueeze(2) * _chosen(codes, TWICE_FP4)).reshape((-1, 64))


# blocks of 256


def _scaled(scales: Tensor, numbers: Tensor, least: Tensor | None = None) -> Tensor:
    """Return runs of equal length with a scale each, and a least value taken off."""
    made = scales.unsqueeze(2) * numbers.float().reshape((*scales.shape, -1))
    return (made if least is None else made - least.unsqueeze(2)).reshape((-1, 256))


def _q2_k(blocks: Tensor) -> Tensor:
    """Return 16 runs of 16 numbers of 2 bits; a byte for each run holds its scale and its least value."""
    scales = _bytes(blocks, 0, 16)
    numbers = _fields(_bytes(blocks, 16, 64), 2, 32, 2)
    return _scaled(_half(blocks, 80) * (scales & 15).float(), numbers, _half(blocks, 82) * (scales >> 4).float())


def _q3_k(blocks: Tensor) -> Tensor:
    """Return 16 runs of 16 numbers of 2 bits, whose third bit lies apart and takes off 4 where it is not set; scales of
    6 bits, the low 4 in eight bytes, the high 2 in four.
    """
    high = _fields(_bytes(blocks, 0, 32), 1, 32, 1).reshape((-1, 256))
    low = _fields(_bytes(blocks, 32, 64), 2, 32, 2).reshape((-1, 256))
    scales = _nibbles(_bytes(blocks, 96, 8)) | _fields(_bytes(blocks, 104, 4), 1, 4, 2).reshape((-1, 16)) << 4
    return _scaled(_half(blocks, 108) * (scales - 32).float(), low - ((high ^ 1) << 2))


def _scales_and_least(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return eight scales and eight least values of 6 bits from 12 bytes: four of each whole in low bits, the top 2
    bits of the other four above them.
    """
    first, second, third = (_bytes(blocks, 4 + 4 * i, 4) for i in range(3))
    scales = (first & 63).cat((third & 15) | ((first >> 6) << 4), axis=1)
    least = (second & 63).cat((third >> 4) | ((second >> 6) << 4), axis=1)
    return _half(blocks, 0) * scales.float(), _half(blocks, 2) * least.float()


def _q4_k(blocks: Tensor) -> Tensor:
    scales, least = _scales_and_least(blocks)
    return _scaled(scales, _nibbles(_bytes(blocks, 16, 128).reshape((-1, 4, 32))), least)


def _q5_k(blocks: Tensor) -> Tensor:
    """Return what Q4_K has, with a fifth bit of each number in 32 bytes before."""
    scales, least = _scales_and_least(blocks)
    low = _nibbles(_bytes(blocks, 48, 128).reshape((-1, 4, 32))).reshape((-1, 256))
    return _scaled(scales, low | _fields(_bytes(blocks, 16, 32), 1, 32, 1).reshape((-1, 256)) << 4, least)


def _q6_k(blocks: Tensor) -> Tensor:
    """Return two halves of 128: four rows of 32 with 4 bits from one half of two rows of bytes, 2 bits from a third; a
    scale for every 16.
    """
    low = _nibbles(_bytes(blocks, 0, 128).reshape((-1, 2, 64))).reshape((-1, 256))
    high = _fields(_bytes(blocks, 128, 64), 2, 32, 2).reshape((-1, 256)) << 4
    return _scaled(_half(blocks, 208) * _signed(blocks, 192, 16), (low | high) - 32)


def _q8_k(blocks: Tensor) -> Tensor:
    """Return bytes with an f32 scale; the sums behind them are not needed."""
    return _bytes(blocks, 0, 4).view(dtypes.float32) * _signed(blocks, 4, 256)


def _iq4_xs(blocks: Tensor) -> Tensor:
    """Return 8 runs of 32 numbers from IQ4_NL's table; scales of 6 bits, the low 4 in four bytes, the high 2 in two."""
    low = _fields(_bytes(blocks, 4, 4), 4, 1, 4).reshape((-1, 8))
    high = _fields(_bytes(blocks, 2, 2), 2, 1, 2).reshape((-1, 8))
    codes = _nibbles(_bytes(blocks, 8, 128).reshape((-1, 8, 16)))
    return _scaled(_half(blocks, 0) * ((low | high << 4) - 32).float(), _chosen(codes, NON_LINEAR))


def _tq1_0(blocks: Tensor) -> Tensor:
    """Return numbers -1, 0 and 1, five to a byte: a byte is a fraction of 256 in base 3, and the last four bytes have
    four each.
    """

    def digits(start: int, count: int, places: int) -> Tensor:
        powers = Tensor([3**place for place in range(places)]).reshape((1, places, 1))
        moved = (_bytes(blocks, start, count).int().unsqueeze(1) * powers) & 255
        return ((moved * 3) >> 8).reshape((-1, places * count))

    numbers = digits(0, 32, 5).cat(digits(32, 16, 5), digits(48, 4, 4), axis=1)
    return _half(blocks, 52) * (numbers - 1).float()


def _tq2_0(blocks: Tensor) -> Tensor:
    """Return numbers -1, 0 and 1 (and 2), four to a byte."""
    return _half(blocks, 64) * (_fields(_bytes(blocks, 0, 64), 2, 32, 2).reshape((-1, 256)) - 1).float()


BLOCKS = {
    "Q4_0": Block(18, 32, _q4_0),
    "Q4_1": Block(20, 32, _q4_1),
    "Q5_0": Block(22, 32, _q5_0),
    "Q5_1": Block(24, 32, _q5_1),
    "Q8_0": Block(34, 32, _q8_0),
    "Q8_1": Block(36, 32, _q8_1),
    "Q2_K": Block(84, 256, _q2_k),
    "Q3_K": Block(110, 256, _q3_k),
    "Q4_K": Block(144, 256, _q4_k),
    "Q5_K": Block(176, 256, _q5_k),
    "Q6_K": Block(210, 256, _q6_k),
    "Q8_K": Block(292, 256, _q8_k),
    "IQ4_NL": Block(18, 32, _iq4_nl),
    "IQ4_XS": Block(136, 256, _iq4_xs),
    "TQ1_0": Block(54, 256, _tq1_0),
    "TQ2_0": Block(66, 256, _tq2_0),
    "MXFP4": Block(17, 32, _mxfp4),
    "NVFP4": Block(36, 64, _nvfp4),
}
