"""A file that is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# Of a draft's name; 255 bytes are the most of a file's.
MAX_NAME = 40


def write_whole(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file of some bytes, or of pieces one after another; see `opened_whole`."""
    with opened_whole(path) as file:
        file.writelines([data] if isinstance(data, bytes) else data)


@contextmanager
def opened_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write it anew; one that was there stays as it is until the block has ended without an error.
    Raises the `OSError`, with the file's name.

    A link stays a link, and what is no ordinary file (a device, a pipe) is written itself: nothing may take its place.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        with place.open("wb") as file:
            yield file
        return
    draft = place.with_name(f".{place.name[:MAX_NAME]}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            yield file
        os.replace(draft, place)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            # The draft is no name of the caller's.
            error.filename, error.filename2 = str(path), None
        raise
