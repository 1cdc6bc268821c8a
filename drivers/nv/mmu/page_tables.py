"""The page tables of one GPU address space, in the card's memory. The driver writes them, the GPU's MMU reads them.

The driver keeps a copy of each table, so that it never reads back over the bus, and writes changes as runs of entries.
The MMU caches pages, directory entries and that an entry is not valid: after `map` and `unmap` the caller makes the
writes reach the card's memory and invalidates the MMU's caches for this address space, then calls `settle`, which frees
tables that are no longer used. Source: nouveau vmm.c, nvkm_vmm_ptes_map, nvkm_vmm_unref_pdes and nvkm_vmm_flush; OGKM
mmu_walk_map.c, mmu_walk_unmap.c.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from ringup.drivers.nv.mmu.formats import (
    BIG_PAGE_BYTES,
    HUGE_PAGE_BYTES,
    MAX_PEER,
    PAGE_BYTES,
    TABLE_ALIGN_BYTES,
    WORD_BYTES,
    Flags,
    Format,
    Level,
)
from ringup.errors import OutOfMemory

# Bit 0 of a word: the entry is a page.
IS_PAGE = 1
# An operation may split pages at both ends of a range.
ENDS = 2
DEFAULT = Flags()
Piece = tuple[int, int]  # address, size in bytes


class Table:
    """The driver's copy of one table. An entry of PD0 has two words; a table below is kept under the word's index."""

    __slots__ = ("children", "fresh", "gone", "level", "live", "vram_pa", "words")

    def __init__(self, vram_pa: int, level: Level) -> None:
        self.vram_pa, self.level = vram_pa, level
        self.words = array("Q", bytes(level.table_bytes))
        # how many words are not 0
        self.live = 0
        self.children: dict[int, Table] = {}
        # it is not in the card's memory yet, and no entry points to it
        self.fresh = True
        # no entry points to it any more
        self.gone = False


def _nothing() -> None:
    """Do nothing: the barrier for memory that keeps the order of writes by itself."""


class PageTables:
    """The page tables of one address space.

    `write(vram_pa, data)` stores bytes in the card's memory; writes of one word (8 bytes, aligned) must be atomic.
    `alloc_table(size_bytes)` returns the vram_pa of memory for a table: of 4096 or 256 bytes, aligned to as many.
    `free_table(vram_pa, size_bytes)` takes it back. `barrier` makes earlier writes reach the memory before later ones.
    `root_pa`: memory for the root that belongs to the caller.
    """

    def __init__(
        self,
        fmt: Format,
        write: Callable[[int, bytes], None],
        alloc_table: Callable[[int], int],
        *,
        free_table: Callable[[int, int], None],
        barrier: Callable[[], None] = _nothing,
        root_pa: int | None = None,
    ) -> None:
        self.format = fmt
        self._write, self._alloc_table, self._free_table, self._barrier = write, alloc_table, free_table, barrier
        self._owns_root = root_pa is None
        # memory for tables by size, so that an operation does not fail between two splits
        self._spare: dict[int, list[int]] = {_room(fmt.small): [], _room(fmt.big): []}
        self._retired: list[Table] = []
        # words to write: table, first word, how many; in the order in which the MMU may see them
        self._dirty: list[tuple[Table, int, int]] = []
        # new tables, which are written as a whole
        self._fresh: list[Table] = []
        self._pages: dict[Flags, int] = {}
        # the table of small pages that was filled last, and the number of its 2 MiB
        self._small: Table | None = None
        self._slot = 0
        level = fmt.directories[0]
        try:
            self._top_up()
            self._root = Table(alloc_table(_room(level)) if root_pa is None else root_pa, level)
        except OutOfMemory:
            self._give_back_spares()
            raise
        self._store(self._root, 0, len(self._root.words))
        self._root.fresh = False

    @property
    def root_pa(self) -> int:
        """vram_pa of the root directory, for the instance block."""
        return self._root.vram_pa

    @property
    def tables(self) -> int:
        """How many tables there are, the root included."""
        return sum(1 for _ in _family(self._root))

    def directories(self, gpu_va: int) -> list[tuple[Level, int]]:
        """Return level and vram_pa of the directories above an address, from the root down, as far as there are any."""
        found, table = [], self._root
        for level in self.format.directories:
            found.append((level, table.vram_pa))
            below = table.children.get(gpu_va // level.span_bytes % level.entries * level.words)
            if below is None or below.level not in self.format.directories:
                break
            table = below
        return found

    def map(self, gpu_va: int, pieces: Iterable[Piece], flags: Flags = DEFAULT) -> None:
        """Map pieces of memory one after another, from `gpu_va` up. They replace earlier mappings.

        All pieces are whole 4 KiB pages: a vram_pa, a peer's vram_pa or a bus_addr, as `flags.aperture` says. A page is
        as large as both addresses are aligned. Raises `OutOfMemory` if there is no memory for a table: then the whole
        range is unmapped, and the caller must invalidate all the same.
        """
        listed = self._checked(pieces, flags)
        end = gpu_va + sum(size for _, size in listed)
        self._check(gpu_va, end)
        entry = self._pages.get(flags)
        if entry is None:
            entry = self._pages[flags] = self._page(flags)
        self._top_up()
        self._clear(self._root, gpu_va, end, keep=True)
        try:
            self._fill_all(gpu_va, listed, entry, flags.largest_page_bytes)
        except OutOfMemory:
            self._clear(self._root, gpu_va, end)
            self._commit()
            raise
        self._commit()

    def unmap(self, gpu_va: int, size_bytes: int) -> None:
        """Unmap every page of the range. Pages that extend beyond it are split.

        Raises `OutOfMemory` if there is no memory to split a page; part of the range is unmapped then.
        """
        self._check(gpu_va, gpu_va + size_bytes)
        with suppress(OutOfMemory):
            self._top_up()
        try:
            self._clear(self._root, gpu_va, gpu_va + size_bytes)
        finally:
            self._commit()

    def settle(self) -> None:
        """Free the memory of tables that are no longer used. Call it only after the MMU's caches are invalid."""
        while self._retired:
            table = self._retired.pop()
            self._free_table(table.vram_pa, _room(table.level))

    def close(self) -> None:
        """Free all tables. No channel may use the address space any more. May be called twice."""
        if self._root.gone:
            return
        self._retire(self._root)
        if not self._owns_root:
            self._retired.remove(self._root)
        self.settle()
        self._give_back_spares()

    def _page(self, flags: Flags) -> int:
        """Return a page's entry for address 0. Raises `ValueError` for flags that no entry can have."""
        if flags.aperture not in self.format.address_bits:
            known = ", ".join(self.format.address_bits)
            raise ValueError(f"memory is in one of the apertures {known}, not in {flags.aperture!r}")
        if not 0 <= flags.kind < 1 << self.format.kind_bits:
            raise ValueError(
                f"format {self.format.version} has kinds of {self.format.kind_bits} bits, not {flags.kind:#x}"
            )
        if not 0 <= flags.peer <= MAX_PEER:
            raise ValueError(f"a peer is 0 to {MAX_PEER}, not {flags.peer}")
        if flags.largest_page_bytes < PAGE_BYTES:
            raise ValueError(f"the smallest page has {PAGE_BYTES} bytes, not {flags.largest_page_bytes}")
        return self.format.page(flags)

    def _checked(self, pieces: Iterable[Piece], flags: Flags) -> list[Piece]:
        """Check pieces and join adjacent ones."""
        limit = 1 << self.format.address_bits.get(flags.aperture, 0)
        joined: list[Piece] = []
        for address, size in pieces:
            if address % PAGE_BYTES or size % PAGE_BYTES or size <= 0 or address < 0 or address + size > limit:
                raise ValueError(
                    f"a piece to map is whole pages of 4 KiB below {limit:#x} ({flags.aperture}),"
                    f" not {size:#x} bytes at {address:#x}"
                )
            if joined and sum(joined[-1]) == address:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((address, size))
        return joined

    def _check(self, gpu_va: int, end: int) -> None:
        if self._root.gone:
            raise ValueError(f"mapping or unmapping at {gpu_va:#x}: these page tables are closed")
        limit = 1 << self.format.va_bits
        if gpu_va % PAGE_BYTES or end % PAGE_BYTES or not 0 <= gpu_va < end <= limit:
            raise ValueError(f"a range is whole pages of 4 KiB below {limit:#x}, not {gpu_va:#x} to {end:#x}")

    def _top_up(self) -> None:
        """Allocate the tables for splits: of a page of each size but the smallest, at both ends of a range."""
        large = len(self.format.page_sizes) - 2
        for size, count in ((_room(self.format.small), ENDS * large), (_room(self.format.big), ENDS)):
            while len(self._spare[size]) < count:
                self._spare[size].append(self._alloc_table(size))

    def _give_back_spares(self) -> None:
        for size, spares in self._spare.items():
            while spares:
                self._free_table(spares.pop(), size)

    def _fill_all(self, gpu_va: int, pieces: list[Piece], entry: int, largest: int) -> None:
        """Map pieces one after another. A piece of small pages in the table of the piece before needs no walk from the
        root.
        """
        self._small = None
        for address, size in pieces:
            slot = gpu_va // HUGE_PAGE_BYTES
            near = self._small is not None and slot == self._slot == (gpu_va + size - 1) // HUGE_PAGE_BYTES
            if near and (size < BIG_PAGE_BYTES or (gpu_va ^ address) % BIG_PAGE_BYTES):
                assert self._small is not None  # near says so
                self._put(
                    self._small, gpu_va // PAGE_BYTES % len(self._small.words), address, size // PAGE_BYTES, entry
                )
            else:
                self._fill(self._root, gpu_va, address, size, entry, largest)
            gpu_va += size

    def _fill(self, table: Table, gpu_va: int, address: int, size_bytes: int, entry: int, largest: int) -> None:
        """Map one piece within a directory, where nothing is mapped: by pages of this level where whole ones fit, else
        by tables below it.
        """
        level, span = table.level, table.level.span_bytes
        end = gpu_va + size_bytes
        while gpu_va < end:
            index = gpu_va // span % level.entries
            if level.page and span <= largest and not (gpu_va | address) % span and end - gpu_va >= span:
                count = min((end - gpu_va) // span, level.entries - index)
                self._put(table, index, address, count, entry)
                step = count * span
            else:
                step = min(span - gpu_va % span, end - gpu_va)
                if level.words == 1:
                    self._fill(self._child(table, index), gpu_va, address, step, entry, largest)
                else:
                    self._fill_slot(table, index, gpu_va, address, step, entry, largest)
            gpu_va += step
            address += step

    def _fill_slot(
        self, table: Table, index: int, gpu_va: int, address: int, size_bytes: int, entry: int, largest: int
    ) -> None:
        """Map a part of the 2 MiB of one PD0 entry: by big pages where both addresses are aligned, else small ones."""
        end = gpu_va + size_bytes
        big_from, big_to = end, end
        if largest >= BIG_PAGE_BYTES and not (gpu_va ^ address) % BIG_PAGE_BYTES:
            first, last = -(-gpu_va // BIG_PAGE_BYTES) * BIG_PAGE_BYTES, end // BIG_PAGE_BYTES * BIG_PAGE_BYTES
            if first < last:
                big_from, big_to = first, last
        for which, start, stop in ((1, gpu_va, big_from), (0, big_from, big_to), (1, big_to, end)):
            if start >= stop:
                continue
            child = self._child(table, 2 * index + which)
            if which:
                self._small, self._slot = child, start // HUGE_PAGE_BYTES
            span = child.level.span_bytes
            place = start // span % child.level.entries
            self._put(child, place, address + start - gpu_va, (stop - start) // span, entry)

    def _put(self, table: Table, index: int, address: int, count: int, entry: int) -> None:
        """Fill empty entries of a table with pages of contiguous memory."""
        shift, words = self.format.address_shift, table.level.words
        first = entry | address >> shift
        step = table.level.span_bytes >> shift
        made = array("Q", range(first, first + count * step, step))
        table.words[index * words : (index + count) * words : words] = made
        table.live += count
        self._mark(table, index * words, count * words)

    def _clear(self, table: Table, gpu_va: int, end: int, *, keep: bool = False) -> None:
        """Clear a range within a directory. Tables that become empty are retired, unless they are to `keep` because the
        range is mapped again.
        """
        level, span = table.level, table.level.span_bytes
        while gpu_va < end:
            index = gpu_va // span % level.entries
            if not gpu_va % span and end - gpu_va >= span:
                count = min((end - gpu_va) // span, level.entries - index)
                self._drop(table, index * level.words, count * level.words)
                gpu_va += count * span
                continue
            step = min(span - gpu_va % span, end - gpu_va)
            if level.words == 2:
                self._clear_slot(table, index, gpu_va, gpu_va + step, keep=keep)
            elif table.words[index]:
                self._clear(self._child(table, index), gpu_va, gpu_va + step, keep=keep)
                self._drop_empty(table, index, keep=keep)
            gpu_va += step

    def _clear_slot(self, table: Table, index: int, gpu_va: int, end: int, *, keep: bool) -> None:
        """Clear a part of the 2 MiB of one PD0 entry."""
        word = 2 * index
        if table.words[word] & IS_PAGE:
            self._child(table, word)
        big = table.children.get(word)
        if big is not None:
            for place in {gpu_va // BIG_PAGE_BYTES, (end - 1) // BIG_PAGE_BYTES}:
                start = place * BIG_PAGE_BYTES
                if start < gpu_va or start + BIG_PAGE_BYTES > end:
                    self._split_big(table, index, big, place % big.level.entries)
            first, last = -(-gpu_va // BIG_PAGE_BYTES), end // BIG_PAGE_BYTES
            if first < last:
                self._drop(big, first % big.level.entries, last - first)
            self._drop_empty(table, word, keep=keep)
        small = table.children.get(word + 1)
        if small is not None:
            span = small.level.span_bytes
            self._drop(small, gpu_va // span % small.level.entries, (end - gpu_va) // span)
            self._drop_empty(table, word + 1, keep=keep)

    def _split_big(self, table: Table, index: int, big: Table, place: int) -> None:
        """Replace a page of 64 KiB by small ones.

        ORDER: the small pages are valid before the big one is cleared; the MMU looks for them only then.
        """
        entry = big.words[place]
        if not entry:
            return
        small = self._child(table, 2 * index + 1, split=True)
        count = BIG_PAGE_BYTES // PAGE_BYTES
        # The entry holds the address already.
        self._put(small, place * count, 0, count, entry)
        self._drop(big, place, 1)

    def _drop(self, table: Table, word: int, count: int) -> None:
        """Clear words, and retire the tables below them."""
        valid = count - table.words[word : word + count].count(0)
        if not valid:
            return
        for i in range(word, word + count) if table.children else ():
            if i in table.children:
                self._retire(table.children.pop(i))
        table.live -= valid
        table.words[word : word + count] = array("Q", bytes(count * WORD_BYTES))
        self._mark(table, word, count)

    def _drop_empty(self, table: Table, word: int, *, keep: bool) -> None:
        """Clear the entry of a table below if that has no entries."""
        child = table.children.get(word)
        if child is not None and not child.live and not keep:
            self._drop(table, word, 1)

    def _child(self, table: Table, word: int, *, split: bool = False) -> Table:
        """Return the table below a word: the present one, or a new one. If the entry is a page, the new table maps the
        same memory. `split`: the table is for a split of a page.
        """
        child = table.children.get(word)
        if child is not None:
            return child
        level = self._below(table.level, word)
        entry = table.words[word]
        spares = self._spare[_room(level)]
        place = spares.pop() if spares and (entry or split) else self._alloc_table(_room(level))
        child = Table(place, level)
        self._fresh.append(child)
        if entry:
            # A page becomes a table of pages of the next size.
            self._put(child, 0, 0, level.entries, entry)
        else:
            table.live += 1
        table.children[word] = child
        table.words[word] = self.format.pointer(child.vram_pa)
        self._mark(table, word, 1)
        return child

    def _below(self, level: Level, word: int) -> Level:
        if level.words == 2:
            return self.format.small if word % 2 else self.format.big
        return self.format.directories[self.format.directories.index(level) + 1]

    def _mark(self, table: Table, word: int, count: int) -> None:
        """Record words to write. Words directly after the last recorded ones extend that record."""
        if table.fresh:
            return
        if self._dirty:
            last, first, many = self._dirty[-1]
            if last is table and first + many == word:
                self._dirty[-1] = (table, first, many + count)
                return
        self._dirty.append((table, word, count))

    def _retire(self, table: Table) -> None:
        for one in _family(table):
            one.gone = True
            self._retired.append(one)

    def _commit(self) -> None:
        """Write all changes.

        ORDER: a table is complete in the card's memory before the entry that points to it. Otherwise a walk would read
        the old contents of that memory.
        """
        for table in self._fresh:
            if not table.gone:
                self._store(table, 0, len(table.words))
        if self._fresh:
            self._barrier()
        # A range that was cleared and filled is recorded twice; the first write has its last contents.
        for table, word, count in dict.fromkeys(self._dirty):
            if not table.gone:
                self._store(table, word, count)
        for table in self._fresh:
            table.fresh = False
        self._fresh.clear()
        self._dirty.clear()

    def _store(self, table: Table, word: int, count: int) -> None:
        """Write words of a table.

        ORDER: where an entry of PD0 gets pointers, the second word comes first. If the first one was a page of 2 MiB,
        the MMU uses that until the first word changes, and finds both tables then.
        """
        words, end, start = table.words, word + count, word
        if table.level.words == 2:
            for low in range(word + word % 2, end - 1, 2):
                if words[low] and not words[low] & IS_PAGE and words[low + 1]:
                    self._write_run(table, start, low)
                    self._write_run(table, low + 1, low + 2)
                    self._write_run(table, low, low + 1)
                    start = low + 2
        self._write_run(table, start, end)

    def _write_run(self, table: Table, start: int, end: int) -> None:
        if start < end:
            self._write(table.vram_pa + start * WORD_BYTES, table.words[start:end].tobytes())


def _room(level: Level) -> int:
    """Return the bytes that a table of a level is allocated: whole pages, but for tables of big pages."""
    return level.table_bytes if level.table_bytes < TABLE_ALIGN_BYTES and level.page else TABLE_ALIGN_BYTES


def _family(table: Table) -> Iterator[Table]:
    """Yield a table and all tables below it."""
    yield table
    for child in table.children.values():
        yield from _family(child)
