"""Losses that weigh: of classes, of probabilities of two outcomes. They are computed in f32 (f64 for f64) and rounded
once to the tensor's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringup.compiler.tensor import layers
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.indexing import is_class
from ringup.compiler.tensor.layers import summarised
from ringup.compiler.tensor.reductions import places_along

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


# classes


def cross_entropy(
    tensor: Tensor,
    target: Tensor,
    weight: Any = None,
    *,
    axis: int = -1,
    ignore: int | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the log-probability of the target along `axis`, the last one also of (N, C, …): classes as integers
    without that axis, or probabilities with it.

    `weight` holds a weight for each class. Elements of the class `ignore` do not count. The mean is over the weights
    of the targets. A class outside loses 0.
    """
    at = tensor._axis(axis)
    logs = widened(tensor).log_softmax(at)
    if not target.dtype.is_float:
        found = _of_classes(logs, target, weight, at, ignore, smoothing, reduction, "cross_entropy")
        return narrowed(found, tensor)
    if target.shape != tensor.shape:
        raise ValueError(
            f"cross_entropy of {list(tensor.shape)} with probabilities {list(target.shape)}: shapes differ"
        )
    wanted = widened(tensor._of(target._node)) * (1 - smoothing)
    each = (wanted + smoothing / number_of(tensor.shape[at], "cross_entropy")) * _weighed(logs, weight, at)
    return narrowed(summarised(-each.sum(at), reduction), tensor)


def nll_loss(
    tensor: Tensor,
    target: Tensor,
    weight: Any = None,
    *,
    axis: int = -1,
    ignore: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return minus this log-probability of the target class along `axis`, the last one also of (N, C, …); `weight`,
    `ignore` and the mean as `cross_entropy` has them.
    """
    at = tensor._axis(axis)
    found = _of_classes(widened(tensor), target, weight, at, ignore, 0.0, reduction, "nll_loss")
    return narrowed(found, tensor)


def _by_class(logs: Tensor, weight: Any, at: int) -> Tensor:
    """Return the weights of classes as they go with log-probabilities."""
    given = logs._lift(weight)
    if given.shape != (logs.shape[at],):
        raise ValueError(f"weights {list(given.shape)} of classes for {list(logs.shape)}: one for each of axis {at}")
    return given.cast(logs.dtype).reshape(tuple(-1 if i == at else 1 for i in range(logs.ndim)))


def _weighed(logs: Tensor, weight: Any, at: int) -> Tensor:
    """Return log-probabilities times the weights of their classes."""
    return logs if weight is None else logs * _by_class(logs, weight, at)


def _of_classes(
    logs: Tensor,
    target: Tensor,
    weight: Any,
    at: int,
    ignore: int | None,
    smoothing: float,
    reduction: str,
    name: str,
) -> Tensor:
    if target.shape != tuple(size for i, size in enumerate(logs.shape) if i != at):
        raise ValueError(
            f"{name} of {list(logs.shape)} along axis {at} with classes {list(target.shape)}: that axis less"
        )
    places = logs._of(target._node)
    counts = None if ignore is None else places.ne(ignore)
    given = places if counts is None else counts.where(places, 0)
    hit = is_class(places.unsqueeze(at), places_along(logs, at), given, name)
    classes = number_of(logs.shape[at], name)
    if counts is not None and ignore is not None and 0 <= ignore < classes:
        hit = hit.logical_and(counts.unsqueeze(at))
    weighed = _weighed(logs, weight, at)
    lost = -hit.where(weighed, 0).sum(at)
    if smoothing:
        spread = -weighed.sum(at)
        spread = spread if counts is None else counts.where(spread, 0)
        lost = lost * (1 - smoothing) + spread * (smoothing / max(classes, 1))
    if reduction != "mean" or (weight is None and counts is None):
        return summarised(lost, reduction)
    if weight is None and counts is not None:
        return lost.sum() / counts.cast(logs.dtype).sum()
    return lost.sum() / hit.where(_by_class(logs, weight, at), 0).sum()


# probabilities of two outcomes


def _beside_target(tensor: Tensor, target: Any) -> tuple[Tensor, Tensor]:
    """Return a tensor and its target in the type of losses and in one shape."""
    x = widened(tensor)
    x, y = x._fit(target)
    return x, y


def _summed(lost: Tensor, weight: Any, reduction: str, tensor: Tensor) -> Tensor:
    """Return losses times weights that broadcast, reduced, in the tensor's type."""
    weighed = lost if weight is None else lost * lost._lift(weight).cast(lost.dtype)
    return narrowed(summarised(weighed, reduction), tensor)


def bce_loss(tensor: Tensor, target: Any, weight: Any = None, *, reduction: str = "mean") -> Tensor:
    """Return the cross entropy of probabilities, their logarithms held above -100; its slope is finite at 0 and 1.
    `weight` broadcasts.
    """
    x, y = _beside_target(tensor, target)
    lost = -(y * x.log().maximum(-100.0) + (1 - y) * (-x).log1p().maximum(-100.0))
    return _summed(lost._with_rule(_bce_rule, x, y), weight, reduction, tensor)


def bce_with_logits_loss(
    tensor: Tensor, target: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Return the cross entropy of sigmoid(x), stable for large x. `weight` and `pos_weight` broadcast, and this one
    multiplies what targets of 1 cost.
    """
    x, y = _beside_target(tensor, target)
    if pos_weight is not None:
        times = x._lift(pos_weight).cast(x.dtype)
        return _summed((1 - y) * x + ((times - 1) * y + 1) * (-x).softplus(), weight, reduction, tensor)
    # of a logit on the right side nothing is lost but the tail, of an infinite one too
    wrong = (x > 0).where(1 - y, y)
    lost = wrong.eq(0).where(0, x.abs() * wrong) + (-x.abs()).exp().log1p()
    return _summed(lost._with_rule(_bce_with_logits_rule, x, y), weight, reduction, tensor)


def _bce_rule(gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    # PyTorch's bound below
    below = ((1 - x) * x).maximum(1e-12)
    return gradient * (x - y) / below, gradient * ((-x).log1p() - x.log())


def _bce_with_logits_rule(gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return gradient * (x.sigmoid() - y), -gradient * x


# differences


def smooth_l1_loss(tensor: Tensor, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return the absolute difference, rounded off below `beta`."""
    if beta == 0:
        return layers.l1_loss(tensor, target, reduction=reduction)
    return layers.huber_loss(tensor, target, delta=beta, reduction=reduction) / beta
