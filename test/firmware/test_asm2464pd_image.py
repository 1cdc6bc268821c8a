"""The ASM2464PD's images, configuration blocks and flash copies: valid ones are read, all others are refused with an
error in plain words.
"""

import random

import pytest

from ringup.errors import FirmwareError
from ringup.firmware import asm2464pd
from ringup.firmware.asm2464pd import (
    SET_BYTES,
    STOCK_BODY_BYTES,
    build,
    build_device_config,
    build_flash_set,
    build_router_config,
    parse,
    parse_device_config,
    parse_flash,
    parse_router_config,
    version_text,
)

CONFIG_0 = bytes.fromhex(  # tinygrad, extra/usbgpu/patch.py, config1: a block that a bridge runs with
    "ffffffff414141414242424230303630 ffffffffffffffff74696e79ffffffff ffffffffffffffffffffffffffffffff"
    "ffffffffffffffffffffffff74696e79 ffffffff55534220332e322050434965 2054696e79456e636c6f73757265ffff"
    "ffffffff54696e79456e636c6f737572 65ffffffd1ad01000001cfff02ff5a94"
)
CONFIG_1 = bytes.fromhex(  # the same, config2
    "ffffffff476f706f642047726f757020 4c696d697465642effffffffffffffff ffffffffffffffffffffffff55534234"
    "204e564d65205353442050726f20456e 636c6f73757265ffffffffffffffffff ffffffff8cbfff97c1f3ffff012d66d6"
    "660600c087015affffffffffca0166d6 e3ffffffffffffff0000ffff0100a567"
)


