"""Queues of a Radeon that amdgpu drives: the kernel maps them, this process fills and rings them.

Source: Linux amdkfd kfd_queue.c (which memory a queue needs, kfd_queue_ctx_save_restore_size), kfd_mqd_manager_v11.c,
kfd_mqd_manager_v9.c (init_mqd_v9_4_3); ROCr hsakmt queues.c.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ringup.autogen.amd import kfd
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.kfd.memory import PAGE_BYTES, KfdMemory
from ringup.drivers.amd.submission.aql_maker import AqlMaker, Core
from ringup.drivers.amd.submission.aql_queue import READ_AT, WRITE_AT, AqlQueue
from ringup.drivers.amd.submission.card_queue import ComputeQueue, ComputeStreams, CopyQueue, CopyStreams
from ringup.drivers.amd.submission.hsa_signals import HsaSignals, Signal
from ringup.drivers.amd.submission.publisher import Publisher
from ringup.drivers.amd.submission.queue_maker import RadeonQueueMaker
from ringup.drivers.amd.submission.queue_memory import EOP_BYTES, OBJECT_AT, RPTR_AT, WPTR_AT, RadeonQueueMemory
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.poll import Poller
from ringup.drivers.submission.card_queue import CardQueueParts
from ringup.drivers.submission.hardware_queue import COMPUTE, Position
from ringup.drivers.submission.queue_memory import RING_BYTES
from ringup.drivers.transport.kfd.calls import Created, Queue, QueueSpec
from ringup.drivers.transport.kfd.device import KfdDevice
from ringup.drivers.transport.kfd.topology import Node
from ringup.drivers.transport.linux.mmio import MappedWindow
from ringup.errors import DeviceLost, NotSupported
from ringup.queues.amd.aql import PACKET_BYTES
from ringup.queues.amd.aql_stream import AqlCommands
from ringup.queues.amd.dies import Dies
from ringup.queues.amd.hsa_objects import Apertures, queue_object
from ringup.queues.amd.packets import KernelEvent
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.program import Scratch
from ringup.queues.amd.sdma_stream import SdmaCommands
from ringup.queues.queue import Owner

APERTURE_SHIFT = 48  # of the bases that kernels see of LDS and scratch
# older kernels choose the engine. Source: kfd_ioctl.h, "1.17 - Add SDMA queue creation with target SDMA engine ID"
CHOOSES_ENGINE = (1, 17)
# bytes of a queue's page: the pointers that its engine reads and writes
POINTERS_AT = {kind: (READ_AT, WRITE_AT) if kind is Queue.AQL else (RPTR_AT, WPTR_AT) for kind in Queue}
OWN_VMID = 0  # of indirect packets: a queue without privileges has its own in any case


class SaveArea(NamedTuple):
    """Memory for the waves of a compute queue that the kernel takes off its place, in bytes.

    `waves` holds the control stack and the registers, `whole` the debugger's part too.
    """

    control_stack: int
    waves: int
    whole: int


class CoreRow(NamedTuple):
    """What a compute unit's waves take when they are saved; `waves_of_engine`: more than that, no engine starts."""

    vgpr_bytes: int
    waves_of_unit: int
    waves_of_engine: int
    stack_bytes_of_wave: int


# Source: kfd_queue.c: kfd_get_vgpr_size_per_cu, kfd_queue_ctx_save_restore_size, and the constants beside them
SGPR_BYTES, LDS_BYTES, HWREG_BYTES = 0x4000, 0x10000, 0x1000
HEADER_BYTES, DEBUGGER_BYTES_OF_WAVE, DEBUGGER_ALIGN = 40, 32, 64
NO_LIMIT = 1 << 30
RDNA = CoreRow(0x40000, 32, NO_LIMIT, 12)
RDNA_OF_MANY_VGPRS = RDNA._replace(vgpr_bytes=0x60000)
CDNA3 = CoreRow(0x80000, 40, 512, 8)
# by gfx_target_version
CORES = {
    90402: CDNA3,
    110000: RDNA_OF_MANY_VGPRS,
    110001: RDNA_OF_MANY_VGPRS,
    110002: RDNA,
    120000: RDNA_OF_MANY_VGPRS,
    120001: RDNA_OF_MANY_VGPRS,
}


