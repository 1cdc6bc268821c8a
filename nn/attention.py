"""Attention of several heads, with PyTorch's names of parameters and its masks: a bool mask is true where nothing is
seen.
"""

from __future__ import annotations

import math

from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import DTypeLike, number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.functional.layer import attention_weights
from ringup.nn.linear import Linear, constant, empty, float_type
from ringup.nn.module import Module


class MultiheadAttention(Module):
    """Attention of `num_heads` heads: softmax(q k^T / sqrt(width) + mask) v, each with a matrix of its own."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; `kdim` and `vdim` are the widths of keys and values where they differ."""
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads of {embed_dim}: no multiple")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim, self.add_zero_attn = kdim or embed_dim, vdim or embed_dim, add_zero_attn
        together = self.kdim == self.vdim == embed_dim
        self.in_proj_weight = empty(3 * embed_dim, embed_dim, dtype=dtype) if together else None
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        for name, width in widths.items():
            weight = None if together else empty(embed_dim, width, dtype=dtype)
            self.register_parameter(f"{name}_proj_weight", weight)
        kind = float_type(dtype)
        self.in_proj_bias = constant((3 * embed_dim,), 0.0, kind) if bias else None
        self.bias_k = empty(1, 1, embed_dim, dtype=dtype) if add_bias_kv else None
        self.bias_v = empty(1, 1, embed_dim, dtype=dtype) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of queries, keys and values again."""
        for name, one in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                init.xavier_uniform_(one)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for more in (self.bias_k, self.bias_v):
            if more is not None:
                init.xavier_normal_(more)

    def _projected(self, given: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        """Return queries, keys and values (L, N, width) times their matrices."""
        size = self.embed_dim
        weights = [vars(self)[f"{name}_proj_weight"] for name in "qkv"]
        if self.in_proj_weight is not None:
            if given[0] is given[1] and given[1] is given[2]:
                # one product for all three
                return F.linear(given[0], self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            weights = self.in_proj_weight.chunk(3, 0)
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.split(size)
        return [F.linear(x, weight, bias) for x, weight, bias in zip(given, weights, biases, strict=True)]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return (L, N, width) and, if needed, the weights (N, L, S), the mean of the heads or (N, heads, L, S).

        `key_padding_mask` (N, S), `attn_mask` (L, S) or (N heads, L, S): true where nothing is seen, or added.
        `is_causal` says that `attn_mask` is the causal one.
        """
        alone = query.ndim == 2
        axis = 1 if alone or not self.batch_first else 0
        given = (query, key, value)
        if alone:
            x = query.unsqueeze(1)
            given = (x, x if key is query else key.unsqueeze(1), value.unsqueeze(1) if value is not query else x)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif axis == 0:
            x = query.transpose(0, 1)
            y = x if key is query else key.transpose(0, 1)
            given = (x, y, y if value is key else value.transpose(0, 1))
        if is_causal and attn_mask is None:
            raise ValueError("is_causal says that attn_mask is the causal one: give it")
        made, weights = self._attend(given, key_padding_mask, attn_mask, need_weights)
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights.squeeze(0) if alone else weights
        return (made.squeeze(1) if alone else made.transpose(0, 1) if axis == 0 else made), weights

    def _attend(
        self, given: tuple[Tensor, Tensor, Tensor], padding: Tensor | None, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return (L, N, width) and the weights (N, heads, L, S)."""
        q, k, v = self._projected(given)
        batch = number_of(q.shape[1], "attention")
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                one.cat(more.expand((1, batch, self.embed_dim))) for one, more in ((k, self.bias_k), (v, self.bias_v))
            )
            padding, mask = _one_more(padding), _one_more(mask)
        if self.add_zero_attn:
            k, v = (one.cat(one[:1].zeros_like()) for one in (k, v))
            padding, mask = _one_more(padding), _one_more(mask)
        # (N, heads, L, width of a head)
        q, k, v = (one.unflatten(-1, (self.num_heads, -1)).permute([1, 2, 0, 3]) for one in (q, k, v))
        added = _added(padding, mask, batch, self.num_heads, q)
        rate = self.dropout if self.training else 0.0
        if need_weights or rate:
            width = self.embed_dim // self.num_heads
            scores = widened(q) @ widened(k).transpose(-2, -1) * (1 / math.sqrt(width))
            weights = attention_weights(scores, added).dropout(rate)
            made = narrowed(weights @ widened(v), q)
        else:
            weights = None
            made = q.scaled_dot_product_attention(k, v, added)
        joined = made.permute([2, 0, 1, 3]).flatten(2)
        return self.out_proj(joined), None if weights is None else narrowed(weights, q)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.embed_dim}, num_heads={self.num_heads}"


def _one_more(mask: Tensor | None) -> Tensor | None:
    """Return a mask with one more key, which is seen."""
    return None if mask is None else mask.cat(mask[..., :1].zeros_like(), axis=-1)


def _added(padding: Tensor | None, mask: Tensor | None, batch: int, heads: int, like: Tensor) -> Tensor | None:
    """Return both masks as one that is added to scores (N, heads, L, S)."""
    found = []
    if padding is not None:
        found.append(_as_added(padding, like)[:, None, None, :])
    if mask is not None:
        wide = _as_added(mask, like)
        found.append(wide.unflatten(0, (batch, heads)) if wide.ndim == 3 else wide)
    return None if not found else found[0] if len(found) == 1 else found[0] + found[1]


def _as_added(mask: Tensor, like: Tensor) -> Tensor:
    kind = widened(like).dtype
    if mask.dtype.kind != "bool":
        return mask.cast(kind)
    # a bool mask is true where nothing is seen
    return mask.where(like._constant(float("-inf"), kind, mask.shape), like._constant(0.0, kind, mask.shape))
