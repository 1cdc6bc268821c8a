"""A post-mortem of an open card: its errors in their order, and the state of everything at this moment.

Made from memory and from registers whose reading changes nothing. A part that cannot be read, of a card that is gone or
does not answer, is listed with the reason; the rest is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.gfx import waves as gfx_waves
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.hqd import DWORD_BYTES, SpreadHqd
from ringup.drivers.amd.memory.spaces import USER_VMID, Spaces
from ringup.drivers.amd.submission.aql_queue import AqlQueue
from ringup.drivers.amd.submission.card_queue import ComputeQueue
from ringup.drivers.mistakes import Mistakes, shortened
from ringup.drivers.rung import Rung
from ringup.drivers.stages import Stage
from ringup.drivers.submission.card_queue import CardQueue
from ringup.errors import DeviceLost, RingupError
from ringup.queues.amd.decode_aql import AqlDecoder
from ringup.queues.amd.decode_pm4 import Pm4Decoder
from ringup.queues.amd.decode_sdma import SdmaDecoder
from ringup.queues.amd.program import Program
from ringup.queues.amd.umr_text import lines
from ringup.queues.decode import Decoder, Packet, decode_ring
from ringup.queues.timeline import Timeline

PACKETS, WAVES, INTERRUPTS, HOLDERS, MISTAKES = 24, 16, 16, 8, 8  # how many of each are reported
PACKET_LINES, CALL_LINES = 12, 120  # of one packet and its fields; of one that calls an indirect buffer
HERE = ">"


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue. `packets`: text of the packets not known to be done, the one at the read pointer marked `>`; `state`:
    pointers and errors.
    """

    name: str
    place: str
    completed: int
    submitted: int
    state: dict[str, str]
    packets: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """What is known of the card. `str()` is for people, `as_dict()` for JSON."""

    name: str
    cause: str = ""
    mistakes: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    errors_so_far: list[str] = field(default_factory=list)
    unreachable: str = ""
    stage: str = ""
    found: str = ""
    stages: list[dict[str, Any]] = field(default_factory=list)
    rungs: list[str] = field(default_factory=list)
    queues: list[QueueReport] = field(default_factory=list)
    registers: dict[str, dict[str, str]] = field(default_factory=dict)
    waves: list[str] = field(default_factory=list)
    interrupts: list[str] = field(default_factory=list)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    holders: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def miss(self, what: str, error: Exception) -> None:
        """Note that a part could not be read. If the card is lost meanwhile and had no cause before, the loss is its
        first cause.
        """
        self.unknown.append(f"{what}: {type(error).__name__}: {error}")
        if isinstance(error, DeviceLost):
            self.unreachable = self.unreachable or "the card is gone"
            self.cause = self.cause or f"{type(error).__name__}: {error}"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.cause or self._state()}"
        if self.mistakes and self.mistakes[0] not in self.cause:
            yield from _section("the first mistake that a real card punishes", self.mistakes[:1] if self.cause else [])
        yield from _section("mistakes that followed", [shortened(line) for line in self.mistakes[1 : 1 + MISTAKES]])
        if len(self.mistakes) > 1 + MISTAKES:
            yield f"  and {len(self.mistakes) - 1 - MISTAKES} more"
        yield from _section("what stands still or waits", self.unfinished)
        yield f"  {self.unreachable or 'the card is on the bus'}; it was found {self.found}; it was at: {self.stage}"
        yield from _section("errors so far", self.errors_so_far if self.errors_so_far != [self.cause] else [])
        yield from _section("processors that do not answer", self.silent[0 if self.cause or self.mistakes else 1 :])
        yield from _section("not what the driver was written for", self.doubts)
        yield from _section("resets", self.rungs)
        for queue in self.queues:
            state = ", ".join(f"{name} {value}" for name, value in queue.state.items())
            yield f"queue {queue.name} ({queue.place}): {queue.completed} of {queue.submitted} done; {state}"
            yield from (f"  {line}" for line in queue.packets)
        yield from _section("waves", self.waves)
        for block, words in self.registers.items():
            yield from _section(block, [f"{name} {value}" for name, value in words.items()])
        yield from _section("last interrupts", self.interrupts)
        for place, usage in self.memory.items():
            yield f"memory {place}: " + ", ".join(f"{name} {value}" for name, value in usage.items())
        yield from _section("most memory is held by", self.holders)
        bring_up = (f"{one['name']}: {one['took_us'] / 1000:.1f} ms {one['error']}".rstrip() for one in self.stages)
        yield from _section("stages", list(bring_up))
        yield from _section("not known", self.unknown)

    def _state(self) -> str:
        """Say how the card is that has failed nothing yet."""
        if self.mistakes:
            return f"it goes on after a mistake that a real card punishes: {self.mistakes[0]}"
        if self.silent:
            return self.silent[0]
        under_way = [queue for queue in self.queues if queue.completed != queue.submitted]
        if under_way:
            queues = ", ".join(f"{queue.name} {queue.completed} of {queue.submitted} done" for queue in under_way)
            return f"nothing has failed, and work is under way: {queues}"
        if self.unreachable or self.unknown:
            return f"nothing is known to be wrong with it, and not all of it can be seen: {self.unreachable or self.unknown[0]}"
        return "nothing is wrong with it"


