"""Expansion ROMs of NVIDIA's cards, and FWSEC inside: built ones, and damage."""

import struct

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.nv import build_rom, fwsec, vbios
from ringup.firmware.nv.ucode import Part

SIGNATURES = (b"1" * 384, b"2" * 384, b"3" * 384)
CODE = bytes(range(256)) * 2
OPEN = b"o" * 256


def patched(blob, at, value, form="<I"):
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def v3(data=None, versions=0b1011, **fields):
    return build_rom.fwsec_v3(CODE, data or build_rom.fwsec_data(), SIGNATURES, versions, fields=fields)


def v2(data=None, **fields):
    return build_rom.fwsec_v2(OPEN, CODE, data or build_rom.fwsec_data(), fields)


def rom(program=None, **options):
    programs = None if program is None else {vbios.FWSEC_PROD: program}
    return build_rom.expansion_rom(programs, **options)


def by_hand():
    """Two images: BIT with tokens i and p in the first, list of programs and a descriptor in the second.

    pci_exp_table.h; kernel_gsp_fwsec.c, BIT_HEADER_V1_00 and following.
    """
    base = bytearray(512)
    base[0:2], base[0x18:0x1A] = b"\x55\xaa", b"\x40\x00"
    # signature, vendor, device, list, length, revision, class, blocks, ROM revision, type, last, run time
    base[0x40:0x58] = struct.pack("<4sHHHHB3sHHBBH", b"PCIR", 0x10DE, 0x2204, 0, 24, 3, b"\0\0\3", 1, 0, 0, 0, 0)
    # id, signature, version, header's size, token's size, tokens, checksum
    head = bytearray(struct.pack("<H4sHBBBB", 0xB8FF, b"BIT\0", 0x100, 12, 6, 2, 0))
    head[11] = -sum(head) & 0xFF
    base[0x80:0x8C] = head
    base[0x8C:0x98] = struct.pack("<BBHHBBHH", ord("i"), 2, 5, 0xA0, ord("p"), 2, 4, 0xB0)
    base[0xA0:0xA5] = bytes.fromhex("0042029486")
    # The list is at byte 0x60 of the image that follows.
    base[0xB0:0xB4] = struct.pack("<I", 512 + 0x60)
    second = bytearray(512)
    second[0:2], second[0x18:0x1A] = b"\x56\x4e", b"\x20\x00"
    second[0x20:0x38] = struct.pack(
        "<4sHHHHB3sHHBBH", b"NPDS", 0x10DE, 0x2204, 0, 24, 3, b"\0\0\3", 1, 0, 0xE0, 0x80, 0
    )
    # version, header's size, entry's size, entries, descriptor's version and size; application, target, pointer
    second[0x60:0x72] = struct.pack("<6BBBIBBI", 1, 6, 6, 2, 3, 44, 0x07, 0, 0, 0x85, 7, 512 + 0x80)
    return bytes(base + second)


def test_a_rom_laid_out_by_hand_is_read():
    found = vbios.parse(by_hand(), "rom")
    assert (found.version, found.pci_vendor, found.pci_device) == ("94.02.42.00.86", 0x10DE, 0x2204)
    assert [(one.code_type, one.offset_bytes, one.size_bytes) for one in found.images] == [
        (0, 0, 512),
        (0xE0, 512, 512),
    ]
    assert [(one.id, one.version, one.offset_bytes, one.size_bytes) for one in found.tokens] == [
        ("i", 2, 0xA0, 5),
        ("p", 2, 0xB0, 4),
    ]
    assert [(one.application_id, one.target_id, one.descriptor_bytes) for one in found.ucodes] == [
        (7, 0, 0),
        (0x85, 7, 0x280),
    ]
    with pytest.raises(
        FirmwareError, match=r"^rom: FWSEC's descriptor at byte 0x280 begins with 0x00000000; known are versions 2, 3"
    ):
        found.fwsec()


