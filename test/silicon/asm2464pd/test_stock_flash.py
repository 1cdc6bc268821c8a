"""The flash through vendor commands, resets, and the loader in mask ROM that remains after a failed update."""

import struct

import pytest
import usb.core
import usb.util

from ringup.silicon.asm2464pd.hardware.flash_image import (
    PATCHED,
    Config,
    body_of,
    kind_of,
    router_block,
    synthetic_image,
)

FLASH_WRITE_FAILED, FLASH_READ_FAILED, BAD_FIELD, BAD_OPCODE = (3, 0x03, 0), (3, 0x11, 0), (5, 0x24, 0), (5, 0x20, 0)
PART_ONE = 0xFF00


def flash_command(opcode, select, size_bytes):
    return struct.pack(">BBI", opcode, select, size_bytes)


def steps(image, config):
    """Return the steps of an update as extra/usbgpu/patch.py makes them: command and data, in order."""
    yield bytes.fromhex("e15000"), config.pack()
    yield bytes.fromhex("e15001"), router_block()
    yield flash_command(0xE3, 0x50, PART_ONE), image[:PART_ONE]
    yield flash_command(0xE3, 0xD0, len(image) - PART_ONE), image[PART_ONE:]


def update(s, image, config=PATCHED):
    for cdb, data in steps(image, config):
        assert s.bot(cdb, data=data).status == 0


def restart(s):
    """Send E8 50, and find the device again."""
    assert s.bot(bytes.fromhex("e850")).status == 0
    begin = s.clock.now_us
    assert s.clock.run_until(lambda: usb.core.find(backend=s.host) is not None, 10e6)
    s.open()
    return s.clock.now_us - begin


def replug(s):
    s.host.unplug()
    s.host.plug(s.enclosure)
    s.open()


def looks_like_the_loader(s):
    ids = s.dev.idVendor, s.dev.idProduct, usb.util.get_string(s.dev, s.dev.iProduct)
    return ids == (0x174C, 0x2463, "AS2462") and len(list(s.dev[0])) == 1


def test_both_blocks_are_read_and_any_other_length_is_refused(storage):
    s = storage("patched")
    assert s.bot(bytes.fromhex("e05000000000"), 128).data == PATCHED.pack()
    assert s.bot(bytes.fromhex("e05001000000"), 128).data == router_block()
    for length in (64, 255):
        assert s.bot(bytes.fromhex("e05000000000"), length).status == 1
        assert s.sense() == BAD_FIELD
    assert s.bot(bytes.fromhex("e05002000000"), 128).status == 1
    assert s.sense() == FLASH_READ_FAILED


def test_the_image_is_read_in_its_two_parts(storage):
    s, image = storage(), synthetic_image("stock")
    first = s.bot(flash_command(0xE2, 0x50, PART_ONE), PART_ONE).data
    rest = s.bot(flash_command(0xE2, 0xD0, len(image) - PART_ONE), len(image) - PART_ONE).data
    assert first + rest == image
    # The second copy is empty.
    assert s.bot(flash_command(0xE2, 0xD1, 16), 16).data == b"\xff" * 16


@pytest.mark.parametrize(("cdb", "read", "write"), [
    (flash_command(0xE2, 0x50, 0x1_0001), 0x1_0001, 0),
    (flash_command(0xE2, 0x00, 16), 16, 0),
    (flash_command(0xE3, 0x50, 0xFF01), 0, 0xFF01),
    (flash_command(0xE3, 0xD0, 0x1_0001), 0, 0x1_0001),
    (flash_command(0xE3, 0x80, 16), 0, 16),
])  # fmt: skip
def test_lengths_and_selectors_out_of_range_are_refused_and_nothing_is_written(storage, cdb, read, write):
    s = storage()
    before = bytes(s.enclosure.flash.cells)
    assert s.bot(cdb, read, bytes(write)).status == 1
    assert s.sense() == BAD_FIELD
    assert bytes(s.enclosure.flash.cells) == before


@pytest.mark.parametrize("uas", [False, True])
def test_an_update_in_the_published_order_makes_another_device_of_it(storage, uas):
    s, image = storage(), synthetic_image("patched")
    if uas:
        s.start_uas()
        for cdb, data in steps(image, PATCHED):
            assert s.uas(cdb, data=data)[0][6] == 0
        s.host.free_streams(s.handle, (0x81, 0x83, 0x02))
        s.dev.set_interface_altsetting(0, 0)
    else:
        update(s, image)
    assert s.enclosure.flash.body() == body_of(image)
    # About 3 s, measured by asm2464pd-soft-replug.
    assert 2_500_000 < restart(s) < 3_500_000
    assert (s.dev.idVendor, s.dev.idProduct) == (0xADD1, 0x0001)
    assert s.enclosure.firmware.patched


def test_a_write_without_block_0_before_it_only_clears_bits(storage):
    s, image = storage(), synthetic_image("patched", seed=5)
    update(s, synthetic_image("stock"))
    # The command notices no error.
    assert s.bot(flash_command(0xE3, 0x50, PART_ONE), data=image[:PART_ONE]).status == 0
    assert s.enclosure.flash.body() is None
    assert "over cells that were not erased" in s.enclosure.violations[0].text
    restart(s)
    assert looks_like_the_loader(s)


