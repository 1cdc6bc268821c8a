"""Limit libclang's time and memory, which it does not limit itself.

A header may include a pipe that is never written, or a macro that doubles forever.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from stat import S_ISREG

from ringup.errors import HeaderError

TIME_MAX_S = 60  # TIMEOUT: the largest NVIDIA tree takes 2 s
# Beyond what the process held before; the largest NVIDIA tree takes 0.3 GB.
MEMORY_MAX_BYTES = 2 << 30
FILE_MAX_BYTES = 64 << 20
_GLANCE_S = 0.02
_STATM = Path("/proc/self/statm")


def bounded(call: Callable[[], int]) -> int:
    """Return what `call` returns; raise `HeaderError` if it takes too long or too much memory.

    An abandoned call continues in its thread until the process ends, because C code cannot be stopped from outside. So
    a tool should end soon afterwards. Without /proc only the time is limited.
    """
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(call()), name="libclang", daemon=True)
    before, start, pause = _memory_bytes(), time.monotonic(), _GLANCE_S / 20
    thread.start()
    while True:
        thread.join(pause)
        pause = _GLANCE_S
        if not thread.is_alive():
            break
        if time.monotonic() - start > TIME_MAX_S:
            raise HeaderError(
                f"libclang was given up after {TIME_MAX_S} s: does a header include a pipe, or grow for ever?"
            )
        if (taken := _memory_bytes() - before) > MEMORY_MAX_BYTES:
            raise HeaderError(f"libclang was given up when it held {taken >> 20} MB: does a header grow for ever?")
    if not result:
        raise HeaderError("libclang's call ended without a result")
    return result[0]


def _memory_bytes() -> int:
    try:
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def check_files(headers: Sequence[Path]) -> None:
    """Raise `HeaderError` for a header that is missing, not a regular file, or too large to be a header."""
    for header in headers:
        try:
            found = header.stat()
        except OSError as error:
            raise HeaderError(f"{header}: there is no such header; check the folder of the header package") from error
        if not S_ISREG(found.st_mode):
            raise HeaderError(f"{header}: a header is an ordinary file, and this is not one")
        if found.st_size > FILE_MAX_BYTES:
            raise HeaderError(
                f"{header}: {found.st_size >> 20} MB are no header; the bound is {FILE_MAX_BYTES >> 20} MB"
            )
