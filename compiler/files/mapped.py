"""A file that is mapped into memory: its bytes are read from the disk when a part is looked at, and not before."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Protocol, TypeAlias

from ringup.errors import CompileError


class Readable(Protocol):
    """An open file, or what can be read like one, such as `io.BytesIO`."""

    def read(self) -> bytes:
        """Return the bytes from its place to its end."""


Source: TypeAlias = str | os.PathLike[str] | Readable


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
            raise closed(self.path)
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


class HeldFile(MappedFile):
    """What an open file has from its place on, read at once."""

    def __init__(self, file: Readable) -> None:
        """Raise TypeError for a file that gives text, or nothing to read."""
        self.path = str(getattr(file, "name", type(file).__name__))
        if not hasattr(file, "read"):
            raise TypeError(f"a path or an open file, not {file!r:.80}")
        data = file.read()
        if not isinstance(data, bytes):
            raise TypeError(f"{self.path} gives {type(data).__name__}, not bytes: open it with mode 'rb'")
        self._data: bytes | None = data
        self.size_bytes = len(data)

    def view(self, start: int = 0, end: int | None = None) -> memoryview:
        """Return the bytes from `start` to before `end`, the file's end for None."""
        if self._data is None:
            raise closed(self.path)
        return memoryview(self._data)[start:end]

    def close(self) -> None:
        """Let go of the bytes."""
        self._data = None


def opened(source: Source) -> MappedFile:
    """Return a file by its path, or what an open one holds."""
    return MappedFile(source) if isinstance(source, (str, os.PathLike)) else HeldFile(source)


def closed(path: str) -> CompileError:
    """Return the error of a read behind the end of its file's use."""
    return CompileError(f"{path} was closed, and a tensor of it is read: read it before, or load it again")


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
