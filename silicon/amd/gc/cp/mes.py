"""The scheduler firmware (MES): executes API frames from its ring, assigns VMIDs to processes and slots to queues, and
accesses registers for the host.

It has the interface of the real firmware, not its policy: queues keep their slot until removed, and a queue without a
slot waits for the next free one. Source: mes_v11_api_def.h, mes_v12_api_def.h, amdgpu mes_v11_0.c, mes_v12_0.c and
amdgpu_mes.c, amdkfd kfd_device_queue_manager.c (add_queue_mes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.cp.pm4_kiq import flush, stop_queues
from ringup.silicon.amd.gc.cp.processor import MES, MES_KIQ_PIPE, Cp
from ringup.silicon.amd.gc.cp.queue import Queue, Stop
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.common.cells import block_map

FRAME_DWORDS = 64  # API_FRAME_SIZE_IN_DWORDS
# virtual time of a frame, chosen for the model
FRAME_US = 2.0
CLIENT = "CPC"
ALL_VMIDS = 16
PAGE_TABLE_VALID = 1
# process_ctx_flush of SET_SHADER_DEBUGGER. Source: amdgpu_mes.h, mes_misc_op_input: mes_v12_0.c passes the flags on,
# and mes_v12_api_def.h calls the bit reserved
CONTEXT_FLUSH = 1 << 31
# The host sets which faults of a VMID interrupt, for all VMIDs at once and not in frames. Source:
# amdgpu_gmc_set_vm_fault_masks
FAULT_INTERRUPTS = tuple(
    f"{kind}_PROTECTION_FAULT_ENABLE_INTERRUPT"
    for kind in ("RANGE", "DUMMY_PAGE", "PDE0", "VALID", "READ", "WRITE", "EXECUTE")
)
Steps = Iterator[float] | None


class SdmaQueues(Protocol):
    """An SDMA engine as the scheduler uses it."""

    def map_queue(self, number: int, descriptor: bytes, vmid: int, privileged: bool = False) -> None:
        """Activate a queue from its descriptor."""
        ...

    def unmap_queue(self, number: int) -> int:
        """Stop a queue and return its read pointer in bytes."""
        ...

    def soft_reset(self) -> None:
        """Drop all queues and halt; firmware is kept."""
        ...


@dataclass(slots=True)
class Process:
    """A process with queues. Its VMID is programmed while it has any."""

    context: int  # process_context_addr, which identifies it
    pasid: int
    vmid: int
    queues: int = 0


@dataclass(slots=True)
class Client:
    """A queue that MES manages."""

    doorbell: int
    kind: int  # MES_QUEUE_TYPE_*
    mqd: int
    wptr_address: int
    gang: int
    process: Process | None  # None: a kernel queue
    slot: Slot | None = None
    sdma: tuple[int, int] | None = None  # engine, queue
    suspended: bool = False


@dataclass(slots=True)
class Resources:
    """The resources that SET_HW_RSRC gave to MES."""

    vmid_mask: int = 0
    compute: list[int] = field(default_factory=list)  # queue masks by pipe
    sdma: list[int] = field(default_factory=list)


class Mes:
    """The firmware on pipe 0 of micro engine 3, and on the KIQ's pipe if that has it too. Both know the same queues.
    Implements `cp.Scheduler`.
    """

    def __init__(self, cp: Cp, sdma: tuple[SdmaQueues, ...] = ()) -> None:
        self._cp, self._sdma, self._row = cp, sdma, cp.row.generation
        self._api = api = self._row.mes
        # by opcode: the layout of a frame, and what it does
        self.handlers: dict[int, tuple[Any, Handler]] = {
            getattr(api, f"MES_SCH_API_{name}"): (getattr(api, layout), handler)
            for name, (layout, handler) in HANDLERS.items()
            if hasattr(api, f"MES_SCH_API_{name}")
        }
        self._misc: dict[int, Handler] = {
            getattr(api, f"MESAPI_MISC__{name}"): handler
            for name, handler in MISC.items()
            if hasattr(api, f"MESAPI_MISC__{name}")
        }
        self.reset()
        self._gc = block_map(cp.board.chip, "gc", 0).addresses
        self._osssys = block_map(cp.board.chip, "osssys", 0).addresses

    def reset(self) -> None:
        """Forget all processes and queues."""
        self.resources = Resources()
        self.processes: dict[int, Process] = {}
        self.clients: list[Client] = []

    def _note(self, text: str, *values: object) -> None:
        self._cp.board.log.note("mes", "violation", text, *values)

    # --- the ring -----------------------------------------------------------------------------------------------
    def frames(self, queue: Queue) -> Iterator[float | None]:
        """Execute the frames of the scheduler's ring for ever."""
        hqd, hub = queue.hqd, self._cp.hub
        while True:
            if hqd.pending_dwords < FRAME_DWORDS:
                yield None
                continue
            data = b""
            # a frame may wrap around the ring's end
            while len(data) < FRAME_DWORDS * 4:
                place = (hqd.rptr + len(data) // 4) % hqd.size_dwords
                size = min(FRAME_DWORDS * 4 - len(data), (hqd.size_dwords - place) * 4)
                data += hub.read(hqd.vmid, hqd.base + place * 4, size, CLIENT)
            yield FRAME_US
            yield from self._frame(data, hqd.slot.pipe)
            hqd.rptr = hqd.rptr + FRAME_DWORDS
            if gpu_va := hqd.report_address:
                hub.write(hqd.vmid, gpu_va, hqd.rptr.to_bytes(4, "little"), CLIENT)

    def _frame(self, data: bytes, pipe: int) -> Iterator[float | None]:
        api = self._api
        head = api.MES_API_HEADER.view(bytearray(data[:4]))
        if head.type != api.MES_API_TYPE_SCHEDULER or head.dwsize != FRAME_DWORDS or head.opcode not in self.handlers:
            self._note(
                "frame {:#010x}: type {}, opcode {:#x}, {} dwords: MES stops",
                head.u32All,
                head.type,
                head.opcode,
                head.dwsize,
            )
            # the firmware has stopped: nothing answers any more
            while True:
                yield None
        layout, handler = self.handlers[head.opcode]
        if pipe == MES_KIQ_PIPE and head.opcode == api.MES_SCH_API_SET_HW_RSRC:
            handler = Mes.check_hw_resources
        frame: Any = layout.view(bytearray(data))
        self._cp.board.log.note("mes", "packet", "{}", layout.__name__)
        steps = handler(self, frame)
        if steps is not None:
            yield from steps
        status = frame.api_status
        if status.api_completion_fence_addr:
            self._store(status.api_completion_fence_addr, status.api_completion_fence_value, 8)

    def _store(self, gpu_va: int, value: int, size: int) -> None:
        self._cp.hub.write(0, gpu_va, (value & (1 << 8 * size) - 1).to_bytes(size, "little"), CLIENT)

    # --- resources and processes --------------------------------------------------------------------------------
    def set_hw_resources(self, frame: Any) -> Steps:
        """Take the VMIDs and slots that MES may assign. The other members concern speed and logging only."""
        self.resources = Resources(frame.vmid_mask_gfxhub, list(frame.compute_hqd_mask), list(frame.sdma_hqd_mask))
        return self.check_hw_resources(frame)

    def check_hw_resources(self, frame: Any) -> Steps:
        """Check what the host wants of MES. The KIQ's pipe assigns no VMIDs and slots: mes_v12_0.c, set_hw_resources,
        gives it none.
        """
        if found := [name for name in ("limit_single_process", "enable_mes_fence_int") if getattr(frame, name, 0)]:
            raise Unmodelled(f"MES SET_HW_RSRC: {', '.join(found)}")
        if frame.enable_mes_event_int_logging:
            self._cp.board.log.note(
                "mes", "unmodelled", "the event log at {:#x} stays empty", frame.event_intr_history_gpu_mc_ptr
            )
        return None

    def _write(self, name: str, value: int) -> None:
        self._cp.board.space.write(self._gc[name], value & 0xFFFF_FFFF)

    def _process(self, frame: Any) -> Process | None:
        """Find the process of ADD_QUEUE, or assign a VMID to it; None if no VMID is free."""
        known = self.processes.get(frame.process_context_addr)
        if known is not None:
            return known
        used = {process.vmid for process in self.processes.values()}
        free = [vmid for vmid in range(1, ALL_VMIDS) if self.resources.vmid_mask >> vmid & 1 and vmid not in used]
        if not free:
            return None
        process = Process(frame.process_context_addr, frame.process_id, free[0])
        self.processes[process.context] = process
        return process

    def _program(self, process: Process, frame: Any) -> Iterator[float]:
        """Set the VMID's page tables, process id and trap handler, and invalidate old translations."""
        context, slot = f"GCVM_CONTEXT{process.vmid}", Slot(3, 0, 0)
        base = frame.page_table_base_addr | PAGE_TABLE_VALID
        for name, value in (
            ("PAGE_TABLE_BASE_ADDR", base),
            ("PAGE_TABLE_START_ADDR", frame.process_va_start),
            ("PAGE_TABLE_END_ADDR", frame.process_va_end),
        ):
            self._write(f"{context}_{name}_LO32", value)
            self._write(f"{context}_{name}_HI32", value >> 32)
        if frame.vm_context_cntl:
            control, cells = f"{context}_CNTL", self._cp.cells
            kept = {name: cells.get(control, name) for name in FAULT_INTERRUPTS}
            self._write(control, cells.replace(control, frame.vm_context_cntl, **kept))
        self._cp.board.space.write(self._osssys[f"IH_VMID_{process.vmid}_LUT"], process.pasid)
        with self._cp.grbm.acting(slot, process.vmid):
            trap, memory = frame.trap_handler_addr >> 8, frame.tma_addr >> 8
            self._write("SQ_SHADER_TBA_LO", trap)
            self._write("SQ_SHADER_TBA_HI", trap >> 32 & 0xFF | (1 << 31 if trap else 0))
            self._write("SQ_SHADER_TMA_LO", memory)
            self._write("SQ_SHADER_TMA_HI", memory >> 32 & 0xFF)
        yield from flush(self._cp, 1 << process.vmid, 0)

    # --- queues -------------------------------------------------------------------------------------------------
    def add_queue(self, frame: Any) -> Steps:
        """Map a kernel queue to the slot named, or a process's queue to a free one.

        For a process's queue, `gds_size` is the size of the queue. Source: mes_v11_0.c, add_hw_queue.
        """
        wanted = ("gws_size", "oa_mask", "program_gds", "is_tmz_queue", "exclusively_scheduled", "debug_vmid")
        if found := [name for name in wanted if getattr(frame, name)]:
            raise Unmodelled(f"MES ADD_QUEUE: {', '.join(found)}")
        client = Client(
            frame.doorbell_offset, frame.queue_type, frame.mqd_addr, frame.wptr_addr, frame.gang_context_addr, None
        )
        if frame.map_legacy_kq or frame.map_kiq_utility_queue:
            client.slot = self._kernel_slot(frame)
            wrong = self._cp.map_queue(client.slot, client.mqd, client.wptr_address, client.doorbell)
            if wrong:
                self._note("ADD_QUEUE: {}: not mapped", wrong)
            else:
                self.clients.append(client)
            return None
        return self._add_user_queue(client, frame)

    def _kernel_slot(self, frame: Any) -> Slot:
        """Return the slot that a frame about a kernel's queue names. The scheduler's own ring has a type in MES 12."""
        api = self._api
        engines = {api.MES_QUEUE_TYPE_GFX: 0, api.MES_QUEUE_TYPE_COMPUTE: 1}
        if hasattr(api, "MES_QUEUE_TYPE_SCHQ"):
            engines[api.MES_QUEUE_TYPE_SCHQ] = MES
        if frame.queue_type not in engines:
            raise Unmodelled(f"MES: a kernel's queue of type {frame.queue_type}")
        return Slot(engines[frame.queue_type], frame.pipe_id, frame.queue_id)

    def _add_user_queue(self, client: Client, frame: Any) -> Iterator[float]:
        process = self._process(frame)
        if process is None:
            self._note("ADD_QUEUE: no VMID of mask {:#x} is free", self.resources.vmid_mask)
            return
        if not process.queues:
            yield from self._program(process, frame)
        process.queues += 1
        client.process = process
        self.clients.append(client)
        self._place(client)

    def _place(self, client: Client) -> None:
        """Give a client a free slot; without one it waits."""
        # kernel queues get their slot in ADD_QUEUE
        assert client.process is not None
        if client.kind == self._api.MES_QUEUE_TYPE_SDMA:
            self._place_sdma(client)
            return
        me = 0 if client.kind == self._api.MES_QUEUE_TYPE_GFX else 1
        for slot in self._free_slots(me):
            wrong = self._cp.map_queue(slot, client.mqd, client.wptr_address, client.doorbell, client.process.vmid)
            if not wrong:
                client.slot = slot
                return
        self._cp.board.log.note("mes", "queue", "the queue of doorbell {:#x} waits for a slot", client.doorbell)

    def _free_slots(self, me: int) -> Iterator[Slot]:
        for slot, queue in self._cp.queues.items():
            masks = self.resources.compute
            allowed = me == 0 or (slot.pipe < len(masks) and masks[slot.pipe] >> slot.queue & 1)
            if slot.me == me and allowed and not queue.connected:
                yield slot

    def _place_sdma(self, client: Client) -> None:
        assert client.process is not None  # the caller has checked
        layout = self._row.sdma_mqd
        image = bytearray(self._cp.hub.read(0, client.mqd, layout.SIZE, CLIENT))
        mqd: Any = layout.view(image)
        pointer = int.from_bytes(self._cp.hub.read(0, client.wptr_address, 8, CLIENT), "little")
        mqd.sdmax_rlcx_rb_wptr, mqd.sdmax_rlcx_rb_wptr_hi = pointer & 0xFFFF_FFFF, pointer >> 32
        taken = {other.sdma for other in self.clients}
        wanted = (int(mqd.sdma_engine_id), int(mqd.sdma_queue_id))
        free = [
            (engine, number)
            for engine, mask in enumerate(self.resources.sdma[: len(self._sdma)])
            for number in range(32)
            if mask >> number & 1 and (engine, number) not in taken
        ]
        if not free:
            self._cp.board.log.note(
                "mes", "queue", "the SDMA queue of doorbell {:#x} waits for a slot", client.doorbell
            )
            return
        client.sdma = wanted if wanted in free else free[0]
        self._sdma[client.sdma[0]].map_queue(client.sdma[1], bytes(image), client.process.vmid)

    def remove_queue(self, frame: Any) -> Iterator[float]:
        """Disconnect a queue from its slot and write its registers back to its MQD."""
        if frame.preempt_legacy_gfx_queue:
            self._store(frame.tf_addr, frame.tf_data, 4)
            return
        graphics = getattr(frame, "unmap_legacy_gfx_queue", 0)  # not in MES 12
        if frame.unmap_legacy_queue or graphics:
            slot = Slot(0, frame.pipe_id, frame.queue_id) if graphics else self._kernel_slot(frame)
            client = next((one for one in self.clients if one.slot == slot), None)
        else:
            client = self._by_doorbell(frame.doorbell_offset)
        if client is None:
            self._note("REMOVE_QUEUE: no queue of doorbell {:#x}", frame.doorbell_offset)
            return
        yield from self._disconnect(client)
        self.clients.remove(client)
        if client.process is not None:
            client.process.queues -= 1
            if not client.process.queues:
                del self.processes[client.process.context]
                self._cp.board.space.write(self._osssys[f"IH_VMID_{client.process.vmid}_LUT"], 0)
        self._place_waiting()

    def _place_waiting(self) -> None:
        for waiting in self.clients:
            if waiting.process is not None and waiting.slot is None and waiting.sdma is None and not waiting.suspended:
                self._place(waiting)

    def _by_doorbell(self, doorbell: int) -> Client | None:
        return next((client for client in self.clients if client.doorbell == doorbell), None)

    def _disconnect(self, client: Client) -> Iterator[float]:
        if client.sdma is not None:
            pointer = self._sdma[client.sdma[0]].unmap_queue(client.sdma[1])
            self._store(client.mqd + self._row.sdma_mqd.offset_of("sdmax_rlcx_rb_rptr"), pointer, 8)
        elif client.slot is not None:
            yield from stop_queues(self._cp, [self._cp.queues[client.slot]], Stop.SAVE)
            saved = self._cp.saved.get(client.mqd)
            if saved is not None and client.process is not None:
                saved.owner = client.process.context
        client.slot = client.sdma = None

    def unmapped_doorbell(self, index: int, value: int) -> bool:
        """Return whether a doorbell belongs to a queue without a slot; the queue reads its write pointer from memory
        when it gets one.
        """
        client = self._by_doorbell(index)
        return client is not None and client.slot is None and client.sdma is None

    def suspend(self, frame: Any) -> Iterator[float]:
        """Disconnect a gang's queues, or those of all processes, together with their waves."""
        for client in self.clients:
            if client.process is not None and (frame.suspend_all_gangs or client.gang == frame.gang_context_addr):
                yield from self._disconnect(client)
                client.suspended = True
        if frame.suspend_fence_addr:
            self._store(frame.suspend_fence_addr, frame.suspend_fence_value, 8)

    def resume(self, frame: Any) -> Steps:
        """Give suspended queues slots again."""
        for client in self.clients:
            if client.suspended and (frame.resume_all_gangs or client.gang == frame.gang_context_addr):
                client.suspended = False
                self._place(client)
        return None

    def reset_queue(self, frame: Any) -> Iterator[float]:
        """Drop what a queue is doing; it stays mapped and continues at its write pointer, unless the generation unmaps
        it.
        """
        if frame.hang_detect_only or frame.hang_detect_then_reset:
            raise Unmodelled("MES RESET with hang detection")
        if frame.reset_legacy_gfx:
            slot = Slot(0, frame.pipe_id_lp, frame.queue_id_lp)
            queue = self._cp.queues.get(slot)
        else:
            client = self._by_doorbell(frame.doorbell_offset)
            queue = None if client is None or client.slot is None else self._cp.queues[client.slot]
        if queue is None or not queue.connected:
            self._note("RESET: no queue of doorbell {:#x}", frame.doorbell_offset)
            return
        yield from stop_queues(self._cp, [queue], Stop.RESET)
        if frame.reset_legacy_gfx and self._row.reset_unmaps:
            self.clients = [client for client in self.clients if client.slot != slot]
            return
        hqd = queue.hqd
        hqd.rptr = hqd.wptr
        hqd.active = True
        queue.connect()

    # --- work for the host --------------------------------------------------------------------------------------
    def misc(self, frame: Any) -> Steps:
        """Do one MISC operation."""
        handler = self._misc.get(frame.opcode)
        if handler is None:
            raise Unmodelled(f"MES MISC operation {frame.opcode}")
        return handler(self, frame)

    def write_register(self, frame: Any) -> Steps:
        """Write a register (dword offset)."""
        self._cp.board.space.write(frame.write_reg.reg_offset * 4, frame.write_reg.reg_value)
        return None

    def read_register(self, frame: Any) -> Steps:
        """Read a register (dword offset) to memory."""
        self._store(frame.read_reg.buffer_addr, self._cp.board.space.read(frame.read_reg.reg_offset * 4), 4)
        return None

    def wait_register(self, frame: Any) -> Iterator[float]:
        """Wait for a register; or write one and wait for another, as TLB flushes do."""
        wait, space = frame.wait_reg_mem, self._cp.board.space
        watched = wait.reg_offset1
        if wait.op == self._api.WRM_OPERATION__WR_WAIT_WR_REG:
            space.write(wait.reg_offset1 * 4, wait.reference)
            watched = wait.reg_offset2
        while space.read(watched * 4) & wait.mask != wait.reference & wait.mask:
            yield 1.0

    def invalidate_gart(self, frame: Any) -> Steps:
        """Invalidate the translations of VMID 0."""
        return flush(self._cp, 1, 0)

    def set_shader_debugger(self, frame: Any) -> Steps:
        """Program a process's debug control, or drop the state of a process that has ended.

        A removed queue may come back, so its saved state stays until then. Source: amdkfd
        kfd_process_dequeue_from_device, which requests process_ctx_flush after it has removed all queues; evictions do
        not.
        """
        asked = frame.set_shader_debugger
        process = self.processes.get(asked.process_context_addr)
        if asked.flags.u32all & CONTEXT_FLUSH:
            if process is None:
                self._cp.forget_saved(asked.process_context_addr)
        elif process is not None:
            with self._cp.grbm.acting(Slot(3, 0, 0), process.vmid):
                self._write("SPI_GDBG_PER_VMID_CNTL", asked.spi_gdbg_per_vmid_cntl)
            if asked.flags.single_memop or asked.flags.single_alu_op or any(asked.tcp_watch_cntl):
                raise Unmodelled("MES SET_SHADER_DEBUGGER: address watches, one instruction at a time")
        return None

    def update_root_page_table(self, frame: Any) -> Steps:
        """Move a process to another page directory."""
        process = self.processes.get(frame.process_context_addr)
        if process is None:
            self._note("UPDATE_ROOT_PAGE_TABLE: no process {:#x}", frame.process_context_addr)
            return None
        base = frame.page_table_base_addr | PAGE_TABLE_VALID
        self._write(f"GCVM_CONTEXT{process.vmid}_PAGE_TABLE_BASE_ADDR_LO32", base)
        self._write(f"GCVM_CONTEXT{process.vmid}_PAGE_TABLE_BASE_ADDR_HI32", base >> 32)
        return flush(self._cp, 1 << process.vmid, 0)

    def notify_work(self, frame: Any) -> Steps:
        """Find slots for waiting queues, some of which have work now."""
        self._place_waiting()
        return None

    def change_config(self, frame: Any) -> Steps:
        """Change a setting of SET_HW_RSRC. Only turning off what this MES lacks is accepted. Source: mes_v11_api_def.h,
        CHANGE_CONFIG.
        """
        asked = frame.change_config
        if asked.option.all or asked.opcode == self._api.MESAPI_MISC__CHANGE_CONFIG_OPTION_CHANGE_TDR_CONFIG:
            raise Unmodelled(f"MES CHANGE_CONFIG option {asked.opcode}, {asked.option.all:#x}")
        return None

    def set_hw_resources_1(self, frame: Any) -> Steps:
        """Take memory for MES's own use. The model writes nothing there: amdgpu provides it and never reads it.

        Since Linux 6.14 that includes the fence of the cleaner shader. MES runs that shader when one process has the
        card to itself (`limit_single_process`), which `check_hw_resources` refuses.

        Source: mes_v11_0.c and mes_v12_0.c, set_hw_resources_1.
        """
        return None

    def query_status(self, frame: Any) -> Steps:
        """Answer with the fence alone: drivers check nothing else. Source: mes_v11_0.c, query_sched_status."""
        return None


Handler = Callable[[Mes, Any], Steps]


def lacking(what: str) -> Handler:
    """Return a handler for an operation that the model lacks."""

    def refuse(mes: Mes, frame: Any) -> Steps:
        raise Unmodelled(f"MES {what}")

    return refuse


# amdgpu does not send the operations marked as lacking to cards of these generations (mes_v11_0.c, mes_v12_0.c,
# amdgpu_mes.c). Queues keep their slot, so priorities, quanta and yields, which metal obeys, would have no effect.
# Names: MESAPI_MISC__* and MES_SCH_API_*, of which each generation has its own.
MISC: dict[str, Handler] = {
    "WRITE_REG": Mes.write_register,
    "INV_GART": Mes.invalidate_gart,
    "QUERY_STATUS": Mes.query_status,
    "READ_REG": Mes.read_register,
    "WAIT_REG_MEM": Mes.wait_register,
    "SET_SHADER_DEBUGGER": Mes.set_shader_debugger,
    "NOTIFY_WORK_ON_UNMAPPED_QUEUE": Mes.notify_work,
    "NOTIFY_TO_UNMAP_PROCESSES": lacking("NOTIFY_TO_UNMAP_PROCESSES"),
    "CHANGE_CONFIG": Mes.change_config,
}
PRIORITIES = "order among queues that wait for a slot"
HANDLERS: dict[str, tuple[str, Handler]] = {
    "SET_HW_RSRC": ("MESAPI_SET_HW_RESOURCES", Mes.set_hw_resources),
    "SET_HW_RSRC_1": ("MESAPI_SET_HW_RESOURCES_1", Mes.set_hw_resources_1),
    "SET_SCHEDULING_CONFIG": ("MESAPI__SET_SCHEDULING_CONFIG", lacking("SET_SCHEDULING_CONFIG: time slices")),
    "ADD_QUEUE": ("MESAPI__ADD_QUEUE", Mes.add_queue),
    "REMOVE_QUEUE": ("MESAPI__REMOVE_QUEUE", Mes.remove_queue),
    "PERFORM_YIELD": ("MESAPI__PERFORM_YIELD", lacking("PERFORM_YIELD: time slices")),
    "SET_GANG_PRIORITY_LEVEL": (
        "MESAPI__CHANGE_GANG_PRIORITY_LEVEL", lacking(f"SET_GANG_PRIORITY_LEVEL: {PRIORITIES}"),
    ),
    "SUSPEND": ("MESAPI__SUSPEND", Mes.suspend),
    "RESUME": ("MESAPI__RESUME", Mes.resume),
    "RESET": ("MESAPI__RESET", Mes.reset_queue),
    "SET_LOG_BUFFER": ("MESAPI__SET_LOGGING_BUFFER", lacking("SET_LOG_BUFFER: a log in memory")),
    "CHANGE_GANG_PRORITY": ("MESAPI__CHANGE_GANG_PRIORITY_LEVEL", lacking(f"CHANGE_GANG_PRORITY: {PRIORITIES}")),
    "QUERY_SCHEDULER_STATUS": ("MESAPI__QUERY_MES_STATUS", Mes.query_status),
    "PROGRAM_GDS": ("MESAPI__PROGRAM_GDS", lacking("PROGRAM_GDS")),
    "SET_DEBUG_VMID": ("MESAPI__SET_DEBUG_VMID", lacking("SET_DEBUG_VMID: debuggers")),
    "MISC": ("MESAPI__MISC", Mes.misc),
    "UPDATE_ROOT_PAGE_TABLE": ("MESAPI__UPDATE_ROOT_PAGE_TABLE", Mes.update_root_page_table),
    "AMD_LOG": ("MESAPI_AMD_LOG", lacking("AMD_LOG: a log in memory")),
    "SET_SE_MODE": ("MESAPI__SET_SE_MODE", lacking("SET_SE_MODE: fewer shader engines")),
    "SET_GANG_SUBMIT": ("MESAPI__SET_GANG_SUBMIT", lacking("SET_GANG_SUBMIT: gangs of two")),
}  # fmt: skip
