"""Gradients held within bounds, and parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """Return the norm of all elements of tensors together."""
    found = [one.norm(norm_type).cast(_norm_dtype(one)) for one in _listed(tensors)]
    if not found:
        return Tensor(0.0)
    return found[0] if len(found) == 1 else found[0].stack(*found[1:]).norm(norm_type)


def _norm_dtype(tensor: Tensor) -> dtypes.DType:
    return dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale the gradients so that their norm together is `max_norm` at most; return the norm before."""
    found = [(one, one.grad) for one in _listed(parameters) if one.grad is not None]
    norm = get_total_norm([slope.detach() for _, slope in found if slope is not None], norm_type)
    # the small number keeps a norm of 0 apart; PyTorch's
    factor = (max_norm / (norm + 1e-6)).minimum(1.0)
    for one, slope in found:
        if slope is not None:
            one.grad = slope * factor.cast(slope.dtype)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Hold each element of the gradients between -clip_value and clip_value."""
    for one in _listed(parameters):
        if one.grad is not None:
            one.grad = one.grad.clip(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all parameters one after the other, flattened."""
    first, *rest = (one.flatten() for one in parameters)
    return first.cat(*rest) if rest else first


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Assign the pieces of a vector to parameters."""
    found = list(parameters)
    ends = accumulate((number_of(one.size, "vector_to_parameters") for one in found), initial=0)
    for one, (start, end) in zip(found, pairwise(ends), strict=True):
        one.assign(vec[start:end].reshape(one.shape))
