"""Random small networks through the Tensor API: `random_network(seed)`. Convolutions, norms, pools, attention,
embeddings, losses, gradients.

A network is built twice, in its own type and in f64 with the same weights. NumPy's two answers then show how far
rounding may move a third.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy_graph

from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Tensor, gradient

KINDS = ("float32", "float32", "float32", "float16", "bfloat16")
NUMPY = {"bfloat16": ml_dtypes.bfloat16}
SHAKES = 3  # how often a network is computed with its sums slightly off
# The limit of elements of a value on the way: the reference interpreter computes all of this.
MAX_ELEMENTS = 40_000


@dataclass
class Network:
    """Outputs of one network in its own type, and the same computed in f64."""

    outputs: list[Tensor]
    exact: list[Tensor]
    trail: list[str]


class Builder:
    """One pass over the choices of a seed, in one type. Both passes draw the same numbers."""

    def __init__(self, seed, kind, *, exact):
        self.random, self.numpy = random.Random(seed), np.random.default_rng(seed)
        self.kind, self.exact = kind, exact
        self.weights, self.trail = [], []

    def values(self, *shape, scale=1.0, grow=True):
        """Return a tensor of random numbers, rounded to the network's own type."""
        array = (self.numpy.standard_normal(shape) * scale).astype(NUMPY.get(self.kind, self.kind))
        made = Tensor(array.astype(np.float64)) if self.exact else Tensor(array)
        if grow:
            self.weights.append(made)
        return made

    def choice(self, *options):
        return self.random.choice(options)

    def grow(self, x, steps):
        """Add that many layers after x, of those that its rank allows."""
        for _ in range(steps * 3):
            if len(self.trail) >= steps:
                break
            table = PLANES if x.ndim == 4 else TOKENS
            name = self.random.choice(list(table))
            made = table[name](self, x)
            if made is not None and 0 < made.size <= MAX_ELEMENTS:
                self.trail.append(name)
                x = made
        return x


