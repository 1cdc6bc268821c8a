"""Random calls of the array API standard's functions, with NumPy arrays that stand for the arrays of any namespace:
`draw(name, seed)`, and `called(namespace, call)`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
NUMBERS = (*INTEGERS, *FLOATS)
ALL = ("bool", *NUMBERS)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, -3.0, 7.0, 1e-3, 1e4, -6e4, np.inf, -np.inf, np.nan)


def of(value, names):
    """Return names, each with the same value."""
    return dict.fromkeys(names.split(), value)


# functions of one array by the types they take
UNARY = {
    **of(
        FLOATS,
        "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh sqrt tan"
        " tanh",
    ),
    **of(NUMBERS, "abs ceil floor isfinite isinf isnan positive round sign square trunc"),
    "negative": (*SIGNED, *FLOATS),
    "bitwise_invert": ("bool", *INTEGERS),
    "logical_not": ("bool",),
    "real": FLOATS,
    "conj": FLOATS,
}
# functions of two arrays by the types they take
BINARY = {
    **of(NUMBERS, "add floor_divide greater greater_equal less less_equal maximum minimum multiply remainder subtract"),
    **of(FLOATS, "atan2 copysign divide hypot logaddexp nextafter pow"),
    **of(("bool", *INTEGERS), "bitwise_and bitwise_or bitwise_xor"),
    **of(INTEGERS, "bitwise_left_shift bitwise_right_shift"),
    **of(("bool",), "logical_and logical_or logical_xor"),
    **of(ALL, "equal not_equal"),
}
# what is computed to some ulp, in units of the type's last place
ULP = {
    **of(8, "acos acosh asin asinh atan atan2 atanh cos cosh exp expm1 log log10 log1p log2"),
    **of(8, "logaddexp sin sinh tan tanh hypot"),
    "pow": 4,
    # NumPy's, of floats
    "floor_divide": 1,
}


@dataclass
class Call:
    """A function's name and arguments, arrays as NumPy's."""

    name: str
    given: tuple
    named: dict = field(default_factory=dict)
    # how far a result may be off, relative to it, in units of the last place
    ulp: float = 0.0


def on(namespace, value):
    """Return a value with NumPy's arrays as those of a namespace and NumPy's types as its types."""
    if isinstance(value, (np.ndarray, np.generic)):
        return namespace.asarray(value.copy())
    if isinstance(value, np.dtype):
        return getattr(namespace, value.name)
    return type(value)(on(namespace, one) for one in value) if isinstance(value, (list, tuple)) else value


def called(namespace, call):
    """Return the results of a call in a namespace, as a list of NumPy arrays."""
    with np.errstate(all="ignore"):
        made = attrgetter(call.name)(namespace)(
            *on(namespace, call.given), **{name: on(namespace, one) for name, one in call.named.items()}
        )
        return [np.from_dlpack(one) if one.ndim else np.asarray(one) for one in leaves(made)]


def leaves(made):
    return [leaf for one in made for leaf in leaves(one)] if isinstance(made, (list, tuple)) else [made]


class Draw:
    """Random arguments."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(self.random.randrange(1 << 32))

    def shape(self, least=0, most=3, smallest=0):
        """Return a shape, without elements now and then."""
        sizes = (0, 1, 1, 2, 3, 4, 5) if not smallest and self.random.random() < 0.15 else (1, 2, 3, 4, 5, 7)
        return tuple(self.random.choice(sizes) for _ in range(self.random.randint(least, most)))

    def array(self, kind, shape):
        """Return values of a type: small, special or anywhere in its range."""
        if kind == "bool":
            return self.numpy.integers(0, 2, shape).astype(bool)
        if kind in FLOATS:
            values = self.numpy.choice(SPECIAL, shape) if self.random.random() < 0.4 else self.numpy.normal(0, 3, shape)
            return np.asarray(values).astype(kind)
        info = np.iinfo(kind)
        low, high = self.random.choice(((info.min, info.max), (max(info.min, -5), 5)))
        values = self.numpy.integers(low, high, shape, dtype=kind, endpoint=True)
        return np.asarray(values, kind)

    def plain(self, kind, shape):
        """Return values without infinities and NaN."""
        if kind in FLOATS:
            return np.asarray(self.numpy.normal(0, 3, shape)).astype(kind)
        return self.array(kind, shape)

    def part(self, shape):
        """Return a shape that broadcasts with another one."""
        cut = self.random.randint(0, len(shape))
        return tuple(1 if self.random.random() < 0.3 else size for size in shape[cut:])

    def axis(self, ndim):
        return self.random.randrange(-ndim, ndim)

    def axes(self, ndim):
        """Return None, one axis or several."""
        if not ndim or self.random.random() < 0.3:
            return None
        if self.random.random() < 0.5:
            return self.axis(ndim)
        return tuple(self.random.sample(range(ndim), self.random.randint(1, ndim)))


