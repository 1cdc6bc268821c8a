"""The properties of RDNA processors that lowerings depend on, one row each."""

from __future__ import annotations

from ringup.compiler.kernel.common.traits import MatrixTraits, Traits
from ringup.errors import CompileError

# Source: RDNA3 ISA reference, "Wave Matrix Multiply Accumulate (WMMA)": each half of the wave holds all of A and B, one
# row or column in each lane; each half holds every second row of the result.
_RDNA3_MATRIX = MatrixTraits(
    operand_count=16,
    result_count=8,
    operand=lambda lane: (lane % 16, 0),
    result=lambda lane, i: (lane // 16 + 2 * i, lane % 16),
    kinds=frozenset(("float16", "bfloat16", "int8", "uint8")),
    spread=lambda row: row % 2 * 8 + row // 2,
)
# Source: RDNA4 ISA reference, the same chapter: the halves divide k between them, and each holds half of the rows.
_RDNA4_MATRIX = MatrixTraits(
    operand_count=8,
    result_count=8,
    operand=lambda lane: (lane % 16, lane // 16 * 8),
    result=lambda lane, i: (lane // 16 * 8 + i, lane % 16),
    kinds=frozenset(("float16", "bfloat16", "int8", "uint8")),
    spread=lambda row: row,
)
# Of one group.
LDS_BYTES = 64 << 10
TRAITS = {
    "gfx1100": Traits(32, 96, LDS_BYTES, 1024, _RDNA3_MATRIX),
    "gfx1151": Traits(32, 40, LDS_BYTES, 1024, _RDNA3_MATRIX),
    "gfx1201": Traits(32, 64, LDS_BYTES, 1024, _RDNA4_MATRIX),
    "gfx942": Traits(64, 304, LDS_BYTES, 1024, None),
}


def traits(target: str) -> Traits:
    """Return a target's row. Raises CompileError if there is none."""
    found = TRAITS.get(target)
    if found is None:
        raise CompileError(f"tensors cannot be compiled for {target}; supported: {', '.join(TRAITS)}")
    return found
