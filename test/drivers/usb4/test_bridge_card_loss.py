"""Enclosures that disappear, two enclosures side by side, and enclosures that cannot be opened: a clear error in time,
and no effect on others.
"""

import errno
import os
import random
from contextlib import suppress

import pytest
import usb.core

import ringup
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.usb4 import transport
from ringup.drivers.usb4.port import SLACK_MS
from ringup.drivers.usb4.transport import find
from ringup.errors import (
    CardBusy,
    DeviceLost,
    LinkDown,
    NoSuchCard,
    NotSupported,
    PermissionNeeded,
    RingupError,
    TransportError,
)
from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

# A host ends the transfers of a removed device by itself, so none uses up its time limit.
GONE_US = 1_000 * SLACK_MS


@pytest.fixture
def two(docks):
    """Two open enclosures on one host, with identical descriptors."""
    first = docks()
    second = docks(host=first.host, port="1-2")
    first.open()
    second.open()
    return first, second


def alone(enclosure, name="usb:1-1", **options):
    """Open an enclosure's port as a real one is opened, without the virtual card's name."""
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    return ringup.open(name, transport={"backend": host, "clock": host.clock, **options})


def use_thrice(dock, moment, seed):
    for number in range(3):
        getattr(dock, moment)(seed + number)


def test_two_identical_enclosures_are_distinguished_by_their_ports_and_compute_at_once(two):
    first, _ = two
    host = first.host
    rows = [host.get_device_descriptor(device) for device in host.enumerate_devices()]
    assert len({(row.idVendor, row.idProduct) for row in rows}) == 1
    ports = [one.card.device.bridge.port for one in two]
    assert ports[0].serial == ports[1].serial
    assert [one.name for one in find(host)] == ["usb:1-1", "usb:1-2"]
    points = []
    for seed, one in enumerate(two):
        one.target = one.card.alloc(1 << 16)
        one.data = random.Random(seed).randbytes(1 << 16)
        points.append(one.card.copy.upload(one.target, one.data))
    for one, point in zip(two, points, strict=True):
        point.wait()
        assert one.memory(one.target) == one.data
    for seed in range(3):
        for one in two:
            one.compute(seed)


@pytest.mark.parametrize("moment", ["upload", "download", "compute"])
def test_a_pulled_enclosure_is_lost_in_time_and_the_other_continues(two, moment):
    first, second = two
    for seed in range(3):
        kept_in = first.card.alloc(4096)
        stream = first.card.compute.stream()
        stream.dispatch(first.card.load(first.code)["twice"], 1, 64, [kept_in])
        kept = first.card.compute.keep(stream)
        begun_us = first.clock.now_us
        first.enclosure.faults.inject("disconnect_after_transfers", random.Random(f"{moment} {seed}").randrange(30))
        with pytest.raises(DeviceLost, match="is gone"):
            use_thrice(first, moment, seed)
        assert first.clock.now_us - begun_us < GONE_US
        second.upload(seed)
        second.download(seed)
        second.compute(seed)
        with pytest.raises(DeviceLost):
            kept.submit().wait()
        with pytest.raises(DeviceLost):
            first.card.copy.download(kept_in)
        first.card.report()
        first.close()
        for use in (kept.submit, lambda one=kept_in: second.card.copy.download(one)):
            with pytest.raises((ValueError, DeviceLost)):
                use()
        first.recover()
        second.compute(seed)


def test_an_enclosure_that_may_not_be_opened_names_the_rule(docks):
    dock = docks()
    dock.host.denied.add("1-1")
    with pytest.raises(PermissionNeeded, match="ringup setup"):
        dock.open()
    dock.host.denied.clear()
    dock.recover()


def test_an_enclosure_that_is_open_is_busy(docks):
    dock = docks()
    dock.open()
    with pytest.raises(CardBusy, match="another program holds the enclosure"):
        ringup.open("usb:1-1", transport={"backend": dock.host, "clock": dock.clock})
    dock.compute(1)


def test_the_kernels_storage_driver_lets_go_and_gets_its_device_back():
    card = make_card("navi31", vram_bytes=256 << 20, enumerated=False)
    enclosure = Enclosure(card, "stock")
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    (device,) = host.enumerate_devices()
    handle = host.open_device(device)
    assert host.is_kernel_driver_active(handle, 0)
    path = ringup.cards.connect("usb:1-1", backend=host, clock=host.clock)
    assert not host.is_kernel_driver_active(handle, 0)
    path.close()
    assert host.is_kernel_driver_active(handle, 0)


def test_no_device_at_a_port_is_reported_with_the_ports_that_have_one(docks):
    dock = docks()
    options = {"backend": dock.host, "clock": dock.clock}
    with pytest.raises(NoSuchCard, match="enclosures are at usb:1-1"):
        ringup.open("usb:2-3", transport=options)
    dock.host.unplug()
    with pytest.raises(NoSuchCard, match="no enclosure is plugged in, or its cable only charges"):
        ringup.open("usb:1-1", transport=options)
    dock.replug()


def test_an_empty_slot_is_a_link_that_is_down():
    with pytest.raises(LinkDown, match="is a card in it, seated well, and has it power"):
        alone(Enclosure(None, "open"))


