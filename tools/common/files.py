"""Files that commands read and write. The size is checked before reading; an output path is checked before the work."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ringup.errors import CompileError
from ringup.tools.common.wrong_usage import WrongUsage

STREAM_BYTES = 1 << 30  # for files without a known size: pipes, devices
# Of a draft's name; a file name has at most 255 bytes.
MAX_STEM = 40
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
    """A file to read. `data` has its bytes if they can be read only once."""

    path: Path
    size_bytes: int
    data: bytes | None = None

    def read(self) -> bytes:
        """Return its bytes. Raises `WrongUsage` if its size has changed."""
        if self.data is not None:
            return self.data
        with self.path.open("rb") as file:
            data = file.read(self.size_bytes + 1)
        if len(data) != self.size_bytes:
            raise WrongUsage(f"{self.path} changed while it was read; it had {self.size_bytes} bytes")
        return data


def find(path: Path) -> Input:
    """Check a file before reading; ordinary files are not read. Raises `OSError`, or `WrongUsage` for an endless
    stream.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size:  # files of /proc say 0
            return Input(path, status.st_size)
        data = file.read(STREAM_BYTES + 1)
    if len(data) > STREAM_BYTES:
        raise WrongUsage(
            f"{path} is not an ordinary file and has more than {STREAM_BYTES} bytes: copy it to an ordinary file"
        )
    return Input(path, len(data), data)


def read_program(name: str, limit_bytes: int) -> bytes:
    """Return a program's bytes, from standard input for -. Raises `CompileError` for a file that cannot be read or
    is larger than the limit.
    """
    try:
        if name == "-":
            data = read_input(limit_bytes)
        else:
            with Path(name).open("rb") as file:
                data = file.read(limit_bytes + 1)
    except OSError as error:
        raise CompileError(f"{name} cannot be read ({error.strerror}); check its path") from error
    if len(data) > limit_bytes:
        raise CompileError(f"{name} has more than {limit_bytes >> 20} MiB, which is more than any program")
    return data


def read_input(limit_bytes: int) -> bytes:
    """Return standard input, at most one byte more than the limit. Raises `OSError` if it is closed."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed", "standard input")
    return sys.stdin.buffer.read(limit_bytes + 1)


def check_outputs(*paths: Path | None, keep: Path | None = None) -> None:
    """Raise the `OSError` that writing these files would raise, without opening or making anything.

    `keep` are input files. Raises `WrongUsage` if an output would overwrite one.
    """
    for path in paths:
        if path is None:
            continue
        _check_output(path)
        if keep is not None and path.is_file() and keep.exists() and path.samefile(keep):
            raise WrongUsage(f"{path} is an input file and would be overwritten; name another file")


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
def naming(path: Path) -> Iterator[Path]:
    """Add `path` to an `OSError` of writing it, because the system's error for a full disk names no file. For files
    that grow in place, such as logs.
    """
    try:
        yield path
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield the name of a draft to write. If all goes well the draft replaces `path`; else `path` is unchanged. An
    `OSError` names `path`.

    Devices and pipes are written directly, and so are files in a folder without write permission.
    """
    with naming(path):
        place = _place(path)
        draft = _draft(place) if place else None
        if place is None or draft is None:
            yield path
            return
        try:
            yield draft
            os.replace(draft, place)
        except BaseException as error:
            with suppress(OSError):
                draft.unlink()
            if isinstance(error, OSError) and error.filename == str(draft):
                # The user does not know the name of the draft.
                error.filename, error.filename2 = str(path), None
            raise


def write(path: Path, data: bytes | str) -> None:
    """Write a file completely or not at all, text as UTF-8. Raises an `OSError` with the file's name."""
    with writing(path) as draft:
        draft.write_bytes(data.encode() if isinstance(data, str) else data)


def _place(path: Path) -> Path | None:
    """Return the ordinary file that `path` is or links to, existing or not; None for anything else."""
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to("/dev") or absolute.is_relative_to("/proc"):
        return None
    place = Path(os.path.realpath(path))
    return None if place.exists() and not place.is_file() else place


def _draft(place: Path) -> Path | None:
    """Make an empty file next to `place` with its permissions; None if the folder is not writable. Raises other
    `OSError`s."""
    draft = place.with_name(f".{place.stem[:MAX_STEM]}.{os.getpid()}-{os.urandom(4).hex()}{place.suffix}")
    try:
        node = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except PermissionError:
        return None
    with suppress(FileNotFoundError):
        before = place.stat()
        # root keeps the owner of a user's file
        with suppress(PermissionError):
            os.fchown(node, before.st_uid, before.st_gid)
        os.fchmod(node, stat.S_IMODE(before.st_mode))
    os.close(node)
    return draft


def explain(error: OSError, elsewhere: str = "") -> str:
    """Return one line about a refusal of the system: the file (else `elsewhere`), the reason, and the
    remedy if known.
    """
    if error.errno is None:
        return str(error)
    where = error.filename if error.filename is not None else elsewhere
    remedy = REMEDIES.get(error.errno)
    return f"{where}: " * bool(where) + f"{error.strerror}" + f"; {remedy}" * bool(remedy)
