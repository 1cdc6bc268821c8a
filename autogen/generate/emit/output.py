"""Write generated files to a folder: all of them or none, one writer at a time; delete files that are no longer
generated.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.spelling import MARK
from ringup.autogen.regfile import BLOCK_MAGIC, CHIP_MAGIC
from ringup.errors import HeaderError

REJECTED = "rejected.tsv"  # names that the manifest's globs match but the readers rejected, with reasons
STAGED = ".staged"  # complete output waiting to be moved into place
# This file exists once all output is staged; it lists the files to delete, one path a line.
COMPLETE = "COMPLETE"
# TIMEOUT: writing every fact takes under 2 s, and another writer may hold the lock.
LOCK_TIMEOUT_S = 10.0
LOCK_RETRY_S = 0.05
# The first bytes of generated files that are not Python.
OURS = (BLOCK_MAGIC, CHIP_MAGIC, b"ringup-isa\t")
_PART = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
_ESCAPES = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def rejected_table(rejected: Mapping[str, Iterable[Rejected]]) -> bytes:
    """Return the rejections as tab-separated text: module, name, where, reason.

    Tabs and line ends inside a cell are escaped.
    """
    rows = [(module, r.name, r.where, r.reason) for module, refused in sorted(rejected.items()) for r in refused]
    table = [("module", "name", "where", "reason"), *rows]
    text = "".join("\t".join(cell.translate(_ESCAPES) for cell in row) + "\n" for row in table)
    return text.encode(errors="backslashreplace")


def write(files: Mapping[str, bytes], folder: Path, whole: bool = False) -> list[str]:
    """Put `files` below `folder` and return the paths that changed. Nothing is changed before everything is on disk.

    With `whole`, `files` are all generated files: others from an earlier run are deleted. If a run is killed while it
    moves files into place, the next `write` or `finish` completes it.
    """
    with _alone(folder):
        _move(folder)
        try:
            gone = leftovers(folder, files) if whole else []
            changed = [path for path, content in files.items() if not same(folder / path, content)]
            for path in changed:
                _check(folder, path)
            if changed or gone:
                _stage({path: files[path] for path in changed}, gone, folder / STAGED)
        except OSError as error:
            shutil.rmtree(folder / STAGED, ignore_errors=True)
            raise HeaderError(f"writing the facts below {folder.name}: {error}; nothing was replaced") from error
        _move(folder)
    return changed + gone


def finish(folder: Path) -> None:
    """Move a complete staged output into place; drop an incomplete one."""
    with _alone(folder):
        _move(folder)


def same(path: Path, content: bytes) -> bool:
    """Return whether the file at `path` has this content."""
    return path.is_file() and path.read_bytes() == content


def leftovers(folder: Path, files: Iterable[str]) -> list[str]:
    """Return the generated files below `folder` that are not among `files`: those of an earlier manifest."""
    known = {STAGED, *files}
    paths = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*"))
    return sorted(name for name, path in paths if name not in known and _is_generated(name, path))


def _is_generated(name: str, path: Path) -> bool:
    if name.startswith((f"{STAGED}/", "generate/")) or path.suffix not in (".py", ".bin", ".tsv") or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(2000)
    return start.startswith(OURS) or (
        path.suffix == ".py" and start.startswith(b'"""') and MARK.encode() in start.split(b'\n"""\n')[0]
    )


def _stage(files: Mapping[str, bytes], gone: Iterable[str], staged: Path) -> None:
    staged.mkdir()
    for path, content in files.items():
        target = staged / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (staged / COMPLETE).write_text("".join(f"{path}\n" for path in gone), encoding="utf-8")


def _move(folder: Path) -> None:
    """Carry out a complete staging; drop an incomplete one. First check that every target can be replaced."""
    staged = folder / STAGED
    try:
        if (staged / COMPLETE).is_file():
            gone = (staged / COMPLETE).read_text(encoding="utf-8").splitlines()
            found = sorted(p.relative_to(staged).as_posix() for p in staged.rglob("*") if p.is_file())
            names = [name for name in found if name != COMPLETE]
            for name in names + gone:
                _check(folder, name)
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / name, folder / name)
            for name in gone:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise HeaderError(
            f"moving the facts into {folder.name}: {error}; the next run completes this, or remove {folder / STAGED}"
        ) from error
    shutil.rmtree(staged, ignore_errors=True)


def _check(folder: Path, name: str) -> None:
    """Raise `HeaderError` unless `name` is a file, or does not exist yet, in a folder below `folder`."""
    parts = name.split("/")
    if not all(map(_PART.fullmatch, parts)):
        raise HeaderError(f"{name!r} is no path below the folder of the facts: want names joined by /")
    for end in range(1, len(parts)):
        above = folder.joinpath(*parts[:end])
        if above.exists() and not above.is_dir():
            raise HeaderError(f"{above} should be a folder and is none: remove it; nothing was replaced")
    if (folder / name).is_dir():
        raise HeaderError(f"{folder / name} should be a file and is a folder: remove it; nothing was replaced")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process. Wait LOCK_TIMEOUT_S for another run that holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HeaderError(f"writing the facts below {folder.name}: {error}; nothing was replaced") from error
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    give_up = time.monotonic() + LOCK_TIMEOUT_S
    while not _locked(handle, folder):
        if time.monotonic() > give_up:
            raise HeaderError(
                f"another run has been writing into {folder} for {LOCK_TIMEOUT_S:.0f} s: wait for it; nothing was replaced"
            )
        time.sleep(LOCK_RETRY_S)


def _locked(handle: int, folder: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise HeaderError(f"locking {folder}: {error}; nothing was replaced") from error
    return True
