"""The end of the card's memory, worked out by hand from kgspCalculateFbLayout_TU102 and _kgspCalculateFwHeapSize."""

from __future__ import annotations

import struct

import pytest

from ringup.drivers.nv.bus.chips import CHIPS
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import layout
from ringup.drivers.transport.config_space import change_command
from ringup.silicon import nvidia_card

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FAMILIES = {chip.name: chip.family for chip in CHIPS}


def block_of(name):
    """Return the registers of a virtual card."""
    card = nvidia_card(name)
    change_command(card.config, on=2)
    return Block(Registers(card))


@pytest.mark.parametrize(
    ("chip", "release", "gigabytes", "mebibytes"),
    [
        # LIBOS + RM + 96 KiB a GB, up to MiB + client's 96 MiB; between the least and the most
        ("tu102", "535.113.01", 16, 0 + 8 + 2 + 96),
        ("ga100", "535.113.01", 40, 0 + 8 + 4 + 96),
        ("ga102", "535.113.01", 24, 20 + 8 + 3 + 96),
        ("ga102", "570.144", 24, 22 + 8 + 3 + 96),
        ("ad102", "570.144", 48, 22 + 8 + 5 + 96),
        ("gh100", "570.144", 80, 22 + 14 + 8 + 96),
        # 256 MiB are the most that LIBOS 2 takes
        ("tu102", "535.113.01", 4096, 256),
    ],
)
def test_the_heap_grows_with_memory(chip, release, gigabytes, mebibytes):
    assert layout.heap_bytes(FAMILIES[chip], release, gigabytes * GIB) == mebibytes * MIB


@pytest.mark.parametrize(
    ("chip", "gibibytes"),
    [("tu102", 16), ("ga100", 40), ("ga102", 24), ("ad102", 48), ("gh100", 80), ("gb202", 96)],
)
def test_the_size_of_memory_is_read(chip, gibibytes):
    assert layout.memory_bytes(block_of(chip)) == gibibytes * GIB


def test_the_regions_of_a_ga102_from_the_end_down():
    found = layout.place(block_of("ga102"), FAMILIES["ga102"], "535.113.01", layout.Sizes(38 * MIB + 5000, 9000))
    end = 24 * GIB
    assert found.workspace == layout.Region(end - MIB, end)
    assert found.frts == layout.Region(end - 2 * MIB, end - MIB)
    assert found.boot.start == end - 2 * MIB - 12 * KIB
    elf = end - 2 * MIB - 38 * MIB - 64 * KIB
    assert found.elf == layout.Region(elf, elf + 38 * MIB + 5000)
    heap = end - 2 * MIB - 38 * MIB - MIB - 127 * MIB
    assert found.wpr_heap == layout.Region(heap, heap + 127 * MIB)
    assert found.wpr2 == layout.Region(heap - MIB, end - MIB)
    assert found.heap == layout.Region(heap - 2 * MIB, heap - MIB)


def test_ga100_has_no_frts():
    found = layout.place(block_of("ga100"), FAMILIES["ga100"], "535.113.01", layout.Sizes(MIB, 4096))
    assert not found.frts.size_bytes
    assert found.boot.end == found.wpr2.end


def test_metadata_has_the_places_of_the_header():
    sizes = layout.Sizes(MIB, 4096)
    found = layout.place(block_of("ga102"), FAMILIES["ga102"], "535.113.01", sizes)
    images = layout.Images(sizes, 0x1000, 0x2000, 0x30, 0x40, 0x50, 0x6000, 0x70)
    raw = layout.metadata(found, images, "535.113.01")
    assert len(raw) == 256
    # gsp_fw_wpr_meta.h: magic, revision, the sizes and addresses of the images
    assert struct.unpack_from("<11Q", raw) == (
        0xDC3A_AE21_371A_60B3, 1, 0x1000, MIB, 0x2000, 4096, 0x30, 0x40, 0x50, 0x6000, 0x70,
    )  # fmt: skip
    # gspFwRsvdStart, nonWprHeapOffset, nonWprHeapSize, gspFwWprStart, gspFwHeapOffset, gspFwHeapSize, gspFwOffset,
    # bootBinOffset, frtsOffset, frtsSize, gspFwWprEnd, fbSize, vgaWorkspaceOffset, vgaWorkspaceSize
    assert struct.unpack_from("<14Q", raw, 88) == (
        found.heap.start, found.heap.start, MIB, found.wpr2.start, found.wpr_heap.start, found.wpr_heap.size_bytes,
        found.elf.start, found.boot.start, found.frts.start, MIB, found.wpr2.end, 24 * GIB, 24 * GIB - MIB, MIB,
    )  # fmt: skip
