"""A hardware queue (HQD) of the compute micro engine, mapped by the host: its registers are loaded under GRBM_GFX_CNTL,
without a scheduler.

On a card of several dies of the graphics core (XCCs), a queue is one on each of them: `SpreadHqd`. Source: amdgpu
amdgpu_amdkfd_gfx_v11.c (hqd_load_v11, hqd_destroy_v11), gfx_v11_0_reset_kcq; amdkfd kfd_mqd_manager_v9.c
(load_mqd_v9_4_3, destroy_mqd_v9_4_3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.amd import gc_hqd
from ringup.autogen.amd.gc import GRBM_GFX_CNTL
from ringup.autogen.amd.gc_pipe import SPI_COMPUTE_QUEUE_RESET
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx import mqd
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.memory.access import Access
from ringup.drivers.submission.hardware_queue import COMPUTE, Position
from ringup.errors import DeviceHung, DeviceTimeout

DRAIN, RESET_WAVES = 1, 2  # of CP_HQD_DEQUEUE_REQUEST. Source: amdgpu_amdkfd_gfx_v11.c, hqd_dequeue_request_type
DRAIN_TIMEOUT_US = 100_000  # TIMEOUT: amdgpu's own, gfx_v11_0_kiq_init_register: AMDGPU_MAX_USEC_TIMEOUT
RESET_TIMEOUT_US = 100_000  # TIMEOUT: amdgpu's own, gfx_v11_0_reset_kcq
COMPUTE_ME = 1
DWORD_BYTES = 4
PIPES, QUEUES = 4, 8  # of micro engine 1, queues of each pipe, that GRBM_GFX_CNTL selects; a chip may have fewer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue lies: a pipe and a queue of micro engine 1."""

    pipe: int
    queue: int

    def __post_init__(self) -> None:
        """Refuse what GRBM_GFX_CNTL cannot select."""
        if not 0 <= self.pipe < PIPES or not 0 <= self.queue < QUEUES:
            raise ValueError(f"micro engine 1 has pipes 0 to {PIPES - 1} of {QUEUES} queues, not {self}")

    def __str__(self) -> str:
        """Name it as amdgpu's rings are named: micro engine, pipe, queue."""
        return f"{COMPUTE_ME}.{self.pipe}.{self.queue}"


class Pointers(NamedTuple):
    """Where a queue stands, in dwords; `error` holds CP_HQD_ERROR."""

    active: bool
    rptr: int
    wptr: int
    error: gc_hqd.CP_HQD_ERROR


SafeMode = Callable[[], AbstractContextManager[None]]  # keeps clocks and power on meanwhile


def selector(gc: Block, place: Place) -> GRBM_GFX_CNTL:
    """Return what selects a queue for the registers that every one has."""
    return gc.make(GRBM_GFX_CNTL, meid=COMPUTE_ME, pipeid=place.pipe, queueid=place.queue)


def selected(gc: Block, place: Place) -> AbstractContextManager[None]:
    """Select a queue for the registers that every one has, none at the end."""
    return gc.selected(selector(gc, place), gc.make(GRBM_GFX_CNTL))


def drop(gc: Block, place: Place, safe_mode: SafeMode) -> None:
    """Kill the work of the queue at `place` and unmap it; other queues go on. Raises `DeviceHung` when it does not let
    go.
    """
    try:
        with safe_mode(), selected(gc, place):
            gc.write(gc.make(gc_hqd.CP_HQD_DEQUEUE_REQUEST, dequeue_req=RESET_WAVES))
            gc.write(gc.make(SPI_COMPUTE_QUEUE_RESET, reset=1))
            _wait_inactive(gc, f"resetting compute queue {place}", RESET_TIMEOUT_US)
    except DeviceTimeout as error:
        raise DeviceHung(
            f"compute queue {place} cannot be taken off, not even by killing its waves: {error}"
        ) from error


def _wait_inactive(gc: Block, doing: str, timeout_us: int) -> None:
    """Wait until the selected queue is off, and disconnect its doorbell."""
    gc.wait(gc_hqd.CP_HQD_ACTIVE, lambda word: not word.active, timeout_us, doing)
    gc.write(gc.make(gc_hqd.CP_HQD_DEQUEUE_REQUEST))
    gc.write(gc.make(gc_hqd.CP_HQD_PQ_DOORBELL_CONTROL))


