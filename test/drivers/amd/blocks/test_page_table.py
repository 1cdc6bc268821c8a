"""Page tables compared with what an independent walker reads. The walker is written from the entry formats in
gmc_v11_0.c and gmc_v12_0.c and the bits of amdgpu_vm.h.
"""

from __future__ import annotations

import random
import struct

import pytest

from ringup.autogen.amd import vm
from ringup.drivers.amd.gmc.page_table import PageTables
from ringup.drivers.amd.gmc.pte import GFX11, GFX12
from ringup.errors import OutOfMemory

PAGE, MIB, GIB = 4096, 1 << 20, 1 << 30
VRAM_BYTES = 8 * MIB
# A valid page in every format: what memory may hold before it becomes a page table.
GARBAGE = 0x0000_0012_3456_7475
ADDRESS = 0x0000_FFFF_FFFF_F000  # bits 47:12
VALID, SYSTEM, SNOOPED, EXECUTE, READ, WRITE = 1, 2, 4, 0x10, 0x20, 0x40
P_BIT = {GFX11: 1 << 54, GFX12: 1 << 63}
MTYPE_LOW = {GFX11: 48, GFX12: 54}


class Ram:
    """VRAM for page tables, full of garbage. It counts pages that are allocated and freed."""

    def __init__(self, size_bytes=VRAM_BYTES):
        self.bytes = bytearray(struct.pack("<Q", GARBAGE) * (size_bytes // 8))
        self.pages = list(range(0, size_bytes, PAGE))
        self.out, self.writes, self.after_write = set(), 0, None

    def alloc(self):
        if not self.pages:
            raise OutOfMemory("no page")
        page = self.pages.pop()
        self.out.add(page)
        return page

    def free(self, page):
        self.out.remove(page)
        self.pages.append(page)

    def write(self, vram_pa, data):
        assert vram_pa // PAGE * PAGE in self.out
        self.bytes[vram_pa : vram_pa + len(data)] = data
        self.writes += 1
        if self.after_write:
            self.after_write()

    def read(self, vram_pa, size_bytes):
        return bytes(self.bytes[vram_pa : vram_pa + size_bytes])


class Walker:
    """Read the tables as hardware does, from the root down."""

    def __init__(self, ram, row, root, base=0):
        self.ram, self.row, self.root, self.base = ram, row, root, base

    def leaves(self, table=None, level=0, va=0):
        """Yield every valid page: (va, bytes, entry)."""
        table = self.root if table is None else table
        span = (512 * GIB, GIB, 2 * MIB, PAGE)[level]
        for slot, entry in enumerate(struct.unpack_from("<512Q", self.ram.bytes, table)):
            if not entry & VALID:
                continue
            at = va + slot * span
            is_page = level == 3 or entry & P_BIT[self.row]
            if self.row is GFX12 and level == 3:
                assert entry >> 63, "a GFX12 page says that it is one"
            if self.row is GFX11 and level == 3:
                assert not entry & P_BIT[GFX11]
            if is_page:
                yield at, span, entry
            else:
                assert entry & 0x3F == VALID, "a directory entry leads into VRAM"
                yield from self.leaves((entry & ADDRESS) - self.base, level + 1, at)

    def pages(self):
        """Return {va of a page: (address, flags)} after checking every fragment."""
        found, blocks = {}, []
        for va, span, entry in self.leaves():
            address, fragment = entry & ADDRESS, entry >> 7 & 31
            flags = entry & ~(ADDRESS | 0xF80 | P_BIT[self.row])
            assert address % span == 0
            assert PAGE << fragment >= span
            blocks.append((va, PAGE << fragment, address, flags))
            for offset in range(0, span, PAGE):
                found[va + offset] = (address + offset, flags)
        # Whatever a cache concludes from this one entry holds for the whole block.
        for va, size, address, flags in blocks:
            first, base = va // size * size, address // size * size
            assert va - first == address - base
            for offset in (*range(0, size, max(size // 32, PAGE)), size - PAGE):
                assert found.get(first + offset) == (base + offset, flags)
        return found


class Space:
    """Page tables, their memory and the walker."""

    def __init__(self, row, base=0, ram=None):
        self.ram = ram or Ram()
        self.barriers = 0
        self.tables = PageTables(
            self.ram, self.ram.alloc, row, free_page=self.ram.free, vram_base=base, barrier=self.barrier
        )
        self.walker = Walker(self.ram, row, self.tables.root_pa, base)

    def barrier(self):
        self.barriers += 1


@pytest.fixture(params=[GFX11, GFX12], ids=lambda row: row.name)
def row(request):
    return request.param


@pytest.fixture
def space(row):
    return Space(row)


def flags_of(row, kind, writable=True, executable=True, cached=True):
    host = (SYSTEM | SNOOPED) if kind == "host" else 0
    # MTYPE_NC, MTYPE_UC of soc21_enum.h
    mtype = (0 if cached else 3) << MTYPE_LOW[row]
    return VALID | READ | host | writable * WRITE | executable * EXECUTE | mtype


def test_entries_have_the_bits_of_the_kernel_header(row):
    gfx12 = row is GFX12
    assert int(row.pte(pde_pte=1)) == (vm.AMDGPU_PDE_PTE_GFX12 if gfx12 else vm.AMDGPU_PDE_PTE)
    assert row.pte.mtype.mask == (vm.AMDGPU_PTE_MTYPE_GFX12_MASK if gfx12 else vm.AMDGPU_PTE_MTYPE_NV10_MASK)
    assert int(row.pte(prt=1)) == (vm.AMDGPU_PTE_PRT_GFX12 if gfx12 else vm.AMDGPU_PTE_PRT)
    high, low = vm.AMDGPU_PTE_FRAG
    assert (row.pte.fragment.hi, row.pte.fragment.lo) == (high, low)
    for name in ("VALID", "SYSTEM", "SNOOPED", "TMZ", "EXECUTABLE", "READABLE", "WRITEABLE"):
        assert int(row.pte(**{name.lower(): 1})) == getattr(vm, f"AMDGPU_PTE_{name}")
    assert row.empty[:3] == (int(row.pte(pde_pte=1)),) * 3
    assert row.empty[3] == vm.AMDGPU_PTE_EXECUTABLE


def test_two_mebibytes_of_vram_are_one_entry_as_amdgpu_writes_it():
    space = Space(GFX11)
    space.tables.map(0x1_0000_0000, [(2 * MIB, 2 * MIB)], "vram")
    ((va, span, entry),) = space.walker.leaves()
    # 0x4f1 is the flags that Linux's driver writes for VRAM (fragment 9, write, read, execute, valid). Bit 54 marks a
    # page in a directory.
    assert (va, span, entry) == (0x1_0000_0000, 2 * MIB, 1 << 54 | 2 * MIB | 0x4F1)


def test_a_large_range_is_cut_into_the_largest_pages_and_fragments(space):
    start, size = 3 * GIB - 2 * MIB - 5 * PAGE, GIB + 4 * MIB + 6 * PAGE
    space.tables.map(start, [(start, size)], "host")
    leaves = [(va, span, entry >> 7 & 31) for va, span, entry in space.walker.leaves()]
    near = [(va - start, span, fragment) for va, span, fragment in leaves]
    page, huge, giant = PAGE, 2 * MIB, GIB
    assert near[:5] == [(i * page, page, fragment) for i, fragment in enumerate((0, 2, 2, 2, 2))]
    assert near[5:7] == [(5 * page, huge, 9), (huge + 5 * page, giant, 18)]
    tail = huge + giant + 5 * page
    assert near[7:] == [(tail, huge, 9), (tail + huge, page, 0)]
    assert len(space.walker.pages()) == size // PAGE


def test_pieces_that_are_never_aligned_together_have_small_fragments(space):
    space.tables.map(64 * MIB, [(16 * PAGE, 256 * PAGE)], "vram")
    # 64 KiB: where both addresses are aligned
    assert {entry >> 7 & 31 for _, _, entry in space.walker.leaves()} == {4}
    space.walker.pages()


def test_neighbouring_pieces_of_memory_are_joined(space):
    space.tables.map(4 * MIB, [(4 * MIB + i * 64 * PAGE, 64 * PAGE) for i in range(16)], "host")
    assert [span for _, span, _ in space.walker.leaves()] == [2 * MIB, 2 * MIB]


@pytest.mark.parametrize("kind", ["vram", "host"])
@pytest.mark.parametrize("rights", [{}, {"writable": False}, {"executable": False}, {"cached": False}])
def test_rights_and_caching_are_in_every_entry(space, row, kind, rights):
    space.tables.map(6 * MIB - PAGE, [(2 * MIB - PAGE, 2 * MIB + 2 * PAGE)], kind, **rights)
    assert {flags for _, flags in space.walker.pages().values()} == {flags_of(row, kind, **rights)}
    leaf = space.tables.walk(6 * MIB + 0x123)
    assert (leaf.gpu_va, leaf.address, leaf.size_bytes, leaf.kind) == (6 * MIB, 2 * MIB, 2 * MIB, kind)
    assert (leaf.writable, leaf.executable) == (rights.get("writable", True), rights.get("executable", True))


def test_vram_addresses_start_at_its_physical_base(row):
    space = Space(row, base=0x10_0000_0000)
    assert space.tables.base == 0x10_0000_0000 + space.tables.root_pa + 1  # the valid bit
    space.tables.map(GIB, [(PAGE, PAGE)], "vram")
    space.tables.map(GIB + PAGE, [(PAGE, PAGE)], "host")
    pages = space.walker.pages()
    assert [pages[GIB][0], pages[GIB + PAGE][0]] == [0x10_0000_1000, PAGE]
    assert [space.tables.walk(GIB).address, space.tables.walk(GIB + PAGE).address] == [PAGE, PAGE]
    assert space.tables.walk(GIB - PAGE) is None


def random_operation(rnd):
    """(va, size) to unmap, or (va, runs, kind, rights) to map."""
    where = 64 * MIB if rnd.random() < 0.8 else 512 * GIB - 4 * MIB
    va = where + rnd.choice((PAGE, 16 * PAGE, 2 * MIB)) * rnd.randrange(0, 4)
    if rnd.random() < 0.5:
        return va, rnd.choice((PAGE, 7 * PAGE, 2 * MIB, 4 * MIB + PAGE))
    if rnd.random() < 0.5:
        count = rnd.randint(1, 6)
        runs = [(rnd.randrange(1, 1 << 16) * PAGE, rnd.choice((1, 1, 2, 8)) * PAGE) for _ in range(count)]
    else:
        align = rnd.choice((PAGE, 16 * PAGE, 2 * MIB))
        runs = [(rnd.randrange(1, 64) * align, rnd.choice((align, 3 * align, 2 * MIB + 5 * PAGE)))]
    rights = {"writable": rnd.random() < 0.8, "cached": rnd.random() < 0.8}
    return va, runs, rnd.choice(("vram", "host")), rights


def change(model, row, va, what, kind=None, rights=None):
    """Apply the operation to a dictionary; return whether anything was mapped there."""
    if kind is None:
        gone = [model.pop(page, None) for page in range(va, va + what, PAGE)]
        return any(gone)
    covered = [address + offset for address, size in what for offset in range(0, size, PAGE)]
    new = {va + i * PAGE: (address, flags_of(row, kind, **rights)) for i, address in enumerate(covered)}
    stale = not model.keys().isdisjoint(new)
    model.update(new)
    return stale


def carry_out(tables, va, what, kind=None, rights=None):
    return tables.unmap(va, what) if kind is None else tables.map(va, what, kind, **rights)


@pytest.mark.seeds(1)
def test_random_operations_leave_what_a_dictionary_says(space, row, seed):
    rnd, model = random.Random(seed), {}
    for number in range(2500):
        operation = random_operation(rnd)
        assert carry_out(space.tables, *operation) == change(model, row, *operation)
        space.tables.settle()
        if number % 25 == 0:
            assert space.walker.pages() == model
    space.tables.unmap(0, 1 << 48)
    space.tables.settle()
    assert list(space.walker.leaves()) == []
    assert space.tables.tables == 1
    space.tables.close()
    assert space.ram.out == set()


def test_at_no_write_does_a_walk_see_anything_but_the_old_page_or_the_new(space, row):
    rnd, old, new = random.Random(11), {}, {}

    def look():
        for va, span, entry in space.walker.leaves():
            flags = entry & ~(ADDRESS | 0xF80 | P_BIT[row])
            for offset in range(0, span, PAGE):
                page = ((entry & ADDRESS) + offset, flags)
                assert page in (old.get(va + offset), new.get(va + offset))

    space.ram.after_write = look
    for _ in range(150):
        operation = random_operation(rnd)
        change(new, row, *operation)
        carry_out(space.tables, *operation)
        space.tables.settle()
        old = dict(new)
    assert old


def test_a_table_is_in_vram_before_the_entry_that_leads_to_it(space):
    seen = []
    space.ram.after_write = lambda: seen.append((space.barriers, len(list(space.walker.leaves()))))
    space.tables.map(GIB, [(PAGE, PAGE)], "vram")
    # Expected writes: three tables, the barrier, the entry of the root.
    assert seen == [(0, 0), (0, 0), (0, 0), (1, 1)]
    seen.clear()
    space.tables.map(GIB + PAGE, [(5 * PAGE, PAGE)], "vram")
    assert seen == [(1, 2)]


def test_fresh_addresses_need_no_flush_and_used_ones_do(space):
    assert not space.tables.map(GIB, [(2 * MIB, 4 * MIB)], "vram")
    assert not space.tables.map(GIB + 4 * MIB, [(PAGE, PAGE)], "vram")
    assert space.tables.map(GIB, [(PAGE, PAGE)], "vram")
    assert space.tables.unmap(GIB + 4 * MIB, PAGE)
    assert not space.tables.unmap(GIB + 4 * MIB, PAGE)
    assert not space.tables.map(GIB + 4 * MIB, [(PAGE, PAGE)], "vram")


def test_pages_of_tables_come_back_only_after_the_flush(space):
    before = set(space.ram.out)
    space.tables.map(GIB, [(PAGE, PAGE)], "vram")
    space.tables.unmap(GIB, PAGE)
    assert len(space.ram.out - before) == 3
    space.tables.settle()
    assert space.ram.out == before


def test_taking_away_a_part_leaves_the_rest_of_a_large_page(space):
    space.tables.map(GIB, [(GIB, GIB)], "host")
    space.tables.unmap(GIB + 10 * MIB, 3 * PAGE)
    pages = space.walker.pages()
    assert len(pages) == (GIB // PAGE) - 3
    assert all(va == address for va, (address, _) in pages.items())
    assert space.tables.tables == 4
    assert space.tables.walk(GIB + 10 * MIB) is None


def test_entries_go_out_in_long_runs(space):
    space.tables.map(GIB, [(PAGE, PAGE)], "vram")
    space.ram.writes = 0
    space.tables.map(GIB + PAGE, [(i * 2 * PAGE, PAGE) for i in range(2, 302)], "host")
    assert space.ram.writes == 1
    space.tables.unmap(GIB + PAGE, 200 * PAGE)
    assert space.ram.writes == 2
    # 200 entries of a table that already exists.
    space.tables.map(GIB + 2 * MIB, [(0, 400 * MIB)], "vram")
    assert space.ram.writes == 3


@pytest.mark.parametrize("pages", range(5, 9))
def test_without_pages_for_tables_nothing_is_left_behind(row, pages):
    space = Space(row, ram=Ram(pages * PAGE))
    before = set(space.ram.out)
    with pytest.raises(OutOfMemory):
        space.tables.map(512 * GIB - 4 * PAGE, [(i * 2 * PAGE, PAGE) for i in range(1, 9)], "vram")
    space.tables.settle()
    assert list(space.walker.leaves()) == []
    assert space.ram.out == before
    space.tables.close()
    assert space.ram.out == set()


@pytest.mark.parametrize(
    ("va", "runs"),
    [
        (PAGE + 8, [(0, PAGE)]),
        (0, [(8, PAGE)]),
        (0, [(0, PAGE + 8)]),
        (0, [(0, 0)]),
        (0, []),
        ((1 << 48) - PAGE, [(0, 2 * PAGE)]),
        (0, [(1 << 44, PAGE)]),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(space, va, runs):
    writes = space.ram.writes
    with pytest.raises(ValueError, match="whole pages of 4 KiB"):
        space.tables.map(va, runs, "host")
    assert space.ram.writes == writes


def test_a_root_of_the_callers_stays_the_callers(row):
    ram = Ram()
    root = ram.alloc()
    tables = PageTables(ram, ram.alloc, row, root, free_page=ram.free)
    tables.map(GIB, [(PAGE, PAGE)], "vram")
    assert tables.root_pa == root
    tables.close()
    assert ram.out == {root}
