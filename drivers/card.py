"""What every card offers, whoever made it: the types behind `ringup.open`.

A program that keeps to `Card` runs on any vendor's card. What only one vendor has (packets, engines, rungs of a reset)
is typed by that vendor's class: `ringup.open(name, kind=ringup.Radeon)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from ringup import Tensor
    from ringup.drivers.buffer import Buffer, Where
    from ringup.drivers.tensors import Tensors
    from ringup.queues.timeline import Point

Size = int | tuple[int, ...]


class Kept(Protocol):
    """A stream that stays in the card's memory: changed in places and submitted again."""

    def patch_args(self, at_bytes: int, data: bytes) -> None:
        """Change bytes of the kernel arguments; `at_bytes` counts from where the stream's arguments begin."""
        ...

    def submit(self, timeout_s: float = ...) -> Point:
        """Run it as it is now and return its point."""
        ...

    def free(self) -> None:
        """Give its memory back."""
        ...


class ComputeStream(Protocol):
    """Commands for a compute queue being built. Building one touches no hardware."""

    def dispatch(
        self, program: Any, grid: Size, block: Size, args: Sequence[Any] = (), *, dynamic_lds_bytes: int = ...
    ) -> int:
        """Start `grid` work groups of `block` work items; return the byte where the arguments begin."""
        ...

    def barrier(self) -> None:
        """Let what follows wait for what came before."""
        ...

    def wait_for(self, point: Point) -> None:
        """Let the whole stream wait for a point of this or another queue."""
        ...


class Queue(Protocol):
    """A queue of a card."""

    @property
    def name(self) -> str:
        """Its name in errors and reports."""
        ...

    def submit(self, stream: Any, timeout_s: float = ...) -> Point:
        """Hand a stream to the card and return the point that is reached when it is done."""
        ...

    def wait_for(self, point: Point) -> None:
        """Let the next submission wait for a point of another queue."""
        ...

    def keep(self, stream: Any, copies: int = ...) -> Kept:
        """Put a stream into the card's memory, to be changed in places and submitted again."""
        ...

    def idle(self, timeout_s: float = ...) -> None:
        """Wait until all that was submitted is done."""
        ...


class ComputeQueue(Queue, Protocol):
    """A queue that runs programs."""

    def stream(self) -> ComputeStream:
        """Return an empty stream."""
        ...


class CopyQueue(Queue, Protocol):
    """A queue that moves bytes."""

    def upload(self, target: Buffer, data: Any, offset_bytes: int = ...) -> Point:
        """Copy host bytes (buffer protocol or `__dlpack__`) into a buffer."""
        ...

    def download(
        self, source: Buffer, out: Any = ..., offset_bytes: int = ..., size_bytes: int | None = ...
    ) -> bytes | Any:
        """Copy a buffer's bytes into `out` or into new bytes, and wait for them."""
        ...

    def download_array(self, source: Buffer, dtype: Any, shape: Size, offset_bytes: int = ...) -> Any:
        """Return a NumPy array of a buffer's bytes."""
        ...

    def copy_buffer(
        self,
        target: Buffer,
        source: Buffer,
        size_bytes: int | None = ...,
        *,
        target_offset: int = ...,
        source_offset: int = ...,
    ) -> Point:
        """Copy between buffers of the card."""
        ...

    def fill(self, target: Buffer, value: int, offset_bytes: int = ..., size_bytes: int | None = ...) -> Point:
        """Fill a buffer with a dword."""
        ...


class Program(Protocol):
    """A code object in the card's memory: its kernels by name."""

    def __getitem__(self, name: str) -> Any: ...

    def free(self) -> None:
        """Give its memory back."""
        ...


class Info(Protocol):
    """What every card says of itself. Sizes in bytes."""

    @property
    def name(self) -> str:
        """The name it was opened by."""
        ...

    @property
    def chip(self) -> str:
        """Its chip, such as navi31."""
        ...

    @property
    def target(self) -> str:
        """What compilers call its instruction set, such as gfx1100."""
        ...

    @property
    def vram_bytes(self) -> int:
        """The size of its memory."""
        ...

    @property
    def compute_units(self) -> int:
        """How many compute units run work."""
        ...

    @property
    def firmware(self) -> Mapping[str, str]:
        """Versions of its firmware, by kind."""
        ...


@runtime_checkable
class Card(Protocol):
    """A card that is up. It belongs to the thread that opened it; use it as a context manager, or `close` it."""

    @property
    def name(self) -> str:
        """The name it was opened by."""
        ...

    @property
    def info(self) -> Info:
        """What it is and how it was found."""
        ...

    @property
    def compute(self) -> ComputeQueue:
        """Its first compute queue."""
        ...

    @property
    def copy(self) -> CopyQueue:
        """Its first copy queue."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        ...

    def alloc(self, size_bytes: int, where: Where = ..., *, visible: bool = ..., name: str = ...) -> Buffer:
        """Return memory that the card's queues reach."""
        ...

    def load(self, code: bytes, name: str = ..., *, kernel: str = ...) -> Program:
        """Put a code object into the card's memory."""
        ...

    @property
    def tensors(self) -> Tensors:
        """What makes its tensors and keeps what was compiled for them."""
        ...

    def tensor(self, data: object, dtype: Any = ..., *, requires_grad: bool = ..., name: str = ...) -> Tensor:
        """Return a tensor of `data` that is computed on this card."""
        ...

    def profile(self) -> Any:
        """Return a context manager that times what is submitted inside."""
        ...

    def stats(self) -> Any:
        """Return what the card does now: memory, queues, power, clocks, temperatures."""
        ...

    @property
    def limits(self) -> Any:
        """What may be set of its power and clocks, and within which bounds."""
        ...

    def report(self) -> Any:
        """Return a post-mortem; `str` of it is for people."""
        ...

    def reset(self, first: str = ...) -> Any:
        """Make the card usable again after a fault or a hang; say what it took."""
        ...

    def close(self) -> None:
        """Give everything back and leave the card quiet. Twice is harmless."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
