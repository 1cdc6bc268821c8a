"""The file for the FSP: image, hash, key and signature, and damage."""

import struct
import zlib

import pytest

from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import build, fmc


def image(**options):
    return build.fmc_image(b"image " * 20, b"h" * 48, b"k" * 97, b"s" * 96, **options)


def patched(blob, at, value, form="<I"):
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def test_a_file_laid_out_by_hand_is_read():
    """nouveau gh100.c, elf_header: 52 bytes, then six section headers of 40, names in the first section."""
    names = b"\0.shstrtab\0hash\0signature\0publickey\0image\0"
    data = {"hash": b"h" * 48, "signature": b"s" * 384, "publickey": b"k" * 384, "image": b"i" * 64}
    at, rows, body = 52 + 6 * 40, bytes(40), b""
    # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
    rows += struct.pack("<10I", 1, 3, 0x20, 0, at, len(names), 0, 0, 1, 0)
    body += names
    for title, content in data.items():
        place = names.index(title.encode() + b"\0")
        rows += struct.pack("<10I", place, 1, 0xFFF00102, 0, at + len(body), len(content), 0, zlib.crc32(content), 4, 0)
        body += content
    ident = b"\x7fELF\1\1\1" + bytes(9)
    head = ident + struct.pack("<HHIIIIIHHHHHH", 0, 0, 1, 0, 0, 52, 0, 52, 0, 0, 40, 6, 1)
    found = fmc.parse(head + rows + body, "fmc.bin")
    assert (found.image, found.hash384, found.public_key, found.signature) == (
        b"i" * 64,
        b"h" * 48,
        b"k" * 384,
        b"s" * 384,
    )
    found.check_for("gh100")


def test_a_short_key_is_filled_to_its_field():
    """NVDM_PAYLOAD_COT: 384 bytes each."""
    found = fmc.parse(image(), "fmc.bin")
    assert found.image == b"image " * 20
    assert (found.public_key, found.signature) == (b"k" * 97 + bytes(287), b"s" * 96 + bytes(288))


@pytest.mark.parametrize("chip", fmc.KEYS)
def test_key_sizes_tell_the_chips_apart(chip):
    found = fmc.parse(build.fmc_for(chip, b"x"), "fmc.bin")
    found.check_for(chip)
    other = "gb202" if chip == "gh100" else "gh100"
    with pytest.raises(FirmwareError, match=rf"^fmc\.bin: key and signature have \d+ and \d+ bytes, {other} takes"):
        found.check_for(other)


def test_a_chip_without_an_fsp_is_refused():
    with pytest.raises(NotSupported, match="ga102 does not boot through an FSP; chips that do: gh100"):
        fmc.parse(image(), "fmc.bin").check_for("ga102")


def test_a_file_without_crcs_is_read():
    assert fmc.parse(image(crc=False), "fmc.bin").image


# section headers: 52 + 40 * number; hash, publickey, signature, image are 1 to 4
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: blob[:51], "the ELF header takes bytes 0 to 52"),
        (lambda blob: patched(blob, 4, 2, "<B"), "say class 2, byte order 1; such a file has class 1"),
        (lambda blob: blob.replace(b"image ", b"imago "), "section image has CRC"),
        (lambda blob: patched(blob, 52 + 40 + 28, 1), "section hash has CRC"),
        (lambda blob: blob.replace(b"publickey\0", b"publicken\0"), "the file has no section publickey; it has hash, publicken"),
        (lambda blob: patched(blob, 52 + 40 + 20, 49), "begins at byte"),
        (lambda blob: patched(blob, 52 + 40 + 20, 47), "section hash has CRC"),
        (lambda blob: patched(blob, 52 + 160 + 16, 0xFFFF_FFFF), "section image takes bytes 4294967295"),
        (lambda blob: patched(blob, 52 + 160 + 20, 0xFFFF_FFFF), "section image takes bytes"),
        (lambda blob: patched(blob, 52 + 160 + 20, 0), "the file has no section image"),
        (lambda blob: patched(blob, 48, 0xFFFF, "<H"), "counts 65535 sections"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_the_section(damage, message):
    with pytest.raises(FirmwareError) as caught:
        fmc.parse(damage(image()), "fmc.bin")
    assert str(caught.value).startswith("fmc.bin: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("hash384", "key", "signature", "message"),
    [
        (b"h" * 47, b"k", b"s", "hash has 47 bytes, SHA-384 has 48"),
        (b"h" * 49, b"k", b"s", "hash has 49 bytes; the FSP takes at most 48"),
        (b"h" * 48, b"k" * 385, b"s", "publickey has 385 bytes; the FSP takes at most 384"),
        (b"h" * 48, b"k", b"s" * 385, "signature has 385 bytes; the FSP takes at most 384"),
        (b"h" * 48, b"", b"s", "no section publickey"),
    ],
)
def test_parts_that_do_not_fit_the_message_are_refused(hash384, key, signature, message):
    with pytest.raises(FirmwareError, match=message):
        fmc.parse(build.fmc_image(b"i", hash384, key, signature), "fmc.bin")


def test_every_truncation_is_refused():
    blob = image()
    for length in range(len(blob) - 8):
        with pytest.raises(FirmwareError):
            fmc.parse(blob[:length], "fmc.bin")
