"""The stock firmware's commands: the requests of a host's disk driver, chip memory through E4 and E5, and its
descriptors on USB.
"""

import struct

import pytest
import usb.util

from ringup.silicon.asm2464pd.hardware.flash_image import OTHER_VERSION, Config, synthetic_image

BAD_FIELD, BAD_OPCODE, NO_MEDIUM = (5, 0x24, 0), (5, 0x20, 0), (2, 0x3A, 0)
# extra/usbgpu: the seven pokes as address and bytes.
POKES = ((0x054B, 0x20), (0x054E, 4), (0x05A8, 2), (0x05F8, 4), (0x07EC, 1, 0, 0, 0), (0xC422, 2), (0x0000, 0x33))

# AS_USB4_240417_85_00_00.bin: the tables at code 0x585C. The length covers both settings, as the firmware writes it at
# run time.
SUPER_CONFIGURATION = bytes.fromhex(
    "09027900010100c000 090400000208065000 07058102000400 06300f000000 07050202000400 06300f000000"
    "090400010408066200 07058102000400 06300f050000 04240300 07050202000400 06300f050000 04240400"
    "07058302000400 06300f050000 04240200 07050402000400 063000000000 04240100"
)
HIGH_CONFIGURATION = bytes.fromhex(
    "09025500010100c000 090400000208065000 07058102000200 07050202000200"
    "090400010408066200 07058102000200 04240300 07050202000200 04240400 07058302000200 04240200 07050402000200 04240100"
)


def refused(s, cdb, read=0, data=b""):
    """Send a command that must end with check condition; return its sense data."""
    assert s.bot(cdb, read, data).status == 1
    return s.sense()


@pytest.mark.parametrize(("speed", "expected"), [("super", SUPER_CONFIGURATION), ("high", HIGH_CONFIGURATION)])
def test_the_configuration_descriptor_is_the_images_table(storage, speed, expected):
    s = storage(speed=speed)
    assert bytes(s.dev.ctrl_transfer(0x80, 6, 0x0200, 0, 255)) == expected


def test_the_device_shows_what_its_configuration_block_says(storage):
    s = storage("patched")
    assert (s.dev.idVendor, s.dev.idProduct, s.dev.bcdDevice) == (0xADD1, 0x0001, 0x0100)
    assert usb.util.get_string(s.dev, s.dev.iProduct) == "USB 3.2 PCIe TinyEnclosure"
    assert usb.util.get_string(s.dev, s.dev.iSerialNumber) == "AAAABBBB0060"
    s = storage("stock")
    assert (s.dev.idVendor, s.dev.idProduct) == (0x174C, 0x2464)


def test_with_a_bad_block_it_shows_what_is_built_in(storage):
    s = storage("stock", config=Config(policy=b"\0\0\0\0"))
    s.enclosure.flash.cells[0x10] ^= 1
    s.host.unplug()
    s.host.plug(s.enclosure)
    s.open()
    assert (s.dev.idVendor, s.dev.idProduct, s.dev.bcdDevice) == (0x174C, 0x2462, 0x0001)
    assert usb.util.get_string(s.dev, s.dev.iProduct) == "AS2462"


# --- what a disk driver asks ------------------------------------------------------------------------------------------
def test_inquiry_names_the_maker_and_the_chip(storage):
    data = storage().bot(bytes.fromhex("120000004c00"), 76).data
    # A removable disk, SPC-4, 76 bytes.
    assert data[:8] == bytes.fromhex("0080060247000000")
    assert data[8:36] == b"ASMT    ASM2464         0   "
    assert data[58:64] == bytes.fromhex("04c017470460")  # SBC-3, UAS, SPC-4


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (0x00, "0000000600 80 83 b0 b1 b2"),
        (0x83, "0083000c 01030008 5000000000000001"),
        (0xB2, "00b20004 00000000"),
    ],
)
def test_vital_product_data_is_the_images(storage, page, expected):
    expected = bytes.fromhex(expected)
    done = storage().bot(struct.pack(">BBBHB", 0x12, 1, page, len(expected), 0), len(expected))
    assert done.data == expected


