"""`ringup doctor --probe` opens an enclosure and asks for the link to its card, however the system lists it."""

import pytest

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.tools.host import doctor_usb
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG


@pytest.fixture
def examine(tmp_path):
    """Return the findings on a system other than Linux that has this enclosure plugged in."""

    def look(enclosure):
        findings = doctor_usb.examine(Kernel(tmp_path), linux=False, probe=True, backend=enclosure.host)
        return {line.what: line for line in findings}

    return look


@pytest.mark.parametrize("firmware", ["open", "patched", "stock"])
def test_a_link_that_is_up_is_reported(dock, examine, firmware):
    line = examine(dock(firmware=firmware))["usb:1-1 card"]
    assert (line.state, line.seen.startswith("the link to it is up")) == (FINE, True)


def test_a_slot_without_a_card_asks_for_card_and_supply(dock, examine):
    enclosure = dock()
    enclosure.unplug_card()
    line = examine(enclosure)["usb:1-1 card"]
    assert (line.state, line.seen.startswith("the link to it is down")) == (OPTIONAL, True)
    assert "is its supply on?" in line.todo


def test_a_device_that_may_not_be_opened_is_reported(dock, examine):
    enclosure = dock()
    enclosure.host.denied.add("1-1")
    line = examine(enclosure)["usb:1-1 card"]
    assert (line.state, line.seen) == (OPTIONAL, "could not be opened")
    assert line.todo


def test_usb2_speed_is_wrong_before_anything_is_opened(dock, examine):
    line = examine(dock(speed="high"))["usb:1-1 speed"]
    assert (line.state, line.seen) == (WRONG, "480 Mb/s: fell back to USB2")
