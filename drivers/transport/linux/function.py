"""A PCI function as the kernel lists it in sysfs: ids, BARs, driver, IOMMU group, link. It only reads; absent facts are
empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ringup.autogen.linux import pci
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import NoSuchCard

ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
DEVICES = "sys/bus/pci/devices"
HEADER_BYTES = 64  # of configuration space
ROM = 6  # its line in `resource`
BARS = 6
# Flags of a line of `resource`. Source: Linux ioport.h
IORESOURCE_MEM, IORESOURCE_PREFETCH = 0x200, 0x2000
# Base classes. Source: Linux pci_ids.h, PCI_BASE_CLASS_DISPLAY and PCI_CLASS_ACCELERATOR_PROCESSING,
# PCI_BASE_CLASS_BRIDGE
CLASS_DISPLAY, CLASS_ACCELERATOR, CLASS_BRIDGE = 0x03, 0x12, 0x06
CLASS_UNKNOWN = 0x00
# Source: Linux pci_ids.h, PCI_BASE_CLASS_*
CLASSES = {
    0x01: "a disk or its controller",
    0x02: "a network card",
    0x04: "a sound or video function",
    0x05: "memory",
    CLASS_BRIDGE: "a bridge",
    0x07: "a serial port or modem",
    0x08: "a part of the machine's system",
    0x0C: "a USB or other serial bus controller",
}
# whose functions of those classes are GPUs; a host processor's own graphics is the console's
VENDORS = {
    0x1002: "AMD",
    0x10DE: "NVIDIA",
}
NO_IOMMU, TRANSLATING = "", ("DMA", "DMA-FQ")  # types of a group. Source: Linux ABI sysfs-kernel-iommu_groups


@dataclass(frozen=True, slots=True)
class Resource:
    """One line of `resource`: a BAR, the ROM or a bridge's window. Addresses are the host's physical ones."""

    index: int
    start: int
    size_bytes: int
    flags: int

    @property
    def memory(self) -> bool:
        """Whether it lies in memory space."""
        return bool(self.flags & IORESOURCE_MEM)

    @property
    def prefetchable(self) -> bool:
        """Whether reads have no side effect, so that writes may be combined."""
        return bool(self.flags & IORESOURCE_PREFETCH)


class Function:
    """One function of the PCI bus, by its address such as 0000:03:00.0."""

    def __init__(self, kernel: Kernel, address: str) -> None:
        self.kernel, self.address = kernel, address
        self.path = kernel.path(DEVICES, address)

    def __repr__(self) -> str:
        return f"Function({self.address})"

    @property
    def there(self) -> bool:
        """Whether the kernel lists it."""
        return self.path.is_dir()

    @property
    def vendor(self) -> int:
        """Vendor id."""
        return self.kernel.number(self.path / "vendor")

    @property
    def device(self) -> int:
        """Device id."""
        return self.kernel.number(self.path / "device")

    @property
    def base_class(self) -> int:
        """The first byte of the class code."""
        return self.kernel.number(self.path / "class") >> 16

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU of a vendor that ringup knows."""
        return self.vendor in VENDORS and self.base_class in (CLASS_DISPLAY, CLASS_ACCELERATOR)

    @property
    def graphics(self) -> bool:
        """Whether it is a display controller or an accelerator, of any vendor; true as well where the kernel does not
        say what it is.
        """
        return self.base_class in (CLASS_UNKNOWN, CLASS_DISPLAY, CLASS_ACCELERATOR)

    @property
    def class_name(self) -> str:
        """Its kind of device, in words where that is known."""
        code = self.kernel.number(self.path / "class") >> 8
        return (
            f"{CLASSES[self.base_class]} (class {code:#06x})" if self.base_class in CLASSES else f"of class {code:#06x}"
        )

    @property
    def bridge(self) -> bool:
        """Whether it is a bridge, which stays with the kernel."""
        return self.base_class == CLASS_BRIDGE

    @property
    def driver(self) -> str:
        """Name of the kernel driver that holds it; empty when none does."""
        return self.kernel.link(self.path / "driver")

    @property
    def group(self) -> str:
        """Number of its IOMMU group; empty without an IOMMU."""
        return self.kernel.link(self.path / "iommu_group")

    @property
    def group_type(self) -> str:
        """How the IOMMU treats the kernel's own addresses of this function: DMA, DMA-FQ, identity, blocked; empty
        without an IOMMU.
        """
        return self.kernel.text(self.path / "iommu_group/type") if self.group else NO_IOMMU

    def mates(self) -> list[Function]:
        """Return every function of its group, this one included; alone without an IOMMU."""
        names = self.kernel.names(self.path / "iommu_group/devices") if self.group else []
        return [Function(self.kernel, name) for name in names] or [self]

    def companions(self) -> list[Function]:
        """Return every function that must have the same driver as this one, which is included: those of its group, and
        those of its slot, which are reset together.

        Without an IOMMU there is no group, and behind some ports each function of a slot has a group of its own.
        """
        slot = self.address.rpartition(".")[0]
        of_slot = [name for name in self.kernel.names(self.kernel.path(DEVICES)) if name.rpartition(".")[0] == slot]
        names = {self.address, *of_slot, *(mate.address for mate in self.mates())}
        return [Function(self.kernel, name) for name in sorted(names)]

    def above(self) -> Iterator[Function]:
        """Yield the bridges between it and the root, nearest first."""
        for folder in self.path.resolve().parents:
            if not ADDRESS.fullmatch(folder.name):
                return
            yield Function(self.kernel, folder.name)

    def resources(self) -> list[Resource]:
        """Return the lines of `resource` that are in use."""
        found = []
        for index, line in enumerate(self.kernel.text(self.path / "resource").splitlines()):
            words = line.split()
            if len(words) == 3 and all(re.fullmatch("0x[0-9a-f]+", word) for word in words):
                start, end, flags = (int(word, 16) for word in words)
                if flags and end > start:
                    found.append(Resource(index, start, end - start + 1, flags))
        return found

    def bars(self) -> dict[int, Resource]:
        """Return the memory BARs by number."""
        return {row.index: row for row in self.resources() if row.index < BARS and row.memory}

    def describe(self) -> str:
        """Describe it in a few words."""
        maker = VENDORS.get(self.vendor, f"{self.vendor:04x}")
        return f"{maker} {self.vendor:04x}:{self.device:04x}, {self.driver or 'no driver'}"