def test_pages_that_do_not_exist_are_refused(storage):
    s = storage()
    assert refused(s, bytes.fromhex("12018100ff00"), 255) == BAD_FIELD
    # A page without EVPD.
    assert refused(s, bytes.fromhex("12008000ff00"), 255) == BAD_FIELD
    assert refused(s, bytes.fromhex("1a000100ff00"), 255) == BAD_FIELD
    assert refused(s, bytes.fromhex("5a00080000000000ff00"), 255) == BAD_FIELD


def test_mode_sense_shows_all_pages_and_the_write_cache_that_a_poke_switches(storage):
    s = storage()
    data = s.bot(bytes.fromhex("1a003f004400"), 0x44).data
    assert data[:6] == bytes.fromhex("43000000051e")
    assert data[36:39] == bytes.fromhex("081200")
    assert data[56:58] == bytes.fromhex("1c0a")
    s.poke(0x0000, 0x33)
    assert s.bot(bytes.fromhex("1a0008001800"), 0x18).data[6] == 0x04
    mode_select = bytes([0, 0, 0, 0, 8, 0x12, 0]).ljust(24, b"\0")
    assert s.bot(bytes([0x15, 0x10, 0, 0, 24, 0]), data=mode_select).status == 0
    assert s.peek(0x0000, 1) == b"\0"


def test_there_is_no_medium_and_commands_that_need_one_say_so(storage):
    s = storage(card=True)
    assert refused(s, bytes(6)) == NO_MEDIUM
    # The card reports it once.
    assert s.sense() == (0, 0, 0)
    assert refused(s, bytes.fromhex("25000000000000000000"), 8) == NO_MEDIUM
    assert refused(s, bytes.fromhex("9e1000000000000000000000002000 00"), 32) == NO_MEDIUM
    assert refused(s, bytes.fromhex("35000000000000000000")) == NO_MEDIUM
    assert refused(s, bytes.fromhex("28000000000000000100"), 512) == NO_MEDIUM
    assert refused(s, bytes.fromhex("2a000000000000000100"), data=bytes(512)) == NO_MEDIUM
    assert refused(s, bytes.fromhex("e602"), 512) == NO_MEDIUM


@pytest.mark.parametrize("cdb", ["040000000000", "1b0000000100", "1d0000000000", "1e0000000100"])
def test_commands_that_do_nothing_are_good(storage, cdb):
    assert storage().bot(bytes.fromhex(cdb)).status == 0


def test_one_unit_is_reported(storage):
    s = storage()
    assert s.bot(bytes.fromhex("a00000000000000000100000"), 16).data == bytes.fromhex("00000008") + bytes(12)
    assert refused(s, bytes.fromhex("a00000000000000000080000"), 8) == BAD_FIELD


@pytest.mark.parametrize("opcode", [0x01, 0x08, 0x23, 0x55, 0xC0, 0xE7, 0xFF])
def test_an_opcode_that_is_not_in_the_table_is_refused(storage, opcode):
    assert refused(storage(), bytes([opcode]) + bytes(5)) == BAD_OPCODE


# --- chip memory ------------------------------------------------------------------------------------------------------
def test_memory_is_read_by_255_bytes_and_written_by_one(storage):
    s = storage()
    s.poke(0x3000, *range(255))
    assert s.peek(0x3000, 255) == bytes(range(255))
    assert s.peek(0x07F0, 6) == bytes.fromhex("240417850000")
    # A read of no bytes succeeds.
    assert s.bot(bytes.fromhex("e40050300000")).status == 0


def test_page_1_is_another_memory(storage):
    s = storage()
    s.poke(0x4000, 0x11)
    s.poke(0x4000, 0x22, page=1)
    assert (s.peek(0x4000, 1), s.peek(0x4000, 1, page=1)) == (b"\x11", b"\x22")


