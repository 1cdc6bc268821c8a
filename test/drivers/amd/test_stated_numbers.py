"""Impossible numbers in a card's own tables, with correct checksums: each raises one error that names the number, at
once.
"""

import contextlib
import random
import struct
import time

import pytest

import ringup
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.observe.gpu_memory import GpuMemory
from ringup.errors import DeviceFault, FirmwareError, NotSupported, RingupError
from ringup.firmware import stated
from ringup.silicon import card as virtual
from ringup.silicon.amd.board import discovery as made

VRAM = 64 << 20
# Without a check, a loop over such a number takes minutes. A start takes half a second.
LONGEST_CPU_S = 20
GC_TABLE = 1  # index of table_list. Source: discovery.h, enum table


@pytest.fixture
def radeon():
    return virtual("navi31", vram_bytes=VRAM)


def opened(radeon):
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        return card.info


def table_of(radeon):
    """Return the discovery binary's place, and a copy of it."""
    place = radeon.vram.size_bytes - made.TOP_OFFSET
    (size,) = struct.unpack_from("<H", radeon.vram.view, place + 10)
    return place, bytearray(radeon.vram.view[place : place + size])


def put(radeon, blob):
    """Store a binary with corrected checksums. Layout: discovery.h, binary_header and the tables' own headers."""
    place, _ = table_of(radeon)
    for index in range(6):
        (at,) = struct.unpack_from("<H", blob, 12 + 8 * index)
        if at and index != 2 and at + 12 <= len(blob):
            (size,) = struct.unpack_from("<H", blob, at + 6) if index == 0 else struct.unpack_from("<I", blob, at + 8)
            struct.pack_into("<H", blob, 14 + 8 * index, sum(blob[at : at + size]) & 0xFFFF)
    struct.pack_into("<H", blob, 8, sum(blob[10:]) & 0xFFFF)
    radeon.vram.view[place : place + len(blob)] = blob


def gc_field(blob, dword):
    """Return the offset of a dword after the header of the graphics core's table. Source: discovery.h, struct
    gc_info_v1_0.
    """
    (at,) = struct.unpack_from("<H", blob, 12 + 8 * GC_TABLE)
    return at + 12 + 4 * dword


SE, WGP0, WGP1, WAVE, SLOTS, LDS, SAS = 0, 1, 2, 11, 13, 14, 16  # dwords of gc_info_v1_0, counted in discovery.h
CASES = [
    (SE, 0, "gc_num_se", "all zeros"),
    (SE, 17, "gc_num_se", "valid are 1 to 16"),
    (SE, 0xFFFF_FFFF, "gc_num_se", "all ones"),
    (WGP0, 16_000_000, "gc_num_wgp0_per_sa", "16000000 in decimal"),
    (WGP0, 0xDEAD_BEEF, "gc_num_wgp0_per_sa", "unwritten memory"),
    (WGP1, 0xBADB_AD00, "gc_num_wgp1_per_sa", "an address that does not exist"),
    (WAVE, 48, "gc_wave_size", "waves are of 32 or 64"),
    (WAVE, 0xCAFE_DEAD, "gc_wave_size", "drivers test scratch registers"),
    (SLOTS, 0, "gc_max_scratch_slots_per_cu", "all zeros"),
    (LDS, 0x6B6B_6B6B, "gc_lds_size", "freed memory"),
    (SAS, 300, "gc_num_sa_per_se", "300 in decimal"),
]


@pytest.mark.parametrize(("dword", "value", "name", "why"), CASES)
def test_a_shape_that_no_core_has_is_refused_at_once_by_its_name(radeon, dword, value, name, why):
    _, blob = table_of(radeon)
    struct.pack_into("<I", blob, gc_field(blob, dword), value)
    put(radeon, blob)
    begun = time.process_time()
    with pytest.raises(FirmwareError, match=f"{name} of the card's discovery table is stated as .*{why}"):
        opened(radeon)
    assert time.process_time() - begun < LONGEST_CPU_S


def test_a_base_that_no_address_reaches_is_refused_with_the_base(radeon):
    _, blob = table_of(radeon)
    # the highest byte of OSSSYS's first base in navi31's binary
    blob[319] = 0xFF
    put(radeon, blob)
    with pytest.raises(FirmwareError, match=r"OSSSYS: segment 0 begins at dword 0xff[0-9a-f]{6} .*no register lies"):
        opened(radeon)


@pytest.mark.parametrize("size_mib", [1, 15, 0x8_0000, 0xDEAD_BEEF, 0xCAFE_DEAD])
def test_memory_that_no_card_has_is_refused_with_its_size(radeon, monkeypatch, size_mib):
    from ringup.autogen.amd.nbio import RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE as MEMSIZE

    read = radeon.bars[5].read32
    # nbio_4_3_0_offset.h, segment 2
    at = (0xD20 + MEMSIZE.place((4, 3, 0))[0]) * 4
    monkeypatch.setattr(radeon.bars[5], "read32", lambda offset: size_mib if offset == at else read(offset))
    with pytest.raises(FirmwareError, match=f"RCC_CONFIG_MEMSIZE.*{stated.named(size_mib).split()[0]}.*16 to 524287"):
        opened(radeon)


