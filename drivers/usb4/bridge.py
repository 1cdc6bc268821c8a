"""What a bridge's firmware offers, whichever it is: requests on the PCI Express side, the chip's own memory, bytes in
bulk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ringup.drivers.transport.seam import Bulk
from ringup.drivers.usb4.port import Port
from ringup.drivers.usb4.tlp import Completion, Request
from ringup.errors import DeviceLost, DeviceTimeout, RingupError

# XDATA, the chip's own address space. Source: docs/asm2464pd.md, "Memory of the chip"
LTSSM = 0xB450
LINK_INFO, LINK_INFO_PAGE = 0x4092, 1
SRAM_BUS_ADDR = 0x20_0000
SRAM_BYTES = 512 << 10
SRAM_WINDOW = 0xF000  # XDATA: its first 4 KiB
SLOT_BYTES = 16 << 10
UP = (0x48, 0x78)  # the state machine of the link in L0, as two firmwares show it


@dataclass(frozen=True, slots=True)
class Link:
    """The link to the card. `width` and `generation` are 0 where the chip does not say."""

    ltssm: int
    generation: int = 0
    width: int = 0

    @property
    def up(self) -> bool:
        """Whether it is trained."""
        return self.ltssm in UP

    def __str__(self) -> str:
        shown = f"Gen{self.generation} x{self.width}" if self.generation and self.width else ""
        return f"{'up' if self.up else 'down'} (LTSSM {self.ltssm:#04x}){f', {shown}' if shown else ''}"


class Bridge(Protocol):
    """One bridge with one firmware. Addresses of `request` and the blocks are those of PCI Express."""

    port: Port
    lent: set[int]  # pages of the memory's last slot that somebody was given

    @property
    def kind(self) -> str:
        """`open`, `patched` or `stock`."""
        ...

    @property
    def version(self) -> str:
        """The firmware's version in its own words."""
        ...

    @property
    def bulk(self) -> Bulk | None:
        """Bytes at full rate, where the firmware has a documented way."""
        ...

    def link(self) -> Link:
        """Look at the link to the card."""
        ...

    def power(self, on: bool) -> None:
        """Switch the slot on, and wait until the link has trained or is known not to; or off. `NotSupported` where it
        is always on.
        """
        ...

    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order and return their completions, posted ones' as success. Bounded retries of what the link
        garbled.

        `replay`: done again from the garbled one on, if need be, which configuration requests bear; so all may be sent
        ahead. `absent`: a request that stays without a completion while the link is up is answered as unsupported:
        nothing is there.
        """
        ...

    def post(self, requests: Sequence[Request]) -> None:
        """Send memory writes, in order with all else, and wait for nothing."""
        ...

    def write_block(self, address: int, data: bytes | memoryview) -> None:
        """Write whole dwords from a dword's address on."""
        ...

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords."""
        ...

    def poll(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords in one round trip, as cheaply as can be. Where nothing answers, older bytes may come."""
        ...

    def push(self, address: int) -> None:
        """Read a dword for the sake of order alone: all that was posted before has arrived when what is asked next is
        done. Waits for nothing where the firmware keeps that order.
        """
        ...

    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space."""
        ...

    def xdata_write(self, address: int, data: bytes, page: int = 0) -> None:
        """Write it."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether nothing but a restart sets the bridge right, and it was not restarted."""
        ...

    def close(self) -> None:
        """Leave the bridge as it should be found. Twice is harmless."""
        ...


def garbled(bridge: Bridge, request: Request, tries: int) -> RingupError:
    """Return the error for a request that has no completion in so many tries, told by what the link is now."""
    name, link = bridge.port.name, bridge.link()
    if not link.up:
        return DeviceLost(
            f"{name}: {request}: the link between enclosure and card is {link}; check the card's seat and power, then open it again"
        )
    return DeviceTimeout(f"{name}: {request}: no completion in {tries} tries, with the link {link}")
