"""Activation functions, and those over an axis: softmax and its like."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row, unary
from ringup.onnx.common.values import known_size

# Selu's defaults in onnx.ai's Operators.md
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """Return x, times `alpha` below 0."""
    return x.leaky_relu(node.number("alpha", 0.01))


def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """Return x, times a slope below 0; before opset 7 slopes are of channels."""
    if node.opset < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape((-1, *[1] * (x.ndim - 2)))
    return (x < 0).where(slope * x, x)


def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    """Return x above `alpha`, else 0."""
    return (x > node.number("alpha", 1.0)).where(x, x.full_like(0))


def elu(node: Node, x: Tensor) -> Tensor:
    """Return x, `alpha` (exp x - 1) below 0."""
    return x.elu(node.number("alpha", 1.0))


def selu(node: Node, x: Tensor) -> Tensor:
    """Return elu scaled by `gamma`."""
    return x.elu(node.number("alpha", SELU_ALPHA)) * node.number("gamma", SELU_GAMMA)


def celu(node: Node, x: Tensor) -> Tensor:
    """Return elu whose slope at 0 is 1 for each `alpha`."""
    return x.celu(node.number("alpha", 1.0))


def gelu(node: Node, x: Tensor) -> Tensor:
    """Return gelu, exact or by tanh."""
    return x.gelu(node.get("approximate", "none"))


def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """Return a line of slope `alpha` and offset `beta`, held between 0 and 1."""
    return (x * node.number("alpha", 0.2) + node.number("beta", 0.5)).clip(0, 1)


def hard_swish(node: Node, x: Tensor) -> Tensor:
    """Return x times a hard sigmoid of slope 1/6."""
    return x * (x * (1 / 6) + 0.5).clip(0, 1)


def swish(node: Node, x: Tensor) -> Tensor:
    """Return x times the sigmoid of `alpha` x."""
    return x * (x * node.number("alpha", 1.0)).sigmoid()


def shrink(node: Node, x: Tensor) -> Tensor:
    """Return x brought nearer to 0 by `bias` outside of `lambd`, 0 inside."""
    bias, width = node.number("bias", 0.0), node.number("lambd", 0.5)
    return (x < -width).where(x + bias, (x > width).where(x - bias, x.full_like(0))).cast(x.dtype)


def along(name: str) -> Callable[[Node, Tensor], Tensor]:
    """Return an operator over one axis, the last unless given."""

    def run(node: Node, x: Tensor) -> Tensor:
        made: Tensor = METHODS[name](x, node.get("axis", -1))
        return made

    return run


def along_rest(name: str) -> Callable[[Node, Tensor], Tensor]:
    """Return an operator over `axis` (1 unless given) and all behind it together, as before opset 13."""

    def run(node: Node, x: Tensor) -> Tensor:
        at = node.get("axis", 1) % max(x.ndim, 1)
        rows = math.prod(x.shape[:at])
        return METHODS[name](x.reshape((rows, -1)), 1).reshape(x.shape)

    return run


def hardmax(x: Tensor, axis: int) -> Tensor:
    """Return 1 at the first of the greatest along an axis, 0 elsewhere."""
    at = axis % x.ndim
    places = Tensor(np.arange(known_size(x.shape[at], "hardmax"))).reshape(
        [-1 if i == at else 1 for i in range(x.ndim)]
    )
    return places.eq(x.argmax(at, keepdims=True)).cast(x.dtype)


METHODS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "Softmax": lambda x, axis: x.softmax(axis),
    "LogSoftmax": lambda x, axis: x.log_softmax(axis),
    "Hardmax": hardmax,
}
ROWS = (
    *(Row(name, unary(name.lower())) for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Mish")),
    Row("LeakyRelu", leaky_relu),
    Row("PRelu", prelu),
    Row("ThresholdedRelu", thresholded_relu),
    Row("Elu", elu),
    Row("Selu", selu),
    Row("Celu", celu),
    Row("Gelu", gelu),
    Row("HardSigmoid", hard_sigmoid),
    Row("HardSwish", hard_swish),
    Row("Swish", swish),
    Row("Shrink", shrink),
    *(Row(name, along_rest(name)) for name in METHODS),
    *(Row(name, along(name), since=13) for name in METHODS),
)
