"""Requests on PCI Express in the form of the bridge's engine, one dword each, and their completions.

Source: PCI Express base specification 4.0, 2.2.1 (format and type), 2.2.9 (completion status); the engine's limits:
docs/asm2464pd.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringup.errors import TransportError

MEMORY_READ, MEMORY_WRITE = 0x00, 0x40
# the header has four dwords, with an address of 64 bits
WIDE = 0x20
CONFIG_READ, CONFIG_WRITE = 0x04, 0x44
# a configuration request for a bus behind the next port
TYPE_1 = 0x01
HAS_DATA = 0x40
FOUR_GIB = 1 << 32
SUCCESS, UNSUPPORTED, RETRY, ABORT = 0, 1, 2, 4
STATUS = {UNSUPPORTED: "unsupported request", RETRY: "configuration request retry", ABORT: "completer abort"}
ONES = 0xFFFF_FFFF
CONFIG_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a dword or some of its bytes. `address`: of the dword. `enables`: bit i enables byte i. `value`:
    each byte in its own lane.
    """

    # format and type, as in the first byte of the header
    kind: int
    address: int
    enables: int = 0xF
    value: int = 0

    @property
    def posted(self) -> bool:
        """Whether the request has no completion."""
        return self.kind & ~WIDE == MEMORY_WRITE

    @property
    def writes(self) -> bool:
        """Whether the request carries data."""
        return bool(self.kind & HAS_DATA)

    def __str__(self) -> str:
        verb = "write" if self.writes else "read"
        if self.kind & 0x04:
            bus, device, function = self.address >> 24, self.address >> 19 & 31, self.address >> 16 & 7
            return f"configuration {verb} of {bus:02x}:{device:02x}.{function} at {self.address & 0xFFF:#x}"
        return f"memory {verb} at {self.address:#x}"


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to a request: its status and its dword. Without data, the dword is all ones."""

    status: int
    value: int = ONES


def lanes(offset: int, size_bytes: int) -> int:
    """Return the byte enables of 1, 2 or 4 bytes inside a dword. Raises a `ValueError` for an access that one request
    cannot do.
    """
    if size_bytes not in (1, 2, 4) or offset % size_bytes:
        raise ValueError(f"a request moves 1, 2 or 4 bytes at a multiple of that, not {size_bytes} at {offset:#x}")
    return ((1 << size_bytes) - 1) << (offset & 3)


def memory_read(address: int) -> Request:
    """Read the dword at a bus address."""
    return Request(_memory(MEMORY_READ, address), address)


def memory_write(address: int, value: int, enables: int = 0xF) -> Request:
    """Write the dword at a bus address, or some of its bytes."""
    return Request(_memory(MEMORY_WRITE, address), address, enables, value)


def _memory(kind: int, address: int) -> int:
    if address & 3:
        raise ValueError(f"memory requests are of whole dwords, not at {address:#x}")
    # 2.2.4.1: below 4 GiB, only the short header is allowed
    return kind | WIDE if address >= FOUR_GIB else kind


def config_read(bus: int, device: int, function: int, offset: int) -> Request:
    """Read the dword of configuration space that holds `offset`."""
    return Request(CONFIG_READ | (TYPE_1 if bus else 0), _config(bus, device, function, offset))


def config_write(bus: int, device: int, function: int, offset: int, value: int, size_bytes: int = 4) -> Request:
    """Write 1, 2 or 4 bytes of configuration space."""
    kind = CONFIG_WRITE | (TYPE_1 if bus else 0)
    enables = lanes(offset, size_bytes)
    return Request(kind, _config(bus, device, function, offset), enables, value << 8 * (offset & 3))


def _config(bus: int, device: int, function: int, offset: int) -> int:
    if not 0 <= offset < CONFIG_BYTES:
        raise ValueError(f"configuration space ends at {CONFIG_BYTES:#x}: {offset:#x} is outside")
    return bus << 24 | device << 19 | function << 16 | offset & ~3


def answered_at_once(requests: Sequence[Request]) -> int:
    """Return how many of `requests` may be sent before the first is answered: up to the first write after a request
    that needs an answer.
    """
    asked = False
    for at, request in enumerate(requests):
        if asked and request.writes:
            return at
        asked = asked or not request.posted
    return len(requests)


def expect(requests: Iterable[Request], completions: Iterable[Completion], doing: str) -> None:
    """Raise `TransportError` for the first request without success."""
    for request, completion in zip(requests, completions, strict=True):
        if completion.status != SUCCESS:
            what = STATUS.get(completion.status, f"status {completion.status}, which no specification has")
            raise TransportError(f"{doing}: {request} was answered with {what}")
