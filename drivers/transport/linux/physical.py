"""Physical addresses of this process's pages, for a card without an IOMMU: pages are pinned, then looked up in
/proc/self/pagemap.

`mlock` keeps a page in memory, but not at its address: compaction and NUMA balancing move it. Buffers that are
registered with an io_uring are pinned as long as the ring exists. Without io_uring, pages must have 2 MiB, or the
kernel's settings must forbid moves. Source: io_uring_register(2), IORING_REGISTER_BUFFERS; Linux
admin-guide/mm/pagemap.rst; admin-guide/sysctl/vm.rst, compact_unevictable_allowed.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import struct
from collections.abc import Iterator

from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.dma import PAGE, Run, joined
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.mapping import LIBC
from ringup.errors import OutOfMemory, PermissionNeeded

# the same on every architecture. Source: Linux unistd.h
SYS_IO_URING_SETUP, SYS_IO_URING_REGISTER = 425, 427
# Source: Linux io_uring.h
IORING_REGISTER_BUFFERS = 0
# struct io_uring_params
IO_URING_PARAMS_BYTES = 120
# the maximum of one registered buffer. Source: io_uring_register(2)
BUFFER_BYTES = 1 << 30
# bits of an entry of the page map
PRESENT, PFN = 1 << 63, (1 << 55) - 1
ENTRY_BYTES = 8
# the settings that let the kernel move locked 4 KiB pages
MOVERS = ("vm/compact_unevictable_allowed", "kernel/numa_balancing")


class Pin:
    """Pages of this process that are pinned until `release`."""

    def __init__(self, kernel: Kernel, address: int, size_bytes: int, *, huge: bool) -> None:
        """Raises `OutOfMemory` at the limit of locked memory, `PermissionNeeded` if nothing can pin 4 KiB pages."""
        self._address, self._size_bytes = address, size_bytes
        self._ring = _ring()
        self._locked = False
        with undone_on_error(self.release):
            if self._ring is not None:
                self._register(kernel, self._ring)
            else:
                self._lock(kernel, huge=huge)

    def release(self) -> None:
        """Unpin the pages. May be called twice."""
        ring, self._ring = self._ring, None
        if ring is not None:
            os.close(ring)
        if self._locked:
            self._locked = False
            LIBC.munlock(ctypes.c_void_p(self._address), ctypes.c_size_t(self._size_bytes))

    def _register(self, kernel: Kernel, ring: int) -> None:
        ends = range(self._address, self._address + self._size_bytes, BUFFER_BYTES)
        pieces = [(at, min(BUFFER_BYTES, self._address + self._size_bytes - at)) for at in ends]
        vectors = b"".join(struct.pack("QQ", *piece) for piece in pieces)
        if LIBC.syscall(SYS_IO_URING_REGISTER, ring, IORING_REGISTER_BUFFERS, vectors, len(pieces)):
            raise self._refused(kernel, "pinning", ctypes.get_errno())

    def _lock(self, kernel: Kernel, *, huge: bool) -> None:
        movers = [name for name in MOVERS if kernel.number(kernel.path("proc/sys", name))]
        if movers and not huge:
            raise PermissionNeeded(
                "host memory at physical addresses: the kernel may move 4 KiB pages under the card; "
                "reserve 2 MiB pages (sysctl vm.nr_hugepages=64), "
                f"allow io_uring (sysctl kernel.io_uring_disabled=0) or set {', '.join(movers).replace('/', '.')} to 0"
            )
        if LIBC.mlock(ctypes.c_void_p(self._address), ctypes.c_size_t(self._size_bytes)):
            raise self._refused(kernel, "locking", ctypes.get_errno())
        self._locked = True

    def _refused(self, kernel: Kernel, doing: str, code: int) -> OutOfMemory | PermissionNeeded:
        what = f"{doing} {self._size_bytes} bytes of host memory: {os.strerror(code)}"
        # EPERM: the error of mlock if the limit is 0. Source: mlock(2)
        if code in (errno.ENOMEM, errno.EAGAIN) or (code == errno.EPERM and advice.locked_limit() == 0):
            return OutOfMemory(f"{what}; {advice.of_locking(kernel, self._size_bytes)}")
        return PermissionNeeded(f"{what}; such memory cannot be pinned for a card")


def _ring() -> int | None:
    """Return the file descriptor of a new io_uring. None if the kernel has no io_uring or a rule forbids it."""
    parameters = ctypes.create_string_buffer(IO_URING_PARAMS_BYTES)
    node = LIBC.syscall(SYS_IO_URING_SETUP, 1, parameters)
    return None if node < 0 else int(node)


def runs_of(kernel: Kernel, address: int, size_bytes: int) -> list[Run]:
    """Return the physically contiguous pieces of pinned pages, in order.

    Raises `PermissionNeeded` if the process may not read page numbers: the page map shows 0 then.
    """
    node = kernel.open(kernel.path("proc/self/pagemap"), "looking up physical addresses", os.O_RDONLY)
    try:
        count = size_bytes // PAGE
        entries = array.array("Q", os.pread(node, count * ENTRY_BYTES, address // PAGE * ENTRY_BYTES))
    finally:
        os.close(node)
    if len(entries) != count or any(not entry & PRESENT or not entry & PFN for entry in entries):
        raise PermissionNeeded(
            "looking up physical addresses: /proc/self/pagemap shows no page numbers to this process;"
            " it needs CAP_SYS_ADMIN. VFIO needs none: `ringup bind CARD`"
        )
    return joined(_pages(entries))


def _pages(entries: array.array[int]) -> Iterator[Run]:
    for entry in entries:
        yield (entry & PFN) * PAGE, PAGE
