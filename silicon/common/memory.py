"""The memory that a card uses: its own VRAM, and host memory at its bus addresses."""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PAGE = 4096


@dataclass(slots=True)
class Span:
    """Contiguous bytes: `view` for Python, `pointer` (a host address) for translated code. `keep` holds the owner of
    the bytes.

    `lasting`: the span belongs to no process and stays when the process that owns the others ends (a bridge's own
    memory).
    """

    base: int  # bus_addr or vram_pa of the first byte
    size_bytes: int
    view: memoryview
    pointer: int
    writable: bool = True
    keep: object = field(default=None, repr=False)
    lasting: bool = False
    readable: bool = True

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.base + self.size_bytes

    def load(self, bus_addr: int, size_bytes: int) -> bytes | None:
        """Return bytes within the span; None if it is not readable."""
        start = bus_addr - self.base
        return bytes(self.view[start : start + size_bytes]) if self.readable else None

    def store(self, bus_addr: int, data: bytes | memoryview) -> bool:
        """Store bytes within the span; return whether it is writable."""
        start = bus_addr - self.base
        if self.writable:
            self.view[start : start + len(data)] = data
        return self.writable


@dataclass(slots=True)
class RemoteSpan(Span):
    """Memory without an address here: every access is a message to its owner, who may not answer (an `OSError`)."""

    read: Callable[[int, int], bytes] = field(kw_only=True)
    write: Callable[[int, bytes], None] = field(kw_only=True)

    def load(self, bus_addr: int, size_bytes: int) -> bytes | None:
        """Request bytes from the owner."""
        try:
            return self.read(bus_addr, size_bytes) if self.readable else None
        except OSError:
            return None

    def store(self, bus_addr: int, data: bytes | memoryview) -> bool:
        """Send bytes to the owner."""
        try:
            if self.writable:
                self.write(bus_addr, bytes(data))
        except OSError:
            return False
        return self.writable


def span_of(buffer: mmap.mmap | memoryview | bytearray, base: int = 0, writable: bool = True) -> Span:
    """Make a span of a writable buffer."""
    view = memoryview(buffer).cast("B")
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
    return Span(base, view.nbytes, view, pointer, writable, buffer)


