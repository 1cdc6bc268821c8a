"""Matrix products and what is made of them."""

from __future__ import annotations

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import known_size

# up to this size a determinant is the sum of products of an expansion by rows
MAX_DETERMINANT = 32


def matmul(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the matrix product as NumPy has it."""
    return x.matmul(y).cast(x.dtype)


def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Return alpha A B + beta C, the matrices turned where asked for."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    made = (a.mT if node.get("transA", 0) else a).matmul(b.mT if node.get("transB", 0) else b)
    made = made if alpha == 1 else made * alpha
    if c is not None:
        made = made + (c if beta == 1 else c * beta)
    return made.cast(a.dtype)


def einsum(node: Node, *operands: Tensor) -> Tensor:
    """Return the sum that a formula names."""
    return Tensor.einsum(node.get("equation"), *operands).cast(operands[0].dtype)


def determinant(node: Node, x: Tensor) -> Tensor:
    """Return the determinants of the last two axes, by elimination with the greatest pivot of each column."""
    size = known_size(x.shape[-1], str(node))
    if size > MAX_DETERMINANT:
        raise node.refuse(f"matrices of {size} rows, {MAX_DETERMINANT} at most")
    left, made = x, Tensor.ones(x.shape[:-2], dtype=x.dtype)
    for step in range(size):
        rows = size - step
        # the row with the greatest element in front comes first; that turns the sign unless it was there
        best = left[..., 0].abs().argmax(-1, keepdims=True)
        pivot = left.take_along_axis(best.unsqueeze(-1), -2)
        first = left[..., :1, :]
        made = made * best.squeeze(-1).eq(0).where(1.0, -1.0).cast(x.dtype) * pivot[..., 0, 0]
        if rows == 1:
            break
        places = Tensor.arange(rows).reshape((rows, 1))
        left = places.eq(best.unsqueeze(-1)).where(first, left)[..., 1:, :]
        left = (left - left[..., :1] / pivot[..., :1] * pivot)[..., 1:]
    return made


ROWS = (
    Row("MatMul", matmul),
    Row("Gemm", gemm),
    Row("Einsum", einsum),
    Row("Det", determinant),
)
