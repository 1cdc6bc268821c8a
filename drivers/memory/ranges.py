"""An allocator of address ranges: VRAM by offset, virtual addresses.

Free pieces are kept by size class, eight classes to a power of two, and joined with their neighbours when they are
freed. A request is cut from the lowest fitting piece of the smallest class that has one, so that large pieces stay
whole and small ranges lie together. The cost of a step grows with the logarithm of how many pieces there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ringup.errors import OutOfMemory

GRANULE_BYTES = 4096
HUGE_BYTES = 2 << 20  # a directory entry's page: alignment beyond it gains nothing
CLASSES = 8  # to a power of two
MAX_TRIED = 4  # pieces of one class that are tried before a larger class is
TOP_HOLDERS = 3


def natural_align(size_bytes: int, most: int = HUGE_BYTES) -> int:
    """Return the largest power of two not above `size_bytes` and `most`: what lets a page or fragment cover the
    range.
    """
    return max(GRANULE_BYTES, min(most, 1 << size_bytes.bit_length() - 1))


def _class_of(size_bytes: int) -> int:
    """Return the size class: its pieces are as large as its smallest, and less than an eighth larger."""
    granules = size_bytes // GRANULE_BYTES
    bits = granules.bit_length()
    return granules if bits <= 4 else (bits - 4) * CLASSES + (granules >> bits - 4)


class Ranges:
    """Ranges of [start, start + size_bytes), in whole 4 KiB; `name` is its name in messages.

    A range has a holder, a text by which `OutOfMemory` lists the largest holders.
    """

    def __init__(self, start: int, size_bytes: int, name: str) -> None:
        if start % GRANULE_BYTES or size_bytes % GRANULE_BYTES or start < 0 or size_bytes < 0:
            raise ValueError(f"{name}: whole 4 KiB are handed out, not {size_bytes:#x} bytes from {start:#x}")
        self.start, self.size_bytes, self.name = start, size_bytes, name
        self.free_bytes = size_bytes
        # start of a free piece: its size
        self._free: dict[int, int] = {}
        # end of a free piece: its start
        self._ends: dict[int, int] = {}
        classes = _class_of(max(size_bytes, GRANULE_BYTES)) + 1
        # heaps of starts; some no longer mean a piece of the class
        self._bins: list[list[int]] = [[] for _ in range(classes)]
        self._counts = [0] * classes  # pieces of the class
        self._filled = 0  # bit n: class n has a piece
        self._live: dict[int, tuple[int, str]] = {}
        if size_bytes:
            self._put(start, size_bytes)

    @property
    def used_bytes(self) -> int:
        """Bytes allocated or reserved."""
        return self.size_bytes - self.free_bytes

    @property
    def largest_bytes(self) -> int:
        """The largest free piece."""
        if not self._filled:
            return 0
        highest = self._filled.bit_length() - 1
        sizes = (self._free.get(start, 0) for start in self._bins[highest])
        return max(size for size in sizes if size and _class_of(size) == highest)

    @property
    def live(self) -> int:
        """How many ranges are allocated or reserved."""
        return len(self._live)

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        """Yield start, size and holder of the live ranges, by address."""
        return ((start, *self._live[start]) for start in sorted(self._live))

    def alloc(self, size_bytes: int, align: int | None = None, holder: str = "") -> int:
        """Return the start of a free range. `align` is a power of two, by default the size's own up to 2 MiB.

        Raises `OutOfMemory` when no piece fits.
        """
        start = self.find(size_bytes, align, holder)
        if start is None:
            raise OutOfMemory(self.shortage(size_bytes, align, holder))
        return start

    def find(self, size_bytes: int, align: int | None = None, holder: str = "") -> int | None:
        """Do what `alloc` does; None when no piece fits."""
        if size_bytes <= 0:
            raise ValueError(f"{self.name}: {size_bytes} bytes asked for {holder or 'nobody'}")
        size = -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES
        if align is None:
            align = natural_align(size)
        elif align & align - 1 or align <= 0:
            raise ValueError(f"{self.name}: an alignment is a power of two, not {align:#x}")
        piece = self._fitting(size, align, MAX_TRIED)
        if piece is None:
            piece = self._fitting(size, align, 1 << 62)
            if piece is None:
                return None
        length = self._take(piece)
        start = piece + -piece % align
        if start != piece:
            self._put(piece, start - piece)
        rest = piece + length - start - size
        if rest:
            self._put(start + size, rest)
        self._live[start] = size, holder
        self.free_bytes -= size
        return start

    def reserve(self, start: int, size_bytes: int, holder: str) -> None:
        """Allocate exactly this range. Raises `ValueError` when part of it is not free."""
        end = start + size_bytes
        if start % GRANULE_BYTES or size_bytes % GRANULE_BYTES or size_bytes <= 0:
            raise ValueError(f"{self.name}: whole 4 KiB are reserved, not {size_bytes:#x} bytes at {start:#x}")
        for piece, length in self._free.items():
            if piece <= start and end <= piece + length:
                break
        else:
            raise ValueError(f"{self.name}: {start:#x} to {end:#x} for {holder} is not wholly free")
        self._take(piece)
        if piece != start:
            self._put(piece, start - piece)
        if end != piece + length:
            self._put(end, piece + length - end)
        self._live[start] = size_bytes, holder
        self.free_bytes -= size_bytes

    def free(self, start: int) -> None:
        """Free a range and join it with free neighbours. Raises `ValueError` when no range starts there, such as for a
        second `free`.
        """
        live = self._live.pop(start, None)
        if live is None:
            raise ValueError(f"{self.name}: no range starts at {start:#x}: freed twice, or never handed out")
        size = live[0]
        self.free_bytes += size
        end = start + size
        if end in self._free:
            size += self._take(end)
        before = self._ends.get(start)
        if before is not None:
            size += self._take(before)
            start = before
        self._put(start, size)

    def shortage(self, size_bytes: int, align: int | None = None, holder: str = "") -> str:
        """Return why a request does not fit: bytes asked for, free bytes, largest piece, the three largest holders."""
        held: Counter[str] = Counter()
        for size, name in self._live.values():
            held[name or "unnamed"] += size
        most = ", ".join(f"{name} {_text(size)}" for name, size in held.most_common(TOP_HOLDERS)) or "nobody"
        aligned = f" aligned to {_text(align)}" if align else ""
        return (
            f"{self.name}: {_text(size_bytes)}{aligned} asked for {holder or 'an unnamed buffer'}, {_text(self.free_bytes)} of "
            f"{_text(self.size_bytes)} free, the largest piece {_text(self.largest_bytes)}; most is held by: {most}"
        )

    def _fitting(self, size: int, align: int, tries: int) -> int | None:
        """Return the start of a free piece that holds `size` aligned bytes, of the smallest class where one of `tries`
        low ones does.
        """
        first = _class_of(size)
        classes = self._filled >> first << first
        mask, free = align - 1, self._free
        while classes:
            lowest = classes & -classes
            number = lowest.bit_length() - 1
            pieces = self._bins[number]
            while (length := free.get(pieces[0], 0)) == 0 or _class_of(length) != number:
                heappop(pieces)
            if (-pieces[0] & mask) + size <= length:
                return pieces[0]
            for start in pieces[1:tries]:
                length = free.get(start, 0)
                if (-start & mask) + size <= length and _class_of(length) == number:
                    return start
            classes ^= lowest
        return None

    def _put(self, start: int, size: int) -> None:
        self._free[start] = size
        self._ends[start + size] = start
        number = _class_of(size)
        pieces, count = self._bins[number], self._counts[number] + 1
        heappush(pieces, start)
        self._counts[number] = count
        self._filled |= 1 << number
        # more than half of them mean nothing
        if len(pieces) > 2 * count + MAX_TRIED:
            free = self._free
            pieces[:] = {start for start in pieces if start in free and _class_of(free[start]) == number}
            heapify(pieces)

    def _take(self, start: int) -> int:
        """Take a free piece out; return its size. Its place in the heap stays until it comes up."""
        size = self._free.pop(start)
        del self._ends[start + size]
        number = _class_of(size)
        self._counts[number] -= 1
        if not self._counts[number]:
            self._filled ^= 1 << number
        return size


def _text(size_bytes: int) -> str:
    """Return a size in readable units."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} bytes"
