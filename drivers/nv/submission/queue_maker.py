"""Makes the queues of an NVIDIA card: gives a channel memory, joins the parts, runs what a new channel runs first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ringup.drivers.buffer import Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.nv.submission.card_queue import ComputeQueue, ComputeStreams, CopyQueue, CopyStreams
from ringup.drivers.nv.submission.queue_memory import ENTRIES, ChannelQueueMemory
from ringup.drivers.submission.card_queue import CardQueue, CardQueueParts
from ringup.drivers.submission.hardware_queue import COMPUTE, HardwareQueue
from ringup.drivers.submission.queue_maker import QueueMaker
from ringup.drivers.submission.queue_memory import ARGS_BYTES, INDIRECT_BYTES, RING_BYTES, UserSpace
from ringup.queues.arena import Arena
from ringup.queues.commands import Commands
from ringup.queues.nv.compute_stream import ComputeCommands
from ringup.queues.nv.copy_stream import CopyCommands
from ringup.queues.nv.gpfifo import Gpfifo
from ringup.queues.nv.program import LocalMemory
from ringup.queues.nv.rows import GenerationRow
from ringup.queues.queue import Owner
from ringup.queues.ring import Ring
from ringup.queues.timeline import Timeline, Waiter

N = TypeVar("N", "ComputeQueue", "CopyQueue")
# TIMEOUT: ours, for the first methods of a channel, behind the work of other processes
SETUP_S = 5.0


class AnyChannel(HardwareQueue, Protocol):
    """A channel, whichever driver makes it."""

    @property
    def put_cell(self) -> memoryview:
        """The index behind the last entry, where the card looks for it: one dword."""
        ...

    def ring(self, value: int) -> None:
        """Ring the doorbell; `value` is of no use."""
        ...


class Made(NamedTuple):
    """What a queue is made of."""

    parts: CardQueueParts
    gpfifo: Gpfifo
    memory: ChannelQueueMemory


class ChannelMaker(QueueMaker):
    """The queues of one card."""

    def __init__(
        self, card: str, space: UserSpace, where: Where, waiter: Waiter, owner: Owner, row: GenerationRow
    ) -> None:
        super().__init__(card, space, where, waiter, owner)
        self.row = row

    @abstractmethod
    def channel(self, memory: ChannelQueueMemory, engine: int) -> AnyChannel:
        """Return a channel that is not made yet. `engine`: the number of a copy engine, or `COMPUTE`."""

    @property
    def fence(self) -> Callable[[], None] | None:
        """What makes stores into the card's memory arrive before what is stored behind it; None where nothing is
        needed.
        """
        return None

    @property
    @abstractmethod
    def tpcs(self) -> int:
        """How many TPCs (pairs of streaming multiprocessors) the chip has."""

    @property
    @abstractmethod
    def copy_engines(self) -> int:
        """How many copy engines there are."""

    def copy(self, engine: int) -> CopyQueue:
        """Make another queue of a copy engine. Raises a `ValueError` for an engine that the card does not have."""
        if not 0 <= engine < self.copy_engines:
            raise ValueError(f"{self._card} has copy engines 0 to {self.copy_engines - 1}, not {engine}")
        made, streams = self._copy_parts(engine, self._free_name(f"copy {engine}"))
        return self._set_up(self.add(partial(CopyQueue, made.parts, made.gpfifo, streams), made.memory))

    def compute(self) -> ComputeQueue:
        """Make another queue of the graphics engine."""
        made, streams = self._compute_parts(self._free_name("compute"))
        return self._set_up(self.add(partial(ComputeQueue, made.parts, made.gpfifo, streams), made.memory))

    def replace(self, queue: CardQueue) -> None:
        """Give new parts to a queue of a card that lost its memory. Raises what `compute` and `copy` raise."""
        if isinstance(queue, CopyQueue):
            made, copy_streams = self._copy_parts(queue.hardware.engine_number, queue.name)
            self._set_up(self.add(partial(CopyQueue, made.parts, made.gpfifo, copy_streams), made.memory))
            queue.replace_parts(made.parts, made.gpfifo, copy_streams)
        elif isinstance(queue, ComputeQueue):
            made, streams = self._compute_parts(queue.name)
            self._set_up(self.add(partial(ComputeQueue, made.parts, made.gpfifo, streams), made.memory))
            queue.replace_parts(made.parts, made.gpfifo, streams)
        else:
            raise TypeError(f"{queue!r} is no queue of {self._card}")
        # the parts were tried by a queue of their own, which is not used any more
        self.queues[-1] = queue

    def _copy_parts(self, engine: int, name: str) -> tuple[Made, CopyStreams]:
        """Return what a copy queue is made of that is not mapped yet."""
        commands = CopyCommands(self.row)
        memory = ChannelQueueMemory(self._space, self._where, name)
        with undone_on_error(memory.free):
            made = self._join(name, commands, memory, self.channel(memory, engine))
        return made, CopyStreams(commands, self._owner)

    def _compute_parts(self, name: str) -> tuple[Made, ComputeStreams]:
        """Return what a compute queue is made of that is not mapped yet."""
        commands = ComputeCommands(self.row)
        memory = ChannelQueueMemory(self._space, self._where, name)
        with undone_on_error(memory.free):
            made = self._join(name, commands, memory, self.channel(memory, COMPUTE))
        local = LocalMemory(self.row, self.tpcs, partial(_local_memory, memory))
        return made, ComputeStreams(commands, self._owner, local)

    def _set_up(self, queue: N) -> N:
        """Run what a new channel runs first."""
        with undone_on_error(partial(queue.close, patient=False)):
            _run_first(queue)
        return queue

    def _free_name(self, stem: str) -> str:
        taken = {queue.name for queue in self.queues}
        number = next(n for n in range(len(taken) + 1) if (f"{stem}.{n}" if n else stem) not in taken)
        return f"{stem}.{number}" if number else stem

    def _join(self, name: str, commands: Commands, memory: ChannelQueueMemory, channel: AnyChannel) -> Made:
        args, indirect = self.access(memory.args), self.access(memory.indirect)
        entries, ring = self.access(memory.gpfifo), self.access(memory.ring)
        word = memory.word_in_page()
        gpfifo = Gpfifo(
            memory.ring.gpu_va,
            RING_BYTES,
            ENTRIES,
            entries.write,
            channel.put_cell,
            partial(channel.ring, 0),
            fence=self.fence,
            view=entries.view,
        )
        parts = CardQueueParts(
            name=name,
            commands=commands,
            timeline=Timeline(f"{self._card} {name}", word.read, word.gpu_va, self._space, self._waiter),
            ring=Ring(f"the ring of {name}", RING_BYTES, ring.write, gpfifo.publish, view=ring.view),
            args=Arena(memory.args.gpu_va, ARGS_BYTES, args.write, args.view),
            indirect=Arena(memory.indirect.gpu_va, INDIRECT_BYTES, indirect.write, indirect.view),
            owner=self._owner,
            hardware=channel,
            memory=memory,
            doorbell=channel,
            services=self,
        )
        return Made(parts, gpfifo, memory)

    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Make a queue's channel anew after a reset; its memory is unchanged. Undone work fails with `cause`."""
        queue.restart(cause)
        queue.store_timeline()
        queue.hardware.map()
        if isinstance(queue, (ComputeQueue, CopyQueue)):
            _run_first(queue)


def _run_first(queue: ComputeQueue | CopyQueue) -> None:
    """Run what a new channel runs first."""
    stream = queue.stream()
    # before all else, what begins every stream included
    stream.body[:0] = queue.setup
    queue.submit(stream).wait(SETUP_S)


def _local_memory(memory: ChannelQueueMemory, size_bytes: int) -> int:
    """Return the address of memory for the threads of a channel, which stays as long as the queue."""
    return memory.take(size_bytes, "local memory").gpu_va
