"""Rows of tables by number, with PyTorch's names and arguments."""

from __future__ import annotations

from functools import partial

from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.history import no_grad
from ringup.compiler.tensor.tensor import Tensor

BAGS = ("sum", "mean", "max")
# added to a length that something is divided by; PyTorch's
LEAST_LENGTH = 1e-7


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return rows of a table (entries, width) at integer places; the row of `padding_idx` gets no gradient.

    With `max_norm` the rows that are read are shortened in the table to that norm, of the order `norm_type`. With
    `scale_grad_by_freq` the gradient of a row is divided by how often it is read. `sparse` changes nothing.
    """
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    made = _rows(input, weight, scale_grad_by_freq)
    if padding_idx is None:
        return made
    place = padding_idx % number_of(weight.shape[0], "padding_idx")
    return input.ne(place).unsqueeze(-1).where(made, made.detach())


def _counts(input: Tensor, weight: Tensor) -> Tensor:
    """Return how often each row of a table is read."""
    entries = number_of(weight.shape[0], "embedding")
    places: Tensor = (input < 0).where(input + entries, input).flatten()
    made: Tensor = places.bincount(size=entries)
    return made


def _shorten(input: Tensor, weight: Tensor, most: float, order: float) -> None:
    """Shorten the rows of a table that are read to a norm, in place."""
    with no_grad():
        rows = weight.detach()
        length = rows.norm(order, -1, keepdims=True)
        read = _counts(input, weight).unsqueeze(-1) > 0
        factor = read.logical_and(length > most).where(most / (length + LEAST_LENGTH), 1.0)
        rows.assign(rows * factor)


def _rows(input: Tensor, weight: Tensor, scaled: bool) -> Tensor:
    """Return rows of a table, whose gradients are divided by how often they are read if they are `scaled`."""
    made = weight.embedding(input)
    if not scaled:
        return made
    share = (1 / _counts(input, weight).maximum(1).cast(made.dtype)).unsqueeze(-1).embedding(input)
    return made.clone()._with_rule(partial(_share_rule, share), made)


def _share_rule(share: Tensor, gradient: Tensor, _result: Tensor, _made: Tensor) -> tuple[Tensor]:
    return (gradient * share,)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return the mean, the sum or the greatest of the rows of each bag. Bags are the rows of (N, L), or parts of (L)
    that begin at `offsets`, which end with the end of the last one if `include_last_offset`. Places of `padding_idx`
    do not count. The rest is as in `embedding`.
    """
    if mode not in BAGS:
        raise ValueError(f"embedding_bag has no mode {mode!r}; there are {', '.join(BAGS)}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ValueError('per_sample_weights go with the mode "sum", one for each place')
    if (offsets is None) != (input.ndim == 2) or input.ndim not in (1, 2):
        raise ValueError("embedding_bag takes (N, L), or (L) with offsets")
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    rows = _rows(input, weight, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counts = None
    if padding_idx is not None:
        counts = input.ne(padding_idx % number_of(weight.shape[0], "padding_idx"))
    if offsets is None:
        if counts is None:
            return rows.max(dim=1).values if mode == "max" else rows.mean(1) if mode == "mean" else rows.sum(1)
        # (N, 1, L) and (N, L, width)
        return _of_bags(counts.unsqueeze(1), rows, mode).squeeze(1)
    length = number_of(input.shape[0], "embedding_bag")
    first = offsets[:-1] if include_last_offset else offsets
    last = offsets[1:] if include_last_offset else offsets[1:].cat(offsets.full_like(length)[:1])
    places = input.arange(length)
    inside = (places >= first.unsqueeze(1)).logical_and(places < last.unsqueeze(1))
    return _of_bags(inside if counts is None else inside.logical_and(counts), rows, mode)


def _of_bags(inside: Tensor, rows: Tensor, mode: str) -> Tensor:
    """Return what becomes of rows (…, L, width) in bags (…, bags, L)."""
    if mode == "max":
        if rows.shape[-2] == 0:
            return inside.cast(rows.dtype) @ rows
        found = inside.unsqueeze(-1).where(rows.unsqueeze(-3), float("-inf"))
        best = found.max(dim=-2).values
        made: Tensor = inside.any(-1, keepdims=True).where(best, 0)
        return made
    summed = inside.cast(rows.dtype) @ rows
    if mode == "sum":
        return summed
    return summed / inside.cast(rows.dtype).sum(-1, keepdims=True).maximum(1.0)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return 1 where the class is this integer, 0 elsewhere, along a new last axis; of -1 classes as many as the
    greatest needs, which is computed.
    """
    return input.one_hot(int(input.amax()) + 1 if num_classes == -1 else num_classes)
