"""Attention and rotary positions."""

from __future__ import annotations

import math

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import dtype_of, known_size


def _by_heads(x: Tensor, heads: int | None) -> Tensor:
    """Return (batch, heads, length, size) of (batch, length, heads · size)."""
    if x.ndim == 4:
        return x
    assert heads is not None
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    filled: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return attention with caches: the values, all keys, all values, and the scores at the stage asked for."""
    flat = query.ndim == 3
    q = _by_heads(query, node.get("q_num_heads"))
    k, v = (_by_heads(one, node.get("kv_num_heads")) for one in (key, value))
    if past_key is not None and past_value is not None:
        k, v = Tensor.cat([past_key, k], axis=2), Tensor.cat([past_value, v], axis=2)
    all_keys, all_values = k, v
    groups = known_size(q.shape[1], str(node)) // known_size(k.shape[1], str(node))
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scale = node.get("scale", 1 / math.sqrt(known_size(q.shape[-1], str(node))))
    root = math.sqrt(scale) if scale > 0 else scale
    scores = (q * root).matmul((k * root).mT).cast(q.dtype) if scale > 0 else q.matmul(k.mT) * scale
    stages = [scores]
    cap = node.get("softcap", 0.0)
    scores = (scores / cap).tanh() * cap if cap else scores
    stages.append(scores)
    allowed, bias = _allowed(node, q, k, mask, past_key, filled)
    if bias is not None:
        scores = scores + bias.cast(scores.dtype)
    if allowed is not None:
        scores = allowed.where(scores, float("-inf"))
    stages.append(scores)
    precision = node.get("softmax_precision")
    wide = scores if precision is None else scores.cast(dtype_of(precision, str(node)))
    # a row in which nothing is allowed is zeros
    top = wide.amax(-1, keepdims=True)
    powers = (wide - top.eq(float("-inf")).where(0.0, top)).exp()
    below = powers.sum(-1, keepdims=True)
    shares = below.eq(0).where(0.0, powers / below).cast(q.dtype)
    stages.append(shares)
    made = shares.matmul(v).cast(q.dtype)
    if flat:
        made = made.transpose(1, 2).flatten(2)
    wanted = node.get("qk_matmul_output_mode", 0)
    return made, all_keys, all_values, stages[wanted] if node.wants(3) else None


def _allowed(
    node: Node, q: Tensor, k: Tensor, mask: Tensor | None, past: Tensor | None, filled: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return which keys each query may look at, and what is added to the scores."""
    rows, columns = known_size(q.shape[2], str(node)), known_size(k.shape[2], str(node))
    allowed, bias = None, None
    if mask is not None:
        short = columns - known_size(mask.shape[-1], str(node))
        if mask.dtype is dtypes.bool_:
            allowed = mask if not short else mask.pad([(0, 0)] * (mask.ndim - 1) + [(0, short)], value=False)
        else:
            bias = mask if not short else mask.pad([(0, 0)] * (mask.ndim - 1) + [(0, short)], value=float("-inf"))
    at, key_at = Tensor.arange(rows).reshape((rows, 1)), Tensor.arange(columns).reshape((1, columns))
    place = at
    if past is not None:
        place = at + known_size(past.shape[2], str(node))
    elif filled is not None:
        place = at + filled.cast(dtypes.int32).reshape((-1, 1, 1, 1)) - rows
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    right = 0 if node.get("is_causal", 0) else right
    fences = []
    if right >= 0:
        fences.append(key_at <= place + right)
    if left >= 0:
        fences.append(key_at >= place - left)
    if filled is not None:
        fences.append(key_at < filled.cast(dtypes.int32).reshape((-1, 1, 1, 1)))
    for fence in fences:
        allowed = fence if allowed is None else allowed & fence
    return allowed, bias


def rotary_embedding(node: Node, x: Tensor, cosines: Tensor, sines: Tensor, places: Tensor | None = None) -> Tensor:
    """Return pairs of elements turned by the angles of their position."""
    heads = node.get("num_heads", 0)
    # (batch, length, heads, size)
    parts = x.transpose(1, 2) if x.ndim == 4 else x.unflatten(2, (heads, -1))
    turned = node.get("rotary_embedding_dim", 0) or known_size(parts.shape[-1], str(node))
    if places is not None:
        cosines, sines = cosines.take(places, 0), sines.take(places, 0)
    cosines, sines = cosines.unsqueeze(2), sines.unsqueeze(2)
    inner, rest = parts[..., :turned], parts[..., turned:]
    if node.get("interleaved", 0):
        first, second = inner[..., 0::2], inner[..., 1::2]
    else:
        first, second = inner[..., : turned // 2], inner[..., turned // 2 :]
    real, imaginary = first * cosines - second * sines, first * sines + second * cosines
    pair = [real, imaginary]
    made = Tensor.stack(pair, axis=-1).flatten(-2) if node.get("interleaved", 0) else Tensor.cat(pair, axis=-1)
    if rest.shape[-1] != 0:
        made = Tensor.cat([made, rest], axis=-1)
    return (made.transpose(1, 2) if x.ndim == 4 else made.reshape(x.shape)).cast(x.dtype)


def linear_attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    rate: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the products of queries with a matrix of keys and values that grows step by step, and that matrix."""
    heads, own = node.get("q_num_heads"), node.get("kv_num_heads")
    wide = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    q = _by_heads(query, heads).cast(wide)
    k, v = (_by_heads(one, own).cast(wide) for one in (key, value))
    # (batch, heads, length, size or 1); a rate may be of all heads
    fade = None if decay is None else _by_heads(decay, own).cast(wide).exp()
    rates = None if rate is None else _by_heads(rate, known_size(rate.shape[2], str(node))).cast(wide)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(known_size(q.shape[3], str(node)))
    shape = (k.shape[0], own, k.shape[3], v.shape[3])
    state = Tensor.zeros(shape, dtype=wide) if past is None else past.cast(wide)
    corrects, made = "delta" in node.get("update_rule", "gated_delta"), []
    for step in range(known_size(q.shape[2], str(node))):
        state = state if fade is None else state * fade[:, :, step].unsqueeze(-1)
        row, new = k[:, :, step], v[:, :, step]
        if corrects:
            new = new - row.unsqueeze(2).matmul(state).squeeze(2)
        row = row if rates is None else row * rates[:, :, step]
        state = state + row.unsqueeze(-1) * new.unsqueeze(-2)
        shared = state if heads == own else state.repeat_interleave(heads // own, 1)
        made.append(q[:, :, step].unsqueeze(2).matmul(shared).squeeze(2) * scale)
    return Tensor.stack(made, axis=1).flatten(2).cast(query.dtype), state.cast(
        key.dtype if past is None else past.dtype
    )


ROWS = (
    Row("LinearAttention", linear_attention),
    Row("Attention", attention),
    Row("RotaryEmbedding", rotary_embedding),
)
