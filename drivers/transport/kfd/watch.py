"""Watching a card that amdgpu drives: its sensors in sysfs, while any process uses it. No node is opened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.kfd import sensors
from ringup.drivers.transport.kfd.sensors import Sensors
from ringup.drivers.transport.kfd.topology import Node
from ringup.drivers.transport.kfd.transport import PREFIX, node_of
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import DeviceLost, NoSuchCard


@dataclass(frozen=True, slots=True)
class Watched:
    """What the kernel shows of a card now."""

    name: str
    at_us: int
    sensors: Sensors

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


class Watch:
    """Watches one card. A context manager."""

    def __init__(self, name: str, node: Node) -> None:
        self._name, self._node, self._driver = name, node, node.function.driver
        self.clock = HostClock()

    def stats(self) -> Watched:
        """Return what the kernel shows now. Raises `DeviceLost` when its driver has left the card."""
        if not self._node.there or self._node.function.driver != self._driver:
            raise DeviceLost(f"{self._name} is gone: amdgpu no longer drives it (it was unplugged or unbound)")
        return Watched(self._name, self.clock.now_us, sensors.read(self._node))

    def close(self) -> None:
        """Stop watching."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(name: str, kernel: Kernel | None = None) -> Watch:
    """Watch the card of that name, such as `kfd:0`. Raises `NoSuchCard`."""
    if not name.startswith(PREFIX):
        raise NoSuchCard(f"{name!r} names no card of amdgpu: a name is {PREFIX}NUMBER")
    return Watch(name, node_of(name.removeprefix(PREFIX), kernel or Kernel()))
