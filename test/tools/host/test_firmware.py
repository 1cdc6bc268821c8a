"""`ringup firmware`: the files a card needs, and the contents of a file."""

import json

import pytest

from ringup import silicon
from ringup.firmware.amd import build, build_tables, discovery
from ringup.firmware.nv import build as build_nv
from ringup.firmware.nv import build_rom
from ringup.tools.command_line import cli


@pytest.fixture(scope="module")
def folder(sources):
    """The distribution's firmware folder."""
    return str(sources.root("firmware-amd") / "lib/firmware")


@pytest.fixture
def ask(capsys):
    """Run the command; return status, output and errors."""

    def run(*words):
        status = cli.main(["firmware", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("chip", "files"), [("navi31", 11), ("navi32", 11), ("navi33", 11), ("navi44", 11), ("navi48", 11)]
)
def test_a_chips_files_are_listed_with_versions_and_hashes(ask, folder, chip, files):
    status, out, err = ask("check", chip, "--only", "--folder", folder)
    lines = out.splitlines()
    assert (status, err, len(lines)) == (0, "", files + 1)
    assert all(folder in line and " CRC " in line for line in lines[:-1])
    assert lines[-1].startswith(f"{files} files, ")


def test_the_list_for_programs_has_the_whole_hash_and_the_fingerprint(ask, folder):
    document = json.loads(ask("check", "navi31", "--only", "--folder", folder, "--json")[1])
    mec = next(file for file in document["files"] if file["kind"] == "mec")
    assert len(mec["sha256"]) == 64
    assert (mec["name"], mec["problem"], mec["header"]) == ("amdgpu/gc_11_0_0_mec.bin", None, "2.0")
    assert 0 < document["fingerprint"] < 1 << 32


def test_missing_files_end_in_their_own_status(ask, tmp_path):
    status, out, err = ask("check", "navi31", "--only", "--folder", str(tmp_path))
    assert status == 30  # FirmwareError
    assert out.count("missing") == 11
    assert "missing, optional" in out
    assert err.startswith("ringup firmware: FirmwareError: amdgpu/psp_13_0_0_sos.bin is not in ")
    assert err.endswith("(and 9 more)\n")
    document = json.loads(ask("check", "navi31", "--only", "--folder", str(tmp_path), "--json")[1])
    assert document["fingerprint"] is None


def test_a_damaged_file_is_reported_even_when_it_is_optional(ask, tmp_path):
    (tmp_path / "psp_13_0_0_ta.bin").write_bytes(b"x")
    status, out, _ = ask("check", "navi31", "--only", "--folder", str(tmp_path))
    assert status == 30
    assert "damaged  " in out


def test_a_kicker_card_is_recognised_by_its_pci_ids(ask, folder):
    assert "amdgpu/gc_11_0_0_rlc_1.bin" in ask("check", "navi31", "--pci", "744c:ce", "--folder", folder)[1]
    assert "amdgpu/psp_13_0_0_sos_kicker.bin" in ask("check", "navi31", "--pci", "744b:0", "--folder", folder)[1]
    status, _, err = ask("check", "navi31", "--pci", "744b")
    assert (status, "write device and revision in hex" in err) == (30, True)


def test_an_unknown_chip_is_refused_with_those_that_are_known(ask):
    status, _, err = ask("check", "navi10")
    assert status == 11  # NotSupported
    assert "known chips: navi31, navi32, navi33, navi44, navi48" in err


def test_a_file_is_decoded(ask, folder):
    status, out, _ = ask("show", f"{folder}/amdgpu/psp_13_0_0_sos.bin")
    assert status == 0
    assert out.startswith("psp_13_0_0_sos.bin: sos image, header 2.0, version 0x310032, 268304 bytes\n")
    assert "  0x26890   0x18380  sos  version 0x310032  number 1" in out
    document = json.loads(ask("show", f"{folder}/amdgpu/psp_13_0_0_sos.bin", "--json")[1])
    assert [section["name"] for section in document["sections"]] == ["sys_drv", "sos", "toc", "kdb", "spl", "rl"]


def test_a_table_of_contents_is_decoded(ask, folder):
    assert "0x1540000   0xc0000  30 RS64_MEC_P3_STACK" in ask("show", f"{folder}/amdgpu/gc_12_0_0_toc.bin")[1]


def test_a_kind_may_be_given_where_the_name_tells_none(ask, tmp_path):
    path = tmp_path / "unnamed"
    path.write_bytes(build.image("imu", (1, 0), {"iram": bytes(16), "dram": bytes(32)}))
    assert ask("show", str(path))[0] == 30
    assert "imu image, header 1.0" in ask("show", str(path), "--kind", "imu")[1]


def test_an_unknown_kind_is_wrong_usage(ask, capsys):
    with pytest.raises(SystemExit) as end:
        ask("show", "x.bin", "--kind", "letter")
    assert end.value.code == 2
    assert "invalid choice: 'letter'" in capsys.readouterr().err


def test_a_discovery_binary_is_decoded(ask, tmp_path):
    path = tmp_path / "x.bin"
    ips = [discovery.Ip(11, 0, (11, 0, 0), (0x1260, 0xA000)), discovery.Ip(12, 1, (4, 0, 0), (0x7800,))]
    path.write_bytes(build_tables.discovery_binary([ips], [build_tables.harvest_table([(12, 1)])]))
    _, out, _ = ask("show", str(path))
    assert "  GC          0  11.0.0    0x1260 0xa000\n" in out
    assert "  fused off: VCN 1\n" in out
    assert "  no gc table: the binary has none\n" in out
    document = json.loads(ask("show", str(path), "--json")[1])
    assert document["blocks"][0]["name"] == "GC"


def test_an_expansion_rom_is_decoded(ask, tmp_path):
    path = tmp_path / "x.rom"
    table = build_tables.DataTable((3, 4), {"bios_scratch_reg_startaddr": 0x4C})
    path.write_bytes(build_tables.expansion_rom({"firmwareinfo": table}, title="A card", pci=(0x1002, 0x744C)))
    _, out, _ = ask("show", str(path))
    assert out.startswith("113-000000-000  A card  ")
    assert "1002:744c" in out
    assert "data firmwareinfo 3.4" in out
    assert json.loads(ask("show", str(path), "--json")[1])["pci"] == [0x1002, 0x744C]


def test_a_file_that_is_not_there_is_one_line(ask):
    status, _, err = ask("show", "/nowhere/gc_11_0_0_mec.bin")
    assert (status, err) == (
        30,
        "ringup firmware: FirmwareError: /nowhere/gc_11_0_0_mec.bin cannot be opened: No such file or directory\n",
    )


@pytest.fixture
def nvidia_folder(tmp_path):
    """A folder with a virtual GA102's made-up files, below the kernel's names."""
    for name, blob in silicon.nvidia_firmware("ga102").items():
        path = tmp_path / "firmware" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    return tmp_path / "firmware"


def test_an_nvidia_chips_files_are_listed(ask, nvidia_folder):
    status, out, err = ask("check", "ga102", "--only", "--folder", str(nvidia_folder))
    lines = out.splitlines()
    assert (status, err, len(lines)) == (0, "", 5)
    assert all("-535.113.01.bin" in line and str(nvidia_folder) in line for line in lines[:-1])
    assert lines[-1].startswith("4 files, ")
    document = json.loads(ask("check", "ga102", "--only", "--folder", str(nvidia_folder), "--json")[1])
    assert (document["release"], document["chip"], document["fingerprint"] > 0) == ("535.113.01", "ga102", True)
    assert [file["kind"] for file in document["files"]] == ["gsp", "bootloader", "booter_load", "booter_unload"]
    assert all(len(file["sha256"]) == 64 for file in document["files"])


def test_the_first_complete_release_of_an_nvidia_chip_is_listed(ask, nvidia_folder):
    (nvidia_folder / "nvidia/ga102/gsp/bootloader-535.113.01.bin").unlink()
    assert ask("check", "ga102", "--only", "--folder", str(nvidia_folder))[1].count("-570.144.bin") == 8
    status, out, err = ask("check", "ga102", "--only", "--folder", str(nvidia_folder), "--release", "535.113.01")
    assert (status, out.count("missing")) == (30, 1)
    assert "nvidia/ga102/gsp/bootloader-535.113.01.bin is not in" in err
    assert "install firmware-nvidia-graphics (Debian)" in err


def test_a_damaged_file_of_nvidias_ends_in_its_own_status(ask, nvidia_folder):
    (nvidia_folder / "nvidia/ga102/gsp/gsp-535.113.01.bin").write_bytes(b"x")
    command = ("check", "ga102", "--only", "--folder", str(nvidia_folder), "--release", "535.113.01")
    status, out, err = ask(*command)
    assert status == 30
    assert "damaged  " in out
    assert "the ELF header takes bytes 0 to 64" in err
    assert json.loads(ask(*command, "--json")[1])["fingerprint"] is None


def test_a_release_is_only_for_nvidias_chips_and_must_be_known(ask):
    assert ask("check", "navi31", "--release", "570.144")[0] == 11  # NotSupported
    status, _, err = ask("check", "gh100", "--release", "535.113.01")
    assert (status, "gh100 has no firmware of release 535.113.01; releases: 570.144" in err) == (11, True)


@pytest.mark.parametrize(
    ("name", "blob", "line"),
    [
        ("gsp_ga10x.bin", build_nv.gsp_image("1.2", b"x", {"ga10x": b"s"}), "GSP-RM, release 1.2"),
        ("fmc-570.144.bin", build_nv.fmc_for("gh100", b"x"), "signed with RSA-3072"),
        ("bl.bin", build_nv.loader_image(b"l" * 64, 0xFD), "64 bytes of code at 0xfd00"),
        ("x.rom", build_rom.expansion_rom(), "ROM 94.02.42.00.a1, 10de:2204"),
        ("x.rom", build_rom.with_ifr(build_rom.expansion_rom()), "ROM 94.02.42.00.a1, 10de:2204"),
    ],
)
def test_nvidias_files_are_recognised(ask, tmp_path, name, blob, line):
    (tmp_path / name).write_bytes(blob)
    status, out, _ = ask("show", str(tmp_path / name))
    assert (status, line in out) == (0, True)
    assert json.loads(ask("show", str(tmp_path / name), "--json")[1])["name"] == name


def test_a_damaged_fwsec_is_reported_beside_the_rest_of_its_rom(ask, tmp_path):
    (tmp_path / "x.rom").write_bytes(build_rom.expansion_rom({0x85: bytes(64)}))
    status, out, _ = ask("show", str(tmp_path / "x.rom"))
    assert (status, "  damaged: x.rom: FWSEC's descriptor at byte" in out) == (0, True)
    assert "problem" in json.loads(ask("show", str(tmp_path / "x.rom"), "--json")[1])["fwsec"]


def test_a_container_whose_name_shows_no_kind_needs_one(ask, tmp_path):
    path = tmp_path / "unnamed.bin"
    path.write_bytes(build_nv.loader_image(b"l" * 64, 0xFD))
    status, _, err = ask("show", str(path))
    assert (status, "the name shows no kind of NVIDIA's firmware" in err) == (30, True)
    assert ask("show", str(path), "--kind", "loader")[0] == 0
    assert ask("show", str(path), "--kind", "booter")[0] == 30
