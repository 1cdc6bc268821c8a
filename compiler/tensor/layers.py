"""What networks are made of above the arithmetic: normalisation, attention, rotary positions, embedding, dropout,
losses.

Statistics, scores and losses are computed in f32 (f64 for f64) and rounded once to the tensor's type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.compiler.graph import index
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor.conversions import compute_dtype, narrowed, widened
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.functions import exp_negative
from ringup.compiler.tensor.indexing import taken
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.random import Source
from ringup.compiler.tensor.reductions import places_along

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


# normalisation


def _normal(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Return it less its mean, divided by its standard deviation, along axes."""
    apart = x - x.mean(axes, keepdims=True)
    return apart * ((apart * apart).mean(axes, keepdims=True) + eps).rsqrt()


def layer_norm(
    tensor: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axes: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Return it normalised along axes: less its mean, divided by its standard deviation, then times `weight`, plus
    `bias`, which broadcast.
    """
    x = widened(tensor)
    made = _normal(x, x._axes(axes), eps)
    return narrowed(_scaled(made, weight, bias), tensor)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return it times a weight, plus a bias."""
    made = x if weight is None else x * widened(weight)
    return made if bias is None else made + widened(bias)


def rms_norm(
    tensor: Tensor, weight: Tensor | None = None, *, axes: int | Sequence[int] = -1, eps: float = 1e-6
) -> Tensor:
    """Return it divided by the root of its mean square along axes, times `weight`."""
    x = widened(tensor)
    made = x * ((x * x).mean(axes, keepdims=True) + eps).rsqrt()
    return narrowed(_scaled(made, weight, None), tensor)


def _by_channel(value: Tensor, ndim: int) -> Tensor:
    """Return a value of each channel, (C), as it goes with (N, C, …) of `ndim` axes."""
    return value.reshape((1, -1, *[1] * (ndim - 2)))


def _scaled_by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return (N, C, …) times a weight of each channel, plus a bias."""
    by, plus = (None if one is None else _by_channel(one, x.ndim) for one in (weight, bias))
    return _scaled(x, by, plus)


def group_norm(
    tensor: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Return (N, C, …) normalised over each of `groups` groups of channels; weight and bias (C)."""
    if tensor.ndim < 2 or groups < 1 or tensor.shape[1] % groups != 0:
        raise ValueError(f"group_norm of {list(tensor.shape)} in {groups} groups: (N, C, …) with C a multiple of them")
    x = widened(tensor)
    grouped = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    made = _normal(grouped, range(2, grouped.ndim), eps).reshape(tensor.shape)
    return narrowed(_scaled_by_channel(made, weight, bias), tensor)


def instance_norm(
    tensor: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Return (N, C, …) normalised over each channel of each sample."""
    return tensor.group_norm(number_of(tensor.shape[1], "instance_norm"), weight, bias, eps=eps)


def batch_norm(
    tensor: Tensor,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """Return (N, C, …) normalised by a channel's `mean` and `variance`, or by the batch's own where they are None
    (training).
    """
    x = widened(tensor)
    axes = [i for i in range(tensor.ndim) if i != 1]
    if mean is None or variance is None:
        made = _normal(x, axes, eps)
    else:
        middle, spread = (widened(_by_channel(one, x.ndim)) for one in (mean, variance))
        made = (x - middle) * (spread + eps).rsqrt()
    return narrowed(_scaled_by_channel(made, weight, bias), tensor)


# attention


def scaled_dot_product_attention(
    tensor: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    start: Int | None = None,
    grouped: bool = False,
) -> Tensor:
    """Return softmax(q k^T * scale + mask) v for (…, heads, queries, width) with (…, heads, keys, width).

    `mask` is added, or keeps where a bool one is true. `causal`: query i sees keys up to i + `start` (keys -
    queries unless given: the last query sees all). `grouped`: fewer heads of keys and values, each for as many heads
    of queries. `scale` is 1 / sqrt(width) unless given. Rows that see nothing are 0.
    """
    q, k, v = tensor, key, value
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"attention of q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}: (…, queries, width), (…, keys, width), (…, keys, out)"
        )
    split = grouped and min(q.ndim, k.ndim) > 2 and q.shape[-3] != k.shape[-3]
    if split:
        q, k, v, mask = _split_heads(q, k, v, mask)
    factor = 1 / math.sqrt(number_of(q.shape[-1], "attention")) if scale is None else scale
    scores = q.matmul(k.mT, compute_dtype(q)) * factor
    # whole: every row sees something
    seen, whole = None, mask is None
    if causal:
        last = k.shape[-2] - q.shape[-2] if start is None else start
        here, there = places_along(scores, scores.ndim - 2), places_along(scores, scores.ndim - 1)
        seen = there <= (here if isinstance(last, int) and last == 0 else here + here._lift(last))
        whole = whole and index.bounds(last)[0] >= 0
    if mask is not None:
        if mask.dtype.kind == "bool":
            seen = tensor._of(mask._node) if seen is None else seen & tensor._of(mask._node)
        else:
            scores = scores + widened(mask)
    if seen is not None:
        scores = seen.where(scores, float("-inf"))
    weights = scores.softmax() if whole else _softmax_seen(scores)
    made = weights.cast(v.dtype if v.dtype.is_float else weights.dtype).matmul(v)
    made = made.cast(tensor.dtype)
    return made.flatten(made.ndim - 4, made.ndim - 3) if split else made


def _softmax_seen(scores: Tensor) -> Tensor:
    """Return softmax of the last axis, 0 in rows that are all minus infinity."""
    top = scores.amax(-1, keepdims=True).detach()
    powers = exp_negative(scores - top.eq(float("-inf")).where(0.0, top))
    below = powers.sum(-1, keepdims=True)
    return powers / below.eq(0).where(1.0, below)


def _split_heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return q as (…, kv heads, heads each, queries, width), the others with an axis of 1 there."""
    heads, shared = q.shape[-3], k.shape[-3]
    if heads % shared != 0:
        raise ValueError(f"attention with {heads} heads of queries and {shared} of keys: no multiple")
    groups = (shared, heads // shared)
    if mask is not None and mask.ndim > 2:
        mask = mask.unsqueeze(-3) if mask.shape[-3] == 1 else mask.unflatten(-3, groups)
    return q.unflatten(-3, groups), k.unsqueeze(-3), v.unsqueeze(-3), mask


def rotary(tensor: Tensor, cosines: Tensor, sines: Tensor, *, interleaved: bool = False) -> Tensor:
    """Return (…, positions, width) turned by the angles whose cosines and sines are (positions, width / 2), which
    broadcast (RoPE).

    Pairs are (i, i + width / 2), or neighbours when `interleaved`.
    """
    width = number_of(tensor.shape[-1], "rotary")
    if width % 2 or cosines.shape[-1] * 2 != width or sines.shape != cosines.shape:
        raise ValueError(
            f"rotary of {list(tensor.shape)} by {list(cosines.shape)}: an even width, and half of it for both tables"
        )
    x, c, s = widened(tensor), widened(cosines), widened(sines)
    if interleaved:
        pairs = x.unflatten(-1, (width // 2, 2))
        a, b = (cut(pairs, pairs.ndim - 1, i, i + 1).reshape(pairs.shape[:-1]) for i in (0, 1))
        return narrowed((a * c - b * s).stack(b * c + a * s, axis=-1).flatten(-2), tensor)
    a, b = (cut(x, x.ndim - 1, i * width // 2, (i + 1) * width // 2) for i in (0, 1))
    return narrowed((a * c - b * s).cat(b * c + a * s, axis=-1), tensor)


def embedding(tensor: Tensor, places: Any) -> Tensor:
    """Return rows of this table (entries, width) at integer places: shape of places, then the width. Negative places
    count from the end; those outside read 0.
    """
    if tensor.ndim != 2:
        raise ValueError(f"embedding in a table of {list(tensor.shape)}: (entries, width)")
    return taken(tensor, places, 0, "embedding")


def dropout(tensor: Tensor, rate: float = 0.5, *, training: bool = True, source: Source | None = None) -> Tensor:
    """Return it with elements set to 0 at random, at that rate, and the others times 1 / (1 - rate); unchanged outside
    of training.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"dropout at a rate of {rate}: 0 to 1")
    if not training or rate == 0:
        return tensor
    if rate == 1:
        return tensor * 0
    return (tensor.rand(tensor.shape, source=source) >= rate).where(tensor * (1 / (1 - rate)), 0)


# losses


def summarised(lost: Tensor, how: str) -> Tensor:
    """Return the losses of all elements as one, or as they are."""
    if how not in REDUCTIONS:
        raise ValueError(f"a loss is not reduced by {how!r}; there are {', '.join(REDUCTIONS)}")
    return lost.mean() if how == "mean" else lost.sum() if how == "sum" else lost


def _apart(tensor: Tensor, target: Any) -> Tensor:
    """Return a float tensor, or integers as f32, less a target."""
    return (tensor if tensor.dtype.is_float else tensor.float()).sub(target)


def mse_loss(tensor: Tensor, target: Any, *, reduction: str = "mean") -> Tensor:
    """Return the squared difference."""
    return summarised(_apart(tensor, target).square(), reduction)


def l1_loss(tensor: Tensor, target: Any, *, reduction: str = "mean") -> Tensor:
    """Return the absolute difference."""
    return summarised(_apart(tensor, target).abs(), reduction)


def huber_loss(tensor: Tensor, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return half the squared difference up to `delta`, a line beyond."""
    apart = _apart(tensor, target)
    size = apart.abs()
    lost = (size <= delta).where(size * size * 0.5, (size - 0.5 * delta) * delta)
    return summarised(lost._with_rule(partial(_huber_rule, delta), apart), reduction)


def kl_div(tensor: Tensor, target: Any, *, reduction: str = "mean") -> Tensor:
    """Return target (log target - x), x being log-probabilities; 0 where the target is 0."""
    y = tensor._lift(target)
    return summarised((y > 0).where(y * ((y > 0).where(y, 1).log() - tensor), 0), reduction)


def _huber_rule(delta: float, gradient: Tensor, _result: Tensor, apart: Tensor) -> tuple[Tensor]:
    return (gradient * apart.clip(-delta, delta),)


def rotary_angles(positions: Tensor, width: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (positions, width / 2) of positions times base^(-2 i / width)."""
    if width % 2:
        raise ValueError(f"rotary angles for a width of {width}: even")
    steps = positions._from_array(np.array([base ** (-2 * i / width) for i in range(width // 2)], np.float32))
    angles = positions.float().unsqueeze(-1) * steps
    return angles.cos(), angles.sin()
