"""`ringup list`, `bind`, `unbind` with a card of NVIDIA's that a kernel driver holds, on a machine of files."""

import argparse

import pytest
from kernels.nvidia_machine import ADDRESS, SOUND, NvidiaMachine

from ringup.drivers.transport.linux import nvidia_proc, pci
from ringup.drivers.transport.nvidia import transport
from ringup.errors import CardBusy
from ringup.tools.cards import bind, unbind


def run(command, kernel, *words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args([command.__name__.rpartition(".")[2], *words]), kernel)


def test_the_list_names_the_card_by_both_paths_and_why_one_is_closed(tmp_path):
    machine = NvidiaMachine(tmp_path)
    (on_pci,) = pci.find(machine.kernel)
    assert (on_pci.name, on_pci.skipped) == (f"pci:{ADDRESS}", "the kernel's nvidia drives it: use it as nvidia:0")
    (through,) = transport.find(machine.kernel)
    assert (through.name, through.skipped) == ("nvidia:0", "")
    assert through.description == f"NVIDIA A10, at {ADDRESS}, driven by NVIDIA's driver"


def test_a_card_without_node_or_right_says_so(tmp_path, monkeypatch):
    machine = NvidiaMachine(tmp_path, minor=3)
    (tmp_path / "dev/nvidia3").unlink()
    (found,) = transport.find(machine.kernel)
    assert found.name == "nvidia:3"
    assert (
        found.skipped
        == "/dev/nvidia3 is not there: the driver is loaded without nodes: `nvidia-modprobe -c 0` makes them, as root"
    )
    machine.write("dev/nvidia3", "")
    # root may open every file
    monkeypatch.setattr("ringup.drivers.transport.nvidia.transport.os.access", lambda path, mode: False)
    (found,) = transport.find(machine.kernel)
    assert found.skipped.startswith("no permission for /dev/nvidiactl: ")


@pytest.mark.parametrize("driver", ["nouveau", ""])
def test_a_card_of_nouveau_or_nobody_is_no_card_of_nvidias_driver(tmp_path, driver):
    machine = NvidiaMachine(tmp_path, driver=driver)
    assert transport.find(machine.kernel) == []
    (found,) = pci.find(machine.kernel)
    assert f"NVIDIA 10de:2236, {driver or 'no driver'}" in found.description
    assert ("the kernel's nouveau drives" in found.skipped) == bool(driver)


def test_bind_shows_the_plan_and_names_who_uses_the_card(tmp_path, capsys):
    machine = NvidiaMachine(tmp_path)
    assert run(bind, machine.kernel, f"pci:{ADDRESS}", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pci:{ADDRESS} (NVIDIA 10de:2236, nvidia, IOMMU group 12) to vfio-pci"
    assert lines[1] == f"  1. {ADDRESS}: take it from nvidia: echo {ADDRESS} > /sys/bus/pci/drivers/nvidia/unbind"
    # its sound function goes with it
    assert any(line.startswith(f"  4. {SOUND}: take it from snd_hda_intel") for line in lines)
    machine.process(4321, "python3", "dev/nvidiactl", "dev/nvidia0")
    assert run(bind, machine.kernel, f"pci:{ADDRESS}", "--dry-run") == 1
    assert "problem: holders: process 4321 (python3) has /dev/nvidia0 open; end the holder" in capsys.readouterr().out
    with pytest.raises(CardBusy, match=r"holders: process 4321 \(python3\) has /dev/nvidia0 open"):
        run(bind, machine.kernel, f"pci:{ADDRESS}")
    assert (tmp_path / "sys/bus/pci/drivers/nvidia/unbind").read_text() == ""


def test_a_process_on_another_card_or_on_the_control_node_alone_does_not_hold_it(tmp_path):
    machine = NvidiaMachine(tmp_path)
    machine.process(4321, "python3", "dev/nvidiactl", "dev/nvidia1", "dev/nvidia-uvm")
    assert run(bind, machine.kernel, f"pci:{ADDRESS}", "--dry-run") == 0


def test_unbind_of_a_card_that_its_driver_has_is_nothing(tmp_path, capsys):
    assert run(unbind, NvidiaMachine(tmp_path).kernel, f"pci:{ADDRESS}") == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build", "570.195.03"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  565.77  Wed Nov 27 23:33:08 UTC 2024", "565.77"),
        ("NVRM version: made by somebody", ""),
        ("", ""),
    ],
)
def test_the_release_is_read_of_any_form_of_its_file(tmp_path, text, release):
    machine = NvidiaMachine(tmp_path)
    machine.write("proc/driver/nvidia/version", text)
    assert nvidia_proc.release(machine.kernel) == release
    assert nvidia_proc.is_open(machine.kernel) == ("Open" in text)
