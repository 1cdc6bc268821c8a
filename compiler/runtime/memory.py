"""Memory of tensors on a card. Pieces are allocated in few sizes, so that freed ones are used again; a piece is free
when nothing refers to it any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from ringup.errors import OutOfMemory

# TIMEOUT: ours, by the card's clock; a graph takes milliseconds to seconds.
TIMEOUT_S = 60.0
MIN_BYTES = 256
# Sizes between two powers of two.
STEPS = 4


class Card(Protocol):
    """The part of a card that is used here."""

    def alloc(self, size_bytes: int, where: Any = ..., *, visible: bool = ..., name: str = ...) -> Any: ...

    @property
    def copy(self) -> Any: ...

    @property
    def name(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...


class Memory:
    """A piece of a card's memory. `gpu_va` is its address. It returns to its pool when the last reference to it is
    gone.
    """

    __slots__ = ("__weakref__", "_card", "buffer", "size_bytes")

    def __init__(self, card: Card, buffer: Any, size_bytes: int) -> None:
        self._card, self.buffer, self.size_bytes = card, buffer, size_bytes

    @property
    def gpu_va(self) -> int:
        """Return its address for kernels."""
        self._check()
        return int(self.buffer.gpu_va)

    def is_of(self, card: Card) -> bool:
        """Return whether it is memory of that card."""
        return self._card is card

    def _check(self) -> None:
        if self._card.is_closed:
            raise ValueError(
                f"a tensor's {self.size_bytes} bytes lay in the memory of {self._card.name}, which was closed: they are gone; copy tensors "
                "to the host (numpy, save) before you close their card"
            )

    def read(self) -> bytes:
        """Copy its bytes to the host."""
        self._check()
        return bytes(self._card.copy.download(self.buffer, size_bytes=self.size_bytes)) if self.size_bytes else b""

    def write(self, data: Any) -> None:
        """Copy bytes from the host to its start."""
        self._check()
        if len(data):
            self._card.copy.upload(self.buffer, data).wait(TIMEOUT_S)

    def __repr__(self) -> str:
        where = f"of {self._card.name}, closed" if self._card.is_closed else f"at {self.gpu_va:#x}"
        return f"<{self.size_bytes} bytes {where}>"


class Pool:
    """Memory of one card that is used again and again.

    A returned piece may still be in use by work in progress. That is safe: this work was submitted before any later
    use, and to the same queue.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self._free: dict[int, list[Any]] = {}
        self.held_bytes = 0

    def take(self, size_bytes: int, name: str = "tensor") -> Memory:
        """Return memory of at least that size. Raises `OutOfMemory` if the card has no more, even after idle memory was
        freed.
        """
        self.check()
        size = rounded(size_bytes)
        idle = self._free.get(size)
        buffer = idle.pop() if idle else self._allocated(size, name)
        made = Memory(self._card, buffer, size_bytes)
        weakref.finalize(made, _back, weakref.ref(self), size, buffer).atexit = False
        return made

    def check(self) -> None:
        """Raise a `ValueError` if the card was closed."""
        if self._card.is_closed:
            raise ValueError(
                f"computing tensors on {self._card.name}: it was closed; open it again and make a Device of it, for tensors made from then on"
            )

    def _allocated(self, size: int, name: str) -> Any:
        found = None
        if self._free:
            with suppress(OutOfMemory):
                found = self._card.alloc(size, name=name)
            if found is None:
                self.trim()
        found = found or self._card.alloc(size, name=name)
        self.held_bytes += size
        return found

    @property
    def idle_bytes(self) -> int:
        """Return how many of the held bytes are idle."""
        return sum(size * len(buffers) for size, buffers in self._free.items())

    def trim(self) -> None:
        """Free idle memory of the card."""
        for size, buffers in self._free.items():
            for buffer in buffers:
                # A closed card has freed all its memory.
                if not buffer.freed:
                    buffer.free()
                self.held_bytes -= size
        self._free.clear()


def _back(pool: Callable[[], Pool | None], size: int, buffer: Any) -> None:
    there = pool()
    if there is not None:
        there._free.setdefault(size, []).append(buffer)


def rounded(size_bytes: int) -> int:
    """Return the size to allocate: one of four steps between two powers of two, so that freed pieces fit again."""
    size = max(size_bytes, MIN_BYTES)
    step = max(MIN_BYTES, (1 << (size - 1).bit_length()) // (2 * STEPS))
    return -(-size // step) * step
