"""A table of the values that a builder has created, each in scope from its creation to the end of that region."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Scoped(Generic[K, V]):
    """A table. An entry is removed at the end of the region in which it was added. `get` returns the value of a key,
    None if there is none.
    """

    def __init__(self) -> None:
        self._held: dict[K, V] = {}
        self._regions: list[list[K]] = [[]]
        self.get: Callable[[K], V | None] = self._held.get

    def put(self, key: K, value: V) -> None:
        """Add an entry to the innermost region. The key must be new."""
        self._held[key] = value
        self._regions[-1].append(key)

    def keep(self, key: K, value: V) -> None:
        """Add an entry that is never removed. The key must be new."""
        self._held[key] = value

    def enter(self) -> None:
        """Enter a region."""
        self._regions.append([])

    def leave(self) -> None:
        """Leave the innermost region."""
        for key in self._regions.pop():
            del self._held[key]

    def clear(self) -> None:
        """Remove every entry."""
        self._held.clear()
        for keys in self._regions:
            keys.clear()
