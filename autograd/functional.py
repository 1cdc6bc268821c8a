"""Matrices of derivatives, and their products with vectors, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringup.autograd.gradients import Tensors, listed
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.gradients import gradient_where
from ringup.compiler.tensor.tensor import Tensor


def _called(func: Callable[..., Any], inputs: Tensors) -> tuple[list[Tensor], list[Tensor], Any]:
    """Return copies of the inputs, what the function makes of them as a list, and as it gave it."""
    taken = [one.clone() for one in listed(inputs, "inputs")]
    made = func(*taken)
    return taken, listed(made, "what the function returns"), made


def _slopes(output: Tensor, inputs: Sequence[Tensor], seed: Tensor | None = None) -> list[Tensor]:
    """Return the gradients of an output by each input, zeros where it does not depend on one."""
    found = gradient_where(output, inputs, seed)
    return [target.zeros_like() if one is None else one for one, target in zip(found, inputs, strict=True)]


def _as_given(values: Sequence[Any], given: object) -> Any:
    """Return one value for one tensor, a tuple of them for several."""
    return values[0] if isinstance(given, Tensor) else tuple(values)


def jacobian(func: Callable[..., Any], inputs: Tensors, create_graph: bool = False) -> Any:
    """Return the derivatives of each element of what a function returns by each element of its inputs, in the shape
    of the one, then that of the other; nested tuples, results first, where there are several.
    """
    taken, outputs, made = _called(func, inputs)
    rows = [_as_given(_jacobian(one, taken, create_graph), inputs) for one in outputs]
    return _as_given(rows, made)


def _jacobian(output: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    count = number_of(output.numel(), "jacobian")
    flat = output.reshape(-1)
    rows = [_slopes(flat[i], inputs) for i in range(count)]
    found = []
    for i, one in enumerate(inputs):
        first, *rest = (row[i] for row in rows)
        found.append(first.stack(*rest).reshape((*output.shape, *one.shape)))
    return found if create_graph else [one.detach() for one in found]


def hessian(func: Callable[..., Any], inputs: Tensors, create_graph: bool = False) -> Any:
    """Return the second derivatives of a function that returns one number."""
    taken, outputs, _ = _called(func, inputs)
    if len(outputs) != 1 or outputs[0].numel() != 1:
        raise ValueError("a hessian is of a function that returns one number")
    slopes = _slopes(outputs[0].reshape(()), taken)
    return _as_given([_as_given(_jacobian(one, taken, create_graph), inputs) for one in slopes], inputs)


def vjp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False) -> Any:
    """Return what a function returns, and the product of `v` with its jacobian: (result, gradients by the inputs)."""
    taken, outputs, made = _called(func, inputs)
    seeds: list[Any] = [None] * len(outputs) if v is None else listed(v, "v")
    if len(seeds) != len(outputs):
        raise ValueError(f"{len(seeds)} tensors v for {len(outputs)} results")
    parts = [_slopes(one, taken, seed) for one, seed in zip(outputs, seeds, strict=True)]
    totals = [sum(rest, first) for first, *rest in zip(*parts, strict=True)]
    return made, _as_given(totals if create_graph else [one.detach() for one in totals], inputs)


def jvp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False) -> Any:
    """Return what a function returns, and the product of its jacobian with `v`, which has the inputs' shapes."""
    taken, outputs, made = _called(func, inputs)
    along = [one.ones_like() for one in taken] if v is None else listed(v, "v")
    if v is None and (len(taken) != 1 or taken[0].numel() != 1):
        raise ValueError("jvp needs v unless there is one input of one number")
    found = []
    for one in outputs:
        # the gradient by a seed, which it is linear in, of the gradients' product with v
        seed = one.zeros_like().clone()
        slopes = _slopes(one, taken, seed)
        total: Any = sum((slope * way).sum() for slope, way in zip(slopes, along, strict=True))
        (product,) = _slopes(total, [seed])
        found.append(product if create_graph else product.detach())
    return made, _as_given(found, made)
