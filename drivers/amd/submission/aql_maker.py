"""What every driver of a Radeon does to make queues of HSA: the queue's object, its ring, the packets that it needs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ringup.drivers.amd.submission.aql_queue import AqlStreams, taken
from ringup.drivers.amd.submission.hsa_signals import HsaSignals, Signal
from ringup.drivers.amd.submission.publisher import Publisher
from ringup.drivers.amd.submission.queue_memory import INACTIVE_AT, OBJECT_AT, RadeonQueueMemory
from ringup.drivers.buffer import Where
from ringup.drivers.memory.access import Access
from ringup.drivers.submission.queue_memory import PAGE_BYTES, RING_BYTES, UserSpace
from ringup.drivers.transport.seam import Clock
from ringup.queues.amd.aql import PACKET_BYTES
from ringup.queues.amd.aql_ring import AqlRing
from ringup.queues.amd.aql_stream import AqlCommands
from ringup.queues.amd.dies import Dies
from ringup.queues.amd.hsa_objects import Apertures, Engine, queue_object, signal_object
from ringup.queues.amd.program import Scratch
from ringup.queues.queue import Owner


class Core(NamedTuple):
    """What a queue's object and scratch memory depend on: the card's."""

    apertures: Apertures
    compute_units: int
    waves_per_unit: int
    scratch_slots: int
    shader_engines: int
    # that share the queue
    dies: int = 1


class MakeCommands(Protocol):
    """Makes the packets of HSA's queues. `begin_va`: a page."""

    def __call__(self, begin_va: int, *, dies: Dies | None = ...) -> AqlCommands:
        """Return them."""
        ...


class AqlMaker:
    """Makes what the HSA queues of one card have, and its signals."""

    def __init__(
        self,
        space: UserSpace,
        where: Where,
        signals: HsaSignals,
        make_commands: MakeCommands,
        owner: Owner,
        clock: Clock,
    ) -> None:
        self._space, self._where, self._owner, self._clock = space, where, owner, clock
        self._signals, self._make_commands = signals, make_commands
        # of queues that no dies share: the packets, and the PM4 with which their submissions begin; made for the first
        self._commands: AqlCommands | None = None
        self._begin_va = 0

    def commands(self, dies: Dies | None = None) -> AqlCommands:
        """Return the packets of an HSA queue, for which a page of PM4 is stored at the first call. `dies`: that share
        the queue.
        """
        if self._commands is None:
            space = self._space
            page = space.alloc(PAGE_BYTES, self._where, visible=True, name="PM4 of HSA queues", cached=False)
            self._begin_va = page.gpu_va
            self._commands = self._make_commands(page.gpu_va)
            space.access(page).write(0, self._commands.begin_pm4)
        return self._commands if dies is None else self._make_commands(self._begin_va, dies=dies)

    def signal(self, value: int, where: Where | None, name: str) -> Signal:
        """Return a signal for packets of HSA. Raises what `HsaSignals.make` raises."""
        return self._signals.make(value, where, name)

    def ring(self, name: str, memory: RadeonQueueMemory, publisher: Publisher) -> AqlRing:
        """Return the ring of a queue."""
        write, page = self._space.access(memory.ring).write, self._space.access(memory.page)
        return AqlRing(f"the ring of {name}", RING_BYTES, write, publisher.publish, taken(name, page, self._clock))

    def streams(self, memory: RadeonQueueMemory, core: Core, number: int, commands: AqlCommands) -> AqlStreams:
        """Write the queue's object and its inactive signal, and return what else the queue has. `number`: of the
        queue, whose packets are `commands`.
        """
        page: Access = self._space.access(memory.page)
        engine = Engine(
            memory.ring.gpu_va, RING_BYTES // PACKET_BYTES, number, core.compute_units, core.waves_per_unit,
            memory.page.gpu_va + INACTIVE_AT,
        )  # fmt: skip
        page.write(OBJECT_AT, queue_object(core.apertures, engine))
        page.write(INACTIVE_AT, signal_object(0))
        return AqlStreams(
            commands, self._owner, Scratch(core.scratch_slots, memory.scratch, core.dies), core.shader_engines, page,
            self._space.access(memory.ring), self._signals, self._clock,
        )  # fmt: skip