def unary(name, draw, kind=None):
    kind = kind or draw.random.choice(UNARY[name])
    return Call(name, (draw.array(kind, draw.shape()),), ulp=ULP.get(name, 0))


def binary(name, draw, kind=None):
    kinds = BINARY[name]
    first = kind or draw.random.choice(kinds)
    second = draw.random.choice([one for one in kinds if promotes(first, one)])
    shape = draw.shape()
    x, y = draw.array(first, shape), draw.array(second, draw.part(shape))
    if name.endswith("shift"):
        # shifts below 0 or past the width are unspecified
        y = (y.astype("int64") % (min(np.iinfo(first).bits, np.iinfo(second).bits) - 1)).astype(second)
    elif name == "floor_divide" and first in FLOATS:
        # NumPy's is Python's where something is infinite or 0, and the standard's is not
        x, y = np.where(np.isfinite(x), x, 1).astype(first), np.where(np.isfinite(y) & (y != 0), y, 1).astype(second)
    elif name in ("floor_divide", "remainder") and first in INTEGERS:
        # integers by 0 are unspecified, and so is a quotient that does not fit
        y = np.where((y == 0) | (y == -1) if second in SIGNED else y == 0, 3, y).astype(second)
    return Call(name, (x, y), ulp=ULP.get(name, 0))


def promotes(first, second):
    """Return whether the standard says what two types promote to."""
    pair = {first, second}
    if "uint64" in pair and pair & set(SIGNED):
        return False
    return any(first in kind and second in kind for kind in (("bool",), INTEGERS, FLOATS))


def _reduction(kinds, *, empty=True, ulp=0, plain=False, **named):
    def draw_call(name, draw):
        shape = draw.shape(smallest=0 if empty else 1)
        kind = draw.random.choice(kinds)
        x = draw.plain(kind, shape) if plain else draw.array(kind, shape)
        extra = {key: one(draw) for key, one in named.items()}
        return Call(name, (x,), {"axis": draw.axes(len(shape)), "keepdims": draw.random.random() < 0.5, **extra}, ulp)

    return draw_call


def _one_axis(kinds, *, empty=True, least=1, plain=False, ulp=0, none=False, **named):
    def draw_call(name, draw):
        shape = draw.shape(least, smallest=0 if empty else 1)
        kind = draw.random.choice(kinds)
        axis = None if none and draw.random.random() < 0.3 else draw.axis(len(shape))
        x = draw.plain(kind, shape) if plain else draw.array(kind, shape)
        return Call(name, (x,), {"axis": axis, **{key: one(draw) for key, one in named.items()}}, ulp)

    return draw_call


def _flag(draw):
    return draw.random.random() < 0.5


def _concat(name, draw):
    shape, kind = draw.shape(1), draw.random.choice(ALL)
    axis = draw.axis(len(shape))
    parts = []
    for _ in range(draw.random.randint(1, 3)):
        sizes = list(shape)
        sizes[axis] = draw.random.randint(0, 3)
        parts.append(draw.array(kind, tuple(sizes)))
    return Call(name, (parts,), {"axis": axis if draw.random.random() < 0.7 else None})


