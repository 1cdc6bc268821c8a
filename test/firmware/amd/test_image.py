"""Firmware containers: every published file, and every way in which a file can be wrong."""

import struct

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.amd import build
from ringup.firmware.amd.containers import CONTAINERS
from ringup.firmware.amd.image import CRC_RULES, kind_of, parse

FORMS = [(kind, version) for kind, versions in CONTAINERS.items() for version in versions]
MEC = {"code": bytes(range(64)), "data": bytes(32)}


def word(data, at):
    return struct.unpack_from("<I", data, at)[0]


def patched(data, at, value, form="<I"):
    made = bytearray(data)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def sections_of(kind, version):
    """Return names of sections that such an image may contain together."""
    container = CONTAINERS[kind][version]
    if container.packed:
        first = ["asd", "ras"] if kind == "ta" else ["sys_drv", "sos"]
        return first + [f"{name}_aux" for name in first if version == (2, 1)]
    if (kind, version) == ("ta", (1, 0)):
        # hdcp starts where xgmi does, so a file has one or the other.
        return ["xgmi", "ras"]
    return [cut.name for cut in container.cuts if not cut.inside] + ["pptable_3", "pptable_77"] * container.tables


def test_every_published_file_is_read(firmware_folder):
    """638 files of the distribution. One is refused: in the published raven2_rlc.bin, the lists overlap the code."""
    names, refused = sorted(path.name for path in (firmware_folder / "amdgpu").glob("*.bin")), {}
    rules = dict.fromkeys(CRC_RULES, 0)
    for name in names:
        data = (firmware_folder / "amdgpu" / name).read_bytes()
        try:
            image = parse(data, name)
        except FirmwareError as error:
            refused[name] = str(error)
            continue
        assert sum(section.size_bytes for section in image.sections if not section.inside) <= len(data) - 32
        # common_firmware_header.ucode_version
        assert image.version == word(data, 16)
        rules[image.crc_rule] += 1
    assert len(names) > 500
    assert refused == {
        "raven2_rlc.bin": "raven2_rlc.bin: restore_list_cntl begins at byte 13852, inside code, which ends at 17152"
    }
    # This is why a wrong CRC is no reason to refuse a file.
    assert rules["no known rule"] > len(names) // 10


@pytest.mark.parametrize(
    ("name", "sections"),
    # Offsets and sizes in the package of April 2025. They are from a bring-up in which a kernel sent these very bytes.
    [
        ("psp_13_0_0_sos.bin", [("sys_drv", 0x100, 0x26790), ("sos", 0x26890, 0x18380), ("toc", 0x3EC10, 0x900),
                                ("kdb", 0x3F510, 0x1700), ("spl", 0x40C10, 0x2A0), ("rl", 0x40EB0, 0x960)]),
        ("sdma_6_0_0.bin", [("ctx", 0x100, 0x4400), ("ctl", 0x4500, 0x4200), ("ctx_jump_table", 0x4100, 0x200)]),
        ("gc_11_0_0_imu.bin", [("iram", 0x100, 0x10200), ("dram", 0x10300, 0x10200)]),
        ("gc_11_0_0_mec.bin", [("code", 0x100, 0x41300), ("data", 0x41400, 0x22000)]),
        ("gc_11_0_1_mec.bin", [("code", 0x100, 0x41860), ("jump_table", 0x415E0, 0x380)]),
        ("gc_11_0_0_rlc.bin", [("code", 0x100, 0x6200), ("restore_list_gpm", 0x6300, 0xA00), ("restore_list_srm", 0x6D00, 0x8F20),
                               ("iram", 0xFC20, 0x10200), ("dram", 0x1FE20, 0x8200), ("rlcp", 0x28020, 0x2200), ("rlcv", 0x2A220, 0x3200)]),
    ],
)  # fmt: skip
def test_sections_lie_where_a_kernel_took_them(real, name, sections):
    image = parse(real(name), name)
    assert [(one.name, one.offset_bytes, one.size_bytes) for one in image.sections] == sections


