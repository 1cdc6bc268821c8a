"""Page tables of NVIDIA's GPUs: the bytes that the driver writes, walked by the bit ranges of the public headers.

The walker here shares nothing with the driver. Bits are those of OGKM pascal/gp100/dev_mmu.h (NV_MMU_VER2_*) and
hopper/gh100/dev_mmu.h (NV_MMU_VER3_*), levels those of kern_gmmu_fmt_gp10x.c and kern_gmmu_fmt_gh10x.c.
"""

import random
from typing import NamedTuple

import pytest

from ringup.drivers.nv.mmu.formats import FORMATS, VER2, VER3, Flags
from ringup.drivers.nv.mmu.page_tables import PageTables
from ringup.errors import OutOfMemory

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# version: (high, low) bit of each directory's index, root first; then PD0's
DIRECTORIES = {2: ((48, 47), (46, 38), (37, 29)), 3: ((56, 56), (55, 47), (46, 38), (37, 29))}
PD0 = (28, 21)


def bits(value, high, low):
    return value >> low & (1 << high - low + 1) - 1


class Seen(NamedTuple):
    """A page that a walk found. `address` is that of the byte that was asked for."""

    address: int
    page_bytes: int
    aperture: str
    kind: int
    volatile: bool
    read_only: bool
    privileged: bool
    atomics: bool
    peer: int


class Memory:
    """The card's memory as the driver sees it: an allocator of tables, and bytes."""

    def __init__(self, limit=1 << 30):
        self.bytes = bytearray()
        self.base = 0x1000_0000
        self.owned = {}
        self.limit = limit
        self.writes = []
        self.free_list = {}

    def alloc(self, size):
        if sum(self.owned.values()) + size > self.limit:
            raise OutOfMemory("no memory for a table")
        assert size in (4096, 256)
        if self.free_list.get(size):
            place = self.free_list[size].pop()
        else:
            self.bytes += b"\xa5" * (-len(self.bytes) % size)
            place = self.base + len(self.bytes)
            # what was there before
            self.bytes += b"\xa5" * size
        assert place % size == 0
        self.owned[place] = size
        return place

    def free(self, place, size):
        assert self.owned.pop(place) == size
        self.free_list.setdefault(size, []).append(place)

    def write(self, place, data):
        assert place % 8 == len(data) % 8 == 0
        assert any(start <= place and place + len(data) <= start + size for start, size in self.owned.items())
        self.writes.append((place, len(data)))
        self.bytes[place - self.base : place - self.base + len(data)] = data

    def word(self, place):
        return int.from_bytes(self.bytes[place - self.base : place - self.base + 8], "little")


def page(version, entry, size, gpu_va):
    """Decode a valid page entry."""
    assert bits(entry, 0, 0) == 1
    aperture = ("vram", "peer", "host", "host, not coherent")[bits(entry, 2, 1)]
    offset = gpu_va % size
    if version == 2:
        address = bits(entry, 53, 8) << 12 if aperture == "host" else bits(entry, 32, 8) << 12
        peer = 0 if aperture == "host" else bits(entry, 35, 33)
        return Seen(address + offset, size, aperture, bits(entry, 63, 56), bool(bits(entry, 3, 3)), bool(bits(entry, 6, 6)),
                    bool(bits(entry, 5, 5)), not bits(entry, 7, 7), peer)  # fmt: skip
    pcf = bits(entry, 7, 3)
    assert pcf & 16, "access counters are off: …_ACD"
    # NV_MMU_VER3_PTE_PCF_*: 1 UNCACHED, 2 PRIVILEGE, 4 RO, 8 NO_ATOMIC
    return Seen((bits(entry, 51, 12) << 12) + offset, size, aperture, bits(entry, 11, 8), bool(pcf & 1), bool(pcf & 4),
                bool(pcf & 2), not pcf & 8, bits(entry, 63, 61))  # fmt: skip