def _stack(name, draw):
    shape, kind = draw.shape(), draw.random.choice(ALL)
    parts = [draw.array(kind, shape) for _ in range(draw.random.randint(1, 3))]
    return Call(name, (parts,), {"axis": draw.axis(len(shape) + 1)})


def _broadcast_arrays(name, draw):
    shape = draw.shape()
    return Call(name, tuple(draw.array(draw.random.choice(ALL), draw.part(shape)) for _ in range(2)))


def _broadcast_to(name, draw):
    shape = draw.shape()
    return Call(name, (draw.array("int32", draw.part(shape)), shape))


def _expand_dims(name, draw):
    shape = draw.shape()
    return Call(name, (draw.array("int16", shape),), {"axis": draw.axis(len(shape) + 1)})


def _moveaxis(name, draw):
    shape = draw.shape(1)
    return Call(name, (draw.array("uint8", shape), draw.axis(len(shape)), draw.axis(len(shape))))


def _permute_dims(name, draw):
    shape = draw.shape()
    return Call(name, (draw.array("float32", shape), tuple(draw.random.sample(range(len(shape)), len(shape)))))


def _repeat(name, draw):
    shape = draw.shape(1)
    axis = draw.axis(len(shape)) if draw.random.random() < 0.6 else None
    size = shape[axis] if axis is not None else int(np.prod(shape))
    counts = draw.numpy.integers(0, 4, size) if draw.random.random() < 0.5 else draw.random.randint(0, 3)
    return Call(name, (draw.array("int64", shape), counts), {"axis": axis})


def _reshape(name, draw):
    shape = draw.shape()
    sizes = list(shape)
    draw.random.shuffle(sizes)
    if sizes and 0 not in sizes and draw.random.random() < 0.5:
        sizes[draw.random.randrange(len(sizes))] = -1
    return Call(name, (draw.array("uint16", shape), tuple(sizes)))


def _roll(name, draw):
    shape = draw.shape()
    axis = draw.axes(len(shape))
    many = isinstance(axis, tuple)
    shift = tuple(draw.random.randint(-9, 9) for _ in axis) if many else draw.random.randint(-9, 9)
    return Call(name, (draw.array("float64", shape), shift), {"axis": axis})


def _squeeze(name, draw):
    shape = list(draw.shape(1))
    shape[at := draw.random.randrange(len(shape))] = 1
    return Call(name, (draw.array("int8", tuple(shape)), at))


def _tile(name, draw):
    return Call(
        name,
        (draw.array("bool", draw.shape()), tuple(draw.random.randint(0, 3) for _ in range(draw.random.randint(0, 3)))),
    )


def _take(name, draw):
    shape = draw.shape(1, smallest=1)
    axis = draw.axis(len(shape))
    places = draw.numpy.integers(-shape[axis], shape[axis], draw.random.randint(0, 5))
    return Call(name, (draw.array("int32", shape), places), {"axis": axis})


def _take_along_axis(name, draw):
    shape = draw.shape(1, smallest=1)
    axis = draw.axis(len(shape))
    sizes = list(shape)
    sizes[axis] = draw.random.randint(0, 4)
    return Call(
        name, (draw.array("float32", shape), draw.numpy.integers(-shape[axis], shape[axis], sizes)), {"axis": axis}
    )


def _searchsorted(name, draw):
    kind = draw.random.choice(NUMBERS)
    x = np.sort(draw.array(kind, (draw.random.randint(0, 20),)))
    named = {"side": draw.random.choice(("left", "right"))}
    if draw.random.random() < 0.3:
        order = draw.numpy.permutation(x.size)
        named["sorter"] = np.argsort(order)
        x = x[order]
    return Call(name, (x, draw.array(kind, draw.shape())), named)


def _where(name, draw):
    shape, kind = draw.shape(), draw.random.choice(ALL)
    return Call(
        name, (draw.array("bool", draw.part(shape)), draw.array(kind, shape), draw.array(kind, draw.part(shape)))
    )


def _isin(name, draw):
    # `invert` has no effect in array-api-strict 2.6
    kind = draw.random.choice(INTEGERS)
    return Call(name, (draw.array(kind, draw.shape()), draw.array(kind, draw.shape())))


