"""Health of a card: what its power controller, engines, memory and queues report; and the guard that stops work on a
card that is too hot.

The metrics that are read are left in the card's memory for other processes (`smu_published`). Too hot is what amdgpu
calls an emergency: five degrees above the temperature at which the firmware holds clocks down, or the temperature at
which a driver must shut down. Above that the firmware switches the card off by itself. Source: amdgpu
smu_v13_0_0_ppt.c, smu_v13_0_0_get_thermal_temperature_range (CTF_OFFSET_EDGE and its siblings, of smu_v13_0.h);
smu_v13_0.c, smu_v13_0_set_irq_state.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.smu import published as smu_published
from ringup.drivers.amd.smu.control import Control
from ringup.drivers.amd.smu.sensors import Activity, Sensors
from ringup.drivers.amd.smu.tables import METRICS, Limits, Metrics, decode_metrics, sifted
from ringup.drivers.amd.smu.thermal import Thermal
from ringup.drivers.memory.table import Usage
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.health import CardStats
from ringup.drivers.submission.queue_stats import queue_stats
from ringup.drivers.transport.link import Link
from ringup.errors import DeviceLost, RingupError

LOG = logging.getLogger(__name__)
# between two looks at the metrics while somebody waits for work: one message of the power controller
LOOK_US = 1_000_000
# above the temperature at which clocks fall. Source: CTF_OFFSET_EDGE, CTF_OFFSET_HOTSPOT, CTF_OFFSET_MEM
EMERGENCY_C = 5
COOLED_C = 10  # below that, before work is taken again; ours
HOTTEST_ALERT_C = 255  # what the register holds. Source: SMU_THERMAL_MAXIMUM_ALERT_TEMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(CardStats):
    """Statistics of a card. `copy_engines_busy` is of this moment; `metrics` are averages
    over about a second.

    `doubts` says why numbers of `metrics` may be wrong; a number that is impossible is 0.
    """

    metrics: Metrics
    power_limit_w: int
    too_hot: bool
    link: Link
    activity: Activity
    copy_engines_busy: tuple[bool, ...]
    interrupts: dict[str, int]
    interrupt_overflows: int
    doubts: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return CardStats.as_dict(self) | {"link": self.link._asdict(), "activity": self.activity._asdict()}


def hot(metrics: Metrics, limits: Limits, below_c: int = 0) -> str:
    """Return which temperature is at or above its limit less `below_c`; empty when none is. A limit of 0 means no
    limit.
    """
    shutdown = limits.shutdown_temperature_c or HOTTEST_ALERT_C
    for name, seen, limit in (
        ("edge", metrics.edge_temperature_c, limits.edge_temperature_c),
        ("hotspot", metrics.hotspot_temperature_c, limits.hotspot_temperature_c),
        ("memory", metrics.memory_temperature_c, limits.memory_temperature_c),
    ):
        most = min(limit + EMERGENCY_C if limit else HOTTEST_ALERT_C, shutdown)
        if seen >= most - below_c:
            return f"{name} {seen} °C, {most} °C is the most"
    return ""


@dataclass(slots=True)
class Counts:
    """Counts of events since the card was opened; `interrupts` by kind."""

    interrupts: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    resets: int = 0


class Health:
    """Watches one card that is up. `too_hot(text)` is called when work must stop."""

    def __init__(self, blocks: Blocks, control: Control, too_hot: Callable[[str], None]) -> None:
        self._blocks, self._control, self._too_hot = blocks, control, too_hot
        self._sensors = Sensors(blocks.device, blocks.ips)
        self._thermal = Thermal(
            blocks.ips.block("thm") if blocks.smu.row.watches_die else None, blocks.ips.block("mp1")
        )
        self._published = 0
        self._doubts: tuple[str, ...] = ()  # of the last metrics
        self._next_us = blocks.registers.clock.now_us + LOOK_US
        self._wait_us = LOOK_US

    def start(self) -> None:
        """Make the card interrupt at the temperature at which a driver must shut down."""
        self._thermal.start(min(self._blocks.smu.limits.shutdown_temperature_c or HOTTEST_ALERT_C, HOTTEST_ALERT_C))

    def stop(self) -> None:
        """Switch the interrupts for heat off; twice is harmless."""
        self._thermal.stop()

    def hurry(self) -> None:
        """Read the metrics at the next `tick`, whatever the time."""
        self._next_us = 0

    def tick(self) -> None:
        """Read the metrics once a second. A power controller that does not answer is asked less and less often, so that
        waits go on.
        """
        now = self._blocks.registers.clock.now_us
        if now < self._next_us:
            return
        try:
            self.look()
        except DeviceLost:
            raise
        except RingupError as error:
            self._wait_us *= 2
            LOG.warning("%s: looking at the metrics: %s", self._blocks.device.name, error)
        else:
            self._wait_us = LOOK_US
        self._next_us = self._blocks.registers.clock.now_us + self._wait_us

    def look(self) -> Metrics:
        """Read the metrics, leave them for other processes, slow down a card that is too hot, release a cool one."""
        blocks = self._blocks
        table = blocks.smu.metrics_table()
        self._published += 1
        smu_published.publish(
            blocks.window,
            blocks.hdp,
            blocks.layout.metrics,
            blocks.ips.version("mp1"),
            table,
            self._published,
            blocks.smu.interface,
        )
        metrics, self._doubts = sifted(decode_metrics(blocks.smu.row, table), METRICS)
        limits = blocks.smu.limits
        if self._control.slowed:
            if not hot(metrics, limits, COOLED_C):
                self._control.resume()
        elif why := hot(metrics, limits):
            self._control.slow()
            self._too_hot(why)
        return metrics

    def cooled(self) -> bool:
        """Read the metrics again and return whether the card may work."""
        self.look()
        return not self._control.slowed

    def stats(self, memory: dict[str, Usage], queues: list[CardQueue], counts: Counts, overflows: int) -> Stats:
        """Return everything at once. Raises `DeviceLost` when the card is gone."""
        blocks = self._blocks
        metrics = self.look()
        return Stats(
            name=blocks.device.name,
            at_us=blocks.registers.clock.now_us,
            metrics=metrics,
            power_limit_w=self._control.power_limit_w,
            too_hot=self._control.slowed,
            link=self._sensors.link(),
            activity=self._sensors.activity(),
            copy_engines_busy=tuple(engine.busy for engine in blocks.sdma),
            memory={place: replace(usage) for place, usage in memory.items()},
            queues=tuple(queue_stats(queue) for queue in queues if not queue.closed),
            interrupts=dict(counts.interrupts),
            interrupt_overflows=overflows,
            faults=counts.faults,
            resets=counts.resets,
            doubts=tuple(filter(None, (blocks.smu.mismatch, *self._doubts, *blocks.smu.doubts))),
        )