def table(version, entry, *, big=False):
    """Decode a directory entry that points to a table in the card's memory; None if it is not valid."""
    if not entry:
        return None
    assert bits(entry, 0, 0) == 0, "IS_PTE"
    # the card's memory
    assert bits(entry, 2, 1) == 1
    if version == 2:
        assert bits(entry, 3, 3) == 0, "VOL"
        return bits(entry, 32, 4) << 8 if big else bits(entry, 32, 8) << 12
    # VALID_CACHED_ATS_NOT_ALLOWED
    assert bits(entry, 5, 3) == 2
    return bits(entry, 51, 8) << 8 if big else bits(entry, 51, 12) << 12


def walk(memory, version, root, gpu_va):
    """Translate an address as the MMU does; None is a fault."""
    at = root
    for high, low in DIRECTORIES[version]:
        entry = memory.word(at + 8 * bits(gpu_va, high, low))
        if version == 3 and low == 29 and entry & 1:
            return page(version, entry, 512 * MIB, gpu_va)
        at = table(version, entry)
        if at is None:
            return None
        assert at in memory.owned
    place = at + 16 * bits(gpu_va, *PD0)
    first, second = memory.word(place), memory.word(place + 8)
    if first & 1:
        return page(version, first, 2 * MIB, gpu_va)
    big, small = table(version, first, big=True), table(version, second)
    if big is not None:
        assert big in memory.owned
        entry = memory.word(big + 8 * bits(gpu_va, 20, 16))
        if entry & 1:
            return page(version, entry, 64 * KIB, gpu_va)
        assert entry == 0
    if small is not None:
        assert small in memory.owned
        entry = memory.word(small + 8 * bits(gpu_va, 20, 12))
        if entry & 1:
            return page(version, entry, 4 * KIB, gpu_va)
        assert entry == 0
    return None


class Space:
    """Page tables with the memory that they are in."""

    def __init__(self, fmt, **options):
        self.memory = Memory(**options)
        self.fmt = fmt
        self.tables = PageTables(fmt, self.memory.write, self.memory.alloc, free_table=self.memory.free)

    def walk(self, gpu_va):
        return walk(self.memory, self.fmt.version, self.tables.root_pa, gpu_va)

    def __getattr__(self, name):
        return getattr(self.tables, name)


@pytest.fixture(params=[VER2, VER3], ids=["version 2", "version 3"])
def space(request):
    return Space(request.param)


def test_every_chip_has_a_format():
    assert {chip: FORMATS[chip[:2]].version for chip in ("tu102", "ga100", "ad102", "gh100", "gb202")} == {
        "tu102": 2, "ga100": 2, "ad102": 2, "gh100": 3, "gb202": 3}  # fmt: skip


def test_the_levels_are_those_of_the_hardware():
    """kern_gmmu_fmt_gp10x.c and kern_gmmu_fmt_gh10x.c, the drawings at their beginning."""
    assert (VER2.va_bits, VER3.va_bits) == (49, 57)
    assert VER2.page_sizes == (2 * MIB, 64 * KIB, 4 * KIB)
    assert VER3.page_sizes == (512 * MIB, 2 * MIB, 64 * KIB, 4 * KIB)


def test_an_entry_of_version_2_has_the_headers_bits():
    """PTE: VALID 0, APERTURE 2:1, VOL 3, PRIVILEGE 5, READ_ONLY 6, ATOMIC_DISABLE 7, address from 8, KIND 63:56."""
    space = Space(VER2)
    space.map(0, [(0x12_3456_7000, 4096)], Flags(kind=6, read_only=True, privileged=True, atomics=False, volatile=True))
    assert list(words(space)) == [0x06 << 56 | 0x12_3456_7000 >> 4 | 0b1110_1001]
    space.map(0, [(0x12_3456_7000, 4096)], Flags("peer", peer=5))
    assert list(words(space)) == [5 << 33 | 0x12_3456_7000 >> 4 | 0b011]
    space.map(0, [(0x12_3456_7000, 4096)], Flags("host"))
    assert list(words(space)) == [0x12_3456_7000 >> 4 | 0b1101]


