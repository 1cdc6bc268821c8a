"""Losses as layers. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn.module import Module
from ringup.nn.parameter import kept


class _Loss(Module):
    reduction: str

    def _weigh(self, **weights: Tensor | None) -> None:
        """Keep weights as buffers."""
        for name, value in weights.items():
            self.register_buffer(name, None if value is None else kept(value))


class L1Loss(_Loss):
    """The absolute difference."""

    def __init__(self, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The squared difference."""

    def __init__(self, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class HuberLoss(_Loss):
    """Half the squared difference up to `delta`, a line beyond."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        """Make a loss."""
        self.reduction, self.delta = reduction, delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class SmoothL1Loss(_Loss):
    """The absolute difference, rounded off below `beta`."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        """Make a loss."""
        self.reduction, self.beta = reduction, beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class CrossEntropyLoss(_Loss):
    """Minus the log-probability of the target, of scores (N, C, …) with classes or probabilities."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        """Make a loss."""
        self._weigh(weight=weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """Minus the log-probability of the target class, of log-probabilities (N, C, …)."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        """Make a loss."""
        self._weigh(weight=weight)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(_Loss):
    """The cross entropy of probabilities."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self._weigh(weight=weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of sigmoid(x)."""

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        """Make a loss."""
        self._weigh(weight=weight, pos_weight=pos_weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(_Loss):
    """target (log target - x), x being log-probabilities."""

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        """Make a loss."""
        self.reduction, self.log_target = reduction, log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Minus the log-probability of Poisson's distribution."""

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        """Make a loss."""
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.poisson_nll_loss(
            input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target x))."""

    def __init__(self, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, what it lacks of the margin where the target is -1."""

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.margin, self.reduction = margin, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of the cross entropy of sigmoid(x)."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self._weigh(weight=weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class MultiMarginLoss(_Loss):
    """The mean over classes of what the target's score lacks of the margin above others."""

    weight: Tensor | None

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        """Make a loss."""
        self._weigh(weight=weight)
        self.p, self.margin, self.reduction = p, margin, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """The mean over classes of what the scores of the target classes lack of 1 above others."""

    def __init__(self, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """Minus the log-probability of the normal distribution of that mean and variance."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        """Make a loss."""
        self.full, self.eps, self.reduction = full, eps, reduction

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """Return the loss."""
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """What a difference lacks of the margin, in the direction of the target."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.margin, self.reduction = margin, reduction

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cosine where the target is 1, the cosine above the margin where it is -1."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        """Make a loss."""
        self.margin, self.reduction = margin, reduction

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """By how much the positive is not nearer to the anchor than the negative, less the margin."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        """Make a loss."""
        self.margin, self.p, self.eps, self.swap, self.reduction = margin, p, eps, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """What `TripletMarginLoss` is, of distances of your own."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        """Make a loss; distances are those of `PairwiseDistance` unless given."""
        self.distance_function, self.margin, self.swap, self.reduction = distance_function, margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Minus the log-probability that (steps, N, classes) spell the targets, blanks and repeats left out."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        """Make a loss."""
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        """Return the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