def test_what_is_built_is_read():
    found = vbios.parse(rom(), "rom")
    assert (found.version, found.start_bytes, found.sum_is_zero, found.reason) == ("94.02.42.00.a1", 0, True, "")
    assert [image.kind for image in found.images] == ["base", "EFI", "extension", "extension"]
    assert found.fwsec().name == "rom FWSEC"
    # OEM version only in token B: kernel_gsp_fwsec.c, BIT_DATA_BIOSDATA_BINVER
    assert vbios.parse(rom(tokens={"i": (2, b"")}), "rom").version == "94.02.42.00.a1"
    assert vbios.parse(rom(tokens={"i": (2, b""), "B": (2, b"")}), "rom").version == ""


@pytest.mark.parametrize("efi", [True, False])
def test_pointers_do_not_count_the_efi_image(efi):
    """kernel_gsp_vbios_tu102.c, s_locateExpansionRoms: expansionRomOffset."""
    found = vbios.parse(rom(v3(), efi=efi), "rom")
    program = found.fwsec()
    assert program.bytes_of(program.secure) == CODE
    # base of 2048 bytes, EFI of 512, the list's extension of 512, headers of 256
    assert found.ucodes[0].descriptor_bytes == 2048 + 512 * efi + 512 + 256


@pytest.mark.parametrize("ifr_version", [1, 2, 3])
def test_initialisation_data_in_front_is_skipped(ifr_version):
    blob = build_rom.with_ifr(rom(v3()), ifr_version)
    found = vbios.parse(blob, "rom")
    assert found.start_bytes == 0x3000
    assert found.fwsec().secure.size_bytes == len(CODE)
    assert found.blob == rom(v3())


def test_bytes_after_the_last_image_are_ignored():
    blob = rom()
    assert vbios.parse(blob + b"\xff" * 70_000, "rom").blob == blob


def test_the_program_for_debug_fuses_is_another_one():
    blob = build_rom.expansion_rom({0x45: v3(), 0x85: v2()})
    found = vbios.parse(blob, "rom")
    assert (found.fwsec().needs_loader, found.fwsec(debug=True).needs_loader) == (True, False)
    with pytest.raises(FirmwareError, match=r"rom: no FWSEC \(application 0x45\): the ROM lists applications: 0x85"):
        vbios.parse(rom(), "rom").fwsec(debug=True)
    # OGKM takes FWSECLIC for either.
    assert vbios.parse(build_rom.expansion_rom({0x05: v3()}), "rom").fwsec(debug=True).secure.size_bytes == len(CODE)


def test_a_program_of_version_3_says_where_it_goes():
    program = vbios.parse(rom(v3(IMEMPhysBase=0x1000, IMEMVirtBase=0x200, DMEMPhysBase=0x300)), "rom").fwsec()
    assert program.secure == Part(0, 512, 0x1000, 0x200)
    assert program.data == Part(512, 1024, 0x300)
    assert (program.boot_bytes, program.pkc_data_offset_bytes, program.signature_offset_bytes) == (
        0x200,
        0x200,
        512 + 0x200,
    )
    assert (program.engine_id_mask, program.ucode_id, program.signatures) == (0x400, 9, SIGNATURES)
    assert program.image == CODE + build_rom.fwsec_data()


@pytest.mark.parametrize(("fuse", "chosen"), [(0, 0), (1, 1), (3, 2)])
def test_the_fuse_selects_a_signature_by_its_bit(fuse, chosen):
    """kernel_gsp_frts_tu102.c, s_executeFwsec_TU102: signatures are in the order of the set bits."""
    program = vbios.parse(rom(v3()), "rom").fwsec()
    signed = program.signed(fuse)
    assert signed.image[1024 : 1024 + 384] == SIGNATURES[chosen]
    assert signed.image[:1024] == program.image[:1024]


@pytest.mark.parametrize("fuse", [2, 4, 15])
def test_a_fuse_version_without_a_signature_is_named(fuse):
    program = vbios.parse(rom(v3()), "rom").fwsec()
    with pytest.raises(
        FirmwareError, match=rf"no signature for fuse version {fuse}; the program has those of 0, 1, 3 "
    ):
        program.signed(fuse)