def test_an_entry_of_version_3_has_the_headers_bits():
    """PTE: VALID 0, APERTURE 2:1, PCF 7:3, KIND 11:8, ADDRESS 51:12, PEER_ID 63:61."""
    space = Space(VER3)
    space.map(0, [(0x12_3456_7000, 4096)], Flags(kind=6, read_only=True, privileged=True, atomics=False, volatile=True))
    # PRIVILEGE_RO_NO_ATOMIC_UNCACHED_ACD
    assert list(words(space)) == [0x12_3456_7000 | 6 << 8 | 0x1F << 3 | 1]
    space.map(0, [(0x12_3456_7000, 4096)], Flags("peer", peer=5))
    # REGULAR_RW_ATOMIC_CACHED_ACD
    assert list(words(space)) == [5 << 61 | 0x12_3456_7000 | 0x10 << 3 | 0b011]
    space.map(0, [(0x12_3456_7000, 4096)], Flags("host"))
    # REGULAR_RW_ATOMIC_UNCACHED_ACD
    assert list(words(space)) == [0x12_3456_7000 | 0x11 << 3 | 0b101]


def words(space):
    """The page entries of the one small table."""
    pages = [
        space.memory.word(place + 8 * i)
        for place in space.memory.owned
        for i in range(512)
        if space.memory.owned[place] == 4096
    ]
    return (word for word in pages if word & 1 and word != 0xA5A5_A5A5_A5A5_A5A5)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (Flags(), ("vram", 0, False, False, False, True, 0)),
        (Flags(kind=6), ("vram", 6, False, False, False, True, 0)),
        (Flags("host"), ("host", 0, True, False, False, True, 0)),
        (Flags("host", volatile=False), ("host", 0, False, False, False, True, 0)),
        (Flags(volatile=True), ("vram", 0, True, False, False, True, 0)),
        (Flags(read_only=True), ("vram", 0, False, True, False, True, 0)),
        (Flags(privileged=True), ("vram", 0, False, False, True, True, 0)),
        (Flags(atomics=False), ("vram", 0, False, False, False, False, 0)),
        (Flags("peer", peer=7), ("peer", 0, False, False, False, True, 7)),
        (Flags(peer=7), ("vram", 0, False, False, False, True, 0)),
    ],
)
@pytest.mark.parametrize(("gpu_va", "size"), [(0x1000, 4 * KIB), (0x1_0000, 64 * KIB), (2 * MIB, 2 * MIB)])
def test_flags_are_in_pages_of_every_size(space, flags, expected, gpu_va, size):
    space.map(gpu_va, [(0x4000_0000 + gpu_va, size)], flags)
    seen = space.walk(gpu_va + size - 1)
    assert (seen.address, seen.page_bytes) == (0x4000_0000 + gpu_va + size - 1, size)
    assert seen[2:] == expected


@pytest.mark.parametrize(
    ("gpu_va", "address", "size", "pages"),
    [
        # both aligned: the largest pages
        (0, 0, 4 * MIB, {2 * MIB: 2}),
        (0, 64 * KIB, 2 * MIB, {64 * KIB: 32}),
        (0, 4 * KIB, 128 * KIB, {4 * KIB: 32}),
        # small ends, then big, then huge
        (2 * MIB - 68 * KIB, 6 * MIB - 68 * KIB, 68 * KIB + 2 * MIB + 72 * KIB, {4 * KIB: 3, 64 * KIB: 2, 2 * MIB: 1}),
        # one page below a boundary and one above
        (2 * MIB - 4 * KIB, 2 * MIB - 4 * KIB, 8 * KIB, {4 * KIB: 2}),
        (60 * KIB, 60 * KIB, 8 * KIB, {4 * KIB: 2}),
        (4 * KIB, 4 * KIB, 60 * KIB, {4 * KIB: 15}),
    ],
)
def test_pages_are_as_large_as_both_addresses_allow(space, gpu_va, address, size, pages):
    space.map(gpu_va, [(address, size)])
    seen, at = {}, gpu_va
    while at < gpu_va + size:
        found = space.walk(at)
        assert found.address == address + at - gpu_va
        seen[found.page_bytes] = seen.get(found.page_bytes, 0) + 1
        at += found.page_bytes - at % found.page_bytes
    assert seen == pages
    assert space.walk(gpu_va + size) is None
    assert gpu_va == 0 or space.walk(gpu_va - 1) is None


