"""An exception of pyusb leaves a port as one of our errors, with a description of the operation."""

import errno
from types import SimpleNamespace

import pytest
from usb.core import USBError

from ringup.drivers.usb4.port import Place, Port, places
from ringup.errors import CardBusy, DeviceLost, NotSupported, PermissionNeeded, TransportError

IN = 0x81
IO, NO_MEMORY = USBError("Input/Output Error", -1, errno.EIO), USBError("Insufficient memory", -11, errno.ENOMEM)
OTHER, GONE = USBError("Other error", -99, None), USBError("No such device", -4, errno.ENODEV)
DENIED, TAKEN = USBError("Access denied", -3, errno.EACCES), USBError("Resource busy", -6, errno.EBUSY)


def failing(error, times=1 << 20):
    """A function that fails, and that does nothing after a given number of calls."""
    left = [error] * times

    def fail(*args, **options):
        if left:
            raise left.pop()

    return fail


@pytest.mark.parametrize("error", [IO, NO_MEMORY, OTHER], ids=["io", "memory", "other"])
def test_events_that_fail_are_a_transport_error_and_leave_the_port_torn(wire, error):
    device, port = wire()
    begun = port.start_bulk_in(IN, 64, 100, doing="reading what is there")
    events, device.handle_events = device.handle_events, failing(error)
    with pytest.raises(TransportError, match=rf"usb:1-1: reading what is there: .*{error.strerror}"):
        port.wait(begun)
    # It would end with the next events.
    cancel, device.cancel = device.cancel, lambda transfer: None
    with pytest.raises(TransportError, match="ending reading what is there"):
        port.cancel(port.start_bulk_in(IN, 64, 100, doing="reading what is there"))
    device.cancel = cancel
    port.drop()
    assert port.torn
    assert not port.lost
    device.handle_events = events
    device.say(IN, b"come again")
    assert port.bulk_in(IN, 64, 100) == b"come again"


def test_events_of_a_device_that_is_gone_lose_it(wire):
    device, port = wire()
    begun = port.start_bulk_in(IN, 64, 100)
    device.handle_events = failing(GONE)
    with pytest.raises(DeviceLost, match="receiving 64 bytes from endpoint 0x81: the enclosure is gone"):
        port.wait(begun)
    assert port.lost


def test_ctrl_c_wins_over_events_that_fail_after_it(wire):
    device, port = wire()
    begun = port.start_bulk_in(IN, 64, 100)
    looks = []

    def events(timeout_ms):
        looks.append(timeout_ms)
        raise KeyboardInterrupt if len(looks) == 1 else IO

    device.handle_events = events
    # The transfer ends late, so the driver must look for its end.
    device.cancel = lambda transfer: None
    with pytest.raises(KeyboardInterrupt):
        port.wait(begun)
    # Calls: the one interrupted by ctrl-C, the one that lets the transfer end, the one after the cancellation.
    assert len(looks) == 3
    assert port.torn


def test_a_transfer_whose_start_failed_in_events_is_not_started_later(wire):
    device, port = wire()
    first = port.start_control_out(1, 0, 0)
    # The first is still under way, so the others wait in line.
    first.transfer.done = False
    second = port.start_control_out(2, 0, 0)
    device.handle_events = failing(IO, 1)
    with pytest.raises(TransportError, match=r"request 0x03"):
        port.start_control_out(3, 0, 0)
    first.transfer.done = True
    port.wait(first, second)
    assert [control[1] for control in device.controls] == [1, 2]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("cancel", lambda port: port.cancel(port.start_bulk_in(IN, 64, 100))),
        ("end", lambda port: port.drop()),
        ("alloc_streams", lambda port: port.alloc_streams(4, (IN,))),
        ("set_interface_altsetting", lambda port: port.set_alt(1)),
        ("clear_halt", lambda port: port.clear_halt(IN)),
    ],
)
@pytest.mark.parametrize(
    ("error", "kind"), [(IO, TransportError), (GONE, DeviceLost), (NotImplementedError("not here"), NotSupported)]
)
def test_every_operation_of_a_port_raises_our_errors(wire, name, use, error, kind):
    device, port = wire()
    setattr(device, name, failing(error))
    with pytest.raises(kind, match=r"usb:1-1: \w+"):
        use(port)
    assert port.lost == (kind is DeviceLost)


@pytest.mark.parametrize("name", ["get_device_descriptor", "open_device", "get_configuration", "claim_interface"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (IO, TransportError),
        (GONE, DeviceLost),
        (DENIED, PermissionNeeded),
        (TAKEN, CardBusy),
        (NotImplementedError("not here"), NotSupported),
    ],
)
def test_opening_raises_our_errors(wire, name, error, kind):
    device, port = wire()
    setattr(device, name, failing(error))
    with pytest.raises(kind, match=r"(opening|claiming) usb:1-1 \(174c:2464\)"):
        Port(device, None, Place(1, (1,), 0x174C, 0x2464, 1, 10_000), port.clock)


# --- looking for devices ----------------------------------------------------------------------------------------------
ROW = SimpleNamespace(bus=1, port_numbers=(2,), speed=4, idVendor=0x174C, idProduct=0x2464, bcdDevice=1)


class Shelf:
    """A backend with some devices. Each is its descriptor, or the error that reading it raises."""

    def __init__(self, *rows):
        self.rows = rows

    def enumerate_devices(self):
        for row in self.rows:
            if row is OTHER:
                raise row
            yield row

    def get_device_descriptor(self, row):
        if isinstance(row, Exception):
            raise row
        return row


def test_a_device_that_goes_while_it_is_looked_at_is_not_there():
    assert [place.name for place, _ in places(Shelf(GONE, ROW))] == ["usb:1-2"]


@pytest.mark.parametrize(("error", "kind"), [(OTHER, TransportError), (IO, TransportError), (DENIED, PermissionNeeded)])
def test_looking_for_devices_raises_our_errors(error, kind):
    with pytest.raises(kind, match="looking for USB devices"):
        places(Shelf(ROW, error))


def test_asking_for_a_device_raises_our_errors(wire):
    device, port = wire()
    device.enumerate_devices = failing(IO)
    with pytest.raises(TransportError, match="looking for USB devices"):
        assert port.present
