"""Host memory that a card reaches: pages of this process, held in place, and the addresses the card puts on the bus for
them.

Pages of our own are 2 MiB ones where the kernel has some to give (`vm.nr_hugepages`), else 4 KiB ones. They are shared
mappings, since after a fork the next write would give this process another page in a private one's place, and are kept
out of children.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ringup.errors import OutOfMemory

LOG = logging.getLogger(__name__)
PAGE, HUGE_PAGE = 4096, 2 << 20
# Flags that Python's mmap does not name. Source: Linux mman-common.h and mman.h: 21 is log2 of 2 MiB
MAP_HUGETLB, MAP_HUGE_2MB = 0x40000, 21 << 26
Run = tuple[int, int]  # bus address, bytes
Release = Callable[[], None]


def whole_pages(size_bytes: int) -> int:
    """Return `size_bytes` rounded up to whole pages. Raises `ValueError` when that is none."""
    if size_bytes <= 0:
        raise ValueError(f"host memory comes in 1 byte or more, not {size_bytes}")
    return -(-size_bytes // PAGE) * PAGE


def anonymous(size_bytes: int) -> tuple[mmap.mmap, bool]:
    """Return zeroed memory of at least `size_bytes` (whole pages), and whether it is of 2 MiB pages.

    One page is contiguous as it is; more are taken from 2 MiB pages, rounded up to them, so that they are as contiguous
    as can be. Raises `OutOfMemory`.
    """
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    if size_bytes > PAGE:
        try:
            huge = -(-size_bytes // HUGE_PAGE) * HUGE_PAGE
            return _ours(mmap.mmap(-1, huge, flags | mmap.MAP_POPULATE | MAP_HUGETLB | MAP_HUGE_2MB)), True
        except OSError:
            LOG.debug("no 2 MiB pages for %d bytes: 4 KiB ones", size_bytes)
    try:
        return _ours(mmap.mmap(-1, size_bytes, flags | mmap.MAP_POPULATE)), False
    except OSError as error:
        raise OutOfMemory(
            f"host memory for a card: {size_bytes} bytes asked, the kernel says: {error.strerror}"
        ) from error


def _ours(mapping: mmap.mmap) -> mmap.mmap:
    mapping.madvise(mmap.MADV_DONTFORK)
    return mapping


class Anchor:
    """Where a writable buffer lies in this process, and the promise that it stays there while this lives. `huge`: its
    pages are of 2 MiB.
    """

    def __init__(self, buffer: mmap.mmap | memoryview, *, huge: bool = False) -> None:
        self._held: ctypes.Array[ctypes.c_char] | None = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self.address = ctypes.addressof(self._held)
        self.size_bytes, self.huge = len(buffer), huge

    def release(self) -> None:
        """Release the buffer. Twice is harmless."""
        self._held = None


def callers_bytes(buffer: memoryview) -> Anchor:
    """Return the address of the caller's memory. Raises `ValueError` unless it is writable, contiguous and not
    empty.
    """
    if buffer.readonly or not buffer.c_contiguous or not buffer.nbytes:
        raise ValueError("a card can be given memory that is writable, contiguous and not empty, which this is not")
    return Anchor(buffer.cast("B"))


def callers_pages(buffer: memoryview) -> Anchor:
    """Return the address of the caller's memory. Raises `ValueError` unless it is writable, contiguous and whole
    pages.
    """
    anchor = callers_bytes(buffer)
    if anchor.address % PAGE or anchor.size_bytes % PAGE or not anchor.size_bytes:
        address, size_bytes = anchor.address, anchor.size_bytes
        anchor.release()
        raise ValueError(
            f"a card can be given whole pages of {PAGE} bytes, not {size_bytes:#x} bytes at {address:#x}; mmap.mmap(-1, size) gives such"
        )
    return anchor


def joined(runs: Iterator[Run]) -> list[Run]:
    """Join runs that follow on each other."""
    done: list[Run] = []
    for bus_addr, size_bytes in runs:
        if done and done[-1][0] + done[-1][1] == bus_addr:
            done[-1] = (done[-1][0], done[-1][1] + size_bytes)
        else:
            done.append((bus_addr, size_bytes))
    return done


class HostMemory:
    """The seam's `DmaMemory`. `release` unmaps it from the card, then from this process; it is called once."""

    # x86 snoops a card's accesses; the pre-flight check refuses other hosts
    coherent = True

    def __init__(self, view: memoryview, runs: Sequence[Run], release: Release) -> None:
        """`runs` cover the view exactly, in order."""
        self.view, self.size_bytes = view, len(view)
        self._runs, self._release = tuple(runs), release
        self._starts: list[int] = []
        at = 0
        for _, size_bytes in self._runs:
            self._starts.append(at)
            at += size_bytes
        assert at == self.size_bytes
        self.freed = False

    @property
    def contiguous(self) -> bool:
        """Whether bus addresses run on without a gap."""
        return len(self._runs) == 1

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return what the card puts on the bus to reach that byte."""
        if self.freed:
            raise ValueError("host memory is used after it was freed")
        if not 0 <= offset_bytes < self.size_bytes:
            raise ValueError(f"host memory of {self.size_bytes:#x} bytes has no byte {offset_bytes:#x}")
        index = bisect_right(self._starts, offset_bytes) - 1
        return self._runs[index][0] + offset_bytes - self._starts[index]

    def runs(self) -> Iterator[Run]:
        """Give (bus_addr, size_bytes) of every contiguous piece, in order."""
        return iter(self._runs)

    def free(self) -> None:
        """Unmap it from the card and free it. Twice is harmless."""
        if not self.freed:
            self.freed = True
            self.view.release()
            self._release()


# Gives the card that many bytes of pages: returns where it sees them, and what takes them from it again
Lend = Callable[[Anchor, int], tuple[Sequence[Run], Release]]


def lend_own(size_bytes: int, lend: Lend) -> HostMemory:
    """Return new zeroed pages that the card reaches by `lend`. Raises `ValueError` for no bytes, `OutOfMemory`."""
    size = whole_pages(size_bytes)
    pages, huge = anonymous(size)
    return _lent(memoryview(pages)[:size], Anchor(pages, huge=huge), lend, partial(unmap, pages))


def lend_callers(buffer: memoryview, lend: Lend) -> HostMemory:
    """Let the card reach a caller's pages by `lend`, where they are. Raises `ValueError` as `callers_pages` does."""
    anchor = callers_pages(buffer)
    return _lent(buffer.cast("B")[:], anchor, lend, lambda: None)


def _lent(view: memoryview, anchor: Anchor, lend: Lend, give_back: Release) -> HostMemory:
    """Map the pages below `view` for the card. If that is refused, nothing stays pinned."""
    try:
        runs, take_back = lend(anchor, len(view))
    except BaseException:
        view.release()
        anchor.release()
        give_back()
        raise

    def release() -> None:
        take_back()
        anchor.release()
        give_back()

    return HostMemory(view, runs, release)


def unmap(mapping: mmap.mmap) -> None:
    """Free pages; while a view of them exists, they stay with it."""
    try:
        mapping.close()
    except BufferError:
        LOG.debug("%d bytes of host memory stay until their last view ends", len(mapping))
