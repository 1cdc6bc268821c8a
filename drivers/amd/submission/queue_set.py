"""The queues of a card: makes them, maps them, finds out how they are rung, takes them off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, Doorbell
from ringup.drivers.amd.bus.ih_decode import Interrupt
from ringup.drivers.amd.gfx.core import PRIVATE_BASE, SHARED_BASE
from ringup.drivers.amd.gfx.hqd import ComputeHardware, Place, SpreadHqd
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.sdma import QUEUES as SDMA_QUEUES
from ringup.drivers.amd.gfx.sdma import SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.gfx.waves import SIMDS
from ringup.drivers.amd.memory.spaces import USER_VMID, Spaces
from ringup.drivers.amd.submission.aql_maker import AqlMaker, Core
from ringup.drivers.amd.submission.aql_queue import READ_AT, WRITE_AT, AqlQueue, AqlStreams
from ringup.drivers.amd.submission.bounce import Bounce
from ringup.drivers.amd.submission.card_queue import ComputeQueue, ComputeStreams, CopyQueue, CopyStreams
from ringup.drivers.amd.submission.hsa_signals import HsaSignals, Signal
from ringup.drivers.amd.submission.publisher import Publisher
from ringup.drivers.amd.submission.queue_maker import RadeonQueueMaker
from ringup.drivers.amd.submission.queue_memory import (
    EOP_BYTES,
    MQD_BYTES,
    OBJECT_AT,
    RPTR_AT,
    WPTR_AT,
    RadeonQueueMemory,
)
from ringup.drivers.amd.submission.signals import WORD_BITS, Signals
from ringup.drivers.buffer import Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.poll import Poller
from ringup.drivers.submission.card_queue import BytePath, CardQueue, CardQueueParts, CopyVerbs
from ringup.drivers.submission.hardware_queue import HardwareQueue
from ringup.drivers.submission.queue_maker import Q
from ringup.drivers.submission.queue_memory import PAGE_BYTES, RING_BYTES, QueueMemory
from ringup.drivers.transport import bars
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceTimeout, NotSupported
from ringup.queues.amd.aql import PACKET_BYTES
from ringup.queues.amd.aql_stream import AqlCommands
from ringup.queues.amd.dies import MEETING_BYTES, Dies
from ringup.queues.amd.hsa_objects import Apertures, queue_object
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.program import Scratch
from ringup.queues.amd.sdma_stream import SdmaCommands
from ringup.queues.queue import Inline, Owner
from ringup.queues.timeline import Point

LOG = logging.getLogger(__name__)
APERTURES = Apertures(SHARED_BASE, PRIVATE_BASE)
HEARD_US, HEARD_POLL_US = 50_000, 1_000  # TIMEOUT: ours, for a queue of an engine that idles to do nothing


class QueueSet(RadeonQueueMaker):
    """Makes queues of one card that is up and takes them down."""

    def __init__(
        self, blocks: Blocks, spaces: Spaces, waiter: Poller, owner: Owner, signals: Signals | None = None
    ) -> None:
        """`signals`: words that are read in one round trip, given on a path that maps nothing; rings lie in VRAM
        there.
        """
        super().__init__(blocks.device.name, spaces.user, "host" if signals is None else "vram", waiter, owner)
        self._signals, self._blocks, self._spaces = signals, blocks, spaces
        interrupts, bits = signals is None, 64 if signals is None else WORD_BITS
        self._interrupts, self._word_bits = interrupts, bits
        # of queues that no dies share
        self._pm4 = Pm4Commands(blocks.ips.version("gc"), interrupts=interrupts, word_bits=bits)
        self._sdma = SdmaCommands(blocks.ips.version("sdma0"), USER_VMID, interrupts=interrupts, word_bits=bits)
        # by kind of hardware: whether queues react to nothing less than both halves of a doorbell
        self._both_halves: dict[type, bool] = {}
        self._bounce: Bounce | None = None
        self._bridge_pages: dict[int, int] = {}  # gpu_va by bus address
        self._doorbells = bars.window(blocks.device, DOORBELL_BAR)
        self._aql = AqlMaker(
            spaces.user,
            self._where,
            HsaSignals(spaces.user, waiter, self._where, blocks.hdp.flush, interrupts=interrupts),
            partial(AqlCommands, blocks.ips.version("gc"), interrupts=interrupts, word_bits=bits),
            owner,
            blocks.device.clock,
        )

    def compute(self) -> ComputeQueue:
        """Map another compute queue. Raises `NotSupported` when all are in use."""
        parts, streams = self._compute_parts()
        return self._add(partial(ComputeQueue, parts, streams), parts.memory)

    def aql(self) -> AqlQueue:
        """Map another compute queue that takes packets of HSA. Raises `NotSupported` when all are in use."""
        parts, streams = self._aql_parts()
        return self._add(partial(AqlQueue, parts, streams), parts.memory)

    def hsa_signal(self, value: int, where: Where | None, name: str) -> Signal:
        """Return a signal for packets of HSA. Raises what `HsaSignals.make` raises."""
        return self._aql.signal(value, where, name)

    def copy(self, engine: int) -> CopyQueue:
        """Map another queue of a copy engine. Raises `NotSupported` when all are in use."""
        parts, streams = self._copy_parts(engine)
        return self._add(partial(CopyQueue, parts, streams), parts.memory)

    def replace(self, queue: CardQueue) -> None:
        """Give new parts to a queue of a card that lost its memory. Raises what `compute` and `copy` raise."""
        if isinstance(queue, CopyQueue):
            parts, copy_streams = self._copy_parts(queue.hardware.engine_number)
            self._add(partial(CopyQueue, parts, copy_streams), parts.memory)
            queue.replace_parts(parts, copy_streams)
        elif isinstance(queue, AqlQueue):
            parts, aql_streams = self._aql_parts()
            self._add(partial(AqlQueue, parts, aql_streams), parts.memory)
            queue.replace_parts(parts, aql_streams)
        else:
            assert isinstance(queue, ComputeQueue)  # there is no fourth kind
            parts, compute_streams = self._compute_parts()
            self._add(partial(ComputeQueue, parts, compute_streams), parts.memory)
            queue.replace_parts(parts, compute_streams)
        # the parts were tried by a queue of their own, which is not used any more
        self.queues[-1] = queue

    def _add(self, make: Callable[[], Q], memory: QueueMemory) -> Q:
        """Make a queue of parts, map it, and find out how it is rung. Where that fails its memory is freed."""
        queue = self.add(make, memory)
        if self._where == "vram":
            with undone_on_error(partial(queue.close, patient=False)):
                self._learn_to_ring(queue)
        return queue

    def _compute_parts(self) -> tuple[CardQueueParts, ComputeStreams]:
        """Return what a compute queue is made of that is not mapped yet."""
        number = self._free_number()
        memory = RadeonQueueMemory(self._spaces.user, self._where, name := f"compute {number}", self._spaces.system)
        with undone_on_error(memory.free):
            page, ring = memory.page, memory.ring
            index, hardware = self._hardware(number, memory, (RPTR_AT, WPTR_AT))
            # the command processor learns of work by doorbells alone (`Gfx` switches its polling off): another store
            # would be a round trip
            polled = self._signals is None
            dies, version = self._dies(memory), self._blocks.ips.version("gc")
            pm4 = self._pm4
            if dies is not None:
                pm4 = Pm4Commands(version, interrupts=self._interrupts, word_bits=self._word_bits, dies=dies)
            inline = Inline(ring.gpu_va, pm4.carry) if self._signals is not None else None
            parts = self._parts(name, pm4, memory, hardware, index, unit_bytes=4, polled=polled, inline=inline)
            self.access(page).write(OBJECT_AT, queue_object(APERTURES))
            engines, object_va = self._blocks.ips.shape.shader_engines, page.gpu_va + OBJECT_AT
            scratch = Scratch(self._scratch_slots(), memory.scratch, len(self._blocks.cores))
            streams = ComputeStreams(pm4, self._owner, scratch, engines, object_va)
        return parts, streams

    def _aql_parts(self) -> tuple[CardQueueParts, AqlStreams]:
        """Return what a compute queue for packets of HSA is made of that is not mapped yet."""
        number = self._free_number()
        blocks = self._blocks
        memory = RadeonQueueMemory(self._spaces.user, self._where, name := f"aql {number}", self._spaces.system)
        with undone_on_error(memory.free):
            commands = self._aql.commands(self._dies(memory))
            index, hardware = self._hardware(number, memory, (READ_AT, WRITE_AT), aql=True)
            parts = self._parts(
                name, commands, memory, hardware, index,
                unit_bytes=PACKET_BYTES, polled=True, aql=True, pointers_at=(READ_AT, WRITE_AT),
            )  # fmt: skip
            row, slots, engines = blocks.gfx.row, self._scratch_slots(), blocks.ips.shape.shader_engines
            waves_of_cu = SIMDS * row.waves // row.cus_of_unit
            core = Core(APERTURES, blocks.cu_total, waves_of_cu, slots, engines, len(blocks.cores))
            streams = self._aql.streams(memory, core, number, commands)
            if self._where == "vram":
                blocks.hdp.flush()
        return parts, streams

    def _dies(self, memory: RadeonQueueMemory) -> Dies | None:
        """Return the dies that share a queue, None where the graphics core is one."""
        count = len(self._blocks.cores)
        return None if count == 1 else Dies(count, memory.meeting().gpu_va)

    def refused(self, interrupt: Interrupt) -> str:
        """Return which packet of HSA an interrupt of the command processor is about, and what is wrong with it. Empty
        for another interrupt.
        """
        me, pipe, number = interrupt.queue
        for queue in self.queues:
            hardware = queue.hardware
            if (
                isinstance(queue, AqlQueue)
                and isinstance(hardware, ComputeHardware)
                and hardware.is_at(me, pipe, number)
            ):
                return queue.refused
        return ""

    def _free_number(self) -> int:
        """Return the number of a compute queue that is not in use."""
        gfx, doorbells = self._blocks.gfx, self._blocks.doorbells
        used = {queue.hardware.place for queue in self.queues if isinstance(queue.hardware, ComputeHardware)}
        count = min(gfx.pipes * gfx.row.queues, len(doorbells.compute))
        number = next((n for n in range(count) if _place(n, gfx.pipes) not in used), None)
        if number is None:
            raise NotSupported(f"all {count} compute queues of the card are in use; close one")
        return number

    def _hardware(
        self, number: int, memory: RadeonQueueMemory, pointers_at: tuple[int, int], *, aql: bool = False
    ) -> tuple[int, ComputeHardware]:
        """Return the doorbell and the hardware of a compute queue. `pointers_at`: bytes of the queue's page."""
        cores, page = self._blocks.cores, memory.page
        count = len(cores)
        mqd, eop = memory.mqd(count), memory.eop(count)
        self.access(eop).write(0, bytes(EOP_BYTES * count))  # as gfx_v11_0_mec_init does
        index, (rptr_at, wptr_at) = self._blocks.doorbells.compute_index(number), pointers_at
        spec = QueueSpec(
            memory.ring.gpu_va, RING_BYTES // 4, page.gpu_va + rptr_at, page.gpu_va + wptr_at, eop.gpu_va, EOP_BYTES,
            mqd.gpu_va, USER_VMID, index, aql=aql, xccs=count,
        )  # fmt: skip
        place, descriptors = _place(number, cores[0].pipes), self._spaces.system.access(mqd)
        parts = [
            core.queue(place, spec.of_die(xcc), descriptors.part(xcc * MQD_BYTES, MQD_BYTES), self._blocks.hdp.flush)
            for xcc, core in enumerate(cores)
        ]
        if count == 1:
            return index, parts[0]
        meeting = self.access(memory.meeting())
        return index, SpreadHqd(parts, partial(meeting.write, 0, bytes(MEETING_BYTES)), self._blocks.hdp.flush)

    def _scratch_slots(self) -> int:
        """Return how many waves have scratch memory at the same time."""
        cores = self._blocks.cores
        # dies whose fuses differ have parts for the largest
        most = max(core.shape.cu_total for core in cores if core.shape is not None) * len(cores)
        return self._blocks.ips.shape.scratch_slots_per_cu * most

    def _copy_parts(self, engine: int) -> tuple[CardQueueParts, CopyStreams]:
        """Return what a queue of a copy engine is made of that is not mapped yet."""
        engines = self._blocks.sdma
        if engine not in range(len(engines)):
            raise ValueError(f"copy engines 0 to {len(engines) - 1} are there, not {engine!r}")
        sdma = engines[engine]
        used = {
            queue.hardware.number
            for queue in self.queues
            if isinstance(queue.hardware, SdmaQueue) and queue.hardware.engine is sdma
        }
        number = next((n for n in range(SDMA_QUEUES) if n not in used), None)
        if number is None:
            raise NotSupported(f"all {SDMA_QUEUES} queues of copy engine {engine} are in use; close one")
        name = f"copy {engine}.{number}"
        memory = RadeonQueueMemory(self._spaces.user, self._where, name)
        with undone_on_error(memory.free):
            index, page = self._blocks.doorbells.sdma_index(engine, number), memory.page
            spec = SdmaQueueSpec(
                memory.ring.gpu_va, RING_BYTES // 4, page.gpu_va + RPTR_AT, page.gpu_va + WPTR_AT, USER_VMID, index
            )
            hardware = SdmaQueue(sdma, number, spec)
            parts = self._parts(name, self._sdma, memory, hardware, index, unit_bytes=1, polled=True)
        return parts, CopyStreams(self._sdma, self._owner)

    def _parts(
        self,
        name: str,
        commands: Pm4Commands | SdmaCommands | AqlCommands,
        memory: RadeonQueueMemory,
        hardware: HardwareQueue,
        index: int,
        *,
        unit_bytes: int,
        polled: bool,
        inline: Inline | None = None,
        aql: bool = False,
        pointers_at: tuple[int, int] = (RPTR_AT, WPTR_AT),
    ) -> CardQueueParts:
        """Return what a queue is made of. `index`: its doorbell's; `unit_bytes`: what that counts; `polled`: its engine
        looks at the pointer in memory too; `aql`: its ring is one of HSA.
        """
        through_window, device, hdp = self._where == "vram", self._blocks.device, self._blocks.hdp
        doorbell = Doorbell(self._doorbells, index, halved=through_window)
        page = self.access(memory.page)
        # VRAM holds old bytes: pointers and counts of an earlier queue
        if through_window:
            page.write(0, bytes(PAGE_BYTES))
            hdp.flush()
        publisher = Publisher(
            hdp, page.at(pointers_at[1]), doorbell, device.remote,
            unit_bytes=unit_bytes, polled=polled, through_window=through_window, rings_last=aql,
        )  # fmt: skip
        ring = self._aql.ring(name, memory, publisher) if aql else None
        word = memory.timeline_word(self._signals)
        return self.join(
            name, commands, memory, hardware, doorbell, publisher, word,
            inline=inline, ring=ring, pointers_at=pointers_at,
        )  # fmt: skip

    def _learn_to_ring(self, queue: CardQueue) -> None:
        """Find out, with the first queue of a kind, whether it reacts to half a doorbell. Raises `DeviceTimeout` when
        it reacts to nothing.
        """
        kind, doorbell = type(queue.hardware), queue.doorbell
        assert isinstance(doorbell, Doorbell)  # as `_parts` made it
        if kind in self._both_halves:
            if self._both_halves[kind]:
                doorbell.ring_both()
            return
        point = queue.submit(queue.stream())
        both = not self._heard(point)
        if both:
            LOG.info("%s: it hears nothing of the low half of its doorbell alone", queue.name)
            doorbell.ring_both()
            queue.ring.publish()
            if not self._heard(point):
                raise DeviceTimeout(
                    f"mapping {queue.name}: it did not begin what it was given within {HEARD_US / 1e3:g} ms, whether its doorbell was rung with "
                    "its low half or with both; reset the card, or switch the enclosure off and on"
                )
        self._both_halves[kind] = both

    def _heard(self, point: Point) -> bool:
        clock = self._blocks.device.clock
        return poll(lambda: point.done, bool, clock=clock, timeout_us=HEARD_US, poll_us=HEARD_POLL_US)

    def before_mapping(self) -> None:
        """Flush what went through the window."""
        if self._where == "vram":
            self._blocks.hdp.flush()

    def byte_path(self, queue: CopyVerbs) -> BytePath:
        """Return what a queue moves bytes through: the bridge's memory, which all queues share, where there is one;
        else its own staging memory.
        """
        remote, signals = self._blocks.device.remote, self._signals
        bulk = remote.bulk if remote is not None else None
        if bulk is None or signals is None or not bulk.drain_bytes:
            return super().byte_path(queue)
        if self._bounce is None:
            memory = BusMemory(bulk.bus_addr, bulk.total_bytes)
            memory_va = self._spaces.user.import_host(memory, "the bridge's memory", seen=False).gpu_va
            go_va, release_va = self._bridge_word(bulk.go_bus_addr), self._bridge_word(bulk.release_bus_addr)
            progress_va = self._bridge_word(bulk.progress_bus_addr)
            self._bounce = Bounce(bulk, memory_va, go_va, release_va, progress_va, self._blocks.device.clock)
        return self._bounce

    def _bridge_word(self, bus_addr: int | None) -> int | None:
        """Return the address of a word of the bridge for queues."""
        if bus_addr is None:
            return None
        offset = bus_addr % PAGE_BYTES
        page = bus_addr - offset
        if page not in self._bridge_pages:
            memory = BusMemory(page, PAGE_BYTES)
            self._bridge_pages[page] = self._spaces.user.import_host(memory, "words of the bridge", seen=False).gpu_va
        return self._bridge_pages[page] + offset


def _place(number: int, pipes: int) -> Place:
    """Return where compute queue `number` lies: neighbours on different pipes, which run at once."""
    return Place(number % pipes, number // pipes)
