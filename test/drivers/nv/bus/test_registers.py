"""Typed registers, the window into memory, the interrupt tree and the ROM, on virtual cards."""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.nv.boot import NV_PBUS_SW_SCRATCH, NV_PROM_DATA
from ringup.autogen.nv.engines import NV_PFSP_QUEUE_HEAD, NV_PGSP_QUEUE_HEAD
from ringup.autogen.nv.mmu import NV_PFB_PRI_MMU_WPR2_ADDR_HI
from ringup.drivers.nv.bus import prom
from ringup.drivers.nv.bus.interrupts import InterruptTree
from ringup.drivers.nv.bus.registers import Block, Registers, is_pri_error
from ringup.drivers.nv.bus.window import VramWindow
from ringup.drivers.transport.config_space import change_command
from ringup.errors import DeviceTimeout, FirmwareError, NotSupported
from ringup.silicon import nvidia_card

CHIPS = ("tu102", "ga100", "ga102", "ad102", "gh100", "gb202")


def block_of(name="ga102"):
    """Return the registers of a virtual card whose memory is decoded."""
    card = nvidia_card(name)
    change_command(card.config, on=2)
    return Block(Registers(card))


def test_places_of_arrays_and_engines():
    block = block_of()
    # dev_gsp.h: NV_PGSP_QUEUE_HEAD(i) 0x110c00 + 8 i, 8 of them; dev_bus.h: NV_PBUS_SW_SCRATCH(i) 0x1400 + 4 i
    assert block.address(NV_PGSP_QUEUE_HEAD, 7) == 0x11_0C38
    assert block.address(NV_PBUS_SW_SCRATCH, 0x15) == 0x1454
    assert Block(block.registers, base=0x1000).address(NV_PBUS_SW_SCRATCH) == 0x2400
    for index in (8, -1):
        with pytest.raises(ValueError, match="NV_PGSP_QUEUE_HEAD has 8 elements"):
            block.address(NV_PGSP_QUEUE_HEAD, index)
    with pytest.raises(ValueError, match="has no elements"):
        block.address(NV_PFB_PRI_MMU_WPR2_ADDR_HI, 1)


def test_a_register_that_the_chip_lacks_is_named():
    block = block_of()
    assert not block.has(NV_PFSP_QUEUE_HEAD)
    with pytest.raises(NotSupported, match=r"virtual:ga102 \(ga102\): NV_PFSP_QUEUE_HEAD has a place in gh100"):
        block.read(NV_PFSP_QUEUE_HEAD)
    assert block_of("gh100").has(NV_PFSP_QUEUE_HEAD)


def test_a_wait_is_bounded_and_says_what_was_read():
    block = block_of()
    with pytest.raises(DeviceTimeout, match=r"waiting: NV_PFB_PRI_MMU_WPR2_ADDR_HI read 0x0000.* for 1 ms; do this"):
        block.wait(NV_PFB_PRI_MMU_WPR2_ADDR_HI, lambda seen: bool(seen.val), 1000, "waiting", advice="; do this")


def test_reads_that_nothing_answers_are_known():
    assert is_pri_error(0xBADF_1100)
    assert not is_pri_error(0xBAD0_1100)


@pytest.mark.parametrize("name", CHIPS)
def test_the_window_shows_memory_over_its_own_end(name):
    window = VramWindow(block_of(name).registers)
    data = bytes(at * 5 & 0xFF for at in range(64))
    for vram_pa in (0x1234_FFF0, (7 << 20) - 8, 0):
        window.write(vram_pa, data)
        assert window.read(vram_pa, 64) == data
    window.forget()
    assert window.read(0, 64) == data
    for vram_pa, size in ((2, 4), (0, 6), (-4, 4)):
        with pytest.raises(ValueError, match="whole dwords"):
            window.read(vram_pa, size)


def test_an_interrupt_tree_without_vectors_is_quiet():
    tree = InterruptTree(block_of().registers)
    tree.silence()
    assert tree.serve() == []
    tree.disarm(5)
    for vector in (-1, 64 * 32):
        with pytest.raises(ValueError, match="an interrupt vector lies below 2048"):
            tree.arm(vector, lambda: None)


