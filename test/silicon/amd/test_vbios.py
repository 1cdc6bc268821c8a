"""The VBIOS keeps the rules of amdgpu's atom.c and amdgpu_bios.c, and of the PCI Firmware Specification."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.amd.board import vbios
from ringup.silicon.amd.board.chips import CHIPS, find

IDS = {"navi31": 0x744C, "navi32": 0x747E, "navi33": 0x7480, "navi44": 0x7590, "navi48": 0x7550}  # pci.ids
PRODUCTS = {
    "navi31": "Radeon RX 7900 XTX",
    "navi32": "Radeon RX 7800 XT",
    "navi33": "Radeon RX 7600",
    "navi44": "Radeon RX 9060 XT",
    "navi48": "Radeon RX 9070 XT",
}
# sizeof(BoardTable_t), from smu13_driver_if_v13_0_0.h and smu14_driver_if_v14_0.h
BOARD_TABLES = {"navi31": 488, "navi32": 488, "navi33": 488, "navi44": 528, "navi48": 528}


@pytest.fixture(scope="module", params=CHIPS)
def chip(request):
    return find(request.param)


@pytest.fixture(scope="module")
def rom(chip):
    return vbios.build(chip)


def u16(rom, at):
    return struct.unpack_from("<H", rom, at)[0]


def u32(rom, at):
    return struct.unpack_from("<I", rom, at)[0]


def table(rom, number):
    """Return the place of a data table after checks. `number` is its index in atom_master_list_of_data_tables_v2_1."""
    header = u16(rom, 0x48)
    place = u16(rom, u16(rom, header + 0x20) + 4 + 2 * number)
    assert place == 0 or place + u16(rom, place) <= len(rom)
    return place


def test_it_is_an_expansion_rom(rom, chip):
    assert rom[:2] == b"\x55\xaa"
    assert rom[2] * 512 == len(rom)
    assert sum(rom) & 0xFF == 0
    pcir = u16(rom, 0x18)
    assert pcir % 4 == 0
    assert rom[pcir : pcir + 4] == b"PCIR"
    assert struct.unpack_from("<HH", rom, pcir + 4) == (0x1002, IDS[chip.name])
    # Programming interface, sub-class, class: a VGA controller.
    assert rom[pcir + 13 : pcir + 16] == bytes([0, 0, 3])
    assert u16(rom, pcir + 16) * 512 == len(rom)
    # This is the last image.
    assert rom[pcir + 21] & 0x80


def test_it_is_an_atom_bios(rom):
    assert rom[0x30 : 0x30 + 10] == b" 761295520"
    header = u16(rom, 0x48)
    assert rom[header + 4 : header + 8] == b"ATOM"
    assert (rom[header + 2], rom[header + 3]) == (2, 2)
    assert u16(rom, header) == 40


def test_its_strings_are_where_the_driver_reads_them(rom, chip):
    count, at = rom[0x2F], u16(rom, 0x6E)
    words = rom[at:].split(b"\0")
    assert words[0].decode() == chip.part_number
    assert words[count][:2] == b"\r\n"
    assert words[count][2:].decode() == PRODUCTS[chip.name]
    version = rom.find(b"ATOMBIOSBK-AMD VER", at, u16(rom, 0x48))
    assert rom[version + 18 :].startswith(b"022.001.002.0")
    assert rom[0x50 : 0x50 + 14].decode() == chip.vbios_date


@pytest.mark.parametrize(
    # atomfirmware.h: the sizes of the structures.
    ("number", "revision", "size"),
    [(4, (3, 4), 108), (8, (4, 0), 288), (14, (3, 0), 136), (28, (3, 0), 608), (24, (4, 0), 84), (2, (4, 10), 4)],
)
def test_data_tables_have_the_layout_of_their_revision(rom, chip, number, revision, size):
    place = table(rom, number)
    assert (rom[place + 2], rom[place + 3]) == revision
    # Table 2 holds the power controller's table of the board.
    assert u16(rom, place) == size + (BOARD_TABLES[chip.name] if number == 2 else 0)


def test_the_firmware_table_names_the_scratch_registers_and_clocks(rom):
    place = table(rom, 4)
    # The dword of BIOS_SCRATCH_0.
    assert u32(rom, place + 24) == 0x4C
    # asic_init is refused without boot clocks.
    assert u32(rom, place + 8)
    assert u32(rom, place + 12)


def test_memory_is_as_wide_as_the_boards(rom, chip):
    place = table(rom, 28)
    memory_type, channels, width = rom[place + 24], rom[place + 25], rom[place + 26]
    assert memory_type == 0x70
    assert (
        channels * (1 << width)
        == {"navi31": 384, "navi32": 256, "navi33": 128, "navi44": 128, "navi48": 256}[chip.name]
    )


def test_clocks_tick_at_100_mhz(rom):
    assert u32(rom, table(rom, 8) + 16) == 10_000
    assert u32(rom, table(rom, 14) + 40) == 10_000


def test_there_is_no_display(rom):
    assert table(rom, 22) == 0


def test_the_list_of_indirect_programs_is_there_and_empty(rom):
    assert rom[table(rom, 23) + 4] != 1  # ATOM_IIO_START


def test_asic_init_is_a_table_that_ends(rom):
    header = u16(rom, 0x48)
    place = u16(rom, u16(rom, header + 0x1E) + 4)
    size = u16(rom, place)
    assert rom[place + 2] == 2
    # OR register 0x53 with 0x200, then end.
    assert rom[place + 6 : place + size] == bytes.fromhex("0d05 5300 00020000 5b")