def test_more_versions_than_signatures_are_noticed():
    program = vbios.parse(rom(v3(versions=0xFFFF)), "rom").fwsec()
    assert program.signature(2) == SIGNATURES[2]
    with pytest.raises(FirmwareError, match="no signature for fuse version 3"):
        program.signature(3)


def test_a_program_of_version_2_is_in_three_parts():
    """kernel_gsp_fwsec.c, s_vbiosFillFlcnUcodeFromDescV2."""
    program = vbios.parse(
        rom(v2(IMEMVirtBase=0x100, IMEMSecBase=0x200, IMEMPhysBase=0, VirtualEntry=0x100)), "rom"
    ).fwsec()
    assert program.non_secure == Part(0, 256, 0, 0x100)
    assert program.secure == Part(256, 512, 256, 0x200)
    assert program.data == Part(768, 1024, 0)
    assert (program.needs_loader, program.boot_bytes, program.signatures) == (True, 0x100, ())
    assert program.signed(5) is program


@pytest.mark.parametrize("program", [v2(), v3()])
def test_a_command_goes_into_the_data(program):
    """kernel_gsp_frts_tu102.c: FWSECLIC_FRTS_CMD, one megabyte in units of 4 KiB, in the card's memory."""
    ucode = vbios.parse(rom(program), "rom").fwsec()
    made = ucode.commanded(fwsec.CMD_FRTS, fwsec.frts_arguments(0x1_7FF0_0000, 0x10_0000))
    data = made.image[made.data.offset_bytes :]
    assert struct.unpack_from("<I", data, ucode.mapper.init_cmd_offset_bytes) == (0x15,)
    seen = struct.unpack_from("<IIQII IIIII", data, ucode.mapper.cmd_in_buffer_offset_bytes)
    assert seen == (1, 24, 0, 0, 2, 1, 20, 0x17_FF00, 0x100, 2)
    made = ucode.commanded(fwsec.CMD_SB, fwsec.sb_arguments())
    data = made.image[made.data.offset_bytes :]
    assert struct.unpack_from("<I", data, ucode.mapper.init_cmd_offset_bytes) == (0x19,)
    assert (
        data[ucode.mapper.cmd_in_buffer_offset_bytes + 24 :]
        == ucode.image[ucode.data.offset_bytes + ucode.mapper.cmd_in_buffer_offset_bytes + 24 :]
    )
    # the buffer lies at 0x100 of 0x400 bytes of data
    with pytest.raises(FirmwareError, match="command 0x15 has 769 bytes of arguments; the program's data has 768 from"):
        ucode.commanded(fwsec.CMD_FRTS, bytes(769))


@pytest.mark.parametrize(("place", "size"), [(0x1001, 0x1000), (0x1000, 0x800), (0x1000, 0), (-0x1000, 0x1000)])
def test_frts_takes_whole_pages(place, size):
    with pytest.raises(ValueError, match="FRTS takes whole pages"):
        fwsec.frts_arguments(place, size)


def test_the_length_for_the_bios_is_not_the_images():
    """NVIDIA's extension of the PCI data overrides it, also the last-image bit."""
    base = build_rom.rom_image(vbios.BASE, build_rom.bit_table({}), fields={"image_blocks": 1, "last_image": 0x80})
    last = build_rom.rom_image(vbios.EXTENSION, b"", last=True)
    found = vbios.parse(base + last, "rom")
    assert [image.size_bytes for image in found.images] == [len(base), len(last)]
    plain = build_rom.rom_image(vbios.BASE, build_rom.bit_table({}), last=True, npde=False)
    assert len(vbios.parse(plain, "rom").images) == 1


