"""The transport `usb`: GPUs in enclosures with an ASM2464PD bridge. A card's name is `usb:2-1`: the bus and the ports,
in the host's numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringup.cards import Found
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.transport.linux.thunderbolt import usb4_bridges
from ringup.drivers.transport.seam import Clock, Witness
from ringup.drivers.usb4.bridge import Bridge
from ringup.drivers.usb4.device import BridgeDevice
from ringup.drivers.usb4.host import system_backend
from ringup.drivers.usb4.identify import ROWS, Firmware, Row, identify, known
from ringup.drivers.usb4.open_firmware import OpenFirmware
from ringup.drivers.usb4.port import Place, Port, places
from ringup.errors import CardBusy, LinkDown, NoSuchCard, NotSupported, PermissionNeeded, TransportError

LOG = logging.getLogger(__name__)
SLOW_MBPS = 480
# the ids on USB of an enclosure in USB4 mode, and also of a bridge in its ROM. Source: docs/asm2464pd.md, "Identity"
IDS_IN_USB4_MODE = (0x174C, 0x2463)
# TIMEOUT: ours, until udev has applied its rule
READY_US, READY_POLL_US = 2_000_000, 50_000
NO_GPU = {
    Firmware.ROM: (
        "it runs the loader in its ROM, since its firmware is damaged or was never written:"
        " `ringup bridge flash` writes one"
    ),
    Firmware.BOOT_STUB: "it waits in its loader for firmware: flash it with the program that its firmware came with",
}


def find(backend: Any = None, kernel: Kernel | None = None) -> Iterable[Found]:
    """List enclosures by their ids. None is opened. So only `open` can distinguish firmwares that have the same ids."""
    on_pci = usb4_bridges(kernel or Kernel())
    return [_found(place, on_pci) for place, _ in places(backend or system_backend()) if known(place)]


def _found(place: Place, on_pci: Sequence[str] = ()) -> Found:
    """Describe an enclosure. `on_pci`: addresses of bridges that the host took as USB4 devices."""
    makers = " or ".join(dict.fromkeys(row.maker for row in ROWS if row.ids == (place.vid, place.pid)))
    speed = f", {place.speed_mbps} Mb/s" if place.speed_mbps else ""
    slow = ": fell back to USB2, use another cable or port" if 0 < place.speed_mbps <= SLOW_MBPS else ""
    if on_pci and (slow or (place.vid, place.pid) == IDS_IN_USB4_MODE):
        why = (
            f"an enclosure is in USB4 mode (bridge {', '.join(on_pci)}), perhaps this one: then its card is a pci: one"
        )
        return Found(place.name, f"ASM2464PD bridge {place.ids} ({makers}){speed}", why)
    return Found(place.name, f"ASM2464PD bridge {place.ids} ({makers}){speed}{slow}")


def open(
    rest: str,
    *,
    backend: Any = None,
    clock: Clock | None = None,
    name: str = "",
    firmware: Callable[[str], bytes | None] | None = None,
    witness: Witness | None = None,
    wait_s: float = 0,
    kernel: Kernel | None = None,
) -> BridgeDevice:
    """Lock the enclosure at `rest`, switch its slot on, assign addresses behind it, and return the card. Its memory
    decoding is on, its bus mastering off.

    `backend`: a pyusb backend of this process alone; the default is the system's libusb. `clock`: the backend's clock.
    `name`: the card's name. `firmware`, `witness`: of a virtual card. `wait_s`: how many seconds to wait for another
    process that runs ringup. Raises `NoSuchCard`, `CardBusy`, `PermissionNeeded`, `NotSupported`, `LinkDown`; each says
    what to do.
    """
    hold = _Hold(rest, backend, clock, name, wait_s, kernel)
    with undone_on_error(hold.release):
        bridge = open_bridge(*hold.found, hold.clock, hold.name)
        if hold.abandoned and isinstance(bridge, OpenFirmware):
            bridge = _restarted(bridge, hold)
        hold.settled = True
        with undone_on_error(bridge.port.close):
            _wake(bridge, hold.name)
    return BridgeDevice(hold.name, bridge, hold.lock, firmware, witness)


class _Hold:
    """An enclosure that this process holds: its USB device and its lock. With a backend of this process alone, there is
    no lock.
    """

    def __init__(
        self, rest: str, backend: Any, clock: Clock | None, name: str, wait_s: float, kernel: Kernel | None
    ) -> None:
        self.name, self.clock = name or f"usb:{rest}", clock or HostClock()
        self.lock = None if backend is not None else CardLock(kernel or Kernel(), self.name.replace(":", "-"))
        backend = backend if backend is not None else system_backend()
        place, device = _look_up(backend, rest)
        self.rest, self.found, self.settled = rest, (backend, place, device), False
        if self.lock is not None:
            self.lock.take(self.clock, wait_s)

    @property
    def abandoned(self) -> bool:
        """Whether the previous holder ended without releasing the lock."""
        return self.lock is not None and self.lock.previous is not None

    def release(self) -> None:
        """Release the lock. If the previous holder ended without releasing it, and this process did not repair the
        bridge, the lock tells the next holder.
        """
        if self.lock is not None:
            (self.lock.leave if self.abandoned and not self.settled else self.lock.release)()


@contextmanager
def holding(
    rest: str,
    *,
    backend: Any = None,
    clock: Clock | None = None,
    name: str = "",
    wait_s: float = 0,
    kernel: Kernel | None = None,
) -> Iterator[tuple[Port, Row]]:
    """Lock the enclosure at `rest` and claim only its USB device, whatever firmware it runs. No request is sent to the
    firmware. The options are those of `open`.
    """
    hold = _Hold(rest, backend, clock, name, wait_s, kernel)
    try:
        port = _claim(*hold.found, hold.clock, hold.name)
        try:
            row = identify(port.place, port.product)
            if row is None:
                raise NotSupported(_unknown(hold.name, port))
            yield port, row
        finally:
            port.close()
    finally:
        hold.release()


def _look_up(backend: Any, rest: str) -> tuple[Place, Any]:
    found = places(backend)
    for place, device in found:
        if place.name == f"usb:{rest}":
            return place, device
    bridges = ", ".join(place.name for place, _ in found if known(place))
    raise NoSuchCard(
        f"opening usb:{rest}: no USB device is there; "
        + (
            f"enclosures are at {bridges}"
            if bridges
            else "no enclosure is plugged in, or its cable only charges; `ringup doctor` tells more"
        )
    )


def open_bridge(backend: Any, place: Place, device: Any, clock: Clock, name: str) -> Bridge:
    """Claim a device and return the bridge for its firmware. The slot is not switched. Raises `NotSupported` for a
    device that is no bridge.
    """
    port = _claim(backend, place, device, clock, name)
    with undone_on_error(port.close):
        return _bridge(port, name)


def _restarted(bridge: OpenFirmware, hold: _Hold) -> Bridge:
    """Restart a bridge, because a killed program may have left its engine armed. The engine would send old bytes, or
    take new bytes for those of the old transfer.
    """
    try:
        bridge.restart()
    except TransportError:
        # raised only once. If the user has done what the error says, the next process needs no restart. If not, another
        # try would fail too
        hold.settled = True
        raise
    finally:
        bridge.port.close()
    backend, _, _ = hold.found
    end_us = hold.clock.now_us + READY_US
    # the device appears before the system gives the user access to it
    while True:
        try:
            hold.found = backend, *_look_up(backend, hold.rest)
            return open_bridge(*hold.found, hold.clock, hold.name)
        except (NoSuchCard, PermissionNeeded, CardBusy) as error:
            if hold.clock.now_us > end_us:
                error.add_note("the bridge was restarted just before, because the program that had it was killed")
                raise
        hold.clock.sleep_us(READY_POLL_US)


def _claim(backend: Any, place: Place, device: Any, clock: Clock, name: str) -> Port:
    """Open a device whose ids are those of a bridge."""
    if not known(place):
        raise NotSupported(
            f"opening {name}: the device {place.ids} is no enclosure that ringup knows;"
            " `ringup list` shows those that it knows"
        )
    return Port(backend, device, place, clock, name)


def _unknown(name: str, port: Port) -> str:
    return f"opening {name}: {port.place.ids} {port.product!r} is no bridge that ringup knows"


def _bridge(port: Port, name: str) -> Bridge:
    place, row = port.place, identify(port.place, port.product)
    if row is None:
        raise NotSupported(_unknown(name, port))
    if row.firmware in NO_GPU:
        raise NotSupported(f"opening {name}: {NO_GPU[row.firmware]}")
    if 0 < place.speed_mbps <= SLOW_MBPS:
        LOG.warning(
            "%s runs at USB2 speed, %d Mb/s: pull the cable and plug it in again, or use another",
            name,
            place.speed_mbps,
        )
    if row.firmware == Firmware.OPEN:
        return OpenFirmware(port)
    # imported here: the open firmware does not need SCSI and its transports
    from ringup.drivers.usb4.stock import StockFirmware

    return StockFirmware(port, patched=row.firmware == Firmware.PATCHED)


def _wake(bridge: Bridge, name: str) -> None:
    """Bring the link to the card up. Raises `LinkDown`."""
    link = bridge.link()
    if link.up:
        return
    try:
        bridge.power(True)
        link = bridge.link()
    except NotSupported:
        LOG.debug("%s: this firmware switches its slot itself", name)
    if not link.up:
        raise LinkDown(
            f"opening {name}: the enclosure answers, the link to its card is {link}: "
            "is a card in it, seated well, and has it power from its supply?"
        )
