"""GSP-RM's ELF file: release, image, signatures, and damage."""

import struct

import pytest

from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import build, elf, gsp

SIGNATURES = {"ga10x": b"A" * 64, "ad10x": b"B" * 64}


def image(**fields):
    return build.gsp_image("535.113.01", b"program " * 32, SIGNATURES, fields)


def patched(blob, at, value, form="<I"):
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def section_at(index):
    """The place of a section's header in what `image` makes: 64 bytes of ELF header, 64 for each section."""
    return 64 + 64 * index


def by_hand():
    """A file laid out with the offsets of the System V ABI, sections last."""
    names = b"\0.fwimage\0.fwversion\0.fwsignature_ga10x\0.fwsignature_cc_gh100\0.shstrtab\0"
    body = {".fwimage": b"i" * 24, ".fwversion": b"570.144\0", ".fwsignature_ga10x": b"s" * 16,
            ".fwsignature_cc_gh100": b"c" * 16, ".shstrtab": names}  # fmt: skip
    blob, rows = bytearray(64), bytes(64)
    for title, data in body.items():
        place = names.index(title.encode() + b"\0")
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
        rows += struct.pack(
            "<IIQQQQIIQQ", place, 3 if title == ".shstrtab" else 1, 0, 0, len(blob), len(data), 0, 0, 1, 0
        )
        blob += data
    blob += bytes(-len(blob) % 8)
    # e_ident, e_type, e_machine (RISC-V), e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize,
    # e_phnum, e_shentsize, e_shnum, e_shstrndx
    ident = b"\x7fELF\2\1\1" + bytes(9)
    blob[:64] = ident + struct.pack("<HHIQQQIHHHHHH", 1, 243, 1, 0, 0, len(blob), 0, 64, 0, 0, 64, 6, 5)
    return bytes(blob) + rows


def test_a_file_laid_out_by_hand_is_read():
    found = gsp.parse(by_hand(), "gsp.bin")
    assert (found.release, found.image) == ("570.144", b"i" * 24)
    assert found.signatures == {"ga10x": b"s" * 16, "cc_gh100": b"c" * 16}
    assert found.signature("ga104") == b"s" * 16
    assert found.signature("gh100", confidential=True) == b"c" * 16


def test_what_is_built_is_read():
    found = gsp.parse(image(), "gsp.bin")
    assert (found.name, found.release, found.image) == ("gsp.bin", "535.113.01", b"program " * 32)
    assert found.signatures == SIGNATURES


def test_each_chip_takes_its_familys_signature():
    """OGKM, nv_firmware_chip_family_to_string; nouveau, `sig_section` of gb100.c and gb202.c."""
    families = ("tu10x", "tu11x", "ga100", "ga10x", "ad10x", "gh100", "gb10x", "gb20x")
    blob = build.gsp_image("1", b"x", {family: family.encode() for family in families})
    found = gsp.parse(blob, "gsp.bin")
    expected = {"tu106": "tu10x", "tu117": "tu11x", "ga100": "ga100", "ga107": "ga10x", "ad104": "ad10x",
                "gh100": "gh100", "gb102": "gb10x", "gb207": "gb20x"}  # fmt: skip
    assert {chip: found.signature(chip).decode() for chip in expected} == expected
    assert {found.signature(chip).decode() for chip in gsp.FAMILIES} == set(families)


def test_a_file_for_other_chips_says_for_which():
    found = gsp.parse(image(), "gsp_ga10x.bin")
    with pytest.raises(
        FirmwareError, match=r"^gsp_ga10x\.bin: the file has no signature for tu102 \(tu10x\); it has: ga10x, ad10x"
    ):
        found.signature("tu102")
    with pytest.raises(NotSupported, match="no GSP firmware is known for chip gp102; known chips: tu102"):
        found.signature("gp102")


def test_a_file_without_a_release_is_read():
    assert gsp.parse(build.gsp_image(None, b"x", SIGNATURES), "gsp.bin").release is None


