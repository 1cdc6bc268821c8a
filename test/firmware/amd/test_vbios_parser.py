"""Expansion ROMs: a card's own, built ones, and damage."""

import struct

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.amd import vbios
from ringup.firmware.amd.build_tables import DataTable, expansion_rom
from ringup.silicon import card

FIRMWARE = DataTable((3, 4), {"bios_scratch_reg_startaddr": 0x4C, "bootup_sclk_in10khz": 50000})
MEMORY = DataTable(
    (3, 0),
    {
        "memory_type": 0x70,
        "channel_num": 24,
        "channel_width": 1,
        "vram_module_num": 1,
        "vram_module[0].dram_vendor_id": 0x36,
    },
)


def rom(tables=None, commands=None, **options):
    return expansion_rom(tables or {"firmwareinfo": FIRMWARE, "vram_info": MEMORY}, commands, **options)


def patched(blob, at, value, form="<H"):
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def header_at(blob):
    return struct.unpack_from("<H", blob, 0x48)[0]


@pytest.mark.parametrize(
    ("chip", "device", "channels"), [("navi31", 0x744C, 24), ("navi32", 0x747E, 16), ("navi33", 0x7480, 8)]
)
def test_a_cards_own_rom_is_read(chip, device, channels):
    radeon = card(chip, vram_bytes=64 << 20)
    # the expansion ROM's enable bit
    radeon.config.write(0x30, radeon.config.read(0x30, 4) | 1, 4)
    found = vbios.parse(radeon.rom.read_block(0, radeon.rom.size_bytes))
    assert (found.pci_vendor, found.pci_device) == (0x1002, device)
    assert found.sum_is_zero
    assert found.scratch_dword == 0x4C
    assert found.reference_clock_hz == 100_000_000
    assert found.memory() == vbios.Memory("GDDR6", channels, channels * 16, found.memory().vendor)
    assert "asic_init" in found.commands
    assert found.part_number
    assert found.require("firmwareinfo")["bios_scratch_reg_startaddr"] == 0x4C


def test_what_is_built_is_read():
    blob = rom(
        {"firmwareinfo": FIRMWARE, "smc_dpm_info": DataTable((4, 10), b"board")},
        {"asic_init": b"\x5b"},  # atom.h: the end of a command table
        strings=("113-1E4740U-O4W", "NAVI31", "PCI_EXPRESS", "GDDR6"),
        title="A card",
        version="022.001.002.008",
        date="11/03/22 07:15",
        pci=(0x1002, 0x744C),
    )
    found = vbios.parse(blob)
    assert (found.part_number, found.title, found.version) == ("113-1E4740U-O4W", "A card", "022.001.002.008")
    assert (found.date, found.pci_device, found.size_bytes) == ("11/03/22 07:15", 0x744C, len(blob))
    assert found.table_bytes("smc_dpm_info") == struct.pack("<HBB", 9, 4, 10) + b"board"
    assert found.commands["asic_init"].revision == (2, 1)
    assert sum(blob) % 256 == 0


@pytest.mark.parametrize(
    ("table", "revision", "fields", "memory"),
    [  # amdgpu_atomfirmware_get_vram_info: how each revision encodes width and vendor
        ("vram_info", (3, 0), {"memory_type": 0x70, "channel_num": 20, "vram_module[0].dram_vendor_id": 0x81}, ("GDDR6", 20, 320, 1)),
        ("vram_info", (2, 3), {"vram_module[0].memory_type": 0x60, "vram_module[0].channel_num": 16, "vram_module[0].channel_width": 7,
                               "vram_module[0].vender_rev_id": 0x16}, ("HBM2", 16, 2048, 6)),
        ("vram_info", (2, 5), {"vram_module[0].memory_type": 0x70, "vram_module[0].channel_num": 16, "vram_module[0].channel_width": 4},
         ("GDDR6", 16, 256, 0)),
        ("umc_info", (4, 0), {"vram_type": 0x70, "channel_num": 8, "channel_width": 5}, ("GDDR6", 8, 256, 0)),
        ("vram_info", (3, 0), {"memory_type": 0x77, "channel_num": 1}, ("0x77", 1, 16, 0)),
    ],
)  # fmt: skip
def test_the_fitted_memory_is_read_for_every_revision(table, revision, fields, memory):
    found = vbios.parse(rom({table: DataTable(revision, fields)}))
    assert found.memory() == vbios.Memory(*memory)