def test_power_tables_are_listed_by_their_id(real):
    image = parse(real("smu_13_0_0.bin"), "smu_13_0_0.bin")
    tables = [section for section in image.sections if section.name != "code"]
    # smu_v13_0_0_ppt.c knows these ids.
    assert [table.number for table in tables] == [
        3664,
        36641,
        3683,
        36831,
        3715,
        37151,
    ]
    assert {table.size_bytes for table in tables} == {0x12C4, 0x14F0}
    assert len(image.data(tables[0])) == 0x12C4


def test_the_second_set_of_a_secure_os_is_listed_separately(real):
    image = parse(real("psp_13_0_6_sos.bin"), "psp_13_0_6_sos.bin")
    names = [section.name for section in image.sections]
    assert len(names) == 16
    assert names[8:] == [f"{name}_aux" for name in names[:8]]


@pytest.mark.parametrize(("kind", "version"), FORMS)
def test_what_is_built_is_read(kind, version):
    pieces = {
        name: build.Piece(bytes([number + 1]) * 16 * (number + 1), 7 + number)
        for number, name in enumerate(sections_of(kind, version))
    }
    blob = build.image(kind, version, pieces, version=0x0102, ip_version=(11, 5))
    image = parse(blob, "made.bin", kind)
    assert {section.name: image.data(section) for section in image.sections} == {
        name: piece.data for name, piece in pieces.items()
    }
    assert (image.header_version, image.ip_version, image.version) == (version, (11, 5), 0x0102)
    assert image.crc_rule == "file"


