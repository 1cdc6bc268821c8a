"""Dropout as layers: they act while training only. `inplace` changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn.module import Module


class _Dropout(Module):
    compute: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        """Make a layer that drops at the rate `p`."""
        if not 0 <= p <= 1:
            raise ValueError(f"dropout at a rate of {p}: 0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, parts of it dropped while training."""
        return type(self).compute(input, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the rate."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Elements set to 0 at random, the others times 1 / (1 - p)."""

    compute = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Whole channels of (…, C, L) set to 0 at random."""

    compute = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Whole channels of (…, C, H, W) set to 0 at random."""

    compute = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Whole channels of (…, C, D, H, W) set to 0 at random."""

    compute = staticmethod(F.dropout3d)


class FeatureAlphaDropout(_Dropout):
    """Whole channels of (N, C, …) set to selu's lower limit at random."""

    compute = staticmethod(F.feature_alpha_dropout)


class AlphaDropout(_Dropout):
    """Elements set to selu's lower limit at random, mean and variance kept."""

    compute = staticmethod(F.alpha_dropout)
