"""What a program does with an open NVIDIA card besides, whichever driver drives it: cubins, what the card is, errors of
its channels.
"""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.drivers.nv.submission.card_queue import ComputeQueue, CopyQueue
from ringup.drivers.rung import Rung
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.queue_stats import QueueStats, queue_stats
from ringup.drivers.submission.verbs import PROGRAM_ALIGN, AnyCard, Path, Queues, StampForm
from ringup.drivers.transport.wait import poll
from ringup.errors import CompileError, DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, RingupError
from ringup.queues.nv.program import Program
from ringup.queues.nv.semaphores import STAMP_BYTES, STAMP_CLOCK_AT
from ringup.queues.timeline import copy_of

if TYPE_CHECKING:
    from ringup.queues.nv.cubin import Cubin

LOG = logging.getLogger(__name__)
SELF_TEST_US = 5_000_000
GRACE_US, GRACE_POLL_US = 20_000, 1_000  # TIMEOUT: ours: what still runs may end by itself before it is killed
CHANNEL_RUNG = "channel"
# GUESS: warps fetch instructions beyond the last one; Mesa's nvk_shader.c leaves 2 KiB behind each
PREFETCH_BYTES = 2048


@dataclass(frozen=True, slots=True)
class CardInfo:
    """What a card is. Sizes are in bytes. `window_bytes`: how much of its memory the CPU can see at once.
    `compute_units`: its streaming multiprocessors (SMs).
    """

    name: str
    chip: str
    target: str
    product: str
    pci_id: str
    address: str
    vram_bytes: int
    window_bytes: int
    compute_units: int
    warps_per_unit: int
    wave_size: int
    l2_bytes: int
    copy_engines: int
    gid: str
    versions: dict[str, str]
    firmware: dict[str, str]
    found: str
    doubts: tuple[str, ...] = ()


class ChannelQueues(Queues, Protocol):
    """Makes the queues of a card."""

    queues: list[CardQueue]

    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Make a queue's channel anew; undone work fails with `cause`."""
        ...


P = TypeVar("P", bound=Path)
Q = TypeVar("Q", bound=ChannelQueues)


