"""A file that is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# Of a draft's name; 255 bytes are the most of a file's.
MAX_NAME = 40


def write_whole(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file of some bytes, or of pieces one after another; one that was there stays as it is until the new one
    is complete. Raises the `OSError`, with the file's name.

    A link stays a link, and what is no ordinary file (a device, a pipe) is written itself: nothing may take its place.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        _write(place, data)
        return
    draft = place.with_name(f".{place.name[:MAX_NAME]}.{os.getpid()}")
    try:
        _write(draft, data)
        os.replace(draft, place)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            # The draft is no name of the caller's.
            error.filename, error.filename2 = str(path), None
        raise


def _write(place: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    with place.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
