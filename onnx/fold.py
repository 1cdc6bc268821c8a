"""Operators on arrays that the host knows: arithmetic on shapes, mostly. They come before the operators on tensors
where every input is known, so that shapes that follow from others need no card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.compiler.graph.index import Expr
from ringup.compiler.tensor.arrays import numpy_dtype
from ringup.onnx.common.node import Node
from ringup.onnx.common.values import DTYPES, Array, numbers
from ringup.onnx.operators.shapes import new_shape

# larger arrays are left to the card
MAX_ELEMENTS = 1 << 12


class Unfolded(Exception):
    """This node is left to the operator on tensors."""


def folded(node: Node, inputs: list[Any]) -> list[Array] | None:
    """Return the outputs of a node whose inputs are known arrays; None where its operator has no form for them."""
    function = FOLDS.get(node.op) if node.domain in ("", "ai.onnx") else None
    if function is None or not inputs or any(one is not None and one.size > MAX_ELEMENTS for one in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            made = function(node, *inputs)
    except Unfolded:
        return None
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    return [np.asarray(one) for one in outputs]


def _plain(*arrays: Array) -> None:
    """Leave arrays with symbolic sizes, which cannot be compared or rounded, to the card."""
    if any(one.dtype == object for one in arrays):
        raise Unfolded


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def run(node: Node, x: Array, y: Array) -> Array:
        if node.opset < 7:
            raise Unfolded
        made = function(x, y)
        return np.asarray(made, object if object in (x.dtype, y.dtype) else x.dtype)

    return run


def _compare(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def run(node: Node, x: Array, y: Array) -> Array:
        if object in (x.dtype, y.dtype):
            return _compared_sizes(node, x, y)
        return np.asarray(function(x, y))

    return run


def _compared_sizes(node: Node, x: Array, y: Array) -> Array:
    """Return where sizes are equal: the same symbol is, and a size that cannot be a number is not."""
    if node.op != "Equal":
        raise Unfolded
    left, right = np.broadcast_arrays(x.astype(object), y.astype(object))
    made = np.empty(left.shape, np.bool_)
    for place in np.ndindex(left.shape):
        difference = left[place] - right[place]
        if isinstance(difference, Expr) and difference.lo <= 0 <= difference.hi:
            raise Unfolded
        made[place] = not isinstance(difference, Expr) and difference == 0
    return made


def _divide(x: Any, y: Any) -> Any:
    if object in (x.dtype, y.dtype):
        return x // y
    if x.dtype.kind == "f":
        return x / y
    if (np.asarray(y) == 0).any():
        raise Unfolded
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)) if x.dtype.kind == "i" else x // y


def _modulo(node: Node, x: Array, y: Array) -> Array:
    _plain(x, y)
    return np.asarray(np.fmod(x, y) if node.get("fmod", 0) else np.mod(x, y))


def _elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    def run(node: Node, *arrays: Array) -> Array:
        _plain(*arrays)
        made = function(*arrays)
        return np.asarray(made)

    return run


def _cast(node: Node, x: Array) -> Array:
    kind = DTYPES.get(node.get("to"))
    if kind is None or kind.name.startswith("float8"):
        raise Unfolded
    if x.dtype == object:
        if kind.is_integer:
            return x
        if kind.kind != "bool" or any(isinstance(one, Expr) and one.lo <= 0 <= one.hi for one in x.reshape(-1)):
            raise Unfolded
        return np.array([isinstance(one, Expr) or one != 0 for one in x.reshape(-1)], np.bool_).reshape(x.shape)
    return x.astype(numpy_dtype(kind))


def _concat(node: Node, *arrays: Array) -> Array:
    return np.concatenate(arrays, node.get("axis", 1))


def _gather(node: Node, x: Array, places: Array) -> Array:
    _plain(places)
    return np.asarray(np.take(x, places.astype(np.int64), node.get("axis", 0)))


def _axes(node: Node, axes: Array | None) -> list[int] | None:
    if axes is not None:
        return numbers(axes)
    given = node.get("axes")
    return None if given is None else list(given)


def _squeeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    given = _axes(node, axes)
    return np.squeeze(x, None if given is None else tuple(given))


def _unsqueeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(x, tuple(_axes(node, axes) or ()))


def _reshape(node: Node, x: Array, shape: Array | None = None) -> Array:
    wanted = node.get("shape") if shape is None else numbers(shape)
    return x.reshape(new_shape(x.shape, wanted, keep_zero=bool(node.get("allowzero", 0))))


def _slice(
    node: Node, x: Array, starts: Array | None = None, ends: Array | None = None, axes: Array | None = None,
    steps: Array | None = None,
) -> Array:  # fmt: skip
    first = node.get("starts") if starts is None else numbers(starts)
    last = node.get("ends") if ends is None else numbers(ends)
    key: list[Any] = [slice(None)] * x.ndim
    for i, axis in enumerate(_axes(node, axes) or range(len(first))):
        step = 1 if steps is None else numbers(steps)[i]
        if any(isinstance(one, Expr) for one in (first[i], last[i], step)):
            raise Unfolded
        key[axis] = slice(first[i], None if step < 0 and last[i] < -x.shape[axis] else last[i], step)
    made: Array = x[tuple(key)]
    return made


def _filled(node: Node, shape: Array) -> Array:
    _plain(shape)
    if np.prod(shape, dtype=np.int64) > MAX_ELEMENTS:
        raise Unfolded
    value = node.get("value")
    return np.full(numbers(shape), np.float32(0) if value is None else value.reshape(-1)[0])


def _range(node: Node, start: Array, limit: Array, step: Array) -> Array:
    _plain(start, limit, step)
    made = np.arange(*(one.reshape(-1)[0] for one in (start, limit, step)), dtype=start.dtype)
    if made.size > MAX_ELEMENTS:
        raise Unfolded
    return made


def _expand(node: Node, x: Array, shape: Array) -> Array:
    _plain(shape)
    wanted = np.broadcast_shapes(x.shape, tuple(numbers(shape)))
    if np.prod(wanted, dtype=np.int64) > MAX_ELEMENTS:
        raise Unfolded
    return np.array(np.broadcast_to(x, wanted))


def _reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    def run(node: Node, x: Array, axes: Array | None = None) -> Array:
        given = _axes(node, axes)
        if not given and node.get("noop_with_empty_axes", 0):
            return x
        if x.dtype == object and function not in (np.prod, np.sum):
            raise Unfolded
        made = function(x, axis=tuple(given) if given else None, keepdims=bool(node.get("keepdims", 1)))
        return np.asarray(made, x.dtype)

    return run


def _split(node: Node, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = node.get("axis", 0)
    given = node.get("split") if sizes is None else numbers(sizes)
    if given is None:
        count = node.get("num_outputs", len(node.outputs))
        given = [-(-x.shape[axis] // count)] * count
    return list(np.split(x, np.cumsum(given)[:-1], axis))


def _scatter_nd(node: Node, x: Array, places: Array, values: Array) -> Array:
    if node.get("reduction", "none") != "none":
        raise Unfolded
    _plain(places)
    made = x.astype(object) if object in (x.dtype, values.dtype) else np.array(x)
    made[tuple(np.moveaxis(places.astype(np.int64), -1, 0))] = values
    return made


def _where(node: Node, condition: Array, x: Array, y: Array) -> Array:
    _plain(condition)
    return np.where(condition, x, y)


def _shape(node: Node, x: Array) -> Array:
    return np.array(x.shape, np.int64)[slice(node.get("start"), node.get("end"))]


FOLDS: dict[str, Callable[..., Any]] = {
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(_divide),
    "Mod": _modulo,
    "Min": _elementwise(lambda *arrays: np.minimum.reduce(np.broadcast_arrays(*arrays))),
    "Max": _elementwise(lambda *arrays: np.maximum.reduce(np.broadcast_arrays(*arrays))),
    "Neg": _elementwise(np.negative),
    "Abs": _elementwise(np.abs),
    "Floor": _elementwise(lambda x: np.floor(x).astype(x.dtype)),
    "Ceil": _elementwise(lambda x: np.ceil(x).astype(x.dtype)),
    "Round": _elementwise(lambda x: np.rint(x).astype(x.dtype)),
    "Sqrt": _elementwise(lambda x: np.sqrt(x).astype(x.dtype)),
    "Equal": _compare(np.equal),
    "Less": _compare(np.less),
    "LessOrEqual": _compare(np.less_equal),
    "Greater": _compare(np.greater),
    "GreaterOrEqual": _compare(np.greater_equal),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Not": _elementwise(np.logical_not),
    "Where": _where,
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Tile": lambda node, x, counts: np.tile(x, numbers(counts)),
    "Transpose": lambda node, x: np.transpose(x, node.get("perm")),
    "Shape": _shape,
    "Size": lambda node, x: np.array(x.size, np.int64),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ScatterND": _scatter_nd,
}
