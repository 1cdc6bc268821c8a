"""Names of NVIDIA's firmware files, compared with linux-firmware's list, and the files of a card."""

import pytest

from ringup import silicon
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import build
from ringup.firmware.nv.files import load
from ringup.firmware.nv.fmc import KEYS
from ringup.firmware.nv.gsp import FAMILIES
from ringup.firmware.nv.needs import CHIPS, needs
from ringup.firmware.store import Store

# linux-firmware's WHENCE: files, and links to them. Folders that are links as a whole are in `LINKS`.
FILES_535 = {
    "tu102": {"gsp", "bootloader", "booter_load", "booter_unload"},
    "tu116": {"gsp", "bootloader", "booter_load", "booter_unload"},
    "ga100": {"gsp", "bootloader", "booter_load", "booter_unload"},
    "ga102": {"gsp", "bootloader", "booter_load", "booter_unload"},
    "ad102": {"gsp", "bootloader", "booter_load", "booter_unload"},
}
FILES_570 = {
    **{chip: files | {"gen_bootloader"} for chip, files in FILES_535.items() if chip in ("tu102", "tu116", "ga100")},
    **{chip: FILES_535[chip] for chip in ("ga102", "ad102")},
    **{chip: {"gsp", "bootloader", "fmc"} for chip in ("gh100", "gb100", "gb202")},
}
LINKS = {
    **dict.fromkeys(("tu104", "tu106"), "tu102"),
    "tu117": "tu116",
    **dict.fromkeys(("ga103", "ga104", "ga106", "ga107"), "ga102"),
    **dict.fromkeys(("ad103", "ad104", "ad106", "ad107"), "ad102"),
    "gb102": "gb100",
    **dict.fromkeys(("gb203", "gb205", "gb206", "gb207"), "gb202"),
}


def published(release):
    """The names below /lib/firmware of a release."""
    listed = {"535.113.01": FILES_535, "570.144": FILES_570}[release]
    names = {f"nvidia/{chip}/gsp/{file}-{release}.bin" for chip, files in listed.items() for file in files}
    for chip, target in LINKS.items():
        names |= {f"nvidia/{chip}/gsp/{file}-{release}.bin" for file in listed.get(target, ())}
    return names | {f"nvidia/{chip}/acr/bl.bin" for chip in ("tu102", "tu104", "tu106", "tu116", "tu117")}


@pytest.mark.parametrize("release", ["535.113.01", "570.144"])
def test_every_file_is_one_that_is_published(release):
    """The loader of GA100 of release 535 is the exception: linux-firmware has it with release 570 only."""
    for chip, row in CHIPS.items():
        if release not in row.boot.releases:
            continue
        for need in needs(chip, release):
            if (chip, need.kind, release) == ("ga100", "loader", "535.113.01"):
                assert "nvidia/ga100/gsp/gen_bootloader-570.144.bin" in need.names
                continue
            assert need.name in published(release)
            assert set(need.names) & published(release)


def test_a_ga104_takes_the_files_of_ga102_where_the_link_is_missing():
    assert {need.kind: need.names for need in needs("ga104")} == {
        kind: (f"nvidia/ga104/gsp/{kind}-535.113.01.bin", f"nvidia/ga102/gsp/{kind}-535.113.01.bin")
        for kind in ("gsp", "bootloader", "booter_load", "booter_unload")
    }


def test_tu117_shares_files_with_two_chips():
    found = {need.kind: need.names for need in needs("tu117", "570.144")}
    assert found["gsp"][1:] == ("nvidia/tu116/gsp/gsp-570.144.bin", "nvidia/tu102/gsp/gsp-570.144.bin")
    assert found["bootloader"][1:] == (
        "nvidia/tu116/gsp/bootloader-570.144.bin",
        "nvidia/tu102/gsp/bootloader-570.144.bin",
    )
    assert found["booter_load"][1:] == ("nvidia/tu116/gsp/booter_load-570.144.bin",)
    assert found["loader"][0] == "nvidia/tu117/gsp/gen_bootloader-570.144.bin"
    assert needs("tu117")[4].name == "nvidia/tu117/acr/bl.bin"