def test_a_card_that_boots_without_fwsec_has_a_rom_too():
    base = build_rom.rom_image(vbios.BASE, build_rom.bit_table({}), last=True)
    found = vbios.parse(base, "rom")
    assert found.ucodes == ()
    with pytest.raises(FirmwareError, match=r"no FWSEC \(application 0x85\): the BIT has no entry p of version 2"):
        found.fwsec()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ((1, bytes(4)), "the BIT has no entry p of version 2"),
        ((2, bytes(3)), "the BIT has no entry p of version 2"),
        ((2, bytes(4)), "pointer to the list of falcon programs is 0"),
        ((2, b"\xff\xff\xff\xff"), "the list of falcon programs is at byte 0x1000001ff, the ROM ends at"),
        ((2, (5632 - 512 - 3).to_bytes(4, "little")), "the list of falcon programs takes bytes 5629 to 5635"),
    ],
)
def test_a_rom_without_a_list_of_programs_says_why(token, message):
    found = vbios.parse(rom(tokens={"p": token}), "rom")
    assert message in found.reason
    with pytest.raises(FirmwareError, match="no FWSEC"):
        found.fwsec()


# The place of the list of programs in what `rom` makes: base 2048 bytes, EFI 512, headers 256.
LISTING = 2048 + 512 + 256


# In what `rom` makes: PCI data of the images at 0x40 and NPDE at 0x60, BIT at 0x100 of the first.
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: b"", "the ROM header takes bytes 0 to 26, the image ends at byte 0"),
        (lambda blob: blob[:25], "the ROM header takes bytes 0 to 26"),
        (lambda blob: patched(blob, 0, 0), "byte 0 holds 0x00000000; a ROM begins with 0xaa55 or with the IFR header 0x4947564e"),
        (lambda blob: patched(blob, 0, 0xFFFF_FFFF), "byte 0 holds 0xffffffff"),
        (lambda blob: patched(blob, 0x18, 0xFFFF, "<H"), "the PCI data of image 0 takes bytes 65535"),
        (lambda blob: patched(blob, 0x40, 0), "the PCI data of image 0 at byte 0x40 begins with"),
        (lambda blob: patched(blob, 0x68, 0, "<H"), "image 0 at byte 0x0 states a length of 0"),
        (lambda blob: patched(blob, 0x68, 0xFFFF, "<H"), "image 0 ends at byte 33553920, the ROM at"),
        (lambda blob: patched(blob, 0x68, 3, "<H"), "image 1 at byte 0x600 begins with 0x0000, an image with 0xaa55"),
        (lambda blob: blob[:-1], "image 3 ends at byte"),
        (lambda blob: blob[:2560], "the header of image 2 takes bytes 2560"),
        (lambda blob: patched(blob, 0x54, 3, "<B"), "the ROM has no base image (type 0), only: EFI, EFI, extension, extension"),
        (lambda blob: patched(blob, 0x102, 0), "no BIOS information table with a right checksum"),
        (lambda blob: patched(blob, 0x10B, blob[0x10B] ^ 1, "<B"), "no BIOS information table with a right checksum"),
    ],
)  # fmt: skip
def test_a_damaged_rom_is_an_error_that_names_the_byte(damage, message):
    with pytest.raises(FirmwareError) as caught:
        vbios.parse(damage(rom()), "rom")
    assert str(caught.value).startswith("rom: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_size": 5}, "says 5 bytes for an entry"),
        ({"token_entries": 255, "token_size": 255}, "of the BIT takes bytes"),
        ({"header_size": 11}, "no BIOS information table"),
    ],
)
def test_a_damaged_bit_is_named(fields, message):
    base = build_rom.rom_image(vbios.BASE, build_rom.bit_table({"i": (2, bytes(5))}, fields), last=True)
    with pytest.raises(FirmwareError, match=message):
        vbios.parse(base, "rom")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"\2", "the list of falcon programs has version 2"),
        (1, b"\5", "a header of 5 and entries of 6 bytes"),
        (2, b"\5", "a header of 6 and entries of 5 bytes"),
        (3, b"\0", "the list of falcon programs is empty"),
        (2, b"\xff\xff", "falcon program 11 takes bytes 5627 to 5633, the image ends at byte 5632"),
    ],
)
def test_a_damaged_list_of_programs_says_why(at, value, message):
    made = bytearray(rom())
    made[LISTING + at : LISTING + at + len(value)] = value
    found = vbios.parse(bytes(made), "rom")
    assert message in found.reason
    with pytest.raises(FirmwareError, match=r"^rom: no FWSEC"):
        found.fwsec()


