"""Normalisation by statistics of the batch, of channels, of groups and of the last axes.

Running statistics are buffers that a forward in training assigns. They are computed when something is that reads the
weights or the statistics, such as the next loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ringup.compiler.tensor.core import DTypeLike
from ringup.compiler.tensor.realize import is_data
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.linear import constant, float_type
from ringup.nn.module import Module
from ringup.nn.parameter import filled

# so many updates of running statistics may wait for something that reads them
MAX_WAITING = 16


class _RunningNorm(Module):
    """What batch and instance norms share: parameters and running statistics of each channel."""

    ranks: ClassVar[tuple[int, ...]]
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _setup(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        dtype: DTypeLike | None,
        bias: bool,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = float_type(dtype)
        self.weight = constant((num_features,), 1.0, kind) if affine else None
        self.bias = constant((num_features,), 0.0, kind) if affine and bias else None
        tracked = track_running_stats
        self.register_buffer("running_mean", filled((num_features,), 0.0, kind) if tracked else None)
        self.register_buffer("running_var", filled((num_features,), 1.0, kind) if tracked else None)
        self.register_buffer("num_batches_tracked", _counter(0) if tracked else None)
        self._waiting = 0

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked = _counter(0)

    def reset_parameters(self) -> None:
        """Start again: weights of one, no bias, no statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _count(self) -> float:
        """Count one more batch; return the part of its statistics in the running ones."""
        if self.num_batches_tracked is None:
            return 0.0
        seen = int(self.num_batches_tracked.item()) + 1
        # data of the host, so that the count is no part of a graph
        self.num_batches_tracked = _counter(seen)
        self._compute_waiting()
        return 1 / seen if self.momentum is None else self.momentum

    def _compute_waiting(self) -> None:
        """Compute the running statistics if many updates wait."""
        if self.running_mean is None or self.running_var is None:
            return
        self._waiting = 0 if is_data(self.running_mean.node) else self._waiting + 1
        if self._waiting >= MAX_WAITING:
            self.running_mean.realize(self.running_var)
            self._waiting = 0

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self.ranks or input.shape[1] != self.num_features:
            ranks = " or ".join(map(str, self.ranks))
            raise ValueError(
                f"{type(self).__name__} of {list(input.shape)}: {ranks} axes, and {self.num_features} channels"
            )

    def extra_repr(self) -> str:
        """Return the size and the options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


def _counter(value: int) -> Tensor:
    return Tensor(np.array(value, np.int64))


class _BatchNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        """Make a layer; running statistics take `momentum` parts of each batch, or are means of all for None."""
        self._setup(num_features, eps, momentum, affine, track_running_stats, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return it normalised for each channel: by the batch while training, else by the running statistics."""
        self._check(input)
        share = self._count() if self.training else 0.0
        by_batch = self.training or self.running_mean is None
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, share, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalisation of (N, C) or (N, C, L) for each channel."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalisation of (N, C, H, W) for each channel."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalisation of (N, C, D, H, W) for each channel."""

    ranks = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        """Make a layer; without running statistics each sample is normalised by itself, in use too."""
        self._setup(num_features, eps, momentum, affine, track_running_stats, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, C, …) or (C, …) normalised over each channel of each sample."""
        if input.ndim == self.ranks[0] - 1:
            made: Tensor = self.forward(input.unsqueeze(0))
            return made.reshape(made.shape[1:])
        self._check(input)
        by_sample = self.training or self.running_mean is None
        if self.training:
            self._compute_waiting()
        share = 0.1 if self.momentum is None else self.momentum
        mean, var = self.running_mean, self.running_var
        return F.instance_norm(input, mean, var, self.weight, self.bias, by_sample, share, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of (N, C, L) over each channel of each sample."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of (N, C, H, W) over each channel of each sample."""

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of (N, C, D, H, W) over each channel of each sample."""

    ranks = (5,)


class GroupNorm(Module):
    """Normalisation of (N, C, …) over each group of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        """Make a layer."""
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_channels} channels in {num_groups} groups: no multiple")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        kind = float_type(dtype)
        self.weight = constant((num_channels,), 1.0, kind) if affine else None
        self.bias = constant((num_channels,), 0.0, kind) if affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """Return it normalised."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the sizes and the options."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LayerNorm(Module):
    """Normalisation over the last axes, which have the shape `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer."""
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        kind = float_type(dtype)
        self.weight = constant(self.normalized_shape, 1.0, kind) if elementwise_affine else None
        self.bias = constant(self.normalized_shape, 0.0, kind) if elementwise_affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """Return it normalised."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and the options."""
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Division by the root of the mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; `eps` is that of the type unless given."""
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        kind = float_type(dtype)
        self.weight = constant(self.normalized_shape, 1.0, kind) if elementwise_affine else None

    def forward(self, input: Tensor) -> Tensor:
        """Return it divided."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and the options."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """(N, C, …) divided by a power of the mean square of channels around (Krizhevsky and others, 2012)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        """Make a layer that looks at `size` channels."""
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """Return it divided."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
