"""`ringup doctor` on machines with a card of NVIDIA's: one finding for each thing, and what to do about it."""

import pytest
from kernels.nvidia_machine import ADDRESS, CLOSED, NvidiaMachine

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.firmware.nv.needs import needs
from ringup.tools.host import doctor_nvidia, doctor_pci
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG


def lines(machine):
    return {line.what: line for line in doctor_nvidia.examine(machine.kernel)}


def test_a_machine_that_has_all_is_fine(tmp_path):
    found = lines(NvidiaMachine(tmp_path))
    assert {what: line.seen for what, line in found.items() if line.group == "cards"} == {
        "module nvidia": "535.261.03, public source",
        "module nvidia-uvm": "535.261.03",
        "NVIDIA's release": "535.261.03: its calls are known",
        "/dev/nvidiactl": "mode 0644",
        "/dev/nvidia0": "mode 0644",
        "nvidia:0": f"NVIDIA A10, at {ADDRESS}, driven by NVIDIA's driver",
        "nvidia:0 users": "none",
    }
    assert {line.state for line in found.values() if line.group == "cards"} == {FINE}


@pytest.mark.parametrize(
    ("release", "state", "said"),
    [
        ("535.113.01", FINE, "known by 535.261.03, the nearest release that was read"),
        ("580.65.06", FINE, "known by 580.142"),
        ("525.60.13", WRONG, "too old"),
        ("999.10", OPTIONAL, "newer than 595.45.04, the newest known"),
    ],
)
def test_the_release_is_placed_among_those_that_are_known(tmp_path, release, state, said):
    line = lines(NvidiaMachine(tmp_path, release=release))["NVIDIA's release"]
    assert (line.state, said in line.seen) == (state, True)
    assert bool(line.todo) == (state != FINE)


def test_who_uses_the_card_is_named(tmp_path):
    machine = NvidiaMachine(tmp_path)
    machine.process(77, "nvidia-persiste", "dev/nvidia0")
    line = lines(machine)["nvidia:0 users"]
    assert (line.state, line.seen) == (FINE, "process 77 (nvidia-persiste) has /dev/nvidia0 open")


def test_nodes_that_are_not_there_or_closed_are_wrong(tmp_path, monkeypatch):
    machine = NvidiaMachine(tmp_path, minor=2)
    (tmp_path / "dev/nvidia2").unlink()
    found = lines(machine)
    assert (found["/dev/nvidia2"].state, "nvidia-modprobe" in found["/dev/nvidia2"].todo) == (WRONG, True)
    assert found["nvidia:2"].state == WRONG
    # root may open every file
    monkeypatch.setattr("ringup.tools.host.doctor_nvidia.os.access", lambda path, mode: False)
    line = lines(machine)["/dev/nvidiactl"]
    assert (line.state, line.todo.startswith("this user may not open it: ")) == (WRONG, True)


def test_a_module_that_was_replaced_on_disk_is_wrong(tmp_path):
    machine = NvidiaMachine(tmp_path)
    machine.write("sys/module/nvidia/version", "550.163.01")
    machine.write("proc/driver/nvidia/version", CLOSED.format("535.261.03"))
    line = lines(machine)["module nvidia"]
    assert (line.state, line.seen) == (WRONG, "535.261.03, closed source, and 550.163.01 on disk")


def test_a_card_of_nouveau_or_of_nobody(tmp_path):
    found = lines(NvidiaMachine(tmp_path / "one", driver="nouveau"))
    assert found["module nouveau"].seen == f"loaded, drives {ADDRESS}"
    assert found["module nouveau"].todo == f"`ringup bind {ADDRESS}` takes a card from it"
    assert found["module nvidia"].state == OPTIONAL
    assert "/dev/nvidiactl" not in found
    found = lines(NvidiaMachine(tmp_path / "other", driver=""))
    assert (found["module nvidia"].seen, "module nouveau" in found) == ("not loaded", False)


def test_firmware_is_named_by_chip_once_it_is_complete(tmp_path):
    machine = NvidiaMachine(tmp_path)
    line = lines(machine)["GSP of NVIDIA's cards"]
    assert (line.state, "firmware-nvidia-graphics" in line.todo) == (OPTIONAL, True)
    for need in needs("ga102", "535.113.01"):
        machine.write(f"lib/firmware/{need.name}.xz", "")
    line = lines(machine)["GSP of NVIDIA's cards"]
    assert (line.state, "ga102 (535.113.01)" in line.seen) == (FINE, True)


def test_the_function_on_the_bus_names_the_other_path(tmp_path):
    found = {line.what: line for line in doctor_pci.examine(NvidiaMachine(tmp_path).kernel)}
    line = found[f"pci:{ADDRESS}"]
    assert (line.state, line.seen, line.todo) == (FINE, "NVIDIA 0x2236, nvidia", "use it as nvidia:0")
    assert found[f"pci:{ADDRESS} driver"].seen == "the kernel's nvidia drives the card"
    assert found[f"pci:{ADDRESS} BARs"].seen == "0: 16384 KiB, 1: 33554432 KiB"


def test_other_machines_hear_nothing_of_it(tmp_path):
    assert list(doctor_nvidia.examine(Kernel(tmp_path))) == []
