"""An SDMA engine (4.4.2, 6.0 and 7.0): queues with byte-counted rings, activated by registers or by a queue descriptor.

Each queue is a coroutine: a packet runs until it waits or its time slice ends, then the clock resumes it. Source:
sdma_v4_4_2.c, sdma_v6_0.c, sdma_v7_0.c, v9_structs.h, v11_structs.h, v12_structs.h.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

from ringup.autogen.amd import ih as ids
from ringup.autogen.amd import mqd
from ringup.autogen.layout import Struct
from ringup.errors import RingupError
from ringup.silicon.amd.common.parts import Board, Hub, InterruptSink, VmFault
from ringup.silicon.amd.sdma.packets import PACKETS, PACKETS_4, PACKETS_7, BadPacket, Engine, Packets, execute
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.clock import Timer
from ringup.silicon.common.faults import FaultKind

INTERRUPT_CLIENT = 0x0A  # SOC21_IH_CLIENTID_GFX
# SOC15_IH_CLIENTID_SDMA0 to SDMA3: the engines of an I/O die. Source: sdma_v4_4_2.c, sdma_v4_4_2_irq_id_to_seq
CLIENTS_4_4 = (0x08, 0x09, 0x01, 0x04)
WAKE_US = 1  # from a doorbell to the first fetch
# interval of polls for a write pointer in memory; metal's interval is configurable
POLL_US = 20
# SDMA0_WATCHDOG_CNTL.QUEUE_HANG_COUNT, sdma_v6_0.c: 100 ms per unit
WATCHDOG_UNIT_US = 100_000
FETCH_DWORDS = 64
FAULTS = (FaultKind("sdma_stuck_fence", "SDMA fences are not written", "how many; -1: all"),)


@dataclass(frozen=True, slots=True)
class SdmaRow:
    """The differences between generations of the engine.

    `control`: the register that halts it; `freeze`: the field of SDMA0_FREEZE that freezes it. `firmware`: types of
    psp_gfx_if.h that it needs. `idle`, `set`: fields of SDMA0_STATUS_REG that only this generation has, and that show
    an idle engine, or are always set. `prefix`: of the engine's registers, with its number; `queues`: the names of its
    queues in registers. `clients`: the numbers for the interrupt handler, by engine; `sources`: prefix of the names of
    the interrupts. `local`: the engine's registers are a block of its own, its translations are MMHUB's, and its number
    on its die counts for firmware and interrupts. `starts`: it runs once its firmware is loaded.
    """

    version: tuple[int, int, int]
    control: str
    freeze: str
    firmware: tuple[int, ...]
    mqd: type[Struct]
    packets: Packets
    idle: tuple[str, ...]
    set: tuple[str, ...]
    prefix: str = "SDMA{}_"
    queues: tuple[str, ...] = tuple(f"QUEUE{number}_" for number in range(8))
    clients: tuple[int, ...] = (INTERRUPT_CLIENT,)
    sources: str = "GFX_11_0_0"
    local: bool = False
    starts: bool = False

    def firmware_of(self, index: int) -> tuple[int, ...]:
        """Return the types of firmware that an engine needs: all, or the one with its number on its die."""
        return (self.firmware[index % len(self.firmware)],) if self.local else self.firmware


# GFX_FW_TYPE_SDMA_UCODE_TH0, _TH1: the two threads of 6.0; 7.0 has one, whose firmware is sent as the first's
# (amdgpu_psp.c, psp_get_fw_type, AMDGPU_UCODE_ID_SDMA_RS64)
SDMA_6 = SdmaRow(
    (6, 0, 0), "F32_CNTL", "FREEZE", (71, 72), mqd.v11_sdma_mqd, PACKETS, ("EX_IDLE", "PREV_CMD_IDLE"), ("SEM_IDLE",)
)
SDMA_7 = SdmaRow(
    (7, 0, 0), "MCU_CNTL", "MCU_FREEZE", (71,), mqd.v12_sdma_mqd, PACKETS_7,
    ("FETCH_IDLE", "EXEC_ENG_IDLE", "PROC_CNTL_IDLE"), ("UCODE_INIT_DONE",),
)  # fmt: skip


# GFX_FW_TYPE_SDMA0 to SDMA3: the PSP gives each die's engines the same four images, and amdgpu never clears HALT after
# it. Source: amdgpu_sdma.c, amdgpu_sdma_init_microcode
SDMA_4_4 = SdmaRow(
    (4, 4, 2), "F32_CNTL", "FREEZE", (9, 10, 52, 53), mqd.v9_sdma_mqd, PACKETS_4, ("EX_IDLE", "PREV_CMD_IDLE"), ("SEM_IDLE",),
    prefix="SDMA_", queues=("GFX_", "PAGE_", *(f"RLC{number}_" for number in range(8))), clients=CLIENTS_4_4,
    sources="SDMA0_4_0", local=True, starts=True,
)  # fmt: skip


@dataclass(slots=True)
class Buffer:
    """The source of dwords: the ring, or an indirect buffer that a packet of the ring called."""

    vmid: int
    base: int  # gpu_va
    size_bytes: int  # of the ring; pointers wrap at it
    position: int  # bytes fetched; never wraps
    end: int  # bytes that may be fetched


@dataclass(slots=True)
class Queue:
    """State of one queue, apart from its registers."""

    number: int
    ring: Buffer | None = None
    # the read pointer: bytes of the ring up to the end of the last finished packet
    done: int = 0
    indirect: Buffer | None = None
    work: Generator[float, None, None] | None = None
    timer: Timer | None = None
    poll: Timer | None = None
    waiting: bool = False  # whether it waits for dwords
    stopped: str = ""  # why it stopped
    packet_va: int = 0  # of the current packet
    awaited: Callable[[], str] | None = None  # describes the current wait
    held_wptr: int | None = None  # write pointer that MINOR_PTR_UPDATE delays
    window: tuple[int, list[int]] = field(default=(0, []))  # position and dwords fetched ahead from it


class Sdma(Engine):
    """One engine. Implements `parts.DoorbellClient` and `parts.FirmwareTarget`. `cells` are GC's registers, which
    include its own.
    """

    def __init__(
        self, board: Board, hub: Hub, interrupts: InterruptSink, cells: Cells, index: int, row: SdmaRow = SDMA_6
    ) -> None:
        super().__init__(board, hub, row.version, row.packets)
        self.row = row
        self._interrupts, self.cells, self.index = interrupts, cells, index
        self.name, self.client = f"sdma{index}", f"SDMA{index}"
        self._prefix, self._firmware = row.prefix.format(index), row.firmware_of(index)
        self.queues = [Queue(number) for number in range(len(row.queues))]
        self._loaded: set[int] = set()
        # the queue whose packet runs right now
        self._at_work: Generator[float, None, None] | None = None
        board.faults.know(*FAULTS)
        self._set_up()

    def _set_up(self) -> None:
        cells, prefix = self.cells, self._prefix
        cells.on_write(f"{prefix}{self.row.control}", self._halt)
        cells.on_read(f"{prefix}STATUS_REG", self._status)
        # since 6.0
        if f"{prefix}QUEUE_RESET_REQ" in cells:
            cells.on_write(f"{prefix}QUEUE_RESET_REQ", self._reset_queues)
        cells.on_read(f"{prefix}FREEZE", self._freeze)
        cells.on_write(f"{prefix}FREEZE", lambda value: self._wake_all())
        for queue in self.queues:
            name = self._queue_name(queue)
            cells.on_write(f"{name}RB_CNTL", partial(self._control, queue))
            cells.on_write(f"{name}RB_WPTR", partial(self._write_pointer, queue))
            cells.on_write(f"{name}RB_WPTR_HI", partial(self._write_pointer, queue))
            cells.on_write(f"{name}MINOR_PTR_UPDATE", partial(self._minor_update, queue))
            cells.on_read(f"{name}CONTEXT_STATUS", partial(self._context_status, queue))

    def _queue_name(self, queue: Queue) -> str:
        return self._prefix + self.row.queues[queue.number]

    def _field(self, queue: Queue, register: str, name: str) -> int:
        return self.cells.get(self._queue_name(queue) + register, name)

    def _pair(self, queue: Queue, low: str, high: str) -> int:
        name = self._queue_name(queue)
        return self.cells[name + low] | self.cells[name + high] << 32

    # --- life ---------------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Return to power-on: nothing loaded, every queue dropped. GC resets the registers."""
        self._loaded.clear()
        for queue in self.queues:
            self._drop(queue)

    def soft_reset(self) -> None:
        """Reset the engine but keep its firmware: queues are dropped, its own registers are as after power-on. Source:
        sdma_v6_0.c, soft_reset.
        """
        for queue in self.queues:
            self._drop(queue)
            self.cells[f"{self._queue_name(queue)}RB_CNTL"] = 0
        for name in ("FREEZE", "QUEUE_RESET_REQ", "INT_STATUS"):
            if f"{self._prefix}{name}" in self.cells:
                self.cells[f"{self._prefix}{name}"] = 0
        self.cells[f"{self._prefix}{self.row.control}"] = 1  # HALT

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Record that a thread's firmware is loaded."""
        if fw_type in self._firmware:
            self._loaded.add(fw_type)
            if self.row.starts:
                self.cells.put(f"{self._prefix}{self.row.control}", HALT=0)
                self._wake_all()

    @property
    def running(self) -> bool:
        """Whether the threads run: firmware loaded, not halted, not frozen."""
        halted = self.cells.get(f"{self._prefix}{self.row.control}", "HALT")
        frozen = self.cells.get(f"{self._prefix}FREEZE", self.row.freeze)
        return not halted and not frozen and self._loaded.issuperset(self._firmware)

    def _halt(self, value: int) -> None:
        if not self.cells.field(f"{self._prefix}{self.row.control}", "HALT", value):
            if not self._loaded.issuperset(self._firmware):
                self.board.log.note(
                    self.name, "violation", "unhalted without firmware: the threads have nothing to run"
                )
            self._wake_all()

    def _wake_all(self) -> None:
        for queue in self.queues:
            self._wake(queue)

    def _freeze(self) -> int:
        name = f"{self._prefix}FREEZE"
        return self.cells.replace(name, self.cells[name], FROZEN=self.cells.get(name, self.row.freeze))

    def _reset_queues(self, value: int) -> None:
        for queue in self.queues:
            if value >> queue.number & 1:
                self._drop(queue)
                self.cells.put(f"{self._queue_name(queue)}RB_CNTL", RB_ENABLE=0)
        self.cells[f"{self._prefix}QUEUE_RESET_REQ"] = 0  # done when it reads 0

    def _drop(self, queue: Queue) -> None:
        for timer in (queue.timer, queue.poll):
            if timer is not None:
                timer.cancel()
        if queue.work is not None and queue.work is not self._at_work:
            queue.work.close()
        fresh = Queue(queue.number)
        for name in Queue.__slots__:
            setattr(queue, name, getattr(fresh, name))

    # --- activation ---------------------------------------------------------------------------------------------
    def _control(self, queue: Queue, value: int) -> None:
        """Start the queue at its read pointer when RB_ENABLE is set; stop it when it is cleared."""
        enabled = self.cells.field(f"{self._queue_name(queue)}RB_CNTL", "RB_ENABLE", value)
        if not enabled:
            self._save_read_pointer(queue)
            self._drop(queue)
            return
        if queue.ring is None:
            self._start(queue)

    def _start(self, queue: Queue) -> None:
        size_bytes = 4 << self._field(queue, "RB_CNTL", "RB_SIZE")
        base = self._pair(queue, "RB_BASE", "RB_BASE_HI") << 8
        start = self._pair(queue, "RB_RPTR", "RB_RPTR_HI")
        end = self._pair(queue, "RB_WPTR", "RB_WPTR_HI")
        queue.ring = Buffer(self._field(queue, "RB_CNTL", "RB_VMID"), base, size_bytes, start, end)
        queue.done = start
        self.board.log.note(self.name, "queue", "queue {} starts at {:#x}, {:#x} bytes", queue.number, base, size_bytes)
        self._wake(queue)
        if self._polls(queue):
            self._poll(queue)

    def _polls(self, queue: Queue) -> bool:
        """Whether the write pointer is read from memory. 4.4.2 has a register for that."""
        if self.cells.has_field(f"{self._queue_name(queue)}RB_CNTL", "WPTR_POLL_ENABLE"):
            return bool(self._field(queue, "RB_CNTL", "WPTR_POLL_ENABLE"))
        return bool(self._field(queue, "RB_WPTR_POLL_CNTL", "F32_POLL_ENABLE"))

    def map_queue(self, number: int, descriptor: bytes, vmid: int, privileged: bool = False) -> None:
        """Activate a queue from its descriptor, as the schedulers do. Register names derive from member names."""
        queue = self.queues[number]
        self._drop(queue)
        name = self._queue_name(queue)
        for member, value in zip(self.row.mqd.leaves(), self.row.mqd.unpack(descriptor), strict=True):
            register = name + member.removeprefix("sdmax_rlcx_").replace("sched_cntl", "schedule_cntl").upper()
            if register in self.cells and isinstance(value, int):
                self.cells[register] = value
        self.cells.put(f"{name}DOORBELL", ENABLE=1)
        self.cells.put(f"{name}RB_CNTL", RB_ENABLE=1, RB_VMID=vmid, RB_PRIV=int(privileged))
        self._start(queue)

    def unmap_queue(self, number: int) -> int:
        """Stop a queue and return its read pointer in bytes."""
        queue = self.queues[number]
        self._save_read_pointer(queue)
        name = self._queue_name(queue)
        self.cells.put(f"{name}RB_CNTL", RB_ENABLE=0)
        self.cells.put(f"{name}DOORBELL", ENABLE=0)
        self._drop(queue)
        return self._pair(queue, "RB_RPTR", "RB_RPTR_HI")

    # --- pointers -----------------------------------------------------------------------------------------------
    def doorbell(self, index: int, value: int, size_bytes: int) -> bool:
        """Take a write pointer (bytes, 64 bits, or only the low half) from a queue's doorbell."""
        for queue in self.queues:
            name = self._queue_name(queue)
            if (
                self.cells.get(f"{name}DOORBELL", "ENABLE")
                and self.cells.get(f"{name}DOORBELL_OFFSET", "OFFSET") == index
            ):
                if size_bytes != 8:
                    value |= self.cells[f"{name}RB_WPTR_HI"] << 32
                self._advance(queue, value)
                return True
        return False

    def _write_pointer(self, queue: Queue, value: int) -> None:
        pointer = self._pair(queue, "RB_WPTR", "RB_WPTR_HI")
        if self._field(queue, "MINOR_PTR_UPDATE", "ENABLE"):
            queue.held_wptr = pointer
        else:
            self._advance(queue, pointer)

    def _minor_update(self, queue: Queue, value: int) -> None:
        if not value & 1 and queue.held_wptr is not None:
            pointer, queue.held_wptr = queue.held_wptr, None
            self._advance(queue, pointer)

    def _advance(self, queue: Queue, pointer: int) -> None:
        name = self._queue_name(queue)
        self.cells[f"{name}RB_WPTR"], self.cells[f"{name}RB_WPTR_HI"] = pointer & 0xFFFF_FFFF, pointer >> 32
        if queue.ring is None:
            return
        if pointer & 3 or not 0 <= pointer - queue.ring.position <= queue.ring.size_bytes:
            ring = f"the read pointer at {queue.ring.position:#x} of a ring of {queue.ring.size_bytes:#x} bytes"
            self._stop(queue, BadPacket(f"write pointer {pointer:#x} with {ring}"))
            return
        queue.ring.end = pointer
        self._wake(queue)

    def _poll(self, queue: Queue) -> None:
        """Poll the write pointer in memory while the queue's registers enable it."""
        address = self._pair(queue, "RB_WPTR_POLL_ADDR_LO", "RB_WPTR_POLL_ADDR_HI")
        if queue.ring is not None and self.running and not queue.stopped:
            try:
                pointer = int.from_bytes(self.hub.read(queue.ring.vmid, address, 8, self.client), "little")
            except VmFault as fault:
                self._stop(queue, fault, "its write pointer in memory: ")
                return
            if pointer != queue.ring.end:
                self._advance(queue, pointer)
        queue.poll = self.board.clock.after(POLL_US, partial(self._poll, queue))

    def _save_read_pointer(self, queue: Queue) -> None:
        if queue.ring is None:
            return
        name = self._queue_name(queue)
        self.cells[f"{name}RB_RPTR"], self.cells[f"{name}RB_RPTR_HI"] = queue.done & 0xFFFF_FFFF, queue.done >> 32

    def _report_read_pointer(self, queue: Queue) -> None:
        """Report the read pointer to the host: in the registers, and in memory if enabled."""
        # its packet has just been done
        assert queue.ring is not None
        queue.done = queue.ring.position
        self._save_read_pointer(queue)
        if self._field(queue, "RB_CNTL", "RPTR_WRITEBACK_ENABLE"):
            address = self._pair(queue, "RB_RPTR_ADDR_LO", "RB_RPTR_ADDR_HI") & ~3
            self.hub.write(queue.ring.vmid, address, queue.done.to_bytes(8, "little"), self.client)

    # --- running ------------------------------------------------------------------------------------------------
    def _wake(self, queue: Queue) -> None:
        """Resume a queue if it can continue: it has new dwords, or the engine runs again."""
        if queue.ring is None or queue.stopped or not self.running:
            return
        if queue.work is None:
            if queue.ring.position == queue.ring.end:
                return
            queue.work = self._run(queue)
        if queue.timer is None or queue.waiting:
            queue.waiting = False
            queue.timer = self.board.clock.after(WAKE_US, partial(self._resume, queue))

    def _resume(self, queue: Queue) -> None:
        queue.timer, work = None, queue.work
        if work is None or not self.running:
            return
        self._at_work = work
        self.board.doing = lambda: f"{self.name} queue {queue.number}, packet at {queue.packet_va:#x}"
        try:
            delay = next(work)
        except (BadPacket, VmFault) as wrong:
            self._stop(queue, wrong, f"packet at {queue.packet_va:#x}: ")
        # the caller that lets time pass gets the error; the queue stops
        except RingupError as error:
            queue.work, queue.stopped = None, str(error)
            raise
        # an interrupted step cannot be resumed; a reset of the queue starts again
        except KeyboardInterrupt:
            queue.work, queue.stopped = None, "the user interrupted it within a step"
            raise
        else:
            if queue.work is not work:
                # the packet dropped its own queue
                work.close()
            elif not queue.waiting and queue.timer is None:
                queue.timer = self.board.clock.after(delay, partial(self._resume, queue))
        finally:
            self._at_work = self.board.doing = None

    def _run(self, queue: Queue) -> Generator[float, None, None]:
        """Fetch and execute packets for ever; yields the time to let pass."""
        while True:
            yield from self._await_dwords(queue, 1)
            source = queue.indirect or queue.ring
            assert source is not None  # it has dwords
            queue.packet_va = source.base + source.position % source.size_bytes
            yield from execute(self, queue)
            if queue.indirect is not None and queue.indirect.position >= queue.indirect.end:
                # the dwords fetched ahead belong to the indirect buffer
                queue.indirect, queue.window = None, (0, [])
            if queue.indirect is None:
                self._report_read_pointer(queue)

    def _await_dwords(self, queue: Queue, count: int) -> Generator[float, None, None]:
        """Wait until the current buffer has `count` dwords. An indirect buffer that ends inside a packet raises
        `BadPacket`.
        """
        while True:
            source = queue.indirect or queue.ring
            # a queue without a ring has no coroutine
            assert source is not None
            if source.end - source.position >= count * 4:
                return
            if queue.indirect is not None:
                raise BadPacket(f"the indirect buffer at {source.base:#x} ends inside a packet")
            queue.waiting = True
            yield 0

    def fetch(self, queue: Queue, count: int) -> Generator[float, None, list[int]]:
        """Take the next `count` dwords of the current buffer."""
        yield from self._await_dwords(queue, count)
        source = queue.indirect or queue.ring
        assert source is not None
        dwords: list[int] = []
        while len(dwords) < count:
            start, ahead = queue.window
            if not ahead or not start <= source.position < start + len(ahead) * 4:
                self._fill(queue, source)
                start, ahead = queue.window
            first = (source.position - start) // 4
            taken = ahead[first : first + count - len(dwords)]
            dwords += taken
            source.position += len(taken) * 4
        return dwords

    def _fill(self, queue: Queue, source: Buffer) -> None:
        """Fetch ahead, but not past the end of the ring or the write pointer."""
        offset = source.position % source.size_bytes
        size = min(FETCH_DWORDS * 4, source.end - source.position, source.size_bytes - offset)
        data = self.hub.read(source.vmid, source.base + offset, size, self.client)
        queue.window = (source.position, [int.from_bytes(data[at : at + 4], "little") for at in range(0, size, 4)])

    def call(self, queue: Queue, vmid: int, base: int, size_dwords: int) -> None:
        """Continue in an indirect buffer. A call from an indirect buffer raises `BadPacket`."""
        if queue.indirect is not None:
            raise BadPacket("an indirect buffer calls another")
        assert queue.ring is not None
        if queue.ring.position % 32:
            raise BadPacket(f"INDIRECT ends at {queue.ring.position:#x}, not at a multiple of 8 dwords")
        own = queue.ring.vmid if not self._field(queue, "RB_CNTL", "RB_PRIV") else vmid
        if not self._field(queue, "IB_CNTL", "IB_ENABLE"):
            raise BadPacket("INDIRECT while IB_CNTL.IB_ENABLE is off")
        queue.indirect = Buffer(own, base, max(4, size_dwords * 4), 0, size_dwords * 4)
        queue.window = (0, [])

    def vmid(self, queue: Queue) -> int:
        """Return the VMID of the current buffer's addresses."""
        source = queue.indirect or queue.ring
        assert source is not None
        return source.vmid

    def may_write_registers(self, queue: Queue) -> bool:
        """Whether the current buffer is privileged: it is in the kernel's VMID, or it is the ring and RB_PRIV is set.
        GUESS: an indirect buffer is not privileged by RB_PRIV.
        """
        in_ring = queue.indirect is None
        return self.vmid(queue) == 0 or (in_ring and bool(self._field(queue, "RB_CNTL", "RB_PRIV")))

    def write_refused(self, queue: Queue) -> None:
        """Report a refused register write to the host."""
        self._interrupt(queue, "SRBMWRITE")

    def trap(self, queue: Queue, context: int) -> None:
        """Raise the interrupt of a TRAP packet, if enabled."""
        if self.cells.get(f"{self._prefix}CNTL", "TRAP_ENABLE"):
            self._interrupt(queue, "TRAP", (context,))

    def _interrupt(self, queue: Queue, source: str, data: tuple[int, ...] = ()) -> None:
        ring, row = queue.ring, self.row
        self._interrupts.interrupt(
            row.clients[self.index % len(row.clients)],
            getattr(ids, f"{row.sources}__SRCID__SDMA_{source}"),
            ring_id=queue.number if row.local else self.index << 4 | queue.number,
            vmid=ring.vmid if ring else 0,
            data=data,
        )

    def poll_timeout(self, queue: Queue) -> None:
        """Report to the host that a poll gave up."""
        self._interrupt(queue, "POLL_TIMEOUT")

    def _stop(self, queue: Queue, reason: BadPacket | VmFault, where: str = "") -> None:
        """Stop a queue for good. If the watchdog is on, it reports this to the host."""
        queue.stopped, queue.awaited = f"{where}{reason}", None
        if queue.work is not None:
            queue.work.close()
            queue.work = None
        self._save_read_pointer(queue)
        self.board.log.note(self.name, "violation", "queue {} stops: {}{}", queue.number, where, reason)
        watchdog = f"{self._prefix}WATCHDOG_CNTL"
        if watchdog in self.cells and (units := self.cells.get(watchdog, "QUEUE_HANG_COUNT")):
            hang = partial(self._interrupt, queue, "QUEUE_HANG")
            queue.timer = self.board.clock.after(units * WATCHDOG_UNIT_US, hang)

    # --- status -------------------------------------------------------------------------------------------------
    def _busy(self, queue: Queue) -> bool:
        if queue.ring is None:
            return False
        at_work = queue.timer is not None and not queue.waiting
        return at_work or bool(queue.stopped) or queue.indirect is not None or queue.ring.position != queue.ring.end

    def _status(self) -> int:
        idle = int(not any(self._busy(queue) for queue in self.queues))
        inside = int(any(queue.indirect is not None for queue in self.queues))
        return self.cells.replace(
            f"{self._prefix}STATUS_REG", 0,
            IDLE=idle, REG_IDLE=1, RB_EMPTY=idle, RB_CMD_IDLE=idle, IB_CMD_IDLE=1 - inside, BLOCK_IDLE=idle, INSIDE_IB=inside,
            MC_WR_IDLE=idle, SRBM_IDLE=1, RB_MC_RREQ_IDLE=idle, IB_MC_RREQ_IDLE=1, MC_RD_IDLE=idle, DELTA_RPTR_EMPTY=1, INT_IDLE=1,
            **dict.fromkeys(self.row.idle, idle), **dict.fromkeys(self.row.set, 1),
        )  # fmt: skip

    def _context_status(self, queue: Queue) -> int:
        name = f"{self._queue_name(queue)}CONTEXT_STATUS"
        # the other queues lack the bit, as do all of 4.4.2, which also reports no write-back
        inside = {"USE_IB": int(queue.indirect is not None), "RPTR_WB_IDLE": 1}
        return self.cells.replace(
            name, 0,
            SELECTED=int(queue.ring is not None), IDLE=int(not self._busy(queue)), EXCEPTION=int(bool(queue.stopped)),
            **{field: value for field, value in inside.items() if self.cells.has_field(name, field)},
        )  # fmt: skip
