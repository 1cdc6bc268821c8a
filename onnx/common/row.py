"""A row of the table of operators, and makers of functions for rows that say little more than a method's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node


class Row(NamedTuple):
    """An operator from a version of its domain's operator set on. `run(node, *inputs)` returns the output, or a tuple
    of outputs.

    Inputs are tensors, except those at `host` places, which are arrays of the host; with `raw` they are whatever the
    model has: tensors, arrays, sequences, None.
    """

    name: str
    run: Callable[..., Any]
    since: int = 1
    host: tuple[int, ...] = ()
    raw: bool = False
    domain: str = ""


def unary(name: str) -> Callable[[Node, Tensor], Tensor]:
    """Return an operator that is a method without arguments, in the type of its input."""

    def run(node: Node, x: Tensor) -> Tensor:
        made: Tensor = getattr(x, name)()
        return made.cast(x.dtype)

    return run


def binary(name: str) -> Callable[[Node, Tensor, Tensor], Tensor]:
    """Return an operator that is a method of one argument."""

    def run(node: Node, x: Tensor, y: Tensor) -> Tensor:
        left, right = aligned(node, x, y)
        made: Tensor = getattr(left, name)(right)
        return made

    return run


def aligned(node: Node, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return two operands that broadcast as NumPy has it; before opset 7 `axis` says where the second begins."""
    if node.opset < 7 and node.get("broadcast") and node.get("axis") is not None:
        at = node.get("axis") % x.ndim
        y = y.reshape((*y.shape, *[1] * (x.ndim - at - y.ndim)))
    return x, y
