"""A virtual USB host behind a socket, for a driver in an interpreter of its own, and the firmware files that it
wants.
"""

import json
import os
import shutil
import subprocess
import threading
from multiprocessing.connection import Listener
from pathlib import Path

import pytest
from usb.core import USBError

from ringup.silicon import card
from ringup.silicon.amd.board import images
from ringup.silicon.amd.board.chips import CHIPS
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.bench.environment import FOLDER, find_or_make
from ringup.tools.common.paths import cache_folder

SESSION_S = 100  # TIMEOUT: 30 s of an idle core
SCRIPT = Path(__file__).with_name("usb_driver.py")
FIELDS = ("idVendor", "idProduct", "iProduct", "iSerialNumber")


class Door:
    """The far side of the driver's libusb: one host, one handle. `marks` are the driver's: (name, transfers, waits,
    time in us) so far.
    """

    def __init__(self, host, enclosure):
        self.host, self.enclosure = host, enclosure
        self.marks, self.errors, self._tags = [], [], {}
        self._listener = Listener(("127.0.0.1", 0), authkey=b"usb")
        self.address = "{}:{}".format(*self._listener.address)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with self._listener.accept() as line:
            while True:
                try:
                    name, arguments = line.recv()
                except EOFError:
                    return
                try:
                    answer = getattr(self, f"do_{name}")(*arguments)
                except USBError as error:
                    answer = error.backend_error_code
                    answer = (answer, b"") if name in ("control", "bulk") else answer
                except Exception as error:  # noqa: BLE001 - the test raises it
                    self.errors.append(error)
                    return
                line.send(answer)

    def do_list(self):
        rows = []
        for device in self.host.enumerate_devices():
            one = self.host.get_device_descriptor(device)
            fields = {name: getattr(one, name) for name in FIELDS}
            rows.append({"fields": fields, "bus": one.bus, "address": one.address})
        return rows

    def do_open(self, address):
        device = next(one for one in self.host.enumerate_devices() if one.address == address)
        self.handle = self.host.open_device(device)
        return 0

    def do_kernel_driver_active(self, interface):
        return int(self.host.is_kernel_driver_active(self.handle, interface))

    def do_set_configuration(self, value):
        self.host.set_configuration(self.handle, value)
        return 0

    def do_claim_interface(self, interface):
        self.host.claim_interface(self.handle, interface)
        return 0

    def do_set_interface(self, interface, alternate):
        self.host.set_interface_altsetting(self.handle, interface, alternate)
        return 0

    def _run(self, transfer):
        while not transfer.done:
            self.host.handle_events(60_000)
        codes = {"completed": transfer.actual, "timed_out": -7, "stall": -9, "no_device": -4}
        return codes[transfer.status], transfer.data

    def do_control(self, kind, request, value, index, payload, timeout):
        length = payload if isinstance(payload, int) else len(payload)
        setup = bytes((kind, request)) + b"".join(one.to_bytes(2, "little") for one in (value, index, length))
        return self._run(self.host.submit(self.handle, 0, payload, setup=setup, timeout_ms=timeout))

    def do_bulk(self, endpoint, payload, timeout):
        return self._run(self.host.submit(self.handle, endpoint, payload, timeout_ms=timeout))

    def do_submit(self, tag, endpoint, setup, payload, timeout):
        self._tags[tag] = self.host.submit(self.handle, endpoint, payload, setup=setup, timeout_ms=timeout)
        return 0

    def do_events(self):
        if not any(transfer.done for transfer in self._tags.values()):
            self.host.handle_events(60_000)
        ended = {tag: transfer for tag, transfer in self._tags.items() if transfer.done}
        for tag in ended:
            del self._tags[tag]
        return [(tag, one.status, one.actual, one.data) for tag, one in ended.items()]

    def do_sleep(self, seconds):
        self.host.clock.sleep_us(seconds * 1e6)
        return 0

    def do_mark(self, name):
        transfers = sum(count.transfers for count in self.host.counts().values())
        self.marks.append((name, transfers, self.host.waits, self.host.clock.now_us))
        return 0

    def phases(self):
        """Return by phase: transfers, waits, microseconds."""
        rows, before = {}, (0, 0, 0)
        for name, *now in self.marks:
            rows[name] = tuple(after - was for after, was in zip(now, before, strict=True))
            before = now
        return rows


@pytest.fixture
def door():
    """A door to a navi31 in an enclosure with the open firmware at 10 Gb/s; neither may see a mistake."""
    radeon = card("navi31", vram_bytes=1 << 30, enumerated=False)
    # this driver fills windows to their end, and works on metal: the safer of the two reports of what happens then is
    # the true one for it
    enclosure, host = Enclosure(radeon, spoils_full_windows=False), VirtualUsbHost()
    host.plug(enclosure)
    made = Door(host, enclosure)
    yield made
    assert not made.errors, made.errors
    found = [*enclosure.violations, *radeon.violations]
    assert not found, "\n".join(map(str, found[:20]))


@pytest.fixture(scope="session")
def python():
    """The interpreter that has the other driver; a package index that cannot be reached fails."""
    found = find_or_make(cache_folder() / FOLDER).python
    assert found is not None, "the other driver cannot be installed"
    return found


@pytest.fixture(scope="session")
def compiler():
    """The C compiler with which the other driver makes its own host code."""
    found = next(
        filter(None, map(shutil.which, ("clang", *(f"clang-{version}" for version in range(22, 13, -1))))), None
    )
    assert found is not None, "the other driver needs clang"
    return found


@pytest.fixture(scope="session")
def firmware(tmp_path_factory):
    """A folder of the virtual cards' own images: no card but a virtual one takes them."""
    folder = tmp_path_factory.mktemp("firmware")
    for name, data in images.build(CHIPS["navi31"]).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def drive(python, compiler, firmware, tmp_path):
    """`drive(door, data)` is one session of the other driver: what it answers."""

    def session(door, data):
        (tmp_path / "data").write_bytes(data)
        job = {"firmware": str(firmware), "data": str(tmp_path / "data")}
        variables = {
            **os.environ, "VIRTUAL_USB": door.address, "DEV": "USB+AMD:LLVM", "CACHEDB": str(tmp_path / "cache"), "CC": compiler,
        }  # fmt: skip
        done = subprocess.run(
            [python, str(SCRIPT)],
            input=json.dumps(job), capture_output=True, text=True, timeout=SESSION_S, env=variables, check=False,
        )  # fmt: skip
        assert not done.returncode, f"{done.stderr[-6000:]}\n{door.errors} {door.enclosure.violations[:5]} {door.marks}"
        return json.loads(done.stdout.splitlines()[-1])

    return session
