"""The properties of RDNA processors that lowerings depend on, one row each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringup.compiler.kernel.common.traits import MatrixTraits, Traits, factors_name
from ringup.errors import CompileError

_NARROW: Final = {"float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8"}
# Source: RDNA3 ISA reference, "Wave Matrix Multiply Accumulate (WMMA)": each half of the wave holds all of A and B, one
# row or column in each lane; each half holds every second row of the result.
_RDNA3_MATRIX = {
    name: MatrixTraits(
        kind,
        operand_count=16,
        result_count=8,
        operand=lambda lane: (lane % 16, 0),
        result=lambda lane, i: (lane // 16 + 2 * i, lane % 16),
        spread=lambda row: row % 2 * 8 + row // 2,
    )
    for name, kind in _NARROW.items()
}
# Source: RDNA4 ISA reference, the same chapter: the halves divide k between them, and each holds half of the rows.
_RDNA4_MATRIX = {
    name: MatrixTraits(
        kind,
        operand_count=8,
        result_count=8,
        operand=lambda lane: (lane % 16, lane // 16 * 8),
        result=lambda lane, i: (lane // 16 * 8 + i, lane % 16),
        spread=lambda row: row,
    )
    for name, kind in _NARROW.items()
}
# Source: AMD's matrix instruction calculator, cdna3: the quarters of a wave divide k between them, and each holds a
# quarter of the rows. Four instructions of f32 or f64, with 4 k each, are one product here: of a lane's four elements,
# each takes one. There is no product of unsigned bytes.
_CDNA3_MATRIX = {
    "float16": MatrixTraits(
        "f16",
        operand_count=4,
        result_count=4,
        operand=lambda lane: (lane % 16, lane // 16 * 4),
        result=lambda lane, i: (lane // 16 * 4 + i, lane % 16),
        spread=lambda row: row,
    )
}
_CDNA3_MATRIX |= {
    "bfloat16": replace(_CDNA3_MATRIX["float16"], kind="bf16"),
    "float32": replace(_CDNA3_MATRIX["float16"], kind="f32"),
    "float64": replace(_CDNA3_MATRIX["float16"], kind="f64", result=lambda lane, i: (lane // 16 + 4 * i, lane % 16)),
    "int8": replace(
        _CDNA3_MATRIX["float16"],
        kind="i8x32",
        operand_count=8,
        operand=lambda lane: (lane % 16, lane // 16 * 8),
        depth=32,
    ),
}
# CDNA4's products of narrow types have twice as many k. Source: CDNA4 ISA reference, "Dense Matrix Layouts".
_CDNA4_MATRIX = _CDNA3_MATRIX | {
    name: replace(
        _CDNA3_MATRIX["float16"],
        kind=f"{kind}x32",
        operand_count=8,
        operand=lambda lane: (lane % 16, lane // 16 * 8),
        depth=32,
    )
    for name, kind in (("float16", "f16"), ("bfloat16", "bf16"))
}
_CDNA4_MATRIX["int8"] = replace(
    _CDNA3_MATRIX["int8"], kind="i8x64", operand_count=16, operand=lambda lane: (lane % 16, lane // 16 * 16), depth=64
)
# Floats of 8 bits, in OCP's formats, in any pair: e4m3 is FP8, e5m2 BF8. Source: CDNA4 ISA reference, "8-bit and
# Smaller Matrix Operations and Layouts". A product of 128 k takes the time of two of 32 k; those are for short sums.
# UNKNOWN: which of the 128 k a lane's 32 bytes are: the document has no table of them for FP8. The result does not
# depend on it, because both factors have the same layout.
_EIGHTHS: Final = {"float8_e4m3": "fp8", "float8_e5m2": "bf8"}


def _eighths(depth: int) -> dict[str, MatrixTraits]:
    count = depth // 4
    return {
        factors_name(a, b): replace(
            _CDNA3_MATRIX["float16"],
            kind=f"{_EIGHTHS[a]}_{_EIGHTHS[b]}x{depth}",
            operand_count=count,
            operand=lambda lane: (lane % 16, lane // 16 * count),
            depth=depth,
        )
        for a in _EIGHTHS
        for b in _EIGHTHS
    }


_CDNA4_MATRIX |= _eighths(128)
_CDNA4_SHALLOW = {one: _CDNA3_MATRIX[one] for one in ("float16", "bfloat16")} | _eighths(32)
# Of one group. Source of CDNA4's: its ISA reference, "Local Data Share": a group can have all of it.
LDS_BYTES, CDNA4_LDS_BYTES = 64 << 10, 160 << 10
TRAITS = {
    "gfx1100": Traits(32, 96, LDS_BYTES, 1024, _RDNA3_MATRIX),
    "gfx1151": Traits(32, 40, LDS_BYTES, 1024, _RDNA3_MATRIX),
    "gfx1201": Traits(32, 64, LDS_BYTES, 1024, _RDNA4_MATRIX),
    "gfx942": Traits(64, 304, LDS_BYTES, 1024, _CDNA3_MATRIX, simds=4),
    "gfx950": Traits(64, 256, CDNA4_LDS_BYTES, 1024, _CDNA4_MATRIX, _CDNA4_SHALLOW, simds=4),
}


def traits(target: str) -> Traits:
    """Return a target's row. Raises CompileError if there is none."""
    found = TRAITS.get(target)
    if found is None:
        raise CompileError(f"tensors cannot be compiled for {target}; supported: {', '.join(TRAITS)}")
    return found
