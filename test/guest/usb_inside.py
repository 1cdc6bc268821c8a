"""What runs in the guest, as root: devices that ringup serves, plugged into a real kernel (vhci_hcd) and used through
the real libusb.

The server is another process, as it is for a user: in the guest for simple devices, outside of it for enclosures, whose
model would take minutes on an emulated processor. The tests build on each other, in this order.
"""

import contextlib
import errno
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import usb.backend.libusb1
import usb.core
import usb.util

import ringup
from ringup.drivers.transport import clock
from ringup.drivers.usb4 import transport as enclosures
from ringup.drivers.usb4.libusb import LibusbHost
from ringup.errors import DeviceLost

DEVICES = Path("/sys/bus/usb/devices")
VHCI = Path("/sys/devices/platform/vhci_hcd.0")
# The CPU is emulated without hardware help. The bring-up's time limits are for real ones, so they are stretched.
SLOWER = 32
FIRMWARE = os.environ["GUEST_FIRMWARE"]  # a folder with the virtual card's own images
# Where the host's enclosures are: one with our firmware, one with the stock firmware.
OUTSIDE = os.environ["GUEST_USBIP"].split(":")
ENCLOSED, STOCK = "1-1", "2-1"
PYTHON = (sys.executable, "-X", "faulthandler")
# TIMEOUT: an emulated processor without hardware help.
SOON_S = 60.0
# TIMEOUT: a bring-up takes 180 s on a slow computer without hardware help.
COMMAND_S = 800.0
LOOPBACK, ENCLOSURE = (0x1209, 0x0001), (0xADD1, 0x0001)
STOCK_IDENTITIES = (0x174C, 0x2463), (0x174C, 0x2464)
KEEP, DELAY, STALL, UNPLUG, COUNT = 1, 2, 3, 4, 5
OUT, IN = 0x40, 0xC0
PATTERN = bytes(range(251)) * 4200


def within(what, condition, seconds=SOON_S):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def text(path):
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def plugged(vendor, product):
    """Return the kernel's folders of the configured devices with that identity."""
    ids = f"{vendor:04x}", f"{product:04x}"
    every = sorted(DEVICES.glob("[0-9]*-[0-9]*"))
    mine = [path for path in every if (text(path / "idVendor"), text(path / "idProduct")) == ids]
    return [path for path in mine if text(path / "bConfigurationValue")]