@pytest.mark.parametrize(("kind", "version"), FORMS)
def test_no_image_may_end_early_or_late(kind, version):
    blob = build.image(kind, version, {name: bytes(16) for name in sections_of(kind, version)})
    for size in (*range(64), len(blob) // 2, len(blob) - 1):
        with pytest.raises(FirmwareError, match=r"^made\.bin: "):
            parse(blob[:size], "made.bin", kind)
        # The size in the header may also be that of the cut image.
        with pytest.raises(FirmwareError, match=r"^made\.bin: "):
            parse(patched(blob[:size], 0, size) if size > 3 else blob[:size], "made.bin", kind)
    with pytest.raises(FirmwareError, match=f"says {len(blob)} bytes, the image has {len(blob) + 1}"):
        parse(blob + b"\0", "made.bin", kind)


@pytest.mark.parametrize(
    ("at", "value", "form", "message"),
    [  # byte of gfx_firmware_header_v2_0, its new value
        (0, 1, "<I", "the header at byte 0 says 1 bytes, the image has 352"),
        (8, 7, "<H", "byte 8 says header version 7.0; mec images have 1.0, 2.0"),
        (10, 9, "<H", "byte 8 says header version 2.9"),
        (24, 0, "<I", "code begins at byte 0, inside the header of 60 bytes"),
        (24, 59, "<I", "code begins at byte 59, inside the header"),
        (24, 0xFFFF_FFFF, "<I", "code ends at byte 4294967359, the image at 352"),
        (36, 97, "<I", "code ends at byte 353, the image at 352"),  # checked before the overlap
        (36, 65, "<I", "data begins at byte 320, inside code, which ends at 321"),
        (44, 33, "<I", "data ends at byte 353, the image at 352"),
        (48, 319, "<I", "data begins at byte 319, inside code, which ends at 320"),
        (48, 256, "<I", "begins at byte 256, inside"),
    ],
)
def test_a_wrong_field_is_named_with_its_byte(at, value, form, message):
    blob = build.image("mec", (2, 0), MEC)
    assert len(blob) == 352
    with pytest.raises(FirmwareError) as caught:
        parse(patched(blob, at, value, form), "gc_11_0_0_mec.bin")
    assert message in str(caught.value)
    assert str(caught.value).startswith("gc_11_0_0_mec.bin: ")


def test_an_empty_section_may_point_anywhere():
    blob = build.image("mec", (2, 0), MEC)
    image = parse(patched(patched(blob, 44, 0), 48, 0xFFFF_FFFF), "gc_11_0_0_mec.bin")  # data of no bytes
    assert [section.name for section in image.sections] == ["code"]


@pytest.mark.parametrize(
    ("count", "message"), [(26, "counts 26 packed parts"), (0xFFFF_FFFF, "at most 25"), (25, "packed part 21")]
)
def test_a_list_of_packed_parts_is_bounded(count, message):
    """UCODE_MAX_PSP_PACKAGING is 26. A smaller count that exceeds the file is cut at the end of the file."""
    blob = build.image("sos", (2, 0), {"sys_drv": bytes(64), "sos": bytes(64)})
    with pytest.raises(FirmwareError, match=message):
        parse(patched(blob, 32, count), "psp_13_0_0_sos.bin")


def test_a_second_set_beyond_the_list_is_refused():
    blob = build.image("sos", (2, 1), {"sos": bytes(16), "sos_aux": bytes(16)})
    with pytest.raises(FirmwareError, match="byte 36 puts the second set at part 3 of 2"):
        parse(patched(blob, 36, 3), "psp_13_0_6_sos.bin")


def test_a_part_that_is_listed_twice_is_refused():
    """The kernel would silently take the last one. No published file lists a part twice."""
    blob = build.image("sos", (2, 0), {"sys_drv": bytes(16), "sos": bytes(16)})
    with pytest.raises(FirmwareError, match="byte 52 lists a second sys_drv"):
        # psp_fw_bin_desc.fw_type of the second
        parse(patched(blob, 52, 2), "psp_13_0_0_sos.bin")


@pytest.mark.parametrize(("offset", "size"), [(0, 17), (16, 1), (15, 2)])
def test_a_jump_table_is_inside_its_code(offset, size):
    """Offsets and sizes in dwords; the code has 16."""
    blob = build.image("mec", (1, 0), {"code": bytes(64)}, fields={"jt_offset": offset, "jt_size": size})
    with pytest.raises(FirmwareError, match=r"jump_table.*(is outside the code of the image|the image at 320)"):
        parse(blob, "gc_11_0_1_mec.bin")


def test_power_tables_are_bounded():
    blob = build.image("smu", (2, 1), {"code": bytes(16), "pptable_3": bytes(16)})
    with pytest.raises(FirmwareError, match="counts 65 power tables"):
        parse(patched(blob, 36, 65), "smu_13_0_0.bin")
    with pytest.raises(FirmwareError, match="the description of power table 0 takes bytes 4294967295"):
        parse(patched(blob, 40, 0xFFFF_FFFF), "smu_13_0_0.bin")


def test_a_wrong_crc_is_shown_and_no_reason_to_refuse():
    blob = build.image("mec", (2, 0), MEC)
    image = parse(patched(blob, 28, 0x1234), "gc_11_0_0_mec.bin")
    assert (image.crc32, image.crc_rule) == (0x1234, "no known rule")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amdgpu/gc_11_0_0_mes_2.bin", "mes"), ("gc_12_0_1_uni_mes.bin", "mes"), ("gc_11_0_0_mes1.bin", "mes"),
        ("gc_11_0_0_rlc_1.bin", "rlc"), ("gc_11_0_0_rlc_kicker.bin.zst", "rlc"), ("psp_13_0_0_sos_kicker.bin", "sos"),
        ("smu_13_0_7.bin.xz", "smu"), ("navi10_smc.bin", "smu"), ("sdma_7_0_1.bin", "sdma"), ("vcn_4_0_6_1.bin", "vcn"),
        ("umsch_mm_4_0_0.bin", "umsch"), ("dcn_3_5_dmcub.bin", "dmcub"),
    ],
)  # fmt: skip
def test_a_name_gives_the_kind(name, kind):
    assert kind_of(name) == kind


def test_a_name_without_a_kind_is_refused():
    with pytest.raises(FirmwareError, match=r"^letter\.bin: the name contains no kind"):
        parse(bytes(64), "letter.bin")
    with pytest.raises(ValueError, match="no kind of firmware is called letter"):
        parse(bytes(64), "letter.bin", "letter")
