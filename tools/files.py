"""Files that commands read and write: how much one holds is known before it is read, where one goes is looked at before the work."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringup.errors import CompileError
from ringup.tools.card_argument import WrongUsage

STREAM_BYTES = 1 << 30  # of what does not say how much it holds: a pipe, a device
REMEDIES = {
    errno.ENOENT: "check its path",
    errno.ENOTDIR: "check its path",
    errno.ENAMETOOLONG: "check its path",
    errno.ELOOP: "check its path",
    errno.EISDIR: "name a file in it",
    errno.EACCES: "look at its permissions, or name another place",
    errno.EPERM: "look at its permissions, or name another place",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: "free some space there, or name another place",
    errno.EDQUOT: "free some space there, or name another place",
}


@dataclass(frozen=True, slots=True)
class Input:
    """A file to be read; `data` holds its bytes already where they can be had only once."""

    path: Path
    size_bytes: int
    data: bytes | None = None

    def read(self) -> bytes:
        """Return its bytes. Raises `WrongUsage` when there are no longer as many."""
        if self.data is not None:
            return self.data
        with self.path.open("rb") as file:
            data = file.read(self.size_bytes + 1)
        if len(data) != self.size_bytes:
            raise WrongUsage(f"{self.path} changed while it was read; it had {self.size_bytes} bytes")
        return data


def find(path: Path) -> Input:
    """Look at a file that is to be read, an ordinary one without reading it. Raises `OSError`, `WrongUsage` for a stream without an end."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size:  # files of /proc say 0
            return Input(path, status.st_size)
        data = file.read(STREAM_BYTES + 1)
    if len(data) > STREAM_BYTES:
        raise WrongUsage(f"{path} is no ordinary file and holds more than {STREAM_BYTES} bytes: copy them to one")
    return Input(path, len(data), data)


def read_program(name: str, limit_bytes: int) -> bytes:
    """Return a program's bytes, from standard input for -. Raises `CompileError` for a file that cannot be read or holds more than the limit."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(limit_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(limit_bytes + 1)
    except OSError as error:
        raise CompileError(f"{name} cannot be read ({error.strerror}); check its path") from error
    if len(data) > limit_bytes:
        raise CompileError(f"{name} has more than {limit_bytes >> 20} MiB; no program does")
    return data


def check_outputs(*paths: Path | None) -> None:
    """Raise the `OSError` that writing these files would, before there is anything to write: nothing is opened or made."""
    for path in paths:
        if path is not None:
            _check_output(path)


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise _error(errno.EISDIR, path)
    if not path.parent.is_dir():
        raise _error(errno.ENOTDIR if path.parent.exists() else errno.ENOENT, path)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _error(errno.EACCES, path)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Let an `OSError` of writing `path` name it: what the system says of a full disk names no file."""
    try:
        yield path
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def explain(error: OSError, elsewhere: str = "") -> str:
    """Return what the system refused in one line: the file (else `elsewhere`), why, and what to do where that is known."""
    if error.errno is None:
        return str(error)
    where = error.filename if error.filename is not None else elsewhere
    remedy = REMEDIES.get(error.errno)
    return f"{where}: " * bool(where) + f"{error.strerror}" + f"; {remedy}" * bool(remedy)