@contextlib.contextmanager
def serving(*words):
    """Run `ringup serve usbip` in a process of its own, and yield its output when it is ready."""
    command = [*PYTHON, "-m", "ringup.tools.command_line.cli", "serve", "usbip", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.send_signal(signal.SIGINT)
            assert ended(server, 30)[0] == 0


def ended(process, seconds):
    """Wait for a process and return its status and output. For a process that hangs, show where."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        output, _ = process.communicate()
    return process.returncode, output


def context():
    """Return a new libusb context, which looks for devices anew. In the guest, nothing notifies libusb of
    new devices.
    """
    return usb.backend.libusb1._LibUSB(usb.backend.libusb1.get_backend().lib)


class Opened:
    """The loopback device through libusb: pyusb's own calls and ours."""

    def __init__(self, folder):
        self.backend = context()
        bus, address = int(text(folder / "busnum")), int(text(folder / "devnum"))
        self.device = usb.core.find(backend=self.backend, bus=bus, address=address)
        self.device.default_timeout = 30_000
        usb.util.claim_interface(self.device, 0)
        self.handle = self.device._ctx.handle
        self.host = LibusbHost(self.backend)

    def close(self):
        assert self.host.end(self.handle) == 0
        usb.util.dispose_resources(self.device)

    def wait(self, *transfers, seconds=SOON_S):
        end = time.monotonic() + seconds
        while not all(transfer.done for transfer in transfers):
            assert time.monotonic() < end, transfers
            self.host.handle_events(1000)
        return [transfer.status for transfer in transfers]

    def submit(self, endpoint, payload, timeout_ms=30_000):
        return self.host.submit(self.handle, endpoint, payload, timeout_ms=timeout_ms)


@pytest.fixture(scope="module")
def served():
    with serving("virtual:usb-loopback", "--attach") as ready:
        yield ready


@pytest.fixture(scope="module")
def folder(served):
    return within("the kernel enumerates it", lambda: plugged(*LOOPBACK))[0]


@pytest.fixture
def opened(folder):
    made = Opened(folder)
    made.device.set_interface_altsetting(0, 0)
    yield made
    made.close()


def test_the_kernel_sees_it_at_its_speed(folder):
    assert text(folder / "speed") == "5000"
    assert text(folder / "product") == "loopback"
    assert text(folder / "serial") == "000001"
    assert text(folder / "version") == "3.00"


def test_libusb_reads_its_descriptors(opened):
    device = opened.device
    assert (device.bcdUSB, device.bMaxPacketSize0, device.speed) == (0x0300, 9, 4)
    settings = [interface for configuration in device for interface in configuration]
    assert [[endpoint.bEndpointAddress for endpoint in setting] for setting in settings] == [
        [0x81, 0x02],
        [0x81, 0x02, 0x83, 0x04],
    ]


def test_control_transfers_go_both_ways(opened):
    data = random.Random(1).randbytes(3000)
    assert opened.device.ctrl_transfer(OUT, KEEP, 0, 0, data) == 3000
    assert bytes(opened.device.ctrl_transfer(IN, KEEP, 0, 0, 4096)) == data
    setup = struct.pack("<BBHHH", IN, KEEP, 0, 0, 100)
    several = [opened.host.submit(opened.handle, 0, 100, setup=setup, timeout_ms=30_000) for _ in range(8)]
    assert opened.wait(*several) == ["completed"] * 8
    assert {transfer.data for transfer in several} == {data[:100]}
    sent = opened.host.submit(
        opened.handle, 0, b"xyz", setup=struct.pack("<BBHHH", OUT, KEEP, 0, 0, 3), timeout_ms=30_000
    )
    assert opened.wait(sent) == ["completed"]
    assert (sent.actual, sent.data) == (3, b"")
    assert bytes(opened.device.ctrl_transfer(IN, KEEP, 0, 0, 64)) == b"xyz"


def test_an_unknown_request_stalls(opened):
    with pytest.raises(usb.core.USBError) as caught:
        opened.device.ctrl_transfer(IN, 0x7F, 0, 0, 8)
    assert caught.value.errno == errno.EPIPE
    transfer = opened.host.submit(
        opened.handle, 0, 8, setup=struct.pack("<BBHHH", IN, 0x7F, 0, 0, 8), timeout_ms=30_000
    )
    assert opened.wait(transfer) == ["stall"]


def test_bulk_data_of_all_sizes_comes_back(opened):
    rng = random.Random(2)
    for size in (1, 31, 512, 1023, 1024, 1025, 16384, 65535, 200_000):
        data = rng.randbytes(size)
        assert opened.device.write(0x02, data) == size
        assert bytes(opened.device.read(0x81, size if size % 1024 == 0 else (size // 1024 + 1) * 1024)) == data


def test_many_transfers_in_flight_arrive_whole_and_in_order(opened):
    opened.device.set_interface_altsetting(0, 1)
    reads = [opened.submit(0x83, 16384) for _ in range(64)]
    writes = [opened.submit(0x04, memoryview(bytearray(10_000))) for _ in range(64)]
    assert opened.host.in_flight == 128
    assert opened.wait(*reads, *writes) == ["completed"] * 128
    assert opened.host.in_flight == 0
    assert b"".join(transfer.data for transfer in reads) == PATTERN[: 64 * 16384]
    count = bytes(opened.device.ctrl_transfer(IN, COUNT, 0, 0, 8))
    assert int.from_bytes(count, "little") == 640_000


def test_a_write_is_what_its_buffer_holds(opened):
    rng = random.Random(4)
    data = [rng.randbytes(rng.randrange(1, 5000)) for _ in range(40)]
    writes = [
        opened.submit(0x02, kind(one)) for one, kind in zip(data, (bytes, bytearray, memoryview) * 14, strict=False)
    ]
    reads = [opened.submit(0x81, 5120) for _ in data]
    opened.wait(*writes, *reads)
    assert [transfer.data for transfer in reads] == data
    assert [transfer.actual for transfer in writes] == [len(one) for one in data]


def test_a_time_out_keeps_what_came(opened):
    empty = opened.submit(0x81, 4096, timeout_ms=100)
    assert opened.wait(empty) == ["timed_out"]
    assert (empty.actual, empty.data) == (0, b"")
    half = opened.submit(0x81, 4096, timeout_ms=3000)
    packet = random.Random(5).randbytes(1024)
    opened.device.write(0x02, packet)
    assert opened.wait(half) == ["timed_out"]
    assert (half.actual, half.data) == (1024, packet)
    with pytest.raises(usb.core.USBTimeoutError):
        opened.device.read(0x81, 64, timeout=100)


def test_cancelled_and_the_endpoint_goes_on(opened):
    waiting = [opened.submit(0x81, 1024) for _ in range(5)]
    for transfer in waiting:
        opened.host.cancel(transfer)
    assert opened.wait(*waiting) == ["cancelled"] * 5
    opened.host.cancel(waiting[0])
    opened.device.write(0x02, b"after")
    assert bytes(opened.device.read(0x81, 1024)) == b"after"


def test_a_halted_endpoint_stalls_until_cleared(opened):
    opened.device.ctrl_transfer(OUT, STALL, 0, 0x02)
    transfer = opened.submit(0x02, b"x")
    assert opened.wait(transfer) == ["stall"]
    opened.device.clear_halt(0x02)
    transfer = opened.submit(0x02, b"x")
    assert opened.wait(transfer) == ["completed"]
    assert bytes(opened.device.read(0x81, 1024)) == b"x"


def test_a_slow_device_is_waited_for(opened):
    opened.device.ctrl_transfer(OUT, DELAY, 300, 0)
    try:
        transfer = opened.submit(0x02, b"slow", timeout_ms=20_000)
        assert opened.wait(transfer) == ["completed"]
    finally:
        opened.device.ctrl_transfer(OUT, DELAY, 0, 0)
    assert bytes(opened.device.read(0x81, 1024)) == b"slow"


def test_a_transfer_that_the_kernel_refuses_is_an_error_and_leaves_nothing(opened):
    with pytest.raises(usb.core.USBError) as caught:
        opened.submit(0x81, 64 << 20)  # more than usbfs_memory_mb
    assert caught.value.errno == errno.ENOMEM
    with pytest.raises(usb.core.USBError):
        opened.submit(0x85, 64)
    # vhci has no streams, and returns a proper error.
    assert opened.host.alloc_streams(opened.handle, 4, (0x81,)) == 0
    assert opened.host.in_flight == 0


def test_a_keyboard_interrupt_in_a_wait_loses_no_transfer(opened):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    waiting = [opened.submit(0x81, 2048) for _ in range(3)]
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            opened.wait(*waiting, seconds=30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert opened.host.in_flight == 3
    assert opened.host.end(opened.handle) == 0
    assert [transfer.status for transfer in waiting] == ["cancelled"] * 3
    opened.device.write(0x02, b"still there")
    assert bytes(opened.device.read(0x81, 1024)) == b"still there"


def test_a_host_that_is_forgotten_takes_its_transfers_back(opened):
    other = LibusbHost(opened.backend)
    waiting = other.submit(opened.handle, 0x81, 1024, timeout_ms=0)
    del other
    assert waiting.status == "cancelled"
    opened.device.write(0x02, b"nobody took this")
    assert bytes(opened.device.read(0x81, 1024)) == b"nobody took this"


def test_unplugged_mid_transfer_everything_ends(folder):
    made = Opened(folder)
    waiting = [made.submit(0x81, 1024, timeout_ms=0) for _ in range(16)]
    made.device.ctrl_transfer(OUT, UNPLUG, 20, 0)
    assert made.wait(*waiting) == ["no_device"] * 16

    def refused():
        """Until the kernel has noticed, it still accepts a transfer, which ends as the others did."""
        try:
            transfer = made.submit(0x81, 64, timeout_ms=0)
        except usb.core.USBError as error:
            return error.errno == errno.ENODEV
        assert made.wait(transfer) == ["no_device"]
        return False

    within("libusb says it is gone", refused)
    made.close()
    within("the kernel lets it go", lambda: not plugged(*LOOPBACK))


def imported(port, bus_id, address="127.0.0.1"):
    """Import a device as the `usbip` tool does: ask for it and give the kernel the socket. Return the port, or None
    when it was refused.

    This and all of vhci's code here is written from the protocol's text.
    """
    with socket.create_connection((address, port)) as sock:
        sock.sendall(struct.pack(">HHI32s", 0x0111, 0x8003, 0, bus_id.encode()))
        version, code, refused = struct.unpack(">HHI", sock.recv(8, socket.MSG_WAITALL))
        assert (version, code) == (0x0111, 0x0003)
        if refused:
            return None
        record = sock.recv(312, socket.MSG_WAITALL)
        bus, address, speed = struct.unpack_from(">III", record, 288)
        lines = [line.split() for line in text(VHCI / "status").splitlines()]
        hub = "ss" if speed == 5 else "hs"
        free = next(words[1] for words in lines if words[0] == hub and int(words[2]) == 4)
        (VHCI / "attach").write_text(f"{free} {sock.fileno()} {bus << 16 | address} {speed}")
        return free


def both_plugged():
    found = plugged(*LOOPBACK)
    return found if len(found) == 2 else None


def test_of_two_devices_over_tcp_one_goes_and_comes_back():
    with serving("virtual:usb-loopback", "virtual:usb-loopback", "--port", "0") as ready:
        assert [row["busid"] for row in ready["devices"]] == ["1-1", "2-1"]
        assert all(imported(ready["port"], row["busid"]) for row in ready["devices"])
        assert not imported(ready["port"], "1-1")
        one, other = (Opened(folder) for folder in within("the kernel enumerates both", both_plugged))
        waiting = one.submit(0x81, 64, timeout_ms=0)
        kept = other.submit(0x81, 1024, timeout_ms=0)
        one.device.ctrl_transfer(OUT, UNPLUG, 10, 300)  # for 0.3 s
        assert one.wait(waiting) == ["no_device"]
        one.close()
        other.device.write(0x02, b"untouched")
        assert other.wait(kept) == ["completed"]
        assert kept.data == b"untouched"
        other.close()
        within("it is plugged in again", lambda: imported(ready["port"], "1-1"))
        for folder in within("the kernel enumerates it again", both_plugged):
            again = Opened(folder)
            again.device.write(0x02, b"hello")
            assert bytes(again.device.read(0x81, 1024)) == b"hello"
            again.close()
    within("the server's end unplugs them", lambda: not plugged(*LOOPBACK))


def attached(bus_id, *identities):
    """Plug one of the host's enclosures in; return vhci's port and the kernel's folder of the device."""
    address, tcp_port = OUTSIDE
    port = within("it can be imported", lambda: imported(int(tcp_port), bus_id, address))
    devices = within("the kernel enumerates it", lambda: [path for each in identities for path in plugged(*each)])
    return port, devices[0]


def up(name):
    """Return the output of `ringup up` for a card, from a process of its own."""
    code = (
        f"from ringup.drivers.transport import clock; clock.NS *= {SLOWER}; "
        "from ringup.tools.command_line import cli; raise SystemExit(cli.main())"
    )
    return json.loads(said_by("-c", code, "up", name, "--firmware", FIRMWARE, "--json"))


def said_by(*words):
    with subprocess.Popen([*PYTHON, *words], stdout=subprocess.PIPE, text=True) as process:
        status, output = ended(process, COMMAND_S)
    assert status == 0
    return output


def test_a_card_in_an_enclosure_comes_up_through_usbfs():
    port, folder = attached(ENCLOSED, ENCLOSURE)
    said = up(f"usb:{folder.name}")
    assert said["card"]["chip"] == "navi31"
    assert said["moved_bytes"] == 1 << 20
    (VHCI / "detach").write_text(port)
    within("it is unplugged", lambda: not plugged(*ENCLOSURE))


def copy_until_it_fails(card, data):
    end = time.monotonic() + SOON_S
    with card.alloc(len(data)) as buffer:
        while time.monotonic() < end:
            card.copy.upload(buffer, data).wait()


def test_an_enclosure_unplugged_mid_copy_is_lost_and_comes_back(monkeypatch):
    port, folder = attached(ENCLOSED, ENCLOSURE)
    name = f"usb:{folder.name}"
    backend = context()
    assert name in [card.name for card in enclosures.find(backend)]
    with monkeypatch.context() as stretched:
        stretched.setattr(clock, "NS", clock.NS * SLOWER)
        card = ringup.open(name, transport={"backend": backend}, firmware=[FIRMWARE])
        data = random.Random(6).randbytes(64 << 10)
        with card.alloc(len(data)) as buffer:
            card.copy.upload(buffer, data).wait()
            assert card.copy.download(buffer) == data
    unplugger = threading.Timer(0.3, (VHCI / "detach").write_text, (port,))
    unplugger.start()
    try:
        with pytest.raises(DeviceLost):
            copy_until_it_fails(card, data)
    finally:
        unplugger.join()
        card.close()
    within("it is unplugged", lambda: not plugged(*ENCLOSURE))
    port, folder = attached(ENCLOSED, ENCLOSURE)
    assert "custom v0.1" in said_by("-m", "ringup.tools.command_line.cli", "bridge", "info", f"usb:{folder.name}")
    (VHCI / "detach").write_text(port)


def test_the_kernels_own_storage_driver_has_the_stock_bridge_and_gets_it_back():
    def storage(found):
        return (DEVICES / f"{found.name}:1.0/driver").resolve().name == "usb-storage"

    port, found = attached(STOCK, *STOCK_IDENTITIES)
    within("usb-storage binds", lambda: storage(found))
    vendors = within("INQUIRY is answered", lambda: list(found.glob("*/host*/target*/*/vendor")))
    assert {text(path) for path in vendors} == {"ASMT"}
    within("sd has looked at it", lambda: list(found.glob("*/host*/target*/*/block/sd*")))
    assert f"usb:{found.name}" in said_by("-m", "ringup.tools.command_line.cli", "bridge", "info", f"usb:{found.name}")
    within("usb-storage has it again", lambda: storage(found))
    (VHCI / "detach").write_text(port)
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert "ASMT" in log
