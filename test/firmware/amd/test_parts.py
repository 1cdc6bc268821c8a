"""The pieces that the security processor loads, compared with slices measured while a kernel started a navi31 with the
same files.
"""

import hashlib

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.amd import build
from ringup.firmware.amd.files import load
from ringup.firmware.amd.image import parse
from ringup.firmware.amd.needs import CHIPS, needs
from ringup.firmware.amd.parts import boot_parts, ip_parts, trusted_applications
from ringup.firmware.store import Store

# psp_gfx_fw_type in the order of LOAD_IP_FW commands of amdgpu.ko on a navi31. SMU (18) is moved to the end: the kernel
# sends it first, before the loop.
NAVI31_ORDER = [71, 72, 87, 88, 89, *range(90, 98), 33, 34, 81, 82, 68, 69, 20, 21, 26, 48, 25, 7, 8, 18]


@pytest.fixture(scope="module")
def chip(firmware_folder):
    store = Store([firmware_folder])

    def make(name):
        blocks = CHIPS[name]
        return load(needs(blocks.gc, blocks.mp0, blocks.mp1, blocks.sdma), store)

    return make


def test_the_pieces_of_a_navi31_go_in_the_kernels_order(chip):
    assert [part.fw_type for part in chip("navi31").ip_parts((11, 0, 0))] == NAVI31_ORDER


def test_each_piece_is_the_slice_that_the_kernel_sends(chip, real):
    """Slices of the package of April 2025: file, first byte, length."""
    slices = {
        18: ("smu_13_0_0.bin", 0x100, 0x3FE00),
        71: ("sdma_6_0_0.bin", 0x100, 0x4400),
        72: ("sdma_6_0_0.bin", 0x4500, 0x4200),
        89: ("gc_11_0_0_mec.bin", 0x100, 0x41300),
        **dict.fromkeys((94, 95, 96, 97), ("gc_11_0_0_mec.bin", 0x41400, 0x22000)),
        68: ("gc_11_0_0_imu.bin", 0x100, 0x10200),
        69: ("gc_11_0_0_imu.bin", 0x10300, 0x10200),
        8: ("gc_11_0_0_rlc.bin", 0x100, 0x6200),
        20: ("gc_11_0_0_rlc.bin", 0x6300, 0xA00),
        25: ("gc_11_0_0_rlc.bin", 0x28020, 0x2200),
    }
    parts = {part.fw_type: part.data for part in chip("navi31").ip_parts((11, 0, 0))}
    for fw_type, (name, start, size) in slices.items():
        assert parts[fw_type] == real(name)[start : start + size], fw_type
    assert len(parts[34]) == len(parts[82]) == 0x20000  # data of the schedulers


def test_versions_are_those_of_the_headers(chip):
    """Package of April 2025: 0x4e8000 is SMU firmware 78.128.0."""
    assert chip("navi31").versions | {"mec": 0xA1E, "smu": 0x4E8000, "sos": 0x310032} == chip("navi31").versions


def test_graphics_core_12_has_fewer_stacks_and_one_scheduler_image(chip):
    """gfx_v12_0.c: one pipe of PFP and ME, two of MEC; amdgpu_mes.c: uni_mes on both pipes; SDMA of one program."""
    found = chip("navi48")
    parts = found.ip_parts((12, 0, 1))
    assert [part.fw_type for part in parts] == [
        71,
        87,
        88,
        89,
        90,
        92,
        94,
        95,
        33,
        34,
        81,
        82,
        68,
        69,
        20,
        21,
        26,
        48,
        8,
        18,
    ]
    by_type = {part.fw_type: part.data for part in parts}
    assert by_type[33] == by_type[81]
    assert found.files["mes"].name == "amdgpu/gc_12_0_1_uni_mes.bin"


@pytest.mark.parametrize(
    # PSP_FW_TYPE_* in the published files: 1 sOS, 2 system driver, 3 key database, 4 TOC, 5 SPL, 6 register list, 7 and
    # above drivers.
    ("name", "kinds"),
    [("navi31", {1, 2, 3, 4, 5, 6}), ("navi32", {1, 2, 3, 4, 6, 7, 8, 9, 10}), ("navi33", {1, 2, 3, 4, 5}),
     ("navi44", {1, 2, 3, 4, 5, 7, 8, 9, 11}), ("navi48", set(range(1, 12)))],
)  # fmt: skip
def test_the_boot_loader_gets_what_its_card_has(chip, name, kinds):
    assert set(chip(name).boot_parts()) == kinds