def _section(title: str, entries: list[str]) -> Iterator[str]:
    if entries:
        yield f"{title}:"
        yield from (f"  {entry}" for entry in entries)


@dataclass(frozen=True, slots=True)
class Known:
    """What the card object passes for a report. `programs` by address."""

    name: str
    cause: Exception | None
    errors_so_far: list[str]
    unreachable: str  # why registers cannot be read; empty when they can
    found: str
    blocks: Blocks
    spaces: Spaces
    stages: list[Stage]
    rungs: list[Rung]
    queues: list[CardQueue]
    programs: Mapping[int, Program]
    interrupts: list[str]
    late: Exception | None  # the last wait that ran out
    mistakes: Mistakes
    stalled: Mapping[CardQueue, tuple[int, int]]  # queues whose waits ran out: how far each was then, and when
    doubts: tuple[str, ...]


def make(known: Known) -> Report:
    """Make the report. Never raises for what the card does, and reads a bounded number of everything."""
    stages = [asdict(stage) for stage in known.stages]
    failed = next((stage.name for stage in known.stages if stage.error), "")
    report = Report(
        name=known.name,
        cause=_cause(known),
        mistakes=known.mistakes.seen(),
        unfinished=known.mistakes.unfinished() if not known.unreachable else [],
        errors_so_far=known.errors_so_far,
        unreachable=known.unreachable,
        stage=failed or "work",
        found=known.found,
        stages=stages,
        rungs=[str(rung) for rung in known.rungs],
        interrupts=known.interrupts[-INTERRUPTS:],
        doubts=list(known.doubts),
    )
    maker = _Maker(known, report)
    steps: list[tuple[str, Callable[[], None]]] = [("queues", maker.queues), ("memory", maker.memory)]
    if known.unreachable:
        report.unknown.append(f"registers: {known.unreachable}")
    else:
        steps += [("processors", maker.processors), ("registers", maker.registers), ("waves", maker.waves)]
    for what, step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001  a broken card may raise anything; the other parts are reported
            report.miss(what, error)
    return report


def _cause(known: Known) -> str:
    """Return what failed: the card's first fault, else a wait that ran out for work that is still not done."""
    undone = not known.unreachable and any(
        _completed(one.timeline) != one.timeline.last for one in known.queues if not one.closed
    )
    cause = known.cause or (known.late if undone else None)
    return f"{type(cause).__name__}: {cause}" if cause else ""


def brief(queues: list[CardQueue], blocks: Blocks, spaces: Spaces) -> list[str]:
    """Return a line for each queue with unfinished work, from memory alone, and one more for a queue of several dies,
    whose registers are read: for the notes of an error.
    """
    found = []
    for queue in queues:
        timeline = queue.timeline
        done = _completed(timeline)
        if queue.closed or done == timeline.last:
            continue
        try:
            packets = _pending(queue, blocks, spaces)
        except RingupError:
            # the ring lies in memory of a card that is gone
            packets = []
        names = ", ".join(f"{name} x{len(list(same))}" for name, same in groupby(one.name for one in packets[:PACKETS]))
        found.append(f"{queue.name}: {done} of {timeline.last} done; not done: {names}")
        found += _stands(queue)
    return found


