"""Requests from one board to another board's BAR: they go up to the switch or root above both, and down by address.

A memory request is routed by its address. One that no function claims (its decoding is off, its link is down) ends as
an Unsupported Request: a read returns all ones, a write is dropped. Whether a root complex passes requests on between
its ports is its maker's choice, and access control services may turn them away. Source: PCI Express Base Specification,
"Transaction Layer Specification", address-based routing, and "Access Control Services".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringup.errors import NotSupported
from ringup.silicon.common.faults import FaultKind, Faults
from ringup.silicon.common.memory import Span, span_of
from ringup.silicon.pci.path import Bar

TURNED_AWAY, ONE_WAY = "peer_requests_turned_away", "peer_reads_turned_away"
KINDS = (
    FaultKind(TURNED_AWAY, "no request to another board's BAR arrives"),
    FaultKind(ONE_WAY, "reads of another board's BAR return all ones; writes arrive"),
)


@dataclass(slots=True)
class PeerSpan(Span):
    """A part of another board's BAR. `offset`: where in the BAR it begins; `faults`: of the board that sends the
    requests.

    Translated code uses `pointer`: it does not see when the other board stops decoding, nor these faults.
    """

    bar: Bar = field(kw_only=True)
    offset: int = field(kw_only=True)
    faults: Faults = field(kw_only=True)

    def load(self, bus_addr: int, size_bytes: int) -> bytes | None:
        """Read from the other board; None where nothing answers. A request that is turned away on the way is no mistake
        of the driver, who cannot know.
        """
        if self._away or self.faults.get(ONE_WAY) is not None:
            return b"\xff" * size_bytes
        return self.bar.answer(self.offset + bus_addr - self.base, size_bytes)

    def store(self, bus_addr: int, data: bytes | memoryview) -> bool:
        """Post a write to the other board; return whether it is claimed."""
        return self._away or self.bar.accept(self.offset + bus_addr - self.base, data)

    @property
    def _away(self) -> bool:
        return self.faults.get(TURNED_AWAY) is not None


def peer_span(bar: Bar, offset: int, size_bytes: int, faults: Faults) -> PeerSpan:
    """Return a part of another board's BAR at no address yet. One of registers has no memory here: every access is a
    request, also those of translated code.
    """
    if offset < 0 or size_bytes <= 0 or offset + size_bytes > bar.size_bytes:
        raise ValueError(f"{bar.name} has no {size_bytes:#x} bytes at {offset:#x}")
    try:
        memory = span_of(bar.map()[offset : offset + size_bytes])
    except NotSupported:
        memory = span_of(bytearray())
    return PeerSpan(0, size_bytes, memory.view, memory.pointer, keep=bar, bar=bar, offset=offset, faults=faults)