class Hqd:
    """One compute queue. `descriptor` is the page of memory at `spec.mqd_va`; `flush_hdp` flushes what was written to
    it.
    """

    def __init__(
        self,
        gc: Block,
        place: Place,
        spec: QueueSpec,
        descriptor: memoryview | Access,
        safe_mode: SafeMode,
        flush_hdp: Callable[[], None],
    ) -> None:
        self.place, self.spec = place, spec
        self._gc, self._descriptor, self._safe_mode, self._flush_hdp = gc, descriptor, safe_mode, flush_hdp
        self._image = b""

    def __str__(self) -> str:
        """Name it by its place."""
        return f"compute {self.place}"

    def is_at(self, me: int, pipe: int, queue: int) -> bool:
        """Tell whether an interrupt names this queue."""
        return me == COMPUTE_ME and (pipe, queue) == (self.place.pipe, self.place.queue)

    engine_number = COMPUTE
    engine_name = "the compute micro engine (MEC)"

    def map(self) -> None:
        """Load the queue and let it run; its pointers start at 0. A queue that a previous owner left active there is
        killed first.
        """
        self.describe()
        # ORDER: the engine preloads shader registers from the descriptor when the queue becomes active. Source:
        # amdgpu_gfx_enable_kcq
        self._flush_hdp()
        self.switch_on()

    def describe(self) -> None:
        """Write the queue's descriptor; `switch_on` comes after a flush."""
        self._image = mqd.compute_mqd(self._gc.version, self.spec)
        self._descriptor[: len(self._image)] = self._image

    def switch_on(self) -> None:
        """Load the queue as it was described, and let it run."""
        gc = self._gc
        first = gc.address(gc_hqd.CP_MQD_BASE_ADDR)
        count = gc.distance(gc_hqd.CP_MQD_BASE_ADDR, gc_hqd.CP_HQD_PQ_WPTR_HI) + 1
        with gc.selecting(gc.make(GRBM_GFX_CNTL)) as select:
            select(selector(gc, self.place))
            if gc.read(gc_hqd.CP_HQD_ACTIVE).active:
                self.reset()
                select(selector(gc, self.place))
            gc.registers.write_run(first, struct.unpack_from(f"<{count}I", self._image, mqd.FIRST_HQD_DWORD * 4))
            # ORDER: the doorbell is connected before the queue is active, or a ring of it in between is lost
            gc.write(mqd.doorbell_control(gc.version, self.spec, on=True))
            gc.write(gc.make(gc_hqd.CP_HQD_EOP_RPTR, init_fetcher=1))
            gc.write(gc.make(gc_hqd.CP_HQD_ACTIVE, active=1))
            active = bool(gc.read(gc_hqd.CP_HQD_ACTIVE).active)
        if not active:
            raise DeviceHung(f"compute queue {self.place} did not become active; the graphics core needs a reset")

    def unmap(self, timeout_us: int = DRAIN_TIMEOUT_US) -> bool:
        """Unmap the queue. Work that it has begun gets `timeout_us` to end: return True if it did, False if its waves
        were killed.

        Raises `DeviceHung` when the queue does not let go.
        """
        gc = self._gc
        try:
            with selected(gc, self.place):
                gc.write(gc.make(gc_hqd.CP_HQD_DEQUEUE_REQUEST, dequeue_req=DRAIN))
                _wait_inactive(gc, f"draining compute queue {self.place}", timeout_us)
        except DeviceTimeout:
            self.reset()
            return False
        return True

    def reset(self) -> None:
        """Kill the queue's work and unmap it; other queues go on. Raises `DeviceHung` when it does not let go."""
        drop(self._gc, self.place, self._safe_mode)

    def pointers(self) -> Pointers:
        """Read where the queue stands."""
        gc = self._gc
        with selected(gc, self.place):
            return Pointers(
                active=bool(gc.read(gc_hqd.CP_HQD_ACTIVE).active),
                rptr=int(gc.read(gc_hqd.CP_HQD_PQ_RPTR)),
                wptr=gc.read_pair(gc_hqd.CP_HQD_PQ_WPTR_LO, gc_hqd.CP_HQD_PQ_WPTR_HI),
                error=gc.read(gc_hqd.CP_HQD_ERROR),
            )

    def position(self) -> Position:
        """Read where the queue stands, in bytes, and CP_HQD_ERROR if it holds an error."""
        at = self.pointers()
        status = {"error": at.error} if int(at.error) else {}
        return Position(at.active, at.rptr * DWORD_BYTES, at.wptr * DWORD_BYTES, status)


class SpreadHqd:
    """A compute queue that several dies share: `parts` are its queues on each, all at one place, by logical number.
    They read the same ring, and one doorbell rings all of them.
    """

    def __init__(self, parts: Sequence[Hqd], clear: Callable[[], None], flush_hdp: Callable[[], None]) -> None:
        """`clear()` makes the words 0 by which the dies wait for one another; `flush_hdp` flushes what was written."""
        self._clear, self._flush_hdp = clear, flush_hdp
        self.parts, self.place, self.spec = tuple(parts), parts[0].place, parts[0].spec

    def __str__(self) -> str:
        """Name it by its place."""
        return f"compute {self.place} on {len(self.parts)} XCCs"

    engine_number = COMPUTE
    engine_name = Hqd.engine_name

    def is_at(self, me: int, pipe: int, queue: int) -> bool:
        """Tell whether an interrupt names this queue."""
        return self.parts[0].is_at(me, pipe, queue)

    def map(self) -> None:
        """Load the queue on every die. ORDER: all are on before anything is put into the ring, since a die counts on
        the others' shares of the work.
        """
        self._clear()
        for part in self.parts:
            part.describe()
        self._flush_hdp()
        for part in self.parts:
            part.switch_on()

    def unmap(self, timeout_us: int = DRAIN_TIMEOUT_US) -> bool:
        """Unmap the queue from every die, as `Hqd.unmap` does. Return True if all work had ended."""
        ended = [part.unmap(timeout_us) for part in self.parts]
        return all(ended)

    def reset(self) -> None:
        """Kill the queue's work on every die and unmap it. Raises `DeviceHung` for those that do not let go, after all
        were tried.
        """
        stuck = []
        for part in self.parts:
            try:
                part.reset()
            except DeviceHung as error:
                stuck.append(f"XCC {part.spec.xcc}: {error}")
        if stuck:
            raise DeviceHung("; ".join(stuck))

    def position(self) -> Position:
        """Read where the queue stands: the pointers of the die that is furthest behind, and the errors of each."""
        seen = [part.position() for part in self.parts]
        last = min(seen, key=lambda at: at.rptr_bytes)
        status = {f"XCC {xcc} {name}": word for xcc, at in enumerate(seen) for name, word in at.status.items()}
        first = max(at.rptr_bytes for at in seen)
        late = [f"XCC {xcc}" for xcc, at in enumerate(seen) if at.rptr_bytes == last.rptr_bytes]
        behind = ", ".join(late) if first > last.rptr_bytes else ""
        return Position(all(at.mapped for at in seen), last.rptr_bytes, last.wptr_bytes, status, behind)


ComputeHardware = Hqd | SpreadHqd
