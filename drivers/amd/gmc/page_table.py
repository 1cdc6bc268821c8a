"""The page tables of one address space of a Radeon: four levels of 4 KiB tables in VRAM. Each level translates 9 bits
of the address; an address has 48 bits.

Only the driver writes the tables; the card's walker reads them. The driver keeps a copy of each table, so that it never
reads back over the bus, and writes changes as runs of entries. A TLB may still hold translations that were valid
before: `map` and `unmap` return whether it may. After the caller's flush, `settle` frees the pages of tables that are
no longer used. Source: amdgpu amdgpu_vm_pt.c (levels, huge pages, fragments), amdgpu_vm.c (when to flush; tables are
cleared and committed before they are linked).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from ringup.autogen.amd.vm import AMDGPU_VM_PDB0, AMDGPU_VM_PDB1, AMDGPU_VM_PDB2, AMDGPU_VM_PTB
from ringup.drivers.amd.gmc.pte import (
    ADDRESS,
    ADDRESS_BITS,
    ENTRIES,
    ENTRY_BYTES,
    FRAGMENT,
    LEVELS,
    PAGE_BYTES,
    PAGE_FRAGMENTS,
    PDE,
    SPAN_BYTES,
    TABLE_BYTES,
    VALID,
    Format,
    Kind,
)
from ringup.errors import DeviceFault, OutOfMemory
from ringup.firmware.stated import named, pattern

# the address range of a page table (PTB)
PTB_BYTES = SPAN_BYTES[AMDGPU_VM_PDB0]
VA_END = 1 << ADDRESS_BITS
LEVEL_NAMES = {AMDGPU_VM_PDB2: "PDB2", AMDGPU_VM_PDB1: "PDB1", AMDGPU_VM_PDB0: "PDB0", AMDGPU_VM_PTB: "PTB"}
# the tables that an operation may need to split a leaf of 1 GiB at both ends of a range
SPLITS = 4
Run = tuple[int, int]  # address, size in bytes


class TableMemory(Protocol):
    """The CPU's access to VRAM. A write of one entry (8 bytes, aligned) must be atomic."""

    def write(self, vram_pa: int, data: bytes) -> None:
        """Store bytes in VRAM."""
        ...

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Read bytes of VRAM."""
        ...


class Leaf(NamedTuple):
    """A page that a walk finds. `address`: vram_pa or bus_addr of its first byte. `fragment_bytes`: the range that a
    TLB may hold as one translation.
    """

    gpu_va: int
    address: int
    size_bytes: int
    fragment_bytes: int
    kind: Kind
    writable: bool
    executable: bool


class Table:
    """The driver's copy of one table."""

    __slots__ = ("children", "entries", "fresh", "gone", "level", "live", "vram_pa")

    def __init__(self, vram_pa: int, level: int, entries: array[int], live: int) -> None:
        self.vram_pa, self.level, self.entries = vram_pa, level, entries
        # how many entries are valid
        self.live = live
        self.children: dict[int, Table] = {}
        # it is not in VRAM yet, and no entry points to it
        self.fresh = True
        # no entry points to it any more
        self.gone = False


def _nothing() -> None:
    """Do nothing: the barrier for memory that keeps the order of writes by itself."""