def test_a_chain_without_an_end_is_refused():
    image = build_rom.rom_image(vbios.BASE, build_rom.bit_table({}))
    with pytest.raises(FirmwareError, match="32 images and none is the last"):
        vbios.parse(image * 40, "rom")


def test_a_rom_larger_than_the_window_is_refused():
    big = build_rom.rom_image(vbios.BASE, build_rom.bit_table({}), size=0x10_0000)
    last = build_rom.rom_image(vbios.EXTENSION, b"", last=True)
    with pytest.raises(FirmwareError, match="the images have 1049088 bytes; a ROM has at most 1048576"):
        vbios.parse(big + last, "rom")
    with pytest.raises(FirmwareError, match="16777217 bytes are more than any ROM has"):
        vbios.parse(bytes((16 << 20) + 1), "rom")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (4, 0x400400, "byte 5 says IFR version 4; known: 1, 2, 3"),
        (8, 0xFFFFF, "the IFR's flash status offset takes bytes 1048575"),
        (0x80, 0xFFFF_FFFF, "a ROM directory begins with b'RFRD'"),
        (0x80, 0, "byte 4096 holds"),
        (0x2008, 0xFFFF_FFFC, "the header of image 0 takes bytes 4294967292"),
        (0x2008, 0x3002, "puts the first image at byte 0x3002, which is not a dword's"),
        (0x2008, 0, "image 0 at byte 0x0 begins with 0x564e"),
    ],
)
def test_damaged_initialisation_data_is_named(at, value, message):
    blob = patched(build_rom.with_ifr(rom()), at, value)
    with pytest.raises(FirmwareError) as caught:
        vbios.parse(blob, "rom")
    assert message in str(caught.value)


HUGE = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (v3(Hdr=0x0044_0300), "begins with 0x00440300; known are versions 2, 3"),
        (v3(Hdr=0x0044_0401), "begins with 0x00440401"),
        (v3(Hdr=0x002B_0301), "says that it has 43 bytes, fewer than 44"),
        (v3(Hdr=0xFFFF_0301), "FWSEC's descriptor takes bytes"),
        (v3(Hdr=0x002C_0301), "the list of 3 signatures takes bytes 44 to 1196, the descriptor ends at byte 44"),
        (v3(SignatureCount=4), "the list of 4 signatures takes bytes 44 to 1580"),
        (v3(SignatureCount=255), "the list of 255 signatures"),
        (v3(IMEMLoadSize=0), "states IMEMLoadSize as 0x0"),
        (v3(IMEMLoadSize=HUGE), "states IMEMLoadSize as 0xffffffff; valid are 1 to 0x100000"),
        (v3(DMEMLoadSize=0), "states DMEMLoadSize as 0x0"),
        (v3(DMEMLoadSize=0x10_0001), "states DMEMLoadSize as 0x100001"),
        (v3(StoredSize=100), "code and data have 1536 bytes, the stored program 100"),
        (v3(StoredSize=HUGE, DMEMLoadSize=0x10_0000), "the program takes bytes"),
        (v3(PKCDataOffset=641), "the place of the signature takes bytes 641 to 1025, the data ends at byte 1024"),
        (v3(PKCDataOffset=HUGE), "the place of the signature takes bytes 4294967295"),
        (v3(InterfaceOffset=1021), "the list of interfaces in the data takes bytes 1021 to 1025"),
        (v3(InterfaceOffset=HUGE), "the list of interfaces in the data takes bytes 4294967295"),
        (v3(IMEMPhysBase=HUGE), "512 bytes of code go to 0xffffffff"),
        (v3(IMEMVirtBase=HUGE), "(virtual 0xffffffff)"),
        (v3(DMEMPhysBase=HUGE), "1024 bytes of data go to 0xffffffff"),
        (v2(Hdr=0x003B_0201), "says that it has 59 bytes, fewer than 60"),
        (v2(IMEMSecBase=HUGE), "signed code takes bytes 4294967295"),
        (v2(IMEMSecBase=255), "the signed code begins at byte 255, inside the unsigned code"),
        (v2(IMEMSecBase=0, IMEMVirtBase=1), "signed code takes bytes -1 to 511"),
        (v2(IMEMSecSize=0), "signed code takes bytes"),
        (v2(IMEMSecSize=769), "signed code takes bytes"),
        (v2(DMEMOffset=767), "the data begins at byte 767, inside the signed code"),
        (v2(DMEMOffset=HUGE), "the data ends at byte 4294968319 of the program"),
        (v2(DMEMOffset=0x8_0000), "the program takes bytes"),
        (v2(DMEMPhysBase=HUGE), "1024 bytes of data go to"),
        (v2(IMEMPhysBase=HUGE), "bytes of code go to"),
    ],
)
def test_a_damaged_program_is_an_error_that_names_it(program, message):
    found = vbios.parse(rom(program), "rom")
    with pytest.raises(FirmwareError) as caught:
        found.fwsec()
    assert str(caught.value).startswith("rom")
    assert message in str(caught.value)


