"""What a builder has made already, by what it means: known from where it was made to the end of that region."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Scoped(Generic[K, V]):
    """A table whose rows are forgotten when the region is left in which they were put. `get` returns a key's value,
    None for none.
    """

    def __init__(self) -> None:
        self._held: dict[K, V] = {}
        self._regions: list[list[K]] = [[]]
        self.get: Callable[[K], V | None] = self._held.get

    def put(self, key: K, value: V) -> None:
        """Add a row to the innermost region; there is none of that key yet."""
        self._held[key] = value
        self._regions[-1].append(key)

    def keep(self, key: K, value: V) -> None:
        """Add a row that is never forgotten; there is none of that key yet."""
        self._held[key] = value

    def enter(self) -> None:
        """Enter a region."""
        self._regions.append([])

    def leave(self) -> None:
        """Leave the innermost region."""
        for key in self._regions.pop():
            del self._held[key]

    def clear(self) -> None:
        """Forget every row."""
        self._held.clear()
        for keys in self._regions:
            keys.clear()
