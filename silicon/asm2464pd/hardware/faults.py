"""The faults that can be injected into a virtual enclosure, by name."""

from __future__ import annotations

from ringup.silicon.common.faults import FaultKind, Faults

TRANSFERS = "USB transfers until it strikes, once; -1: each"
TLPS = "requests on PCI Express that have a completion, until it strikes, once; -1: each"
KINDS = (
    FaultKind(
        "stall", "a transfer is answered with a stall; a bulk endpoint stays halted until that is cleared", TRANSFERS
    ),
    FaultKind("short_packet", "an IN transfer ends early with a short packet", TRANSFERS),
    FaultKind("lost_completion", "the device executes a transfer and the host never gets its completion", TRANSFERS),
    FaultKind("disconnect_after_bytes", "the device leaves the bus for good", "bytes of bulk data until then"),
    FaultKind("disconnect_after_transfers", "the device leaves the bus for good", "USB transfers until then"),
    FaultKind(
        "disconnect_and_return", "the device leaves the bus, loses power and comes back", "USB transfers until then"
    ),
    FaultKind("link_never_trains", "the slot's link stays in detection"),
    FaultKind("tlp_timeout", "a request gets no completion, and the engine gives up with its error bit", TLPS),
    FaultKind("tlp_hang", "a request gets neither completion nor error", TLPS),
    FaultKind("unsupported_request", "a request is answered as unsupported", TLPS),
    FaultKind("tlp_glitch", "a request ends with the error bit although nothing is wrong", TLPS),
    FaultKind("ep0_64", "a control reply stops after 64 bytes at any speed, as it does at USB 2"),
)


def strikes(faults: Faults, name: str) -> bool:
    """Count one event towards a fault that strikes once after so many; return whether it strikes now."""
    left = faults.get(name)
    if left is None:
        return False
    if left == 0:
        faults.clear(name)
    elif left > 0:
        faults.inject(name, left - 1)
    return left <= 0
