"""Normalisation and dropout."""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import FLOAT, Array, dtype_of


def _by_channel(x: Tensor, one: Tensor) -> Tensor:
    return one.reshape((-1, *[1] * (x.ndim - 2)))


def batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Return it normalised by running statistics, or by its own with `training_mode`, which change the running ones."""
    eps = node.number("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        factor = scale / (variance + eps).sqrt()
        return ((x - _by_channel(x, mean)) * _by_channel(x, factor) + _by_channel(x, bias)).cast(x.dtype)
    axes = (0, *range(2, x.ndim))
    now, spread = x.mean(axes), x.var(axes, correction=0)
    made = (x - _by_channel(x, now)) / (_by_channel(x, spread) + eps).sqrt()
    made = made * _by_channel(x, scale) + _by_channel(x, bias)
    keep = node.number("momentum", 0.9)
    return made.cast(x.dtype), mean * keep + now * (1 - keep), variance * keep + spread * (1 - keep)


def instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return it normalised within each channel of each part of the batch."""
    axes = tuple(range(2, x.ndim))
    made = (x - x.mean(axes, keepdims=True)) / (
        x.var(axes, correction=0, keepdims=True) + node.number("epsilon", 1e-5)
    ).sqrt()
    return (made * _by_channel(x, scale) + _by_channel(x, bias)).cast(x.dtype)


def group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return it normalised within groups of channels; before opset 21, scales are of groups."""
    groups, kind = node.get("num_groups"), _stash(node)
    wide = x.cast(kind).reshape((x.shape[0], groups, -1))
    mean, spread = wide.mean(-1, keepdims=True), wide.var(-1, correction=0, keepdims=True)
    made = ((wide - mean) / (spread + node.number("epsilon", 1e-5)).sqrt()).cast(x.dtype)
    if node.opset < 21:
        return (made * scale.reshape((-1, 1)) + bias.reshape((-1, 1))).reshape(x.shape).cast(x.dtype)
    made = made.reshape(x.shape)
    return (made * _by_channel(x, scale) + _by_channel(x, bias)).cast(x.dtype)


def _stash(node: Node) -> DType:
    """Return the type that statistics are kept in."""
    return dtype_of(node.get("stash_type", FLOAT), str(node))


def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return it normalised over the axes from `axis` on, with the mean and the inverse deviation."""
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    wide = x.cast(dtypes.float64 if x.dtype is dtypes.float64 else _stash(node))
    mean = wide.mean(axes, keepdims=True)
    apart = wide - mean
    inverse = ((apart * apart).mean(axes, keepdims=True) + node.number("epsilon", 1e-5)).rsqrt()
    made = (apart * inverse).cast(x.dtype) * scale
    return (made if bias is None else made + bias).cast(x.dtype), mean, inverse


def rms_norm(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    """Return it divided by the root of the mean of squares over the axes from `axis` on."""
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    wide = x.cast(dtypes.float64 if x.dtype is dtypes.float64 else _stash(node))
    made = wide * ((wide * wide).mean(axes, keepdims=True) + node.number("epsilon", 1e-5)).rsqrt()
    return (made.cast(x.dtype) * scale).cast(x.dtype)


def local_response(node: Node, x: Tensor) -> Tensor:
    """Return it divided by a power of the squares of neighbouring channels."""
    size: int = node.get("size")
    before = (size - 1) // 2
    edges = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    near = (x * x).pad(edges).unfold(1, size, 1).sum(-1)
    factor: float = node.number("alpha", 1e-4) / size
    return x / (near * factor + node.number("bias", 1.0)).pow(node.number("beta", 0.75))


def lp_normalisation(node: Node, x: Tensor) -> Tensor:
    """Return it divided by its norm along an axis; zeros stay."""
    length = x.norm(node.get("p", 2), node.get("axis", -1), keepdims=True)
    return length.eq(0).where(0.0, x / length).cast(x.dtype)


def mean_variance(node: Node, x: Tensor) -> Tensor:
    """Return it less its mean, divided by its deviation, over axes."""
    axes = node.ints("axes", (0, 2, 3))
    apart = x - x.mean(axes, keepdims=True)
    return apart / ((apart * apart).mean(axes, keepdims=True).sqrt() + 1e-9)


def dropout_by_input(
    node: Node, x: Tensor, ratio: Array | None = None, training: Array | None = None
) -> tuple[Tensor, Tensor]:
    """Return it as it is, or in training with elements set to 0; and which were kept."""
    rate = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is None or not bool(training.reshape(-1)[0]) or rate == 0:
        return x, Tensor.full(x.shape, True, dtypes.bool_)
    keep = Tensor.rand(x.shape) >= rate
    return keep.where(x / (1 - rate), 0.0).cast(x.dtype), keep


def dropout(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return it as it is, as in inference before opset 12, and a mask of ones."""
    return x, Tensor.full(x.shape, True, dtypes.bool_ if node.opset >= 10 else x.dtype)


ROWS = (
    Row("BatchNormalization", batch_norm),
    Row("InstanceNormalization", instance_norm),
    Row("GroupNormalization", group_norm, since=18),
    Row("LayerNormalization", layer_norm),
    Row("RMSNormalization", rms_norm),
    Row("LRN", local_response),
    Row("LpNormalization", lp_normalisation),
    Row("MeanVarianceNormalization", mean_variance),
    Row("Dropout", dropout),
    Row("Dropout", dropout_by_input, since=12, host=(1, 2)),
)
