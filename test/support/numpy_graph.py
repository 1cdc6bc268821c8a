"""The tensor graph evaluated with NumPy: the reference of graphs and of compiled kernels. It is written from the
comments of `compiler/graph/nodes.py`.

f16, bf16 and float8 nodes use f32 arithmetic and round once for each node. f32 transcendentals and sums are computed in
f64 and rounded, so that the reference is more exact than the results it is compared with. Values are immutable here:
AFTER makes a changed copy, and nothing is written in place.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ringup.compiler.graph import index
from ringup.compiler.graph.nodes import BINARY, UNARY, Op, ordered

NUMPY = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
NARROW = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16")


def numpy_dtype(dtype):
    """Return NumPy's (or ml_dtypes') type for one of ours."""
    return NUMPY.get(dtype.numpy) or np.dtype(dtype.numpy)


def evaluate(nodes, sizes=None, *, changed=None):
    """Return the arrays of `nodes`, for the given values of the symbolic sizes by name. `changed` replaces the value of
    each node.
    """
    sizes = sizes or {}
    values, left = {}, {}
    order = ordered(nodes)
    for node in order:
        for source in node.sources:
            left[source] = left.get(source, 0) + 1
    for node in nodes:
        left[node] = left.get(node, 0) + 1
    with np.errstate(all="ignore"):
        for node in order:
            shape = tuple(index.evaluate(size, sizes) for size in node.shape)
            made = one(node, [values[source] for source in node.sources], shape, sizes)
            if changed is not None:
                made = changed(node, made)
            if node.op is not Op.STORE:
                assert made.shape == shape, f"{node} came out as {made.shape}, sources {node.sources}"
                assert made.dtype == numpy_dtype(node.dtype), f"{node} came out as {made.dtype}"
            values[node] = made
            for source in node.sources:
                left[source] -= 1
                if not left[source]:
                    values[source] = None
    return [values[node] for node in nodes]


class NumpyEvaluator:
    """The evaluator that `ringup.compiler.tensor.realize` needs, with NumPy alone."""

    def __init__(self):
        self.calls = []

    def evaluate(self, nodes, sizes):
        self.calls.append(list(nodes))
        return [np.array(value, order="C").reshape(-1).view(np.uint8) for value in evaluate(nodes, sizes)]


def one(node, sources, shape, sizes):
    """Return the value of one node from those of its sources."""
    op, kind = node.op, numpy_dtype(node.dtype)
    if op is Op.CAST:
        return cast(sources[0], kind)
    if op is Op.BITCAST:
        return np.ascontiguousarray(sources[0]).view(kind).reshape(shape)
    if op in UNARY:
        return unary(op, sources[0], node.dtype)
    if op in BINARY:
        return binary(op, *sources, node.sources[0].dtype)
    if op is Op.WHERE:
        return np.where(sources[0], sources[1], sources[2])
    if op is Op.REDUCE:
        return reduce(*node.arg, sources[0], node.dtype)
    return OTHERS[op](node, sources, shape, sizes)


def unary(op, x, dtype):
    """Return an elementwise operation of one operand."""
    kind = numpy_dtype(dtype)
    if op is Op.NOT:
        return np.logical_not(x) if dtype.kind == "bool" else np.invert(x)
    if dtype.is_complex:
        return np.negative(x)
    if not dtype.is_float:
        return np.asarray(x if dtype.kind in ("bool", "uint") and op is Op.ABS else INTEGER_UNARY[op](x)).astype(kind)
    # f32 is computed in f64: rounded once, and exact except for transcendentals.
    wide = x.astype(np.float64 if dtype.bits >= 32 else np.float32)
    return np.asarray(FLOAT_UNARY[op](wide)).astype(kind)


INTEGER_UNARY = {Op.NEG: np.negative, Op.ABS: np.abs}
FLOAT_UNARY = {
    Op.NEG: np.negative,
    Op.ABS: np.abs,
    Op.SQRT: np.sqrt,
    Op.RECIP: lambda x: x.dtype.type(1) / x,
    Op.RSQRT: lambda x: x.dtype.type(1) / np.sqrt(x),
    Op.EXP2: np.exp2,
    Op.LOG2: np.log2,
    Op.SIN: np.sin,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.ROUND: np.rint,
}


def binary(op, x, y, dtype):
    """Return an elementwise operation of two operands of `dtype`."""
    if op in COMPARE:
        return np.asarray(
            COMPARE[op](*((x, y) if dtype.name not in NARROW else (x.astype(np.float32), y.astype(np.float32))))
        )
    kind = numpy_dtype(dtype)
    if dtype.is_float:
        wide = np.float32 if dtype.name in NARROW else np.float64 if op in (Op.POW, Op.MOD) else kind
        return np.asarray(FLOAT_BINARY[op](x.astype(wide), y.astype(wide))).astype(kind)
    if dtype.is_complex:
        # rounded once, as for f32
        return np.asarray(FLOAT_BINARY[op](x.astype(np.complex128), y.astype(np.complex128))).astype(kind)
    if dtype.kind == "bool":
        return np.asarray(BOOL_BINARY[op](x, y))
    return np.asarray(INTEGER_BINARY[op](x, y, dtype)).astype(kind)


COMPARE = {Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal}
FLOAT_BINARY = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MOD: np.mod,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.POW: np.power,
    Op.LOGADDEXP: np.logaddexp,
}
BOOL_BINARY = {
    Op.ADD: np.logical_or,
    Op.MUL: np.logical_and,
    Op.MAX: np.logical_or,
    Op.MIN: np.logical_and,
    Op.AND: np.logical_and,
    Op.OR: np.logical_or,
    Op.XOR: np.logical_xor,
}


def _floor_divide(x, y, dtype):
    safe = np.where(y == 0, 1, y).astype(x.dtype)
    minus = (safe == -1) if dtype.kind == "int" else np.zeros(y.shape, bool)
    divided = np.floor_divide(x, np.where(minus, 1, safe).astype(x.dtype))
    return np.where(y == 0, x.dtype.type(0), np.where(minus, np.negative(x), divided))


def _remainder(x, y, dtype):
    minus = (y == -1) if dtype.kind == "int" else np.zeros(y.shape, bool)
    safe = np.where((y == 0) | minus, 1, y).astype(x.dtype)
    return np.where(y == 0, x.dtype.type(0), np.where(minus, x.dtype.type(0), np.mod(x, safe)))


def _shift_left(x, y, dtype):
    inside = (y >= 0) & (y < dtype.bits)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0).astype(x.dtype)), x.dtype.type(0))


def _shift_right(x, y, dtype):
    inside = (y >= 0) & (y < dtype.bits)
    return np.where(
        inside, np.right_shift(x, np.where(inside, y, 0).astype(x.dtype)), np.where(x < 0, -1, 0).astype(x.dtype)
    )


def _integer_power(x, y, dtype):
    result, base, left = np.ones(x.shape, x.dtype), np.array(x), np.where(y < 0, 0, y).astype(np.uint64)
    while left.any():
        result = np.where(left & np.uint64(1), result * base, result)
        base, left = base * base, left >> np.uint64(1)
    odd = (y & 1) == 1
    negative = np.where(x == 1, 1, np.where((x == -1) & (dtype.kind == "int"), np.where(odd, -1, 1), 0))
    return np.where(y < 0, negative.astype(x.dtype), result)


INTEGER_BINARY = {
    Op.ADD: lambda x, y, _: np.add(x, y),
    Op.SUB: lambda x, y, _: np.subtract(x, y),
    Op.MUL: lambda x, y, _: np.multiply(x, y),
    Op.IDIV: _floor_divide,
    Op.MOD: _remainder,
    Op.MAX: lambda x, y, _: np.maximum(x, y),
    Op.MIN: lambda x, y, _: np.minimum(x, y),
    Op.POW: _integer_power,
    Op.AND: lambda x, y, _: np.bitwise_and(x, y),
    Op.OR: lambda x, y, _: np.bitwise_or(x, y),
    Op.XOR: lambda x, y, _: np.bitwise_xor(x, y),
    Op.SHL: _shift_left,
    Op.SHR: _shift_right,
}


def cast(x, kind):
    """Return `x` as `kind`. Floats round to nearest even. Integers are cut off and saturated, with NaN as 0. bool is `x
    != 0`.
    """
    from_float = x.dtype.kind == "f" or x.dtype in NUMPY.values()
    if kind == np.bool_:
        return np.asarray(x != x.dtype.type(0))
    if kind.kind in "iu":
        if not from_float:
            return x.astype(kind)
        wide = np.trunc(x.astype(np.float64))
        info = np.iinfo(kind)
        inside = (wide >= float(info.min)) & (wide < float(info.max) + (kind.itemsize < 8))
        kept = np.where(inside, wide, 0.0).astype(kind)
        return np.where(
            np.isnan(wide), 0, np.where(inside, kept, np.where(wide > 0, kind.type(info.max), kind.type(info.min)))
        ).astype(kind)
    if kind in (np.float32, np.float64, np.complex64, np.complex128) or (from_float and x.dtype.itemsize <= 4):
        return x.astype(kind)
    return _odd_f32(x).astype(kind)


def _odd_f32(x):
    """Return f32 rounded to odd. A second rounding to a narrower type then has the effect of a single rounding."""
    # Keep what f64 would lose as a sticky bit.
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        half = x >> 11 << 11
        wide = np.where(
            np.abs(x.astype(np.float64)) < 2.0**52, x, half | np.where(x != half, 1 << 11, 0).astype(x.dtype)
        ).astype(np.float64)
    else:
        wide = x.astype(np.float64)
    near = wide.astype(np.float32)
    bits = near.view(np.uint32) if near.shape else near.reshape(1).view(np.uint32).reshape(())
    inexact = np.isfinite(wide) & (near.astype(np.float64) != wide)
    beyond = inexact & (np.abs(near.astype(np.float64)) > np.abs(wide))
    bits = np.where(beyond, bits - np.uint32(1), bits) | inexact.astype(np.uint32)
    return np.asarray(bits, np.uint32).view(np.float32)


REDUCERS = {
    Op.ADD: (np.add, 0),
    Op.MUL: (np.multiply, 1),
    Op.MAX: (np.maximum, None),
    Op.MIN: (np.minimum, None),
    Op.LOGADDEXP: (np.logaddexp, -np.inf),
    Op.AND: (np.bitwise_and, -1),
    Op.OR: (np.bitwise_or, 0),
    Op.XOR: (np.bitwise_xor, 0),
}


def reduce(op, axes, x, dtype):
    """Return `x` reduced along `axes`, which become 1."""
    kind, (function, start) = numpy_dtype(dtype), REDUCERS[op]
    if dtype.kind == "bool":
        function = {Op.ADD: np.logical_or, Op.MUL: np.logical_and}.get(op, function)
    wide = np.float64 if dtype.is_float else np.complex128 if dtype.is_complex else kind
    if start is None:
        start = dtype.least if op is Op.MAX else dtype.greatest
    elif dtype.kind == "bool":
        start = bool(start)
    elif dtype.kind == "uint" and start == -1:
        start = dtype.greatest
    return np.asarray(
        function.reduce(x.astype(wide), axis=tuple(axes), keepdims=True, initial=start, dtype=wide)
    ).astype(kind)


def scan(node, sources, shape, _sizes):
    """Return the running results of folding element by element. Each stretch and each run of equal keys
    starts afresh.
    """
    (op, axis, stretch), kind = node.arg, numpy_dtype(node.dtype)
    function = REDUCERS[op][0]
    if node.dtype.kind == "bool":
        function = {Op.ADD: np.logical_or, Op.MUL: np.logical_and}.get(op, function)
    wide = np.float64 if node.dtype.is_float else np.complex128 if node.dtype.is_complex else kind
    x = np.moveaxis(sources[0].astype(wide), axis, 0)
    keys = np.moveaxis(sources[1], axis, 0) if len(sources) > 1 else None
    made = np.array(x)
    for i in range(1, len(x)):
        if stretch is None or i % stretch:
            joined = function(made[i - 1], x[i])
            made[i] = joined if keys is None else np.where(keys[i] == keys[i - 1], joined, x[i])
    return np.moveaxis(made, 0, axis).astype(kind)


def sort(node, sources, shape, _sizes):
    axis, stretch = node.arg
    size = shape[axis]
    parts = [
        np.sort(np.take(sources[0], range(i, min(i + (stretch or size), size)), axis), axis)
        for i in range(0, size, stretch or size)
    ]
    return np.concatenate(parts, axis) if parts else sources[0]


def gather(node, sources, shape, _sizes):
    x, places = sources
    axis = node.arg
    places = places.astype(np.int64) if places.dtype != np.uint64 else np.minimum(places, 1 << 62).astype(np.int64)
    inside = (places >= 0) & (places < x.shape[axis])
    if not x.shape[axis]:
        return np.zeros(shape, x.dtype)
    grid = list(np.indices(shape, sparse=True))
    grid[axis] = np.where(inside, places, 0)
    return np.where(inside, x[tuple(grid)], np.zeros((), x.dtype))


def scatter(node, sources, _shape, _sizes):
    x, places, y = sources
    axis, op = node.arg
    places = places.astype(np.int64)
    inside = (places >= 0) & (places < x.shape[axis])
    grid = [np.broadcast_to(one, places.shape) for one in np.indices(places.shape, sparse=True)]
    grid[axis] = places
    where = tuple(one[inside] for one in grid)
    wide = np.float64 if node.dtype.is_float else x.dtype
    made = x.astype(wide)
    if op is None:
        made[where] = y[inside].astype(wide)
    elif x.dtype == np.bool_:
        {Op.ADD: np.logical_or, Op.MUL: np.logical_and}.get(op, REDUCERS[op][0]).at(made, where, y[inside])
    else:
        REDUCERS[op][0].at(made, where, y[inside].astype(wide))
    return made.astype(x.dtype)


def buffer(node, _sources, shape, _sizes):
    kind, data = numpy_dtype(node.dtype), node.arg.data
    # Memory that was never written: its contents are undefined.
    if data is None:
        return (
            np.full(int(np.prod(shape, dtype=np.int64)) * kind.itemsize, 0x55 if kind != np.bool_ else 1, np.uint8)
            .view(kind)
            .reshape(shape)
        )
    data = data.read() if hasattr(data, "read") else data  # a card's memory
    return np.frombuffer(memoryview(data).cast("B"), kind)[: int(np.prod(shape, dtype=np.int64))].reshape(shape)


def after(node, sources, shape, _sizes):
    """Return the buffer with the stores done. A STORE's value is its flat places and the values for them."""
    made = np.array(sources[0]).reshape(-1)
    for places, value in sources[1:]:
        made[places.reshape(-1)] = value.reshape(-1)
    return made.reshape(shape)


