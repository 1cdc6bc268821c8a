"""Bootloader, booter and generic loader: what the files say, where it goes in a falcon, and damage."""

import struct

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.nv import booter, bootloader, build, loader
from ringup.firmware.nv.ucode import Part

OS, APP, DATA = b"o" * 256, b"a" * 512, b"d" * 1024


def patched(blob, at, value, form="<I"):
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def signatures(count, size=384):
    return tuple(bytes([number + 1]) * size for number in range(count))


def bootloader_file(**fields):
    own = {"appVersion": 0x1234, "manifestOffset": 0x100, "manifestSize": 0x40, "monitorDataOffset": 0x200,
           "monitorDataSize": 0x80, "monitorCodeOffset": 0x300, "monitorCodeSize": 0x100}  # fmt: skip
    return build.bootloader_image(bytes(range(256)) * 4, own | fields)


def test_a_bootloader_laid_out_by_hand_is_read():
    """nvfw/fw.h, nvfw_bin_hdr; rmRiscvUcode.h, RM_RISCV_UCODE_DESC of Turing: 19 numbers."""
    # version, bootloader, bootloader's parameters, RISC-V ELF, appVersion, manifest, monitor's data, its code
    desc = struct.pack("<19I", 4, 0, 0, 0, 0, 0, 0, 0xABC, 16, 8, 32, 16, 64, 32, 0, 0, 0, 0, 0)
    blob = struct.pack("<6I", 0x10DE, 1, 256, 24, 24 + 76, 96) + desc + b"b" * 96
    found = bootloader.parse(blob, "bootloader.bin")
    assert (found.version, found.app_version, found.image) == (4, 0xABC, b"b" * 96)
    assert (found.manifest_offset_bytes, found.data_offset_bytes, found.code_offset_bytes) == (16, 32, 64)
    assert (found.manifest_size_bytes, found.data_size_bytes, found.code_size_bytes) == (8, 16, 32)


@pytest.mark.parametrize("descriptor_bytes", [56, 76, 84])
def test_descriptors_of_every_length_are_read(descriptor_bytes):
    blob = build.bootloader_image(bytes(512), {"manifestOffset": 256, "appVersion": 7}, descriptor_bytes)
    found = bootloader.parse(blob, "bootloader.bin")
    assert (found.app_version, found.manifest_offset_bytes, len(found.image)) == (7, 256, 512)


CONTAINER_DAMAGE = [
    (lambda blob: b"", "the container's header takes bytes 0 to 24, the image ends at byte 0"),
    (lambda blob: blob[:23], "the container's header takes bytes 0 to 24"),
    (lambda blob: patched(blob, 0, 0x10DF), "byte 0 holds 0x10df, a container of NVIDIA's has 0x10de"),
    (lambda blob: patched(blob, 12, 0), "byte 12 puts the image's header at byte 0"),
    (lambda blob: patched(blob, 12, 0xFFFF_FFFF), "byte 12 puts the image's header at byte 4294967295"),
    (lambda blob: patched(blob, 12, len(blob) - 4), "takes bytes"),
    (lambda blob: patched(blob, 16, 20), "the image begins at byte 20, inside the container's header"),
    (lambda blob: patched(blob, 16, 24), "inside"),
    (lambda blob: patched(blob, 16, 0xFFFF_FF00), "the image takes bytes 4294967040"),
    (lambda blob: patched(blob, 20, 0), "byte 20 says that the image has no bytes"),
    (lambda blob: patched(blob, 20, 0xFFFF_FFFF), "the file ends at byte"),
    (lambda blob: blob[:-1], "the image takes bytes"),
]
FILES = {
    "bootloader": (bootloader.parse, bootloader_file()),
    "booter": (booter.parse, build.booter_image(OS, APP, DATA, signatures(2))),
    "loader": (loader.parse, build.loader_image(b"l" * 300, 0xFD)),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(("damage", "message"), CONTAINER_DAMAGE)
def test_a_damaged_container_is_an_error_that_names_the_byte(kind, damage, message):
    parse, blob = FILES[kind]
    with pytest.raises(FirmwareError) as caught:
        parse(damage(blob), "x.bin")
    assert str(caught.value).startswith("x.bin: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", FILES)
def test_every_truncation_is_refused(kind):
    parse, blob = FILES[kind]
    for length in range(len(blob)):
        with pytest.raises(FirmwareError):
            parse(blob[:length], "x.bin")


def test_a_file_larger_than_any_is_refused():
    with pytest.raises(FirmwareError, match="16777217 bytes are more than any such image has"):
        loader.parse(bytes((16 << 20) + 1), "x.bin")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"manifestOffset": 1025, "manifestSize": 0},
            "the manifest takes bytes 1025 to 1025, the image ends at byte 1024",
        ),
        ({"manifestSize": 0x400}, "the manifest takes bytes 256 to 1280"),
        ({"monitorDataOffset": 0xFFFF_FFFF}, "the monitor's data takes bytes 4294967295"),
        ({"monitorCodeSize": 0xFFFF_FFFF}, "the monitor's code takes bytes 768 to 4294968063"),
    ],
)
def test_a_monitor_outside_the_image_is_named(fields, message):
    with pytest.raises(FirmwareError, match=message):
        bootloader.parse(bootloader_file(**fields), "x.bin")


