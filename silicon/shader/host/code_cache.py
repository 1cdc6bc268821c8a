"""Host code on disk: what a shader program was translated to is found again by the next process.

An entry is one file, named by a digest of all that the translation depends on. It holds parts of bytes behind a digest
of their own. A file that is damaged, or that somebody else could have written, counts as missing, because it holds
machine code that is run.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite
import llvmlite.binding as llvm

from ringup.autogen import isa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logging.getLogger(__name__)

MAGIC = b"ringup host code\n"
DIGEST_BYTES = 32
# Beyond this, the entries that were read least recently go.
MAX_BYTES = 512 << 20
# Entries written between two looks at the folder's size.
LOOK_EVERY = 64


def users_folder() -> Path | None:
    """Return the folder below the user's cache, None for a user without a home."""
    try:
        return Path.home() / ".cache" / "ringup" / "shader-code"
    except RuntimeError:
        return None


@cache
def translator_digest() -> bytes:
    """Return a digest of the translator's own source, of the instruction tables and of LLVM's version. With others it
    would write other code.
    """
    made = sha256(repr((llvmlite.__version__, llvm.llvm_version_info, sys.byteorder)).encode())
    shader = Path(__file__).resolve().parents[1]
    for root in (shader, Path(isa.__file__).resolve().parent):
        for path in sorted(one for one in root.rglob("*") if one.suffix in (".py", ".tsv")):
            made.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return made.digest()


def key_of(parts: Iterable[bytes]) -> str:
    """Return the name of an entry that depends on these bytes and on the translator."""
    made = sha256(translator_digest())
    for part in parts:
        made.update(struct.pack("<Q", len(part)) + part)
    return made.hexdigest()


@dataclass
class CodeCache:
    """The entries of one folder. Trouble with the disk is logged once, and nothing is kept from then on."""

    folder: Path
    max_bytes: int = MAX_BYTES
    _works: bool = True
    _written: int = field(default=0)

    def read(self, key: str) -> list[bytes] | None:
        """Return the parts of an entry, None for one that is missing."""
        if not self._works:
            return None
        path = self._path(key)
        try:
            with path.open("rb") as file:
                if not _is_ours(file.fileno()):
                    return None
                content = file.read()
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        return _unpacked(content)

    def write(self, key: str, parts: Sequence[bytes]) -> None:
        """Keep an entry. A reader sees all of it or nothing."""
        if not self._works:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_packed(parts))
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            if self._written % LOOK_EVERY == 0:
                self._trim()
        except OSError as error:
            self._give_up(error)
        self._written += 1

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _trim(self) -> None:
        """Delete what was read least recently, until three quarters of the bound are left."""
        found = []
        for one in self.folder.glob("*/*"):
            # another process may delete it meanwhile
            with suppress(FileNotFoundError):
                status = one.stat()
                found.append((status.st_mtime, status.st_size, str(one)))
        found.sort()
        total = sum(size for _, size, _ in found)
        if total <= self.max_bytes:
            return
        for _, size, name in found:
            if total <= self.max_bytes * 3 // 4:
                return
            Path(name).unlink(missing_ok=True)
            total -= size

    def _give_up(self, error: OSError) -> None:
        self._works = False
        _log.warning("translated shader programs are not kept in %s: %s", self.folder, error)


def _is_ours(handle: int) -> bool:
    """Return whether only this user could have written an open file."""
    if not hasattr(os, "getuid"):
        return True
    status = os.fstat(handle)
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _packed(parts: Sequence[bytes]) -> bytes:
    body = struct.pack("<Q", len(parts)) + b"".join(struct.pack("<Q", len(one)) + one for one in parts)
    return MAGIC + sha256(body).digest() + body


def _unpacked(content: bytes) -> list[bytes] | None:
    """Return the parts of a file, None for a damaged one."""
    at = len(MAGIC) + DIGEST_BYTES
    if content[: len(MAGIC)] != MAGIC or sha256(content[at:]).digest() != content[len(MAGIC) : at]:
        return None
    (count,) = struct.unpack_from("<Q", content, at)
    at += 8
    parts = []
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", content, at)
        parts.append(content[at + 8 : at + 8 + size])
        at += 8 + size
    return parts
