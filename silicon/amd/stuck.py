"""What is stuck in a virtual Radeon, and what a driver did wrong.

Stuck are: queues and what their packets wait for, waves and where they are, stale translations, doorbells that no queue
listens to. Looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ringup.silicon.common.witness import Observation, describe_wait, observations
from ringup.silicon.shader.amd.decoding.decode import IllegalInstruction, decode, of_wave
from ringup.silicon.shader.amd.decoding.generations import generation
from ringup.silicon.shader.amd.decoding.text import text
from ringup.silicon.shader.common.state import WaveState

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.amd.gc.cp.queue import Queue
    from ringup.silicon.amd.gc.dispatch import Grid
    from ringup.silicon.amd.sdma.engine import Queue as CopyQueue
    from ringup.silicon.amd.sdma.engine import Sdma

PAGE_BYTES = 4096
# from a fault to the record of what it stopped
STOPS_WITHIN_US = 10.0
# places of one grid's waves that are listed
MAX_PLACES = 8
# of one instruction
MAX_INSTRUCTION_BYTES = 12


def mistakes(card: VirtualRadeon) -> Iterator[Observation]:
    """Yield the broken rules, then the page faults. A fault that stopped a queue is left out: the queue's violation
    says more.
    """
    broken = list(observations(card.violations, card.name))
    yield from broken
    stops = [(one.gpu_va // PAGE_BYTES, one.time_us) for one in broken]
    for fault in observations(card.page_faults, card.name):
        page = fault.gpu_va // PAGE_BYTES
        if not any(at == page and 0 <= time_us - fault.time_us <= STOPS_WITHIN_US for at, time_us in stops):
            yield fault


def unfinished(card: VirtualRadeon) -> Iterator[Observation]:
    """Yield everything in progress that is stalled or waits, including what only needs more time."""
    now_us = card.clock.now_us
    for number, found in enumerate(_all(card)):
        words, pc, vmid = found
        yield Observation(f"{card.name} {now_us}.{number}", now_us, words, pc, vmid=vmid)
    yield from observations(card.unheard, card.name)


def _all(card: VirtualRadeon) -> Iterator[tuple[str, int, int]]:
    for number, core in enumerate(card.cores):
        where = f"XCC {number}, " if len(card.cores) > 1 else ""
        for queue in core.cp.queues.values():
            if queue.connected:
                # waves first: the queue may be waiting for them to end
                for grid in queue.grids:
                    yield from ((where + line, pc, vmid) for line, pc, vmid in _grid(card, number, queue, grid))
                yield from ((where + line, -1, -1) for line in _queue(queue))
    for hub in (*card.gfxhubs, *card.mmhubs):
        for vmid, leaf, now in islice(hub.stale(), MAX_PLACES):
            held = f"{hub.row.name} still translates {leaf.gpu_va:#x} of vmid {vmid} by entry {leaf.flags:#x}, address {leaf.address:#x}"
            yield f"{held}; the page tables say {now}: an invalidation is missing", -1, vmid
    for engine in card.sdma:
        for copy in engine.queues:
            yield from ((line, -1, -1) for line in _copy(engine, copy))


def _queue(queue: Queue) -> Iterator[str]:
    name, parser = f"queue {queue.hqd.slot}", queue.parser
    if queue.hung:
        yield f"{name} stands: {queue.hung}"
    elif parser is not None and parser.awaited is not None:
        yield f"{name} waits in {parser.packet or 'its next packet'}: {describe_wait(parser.awaited)}"
    elif queue.hqd.pending_dwords and not queue.cp.may_run(queue.hqd.slot):
        yield f"{name} has {queue.hqd.pending_dwords:#x} dwords to do, and its engine is halted"


def _copy(engine: Sdma, queue: CopyQueue) -> Iterator[str]:
    name = f"{engine.name} queue {queue.number}"
    if queue.stopped:
        yield f"{name} stands: {queue.stopped}"
    elif queue.awaited is not None:
        yield f"{name} waits in a packet at {queue.packet_va:#x}: {describe_wait(queue.awaited)}"
    elif queue.ring is not None and queue.ring.position != queue.ring.end and not engine.running:
        yield f"{name} has {queue.ring.end - queue.ring.position:#x} bytes to do, and its engine is halted"


def _grid(card: VirtualRadeon, core: int, queue: Queue, grid: Grid) -> Iterator[tuple[str, int, int]]:
    """Yield the places where a grid's waves are: first those that run, then those at a barrier."""
    run, vmid, slot = grid.run, grid.order.vmid, queue.hqd.slot
    if run is None:
        return
    arrived = {wave.name for wave in run.arrived}
    places: dict[tuple[bool, int], list[WaveState]] = {}
    for wave in run.waves:
        places.setdefault((wave.name in arrived, wave.pc), []).append(wave)
    shown = sorted(places.items(), key=lambda place: (place[0][0], -len(place[1])))
    for (waits, pc), waves in shown[:MAX_PLACES]:
        first = waves[0]
        count = "1 wave" if len(waves) == 1 else f"{len(waves)} waves"
        what = (
            "at a barrier that not all waves of the group have reached, before" if waits
            else "halted, before" if grid.hung
            else "running, before"
        )  # fmt: skip
        line = (
            f"queue {slot}: {count} {what} {pc:#x}: {_instruction(card, core, vmid, first)}; the first is {first.name}"
        )
        yield f"{line}, of {run.instructions} instructions so far", pc, vmid
    if len(shown) > MAX_PLACES:
        yield f"queue {slot}: waves at {len(shown) - MAX_PLACES} more places", -1, -1


def _instruction(card: VirtualRadeon, core: int, vmid: int, wave: WaveState) -> str:
    """Return the text of the instruction that a wave executes next, if its memory can be read. The read is not
    recorded.
    """
    hub = card.gfxhubs[core]
    size = hub.reach(vmid, wave.pc, MAX_INSTRUCTION_BYTES)
    if not size:
        return "its memory cannot be read"
    try:
        code = hub.read(vmid, wave.pc, size, "SQC")
        return text(of_wave(decode(code, 0, generation(card.gc.dispatcher.engine.target)), wave.wave_size))
    except IllegalInstruction as error:
        return str(error)
