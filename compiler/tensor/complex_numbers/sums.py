"""Products, running products, means and norms of complex numbers along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.movement import add_edges, cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# factors that one kernel multiplies to one product
FACTORS = 8


def product(tensor: Tensor, axes: tuple[int, ...], *, keepdims: bool) -> Tensor:
    """Return the product along axes: of neighbours, and of their products, until one is left."""
    made = tensor
    for axis in axes:
        made = _product_along(made, axis)
    kept = tuple(1 if i in axes else size for i, size in enumerate(tensor.shape))
    return made.reshape(kept if keepdims else tuple(size for i, size in enumerate(tensor.shape) if i not in axes))


def _product_along(tensor: Tensor, axis: int) -> Tensor:
    size = number_of(tensor.shape[axis], "a product of complex numbers")
    if size == 0:
        return tensor._constant(1, tensor.dtype, tuple(1 if i == axis else n for i, n in enumerate(tensor.shape)))
    made, steps = tensor, 1
    while size > 1:
        half = size // 2
        left = cut(made, axis, 0, half) * cut(made, axis, half, 2 * half)
        made = left if size % 2 == 0 else left.cat(cut(made, axis, 2 * half, size), axis=axis)
        size, steps = half + size % 2, steps * 2
        # so that no kernel reads more than so many numbers for one
        if steps == FACTORS and size > 1:
            made, steps = made.contiguous(), 1
    return made


def running_product(tensor: Tensor, axis: int) -> Tensor:
    """Return the running product along an axis: of stretches before each element that double in length."""
    size, made, reach = number_of(tensor.shape[axis], "a running product of complex numbers"), tensor, 1
    while reach < size:
        edges = [(reach, 0) if i == axis else (0, 0) for i in range(tensor.ndim)]
        before = add_edges(cut(made, axis, 0, size - reach), edges, 1)
        made, reach = (made * before).contiguous(), reach * 2
    return made
