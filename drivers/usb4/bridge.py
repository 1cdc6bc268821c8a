"""The interface of every bridge firmware: requests on PCI Express, the chip's own memory, and bulk transfers."""

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
# XDATA: the first 4 KiB of SRAM
SRAM_WINDOW = 0xF000
SLOT_BYTES = 16 << 10
# the states of the link's state machine (LTSSM) in L0, as two firmwares show it
UP = (0x48, 0x78)


@dataclass(frozen=True, slots=True)
class Link:
    """The link to the card. `width` and `generation` are 0 where the chip does not report them."""

    ltssm: int
    generation: int = 0
    width: int = 0

    @property
    def up(self) -> bool:
        """Whether the link is trained."""
        return self.ltssm in UP

    def __str__(self) -> str:
        shown = f"Gen{self.generation} x{self.width}" if self.generation and self.width else ""
        return f"{'up' if self.up else 'down'} (LTSSM {self.ltssm:#04x}){f', {shown}' if shown else ''}"


class Bridge(Protocol):
    """One bridge with one firmware. The addresses of requests and blocks are bus addresses on PCI Express."""

    port: Port
    # the pages of the SRAM's last slot that are allocated
    lent: set[int]

    @property
    def kind(self) -> str:
        """`open`, `patched` or `stock`."""
        ...

    @property
    def version(self) -> str:
        """The firmware's version as it reports it."""
        ...

    @property
    def bulk(self) -> Bulk | None:
        """Moves bytes at full rate; None if the firmware has no documented way."""
        ...

    def link(self) -> Link:
        """Read the state of the link to the card."""
        ...

    def power(self, on: bool) -> None:
        """Switch the slot on and wait, within a bound, until the link has trained; or switch the slot off. Raises
        `NotSupported` if it is always on.
        """
        ...

    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order and return their completions. Posted requests complete with success. Requests that the
        link garbles are repeated a bounded number of times.

        `replay`: all requests from the garbled one on may be repeated, as is right for configuration requests. So all
        can be sent before the first is answered. `absent`: a request without a completion while the link is up is
        completed as unsupported, because there is no function.
        """
        ...

    def post(self, requests: Sequence[Request]) -> None:
        """Send memory writes, in order with all other requests, without waiting."""
        ...

    def write_block(self, address: int, data: bytes | memoryview) -> None:
        """Write whole dwords. `address` is a multiple of 4."""
        ...

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords."""
        ...

    def poll(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords in one round trip, as fast as the firmware can. If nothing answers, the result may be older
        bytes.
        """
        ...

    def push(self, address: int) -> None:
        """Read a dword only for its effect on order: earlier posted requests have arrived before the next request is
        done. Does not wait if the firmware itself keeps that order.
        """
        ...

    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space."""
        ...

    def xdata_write(self, address: int, data: bytes, page: int = 0) -> None:
        """Write the chip's own address space."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether the bridge needs a restart and was not restarted."""
        ...

    def close(self) -> None:
        """Leave the bridge in a good state for the next user. May be called twice."""
        ...


def garbled(bridge: Bridge, request: Request, tries: int) -> RingupError:
    """Return the error for a request without a completion after `tries` tries. It depends on the link's state."""
    name, link = bridge.port.name, bridge.link()
    if not link.up:
        return DeviceLost(
            f"{name}: {request}: the link between enclosure and card is {link};"
            " check the card's seat and power, then open it again"
        )
    return DeviceTimeout(f"{name}: {request}: no completion in {tries} tries, with the link {link}")