def save_area(node: Node) -> SaveArea:
    """Return the sizes that the kernel wants for a node's compute queues. Kernels before 6.12 do not tell them.

    Sizes of the control stack and of the waves are of one die, the whole is of all.
    """
    seen = node.properties
    row = CORES.get(seen.get("gfx_target_version", 0))
    if row is None:
        raise NotSupported(f"queues of {node.target} through amdkfd; ringup drives gfx942, gfx11 and gfx12")
    count = dies(node)
    units, engines = compute_units(node) // count, shader_engines(node) // count
    waves_at_once = min(units * row.waves_of_unit, engines * row.waves_of_engine)
    stack = _pages(HEADER_BYTES + waves_at_once * row.stack_bytes_of_wave + 8)
    waves = stack + _pages(units * (row.vgpr_bytes + SGPR_BYTES + LDS_BYTES + HWREG_BYTES))
    stack, waves = seen.get("ctl_stack_size") or stack, seen.get("cwsr_size") or waves
    debugger = _aligned(waves_at_once * DEBUGGER_BYTES_OF_WAVE, DEBUGGER_ALIGN)
    return SaveArea(stack, waves, _pages((waves + debugger) * count))


def dies(node: Node) -> int:
    """Return how many dies (XCCs) the node's graphics core is."""
    return max(node.properties.get("num_xcc", 1), 1)


def compute_units(node: Node) -> int:
    """Return how many compute units a node has."""
    return node.properties.get("simd_count", 0) // max(node.properties.get("simd_per_cu", 1), 1)


def shader_engines(node: Node) -> int:
    """Return how many shader engines a node has."""
    return node.properties.get("array_count", 0) // max(node.properties.get("simd_arrays_per_engine", 1), 1)


def _pages(size_bytes: int) -> int:
    return _aligned(size_bytes, PAGE_BYTES)


