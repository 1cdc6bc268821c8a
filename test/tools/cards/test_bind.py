"""`ringup bind` and `ringup unbind` on a machine whose PCI bus is a folder of files."""

import argparse
import json

import pytest

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import CardBusy, NoSuchCard, NotSupported, PermissionNeeded
from ringup.tools.cards import bind, unbind

ADDRESS = "0000:03:00.0"


@pytest.fixture
def kernel(tmp_path):
    """A machine with one Radeon bound to amdgpu. Writes land in files and change no binding, so tests can check plans
    but not their effect.
    """
    folder = tmp_path / "sys/bus/pci/devices" / ADDRESS
    group = tmp_path / "sys/kernel/iommu_groups/12"
    for path in (
        folder,
        group / "devices",
        tmp_path / "sys/bus/pci/drivers/amdgpu",
        tmp_path / "sys/bus/pci/drivers/vfio-pci",
        tmp_path / "run/lock",
    ):
        path.mkdir(parents=True)
    for name, text in {
        "vendor": "0x1002",
        "device": "0x744c",
        "class": "0x030000",
        "driver_override": "(null)",
    }.items():
        (folder / name).write_text(text + "\n")
    for name in ("amdgpu/unbind", "amdgpu/bind"):
        (tmp_path / "sys/bus/pci/drivers" / name).touch()
    (tmp_path / "sys/bus/pci/drivers_probe").touch()
    (folder / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/amdgpu")
    (folder / "iommu_group").symlink_to(group)
    (group / "devices" / ADDRESS).symlink_to(folder)
    return Kernel(tmp_path)


def run(command, kernel, *words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args([command.__name__.rpartition(".")[2], *words]), kernel)


def test_a_dry_run_shows_every_step_and_writes_nothing(kernel, capsys):
    assert run(bind, kernel, f"pci:{ADDRESS}", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pci:0000:03:00.0 (AMD 1002:744c, amdgpu, IOMMU group 12) to vfio-pci"
    assert [line[:5] for line in lines[1:]] == ["  1. ", "  2. ", "  3. "]
    assert (kernel.root / "sys/bus/pci/drivers/amdgpu/unbind").read_text() == ""


def test_json_is_one_object_with_the_steps_and_their_way_back(kernel, capsys):
    assert run(bind, kernel, ADDRESS, "--dry-run", "--json", "--driver", "none") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["card"], report["done"], report["objections"]) == ("pci:0000:03:00.0", False, [])
    assert [(step["value"], step["undo_path"]) for step in report["steps"]] == [
        (ADDRESS, "/sys/bus/pci/drivers/amdgpu/bind"),
        ("none", f"/sys/bus/pci/devices/{ADDRESS}/driver_override"),
    ]


def test_a_dry_run_tells_what_speaks_against_it(kernel, capsys):
    (kernel.root / "sys/class/graphics/fb0").mkdir(parents=True)
    (kernel.root / "sys/class/graphics/fb0/device").symlink_to(kernel.root / "sys/bus/pci/devices" / ADDRESS)
    assert run(bind, kernel, ADDRESS, "--dry-run") == 1
    assert "problem: console: framebuffer fb0 is on this card" in capsys.readouterr().out
    with pytest.raises(CardBusy, match="framebuffer fb0"):
        run(bind, kernel, ADDRESS)


def test_a_card_of_the_kernels_needs_no_unbinding(kernel, capsys):
    assert run(unbind, kernel, ADDRESS) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_step_that_nobody_may_take_names_root(kernel, monkeypatch):
    # The tests may run as root, who is allowed everything.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(
        PermissionNeeded, match="no permission for /sys/bus/pci/drivers/amdgpu/unbind; run the command as root"
    ):
        run(bind, kernel, ADDRESS)


def test_a_card_that_is_not_there_is_named(kernel):
    with pytest.raises(NoSuchCard, match=r"0000:09:00\.0; GPUs seen: 0000:03:00\.0"):
        run(bind, kernel, "pci:09:00.0")


def test_the_graphics_of_a_processor_stay_with_the_kernel(kernel):
    folder = kernel.root / "sys/bus/pci/devices" / ADDRESS
    (folder / "device").write_text("0x15bf\n")
    with pytest.raises(
        NotSupported, match="it is Phoenix, a processor with graphics; its slot holds the machine's own USB"
    ):
        run(bind, kernel, ADDRESS)
    assert (kernel.root / "sys/bus/pci/drivers/amdgpu/unbind").read_text() == ""
