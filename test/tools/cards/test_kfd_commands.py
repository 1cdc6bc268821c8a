"""Commands on a card that stays with amdgpu, on a kernel made of files: what sysfs shows, and what they refuse."""

import json

import pytest
from kernels.compute_machine import PROPERTIES, Compute

from ringup.drivers.transport.kfd.process import Process
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import NoSuchCard, NotSupported
from ringup.tools.host import doctor_kfd


@pytest.fixture
def compute(tmp_path, monkeypatch):
    machine = Compute(tmp_path)
    machine.node(1)
    device = machine.card()
    for name, text in {"gpu_busy_percent": "42", "hwmon/hwmon0/power1_average": "31500000"}.items():
        machine.write(f"{device}/{name}", f"{text}\n")
    for module in ("watch", "transport"):
        monkeypatch.setattr(f"ringup.drivers.transport.kfd.{module}.Kernel", lambda: machine.kernel)
    process = Process(machine.kernel)
    monkeypatch.setattr("ringup.drivers.transport.kfd.device.own", lambda: process)
    yield machine
    process.close()


def test_stats_shows_the_sensors_and_opens_nothing(compute, ringup):
    status, out, err = ringup("stats", "kfd:0", "--json")
    assert (status, err) == (0, "")
    seen = json.loads(out)
    assert (seen["name"], seen["sensors"]["busy_percent"], seen["sensors"]["power_w"]) == ("kfd:0", 42, 31.5)
    assert "busy_percent               42" in ringup("stats", "kfd:0")[1]
    assert compute.log == []


def test_top_is_one_frame_without_a_terminal(compute, ringup):
    status, out, err = ringup("top", "kfd:0")
    assert (status, err) == (0, "")
    assert out.startswith("kfd:0, link unknown\n")
    rows = dict(line.split() for line in out.splitlines()[1:])
    assert rows == {"busy_percent": "42", "power_w": "31.5"}


@pytest.mark.parametrize("command", [["info"], ["reset"], ["down"], ["report"]], ids=lambda words: words[0])
def test_what_needs_registers_is_refused(compute, ringup, command):
    status, out, err = ringup(*command, "kfd:0")
    assert (status, out) == (NotSupported.exit_code, "")
    assert "kfd:0 is driven by its kernel driver, which gives no access to registers" in err


@pytest.mark.parametrize("command", ["stats", "up", "top"])
def test_a_card_that_is_not_there_is_said_to_be(compute, ringup, command):
    status, _, err = ringup(command, "kfd:3")
    assert status == NoSuchCard.exit_code
    assert "the kernel's compute topology has no such GPU; it has kfd:0" in err


def test_the_doctor_says_who_may_use_it(compute, tmp_path, monkeypatch):
    (line,) = doctor_kfd.examine(compute.kernel)
    assert (line.what, line.state, line.todo) == ("kfd:0", "fine", "")
    # root may open every file
    monkeypatch.setattr("ringup.drivers.transport.kfd.process.os.access", lambda path, mode: False)
    (line,) = doctor_kfd.examine(compute.kernel)
    assert line.state == "wrong"
    assert line.todo.startswith("no permission for /dev/kfd: add yourself to group")
    compute.node(1, PROPERTIES | {"device_id": 0x73BF})
    (line,) = doctor_kfd.examine(compute.kernel)
    assert (line.state, line.todo.partition(":")[0]) == ("missing", "seen, not supported")
    assert list(doctor_kfd.examine(Kernel(tmp_path / "nothing"))) == []
