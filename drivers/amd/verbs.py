"""What a program does with an open Radeon, whichever driver drives it: memory, programs, queues, tensors, profiles."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from ringup.drivers.amd.submission.aql_queue import AqlQueue
from ringup.drivers.amd.submission.card_queue import CardQueue, ComputeQueue, CopyQueue
from ringup.drivers.amd.submission.hsa_signals import Signal
from ringup.drivers.amd.submission.peer_points import FarPoints
from ringup.drivers.amd.submission.queue_memory import UserSpace
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.stages import Stage
from ringup.drivers.tensors import Tensors
from ringup.drivers.transport.seam import Clock
from ringup.errors import DeviceHung, RingupError
from ringup.queues.amd.program import Program
from ringup.queues.queue import Owner
from ringup.queues.timeline import Point, Timeline

if TYPE_CHECKING:
    from ringup import Tensor
    from ringup.drivers.amd.bus.chips import Chip
    from ringup.drivers.amd.profiling import CardProfile
    from ringup.drivers.amd.submission.peer import Peer
    from ringup.queues.amd.objects.code_object import CodeObject

PROGRAM_ALIGN = 4096
CAUSES_KEPT = 16
# Waves fetch instructions beyond the last one: three cache lines, of 128 bytes from gfx11 on. Source: LLVM
# AMDGPUTargetStreamer.cpp, EmitCodeEnd
PREFETCH_BYTES = 384


@dataclass(frozen=True, slots=True)
class CardInfo:
    """What a card is. Sizes are in bytes. `compute_units` and `shader_engines` are those of the whole card. `l2_bytes`
    is the L2 cache of one die of the graphics core, of which an MI300X has eight; so it is in the kernel's topology
    (kfd_crat.c). `doubts`: where its firmware and tables differ from what the driver was written for.
    """

    name: str
    chip: str
    target: str
    pci_id: str
    vram_bytes: int
    window_bytes: int
    compute_units: int
    shader_engines: int
    wave_size: int
    lds_bytes: int
    l2_bytes: int
    versions: dict[str, str]
    firmware: dict[str, str]
    found: str
    resets: tuple[str, ...]
    doubts: tuple[str, ...]


class Path(Protocol):
    """The path to a card, as far as every driver has one."""

    @property
    def name(self) -> str:
        """The card's name."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def polls_vram(self) -> bool:
        """Whether rings and polled words lie in VRAM."""
        ...


class CardMemory(UserSpace, Protocol):
    """The address space of a card's queues."""

    def reach(self, other: object, buffer: Buffer, name: str, *, outlives: bool = ...) -> Buffer:
        """Map a buffer of another card's memory here, as `Peer.map` does."""
        ...

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        ...

    def write_protect(self, buffer: Buffer, writable: Iterable[tuple[int, int]] = ...) -> None:
        """Make a buffer read-only for the card, except the (offset, size) ranges, where the driver can."""
        ...


class Queues(Protocol):
    """Makes the queues of a card."""

    queues: list[CardQueue]

    def wait_across(self, far: Callable[[Timeline, Point], tuple[int, int] | None]) -> None:
        """Let queues wait for points of other cards as `far` says."""
        ...

    def watch(self, points: FarPoints) -> None:
        """Note that another card waits for points of these queues."""
        ...

    def compute(self) -> ComputeQueue:
        """Make another compute queue."""
        ...

    def aql(self) -> AqlQueue:
        """Make another compute queue that takes packets of HSA."""
        ...

    def copy(self, engine: int) -> CopyQueue:
        """Make another queue of a copy engine."""
        ...

    def hsa_signal(self, value: int, where: Where | None, name: str) -> Signal:
        """Return a signal for packets of HSA."""
        ...


P = TypeVar("P", bound=Path)
Q = TypeVar("Q", bound=Queues)


