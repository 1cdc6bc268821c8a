"""Losses, with PyTorch's names and arguments. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math
from collections.abc import Callable

from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.reductions import places_along
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.functional.activation import pairwise_distance

REDUCTIONS = ("mean", "sum", "none")
# below this, cosine_embedding_loss takes a squared length for nothing; PyTorch's
COSINE_EPS = 1e-12


def _reduced(lost: Tensor, reduction: str) -> Tensor:
    if reduction not in REDUCTIONS:
        raise ValueError(f"a loss is not reduced by {reduction!r}; there are {', '.join(REDUCTIONS)}")
    return lost.mean() if reduction == "mean" else lost.sum() if reduction == "sum" else lost


def _same(input: Tensor, target: Tensor, what: str) -> None:
    if input.shape != target.shape:
        raise ValueError(f"{what} of {list(input.shape)} with targets {list(target.shape)}: shapes differ")


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the squared difference."""
    return input.mse_loss(target, reduction=reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the absolute difference."""
    return input.l1_loss(target, reduction=reduction)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return half the squared difference up to `delta`, a line beyond."""
    if not delta > 0:
        raise ValueError(f"huber_loss with a delta of {delta}: above 0")
    return input.huber_loss(target, delta=delta, reduction=reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return the absolute difference, rounded off below `beta`."""
    return input.smooth_l1_loss(target, beta=beta, reduction=reduction)


# classes


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return minus the log-probability of the target. Classes are along axis 1 of (N, C, …), along axis 0 of (C).

    `target` holds classes (N, …) or probabilities (N, C, …). Targets of `ignore_index` do not count. The mean is over
    the weights of the targets.
    """
    return input.cross_entropy(
        target,
        weight,
        axis=min(1, input.ndim - 1),
        ignore=ignore_index,
        smoothing=label_smoothing,
        reduction=reduction,
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return minus this log-probability of the target class; see `cross_entropy`."""
    return input.nll_loss(target, weight, axis=min(1, input.ndim - 1), ignore=ignore_index, reduction=reduction)


# probabilities


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the cross entropy of probabilities, their logarithms held above -100."""
    _same(input, target, "binary_cross_entropy")
    return input.bce_loss(target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the cross entropy of sigmoid(x), stable for large x; `pos_weight` multiplies what targets of 1 cost."""
    _same(input, target, "binary_cross_entropy_with_logits")
    return input.bce_with_logits_loss(target, weight, pos_weight=pos_weight, reduction=reduction)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return target (log target - x), x being log-probabilities; "batchmean" is the sum over the first axis' size."""
    lost = target.exp() * (target - input) if log_target else input.kl_div(target, reduction="none")
    if reduction == "batchmean":
        return lost.sum() / number_of(input.shape[0], "batchmean")
    return _reduced(lost, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the log-probability of Poisson's distribution of the mean exp(x), or x without `log_input`; with
    `full` Stirling's term too.
    """
    lost = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        held = target.maximum(1.0)
        rest = held * held.log() - held + (held * (2 * math.pi)).log() * 0.5
        lost = lost + (target > 1).where(rest, 0)
    return _reduced(lost, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return minus the log-probability of the normal distribution of that mean and variance, which counts as `eps` at
    least.
    """
    # the bound has no part in the gradient
    held = var + (var.maximum(eps) - var).detach()
    lost = (held.log() + (input - target).square() / held) * 0.5
    return _reduced(lost + 0.5 * math.log(2 * math.pi) if full else lost, reduction)


# margins and pairs


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return log(1 + exp(-target x)), targets being 1 and -1."""
    return _reduced((-target * input).softplus(), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return x where the target is 1, what it lacks of the margin where the target is -1, both for other targets."""
    far = (margin - input).relu()
    return _reduced(target.ne(-1).where(input, 0) + target.ne(1).where(far, 0), reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return what the difference lacks of the margin, in the direction of the target, 1 or -1."""
    return _reduced((-target * (input1 - input2) + margin).relu(), reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return 1 - cosine where the target is 1, the cosine above the margin where it is -1."""
    squares = [(one * one).sum(-1) + COSINE_EPS for one in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    return _reduced(target.eq(1).where(1 - cosine, 0) + target.eq(-1).where((cosine - margin).relu(), 0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return by how much the positive is not nearer to the anchor than the negative, less the margin; with `swap` the
    negative's distance from the positive counts if it is less.
    """
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return what `triplet_margin_loss` does, of distances of your own; those of pairs unless given."""
    if not margin > 0:
        raise ValueError(f"a triplet loss with a margin of {margin}: above 0")
    apart = pairwise_distance if distance_function is None else distance_function
    near, far = apart(anchor, positive), apart(anchor, negative)
    if swap:
        far = far.minimum(apart(positive, negative))
    return _reduced((near - far + margin).relu(), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the mean over the last axis of the cross entropy of sigmoid(x) with targets of 0 and 1."""
    lost = binary_cross_entropy_with_logits(input, target, weight, "none")
    return _reduced(lost.mean(-1), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the mean over classes of what the target's score lacks of the margin above each other's, to the power of
    `p`.
    """
    if input.ndim > 2 or input.shape[-1:] == (0,) or p not in (1, 2):
        raise ValueError(
            f"multi_margin_loss of {list(input.shape)} to the power of {p}: (N, C) or (C), C not 0, 1 or 2"
        )
    x = input if input.ndim == 2 else input.reshape((1, -1))
    if target.shape not in ((x.shape[0],), ()) or (input.ndim == 2 and not target.shape):
        raise ValueError(
            f"multi_margin_loss of {list(input.shape)} with targets {list(target.shape)}: one for each row"
        )
    if not target.dtype.is_integer:
        raise TypeError(f"multi_margin_loss with targets of {target.dtype}: integers")
    hit = target.reshape((-1, 1)).eq(places_along(x, 1))
    own = hit.where(x, 0).sum(1, keepdims=True)
    lacking = (margin - own + x).relu()
    each = lacking if p == 1 else lacking**p
    if weight is not None:
        if weight.shape != x.shape[1:]:
            raise ValueError(
                f"multi_margin_loss of {list(input.shape)} with weights {list(weight.shape)}: one for each class"
            )
        each = each * hit.where(weight, 0).sum(1, keepdims=True)
    lost = hit.where(0, each).sum(1) / number_of(x.shape[1], "multi_margin_loss")
    return _reduced(lost.reshape(target.shape), reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the mean over classes of what the scores of the target classes lack of 1 above those of all others.
    `target` (N, C) or (C) lists the classes of each row up to the first -1.
    """
    if input.ndim > 2 or input.shape != target.shape:
        raise ValueError(
            f"multilabel_margin_loss of {list(input.shape)} with classes {list(target.shape)}: (N, C) twice"
        )
    x, y = (one if one.ndim == 2 else one.reshape((1, -1)) for one in (input, target))
    classes = number_of(x.shape[1], "multilabel_margin_loss")
    listed = (y < 0).int().cumsum(1).eq(0)
    # (N, listed, classes)
    hit = y.unsqueeze(2).eq(places_along(x, 1)).logical_and(listed.unsqueeze(2))
    own = hit.where(x.unsqueeze(1), 0).sum(2, keepdims=True)
    counts = listed.unsqueeze(2).logical_and(hit.any(1, keepdims=True).logical_not())
    lost = counts.where((1 - own + x.unsqueeze(1)).relu(), 0).sum((1, 2)) / classes
    return _reduced(lost.reshape(input.shape[:-1]), reduction)
