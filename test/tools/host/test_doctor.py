"""The doctor on machines made for the tests: every finding says what it saw and what to do."""

import json
import os
from pathlib import Path

import pytest

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import STAMP, Sources
from ringup.errors import HeaderError
from ringup.tools.command_line import cli
from ringup.tools.host import doctor


@pytest.fixture
def machine(tmp_path):
    """A root folder with sysfs files of chosen devices. It returns the findings by name."""

    def examine(files=(), trees=()):
        for path, text in dict(files).items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        sources = Sources(load(), tmp_path / "cache", dict(trees))
        return {line.what: line for line in doctor.examine(sources, tmp_path)}

    return examine


def pci(slot, **values):
    return {f"sys/bus/pci/devices/{slot}/{name}": text + "\n" for name, text in values.items()}


def test_a_card_is_shown_with_vendor_and_driver(machine):
    found = machine(pci("0000:03:00.0", vendor="0x1002", device="0x744c", **{"class": "0x030000"}, boot_vga="0"))
    line = found["pci:0000:03:00.0"]
    assert (line.state, line.seen, line.todo) == (doctor.FINE, "AMD 0x744c, no driver", "")


def test_the_card_of_the_console_is_marked(machine):
    found = machine(pci("0000:03:00.0", vendor="0x10de", device="0x2684", **{"class": "0x030000"}, boot_vga="1"))
    assert "console" in found["pci:0000:03:00.0"].todo


def test_a_card_that_its_own_driver_has_is_not_wrong(machine, tmp_path):
    files = pci("0000:03:00.0", vendor="0x1002", device="0x744c", **{"class": "0x030000"}, boot_vga="0")
    files["sys/bus/pci/devices/0000:03:00.0/resource"] = (
        "0x0000007800000000 0x0000007fffffffff 0x000000000014220c\n"  # 32 GiB
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000008000000000 0x00000080001fffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x000000000000e000 0x000000000000e0ff 0x0000000000040101\n"
        "0x00000000fce00000 0x00000000fcefffff 0x0000000000040200\n"
    )
    folder = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    folder.mkdir(parents=True)
    (folder / "driver").symlink_to("/sys/bus/pci/drivers/amdgpu")
    found = {name: line for name, line in machine(files).items() if name.startswith("pci:")}
    driver = found["pci:0000:03:00.0 driver"]
    assert (driver.state, driver.seen) == (doctor.OPTIONAL, "the kernel's amdgpu drives the card")
    assert "ringup bind 0000:03:00.0" in driver.todo
    assert found["pci:0000:03:00.0 BARs"].seen == "0: 33554432 KiB, 2: 2048 KiB, 5: 1024 KiB"
    assert all(line.state != doctor.WRONG for line in found.values())


def test_a_card_without_addresses_is_wrong(machine):
    files = pci("0000:03:00.0", vendor="0x1002", device="0x744c", **{"class": "0x030000"}, boot_vga="0")
    line = machine(files)["pci:0000:03:00.0 BARs"]
    assert (line.state, "Above 4G decoding" in line.todo) == (doctor.WRONG, True)


def test_other_devices_are_no_cards(machine):
    found = machine(pci("0000:00:1f.3", vendor="0x8086", device="0x1", **{"class": "0x040300"}))
    assert "none found" in found["GPUs and bridges"].seen


def test_a_bridge_that_fell_back_to_usb2_is_wrong(machine):
    files = {
        f"sys/bus/usb/devices/2-1/{name}": text
        for name, text in (("idVendor", "174c"), ("idProduct", "2463"), ("speed", "480"))
    }
    line = machine(files)["usb:2-1 speed"]
    assert (line.state, line.seen) == (doctor.WRONG, "480 Mb/s: fell back to USB2")
    assert "cable" in line.todo


def test_firmware_is_counted(machine):
    found = machine({"lib/firmware/amdgpu/psp_13_0_0_sos.bin": "x", "lib/firmware/amdgpu/sub/y.bin": "y"})
    assert (found["amdgpu"].state, found["amdgpu"].seen) == (doctor.FINE, "2 files")
    assert (found["nvidia"].state, "firmware-nvidia" in found["nvidia"].todo) == (doctor.OPTIONAL, True)


def test_a_header_package_of_another_version_is_reported(machine, tmp_path):
    folder = tmp_path / "cache/mesa"
    (folder / "mesa-25.0.7").mkdir(parents=True)
    (folder / STAMP).write_text("25.9.9\n")
    found = machine()
    assert (found["mesa"].seen, "ringup headers check" in found["mesa"].todo) == ("25.9.9", True)
    assert (found["linux"].seen, "ringup headers fetch linux" in found["linux"].todo) == ("not fetched", True)


def test_a_tree_that_is_no_folder_is_wrong(machine):
    assert machine(trees={"nvidia-580": Path("/no/such/folder")})["nvidia-580"].state == doctor.WRONG


