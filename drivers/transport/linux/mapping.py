"""Nodes mapped into this process so that they can be unmapped while views of them exist.

Python's own mapping of a node keeps a copy of its descriptor and its pages until the last view ends. While either
exists, the card counts as in use: VFIO does not let any process open it again, not even the same one. So Python gets a
mapping of anonymous memory, and the node is mapped over its pages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

LIBC = ctypes.CDLL(None, use_errno=True)
_mmap = LIBC.mmap
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mmap.restype = ctypes.c_void_p
# Flags that Python's mmap does not name. Source: Linux asm-generic/mman-common.h, mman.h
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000
NOBODYS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
RIGHTS = mmap.PROT_READ | mmap.PROT_WRITE


def map_node(node: int, size_bytes: int, start: int = 0) -> mmap.mmap:
    """Map bytes of a node from `start` (whole pages), to read and write. Raises `OSError`."""
    try:
        mapping = mmap.mmap(-1, size_bytes, NOBODYS, RIGHTS)
    # with vm.overcommit_memory=2, the kernel counts the anonymous mapping as used memory and may refuse it. A view of
    # the mapping made here instead keeps the card in use
    except OSError:
        return mmap.mmap(node, size_bytes, mmap.MAP_SHARED, RIGHTS, offset=start)
    try:
        _put(mapping, mmap.MAP_SHARED, node, start)
    except OSError:
        mapping.close()
        raise
    return mapping


def reserve(size_bytes: int) -> tuple[mmap.mmap, int]:
    """Return anonymous pages that a node is to be mapped over, and their address. Raises `OSError`."""
    mapping = mmap.mmap(-1, size_bytes, NOBODYS, RIGHTS)
    return mapping, _address(mapping)


def put_node(mapping: mmap.mmap, node: int, start: int) -> None:
    """Map bytes of a node over reserved pages. Raises `OSError`."""
    _put(mapping, mmap.MAP_SHARED, node, start)
    mapping.madvise(mmap.MADV_DONTFORK)


def give_up(mapping: mmap.mmap) -> None:
    """End a mapping. Views of a mapping by `map_node` are backed by zeroed anonymous memory afterwards; a read-only
    mapping stays as long as its views.
    """
    try:
        mapping.close()
    except BufferError:
        if not memoryview(mapping).readonly:
            with suppress(OSError):  # likewise
                _put(mapping, NOBODYS)


def _put(mapping: mmap.mmap, how: int, node: int = -1, start: int = 0) -> None:
    address = _address(mapping)
    if _mmap(address, len(mapping), RIGHTS, how | MAP_FIXED, node, start) != address:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))
