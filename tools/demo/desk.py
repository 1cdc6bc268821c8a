"""The card of `ringup demo`. A virtual enclosure is made here, so that its cable can be pulled and its speed chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ringup
from ringup.drivers.select import start
from ringup.drivers.transport.seam import Device, Driven
from ringup.drivers.usb4.counts import Counts
from ringup.drivers.usb4.device import BridgeDevice
from ringup.drivers.usb4.identify import Firmware
from ringup.drivers.usb4.port import Seen
from ringup.queues.trace import Trace, Value
from ringup.silicon.transport import ENCLOSURES
from ringup.tools.command_line.card_argument import VIRTUAL
from ringup.tools.common.stages import StageView
from ringup.tools.common.usb_side import counts_of
from ringup.tools.demo.kernels import NVIDIAS

if TYPE_CHECKING:
    from rich.console import Console

    from ringup.silicon.asm2464pd import Enclosure

SPEEDS = {"5 Gb/s": "super", "10 Gb/s": "super_plus", "20 Gb/s": "super_plus_by2"}  # names of the model
USUAL = "10 Gb/s"
CONTROL_TRACK, BULK_TRACKS = "USB/control", ("USB/bulk out", "USB/bulk in")
IN = 0x80  # the direction bit of an endpoint's address


class Desk:
    """A name, and the device that it names. `enclosure` is None for a device that this process did not make."""

    def __init__(self, name: str, speed: str = USUAL) -> None:
        """`speed`: one of `SPEEDS`, of a virtual enclosure's cable."""
        self.name = name
        self.enclosure: Enclosure | None = None
        chip, _, bridge = name.removeprefix(VIRTUAL).partition("@")
        if name.startswith(VIRTUAL) and bridge in ENCLOSURES:
            from ringup.silicon import card
            from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

            self.enclosure = Enclosure(card(chip, enumerated=False), ENCLOSURES[bridge][0], SPEEDS[speed])
            self._host = VirtualUsbHost()
            self._host.plug(self.enclosure)

    def connect(self) -> Any:
        """Open the path to the card; its slot is woken."""
        there = {} if self.enclosure is None else {"enclosure": self.enclosure}
        return ringup.connect(self.name, **there)

    def plug_again(self) -> None:
        """Plug the enclosure in again."""
        assert self.enclosure is not None
        self.enclosure.faults.clear()
        self._host.plug(self.enclosure)

    def mistakes(self) -> list[str]:
        """Return the mistakes that bridge and card recorded."""
        if self.enclosure is None or self.enclosure.card is None:
            return []
        return [str(event) for event in (*self.enclosure.violations, *self.enclosure.card.violations)]


@dataclass
class Up:
    """A started card, and the cost of its start. Without a bridge `opening` is None, and `transfers` (a count for each
    stage) is empty.
    """

    card: Any
    opening: Counts | None = None
    transfers: list[int] = field(default_factory=list)

    @property
    def bridge(self) -> BridgeDevice | None:
        """The bridge that the card is behind."""
        device = self.card.device
        return device if isinstance(device, BridgeDevice) else None

    @property
    def fast(self) -> bool:
        """Whether there are bulk transfers both ways: without a bridge, or with the open firmware."""
        return self.bridge is None or self.bridge.bridge.kind == Firmware.OPEN.value

    @property
    def now_us(self) -> int:
        """The clock of its transport."""
        now: int = self.card.device.clock.now_us
        return now

    @property
    def took_ms(self) -> float:
        """How long the stages took."""
        return float(sum(stage.took_us for stage in self.card.stages)) / 1000

    @property
    def nvidia(self) -> bool:
        """Whether it is a card of NVIDIA's."""
        return str(self.card.info.target).startswith(NVIDIAS)

    def counts(self) -> Counts:
        """Return the transfers over its cable so far; none without a cable."""
        return counts_of(self.card.device) or Counts()


@contextmanager
def bring_up(
    desk: Desk,
    firmware: list[Path],
    *,
    met: Callable[[Any], None] = lambda path: None,
    usb: UsbTracks | None = None,
    console: Console | None = None,
) -> Iterator[Up]:
    """Bring the desk's card up; close it at the end.

    `met` is called with the open path before anything is started, `usb` is called with each transfer, `console` shows
    the stages.
    """
    path = desk.connect()
    opening = counts_of(path)

    def transfers() -> int:
        seen = counts_of(path)
        return seen.transfers if seen else 0

    view = StageView(transfers if opening else None, console) if console else None
    try:
        if isinstance(path, BridgeDevice):
            path.bridge.port.observer = usb
        met(path)
    except BaseException:
        path.close()
        raise
    with start(path, firmware=firmware, watch=view) if isinstance(path, (Device, Driven)) else path as card:
        yield Up(card, opening, view.counted if view else [])


class UsbTracks:
    """Stores the transfers of a port for a trace: one track for control transfers, one for each direction of bulk
    transfers.
    """

    MAX_STEPS = 100_000  # stock firmware takes many times that

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def __call__(self, seen: Seen) -> None:
        """Record a transfer that ended; those beyond `MAX_STEPS` are ignored."""
        if len(self.seen) < self.MAX_STEPS:
            self.seen.append(seen)

    def add_to(self, trace: Trace) -> None:
        """Add all of them. Transfers of one endpoint run in sequence, so each begins when it is submitted and the one
        before has ended.
        """
        ended: dict[int, int] = {}
        for one in self.seen:
            begin = max(one.submitted_us, ended.get(one.endpoint, 0))
            end = ended[one.endpoint] = max(begin, one.ended_us)
            track = BULK_TRACKS[bool(one.endpoint & IN)] if one.endpoint else CONTROL_TRACK
            args: dict[str, Value] = {
                "bytes": one.size_bytes,
                "status": one.status,
                "queued_us": begin - one.submitted_us,
            }
            trace.add(track, one.doing, begin, end - begin, args)