def test_only_version_3_has_pages_of_512_mib():
    for fmt, size in ((VER2, 2 * MIB), (VER3, 512 * MIB)):
        space = Space(fmt)
        space.map(GIB, [(GIB, GIB)])
        assert space.walk(GIB + 700 * MIB) == Seen(GIB + 700 * MIB, size, "vram", 0, False, False, False, True, 0)


@pytest.mark.parametrize(
    ("largest", "size"), [(4 * KIB, 4 * KIB), (64 * KIB, 64 * KIB), (1 * MIB, 64 * KIB), (2 * MIB, 2 * MIB)]
)
def test_the_size_of_pages_can_be_limited(space, largest, size):
    space.map(0, [(0, 2 * MIB)], Flags(largest_page_bytes=largest))
    assert space.walk(MIB).page_bytes == size


@pytest.mark.parametrize("fmt", [VER2, VER3])
def test_the_ends_of_the_address_space_are_mapped(fmt):
    space = Space(fmt)
    end = 1 << fmt.va_bits
    space.map(0, [(0x5000, 4096)])
    space.map(end - 4096, [((1 << fmt.address_bits["vram"]) - 4096, 4096)])
    assert space.walk(0).address == 0x5000
    assert space.walk(end - 1).address == (1 << fmt.address_bits["vram"]) - 1
    assert space.walk(end - 4097) is None


def test_scattered_pieces_follow_one_another(space):
    pieces = [(0x10_0000 * (i * 7 % 31 + 1), 4096 * (i % 3 + 1)) for i in range(40)]
    space.map(0x7F_FFFF_0000, pieces, Flags("host"))
    at = 0x7F_FFFF_0000
    for address, size in pieces:
        for offset in range(0, size, 4096):
            assert space.walk(at + offset).address == address + offset
        at += size


def test_adjacent_pieces_become_one_page(space):
    space.map(0, [(MIB * i, MIB) for i in range(4)])
    assert space.walk(0).page_bytes == 2 * MIB


def test_a_table_is_written_before_the_entry_that_points_to_it(space):
    space.memory.writes.clear()
    seen = []

    def check(place, data):
        # Every pointer that reaches the memory leads to memory that was written.
        space.memory.write.__func__(space.memory, place, data)
        seen.append(space.walk(0x1234_5000))

    space.tables._write = check
    space.map(0x1234_5000, [(0x6000, 4096)])
    assert seen[:-1] == [None] * (len(seen) - 1)
    assert seen[-1].address == 0x6000


