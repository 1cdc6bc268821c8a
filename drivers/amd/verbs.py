"""What a program does with an open Radeon besides, whichever driver drives it: HSA's queues, code objects, peers."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ringup.drivers.amd.submission.aql_queue import AqlQueue
from ringup.drivers.amd.submission.card_queue import ComputeQueue, CopyQueue
from ringup.drivers.amd.submission.hsa_signals import Signal
from ringup.drivers.buffer import Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.verbs import PROGRAM_ALIGN, AnyCard, Path, Queues
from ringup.errors import DeviceHung
from ringup.queues.amd.program import Program

if TYPE_CHECKING:
    from ringup.drivers.amd.bus.chips import Chip
    from ringup.queues.amd.objects.code_object import CodeObject

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


class RadeonQueues(Queues, Protocol):
    """Makes the queues of a card."""

    queues: list[CardQueue]

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
Q = TypeVar("Q", bound=RadeonQueues)


class AnyRadeon(AnyCard[P, Q, ComputeQueue, CopyQueue]):
    """One Radeon that is up. It belongs to the thread that opened it. Use it as a context manager, or `close` it."""

    _aql: AqlQueue | None = None

    def __init__(self, device: P) -> None:
        super().__init__(device)
        self._programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()

    def _look_at_aql(self) -> None:
        """Fail if an engine has stopped at a packet of HSA that it refuses. It says so in memory, and by an interrupt
        that not every driver gets.
        """
        for queue in self._queues.queues:
            if isinstance(queue, AqlQueue) and not queue.closed and (refused := queue.refused):
                self._fail(DeviceHung(f"{self.name}: {refused}"))

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
    def info(self) -> CardInfo:
        """What the card is and how it was found."""

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

    @abstractmethod
    def flush_place(self, other: AnyCard[Any, Any, Any, Any]) -> int | None:
        """Return where this card's engines store a dword to flush the other card's host data path into its VRAM. None
        where they do not reach that.
        """

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