def test_a_booter_laid_out_by_hand_is_read():
    """nvfw/hs.h: nvfw_hs_header_v2, then signatures, five numbers that it points to, nvfw_hs_load_header_v2."""
    at = 24 + 36
    numbers = at + 2 * 16
    header = struct.pack("<9I", at, 32, numbers, numbers + 4, numbers + 8, 12, numbers + 20, numbers + 24, 36)
    header += b"1" * 16 + b"2" * 16
    # patch_loc, patch_sig, fuse_ver, engine_id, ucode_id, num_sig
    header += struct.pack("<6I", 0x310, 0, 1, 4, 3, 2)
    # os_code, os_data, num_apps, app_code, app_data
    header += struct.pack("<9I", 0, 0x100, 0x300, 0x80, 1, 0x100, 0x200, 0, 0)
    blob = struct.pack("<6I", 0x10DE, 1, 0x500, 24, 24 + len(header), 0x380) + header + bytes(0x380)
    found = booter.parse(blob, "booter_load.bin")
    assert found.signatures == (b"1" * 16, b"2" * 16)
    assert (found.fuse_version, found.engine_id_mask, found.ucode_id, found.patch_offset_bytes) == (1, 4, 3, 0x310)
    ucode = found.ucode(boot_from_hs=True)
    assert (ucode.secure, ucode.data) == (Part(0x100, 0x200, 0, 0x100), Part(0x300, 0x80, 0))
    assert (ucode.boot_bytes, ucode.pkc_data_offset_bytes, ucode.non_secure) == (0x100, 0x10, None)
    assert (ucode.engine_id_mask, ucode.ucode_id, ucode.needs_loader) == (4, 3, False)


def test_a_turing_booter_has_unsigned_code_first():
    """kernel_gsp_falcon_tu102.c, s_prepareHsFalconDirect: signed code follows the unsigned code's blocks in IMEM."""
    found = booter.parse(build.booter_image(b"o" * 0x180, APP, DATA, signatures(1, 16)), "x.bin")
    ucode = found.ucode(boot_from_hs=False)
    assert ucode.non_secure == Part(0, 0x180, 0, 0)
    assert ucode.secure == Part(0x180, 0x200, 0x200, 0x180)
    assert ucode.boot_bytes == 0
    assert ucode.bytes_of(ucode.non_secure) == b"o" * 0x180 + b"a" * 0x80


@pytest.mark.parametrize(
    ("count", "fuse", "chosen"),
    # kernel_gsp_booter.c, s_patchBooterUcodeSignature: the newest signature first; a single one serves every fuse
    [(1, 0, 1), (1, 3, 1), (2, 0, 2), (2, 1, 1), (3, 0, 3), (3, 2, 1)],
)
def test_the_fuse_selects_a_booters_signature(count, fuse, chosen):
    found = booter.parse(build.booter_image(OS, APP, DATA, signatures(count), patch_in_data_bytes=16), "x.bin")
    ucode = found.ucode(boot_from_hs=True)
    signed = ucode.signed(fuse)
    assert signed.image[768 + 16 : 768 + 16 + 384] == bytes([chosen]) * 384
    assert signed.image[: 768 + 16] == ucode.image[: 768 + 16]
    assert signed.image[768 + 16 + 384 :] == ucode.image[768 + 16 + 384 :]


def test_a_fuse_that_is_ahead_of_the_file_is_named():
    ucode = booter.parse(build.booter_image(OS, APP, DATA, signatures(2)), "x.bin").ucode(boot_from_hs=True)
    with pytest.raises(
        FirmwareError, match=r"x\.bin: no signature for fuse version 2; the program has those of 0 to 1"
    ):
        ucode.signed(2)


