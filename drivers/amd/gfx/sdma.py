"""A system DMA engine of the graphics core, and its queues mapped by their registers.

The engine's firmware is loaded with the graphics core's and started here. The registers of all queues are named after
those of engine 0's queue 0. Source: amdgpu sdma_v6_0.c (sdma_v6_0_start, sdma_v6_0_gfx_resume, sdma_v6_0_soft_reset),
sdma_v7_0.c; amdgpu_amdkfd_gfx_v11.c (hqd_sdma_load_v11, hqd_sdma_destroy_v11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ringup.autogen.amd import sdma as words
from ringup.autogen.amd.gc import GRBM_SOFT_RESET
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.queue_limits import check_addresses, check_ring, check_vmid
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.drivers.amd.gfx.hardware_queue import Position
from ringup.errors import DeviceHung, DeviceTimeout, NotSupported

ENGINES = 2
QUEUES = 8
HYP_STEP = 0x20  # dwords to engine 1 of what lies in segment 1. Source: sdma_v6_0.c, SDMA1_HYP_DEC_REG_OFFSET
IDLE_TIMEOUT_US = 2_000_000  # TIMEOUT: amdkfd's own, hqd_sdma_load_v11
DRAIN_TIMEOUT_US = 100_000  # TIMEOUT: ours; the longest copy packet, 1 GiB at PCIe 4.0 x16, takes 40 ms
RESET_STEP_US = 100  # between the steps of a reset. Source: sdma_v6_0_soft_reset
# of 100 ms. sdma_v6_0_gfx_resume sets 1, and sends packets of 4 MiB; one of ours may copy 1 GiB, over a slow link for
# seconds
HANG_COUNT = 100
WRITEBACK_TIMER = 4  # Source: sdma_v6_0_mqd_init
READ_POLICY, WRITE_POLICY = 2, 3  # of L2: no allocation, bypass. Source: sdma_common.h, CACHE_READ_POLICY_L2__DEFAULT
W = TypeVar("W", bound=Word)


class EngineRow(NamedTuple):
    """What differs by version: the halt register and its reset field, the poll field of a queue, features that the
    engine has or lacks.
    """

    control: type[words.SDMA0_F32_CNTL | words.SDMA0_MCU_CNTL]
    reset_field: str
    poll_field: str
    freezes: bool
    semaphore_timer: bool
    noalloc: bool


_ROWS: dict[int, EngineRow] = {
    6: EngineRow(words.SDMA0_F32_CNTL, "th1_reset", "f32_wptr_poll_enable", True, True, True),
    7: EngineRow(words.SDMA0_MCU_CNTL, "reset", "mcu_wptr_poll_enable", False, False, False),
}


@dataclass(frozen=True, slots=True)
class SdmaQueueSpec:
    """The parameters of a queue: addresses of `vmid`, `doorbell_index` in dwords of BAR 2.

    The engine stores the read pointer (64 bits, bytes) at `rptr_va`. ORDER: the host stores the write pointer (64 bits,
    bytes) at `wptr_va` before it rings the doorbell: an engine that works on another queue then reads it there.
    """

    ring_va: int
    ring_dwords: int
    rptr_va: int
    wptr_va: int
    vmid: int
    doorbell_index: int
    privileged: bool = False

    def __post_init__(self) -> None:
        """Refuse values that the registers cannot hold."""
        check_ring(self.ring_dwords)
        check_addresses(
            ("ring_va", self.ring_va, 256),
            ("rptr_va", self.rptr_va, 8),
            ("wptr_va", self.wptr_va, 8),
        )
        check_vmid(self.vmid)


class SdmaPointers(NamedTuple):
    """Where a queue stands, in bytes."""

    enabled: bool
    rptr: int
    wptr: int
    status: words.SDMA0_QUEUE0_CONTEXT_STATUS


class SdmaEngine:
    """Engine 0 or 1. Its registers lie among the graphics core's, whose block `gc` is; `version` is the engine's
    own.
    """

    def __init__(self, gc: Block, version: Version, index: int) -> None:
        if version[0] not in _ROWS:
            raise NotSupported(
                f"SDMA{index} is version {'.'.join(map(str, version))}; versions {', '.join(map(str, _ROWS))} are known"
            )
        if not 0 <= index < ENGINES:
            raise ValueError(f"a card has SDMA engines 0 and 1, not {index}")
        self.index, self.row, self._gc = index, _ROWS[version[0]], gc
        self.block = Block(gc.registers, f"SDMA{index}", version, gc.bases)
        self._engine_step = self.block.distance(words.SDMA0_QUEUE0_RB_CNTL, words.SDMA1_QUEUE0_RB_CNTL)
        self.queue_step = self.block.distance(words.SDMA0_QUEUE0_RB_CNTL, words.SDMA0_QUEUE1_RB_CNTL)
        self._control_at = index * HYP_STEP

    @property
    def step(self) -> int:
        """Dwords from engine 0's registers to this one's."""
        return self.index * self._engine_step

    @property
    def _queue_places(self) -> list[int]:
        return [self.queue_at(queue) for queue in range(QUEUES)]

    def start(self) -> None:
        """Start the engine; no queue is mapped yet. The graphics core must have booted."""
        block, row, step = self.block, self.row, self.step
        block.update_each(words.SDMA0_QUEUE0_RB_CNTL, self._queue_places, rb_enable=0)
        block.update(words.SDMA0_CNTL, step, trap_enable=1, ctxempty_int_enable=0)
        if row.semaphore_timer:
            block.write(block.make(words.SDMA0_SEM_WAIT_FAIL_TIMER_CNTL), step)
        block.update(words.SDMA0_WATCHDOG_CNTL, step, queue_hang_count=HANG_COUNT)
        block.update(words.SDMA0_UTCL1_CNTL, step, resp_mode=3, redo_delay=9)
        policy = {"rd_l2_policy": READ_POLICY, "wr_l2_policy": WRITE_POLICY}
        if row.noalloc:
            policy["llc_noalloc"] = 1
        block.update(words.SDMA0_UTCL1_PAGE, step, **policy)
        if row.freezes:
            block.update(words.SDMA0_FREEZE, step, freeze=0)
        block.update(row.control, self._control_at, halt=0, **{row.reset_field: 0})

    def stop(self) -> None:
        """Halt the engine; twice is harmless."""
        self.block.update_each(words.SDMA0_QUEUE0_RB_CNTL, self._queue_places, rb_enable=0)
        self.block.update_each(words.SDMA0_QUEUE0_IB_CNTL, self._queue_places, ib_enable=0)
        self.block.update(self.row.control, self._control_at, halt=1)

    def reset(self) -> None:
        """Reset only this engine and start it again; its queues are unmapped and must be mapped again.

        Raises `DeviceHung` when it is not idle afterwards.
        """
        block, clock = self.block, self.block.registers.clock
        self.stop()
        if self.row.freezes:
            block.update(words.SDMA0_FREEZE, self.step, freeze=1)
        block.update(self.row.control, self._control_at, halt=1, **{self.row.reset_field: 1})
        block.write(block.make(words.SDMA0_QUEUE0_PREEMPT), self.step)
        clock.sleep_us(RESET_STEP_US)
        for asserted in (1, 0):
            self._gc.write(self._gc.make(GRBM_SOFT_RESET, **{f"soft_reset_sdma{self.index}": asserted}))
            # the write has arrived when the read returns
            self._gc.read(GRBM_SOFT_RESET)
            clock.sleep_us(RESET_STEP_US)
        self.start()
        try:
            for queue in range(QUEUES):
                self.wait_queue_idle(queue, DRAIN_TIMEOUT_US)
        except DeviceTimeout as error:
            raise DeviceHung(f"SDMA{self.index} is not idle after its reset: {error}") from error

    def queue_at(self, number: int) -> int:
        """Return the dwords from the registers of engine 0's queue 0 to those of a queue of this engine."""
        return self.step + number * self.queue_step

    def wait_queue_idle(self, number: int, timeout_us: int) -> None:
        """Wait until nothing of a queue runs. Raises `DeviceTimeout`."""
        self.block.wait(
            words.SDMA0_QUEUE0_CONTEXT_STATUS,
            lambda word: bool(word.idle),
            timeout_us,
            f"emptying {self.queue_name(number)}",
            self.queue_at(number),
        )

    def queue_name(self, number: int) -> str:
        """Name a queue as registers do."""
        return f"SDMA{self.index} queue {number}"

    @property
    def halted(self) -> bool:
        """Whether its micro engine is halted, so that none of its queues makes progress."""
        return bool(self.block.read(self.row.control, self._control_at).halt)

    @property
    def busy(self) -> bool:
        """Whether it is working at this moment."""
        return not self.block.read(words.SDMA0_STATUS_REG, self.step).idle

    @property
    def status(self) -> dict[str, Word]:
        """Read the registers for a post-mortem, by name."""
        block, step = self.block, self.step
        names = (words.SDMA0_STATUS_REG, words.SDMA0_STATUS1_REG, words.SDMA0_STATUS2_REG, words.SDMA0_STATUS3_REG)
        faults = (words.SDMA0_UTCL1_RD_STATUS, words.SDMA0_UTCL1_WR_STATUS, words.SDMA0_QUEUE_STATUS0)
        return {
            word.__name__.replace("SDMA0", f"SDMA{self.index}", 1): block.read(word, step) for word in names + faults
        }