def _aligned(size_bytes: int, to_bytes: int) -> int:
    return -(-size_bytes // to_bytes) * to_bytes


class KfdDoorbell:
    """The doorbell of a queue, once the kernel has mapped it; another one when it is mapped again."""

    def __init__(self) -> None:
        self.ring: Callable[[int], None] = _no_doorbell

    def connect(self, window: MappedWindow, index: int) -> None:
        """Ring the doorbell at this dword of the window from now on."""
        self.ring = partial(window.write64, index * 4)

    def disconnect(self) -> None:
        """Ring nothing: the doorbell may become another queue's."""
        self.ring = _no_doorbell


def _no_doorbell(value: int) -> None:
    """Drop a write pointer of a queue that is not mapped: it begins anew at 0."""


class KfdQueue:
    """A queue that the kernel schedules; `HardwareQueue` of the submission layer."""

    def __init__(
        self,
        device: KfdDevice,
        spec: QueueSpec,
        doorbell: KfdDoorbell,
        engine: int,
        pointers: Callable[[], bytes],
        clear: Callable[[], None] | None = None,
    ) -> None:
        """`pointers` reads the page that begins with the read pointer. `clear` makes 0 what dies that share the queue
        count in.
        """
        self._device, self._spec, self._doorbell, self._pointers = device, spec, doorbell, pointers
        self._clear, self._was_mapped = clear, False
        self.engine_number = engine
        self.engine_name = "the kernel's compute scheduler" if engine == COMPUTE else f"copy engine {engine}"
        self.created: Created | None = None

    def __str__(self) -> str:
        return f"queue {self.created.number if self.created else 'unmapped'} of amdkfd"

    def map(self) -> None:
        """Let the kernel run the queue; its pointers start at 0. Raises `OutOfMemory` when there are no more queues."""
        if self._clear is not None and self._was_mapped:
            self._clear()
        created = self._device.calls.create_queue(self._device.gpu_id, self._spec)
        with undone_on_error(lambda: self._device.calls.destroy_queue(created.number)):
            self._doorbell.connect(*self._device.doorbell(created.doorbell_offset))
        self.created, self._was_mapped = created, True

    def unmap(self) -> bool:
        """Take the queue off; the kernel ends work that it has begun."""
        created, self.created = self.created, None
        self._doorbell.disconnect()
        if created is not None:
            try:
                self._device.calls.destroy_queue(created.number)
            except DeviceLost:
                return False
        return True

    def reset(self) -> None:
        """Take the queue off even if its work has not ended."""
        self.unmap()

    def position(self) -> Position:
        """Read where the queue stands: from the pointers in its memory."""
        page, unit = self._pointers(), 4 if self._spec.kind is Queue.PM4 else 1
        rptr, wptr = (int.from_bytes(page[at : at + 8], "little") * unit for at in (RPTR_AT, WPTR_AT))
        return Position(self.created is not None, rptr, wptr, {})


class KfdHostDataPath:
    """Flushes what the host wrote into visible VRAM, by the register that amdgpu lets every process reach.

    Source: amdgpu nbio_v4_3.c, hdp_v6_0.c; amdkfd kfd_chardev.c, kfd_mmio_mmap.
    """

    def __init__(self, device: KfdDevice, memory: KfdMemory) -> None:
        self._device, self._memory = device, memory
        self._window: MappedWindow | None = None
        self._handle = 0
        self.flushes = 0

    def request(self) -> None:
        """Flush if there is visible VRAM: posted writes stay in order, so it arrives before every later write."""
        if self._memory.has_visible_vram:
            self.flushes += 1
            self._registers().write32(kfd.KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL, 0)

    def flush(self) -> None:
        """Flush and wait until it has arrived."""
        self.request()
        # ORDER: a read of the card pushes the posted write. The flush register itself must not be read, some boards
        # stall on it (hdp_v6_0.c), so a byte of visible VRAM is
        self._memory.touch()

    def close(self) -> None:
        """Give the page back. Twice is harmless."""
        if self._handle:
            handle, self._handle = self._handle, 0
            self._device.calls.free(handle)

    def _registers(self) -> MappedWindow:
        if self._window is None:
            device = self._device
            made = device.calls.alloc(
                device.gpu_id,
                0,
                PAGE_BYTES,
                kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP,
                doing="the page of flush registers",
            )
            with undone_on_error(lambda: device.calls.free(made.handle)):
                self._window = device.flush_window(made.mmap_offset)
            self._handle = made.handle
        return self._window


class KfdQueues(RadeonQueueMaker):
    """The queues of this process on one card."""

    def __init__(
        self, device: KfdDevice, memory: KfdMemory, gc: Version, sdma: Version, waiter: Poller, owner: Owner
    ) -> None:
        super().__init__(device.name, memory, "host", waiter, owner)
        self._device, self._memory = device, memory
        self.hdp = KfdHostDataPath(device, memory)
        event = KernelEvent(device.interrupts.slot_va, device.interrupts.signal)
        self._aql = AqlMaker(
            memory,
            "host",
            HsaSignals(memory, waiter, "host", self.hdp.flush, interrupts=True, event=event),
            partial(AqlCommands, gc, event=event),
            owner,
            device.clock,
        )
        self._pm4 = Pm4Commands(gc, event=event)
        self._sdma = SdmaCommands(sdma, OWN_VMID, event=event)
        self._made = 0

    def before_mapping(self) -> None:
        """Do nothing: rings and pointers lie in host memory."""

    def compute(self) -> ComputeQueue:
        """Make another compute queue. Raises `OutOfMemory` when the kernel gives no more.

        Where the graphics core is several dies, one of them runs it: amdkfd lets queues of HSA alone span dies.
        """
        memory = RadeonQueueMemory(self._memory, "host", name := self._name("compute"))
        with undone_on_error(memory.free):
            spec = self._compute_spec(Queue.PM4, memory)
            parts = self._parts(name, self._pm4, memory, spec, COMPUTE, unit_bytes=4)
            core, page = self._core, memory.page
            self.access(page).write(OBJECT_AT, queue_object(core.apertures))
            scratch = Scratch(core.scratch_slots // core.dies, memory.scratch)
            streams = ComputeStreams(self._pm4, self._owner, scratch, core.shader_engines, page.gpu_va + OBJECT_AT)
        return self.add(partial(ComputeQueue, parts, streams), memory)

    def aql(self) -> AqlQueue:
        """Make another compute queue that takes packets of HSA. Raises `OutOfMemory` when the kernel gives no more."""
        name, number, count = self._name("aql"), self._made, dies(self._device.node)
        memory = RadeonQueueMemory(self._memory, "host", name)
        with undone_on_error(memory.free):
            meeting = None if count == 1 else memory.meeting(visible=False)
            commands = self._aql.commands(None if meeting is None else Dies(count, meeting.gpu_va))
            spec = self._compute_spec(Queue.AQL, memory)
            parts = self._parts(name, commands, memory, spec, COMPUTE, unit_bytes=PACKET_BYTES, meeting=meeting)
            streams = self._aql.streams(memory, self._core, number, commands)
        return self.add(partial(AqlQueue, parts, streams), memory)

    def hsa_signal(self, value: int, where: Where | None, name: str) -> Signal:
        """Return a signal for packets of HSA. Raises what `HsaSignals.make` raises."""
        return self._aql.signal(value, where, name)

    def copy(self, engine: int) -> CopyQueue:
        """Make another queue of a copy engine. Raises `OutOfMemory` when the kernel gives no more."""
        engines = self._device.node.properties.get("num_sdma_engines", 0)
        if engine not in range(engines):
            raise ValueError(f"copy engines 0 to {engines - 1} are there, not {engine!r}")
        name = self._name(f"copy {engine}")
        memory = RadeonQueueMemory(self._memory, "host", name)
        with undone_on_error(memory.free):
            kind = Queue.SDMA_OF_ENGINE if self._device.calls.version >= CHOOSES_ENGINE else Queue.SDMA
            spec = QueueSpec(kind=kind, engine=engine, **_places(memory, *POINTERS_AT[kind]))
            parts = self._parts(name, self._sdma, memory, spec, engine, unit_bytes=1)
        return self.add(partial(CopyQueue, parts, CopyStreams(self._sdma, self._owner)), memory)

    def _compute_spec(self, kind: Queue, memory: RadeonQueueMemory) -> QueueSpec:
        """Return a queue that runs waves, with memory for those that the kernel takes off."""
        area = save_area(self._device.node)
        eop, saved = memory.take(EOP_BYTES, "EOP", cached=False), memory.take(area.whole, "saved waves")
        return QueueSpec(
            kind=kind,
            eop_va=eop.gpu_va,
            eop_bytes=EOP_BYTES,
            save_va=saved.gpu_va,
            save_bytes=area.waves,
            control_stack_bytes=area.control_stack,
            **_places(memory, *POINTERS_AT[kind]),
        )

    @property
    def _core(self) -> Core:
        node, apertures = self._device.node, self._device.gpu.apertures
        seen, units, count = node.properties, compute_units(node), dies(node)
        # dies may have different units, of which the kernel tells the sum: each gets memory for a whole one
        most = units if count == 1 else seen.get("array_count", 0) * seen.get("cu_per_simd_array", 0)
        return Core(
            Apertures(apertures.lds_base >> APERTURE_SHIFT, apertures.scratch_base >> APERTURE_SHIFT),
            units,
            seen.get("simd_per_cu", 0) * seen.get("max_waves_per_simd", 0),
            seen.get("max_slots_scratch_cu", 0) * most,
            shader_engines(node) // count,
            count,
        )

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}.{self._made - 1}"

    def _parts(
        self,
        name: str,
        commands: Pm4Commands | SdmaCommands | AqlCommands,
        memory: RadeonQueueMemory,
        spec: QueueSpec,
        engine: int,
        *,
        unit_bytes: int,
        meeting: Buffer | None = None,
    ) -> CardQueueParts:
        doorbell, page, aql = KfdDoorbell(), self.access(memory.page), spec.kind is Queue.AQL
        pointers_at = POINTERS_AT[spec.kind]
        renew = None if meeting is None else partial(self._memory.renew, meeting)
        hardware = KfdQueue(self._device, spec, doorbell, engine, lambda: bytes(page[: WPTR_AT + 8]), renew)
        publisher = Publisher(
            self.hdp, page.at(pointers_at[1]), doorbell,
            unit_bytes=unit_bytes, polled=True, through_window=False, rings_last=aql,
        )  # fmt: skip
        return self.join(
            name, commands, memory, hardware, doorbell, publisher, memory.timeline_word(None),
            ring=self._aql.ring(name, memory, publisher) if aql else None, pointers_at=pointers_at,
        )  # fmt: skip


def _places(memory: RadeonQueueMemory, rptr_at: int, wptr_at: int) -> dict[str, int]:
    """Return where ring and pointers of a queue lie."""
    return {
        "ring_va": memory.ring.gpu_va,
        "ring_bytes": RING_BYTES,
        "rptr_va": memory.page.gpu_va + rptr_at,
        "wptr_va": memory.page.gpu_va + wptr_at,
    }