def _stands(queue: CardQueue) -> list[str]:
    """Return which dies the others wait for, and what a queue of HSA waits for."""
    told = []
    try:
        if isinstance(queue.hardware, SpreadHqd) and (behind := queue.hardware.position().behind):
            told.append(f"{queue.name}: {behind} is behind the other dies")
        return told + (queue.stands() if isinstance(queue, AqlQueue) else [])
    except RingupError:
        return told


def _completed(timeline: Timeline) -> int:
    """Return the value that is done, or was done when the card last answered."""
    try:
        return timeline.completed
    except RingupError:
        return timeline.known


class _Maker:
    """Fills a report, part by part."""

    def __init__(self, known: Known, report: Report) -> None:
        self._known, self._report = known, report

    def queues(self) -> None:
        for queue in self._known.queues:
            if not queue.closed:
                self._report.queues.append(self._queue(queue))

    def _queue(self, queue: CardQueue) -> QueueReport:
        state, at_bytes = {"wptr (ours)": f"{queue.ring.wptr:#x}"}, -1
        if not self._known.unreachable:
            try:
                more, at_bytes = _pointers(queue)
                state |= more
            except Exception as error:  # noqa: BLE001  the ring is in memory and is reported all the same
                self._report.miss(f"pointers of {queue.name}", error)
        packets: tuple[str, ...] = ()
        done, last = _completed(queue.timeline), queue.timeline.last
        if done != last:
            try:
                packets = tuple(_packet_lines(queue, self._known.blocks, self._known.spaces, at_bytes))
            except Exception as error:  # noqa: BLE001  the ring may lie in memory of a card that is gone; the rest is reported
                self._report.miss(f"packets of {queue.name}", error)
        return QueueReport(queue.name, str(queue.hardware), done, last, state, packets)

    def processors(self) -> None:
        """List the card's processors that do not answer or make no progress. The power controller is asked now; the
        others' last answers are used.
        """
        known, silent = self._known, self._report.silent
        blocks = known.blocks
        blocks.smu.ping()
        silent += filter(None, (blocks.smu.mailbox.heard.silent, blocks.psp.ring.heard.silent))
        if not blocks.psp.alive:
            silent.append(
                "the security processor (PSP, MP0) runs no secure OS any more: it was reset behind the driver's back"
            )
        silent += [
            f"the compute micro engine (MEC){_of(blocks, core)} is halted: no compute queue goes on"
            for core in blocks.cores
            if core.halted
        ]
        silent += [f"SDMA{engine.index} is halted: no queue of it goes on" for engine in blocks.sdma if engine.halted]
        now = blocks.registers.clock.now_us
        for queue, (done, since_us) in known.stalled.items():
            if not queue.closed and _completed(queue.timeline) == done != queue.timeline.last:
                stood = f"{queue.name} has stood at {done} of {queue.timeline.last} since a wait ran out {(now - since_us) / 1e6:.3g} s ago"
                silent.append(f"{queue.hardware.engine_name} does not go on: {stood}")

    def registers(self) -> None:
        blocks, shown = self._known.blocks, self._report.registers
        for core in blocks.cores:
            words = {name: repr(word) for name, word in core.status().items() if int(word)}
            shown[f"graphics core{_of(blocks, core)}"] = words
        for engine in blocks.sdma:
            shown[f"SDMA{engine.index}"] = {name: repr(word) for name, word in engine.status.items() if int(word)}

    def waves(self) -> None:
        blocks = self._known.blocks
        for core in blocks.cores:
            if core.shape is None:
                continue
            xcc = core.xcc if len(blocks.cores) > 1 else None
            for wave in gfx_waves.waves(core.block, core.shape, WAVES, xcc):
                ours = self._known.programs.values() if wave.vmid == USER_VMID else ()
                where = next(filter(None, (program.where(wave.pc) for program in ours)), "in no program that is loaded")
                self._report.waves.append(f"{wave}: {where}")

    def memory(self) -> None:
        spaces = self._known.spaces
        self._report.memory = {place: asdict(usage) for place, usage in spaces.user.stats().items()}
        held = sorted(
            ((size, holder) for part in (spaces.vram.visible, spaces.vram.hidden) for _, size, holder in part)
        )
        self._report.holders = [
            f"{holder or 'unnamed'}: {size} bytes of vram" for size, holder in held[: -HOLDERS - 1 : -1]
        ]


