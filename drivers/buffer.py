"""A buffer: memory that a card's engines reach at `gpu_va`. The same class serves every vendor."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from ringup.errors import RingupError

Where = Literal["vram", "host"]


class Owner(Protocol):
    """Allocates buffers."""

    def free(self, *buffers: Buffer) -> None:
        """Free buffers: release their views, call `forget` on each."""
        ...


class Buffer:
    """Memory of a card. Free it when no submitted work uses it any more; every later use is a `ValueError`.

    `where`: "vram", the card's own, or "host". `view`: its bytes as the CPU sees them (format B), None where the CPU
    sees none. What the CPU writes through it reaches the card with the next submission, not before. New VRAM holds old
    bytes; host memory is zero.
    """

    __slots__ = ("_gone", "_owner", "freed", "gpu_va", "name", "size_bytes", "view", "where")

    def __init__(
        self, owner: Owner, gpu_va: int, size_bytes: int, where: Where, view: memoryview | None, name: str
    ) -> None:
        self._owner = owner
        self.gpu_va = gpu_va
        self.size_bytes = size_bytes
        self.where: Where = where
        self.view = view
        self.name = name
        self.freed = False

    def free(self) -> None:
        """Free the memory."""
        self._owner.free(self)

    def belongs_to(self, owner: Owner) -> bool:
        """Return whether `owner` allocated it."""
        return self._owner is owner

    def forget(self, how: str = "freed") -> None:
        """Make the buffer unusable, as its owner does when it is gone; errors of later uses say `how`."""
        self.freed, self._gone = True, how
        del self._owner, self.gpu_va, self.size_bytes, self.where, self.view

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.freed:
            return
        if error is None:
            self.free()
        else:
            # hides nothing that went wrong before
            with suppress(RingupError):
                self.free()

    def __repr__(self) -> str:
        if self.freed:
            return f"<Buffer {self.name!r}, {self._gone}>"
        return f"<Buffer {self.name!r}, {self.size_bytes} bytes of {self.where} at {self.gpu_va:#x}>"

    # Python calls it only for a missing attribute, so a live buffer's attributes cost nothing more
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in self.__slots__:
                raise ValueError(f"the buffer {self.name!r} was {self._gone}: its {name.strip('_')} is gone")
            raise AttributeError(f"a Buffer has no attribute {name}")
