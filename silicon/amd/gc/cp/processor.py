"""Command processor (CP): the micro engines and their queues, doorbells, interrupts, halts and resets.

Graphics is micro engine 0, MEC 1 and 2, MES 3. Source: amdgpu gfx_v11_0.c, mes_v11_0.c, soc21.c, gfx_v9_4_3.c;
gc_11_0_0 and gc_9_4_3 headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from ringup.autogen.amd import pm4
from ringup.silicon.amd.common.parts import FIRST_PAGE_DWORDS, Board, Hub, InterruptSink, VmFault
from ringup.silicon.amd.gc.cp import gfx_ring, pm4_flow, pm4_kiq, pm4_memory, pm4_registers, pm4_sync, run_list
from ringup.silicon.amd.gc.cp.aql import Aql
from ringup.silicon.amd.gc.cp.pm4_decode import (
    CLIENT_CP,
    SRC_BAD_OPCODE,
    SRC_END_OF_PIPE,
    SRC_GENERIC2,
    SRC_PRIVILEGED_REGISTER,
    SRC_RESERVED_BITS,
    PacketError,
    Rule,
)
from ringup.silicon.amd.gc.cp.pm4_parser import Parser
from ringup.silicon.amd.gc.cp.queue import EopFetcher, Queue, Saved, Stop
from ringup.silicon.amd.gc.cp.team import Team
from ringup.silicon.amd.gc.dispatch import CHUNK, Dispatcher
from ringup.silicon.amd.gc.generation import MecControl
from ringup.silicon.amd.gc.grbm import Grbm, Slot
from ringup.silicon.amd.gc.hqd import COMPUTE, GRAPHICS, Hqd, Names
from ringup.silicon.amd.gc.rlc import Rlc
from ringup.silicon.common.cells import Derived

GFX, MEC1, MEC2, MES = 0, 1, 2, 3
MES_KIQ_PIPE = 1
POLL_WPTR_US = 10.0
RULES: dict[int, Rule] = (
    pm4_flow.RULES | pm4_memory.RULES | pm4_registers.RULES | pm4_sync.RULES | pm4_kiq.RULES | gfx_ring.RULES
)
# what a generation adds or has in another form, by major version
RULES_OF: dict[int, dict[int, Rule]] = {9: pm4_sync.RULES_9 | run_list.RULES_9, 12: pm4_registers.RULES_12}
HEADER_DUMPS = {
    GFX: "CP_ME_HEADER_DUMP",
    MEC1: "CP_MEC_ME1_HEADER_DUMP",
    MEC2: "CP_MEC_ME2_HEADER_DUMP",
    MES: "CP_MES_HEADER_DUMP",
}
ERROR_FIELDS = {  # of the interrupt control and status registers, without the suffix _int_enable or _int_status
    SRC_BAD_OPCODE: "opcode_error",
    SRC_RESERVED_BITS: "reserved_bit_error",
    SRC_PRIVILEGED_REGISTER: "priv_reg",
}
CACHE_OPERATIONS = {  # registers that start a cache operation: (start, complete) fields; it completes at once
    "CP_CPC_IC_OP_CNTL": (("invalidate_cache", "invalidate_cache_complete"), ("prime_icache", "icache_primed")),
    "CP_PFP_IC_OP_CNTL": (("invalidate_cache", "invalidate_cache_complete"), ("prime_icache", "icache_primed")),
    "CP_ME_IC_OP_CNTL": (("invalidate_cache", "invalidate_cache_complete"), ("prime_icache", "icache_primed")),
    "CP_MES_IC_OP_CNTL": (("prime_icache", "icache_primed"),),
    "CP_MEC_DC_OP_CNTL": (("invalidate_dcache", "invalidate_dcache_complete"),),
    "CP_GFX_RS64_DC_OP_CNTL": (("invalidate_dcache", "invalidate_dcache_complete"), ("prime_dcache", "dcache_primed")),
}
GFX_CONTROL = MecControl("CP_ME_CNTL", "me_halt", "me_pipe{pipe}_reset")
MES_CONTROL = MecControl("CP_MES_CNTL", "mes_halt", "mes_pipe{pipe}_reset", "mes_pipe{pipe}_active")
SOFT_RESET_CP = ("soft_reset_cp", "soft_reset_gfx", "soft_reset_cpc", "soft_reset_cpg", "soft_reset_cpf")
VMID_RESET_US = 1.0


class Scheduler(Protocol):
    """The MES firmware, as the CP uses it."""

    def frames(self, queue: Queue) -> Iterator[float | None]:
        """Execute the frames of the scheduler's ring for ever."""
        ...

    def unmapped_doorbell(self, index: int, value: int) -> bool:
        """Handle the doorbell of a queue that waits for a slot; return False if there is no such queue."""
        ...

    def reset(self) -> None:
        """Forget all processes and queues."""
        ...


