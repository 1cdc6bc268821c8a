"""A zip archive whose members are read on demand: stored ones from the mapped file, deflated ones when asked for.

Nothing is written to the disk, so a member's name is a name and no path. Source: PKWARE APPNOTE, "Overall .ZIP file
format".
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import NamedTuple

from ringup.compiler.files.mapped import MappedFile
from ringup.errors import CompileError

SIGNATURE = b"PK\x03\x04"
LOCAL_BYTES = 30
# where the lengths of the name and of the extra field lie in a local header
LENGTHS_AT = 26
ENCRYPTED = 1
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
# bytes that one byte of a deflated stream can make; zlib's "Technical Details"
MAX_RATIO = 1032
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeDecodeError,
    ValueError,
)


class _Row(NamedTuple):
    start: int
    end: int
    size_bytes: int
    deflated: bool
    crc: int


class Archive:
    """The members of an archive by name."""

    def __init__(self, file: MappedFile, what: str) -> None:
        """`what`: what the file is, for messages. Raises `CompileError` for an archive that is damaged."""
        self._file, self._what = file, what
        try:
            with zipfile.ZipFile(_Whole(file)) as found:
                rows, end = found.infolist(), found.start_dir
        except DAMAGE as error:
            raise self.fail(f"{error or type(error).__name__}") from error
        self._rows: dict[str, _Row] = {}
        for info in rows:
            if info.filename in self._rows:
                raise self.fail(f"two members are called {info.filename}")
            self._rows[info.filename] = self._row(info, end)
        self._check_apart()

    @property
    def names(self) -> list[str]:
        """Return the members' names in the archive's order."""
        return list(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def fail(self, what: str) -> CompileError:
        """Return the error of an archive that is damaged."""
        return CompileError(f"{self._file.path} is no whole {self._what}: {what}; fetch it again")

    def _row(self, info: zipfile.ZipInfo, end: int) -> _Row:
        """Return where a member's bytes lie; `end` is where the list of members begins."""
        name, at = info.filename, info.header_offset
        if info.flag_bits & ENCRYPTED:
            raise CompileError(f"{self._file.path}: {name} is encrypted, which cannot be read")
        if info.compress_type not in (STORED, DEFLATED):
            raise CompileError(f"{self._file.path}: {name} is compressed by another method than deflate")
        if not 0 <= at <= end - LOCAL_BYTES or self._file.view(at, at + len(SIGNATURE)) != SIGNATURE:
            raise self.fail(f"{name} has no header at byte {at}")
        lengths = struct.unpack_from("<2H", self._file.view(at + LENGTHS_AT, at + LOCAL_BYTES))
        start = at + LOCAL_BYTES + sum(lengths)
        if start + info.compress_size > end:
            raise self.fail(
                f"{name} lies at bytes {start} to {start + info.compress_size} and the list of members at {end}"
            )
        deflated = info.compress_type == DEFLATED
        if info.file_size > info.compress_size * MAX_RATIO if deflated else info.file_size != info.compress_size:
            raise self.fail(f"{name} claims {info.file_size} bytes from {info.compress_size}")
        return _Row(start, start + info.compress_size, info.file_size, deflated, info.CRC)

    def _check_apart(self) -> None:
        """Refuse members that share bytes: a small file would hold any amount."""
        at = 0
        for name, row in sorted(self._rows.items(), key=lambda one: one[1].start):
            if row.start < at:
                raise self.fail(
                    f"{name} begins at byte {row.start} and the member before it ends at {at}: they overlap"
                )
            at = row.end

    def size_bytes(self, name: str) -> int:
        """Return how many bytes a member has."""
        return self._rows[name].size_bytes

    def first(self, name: str, limit_bytes: int) -> bytes:
        """Return a member's first bytes."""
        row = self._rows[name]
        if not row.deflated:
            return bytes(self._file.view(row.start, min(row.end, row.start + limit_bytes)))
        return self._inflated(name, min(limit_bytes, row.size_bytes))

    def whole(self, name: str) -> bytes:
        """Return a member's bytes, whose checksum is compared."""
        row = self._rows[name]
        data = self._inflated(name, row.size_bytes) if row.deflated else bytes(self._file.view(row.start, row.end))
        if zlib.crc32(data) != row.crc:
            raise self.fail(f"the checksum of {name} differs")
        return data

    def _inflated(self, name: str, limit_bytes: int) -> bytes:
        row = self._rows[name]
        try:
            # one byte more than asked for would be too many
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(self._file.view(row.start, row.end), limit_bytes + 1)
        except zlib.error as error:
            raise self.fail(f"{name} cannot be inflated ({error})") from error
        if len(data) < limit_bytes or (limit_bytes == row.size_bytes and len(data) > limit_bytes):
            raise self.fail(f"{name} holds other than the {row.size_bytes} bytes that it claims")
        return data[:limit_bytes]

    def part(self, name: str, start: int = 0) -> Member:
        """Return a member's bytes from `start` on, read on demand."""
        return Member(self, name, start)

    def _read(self, name: str, start: int) -> memoryview:
        row = self._rows[name]
        return memoryview(self.whole(name))[start:] if row.deflated else self._file.view(row.start + start, row.end)


class Member:
    """A member's bytes, read on demand."""

    __slots__ = ("_archive", "_name", "_start")

    def __init__(self, archive: Archive, name: str, start: int) -> None:
        self._archive, self._name, self._start = archive, name, start

    @property
    def size_bytes(self) -> int:
        """Return how many they are."""
        return self._archive.size_bytes(self._name) - self._start

    def read(self) -> memoryview:
        """Return the bytes."""
        return self._archive._read(self._name, self._start)


class _Whole(io.RawIOBase):
    """A mapped file as `zipfile` reads it."""

    def __init__(self, file: MappedFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        if base + place < 0:
            raise ValueError(f"a place of {base + place}")
        self._at = base + place
        return self._at

    def readinto(self, target: object) -> int:
        room = memoryview(target).cast("B")  # type: ignore[arg-type]
        found = self._file.view(self._at, self._at + len(room))
        room[: len(found)] = found
        self._at += len(found)
        return len(found)
