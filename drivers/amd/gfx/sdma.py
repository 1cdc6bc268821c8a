"""A system DMA engine of the graphics core, and its queues mapped by their registers.

The engine's firmware is loaded with the graphics core's and started here. The registers of all queues are named after
those of engine 0's queue 0, or of the first queue for users (RLC0). Source: amdgpu sdma_v6_0.c (sdma_v6_0_start,
sdma_v6_0_gfx_resume, sdma_v6_0_soft_reset), sdma_v7_0.c, sdma_v4_4_2.c; amdgpu_amdkfd_gfx_v11.c (hqd_sdma_load_v11,
hqd_sdma_destroy_v11), amdgpu_amdkfd_gc_9_4_3.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ringup.autogen.amd import sdma as words
from ringup.autogen.amd.gc import GRBM_SOFT_RESET
from ringup.autogen.amd.sdma_v4 import SDMA_UTCL1_TIMEOUT
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.queue_limits import check_addresses, check_ring, check_vmid
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.drivers.amd.gfx.sdma_rows import ROWS, ContextStatus, Pair
from ringup.drivers.submission.hardware_queue import Position
from ringup.errors import DeviceHung, DeviceTimeout, NotSupported

ENGINES = 2  # among the graphics core's registers
QUEUES = 8
HYP_STEP = 0x20  # dwords to engine 1 of what lies in segment 1. Source: sdma_v6_0.c, SDMA1_HYP_DEC_REG_OFFSET
IDLE_TIMEOUT_US = 2_000_000  # TIMEOUT: amdkfd's own, hqd_sdma_load_v11
DRAIN_TIMEOUT_US = 100_000  # TIMEOUT: ours; the longest copy packet, 1 GiB at PCIe 4.0 x16, takes 40 ms
RESET_STEP_US = 100  # between the steps of a reset. Source: sdma_v6_0_soft_reset
# of 100 ms. sdma_v6_0_gfx_resume sets 1, and sends packets of 4 MiB; one of ours may copy 1 GiB, over a slow link for
# seconds
HANG_COUNT = 100
UTCL1_TIMEOUT = 0x0080_0080  # less interrupts of one fault. Source: sdma_v4_4_2_inst_ctx_switch_enable
WRITEBACK_TIMER = 4  # Source: sdma_v6_0_mqd_init
READ_POLICY, WRITE_POLICY = 2, 3  # of L2: no allocation, bypass. Source: sdma_common.h, CACHE_READ_POLICY_L2__DEFAULT
W = TypeVar("W", bound=Word)


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
    status: ContextStatus


class SdmaEngine:
    """One engine, `index` by logical number. `gc` is the graphics core's block: among its registers lie those of older
    engines. `version` is the engine's own. `block`: its own registers, where it is a block of its own.
    """

    def __init__(self, gc: Block, version: Version, index: int, block: Block | None = None) -> None:
        if version[0] not in ROWS:
            raise NotSupported(
                f"SDMA{index} is version {'.'.join(map(str, version))}; versions {', '.join(map(str, ROWS))} are known"
            )
        self.index, self.row, self._gc = index, ROWS[version[0]], gc
        self.words = self.row.words
        if block is None:
            if not 0 <= index < ENGINES:
                raise ValueError(f"a card has SDMA engines 0 and 1, not {index}")
            self.block = Block(gc.registers, f"SDMA{index}", version, gc.bases)
            self.step = index * self.block.distance(words.SDMA0_QUEUE0_RB_CNTL, words.SDMA1_QUEUE0_RB_CNTL)
            self._control_at = index * HYP_STEP
        else:
            self.block, self.step, self._control_at = block, 0, 0
        self.queue_step = self.block.distance(self.words.ring, self.words.next_ring)

    @property
    def _queue_places(self) -> list[int]:
        return [self.queue_at(queue) for queue in range(QUEUES)]

    def start(self) -> None:
        """Start the engine; no queue is mapped yet. The graphics core must have booted."""
        self._switch_off()
        self._set_up()

    def _set_up(self) -> None:
        """Make the settings of the engine, whose queues are off, and let it run."""
        block, row, step = self.block, self.row, self.step
        block.ensure(self.words.settings, step, **row.settings)
        if row.semaphore_timer:
            block.write(block.make(self.words.semaphore_timer), step)
        if row.watchdog:
            block.update(words.SDMA0_WATCHDOG_CNTL, step, queue_hang_count=HANG_COUNT)
            block.update(words.SDMA0_UTCL1_CNTL, step, resp_mode=3, redo_delay=9)
            policy = {"rd_l2_policy": READ_POLICY, "wr_l2_policy": WRITE_POLICY}
            if row.noalloc:
                policy["llc_noalloc"] = 1
            block.update(words.SDMA0_UTCL1_PAGE, step, **policy)
        else:
            block.write(SDMA_UTCL1_TIMEOUT.at(block.version)(UTCL1_TIMEOUT))
        if row.freezes:
            block.update(words.SDMA0_FREEZE, step, freeze=0)
        if row.resets:
            block.update(self.words.control, self._control_at, halt=0, **{row.reset_field: 0})

    def stop(self) -> None:
        """Halt the engine, or take its queues off where it cannot be started again; twice is harmless."""
        self._take_off()
        if self.row.resets:
            self.block.update(self.words.control, self._control_at, halt=1)

    def _switch_off(self) -> list[int]:
        """Switch the rings off; return the queues that were on."""
        changed = self.block.ensure_each(self.words.ring, self._queue_places, rb_enable=0)
        return [self._queue_places.index(place) for place in changed]

    def _take_off(self) -> list[int]:
        """Switch off the rings of all queues, and the indirect buffers of those that may run: return these. In an idle
        engine only a queue that was on may, and a switch to it may be under way.
        """
        on = self._switch_off()
        running = list(range(QUEUES)) if self.busy else on
        self.block.ensure_each(self.words.indirect, [self.queue_at(queue) for queue in running], ib_enable=0)
        return running

    def reset(self) -> None:
        """Reset only this engine and start it again; its queues are unmapped and must be mapped again. An engine that
        only a reset of the card restarts is waited for.

        Raises `DeviceHung` when it is not idle afterwards.
        """
        running = self._take_off()
        if self.row.resets:
            self._pulse()
            self._set_up()
            running = list(range(QUEUES))
        try:
            # a queue is waited for once more when it is mapped
            for queue in running:
                self.wait_queue_idle(queue, DRAIN_TIMEOUT_US)
        except DeviceTimeout as error:
            what = "is not idle after its reset" if self.row.resets else "does not end its work; reset the card"
            raise DeviceHung(f"SDMA{self.index} {what}: {error}") from error
        if not self.row.resets:
            self._set_up()

    def _pulse(self) -> None:
        """Hold the engine's reset lines for a moment. Source: sdma_v6_0_soft_reset."""
        block, clock = self.block, self.block.registers.clock
        if self.row.freezes:
            block.update(words.SDMA0_FREEZE, self.step, freeze=1)
        block.update(self.words.control, self._control_at, halt=1, **{self.row.reset_field: 1})
        block.write(block.make(words.SDMA0_QUEUE0_PREEMPT), self.step)
        clock.sleep_us(RESET_STEP_US)
        for asserted in (1, 0):
            self._gc.write(self._gc.make(GRBM_SOFT_RESET, **{f"soft_reset_sdma{self.index}": asserted}))
            # the write has arrived when the read returns
            self._gc.read(GRBM_SOFT_RESET)
            clock.sleep_us(RESET_STEP_US)

    def queue_at(self, number: int) -> int:
        """Return the dwords from the registers of engine 0's queue 0 to those of a queue of this engine."""
        return self.step + number * self.queue_step

    def wait_queue_idle(self, number: int, timeout_us: int) -> None:
        """Wait until nothing of a queue runs. Raises `DeviceTimeout`."""
        self.block.wait(
            self.words.context,
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
        return bool(self.block.read(self.words.control, self._control_at).halt)

    @property
    def busy(self) -> bool:
        """Whether it is working at this moment."""
        return not self.block.read(self.words.status, self.step).idle

    @property
    def status(self) -> dict[str, Word]:
        """Read the registers for a post-mortem, by name."""
        block, step = self.block, self.step
        return {
            word.__name__.replace("SDMA0", f"SDMA{self.index}", 1): block.read(word, step)
            for word in (self.words.status, *self.words.more_status)
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

    def _write_pair(self, pair: Pair, value: int) -> None:
        self.engine.block.write_pair(*pair, value, self._at)

    def _read(self, word: type[W]) -> W:
        return self.engine.block.read(word, self._at)

    def map(self) -> None:
        """Load the queue and let it run; its pointers start at 0. Raises `DeviceTimeout` when earlier work there does
        not end.
        """
        spec, words, row = self.spec, self.engine.words, self.engine.row
        control = self.engine.block.make(
            words.ring,
            rb_size=spec.ring_dwords.bit_length() - 1,
            rptr_writeback_enable=1,
            rptr_writeback_timer=WRITEBACK_TIMER,
            rb_priv=spec.privileged,
            rb_vmid=spec.vmid,
            **({row.poll_field: 1} if row.poll_field else {}),
        )
        self.engine.block.write(control, self._at)
        self.wait_idle(IDLE_TIMEOUT_US)
        self._write(words.doorbell_offset, offset=spec.doorbell_index)
        self._write(words.doorbell, enable=1)
        self._write_pair(words.rptr, 0)
        # ORDER: the write pointer may only become less between these two
        self._write(words.minor_pointer, enable=1)
        self._write_pair(words.wptr, 0)
        self._write(words.minor_pointer, enable=0)
        self._write_pair(words.base, spec.ring_va >> 8)
        self._write_pair(words.rptr_address, spec.rptr_va)
        self._write_pair(words.wptr_address, spec.wptr_va)
        self.engine.block.write(control.replace(rb_enable=1), self._at)
        self.engine.block.update(words.indirect, self._at, ib_enable=1)

    def unmap(self, timeout_us: int = DRAIN_TIMEOUT_US) -> bool:
        """Unmap the queue. Return False if it was still busy after `timeout_us`: only a reset of the engine frees it
        then.
        """
        self.engine.block.update(self.engine.words.ring, self._at, rb_enable=0)
        try:
            self.wait_idle(timeout_us)
        except DeviceTimeout:
            return False
        self._write(self.engine.words.doorbell)
        self.engine.block.update(self.engine.words.indirect, self._at, ib_enable=0)
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
            enabled=bool(self._read(self.engine.words.ring).rb_enable),
            rptr=block.read_pair(*self.engine.words.rptr, at),
            wptr=block.read_pair(*self.engine.words.wptr, at),
            status=self._read(self.engine.words.context),
        )

    def position(self) -> Position:
        """Read where the queue stands, in bytes, and its context's status."""
        at = self.pointers()
        return Position(at.enabled, at.rptr, at.wptr, {"status": at.status})