def _unique(name, draw):
    kind = draw.random.choice(ALL)
    x = draw.array(kind, draw.shape())
    # -0.0 and 0.0 are one value, of which either may stand for both, and several NaNs have no order
    return Call(name, (np.nan_to_num(x, posinf=np.inf, neginf=-np.inf) + 0 if kind in FLOATS else x,))


def _nonzero(name, draw):
    return Call(name, (draw.array(draw.random.choice(ALL), draw.shape(1)),))


def _matmul(name, draw):
    m, k, n = (draw.random.randint(1, 5) for _ in range(3))
    batch, kind = draw.shape(0, 1, 1), draw.random.choice(("int32", "int64", *FLOATS))
    first = (*batch, m, k) if draw.random.random() < 0.8 else (k,)
    second = (*draw.part(batch), k, n) if draw.random.random() < 0.8 else (k,)
    return Call(name, (draw.plain(kind, first), draw.plain(kind, second)), ulp=64)


def _tensordot(name, draw):
    shape, n = draw.shape(2, 3, 1), draw.random.randint(0, 2)
    second = (*shape[len(shape) - n :], *draw.shape(0, 1, 1))
    return Call(name, (draw.plain("float64", shape), draw.plain("float64", second)), {"axes": n}, ulp=64)


def _vecdot(name, draw):
    shape = draw.shape(1, 3, 1)
    return Call(name, (draw.plain("float32", shape), draw.plain("float32", shape)), {"axis": -1}, ulp=64)


def _clip(name, draw):
    shape, kind = draw.shape(), draw.random.choice(NUMBERS)
    low, high = (draw.array(kind, draw.part(shape)) for _ in range(2))
    low, high = np.minimum(low, high), np.maximum(low, high)
    ends = [one if draw.random.random() < 0.8 else None for one in (low, high)]
    shape = np.broadcast_shapes(shape, *(one.shape for one in ends if one is not None))
    return Call(name, (draw.array(kind, shape), *ends))


def _triangle(name, draw):
    return Call(name, (draw.array("int32", draw.shape(2)),), {"k": draw.random.randint(-4, 4)})


def _matrix_transpose(name, draw):
    return Call(name, (draw.array("int8", draw.shape(2)),))


def _meshgrid(name, draw):
    arrays = tuple(draw.array("float32", (draw.random.randint(1, 4),)) for _ in range(draw.random.randint(1, 3)))
    return Call(name, arrays, {"indexing": draw.random.choice(("xy", "ij"))})


def _diff(name, draw):
    shape, kind = draw.shape(1), draw.random.choice(NUMBERS)
    axis = draw.axis(len(shape))
    named = {"axis": axis, "n": draw.random.randint(1, 2)}
    for end in ("prepend", "append"):
        if draw.random.random() < 0.4:
            named[end] = draw.plain(kind, shape)
    return Call(name, (draw.plain(kind, shape),), named)


def _arange(name, draw):
    start, count, step = draw.random.randint(-9, 9), draw.random.randint(0, 9), draw.random.choice((-3, -1, 1, 2))
    return Call(name, (start, start + count * step, step), {"dtype": np.dtype(draw.random.choice(("int32", *FLOATS)))})


def _linspace(name, draw):
    start, stop = draw.random.uniform(-9, 9), draw.random.uniform(-9, 9)
    named = {"dtype": np.dtype(draw.random.choice(FLOATS)), "endpoint": _flag(draw)}
    return Call(name, (start, stop, draw.random.randint(0, 9)), named, ulp=64)


def _eye(name, draw):
    sizes = (draw.random.randint(0, 4), draw.random.choice((None, 0, 3)))
    return Call(name, sizes, {"k": draw.random.randint(-3, 3), "dtype": np.dtype(draw.random.choice(NUMBERS))})


