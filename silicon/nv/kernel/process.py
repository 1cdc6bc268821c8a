"""Memory of this process by address, as a kernel copies it: an address that is not mapped is an error, not a crash."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


@cache
def _call(name: str) -> Callable[..., int]:
    raw = getattr(ctypes.CDLL(None, use_errno=True), name)
    raw.restype = ctypes.c_ssize_t
    vector = ctypes.POINTER(_Vector)
    raw.argtypes = (ctypes.c_int, vector, ctypes.c_ulong, vector, ctypes.c_ulong, ctypes.c_ulong)
    found: Callable[..., int] = raw
    return found


def _copy(name: str, local: ctypes.Array[ctypes.c_char], address: int) -> None:
    size_bytes = len(local)
    if not 0 <= address < 1 << 64:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
    ours, theirs = _Vector(ctypes.addressof(local), size_bytes), _Vector(address, size_bytes)
    if _call(name)(os.getpid(), ours, 1, theirs, 1, 0) != size_bytes:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))


def load(address: int, size_bytes: int) -> bytes:
    """Return bytes. Raises `OSError` (EFAULT) where nothing is mapped."""
    if not size_bytes:
        return b""
    local = (ctypes.c_char * size_bytes)()
    _copy("process_vm_readv", local, address)
    return bytes(local)


def store(address: int, data: bytes | bytearray) -> None:
    """Store bytes. Raises `OSError` (EFAULT) where nothing is mapped, or only for reading."""
    if data:
        _copy("process_vm_writev", (ctypes.c_char * len(data)).from_buffer_copy(data), address)
