"""Names of firmware files, compared with amdgpu's MODULE_FIRMWARE lines and requests."""

import re

import pytest

from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.amd import build
from ringup.firmware.amd.files import load
from ringup.firmware.amd.needs import CHIPS, WANTED, Need, needs
from ringup.firmware.store import Store


def names(chip, **pci):
    blocks = CHIPS[chip]
    return {need.kind: need.name for need in needs(blocks.gc, blocks.mp0, blocks.mp1, blocks.sdma, **pci)}


def test_a_navi31_takes_the_files_that_a_kernel_asked_for():
    """Requests that amdgpu.ko 6.12 made in a bring-up, without those for video."""
    assert names("navi31") == {
        "sos": "amdgpu/psp_13_0_0_sos.bin",
        "ta": "amdgpu/psp_13_0_0_ta.bin",
        "smu": "amdgpu/smu_13_0_0.bin",
        "sdma": "amdgpu/sdma_6_0_0.bin",
        "pfp": "amdgpu/gc_11_0_0_pfp.bin",
        "me": "amdgpu/gc_11_0_0_me.bin",
        "mec": "amdgpu/gc_11_0_0_mec.bin",
        "mes": "amdgpu/gc_11_0_0_mes_2.bin",
        "mes_kiq": "amdgpu/gc_11_0_0_mes1.bin",
        "imu": "amdgpu/gc_11_0_0_imu.bin",
        "rlc": "amdgpu/gc_11_0_0_rlc.bin",
    }


def test_a_kicker_card_has_five_files_of_its_own():
    """amdgpu_ucode.c: device 0x744b revision 0. Files with a name of their own: psp_v13_0.c, imu_v11_0.c, gfx_v11_0.c,
    smu_v13_0.c.
    """
    own = {kind for kind, name in names("navi31", pci_device=0x744B).items() if "_kicker" in name}
    assert own == {"sos", "ta", "smu", "imu", "rlc"}
    assert names("navi31", pci_device=0x744B, pci_revision=0xC8) == names("navi31")
    # Linux 6.18 has a second one, of RDNA4: imu_v12_0.c, gfx_v12_0.c, psp_v14_0.c, smu_v14_0.c
    own = {kind for kind, name in names("navi48", pci_device=0x7551, pci_revision=0xC8).items() if "_kicker" in name}
    assert own == {"sos", "ta", "smu", "imu", "rlc"}
    assert names("navi48", pci_device=0x7551, pci_revision=0xC0) == names("navi48")


def test_revision_ce_of_a_navi31_takes_another_rlc():
    changed = names("navi31", pci_device=0x744C, pci_revision=0xCE)
    assert changed["rlc"] == "amdgpu/gc_11_0_0_rlc_1.bin"
    assert changed | {"rlc": "amdgpu/gc_11_0_0_rlc.bin"} == names("navi31")
    assert names("navi33", pci_revision=0xCE) == names("navi33")


def test_graphics_core_12_runs_one_scheduler_image_twice():
    assert names("navi44")["mes"] == names("navi44")["mes_kiq"] == "amdgpu/gc_12_0_0_uni_mes.bin"


def test_every_name_is_one_that_the_kernel_declares(headers):
    """Every row of every table is a MODULE_FIRMWARE line of amdgpu."""
    declared = set()
    for path in (headers("linux") / "drivers/gpu/drm/amd").rglob("*.c"):
        declared |= set(re.findall(r'MODULE_FIRMWARE\("(amdgpu/[^"]*)"\)', path.read_text(errors="replace")))
    for block, versions in WANTED.items():
        for version, wants in versions.items():
            for want in wants:
                for suffix in (want.suffix, *want.fallbacks):
                    assert f"amdgpu/{block}_{'_'.join(map(str, version))}{suffix}.bin" in declared


@pytest.mark.parametrize("block", ["gc", "psp", "smu", "sdma"])
def test_an_unknown_version_is_refused_with_those_that_are_known(block):
    known = {"gc": (11, 0, 0), "psp": (13, 0, 0), "smu": (13, 0, 0), "sdma": (6, 0, 0)} | {block: (9, 9, 9)}
    with pytest.raises(NotSupported, match=rf"no firmware files are known for {block} 9\.9\.9; known: "):
        needs(known["gc"], known["psp"], known["smu"], known["sdma"])


def put(folder, name, blob):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blob)


MES = build.image("mes", (1, 0), {"code": b"code", "data": b"data"})


def test_an_older_scheduler_serves_when_the_newer_is_missing(tmp_path):
    need = Need("amdgpu/gc_11_0_0_mes_2.bin", "mes", fallbacks=("amdgpu/gc_11_0_0_mes.bin",))
    put(tmp_path, "amdgpu/gc_11_0_0_mes.bin", MES)
    assert load([need], Store([tmp_path])).files["mes"].name == "amdgpu/gc_11_0_0_mes.bin"
    put(tmp_path, "amdgpu/gc_11_0_0_mes_2.bin", MES)
    assert load([need], Store([tmp_path])).files["mes"].name == "amdgpu/gc_11_0_0_mes_2.bin"


def test_an_optional_file_may_be_missing_and_may_not_be_damaged(tmp_path):
    needed = [Need("amdgpu/a_mes.bin", "mes"), Need("amdgpu/a_ta.bin", "ta", optional=True)]
    put(tmp_path, "amdgpu/a_mes.bin", MES)
    found = load(needed, Store([tmp_path]))
    assert set(found.files) == {"mes"}
    assert found.trusted_applications() == {}
    with pytest.raises(FirmwareError, match="no ta firmware is loaded"):
        found.image("ta")
    put(tmp_path, "amdgpu/a_ta.bin", b"x")
    with pytest.raises(FirmwareError, match=r"^amdgpu/a_ta\.bin: the common header takes bytes 0 to 32"):
        load(needed, Store([tmp_path]))


def test_a_changed_byte_changes_the_fingerprint(tmp_path):
    need = Need("amdgpu/a_mes.bin", "mes")
    marks = set()
    for code in (b"one", b"two", b"tow"):
        put(tmp_path, need.name, build.image("mes", (1, 0), {"code": code, "data": b"data"}))
        marks.add(load([need], Store([tmp_path])).fingerprint)
    assert len(marks) == 3
