"""The interface between a firmware of the bridge and the model around it: the requests it answers, and its reaction to
resets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ringup.silicon.asm2464pd.hardware.timing import Speed
from ringup.silicon.asm2464pd.hardware.xdata import Job

SETUP = struct.Struct("<BBHHH")
IN = 0x80  # bmRequestType: to the host


@dataclass(frozen=True, slots=True)
class Setup:
    """The SETUP packet of a control transfer."""

    request_type: int
    request: int
    value: int
    index: int
    length: int

    @classmethod
    def parse(cls, packet: bytes) -> Setup:
        """Parse the eight bytes."""
        return cls(*SETUP.unpack(packet))

    @property
    def to_host(self) -> bool:
        """Whether its data stage, if any, goes to the host."""
        return bool(self.request_type & IN)


class Silence(Enum):
    """The absence of an answer to a control request."""

    NO_REPLY = "the host runs into its time-out"
    STALL = "the host sees a stall"


# the data stage to the host; b"" acknowledges a request without one, or with one from the host
Answer = bytes | Silence


@dataclass(frozen=True, slots=True)
class Descriptors:
    """A device's descriptors at one speed, as bytes on the wire."""

    device: bytes
    configuration: bytes
    strings: dict[int, str]  # by index
    bos: bytes = b""


class Firmware(Protocol):
    """The program on the bridge's CPU. Handlers are `Job`s: each yield keeps the CPU busy for so many microseconds.

    A firmware is made with the `Chip`. It uses `chip.xdata`, `chip.out(0x02)` and `chip.into(0x81)`,
    `chip.cpu.run(job)` for data from an endpoint, `chip.tlp`, `chip.link`, `chip.sram_engine`, `chip.speed`.
    """

    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the device's descriptors at a speed."""
        ...

    def boot(self) -> Job[bool]:
        """Start after power-on or a restart of the CPU, with registers at their reset values. USB attaches once it
        returns True.
        """
        ...

    def bus_reset(self) -> None:
        """Handle a reset of the USB device by the host: address, configuration and alternate setting are gone."""
        ...

    def after_status_us(self, setup: Setup) -> float:
        """Return how long the firmware still works on a control request after its status."""
        ...

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Answer a control request; `data` is the data stage from the host."""
        ...
