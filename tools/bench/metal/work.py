"""What the steps of a check share: the card, how it is opened, how much of everything is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringup.drivers.nv.nodes.card import NodesCard
from ringup.drivers.nv.nodes.card import start as start_card
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.errors import NotSupported
from ringup.tools.bench.metal.host import Host
from ringup.tools.bench.metal.masks import Masks

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a step does."""

    memory_bytes: tuple[int, ...]
    cycles: int
    copy_bytes: tuple[int, ...]
    rate_bytes: int
    submissions: int
    rounds: int
    grids: tuple[int, ...]
    elements: int
    shared_bytes: tuple[int, ...]
    launches: int


FULL = Scale(
    memory_bytes=(2 * MIB, 64 * MIB),
    cycles=1000,
    copy_bytes=(1, 3, 4, 17, 255, 4096, 4097, 65_535, MIB + 13, 16 * MIB, 64 * MIB + 5, 256 * MIB),
    rate_bytes=256 * MIB,
    # more than twice the entries of a GPFIFO
    submissions=20_000,
    rounds=200,
    grids=tuple(1 << power for power in range(0, 21, 2)),
    elements=4_000_037,
    shared_bytes=(512, 32 * KIB, 48 * KIB),
    launches=1000,
)
SMALL = Scale(
    memory_bytes=(2 * MIB, 4 * MIB),
    cycles=5,
    copy_bytes=(1, 17, 4097, 65_535),
    rate_bytes=MIB,
    submissions=50,
    rounds=3,
    grids=(1, 16, 64),
    elements=1003,
    shared_bytes=(512, 32 * KIB),
    launches=5,
)


@dataclass(slots=True)
class Work:
    """`open_path` returns the path to the card, anew each time. `kept`: the stem of files beside the report; None
    keeps none.
    """

    name: str
    open_path: Callable[[], Any]
    host: Host
    scale: Scale
    masks: Masks
    kept: Path | None = None
    # of the card's memory, before anything was made on it
    free_bytes: int | None = None
    # what the vendor's own tools measured, by name
    vendor: dict[str, float] = field(default_factory=dict)
    programs: Any = None
    _card: NodesCard | None = None

    def path(self) -> NvidiaDevice:
        """Open a path of its own to the card; the caller closes it. Raises `NotSupported` for another kind of card."""
        path = self.open_path()
        if not isinstance(path, NvidiaDevice):
            path.close()
            raise NotSupported(f"{self.name} is no card that stays with NVIDIA's kernel driver, such as nvidia:0")
        return path

    def start(self) -> NodesCard:
        """Open the card anew, with queues; the caller closes it."""
        path = self.path()
        try:
            return start_card(path)
        except BaseException:
            path.close()
            raise

    def begin(self) -> NodesCard:
        """Open the card that the steps share."""
        self._card = self.start()
        return self._card

    @property
    def card(self) -> NodesCard:
        """The card that the steps share."""
        if self._card is None:
            raise NotSupported(f"{self.name} is not open")
        return self._card

    def end(self) -> bool:
        """Close it; return whether it was open."""
        card, self._card, self.programs = self._card, None, None
        if card is not None:
            card.close()
        return card is not None

    def keep(self, suffix: str, data: bytes) -> str:
        """Write a masked file beside the report; return its name, empty where none is kept."""
        if self.kept is None:
            return ""
        path = self.kept.with_name(f"{self.kept.name}.{suffix}")
        path.write_bytes(self.masks.data(data))
        return path.name