def crc32(data):
    """CRC-32 of IEEE 802.3, bit by bit."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB8_8320 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def body(version="240417850000", size=STOCK_BODY_BYTES, seed=1):
    made = bytearray(random.Random(seed).randbytes(size))
    made[0x200:0x206] = bytes.fromhex(version)
    return bytes(made)


@pytest.fixture(scope="module")
def image():
    """Return an image of noise with the stock size."""
    return build(body())


def test_the_frame_is_length_body_marker_sum_and_crc():
    content = body(size=0x300)
    framed = build(content)
    assert framed[:4] == bytes.fromhex("00030000")
    assert framed[4:-6] == content
    assert framed[-6:] == bytes([0xA5, sum(content) & 0xFF]) + crc32(content).to_bytes(4, "little")


def test_a_stock_image_has_the_published_size_and_is_cut_where_the_flash_cuts_it(image):
    parsed = parse(image, "x.bin")
    # AS_USB4_231204_85_00_00.bin and 240417 alike
    assert len(image) == 98016
    assert [len(part) for part in parsed.parts] == [0xFF00, 98016 - 0xFF00]
    assert b"".join(parsed.parts) == image


def test_the_version_is_written_as_files_are_named(image):
    assert parse(image, "x.bin").version == "240417_85_00_00"
    assert parse(build(body("231204850000")), "x.bin").version == "231204_85_00_00"
    # The image does not have the stock length: the bytes are code.
    assert parse(build(body(size=0x4000)), "open.bin").version == ""
    assert version_text(bytes.fromhex("0000ed540660")) == ""


@pytest.mark.parametrize(("exit_code", "flavour"), [(0x0A, "stock"), (0x05, "patched"), (0x0B, "modified")])
def test_the_byte_that_the_patch_changes_distinguishes_patched_from_stock(exit_code, flavour):
    content = bytearray(body())
    # patch.py: file 0x2a12, 0a to 05
    content[0x2A0E] = exit_code
    assert parse(build(bytes(content)), "x.bin").flavour == flavour
    content[0x200:0x203] = bytes.fromhex("241129")
    # The place has no meaning in another version.
    assert parse(build(bytes(content)), "x.bin").flavour == "stock"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda blob: blob[:-1], "an image of 98016 bytes, the file has 98015"),
        (lambda blob: blob + b"\0", "the file has 98017"),
        (lambda blob: blob[:3], "3 bytes are not an image"),
        (lambda blob: b"", "0 bytes are not an image"),
        (lambda blob: bytes([0xFF]) * 98016, "blank"),
        (lambda blob: bytes(98016), "a body of 0 bytes"),
        (lambda blob: (1 << 31).to_bytes(4, "little") + blob[4:], "a body of 2147483648 bytes"),
        (lambda blob: blob[:-6] + b"\x5a" + blob[-5:], "byte 98010 has 0x5a for the marker of the chip, which is 0xa5"),
        (lambda blob: blob[:-5] + bytes([blob[-5] ^ 1]) + blob[-4:], "byte 98011 has .* for the sum of the body"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "byte 98012 has .* for the CRC-32 of the body"),
        (lambda blob: bytes(17 << 20), "more than any flash"),
    ],
)
def test_a_damaged_image_is_refused_by_the_byte(image, change, words):
    with pytest.raises(FirmwareError, match=rf"^x\.bin: .*{words}"):
        parse(change(image), "x.bin")


@pytest.mark.parametrize(("marker", "chip"), [(0x5A, "ASM2362"), (0x4B, "ASM2364")])  # firmware_tool.py
def test_an_older_chips_image_is_called_by_its_chip(marker, chip):
    code = bytes(0x400)
    foreign = CONFIG_0 + (0x400).to_bytes(2, "little") + code + bytes([marker, 0])
    with pytest.raises(FirmwareError, match=f"an image for the {chip}"):
        parse(foreign, "x.bin")


def test_a_copy_of_the_flash_is_not_taken_for_an_image(image):
    with pytest.raises(FirmwareError, match="begins with a configuration block"):
        parse(build_flash_set(CONFIG_0, CONFIG_1, image), "backup.bin")


def test_ten_thousand_flipped_bits_are_all_found():
    framed, chance = build(body(size=0x800)), random.Random(2464)
    for _ in range(10_000):
        broken = bytearray(framed)
        for bit in chance.sample(range(8 * len(framed)), chance.randrange(1, 4)):
            broken[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(FirmwareError, match=r"^x\.bin: "):
            parse(bytes(broken), "x.bin")


def test_hostile_bytes_are_read_or_refused_with_one_error(image):
    chance = random.Random(7)
    base = build_flash_set(CONFIG_0, CONFIG_1, image)
    for _ in range(300):
        broken = bytearray(base)
        for _ in range(chance.randrange(1, 6)):
            at = chance.choice((chance.randrange(0x110), 0x100 + chance.randrange(98016)))
            broken[at] = chance.getrandbits(8)
        (found,) = parse_flash(bytes(broken), "x")
        changed = [i for i in range(0x108) if broken[i] != base[i]]
        assert (found.config_0 is None) == ("config_0" in found.problems)
        assert found.image is None or found.image.blob == image
        assert found.config_0 is not None or any(i < 0x80 for i in changed)
    for size in (0, 1, 4, 0x7F, 0x81, 0x1FFFF, 0x30000, 0x20001):
        with pytest.raises(FirmwareError, match="not a copy of a flash"):
            parse_flash(chance.randbytes(size), "x")
        for reader in (parse, parse_device_config, parse_router_config):
            with pytest.raises(FirmwareError):
                reader(chance.randbytes(size), "x")


def test_the_published_block_0_is_read():
    config = parse_device_config(CONFIG_0, "x")
    assert (config.vid, config.pid, config.bcd_device) == (0xADD1, 0x0001, 0x0100)
    assert (config.serial, config.usb_manufacturer, config.scsi_vendor) == ("AAAABBBB0060", "tiny", "tiny")
    assert (config.usb_product, config.scsi_product) == ("USB 3.2 PCIe TinyEnclosure", "TinyEnclosure")
    assert config.policy["idle_timer"] == 15  # byte 7a = cf: low four bits
    assert config.policy["lp_if_u3"] == 3
    assert config.policy["lp_if_idle"] == 0
    assert config.policy["unknown_7c"] == 2
    assert config.policy["disable_u1u2"] == 1


def test_the_published_block_1_is_read():
    config = parse_router_config(CONFIG_1, "x")
    assert (config.router_vendor, config.router_product) == ("Gopod Group Limited.", "USB4 NVMe SSD Pro Enclosure")


def test_blocks_are_built_byte_for_byte():
    config = parse_device_config(CONFIG_0, "x")
    strings = {name: getattr(config, name) for name in asm2464pd.STRINGS_0}
    policy = {"lp_if_idle": 0, "unknown_7c": 2}
    assert build_device_config(0xADD1, 1, policy=policy, **strings) == CONFIG_0
    rest = CONFIG_1[0x54:0x7E]
    made = build_router_config(rest, router_vendor="Gopod Group Limited.", router_product="USB4 NVMe SSD Pro Enclosure")
    assert made == CONFIG_1


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (bytes([0xFF]) * 128, "configuration block 0 is blank"),
        (CONFIG_0[:127], "has 128 bytes, not 127"),
        (CONFIG_1, "byte 0x7e has marker 0xa5, not 0x5a"),
        (CONFIG_0[:5] + b"\0" + CONFIG_0[6:], "byte 0x7f has sum 0x94, which is 0x53: damaged"),
    ],
)
def test_a_bad_block_is_refused_in_words(block, words):
    with pytest.raises(FirmwareError, match=words):
        parse_device_config(block, "x")


def test_values_that_do_not_fit_a_block_are_the_callers_mistake():
    with pytest.raises(ValueError, match="scsi_vendor holds 8 ASCII characters, not 'far too long'"):
        build_device_config(1, 2, scsi_vendor="far too long")
    with pytest.raises(ValueError, match="has no colour"):
        build_device_config(1, 2, colour="red")
    with pytest.raises(ValueError, match="no policy is called disable_all"):
        build_device_config(1, 2, policy={"disable_all": 1})
    with pytest.raises(ValueError, match="does not fit"):
        build_device_config(0x1_0000, 2)
    with pytest.raises(ValueError, match="a body has"):
        build(bytes(0x1_FF00))


def test_both_sets_of_a_flash_are_read_separately_and_damage_stays_in_its_set(image):
    other = build(body("241129850000"))
    blob = bytearray(build_flash_set(CONFIG_0, CONFIG_1, image) + build_flash_set(CONFIG_0, CONFIG_1, other))
    blob[0x100 + 5000] ^= 1
    first, second = parse_flash(bytes(blob), "backup.bin")
    assert first.image is None
    assert first.problems["image"].startswith("backup.bin, set 0: byte 98011 has")
    assert first.config_0 is not None
    assert second.image is not None
    assert second.image.version == "241129_85_00_00"
    assert not second.problems


def test_a_programmers_longer_copy_is_read_as_well(image):
    blob = build_flash_set(CONFIG_0, CONFIG_1, image).ljust(1 << 20, b"\xff")
    first, second = parse_flash(blob, "spi.bin")
    assert first.image is not None
    assert set(second.problems) == {"config_0", "config_1", "image"}
    assert all("blank" in text for text in second.problems.values())
    assert len(build_flash_set(CONFIG_0, CONFIG_1, image)) == SET_BYTES
