"""What a program does with an open card, whichever driver drives it: memory, programs, queues, tensors, profiles."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.stages import Stage
from ringup.drivers.submission.card_queue import CardQueue, CopyVerbs
from ringup.drivers.submission.peer_points import FarPoints
from ringup.drivers.submission.queue_memory import UserSpace
from ringup.drivers.tensors import Tensors
from ringup.drivers.transport.seam import Clock
from ringup.errors import RingupError
from ringup.queues.profile import STAMP_BYTES
from ringup.queues.queue import Owner
from ringup.queues.timeline import Point, Timeline

if TYPE_CHECKING:
    from ringup import Tensor
    from ringup.drivers.submission.peer import Peer
    from ringup.drivers.submission.profiling import CardProfile

PROGRAM_ALIGN = 4096
CAUSES_KEPT = 16


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


class StampForm(NamedTuple):
    """What an engine stores for a stamp of the clock: how many bytes, and where among them the 64 bits of the clock
    are.
    """

    size_bytes: int
    clock_at: int


class Queues(Protocol):
    """Makes the queues of a card."""

    queues: list[Any]

    def wait_across(self, far: Callable[[Timeline, Point], tuple[int, int] | None]) -> None:
        """Let queues wait for points of other cards as `far` says."""
        ...

    def watch(self, points: FarPoints) -> None:
        """Note that another card waits for points of these queues."""
        ...

    def compute(self) -> Any:
        """Make another compute queue."""
        ...

    def copy(self, engine: int) -> Any:
        """Make another queue of a copy engine."""
        ...


P = TypeVar("P", bound=Path)
Q = TypeVar("Q", bound=Queues)
CQ = TypeVar("CQ", bound=CardQueue)
KQ = TypeVar("KQ", bound=CopyVerbs)


class AnyCard(ABC, Generic[P, Q, CQ, KQ]):
    """One card that is up. It belongs to the thread that opened it. Use it as a context manager, or `close` it.

    The parameters: its path, what makes its queues, its compute queues, its copy queues.
    """

    # of the stamps of its queues
    STAMP: ClassVar[StampForm] = StampForm(STAMP_BYTES, 0)
    # set when the card is up
    compute: CQ
    _copies: dict[int, KQ]
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
        self._programs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._tensors = Tensors(self)
        self._peers: weakref.WeakKeyDictionary[AnyCard[Any, Any, Any, Any], Peer] = weakref.WeakKeyDictionary()

    def _fail(self, cause: RingupError) -> None:
        """Keep the first error and refuse work from now on."""
        if self.fault is None:
            self._explain(cause)
            self._errors_so_far.append(f"{type(cause).__name__}: {cause}")
            self.fault = cause
            self.owner.refuse(cause)

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
    def target(self) -> str:
        """What compilers call its instruction set."""

    @property
    @abstractmethod
    def _copy_engines(self) -> int:
        """How many copy engines it has."""

    @abstractmethod
    def gpu_clock(self) -> int:
        """Read the counter that stamps are taken of."""

    @property
    @abstractmethod
    def info(self) -> Any:
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
    def copy(self) -> KQ:
        """The first copy engine's queue."""
        return self._copies[0]

    @property
    def copies(self) -> tuple[KQ, ...]:
        """A queue of every copy engine; those of all engines but the first are made on first use."""
        self._check()
        for engine in range(self._copy_engines):
            if engine not in self._copies:
                self._copies[engine] = self._queues.copy(engine)
        return tuple(self._copies[engine] for engine in sorted(self._copies))

    def new_compute_queue(self) -> CQ:
        """Return another compute queue, on hardware of its own. Raises `NotSupported` when all are in use."""
        self._check()
        made: CQ = self._queues.compute()
        return made

    def new_copy_queue(self, engine: int = 0) -> KQ:
        """Return another queue of a copy engine. Raises `NotSupported` when all are in use."""
        self._check()
        made: KQ = self._queues.copy(engine)
        return made

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
        from ringup.drivers.submission.profiling import CardProfile

        return CardProfile(self)

    def look(self) -> None:
        """Take in what the card reports. Raises its error if it has one."""
        self._look(False)

    @abstractmethod
    def _look(self, last: bool) -> None:
        """Take in what the card reports; raise the error. `last`: no later call comes."""

    # --- other cards ------------------------------------------------------------------------------------------------
    def peer(self, other: AnyCard[Any, Any, Any, Any]) -> Peer:
        """Return what this card does with another card's memory: `map` and `copy`. The first call stores and reads a
        page over the bus, and so does the next one after a reset that lost memory. Where the card does not reach the
        other one, as between two vendors' cards, the host carries the bytes of `copy`.

        Both cards belong to the calling thread. Raises the error of a card that is lost or hung.
        """
        self._check()
        if not isinstance(other, AnyCard):
            raise TypeError(f"a peer is another open card, not {other!r:.80}")
        if other is self:
            raise ValueError(f"{self.name} is no peer of its own")
        other._check()
        known = self._peers.get(other)
        if known is None or known.memories != (self.memory, other.memory):
            # few programs use two cards, so it is imported on use
            from ringup.drivers.submission.peer import Peer

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

    def flush_place(self, other: AnyCard[Any, Any, Any, Any]) -> int | None:
        """Return where this card's engines store a dword to flush the other card's host data path into its VRAM. None
        where they do not reach that, or need not.
        """
        return None

    # --- memory and programs ----------------------------------------------------------------------------------------
    def alloc(self, size_bytes: int, where: Where = "vram", *, visible: bool = False, name: str = "") -> Buffer:
        """Return memory that the card's queues reach. `visible`: the CPU sees it too, as it does all host memory.

        New VRAM holds old bytes; host memory is zero. Raises `OutOfMemory`.
        """
        self._check()
        return self.memory.alloc(size_bytes, where, visible=visible, name=name)

    @abstractmethod
    def load(self, code: Any, name: str = ..., *, kernel: str = ...) -> Any:
        """Put a program into the card's memory."""

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
