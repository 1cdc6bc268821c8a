"""ONNX files read into graphs: checked, functions of the model expanded, every operator looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ringup.compiler.graph.dtypes import BY_NAME
from ringup.compiler.tensor import Size, Tensor
from ringup.errors import CompileError, NotSupported
from ringup.onnx.common.node import DEFAULT_DOMAINS, Node
from ringup.onnx.common.values import DTYPES, OTHERS, Array
from ringup.onnx.library import library
from ringup.onnx.model import Graph, Model, Port, is_weight, weights_of
from ringup.onnx.operators.table import find


def load(source: str | PathLike[str] | bytes | Any, sizes: Mapping[str, tuple[int, int]] | None = None) -> Model:
    """Return the model in an ONNX file, in its bytes, or in a ModelProto.

    Weights in files beside it are found by its path. `sizes` gives bounds (both inclusive) of symbols in the shapes of
    inputs, which `inputs` then has as `Size`. A CompileError says what is wrong with a file; a NotSupported names all
    operators that are missing.
    """
    onnx = library()
    proto, name = _parsed(onnx, source)
    opset = {"" if one.domain in DEFAULT_DOMAINS else one.domain: one.version for one in proto.opset_import}
    _check_names(proto.graph, frozenset(), name)
    proto = _without_functions(onnx, proto, name, opset)
    _refuse_missing(onnx, proto.graph, opset, name)
    reader = Reader(onnx, opset)
    graph, constants = reader.graph(proto.graph)
    values, weights = weights_of(constants)
    weights |= {_unused(key, weights): one for key, one in reader.weights.items()}
    outer = [port.name for port in proto.graph.input]
    # an input with a constant of the same name has that as its default, which older files use for weights
    defaults = {key: values[key] for key in outer if key in values}
    inputs = [_port(one, sizes or {}) for one in proto.graph.input if one.name not in defaults]
    outputs = [_port(one, {}) for one in proto.graph.output]
    inner = Graph(graph.nodes, (), graph.outputs, {**graph.constants, **_without(values, defaults)})
    return Model(inner, inputs, outputs, weights, opset, defaults, name)


def _without(values: Mapping[str, Any], gone: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in values.items() if key not in gone}


def _parsed(onnx: Any, source: Any) -> tuple[Any, str]:
    """Return a model, with the weights that lie in other files, and what messages call it."""
    if isinstance(source, onnx.ModelProto):
        proto, name = source, source.graph.name or "the model"
        folder = None
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto, name, folder = _decoded(onnx, bytes(source), "the model"), "the model", None
    else:
        path = Path(fspath(source))
        proto, name, folder = _decoded(onnx, path.read_bytes(), path.name), path.name, path.parent
    if not proto.opset_import or not proto.graph.output:
        raise CompileError(f"{name}: not a model of ONNX, or a damaged one: it has no operator set or no output")
    if folder is not None:
        try:
            onnx.external_data_helper.load_external_data_for_model(proto, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise CompileError(f"{name}: its weights in other files cannot be read: {error}") from error
    return proto, name


def _decoded(onnx: Any, data: bytes, name: str) -> Any:
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:
        # protobuf's own error, whose class depends on its implementation
        if type(error).__name__ != "DecodeError":
            raise
        raise CompileError(f"{name}: not a model of ONNX, or a damaged one: {error}") from error


def _check_names(graph: Any, around: frozenset[str], name: str) -> None:
    """Refuse a graph that reads what nothing makes before it, as damaged files do."""
    made = set(around).union(one.name for part in (graph.input, graph.initializer) for one in part)
    made.update(one.values.name for one in graph.sparse_initializer)
    for node in graph.node:
        missing = [one for one in node.input if one and one not in made]
        # protobuf gives out bytes where a name is no text
        if missing or not isinstance(node.op_type, str) or not isinstance(node.domain, str):
            reads = f"reads {missing[0]!r}, which nothing makes before it" if missing else "has a name that is no text"
            raise CompileError(f"{name}: a damaged model of ONNX: node {node.name or node.op_type!r} {reads}")
        for inner in _inner(node):
            _check_names(inner, frozenset(made), name)
        made.update(node.output)
    missing = [one.name for one in graph.output if one.name not in made]
    if missing:
        raise CompileError(f"{name}: a damaged model of ONNX: nothing makes its output {missing[0]!r}")


def _inner(node: Any) -> list[Any]:
    """Return the graphs in a node's attributes."""
    graphs = [[one.g, *one.graphs] if one.HasField("g") else list(one.graphs) for one in node.attribute]
    return [graph for some in graphs for graph in some]


def _without_functions(onnx: Any, proto: Any, name: str, opset: Mapping[str, int]) -> Any:
    """Return a model whose own functions, and operators that ONNX defines by others, are expanded where no operator is
    here.
    """
    own = {(one.domain, one.name) for one in proto.functions}
    wanted = {key for key in _operators(proto.graph) if find(*key, opset.get(_domain(key[0]), 1)) is None or key in own}
    for function in proto.functions:
        versions = {_domain(one.domain): one.version for one in function.opset_import}
        nodes = ((node.domain, node.op_type) for node in function.node)
        wanted |= {key for key in nodes if find(*key, versions.get(_domain(key[0]), 1)) is None}
    defined = {key for key in wanted if key in own or _is_defined(onnx, *key, opset.get(_domain(key[0]), 1))}
    if not defined:
        return proto
    try:
        return onnx.inliner.inline_selected_functions(proto, sorted(defined), inline_schema_functions=True)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise CompileError(f"{name}: its functions cannot be expanded: {error}") from error


def _domain(domain: str) -> str:
    return "" if domain in DEFAULT_DOMAINS else domain