class AnyRadeon(ABC, Generic[P, Q]):
    """One card that is up. It belongs to the thread that opened it. Use it as a context manager, or `close` it."""

    # set when the card is up
    compute: ComputeQueue
    _copies: dict[int, CopyQueue]
    _aql: AqlQueue | None = None
    _queues: Q
    stages: list[Stage]

    def __init__(self, device: P) -> None:
        self.device = device
        self.owner = Owner(device.name)
        # what work is refused for: the first error, until a reset
        self.fault: RingupError | None = None
        self._errors_so_far: deque[str] = deque(maxlen=CAUSES_KEPT)
        self._closed = False
        # by address
        self._programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()
        self._tensors = Tensors(self)
        self._peers: weakref.WeakKeyDictionary[AnyRadeon[Any, Any], Peer] = weakref.WeakKeyDictionary()

    def _fail(self, cause: RingupError) -> None:
        """Keep the first error and refuse work from now on."""
        if self.fault is None:
            self._explain(cause)
            self._errors_so_far.append(f"{type(cause).__name__}: {cause}")
            self.fault = cause
            self.owner.refuse(cause)

    def _look_at_aql(self) -> None:
        """Fail if an engine has stopped at a packet of HSA that it refuses. It says so in memory, and by an interrupt
        that not every driver gets.
        """
        for queue in self._queues.queues:
            if isinstance(queue, AqlQueue) and not queue.closed and (refused := queue.refused):
                self._fail(DeviceHung(f"{self.name}: {refused}"))

    @abstractmethod
    def _explain(self, error: RingupError) -> None:
        """Add to an error what the card and its queues say."""

    # --- what a driver says of its card -----------------------------------------------------------------------------
    @property
    @abstractmethod
    def memory(self) -> CardMemory:
        """The address space of its queues."""

    @property
    @abstractmethod
    def chip(self) -> Chip:
        """The names of its chip."""

    @property
    def target(self) -> str:
        """What compilers call its instruction set."""
        return self.chip.target

    @property
    @abstractmethod
    def _copy_engines(self) -> int:
        """How many copy engines it has."""

    @abstractmethod
    def gpu_clock(self) -> int:
        """Read the counter that stamps are taken of."""

    @property
    @abstractmethod
    def info(self) -> CardInfo:
        """What the card is and how it was found."""

    @abstractmethod
    def stats(self) -> Any:
        """Return what the card does now."""

    @property
    @abstractmethod
    def limits(self) -> Any:
        """What may be set of its power and clocks."""

    @abstractmethod
    def report(self) -> Any:
        """Return a post-mortem."""

    @abstractmethod
    def reset(self, first: str = ...) -> Any:
        """Make the card usable again."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Twice is harmless."""

    @property
    def name(self) -> str:
        """The card's name."""
        return self.device.name

    # --- queues -----------------------------------------------------------------------------------------------------
    @property
    def copy(self) -> CopyQueue:
        """The first copy engine's queue."""
        return self._copies[0]

    @property
    def copies(self) -> tuple[CopyQueue, ...]:
        """A queue of every copy engine; those of all engines but the first are made on first use."""
        self._check()
        for engine in range(self._copy_engines):
            if engine not in self._copies:
                self._copies[engine] = self._queues.copy(engine)
        return tuple(self._copies[engine] for engine in sorted(self._copies))

    def new_compute_queue(self) -> ComputeQueue:
        """Return another compute queue, on hardware of its own. Raises `NotSupported` when all are in use."""
        self._check()
        return self._queues.compute()

    def new_copy_queue(self, engine: int = 0) -> CopyQueue:
        """Return another queue of a copy engine. Raises `NotSupported` when all are in use."""
        self._check()
        return self._queues.copy(engine)

    @property
    def aql(self) -> AqlQueue:
        """A queue for packets of HSA; it is made on first use."""
        self._check()
        if self._aql is None or self._aql.closed:
            self._aql = self.new_aql_queue()
        return self._aql

    def new_aql_queue(self) -> AqlQueue:
        """Return another queue for packets of HSA (AQL): a compute queue, on hardware of its own. Raises `NotSupported`
        when all are in use.
        """
        self._check()
        return self._queues.aql()

    def signal(self, value: int = 0, where: Where | None = None, *, name: str = "") -> Signal:
        """Return a signal for packets of HSA, with 64 bits in the memory that card and host reach.

        `where` is by default "host", and "vram" on a path without host memory. Raises `NotSupported` for host memory
        there, and for VRAM that the CPU does not see.
        """
        self._check()
        return self._queues.hsa_signal(value, where, name)

    @property
    def queues(self) -> tuple[CardQueue, ...]:
        """Every queue of the card, in the order they were made."""
        return tuple(self._queues.queues)

    def profile(self) -> CardProfile:
        """Return a profile: `with card.profile() as profile:` stamps the dispatches and copies of streams begun
        inside.
        """
        self._check()
        # few cards are profiled, so it is imported on use
        from ringup.drivers.amd.profiling import CardProfile

        return CardProfile(self)

    def peer(self, other: AnyRadeon[Any, Any]) -> Peer:
        """Return what this card does with another card's memory: `map` and `copy`. The first call stores and reads a
        page over the bus, and so does the next one after a reset that lost memory.

        Both cards belong to the calling thread. Raises the error of a card that is lost or hung.
        """
        self._check()
        if not isinstance(other, AnyRadeon):
            raise TypeError(f"a peer is another open Radeon, not {other!r:.80}")
        if other is self:
            raise ValueError(f"{self.name} is no peer of its own")
        other._check()
        known = self._peers.get(other)
        if known is None or known.memories != (self.memory, other.memory):
            # few programs use two cards, so it is imported on use
            from ringup.drivers.amd.submission.peer import Peer

            known = self._peers[other] = Peer(self, other)
            self._queues.wait_across(self._far)
            other._queues.watch(known.points)
        return known

    def _far(self, waiting: Timeline, point: Point) -> tuple[int, int] | None:
        """Return what a queue of this card waits for in place of a point of another card; None where the host has to
        wait. `waiting`: the queue's timeline.
        """
        for other, peer in self._peers.items():
            if peer.memories != (self.memory, point.timeline.space):
                continue
            back, arrived = other._peers.get(self), point
            # what the other card's kernels and copies have stored in this card's VRAM may be on its way still
            if back is not None and back.maps_vram:
                pushed = back.push(point)
                if pushed is None:
                    return None
                arrived = pushed
            return peer.points.place(waiting, point, arrived)
        return None

    def look(self) -> None:
        """Take in what the card reports. Raises its error if it has one."""
        self._look(False)

    @abstractmethod
    def _look(self, last: bool) -> None:
        """Take in what the card reports; raise the error. `last`: no later call comes."""

    def _examine(self, last: bool) -> None:
        """Raise the error that the card reports, or that of another card for which its work waits."""
        self._look(last)
        for peer in self._peers.values():
            peer.points.check()

    @property
    def _waits_for_peers(self) -> bool:
        return any(peer.points.pending for peer in self._peers.values())

    def _explain_peers(self, error: RingupError) -> None:
        """Add to an error for which points of other cards work waits."""
        for peer in self._peers.values():
            for line in peer.points.explain():
                error.add_note(line)

    @abstractmethod
    def flush_place(self, other: AnyRadeon[Any, Any]) -> int | None:
        """Return where this card's engines store a dword to flush the other card's host data path into its VRAM. None
        where they do not reach that.
        """

    # --- memory and programs ----------------------------------------------------------------------------------------
    def alloc(self, size_bytes: int, where: Where = "vram", *, visible: bool = False, name: str = "") -> Buffer:
        """Return memory that the card's queues reach. `visible`: the CPU sees it too, as it does all host memory.

        New VRAM holds old bytes; host memory is zero. Raises `OutOfMemory`.
        """
        self._check()
        return self.memory.alloc(size_bytes, where, visible=visible, name=name)

    def load(self, code: bytes | CodeObject, name: str = "program", *, kernel: str = "") -> Program:
        """Put a code object (an ELF for the amdgcn target, or a parsed one) into the card's memory.

        Of a fat binary, such as a library that HIP's compiler made, the object for this card is taken; of several, the
        one with `kernel`. Raises `WrongTarget` for another chip's, `CompileError` for a damaged one, `OutOfMemory`.
        """
        # only a card that runs programs needs them
        from ringup.queues.amd.objects.code_object import CodeObject, parse

        self._check()
        if not isinstance(code, (bytes, bytearray, memoryview, CodeObject)):
            raise TypeError(f"code is the bytes of an ELF file, such as `Path.read_bytes` gives, not {code!r:.80}")
        target = self.chip.target_id
        parsed = code if isinstance(code, CodeObject) else parse(bytes(code), name, target, kernel=kernel)
        parsed.check_runs_on(target)
        align = max(parsed.image_align, PROGRAM_ALIGN)
        size_bytes = parsed.image_bytes + PREFETCH_BYTES
        buffer = self.memory.alloc(size_bytes, "vram", visible=False, name=name, align=align)
        with undone_on_error(buffer.free):
            image = parsed.relocate(buffer.gpu_va)
            self.copy.upload(buffer, image).wait()
            # ORDER: the copy engine writes through the same mapping; from here on no kernel can overwrite code or
            # constants
            variables = [(piece.offset, piece.size_bytes) for piece in parsed.pieces if piece.writable]
            self.memory.write_protect(buffer, variables)
            program = self._programs[buffer.gpu_va] = Program(parsed, buffer.gpu_va, buffer.free, self.owner)
        return program

    @property
    def tensors(self) -> Tensors:
        """What makes its tensors and keeps what was compiled for them."""
        return self._tensors

    def tensor(self, data: object, dtype: Any = None, *, requires_grad: bool = False, name: str = "") -> Tensor:
        """Return a `ringup.Tensor` of numbers, nested lists, an array or a DLPack object, computed on this card.

        What is made of it is computed here too, unless `ringup.device` chooses another card. Raises `NotSupported`
        where the compiler's packages are not installed, `ValueError` for a closed card, and what `Tensor` raises.
        """
        self._check()
        return self._tensors.make(data, dtype, requires_grad=requires_grad, name=name)

    # --- the end ----------------------------------------------------------------------------------------------------
    def _check(self) -> None:
        self.owner.check()
        if self._closed:
            raise ValueError(f"{self.name} was closed")

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def adopt(self) -> None:
        """Give the card to the calling thread; no other thread may be using it."""
        self.owner.adopt()