def test_a_program_without_an_interface_takes_no_command():
    ucode = booter.parse(build.booter_image(OS, APP, DATA, signatures(2)), "x.bin").ucode(boot_from_hs=True)
    with pytest.raises(FirmwareError, match=r"x\.bin: the program has no interface for commands"):
        ucode.commanded(0x15, b"")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_sig": 0}, "the file counts 0 signatures; valid are 1 to 15"),
        ({"num_sig": 16}, "the file counts 16 signatures"),
        ({"num_sig": 0xFFFF_FFFF}, "the file counts 4294967295 signatures"),
        ({"num_sig": 5}, "768 bytes are not 5 signatures of one size"),
        ({"hs.sig_prod_size": 0}, "0 bytes are not 2 signatures of one size"),
        ({"hs.sig_prod_size": 0xFFFF_FFFC}, "begins at byte"),
        ({"hs.sig_prod_offset": 0xFFFF_FF00}, "the list of signatures takes bytes 4294967040"),
        ({"hs.sig_prod_offset": 0}, "begins at byte"),
        ({"patch_sig": 4}, "begins at byte"),
        ({"hs.patch_loc": 0xFFFF_FFFF}, "the number of patch_loc takes bytes 4294967295"),
        ({"hs.patch_sig": 0xFFFF_FFFF}, "the number of patch_sig takes bytes 4294967295"),
        ({"hs.num_sig": 0xFFFF_FFFF}, "the number of num_sig takes bytes 4294967295"),
        ({"hs.num_sig": 24}, "begins at byte"),
        ({"hs.meta_data_offset": 0xFFFF_FFFF}, "the signatures' metadata takes bytes 4294967295"),
        ({"hs.meta_data_size": 8}, "the signatures' metadata has 8 bytes, not 12"),
        ({"hs.header_offset": 0xFFFF_FFFF}, "the load header takes bytes 4294967295"),
        ({"hs.header_offset": 24}, "applications; a booter has 1"),
        ({"load.num_apps": 0}, "the load header counts 0 applications"),
        ({"load.num_apps": 0xFFFF_FFFF}, "the load header counts 4294967295 applications"),
        ({"load.os_code_size": 257}, "the signed code begins at byte 256, inside the unsigned code"),
        ({"load.os_code_offset": 0xFFFF_FFFF}, "the unsigned code takes bytes 4294967295"),
        ({"load.os_data_size": 0xFFFF_FFFF}, "the data takes bytes 768 to 4294968063"),
        ({"load.os_data_size": 0}, "the load header says that the data has no bytes"),
        ({"load.os_data_offset": 767}, "inside the signed code"),
        ({"load.app_code_size": 0xFFFF_FFFF}, "the signed code takes bytes 256"),
        ({"load.app_code_size": 0}, "the load header says that the signed code has no bytes"),
        ({"load.app_code_offset": 0xFFFF_FFFF}, "the signed code takes bytes 4294967295"),
        ({"patch_loc": 767}, "the signature goes to bytes 767 to 1151 of the image, the data has bytes 768 to 1792"),
        ({"patch_loc": 1409}, "the signature goes to bytes 1409 to 1793"),
        ({"patch_loc": 0xFFFF_FFFF}, "the signature goes to bytes 4294967295"),
    ],
)
def test_a_damaged_booter_is_an_error_that_names_the_number(fields, message):
    with pytest.raises(FirmwareError) as caught:
        booter.parse(build.booter_image(OS, APP, DATA, signatures(2), fields=fields), "x.bin")
    assert str(caught.value).startswith("x.bin: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("engine_id", 0x1_0000), ("ucode_id", 0x100)])
def test_ids_that_no_fuse_has_are_refused(name, value):
    with pytest.raises(FirmwareError, match=f"{name} is {value:#x}"):
        booter.parse(build.booter_image(OS, APP, DATA, signatures(2), **{name: value}), "x.bin")


def test_a_loader_laid_out_by_hand_is_read():
    """nvfw/fw.h, nvfw_bl_desc: start_tag, dmem_load_off, code_off, code_size, data_off, data_size."""
    desc = struct.pack("<6I", 0xFD, 0, 0, 0x210, 0x300, 0x100)
    blob = struct.pack("<6I", 0x10DE, 1, 0x400, 24, 48, 0x300) + desc + b"l" * 0x300
    found = loader.parse(blob, "gen_bootloader.bin")
    assert (found.start_tag, found.boot_bytes, found.code_size_bytes) == (0xFD, 0xFD00, 0x210)
    assert found.code == b"l" * 0x210 + bytes(0xF0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"blImgHeader.blCodeSize": 301}, "the loader's code takes bytes 0 to 301, the image ends at byte 300"),
        ({"blImgHeader.blCodeOffset": 1}, "the loader's code takes bytes 1 to 301"),
        ({"blImgHeader.blCodeOffset": 0xFFFF_FFFF}, "the loader's code takes bytes 4294967295"),
        ({"blImgHeader.blCodeSize": 0}, "the loader's code has 0 bytes; valid are 1 to 65536"),
        ({"blStartTag": 0x1_0000}, "the loader starts in block 0x10000"),
    ],
)
def test_a_damaged_loader_is_an_error_that_names_the_number(fields, message):
    with pytest.raises(FirmwareError, match=message):
        loader.parse(build.loader_image(b"l" * 300, 0xFD, fields), "x.bin")


def test_a_loader_larger_than_imem_is_refused():
    with pytest.raises(FirmwareError, match="the loader's code has 65537 bytes"):
        loader.parse(build.loader_image(bytes((64 << 10) + 1), 0), "x.bin")