def places_of(view, sizes):
    """Return the flat place in its state (BUFFER or AFTER) of each element of a view."""
    if view.op in (Op.BUFFER, Op.AFTER):
        shape = tuple(index.evaluate(size, sizes) for size in view.shape)
        return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    assert view.op in (Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP), f"a store through {view}"
    shape = tuple(index.evaluate(size, sizes) for size in view.shape)
    return OTHERS[view.op](view, [places_of(view.sources[0], sizes)], shape, sizes)


def pad(node, sources, _shape, sizes):
    widths, value = node.arg
    widths = [tuple(index.evaluate(one, sizes) for one in pair) for pair in widths]
    kind = sources[0].dtype
    made = np.full(
        [size + sum(pair) for size, pair in zip(sources[0].shape, widths, strict=True)],
        np.array(value).astype(kind),
        kind,
    )
    inner = tuple(slice(before, before + size) for size, (before, _) in zip(sources[0].shape, widths, strict=True))
    made[inner] = sources[0]
    return made


def shrink(node, sources, _shape, sizes):
    bounds = [tuple(index.evaluate(one, sizes) for one in pair) for pair in node.arg]
    assert all(0 <= a <= b <= size for (a, b), size in zip(bounds, sources[0].shape, strict=True)), (
        f"{node} of {sources[0].shape}"
    )
    return sources[0][tuple(slice(a, b) for a, b in bounds)]


