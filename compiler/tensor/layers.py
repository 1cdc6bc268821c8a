"""What networks are made of above the arithmetic: normalisation, attention, rotary positions, embedding, dropout,
losses.

Statistics, scores and losses are computed in f32 (f64 for f64) and rounded once to the tensor's type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from ringup.compiler.graph import dtypes, index
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor.core import Core, number_of
from ringup.compiler.tensor.sorting import Sorting

REDUCTIONS = ("mean", "sum", "none")


class Layers(Sorting):
    """Normalisation, attention, losses."""

    __slots__ = ()

    # normalisation

    def _normal(self, axes: Sequence[int], eps: float) -> Self:
        apart = self - self.mean(axes, keepdims=True)
        return apart * ((apart * apart).mean(axes, keepdims=True) + eps).rsqrt()

    def layer_norm(
        self, weight: Core | None = None, bias: Core | None = None, *, axes: int | Sequence[int] = -1, eps: float = 1e-5
    ) -> Self:
        """Return it less its mean, over its standard deviation, along axes; times `weight`, plus `bias`, which
        broadcast.
        """
        x = self._wide()
        made = x._normal(x._axes(axes), eps)
        return made._scaled(weight, bias)._narrow(self)

    def _scaled(self, weight: Core | None, bias: Core | None) -> Self:
        made = self if weight is None else self * self._of(weight._node)._wide()
        return made if bias is None else made + self._of(bias._node)._wide()

    def rms_norm(self, weight: Core | None = None, *, axes: int | Sequence[int] = -1, eps: float = 1e-6) -> Self:
        """Return it over the root of its mean square along axes, times `weight`."""
        x = self._wide()
        made = x * ((x * x).mean(axes, keepdims=True) + eps).rsqrt()
        return made._scaled(weight, None)._narrow(self)

    def _by_channel(self, value: Core | None, ndim: int) -> Self | None:
        return None if value is None else self._of(value._node).reshape((1, -1, *[1] * (ndim - 2)))

    def group_norm(
        self, groups: int, weight: Core | None = None, bias: Core | None = None, *, eps: float = 1e-5
    ) -> Self:
        """Return (N, C, …) normalised over each of `groups` groups of channels; weight and bias (C)."""
        if self.ndim < 2 or groups < 1 or self.shape[1] % groups != 0:
            raise ValueError(
                f"group_norm of {list(self.shape)} in {groups} groups: (N, C, …) with C a multiple of them"
            )
        x = self._wide()
        grouped = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
        made = grouped._normal(range(2, grouped.ndim), eps).reshape(self.shape)
        return made._scaled(self._by_channel(weight, self.ndim), self._by_channel(bias, self.ndim))._narrow(self)

    def instance_norm(self, weight: Core | None = None, bias: Core | None = None, *, eps: float = 1e-5) -> Self:
        """Return (N, C, …) normalised over each channel of each sample."""
        return self.group_norm(number_of(self.shape[1], "instance_norm"), weight, bias, eps=eps)

    def batch_norm(
        self,
        mean: Core | None = None,
        variance: Core | None = None,
        weight: Core | None = None,
        bias: Core | None = None,
        *,
        eps: float = 1e-5,
    ) -> Self:
        """Return (N, C, …) normalised by a channel's `mean` and `variance`, or by the batch's own where they are None
        (training).
        """
        x = self._wide()
        axes = [i for i in range(self.ndim) if i != 1]
        if mean is None or variance is None:
            made = x._normal(axes, eps)
        else:
            middle, wide = self._by_channel(mean, self.ndim), self._by_channel(variance, self.ndim)
            assert middle is not None
            assert wide is not None
            made = (x - middle._wide()) * (wide._wide() + eps).rsqrt()
        return made._scaled(self._by_channel(weight, self.ndim), self._by_channel(bias, self.ndim))._narrow(self)

    # attention

    def scaled_dot_product_attention(
        self,
        key: Core,
        value: Core,
        mask: Core | None = None,
        *,
        causal: bool = False,
        scale: float | None = None,
        start: Int | None = None,
        grouped: bool = False,
    ) -> Self:
        """Return softmax(q k^T * scale + mask) v for (…, heads, queries, width) with (…, heads, keys, width).

        `mask` is added, or keeps where a bool one is true. `causal`: query i sees keys up to i + `start` (keys -
        queries unless said: the last query sees all). `grouped`: fewer heads of keys and values, each for as many heads
        of queries. `scale` is 1 / sqrt(width) unless said. Rows that see nothing are 0.
        """
        q, k, v = self, self._of(key._node), self._of(value._node)
        if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ValueError(
                f"attention of q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}: (…, queries, width), (…, keys, width), (…, keys, out)"
            )
        heads = q.shape
        if grouped and min(q.ndim, k.ndim) > 2 and q.shape[-3] != k.shape[-3]:
            q, k, v, mask = q._split_heads(k, v, mask)
        factor = 1 / math.sqrt(number_of(q.shape[-1], "attention")) if scale is None else scale
        scores = q.matmul(k.transpose(), q._compute_dtype()) * factor
        seen, whole = None, mask is None  # whole: every row sees something
        if causal:
            last = k.shape[-2] - q.shape[-2] if start is None else start
            here, there = scores._places(scores.ndim - 2), scores._places(scores.ndim - 1)
            seen = there <= (here if isinstance(last, int) and last == 0 else here + here._lift(last))
            whole = whole and index.bounds(last)[0] >= 0
        if mask is not None:
            if mask.dtype.kind == "bool":
                seen = self._of(mask._node) if seen is None else seen & self._of(mask._node)
            else:
                scores = scores + self._of(mask._node)._wide()
        if seen is not None:
            scores = seen.where(scores, float("-inf"))
        weights = scores.softmax() if whole else scores._softmax_seen()
        made = weights.cast(v.dtype if v.dtype.is_float else weights.dtype).matmul(v)
        return made.cast(self.dtype).reshape((*heads[:-1], v.shape[-1]))

    def _softmax_seen(self) -> Self:
        """Return softmax of the last axis, 0 in rows that are all minus infinity."""
        top = self.max(-1, keepdims=True).detach()
        powers = (self - top.eq(float("-inf")).where(0.0, top))._exp_negative()
        below = powers.sum(-1, keepdims=True)
        return powers / below.eq(0).where(1.0, below)

    def _split_heads(self, k: Self, v: Self, mask: Core | None) -> tuple[Self, Self, Self, Core | None]:
        """Return q as (…, kv heads, heads each, queries, width), the others with an axis of 1 there."""
        heads, shared = self.shape[-3], k.shape[-3]
        if heads % shared != 0:
            raise ValueError(f"attention with {heads} heads of queries and {shared} of keys: no multiple")
        q = self.unflatten(-3, (shared, heads // shared))
        if mask is not None and mask.ndim > 2:
            m = self._of(mask._node)
            mask = m.unsqueeze(-3) if m.shape[-3] == 1 else m.unflatten(-3, (shared, heads // shared))
        return q, k.unsqueeze(-3), v.unsqueeze(-3), mask

    def rotary(self, cosines: Core, sines: Core, *, interleaved: bool = False) -> Self:
        """Return (…, positions, width) turned by the angles whose cosines and sines are (positions, width / 2), which
        broadcast (RoPE).

        Pairs are (i, i + width / 2), or neighbours when `interleaved`.
        """
        width = number_of(self.shape[-1], "rotary")
        if width % 2 or cosines.shape[-1] * 2 != width or sines.shape != cosines.shape:
            raise ValueError(
                f"rotary of {list(self.shape)} by {list(cosines.shape)}: an even width, and half of it for both tables"
            )
        x, c, s = self._wide(), self._of(cosines._node)._wide(), self._of(sines._node)._wide()
        if interleaved:
            pairs = x.unflatten(-1, (width // 2, 2))
            a, b = (pairs._cut(pairs.ndim - 1, i, i + 1).reshape(pairs.shape[:-1]) for i in (0, 1))
            return (a * c - b * s).stack(b * c + a * s, axis=-1).flatten(-2)._narrow(self)
        a, b = (x._cut(x.ndim - 1, i * width // 2, (i + 1) * width // 2) for i in (0, 1))
        return (a * c - b * s).cat(b * c + a * s, axis=-1)._narrow(self)

    def embedding(self, places: Any) -> Self:
        """Return rows of this table (entries, width) at integer places: shape of places, then the width. Places outside
        read 0.
        """
        if self.ndim != 2:
            raise ValueError(f"embedding in a table of {list(self.shape)}: (entries, width)")
        return self.take(places, 0)

    # losses

    def _summarised(self, how: str) -> Self:
        if how not in REDUCTIONS:
            raise ValueError(f"a loss is not reduced by {how!r}; there are {', '.join(REDUCTIONS)}")
        return self.mean() if how == "mean" else self.sum() if how == "sum" else self

    def cross_entropy(
        self,
        target: Core,
        *,
        axis: int = -1,
        ignore: int | None = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Return minus the log-probability of the target along `axis`: classes as integers without that axis, or
        probabilities with it.

        `ignore` is a class that counts nothing; the mean is over the others.
        """
        at = self._axis(axis)
        logs = self._wide().log_softmax(at)
        classes = number_of(self.shape[at], "cross_entropy")
        if target.dtype.is_float:
            if target.shape != self.shape:
                raise ValueError(
                    f"cross_entropy of {list(self.shape)} with probabilities {list(target.shape)}: shapes differ"
                )
            wanted = self._of(target._node)._wide() * (1 - smoothing) + smoothing / classes
            return (-(wanted * logs).sum(at))._summarised(reduction)._narrow(self)
        if target.shape != tuple(size for i, size in enumerate(self.shape) if i != at):
            raise ValueError(
                f"cross_entropy of {list(self.shape)} along axis {axis} with classes {list(target.shape)}: that axis less"
            )
        places = self._of(target._node).unsqueeze(at)
        hit = places.eq(logs._places(at))
        picked = hit.where(logs, 0).sum(at)
        lost = -(picked * (1 - smoothing) + logs.sum(at) * (smoothing / classes)) if smoothing else -picked
        if ignore is None:
            return lost._summarised(reduction)._narrow(self)
        counts = self._of(target._node).ne(ignore)
        lost = counts.where(lost, 0)
        made = lost.sum() / counts.cast(lost.dtype).sum() if reduction == "mean" else lost._summarised(reduction)
        return made._narrow(self)

    def nll_loss(self, target: Core, *, axis: int = -1, reduction: str = "mean") -> Self:
        """Return minus this log-probability of the target class along `axis`."""
        at = self._axis(axis)
        hit = self._of(target._node).unsqueeze(at).eq(self._places(at))
        return (-hit.where(self, 0).sum(at))._summarised(reduction)

    def mse_loss(self, target: Any, *, reduction: str = "mean") -> Self:
        """Return the squared difference."""
        return self.sub(target).square()._summarised(reduction)

    def l1_loss(self, target: Any, *, reduction: str = "mean") -> Self:
        """Return the absolute difference."""
        return self.sub(target).abs()._summarised(reduction)

    def huber_loss(self, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Self:
        """Return half the squared difference up to `delta`, a line beyond."""
        apart = self.sub(target).abs()
        near: Self = apart <= delta
        return near.where(apart * apart * 0.5, (apart - 0.5 * delta) * delta)._summarised(reduction)

    def bce_loss(self, target: Any, *, reduction: str = "mean") -> Self:
        """Return the cross entropy of probabilities, their logarithms held above -100."""
        x = self._wide()
        y = x._lift(target)
        return (
            (-(y * x.log().maximum(-100.0) + (1 - y) * (-x).log1p().maximum(-100.0)))
            ._summarised(reduction)
            ._narrow(self)
        )

    def bce_with_logits_loss(self, target: Any, *, reduction: str = "mean") -> Self:
        """Return the cross entropy of sigmoid(x), stable for large x."""
        x = self._wide()
        return (x.softplus() - x * x._lift(target))._summarised(reduction)._narrow(self)

    def kl_div(self, target: Any, *, reduction: str = "mean") -> Self:
        """Return target (log target - x), x being log-probabilities; 0 where the target is 0."""
        y = self._lift(target)
        return (y > 0).where(y * ((y > 0).where(y, 1).log() - self), 0)._summarised(reduction)


def rotary_angles(positions: Layers, width: int, base: float = 10000.0) -> tuple[Layers, Layers]:
    """Return cosines and sines (positions, width / 2) of positions times base^(-2 i / width)."""
    if width % 2:
        raise ValueError(f"rotary angles for a width of {width}: even")
    steps = positions._from_list([base ** (-2 * i / width) for i in range(width // 2)], dtypes.float32)
    angles = positions.float().unsqueeze(-1) * steps
    return angles.cos(), angles.sin()