@pytest.mark.parametrize("trouble", ["unpowered", "never trains"])
def test_a_slot_whose_link_does_not_come_up_is_reported_within_seconds(trouble):
    card = make_card("navi31", vram_bytes=256 << 20, enumerated=False)
    enclosure = Enclosure(card, "open", powered=trouble != "unpowered")
    if trouble == "never trains":
        enclosure.faults.inject("link_never_trains")
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    begun_us = host.clock.now_us
    with pytest.raises(LinkDown, match="the enclosure answers, the link to its card is down"):
        ringup.open("usb:1-1", transport={"backend": host, "clock": host.clock})
    # F3 itself tries for 2 s, and we try for 3 s more.
    assert host.clock.now_us - begun_us < 10_000_000


def test_usb2_works_and_warns(docks, caplog):
    dock = docks("high")
    dock.open()
    assert "runs at USB2 speed, 480 Mb/s: pull the cable" in caplog.text
    dock.compute(1)
    dock.upload(1)
    dock.download(1)


def test_a_bridge_in_usb4_mode_is_distinguished_from_a_card():
    card = make_card("navi31", vram_bytes=256 << 20, enumerated=False)
    begun_us = card.clock.machine.now_us
    with pytest.raises(RingupError) as told:
        alone(Enclosure(card, "open", usb4=True))
    assert "usb:1-1" in str(told.value)
    assert card.clock.machine.now_us - begun_us < 30_000_000


def test_the_loader_in_rom_is_reported_with_the_command_that_writes_firmware():
    with pytest.raises(NotSupported, match="ringup bridge flash"):
        alone(Enclosure(None, "rom"))


def test_a_serial_is_that_of_the_chip():
    card = make_card("navi31", vram_bytes=256 << 20, enumerated=False)
    path = ringup.cards.connect("virtual:navi31@asm2464pd", enclosure=Enclosure(card, "open"))
    assert len(path.bridge.port.serial) == 8
    path.close()


@pytest.fixture
def real(docks, tmp_path, monkeypatch):
    """An enclosure as the system's USB shows it, with locks in a folder of the test: the dock, and what opens it."""
    dock = docks()
    (tmp_path / "run/lock").mkdir(parents=True)
    monkeypatch.setattr(transport, "system_backend", lambda: dock.host)
    return dock, lambda: transport.open("1-1", clock=dock.clock, kernel=Kernel(tmp_path))


def die(device, host):
    """End a device's process: its lock is released, its record stays, its transfers end."""
    os.close(device._lock._node)
    device._lock._node = -1
    host.end(device.bridge.port._handle)
    host.close_device(device.bridge.port._handle)


def carries(device, dock):
    """Tell whether the bridge's memory accepts the bytes sent to it."""
    data = random.Random(9).randbytes(4096)
    device.bulk.fill(0, data)
    device.bulk.land()
    return dock.enclosure.chip.sram.view[512:4096] == data[512:]


def test_a_killed_programs_drain_is_gone_when_the_bridge_is_reopened(real, monkeypatch):
    """An abandoned drain would swallow the next copy's bytes. The restart also happens when the first attempt to open
    fails.
    """
    dock, open_it = real
    killed = open_it()
    killed.bulk.arm(0, 4096)
    killed.bridge.port.settle()
    assert dock.enclosure.chip.sram_engine.busy
    die(killed, dock.host)

    def busy(*args):
        raise usb.core.USBError("busy", -6, errno.EBUSY)

    monkeypatch.setattr(dock.host, "claim_interface", busy)
    with pytest.raises(CardBusy):
        open_it()
    monkeypatch.delattr(dock.host, "claim_interface")
    heir = open_it()
    assert not dock.enclosure.chip.sram_engine.busy
    assert carries(heir, dock)
    heir.close()
    begun_us = dock.clock.now_us
    open_it().close()
    # No process died, so nothing is restarted.
    assert dock.clock.now_us - begun_us < 300_000


def test_a_close_interrupted_by_ctrl_c_leaves_a_working_bridge_or_a_note(real, monkeypatch):
    dock, open_it = real
    real_wait = dock.host.handle_events
    for point in range(1, 12):
        device, calls = open_it(), []
        device.bulk.arm(0, 4096)
        device.bridge.port.settle()

        def wait(timeout_ms, calls=calls, point=point):
            calls.append(timeout_ms)
            if len(calls) == point:
                raise KeyboardInterrupt
            return real_wait(timeout_ms)

        monkeypatch.setattr(dock.host, "handle_events", wait)
        with suppress(KeyboardInterrupt):
            device.close()
        monkeypatch.setattr(dock.host, "handle_events", real_wait)
        # A bridge that was being restarted is back.
        dock.clock.sleep_us(3_000_000)
        heir = open_it()
        assert carries(heir, dock), point
        heir.close()
    assert len(calls) < point  # all calls were tried


def test_a_bridge_that_does_not_restart_is_reported(real, monkeypatch):
    dock, open_it = real
    killed = open_it()
    die(killed, dock.host)
    monkeypatch.setattr(dock.enclosure.chip, "on_restart", lambda: None)
    with pytest.raises(TransportError, match="stayed as it was for 6 s; switch the enclosure off and on"):
        open_it()
    dock.replug()
    dock.clock.sleep_us(3_000_000)
    # It is reported once, and does not lock the user out.
    heir = open_it()
    assert carries(heir, dock)
    heir.close()
