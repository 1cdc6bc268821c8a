"""The shapes of CDNA's matrix products, MFMA and SMFMAC: sizes, types, and where a wave holds C and D.

Source: CDNA3 ISA reference, "Matrix Arithmetic Instructions"; AMD matrix instruction calculator (layouts).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

LANES = 64
BITS = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8}
_NAME = re.compile(r"v_(mfma|mfma_scale|smfmac)_(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)")
# B of a sparse product of CDNA3: four registers of all lanes, one for each row.
SHALLOW_BITS = LANES * 4 * 32
ROWS = 4  # that follow each other in a lane's registers


@dataclass(frozen=True, slots=True)
class Shape:
    """What a mnemonic says: M = N, K, the number of blocks, the types of the result and of A and B."""

    size: int
    depth: int
    blocks: int
    result: str
    types: tuple[str, str]
    is_sparse: bool

    @property
    def parts(self) -> int:
        """The parts along K that a lane's elements of a sparse product are of."""
        return 2 if self.is_sparse and self.depth * self.size * BITS[self.types[0]] > SHALLOW_BITS else 1

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lane and register of each element of C and D, by block, row and column."""
        block, i, j = np.indices((self.blocks, self.size, self.size))
        if self.result == "f64":
            # Registers are pairs here.
            if self.blocks > 1:
                return 16 * i + self.size * block + j, np.zeros_like(i)
            return 16 * (i % ROWS) + j, i // ROWS
        if self.size == ROWS:
            return self.size * block + j, i
        groups = LANES // self.size
        lane = i // ROWS % groups * self.size + j
        return lane, block * (self.size * self.size // LANES) + i // (ROWS * groups) * ROWS + i % ROWS


@cache
def shape_of(mnemonic: str) -> Shape | None:
    """Return the shape of a matrix product of CDNA; None for another instruction."""
    found = _NAME.fullmatch(mnemonic)
    if found is None:
        return None
    kind, result, rows, _, depth, blocks, types = found.groups()
    names = types.split("_")
    return Shape(int(rows), int(depth), int(blocks or 1), result, (names[0], names[-1]), kind == "smfmac")


_EIGHTS = ("bf8_bf8", "bf8_fp8", "fp8_bf8", "fp8_fp8")
_SHORT_NAMES = (
    "mfma_f32_16x16x8_xf32", "mfma_f32_32x32x4_xf32", "mfma_f32_32x32x1_2b_f32", "mfma_f32_16x16x1_4b_f32", "mfma_f32_4x4x1_16b_f32",
    "mfma_f32_32x32x2_f32", "mfma_f32_16x16x4_f32", "mfma_i32_32x32x4_2b_i8", "mfma_i32_16x16x4_4b_i8", "mfma_i32_4x4x4_16b_i8",
    "mfma_i32_32x32x16_i8", "mfma_i32_16x16x32_i8", "mfma_f64_16x16x4_f64", "mfma_f64_4x4x4_4b_f64", "smfmac_i32_16x16x64_i8",
    "smfmac_i32_32x32x32_i8",
    *(f"mfma_f32_{shape}_{type_}" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")
      for type_ in ("f16", "bf16")),
    *(f"smfmac_f32_{shape}_{type_}" for shape in ("16x16x32", "32x32x16") for type_ in ("f16", "bf16")),
    *(f"mfma_f32_{shape}_{types}" for shape in ("16x16x32", "32x32x16") for types in _EIGHTS),
    *(f"smfmac_f32_{shape}_{types}" for shape in ("16x16x64", "32x32x32") for types in _EIGHTS),
)  # fmt: skip
NAMES = tuple(f"v_{name}" for name in _SHORT_NAMES)
# CDNA4 has no xf32.
_DEEPER_NAMES = (
    "mfma_i32_16x16x64_i8", "mfma_i32_32x32x32_i8", "smfmac_i32_16x16x128_i8", "smfmac_i32_32x32x64_i8",
    *(f"mfma_f32_{shape}_{type_}" for shape in ("16x16x32", "32x32x16") for type_ in ("f16", "bf16")),
    *(f"smfmac_f32_{shape}_{type_}" for shape in ("16x16x64", "32x32x32") for type_ in ("f16", "bf16")),
    *(f"smfmac_f32_{shape}_{types}" for shape in ("16x16x128", "32x32x64") for types in _EIGHTS),
)  # fmt: skip
CDNA4_NAMES = (*(one for one in NAMES if "xf32" not in one), *(f"v_{name}" for name in _DEEPER_NAMES))
# Products of small floats, with scales and without.
SCALED_NAMES = tuple(
    f"v_mfma_{scale}f32_{shape}_f8f6f4" for scale in ("", "scale_") for shape in ("16x16x128", "32x32x64")
)
