"""Windows into a card's memory space: mapped into this process, or reached through a node's read and write calls.

A dword or quadword of a mapped window is one aligned load or store: CPython copies a `memoryview` element of format I
or Q by one fixed-size move, and the guest test counts the accesses that arrive. `struct` and slices of bytes give no
such promise and are kept from registers.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ringup.drivers.transport.batch import Direct, direct
from ringup.drivers.transport.linux.mapping import give_up
from ringup.drivers.transport.seam import Mmio
from ringup.errors import NotSupported

DWORD, QUADWORD, PAGE = 4, 8, mmap.PAGESIZE
ONES = b"\xff"


class WriteCombining:
    """The processor's write-combining buffers, shared by the windows of one card: bytes written through them may not
    have arrived yet.

    ORDER: they are drained before any access to an uncombined window, so that a doorbell never overtakes the bytes it
    is rung for. A locked instruction drains them, and taking a lock is one. Source: Intel SDM volume 3, "Buffering of
    Write Combining Memory Locations"; AMD64 APM volume 2, "Write-Combining Buffers".
    """

    __slots__ = ("_lock", "mapped", "pending")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # `mapped`: a caller has a view of the window, whose writes do not set `pending`
        self.pending = self.mapped = False

    def drain(self) -> None:
        """Drain the buffers."""
        with self._lock:
            self.pending = self.mapped


class MappedWindow:
    """A BAR mapped into this process; the seam's `Mmio`. `memory_like`: prefetchable, so bytes may be read twice and
    written together.
    """

    def __init__(
        self,
        name: str,
        mapping: mmap.mmap,
        size_bytes: int,
        *,
        memory_like: bool,
        combining: WriteCombining,
        combined: bool,
    ) -> None:
        """`combined`: this mapping goes through the write-combining buffers."""
        self.name, self.size_bytes = name, size_bytes
        self._mapping, self._memory_like = mapping, memory_like
        self._combining, self._combined = combining, combined
        self._bytes = memoryview(mapping)[:size_bytes]
        self._dwords, self._quadwords = self._bytes.cast("I"), self._bytes.cast("Q")

    def read32(self, offset: int) -> int:
        """Read a dword."""
        if self._combining.pending:
            self._combining.drain()
        if offset & 3 or not 0 <= offset < self.size_bytes:
            raise self._outside(offset, DWORD)
        return self._dwords[offset >> 2]

    def write32(self, offset: int, value: int) -> None:
        """Write a dword; posted."""
        if self._combined:
            self._combining.pending = True
        elif self._combining.pending:
            self._combining.drain()
        if offset & 3 or not 0 <= offset < self.size_bytes:
            raise self._outside(offset, DWORD)
        self._dwords[offset >> 2] = value

    def read64(self, offset: int) -> int:
        """Read a quadword in one request."""
        if self._combining.pending:
            self._combining.drain()
        if offset & 7 or not 0 <= offset <= self.size_bytes - QUADWORD:
            raise self._outside(offset, QUADWORD)
        return self._quadwords[offset >> 3]

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword in one request; posted."""
        if self._combined:
            self._combining.pending = True
        elif self._combining.pending:
            self._combining.drain()
        if offset & 7 or not 0 <= offset <= self.size_bytes - QUADWORD:
            raise self._outside(offset, QUADWORD)
        self._quadwords[offset >> 3] = value

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes: quadwords, and single bytes at ragged ends.

        Not by one copy: a long copy goes by bytes over uncached memory, a request each.
        """
        self._check_block(offset, size_bytes)
        if self._combining.pending:
            self._combining.drain()
        end = offset + size_bytes
        first, last = min(-(-offset // QUADWORD) * QUADWORD, end), end // QUADWORD * QUADWORD
        if last <= first:
            return bytes(self._bytes[offset:end].tolist())
        whole = self._quadwords[first >> 3 : last >> 3].tolist()
        head, tail = self._bytes[offset:first].tolist(), self._bytes[last:end].tolist()
        return bytes(head) + struct.pack(f"={len(whole)}Q", *whole) + bytes(tail)

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes: one copy where the processor combines them, else quadwords, and single bytes at ragged
        ends.
        """
        flat = memoryview(data).cast("B")
        self._check_block(offset, len(flat))
        if self._combined:
            self._combining.pending = True
            self._bytes[offset : offset + len(flat)] = flat
            return
        if self._combining.pending:
            self._combining.drain()
        end = offset + len(flat)
        first, last = min(-(-offset // QUADWORD) * QUADWORD, end), max(end // QUADWORD * QUADWORD, offset)
        last = max(first, last)
        for at in (*range(offset, first), *range(last, end)):
            self._bytes[at] = flat[at - offset]
        whole = struct.unpack(f"={(last - first) // QUADWORD}Q", flat[first - offset : last - offset])
        for index, value in enumerate(whole, first >> 3):
            self._quadwords[index] = value

    def map(self) -> memoryview:
        """Return the window as plain memory. Raises `NotSupported` for registers, where a copy's extra or merged
        accesses would do harm.
        """
        if not self._memory_like:
            raise NotSupported(f"{self.name} is no plain memory: use its read and write methods")
        if self._combined:
            self._combining.pending = self._combining.mapped = True
        return self._bytes[:]

    def batch(self) -> AbstractContextManager[Direct]:
        """Group accesses; on this link each is sent at once."""
        return direct(self)

    def close(self) -> None:
        """Unmap. Views of `map` are backed by anonymous memory afterwards: a card that is mapped somewhere counts as in
        use.
        """
        for view in (self._dwords, self._quadwords, self._bytes):
            view.release()
        give_up(self._mapping)

    def _check_block(self, offset: int, size_bytes: int) -> None:
        if not 0 <= offset <= self.size_bytes - size_bytes:
            raise self._outside(offset, size_bytes)

    def _outside(self, offset: int, size_bytes: int) -> ValueError:
        return ValueError(f"{self.name} ({self.size_bytes:#x} bytes) has no {size_bytes:#x} bytes at {offset:#x}")


class FileWindow:
    """A window reached through a node's read and write calls, such as an expansion ROM or a page the kernel keeps to
    itself.

    A failed call means that nothing answers: reads return all ones, writes have no effect.
    """

    def __init__(self, name: str, node: int, start: int, size_bytes: int, *, writable: bool) -> None:
        self.name, self.size_bytes = name, size_bytes
        self._node, self._start, self._writable = node, start, writable

    def read32(self, offset: int) -> int:
        """Read a dword."""
        return int.from_bytes(self._read(offset, DWORD, DWORD), "little")

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        self._write(offset, value.to_bytes(DWORD, "little"), DWORD)

    def read64(self, offset: int) -> int:
        """Read a quadword; the kernel may make two requests of it."""
        return int.from_bytes(self._read(offset, QUADWORD, QUADWORD), "little")

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword; the kernel may make two requests of it."""
        self._write(offset, value.to_bytes(QUADWORD, "little"), QUADWORD)

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes."""
        return self._read(offset, size_bytes, 1)

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes."""
        self._write(offset, bytes(data), 1)

    def map(self) -> memoryview:
        """Refuse."""
        raise NotSupported(f"{self.name} cannot be mapped: use its read and write methods")

    def batch(self) -> AbstractContextManager[Direct]:
        """Group accesses; on this link each is sent at once."""
        return direct(self)

    def close(self) -> None:
        """Do nothing: the caller that opened the node closes it."""

    def _read(self, offset: int, size_bytes: int, align: int) -> bytes:
        self._check(offset, size_bytes, align)
        data = b""
        while len(data) < size_bytes:
            try:
                part = os.pread(self._node, size_bytes - len(data), self._start + offset + len(data))
            except OSError:
                part = b""
            if not part:
                return data + ONES * (size_bytes - len(data))
            data += part
        return data

    def _write(self, offset: int, data: bytes, align: int) -> None:
        self._check(offset, len(data), align)
        if not self._writable:
            raise ValueError(f"{self.name} is read-only")
        done = 0
        while done < len(data):
            try:
                count = os.pwrite(self._node, data[done:], self._start + offset + done)
            except OSError:
                return
            if not count:
                return
            done += count

    def _check(self, offset: int, size_bytes: int, align: int) -> None:
        if offset % align or not 0 <= offset <= self.size_bytes - size_bytes:
            raise ValueError(f"{self.name} ({self.size_bytes:#x} bytes) has no {size_bytes:#x} bytes at {offset:#x}")


class PatchedWindow:
    """A BAR of which the kernel lets only pieces be mapped (its MSI-X table stays with the kernel): pieces, and calls
    between them.
    """

    def __init__(self, name: str, rest: FileWindow, pieces: Sequence[tuple[int, MappedWindow]]) -> None:
        """`pieces`: (first byte in the BAR, window), in order and apart."""
        self.name, self.size_bytes = name, rest.size_bytes
        self._rest, self._pieces = rest, tuple(pieces)
        self._starts = [start for start, _ in pieces]

    def read32(self, offset: int) -> int:
        """Read a dword."""
        window, start = self._at(offset, DWORD)
        return window.read32(offset - start)

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        window, start = self._at(offset, DWORD)
        window.write32(offset - start, value)

    def read64(self, offset: int) -> int:
        """Read a quadword."""
        window, start = self._at(offset, QUADWORD)
        return window.read64(offset - start)

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword."""
        window, start = self._at(offset, QUADWORD)
        window.write64(offset - start, value)

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes; through the kernel where they cross from one piece into the next."""
        window, start = self._at(offset, size_bytes)
        return window.read_block(offset - start, size_bytes)

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes; through the kernel where they cross from one piece into the next."""
        window, start = self._at(offset, len(data))
        window.write_block(offset - start, data)

    def map(self) -> memoryview:
        """Refuse: there are holes."""
        raise NotSupported(f"{self.name} can be mapped in pieces only: use its read and write methods")

    def batch(self) -> AbstractContextManager[Direct]:
        """Group accesses; on this link each is sent at once."""
        return direct(self)

    def close(self) -> None:
        """Unmap the pieces."""
        for _, window in self._pieces:
            window.close()

    def _at(self, offset: int, size_bytes: int) -> tuple[Mmio, int]:
        index = bisect_right(self._starts, offset) - 1
        if index >= 0:
            start, window = self._pieces[index]
            if offset + size_bytes <= start + window.size_bytes:
                return window, start
        return self._rest, 0
