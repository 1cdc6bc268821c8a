"""A broken rule on a virtual card is reported once: by the command that works on the card, and by a server on its
terminal.
"""

import logging
import re
import subprocess
import sys

import pytest

from ringup import silicon
from ringup.drivers.submission import card_queue
from ringup.errors import DeviceFault, DeviceTimeout, GuestError
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.witness import MAX_REPORTED
from ringup.silicon.serve.usbip import UsbipServer
from ringup.silicon.serve.vfio_user import VfioUserServer

RULE = "doorbell 0x3fe is odd"


@pytest.fixture
def faulty(compiled, tmp_path):
    """A code object with three kernels: one stores behind its buffer, one never ends, one is right."""
    source = """
    __kernel void behind(__global uint *out) { out[0x10000 + __builtin_amdgcn_workitem_id_x()] = 1; }
    __kernel void for_ever(__global volatile uint *flag) { while (flag[0] == 0) ; }
    __kernel void fine(__global uint *out) { out[0] = 1; }
    """
    return compiled(source)


@pytest.fixture
def compiled(tmp_path):
    def build(source):
        (tmp_path / "source.cl").write_text(source)
        argv = ["clang-19", "-w", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O2"]
        subprocess.run(
            [*argv, "-mcpu=gfx1100", tmp_path / "source.cl", "-o", tmp_path / "faulty"], check=True, timeout=60
        )
        return tmp_path / "faulty"

    return build


def test_run_names_the_rule_and_what_stands_still(plug, ringup, faulty, monkeypatch):
    monkeypatch.setattr(card_queue, "CLOSE_S", 0.001)
    card = plug()
    status, _, errors = ringup("run", "virtual:navi31", faulty, "behind", "--arg", "zero:4096")
    assert status == DeviceFault.exit_code
    assert re.search(
        r"memory at 0x\w+ in wave \(0, 0, 0, 0\): global_store_b32 .*\(in behind\+0x\w+ of .*faulty; 0x\w+ is 0x\w+ bytes behind",
        errors,
    )
    assert len(errors.splitlines()) == 1
    card.violations.clear()
    card = plug()
    status, _, errors = ringup("run", "virtual:navi31", faulty, "for_ever", "--arg", "zero:4096", "--timeout", "0.01")
    assert status == DeviceTimeout.exit_code
    assert re.search(r"waves? running, before 0x\w+: .*\(in for_ever\+0x\w+ of .*faulty\)", errors)


@pytest.mark.parametrize("words", [("run", "fine", "--arg", "zero:4096"), ("up",)], ids=["run", "up"])
def test_work_that_went_well_with_a_mistake_ends_with_a_status_of_its_own(plug, ringup, faulty, monkeypatch, words):
    card = plug()
    submit = type(card.gc.cp).doorbell

    def odd(self, *given):
        card.log.note("nbio", "violation", RULE)
        return submit(self, *given)

    monkeypatch.setattr(type(card.gc.cp), "doorbell", odd)
    name, *rest = words
    status, output, errors = ringup(name, "virtual:navi31", *([faulty] if name == "run" else []), *rest)
    assert status == GuestError.exit_code
    assert f"continued after a mistake that fails on a real card: nbio: {RULE}" in errors
    assert "virtual:navi31" in output
    card.violations.clear()


def test_a_report_of_a_start_names_it_first(plug, ringup, monkeypatch):
    card = plug()
    submit = type(card.gc.cp).doorbell

    def odd(self, *given):
        card.log.note("nbio", "violation", RULE)
        return submit(self, *given)

    monkeypatch.setattr(type(card.gc.cp), "doorbell", odd)
    status, output, _ = ringup("report", "virtual:navi31", "--up")
    assert status == 0
    assert RULE in output.splitlines()[0]
    card.violations.clear()


def test_a_served_card_tells_each_mistake_once_on_the_servers_log(tmp_path, caplog):
    clock = VirtualClock()
    card = silicon.card("navi31", vram_bytes=64 << 20, clock=clock)
    with VfioUserServer(clock) as server, caplog.at_level(logging.WARNING, "ringup.silicon"):
        server.serve(str(tmp_path / "socket"), card)
        for text in ("first", "second", "first"):
            card.log.note("cp", "violation", text)
        card.log.note("cp", "packet", "third")
    told = [record.message for record in caplog.records]
    assert told == [
        f"{tmp_path / 'socket'}: virtual:navi31: a mistake that a real card punishes: cp: {text}"
        for text in ("first", "second")
    ]


def test_a_lent_enclosure_tells_those_of_bridge_and_card(caplog):
    card = silicon.card("navi31", vram_bytes=64 << 20, enumerated=False)
    enclosure, host = Enclosure(card), VirtualUsbHost()
    host.plug(enclosure)
    with UsbipServer([host]), caplog.at_level(logging.WARNING, "ringup.silicon"):
        enclosure.log.note("bridge", "violation", "a request")
        for number in range(MAX_REPORTED + 10):
            card.log.note("cp", "violation", "packet {}", number)
    told = [record.message for record in caplog.records]
    assert told[0] == "bridge at 1-1: a mistake that a real card punishes: bridge: a request"
    assert told[1] == "virtual:navi31 at 1-1: a mistake that a real card punishes: cp: packet 0"
    assert len(told) == 2 + MAX_REPORTED
    assert told[-1] == f"virtual:navi31 at 1-1: more mistakes than {MAX_REPORTED}; the others are only in its log"


TESTS = """
pytest_plugins = ["ringup.silicon.fixtures"]
def test_broken(virtual_card):
    card = virtual_card("navi31", vram_bytes=64 << 20)
    for number in range(3):
        card.log.note("cp", "violation", "mistake {}", number)
def test_failed(virtual_card):
    card = virtual_card("navi31", vram_bytes=64 << 20)
    card.log.note("cp", "violation", "odd")
    card.bars[5].write32(0x3000, 1)
    assert not card
"""


def test_the_fixture_names_the_first_mistake_and_shows_them_with_a_test_that_failed(tmp_path):
    (tmp_path / "conftest.py").write_text(TESTS.splitlines()[1])
    (tmp_path / "test_it.py").write_text("\n".join(TESTS.splitlines()[2:]))
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False).stdout
    assert re.search(r"the first is the cause:\n.* mistake 0\nthen: .*mistake 1\nthen: .*mistake 2\n", said), said
    assert re.search(r"what virtual:navi31 saw.*\nmistake: cp: odd", said), said
    assert re.search(r"what virtual:navi31 does not model.*\nathub\.\w+ = 0x1 is kept without effect", said), said
