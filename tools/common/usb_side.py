"""The USB side of a card behind a bridge, for output: firmware, speed, transfers over the cable."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ringup.drivers.usb4.counts import Counts
from ringup.drivers.usb4.device import BridgeDevice


def counts_of(device: Any) -> Counts | None:
    """Return the transfers over the cable so far; None for a card that is not behind a bridge."""
    return device.bridge.port.counts.copy() if isinstance(device, BridgeDevice) else None


def bridge_of(device: Any) -> dict[str, Any] | None:
    """Return the bridge as plain values; None for a card without one. Reads the state of its link."""
    if not isinstance(device, BridgeDevice):
        return None
    bridge = device.bridge
    return {
        "ids": bridge.port.place.ids,
        "product": bridge.port.product,
        "firmware": bridge.kind,
        "version": bridge.version,
        "speed_mbps": bridge.port.speed_mbps,
        "link": str(bridge.link()),
    }


def plain(counts: Counts) -> dict[str, int]:
    """Return counts as plain values."""
    return asdict(counts) | {"transfers": counts.transfers}
