"""Random graphs of 5 to 40 operations through the Tensor API, and the same in NumPy: `random_graph(seed)`.

Values stay small so that results are comparable. The returned tolerance is relative to the greatest magnitude that
occurs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from ringup.compiler.tensor import Tensor

ULP = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10}
FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTS = ("int32", "int32", "int64", "int8", "uint8", "int16", "uint16")


@dataclass
class Pair:
    """A tensor and NumPy's array of the same value. `error` bounds how far rounding may have moved them apart."""

    tensor: Tensor
    array: np.ndarray
    error: float = 0.0

    @property
    def kind(self):
        return self.array.dtype.name

    def scale(self):
        finite = np.abs(self.array[np.isfinite(self.array)].astype(np.float64)) if self.array.size else np.zeros(0)
        return float(finite.max(initial=0.0))


class Maker:
    """One random graph under construction."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.pairs = [self.leaf() for _ in range(self.random.randint(1, 3))]
        self.trail = []

    def leaf(self, shape=None, kind=None):
        shape = (
            shape
            if shape is not None
            else tuple(self.random.choice((1, 2, 3, 4, 5, 7)) for _ in range(self.random.randint(1, 4)))
        )
        kind = kind or self.random.choice(FLOATS if self.random.random() < 0.75 else INTS)
        if kind in ULP:
            array = self.numpy.uniform(-2, 2, shape).astype(kind)
        else:
            array = self.numpy.integers(0 if kind[0] == "u" else -9, 10, shape).astype(kind)
        return Pair(Tensor(array), array)

    def rounded(self, pair, steps=2.0):
        """Count the rounding of one more operation."""
        if pair.kind in ULP:
            pair.error += steps * ULP[pair.kind] * max(pair.scale(), 1e-3)
        return pair

    def step(self):
        """Apply one more operation to a random value."""
        x = self.random.choice(self.pairs[-3:])
        names = [*MOVES, *(FLOAT_STEPS if x.kind in ULP else INT_STEPS), *BOTH]
        name = self.random.choice(names)
        made = (MOVES.get(name) or FLOAT_STEPS.get(name) or INT_STEPS.get(name) or BOTH[name])(self, x)
        if (
            made is None
            or made.array.size > 4000
            or made.array.size == 0
            or made.scale() > 1e4
            or made.error > 0.05 * max(made.scale(), 1.0)
        ):
            return
        if made.array.dtype == np.bool_:
            return
        self.trail.append(name)
        self.pairs.append(made)


def unary(function, steps, slope=1.0):
    def step(maker, x):
        tensor, array = function(x.tensor, x.array)
        return maker.rounded(Pair(tensor, array.astype(x.array.dtype), x.error * slope), steps)

    return step


def _wide(array):
    return array.astype(np.float64)


def reshaped(maker, x):
    size = x.array.size
    cuts = [one for one in range(1, size + 1) if size % one == 0]
    first = maker.random.choice(cuts)
    second = maker.random.choice([one for one in cuts if size // first % one == 0])
    shape = (first, second, size // first // second)
    return Pair(x.tensor.reshape(shape), x.array.reshape(shape), x.error)


def permuted(maker, x):
    axes = list(range(x.array.ndim))
    maker.random.shuffle(axes)
    return Pair(x.tensor.permute(axes), x.array.transpose(axes), x.error)


def flipped(maker, x):
    axis = maker.random.randrange(x.array.ndim) if x.array.ndim else None
    return None if axis is None else Pair(x.tensor.flip(axis), np.flip(x.array, axis), x.error)


def padded(maker, x):
    widths = [(maker.random.randint(0, 2), maker.random.randint(0, 2)) for _ in x.array.shape]
    return Pair(x.tensor.pad(widths, 1), np.pad(x.array, widths, constant_values=1) if widths else x.array, x.error)


def sliced(maker, x):
    keys = []
    for size in x.array.shape:
        start = maker.random.randint(0, size - 1)
        stop = maker.random.randint(start + 1, size)
        step = maker.random.choice((1, 1, 2, -1))
        keys.append(slice(start, stop, step) if step > 0 else slice(None, None, -1))
    return Pair(x.tensor[tuple(keys)], x.array[tuple(keys)], x.error)


def joined(maker, x):
    if not x.array.ndim:
        return None
    axis = maker.random.randrange(x.array.ndim)
    return Pair(x.tensor.cat(x.tensor, axis=axis), np.concatenate([x.array, x.array], axis), x.error)


def expanded(maker, x):
    times = maker.random.randint(2, 3)
    return Pair(
        x.tensor.unsqueeze(0).expand((times, *x.array.shape)),
        np.broadcast_to(x.array, (times, *x.array.shape)),
        x.error,
    )


def picked(maker, x):
    if not x.array.ndim:
        return None
    places = maker.numpy.integers(-x.array.shape[0], x.array.shape[0], 3)
    return Pair(x.tensor[places], x.array[places], x.error)


def strided(maker, x):
    if not x.array.ndim or x.array.shape[-1] < 3:
        return None
    return Pair(
        x.tensor.unfold(-1, 2, 2), np.lib.stride_tricks.sliding_window_view(x.array, 2, -1)[..., ::2, :], x.error
    )


def added(maker, x):
    other = maker.leaf(x.array.shape, x.kind)
    function = maker.random.choice((lambda a, b: a + b, lambda a, b: a - b))
    return maker.rounded(Pair(function(x.tensor, other.tensor), function(x.array, other.array), x.error))


def multiplied(maker, x):
    shape = tuple(maker.random.choice((1, size)) for size in x.array.shape)
    other = maker.leaf(shape, x.kind)
    return maker.rounded(Pair(x.tensor * other.tensor, x.array * other.array, x.error * 2))


def chosen(maker, x):
    other = maker.leaf(x.array.shape, x.kind)
    # Rounding cannot change this condition.
    if x.kind in ULP:
        where = other.array > 0.25
        return Pair((other.tensor > 0.25).where(x.tensor, other.tensor), np.where(where, x.array, other.array), x.error)
    return Pair((x.tensor > 2).where(x.tensor, other.tensor), np.where(x.array > 2, x.array, other.array))


def largest(maker, x):
    other = maker.leaf(x.array.shape, x.kind)
    return Pair(x.tensor.maximum(other.tensor), np.maximum(x.array, other.array), x.error)


def reduced(maker, x):
    if not x.array.ndim:
        return None
    axis = maker.random.randrange(x.array.ndim)
    keep = maker.random.random() < 0.5
    name = maker.random.choice(("sum", "max", "min"))
    if name == "sum" and x.kind in ULP:
        wide = x.array.astype(np.float64).sum(axis, keepdims=keep).astype(x.kind)
        return maker.rounded(
            Pair(x.tensor.sum(axis, keepdims=keep), wide, x.error * x.array.shape[axis]), 2 + x.array.shape[axis] / 8
        )
    if name == "sum":
        name = "max"
    return Pair(getattr(x.tensor, name)(axis, keepdims=keep), getattr(x.array, name)(axis, keepdims=keep), x.error)


def product(maker, x):
    if x.array.ndim < 2:
        return None
    other = maker.leaf((x.array.shape[-1], 3), x.kind)
    array = (x.array.astype(np.float64) @ other.array.astype(np.float64)).astype(x.kind)
    return maker.rounded(Pair(x.tensor @ other.tensor, array, x.error * 2 * x.array.shape[-1]), 4)


def softmaxed(maker, x):
    if not x.array.ndim:
        return None
    raised = np.exp(_wide(x.array) - _wide(x.array).max(-1, keepdims=True))
    return maker.rounded(
        Pair(x.tensor.softmax(-1), (raised / raised.sum(-1, keepdims=True)).astype(x.kind), x.error * 2), 12
    )


def summed_up(maker, x):
    if not x.array.ndim:
        return None
    array = np.cumsum(_wide(x.array), -1).astype(x.kind)
    return maker.rounded(Pair(x.tensor.cumsum(-1), array, x.error * x.array.shape[-1]), 4 + x.array.shape[-1])


def run_up(maker, x):
    """Take running extremes, in either direction."""
    if not x.array.ndim:
        return None
    axis = maker.random.randrange(x.array.ndim)
    name, function = maker.random.choice((("cummax", np.maximum), ("cummin", np.minimum)))
    tensor, array = getattr(x.tensor.flip(axis), name)(axis=axis), function.accumulate(np.flip(x.array, axis), axis)
    return (
        Pair(tensor, array, x.error)
        if maker.random.random() < 0.5
        else Pair(tensor.flip(axis), np.flip(array, axis), x.error)
    )


def written(maker, x):
    """Assign to a part of a copy."""
    if not x.array.ndim:
        return None
    tensor, array = x.tensor * 1, np.array(x.array)
    at = maker.random.randrange(array.shape[0])
    tensor[at] = 1
    array[at] = 1
    return Pair(tensor, array, x.error)


def bits(maker, x):
    name = maker.random.choice(("and", "or", "xor"))
    other = maker.leaf(x.array.shape, x.kind)
    function = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}[name]
    return Pair(function(x.tensor, other.tensor), function(x.array, other.array))


def divided(maker, x):
    by = maker.random.choice((2, 3, 5) if x.kind[0] == "u" else (2, 3, -3, 5))
    function = maker.random.choice((lambda a: a // by, lambda a: a % by))
    return Pair(function(x.tensor), function(x.array))


def ordered(maker, x):
    if not x.array.ndim:
        return None
    return Pair(x.tensor.sort(-1)[0], np.sort(x.array, -1), x.error)


def placed(maker, x):
    """Take the places of elements in order; for floats only where rounding cannot change it."""
    if not x.array.ndim or x.error:
        return None
    axis = maker.random.randrange(x.array.ndim)
    return Pair(x.tensor.argsort(axis), np.argsort(x.array, axis, kind="stable").astype(np.int32))


def put(maker, x):
    """Put values at places along an axis, negative ones and some outside. For repeated places the last value counts, or
    the greatest.
    """
    if not x.array.ndim:
        return None
    axis, count = maker.random.randrange(x.array.ndim), maker.random.randint(1, 12)
    shape = tuple(count if i == axis else size for i, size in enumerate(x.array.shape))
    places = maker.numpy.integers(-1, x.array.shape[axis] + 1, shape)
    y, array = maker.leaf(shape, x.kind), np.array(x.array)
    greatest = maker.random.random() < 0.5
    for at in np.ndindex(shape):
        to = (*at[:axis], int(places[at]), *at[axis + 1 :])
        if to[axis] < array.shape[axis]:
            array[to] = max(array[to], y.array[at]) if greatest else y.array[at]
    where = Tensor(places.astype(np.int32))
    made = (
        x.tensor.scatter_reduce(axis, where, y.tensor, "max") if greatest else x.tensor.scatter(axis, where, y.tensor)
    )
    return Pair(made, array, x.error)


def counted(maker, x):
    if not x.array.ndim:
        return None
    return Pair(x.tensor.argmax(-1), np.argmax(x.array, -1).astype(np.int32))


def shifted(maker, x):
    by = maker.random.randint(0, 3)
    return Pair(x.tensor >> by, x.array >> by)


MOVES = {"reshape": reshaped, "permute": permuted, "flip": flipped, "pad": padded, "slice": sliced, "cat": joined, "expand": expanded,
         "take": picked, "unfold": strided, "setitem": written}  # fmt: skip
BOTH = {
    "add": added,
    "mul": multiplied,
    "where": chosen,
    "max": largest,
    "reduce": reduced,
    "sort": ordered,
    "run": run_up,
    "argsort": placed,
    "scatter": put,
}
FLOAT_STEPS = {
    "exp": unary(lambda t, a: ((-abs(t)).exp(), np.exp(-np.abs(_wide(a)))), 3),
    "tanh": unary(lambda t, a: (t.tanh(), np.tanh(_wide(a))), 4),
    "sigmoid": unary(lambda t, a: (t.sigmoid(), 1 / (1 + np.exp(-_wide(a)))), 4),
    "sin": unary(lambda t, a: (t.sin(), np.sin(_wide(a))), 2),
    "cos": unary(lambda t, a: (t.cos(), np.cos(_wide(a))), 4),
    "relu": unary(lambda t, a: (t.relu(), np.maximum(a, 0)), 0),
    "abs": unary(lambda t, a: (abs(t), np.abs(a)), 0),
    "neg": unary(lambda t, a: (-t, -a), 0),
    "square": unary(lambda t, a: ((t * 0.5) ** 2, (_wide(a) * 0.5) ** 2), 4, 4.0),
    "half": unary(lambda t, a: (t / 2 + 1, _wide(a) / 2 + 1), 3),
    "matmul": product,
    "softmax": softmaxed,
    "cumsum": summed_up,
}
INT_STEPS = {"bits": bits, "divide": divided, "shift": shifted, "argmax": counted,
             "float": lambda maker, x: Pair(x.tensor.cast("float32"), x.array.astype(np.float32))}  # fmt: skip


def random_graph(seed):
    """Return (tensor, NumPy's array of its expected value, absolute tolerance) of the random graph of that seed. The
    tolerance is 0 for integers.
    """
    with np.errstate(over="ignore"):
        maker = Maker(seed)
        wanted = maker.random.randint(5, 40)
        for _ in range(wanted * 4):
            if len(maker.trail) >= wanted:
                break
            maker.step()
    last = maker.pairs[-1]
    return last.tensor, last.array, 4 * last.error


def check(seed):
    """Compute the graph of that seed and compare. Raises AssertionError for what is wrong."""
    tensor, expected, tolerance = random_graph(seed)
    found = tensor.numpy()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), seed
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance, err_msg=f"seed {seed}"
    )
