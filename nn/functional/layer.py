"""Matrix products, normalisation, embedding and attention, with PyTorch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph.index import Int
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import number_of, total
from ringup.compiler.tensor.linear import contract
from ringup.compiler.tensor.movement import add_edges, windows_along
from ringup.compiler.tensor.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias; weight (outputs, inputs)."""
    if input.ndim == 0 or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear of {list(input.shape)} with weight {list(weight.shape)}: (…, inputs), (outputs, inputs)"
        )
    # (rows, 1, inputs) with (outputs, inputs): the gradient by the weight has the weight's order of axes, so that it
    # and the optimiser's step are one kernel
    rows = input.reshape((total(input.shape[:-1]), 1, input.shape[-1]))
    made = contract(rows, weight.unsqueeze(0), [2]).reshape((*input.shape[:-1], weight.shape[0]))
    return made if bias is None else made + bias


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the sums of x_i weight_kij y_j for each output k; weight (outputs, inputs 1, inputs 2)."""
    outputs, first, second = weight.shape
    # x @ weight as one matrix product, then a sum with y
    left = input1 @ weight.permute([1, 0, 2]).reshape((first, outputs * second))
    made = (left.reshape((*input1.shape[:-1], outputs, second)) * input2.unsqueeze(-2)).sum(-1)
    return made if bias is None else made + bias


# normalisation


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[Int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return it normalised over the last axes, which have that shape."""
    axes = _last_axes(input, normalized_shape, "layer_norm")
    return input.layer_norm(weight, bias, axes=axes, eps=eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[Int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return it divided by the root of its mean square over the last axes; `eps` is that of the type unless given."""
    axes = _last_axes(input, normalized_shape, "rms_norm")
    return input.rms_norm(weight, axes=axes, eps=epsilon(input) if eps is None else eps)


def epsilon(input: Tensor) -> float:
    """Return the distance from 1 to the next number of the type that norms are computed in."""
    return 2.0 ** (-52 if input.dtype.bits == 64 else -23)


def _last_axes(input: Tensor, shape: Sequence[Int], what: str) -> list[int]:
    n = len(shape)
    if n == 0:
        raise ValueError(f"{what} of {list(input.shape)} over no axes: the shape of the last axes, one at least")
    if input.shape[input.ndim - n :] != tuple(shape) or n > input.ndim:
        raise ValueError(f"{what} over {list(shape)} of {list(input.shape)}: the last axes differ")
    return list(range(input.ndim - n, input.ndim))


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return (N, C, …) normalised over each group of channels."""
    return input.group_norm(num_groups, weight, bias, eps=eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (N, C, …) normalised for each channel: by the batch while training, else by the running statistics.

    While training, the running statistics are assigned `momentum` parts of the batch's, the variance with one less in
    its count.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm outside of training needs running statistics")
        return input.batch_norm(running_mean, running_var, weight, bias, eps=eps)
    axes = [i for i in range(input.ndim) if i != 1]
    return _trained_norm(input, axes, 1, running_mean, running_var, weight, bias, momentum, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (N, C, …) normalised over each channel of each sample, or by the running statistics, which are assigned
    means over the samples.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    axes = list(range(2, input.ndim))
    return _trained_norm(input, axes, 2, running_mean, running_var, weight, bias, momentum, eps)


def _trained_norm(
    input: Tensor,
    axes: list[int],
    kept: int,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Return it normalised by its own statistics along axes. They are (C), or (N, C) where `kept` is 2."""
    x = widened(input)
    count = number_of(total(input.shape[axis] for axis in axes), "a norm")
    if count < 2:
        raise ValueError(f"a norm of {list(input.shape)} by its own statistics: more than one value for each channel")
    mean = x.mean(axes, keepdims=True)
    apart = x - mean
    spread = (apart * apart).mean(axes, keepdims=True)
    for running, value in ((running_mean, mean), (running_var, spread * (count / (count - 1)))):
        if running is not None:
            new = value.detach().reshape((-1, input.shape[1])) if kept == 2 else value.detach().reshape((-1,))
            new = new.mean(0) if kept == 2 else new
            running.assign(running * (1 - momentum) + new * momentum)
    made = apart * (spread + eps).rsqrt()
    shape = (1, -1, *[1] * (input.ndim - 2))
    made = made if weight is None else made * widened(weight).reshape(shape)
    return narrowed(made if bias is None else made + widened(bias).reshape(shape), input)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Return (N, C, …) divided by (k + alpha times the mean square of `size` channels around) to the power of beta."""
    x = widened(input)
    edges = [(0, 0)] * x.ndim
    edges[1] = (size // 2, (size - 1) // 2)
    windows = windows_along(add_edges(x * x, edges), 1, size)
    return narrowed(x / (windows.mean(2) * alpha + k) ** beta, input)


# attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(q k^T scale + mask) v. A bool mask keeps where it is true. With `is_causal`, query i sees
    keys up to i.
    """
    if not dropout_p:
        start = 0 if is_causal else None
        return query.scaled_dot_product_attention(
            key, value, attn_mask, causal=is_causal, scale=scale, start=start, grouped=enable_gqa
        )
    if enable_gqa:
        times = number_of(query.shape[-3], "heads") // number_of(key.shape[-3], "heads")
        key, value = (one.repeat_interleave(times, -3) for one in (key, value))
    width = number_of(query.shape[-1], "attention")
    scores = widened(query) @ widened(key).transpose(-2, -1) * (width**-0.5 if scale is None else scale)
    weights = attention_weights(scores, attn_mask, is_causal)
    return narrowed(weights.dropout(dropout_p) @ widened(value), query)


def attention_weights(scores: Tensor, mask: Tensor | None, is_causal: bool = False) -> Tensor:
    """Return softmax of scores with a mask, which is added, or keeps where a bool one is true."""
    if is_causal:
        seen = scores.ones_like("bool").tril()
        scores = seen.where(scores, float("-inf"))
    if mask is not None:
        scores = mask.where(scores, float("-inf")) if mask.dtype.kind == "bool" else scores + widened(mask)
    return scores.softmax(-1)
