"""Descriptors, parsed for pyusb: attributes with the names of the USB specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

DEVICE = (
    ("bLength", 1), ("bDescriptorType", 1), ("bcdUSB", 2), ("bDeviceClass", 1), ("bDeviceSubClass", 1), ("bDeviceProtocol", 1),
    ("bMaxPacketSize0", 1), ("idVendor", 2), ("idProduct", 2), ("bcdDevice", 2), ("iManufacturer", 1), ("iProduct", 1),
    ("iSerialNumber", 1), ("bNumConfigurations", 1),
)  # fmt: skip
CONFIGURATION = (
    ("bLength", 1), ("bDescriptorType", 1), ("wTotalLength", 2), ("bNumInterfaces", 1), ("bConfigurationValue", 1), ("iConfiguration", 1),
    ("bmAttributes", 1), ("bMaxPower", 1),
)  # fmt: skip
INTERFACE = (
    ("bLength", 1), ("bDescriptorType", 1), ("bInterfaceNumber", 1), ("bAlternateSetting", 1), ("bNumEndpoints", 1),
    ("bInterfaceClass", 1), ("bInterfaceSubClass", 1), ("bInterfaceProtocol", 1), ("iInterface", 1),
)  # fmt: skip
ENDPOINT = (
    ("bLength", 1), ("bDescriptorType", 1), ("bEndpointAddress", 1), ("bmAttributes", 1), ("wMaxPacketSize", 2), ("bInterval", 1),
)  # fmt: skip
INTERFACE_TYPE, ENDPOINT_TYPE = 4, 5
STORAGE = {(8, 6, 0x50): "usb-storage", (8, 6, 0x62): "uas"}  # Linux's driver for an interface, by class


def _fields(layout: tuple[tuple[str, int], ...], data: bytes) -> SimpleNamespace:
    values, at = {}, 0
    for name, size in layout:
        values[name] = int.from_bytes(data[at : at + size], "little")
        at += size
    return SimpleNamespace(**values, extra_descriptors=[], bRefresh=0, bSynchAddress=0)


@dataclass(slots=True)
class Alternate:
    """One alternate setting of an interface."""

    descriptor: SimpleNamespace
    endpoints: list[SimpleNamespace] = field(default_factory=list)

    def has(self, address: int) -> bool:
        """Whether it has an endpoint with that address."""
        return any(endpoint.bEndpointAddress == address for endpoint in self.endpoints)

    @property
    def kernel_driver(self) -> str:
        """The kernel's driver for it; empty if there is none."""
        one = self.descriptor
        return STORAGE.get((one.bInterfaceClass, one.bInterfaceSubClass, one.bInterfaceProtocol), "")


@dataclass(slots=True)
class Configuration:
    """A configuration and its interfaces, each a list of alternate settings."""

    descriptor: SimpleNamespace
    interfaces: dict[int, list[Alternate]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Configuration:
        """Parse a configuration and the descriptors that follow it. A descriptor of unknown type belongs to the one
        before it.
        """
        found = cls(_fields(CONFIGURATION, data))
        last, at = found.descriptor, data[0]
        while at + 2 <= len(data) and data[at] >= 2:
            one, kind = data[at : at + data[at]], data[at + 1]
            at += data[at]
            if kind == INTERFACE_TYPE:
                alternate = Alternate(last := _fields(INTERFACE, one))
                found.interfaces.setdefault(last.bInterfaceNumber, []).append(alternate)
            elif kind == ENDPOINT_TYPE:
                last = _fields(ENDPOINT, one)
                alternate.endpoints.append(last)
            else:
                last.extra_descriptors.extend(one)
        return found


def device(data: bytes, *, bus: int, address: int, ports: tuple[int, ...], speed: int) -> SimpleNamespace:
    """Parse a device descriptor, and add where the device is."""
    found = _fields(DEVICE, data)
    found.bus, found.address, found.speed = bus, address, speed
    found.port_number, found.port_numbers = ports[-1], ports
    return found
