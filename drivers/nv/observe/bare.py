"""What a card whose GSP-RM ringup has started does now, and its post-mortem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ringup.drivers.nv.gsp.crash_report import CrashReport
from ringup.drivers.nv.gsp.log_records import Log
from ringup.drivers.nv.observe.channels import ChannelReport
from ringup.drivers.stages import Stage
from ringup.drivers.submission.health import CardStats

# lines of the report for what came of GSP-RM, and for the records of each log
MAX_LINES, MAX_RECORDS = 20, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GspStats(CardStats):
    """What a card does now. `calls`: of GSP-RM; `interrupts`: with which engines woke this process."""

    interrupts: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GspReport(ChannelReport):
    """A post-mortem, with what GSP-RM has sent. `release`: GSP-RM's; `crashes`: what its processor reports of its own
    crashes, `unread`: what could not be read of that; `logs`: its own, as it writes them, for its maker; `records`: the
    same, decoded as far as that can be done without its maker's table of texts.
    """

    found: str
    stages: tuple[Stage, ...]
    rungs: tuple[str, ...]
    release: str
    errors: tuple[str, ...]
    events: tuple[str, ...]
    crashes: tuple[CrashReport, ...]
    unread: tuple[str, ...]
    logs: dict[str, bytes] = field(repr=False)
    records: dict[str, Log] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON. Logs are hexadecimal."""
        return asdict(self) | {"logs": {name: data.hex() for name, data in self.logs.items()}}

    def _driver(self) -> str:
        return f"GSP-RM {self.release}; found: {self.found}"

    def _lines(self) -> Iterator[str]:
        yield from ChannelReport._lines(self)
        yield from (f"reset: {text}" for text in self.rungs)
        yield from (f"GSP-RM said: {text}" for text in self.errors[-MAX_LINES:])
        if self.events:
            yield f"events of GSP-RM: {', '.join(self.events[-MAX_LINES:])}"
        for crash in self.crashes:
            first, *more = crash.lines()
            yield f"GSP crashed: {first}"
            yield from (f"  {text}" for text in more)
        yield from self.unread
        for name, data in self.logs.items():
            records = self.records[name].records
            yield f"{name}: {len(data)} bytes of GSP-RM's own log, {len(records)} records"
            yield from (f"  {one}" for one in records[-MAX_RECORDS:])
