"""Looking at a card that NVIDIA's kernel driver has: what it is, and its sensors. No channel and no memory is made, so
it works on a card that is full, and disturbs nobody.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.nv.rm import sensors
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.drivers.nv.rm.sensors import Sensors
from ringup.drivers.nv.verbs import CHANNEL_RUNG, CardInfo
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.transport import open as open_path
from ringup.errors import RingupError

FOUND = "driven by NVIDIA's kernel driver"


@dataclass(frozen=True, slots=True)
class Watched:
    """What the driver tells of a card now."""

    name: str
    at_us: int
    sensors: Sensors

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


class Watch:
    """Looks at one card. A context manager."""

    # the resets that `Card.reset` has on this path
    resets = (CHANNEL_RUNG,)

    def __init__(self, device: NvidiaDevice) -> None:
        """Make a client of the driver on an open path, which is closed with it. Raises the driver's refusals."""
        self.device, self.clock = device, device.clock
        with undone_on_error(device.close):
            self._objects = CardObjects(device)

    @property
    def name(self) -> str:
        """The card's name."""
        return self.device.name

    @property
    def facts(self) -> CardFacts:
        """What the resource manager tells of the card."""
        return self._objects.facts

    @property
    def info(self) -> CardInfo:
        """What the card is."""
        return card_info(self._objects)

    def stats(self) -> Watched:
        """Return what the driver tells now. Raises `DeviceLost` for a card that is gone."""
        return Watched(self.name, self.clock.now_us, sensors.read(self._objects.client, self._objects.subdevice))

    def close(self) -> None:
        """Stop looking."""
        with Teardown(f"{self.name}: closing", logged=RingupError, kept=()) as teardown:
            teardown.attempt(self._objects.close)
            teardown.attempt(partial(self.device.close))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(number: str) -> Watch:
    """Look at the card whose node has that number. Raises what opening it raises."""
    return Watch(open_path(number))


def card_info(objects: CardObjects) -> CardInfo:
    """Return what a card is, as the driver tells it."""
    seen, path = objects.facts, objects.path
    return CardInfo(
        name=path.name,
        chip=seen.chip,
        target=seen.row.target,
        product=seen.product,
        pci_id=f"{path.row.vendor_id:04x}:{path.row.device_id:04x}",
        address=path.row.address,
        vram_bytes=seen.vram_bytes,
        window_bytes=seen.bar1_bytes,
        compute_units=seen.sms,
        warps_per_unit=seen.warps_per_sm,
        wave_size=32,
        l2_bytes=seen.l2_bytes,
        copy_engines=len(seen.copy_engines),
        gid=seen.gid.hex(),
        versions={"nvidia": path.release, "layouts": path.calls.layouts},
        firmware={},
        found=FOUND,
    )