def test_a_vector_is_served_when_it_is_triggered():
    block = block_of()
    tree, served = InterruptTree(block.registers), []
    tree.arm(70, lambda: served.append(70))
    assert tree.serve() == []
    # dev_vm.h: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_TRIGGER
    block.registers.write(0xB8_1640, 70)
    assert block.registers.device.interrupts.wait(1000)
    assert tree.serve() == served == [70]
    assert tree.serve() == []
    block.registers.write(0xB8_1640, 70)
    assert tree.serve() == [70]
    tree.disarm(70)
    block.registers.write(0xB8_1640, 70)
    assert tree.serve() == []


@pytest.mark.parametrize("name", ["tu102", "ga102"])
def test_the_rom_is_read_from_its_first_image_on(name):
    block = block_of(name)
    data = prom.read(block)
    assert data[:2] == b"\x55\xaa"
    assert not len(data) % 512
    assert block.registers.reads < 2 * len(data) // 4


class Rom:
    """A ROM as the registers show it."""

    def __init__(self, data):
        self.data, self.registers = data.ljust(1 << 20, b"\0"), self

    def address(self, word):
        assert word is NV_PROM_DATA
        return 0x30_0000

    def read_run(self, address, size_bytes):
        return self.data[address - 0x30_0000 :][:size_bytes]


def image(blocks, *, kind=0, last=True, extension=b""):
    """Return an image of 512-byte blocks, by the PCI firmware specification."""
    pcir = b"PCIR" + struct.pack("<HHHHB3xHHBBxx", 0x10DE, 0x2204, 0, 0x18, 3, blocks, 0, kind, 0x80 if last else 0)
    head = b"\x55\xaa".ljust(0x18, b"\0") + struct.pack("<H", 0x40)
    return (head.ljust(0x40, b"\0") + pcir.ljust(0x20, b"\0") + extension).ljust(blocks * 512, b"\x5a")


def test_images_for_efi_are_not_fetched():
    whole = image(2, last=False) + image(8, kind=3, last=False) + image(1, kind=0xE0)
    got = prom.read(Rom(whole))
    assert len(got) == 11 * 512
    assert got[: 2 * 512] == whole[: 2 * 512]
    assert got[10 * 512 :] == whole[10 * 512 :]
    assert got[1024:1026] == b"\x55\xaa"
    assert not any(got[1024 + 0x80 : 10 * 512])


def test_nvidias_extension_says_the_length_and_whether_it_is_the_last():
    # NPDE: signature, revision, length, length of the sub-image, last
    extension = b"NPDE" + struct.pack("<HHHBx", 0x100, 0xB, 1, 0) + bytes(4)
    assert len(prom.read(Rom(image(1, extension=extension) + image(3)))) == 4 * 512


@pytest.mark.parametrize("version", [1, 3])
def test_init_from_rom_data_lead_to_the_images(version):
    head = bytearray(0x3000)
    struct.pack_into("<III", head, 0, 0x4947_564E, version << 8 | 0x100 << 16, 0x200)
    if version == 1:
        struct.pack_into("<I", head, 0x104, 0x3000)
    else:
        struct.pack_into("<I", head, 0x200, 0x800)
        struct.pack_into("<I4xI", head, 0x1800, 0x4452_4652, 0x3000)
    assert prom.read(Rom(bytes(head) + image(2))) == image(2)


HOSTILE = {
    "no ROM": (b"\xff" * 64, "begins with 0xffffffff"),
    "unknown IFR": (struct.pack("<III", 0x4947_564E, 9 << 8, 0), "IFR data of version 9"),
    "no directory": (struct.pack("<III", 0x4947_564E, 3 << 8, 0x100), "not the ROM's directory"),
    "outside": (struct.pack("<IIII", 0x4947_564E, 1 << 8 | 8 << 16, 0, 0xFFFF_FFF0), "puts the first image to"),
    "no PCI data": (b"\x55\xaa".ljust(64, b"\0"), "has no PCI data structure"),
    "no length": (image(0) + image(1)[:0x60], "has no bytes"),
    "no end": (image(1, last=False) * 17, "more than 16 images"),
    "not an image": (image(1, last=False) + b"\x12\x34" * 64, "an image at 0x200 begins with 0x3412"),
    "beyond the end": (image(0xFFFF, last=False), "lie outside of the ROM"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_damaged_roms_are_refused(kind):
    data, said = HOSTILE[kind]
    if kind == "no length":
        data = b"\x55\xaa".ljust(0x18, b"\0") + struct.pack("<H", 0x40)
        data = data.ljust(0x40, b"\0") + image(1)[0x40:0x50] + bytes(2) + image(1)[0x52:0x60]
    with pytest.raises(FirmwareError, match=said):
        prom.read(Rom(data))
