"""The buffers of an address space by address: which are there, which were freed lately, how much memory they use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import Generic, Protocol, SupportsIndex, TypeVar

from ringup.drivers.buffer import Buffer, Where

REMEMBERED = 256  # freed buffers that a fault may still be named after
NEAR_BYTES = 1 << 20  # how far behind a buffer a fault is still told by it


@dataclass(slots=True)
class Usage:
    """Usage of VRAM or host memory. `free_bytes` and `largest_bytes` are for VRAM only: the system manages host
    memory.
    """

    buffers: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    free_bytes: int | None = None
    largest_bytes: int | None = None


class Held(Protocol):
    """A buffer and the memory below it."""

    @property
    def buffer(self) -> Buffer:
        """The buffer."""
        ...

    @property
    def mapped_bytes(self) -> int:
        """Its size in whole pages."""
        ...


H = TypeVar("H", bound=Held)


class BufferTable(Generic[H]):
    """The buffers of one address space."""

    def __init__(self) -> None:
        self._live: dict[int, H] = {}
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=REMEMBERED)  # gpu_va, size, name
        self.usage: dict[Where, Usage] = {"vram": Usage(), "host": Usage()}

    def __iter__(self) -> Iterator[H]:
        return iter(list(self._live.values()))

    def add(self, gpu_va: int, held: H) -> None:
        """Note that a buffer is mapped at an address."""
        held.buffer.gpu_va = gpu_va
        self._live[gpu_va] = held
        usage = self.usage[held.buffer.where]
        usage.buffers += 1
        usage.used_bytes += held.mapped_bytes
        usage.peak_bytes = max(usage.peak_bytes, usage.used_bytes)

    def remove(self, held: H, how: str) -> None:
        """Note that a buffer goes, and make it unusable: later uses raise an error that says `how` it went."""
        buffer = held.buffer
        del self._live[buffer.gpu_va]
        self._freed.append((buffer.gpu_va, buffer.size_bytes, buffer.name))
        usage = self.usage[buffer.where]
        usage.buffers -= 1
        usage.used_bytes -= held.mapped_bytes
        release_view(buffer)
        buffer.forget(how)

    def held(self, buffer: Buffer) -> H:
        """Return what is below a buffer. Raises `ValueError` for a buffer of another memory."""
        held = self._live.get(buffer.gpu_va)
        if held is None or held.buffer is not buffer:
            raise ValueError(f"{buffer!r} is no buffer of this memory")
        return held

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        for start, held in self._live.items():
            if start <= gpu_va < start + held.buffer.size_bytes:
                return held.buffer
        return None

    def describe(self, gpu_va: int) -> str:
        """Return in words where an address lies, for a fault's report: in a buffer, after the end of one, in a freed
        one.
        """
        inside = self.find(gpu_va)
        if inside is not None:
            return f"byte {gpu_va - inside.gpu_va:#x} of {inside!r}"
        for start, size, name in reversed(self._freed):
            if start <= gpu_va < start + size:
                return f"byte {gpu_va - start:#x} of {name!r}, which was freed ({size} bytes at {start:#x})"
        before = max((start for start in self._live if start <= gpu_va), default=None)
        if before is not None:
            buffer = self._live[before].buffer
            past = gpu_va - before - buffer.size_bytes
            if past < NEAR_BYTES:
                return f"{past:#x} bytes behind the end of {buffer!r}"
        return f"in no buffer ({gpu_va:#x})"


def release_view(buffer: Buffer) -> None:
    """Release the CPU's view of a buffer's bytes."""
    if buffer.view is not None:
        # lent to a call that is under way, which ends by itself
        with suppress(BufferError):
            buffer.view.release()


def whole_size(size_bytes: SupportsIndex, name: str) -> int:
    """Return the size that a caller asked for. Raises `TypeError` or `ValueError` unless it is a number from 1 on."""
    try:
        size = index(size_bytes)
    except TypeError:
        raise TypeError(f"a buffer has a whole number of bytes, not {size_bytes!r} ({name or 'unnamed'})") from None
    if size <= 0:
        raise ValueError(f"a buffer has at least one byte, not {size} ({name or 'unnamed'})")
    return size