def test_the_reply_passes_through_the_buffer_at_8000(storage):
    s = storage()
    s.poke(0x3000, 0xAB, 0xCD)
    s.peek(0x3000, 2)
    assert s.peek(0x8001, 1) == b"\xcd"
    # The earlier reply put its own byte there.
    assert s.peek(0x8000, 1) == b"\xcd"


@pytest.mark.parametrize("cdb", ["e4040007f000", "e4045207f000", "e5ff00300000", "e000"])
def test_the_older_chips_forms_are_refused(storage, cdb):
    cdb = bytes.fromhex(cdb).ljust(6, b"\0")
    read = {0xE4: 4, 0xE0: 128}.get(cdb[0], 0)
    assert refused(storage(), cdb, read) == BAD_FIELD


def test_a_read_of_128_bytes_takes_160_microseconds(storage):
    s = storage()
    s.start_uas()
    begin = s.clock.now_us
    transfers = []
    for tag in range(1, 32):
        status, data = s.submit(0x83, 64, tag), s.submit(0x81, 128, tag)
        transfers += [status, data, s.submit(0x04, s.command_unit(tag, bytes.fromhex("e48050400000")))]
    s.wait(*transfers)
    # usb-to-pcie-re issue 1, measured.
    assert (s.clock.now_us - begin) / 31 == pytest.approx(160, rel=0.15)


def test_the_slot_trains_by_itself_and_its_switches_do_not_move(storage):
    s = storage(card=True)
    assert s.peek(0xB450, 1) == b"\x48"  # L0 under 174C
    # One lane, generation 3.
    assert s.peek(0x4092, 1, page=1) == b"\x13"
    for register in (0xB480, 0xC656, 0xC659, 0xE764):
        before = s.peek(register, 1)
        s.poke(register, before[0] ^ 0xFF)
        assert s.peek(register, 1) == before
    assert s.peek(0xB480, 1) == b"\x01"
    assert s.enclosure.chip.link.up
    assert storage("patched", card=True).peek(0xB450, 1) == b"\x78"


def test_a_link_that_was_lost_stays_down_until_the_next_start(storage):
    s = storage(card=True)
    s.enclosure.unplug_card()
    s.enclosure.plug_card()
    s.clock.sleep_us(5e6)
    assert s.peek(0xB450, 1) != b"\x48"
    s.bot(bytes.fromhex("e850"))
    s.clock.sleep_us(5e6)
    s.open()
    assert s.peek(0xB450, 1) == b"\x48"


def test_a_configuration_read_over_tlp_registers_reaches_the_first_port(storage):
    s = storage(card=True)
    for address, *values in (
        (0xB218, 0, 0, 0, 0), (0xB21C, 0, 0, 0, 0), (0xB217, 0x0F), (0xB210, 0x04), (0xB254, 0x0F), (0xB296, 0x04),
    ):  # fmt: skip
        s.poke(address, *values)
    # Done, without an error.
    assert s.peek(0xB296, 1)[0] & 3 == 2
    assert s.peek(0xB284, 1)[0] & 1
    # Successful, four bytes.
    assert int.from_bytes(s.peek(0xB22A, 2), "big") == 4
    assert int.from_bytes(s.peek(0xB220, 4), "big") & 0xFFFF == 0x1B21


# --- faults -----------------------------------------------------------------------------------------------------------
def test_a_check_condition_strikes_the_chosen_command(storage):
    s = storage()
    s.enclosure.faults.inject("scsi_check_condition", 2)
    assert [s.bot(bytes.fromhex("1b0000000100")).status for _ in range(4)] == [0, 0, 1, 0]
    s.enclosure.faults.inject("scsi_check_condition")
    assert s.bot(bytes.fromhex("1b0000000100")).status == 1


def test_another_version_says_so_and_no_poke_makes_it_ready(storage):
    s = storage("stock", card=True, image=synthetic_image("stock", OTHER_VERSION))
    assert s.peek(0x07F0, 6) == bytes.fromhex("241129850000")
    for address, *values in POKES:
        s.poke(address, *values)
    assert refused(s, bytes(6)) == NO_MEDIUM