def find(kernel: Kernel, text: str) -> Function:
    """Return the function that `text` means: 0000:03:00.0, or 03:00.0 for domain 0. Raises `NoSuchCard`."""
    match = ADDRESS.fullmatch(text.strip().lower())
    if not match:
        raise NoSuchCard(f"{text!r} is no PCI address; write it as 0000:03:00.0")
    domain, bus, slot, number = match.groups()
    function = Function(kernel, f"{domain or '0000'}:{bus}:{slot}.{number}")
    if not function.there:
        gpus = ", ".join(gpu.address for gpu in gpus_of(kernel))
        raise NoSuchCard(f"there is no PCI function {function.address}; GPUs seen: {gpus or 'none'}")
    return function


def gpus_of(kernel: Kernel) -> list[Function]:
    """Return every GPU of known vendors, in the order of their addresses."""
    functions = (Function(kernel, name) for name in kernel.names(kernel.path(DEVICES)))
    return [function for function in functions if function.gpu]


def reads_as_there(function: Function) -> bool:
    """Whether the first bytes of its configuration space, which every user may read, are those of a function; all ones
    are not.
    """
    try:
        with (function.path / "config").open("rb", buffering=0) as file:
            data = file.read(HEADER_BYTES)
    except OSError:
        return True  # not known
    return not data or any(byte != 0xFF for byte in data)


def way_up(function: Function) -> str:
    """Return in words which bridges above a function block its requests; empty where none does."""
    shut = [bridge.address for bridge in function.above() if masters(bridge) is False]
    return f"no request passes {' and '.join(shut)}, whose bus mastering is off" if shut else ""


def masters(function: Function) -> bool | None:
    """Whether a function's bus mastering is on; None where that is not known."""
    try:
        with (function.path / "config").open("rb", buffering=0) as file:
            header = file.read(HEADER_BYTES)
    except OSError:
        return None
    return bool(header[pci.PCI_COMMAND] & pci.PCI_COMMAND_MASTER) if len(header) == HEADER_BYTES else None


def link_of(function: Function) -> str:
    """Return speed and width of its link, such as "16.0 GT/s PCIe x16"; empty where the kernel has none."""
    speed, width = (function.kernel.text(function.path / f"current_link_{what}") for what in ("speed", "width"))
    return f"{speed} x{width}" if speed and width else ""
