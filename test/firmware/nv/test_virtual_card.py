"""The virtual cards' made-up files and ROMs are in NVIDIA's containers: every one is read."""

import pytest

from ringup import silicon
from ringup.firmware.nv import booter, bootloader, fmc, gsp, loader, vbios

PARSERS = {"gsp": gsp, "bootloader": bootloader, "booter": booter, "fmc": fmc, "bl": loader, "gen": loader}
CHIPS = silicon.nvidia_cards()
# Cards with an FSP: GH100 and Blackwell.
WITH_FSP = {"gh100", "gb202"}
# Cards whose SEC2 has a boot ROM that checks signatures: OGKM, bBootFromHs.
FROM_HS = {"ga102", "ad102"}


def files(chip):
    """The parsed files, by the kernel's names."""
    made = {}
    for name, blob in silicon.nvidia_firmware(chip).items():
        kind = name.rpartition("/")[2].partition(".")[0].partition("-")[0].partition("_")[0]
        made[name] = PARSERS[kind].parse(blob, name)
    return made


def rom(chip):
    card = silicon.nvidia_card(chip, vram_bytes=512 << 20)
    # the expansion ROM's enable bit
    card.config.write(0x30, card.config.read(0x30, 4) | 1, 4)
    try:
        return bytes(card.rom.read_block(0, card.rom.size_bytes))
    finally:
        card.close()


@pytest.mark.parametrize("chip", CHIPS)
def test_every_file_of_a_card_is_read(chip):
    found = files(chip)
    for name, image in found.items():
        assert image.name == name
        if isinstance(image, gsp.GspImage):
            assert len(image.signature(chip)) == 4096
            assert image.image
        if isinstance(image, fmc.Fmc):
            image.check_for(chip)
    kinds = {type(image).__name__ for image in found.values()}
    assert ("Fmc" in kinds, "Booter" in kinds) == (chip in WITH_FSP, chip not in WITH_FSP)


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip not in WITH_FSP])
def test_a_booter_fits_its_falcon(chip):
    for name, image in files(chip).items():
        if not isinstance(image, booter.Booter):
            continue
        ucode = image.ucode(boot_from_hs=chip in FROM_HS)
        assert (ucode.non_secure is None) == (chip in FROM_HS)
        signed = ucode.signed(0)
        place = ucode.signature_offset_bytes
        assert signed.image[place : place + len(ucode.signatures[0])] == ucode.signatures[-1], name
        assert len(signed.image) == len(ucode.image)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_cards_own_rom_is_read(chip):
    found = vbios.parse(rom(chip), chip)
    assert found.pci_vendor == 0x10DE
    assert found.version
    assert found.sum_is_zero
    program = found.fwsec()
    assert program.needs_loader == (chip in {"tu102", "ga100"})
    assert program.mapper.cmd_in_buffer_size_bytes >= 44