@pytest.mark.parametrize(
    ("size", "hole", "hole_bytes"),
    [
        (2 * MIB, 0x1_5000, 0x1000),
        (2 * MIB, 0x4_0000, 0x2_0000),
        (64 * KIB, 0x3000, 0x1000),
        (2 * MIB, 0x1F_F000, 0x1000),
    ],
)
def test_a_split_never_breaks_the_rest_of_the_page(space, size, hole, hole_bytes):
    """The GPU may use the rest while the driver splits: each write leaves every other byte translated."""
    base = 16 * MIB
    space.map(base, [(32 * MIB, size)])
    step = max(size // 64, 4096)
    probes = [
        at
        for at in (*range(0, size, step), hole - 4096, hole + hole_bytes)
        if 0 <= at < size and not hole <= at < hole + hole_bytes
    ]

    def check(place, data):
        # one word after another, as a bus may deliver them
        for i in range(0, len(data), 8):
            Memory.write(space.memory, place + i, data[i : i + 8])
            for at in probes:
                assert space.walk(base + at).address == 32 * MIB + at

    space.tables._write = check
    space.unmap(base + hole, hole_bytes)
    assert space.walk(base + hole) is None
    assert space.walk(base + hole + hole_bytes - 1) is None


def test_a_page_of_512_mib_is_split_down_to_small_ones():
    space = Space(VER3)
    space.map(0, [(GIB, 512 * MIB)], Flags(kind=6))
    space.unmap(0x1234_5000, 0x1000)
    assert space.walk(0x1234_5FFF) is None
    assert space.walk(0x1234_4FFF) == Seen(GIB + 0x1234_4FFF, 4 * KIB, "vram", 6, False, False, False, True, 0)
    assert space.walk(0x1233_0000).page_bytes == 64 * KIB
    assert space.walk(0x1000_0000).page_bytes == 2 * MIB
    assert space.walk(512 * MIB - 1).address == GIB + 512 * MIB - 1


def test_tables_are_freed_when_they_are_empty(space):
    start = dict(space.memory.owned)
    space.map(0x1000, [(0x1000, 4 * MIB)])
    space.map(GIB * 600, [(0x7000, 0x1000)])
    assert space.tables.tables > 5
    space.unmap(0x1000, 4 * MIB)
    space.unmap(GIB * 600, 0x1000)
    # The MMU may still hold pointers to them.
    assert len(space.memory.owned) > len(start)
    assert space.tables.tables == 1
    space.settle()
    assert len(space.memory.owned) == len(start)
    space.close()
    assert space.memory.owned == {}
    space.close()


def test_a_page_that_is_mapped_anew_costs_one_word(space):
    space.map(0x5000, [(0x1000, 4096)])
    owned = dict(space.memory.owned)
    space.memory.writes.clear()
    space.map(0x5000, [(0x2000, 4096)])
    assert [size for _, size in space.memory.writes] == [8]
    assert space.memory.owned == owned
    assert space.walk(0x5000).address == 0x2000


def test_a_root_of_the_caller_stays_the_callers():
    memory = Memory()
    root = memory.alloc(4096)
    tables = PageTables(VER2, memory.write, memory.alloc, free_table=memory.free, root_pa=root)
    tables.map(0, [(0, 4096)])
    assert tables.root_pa == root
    tables.close()
    assert list(memory.owned) == [root]


def test_closed_tables_map_nothing(space):
    space.close()
    with pytest.raises(ValueError, match="these page tables are closed"):
        space.map(0, [(0, 4096)])


def test_a_mapping_replaces_what_was_there(space):
    space.map(0, [(16 * MIB, 2 * MIB)])
    space.map(64 * KIB, [(0x9000, 4096)], Flags("host"))
    assert space.walk(64 * KIB).aperture == "host"
    assert space.walk(68 * KIB).address == 16 * MIB + 68 * KIB
    space.map(0, [(32 * MIB, 2 * MIB)])
    assert space.walk(64 * KIB) == Seen(32 * MIB + 64 * KIB, 2 * MIB, "vram", 0, False, False, False, True, 0)


@pytest.mark.parametrize(
    ("gpu_va", "pieces", "flags", "message"),
    [
        (1, [(0, 4096)], Flags(), "a range is whole pages of 4 KiB below 0x"),
        (0, [(1, 4096)], Flags(), "a piece to map is whole pages of 4 KiB below 0x.* not 0x1000 bytes at 0x1"),
        (0, [(0, 100)], Flags(), "a piece to map is whole pages"),
        (0, [(0, 0)], Flags(), "a piece to map is whole pages"),
        (0, [], Flags(), "a range is whole pages"),
        (0, [(-4096, 4096)], Flags(), "a piece to map is whole pages"),
        (0, [(1 << 60, 4096)], Flags("host"), r"a piece to map is whole pages of 4 KiB below 0x.* \(host\)"),
        ((1 << 57) - 4096, [(0, 8192)], Flags(), "a range is whole pages"),
        (
            0,
            [(0, 4096)],
            Flags("disk"),
            "a piece to map is whole pages|memory is in one of the apertures vram, peer, host",
        ),
        (0, [(0, 4096)], Flags(kind=256), "has kinds of . bits, not 0x100"),
        (0, [(0, 4096)], Flags("peer", peer=8), "a peer is 0 to 7, not 8"),
        (0, [(0, 4096)], Flags(largest_page_bytes=2048), "the smallest page has 4096 bytes, not 2048"),
    ],
)
def test_what_no_table_can_hold_is_refused(space, gpu_va, pieces, flags, message):
    before = bytes(space.memory.bytes)
    with pytest.raises(ValueError, match=message):
        space.map(gpu_va, pieces, flags)
    assert bytes(space.memory.bytes) == before


def test_an_address_beyond_the_cards_field_is_refused():
    with pytest.raises(ValueError, match=r"below 0x2000000000 \(vram\)"):
        Space(VER2).map(0, [((1 << 37) - 4096, 8192)])
    with pytest.raises(ValueError, match=r"below 0x10000000000 \(vram\)"):
        Space(VER3).map(0, [((1 << 40) - 4096, 8192)])


def test_a_map_that_runs_out_of_tables_leaves_the_range_unmapped(space):
    space.map(8 * MIB, [(0, 4096)])
    space.memory.limit = sum(space.memory.owned.values()) + 4096
    with pytest.raises(OutOfMemory):
        space.map(0, [(0x1000, 20 * MIB)])
    assert [space.walk(at) for at in range(0, 20 * MIB, MIB)] == [None] * 20
    space.settle()
    space.memory.limit = 1 << 30
    space.map(0, [(0x1000, 20 * MIB)])
    assert space.walk(20 * MIB - 1).address == 20 * MIB + 0xFFF


def test_an_unmap_needs_no_memory_that_it_did_not_reserve(space):
    space.map(0, [(0, 4 * MIB)])
    space.memory.limit = 0
    # splits a page at both ends
    space.unmap(0x1_1000, 3 * MIB)
    assert space.walk(0x1_0FFF).address == 0x1_0FFF
    assert space.walk(0x1_1000) is None
    assert space.walk(3 * MIB + 0x1_1000).address == 3 * MIB + 0x1_1000


def test_a_failed_start_gives_everything_back():
    # a root, and the tables for two splits of each size
    for limit in range(0, 5 * 4096 + 2 * 256 + 1, 256):
        memory = Memory(limit)
        try:
            PageTables(VER3, memory.write, memory.alloc, free_table=memory.free)
        except OutOfMemory:
            assert memory.owned == {}
        else:
            break
    else:
        pytest.fail("the start takes more than that")


@pytest.mark.seeds(2)
@pytest.mark.parametrize("fmt", [VER2, VER3], ids=["version 2", "version 3"])
def test_random_maps_and_unmaps_agree_with_a_dict(fmt, seed):
    """Ranges around boundaries of every page size; a dict of 4 KiB pages is the reference."""
    chance, space, reference = random.Random(seed), Space(fmt), {}
    # 6 MiB around a boundary of the directories
    low = (1 << 38) - 3 * MIB
    for _ in range(40):
        start = low + chance.choice((0, 1, 15, 16, 17, 31, 511, 512, 513, 700, 1024, chance.randrange(1400))) * 4096
        count = chance.choice((1, 2, 15, 16, 17, 33, 128, 512, 513, chance.randrange(1, 600)))
        count = min(count, (low + 6 * MIB - start) // 4096)
        if chance.random() < 0.35:
            space.unmap(start, count * 4096)
            for i in range(count):
                reference.pop(start + i * 4096, None)
        else:
            flags = Flags(chance.choice(("vram", "host")), kind=chance.choice((0, 6)), read_only=chance.random() < 0.3)
            pieces, done = [], 0
            while done < count:
                size = chance.choice((1, 1, 2, 16, 40, count)) if chance.random() < 0.5 else count
                size = min(size, count - done)
                aligned = chance.choice((0x1000, 0x1_0000, 0x20_0000))
                address = chance.randrange(1, 500) * 0x20_0000 + (start + done * 4096) % aligned
                pieces.append((address, size * 4096))
                for i in range(size):
                    page_at = start + (done + i) * 4096
                    reference[page_at] = (address + i * 4096, flags.aperture, flags.kind, flags.read_only)
                done += size
            space.map(start, pieces, flags)
        if chance.random() < 0.7:
            space.settle()
        for page_number in chance.sample(range(1536), 60):
            at = low + page_number * 4096
            seen = space.walk(at)
            found = None if seen is None else (seen.address, seen.aperture, seen.kind, seen.read_only)
            assert found == reference.get(at), hex(at)
    space.unmap(low, 6 * MIB)
    space.settle()
    assert space.tables.tables == 1
    space.close()
    assert space.memory.owned == {}