def _is_defined(onnx: Any, domain: str, op: str, opset: int) -> bool:
    """Return whether ONNX defines an operator by others."""
    try:
        schema = onnx.defs.get_schema(op, opset, _domain(domain))
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _operators(graph: Any) -> Iterable[tuple[str, str]]:
    """Yield the (domain, name) of all nodes of a graph and of those in it."""
    for node in graph.node:
        yield node.domain, node.op_type
        for inner in _inner(node):
            yield from _operators(inner)


def _refuse_missing(onnx: Any, graph: Any, opset: Mapping[str, int], name: str) -> None:
    """Raise a NotSupported that names every operator that is missing."""
    newest, stated = onnx.defs.onnx_opset_version(), opset.get("", 0)
    if stated > newest:
        raise NotSupported(f"{name}: opset {stated}; the onnx package that is installed knows {newest} and older")
    missing: dict[str, None] = {}
    for domain, op in _operators(graph):
        version = opset.get(_domain(domain))
        if version is None:
            raise CompileError(
                f"{name}: it uses {op} of the domain {domain or 'ai.onnx'}, whose version it does not state"
            )
        if find(domain, op, version) is None:
            missing[f"{op} ({domain or 'ai.onnx'}, opset {version})"] = None
    if missing:
        raise NotSupported(f"{name}: operators that are missing here: {', '.join(missing)}")


def _port(value: Any, sizes: Mapping[str, tuple[int, int]]) -> Port:
    """Return an input or an output as the file states it."""
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return Port(value.name, None, None)
    shape = None
    if kind.HasField("shape"):
        shape = tuple(_size(one, sizes) for one in kind.shape.dim)
    return Port(value.name, DTYPES.get(kind.elem_type), shape)


def _size(dimension: Any, sizes: Mapping[str, tuple[int, int]]) -> Any:
    if dimension.HasField("dim_value"):
        # some exporters write -1 for what is open
        return dimension.dim_value if dimension.dim_value >= 0 else None
    name = dimension.dim_param or None
    return Size(name, *sizes[name]) if name in sizes and name is not None else name


def _unused(name: str, names: Mapping[str, Any]) -> str:
    """Return a name, with a number behind it where it is taken: branches may use the same one."""
    count = 1
    while (wanted := name if count == 1 else f"{name}.{count}") in names:
        count += 1
    return wanted


class Reader:
    """Turns graphs of a file into graphs that run."""

    def __init__(self, onnx: Any, opset: Mapping[str, int]) -> None:
        self.onnx = onnx
        self.opset = opset
        # those of graphs within nodes
        self.weights: dict[str, Tensor] = {}

    def graph(self, proto: Any) -> tuple[Graph, dict[str, Array]]:
        """Return a graph without its constants, and these as arrays: its own, and those that are nodes."""
        constants = {one.name: self.array(one, one.name) for one in proto.initializer}
        constants |= {one.values.name: self.sparse(one) for one in proto.sparse_initializer}
        nodes, small = [], {}
        for one in proto.node:
            node = self.node(one)
            value = node.get("value") if node.op == "Constant" and node.domain in DEFAULT_DOMAINS else None
            if value is None:
                nodes.append(node)
            elif is_weight(value):
                constants[node.outputs[0]] = value
            else:
                small[node.outputs[0]] = value
        inputs = [one.name for one in proto.input]
        return Graph(nodes, inputs, [one.name for one in proto.output], small), constants

    def node(self, proto: Any) -> Node:
        """Return a node with its attributes as Python's values."""
        attributes = {one.name: self.attribute(one, proto.name or proto.op_type) for one in proto.attribute}
        version = self.opset[_domain(proto.domain)]
        return Node(
            proto.op_type,
            _domain(proto.domain),
            proto.name,
            version,
            attributes,
            tuple(proto.input),
            tuple(proto.output),
        )

    def attribute(self, proto: Any, where: str) -> Any:
        """Return an attribute's value."""
        types = self.onnx.AttributeProto
        if proto.type == types.TENSOR:
            return self.array(proto.t, f"{where}.{proto.name}")
        if proto.type == types.GRAPH:
            graph, constants = self.graph(proto.g)
            values, weights = weights_of(constants)
            self.weights |= {_unused(name, self.weights): one for name, one in weights.items()}
            return Graph(graph.nodes, graph.inputs, graph.outputs, {**graph.constants, **values})
        if proto.type == types.SPARSE_TENSOR:
            return self.sparse(proto.sparse_tensor)
        value = self.onnx.helper.get_attribute_value(proto)
        try:
            if isinstance(value, list):
                return [one.decode() if isinstance(one, bytes) else one for one in value]
            return value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise CompileError(f"a damaged model of ONNX: {where}.{proto.name} is no text: {error}") from error

    def array(self, proto: Any, name: str) -> Array:
        """Return a tensor of the file as an array."""
        if proto.data_type not in DTYPES:
            kind = OTHERS.get(proto.data_type, proto.data_type)
            raise NotSupported(
                f"{name} is of ONNX's type {kind}, which has no element type here; there are {', '.join(BY_NAME)}"
            )
        try:
            made: Array = np.asarray(self.onnx.numpy_helper.to_array(proto))
        except (ValueError, TypeError) as error:
            raise CompileError(f"{name}: the file does not hold its elements: {error}") from error
        return made

    def sparse(self, proto: Any) -> Array:
        """Return a sparse tensor of the file as an array."""
        values, places = self.array(proto.values, proto.values.name), self.array(proto.indices, proto.values.name)
        made = np.zeros(list(proto.dims), values.dtype)
        if places.ndim == 1:
            made.reshape(-1)[places] = values
        else:
            made[tuple(places.T)] = values
        return made
