"""`ringup firmware`: the files a card needs, and the contents of a file."""

import json

import pytest

from ringup.firmware.amd import build, build_tables, discovery
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
