"""`Model`: what an ONNX file becomes, a function from tensors to tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import Tensor
from ringup.errors import CompileError, NotSupported
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, as_array, as_tensor
from ringup.onnx.fold import MAX_ELEMENTS, folded
from ringup.onnx.operators.table import find

# constant nodes of this many floats are scales and other arguments, known to the host
FEW = 8


class Port(NamedTuple):
    """An input or an output: its name, its element type (None where it is no tensor, or unknown) and its sizes.

    A size is a number, a `Size` where `load` was told its bounds, a symbol's name, or None. The shape is None where
    the file does not state it.
    """

    name: str
    dtype: DType | None
    shape: tuple[Any, ...] | None


@dataclass
class Graph:
    """The nodes of a model, or of a branch or a loop's body in it, in an order in which they can run.

    `constants` are values by name.
    """

    nodes: Sequence[Node]
    inputs: Sequence[str]
    outputs: Sequence[str]
    constants: Mapping[str, Any]

    def run(self, inputs: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        """Return the outputs, for inputs by position and the values of the graph around this one."""
        values = {**around, **self.constants, **dict(zip(self.inputs, inputs, strict=False))}
        for node in self.nodes:
            made = run_node(node, values)
            values.update((name, one) for name, one in zip(node.outputs, made, strict=False) if name)
        return [values[name] for name in self.outputs]


def run_node(node: Node, values: Mapping[str, Any]) -> list[Any]:
    """Return a node's outputs. An error of its operator names it."""
    inputs = [values[name] if name else None for name in node.inputs]
    row = find(node.domain, node.op, node.opset)
    assert row is not None, "load refuses operators that are missing"
    try:
        known = _known(inputs)
        made = None if known is None else folded(node, known)
        if made is None:
            made = _computed(_bound(node, values), row, inputs)
    except (CompileError, NotSupported) as error:
        raise type(error)(_named(node, error)) from error
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CompileError(_named(node, error)) from error
    return made


def _named(node: Node, error: Exception) -> str:
    return str(error) if str(error).startswith("node") else f"{node}: {error}"


def _known(inputs: list[Any]) -> list[Any] | None:
    """Return the inputs as arrays where the host knows all: one by itself, others also as small weights."""
    if not any(isinstance(one, np.ndarray) for one in inputs):
        return None
    made = []
    for one in inputs:
        if isinstance(one, Tensor) and one.name and is_small(one.numel()):
            one = one.numpy() if _is_data(one) else one
        if one is not None and not isinstance(one, np.ndarray):
            return None
        made.append(one)
    return made


def is_small(count: Any) -> bool:
    """Return whether a number of elements is one that the host folds."""
    return isinstance(count, int) and count <= MAX_ELEMENTS


def _is_data(tensor: Tensor) -> bool:
    data = getattr(tensor.node.arg, "data", None)
    return isinstance(data, (bytes, bytearray, memoryview))


def _bound(node: Node, values: Mapping[str, Any]) -> Node:
    """Return a node whose graphs are functions that see the values around it."""
    graphs = {name: one for name, one in node.attributes.items() if isinstance(one, Graph)}
    if not graphs:
        return node
    return node.with_attributes({**node.attributes, **{name: _function(one, values) for name, one in graphs.items()}})


def _function(graph: Graph, values: Mapping[str, Any]) -> Callable[..., list[Any]]:
    return lambda *inputs: graph.run(inputs, values)


def _computed(node: Node, row: Row, inputs: list[Any]) -> list[Any]:
    """Return what an operator makes of its inputs in the form that it takes them."""
    if not row.raw:
        inputs = [
            None if one is None else as_array(one) if place in row.host else as_tensor(one)
            for place, one in enumerate(inputs)
        ]
    made = row.run(node, *inputs)
    return list(made) if isinstance(made, tuple) else [made]


