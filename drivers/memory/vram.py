"""A card's memory by offset: what the CPU's window shows of it, and the rest."""

from __future__ import annotations

from ringup.drivers.memory.ranges import HUGE_BYTES, Ranges
from ringup.errors import OutOfMemory

PAGE_BYTES = 4096
# address, size in bytes
Run = tuple[int, int]


class Vram:
    """The card's memory from `start` to `end` (vram_pa) in two parts: what the CPU's window shows, and the rest.

    The window may show all of it or as little as 256 MiB. Memory that the CPU need not see is taken from the rest while
    there is some.
    """

    def __init__(self, start: int, end: int, window_bytes: int) -> None:
        border = max(start, min(end, window_bytes))
        self.visible = Ranges(start, border - start, "VRAM in the CPU window")
        self.hidden = Ranges(border, end - border, "VRAM beyond the CPU window")
        self._border = border

    @property
    def visible_end(self) -> int:
        """Where the part ends that the CPU's window shows, as vram_pa."""
        return self._border

    @property
    def free_bytes(self) -> int:
        """Bytes that are free in both parts."""
        return self.visible.free_bytes + self.hidden.free_bytes

    @property
    def largest_bytes(self) -> int:
        """The largest free piece."""
        return max(self.visible.largest_bytes, self.hidden.largest_bytes)

    def alloc(self, size_bytes: int, *, visible: bool = False, align: int | None = None, holder: str = "") -> int:
        """Return vram_pa of contiguous memory, by default aligned to its size up to 2 MiB. Raises `OutOfMemory`."""
        for part in self._parts(visible):
            vram_pa = part.find(size_bytes, align, holder)
            if vram_pa is not None:
                return vram_pa
        raise OutOfMemory(self._shortage(size_bytes, visible, align, holder))

    def alloc_runs(self, size_bytes: int, *, visible: bool = False, holder: str = "") -> list[Run]:
        """Return memory that page tables join into one range: one piece where possible, else pieces of 2 MiB and more.
        Visible memory is one piece.
        """
        for part in self._parts(visible):
            vram_pa = part.find(size_bytes, None, holder)
            if vram_pa is not None:
                return [(vram_pa, size_bytes)]
        runs: list[Run] = []
        rest = size_bytes
        for part in self._parts(visible) if not visible else ():
            while rest and (run := _piece(part, rest, holder)):
                runs.append(run)
                rest -= run[1]
        if rest:
            # ORDER: the pieces taken so far are freed before the error says what is free
            self.free(*(vram_pa for vram_pa, _ in runs))
            raise OutOfMemory(self._shortage(size_bytes, visible, None, holder))
        return runs

    def reserve(self, start: int, size_bytes: int, holder: str) -> None:
        """Keep exactly this range from users. Raises `ValueError` when part of it is not free."""
        cut = max(start, min(start + size_bytes, self._border))
        for part, first, end in ((self.visible, start, cut), (self.hidden, cut, start + size_bytes)):
            if first < end:
                part.reserve(first, end - first, holder)

    def alloc_page(self) -> int:
        """Return vram_pa of a page for a page table."""
        return self.alloc(PAGE_BYTES, visible=True, holder="page tables")

    def free(self, *starts: int) -> None:
        """Free memory by its vram_pa. Raises `ValueError` for memory that was not allocated."""
        for vram_pa in starts:
            (self.hidden if vram_pa >= self._border else self.visible).free(vram_pa)

    def _parts(self, visible: bool) -> tuple[Ranges, ...]:
        return (self.visible,) if visible else (self.hidden, self.visible)

    def _shortage(self, size_bytes: int, visible: bool, align: int | None, holder: str) -> str:
        parts = [part for part in self._parts(visible) if part.size_bytes] or [self.visible]
        return "; ".join(part.shortage(size_bytes, align, holder) for part in parts)


def _piece(part: Ranges, rest_bytes: int, holder: str) -> Run | None:
    """Take a large piece of what is wanted: all of it, or as many times 2 MiB as the largest free piece holds
    aligned.
    """
    most = min(rest_bytes, part.largest_bytes)
    whole = most - most % HUGE_BYTES
    for size in (rest_bytes if most == rest_bytes else 0, whole, whole - HUGE_BYTES):
        vram_pa = part.find(size, None, holder) if size > 0 else None
        if vram_pa is not None:
            return vram_pa, size
    return None
