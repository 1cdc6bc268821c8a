"""Axes folded: sums, extremes and their places, ranks, running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers


def _log_sum(x: Tensor, axes: Any, *, keepdims: bool) -> Tensor:
    return x.sum(axes, keepdims=keepdims).log()


def _extreme(name: str, least: bool) -> Callable[..., Tensor]:
    def run(x: Tensor, axes: Any, *, keepdims: bool) -> Tensor:
        every = tuple(range(x.ndim)) if axes is None else axes
        if any(isinstance(x.shape[axis], int) and x.shape[axis] == 0 for axis in every):
            # nothing has no extreme: ONNX takes the neutral element
            shape = [1 if i in [a % x.ndim for a in every] else size for i, size in enumerate(x.shape)]
            made = Tensor.full(shape, x.dtype.least if least else x.dtype.greatest, x.dtype)
            return made if keepdims else made.squeeze(every)
        found: Tensor = getattr(x, name)(axes, keepdims=keepdims)
        return found

    return run


FOLDS: dict[str, Callable[..., Tensor]] = {
    "ReduceSum": lambda x, axes, keepdims: x.sum(axes, keepdims=keepdims),
    "ReduceProd": lambda x, axes, keepdims: x.prod(axes, keepdims=keepdims),
    "ReduceMean": lambda x, axes, keepdims: x.mean(axes, keepdims=keepdims),
    "ReduceMax": _extreme("amax", least=True),
    "ReduceMin": _extreme("amin", least=False),
    "ReduceL1": lambda x, axes, keepdims: x.abs().sum(axes, keepdims=keepdims),
    "ReduceL2": lambda x, axes, keepdims: (x * x).sum(axes, keepdims=keepdims).sqrt(),
    "ReduceSumSquare": lambda x, axes, keepdims: (x * x).sum(axes, keepdims=keepdims),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": lambda x, axes, keepdims: _log_sum_exp(x, axes, keepdims=keepdims),
}


def _log_sum_exp(x: Tensor, axes: Any, *, keepdims: bool) -> Tensor:
    if 0 in x.shape:
        return _log_sum(x.exp(), axes, keepdims=keepdims)
    return x.logsumexp(axes, keepdims=keepdims)


def fold(name: str) -> Callable[..., Tensor]:
    """Return a reduction over axes that are an attribute or an input; none given are all."""

    def run(node: Node, x: Tensor, axes: Array | None = None) -> Tensor:
        given = node.get("axes") if axes is None else numbers(axes)
        if not given:
            if node.get("noop_with_empty_axes", 0):
                return FOLDS[name](x, (), keepdims=True).cast(x.dtype)
            given = None
        return FOLDS[name](x, given, keepdims=bool(node.get("keepdims", 1))).cast(x.dtype)

    return run


def place(name: str) -> Callable[[Node, Tensor], Tensor]:
    """Return an operator for the place of an extreme along an axis, the first or the last of equals."""

    def run(node: Node, x: Tensor) -> Tensor:
        axis, keepdims = node.get("axis", 0), bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            found: Tensor = getattr(x, name)(axis, keepdims=keepdims)
            return found.cast("int64")
        last = known_size(x.shape[axis], str(node)) - 1
        mirrored: Tensor = getattr(x.flip(axis), name)(axis, keepdims=keepdims)
        return last - mirrored.cast("int64")

    return run


def top_k(node: Node, x: Tensor, count: Array | None = None) -> tuple[Tensor, Tensor]:
    """Return the greatest or the least along an axis, and their places."""
    k = node.get("k") if count is None else numbers(count)[0]
    axis = node.get("axis", -1)
    if k == 0:
        shape = [0 if i == axis % x.ndim else size for i, size in enumerate(x.shape)]
        return Tensor.zeros(shape, dtype=x.dtype), Tensor.zeros(shape, dtype="int64")
    values, places = x.topk(k, axis, largest=bool(node.get("largest", 1)))
    return values, places.cast("int64")


def running(name: str) -> Callable[[Node, Tensor, Array], Tensor]:
    """Return a running sum or product along an axis."""

    def run(node: Node, x: Tensor, axis: Array) -> Tensor:
        at = numbers(axis)[0] % x.ndim
        start = x.flip(at) if node.get("reverse", 0) else x
        made: Tensor = getattr(start, name)(at).cast(x.dtype)
        if node.get("exclusive", 0):
            bounds: list[Any] = [(0, size - 1) if i == at else None for i, size in enumerate(x.shape)]
            edge = [(1, 0) if i == at else (0, 0) for i in range(x.ndim)]
            made = made.shrink(bounds).pad(edge, value=0 if name == "cumsum" else 1)
        return made.flip(at) if node.get("reverse", 0) else made

    return run


ROWS = (
    *(Row(name, fold(name), host=(1,)) for name in FOLDS),
    Row("ArgMax", place("argmax")),
    Row("ArgMin", place("argmin")),
    Row("TopK", top_k, host=(1,)),
    Row("CumSum", running("cumsum"), host=(1,)),
    Row("CumProd", running("cumprod"), host=(1,)),
)