class SdmaQueue:
    """Queue `number` of an engine, as `spec` describes it."""

    def __init__(self, engine: SdmaEngine, number: int, spec: SdmaQueueSpec) -> None:
        if not 0 <= number < QUEUES:
            raise ValueError(f"an SDMA engine has queues 0 to {QUEUES - 1}, not {number}")
        self.engine, self.number, self.spec = engine, number, spec
        self._at = engine.queue_at(number)

    def __str__(self) -> str:
        """Name it as registers do."""
        return self.engine.queue_name(self.number)

    @property
    def engine_number(self) -> int:
        """The number of its engine."""
        return self.engine.index

    @property
    def engine_name(self) -> str:
        """Its engine, as messages name it."""
        return f"SDMA{self.engine.index}"

    def _write(self, word: type[Word], **fields: int) -> None:
        self.engine.block.write(self.engine.block.make(word, **fields), self._at)

    def _write_pair(self, low: type[Word], high: type[Word], value: int) -> None:
        self.engine.block.write_pair(low, high, value, self._at)

    def _read(self, word: type[W]) -> W:
        return self.engine.block.read(word, self._at)

    def map(self) -> None:
        """Load the queue and let it run; its pointers start at 0. Raises `DeviceTimeout` when earlier work there does
        not end.
        """
        spec = self.spec
        control = self.engine.block.make(
            words.SDMA0_QUEUE0_RB_CNTL,
            rb_size=spec.ring_dwords.bit_length() - 1,
            rptr_writeback_enable=1,
            rptr_writeback_timer=WRITEBACK_TIMER,
            rb_priv=spec.privileged,
            rb_vmid=spec.vmid,
            **{self.engine.row.poll_field: 1},
        )
        self.engine.block.write(control, self._at)
        self.wait_idle(IDLE_TIMEOUT_US)
        self._write(words.SDMA0_QUEUE0_DOORBELL_OFFSET, offset=spec.doorbell_index)
        self._write(words.SDMA0_QUEUE0_DOORBELL, enable=1)
        self._write_pair(words.SDMA0_QUEUE0_RB_RPTR, words.SDMA0_QUEUE0_RB_RPTR_HI, 0)
        # ORDER: the write pointer may only become less between these two
        self._write(words.SDMA0_QUEUE0_MINOR_PTR_UPDATE, enable=1)
        self._write_pair(words.SDMA0_QUEUE0_RB_WPTR, words.SDMA0_QUEUE0_RB_WPTR_HI, 0)
        self._write(words.SDMA0_QUEUE0_MINOR_PTR_UPDATE, enable=0)
        self._write_pair(words.SDMA0_QUEUE0_RB_BASE, words.SDMA0_QUEUE0_RB_BASE_HI, spec.ring_va >> 8)
        self._write_pair(words.SDMA0_QUEUE0_RB_RPTR_ADDR_LO, words.SDMA0_QUEUE0_RB_RPTR_ADDR_HI, spec.rptr_va)
        self._write_pair(words.SDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO, words.SDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI, spec.wptr_va)
        self.engine.block.write(control.replace(rb_enable=1), self._at)
        self.engine.block.update(words.SDMA0_QUEUE0_IB_CNTL, self._at, ib_enable=1)

    def unmap(self, timeout_us: int = DRAIN_TIMEOUT_US) -> bool:
        """Unmap the queue. Return False if it was still busy after `timeout_us`: only a reset of the engine frees it
        then.
        """
        self.engine.block.update(words.SDMA0_QUEUE0_RB_CNTL, self._at, rb_enable=0)
        try:
            self.wait_idle(timeout_us)
        except DeviceTimeout:
            return False
        self._write(words.SDMA0_QUEUE0_DOORBELL)
        self.engine.block.update(words.SDMA0_QUEUE0_IB_CNTL, self._at, ib_enable=0)
        return True

    def reset(self) -> None:
        """Unmap the queue as `unmap` does: the engine cannot kill the work of one queue. Raises `DeviceHung` when it
        stays busy.
        """
        if not self.unmap():
            raise DeviceHung(f"{self} is busy, and only a reset of its engine frees it")

    def wait_idle(self, timeout_us: int) -> None:
        """Wait until nothing of the queue runs. Raises `DeviceTimeout`."""
        self.engine.wait_queue_idle(self.number, timeout_us)

    def pointers(self) -> SdmaPointers:
        """Read where the queue stands."""
        block, at = self.engine.block, self._at
        return SdmaPointers(
            enabled=bool(self._read(words.SDMA0_QUEUE0_RB_CNTL).rb_enable),
            rptr=block.read_pair(words.SDMA0_QUEUE0_RB_RPTR, words.SDMA0_QUEUE0_RB_RPTR_HI, at),
            wptr=block.read_pair(words.SDMA0_QUEUE0_RB_WPTR, words.SDMA0_QUEUE0_RB_WPTR_HI, at),
            status=self._read(words.SDMA0_QUEUE0_CONTEXT_STATUS),
        )

    def position(self) -> Position:
        """Read where the queue stands, in bytes, and its context's status."""
        at = self.pointers()
        return Position(at.enabled, at.rptr, at.wptr, {"status": at.status})
