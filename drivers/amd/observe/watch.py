"""Watching a card that another process drives: registers whose reading changes nothing, and the metrics that its holder
left in its memory. Writes nothing.

`watch("pci:0000:03:00.0")` or `watch(device)`; call `stats()` as often as wanted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from ringup.drivers.amd.bus.discovery import discover, memory
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.memory.layout import Layout
from ringup.drivers.amd.smu import published
from ringup.drivers.amd.smu.sensors import Activity, Sensors
from ringup.drivers.amd.smu.tables import Metrics
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.link import Link, link_of
from ringup.drivers.transport.linux.readonly import ReadOnly, holder, open_readonly
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceLost, NotSupported

PCI = "pci:"


@dataclass(frozen=True, slots=True)
class Watched:
    """What can be seen from outside; None for what cannot.

    `metrics` are as the holder last read them, for the `looks`th time; while it waits for work it reads them once a
    second. `temperature_c` is read now.
    """

    name: str
    holder: str
    vram_bytes: int
    link: Link
    temperature_c: int | None
    activity: Activity | None
    metrics: Metrics | None
    looks: int
    doubts: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        shown = asdict(self)
        activity = self.activity._asdict() if self.activity is not None else None
        return shown | {"link": self.link._asdict(), "activity": activity}


class Watch:
    """Watches one card. A context manager."""

    def __init__(self, device: ReadOnly, holder_name: str = "") -> None:
        self._device, self._holder = device, holder_name
        registers = Registers(device)
        self._window = memory(device, registers)
        self._sensors: Sensors | None = None
        if self._window.visible_bytes == self._window.size_bytes:
            # the table of the card's blocks lies at the end of its memory; if the window does not reach it, only the
            # holder may use the index registers that do
            ips, _ = discover(device, registers)
            self._sensors = Sensors(device, ips)

    @property
    def clock(self) -> Any:
        """The clock for waiting between two calls of `stats`."""
        return self._device.clock

    def stats(self) -> Watched:
        """Return what can be seen now. Raises `DeviceLost` when the card is gone."""
        if self._device.lost:
            raise DeviceLost(f"{self._device.name} {self._device.why_lost}")
        size = self._window.size_bytes
        seen = published.published(self._window, Layout(size).metrics)
        sensors = self._sensors
        return Watched(
            name=self._device.name,
            holder=self._holder,
            vram_bytes=size,
            link=link_of(self._device),
            temperature_c=sensors.temperature_c if sensors else None,
            # a core that ringup did not start may be switched off, and a read would hang
            activity=sensors.activity() if sensors and seen else None,
            metrics=seen.metrics if seen else None,
            looks=seen.counter if seen else 0,
            doubts=seen.doubts if seen else (),
        )

    def close(self) -> None:
        """Stop watching. Twice is harmless."""
        self._device.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(card: str | Device) -> Watch:
    """Watch the card of that name, or the one behind a device that this process has open. Takes no lock.

    Raises `NotSupported` for a name that is no PCI card's, and what `open_readonly` raises.
    """
    if not isinstance(card, str):
        return Watch(ReadOnly.of(card))
    if not card.startswith(PCI):
        raise NotSupported(
            f"{card} cannot be watched from another process: only cards on this machine's PCI bus can ({PCI}…)"
        )
    address = card.removeprefix(PCI)
    device = open_readonly(address)
    with undone_on_error(device.close):
        return Watch(device, holder(address))