def test_an_unknown_module_is_the_first():
    modules = {f"vram_module[{n}].channel_num": n + 4 for n in range(2)}
    found = vbios.parse(rom({"vram_info": DataTable((2, 4), modules)}))
    assert (found.memory(1).channels, found.memory(200).channels) == (5, 4)


def test_a_table_that_is_missing_or_of_an_unknown_revision_says_so():
    found = vbios.parse(rom({"firmwareinfo": DataTable((2, 2), b"old")}))
    with pytest.raises(FirmwareError, match=r"no firmwareinfo: revision 2\.2 is not known; known: 3\.1"):
        found.require("firmwareinfo")
    with pytest.raises(FirmwareError, match="no gfx_info: the ROM lists none"):
        _ = found.reference_clock_hz
    with pytest.raises(FirmwareError, match="the ROM has no smc_dpm_info table"):
        found.table_bytes("smc_dpm_info")


def test_fields_beyond_a_short_table_are_not_made_up():
    # The table ends in bootup_vddc_mv, at byte 28.
    found = vbios.parse(rom({"firmwareinfo": DataTable((3, 4), bytes(28))}))
    assert "bios_scratch_reg_startaddr" in found.require("firmwareinfo")
    assert "mc_baseaddr_high" not in found.require("firmwareinfo")
    with pytest.raises(FirmwareError, match="bios_scratch_reg_startaddr is beyond the end of its table"):
        _ = vbios.parse(rom({"firmwareinfo": DataTable((3, 4), bytes(20))})).scratch_dword


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: b"", "the ROM header takes bytes 0 to 112"),
        (lambda blob: blob[:111], "the ROM header takes bytes 0 to 112"),
        (lambda blob: patched(blob, 0, 0), "byte 0x0 holds 0, an ATOM ROM has 43605"),
        (lambda blob: patched(blob, 0x31, 0), "byte 0x30 holds"),
        (lambda blob: patched(blob, 2, 0, "<B"), "byte 2 says 0 bytes"),
        (lambda blob: patched(blob, 2, 255, "<B"), "byte 2 says 130560 bytes"),
        (lambda blob: patched(blob, 0x18, 0xFFFF), "the PCI data takes bytes 65535"),
        (lambda blob: patched(blob, 0x18, 0x60), "byte 96 holds"),
        (lambda blob: patched(blob, 0x48, 0xFFF0), "the ATOM header takes bytes 65520"),
        (lambda blob: patched(blob, header_at(blob) + 4, 0), "holds b'\\x00\\x00OM'"),
        (lambda blob: patched(blob, header_at(blob) + 0x20, 0xFFFF), "the list's|data tables' list takes bytes 65535"),
        (lambda blob: patched(blob, header_at(blob) + 0x1E, 0xFFFF), "command tables' list takes bytes 65535"),
    ],
)
def test_a_damaged_rom_is_an_error_that_names_the_byte(damage, message):
    with pytest.raises(FirmwareError) as caught:
        vbios.parse(damage(rom()), "rom")
    assert str(caught.value).startswith("rom: ")
    assert any(part in str(caught.value) for part in message.split("|"))


def test_a_table_outside_the_rom_is_named():
    blob = rom()
    data = struct.unpack_from("<H", blob, header_at(blob) + 0x20)[0]
    with pytest.raises(FirmwareError, match="the header of data table firmwareinfo takes bytes 65534"):
        # firmwareinfo is the fifth: atomfirmware.h
        vbios.parse(patched(blob, data + 4 + 8, 0xFFFE))
    place = struct.unpack_from("<H", blob, data + 4 + 8)[0]
    with pytest.raises(FirmwareError, match="data table firmwareinfo ends at byte"):
        vbios.parse(patched(blob, place, 0xFFFF))
    with pytest.raises(FirmwareError, match="says 3 bytes for the list of data tables"):
        vbios.parse(patched(blob, data, 3))


def test_a_wrong_sum_is_shown_and_no_reason_to_refuse():
    blob = rom()
    assert not vbios.parse(patched(blob, len(blob) - 1, blob[-1] ^ 1, "<B")).sum_is_zero


def test_strings_of_a_hostile_rom_print_as_text():
    found = vbios.parse(rom(strings=("113\x1b[31m\x07",), title="\x1b]0;x"))
    assert (found.part_number, found.title) == ("113[31m", "]0;x")
    # The strings are outside the image.
    assert vbios.parse(patched(rom(), 0x6E, 0xFFF0)).part_number == ""
