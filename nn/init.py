"""Initial values, with PyTorch's names: each function fills a tensor in place and returns it.

The numbers are drawn on the host, from the language's own source (`ringup.manual_seed`), so nothing is compiled for
them.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from ringup.compiler.tensor import random
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.parameter import replace

Array: TypeAlias = "np.ndarray[Any, Any]"

# the slope of tanh is below 1, so weights in front of it are wider
TANH_GAIN = 5 / 3
# what leaves the variance of an activation as it is; PyTorch's values
GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": TANH_GAIN, "relu": math.sqrt(2), "selu": 0.75,
}  # fmt: skip
MODES = ("fan_in", "fan_out")


def generator() -> np.random.Generator:
    """Return random numbers of the host, with the next key of the language's source."""
    return np.random.Generator(np.random.Philox(key=np.array(random.DEFAULT.next_key(), np.uint64)))


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple(number_of(size, "initial values") for size in tensor.shape)


def _fill(tensor: Tensor, array: Array) -> Tensor:
    """Replace a tensor's value by an array. What is a view of another tensor is written through."""
    value = Tensor(array if tensor.dtype.bits == 64 else array.astype(np.float32), tensor.dtype)
    if tensor._view is not None:
        return tensor.assign(value)
    replace(tensor, value)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with numbers evenly spread over [a, b)."""
    return _fill(tensor, generator().uniform(a, b, _sizes(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with normally distributed numbers."""
    return _fill(tensor, generator().normal(mean, std, _sizes(tensor)))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill with normally distributed numbers, those outside of a … b drawn again."""
    source = generator()
    made = source.normal(mean, std, _sizes(tensor))
    # so far from the mean the normal distribution has next to nothing
    if a > mean + 8 * std or b < mean - 8 * std or a >= b:
        raise ValueError(f"trunc_normal_ between {a} and {b}, mean {mean}, std {std}: next to nothing lies there")
    outside = (made < a) | (made > b)
    while outside.any():
        made[outside] = source.normal(mean, std, int(outside.sum()))
        outside = (made < a) | (made > b)
    return _fill(tensor, made)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value."""
    return _fill(tensor, np.full(_sizes(tensor), float(val)))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on the diagonal and zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_ of {list(tensor.shape)}: a matrix")
    return _fill(tensor, np.eye(_sizes(tensor)[0], _sizes(tensor)[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes its inputs on, as many channels as there are."""
    shape = _sizes(tensor)
    if not 3 <= len(shape) <= 5 or shape[0] % groups:
        raise ValueError(f"dirac_ of {list(shape)} in {groups} groups: a weight of 3 to 5 axes, outputs a multiple")
    made = np.zeros(shape)
    each = shape[0] // groups
    middle = tuple(size // 2 for size in shape[2:])
    for group in range(groups):
        for channel in range(min(each, shape[1])):
            made[(group * each + channel, channel, *middle)] = 1
    return _fill(tensor, made)


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return how many inputs and outputs each element of a weight (outputs, inputs, taps…) connects."""
    shape = _sizes(tensor)
    if len(shape) < 2:
        raise ValueError(f"initial weights of {list(shape)}: two axes at least")
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that suits an activation; `param` is the slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope * slope))
    if nonlinearity not in GAINS:
        raise ValueError(f"no gain for {nonlinearity!r}; there are leaky_relu, {', '.join(GAINS)}")
    return GAINS[nonlinearity]


def _std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}; there are {', '.join(MODES)}")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[MODES.index(mode)])


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with weights for relu and its like (He and others, 2015), evenly spread; `a` is the slope below 0."""
    bound = math.sqrt(3) * _std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with weights for relu and its like, normally distributed."""
    return normal_(tensor, 0.0, _std(tensor, a, mode, nonlinearity))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with weights for symmetric activations (Glorot and Bengio, 2010), evenly spread."""
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with weights for symmetric activations, normally distributed."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with a matrix (the first axis, all others) whose rows or columns are orthogonal, of length `gain`."""
    shape = _sizes(tensor)
    if len(shape) < 2:
        raise ValueError(f"orthogonal_ of {list(shape)}: two axes at least")
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(generator().normal(size=(max(rows, columns), min(rows, columns))))
    # signs that make the distribution uniform
    q = q * np.sign(np.diag(r))
    return _fill(tensor, gain * (q if rows >= columns else q.T).reshape(shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Fill a matrix with normally distributed numbers, and that share of each column with zeros."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_ of {list(tensor.shape)}: a matrix")
    rows, columns = _sizes(tensor)
    source = generator()
    made = source.normal(0, std, (rows, columns))
    for column in range(columns):
        made[source.permutation(rows)[: math.ceil(sparsity * rows)], column] = 0
    return _fill(tensor, made)