def test_the_boot_loaders_parts_are_slices_of_the_file(chip, real):
    sos = real("psp_13_0_0_sos.bin")
    parts = chip("navi31").boot_parts()
    assert parts[2].data == sos[0x100 : 0x100 + 0x26790]
    assert parts[1].data == sos[0x26890 : 0x26890 + 0x18380]
    assert parts[1].version == 0x310032
    (listed,) = ip_parts(parse(sos, "psp_13_0_0_sos.bin"), (11, 0, 0))
    assert (listed.fw_type, listed.data) == (67, sos[0x40EB0 : 0x40EB0 + 0x960])  # REG_LIST


def test_an_older_secure_os_is_cut_by_its_header(real):
    """psp_firmware_header_v1_3 of aldebaran: the system driver comes before the secure OS; a second pair is stored
    separately.
    """
    blob = real("aldebaran_sos.bin")
    first, second = (boot_parts(parse(blob, "aldebaran_sos.bin"), aux=aux) for aux in (False, True))
    assert (first[2].data, first[1].data) == (blob[0x100:0x1E990], blob[0x1E990:0x32DE0])
    assert (second[2].data, second[1].data) == (blob[0x351D0:0x56A60], blob[0x56A60:0x6CEE0])
    # Both use the same key database.
    assert first[3].data == second[3].data


def test_a_second_set_replaces_the_first():
    blob = build.image("sos", (2, 1), {name: name.encode() for name in ("sys_drv", "sos", "sys_drv_aux", "sos_aux")})
    image = parse(blob, "psp_13_0_6_sos.bin")
    assert {part.data for part in boot_parts(image).values()} == {b"sys_drv", b"sos"}
    assert {part.data for part in boot_parts(image, aux=True).values()} == {b"sys_drv_aux", b"sos_aux"}


def test_a_secure_os_without_its_driver_does_not_boot():
    blob = build.image("sos", (2, 0), {"sos": b"x", "kdb": b"y"})
    with pytest.raises(FirmwareError, match="the image has no sys_drv"):
        boot_parts(parse(blob, "psp_13_0_0_sos.bin"))


def test_trusted_applications_come_by_their_type(chip):
    """TA_FW_TYPE_PSP_ASD is 1, HDCP 4, DTM 5, RAS 3: amdgpu_ucode.h."""
    parts = chip("navi31").trusted_applications()
    assert {number: part.name for number, part in parts.items()} == {1: "asd", 4: "hdcp", 5: "dtm", 3: "ras"}
    assert len(parts[1].data) == 0x30100


def test_a_jump_table_is_cut_off_where_the_rlc_loads_the_engine():
    code = bytes(range(96))
    blob = build.image("mec", (1, 0), {"code": code}, fields={"jt_offset": 20, "jt_size": 4})  # dwords
    (part,) = ip_parts(parse(blob, "gc_11_0_1_mec.bin"), (11, 0, 1))
    assert (part.fw_type, part.data) == (4, code[:80])  # GFX_FW_TYPE_CP_MEC


def test_rlc_p_and_v_of_a_2_4_image_stay_unsent():
    pieces = {name: name.encode() for name in ("code", "iram", "rlcp", "rlcv", "se0_tap_delays")}
    image = parse(build.image("rlc", (2, 4), pieces), "beige_goby_rlc.bin")
    assert {part.data for part in ip_parts(image, (11, 0, 0))} == {b"code", b"iram", b"se0_tap_delays"}


def test_pieces_without_a_known_type_are_refused():
    image = parse(build.image("rlc", (2, 5), {"code": b"x", "iram_1": b"y"}), "gc_12_1_0_rlc.bin")
    with pytest.raises(FirmwareError, match=r"pieces of a rlc image 2\.5 have no known types"):
        ip_parts(image, (12, 0, 0))
    with pytest.raises(ValueError, match="graphics core"):
        ip_parts(parse(build.image("mes", (1, 0), {"code": b"x"}), "gc_11_0_0_mes1.bin"), (10, 3, 0))
    with pytest.raises(ValueError, match="a ta file is not loaded through LOAD_IP_FW"):
        ip_parts(parse(build.image("ta", (2, 0), {"asd": b"x"}), "psp_13_0_0_ta.bin"), (11, 0, 0))
    with pytest.raises(ValueError, match="takes parts of a sos image"):
        boot_parts(image)
    with pytest.raises(ValueError, match="come in ta images"):
        trusted_applications(image)


def test_the_fingerprint_is_of_contents_and_uses(chip):
    found = {name: chip(name).fingerprint for name in CHIPS}
    assert len(set(found.values())) == len(CHIPS)
    assert chip("navi31").fingerprint == found["navi31"]
    lines = sorted(f"{kind} {hashlib.sha256(file.data).hexdigest()}\n" for kind, file in chip("navi31").files.items())
    digest = hashlib.sha256("".join(lines).encode()).digest()
    assert found["navi31"] == int.from_bytes(digest[:4], "little")
