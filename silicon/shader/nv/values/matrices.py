"""Sums of products of matrix instructions, and which lane has which element.

Layouts: PTX ISA, "Matrix Fragments for mma.m8n8k16" and its siblings; Mesa's NAK lays cooperative matrices out the same
way (MIT). NVIDIA does not document how tensor cores round. GUESS, after what others measured on cards: Fasi, Higham,
Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021), and "MMA-Sim" (2025). Of a few products and the
addend at once, each is cut to a number of bits below the largest exponent among them; their sum is exact, and cut to
f32, or rounded to nearest for f16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.silicon.shader.nv.values.rounding import F32_NAN, half, single

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Words = NDArray[np.uint32]

GROUP, OTHERS, HALF_ROWS = 4, 8, 8


class Sum(NamedTuple):
    """How a chip adds: products of 16-bit factors and of TF32 at once, and bits below the largest exponent."""

    products: int
    products_tf32: int
    bits: int


# GUESS: see above. MMA-Sim's numbers (mmasim/simulator/nv_ptx.py, which its authors compared with cards bit by bit) for
# Turing, Ampere and Ada, Hopper. Fasi and others found four products at once on Turing. Turing has no TF32.
SUMS = {
    "sm_75": Sum(8, 4, 24),
    "sm_80": Sum(8, 4, 24),
    "sm_86": Sum(8, 4, 24),
    "sm_89": Sum(8, 4, 24),
    "sm_90": Sum(16, 8, 25),
}


class Shape(NamedTuple):
    """M x K times K x N; `packed` elements of a factor are in a register."""

    rows: int
    depth: int
    packed: int

    @property
    def halves(self) -> int:
        """How many registers of a lane follow each other along K."""
        return self.depth // (GROUP * self.packed)


def unpacked(registers: list[Words], packed: int) -> NDArray[np.int64]:
    """Return `(register, lane, element)`: the parts of registers, unsigned."""
    width = 32 // packed
    words = np.array(registers, np.int64)
    return np.stack([words >> width * at & (1 << width) - 1 for at in range(packed)], axis=2)


def first_factor(parts: NDArray[np.generic], shape: Shape) -> NDArray[np.generic]:
    """Return `(M, K)` of the parts of A's registers `(register, lane, element)`: by rows of eight, then along K."""
    row_halves = shape.rows // HALF_ROWS
    # register = half of the rows + halves * along K; lane = row * 4 + place in a group of four
    split = parts.reshape(shape.halves, row_halves, OTHERS, GROUP, shape.packed)
    return split.transpose(1, 2, 0, 3, 4).reshape(shape.rows, shape.depth)


def second_factor(parts: NDArray[np.generic], shape: Shape) -> NDArray[np.generic]:
    """Return `(K, 8)` of the parts of B's registers."""
    split = parts.reshape(shape.halves, OTHERS, GROUP, shape.packed)
    return split.transpose(0, 2, 3, 1).reshape(shape.depth, OTHERS)


def addend(values: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """Return `(M, 8)` of values `(value, lane)`: two columns of a row, then the row eight below."""
    return values.reshape(rows // HALF_ROWS, 2, OTHERS, GROUP).transpose(0, 2, 3, 1).reshape(rows, OTHERS)


def scattered(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return `(value, lane)` of `(M, 8)`."""
    rows = matrix.shape[0]
    return matrix.reshape(rows // HALF_ROWS, OTHERS, GROUP, 2).transpose(0, 3, 1, 2).reshape(-1, OTHERS * GROUP)


def _exponents(values: Doubles, lowest: int) -> NDArray[np.int64]:
    """Return the exponents of numbers, of zero a very small one; denormals have the least of their format."""
    with np.errstate(all="ignore"):
        found = np.frexp(values)[1].astype(np.int64) - 1
    return np.where(values == 0, -10_000, np.maximum(found, lowest))


def product(
    a: Doubles, b: Doubles, c: Doubles, *, at_once: int, bits: int, lowest: int, narrow: bool
) -> NDArray[np.uint32]:
    """Return the bits (f16 if `narrow`, else f32) of a * b + c. `lowest`: the least exponent of the factors' format."""
    found = c
    for start in range(0, a.shape[1], at_once):
        part = slice(start, start + at_once)
        with np.errstate(all="ignore"):
            terms = a[:, part, None] * b[None, part, :]
        exponents = _exponents(a[:, part], lowest)[:, :, None] + _exponents(b[part], lowest)[None]
        every = np.concatenate([terms, found[:, None, :]], axis=1)
        of_sum = np.maximum(exponents.max(axis=1), _exponents(found, -126))
        unit = bits - of_sum
        finite = np.isfinite(every).all(axis=1)
        with np.errstate(all="ignore"):
            cut = np.trunc(np.ldexp(every, np.where(finite, unit, 0)[:, None, :].astype(np.int32)))
            total = np.ldexp(cut.sum(axis=1), np.where(finite, -unit, 0).astype(np.int32))
            total = np.where(of_sum < -5000, every.sum(axis=1), np.where(finite, total, every.sum(axis=1)))
        if narrow:
            words = half(total, "").astype(np.uint32)
            found = words.astype(np.uint16).view(np.float16).astype(np.float64)
        else:
            words = single(total, "RZ")
            with np.errstate(all="ignore"):
                words = np.where(np.isinf(total), total.astype(np.float32).view(np.uint32), words)
            words = np.where(np.isnan(total), F32_NAN, words).astype(np.uint32)
            found = words.view(np.float32).astype(np.float64)
    return words
