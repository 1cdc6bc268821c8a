"""Signatures of kernels and graphs. Two with the same signature do the same work on different memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringup.compiler.graph.nodes import Node, Op, ordered, shared
from ringup.compiler.schedule.dependences import is_in_memory
from ringup.compiler.schedule.kernel import Kernel, memory_of

Signature = tuple[Any, ...]


def of_kernel(kernel: Kernel) -> tuple[Signature, list[Node]]:
    """Return a kernel's signature, and its inputs in the order in which the signature numbers them.

    An input that is first reshaped counts in the shape after the RESHAPE, as the kernel reads it.
    """
    inputs = set(kernel.inputs)
    folds = {fold.node for fold in (*kernel.folds, kernel.scores, kernel.line) if fold}
    numbers: dict[Node, int] = {}
    memory: dict[Node, int] = {}
    rows: list[Any] = []
    found: list[Node] = []
    stack: list[tuple[Node, int]] = [(root, 0) for root in reversed(kernel.roots)]
    while stack:
        node, at = stack.pop()
        if node in numbers:
            continue
        # The root of a STORE writes the memory that its view shows. It is numbered like an input.
        read = _read(node, inputs)
        if read is not None or (is_in_memory(node) and node is not kernel.root and not kernel.forwards(node)):
            there = memory.setdefault(memory_of(read or node), len(memory))
            numbers[node] = len(rows)
            rows.append((there, node.dtype, node.shape, read is not None))
            if read is not None and read not in found:
                found.append(read)
            continue
        if at < len(node.sources):
            stack.append((node, at + 1))
            stack.append((node.sources[at], 0))
            continue
        numbers[node] = len(rows)
        rows.append(
            (node.op, node.dtype, node.shape, tuple(numbers[one] for one in node.sources), _mark(node), node in folds)
        )
    if kernel.beside:
        rows.append(tuple(numbers[root] for root in kernel.roots))
    return tuple(rows), found


def _read(node: Node, inputs: set[Node]) -> Node | None:
    """Return the input that a node is, possibly reshaped, None for anything else."""
    while node not in inputs:
        if node.op is not Op.RESHAPE:
            return None
        node = node.sources[0]
    return node


def of_graph(outputs: Sequence[Node]) -> tuple[Signature, list[Node]]:
    """Return a graph's signature, and its BUFFER nodes in the order in which the signature numbers them."""
    outputs = shared(outputs)
    numbers: dict[Node, int] = {}
    buffers: list[Node] = []
    storages: dict[object, int] = {}
    rows: list[Any] = []
    for node in ordered(outputs):
        numbers[node] = len(rows)
        if node.op is Op.BUFFER:
            there = storages.setdefault(node.arg, len(storages))
            buffers.append(node)
            rows.append((there, node.dtype, node.shape))
        else:
            rows.append((node.op, node.dtype, node.shape, tuple(numbers[one] for one in node.sources), _mark(node)))
    return (tuple(rows), tuple(numbers[one] for one in outputs)), buffers


def _mark(node: Node) -> object:
    return (type(node.arg), repr(node.arg)) if isinstance(node.arg, float | complex | bool) else node.arg