def _joined(real, imag):
    """Return complex numbers of two parts; real + 1j * imag would turn infinities into NaN."""
    made = np.empty(real.shape, np.complex128)
    made.real, made.imag = real, imag
    return made


def store(node, sources, _shape, sizes):
    return places_of(node.sources[0], sizes), sources[1]


OTHERS = {
    Op.BUFFER: buffer,
    Op.CONST: lambda node, _sources, _shape, _sizes: np.array(node.arg).astype(numpy_dtype(node.dtype)),
    Op.IOTA: lambda node, _sources, shape, _sizes: np.arange(shape[0], dtype=numpy_dtype(node.dtype)),
    Op.SIZE: lambda node, _sources, _shape, sizes: np.array(index.evaluate(node.arg, sizes), numpy_dtype(node.dtype)),
    Op.COMPLEX: lambda node, sources, _shape, _sizes: _joined(*sources).astype(numpy_dtype(node.dtype)),
    Op.REAL: lambda _node, sources, _shape, _sizes: sources[0].real,
    Op.IMAG: lambda _node, sources, _shape, _sizes: sources[0].imag,
    Op.CONTIGUOUS: lambda _node, sources, _shape, _sizes: sources[0],
    Op.RESHAPE: lambda _node, sources, shape, _sizes: sources[0].reshape(shape),
    Op.PERMUTE: lambda node, sources, _shape, _sizes: sources[0].transpose(node.arg),
    Op.EXPAND: lambda _node, sources, shape, _sizes: np.broadcast_to(sources[0], shape),
    Op.FLIP: lambda node, sources, _shape, _sizes: np.flip(sources[0], node.arg),
    Op.CAT: lambda node, sources, _shape, _sizes: np.concatenate(sources, node.arg),
    Op.PAD: pad,
    Op.SHRINK: shrink,
    Op.SCAN: scan,
    Op.SORT: sort,
    Op.GATHER: gather,
    Op.SCATTER: scatter,
    Op.STORE: store,
    Op.AFTER: after,
}
