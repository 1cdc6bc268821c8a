"""The enclosure's SPI flash: its cells behave as NOR cells, a loader tells good containers from bad ones, and faults
strike where asked.
"""

import zlib

import pytest

from ringup.silicon.asm2464pd.hardware import flash_image as image
from ringup.silicon.asm2464pd.hardware.flash import (
    BAD_PAGE,
    BYTES,
    POWER_LOST,
    WRITE_FAILS,
    PowerLost,
    SpiFlash,
    filled,
)
from ringup.silicon.common.faults import Faults


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def flash(faults):
    made = filled(faults, image.synthetic_image("stock"), image.Config())
    made.protection = 0
    return made


def run(job):
    """Run a handler to its end; return its result and the time it took."""
    spent_us = 0.0
    while True:
        try:
            spent_us += next(job)
        except StopIteration as end:
            return end.value, spent_us


def test_a_program_only_clears_bits_and_an_erase_sets_those_of_64_kib(flash):
    flash.erase_block(0x1_2345)
    assert flash.read(0x1_0000, 0x1_0000) == b"\xff" * 0x1_0000
    # The second part of the body is gone.
    assert flash.body() is None
    flash.program(0x1_0000, b"\x0f\xf0")
    flash.program(0x1_0000, b"\x3c\xff")
    assert flash.read(0x1_0000, 3) == b"\x0c\xf0\xff"
    # The first block is unchanged.
    assert flash.config() is not None


def test_a_program_wraps_inside_its_page_of_256_bytes(flash):
    flash.erase_block(0x3_0000)
    flash.program(0x3_01FE, b"\x01\x02\x03\x04")
    assert flash.read(0x3_01FE, 2) == b"\x01\x02"
    assert flash.read(0x3_0100, 2) == b"\x03\x04"
    assert flash.read(0x3_0200, 1) == b"\xff"


def test_a_read_past_the_last_cell_goes_on_at_the_first(flash):
    assert flash.read(BYTES - 1, 0x10)[1:] == flash.read(0, 0xF)


def test_a_long_write_takes_the_time_of_its_pages_and_is_whole(flash):
    run(flash.erase_copy(1))
    data = bytes(range(256)) * 10
    (done, spent_us) = run(flash.write(0x2_0100, data))
    assert done
    assert spent_us == 20 * 400
    assert flash.read(0x2_0100, len(data)) == data


def test_a_write_that_fails_says_so_and_stops(flash, faults):
    run(flash.erase_copy(1))
    faults.inject(WRITE_FAILS, 1)
    assert run(flash.write(0x2_0000, bytes(300)))[0] is False
    assert flash.read(0x2_0000, 300) == b"\xff" * 300
    # The fault struck once.
    assert run(flash.write(0x2_0000, bytes(300)))[0] is True


def test_a_bad_page_takes_its_program_and_keeps_its_cells(flash, faults):
    run(flash.erase_copy(1))
    faults.inject(BAD_PAGE, 0x2_0180)
    assert run(flash.write(0x2_0000, bytes(768)))[0] is True
    assert flash.read(0x2_0000, 768) == bytes(256) + b"\xff" * 256 + bytes(256)


@pytest.mark.parametrize("after_bytes", [0, 1, 127, 128, 129, 1000])
def test_power_lost_in_a_write_leaves_exactly_the_bytes_before_it(flash, faults, after_bytes):
    run(flash.erase_copy(1))
    faults.inject(POWER_LOST, after_bytes)
    with pytest.raises(PowerLost):
        run(flash.write(0x2_0000, bytes(2000)))
    assert flash.read(0x2_0000, 2000) == bytes(after_bytes).ljust(2000, b"\xff")


# --- containers -------------------------------------------------------------------------------------------------------
def test_the_configuration_block_of_the_patched_firmware_is_the_published_one():
    block = image.PATCHED.pack()
    assert len(block) == 128
    assert block[:4] == b"\xff\xff\xff\xff"
    # extra/usbgpu/patch.py, config1: its last twelve bytes
    assert block[0x74:0x80] == bytes.fromhex("d1ad01000001cfff02ff5a94")
    assert block[0x44:0x5E] == b"USB 3.2 PCIe TinyEnclosure"
    assert image.parse_config(block) == image.PATCHED


@pytest.mark.parametrize("at", [0x04, 0x3C, 0x74, 0x7E, 0x7F])
def test_a_configuration_block_with_one_wrong_byte_is_none(at):
    block = bytearray(image.Config().pack())
    block[at] ^= 0x10
    assert image.parse_config(bytes(block)) is None


def test_an_image_is_length_body_a5_sum_and_crc():
    whole = image.synthetic_image("stock")
    # AS_USB4_231204_85_00_00.bin and the image 240417
    assert len(whole) == 98016
    body = whole[4:-6]
    assert int.from_bytes(whole[:4], "little") == len(body) == 98006
    assert whole[-6] == 0xA5
    assert whole[-5] == sum(body) & 0xFF
    assert int.from_bytes(whole[-4:], "little") == zlib.crc32(body)
    assert body[0x200:0x206] == bytes.fromhex("240417850000")


def test_the_patch_is_the_one_byte_at_2a12_of_the_file():
    assert image.synthetic_image("stock")[0x2A12] == 0x0A
    assert image.synthetic_image("patched")[0x2A12] == 0x05
    stock = bytearray(image.body_of(image.synthetic_image("stock")))
    stock[0x2A0E] = 0x05
    assert image.kind_of(image.body_of(image.pack_image(bytes(stock)))) == "patched"


@pytest.mark.parametrize("kind", ["stock", "patched", "open"])
def test_an_image_of_each_kind_is_told_from_its_bytes(kind):
    whole = image.synthetic_image(kind, seed=7)
    assert image.kind_of(image.body_of(whole)) == kind
    assert whole == image.synthetic_image(kind, seed=7) != image.synthetic_image(kind, seed=8)


def test_the_patch_of_one_version_means_nothing_in_another():
    with pytest.raises(ValueError, match="241129850000 is 'patched'"):
        image.synthetic_image("patched", image.OTHER_VERSION)


@pytest.mark.parametrize("at", [0, 4, 0x204, 50_000, -6, -5, -1])
def test_an_image_with_one_wrong_byte_is_none(at):
    whole = bytearray(image.synthetic_image("stock"))
    whole[at] ^= 0x01
    assert image.body_of(bytes(whole)) is None


def test_an_image_that_ends_early_is_none_and_what_follows_one_does_not_count():
    whole = image.synthetic_image("stock")
    assert image.body_of(whole[:-1]) is None
    assert image.body_of(b"") is None
    assert image.body_of(whole + b"\xff" * 100) == whole[4:-6]


def test_the_second_copy_starts_only_where_the_rom_is_said_to_look_there(faults):
    flash = filled(faults, image.synthetic_image("stock"), image.Config(), both=True)
    flash.protection = 0
    assert flash.boot() is not None
    flash.program(0x200, bytes(1))
    assert flash.boot() is None
    assert flash.boot(second_copy=True) == (1, flash.body(1))


def test_what_does_not_fit_is_refused(faults):
    with pytest.raises(ValueError, match="do not fit a flash"):
        SpiFlash(faults, bytes(BYTES + 1))
    with pytest.raises(ValueError, match="does not fit behind the blocks"):
        image.copy_bytes(bytes(0x2_0000), image.Config().pack())
    with pytest.raises(ValueError, match="its field 8"):
        image.Config(scsi_maker="too long a name").pack()