class PageTables:
    """The page tables of one address space. `root_pa`: a page for the root that belongs to the caller; by default
    `alloc_page` gives one.

    `alloc_page` returns the vram_pa of a 4 KiB page that the CPU reaches. `free_page` frees such a page. `vram_base` is
    the address of VRAM's first byte in entries (MMMC_VM_FB_OFFSET). `barrier` makes earlier writes reach VRAM before
    later ones (an HDP flush). After `map` and `unmap`, the caller makes the writes reach VRAM, flushes the TLB if the
    call returned True, then calls `settle`.
    """

    def __init__(
        self,
        vram: TableMemory,
        alloc_page: Callable[[], int],
        row: Format,
        root_pa: int | None = None,
        *,
        free_page: Callable[[int], None],
        vram_base: int = 0,
        barrier: Callable[[], None] = _nothing,
    ) -> None:
        self.row, self.vram_base = row, vram_base
        self._vram, self._alloc_page, self._free_page, self._barrier = vram, alloc_page, free_page, barrier
        self._empty = [array("Q", [entry]) * ENTRIES for entry in row.empty]
        self._owns_root = root_pa is None
        self._spare: list[int] = []
        self._retired: list[int] = []
        # entries to write: table, first entry, how many
        self._dirty: list[tuple[Table, int, int]] = []
        # new tables, which are written as a whole
        self._fresh: list[Table] = []
        # cached results of Format.leaf
        self._flags: dict[tuple[Kind, bool, bool, bool], tuple[int, ...]] = {}
        # whether a TLB may hold translations that are no longer valid
        self._stale = False
        # the page table of the page that was mapped last
        self._ptb: Table
        self._top_up()
        try:
            root = alloc_page() if root_pa is None else root_pa
        except OutOfMemory:
            self._give_back(self._spare)
            raise
        self._root = Table(root, AMDGPU_VM_PDB2, self._empty[AMDGPU_VM_PDB2][:], 0)
        self._store(self._root, 0, ENTRIES)
        self._root.fresh = False

    @property
    def root_pa(self) -> int:
        """vram_pa of the root directory."""
        return self._root.vram_pa

    @property
    def base(self) -> int:
        """The value for CONTEXTn_PAGE_TABLE_BASE_ADDR (both halves). Source: amdgpu_gmc_pd_addr."""
        return int(PDE(self.vram_base + self._root.vram_pa, valid=1))

    @property
    def tables(self) -> int:
        """How many tables there are, the root included."""
        return sum(1 for _ in _family(self._root))

    def map(
        self,
        gpu_va: int,
        runs: Iterable[Run],
        kind: Kind,
        *,
        writable: bool = True,
        executable: bool = True,
        cached: bool = True,
    ) -> bool:
        """Map pieces of memory one after another, from `gpu_va` up. They replace earlier mappings. All pieces are whole
        4 KiB pages.

        Returns whether a TLB may hold translations that are no longer valid. Raises `OutOfMemory` if there is no page
        for a table. The whole range is unmapped then, and the caller must flush as if the call had returned True.
        """
        pieces = self._checked(runs, kind)
        end = gpu_va + sum(size for _, size in pieces)
        self._check(gpu_va, end)
        key = (kind, writable, executable, cached)
        flags = self._flags.get(key)
        if flags is None:
            flags = self._flags[key] = self.row.leaf(kind, writable=writable, executable=executable, cached=cached)
        self._stale = False
        self._top_up()
        # only in the copy: in VRAM an entry changes from the old page to the new one by one write
        self._clear(self._root, gpu_va, end)
        try:
            self._fill_all(gpu_va, pieces, flags)
        except OutOfMemory:
            self._clear(self._root, gpu_va, end)
            self._commit()
            raise
        self._commit()
        return self._stale

    def unmap(self, gpu_va: int, size_bytes: int) -> bool:
        """Unmap every page of the range. Pages that extend beyond it are split. Returns whether anything was mapped in
        the range.

        Splitting large pages needs up to four tables. Raises `OutOfMemory` if there are none; part of the range is
        unmapped then.
        """
        self._check(gpu_va, gpu_va + size_bytes)
        self._stale = False
        with suppress(OutOfMemory):
            self._top_up()
        try:
            self._clear(self._root, gpu_va, gpu_va + size_bytes)
        finally:
            self._commit()
        return self._stale

    def settle(self) -> None:
        """Free the pages of tables that are no longer used. Call it only after a TLB flush of this address space."""
        self._give_back(self._retired)

    def walk(self, gpu_va: int) -> Leaf | None:
        """Find the page of an address as the card does, by a walk through the tables in VRAM. None if the walk ends at
        an entry that is not valid.
        """
        return walk(self._vram.read, self.row, self._root.vram_pa, self.vram_base, gpu_va, 1 << ADDRESS_BITS)

    def close(self) -> None:
        """Free all pages. No hub may use the root any more. May be called twice."""
        if self._root.gone:
            return
        self._retire(self._root)
        if not self._owns_root:
            self._retired.remove(self._root.vram_pa)
        self._give_back(self._retired)
        self._give_back(self._spare)

    def _checked(self, runs: Iterable[Run], kind: Kind) -> list[Run]:
        """Check pieces and join adjacent ones. Return them with the addresses for entries."""
        pieces: list[Run] = []
        base = self.vram_base if kind == "vram" else 0
        limit = 1 << (ADDRESS_BITS if kind == "vram" else self.row.bus_bits)
        for address, size in runs:
            if address % PAGE_BYTES or size % PAGE_BYTES or size <= 0 or address < 0 or address + size > limit:
                raise ValueError(
                    f"a piece to map is whole pages of 4 KiB below {limit:#x} ({kind}),"
                    f" not {size:#x} bytes at {address:#x}"
                )
            if pieces and sum(pieces[-1]) == base + address:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + size)
            else:
                pieces.append((base + address, size))
        return pieces

    def _check(self, gpu_va: int, end: int) -> None:
        if self._root.gone:
            raise ValueError(f"mapping or unmapping at {gpu_va:#x}: these page tables are closed")
        if gpu_va % PAGE_BYTES or end % PAGE_BYTES or not 0 <= gpu_va < end <= VA_END:
            raise ValueError(f"a range is whole pages of 4 KiB below {VA_END:#x}, not {gpu_va:#x} to {end:#x}")

    def _top_up(self) -> None:
        """Allocate as many spare pages as splits of leaves can need, so that an operation does not fail between two
        splits.
        """
        while len(self._spare) < SPLITS:
            self._spare.append(self._alloc_page())

    def _fill_all(self, gpu_va: int, pieces: list[Run], flags: tuple[int, ...]) -> None:
        """Map pieces one after another. A piece that ends in the page table of the piece before it needs no walk from
        the root.
        """
        ptb_end = gpu_va
        for address, size in pieces:
            if gpu_va + size <= ptb_end:
                self._put(self._ptb, gpu_va, address, size // PAGE_BYTES, flags)
            else:
                self._fill(self._root, gpu_va, address, size, flags)
                ptb_end = -(-(gpu_va + size) // PTB_BYTES) * PTB_BYTES
            gpu_va += size

    def _put(self, table: Table, gpu_va: int, address: int, count: int, flags: tuple[int, ...]) -> None:
        """Fill empty entries of a table."""
        index = gpu_va // SPAN_BYTES[table.level] % ENTRIES
        table.live += count
        table.entries[index : index + count] = self._pages(table.level, gpu_va, address, count, flags[table.level])
        self._mark(table, index, count)

    def _fill(self, table: Table, gpu_va: int, address: int, size_bytes: int, flags: tuple[int, ...]) -> None:
        """Map one piece within `table`, where nothing is mapped: by entries of `table` where whole entries fit, else by
        tables below it.
        """
        level, span = table.level, SPAN_BYTES[table.level]
        is_leaf_level = level >= self.row.largest_leaf
        if level == AMDGPU_VM_PTB:
            self._ptb = table
        end = gpu_va + size_bytes
        while gpu_va < end:
            index = gpu_va // span % ENTRIES
            if is_leaf_level and not (gpu_va | address) % span and end - gpu_va >= span:
                count = min((end - gpu_va) // span, ENTRIES - index)
                self._put(table, gpu_va, address, count, flags)
                step = count * span
            else:
                step = min(span - gpu_va % span, end - gpu_va)
                self._fill(self._child(table, index), gpu_va, address, step, flags)
            gpu_va += step
            address += step

    def _clear(self, table: Table, gpu_va: int, end: int) -> None:
        """Clear a range within `table`. Tables that become empty are retired."""
        span = SPAN_BYTES[table.level]
        while gpu_va < end:
            index = gpu_va // span % ENTRIES
            if not gpu_va % span and end - gpu_va >= span:
                count = min((end - gpu_va) // span, ENTRIES - index)
                self._drop(table, index, count)
                gpu_va += count * span
                continue
            step = min(span - gpu_va % span, end - gpu_va)
            if table.entries[index] & VALID:
                child = self._child(table, index)
                self._clear(child, gpu_va, gpu_va + step)
                if not child.live:
                    self._drop(table, index, 1)
            gpu_va += step

    def _drop(self, table: Table, index: int, count: int) -> None:
        """Clear entries: split fragments that extend beyond them, and retire the tables below them."""
        valid = count - table.entries[index : index + count].count(self.row.empty[table.level])
        if not valid:
            return
        self._stale = True
        self._cut(table, index)
        self._cut(table, index + count)
        for i in range(index, index + count) if table.children else ():
            if i in table.children:
                self._retire(table.children.pop(i))
        table.live -= valid
        table.entries[index : index + count] = self._empty[table.level][:count]
        self._mark(table, index, count)

    def _cut(self, table: Table, index: int) -> None:
        """Split the fragment that extends across the boundary before entry `index`, if there is one.

        The size of a fragment is a power of two. It is aligned and within one table. After a TLB has read one entry of
        a fragment, it may translate all of the fragment.
        """
        if index == ENTRIES:
            return
        entry, span = table.entries[index], SPAN_BYTES[table.level]
        if not entry & VALID or index in table.children:
            return
        count = (PAGE_BYTES << self.row.pte(entry).fragment) // span
        first = index - index % count
        if first == index:
            return
        flags = entry & ~(ADDRESS | FRAGMENT)
        address = table.entries[first] & ADDRESS
        for at, many in ((first, index - first), (index, first + count - index)):
            # the offset in the table is enough here: the bits of the address above the table do not change how the
            # range is divided into aligned powers of two
            pages = self._pages(table.level, at * span, address + (at - first) * span, many, flags)
            table.entries[at : at + many] = pages
        self._mark(table, first, count)

    def _pages(self, level: int, gpu_va: int, address: int, count: int, flags: int) -> array[int]:
        """Build entries for contiguous memory. Each has the largest fragment that is aligned in both address spaces and
        within the range.
        """
        span = SPAN_BYTES[level]
        if count == 1:
            return array("Q", (address | flags | self.row.fragments[PAGE_FRAGMENTS[level]],))
        pages = array("Q")
        rest = count * span
        # the two addresses are never both aligned to a larger power of two
        most = _lowest_bit(gpu_va ^ address)
        while rest:
            fragment_bytes = min(_lowest_bit(gpu_va | address), 1 << rest.bit_length() - 1)
            size = rest - rest % most if fragment_bytes == most else fragment_bytes
            first = address | flags | self.row.fragments[(fragment_bytes // PAGE_BYTES).bit_length() - 1]
            pages.extend(range(first, first + size, span))
            gpu_va += size
            address += size
            rest -= size
        return pages

    def _child(self, table: Table, index: int) -> Table:
        """Return the table below an entry: the present one, or a new one. If the entry is a leaf, the new table maps
        the same memory.
        """
        child = table.children.get(index)
        if child is not None:
            return child
        entry, level = table.entries[index], table.level + 1
        if entry & VALID:
            self._cut(table, index)
            self._cut(table, index + 1)
            flags = entry & ~(ADDRESS | FRAGMENT)
            if level == (AMDGPU_VM_PDB0 if self.row.further else AMDGPU_VM_PTB) and not self.row.last_level_marked:
                flags &= ~self.row.pte.pde_pte.mask
            pages = self._pages(level, 0, entry & ADDRESS, ENTRIES, flags)
            child = Table(self._spare.pop() if self._spare else self._alloc_page(), level, pages, ENTRIES)
        else:
            child = Table(self._alloc_page(), level, self._empty[level][:], 0)
            table.live += 1
        table.children[index] = child
        table.entries[index] = int(PDE(self.vram_base + child.vram_pa, valid=1)) | self.row.pointers[table.level]
        self._fresh.append(child)
        self._mark(table, index, 1)
        return child

    def _mark(self, table: Table, index: int, count: int) -> None:
        """Record entries to write. Entries directly after the last recorded ones extend that record."""
        if table.fresh:
            return
        if self._dirty:
            last, first, many = self._dirty[-1]
            if last is table and first + many == index:
                self._dirty[-1] = (table, first, many + count)
                return
        self._dirty.append((table, index, count))

    def _retire(self, table: Table) -> None:
        for one in _family(table):
            one.gone = True
            self._retired.append(one.vram_pa)

    def _commit(self) -> None:
        """Write all changes. ORDER: a table is complete in VRAM before the entry that points to it. Otherwise a walk
        would read the old contents of the page.
        """
        for table in self._fresh:
            if not table.gone:
                self._store(table, 0, ENTRIES)
        if self._fresh:
            self._barrier()
        for table, index, count in self._dirty:
            if not table.gone:
                self._store(table, index, count)
        for table in self._fresh:
            table.fresh = False
        self._fresh.clear()
        self._dirty.clear()

    def _store(self, table: Table, index: int, count: int) -> None:
        self._vram.write(table.vram_pa + index * ENTRY_BYTES, table.entries[index : index + count].tobytes())

    def _give_back(self, pages: list[int]) -> None:
        while pages:
            self._free_page(pages.pop())


def walk(
    read: Callable[[int, int], bytes], row: Format, root_pa: int, vram_base: int, gpu_va: int, vram_bytes: int
) -> Leaf | None:
    """Find the page of an address in the tables with the root at `root_pa`. None if the walk ends at an entry that is
    not valid.

    `read(vram_pa, size_bytes)` returns bytes of VRAM, which has `vram_bytes`. `vram_base`: the address of VRAM's first
    byte in entries. Tables must be in VRAM. Raises `DeviceFault` for an entry that points outside the memory: then the
    tables are damaged. The error names the level, the entry and its value.
    """
    table_pa = root_pa
    for level in LEVELS:
        span = SPAN_BYTES[level]
        at = table_pa + gpu_va // span % ENTRIES * ENTRY_BYTES
        what = f"the page tables are damaged: level {LEVEL_NAMES[level]}"
        if not 0 <= table_pa <= vram_bytes - TABLE_BYTES or table_pa % PAGE_BYTES:
            raise DeviceFault(f"{what}: its table would lie at {table_pa:#x} of VRAM, which has {vram_bytes:#x} bytes")
        value = int.from_bytes(read(at, ENTRY_BYTES), "little")
        entry = row.pte(value)
        if not entry.valid:
            return None
        what = f"{what}, entry at {at:#x} of VRAM for {gpu_va:#x} holds {named(value, 64)}"
        if pattern(value, 64):
            raise DeviceFault(what)
        if row.is_page(entry, level):
            start = (entry & ADDRESS) - (0 if entry.system else vram_base)
            limit = 1 << row.bus_bits if entry.system else vram_bytes
            if not 0 <= start <= limit - span or level < row.largest_leaf:
                raise DeviceFault(f"{what}: a page of {span:#x} bytes at {start:#x}, which is not there")
            return Leaf(
                gpu_va - gpu_va % span,
                start,
                span,
                PAGE_BYTES << entry.fragment,
                "host" if entry.system else "vram",
                bool(entry.writeable),
                bool(entry.executable),
            )
        if entry.system:
            raise DeviceFault(f"{what}: it points to a table in host memory, where no driver of these cards has any")
        table_pa = (entry & PDE.address.mask) - vram_base
    return None


def _family(table: Table) -> Iterator[Table]:
    """Yield a table and all tables below it."""
    yield table
    for child in table.children.values():
        yield from _family(child)


def _lowest_bit(number: int) -> int:
    """Return the largest power of two that divides `number`, at most the size of the address space."""
    return (number | VA_END) & -(number | VA_END)