def test_every_chip_is_in_every_table():
    assert set(CHIPS) == set(FAMILIES)
    assert {chip for chip, row in CHIPS.items() if "fmc" in row.boot.kinds} == set(KEYS)


def test_unknown_chips_and_releases_are_refused_with_those_that_are_known():
    with pytest.raises(NotSupported, match=r"no GSP firmware is known for chip gp102; known chips: tu102, "):
        needs("gp102")
    with pytest.raises(NotSupported, match=r"gh100 has no firmware of release 535\.113\.01; releases: 570\.144"):
        needs("gh100", "535.113.01")


def put(folder, name, blob):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blob)


@pytest.fixture
def installed(tmp_path):
    """`installed("ga102")`: a store with a virtual card's files, which holds both releases where the chip has two."""

    def install(chip, leave_out=""):
        for name, blob in silicon.nvidia_firmware(chip).items():
            if not leave_out or leave_out not in name:
                put(tmp_path, name, blob)
        return Store([tmp_path])

    return install


@pytest.mark.parametrize("chip", silicon.nvidia_cards())
def test_a_virtual_cards_files_are_loaded(chip, installed):
    found = load(chip, installed(chip))
    assert found.release == CHIPS[chip].boot.releases[0]
    assert set(found.files) == set(CHIPS[chip].boot.kinds)
    assert len(found.signature) == 4096
    assert found.bootloader.image
    assert found.fingerprint
    if "fmc" in found.files:
        assert len(found.fmc.hash384) == 48
    else:
        assert (found.booter("booter_load").non_secure is None) == CHIPS[chip].boot.from_hs
    with pytest.raises(FirmwareError, match="boots without"):
        _ = found.loader if "loader" not in found.files else found.fmc


def test_the_first_complete_release_serves(installed):
    store = installed("ga102", leave_out="booter_unload-535")
    assert load("ga102", store).release == "570.144"
    with pytest.raises(FirmwareError, match=r"^nvidia/ga102/gsp/booter_unload-535\.113\.01\.bin is not in"):
        load("ga102", store, "535.113.01")


def test_without_a_complete_release_the_first_one_is_asked_for(tmp_path):
    with pytest.raises(
        FirmwareError, match=r"gsp-535\.113\.01\.bin is not in .*; install firmware-nvidia-graphics \(Debian\)"
    ):
        load("ga102", Store([tmp_path]))


def test_a_damaged_file_is_named_with_its_path(installed, tmp_path):
    store = installed("ga102")
    put(tmp_path, "nvidia/ga102/gsp/bootloader-535.113.01.bin", b"x")
    with pytest.raises(
        FirmwareError,
        match=rf"the container's header takes bytes 0 to 24.*; the file is {tmp_path}/.*: install it again",
    ):
        load("ga102", store)


def test_files_of_another_chip_or_release_are_refused(installed, tmp_path):
    store = installed("ga102")
    put(tmp_path, "nvidia/ga102/gsp/gsp-535.113.01.bin", build.gsp_image("570.144", b"x", {"ga10x": b"s"}))
    with pytest.raises(FirmwareError, match=r"the file holds release 570\.144, not 535\.113\.01; the file is"):
        load("ga102", store)
    put(tmp_path, "nvidia/ga102/gsp/gsp-535.113.01.bin", build.gsp_image("535.113.01", b"x", {"tu10x": b"s"}))
    with pytest.raises(FirmwareError, match=r"the file has no signature for ga102 \(ga10x\); it has: tu10x"):
        load("ga102", store)
    store = installed("gb202")
    put(tmp_path, "nvidia/gb202/gsp/fmc-570.144.bin", build.fmc_for("gh100", b"x"))
    with pytest.raises(FirmwareError, match="key and signature have 384 and 384 bytes, gb202 takes 97 and 96"):
        load("gb202", store)


def test_a_changed_byte_changes_the_fingerprint(installed, tmp_path):
    marks = set()
    for number in range(3):
        store = installed("ga102")
        put(tmp_path, "nvidia/ga102/gsp/gsp-535.113.01.bin", build.gsp_image(None, bytes([number]), {"ga10x": b"s"}))
        marks.add(load("ga102", store).fingerprint)
    assert len(marks) == 3
