"""Kernels in a card's memory: each is stored once, however many graphs need it, and freed with the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ringup.compiler.compile import CompiledGraph
from ringup.compiler.target import Binary


class Card(Protocol):
    """The part of a card that is used here."""

    def load(self, code: bytes, name: str = ...) -> Any: ...


@dataclass(slots=True)
class _Held:
    """A program on the card, the kernels in it, and how often graphs need one of these."""

    program: Any
    binaries: list[Binary]
    users: int = 0


class Programs:
    """The kernels of graphs on one card. Kernels are compared as a whole, since their names contain only a checksum."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._held: dict[Binary, _Held] = {}

    def __len__(self) -> int:
        """Return how many kernels are in the card's memory."""
        return len(self._held)

    def take(self, graph: CompiledGraph) -> dict[Binary, Any]:
        """Return the kernels of a graph; load those that are missing as one program. They stay until the graph is given
        back.

        Raises what the card raises; nothing is taken then.
        """
        wanted = [binary for binary in graph.binaries if binary not in self._held]
        if wanted:
            held = _Held(self._card.load(graph.code_object(self._held), "tensors"), wanted)
            self._held |= dict.fromkeys(wanted, held)
        for binary in graph.binaries:
            self._held[binary].users += 1
        return {binary: self._held[binary].program[binary.name] for binary in graph.binaries}

    def give_back(self, graph: CompiledGraph) -> None:
        """Release a graph's kernels. A program that no graph needs is freed. ORDER: after the
        graph's last run is done.
        """
        for binary in graph.binaries:
            held = self._held[binary]
            held.users -= 1
            if not held.users:
                held.program.free()
                for one in held.binaries:
                    del self._held[one]