def _cross(name, draw):
    shape = [*draw.shape(0, 2, 1), 3]
    axis = draw.axis(len(shape))
    shape[-1], shape[axis] = shape[axis], 3
    kind = draw.random.choice(("int32", "int64", *FLOATS))
    x, y = (draw.plain(kind, tuple(shape)) for _ in range(2))
    return Call(name, (x, y), {"axis": axis if axis < 0 else axis - len(shape)}, ulp=64)


def _diagonal(name, draw):
    kind = draw.random.choice(("int32", "int64", *FLOATS))
    return Call(name, (draw.plain(kind, draw.shape(2, smallest=1)),), {"offset": draw.random.randint(-3, 3)}, ulp=64)


def _outer(name, draw):
    kind = draw.random.choice(NUMBERS)
    return Call(name, tuple(draw.plain(kind, (draw.random.randint(0, 5),)) for _ in range(2)))


def _vector_norm(name, draw):
    shape = draw.shape(1, smallest=1)
    order = draw.random.choice((0, 1, 2, 3, np.inf, -np.inf))
    x = draw.plain(draw.random.choice(FLOATS), shape)
    return Call(name, (x,), {"axis": draw.axes(len(shape)), "keepdims": _flag(draw), "ord": order}, ulp=64)


# functions whose sums are of default types
SUMS = ("sum", "prod", "cumulative_sum", "cumulative_prod", "linalg.trace")
OTHERS = {
    "all": _reduction(ALL),
    "any": _reduction(ALL),
    "sum": _reduction(NUMBERS, plain=True, ulp=256),
    "prod": _reduction(NUMBERS, plain=True, ulp=256),
    "max": _reduction(NUMBERS, empty=False),
    "min": _reduction(NUMBERS, empty=False),
    "mean": _reduction(FLOATS, plain=True, ulp=256),
    "std": _reduction(FLOATS, plain=True, ulp=256, correction=lambda draw: draw.random.choice((0, 1, 0.5))),
    "var": _reduction(FLOATS, plain=True, ulp=256, correction=lambda draw: draw.random.choice((0, 1, 0.5))),
    "count_nonzero": _reduction(ALL),
    "argmax": _one_axis(NUMBERS, empty=False, none=True, keepdims=_flag),
    "argmin": _one_axis(NUMBERS, empty=False, none=True, keepdims=_flag),
    "argsort": _one_axis(NUMBERS, plain=True, descending=_flag),
    "sort": _one_axis(NUMBERS, plain=True, descending=_flag),
    "flip": _one_axis(ALL),
    "unstack": _one_axis(ALL),
    "cumulative_sum": _one_axis(NUMBERS, plain=True, ulp=256, include_initial=_flag),
    "cumulative_prod": _one_axis(NUMBERS, plain=True, ulp=256, include_initial=_flag),
    "concat": _concat,
    "stack": _stack,
    "broadcast_arrays": _broadcast_arrays,
    "broadcast_to": _broadcast_to,
    "expand_dims": _expand_dims,
    "moveaxis": _moveaxis,
    "permute_dims": _permute_dims,
    "repeat": _repeat,
    "reshape": _reshape,
    "roll": _roll,
    "squeeze": _squeeze,
    "tile": _tile,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "searchsorted": _searchsorted,
    "where": _where,
    "isin": _isin,
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values"), _unique),
    "nonzero": _nonzero,
    "matmul": _matmul,
    "tensordot": _tensordot,
    "vecdot": _vecdot,
    "matrix_transpose": _matrix_transpose,
    "clip": _clip,
    "tril": _triangle,
    "triu": _triangle,
    "meshgrid": _meshgrid,
    "diff": _diff,
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
    "linalg.cross": _cross,
    "linalg.diagonal": _diagonal,
    "linalg.trace": _diagonal,
    "linalg.outer": _outer,
    "linalg.vector_norm": _vector_norm,
}
NAMES = sorted({*UNARY, *BINARY, *OTHERS})


def draw(name, seed):
    """Return a random call of a function."""
    source = Draw(f"{name} {seed}")
    if name in UNARY:
        return unary(name, source)
    return binary(name, source) if name in BINARY else OTHERS[name](name, source)