class Model:
    """A loaded model. Called with arrays or tensors, by position or by name, it returns its outputs by name, lazily:
    they are computed when their values are asked for.
    """

    def __init__(
        self, graph: Graph, inputs: Sequence[Port], outputs: Sequence[Port], weights: dict[str, Tensor],
        opset: Mapping[str, int], defaults: Mapping[str, Any], name: str,
    ) -> None:  # fmt: skip
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        # the constants of floats in the file, by name, which may be trained; those that are nodes from FEW elements on
        self.weights = weights
        # the version of the operator set, by domain
        self.opset = dict(opset)
        self.name = name
        self._graph = graph
        self._defaults = defaults

    def __call__(self, /, *values: Any, **named: Any) -> dict[str, Any]:
        """Return the outputs by name, for inputs by position or by name (`model(**{"input.1": x})`)."""
        given = self._given(values, named)
        made = self._graph.run([], given)
        return {port.name: _given_out(one) for port, one in zip(self.outputs, made, strict=True)}

    def _given(self, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = [port.name for port in self.inputs]
        if len(values) > len(names):
            raise TypeError(f"{self.name} takes {len(names)} inputs ({', '.join(names)}), not {len(values)}")
        given = dict(zip(names, values, strict=False))
        for name, value in named.items():
            if name not in names or name in given:
                said = "is given twice" if name in given else f"is no input; there are {', '.join(names)}"
                raise TypeError(f"{self.name}: {name} {said}")
            given[name] = value
        missing = [name for name in names if name not in given and name not in self._defaults]
        if missing:
            raise TypeError(f"{self.name} needs {' and '.join(missing)}")
        made = dict(self._defaults)
        for port in self.inputs:
            if port.name in given:
                made[port.name] = self._checked(port, given[port.name])
        return made

    def _checked(self, port: Port, value: Any) -> Any:
        """Return an input as the model takes it; an error where its type or its shape is another."""
        if value is None or port.dtype is None:
            return [self._entry(one) for one in value] if isinstance(value, (list, tuple)) else self._entry(value)
        made = value if isinstance(value, Tensor) else self._made(port, value)
        if made.dtype is not port.dtype:
            raise TypeError(f"{self.name}: {port.name} is {port.dtype}, not {made.dtype}")
        if port.shape is not None and not _fits(port.shape, made.shape):
            wanted = ", ".join("?" if size is None else str(size) for size in port.shape)
            raise ValueError(f"{self.name}: {port.name} has the shape [{wanted}], not {list(made.shape)}")
        return made

    def _made(self, port: Port, value: Any) -> Tensor:
        """Return a tensor of an array, or of lists of numbers, which take the input's type."""
        if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
            return Tensor(value)
        return Tensor(value, port.dtype)

    def _entry(self, value: Any) -> Any:
        return value if value is None or isinstance(value, (Tensor, list)) else as_tensor(np.asarray(value))

    def parameters(self) -> list[Tensor]:
        """Return the weights, each made to want a gradient, as an optimiser takes them."""
        return [one if one.requires_grad else one.requires_grad_() for one in self.weights.values()]

    def __repr__(self) -> str:
        ports = [", ".join(_described(one) for one in some) for some in (self.inputs, self.outputs)]
        return f"Model({self.name}: {ports[0]} -> {ports[1]}; {len(self.weights)} weights)"


def _given_out(value: Any) -> Any:
    """Return a value with arrays made tensors."""
    if isinstance(value, list):
        return [_given_out(one) for one in value]
    return as_tensor(value) if isinstance(value, np.ndarray) else value


def _described(port: Port) -> str:
    kind = "?" if port.dtype is None else port.dtype.name
    sizes = "..." if port.shape is None else ", ".join("?" if one is None else str(one) for one in port.shape)
    return f"{port.name} {kind}[{sizes}]"


def _fits(stated: Sequence[Any], shape: Sequence[Any]) -> bool:
    """Return whether a shape is one that the file allows."""
    return len(stated) == len(shape) and all(
        not isinstance(want, int) or not isinstance(have, int) or want == have
        for want, have in zip(stated, shape, strict=True)
    )


def is_weight(constant: Array) -> bool:
    """Return whether a constant node's value may be a weight, as some exporters have them: several floats, or many
    numbers, which are memory too.
    """
    return constant.size > (MAX_ELEMENTS if constant.dtype.kind in "biu" else FEW)


def weights_of(constants: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return constants as values, and those of them that are weights: floats, as named tensors."""
    values: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    for name, array in constants.items():
        if array.dtype.kind in "biu" and array.size <= MAX_ELEMENTS:
            values[name] = array
        else:
            values[name] = tensor = Tensor._from_array(array, name)
            if tensor.dtype.is_float:
                weights[name] = tensor
    return values, weights
