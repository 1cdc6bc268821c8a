"""What a driver reads of a card before it starts anything. Values are those of the manuals and of pci.ids."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.nv.card import VirtualNvidia

VRAM = 512 << 20


@pytest.mark.parametrize(
    ("chip", "boot_0", "device"),
    [
        ("tu102", 0x162000A1, 0x1E37),
        ("ga100", 0x170000A1, 0x20F1),
        ("ga102", 0x172000A1, 0x2236),
        ("ad102", 0x192000A1, 0x26B9),
    ],
)
def test_a_driver_finds_chip_and_board(chip, boot_0, device):
    card = VirtualNvidia(chip, vram_bytes=VRAM)
    assert card.bars[0].read32(0) == boot_0
    # PMC_BOOT_42: chip id in 28:20
    assert card.bars[0].read32(0xA00) >> 20 == boot_0 >> 20
    assert card.config.read(0) == device << 16 | 0x10DE
    # a 3D controller, revision a1
    assert card.config.read(8) == 0x030200A1
    assert {index: bar.size_bytes for index, bar in card.bars.items()} == {0: 16 << 20, 1: 256 << 20, 3: 32 << 20}


def test_configuration_space_is_mirrored_in_registers(board):
    assert board.bars[0].read32(0x88000) == board.config.read(0)
    assert board.bars[0].read32(0x8802C) == board.config.read(0x2C)


def test_the_memory_is_as_large_as_its_register_says(board):
    if board.chip.name == "tu102":
        # LMR: a number in 9:4, in MiB by the power of two in 3:0; gp102_fb_vidmem_size
        value = board.bars[0].read32(0x100CE0)
        assert (value >> 4 & 0x3F) << (value & 0xF) + 20 == VRAM
    else:
        assert board.bars[0].read32(0x1183A4) << 20 == VRAM
    board.bars[0].write32(0x1700, VRAM - (1 << 20) >> 16)
    board.bars[0].write32(0x7FFFFC, 0x12345678)
    board.settle()
    assert board.vram.read(VRAM - 4, 4) == struct.pack("<I", 0x12345678)
    board.bars[0].write32(0x1700, VRAM >> 16)
    assert board.bars[0].read32(0x700000) == 0xFFFFFFFF
    assert [event.text for event in board.violations] == [
        "the CPU reads VRAM 0x20000000, which the board does not have"
    ]


def test_ga100_has_turings_register_of_the_memorys_size_and_ampere_fuses():
    """tu102_gsp_oneinit of nouveau reads the range that is locked at the end of memory, too: here there is none."""
    card = VirtualNvidia("ga100")
    value, enabled, low, high = (card.bars[0].read32(at) for at in (0x100CE0, 0x1FA7C8, 0x1FA82C, 0x1FA830))
    assert (value >> 4 & 0x3F) << (value & 0xF) + 20 == 40 << 30
    assert enabled & 1
    assert low >> 4 > high >> 4
    assert card.bars[0].read32(0x820C04) & 1
    assert card.log.find("unmodelled") == []


def test_the_boot_firmware_is_done_and_display_is_fused_off(board):
    assert board.bars[0].read32(0x118128) & 1
    assert board.bars[0].read32(0x118234) & 0xFF == 0xFF
    assert board.bars[0].read32(0x21C04 if board.chip.name == "tu102" else 0x820C04) & 1


def test_an_address_without_a_register_answers_as_the_bus_does(board):
    assert board.bars[0].read32(0x6013DC - 0x100000) >> 16 == 0xBADF
    assert board.bars[0].read32(0x6013DC - 0x100000) >> 16 == 0xBADF
    board.bars[0].write32(0x409800, 1)
    # PMC_ENABLE has a name and no model
    board.bars[0].write32(0x200, 0x5)
    assert board.bars[0].read32(0x200) == 0x5
    assert [event.text for event in board.log.find("unmodelled")] == [
        "0x5013dc is read as 0xbadf1100, without a model",
        "0x409800 = 0x1 goes nowhere, without a model",
        "NV_PMC_ENABLE = 0x5 is kept without effect, without a model",
        "NV_PMC_ENABLE is read as 0x5, without a model",
    ]


def test_time_passes_in_the_timer_and_in_its_user_mode_copy(board):
    board.clock.sleep_us(5_000_000)
    low, high = board.bars[0].read32(0x9400), board.bars[0].read32(0x9410)
    assert (high, low & 0x1F) == (1, 0)
    assert low - (5_000_000_000 - (1 << 32)) < 100_000
    assert board.bars[0].read32(0xBB0084) == high


def images(rom):
    """Split a ROM into its images by the PCI data structures: (code type, image, whether it is the last)."""
    at = 0
    while True:
        assert rom[at : at + 2] == b"\x55\xaa"
        pcir = at + struct.unpack_from("<H", rom, at + 0x18)[0]
        assert rom[pcir : pcir + 4] == b"PCIR"
        size = struct.unpack_from("<H", rom, pcir + 0x10)[0] * 512
        npde = pcir + struct.unpack_from("<H", rom, pcir + 0xA)[0] + 15 & ~15
        assert rom[npde : npde + 4] == b"NPDE"
        assert struct.unpack_from("<H", rom, npde + 8)[0] * 512 == size
        last = rom[pcir + 0x15] & 0x80
        assert rom[npde + 10] & 0x80 == last
        yield rom[pcir + 0x14], rom[at : at + size]
        at += size
        if last:
            return


def test_the_vbios_leads_to_fwsec(board):
    """Follow the ROM as kernel_gsp_vbios_tu102.c and kernel_gsp_fwsec.c do."""
    rom = b"".join(struct.pack("<I", board.bars[0].read32(0x300000 + at)) for at in range(0, 0xC800, 4))
    assert board.bars[0].read32(0x3FFFFC) == 0xFFFFFFFF
    (kind, base), (first_kind, first), (second_kind, _) = images(rom)
    assert (kind, first_kind, second_kind) == (0x00, 0xE0, 0xE0)
    assert sum(base) % 256 == 0
    bit = base.index(b"\xff\xb8BIT\0")
    header, entry_size, entries = base[bit + 8 : bit + 11]
    assert sum(base[bit : bit + header]) % 256 == 0
    tokens = [struct.unpack_from("<BBHH", base, bit + header + entry_size * n) for n in range(entries)]
    where = {chr(token): at for token, _, _, at in tokens}
    assert {token: version for token, version, _, _ in tokens}[ord("p")] == 2
    table = struct.unpack_from("<I", base, where["p"])[0]
    # nova-core reads tables and FWSEC in the second extension
    second = len(base) + len(first)
    assert table >= second
    version, header, entry_size, entries, _, _ = rom[table : table + 6]
    assert (version, header, entry_size) == (1, 6, 6)
    application, _, descriptor = struct.unpack_from("<BBI", rom, table + header)
    assert application == 0x85
    assert descriptor >= second
    head = struct.unpack_from("<I", rom, descriptor)[0]
    turing = board.chip.name == "tu102"
    assert (head & 1, head >> 8 & 0xFF) == (1, 2 if turing else 3)
    assert len(rom) >= descriptor + (head >> 16) + struct.unpack_from("<I", rom, descriptor + 4)[0]


def test_the_rom_bar_shows_the_same_bytes(board):
    board.config.write(0x30, board.config.read(0x30) | 1)
    assert board.rom.read_block(0, 0xC800) == board.image
    assert board.rom.read32(0xC800) == 0xFFFFFFFF