def test_block_0_erases_the_image_of_its_copy_and_not_the_other(storage):
    s = storage()
    assert s.bot(bytes.fromhex("e15100"), data=Config().pack()).status == 0
    assert s.enclosure.flash.body(0) is not None
    assert s.bot(bytes.fromhex("e15000"), data=Config().pack()).status == 0
    assert s.enclosure.flash.body(0) is None
    assert s.bot(bytes.fromhex("e05000000000"), 128).data == Config().pack()
    assert s.bot(flash_command(0xE2, 0x50, 16), 16).data == b"\xff" * 16


def test_a_flash_that_does_not_take_it_ends_the_command_with_a_write_fault(storage):
    s = storage()
    for cdb in ("e15000", "e15001"):
        s.enclosure.faults.inject("flash_write_fails", 1)
        assert s.bot(bytes.fromhex(cdb), data=Config().pack()).status == 1
        assert s.sense() == FLASH_WRITE_FAILED
    s.enclosure.faults.inject("flash_write_fails", 1)
    assert s.bot(flash_command(0xE3, 0x50, 512), data=bytes(512)).status == 1
    assert s.sense() == FLASH_WRITE_FAILED
    # There are two blocks.
    assert s.bot(bytes.fromhex("e15002"), data=bytes(128)).status == 1
    assert s.sense() == FLASH_WRITE_FAILED


def test_a_bad_page_shows_only_when_it_is_read_back(storage):
    s, image = storage(), synthetic_image("patched")
    s.enclosure.faults.inject("flash_bad_page", 0x4321)
    update(s, image)
    got = s.bot(flash_command(0xE2, 0x50, PART_ONE), PART_ONE).data
    assert [at for at in range(0, PART_ONE, 256) if got[at : at + 256] != image[at : at + 256]] == [0x4200]
    restart(s)
    assert looks_like_the_loader(s)


@pytest.mark.parametrize("after_bytes", [0, 64, 300, 60_000, 98_000])
def test_power_lost_in_an_update_leaves_the_loader_and_the_loader_repairs_it(storage, after_bytes):
    s, image = storage(), synthetic_image("patched")
    s.enclosure.faults.inject("flash_power_lost", after_bytes)
    with pytest.raises(usb.core.USBError):
        update(s, image)
    assert usb.core.find(backend=s.host) is None
    s.enclosure.faults.clear()
    replug(s)
    assert looks_like_the_loader(s)
    update(s, image)
    restart(s)
    assert (s.dev.idVendor, s.dev.idProduct) == (0xADD1, 0x0001)


def test_a_cable_pulled_in_the_middle_of_a_write_leaves_a_part(storage):
    s, image = storage(), synthetic_image("patched")
    first, second, third, _ = steps(image, PATCHED)
    for cdb, data in (first, second):
        s.bot(cdb, data=data)
    s.dev.write(0x02, s.wrapper(third[0], PART_ONE, to_host=False))
    s.dev.write(0x02, third[1])
    s.clock.sleep_us(100_000)
    replug(s)
    written = s.enclosure.flash.read(0x100, PART_ONE)
    assert image.startswith(written.rstrip(b"\xff")[:10_000])
    assert written[-1000:] == b"\xff" * 1000
    assert looks_like_the_loader(s)


def test_the_loader_writes_and_resets_and_does_nothing_else(storage):
    s = storage("rom")
    assert looks_like_the_loader(s)
    assert (s.dev.bcdDevice, usb.util.get_string(s.dev, s.dev.iSerialNumber)) == (0x0001, "0" * 20)
    assert s.bot(bytes.fromhex("120000002400"), 36).data[8:12] == b"ASMT"
    for cdb, read in (("e4065007f000", 6), ("e05000000000", 128), ("e25000000010", 16), ("28000000000000000100", 512)):
        assert s.bot(bytes.fromhex(cdb), read).status == 1
        assert s.sense() == BAD_OPCODE
    with pytest.raises(usb.core.USBError):
        # SET_INTERFACE: the interface has no second setting.
        s.dev.ctrl_transfer(0x01, 11, 1, 0, None)


def test_the_strap_keeps_a_good_image_from_starting(storage):
    s = storage()
    s.enclosure.strap = True
    restart(s)
    assert looks_like_the_loader(s)
    s.enclosure.strap = False
    restart(s)
    assert s.dev.idProduct == 0x2464


def test_an_image_of_the_open_firmware_starts_the_open_firmware(storage):
    s = storage()
    update(s, synthetic_image("open"))
    assert kind_of(s.enclosure.flash.body()) == "open"
    s.bot(bytes.fromhex("e850"))
    s.clock.run_until(lambda: usb.core.find(backend=s.host) is not None, 10e6)
    assert usb.core.find(backend=s.host)[0][(0, 0)].bInterfaceClass == 0xFF


def test_detaching_lasts_until_the_supply_from_usb_was_away(storage):
    s = storage(card=True)
    assert s.bot(bytes.fromhex("e851").ljust(15, b"\0")).status == 0
    s.clock.sleep_us(60e6)
    assert usb.core.find(backend=s.host) is None
    assert not s.enclosure.chip.link.up
    replug(s)
    assert s.peek(0x07F0, 3) == bytes.fromhex("240417")


def test_any_other_reset_is_refused(storage):
    s = storage()
    for select in ("e800", "e801", "e852"):
        assert s.bot(bytes.fromhex(select)).status == 1
        assert s.sense() == BAD_OPCODE
