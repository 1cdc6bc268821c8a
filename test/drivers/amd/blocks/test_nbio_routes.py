"""The bus interface: doorbell routes as Linux's driver sets them, marks for the VBIOS, and a card in reset."""

import pytest

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.psp import vbios
from ringup.errors import FirmwareError

CHIPS = ("navi31", "navi32", "navi33")
ROUTES = {  # recorded from amdgpu.ko on a navi31 with two SDMA engines and one interrupt ring
    "S2A_DOORBELL_ENTRY_0_CTRL": 0x3000_0007,
    "S2A_DOORBELL_ENTRY_1_CTRL": 0x0005_7801,
    "S2A_DOORBELL_ENTRY_2_CTRL": 0x3051_001D,
    "S2A_DOORBELL_ENTRY_3_CTRL": 0x3000_000D,
}
APERTURE = "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN"
HUNG = 1 << 29  # atombios.h, ATOM_S3_ASIC_GUI_ENGINE_HUNG


@pytest.mark.parametrize("chip", CHIPS)
def test_doorbells_are_routed_as_linuxs_driver_routes_them(boot, chip):
    card = boot(chip)
    cells = card.radeon.nbio.cells
    assert {name: cells[name] for name in ROUTES} == ROUTES
    assert cells[APERTURE] == 1
    for _ in range(2):
        card.nbio.stop()
        card.radeon.settle()
        assert cells[APERTURE] == 0


def test_only_the_revisions_that_need_it_lose_their_usb_functions_state(boot):
    card = boot("navi31")
    strap = "RCC_DEV0_EPF2_STRAP2"
    # bit 7: STRAP_NO_SOFT_RESET_DEV0_F2
    card.radeon.nbio.cells[strap] = 0x80
    # nbio_v4_3.c, nbio_v4_3_init_registers: 4.3.0 alone
    card.nbio.version = (4, 3, 1)
    card.nbio.start(2)
    assert card.radeon.nbio.cells[strap] == 0x80
    card.nbio.version = (4, 3, 0)
    card.nbio.start(2)
    assert card.radeon.nbio.cells[strap] == 0


def test_the_mark_for_the_vbios_leaves_its_neighbours(boot):
    card = boot("navi31")
    scratch = "BIF_BX0_BIOS_SCRATCH_3"
    card.radeon.nbio.cells[scratch] = 0x1234
    card.nbio.mark_hung(True)
    card.radeon.settle()
    assert card.radeon.nbio.cells[scratch] == 0x1234 | HUNG
    card.nbio.mark_hung(False)
    card.radeon.settle()
    assert card.radeon.nbio.cells[scratch] == 0x1234


def test_the_interrupt_page_is_written_in_units_of_256_bytes(boot):
    card = boot("navi31")
    card.nbio.interrupt_page(0x12_3456_7800)
    assert card.radeon.nbio.cells["BIF_BX0_INTERRUPT_CNTL2"] == 0x1234_5678
    with pytest.raises(ValueError, match="lies on 256 bytes, not at 0x80"):
        card.nbio.interrupt_page(0x80)


def test_a_card_that_is_gone_answers_nothing(boot):
    card = boot("navi31")
    assert card.nbio.answers
    card.radeon.unplug()
    assert not card.nbio.answers
    card.radeon.violations.clear()


@pytest.mark.parametrize("chip", CHIPS)
def test_the_vbios_is_read_and_the_roms_decoding_put_back(boot, chip):
    card = boot(chip)
    before = card.radeon.config.read(0x30)
    image = vbios.read(card.radeon, card.ips)
    assert image.blob == bytes(card.radeon.image)
    assert card.radeon.config.read(0x30) == before
    # sizeof(BoardTable_t): smu13_driver_if_v13_0_0.h, v13_0_7 alike
    assert len(vbios.board_table(image)) == 488


def test_a_card_without_a_rom_is_read_from_its_flash_part(boot):
    card = boot("navi31")
    card.radeon.rom = None
    assert vbios.read(card.radeon, card.ips).blob == bytes(card.radeon.image)


def test_a_flash_part_without_an_image_is_reported(boot):
    card = boot("navi31")
    card.radeon.rom = None
    # The ROM starts 128 KiB in, where the flash is erased.
    card.radeon.nbio.cells["REGS_ROM_OFFSET_CTRL"] = 1
    with pytest.raises(
        FirmwareError, match=r"the card shows no expansion ROM; the flash part holds no image: it begins with ff ff ff"
    ):
        vbios.read(card.radeon, card.ips)


def test_a_rom_without_an_address_is_not_made_to_answer(boot):
    card = boot("navi31")
    card.radeon.config.write(0x30, 0)
    vbios.read(card.radeon, card.ips)
    assert card.radeon.config.read(0x30) == 0
    # This read uses an address that nobody set.
    card.radeon.violations.clear()


@pytest.mark.parametrize("version", [(4, 3, 0), (4, 3, 1), (6, 3, 1)])
def test_every_register_of_the_bus_interface_has_a_place_in_prepared_chips_too(boot, version):
    card = boot("navi31")
    block = Block(card.registers, "NBIO", version, (0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000))
    touched = []
    block.write = lambda word, plus_dwords=0: touched.append(block.address(type(word).BASE or type(word)))
    block.read = lambda word, plus_dwords=0: touched.append(block.address(word)) or word.at(version)(0)
    interface = Nbio(block, version)
    interface.start(2)
    interface.stop()
    interface.interrupt_page(0)
    interface.mark_hung(True)
    assert (interface.vram_bytes, interface.revision, interface.posted) == (0, 0, False)
    Hdp(block).start()
    assert len(set(touched)) > 12