def test_a_damaged_register_database_is_wrong(machine, monkeypatch, tmp_path):
    import shutil

    from ringup.autogen import regdb

    copy = tmp_path / "regs"
    shutil.copytree(regdb.FOLDER, copy)
    victim = next((copy / "amd").glob("gc_11_0_0*"))
    victim.write_bytes(victim.read_bytes()[:-1])
    monkeypatch.setattr(regdb.chip_names, "__defaults__", (copy,))
    monkeypatch.setattr(regdb.open_chip, "__defaults__", (copy,))
    assert machine()["registers of navi31"].state == doctor.WRONG


def test_a_device_node_of_a_group_without_a_name_shows_the_number(machine, monkeypatch):
    def nameless(path):
        raise KeyError(f"getgrgid(): gid not found: {path.stat().st_gid}")

    monkeypatch.setattr(Path, "group", nameless)
    # Root may open every file.
    monkeypatch.setattr("ringup.tools.host.doctor.os.access", lambda path, mode: False)
    line = machine({"dev/kfd": ""})["/dev/kfd"]
    assert (line.state, line.seen) == (doctor.WRONG, "no permission")
    assert line.todo == f"add yourself to group {os.getegid()}, which has no name here, then log in again"


def test_a_device_file_that_holds_no_text_is_no_card(machine, tmp_path):
    folder = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_bytes(b"\xff\xfe")
    assert "none found" in machine()["GPUs and bridges"].seen


def test_the_command_prints_every_finding_and_its_remedy(capsys):
    status = cli.main(["doctor", "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert {line["group"] for line in lines} == {
        "host",
        "libraries",
        "programs",
        "permissions",
        "cards",
        "headers",
        "facts",
        "firmware",
    }
    assert all(line["todo"] for line in lines if line["state"] != doctor.FINE)
    assert status == (1 if any(line["state"] == doctor.WRONG for line in lines) else 0)
    cli.main(["doctor"])
    text = capsys.readouterr().out
    assert all(line["what"] in text for line in lines)


@pytest.mark.parametrize("path", ["/", "/nope/manifest"])
def test_a_manifest_that_is_none_is_named_as_it_was(capsys, path):
    assert cli.main(["doctor", "--manifest", path]) == HeaderError.exit_code
    assert f"reading the manifest {path}: " in capsys.readouterr().err


def test_a_manifest_without_an_end_is_not_read_to_it(capsys):
    assert cli.main(["doctor", "--manifest", "/dev/zero"]) == HeaderError.exit_code
    assert "/dev/zero: it has more than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("vendor", "device", "reason"),
    [
        ("0x10de", "0x1b06", "device 0x1b06 has a chip from before Turing, which has no GSP; "),
        ("0x1002", "0x687f", "there is no driver for Vega 10; ringup drives Radeon RX 7000 and RX 9000 cards"),
        ("0x1002", "0x15bf", "there is no driver for Phoenix, a processor with graphics; "),
        ("0x1002", "0x1fff", "there is no driver for a processor with graphics; "),
        ("0x1002", "0x73bf", "there is no driver for Navi 21; "),
    ],
)
def test_a_card_that_nothing_drives_is_seen_and_no_step_is_advised(machine, vendor, device, reason):
    found = machine(pci("0000:03:00.0", vendor=vendor, device=device, **{"class": "0x030000"}))
    lines = [line for line in found.values() if line.what.startswith("pci:")]
    assert [line.state for line in lines] == [doctor.OPTIONAL]
    assert lines[0].seen.endswith("seen, not supported")
    assert lines[0].todo.startswith(reason)


def test_locked_memory_knows_the_limit_that_was_written_and_not_applied(machine, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda kind: (8 << 20, 8 << 20))
    line = machine()["locked memory"]
    assert (line.state, line.seen) == (doctor.OPTIONAL, "8192 KiB")
    assert "the line `@render - memlock unlimited` in /etc/security/limits.d/70-ringup.conf raises it" in line.todo
    line = machine({"etc/security/limits.d/70-ringup.conf": "@render - memlock unlimited\n"})["locked memory"]
    assert "was not applied to this session: log in again" in line.todo


def test_a_group_that_was_joined_since_the_log_in_wants_one(machine, monkeypatch, tmp_path):
    monkeypatch.setattr("ringup.tools.host.doctor.os.access", lambda path, mode: False)
    monkeypatch.setattr("ringup.tools.host.doctor.getpass.getuser", lambda: "sam")
    monkeypatch.setattr("ringup.tools.host.doctor.os.getgroups", list)
    monkeypatch.setattr(Path, "group", lambda path: "render")
    assert machine({"dev/kfd": ""})["/dev/kfd"].todo == "add yourself to group render, then log in again"
    line = machine({"etc/group": "render:x:105:kim,sam\n"})["/dev/kfd"]
    assert line.todo == "sam is in group render, and was not at the last log-in: log in again"
