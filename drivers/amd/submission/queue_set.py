"""The queues of a card: memory for rings, fences and arguments, hardware queues mapped, and the neutral `Queue` on
top.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.bus import doorbells
from ringup.drivers.amd.bus.access import Access
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, Doorbell
from ringup.drivers.amd.gfx.core import PRIVATE_BASE, SHARED_BASE
from ringup.drivers.amd.gfx.hqd import QUEUES, Hqd, Place
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.sdma import QUEUES as SDMA_QUEUES
from ringup.drivers.amd.gfx.sdma import SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.memory.spaces import USER_VMID, Spaces
from ringup.drivers.amd.submission import transfer
from ringup.drivers.amd.submission.bounce import Bounce
from ringup.drivers.amd.submission.signals import WORD_BITS, Signals, TimelineWord
from ringup.drivers.amd.submission.transfer import Staging
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport import bars
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.errors import DeviceTimeout, NotSupported, RingupError
from ringup.queues.amd.pm4_stream import ComputeStream, Pm4Commands, queue_object
from ringup.queues.amd.program import Scratch
from ringup.queues.amd.sdma_stream import CopyStream, SdmaCommands
from ringup.queues.arena import Arena
from ringup.queues.kept import Kept
from ringup.queues.queue import TIMEOUT_S, Inline, Owner, Queue, Stream
from ringup.queues.ring import Ring
from ringup.queues.timeline import Point, Timeline, Waiter

LOG = logging.getLogger(__name__)
RING_BYTES = 64 << 10
ARGS_BYTES = 1 << 20
INDIRECT_BYTES = 1 << 20
EOP_BYTES = 4096
HEARD_US, HEARD_POLL_US = 50_000, 1_000  # TIMEOUT: ours, for a queue of an engine that idles to do nothing
CLOSE_S = 1.0  # TIMEOUT: ours, for work under way when its queue is closed
MQD_BYTES = 4096
PAGE_BYTES = 4096
# of a queue's page: the read pointer that the engine reports, the write pointer, the timeline, a cache line each; what
# kernels see of the queue
RPTR_AT, WPTR_AT, TIMELINE_AT, OBJECT_AT = 0, 64, 128, 1024


class QueueMemory:
    """Memory of one queue. Rings, timeline and arguments lie where both sides reach them: host memory, or VRAM where
    the path has no other.
    """

    def __init__(self, spaces: Spaces, where: Where, name: str) -> None:
        def take(size_bytes: int, what: str) -> Buffer:
            return user.alloc(size_bytes, where, visible=True, name=f"{name}: {what}", cached=False)

        user = spaces.user
        self._spaces, self._where, self._name = spaces, where, name
        self.buffers: list[tuple[Any, Buffer]] = []
        with undone_on_error(self.free):
            self.ring = self._keep(user, take(RING_BYTES, "ring"))
            self.page = self._keep(user, take(PAGE_BYTES, "pointers and timeline"))
            self.args = self._keep(user, take(ARGS_BYTES, "kernel arguments"))
            self.indirect = self._keep(user, take(INDIRECT_BYTES, "indirect buffers"))

    word: Any = None  # of its timeline, once there is one
    doorbell: Doorbell

    def _keep(self, memory: Any, buffer: Buffer) -> Buffer:
        self.buffers.append((memory, buffer))
        return buffer

    def eop(self) -> Buffer:
        """Return a buffer for work that ends out of order; VRAM, so that no card writes to a dead process's memory.

        Not cached: what the engine stores there behind the last write-back must not come out of L2 over the memory's
        next owner.
        """
        memory = self._spaces.user
        buffer = memory.alloc(EOP_BYTES, "vram", visible=True, name=f"{self._name}: EOP", cached=False)
        return self._keep(memory, buffer)

    def mqd(self) -> Buffer:
        """Return a page of system space for the queue's descriptor."""
        memory = self._spaces.system
        return self._keep(memory, memory.alloc(MQD_BYTES, "vram", visible=True, name=f"{self._name}: descriptor"))

    def staging(self, what: str) -> transfer.Place:
        """Return memory that bytes are moved through."""
        memory = self._spaces.user
        size, name = transfer.STAGING_BYTES, f"{self._name}: {what}"
        buffer = self._keep(memory, memory.alloc(size, self._where, visible=True, name=name, cached=False))
        return transfer.Place(buffer.gpu_va, memory.access(buffer))

    def scratch(self, size_bytes: int) -> int:
        """Return the address of scratch memory that stays as long as the queue."""
        memory = self._spaces.user
        return self._keep(memory, memory.alloc(size_bytes, "vram", name=f"{self._name}: scratch")).gpu_va

    def holds(self, buffer: Buffer) -> bool:
        """Tell whether the queue reaches a buffer of a user's: its card handed it out."""
        return buffer.belongs_to(self._spaces.user)

    def free(self, *, watched: bool = False) -> None:
        """Give everything back. `watched`: engines may still look at the timeline, whose page then stays until the card
        is closed.
        """
        if self.word is not None and not watched:
            self.word.give_back()
        while self.buffers:
            memory, buffer = self.buffers.pop()
            if not buffer.freed and not (watched and buffer is self.page):
                memory.free(buffer)


