"""A file that is mapped into memory: its bytes are read from the disk when a part is looked at, and not before."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ringup.errors import CompileError


class MappedFile:
    """The bytes of a file, which stay on the disk until a part of them is read.

    It may be closed, and its name may be removed or given to another file. A part that is read after the file was
    closed or written to is a CompileError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._map: mmap.mmap | None = None
        with Path(path).open("rb") as file:
            self._handle = os.dup(file.fileno())
        try:
            self._seen = self._state()
            self.size_bytes = self._seen[0]
            if self.size_bytes:
                self._map = mmap.mmap(self._handle, 0, access=mmap.ACCESS_READ)
        except BaseException:
            self.close()
            raise

    def _state(self) -> tuple[int, int]:
        found = os.fstat(self._handle)
        return found.st_size, found.st_mtime_ns

    def view(self, start: int = 0, end: int | None = None) -> memoryview:
        """Return the bytes from `start` to before `end`, the file's end for None."""
        if self._handle < 0:
            raise CompileError(f"{self.path} was closed, and a tensor of it is read: read it before, or load it again")
        # a page beyond the end of a file that was cut is a fault of the process, not an exception
        if self._state() != self._seen:
            raise CompileError(f"{self.path} was written to after it was opened: load it again")
        return memoryview(self._map)[start:end] if self._map is not None else memoryview(b"")

    def part(self, start: int, end: int) -> Part:
        """Return bytes of it that are read on demand."""
        return Part(self, start, end)

    def close(self) -> None:
        """Let go of the file. Whatever was not read by then can no longer be read."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
        held, self._map = self._map, None
        if held is not None:
            try:
                held.close()
            except BufferError:
                # Someone still looks at a part: the mapping goes with the last one who does.
                del held

    def __del__(self) -> None:
        if getattr(self, "_handle", -1) >= 0:
            self.close()


class Part:
    """Bytes of a mapped file, read on demand."""

    __slots__ = ("_end", "_file", "_start")

    def __init__(self, file: MappedFile, start: int, end: int) -> None:
        self._file, self._start, self._end = file, start, end

    @property
    def size_bytes(self) -> int:
        """Return how many they are."""
        return self._end - self._start

    def read(self) -> memoryview:
        """Return the bytes."""
        return self._file.view(self._start, self._end)