def _of(blocks: Blocks, core: Gfx) -> str:
    """Name a core of several."""
    return f" of XCC {core.xcc}" if len(blocks.cores) > 1 else ""


def _pointers(queue: CardQueue) -> tuple[dict[str, str], int]:
    """Return a queue's registers as text, and its read pointer in bytes."""
    at = queue.position()
    rptr = f"{at.rptr_bytes:#x}" + (f" (of {at.behind}, behind the others)" if at.behind else "")
    shown = {"mapped": str(at.mapped), "rptr": rptr, "wptr": f"{at.wptr_bytes:#x}"}
    return shown | {name: repr(word) for name, word in at.status.items()}, at.rptr_bytes


def _decoder(queue: CardQueue, blocks: Blocks, spaces: Spaces) -> Decoder:
    def fetch(gpu_va: int, size_bytes: int) -> bytes:
        buffer = spaces.user.find(gpu_va)
        if buffer is None:
            raise ValueError(f"{gpu_va:#x} is not to be seen from here")
        at = gpu_va - buffer.gpu_va
        return bytes(spaces.user.access(buffer)[at : at + size_bytes])

    if isinstance(queue, AqlQueue):
        return AqlDecoder(blocks.ips.version("gc"), fetch)
    if isinstance(queue, ComputeQueue):
        return Pm4Decoder(blocks.ips.version("gc"), fetch)
    return SdmaDecoder(blocks.ips.version("sdma0"), fetch)


def _unfinished(queue: CardQueue) -> tuple[int, int]:
    """Return where the packets that are not known to be done begin and end. Those of HSA that were taken are no longer
    in the ring.
    """
    start, end = queue.ring.unfinished()
    return (max(start, min(queue.taken_bytes, end)) if isinstance(queue, AqlQueue) else start), end


def _pending(queue: CardQueue, blocks: Blocks, spaces: Spaces) -> list[Packet]:
    """Return the packets that are not known to be done."""
    start, end = _unfinished(queue)
    ring = bytes(spaces.user.access(queue.memory.ring)[:])
    return decode_ring(_decoder(queue, blocks, spaces), ring, start, end, 1)


def _packet_lines(queue: CardQueue, blocks: Blocks, spaces: Spaces, rptr_bytes: int) -> Iterator[str]:
    """Yield the text of some packets around the read pointer. The engine has fetched what lies before the pointer,
    which need not be done.
    """
    size, (start, _) = queue.ring.size_bytes, _unfinished(queue)
    packets = _pending(queue, blocks, spaces)
    behind = (rptr_bytes - start) % size if rptr_bytes >= 0 else 0
    at = next((n for n, one in enumerate(packets) if one.offset_dwords * DWORD_BYTES >= behind), len(packets))
    first = max(0, min(at - PACKETS // 2, len(packets) - PACKETS))
    if first:
        yield f"  ({first} packets before)"
    for number, packet in enumerate(packets[first : first + PACKETS], first):
        mark = HERE if number == at and rptr_bytes >= 0 else " "
        text = list(lines([packet], everything=False))
        most = CALL_LINES if packet.inner else PACKET_LINES
        yield from (f"{mark if n == 0 else ' '} {line}" for n, line in enumerate(text[:most]))
        if len(text) > most:
            yield f"      ({len(text) - most} lines more)"
    rest = len(packets) - first - PACKETS
    if rest > 0:
        yield f"  ({rest} packets more)"
