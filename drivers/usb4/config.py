"""Configuration space of a function behind the bridge: requests in batches for the enumeration, and the seam's
`ConfigSpace` for a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ringup.drivers.transport.seam import Clock
from ringup.drivers.transport.wait import poll
from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.bridge import Bridge
from ringup.drivers.usb4.tlp import ONES
from ringup.errors import DeviceLost, LinkDown

# TIMEOUT: PCI Express base specification 4.0, 6.6.1: a function answers 1 s after its reset
ANSWER_US, POLL_US = 1_000_000, 10_000


class Place(NamedTuple):
    """The place of a function."""

    bus: int
    device: int
    function: int

    def __str__(self) -> str:
        return f"{self.bus:02x}:{self.device:02x}.{self.function}"


class Fabric:
    """Configuration requests through one bridge. A read without an answer returns all ones, as from a root complex."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.clock: Clock = bridge.port.clock

    def read(self, *wanted: tuple[Place, int]) -> list[int]:
        """Read dwords of configuration space in as few round trips as the firmware allows."""
        requests = [tlp.config_read(*place, offset) for place, offset in wanted]
        return [
            answer.value if answer.status == tlp.SUCCESS else ONES
            for answer in self._bridge.request(requests, replay=True, absent=True)
        ]

    def write(self, *rows: tuple[Place, int, int, int]) -> None:
        """Do writes in order, each (place, offset, value, size in bytes). All are done when this returns."""
        requests = [tlp.config_write(*place, offset, value, size) for place, offset, value, size in rows]
        tlp.expect(
            requests,
            self._bridge.request(requests, replay=True),
            f"{self._bridge.port.name}: numbering what is behind the bridge",
        )

    def exchange(self, requests: Sequence[tlp.Request]) -> list[tlp.Completion]:
        """Do reads and writes in order."""
        return self._bridge.request(requests, replay=True)

    def first_answer(self, place: Place, offset: int = 0) -> int | None:
        """Read a dword of a function that may not be ready yet. Read again while it answers with a retry status. None:
        there is no function.
        """
        request = tlp.config_read(*place, offset)
        answer = poll(
            lambda: self._bridge.request([request], replay=True, absent=True)[0],
            lambda answer: answer.status != tlp.RETRY,
            clock=self.clock,
            timeout_us=ANSWER_US,
            poll_us=POLL_US,
        )
        if answer.status == tlp.RETRY:
            raise LinkDown(
                f"{self._bridge.port.name}: the function {place} answers with a retry status for longer"
                f" than {ANSWER_US // 1000} ms; switch the enclosure off and on"
            )
        return None if answer.status != tlp.SUCCESS or answer.value == ONES else answer.value


class BridgeConfig:
    """The seam's `ConfigSpace` of one function. It calls `lost()` when it finds that the link or the enclosure is
    gone.
    """

    def __init__(self, fabric: Fabric, place: Place, lost: Callable[[], None]) -> None:
        self._fabric, self.place, self._lost = fabric, place, lost

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes inside a dword. Without an answer, all bits are ones."""
        tlp.lanes(offset, size_bytes)
        try:
            (value,) = self._fabric.read((self.place, offset))
        except DeviceLost:
            self._lost()
            value = ONES
        return value >> 8 * (offset & 3) & ((1 << 8 * size_bytes) - 1)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes inside a dword. A write without an answer has no effect."""
        try:
            self._fabric.exchange([tlp.config_write(*self.place, offset, value, size_bytes)])
        except DeviceLost:
            self._lost()


def capability(fabric: Fabric, place: Place, wanted: int) -> int | None:
    """Return the offset of a standard capability. A loop or a wrong pointer ends the walk, because a card may answer
    nonsense.
    """
    return _walk(fabric, place, _byte(fabric, place, 0x34), wanted)


def _byte(fabric: Fabric, place: Place, offset: int) -> int:
    return fabric.read((place, offset))[0] >> 8 * (offset & 3) & 0xFF


def _walk(fabric: Fabric, place: Place, at: int, wanted: int) -> int | None:
    seen: set[int] = set()
    at &= ~3
    while at >= 0x40 and at not in seen:
        seen.add(at)
        (word,) = fabric.read((place, at))
        if word & 0xFF == wanted:
            return at
        at = word >> 8 & 0xFC
    return None


def extended_capability(fabric: Fabric, place: Place, wanted: int) -> int | None:
    """Return the offset of an extended capability."""
    seen: set[int] = set()
    at = 0x100
    while at >= 0x100 and at not in seen:
        seen.add(at)
        (word,) = fabric.read((place, at))
        if word in (0, ONES):
            return None
        if word & 0xFFFF == wanted:
            return at
        at = word >> 20 & ~3
    return None


def present(values: Iterable[int]) -> list[bool]:
    """Return which of these first dwords hold a vendor id, so that there is a function."""
    return [value & 0xFFFF not in (0, 0xFFFF) for value in values]
