"""The ladder by which a card is made usable again: its rungs, and the climb."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceHung, DeviceLost, RingupError

LOG = logging.getLogger(__name__)
# what a whole reset leaves
COLD_AGAIN = "the VBIOS's initialisation"


@dataclass(frozen=True, slots=True)
class Rung:
    """The outcome of one rung. `error` is empty when it was verified; `survived` says what the card still has then."""

    name: str
    survived: str
    error: str = ""

    def __str__(self) -> str:
        return f"{self.name}: " + (f"failed: {self.error}" if self.error else f"verified; survived: {self.survived}")


def climb(
    device: Device,
    names: Iterable[str],
    take: Callable[[str], None],
    rungs: list[Rung],
    survived: Mapping[str, str] | None = None,
) -> Rung:
    """Try rungs until `take(name)` returns: that rung is verified. Append the outcome of each to `rungs`; return the
    last. `survived`: by rung, where more than a whole reset leaves.

    Raises `DeviceLost` when the card is gone, `DeviceHung` with the error of every rung when none helped.
    """
    for name in names:
        try:
            take(name)
        except RingupError as error:
            # a card that is on the bus and whose registers do not answer needs the next rung
            if isinstance(error, DeviceLost) and device.lost:
                raise
            LOG.info("%s: reset rung %s failed: %s", device.name, name, error)
            rungs.append(Rung(name, "", str(error)))
            continue
        rungs.append(Rung(name, (survived or {}).get(name, COLD_AGAIN)))
        return rungs[-1]
    tried = "; ".join(map(str, rungs)) or "this path offers none"
    raise DeviceHung(f"{device.name}: no reset helped ({tried}); switch the card's power off and on")
