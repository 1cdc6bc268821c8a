"""Losses, and the optimisers' steps of the preview of training."""

from __future__ import annotations

from typing import Any

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row

TRAINING = "ai.onnx.preview.training"


def _chosen(node: Node, logs: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Return the loss of logarithms (N, C, …) of probabilities by target classes (N, …)."""
    classes = logs.shape[1]
    held = (target < 0).where(target + classes, target)
    ignored = None if node.get("ignore_index") is None else target.eq(node.get("ignore_index"))
    if ignored is not None:
        held = ignored.where(0, held)
    picked = -logs.gather(1, held.unsqueeze(1)).squeeze(1)
    share = None if weight is None else weight.take(held, 0)
    if ignored is not None:
        share = (target * 0 + 1).cast(logs.dtype) if share is None else share
        share = ignored.where(0.0, share)
    made = picked if share is None else picked * share
    how = node.get("reduction", "mean")
    if how == "none":
        return made
    if how == "sum":
        return made.sum()
    return made.mean() if share is None else made.sum() / share.sum()


def negative_log_likelihood(node: Node, logs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the negative of the element of the target class, weighed and reduced."""
    return _chosen(node, logs, target, weight).cast(logs.dtype)


def softmax_cross_entropy(
    node: Node, scores: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss of scores, and the logarithms of their softmax."""
    logs = scores.log_softmax(1)
    return _chosen(node, logs, target, weight).cast(scores.dtype), logs


def _groups(values: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """Return operands of each parameter together, which come one kind after the other."""
    size = len(values) // count
    return list(zip(*(values[i * size : (i + 1) * size] for i in range(count)), strict=True))


def adagrad(node: Node, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return parameters after a step of Adagrad, and the sums of squares of their gradients."""
    factor = rate / (1 + step.cast(rate.dtype) * node.number("decay_factor", 0.0))
    made = []
    for x, gradient, history in _groups(values, 3):
        slope = gradient + x * node.number("norm_coefficient", 0.0)
        summed = history + slope * slope
        made.append((x - factor * slope / (summed.sqrt() + node.number("epsilon", 1e-6)), summed))
    return tuple(one for column in zip(*made, strict=True) for one in column)


def adam(node: Node, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return parameters after a step of Adam, and the running means of their gradients and of the squares."""
    first, second = node.number("alpha", 0.9), node.number("beta", 0.999)
    count = step.cast(rate.dtype)
    corrected = rate * (1 - second**count).sqrt() / (1 - first**count)
    # before the first step, nothing is there to correct
    factor = (step > 0).where(corrected, rate)
    made = []
    for x, gradient, mean, square in _groups(values, 4):
        slope = gradient + x * node.number("norm_coefficient", 0.0)
        mean_now = mean * first + slope * (1 - first)
        square_now = square * second + slope * slope * (1 - second)
        new = x - factor * mean_now / (square_now.sqrt() + node.number("epsilon", 1e-6))
        made.append((new * (1 - node.number("norm_coefficient_post", 0.0)), mean_now, square_now))
    return tuple(one for column in zip(*made, strict=True) for one in column)


def momentum(node: Node, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return parameters after a step with momentum, and the momenta."""
    keep, made = node.get("alpha"), []
    # at the first step a gradient counts whole
    share = (step > 0).where(node.get("beta"), 1.0)
    for x, gradient, before in _groups(values, 3):
        slope = gradient + x * node.get("norm_coefficient")
        now = before * keep + slope * share
        step_by = slope + now * keep if node.get("mode") == "nesterov" else now
        made.append((x - rate * step_by, now))
    return tuple(one for column in zip(*made, strict=True) for one in column)


ROWS = (
    Row("NegativeLogLikelihoodLoss", negative_log_likelihood),
    Row("SoftmaxCrossEntropyLoss", softmax_cross_entropy),
    Row("Adagrad", adagrad, domain=TRAINING),
    Row("Adam", adam, domain=TRAINING),
    Row("Momentum", momentum, domain=TRAINING),
)
