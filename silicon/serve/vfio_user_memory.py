"""The memory that a virtual machine shares with its device: pieces with a descriptor, or accessed by messages; the
device can access nothing else.

A shared file is mapped once, however many pieces of it are shared: with an IOMMU there are thousands. If possible it is
sealed first, so that its owner cannot shrink it. If it cannot be sealed and its owner truncates it, an access ends this
process.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ringup.autogen.linux import vfio
from ringup.silicon.common.memory import HostMemory, RemoteSpan, Span
from ringup.silicon.serve.vfio_user_wire import MAX_DMA_MAPS, PAGE_BYTES, UNMAP_ALL, Refused

ADDRESS_END = 1 << 64
# limit of mapped files for one peer: each needs a descriptor and a mapping of this process
MAX_MAPPINGS = 256


def _possible(address: int, size_bytes: int) -> bool:
    """Whether a range of bus addresses is whole pages and not empty."""
    return bool(size_bytes) and not (address | size_bytes) % PAGE_BYTES and address + size_bytes <= ADDRESS_END


@dataclass(slots=True)
class _File:
    """A mapped file, and the number of its pieces in use."""

    view: memoryview
    pointer: int
    writable: bool
    pieces: int = 0
    # including smaller ones from before the file grew, which pieces still use
    mappings: int = 1


@dataclass(slots=True)
class _Piece:
    base: int
    size_bytes: int
    key: tuple[int, int, bool] | None  # key of its file
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.base + self.size_bytes


class PeerMemory:
    """The DMA maps of one peer, attached to the card's bus addresses."""

    def __init__(
        self, host: HostMemory, read: Callable[[int, int], bytes], write: Callable[[int, bytes], None]
    ) -> None:
        """`read` and `write` access memory without a descriptor by messages to the peer; they raise `OSError` if it
        does not answer.
        """
        self._host, self._read, self._write = host, read, write
        self._bases: list[int] = []
        self._pieces: list[_Piece] = []
        self._files: dict[tuple[int, int, bool], _File] = {}
        self._mappings = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def map(self, address: int, size_bytes: int, offset: int, flags: int, descriptor: int | None) -> None:
        """Map a piece for the card. The caller keeps the descriptor. Raises `Refused`."""
        readable = bool(flags & vfio.VFIO_DMA_MAP_FLAG_READ)
        writable = bool(flags & vfio.VFIO_DMA_MAP_FLAG_WRITE)
        if flags & ~(vfio.VFIO_DMA_MAP_FLAG_READ | vfio.VFIO_DMA_MAP_FLAG_WRITE) or not (readable or writable):
            raise Refused(errno.EINVAL, f"a DMA map with flags {flags:#x}")
        if not _possible(address, size_bytes) or offset % PAGE_BYTES:
            raise Refused(errno.EINVAL, f"a DMA map of {size_bytes:#x} bytes at {address:#x} from {offset:#x} on")
        if len(self._pieces) >= MAX_DMA_MAPS:
            raise Refused(errno.ENOSPC, f"{len(self._pieces)} DMA maps are the limit")
        place = bisect.bisect_right(self._bases, address)
        before = self._pieces[place - 1] if place else None
        behind = self._pieces[place] if place < len(self._pieces) else None
        if (before and before.end > address) or (behind and address + size_bytes > behind.base):
            raise Refused(errno.EEXIST, f"bus addresses {address:#x} to {address + size_bytes:#x} are already mapped")
        key, span = self._span(address, size_bytes, offset, descriptor, readable=readable, writable=writable)
        try:
            self._host.attach(span)
        # memory that does not belong to the peer is there
        except ValueError as error:
            self._release(key)
            raise Refused(errno.EEXIST, str(error)) from error
        self._bases.insert(place, address)
        self._pieces.insert(place, _Piece(address, size_bytes, key))

    def _span(
        self, address: int, size_bytes: int, offset: int, descriptor: int | None, *, readable: bool, writable: bool
    ) -> tuple[tuple[int, int, bool] | None, Span]:
        if descriptor is None:
            nothing = memoryview(b"")
            return None, RemoteSpan(
                address, size_bytes, nothing, 0, writable, readable=readable, read=self._read, write=self._write
            )
        key, file = self._file(descriptor, offset + size_bytes, writable)
        file.pieces += 1
        view, pointer = file.view[offset : offset + size_bytes], file.pointer + offset
        return key, Span(address, size_bytes, view, pointer, writable, file, readable=readable)

    def unmap(self, address: int, size_bytes: int, flags: int) -> None:
        """Unmap every piece within a range, which may be empty. Raises `Refused` without any change if a piece extends
        beyond the range.
        """
        if flags & ~UNMAP_ALL:
            raise Refused(errno.EINVAL, f"a DMA unmap with flags {flags:#x}")
        if flags & UNMAP_ALL:
            if address or size_bytes:
                raise Refused(errno.EINVAL, "a DMA unmap of everything with a range")
            self.clear()
            return
        if not _possible(address, size_bytes):
            raise Refused(errno.EINVAL, f"a DMA unmap of {size_bytes:#x} bytes at {address:#x}")
        end = address + size_bytes
        first = bisect.bisect_left(self._bases, address)
        last = bisect.bisect_left(self._bases, end)
        if (first and self._pieces[first - 1].end > address) or (last > first and self._pieces[last - 1].end > end):
            raise Refused(errno.EINVAL, f"bus addresses {address:#x} to {end:#x} split a DMA map")
        # removal is fast at the end of a list
        for piece in reversed(self._pieces[first:last]):
            self._detach(piece)
        del self._bases[first:last], self._pieces[first:last]

    def clear(self) -> None:
        """Unmap everything: the peer is gone, or requests it."""
        for piece in reversed(self._pieces):
            self._detach(piece)
        self._bases.clear()
        self._pieces.clear()

    def _detach(self, piece: _Piece) -> None:
        self._host.detach(piece.base)
        self._release(piece.key)

    def _release(self, key: tuple[int, int, bool] | None) -> None:
        if key is not None:
            file = self._files[key]
            file.pieces -= 1
            if not file.pieces:
                self._mappings -= file.mappings
                del self._files[key]

    def _file(self, descriptor: int, end: int, writable: bool) -> tuple[tuple[int, int, bool], _File]:
        """Return the mapping of a peer's file, which must contain `end` bytes. Raises `Refused`."""
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise Refused(errno.EINVAL, "a DMA map of a file that is not memory")
        may_write = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        if writable and not may_write:
            raise Refused(errno.EACCES, "a writable DMA map of a file opened for reading only")
        # a file that cannot be sealed is used as it is
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        seen = os.fstat(descriptor)
        if end > seen.st_size:
            raise Refused(errno.EINVAL, f"a DMA map up to byte {end:#x} of a file of {seen.st_size:#x}")
        key = seen.st_dev, seen.st_ino, may_write
        file = self._files.get(key)
        if file is None or len(file.view) < end:
            if self._mappings >= MAX_MAPPINGS:
                raise Refused(errno.ENOSPC, f"{self._mappings} mapped files are the limit")
            try:
                access = mmap.ACCESS_WRITE if may_write else mmap.ACCESS_READ
                mapped = mmap.mmap(descriptor, seen.st_size, access=access)
            except (OSError, ValueError, OverflowError) as error:
                raise Refused(errno.ENOMEM, f"mapping {seen.st_size:#x} bytes of the peer's file: {error}") from error
            pieces, mappings = (file.pieces, file.mappings) if file else (0, 0)
            pointer = int(np.frombuffer(mapped, np.uint8).ctypes.data)
            self._mappings += 1
            file = self._files[key] = _File(memoryview(mapped), pointer, may_write, pieces, mappings + 1)
        return key, file
