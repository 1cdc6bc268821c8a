"""Norms that take PyTorch's shape first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringup.compiler.tensor import layers
from ringup.compiler.tensor.core import Core, is_list, is_size

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def _shaped(tensor: Tensor, given: tuple[Any, ...], axes: int | Sequence[int]) -> tuple[tuple[Any, ...], Any]:
    """Return arguments without a shape of the last axes that stands first, and the axes."""
    if not given or isinstance(given[0], Core) or given[0] is None:
        return given, axes
    shape = tuple(given[0]) if is_list(given[0]) else (given[0],)
    if not all(map(is_size, shape)) or not shape or tensor.shape[-len(shape) :] != shape:
        raise ValueError(
            f"a norm over {given[0]!r} of {list(tensor.shape)}: the sizes of its last axes, a weight, or None"
        )
    return given[1:], range(tensor.ndim - len(shape), tensor.ndim)


def _in_order(given: tuple[Any, ...], named: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments given by position before those by name."""
    if len(given) > len(named):
        raise TypeError(f"a norm takes {len(named)} arguments by position after a shape, not {len(given)}")
    return (*given, *named[len(given) :])


def layer_norm(
    tensor: Tensor,
    *given: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    axes: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Return it normalised along axes: less its mean, divided by its standard deviation, then times `weight`, plus
    `bias`, which broadcast. Both may be given by position, after PyTorch's shape of the last axes.
    """
    given, along = _shaped(tensor, given, axes)
    first, second, eps = _in_order(given, (weight, bias, eps))
    return layers.layer_norm(tensor, first, second, axes=along, eps=eps)


def rms_norm(
    tensor: Tensor, *given: Any, weight: Tensor | None = None, axes: int | Sequence[int] = -1, eps: float = 1e-6
) -> Tensor:
    """Return it divided by the root of its mean square along axes, times `weight`, which may be given by position,
    after PyTorch's shape of the last axes.
    """
    given, along = _shaped(tensor, given, axes)
    first, eps = _in_order(given, (weight, eps))
    return layers.rms_norm(tensor, first, axes=along, eps=eps)
