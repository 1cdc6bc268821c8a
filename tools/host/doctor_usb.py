"""Checks of `ringup doctor` for enclosures on USB: firmware, speed, power, holders, permissions. Opens none unless
asked to.

On Linux all of it is read from sysfs. Elsewhere libusb lists the devices; permissions and holders are known only when
one is opened.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux import advice, thunderbolt
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.usb4.bridge import Link
from ringup.drivers.usb4.host import system_backend
from ringup.drivers.usb4.identify import Firmware, identify, known
from ringup.drivers.usb4.port import Place, places
from ringup.drivers.usb4.transport import NO_GPU, SLOW_MBPS, open_bridge
from ringup.errors import NoSuchCard, RingupError
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG, Line

GROUP = "cards"
DEVICES = "sys/bus/usb/devices"
NEWER_NVM = (
    "an enclosure that is not visible, or only as USB, may need newer firmware of this "
    "controller: the board maker's, or "
    "`fwupdmgr get-updates`"
)
NOT_APPLIED = "the rule is installed and was not applied: pull the cable and plug it in again"
STORAGE = ("usb-storage", "uas")
USB3_MBPS = 5000
UNSEEN = (
    "if a connected enclosure is missing here: switch its supply on, use the cable that came with it (some only "
    "charge), another port, "
    "no hub; wait three seconds. Virtual cards need none"
)
REPLUG = (
    "pull the cable and plug it in again: enclosures that are connected while the host boots fall back; else try "
    "another cable or port, no hub"
)
DIRECT = (
    "in this mode the card is an ordinary PCI device of this machine: use pci:…; for the USB "
    "path use a USB3 port or cable"
)


def examine(kernel: Kernel, *, linux: bool, probe: bool = False, backend: Any = None) -> Iterator[Line]:
    """Yield findings of every bridge. `probe`: open free ones and read the state of the link to their card. `backend`:
    pyusb's or libusb's.
    """
    if linux:
        bridges = list(_bridges(kernel))
        for place, folder in bridges:
            yield from _of_sysfs(kernel, place, folder)
        yield from _twins(kernel, bridges)
        yield from _usb4(kernel)
        if not any(kernel.number(folder / "speed") >= USB3_MBPS for folder in kernel.path(DEVICES).glob("usb*")):
            yield Line(
                GROUP,
                "USB3 ports",
                OPTIONAL,
                "none seen",
                "an enclosure at USB2 speed works, but copies slowly",
            )
        found = [place for place, _ in bridges]
    else:
        try:
            found = [place for place, _ in places(backend or system_backend()) if known(place)]
        except RingupError as error:
            yield Line(GROUP, "USB", OPTIONAL, "cannot be read", str(error))
            return
        for place in found:
            yield _firmware(place, None)
            yield from _speed(place, place.speed_mbps)
    for place in found if probe else ():
        yield _probe(kernel, place, backend)


def _bridges(kernel: Kernel) -> Iterator[tuple[Place, Path]]:
    """Yield bridges in the order of sysfs, each with its folder."""
    for name in kernel.names(kernel.path(DEVICES)):
        folder = kernel.path(DEVICES, name)
        bus, dash, ports = name.partition("-")
        if not dash or ":" in name or not bus.isdigit():
            continue  # a root hub, or an interface
        try:
            ids = [int(kernel.text(folder / key), 16) for key in ("idVendor", "idProduct")]
            place = Place(int(bus), tuple(map(int, ports.split("."))), ids[0], ids[1], 0, _mbps(kernel, folder))
        except ValueError:
            continue  # gone meanwhile
        if known(place):
            yield place, folder


def _mbps(kernel: Kernel, folder: Path) -> int:
    # "1.5" is a low-speed device, such as a mouse
    text = kernel.text(folder / "speed")
    return int(text) if text.isdigit() else 0


def _of_sysfs(kernel: Kernel, place: Place, folder: Path) -> Iterator[Line]:
    yield _firmware(place, kernel.text(folder / "product"))
    yield from _speed(place, place.speed_mbps, _slow_hub(kernel, place))
    drivers = {kernel.link(child / "driver") for child in folder.glob(f"{folder.name}:*")} & set(STORAGE)
    if drives := _drives(kernel, folder):
        yield Line(
            GROUP,
            f"{place.name} drive",
            OPTIONAL,
            f"{', '.join(drives)} is in it",
            "it is not a GPU: do not use ringup on this one",
        )
    elif drivers:
        todo = (
            "ringup detaches the driver while it works and attaches it again; `ringup setup` keeps the driver off "
            "patched firmware"
        )
        yield Line(GROUP, f"{place.name} driver", FINE, f"the kernel's {' and '.join(sorted(drivers))} holds it", todo)
    control = kernel.text(folder / "power/control")
    if control == "auto":
        asleep = ", and it sleeps" if kernel.text(folder / "power/runtime_status") == "suspended" else ""
        written = NOT_APPLIED if _has_rule(kernel, place) else "`sudo ringup setup --apply`"
        todo = (
            f"a link that slept is degraded after it wakes: {written}, or as root write on to "
            f"{kernel.shown(folder)}/power/control"
        )
        yield Line(GROUP, f"{place.name} autosuspend", WRONG if asleep else OPTIONAL, f"on{asleep}", todo)
    node = kernel.path(
        "dev/bus/usb", f"{kernel.number(folder / 'busnum'):03}", f"{kernel.number(folder / 'devnum'):03}"
    )
    allowed = os.access(node, os.R_OK | os.W_OK)
    yield Line(
        GROUP,
        f"{place.name} permission",
        FINE if allowed else WRONG,
        f"{kernel.shown(node)} is "
        f"{'readable and writable' if allowed else 'closed to this user' if node.exists() else 'not there'}",
        ""
        if allowed
        else NOT_APPLIED
        if _has_rule(kernel, place)
        else "`sudo ringup setup --apply` writes the rule; then plug it in again",
    )


def _has_rule(kernel: Kernel, place: Place) -> bool:
    """Whether the rule that gives users access to such a device is installed."""
    return advice.rule_there(kernel, f'ATTR{{idVendor}}=="{place.vid:04x}", ATTR{{idProduct}}=="{place.pid:04x}"')


def _firmware(place: Place, product: str | None) -> Line:
    """Return whose firmware it runs, or may run if the product string is not known."""
    row = identify(place, product or "")
    assert row is not None  # its ids are known
    if product is None:
        return Line(GROUP, place.name, FINE, f"ASM2464PD bridge {place.ids}, distinguished when it is opened")
    seen = f"ASM2464PD bridge {place.ids} {product!r}: {row.maker}"
    if row.firmware in NO_GPU:
        return Line(GROUP, place.name, WRONG, seen, NO_GPU[row.firmware])
    slow = "stock firmware writes memory slowly, and only memory of the card" if row.firmware is Firmware.STOCK else ""
    return Line(GROUP, place.name, FINE, seen, slow)


def _speed(place: Place, speed_mbps: int, hub: str = "") -> Iterator[Line]:
    if not speed_mbps:
        return
    slow = speed_mbps <= SLOW_MBPS
    todo = (f"the hub {hub} in front of it is not faster: plug it in elsewhere" if hub else REPLUG) if slow else ""
    seen = f"{speed_mbps} Mb/s" + (": fell back to USB2" if slow else "")
    yield Line(GROUP, f"{place.name} speed", WRONG if slow else FINE, seen, todo)


def _slow_hub(kernel: Kernel, place: Place) -> str:
    """Return the name of a hub between host and bridge that is not USB3; empty for none."""
    for depth in range(1, len(place.ports)):
        name = f"{place.bus}-{'.'.join(map(str, place.ports[:depth]))}"
        if 0 < _mbps(kernel, kernel.path(DEVICES, name)) <= SLOW_MBPS:
            return name
    return ""


def _drives(kernel: Kernel, folder: Path) -> list[str]:
    """Return the drives with a medium behind a bridge; with one, the device in it is not a GPU."""
    found = folder.glob(f"{folder.name}:*/host*/target*/*/block/*")
    return sorted(block.name for block in found if kernel.number(block / "size") > 0)


def _twins(kernel: Kernel, bridges: list[tuple[Place, Path]]) -> Iterator[Line]:
    serials = Counter((place.ids, kernel.text(folder / "serial")) for place, folder in bridges)
    for (ids, serial), count in serials.items():
        if count > 1:
            names = ", ".join(
                place.name for place, folder in bridges if place.ids == ids and kernel.text(folder / "serial") == serial
            )
            seen = f"{names} have the same serial number {serial or '(none)'}"
            yield Line(
                GROUP,
                "equal enclosures",
                FINE,
                seen,
                "their ports distinguish them: a name belongs to the port, not to the enclosure",
            )


def _usb4(kernel: Kernel) -> Iterator[Line]:
    for address in thunderbolt.usb4_bridges(kernel):
        yield Line(GROUP, f"bridge {address}", FINE, "an ASM2464PD in USB4 mode", DIRECT)
    routers = thunderbolt.routers(kernel)
    without = dict(thunderbolt.without_card(kernel))
    lacking = bool(without) or not any(not one.host for one in routers)
    for router in routers:
        if router.host:
            firmware = f"firmware (NVM) {router.nvm_version or 'of unknown version'}"
            shown = f"{router.label}, {firmware}" + (f", security level {router.security}" if router.security else "")
            yield Line(GROUP, f"thunderbolt host {router.name}", FINE, shown, NEWER_NVM if lacking else "")
        elif router in without:
            closed = router.authorized == "0"
            seen = (
                f"{router.label} is not authorised" if closed else f"{router.label}: enclosure seen, no PCIe behind it"
            )
            yield Line(GROUP, f"thunderbolt {router.name}", WRONG, seen, without[router])
        elif router.authorized:
            yield Line(GROUP, f"thunderbolt {router.name}", FINE, f"{router.label} is authorised")
    for name, product in thunderbolt.billboards(kernel):
        seen = f"USB billboard {product}: enclosure or dock seen, no PCIe behind it"
        yield Line(GROUP, f"billboard {name}", OPTIONAL, seen, thunderbolt.FAILED_MODE)


def _probe(kernel: Kernel, place: Place, backend: Any) -> Line:
    """Open a bridge that no ringup process holds, and read the state of the link to its card."""
    what, clock = f"{place.name} card", HostClock()
    # ORDER: another process may use the card's endpoints, so the lock comes first; a backend of the caller has no
    # others
    lock = CardLock(kernel, place.name.replace(":", "-")) if backend is None else None
    try:
        if lock is not None:
            lock.take(clock)
        try:
            link = _ask(place, backend if backend is not None else system_backend(), clock)
        finally:
            if lock is not None:
                lock.release()
    except NoSuchCard as error:
        return Line(GROUP, what, WRONG, "the enclosure went away", str(error))
    except RingupError as error:
        return Line(GROUP, what, OPTIONAL, "could not be opened", str(error))
    unpowered = "is a card in the enclosure, seated well, and is its supply on? `ringup up` switches the slot on first"
    return Line(GROUP, what, FINE if link.up else OPTIONAL, f"the link to it is {link}", "" if link.up else unpowered)


def _ask(place: Place, backend: Any, clock: HostClock) -> Link:
    device = next((device for seen, device in places(backend) if seen.name == place.name), None)
    if device is None:
        raise NoSuchCard("plug it in again")
    bridge = open_bridge(backend, place, device, clock, place.name)
    try:
        return bridge.link()
    finally:
        bridge.port.close()