class Vram:
    """A card's memory: sparse, zero until written, `size_bytes` large. Offsets are vram_pa.

    Another process, such as a virtual machine, may map the file behind it (`fileno`).
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.fileno = os.memfd_create("vram", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.fileno)
        os.ftruncate(self.fileno, size_bytes)
        self._map = mmap.mmap(self.fileno, size_bytes)
        self.span = span_of(self._map)
        self.view = self.span.view
        self.on_fetch: Callable[[int, int, str], None] | None = None  # called before every `fetch`

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes. A range beyond the end raises `IndexError`: a bug in a model."""
        self._check(vram_pa, size_bytes)
        return bytes(self.view[vram_pa : vram_pa + size_bytes])

    def look(self, vram_pa: int, size_bytes: int, client: str) -> None:
        """Tell `on_fetch` what an engine, named `client`, is about to read."""
        if self.on_fetch is not None:
            self.on_fetch(vram_pa, size_bytes, client)

    def fetch(self, vram_pa: int, size_bytes: int, client: str) -> bytes:
        """Return bytes to an engine, named `client`."""
        self.look(vram_pa, size_bytes, client)
        return self.read(vram_pa, size_bytes)

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store bytes."""
        self._check(vram_pa, len(data))
        self.view[vram_pa : vram_pa + len(data)] = data

    def _check(self, vram_pa: int, size_bytes: int) -> None:
        if not 0 <= vram_pa <= self.size_bytes - size_bytes:
            raise IndexError(f"{size_bytes} bytes at vram_pa {vram_pa:#x} of {self.size_bytes:#x}")

    def clear(self, first: int, end: int) -> None:
        """Fill a range of whole pages with zeros, without spending memory on it."""
        if end > first:
            self._map.madvise(mmap.MADV_REMOVE, first, end - first)

    def lose(self) -> None:
        """Clear the contents: power was lost. Processes that map the file see zeros."""
        self._map.madvise(mmap.MADV_REMOVE)


class HostBuffer:
    """Host memory that the card can access, a transport's `DmaMemory`: one run of bus addresses, as behind an IOMMU,
    coherent.
    """

    contiguous, coherent = True, True

    def __init__(self, span: Span, free: Callable[[int], None]) -> None:
        self.span, self._free = span, free
        self.view, self.size_bytes = span.view, span.size_bytes

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return the bus address of a byte."""
        if not 0 <= offset_bytes < self.size_bytes:
            raise ValueError(f"offset {offset_bytes:#x} lies outside a buffer of {self.size_bytes:#x} bytes")
        return self.span.base + offset_bytes

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (bus_addr, size_bytes) of its one piece."""
        yield self.span.base, self.size_bytes

    def free(self) -> None:
        """Unmap the memory from the card: later accesses by the card are bus errors."""
        self._free(self.span.base)


class HostMemory:
    """The host's memory as the card's link reaches it. An unmapped address is a master abort: reads return all ones,
    writes are dropped.
    """

    FIRST_BUS_ADDR = 0x1_0000_0000
    # between buffers, so that overruns are noticed
    GUARD_BYTES = 1 << 20

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._spans: list[Span] = []
        self._next = self.FIRST_BUS_ADDR
        self.errors = 0
        # grows when a mapping is removed, or a watch is added
        self.epoch = 0
        self._hooks: list[Callable[[], None]] = []  # called when `epoch` grows
        self._reachable = True
        self.on_error: Callable[[int, bool], None] = lambda bus_addr, write: None
        self._watches: list[tuple[int, int, Callable[[int, int], None]]] = []

    def watch(self, first: int, end: int, hook: Callable[[int, int], None]) -> None:
        """Call `hook(bus_addr, size_bytes)` after a write to bus addresses from `first` up to `end`.

        Stores by translated shader code are not seen: they use a span's pointer.
        """
        self._watches.append((first, end, hook))
        self._changed()

    def on_change(self, hook: Callable[[], None]) -> None:
        """Call `hook()` whenever `epoch` grows: spans found before may be invalid."""
        self._hooks.append(hook)

    def _changed(self) -> None:
        self.epoch += 1
        for hook in self._hooks:
            hook()

    @property
    def watched(self) -> bool:
        """Whether there are watches of writes."""
        return bool(self._watches)

    def allocate(self, size_bytes: int) -> HostBuffer:
        """Return zeroed memory at its own bus address, a whole number of pages."""
        if size_bytes <= 0:
            raise ValueError(f"host memory of {size_bytes} bytes")
        size_bytes = -(-size_bytes // PAGE) * PAGE
        return self._map(mmap.mmap(-1, size_bytes))

    def pin(self, buffer: memoryview) -> HostBuffer:
        """Map the caller's memory at a bus address. Anything except whole, writable pages raises `ValueError`."""
        if buffer.readonly or not buffer.c_contiguous or not buffer.nbytes:
            raise ValueError("only writable memory without gaps can be pinned")
        pointer = span_of(buffer).pointer
        if pointer % PAGE or buffer.nbytes % PAGE:
            raise ValueError(f"whole pages can be pinned, not {buffer.nbytes:#x} bytes at {pointer:#x}")
        return self._map(buffer)

    def _map(self, memory: mmap.mmap | memoryview) -> HostBuffer:
        return self.place(span_of(memory))

    def place(self, span: Span) -> HostBuffer:
        """Give a span a bus address of its own, and map it there."""
        span.base = self._next
        self._next += -(-(span.size_bytes + self.GUARD_BYTES) // self.GUARD_BYTES) * self.GUARD_BYTES
        self.attach(span)
        return HostBuffer(span, self.detach)

    def attach(self, span: Span) -> None:
        """Map memory with another owner, such as a virtual machine, for the card. Overlaps raise `ValueError`."""
        place = bisect.bisect_right(self._bases, span.base)
        before = self._spans[place - 1] if place else None
        behind = self._spans[place] if place < len(self._spans) else None
        if (before and before.end > span.base) or (behind and span.end > behind.base):
            raise ValueError(f"bus addresses {span.base:#x} to {span.end:#x} are already mapped")
        self._bases.insert(place, span.base)
        self._spans.insert(place, span)

    def detach(self, base: int) -> None:
        """Unmap a span. An unknown one is ignored, so freeing twice is harmless."""
        place = bisect.bisect_left(self._bases, base)
        if place < len(self._bases) and self._bases[place] == base:
            del self._bases[place], self._spans[place]
            self._changed()

    def detach_all(self) -> None:
        """Unmap every span that a process owns, as the process's end does."""
        self._spans = [span for span in self._spans if span.lasting]
        self._bases = [span.base for span in self._spans]
        self._changed()

    @property
    def reachable(self) -> bool:
        """Whether the card may send requests: bus mastering is on, the link is up. Otherwise every access is
        an error.
        """
        return self._reachable

    @reachable.setter
    def reachable(self, allowed: bool) -> None:
        if allowed != self._reachable:
            self._reachable = allowed
            self._changed()

    def find(self, bus_addr: int) -> Span | None:
        """Return the span that contains an address; None if there is none."""
        if not self._reachable:
            return None
        place = bisect.bisect_right(self._bases, bus_addr) - 1
        if place < 0 or bus_addr >= self._spans[place].end:
            return None
        return self._spans[place]

    def read(self, bus_addr: int, size_bytes: int) -> bytes:
        """Return the bytes that the card reads; all ones where nothing is mapped."""
        parts = []
        for span, start, count in self._pieces(bus_addr, size_bytes):
            part = None if span is None else span.load(start, count)
            if part is None:
                self._error(start, write=False)
                part = b"\xff" * count
            parts.append(part)
        return b"".join(parts)

    def write(self, bus_addr: int, data: bytes | memoryview) -> None:
        """Store bytes that the card writes."""
        for span, start, count in self._pieces(bus_addr, len(data)):
            at = start - bus_addr
            if span is None or not span.store(start, data[at : at + count]):
                self._error(start, write=True)
            else:
                for first, end, hook in self._watches:
                    if start < end and start + count > first:
                        hook(start, count)

    def _pieces(self, bus_addr: int, size_bytes: int) -> list[tuple[Span | None, int, int]]:
        """Split a range of addresses at the ends of spans."""
        pieces: list[tuple[Span | None, int, int]] = []
        at, end = bus_addr, bus_addr + size_bytes
        while at < end:
            span = self.find(at)
            if span is not None:
                stop = min(end, span.end)
            else:
                place = bisect.bisect_right(self._bases, at)
                stop = min(end, self._bases[place]) if place < len(self._bases) else end
            pieces.append((span, at, stop - at))
            at = stop
        return pieces

    def _error(self, bus_addr: int, write: bool) -> None:
        self.errors += 1
        self.on_error(bus_addr, write)
