"""A post-mortem from outside: the state of a card that was left running, or that another process drives. Reading does
not change it.

Of a card that another process holds, only registers that need no index are read; of a card that this process holds,
also queues and waves, which need selectors. A part that cannot be read is listed with the reason, and the rest is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ringup.autogen.amd import gc_hqd
from ringup.drivers.amd.board.wiring import make_engines
from ringup.drivers.amd.gfx import waves as gfx_waves
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.hqd import selected
from ringup.drivers.amd.gfx.shape import Design, read_shape
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB
from ringup.drivers.amd.gmc.hub import Hub
from ringup.drivers.amd.gmc.words import gfxhub_words, mmhub_words
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.lifecycle.shutdown import doubts
from ringup.drivers.left import LeftReport

WAVES = 16  # how many are reported


@dataclass(slots=True)
class LeftRadeonReport(LeftReport):
    """What is known of a Radeon. `metrics`: as its holder read them last."""

    versions: dict[str, str] = field(default_factory=dict)
    mark: dict[str, int] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    waves: list[str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)

    def _of_maker(self) -> Iterator[str]:
        if self.mark:
            yield "  mark of its driver: " + ", ".join(f"{name} {value:#x}" for name, value in self.mark.items())

    def _lists(self) -> Iterator[tuple[str, list[str]]]:
        yield from LeftReport._lists(self)
        yield "queues that are mapped", self.queues
        yield "waves", self.waves

    def _tables(self) -> dict[str, dict[str, Any]]:
        return {**self.registers, "metrics, as its holder read them last": self.metrics}


def examine(bare: Bare, holder: str = "") -> LeftRadeonReport:
    """Report on a card as found. Never raises for what the card does."""
    left = LeftRadeonReport(bare.device.name, holder=holder)
    parts = _Parts(bare, left)
    steps: list[tuple[str, Callable[[], None]]] = [
        ("bus", lambda: left.bus(bare)),
        ("state", parts.state),
        ("firmware and tables", parts.doubts),
        ("metrics", parts.metrics),
        ("faults of the memory hub", parts.hub),
        ("graphics core", parts.core),
    ]
    left.take(bare.device, steps)
    return left


class _Parts:
    def __init__(self, bare: Bare, left: LeftRadeonReport) -> None:
        self._bare, self._left = bare, left

    def state(self) -> None:
        self._left.state = self._bare.state()
        self._left.versions = self._bare.versions()
        if self._bare.core_awake and self._bare.secure_os:
            mark = self._bare.mark()
            self._left.mark = mark._asdict() if mark is not None else {}

    def doubts(self) -> None:
        self._left.doubts += doubts(self._bare)

    def metrics(self) -> None:
        seen = self._bare.published
        if seen is not None:
            self._left.doubts += [text for text in seen.doubts if text not in self._left.doubts]
            self._left.metrics = {name: value for name, value in asdict(seen.metrics).items() if value is not None}

    def hub(self) -> None:
        mmhubs = self._bare.ips.mmhubs
        for aid, mmhub in enumerate(mmhubs):
            self._fault(Hub(MMHUB, mmhub, mmhub_words(mmhub.version), aid if len(mmhubs) > 1 else None))

    def _fault(self, hub: Hub) -> None:
        fault = hub.kept_fault()
        if fault is not None:
            self._left.faults.append(str(fault))

    def core(self) -> None:
        bare = self._bare
        if not bare.core_awake:
            self._left.unknown.append("graphics core: it may be switched off, and reading it would hang the host")
            return
        ips, shown = bare.ips, self._left.registers
        shape, many = ips.shape, len(ips.cores) > 1
        design = Design(shape.shader_engines, shape.arrays_per_engine, shape.cus_per_array)
        # only looked at
        cores = [Gfx(gc, ips.block("smuio"), design, mec_start=0, xcc=xcc) for xcc, gc in enumerate(ips.cores)]
        for gfx in cores:
            self._fault(Hub(GFXHUB, gfx.block, gfxhub_words(gfx.block.version), gfx.xcc if many else None))
            words = {name: repr(word) for name, word in gfx.status().items() if int(word)}
            shown[f"graphics core of XCC {gfx.xcc}" if many else "graphics core"] = words
        for engine in make_engines(ips):
            shown[f"SDMA{engine.index}"] = {name: repr(word) for name, word in engine.status.items() if int(word)}
        if not bare.own:
            self._left.unknown.append("queues and waves: they lie behind selectors that belong to the card's holder")
            return
        for gfx in cores:
            self._work(gfx, design, f"XCC {gfx.xcc} " if many else "", gfx.xcc if many else None)

    def _work(self, gfx: Gfx, design: Design, die: str, xcc: int | None) -> None:
        """Add the queues and waves of a core."""
        gc = gfx.block
        for place in gfx.active_queues():
            with selected(gc, place):
                rptr = int(gc.read(gc_hqd.CP_HQD_PQ_RPTR))
                wptr = gc.read_pair(gc_hqd.CP_HQD_PQ_WPTR_LO, gc_hqd.CP_HQD_PQ_WPTR_HI)
            self._left.queues.append(f"{die}compute {place}: rptr {rptr:#x}, wptr {wptr:#x} (dwords)")
        room = WAVES - len(self._left.waves)
        self._left.waves += map(str, gfx_waves.waves(gc, read_shape(gc, design), room, xcc)) if room else ()
