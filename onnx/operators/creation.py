"""Tensors from little or nothing: constants, ranges, windows, random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.compiler.tensor import Source, Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import FLOAT, INT32, Array, dtype_of, numbers

# the attributes that give Constant its value, and the type of each
PLAIN = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def constant(node: Node) -> Array:
    """Return the attribute that holds the value."""
    if node.get("value") is not None:
        given: Array = node.get("value")
        return given
    if node.get("sparse_value") is not None:
        sparse: Array = node.get("sparse_value")
        return sparse
    for name, kind in PLAIN.items():
        if name in node.attributes:
            return np.asarray(node.get(name), kind)
    raise node.refuse("a constant of strings, which have no element type here")


def constant_of_shape(node: Node, shape: Array) -> Tensor:
    """Return a tensor filled with one value, f32 0 unless given."""
    value = node.get("value")
    kind = "float32" if value is None else value.dtype.name
    return Tensor.full(tuple(numbers(shape)), 0 if value is None else value.reshape(-1)[0].item(), kind)


def counted(node: Node, start: Array, limit: Array, step: Array) -> Tensor:
    """Return start, start + step, … before the limit."""
    first, last, by = (one.reshape(-1)[0] for one in (start, limit, step))
    count = max(math.ceil((last - first) / by), 0)
    kind = start.dtype.name
    wide = (
        "float64" if start.dtype.kind == "f" and kind == "float64" else "float32" if start.dtype.kind == "f" else kind
    )
    made: Tensor = Tensor.arange(count, dtype="int64").cast(wide) * by.item() + first.item()
    return made.cast(kind)


def eye_like(node: Node, x: Tensor) -> Tensor:
    """Return ones on a diagonal, in the shape of a matrix."""
    kind = x.dtype if node.get("dtype") is None else dtype_of(node.get("dtype"), str(node))
    rows, columns = (Tensor.arange(size) for size in x.shape)
    return (columns - int(node.get("k", 0))).unsqueeze(0).eq(rows.unsqueeze(1)).cast(kind)


def one_hot(node: Node, places: Tensor, depth: Array, values: Tensor) -> Tensor:
    """Return `values[1]` where the class is the element, `values[0]` elsewhere, along a new axis."""
    classes = numbers(depth)[0]
    at = node.get("axis", -1) % (places.ndim + 1)
    # a whole number may come as a float
    held = places.cast("int64")
    held = (held < 0).where(held + classes, held).unsqueeze(at)
    every = Tensor.arange(classes, dtype="int64").reshape([-1 if i == at else 1 for i in range(places.ndim + 1)])
    return every.eq(held).where(values[1], values[0])


def _source(node: Node) -> Source | None:
    seed = node.get("seed")
    return None if seed is None else Source(int(np.float32(seed).view(np.uint32)))


def _kind(node: Node, like: Tensor | None) -> Any:
    if node.get("dtype") is not None:
        return dtype_of(node.get("dtype"), str(node))
    return dtype_of(FLOAT, "") if like is None else like.dtype


def random_normal(node: Node, like: Tensor | None = None) -> Tensor:
    """Return normally distributed numbers in a shape, or in that of another tensor."""
    shape = node.get("shape") if like is None else like.shape
    mean, std = node.number("mean", 0.0), node.number("scale", 1.0)
    return Tensor.normal(tuple(shape), mean=mean, std=std, dtype=_kind(node, like), source=_source(node))


def random_uniform(node: Node, like: Tensor | None = None) -> Tensor:
    """Return numbers evenly spread over a range in a shape, or in that of another tensor."""
    shape = node.get("shape") if like is None else like.shape
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return Tensor.uniform(tuple(shape), low=low, high=high, dtype=_kind(node, like), source=_source(node))


def bernoulli(node: Node, x: Tensor) -> Tensor:
    """Return 1 with the probability that each element states, else 0."""
    return (Tensor.rand(x.shape, source=_source(node)) < x).cast(_kind(node, x))


def multinomial(node: Node, x: Tensor) -> Tensor:
    """Return classes drawn by unnormalised logarithms of their probabilities: the greatest after noise (Gumbel's)."""
    count, classes = node.get("sample_size", 1), x.shape[-1]
    spread = Tensor.uniform((x.shape[0], count, classes), low=1e-7, high=1.0, source=_source(node))
    kind = dtype_of(node.get("dtype", INT32), str(node))
    return (x.cast("float32").unsqueeze(1) - (-spread.log()).log()).argmax(-1).cast(kind)


def window(*factors: float) -> Callable[[Node, Array], Tensor]:
    """Return an operator for a window that is a sum of cosines."""

    def run(node: Node, size: Array) -> Tensor:
        count = numbers(size)[0]
        length = count if node.get("periodic", 1) else count - 1
        turns = np.arange(count) * (2 * np.pi / max(length, 1))
        made = sum(factor * np.cos(turns * i) for i, factor in enumerate(factors))
        kind = dtype_of(node.get("output_datatype", FLOAT), str(node))
        return Tensor(np.asarray(made, np.float64)).cast(kind)

    return run


ROWS = (
    Row("Constant", constant),
    Row("ConstantOfShape", constant_of_shape, host=(0,)),
    Row("Range", counted, host=(0, 1, 2)),
    Row("EyeLike", eye_like),
    Row("OneHot", one_hot, host=(1,)),
    Row("RandomNormal", random_normal),
    Row("RandomNormalLike", random_normal),
    Row("RandomUniform", random_uniform),
    Row("RandomUniformLike", random_uniform),
    Row("Bernoulli", bernoulli),
    Row("Multinomial", multinomial),
    # the factors of onnx.ai's Operators.md
    Row("HannWindow", window(0.5, -0.5), host=(0,)),
    Row("HammingWindow", window(25 / 46, -21 / 46), host=(0,)),
    Row("BlackmanWindow", window(0.42, -0.5, 0.08), host=(0,)),
)
