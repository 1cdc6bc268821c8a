"""A node of a model's graph: the operator, its attributes and the names of what goes in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringup.errors import NotSupported

# ONNX's own domain has two names
DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Node:
    """One node. `attributes` hold Python's numbers, strings and lists, arrays for tensors, and for graphs functions
    from values to values.
    """

    op: str
    domain: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[str]
    outputs: Sequence[str]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default where the model does not set it."""
        return self.attributes.get(name, default)

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.attributes.get(name, default))

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """Return an attribute that is a list of whole numbers."""
        return [int(one) for one in self.attributes.get(name, default)]

    def graph(self, name: str) -> Callable[..., list[Any]]:
        """Return an attribute that is a graph, as a function."""
        made: Callable[..., list[Any]] = self.attributes[name]
        return made

    def with_attributes(self, attributes: Mapping[str, Any]) -> Node:
        """Return this node with other attributes."""
        return replace(self, attributes=attributes)

    def wants(self, place: int) -> bool:
        """Return whether the model uses an output."""
        return place < len(self.outputs) and bool(self.outputs[place])

    def refuse(self, what: str) -> NotSupported:
        """Return the error of a node that asks for something missing."""
        return NotSupported(f"{self}: {what}")

    def __str__(self) -> str:
        title = f"{self.op}" if self.domain in DEFAULT_DOMAINS else f"{self.domain}.{self.op}"
        named = f" {self.name!r}" if self.name else f" that makes {next(iter(self.outputs), '')!r}"
        return f"node{named} ({title}, opset {self.opset})"
