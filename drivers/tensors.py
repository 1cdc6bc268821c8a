"""Tensors that a card computes. The compiler stands above the drivers and a card does without it until it is asked for
a tensor: it is loaded then, by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ringup.errors import missing_package

if TYPE_CHECKING:
    from ringup import Tensor

RUNTIME = "ringup.compiler.runtime.front"


class Named(Protocol):
    """A card, as far as its tensors name it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


class Tensors:
    """Makes one card's tensors. `evaluator` computes them, once there was one: what it compiled stays with the card."""

    def __init__(self, card: Named) -> None:
        self._card = card
        self.evaluator: object = None

    def make(self, data: object, dtype: Any, *, requires_grad: bool, name: str) -> Tensor:
        """Return a tensor of numbers, nested lists or an array whose graphs the card computes.

        Raises `NotSupported` where the compiler's packages are missing, and what `Tensor` raises.
        """
        try:
            runtime = import_module(RUNTIME)
        except ImportError as error:
            if reason := missing_package(error, f"a tensor on {self._card.name}", "tensor"):
                raise reason from error
            raise
        made: Tensor = runtime.tensor_on(self._card, data, dtype, requires_grad=requires_grad, name=name)
        return made