class Cp:
    """All queues of the graphics core. Implements `parts.DoorbellClient`."""

    def __init__(
        self, board: Board, grbm: Grbm, rlc: Rlc, hub: Hub, interrupts: InterruptSink, dispatcher: Dispatcher
    ) -> None:
        self.board, self.grbm, self.rlc, self.hub = board, grbm, rlc, hub
        self.interrupts, self.dispatcher = interrupts, dispatcher
        self.cells, self.row = grbm.cells, grbm.row
        self.opcodes = pm4.OPCODES[self.row.version]
        self._rules = RULES | RULES_OF.get(self.row.version[0], {})
        self._generation = self.row.generation
        # (packet, register) pairs as a mapping
        self.packet_engines = dict(self._generation.packet_engines)
        # queues that were disconnected with their waves, by MQD
        self.saved: dict[int, Saved] = {}
        self.scheduler: Scheduler | None = None
        # slots that the KIQ has made queues of its own kind (HIQ)
        self.orders: set[Slot] = set()
        self.run_list = run_list.RunList()
        self.unmap_timeout_us = 1_000_000.0
        # those of all cores of the card, which share the list
        self.cores: list[Cp] = [self]
        # the queues that this core runs with others, by doorbell and gpu_va of amd_queue_t; the cores share it
        self.teams: dict[tuple[int, int], Team] = {}
        self.queues = {
            slot: Queue(self, Hqd(self.cells, slot, names, self.row.generation)) for slot, names in self._slots()
        }
        self._reported: set[tuple[str, str]] = set()
        self._doorbell_ranges = {
            side: self.cells.derived(partial(self._doorbell_range, side)) for side in ("RB", "MEC")
        }
        # by slot and kind of interrupt: whether it is enabled
        self._reports: dict[tuple[Slot, str], Derived[bool]] = {}
        self._header_dumps = {
            engine: self.cells.place(name) for engine, name in HEADER_DUMPS.items() if name in self.cells
        }
        # by slot: whether registers release its engine, and whose firmware it needs
        self._gates: dict[Slot, tuple[Derived[bool], str, int | None]] = {
            slot: (self.cells.derived(partial(self._is_released, slot)), *self._engine_of(slot))
            for slot, _ in self._slots()
        }
        self._polling = False
        grbm.busy = self._busy
        grbm.on_soft_reset = self._soft_reset
        self._hook()
        self._map_logic_xcc()
        gfx_ring.hook(self)

    def _slots(self) -> Iterator[tuple[Slot, Names]]:
        row = self.row
        for pipe in range(row.gfx_pipes):
            for queue in range(row.gfx_queues_per_pipe):
                yield Slot(GFX, pipe, queue), GRAPHICS
        for engine in row.generation.microengines:
            for pipe in range(row.mec_pipes):
                for queue in range(row.queues_per_pipe):
                    yield Slot(engine, pipe, queue), COMPUTE
        for pipe in range(2 if row.generation.mes is not None else 0):
            yield Slot(MES, pipe, 0), COMPUTE

    def reset(self) -> None:
        """Drop all queues. GRBM resets the registers."""
        for queue in self.queues.values():
            queue.disconnect(save=False)
            queue.fetcher = EopFetcher.FRESH
            queue.hqd.logic_xcc = -1
        self.orders.clear()
        self.teams.clear()
        self.run_list.reset()
        while self.saved:
            self.saved.popitem()[1].drop()
        self._reported.clear()
        if self.scheduler is not None:
            self.scheduler.reset()

    # --- registers ----------------------------------------------------------------------------------------------
    def _hook(self) -> None:
        cells = self.cells
        for names in (COMPUTE, GRAPHICS) if self.row.gfx_pipes else (COMPUTE,):
            cells.on_write(names.active, self._activate)
            cells.on_write(names.dequeue, self._dequeue)
            for name in names.wptr:
                cells.on_write(name, lambda value: self._with_queue(Queue.wake))
            for name in (*names.base, *names.mqd_base):
                cells.on_write(name, partial(self._refuse_if_active, name))
        for name in ("CP_MEC_RS64_CNTL", "CP_MEC_CNTL", "CP_MES_CNTL", "CP_ME_CNTL"):
            if name in cells:
                cells.on_write(name, lambda value: self._engines_changed())
        cells.on_write("CPC_INT_STATUS", self._software_interrupt)
        cells.on_write("SPI_COMPUTE_QUEUE_RESET", self._reset_waves)
        if self.row.gfx_pipes:
            cells.on_write("CP_VMID_RESET", self._vmid_reset)
        cells.on_write("CP_PQ_WPTR_POLL_CNTL", lambda value: self._start_polling())
        cells.on_write("CP_PQ_WPTR_POLL_CNTL1", self._poll_once)
        if self._generation.mes is not None:
            cells.on_read("CP_MES_GP3_LO", self._mes_version)
        for name, operations in CACHE_OPERATIONS.items():
            if name in cells:
                cells.on_write(name, partial(self._cache_operation, name, operations))

    def _cache_operation(self, name: str, operations: tuple[tuple[str, str], ...], value: int) -> None:
        # not every generation has all of them
        operations = tuple(one for one in operations if self.cells.has_field(name, one[0]))
        done = {complete: self.cells.field(name, start, value) for start, complete in operations}
        self.cells[name] = self.cells.replace(
            name, value, **done, **dict.fromkeys((start for start, _ in operations), 0)
        )

    def _with_queue(self, action: Callable[[Queue], None]) -> None:
        queue = self.queues.get(self.grbm.slot())
        if queue is not None:
            action(queue)

    def _activate(self, value: int) -> None:
        slot = self.grbm.slot()
        queue = self.queues.get(slot)
        if queue is None:
            self.board.log.note("cp", "violation", "queue {} is activated: there is no such slot", slot)
        elif value & 1 and not queue.connected:
            if slot.me in self._generation.microengines:
                queue.start_fetcher(asked=bool(queue.hqd.field("CP_HQD_EOP_RPTR", "init_fetcher")))
                queue.hqd.put("CP_HQD_EOP_RPTR", init_fetcher=0)
                self._preload(queue)
            queue.connect(self._saved(queue.hqd, queue.hqd.mqd_address))
        elif not value & 1 and queue.connected:
            queue.disconnect(save=False)

    def _preload(self, queue: Queue) -> None:
        """Take the queue's COMPUTE_* registers from its MQD, on the generation whose cores share grids.

        GUESS: kfd_mqd_manager_v9.c, init_mqd, asks for it; amdgpu_amdkfd_gfx_v9.c, kgd_gfx_v9_hqd_load, writes none of
        these registers, though MQDs hold chunk sizes and masks of CUs. Other generations' registers are left alone.
        """
        hqd = queue.hqd
        if CHUNK not in self.cells or not hqd.mqd_address or not hqd.field("CP_HQD_PERSISTENT_STATE", "preload_req"):
            return
        try:
            hqd.preload(self.hub, "CPC")
        except VmFault as error:
            self.board.log.note("cp", "violation", "queue {}: its MQD is not preloaded: {}", hqd.slot, error)

    def _refuse_if_active(self, name: str, value: int) -> None:
        """Log a write that changes the memory of a running queue. Source: gfx_v11_0.c: gfx_v11_0_kiq_init_register
        deactivates it first.
        """
        del value
        slot = self.grbm.slot()
        queue = self.queues.get(slot)
        if queue is not None and queue.connected:
            self.board.log.note("cp", "violation", "queue {}: {} is written while the queue is active", slot, name)

    def _dequeue(self, value: int) -> None:
        how = value & 15
        if how in tuple(Stop):
            self._with_queue(lambda queue: queue.stop(Stop(how)))

    def _reset_waves(self, value: int) -> None:
        if value & 1:
            self._with_queue(lambda queue: queue.kill_waves())
            self.cells["SPI_COMPUTE_QUEUE_RESET"] = 0

    def _vmid_reset(self, value: int) -> None:
        """Reset the graphics queues named by bits 31:16 (8 for each pipe), or all queues of the VMIDs named."""
        for slot, queue in self.queues.items():
            if (
                slot.me == GFX
                and queue.connected
                and (value >> 16 == 0 or value >> 16 + 8 * slot.pipe + slot.queue & 1)
            ):
                queue.stop(Stop.RESET)
        self.board.clock.after(VMID_RESET_US, lambda: self.cells.set_of(None, "CP_VMID_RESET", 0))

    def _mes_version(self) -> int:
        slot = self.grbm.slot()
        if slot.me != MES or slot.pipe > MES_KIQ_PIPE or not self.may_run(Slot(MES, slot.pipe, 0)):
            return self.cells["CP_MES_GP3_LO"]
        return self.row.mes_versions[slot.pipe]

    def _software_interrupt(self, value: int) -> None:
        if self.cells.field("CPC_INT_STATUS", "generic2_int_status", value):
            self.interrupts.interrupt(CLIENT_CP, SRC_GENERIC2, ring_id=self.grbm.slot().ring_id)
            self.cells["CPC_INT_STATUS"] = 0

    # --- the partition that the core belongs to -------------------------------------------------------------------
    @property
    def number(self) -> int:
        """The core's number in its partition; 0 for a core that is alone."""
        return self.cells.get("CP_HYP_XCP_CTL", "VIRTUAL_XCC_ID") if "CP_HYP_XCP_CTL" in self.cells else 0

    @property
    def fellows(self) -> int:
        """How many cores the partition has."""
        return self.cells.get("CP_HYP_XCP_CTL", "NUM_XCC_IN_XCP") if "CP_HYP_XCP_CTL" in self.cells else 1

    def _map_logic_xcc(self) -> None:
        """Map COMPUTE_CURRENT_LOGIC_XCC_ID, which the header lacks: v9_structs.h has it two dwords before
        compute_tg_chunk_size.
        """
        if CHUNK in self.cells:
            self.board.space.door(self.cells.address(CHUNK) - 8, 4, self._logic_xcc, self._set_logic_xcc)

    def _logic_xcc(self, address: int) -> int:
        queue = self.queues.get(self.grbm.slot())
        return 0 if queue is None else max(0, queue.hqd.logic_xcc)

    def _set_logic_xcc(self, address: int, value: int) -> None:
        def store(queue: Queue) -> None:
            queue.hqd.logic_xcc = value

        self._with_queue(store)

    # --- engines ------------------------------------------------------------------------------------------------
    def may_run(self, slot: Slot) -> bool:
        """Whether the micro engine and pipe of a slot execute. Missing firmware is logged once."""
        released, engine, pipe = self._gates[slot]
        if not released():
            return False
        missing = self.rlc.missing(engine, pipe)
        if missing and (engine, missing) not in self._reported:
            self._reported.add((engine, missing))
            name = engine if pipe is None else f"{engine} pipe {pipe}"
            self.board.log.note("cp", "violation", "{} was started: {}", name, missing)
        return not missing

    def _engine_of(self, slot: Slot) -> tuple[str, int | None]:
        """Return engine and pipe of a slot, by the names of the firmware table."""
        if slot.me == MES:
            return "kiq" if slot.pipe == MES_KIQ_PIPE else "mes", None
        return "gfx" if slot.me == GFX else "mec", slot.pipe

    def _is_released(self, slot: Slot) -> bool:
        """Whether registers allow the micro engine and pipe of a slot to execute."""
        cells, pipe = self.cells, slot.pipe
        if slot.me == GFX:
            control = partial(cells.get, "CP_ME_CNTL")
            stops = ("me_halt", "pfp_halt", f"me_pipe{pipe}_disable", f"me_pipe{pipe}_reset")
            return not any(map(control, stops))
        engine = MES_CONTROL if slot.me == MES else self._generation.mec
        if cells.get(engine.name, engine.halt.format(me=slot.me)) or self._pipe_in_reset(slot):
            return False
        return not engine.active or bool(cells.get(engine.name, engine.active.format(pipe=pipe)))

    def _engines_changed(self) -> None:
        for slot, queue in self.queues.items():
            if self._pipe_in_reset(slot):
                queue.fetcher = EopFetcher.FRESH
                if queue.connected:
                    queue.disconnect(save=False)
            queue.wake()

    def _pipe_in_reset(self, slot: Slot) -> bool:
        control = {GFX: GFX_CONTROL, MES: MES_CONTROL}.get(slot.me, self._generation.mec)
        field = control.reset.format(me=slot.me, pipe=slot.pipe)
        # CP_MEC_CNTL of GFX9 has no reset of the last two pipes
        return self.cells.has_field(control.name, field) and bool(self.cells.get(control.name, field))

    def _soft_reset(self, mask: int) -> None:
        if any(self.cells.field("GRBM_SOFT_RESET", field, mask) for field in SOFT_RESET_CP):
            for queue in self.queues.values():
                queue.disconnect(save=False)
                queue.fetcher = EopFetcher.FRESH

    def program(self, queue: Queue) -> tuple[Parser | None, Iterator[float | None]]:
        """Return what executes a queue that has just connected: the scheduler's frames, or packets."""
        slot = queue.hqd.slot
        schedules = slot.me == MES and (slot.pipe != MES_KIQ_PIPE or self.rlc.unified_mes)
        if schedules and self.scheduler is not None:
            return None, self.scheduler.frames(queue)
        if slot.me in self._generation.microengines and queue.hqd.field("CP_HQD_AQL_CONTROL", "control0"):
            aql = Aql(self, queue, self._rules)
            return aql, aql.run()
        engines = "g" if slot.me == GFX else "mk" if self.is_kiq(slot) else "m"
        parser = Parser(self, queue, engines, self._rules)
        return parser, parser.run()

    def is_kiq(self, slot: Slot) -> bool:
        """Whether a queue takes the KIQ's packets: it is an HIQ, or RLC_CP_SCHEDULERS names it: valid 7, me 6:5, pipe
        4:3, queue 2:0. Source: mes_v11_0.c, kiq_setting.
        """
        if slot in self.orders:
            return True
        wanted = 0x80 | slot.me << 5 | slot.pipe << 3 | slot.queue
        value = self.cells["RLC_CP_SCHEDULERS"]
        return wanted in (value & 0xFF, value >> 8 & 0xFF)

    def _busy(self) -> tuple[bool, bool, bool]:
        graphics = any(queue.busy for slot, queue in self.queues.items() if slot.me == GFX)
        compute = any(queue.busy for slot, queue in self.queues.items() if slot.me != GFX)
        return graphics, compute, any(queue.grids for queue in self.queues.values())

    def header_seen(self, slot: Slot, header: int) -> None:
        """Store a packet's header in the register where debuggers look for it."""
        self.cells.store(self._header_dumps[slot.me], header)

    # --- queues in memory ---------------------------------------------------------------------------------------
    def map_queue(
        self, slot: Slot, mqd: int, wptr_address: int, doorbell: int, vmid: int | None = None, *, wptr_vmid: int = 0
    ) -> str:
        """Connect the queue of an MQD (gpu_va, VMID 0) to a slot; return an error text, empty on success.

        `wptr_address` (of `wptr_vmid`) holds the write pointer. Raises `VmFault` if that or the MQD cannot be read.
        """
        queue = self.queues.get(slot)
        if queue is None:
            return f"there is no queue slot {slot}"
        if queue.connected:
            return f"queue slot {slot} is taken"
        hqd = queue.hqd
        hqd.load(self.hub, mqd, "CPC")
        hqd.put(hqd.names.doorbell, doorbell_offset=doorbell, doorbell_en=1)
        if vmid is not None:
            hqd.set(hqd.names.vmid, vmid)
        if wptr_address:
            hqd.take_pointer(int.from_bytes(self.hub.read(wptr_vmid, wptr_address, 8, "CPC"), "little"))
        hqd.set(hqd.names.dequeue, 0)
        hqd.active = True
        # the firmware does this itself
        queue.start_fetcher(asked=True)
        queue.connect(self._saved(hqd, mqd))
        return ""

    def _saved(self, hqd: Hqd, mqd: int) -> Saved | None:
        """Return the state saved with an MQD; None for a new MQD at the same address.

        UNKNOWN: how the firmware recognises an MQD with saved waves. Here: by CP_HQD_PERSISTENT_STATE.relaunch_waves.
        """
        saved = self.saved.pop(mqd, None)
        if hqd.names is not COMPUTE:
            return saved
        wanted = hqd.field("CP_HQD_PERSISTENT_STATE", "relaunch_waves")
        hqd.put("CP_HQD_PERSISTENT_STATE", relaunch_waves=0)
        if saved is not None and not wanted:
            saved.drop()
            return None
        return saved

    def forget_saved(self, owner: int) -> None:
        """Drop the saved state of a process's queues: the process has ended."""
        for mqd in [mqd for mqd, saved in self.saved.items() if saved.owner == owner]:
            self.saved.pop(mqd).drop()

    def find_doorbell(self, doorbell: int) -> Queue | None:
        """Return the connected queue that listens to a doorbell."""
        for queue in self.queues.values():
            if queue.connected and queue.hqd.doorbell_index == doorbell:
                return queue
        return None

    # --- doorbells and write pointers ---------------------------------------------------------------------------
    def doorbell(self, index: int, value: int, size_bytes: int) -> bool:
        """Handle a write of 32 or 64 bits to the doorbell at dword `index`: a write pointer in dwords, or the number of
        an AQL packet.
        """
        queue = self.find_doorbell(index)
        if queue is None:
            return self.scheduler is not None and self.scheduler.unmapped_doorbell(index, value)
        hqd = queue.hqd
        if not self._generation.shared_doorbells and not self._in_range(hqd.slot, index):
            return True
        if not hqd.facts().doorbell_hit:
            hqd.put(hqd.names.doorbell, doorbell_hit=1)
        hqd.ring(value, size_bytes)
        self.check_pointer(queue)
        queue.wake()
        return True

    def _in_range(self, slot: Slot, index: int) -> bool:
        """Whether the ranges let a doorbell through; log one that they keep out.

        The cores of an MI300X have ranges of their own (gfx_v9_4_3.c, xcc_kiq_init_register), which overlap in part,
        and amdkfd maps a queue with one doorbell on all of them, beyond every range (kfd_doorbell.c). So a range cannot
        decide there which mapped queues hear. UNKNOWN: what it does instead; gfx_v9_0.c speaks of waking up a core.
        """
        low, high = self._doorbell_ranges["RB" if slot.me == GFX else "MEC"]()
        if index >= FIRST_PAGE_DWORDS or low <= index <= high:
            return True
        text = "doorbell {:#x} of queue {} lies outside {:#x} to {:#x} and is ignored"
        self.board.log.note("cp", "violation", text, index, slot, low, high)
        return False

    def _doorbell_range(self, side: str) -> tuple[int, int]:
        low, high = (self.cells[f"CP_{side}_DOORBELL_RANGE_{end}"] >> 2 & 0x3FF for end in ("LOWER", "UPPER"))
        return low, high

    def check_pointer(self, queue: Queue) -> None:
        """Log a write pointer that is more than a ring ahead: old packets would run again."""
        hqd = queue.hqd
        if hqd.slot_dwords == 1 and hqd.ahead_dwords > hqd.size_dwords:
            self.board.log.note(
                "cp", "violation", "queue {}: write pointer {:#x} is {:#x} dwords ahead of read pointer {:#x}, the ring has {:#x}",
                hqd.slot, hqd.wptr, hqd.ahead_dwords, hqd.rptr, hqd.size_dwords,
            )  # fmt: skip

    def _start_polling(self) -> None:
        if not self._polling and self.cells.get("CP_PQ_WPTR_POLL_CNTL", "en"):
            self._polling = True
            self.board.clock.after(POLL_WPTR_US, self._poll_pointers)

    def _poll_pointers(self) -> None:
        """Read write pointers from memory while CP_PQ_WPTR_POLL_CNTL.en is set."""
        self._polling = False
        for slot, queue in self.queues.items():
            if slot.me != GFX and queue.connected and not queue.hung and queue.hqd.poll_address:
                self._read_pointer(queue)
        self._start_polling()

    def _read_pointer(self, queue: Queue) -> None:
        hqd = queue.hqd
        try:
            value = int.from_bytes(self.hub.read(hqd.vmid, hqd.poll_address, 8, "CPF"), "little")
        except VmFault:
            # the hub has reported it to the host
            return
        before = hqd.wptr
        hqd.take_pointer(value)
        if hqd.wptr != before:
            self.check_pointer(queue)
            queue.wake()

    def _poll_once(self, mask: int) -> None:
        """Read the write pointers of the MEC 1 queues named by a mask, connected or about to be. Source:
        amdgpu_amdkfd_gfx_v11.c, hqd_load.
        """
        for slot, queue in self.queues.items():
            number = slot.pipe * self.row.queues_per_pipe + slot.queue
            if slot.me == MEC1 and mask >> number & 1 and queue.hqd.poll_address:
                self._read_pointer(queue)

    # --- interrupts ---------------------------------------------------------------------------------------------
    def _enabled(self, slot: Slot, field: str) -> bool:
        """Whether an interrupt is enabled."""
        known = self._reports.get((slot, field))
        if known is None:
            known = self._reports[slot, field] = self.cells.derived(partial(self._is_enabled, slot, field))
        return known()

    def _is_enabled(self, slot: Slot, field: str) -> bool:
        """Whether registers enable an interrupt: graphics has an enable for each ring, MEC two registers for each pipe;
        MES's are always on.
        """
        cells = self.cells
        if slot.me == MES:
            return True
        if slot.me == GFX:
            return bool(cells.get(f"CP_INT_CNTL_RING{slot.pipe}", f"{field}_int_enable"))
        own = cells.get(f"CP_ME{slot.me}_PIPE{slot.pipe}_INT_CNTL", f"{field}_int_enable")
        return bool(own or cells.field("CPC_INT_CNTL", f"{field}_int_enable", cells.of(slot[:2], "CPC_INT_CNTL")))

    def end_of_pipe(self, queue: Queue, vmid: int, context: int) -> None:
        """Raise the interrupt of RELEASE_MEM."""
        slot = queue.hqd.slot
        if self._enabled(slot, "time_stamp"):
            self.interrupts.interrupt(CLIENT_CP, SRC_END_OF_PIPE, ring_id=slot.ring_id, vmid=vmid, data=(context,))

    def bad_packet(self, queue: Queue, error: PacketError) -> None:
        """Raise the interrupt of a packet that stopped its queue."""
        slot, field = queue.hqd.slot, ERROR_FIELDS[error.source]
        if slot.me == GFX:
            self.cells.put(f"CP_INT_STATUS_RING{slot.pipe}", **{f"{field}_int_stat": 1})
        elif slot.me != MES:
            self.cells.put(f"CP_ME{slot.me}_PIPE{slot.pipe}_INT_STATUS", **{f"{field}_int_status": 1})
        if self._enabled(slot, field):
            # KFD_CTXID0_DOORBELL_ID, _CP_BAD_OP_ECODE
            data = queue.hqd.doorbell_id | error.code << 10
            vmid = queue.hqd.vmid if queue.parser is None else queue.parser.vmid
            self.interrupts.interrupt(CLIENT_CP, error.source, ring_id=slot.ring_id, vmid=vmid, data=(data,))
