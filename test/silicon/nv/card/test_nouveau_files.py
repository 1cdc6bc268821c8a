"""The files that Linux's nouveau loads for a card: read as nouveau 6.12 reads them, they hold images for this chip."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon import nvidia_card, nvidia_firmware
from ringup.silicon.nv.common.signed import Part, identify


def words(data, at, count):
    return struct.unpack_from(f"<{count}I", data, at)


def sections(elf):
    """Return the sections of an ELF file by name: e_shoff at 0x28, e_shnum and e_shstrndx at 0x3c."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + 64 * index) for index in range(count)]
    text = elf[rows[names][4] : rows[names][4] + rows[names][5]]
    return {text[row[0] : text.index(b"\0", row[0])].decode(): elf[row[4] : row[4] + row[5]] for row in rows}


# of Linux 6.12, and of 7.3
@pytest.mark.parametrize("release", ["535.113.01", "570.144"])
@pytest.mark.parametrize(("chip", "family"), [("tu102", "tu10x"), ("ga102", "ga10x"), ("ad102", "ad10x")])
def test_nouveau_finds_the_images_of_its_chip(chip, family, release):
    files, found = nvidia_firmware(chip), {}
    for part in (Part.BOOTER_LOAD, Part.BOOTER_UNLOAD):
        file = files[f"nvidia/{chip}/gsp/{part.value.replace(' ', '_')}-{release}.bin"]
        # nvfw_bin_hdr, nvfw_hs_header_v2, nvfw_hs_load_header_v2
        magic, _, whole, header, data, size = words(file, 0, 6)
        assert (magic, whole, data + size) == (0x10DE, len(file), len(file))
        signature, signature_bytes, location, first, meta, _, signatures, load, _ = words(file, header, 9)
        plain, plain_bytes, data_at, data_bytes, apps, at, count = words(file, load, 7)
        assert (plain, plain_bytes, apps, data_at + data_bytes) == (0, at, 1, size)
        # tu102_gsp_booter_ctor and ga102_gsp_booter_ctor: the signature goes into the data, and there is one
        assert data_at <= words(file, location, 1)[0] <= size - signature_bytes
        assert words(file, first, 1) + words(file, signatures, 1) == (0, 1)
        assert any(file[signature : signature + signature_bytes])
        # the engine mask names SEC2, the program is number 3
        assert words(file, meta, 3) == (1, 1, 3)
        found[part] = identify(file[data + at : data + at + count])
    file = files[f"nvidia/{chip}/gsp/bootloader-{release}.bin"]
    header, data, size = words(file, 12, 3)
    found[Part.BOOTLOADER] = identify(file[data : data + size])
    # RM_RISCV_UCODE_DESC: offsets of code, data and manifest within the image
    assert max(words(file, header, 21)[index] for index in (8, 10, 12)) < size
    parts = sections(files[f"nvidia/{chip}/gsp/gsp-{release}.bin"])
    found[Part.GSP_RM] = identify(parts[".fwimage"])
    found[Part.SIGNATURE] = identify(parts[f".fwsignature_{family}"])
    for part, identity in found.items():
        assert identity is not None, part
        assert (identity.part, identity.releases, identity.chips) == (part, (release,), (chip,))


def test_turing_has_the_loader_that_its_falcons_need():
    file = nvidia_firmware("tu102")["nvidia/tu102/acr/bl.bin"]
    # nvfw_bl_desc: first block, and where the code is
    header, data, size = words(file, 12, 3)
    tag, _, offset, count = words(file, header, 4)
    assert (tag << 8) + count <= 1 << 16
    assert identify(file[data + offset : data + offset + count]).part is Part.LOADER
    assert count <= size
    card = nvidia_card("tu102", vram_bytes=512 << 20)
    assert card.firmware("nvidia/tu102/acr/bl.bin") == file
    assert card.firmware("nvidia/ga102/acr/bl.bin") is None
