"""What libusb answers on Linux and on macOS, according to its sources linux_usbfs.c and darwin_usb.c; and a library
that cannot be used.

Numbers are libusb.h's, enum libusb_error; pyusb gives each its errno.
"""

import ctypes
import errno
import platform
import time
from types import SimpleNamespace

import pytest
import usb.backend.libusb1 as pyusb
from usb.core import USBError

import ringup
from ringup.drivers.usb4 import host
from ringup.drivers.usb4.libusb import LibusbHost
from ringup.drivers.usb4.port import Place, Port
from ringup.errors import CardBusy, DeviceLost, DeviceTimeout, PermissionNeeded, TransportError
from ringup.silicon import card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

NOT_FOUND = USBError("Entity not found", -5, errno.ENOENT)
DENIED = USBError("Access denied", -3, errno.EACCES)
IN = 0x81


def fails(error):
    def fail(*args, **options):
        raise error

    return fail


@pytest.fixture(params=["Linux", "Darwin"])
def system(request, monkeypatch):
    """Which system libusb runs on."""
    monkeypatch.setattr(platform, "system", lambda: request.param)
    return request.param


@pytest.fixture
def darwin(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")


@pytest.fixture
def plugged():
    """`plugged(firmware)`: a virtual host with an enclosure, and the calls that the host received."""

    def plug(firmware):
        enclosure = Enclosure(card("navi31", vram_bytes=256 << 20, enumerated=False), firmware)
        virtual = VirtualUsbHost(enclosure.machine)
        virtual.plug(enclosure)
        virtual.clock.sleep_us(6_000_000)
        seen = []
        for name in ("detach_kernel_driver", "attach_kernel_driver", "reset_device"):
            inner = getattr(virtual, name)
            setattr(virtual, name, lambda *args, name=name, inner=inner: seen.append(name) or inner(*args))
        return virtual, seen

    return plug


def connect(virtual):
    return ringup.connect("usb:1-1", backend=virtual, clock=virtual.clock)


def test_an_interface_that_the_kernel_does_not_know_is_claimed(system, plugged):
    virtual, seen = plugged("open")
    virtual.is_kernel_driver_active = fails(NOT_FOUND)
    connect(virtual).close()
    assert seen == []


def test_a_driver_that_detached_meanwhile_is_no_error(system, plugged):
    virtual, seen = plugged("stock")
    device = next(iter(virtual.enumerate_devices()))
    handle = virtual.open_device(device)
    virtual.detach_kernel_driver(handle, 0)
    virtual.close_device(handle)
    virtual.is_kernel_driver_active = lambda handle, interface: True
    seen.clear()
    connect(virtual).close()
    assert seen == ["detach_kernel_driver"]


@pytest.mark.parametrize(("system", "given_back"), [("Linux", True), ("Darwin", False)], indirect=["system"])
def test_a_driver_is_given_back_where_libusb_bears_it(system, plugged, given_back):
    virtual, seen = plugged("stock")
    device = connect(virtual)
    assert "detach_kernel_driver" in seen
    device.close()
    assert ("attach_kernel_driver" in seen) == given_back


def test_a_device_that_a_reset_turns_into_another_is_lost(wire):
    device, port = wire()
    device.reset_device = fails(NOT_FOUND)
    with pytest.raises(DeviceLost, match="came back from a reset as another device; open it again"):
        port.reset()
    assert port.lost


@pytest.mark.parametrize(("system", "kind"), [("Linux", PermissionNeeded), ("Darwin", CardBusy)], indirect=["system"])
@pytest.mark.parametrize("call", ["open_device", "claim_interface"])
def test_access_denied_means_what_the_system_means_by_it(system, wire, call, kind):
    device, port = wire()
    setattr(device, call, fails(DENIED))
    with pytest.raises(kind) as raised:
        Port(device, None, Place(1, (1,), 0x174C, 0x2464, 1, 10_000), port.clock)
    assert ("`ringup setup`" in str(raised.value)) == (system == "Linux")


def test_on_macos_only_root_takes_a_device_from_the_system_s_driver(darwin, wire):
    device, port = wire()
    device.is_kernel_driver_active = lambda handle, interface: True
    device.detach_kernel_driver = fails(DENIED)
    with pytest.raises(PermissionNeeded, match="only root may take it from there: run ringup with sudo"):
        Port(device, None, Place(1, (1,), 0x174C, 0x2464, 1, 10_000), port.clock)


@pytest.mark.parametrize(("there", "kind"), [(False, DeviceLost), (True, TransportError)])
def test_on_macos_a_pulled_device_ends_its_transfers_with_an_error(darwin, wire, there, kind):
    device, port = wire()
    row = SimpleNamespace(
        bus=port.place.bus, port_numbers=port.place.ports, speed=5, idVendor=0, idProduct=0, bcdDevice=1
    )
    device.enumerate_devices = lambda: [row] if there else []
    device.get_device_descriptor = lambda device: row
    device.say(IN, "error")
    with pytest.raises(kind) as raised:
        port.bulk_in(IN, 64, 100)
    assert type(raised.value) is kind
    assert port.lost == (not there)


@pytest.mark.parametrize(
    ("number", "code", "advice"),
    [
        (-1, errno.EIO, "the cable, a hub or the port loses bytes"),
        (-2, errno.EINVAL, "does not accept such a request"),
        (-5, errno.ENOENT, "the device has no such interface or endpoint"),
        (-8, errno.EOVERFLOW, "the device sent more than was asked for"),
        (-10, errno.EINTR, "a signal interrupted it"),
        (-99, None, "libusb says no more"),
    ],
)
def test_every_answer_of_libusb_has_its_own_error(system, wire, number, code, advice):
    device, port = wire()
    device.clear_halt = fails(USBError("what libusb says", number, code))
    with pytest.raises(TransportError, match=f"clearing endpoint 0x81: .*what libusb says; .*{advice}"):
        port.clear_halt(IN)


@pytest.mark.parametrize(
    ("system", "advice"), [("Linux", "usbfs_memory_mb"), ("Darwin", "close other programs")], indirect=["system"]
)
def test_too_little_memory_names_the_limit_that_the_system_has(system, wire, advice):
    device, port = wire()
    device.clear_halt = fails(USBError("Insufficient memory", -11, errno.ENOMEM))
    with pytest.raises(TransportError, match=advice):
        port.clear_halt(IN)


def test_an_enclosure_that_was_taken_as_a_usb4_device_names_the_way_to_its_card():
    enclosure = Enclosure(card("navi31", vram_bytes=256 << 20, enumerated=False), "open", usb4=True)
    virtual = VirtualUsbHost(enclosure.machine)
    virtual.plug(enclosure)
    with pytest.raises(
        DeviceLost, match=r"took it as a USB4 device its card is an ordinary PCI device: `ringup list` shows pci:"
    ):
        ringup.open("usb:1-1", transport={"backend": virtual, "clock": virtual.clock})


# --- events -----------------------------------------------------------------------------------------------------------
class Idle:
    """A libusb whose event handling returns at once, with success, but delivers nothing."""

    def __init__(self):
        self.turns = 0

    def __getattr__(self, name):
        if not name.startswith("libusb_"):
            raise AttributeError(name)
        return self.Function(self, name)

    class Function:
        def __init__(self, library, name):
            self.library, self.name = library, name

        def __call__(self, *args):
            if self.name == "libusb_alloc_transfer":
                self.library.made = pyusb._libusb_transfer()
                return ctypes.pointer(self.library.made)
            self.library.turns += self.name == "libusb_handle_events_timeout_completed"
            return {"libusb_alloc_streams": -2}.get(self.name, 0)


@pytest.fixture
def idle():
    library = Idle()
    return library, LibusbHost(SimpleNamespace(lib=library, ctx=ctypes.c_void_p(1)))


def test_empty_events_do_not_keep_a_processor_busy(idle):
    library, transfers = idle
    begun_s = time.process_time()
    transfers.handle_events(300)
    assert library.turns < 150
    assert time.process_time() - begun_s < 0.15


def test_a_look_without_a_wait_is_one_look(idle):
    library, transfers = idle
    transfers.handle_events(0)
    assert library.turns == 1


def test_endpoints_without_streams_are_no_error(idle):
    _, transfers = idle
    assert transfers.alloc_streams(SimpleNamespace(handle=None), 16, (0x81,)) == 0


def test_a_transfer_that_the_host_does_not_end_is_a_timeout_with_its_bound(wire):
    device, port = wire()
    begun = port.start_bulk_in(IN, 64, 100, doing="reading what is there")
    begun.transfer.end_us = 1 << 62

    def cancel(transfer):
        device._finish(transfer, "cancelled")
        device.waiting.remove(transfer)

    device.cancel = cancel
    with pytest.raises(
        DeviceTimeout, match="reading what is there: the host's USB did not end the transfer within 1100 ms"
    ):
        port.wait(begun)
    assert port.torn


# --- a library that cannot be used ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "said", "advice"),
    [
        (None, "", "the library libusb 1.0 is not there; install it"),
        ("libusb-1.0.so.0", "libusb-1.0.so.0: file too short", "the library libusb-1.0.so.0 is there and does not load: .*file too short"),
        ("/usr/lib/x.dylib", "x.dylib: mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64')",
         "does not load: .*; it is for another processor than this Python, which is for arm64"),
        ("libusb-1.0.so.0", "wrong ELF class: ELFCLASS32", "it is for another processor than this Python"),
        ("libusb-1.0.so.0", "", "the library libusb-1.0.so.0 loads and cannot be used"),
    ],
)  # fmt: skip
def test_an_unusable_library_is_named_with_its_loaders_message(monkeypatch, found, said, advice):
    def load(path):
        if said:
            raise OSError(said)

    monkeypatch.setattr(pyusb, "get_backend", lambda: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: found)
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(TransportError, match=f"looking for USB devices: .*{advice}"):
        host.system_backend()
