"""A virtual USB host that tinygrad reaches through a socket, and sessions of tinygrad's driver on it."""

import json
from pathlib import Path

import pytest

from ringup.silicon import card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.competitor.usb_door import UsbDoor

# TIMEOUT: 30 s on an idle core.
SESSION_S = 100
SCRIPT = Path(__file__).with_name("usb_driver.py")


@pytest.fixture
def enclosure():
    """A navi31 in an enclosure with the open firmware at 10 Gb/s, plugged into a host. Neither may record a mistake."""
    radeon = card("navi31", vram_bytes=1 << 30, enumerated=False)
    # This driver fills windows to their end and works on metal. Two reports differ about the effect; the harmless one
    # is true for this driver.
    made = Enclosure(radeon, spoils_full_windows=False)
    VirtualUsbHost().plug(made)
    yield made
    found = [*made.violations, *radeon.violations]
    assert not found, "\n".join(map(str, found[:20]))


@pytest.fixture
def door(enclosure):
    """A server for the enclosure. The test fails if the server broke."""
    with UsbDoor(enclosure.host) as made:
        yield made


@pytest.fixture
def drive(run_in_competitor, clang, made_firmware, enclosure, door, tmp_path):
    """`drive(data)` runs one session of tinygrad's driver and returns its answer."""

    def session(data):
        (tmp_path / "data").write_bytes(data)
        job = {"address": door.address, "firmware": str(made_firmware), "data": str(tmp_path / "data")}
        done = run_in_competitor(SCRIPT, job, SESSION_S, DEV="USB+AMD:LLVM", CC=clang)
        assert not done.returncode, f"{done.stderr[-6000:]}\n{door.errors} {enclosure.violations[:5]} {door.costs}"
        return json.loads(done.stdout.splitlines()[-1])

    return session
