"""Ctrl-C after the host took a transfer but before the port recorded it, or during a close: nothing is orphaned, and
nothing stays half closed.
"""

import random
from functools import partial

import pytest

from ringup.drivers.usb4.port import Port, places
from ringup.errors import DeviceLost, RingupError, TransportError
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

IN = 0x81
AGAIN = "open it again"  # the card's message when the user must reopen it


class Snatched:
    """A host that raises KeyboardInterrupt right after it took transfer number `at`."""

    def __init__(self, host):
        self.host, self.calls, self.at, self.begun = host, 0, -1, []
        self._submit = host.submit
        host.submit = self.submit

    def submit(self, *args, **options):
        self.begun.append(self._submit(*args, **options))
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.begun[-1]

    def arm(self, at):
        self.calls, self.at, self.begun = 0, at, []

    @property
    def flying(self):
        return [one for one in self.begun if not one.done]


def points(name, calls, count):
    """Return `count` of the calls, one from each part of them."""
    return [
        1 + random.Random(f"{name} {point}").randrange(calls * point // count, calls * (point + 1) // count)
        for point in range(count)
    ]


@pytest.mark.parametrize("phase", ["upload", "download", "compute"])
def test_a_card_interrupted_as_a_transfer_was_taken_continues_or_asks_to_be_reopened(docks, phase):
    dock = docks()
    dock.open()
    host = Snatched(dock.host)
    # The first use creates things that the second finds.
    for _ in range(2):
        host.arm(-1)
        getattr(dock, phase)(0)
    for point in points(phase, host.calls * 4 // 5, 6):
        host.arm(point)
        with pytest.raises(KeyboardInterrupt):
            getattr(dock, phase)(point)
        host.at = -1
        refused = ""
        try:
            dock.upload(1)
            dock.download(2)
            dock.compute(3)
        except RingupError as error:
            refused = str(error)
        assert not refused or AGAIN in refused, (phase, point)
        dock.close()
        assert host.flying == [], (phase, point)
        dock.recover()
        dock.upload(4)
        dock.download(5)


def test_opening_interrupted_as_a_transfer_was_taken_leaves_nothing_in_flight(docks):
    dock = docks()
    dock.open()
    dock.close()
    host = Snatched(dock.host)
    dock.open()
    for point in points("open", host.calls * 4 // 5, 4):
        dock.close()
        host.arm(point)
        with pytest.raises(KeyboardInterrupt):
            dock.open()
        host.at = -1
        assert host.flying == [], point
        dock.open()
        dock.upload(point)


# --- a port alone -----------------------------------------------------------------------------------------------------
@pytest.fixture
def open_port():
    """An enclosure without a card on a host that can be interrupted, and a port to it."""
    enclosure = Enclosure(None, "open")
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    pressed = Snatched(host)
    ((place, device),) = places(host)
    return pressed, Port(host, device, place, host.clock)


def lose(host, port, endpoint=IN):
    """Begin a transfer that nothing answers, and interrupt as the host takes it."""
    host.arm(1)
    with pytest.raises(KeyboardInterrupt):
        port.start_bulk_in(endpoint, 64, 0)
    host.at = -1
    (transfer,) = host.flying
    return transfer


def test_a_lost_transfer_makes_the_port_torn_and_ends_before_another_begins(open_port):
    host, port = open_port
    lost = lose(host, port)
    assert port.torn
    port.configuration()
    assert lost.status == "cancelled"
    assert port.torn  # this resets no endpoint
    port.close()


def test_a_transfer_that_was_taken_and_not_yet_out_of_line_is_not_begun_again(open_port):
    host, port = open_port

    class Pressed:
        """Ctrl-C at the first read of the clock. The observer reads it, after the port has stored everything about a
        transfer.
        """

        def __init__(self, clock):
            self.clock, self.left = clock, 1

        @property
        def now_us(self):
            if self.left:
                self.left -= 1
                raise KeyboardInterrupt
            return self.clock.now_us

        def sleep_us(self, time_us):
            self.clock.sleep_us(time_us)

    port.observer, port.clock = (lambda *_: None), Pressed(port.clock)
    host.arm(-1)
    with pytest.raises(KeyboardInterrupt):
        port.start_bulk_in(IN, 64, 0)
    assert port.torn
    port.configuration()
    assert [one.status for one in host.begun[:1]] == ["cancelled"]
    # The second call is that of the configuration.
    assert host.calls == 2
    port.close()


def test_a_wait_for_a_transfer_lost_in_line_reports_it(open_port):
    host, port = open_port
    first = port.start_control_in(6, 0x100, 0, 18, kind=0x80)
    second, third = (port.start_control_in(6, 0x100, 0, 18, kind=0x80, doing=name) for name in ("second", "third"))
    host.arm(1)
    with pytest.raises(KeyboardInterrupt):
        port.wait(first)
    host.at = -1
    assert host.flying == []
    for one, what in (second, "second: interrupted as it was begun"), (third, "third: given up before it was begun"):
        with pytest.raises(TransportError, match=what):
            port.wait(one)
    port.wait(first)
    port.close()


def test_dropping_ends_lost_transfers_too(open_port):
    host, port = open_port
    known, lost = port.start_bulk_in(IN, 64, 0), lose(host, port)
    port.drop()
    port.torn = False
    assert (known.status, lost.status, port.torn) == ("cancelled", "cancelled", False)
    port.close()


def test_a_device_whose_transfers_do_not_end_is_lost(open_port):
    host, port = open_port
    lose(host, port)
    end, host.host.end = host.host.end, lambda handle: 1
    with pytest.raises(DeviceLost, match="ending what is under way"):
        port.configuration()
    host.host.end = end
    port.close()
    assert host.flying == []


STEPS = "end", "release_interface", "attach_kernel_driver", "close_device"


@pytest.mark.parametrize("interrupted", STEPS)
def test_ctrl_c_in_a_step_of_closing_comes_out_when_all_were_tried(open_port, interrupted):
    host, port = open_port
    lost, done = lose(host, port), []
    # The kernel has no driver for an enclosure with this firmware.
    port._detached = True

    def pressed(name, step, *args):
        done.append(name)
        if name == interrupted and done.count(name) == 1:
            raise KeyboardInterrupt
        step(*args)
        return 0

    for name in STEPS:
        setattr(host.host, name, partial(pressed, name, getattr(host.host, name)))
    with pytest.raises(KeyboardInterrupt):
        port.close()
    assert done == ["end", *STEPS] if interrupted == "end" else list(STEPS)
    assert lost.status == "cancelled"
    port.close()
    assert done[-1] == "close_device"
    assert done.count("close_device") == 1


def test_a_device_is_closed_once_though_closing_is_asked_for_meanwhile(open_port):
    """A signal handler or a finalizer may do so. libusb does not allow a second close."""
    host, port = open_port
    close, closed = host.host.close_device, []

    def closing(handle):
        closed.append(handle)
        if len(closed) == 1:
            port.close()
        close(handle)

    host.host.close_device = closing
    port.close()
    assert len(closed) == 1


def test_a_device_whose_transfers_may_still_run_is_not_closed(open_port, monkeypatch, caplog):
    host, port = open_port
    lost, closed = lose(host, port), []
    monkeypatch.setattr(host.host, "end", lambda handle: 1)
    for name in STEPS[1:]:
        monkeypatch.setattr(host.host, name, closed.append)
    port.close()
    port.close()
    assert closed == []
    assert not lost.done
    assert "not every transfer ended, so it stays open until the process ends" in caplog.text


# --- the virtual host's own side --------------------------------------------------------------------------------------
def test_a_virtual_host_ends_what_one_handle_submitted():
    enclosure = Enclosure(None, "open")
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    (device,) = host.enumerate_devices()
    one, other = host.open_device(device), host.open_device(device)
    host.claim_interface(one, 0)
    setup = bytes.fromhex("8006000100001200")
    begun = [host.submit(one, IN, 64, timeout_ms=0) for _ in range(3)]
    kept = host.submit(other, 0, 18, setup=setup, timeout_ms=1000)
    assert host.end(one) == 0
    assert [transfer.status for transfer in begun] == ["cancelled"] * 3
    host.close_device(one)
    assert not enclosure.violations
    assert not kept.done
    host.close_device(other)
    assert [one.text for one in enclosure.violations] == ["a device was closed with transfers in flight: 1"]
    host.handle_events(1000)
    assert kept.status == "cancelled"