def test_sections_without_bytes_in_the_file_are_ignored():
    # .bss-like: SHT_NOBITS with an address far outside the file
    blob = patched(image(), section_at(2) + 4, 8)
    blob = patched(blob, section_at(2) + 24, 1 << 60, "<Q")
    assert gsp.parse(blob, "gsp.bin").release is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: b"", "the ELF header takes bytes 0 to 64, the image ends at byte 0"),
        (lambda blob: blob[:63], "the ELF header takes bytes 0 to 64, the image ends at byte 63"),
        (lambda blob: blob[:64], "the table of sections takes bytes 64 to 448, the file ends at byte 64"),
        (lambda blob: blob[:447], "the table of sections takes bytes 64 to 448"),
        (lambda blob: blob[:-80], "the table of names takes bytes"),
        (lambda blob: b"\x7fELG" + blob[4:], "the file begins with b'\\x7fELG', an ELF file with"),
        (lambda blob: patched(blob, 4, 1, "<B"), "say class 1, byte order 1; such a file has class 2"),
        (lambda blob: patched(blob, 5, 2, "<B"), "say class 2, byte order 2"),
        (lambda blob: patched(blob, 18, 62, "<H"), "byte 18 says machine 62; the GSP runs RISC-V"),
        (lambda blob: patched(blob, 40, 1 << 63, "<Q"), "the table of sections takes bytes 9223372036854775808"),
        (lambda blob: patched(blob, 58, 40, "<H"), "40 bytes for a section header, not 64"),
        (lambda blob: patched(blob, 60, 65, "<H"), "counts 65 sections; such a file has at most 64"),
        (lambda blob: patched(blob, 60, 0xFFFF, "<H"), "counts 65535 sections"),
        (lambda blob: patched(blob, 60, 0, "<H"), "section 5 of 0 should hold the sections' names"),
        (lambda blob: patched(blob, 62, 6, "<H"), "section 6 of 6 should hold the sections' names"),
        (lambda blob: patched(blob, 62, 1, "<H"), "section 1 of 6 should hold the sections' names"),
        (lambda blob: patched(blob, section_at(1), 0xFFFF_FFFF), "the name of section 1, at byte 4294967295 of"),
        (lambda blob: patched(blob, section_at(1) + 24, 1 << 40, "<Q"), "section .fwimage takes bytes 1099511627776"),
        (lambda blob: patched(blob, section_at(1) + 32, 1 << 40, "<Q"), "the file ends at byte"),
        (lambda blob: patched(blob, section_at(1) + 32, 2**64 - 1, "<Q"), "section .fwimage takes bytes 448 to 18446744073709552063"),
        (lambda blob: patched(blob, section_at(1) + 32, 0, "<Q"), "no section .fwimage; it has .fwversion"),
        (lambda blob: patched(blob, section_at(1) + 24, 0, "<Q"), "section .fwimage begins at byte 0, inside the ELF header"),
        (lambda blob: patched(blob, section_at(1) + 24, 100, "<Q"), "inside the table of sections"),
        (lambda blob: patched(blob, section_at(2) + 24, 450, "<Q"), "section .fwversion begins at byte 450, inside section .fwimage"),
        (lambda blob: patched(blob, section_at(2), 1), "section 2 is a second .fwimage"),
        (lambda blob: patched(blob, section_at(2) + 32, 65, "<Q"), ".fwsignature_ga10x begins at byte 720, inside section .fwversion"),
        (lambda blob: patched(blob, section_at(2) + 32, 4, "<Q"), ".fwversion holds b'535.', not a release"),
        (lambda blob: blob.replace(b"535.113.01", b"535.\x1b[31m1"), "not a release such as 535.113.01"),
        (lambda blob: blob.replace(b".fwimage", b".fwinage"), "the file has no section .fwimage; it has .fwinage, .fwversion"),
        (lambda blob: blob.replace(b".fwsig", b".fwsug"), "the file has no section .fwsignature_…"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_the_byte(damage, message):
    with pytest.raises(FirmwareError) as caught:
        gsp.parse(damage(image()), "gsp.bin")
    assert str(caught.value).startswith("gsp.bin: ")
    assert message in str(caught.value)


def test_a_release_and_a_signature_have_limits():
    with pytest.raises(FirmwareError, match=r"\.fwversion has 65 bytes; a release has at most 64"):
        gsp.parse(build.gsp_image("1" * 64, b"x", SIGNATURES), "gsp.bin")
    with pytest.raises(FirmwareError, match=r"\.fwsignature_ga10x has 65537 bytes; a signature has at most 65536"):
        gsp.parse(build.gsp_image("1", b"x", {"ga10x": bytes((64 << 10) + 1)}), "gsp.bin")


def test_a_section_name_prints_as_text():
    blob = build.sections({".fw\x1b[31m": b"x"}, elf.CLASS_64)
    with pytest.raises(FirmwareError) as caught:
        gsp.parse(blob, "gsp.bin")
    assert "\x1b" not in str(caught.value)


def test_every_truncation_is_refused():
    blob = image()
    for length in range(len(blob) - 8):
        with pytest.raises(FirmwareError):
            gsp.parse(blob[:length], "gsp.bin")
