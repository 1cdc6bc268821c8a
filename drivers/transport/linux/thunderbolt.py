"""Enclosures that the kernel sees on Thunderbolt, USB4 or as a USB billboard, whether or not a card behind them has
come up on PCI.

Source: Linux ABI sysfs-bus-thunderbolt, sysfs-bus-usb, sysfs-bus-pci (removable); admin-guide/thunderbolt.rst; USB
Billboard Device Class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ringup.cards import Found
from ringup.drivers.transport.linux.function import Function, gpus_of
from ringup.drivers.transport.linux.kernel import Kernel

THUNDERBOLT, USB, PCI = "sys/bus/thunderbolt/devices", "sys/bus/usb/devices", "sys/bus/pci/devices"
# domain and route; route 0 is the host's own controller. Services, retimers and ports have other names.
ROUTER = re.compile(r"\d+-[0-9a-f]+")
BILLBOARD_CLASS = 0x11
# ASM2464PD as a PCI device, in USB4 mode. Source: docs/asm2464pd.md, "Identity"
BRIDGE_IDS = (0x1B21, 0x2463)
# Security levels under which no PCIe tunnel is made.
NO_PCIE = ("dponly", "usbonly", "nopcie")
NO_TUNNEL = (
    "no PCIe card behind it: is a card in it, seated well, and its supply on? Try a cable and a port for 40 Gb/s, switch the enclosure on "
    "before the host, or as root write 1 to /sys/bus/pci/rescan"
)
FAILED_MODE = (
    "an enclosure or dock whose Thunderbolt, USB4 or display mode did not come up: for a card, use a port and a cable of Thunderbolt or USB4, "
    "straight into the host"
)


@dataclass(frozen=True, slots=True)
class Router:
    """A host's controller or a device on Thunderbolt or USB4. `nvm_version`: of its firmware; `authorized`: 0, 1, 2, or
    nothing.
    """

    name: str
    label: str
    authorized: str
    nvm_version: str
    security: str

    @property
    def host(self) -> bool:
        """Whether it is a controller of this machine's."""
        return self.name.endswith("-0")

    @property
    def closed(self) -> bool:
        """Whether the machine's set-up lets no PCIe through."""
        return self.security in NO_PCIE


def routers(kernel: Kernel) -> list[Router]:
    """Return what is on Thunderbolt and USB4, hosts first in each domain."""
    found = []
    for name in kernel.names(kernel.path(THUNDERBOLT)):
        folder = kernel.path(THUNDERBOLT, name)
        if not ROUTER.fullmatch(name):
            continue
        words = (kernel.text(folder / key) for key in ("vendor_name", "device_name"))
        label = " ".join(filter(None, words)) or "a device without a name"
        domain = kernel.path(THUNDERBOLT, f"domain{name.partition('-')[0]}")
        authorized, nvm_version = kernel.text(folder / "authorized"), kernel.text(folder / "nvm_version")
        found.append(Router(name, label, authorized, nvm_version, kernel.text(domain / "security")))
    return found


def gpu_behind(kernel: Kernel) -> bool:
    """Whether a GPU that can be unplugged is on PCI. A kernel that does not tell (before 5.15) leaves every GPU
    possible.
    """
    for function in gpus_of(kernel):
        chain = [function, *function.above()]
        kinds = [kernel.text(one.path / "removable") for one in chain]
        if "removable" in kinds or not any(kinds):
            return True
    return False


def usb4_bridges(kernel: Kernel) -> list[str]:
    """Return the PCI addresses of ASM2464PD bridges: enclosures in USB4 mode."""
    functions = (Function(kernel, name) for name in kernel.names(kernel.path(PCI)))
    return [one.address for one in functions if (one.vendor, one.device) == BRIDGE_IDS]


def billboards(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Yield (name, ids and product) of USB billboards: devices that say that a mode other than USB was not entered."""
    for name in kernel.names(kernel.path(USB)):
        folder = kernel.path(USB, name)
        if ":" in name or not kernel.text(folder / "idVendor"):
            continue
        classes = [
            folder / "bDeviceClass",
            *(kernel.path(USB, one) / "bInterfaceClass" for one in _interfaces(kernel, name)),
        ]
        if any(_hexadecimal(kernel.text(path)) == BILLBOARD_CLASS for path in classes):
            ids = f"{kernel.text(folder / 'idVendor')}:{kernel.text(folder / 'idProduct')}"
            yield name, f"{ids} {kernel.text(folder / 'product')}".strip()


def without_card(kernel: Kernel) -> list[tuple[Router, str]]:
    """Return the enclosures on Thunderbolt behind which no card has come up, and why or what to try."""
    found, behind = [], gpu_behind(kernel)
    for router in routers(kernel):
        if router.host or not router.authorized:
            continue
        if router.authorized == "0":
            found.append(
                (
                    router,
                    f"not authorised: `boltctl authorize`, or as root write 1 to /{THUNDERBOLT}/{router.name}/authorized",
                )
            )
        elif router.closed:
            found.append(
                (
                    router,
                    f"the set-up's security level {router.security} lets no PCIe through: choose user or none there",
                )
            )
        elif not behind:
            found.append((router, NO_TUNNEL))
    return found


def find(kernel: Kernel) -> Iterator[Found]:
    """List enclosures that are seen and have no card on PCI, with the reason."""
    for router, why in without_card(kernel):
        yield Found(f"thunderbolt:{router.name}", f"{router.label}, a Thunderbolt or USB4 enclosure", why)
    for name, product in billboards(kernel):
        yield Found(f"usb:{name}", f"USB billboard {product}", FAILED_MODE)


def _interfaces(kernel: Kernel, device: str) -> list[str]:
    return [name for name in kernel.names(kernel.path(USB)) if name.startswith(f"{device}:")]


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1