class CardQueue(Queue):
    """A queue of a Radeon: the neutral one, and what lies below it."""

    hardware: Hqd | SdmaQueue
    memory: QueueMemory
    map: Callable[[], None]
    kept: weakref.WeakSet[Kept]
    leave: Callable[[CardQueue], None]
    release: Callable[[], None]  # stores the timeline's last value, for engines that wait for it
    watched: Callable[[], bool]  # whether other queues have work under way, which may wait for this one's points
    streams: Callable[[], Any]
    alloc: Callable[[int], tuple[int, Callable[[int, bytes | bytearray], None], Callable[[], None]]]

    def keep(self, stream: Stream, copies: int = 2) -> Kept:
        """Put a stream into the card's memory, to be patched and submitted again."""
        kept = Kept(self, stream, self.alloc, copies)
        self.kept.add(kept)
        return kept

    def idle(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all that was submitted is done."""
        Point(self.timeline, self.timeline.last).wait(timeout_s)

    @property
    def closed(self) -> bool:
        """Whether it was taken off for good."""
        return not self.memory.buffers

    def lose(self, cause: Exception, how: str) -> None:
        """Let all go that lay in the card's memory, which is gone: undone work fails with `cause`, uses of kept streams
        say `how`.
        """
        self.timeline = self.timeline.fail(cause)
        for kept in self.kept:
            kept.lose(how)

    def become(self, other: CardQueue) -> None:
        """Take over all that `other`, made anew, consists of; the count of the timeline goes on."""
        # never back: what it was tried with when it was made stands in memory already
        other.timeline.skip_to(max(self.timeline.last, other.timeline.last))
        self.__dict__.clear()
        self.__dict__.update(other.__dict__)

    def close(self, *, patient: bool = True) -> bool:
        """Take the queue off the hardware and free its memory; whether its work had ended. Twice is harmless.

        What was submitted gets a second to end, if `patient`; what has not ended then is killed, its points fail, and
        queues that wait for them go on.
        """
        self._owner.check()
        if self.closed:  # its hardware may be another's by now
            return True
        if patient:
            with suppress(RingupError):  # told by the points themselves
                self.idle(CLOSE_S)
        done = self.timeline.idle
        ended = self.hardware.unmap() and done
        cause = ValueError(f"{self.name} was closed")
        self.timeline.fail(cause)  # before its memory goes; what was done stays done
        if not done and self.watched():  # as amdgpu_fence_driver_force_completion does for a ring that hangs
            self.release()
        self.memory.free(watched=self.watched())
        self.refuse(cause)
        self.leave(self)
        return ended

    def refuse(self, cause: Exception) -> None:
        """Raise `cause` from now on to whoever begins or submits something."""
        self._owner = Owner(self.name)
        self._owner.refuse(cause)
        self.streams = self._owner.admit


class ComputeQueue(CardQueue):
    """A compute queue; it takes PM4."""

    def stream(self) -> ComputeStream:
        """Return an empty stream."""
        stream: ComputeStream = self.streams()
        return stream


class CopyQueue(CardQueue):
    """A queue of a copy engine; it takes SDMA packets."""

    def stream(self) -> CopyStream:
        """Return an empty stream."""
        stream: CopyStream = self.streams()
        return stream

    def close(self, *, patient: bool = True) -> bool:
        """Take the queue off as any other; one whose engine waits for bytes that will not come gets no second to
        end.
        """
        broken = isinstance(self._staged, Bounce) and self._staged.broken is not None
        return super().close(patient=patient and not broken)

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware."""
        super().restart(cause)
        if self._staged is not None:
            self._staged.forget()

    def clear(self) -> None:
        """Wait until what is submitted next will start at once. Raises what a point's `wait` raises."""
        if not self.clear_ahead:
            self.submit(self.stream()).wait()

    def upload(self, target: Buffer, data: Any, offset_bytes: int = 0) -> Point:
        """Copy host bytes (buffer protocol or `__dlpack__`) into a buffer. They are read now, so they may change
        afterwards.
        """
        view = transfer.host_bytes(data)
        target_va, _ = self._range(target, offset_bytes, len(view))
        return self._path().upload(self, target_va, view) or self._last()

    def download(
        self, source: Buffer, out: Any = None, offset_bytes: int = 0, size_bytes: int | None = None
    ) -> bytes | Any:
        """Copy bytes of a buffer to the host and wait for them: into `out` (a writable buffer, all of it) or into new
        bytes.

        `size_bytes`: the rest of the buffer when left out. Returns what was filled.
        """
        if out is None:
            source_va, size = self._range(source, offset_bytes, size_bytes)
            result = bytearray(size)
            view = memoryview(result)
        else:
            result, view = out, transfer.host_bytes(out)
            if view.readonly:
                raise ValueError("what is to be filled is read-only")
            if size_bytes not in (None, len(view)):
                raise ValueError(f"what is to be filled has {len(view)} bytes, not {size_bytes}")
            source_va, _ = self._range(source, offset_bytes, len(view))
        self._path().download(self, source_va, view)
        return bytes(result) if out is None else out

    def download_array(self, source: Buffer, dtype: Any, shape: int | tuple[int, ...], offset_bytes: int = 0) -> Any:
        """Return a NumPy array of that type and shape from the buffer's bytes; it gives DLPack to who wants that."""
        import numpy as np  # only callers with arrays pay for it

        array = np.empty(shape, dtype)
        if array.nbytes:
            self.download(source, array.reshape(-1).view(np.uint8), offset_bytes)
        return array

    def copy_buffer(
        self,
        target: Buffer,
        source: Buffer,
        size_bytes: int | None = None,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> Point:
        """Copy between buffers, or within one: the ranges may overlap. All of the source when no size is given."""
        source_va, size = self._range(source, source_offset, size_bytes)
        target_va, _ = self._range(target, target_offset, size)
        stream = self.stream()
        stream.copy(target_va, source_va, size)
        return self.submit(stream)

    def fill(self, target: Buffer, value: int, offset_bytes: int = 0, size_bytes: int | None = None) -> Point:
        """Fill a buffer, or whole dwords of it, with a dword."""
        target_va, size = self._range(target, offset_bytes, size_bytes)
        stream = self.stream()
        stream.fill(target_va, value, size)
        return self.submit(stream)

    def copy_rect(
        self,
        target: Buffer,
        target_pitch_bytes: int,
        source: Buffer,
        source_pitch_bytes: int,
        width_bytes: int,
        height: int,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> Point:
        """Copy `height` rows of `width_bytes` whose starts lie a pitch apart in each buffer; the planes must not
        overlap.
        """
        rows = max(height - 1, 0)
        target_va, _ = self._range(target, target_offset, rows * target_pitch_bytes + width_bytes)
        source_va, _ = self._range(source, source_offset, rows * source_pitch_bytes + width_bytes)
        stream = self.stream()
        stream.copy_rect(target_va, target_pitch_bytes, source_va, source_pitch_bytes, width_bytes, height)
        return self.submit(stream)

    def _range(self, buffer: Buffer, offset_bytes: int, size_bytes: int | None) -> tuple[int, int]:
        """Return address and size of a range, None: up to the buffer's end. A `ValueError` where it leaves the buffer
        or is another card's.
        """
        if not isinstance(buffer, Buffer):
            raise TypeError(
                f"{self.name} copies between buffers, such as `card.alloc` returns, not {type(buffer).__name__}"
            )
        size = buffer.size_bytes - offset_bytes if size_bytes is None else size_bytes
        gpu_va = transfer.check_range(buffer, offset_bytes, size)
        if not self.memory.holds(buffer):
            raise ValueError(f"{buffer!r} is another card's, not {self.name}'s")
        return gpu_va, size

    def _last(self) -> Point:
        """Return the point behind all that was submitted: of a copy of nothing."""
        return Point(self.timeline, self.timeline.last)

    def _path(self) -> Staging | Bounce:
        if self._staged is None:
            self._staged = self.way(self)
        return self._staged

    _staged: Staging | Bounce | None = None
    way: Callable[[CopyQueue], Staging | Bounce]  # makes what bytes are moved through


class QueueSet:
    """Makes queues of one card that is up and takes them down."""

    def __init__(
        self, blocks: Blocks, spaces: Spaces, waiter: Waiter, owner: Owner, signals: Signals | None = None
    ) -> None:
        """`signals`: words that are looked at in one round trip, on a path that maps nothing; rings lie in VRAM
        then.
        """
        self._signals = signals
        self._blocks, self._spaces, self._waiter, self._owner = blocks, spaces, waiter, owner
        self.queues: list[CardQueue] = []
        interrupts, bits = signals is None, 64 if signals is None else WORD_BITS
        self._pm4 = Pm4Commands(blocks.ips.version("gc"), interrupts=interrupts, word_bits=bits)
        self._sdma = SdmaCommands(blocks.ips.version("sdma0"), USER_VMID, interrupts=interrupts, word_bits=bits)
        self._where: Where = "host" if signals is None else "vram"
        self._both_halves: dict[type, bool] = {}  # whether queues on such hardware hear nothing less
        self._bounce: Bounce | None = None
        self._bridge_pages: dict[int, int] = {}  # gpu_va by bus address
        self._doorbells = bars.window(blocks.device, DOORBELL_BAR)

    def compute(self) -> ComputeQueue:
        """Map another compute queue. Raises `NotSupported` when all are in use."""
        gfx, used = self._blocks.gfx, {queue.hardware.place for queue in self.queues if isinstance(queue.hardware, Hqd)}
        number = next((n for n in range(gfx.pipes * QUEUES) if _place(n, gfx.pipes) not in used), None)
        if number is None:
            raise NotSupported(f"all {gfx.pipes * QUEUES} compute queues of the card are in use; close one")
        place, name = _place(number, gfx.pipes), f"compute {number}"
        memory = QueueMemory(self._spaces, self._where, name)
        with undone_on_error(memory.free):
            page, ring, mqd, eop = memory.page, memory.ring, memory.mqd(), memory.eop()
            self._access(eop).write(0, bytes(EOP_BYTES))  # as gfx_v11_0_mec_init does
            index = doorbells.compute_index(number)
            spec = QueueSpec(
                ring.gpu_va, RING_BYTES // 4, page.gpu_va + RPTR_AT, page.gpu_va + WPTR_AT, eop.gpu_va, EOP_BYTES,
                mqd.gpu_va, USER_VMID, index,
            )  # fmt: skip
            hardware = gfx.queue(place, spec, self._spaces.system.access(mqd), self._blocks.hdp.flush)
            shape = gfx.shape
            assert shape is not None  # the core is up
            slots = self._blocks.ips.shape.scratch_slots_per_cu * shape.cu_total
            engines = self._blocks.ips.shape.shader_engines
            scratch = Scratch(slots, memory.scratch)
            # the command processor learns of work by doorbells alone (`Gfx` switches its polling off): another store
            # would be a round trip
            queue = ComputeQueue(
                *self._parts(name, self._pm4, memory, index, unit_bytes=4, polled=self._signals is None)
            )
            if self._signals is not None:
                queue.inline = Inline(ring.gpu_va, self._pm4.carry)
            queue.map = hardware.map
            page_view = self._access(page)
            page_view.write(OBJECT_AT, queue_object(SHARED_BASE, PRIVATE_BASE))
            queue.streams = lambda: ComputeStream(self._pm4, self._owner, scratch, engines, page.gpu_va + OBJECT_AT)
            hardware.map()  # ORDER: last, so that nothing which fails takes memory from a queue that is on
        self._ready(queue, hardware, memory)
        return queue

    def copy(self, engine: int) -> CopyQueue:
        """Map another queue of a copy engine. Raises `NotSupported` when all are in use."""
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
        memory = QueueMemory(self._spaces, self._where, name)
        with undone_on_error(memory.free):
            index = doorbells.sdma_index(engine, number)
            hardware, page = SdmaQueue(sdma, number), memory.page
            spec = SdmaQueueSpec(
                memory.ring.gpu_va, RING_BYTES // 4, page.gpu_va + RPTR_AT, page.gpu_va + WPTR_AT, USER_VMID, index
            )
            queue = CopyQueue(*self._parts(name, self._sdma, memory, index, unit_bytes=1, polled=True))
            queue.way = self._way
            queue.map = lambda: hardware.map(spec)
            queue.streams = lambda: CopyStream(self._sdma, self._owner)
            hardware.map(spec)  # ORDER: last, likewise: an engine that is on polls the write pointer
        self._ready(queue, hardware, memory)
        return queue

    def _ready(self, queue: CardQueue, hardware: Hqd | SdmaQueue, memory: QueueMemory) -> None:
        queue.hardware, queue.memory, queue.alloc = hardware, memory, self._kept_memory
        queue.kept, queue.leave = weakref.WeakSet(), self._forget
        queue.release = lambda: memory.word.store(queue.timeline.last)
        queue.watched = lambda: any(not other.timeline.idle for other in self.queues if other is not queue)
        self.queues.append(queue)
        if memory.doorbell.halved:
            with undone_on_error(lambda: queue.close(patient=False)):
                self._learn_to_ring(queue)

    def _learn_to_ring(self, queue: CardQueue) -> None:
        """Find out, with the first queue of a kind, what it hears of half a doorbell. Raises `DeviceTimeout` when it
        hears nothing at all.
        """
        kind, doorbell = type(queue.hardware), queue.memory.doorbell
        if kind in self._both_halves:
            if self._both_halves[kind]:
                doorbell.ring_both()
            return
        point = queue.submit(queue.streams())
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
        end_us = clock.now_us + HEARD_US
        while not point.done:
            if clock.now_us > end_us:
                return False
            clock.sleep_us(HEARD_POLL_US)
        return True

    def _forget(self, queue: CardQueue) -> None:
        """Let another queue have the place of one that was closed."""
        if queue in self.queues:
            self.queues.remove(queue)

    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Map a queue that a reset took off; its memory is as it was. Undone work fails with `cause`."""
        page = self._access(queue.memory.page)
        queue.restart(cause)
        # ORDER: engines look at the write pointer in memory, so it is 0 before the queue is mapped
        for place in (RPTR_AT, WPTR_AT):
            page.at(place)(0)
        queue.memory.word.store(queue.timeline.last)
        if self._where == "vram":
            self._blocks.hdp.flush()
        queue.map()

    def replace(self, queue: CardQueue) -> None:
        """Make a queue of a card that lost its memory anew, in place. Raises what `compute` and `copy` raise."""
        hardware = queue.hardware
        fresh = self.copy(hardware.engine.index) if isinstance(hardware, SdmaQueue) else self.compute()
        queue.become(fresh)
        self.queues[-1] = queue

    def _parts(
        self,
        name: str,
        commands: Pm4Commands | SdmaCommands,
        memory: QueueMemory,
        index: int,
        *,
        unit_bytes: int,
        polled: bool,
    ) -> tuple[str, Any, Timeline, Ring, Arena, Arena, Owner]:
        """Return what a `Queue` is made of. `unit_bytes`: what its doorbell counts; `polled`: its engine looks at the
        pointer in memory too.
        """
        through_window = self._where == "vram"
        memory.doorbell = doorbell = Doorbell(self._doorbells, index, halved=through_window)
        page = self._access(memory.page)
        ring, hdp, remote = self._access(memory.ring), self._blocks.hdp, self._blocks.device.remote
        if through_window:  # VRAM holds what was there before: pointers, and counts of a queue that is gone
            page.write(0, bytes(PAGE_BYTES))
            hdp.flush()
        wptr = page.at(WPTR_AT)
        memory.word = word = self._signals.timeline() if self._signals is not None else _in_page(memory.page, page)

        def publish(wptr_bytes: int) -> None:
            """Tell the engine of work.

            ORDER: what the host wrote through the window is in VRAM before the engine learns of it: by the write
            pointer in memory, which SDMA polls, or by its doorbell, before which a pointer that goes through the window
            is flushed itself. A pointer in host memory is seen at once, so there the flush has to have arrived; the
            others come behind it on the same way.
            """
            value = wptr_bytes // unit_bytes
            if polled and not through_window:
                hdp.flush()
            else:
                hdp.request()
            if polled or not through_window:
                wptr(value)
                if through_window:
                    hdp.request()
            doorbell.ring(value)
            if remote is not None:
                remote.flush()

        timeline = Timeline(
            f"{self._blocks.device.name} {name}", word.read, word.gpu_va, self._spaces.user, self._waiter,
            word_bits=word.word_bits,
        )  # fmt: skip
        args, indirect = self._access(memory.args), self._access(memory.indirect)
        return (
            name,
            commands,
            timeline,
            Ring(f"the ring of {name}", RING_BYTES, ring.write, publish, view=ring.view),
            Arena(memory.args.gpu_va, ARGS_BYTES, args.write, args.view),
            Arena(memory.indirect.gpu_va, INDIRECT_BYTES, indirect.write, indirect.view),
            self._owner,
        )

    def _way(self, queue: CopyQueue) -> Staging | Bounce:
        """Return what a queue moves bytes through: the bridge's memory where there is one, which all queues share, or
        its own staging memory.
        """
        remote, signals = self._blocks.device.remote, self._signals
        bulk = remote.bulk if remote is not None else None
        if bulk is None or signals is None or not bulk.drain_bytes:
            return Staging(queue.memory.staging("upload staging"), queue.memory.staging("download staging"))
        if self._bounce is None:
            memory = BusMemory(bulk.bus_addr, bulk.total_bytes)
            memory_va = self._spaces.user.import_host(memory, "the bridge's memory", seen=False).gpu_va
            go_va, release_va = self._bridge_word(bulk.go_bus_addr), self._bridge_word(bulk.release_bus_addr)
            progress_va = self._bridge_word(bulk.progress_bus_addr)
            self._bounce = Bounce(bulk, memory_va, go_va, release_va, progress_va, self._blocks.device.clock)
        return self._bounce

    def _bridge_word(self, bus_addr: int | None) -> int | None:
        """Return the address at which queues reach a word of the bridge's."""
        if bus_addr is None:
            return None
        offset = bus_addr % PAGE_BYTES
        page = bus_addr - offset
        if page not in self._bridge_pages:
            memory = BusMemory(page, PAGE_BYTES)
            self._bridge_pages[page] = self._spaces.user.import_host(memory, "words of the bridge", seen=False).gpu_va
        return self._bridge_pages[page] + offset

    def _access(self, buffer: Buffer) -> Access:
        return self._spaces.user.access(buffer)

    def _kept_memory(self, size_bytes: int) -> tuple[int, Callable[[int, bytes | bytearray], None], Callable[[], None]]:
        buffer = self._spaces.user.alloc(size_bytes, self._where, visible=True, name="a kept stream", cached=False)
        return buffer.gpu_va, self._access(buffer).write, buffer.free

    def close(self, *, patient: bool) -> None:
        """Take every queue off; the last one made first. Raises `DeviceHung` at the end when one did not let go.

        `patient`: the card is well, so work under way gets a second to end.
        """
        failed: Exception | None = None
        while self.queues:
            queue = self.queues.pop()
            try:
                queue.close(patient=patient)
            except Exception as error:  # noqa: BLE001  every queue gets its turn; the first error comes out
                failed = failed or error
                queue.lose(error, "closed with its card")
                queue.refuse(ValueError(f"{queue.name} was closed"))
        if failed is not None:
            raise failed


def _in_page(page: Buffer, access: Access) -> TimelineWord:
    """Return a timeline's word in its queue's page, which goes with the queue."""
    return TimelineWord(
        page.gpu_va + TIMELINE_AT, access.reader(TIMELINE_AT), access.at(TIMELINE_AT), 64, _kept_by_page
    )


def _kept_by_page() -> None:
    """Give nothing back: the page does."""


def _place(number: int, pipes: int) -> Place:
    """Return where compute queue `number` lies: neighbours on different pipes, which run at once."""
    return Place(number % pipes, number // pipes)