def _convolved(b, x):
    channels, taps, stride = x.shape[1], b.choice(1, 2, 3, 3, 5), b.choice(1, 1, 2)
    padding = b.random.randint(0, taps // 2)
    groups = b.choice(1, 1, 1, channels)
    made = groups * b.choice(1, 2) if groups > 1 else b.choice(3, 8, 16, 17)
    if min(x.shape[2:]) + 2 * padding < taps:
        return None
    weight = b.values(made, channels // groups, taps, taps, scale=(channels // groups * taps * taps) ** -0.5)
    bias = b.values(made, scale=0.3) if b.choice(False, True) else None
    return x.conv2d(weight, bias, stride=stride, padding=padding, groups=groups)


def _spread(b, x):
    channels, stride = x.shape[1], b.choice(1, 2)
    made = b.choice(2, 8)
    weight = b.values(channels, made, 3, 3, scale=(channels * 9) ** -0.5)
    return x.conv_transpose(weight, stride=stride, padding=1, output_padding=stride - 1)


def _normed_planes(b, x):
    channels = x.shape[1]
    how = b.choice("batch", "group", "instance")
    weight, bias = b.values(channels), b.values(channels)
    if how == "batch":
        return x.batch_norm(weight=weight, bias=bias)
    if how == "instance":
        return x.instance_norm(weight, bias) if x.shape[2] * x.shape[3] > 3 else None
    return x.group_norm(b.choice(1, channels), weight, bias) if x.shape[2] * x.shape[3] > 3 else None


def _pooled(b, x):
    size, how = b.choice(2, 3), b.choice("max", "avg")
    if min(x.shape[2:]) < size:
        return None
    return x.max_pool(size, b.choice(None, 1, 2)) if how == "max" else x.avg_pool(size, padding=b.choice(0, 1))


def _resampled(b, x):
    mode = b.choice("nearest", "linear")
    return x.interpolate([b.random.randint(2, 12) for _ in range(2)], mode)


def _shortcut(b, x):
    channels = x.shape[1]
    inner = x.conv2d(b.values(channels, channels, 3, 3, scale=(9 * channels) ** -0.5), padding=1).relu()
    return x + inner.conv2d(b.values(channels, channels, 1, 1, scale=channels**-0.5))


def _as_tokens(_b, x):
    return x.flatten(2).mT if x.shape[2] * x.shape[3] <= 100 else None


def _activated(b, x):
    return getattr(x, b.choice("relu", "gelu", "silu", "tanh", "sigmoid"))()


def _linear(b, x):
    width, made = x.shape[-1], b.choice(8, 17, 32, 48)
    y = x @ b.values(width, made, scale=width**-0.5)
    return y + b.values(made, scale=0.3) if b.choice(False, True) else y


def _normed_tokens(b, x):
    width = x.shape[-1]
    if width < 3:
        return None
    return x.layer_norm(b.values(width), b.values(width)) if b.choice(False, True) else x.rms_norm(b.values(width))


def _attended(b, x):
    width, heads = x.shape[-1], b.choice(1, 2, 4)
    shared, causal, masked = b.choice(1, heads), b.choice(False, True), b.choice(False, False, True)
    deep = b.choice(4, 8, 16, 24)
    query, key, value = (
        (x @ b.values(width, n * deep, scale=width**-0.5)).unflatten(-1, (n, deep)).transpose(-2, -3)
        for n in (heads, shared, shared)
    )
    mask = b.values(x.shape[1], x.shape[1], grow=False) if masked else None
    seen = query.scaled_dot_product_attention(key, value, mask, causal=causal, grouped=True)
    made = seen.transpose(-2, -3).flatten(-2)
    return x + made @ b.values(heads * deep, width, scale=(heads * deep) ** -0.5)


def _fed(b, x):
    width, wide = x.shape[-1], x.shape[-1] * 2
    inner = getattr(x.rms_norm() @ b.values(width, wide, scale=width**-0.5), b.choice("gelu", "silu"))()
    return x + inner @ b.values(wide, width, scale=wide**-0.5)


def _placed(b, x):
    table = b.values(11, x.shape[-1])
    return x + table.embedding(b.numpy.integers(0, 11, x.shape[1]).astype(np.int32))


def _moved(b, x):
    how = b.choice("shrink", "pad", "flip", "join", "cumsum", "softmax", "turn")
    if how == "shrink":
        return x[:, 1:, : x.shape[2] - 1] if min(x.shape[1:]) > 2 else None
    if how == "pad":
        return x.pad([(0, 0), (1, 0), (0, 1)])
    if how == "turn":
        return x.mT if x.shape[1] > 2 else None
    return {"flip": lambda: x.flip(1), "join": lambda: x.cat(x * 0.5, axis=1), "cumsum": lambda: x.cumsum(1) * 0.25,
            "softmax": lambda: x.softmax(-1)}[how]()  # fmt: skip


PLANES = {"conv": _convolved, "conv again": _convolved, "spread": _spread, "norm": _normed_planes, "pool": _pooled,
          "resample": _resampled, "shortcut": _shortcut, "tokens": _as_tokens, "activation": _activated}  # fmt: skip
TOKENS = {"linear": _linear, "norm": _normed_tokens, "attention": _attended, "attention again": _attended,
          "feed forward": _fed, "places": _placed, "moved": _moved, "activation": _activated}  # fmt: skip


def _built(seed, kind, *, exact):
    b = Builder(seed, kind, exact=exact)
    if b.choice("planes", "tokens") == "planes":
        x = b.values(b.choice(1, 2), b.choice(1, 3, 8), b.random.randint(4, 14), b.random.randint(4, 14))
    else:
        x = b.values(b.choice(1, 2, 3), b.choice(1, 5, 16, 33), b.choice(8, 16, 24))
    x = b.grow(x, b.random.randint(2, 6))
    outputs = [x]
    if b.choice(False, True):  # a loss and gradients
        if b.choice(False, True):
            classes = b.numpy.integers(0, x.shape[-1], x.shape[:-1]).astype(np.int32)
            loss = x.cross_entropy(Tensor(classes))
        else:
            loss = (x * x).mean()
        chosen = b.random.sample(b.weights, min(3, len(b.weights)))
        outputs = [loss, *gradient(loss, chosen)]
        b.trail.append("gradient")
    return outputs, [kind, *b.trail]


def random_network(seed):
    """Return the network of that seed: 2 to 6 layers. Half of the networks have a loss and its gradients by up to three
    weights.
    """
    kind = random.Random(seed ^ 0x5EED).choice(KINDS)
    outputs, trail = _built(seed, kind, exact=False)
    exact, _ = _built(seed, kind, exact=True)
    return Network(outputs, exact, trail)


def tolerances(judged, exact, shaken, kind):
    """Return an absolute tolerance for each output, from the distance between NumPy in the network's own type and NumPy
    in f64.

    `shaken` holds the outputs with every sum one unit in its last place off. NumPy's own distance may be small by
    chance, as in the gradient of a norm of a norm. Then `shaken` sets the limit: a sum that is four such units off is
    right too.
    """
    step = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[kind]
    found = []
    for i, (one, other) in enumerate(zip(judged, exact, strict=True)):
        finite = np.abs(other[np.isfinite(other)].astype(np.float64))
        bound = 16 * _apart(one, other) + 64 * step * float(finite.max(initial=0.0))
        found.append(max([bound, *(4 * _apart(each[i], other) for each in shaken)]))
    return found


def _apart(one, other):
    """Return the greatest finite distance of two arrays."""
    distance = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(distance[np.isfinite(distance)].max(initial=0.0))


def shaken(nodes, seed):
    """Return the arrays of nodes, with every f32 sum one unit in its last place up or down at random."""
    numbers = np.random.default_rng(seed)

    def changed(node, made):
        if node.op is not Op.REDUCE or node.arg[0] is not Op.ADD or made.dtype != np.float32:
            return made
        return np.nextafter(made, np.where(numbers.random(made.shape) < 0.5, -np.inf, np.inf).astype(np.float32))

    return numpy_graph.evaluate(nodes, changed=changed)


def check(seed):
    """Compute the network of that seed and compare each of its outputs. Raises AssertionError for what is wrong."""
    network = random_network(seed)
    judged, exact = (numpy_graph.evaluate([one.node for one in side]) for side in (network.outputs, network.exact))
    off = [shaken([one.node for one in network.outputs], seed + i) for i in range(SHAKES)]
    bounds = tolerances(judged, exact, off, network.trail[0])
    network.outputs[0].realize(*network.outputs[1:])
    for i, (output, wanted, bound) in enumerate(zip(network.outputs, judged, bounds, strict=True)):
        found, what = output.numpy(), f"output {i} of seed {seed}, {network.trail}"
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=bound, err_msg=what
        )
