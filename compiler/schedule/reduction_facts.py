"""Facts about reduction operators: the identity element, and the dtype of the accumulator."""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType, Scalar
from ringup.compiler.graph.nodes import Op


def identity(op: Op, dtype: DType) -> Scalar:
    """Return the identity element of an operation."""
    if op in (Op.ADD, Op.OR, Op.XOR):
        return False if dtype.kind == "bool" else 0
    if op is Op.MUL:
        return 1
    if op is Op.AND:
        return True if dtype.kind == "bool" else -1
    return dtype.least if op in (Op.MAX, Op.LOGADDEXP) else dtype.greatest


def kept(op: Op, dtype: DType) -> DType:
    """Return the dtype of a fold's accumulator: f32 for sums and products of narrower floats, int32 for those of
    narrower integers.
    """
    if op in (Op.ADD, Op.MUL, Op.LOGADDEXP) and dtype.bits < 32 and dtype.kind != "bool":
        return dtypes.float32 if dtype.is_float else dtypes.int32
    return dtype