class AnyNvidia(AnyCard[P, Q, ComputeQueue, CopyQueue]):
    """One NVIDIA card that is up, of the thread that opened it. Use it as a context manager, or `close` it."""

    STAMP = StampForm(STAMP_BYTES, STAMP_CLOCK_AT)

    def __init__(self, device: P) -> None:
        super().__init__(device)
        self._faults = self._resets = 0
        # queues whose channel was stopped, or is not made anew yet
        self._stopped: weakref.WeakSet[CardQueue] = weakref.WeakSet()

    @property
    @abstractmethod
    def facts(self) -> CardFacts:
        """What the resource manager tells of the card."""

    @property
    def target(self) -> str:
        """What compilers call its instruction set."""
        return self.facts.row.target

    @property
    def _copy_engines(self) -> int:
        return len(self.facts.copy_engines)

    def __repr__(self) -> str:
        return f"<{self.facts.chip} {self.name}>"

    # --- errors of channels -----------------------------------------------------------------------------------------
    @abstractmethod
    def stopped_for(self, queue: CardQueue) -> RingupError | None:
        """Return why a queue's channel was stopped; None while it runs."""

    def _take_in(self) -> None:
        """Note which channels were stopped since the last look."""
        for queue in self._queues.queues:
            if queue.closed or queue in self._stopped:
                continue
            cause = self.stopped_for(queue)
            if cause is not None:
                self._stopped.add(queue)
                self._faults += isinstance(cause, DeviceFault)
                self._fail(cause)

    def _look(self, last: bool) -> None:
        """Take in the errors of channels; raise the first. `last`: no later call comes."""
        self.owner.check()
        self._take_in()
        if self.fault is not None:
            raise copy_of(self.fault)
        if last:
            self._check_there("waiting for work")

    @abstractmethod
    def _check_there(self, doing: str) -> None:
        """Raise `DeviceLost` if the card is gone."""

    def _explain(self, error: RingupError) -> None:
        """Add to an error where the queues stand."""
        if not isinstance(error, DeviceTimeout):
            return
        for one in self._queue_stats():
            error.add_note(f"{one.name}: {one.completed} of {one.submitted} done")
        for queue in self._queues.queues:
            if not queue.closed and not queue.timeline.idle:
                for line in self.stands(queue):
                    error.add_note(line)
        self._explain_peers(error)

    def stands(self, queue: CardQueue) -> Sequence[str]:
        """Say where a queue's channel stands: what it has fetched last, and the methods that it has not done."""
        # few programs ask, so the decoder is imported on use
        from ringup.drivers.nv.observe.pending import pending

        return pending(queue, self.facts.row, self.memory)

    def _queue_stats(self) -> tuple[QueueStats, ...]:
        return tuple(queue_stats(queue) for queue in self._queues.queues if not queue.closed)

    # --- reset ------------------------------------------------------------------------------------------------------
    def reset(self, first: str = CHANNEL_RUNG) -> list[Rung]:
        """Make channels that were stopped, or whose work does not end, anew; their work fails. Memory stays.

        Raises `ValueError` for another rung, `DeviceLost` for a card that is gone, `DeviceHung` if a new channel does
        not run.
        """
        self._check()
        if first != CHANNEL_RUNG:
            raise ValueError(f"{self.name} has no reset {first!r}; it has {CHANNEL_RUNG}")
        self._take_in()
        cause = self.fault
        if isinstance(cause, DeviceLost):
            raise copy_of(cause)
        hit = self._unfinished()
        cause = cause or DeviceHung(f"{self.name} was reset before the work was done")
        # until they have run what a channel runs first: another reset goes on where this one fails
        self._stopped.update(hit)
        try:
            for queue in hit:
                queue.hardware.reset()
            self.fault = None
            self.owner.accept()
            for queue in hit:
                self._queues.map_again(queue, cause)
                self._stopped.discard(queue)
        # a channel that is off has no doorbell of its own any more: no work may be sent
        except BaseException as error:
            self._fail(
                error if isinstance(error, RingupError) else DeviceHung(f"{self.name}: its reset was interrupted")
            )
            raise
        for queue in hit:
            queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)
        self._resets += 1
        return [Rung(CHANNEL_RUNG, "memory and the other channels")]

    def _unfinished(self) -> list[CardQueue]:
        """Return the queues that were stopped, or whose work does not end in a moment; all where there is none."""
        live = [queue for queue in self._queues.queues if not queue.closed]
        busy: list[CardQueue] = poll(
            lambda: [queue for queue in live if queue in self._stopped or not queue.timeline.idle],
            lambda busy: not any(queue not in self._stopped for queue in busy),
            clock=self.device.clock,
            timeout_us=GRACE_US,
            poll_us=GRACE_POLL_US,
        )
        return busy or live

    # --- programs ---------------------------------------------------------------------------------------------------
    def load(self, code: bytes | Cubin, name: str = "program", *, kernel: str = "") -> Program:
        """Put a cubin (an ELF of machine code for this card's SMs, or a parsed one) into the card's memory.

        `kernel`: a name that it must have. Raises `WrongTarget` for another chip's, `CompileError` for a damaged one,
        `OutOfMemory`.
        """
        # only a card that runs programs needs them
        from ringup.queues.nv.cubin import Cubin

        self._check()
        if not isinstance(code, (bytes, bytearray, memoryview, Cubin)):
            raise TypeError(f"code is the bytes of a cubin, such as `Path.read_bytes` gives, not {code!r:.80}")
        parsed = code if isinstance(code, Cubin) else Cubin(bytes(code), name)
        parsed.check(self.facts.row)
        if kernel and kernel not in parsed.kernels:
            raise CompileError(f"{name} has no kernel {kernel!r}; it has {', '.join(parsed.kernels) or 'none'}")
        size_bytes = parsed.image_bytes + PREFETCH_BYTES
        buffer = self.memory.alloc(size_bytes, "vram", visible=False, name=name, align=PROGRAM_ALIGN)
        with undone_on_error(buffer.free):
            self.copy.upload(buffer, parsed.at(buffer.gpu_va)).wait()
            program = self._programs[buffer.gpu_va] = Program(parsed, buffer.gpu_va, buffer.free, self.owner)
        return program