@pytest.mark.parametrize("tmr_bytes", [0, VRAM, 0xFFFF_FFFF, 0xDEAD_BEEF])
def test_a_trusted_region_that_has_no_room_is_refused_with_its_size(radeon, tmr_bytes):
    radeon.psp.ring.tmr_bytes = tmr_bytes
    with pytest.raises(FirmwareError, match=rf"trusted memory region .*stated as {tmr_bytes:#x}"):
        opened(radeon)


def test_a_mark_with_impossible_values_is_ignored(radeon):
    opened(radeon)
    radeon.gc.grbm.cells["SCRATCH_REG4"] = 0x00DE_ADBE  # MiB of the trusted region
    assert opened(radeon).found == "foreign"


@pytest.mark.parametrize(
    ("value", "bits", "why"),
    [(0, 32, "all zeros"), (0xFFFF, 16, "all ones"), (0xDEADBEEF_DEADBEEF, 64, "unwritten memory"), (0x10, 32, "")],
)
def test_patterns_are_named_and_numbers_are_not(value, bits, why):
    assert why in stated.named(value, bits)
    assert ("(" in stated.named(value, bits)) == bool(why)


# --- page tables ------------------------------------------------------------------------------------------------------
@pytest.fixture
def left(radeon):
    """Return a card whose driver died: (memory of VMID 8, an address mapped there, the places of the four entries that
    lead to it).
    """
    card = ringup.open(radeon.name, transport={"card": radeon})
    buffer = card.alloc(1 << 20)
    card.copy.fill(buffer, 7).wait()
    radeon.kill_holder(memory=False)
    memory, seen = GpuMemory(Bare(radeon), 8), []
    read = memory._window.read
    memory._window.read = lambda at, size: (seen.append(at), read(at, size))[1]
    memory.find(buffer.gpu_va)
    memory._window.read = read
    return memory, buffer.gpu_va, seen


BEYOND = 0xFFFF_FFFF_F001  # a table or a page at the end of 48 bits
DAMAGE = [(0xFFFF_FFFF_FFFF_FFFF, "all ones"), (0xDEAD_BEEF_DEAD_BEEF, "unwritten memory"), (BEYOND, "")]


@pytest.mark.parametrize(("value", "why"), DAMAGE)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_damaged_entry_is_named_with_its_level_and_value(radeon, left, level, value, why):
    memory, gpu_va, entries = left
    radeon.vram.view[entries[level] : entries[level] + 8] = struct.pack("<Q", value)
    with pytest.raises(DeviceFault, match=f"level (PDB[0-2]|PTB).*({value:#x}.*{why}|would lie at)"):
        memory.read(gpu_va, 64)


def test_an_entry_of_zeros_maps_nothing(radeon, left):
    memory, gpu_va, entries = left
    radeon.vram.view[entries[1] : entries[1] + 8] = bytes(8)
    with pytest.raises(DeviceFault, match="nothing is mapped"):
        memory.read(gpu_va, 64)


@pytest.mark.seeds(8)
def test_any_damage_of_the_tables_is_a_fault_or_another_page(radeon, left, seed):
    rng = random.Random(seed)
    memory, gpu_va, entries = left
    at = rng.choice(entries)
    value = rng.choice((rng.getrandbits(64), rng.getrandbits(48) | 1, 1 << rng.randrange(64) | 1))
    radeon.vram.view[at : at + 8] = struct.pack("<Q", value)
    with contextlib.suppress(DeviceFault, NotSupported):
        assert len(memory.read(gpu_va, 64)) == 64


# --- any table --------------------------------------------------------------------------------------------------------
VALUES = (0, 1, 0xFF, 0xFFFF, 0xFFFF_FFFF, 0xDEAD_BEEF, 0x7FFF_FFFF, 0x8000_0000)


@pytest.mark.seeds(6)
def test_a_discovery_binary_with_random_numbers_and_right_sums_is_refused_or_served(seed):
    """Each start ends within a time limit: with an error of ours, or with a card that works."""
    rng = random.Random(seed)
    radeon = virtual("navi31", vram_bytes=VRAM)
    _, blob = table_of(radeon)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(60, len(blob) - 4)
        if rng.random() < 0.5:
            struct.pack_into("<I", blob, at & ~3, rng.choice((*VALUES, rng.getrandbits(32), rng.randrange(64))))
        else:
            blob[at] = rng.randrange(256)
    put(radeon, blob)
    begun = time.process_time()
    try:
        with ringup.open(radeon.name, transport={"card": radeon}) as card, card.alloc(4096) as buffer:
            card.copy.fill(buffer, 0x01020304).wait()
            assert card.copy.download(buffer) == b"\x04\x03\x02\x01" * 1024
    except RingupError:
        pass
    assert time.process_time() - begun < LONGEST_CPU_S