def interface(at, value, form="<B"):
    """Data with one number of the list of interfaces changed."""
    return patched(build_rom.fwsec_data(), build_rom.INTERFACE_AT + at, value, form)


@pytest.mark.parametrize("make", [v2, v3])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (interface(0, 2), "the list of interfaces has version 2; known: 1"),
        (interface(1, 3), "a header of 3 and entries of 8 bytes"),
        (interface(2, 7), "a header of 4 and entries of 7 bytes"),
        (interface(3, 0), "none of the 0 interfaces in the data is the DMEM mapper (4)"),
        (interface(3, 1), "none of the 1 interfaces"),
        (interface(2, 255), "none of the 2 interfaces"),
        (patched(interface(3, 255), build_rom.INTERFACE_AT + 12, 1), "interface 123 in the data takes bytes 1020"),
        (interface(16, 1023, "<I"), "the DMEM mapper in the data takes bytes 1023"),
        (interface(16, HUGE, "<I"), "the DMEM mapper in the data takes bytes 4294967295"),
        (
            build_rom.fwsec_data(fields={"cmd_in_buffer_offset": HUGE}),
            "the mapper's cmd_in_buffer takes bytes 4294967295",
        ),
    ],
)
def test_a_damaged_interface_is_named(make, data, message):
    found = vbios.parse(rom(make(data)), "rom")
    with pytest.raises(FirmwareError) as caught:
        found.fwsec()
    assert message in str(caught.value)


@pytest.mark.parametrize("make", [v2, v3])
def test_stated_sizes_of_buffers_are_not_believed(make):
    """OGKM s_vbiosPatchInterfaceData reports a small buffer and goes on; nobody looks at the other one."""
    fields = {"cmd_in_buffer_size": 4, "cmd_out_buffer_offset": HUGE, "cmd_out_buffer_size": HUGE}
    ucode = vbios.parse(rom(make(build_rom.fwsec_data(fields=fields))), "rom").fwsec()
    made = ucode.commanded(fwsec.CMD_SB, fwsec.sb_arguments())
    assert made.image[made.data.offset_bytes + build_rom.IN_AT :][:24] == fwsec.sb_arguments()


def test_every_truncation_is_refused():
    blob = rom()
    for length in range(0, len(blob), 7):
        with pytest.raises(FirmwareError):
            vbios.parse(blob[:length], "rom")
