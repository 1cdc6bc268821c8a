"""Programs on a card: code objects at their addresses, kernels that know how to be started, scratch memory of a
queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ringup.errors import NotSupported
from ringup.queues.amd.arguments import Packer

if TYPE_CHECKING:
    from ringup.queues.amd.objects.code_object import CodeObject, Kernel

ENTRY_ALIGN = 256  # bytes: COMPUTE_PGM_LO holds an address without its low eight bits


class LoadedKernel:
    """A kernel at its address. `prepared` belongs to the stream builder: what it has worked out for a launch, by the
    launch.
    """

    __slots__ = ("entry_va", "kernel", "packer", "prepared", "program")

    def __init__(self, program: Program, kernel: Kernel, base_va: int) -> None:
        self.program, self.kernel = program, kernel
        self.entry_va = base_va + kernel.entry_offset
        if self.entry_va % ENTRY_ALIGN:
            raise NotSupported(
                f"{kernel.name} begins at {self.entry_va:#x}; a wave starts at a multiple of {ENTRY_ALIGN} only"
            )
        self.packer = Packer(kernel)
        self.prepared: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    def __repr__(self) -> str:
        return f"<kernel {self.name} {self.program.lost or f'at {self.entry_va:#x}'}>"

    def arg_offset(self, number: int) -> int:
        """Return where argument `number` (from 0) lies among the kernel's, in bytes: what `Kept.patch_args` wants
        beside `dispatch`'s number.
        """
        return self.packer.arguments[number].offset

    def lose(self) -> None:
        """For the program: the code is gone, so nothing can be started any more."""
        self.prepared.clear()
        del self.entry_va

    if not TYPE_CHECKING:  # asked only for what is no longer there

        def __getattr__(self, name: str) -> NoReturn:
            if name == "entry_va":
                raise ValueError(f"{self.name} was {self.program.lost}: load the program again")
            raise AttributeError(f"a LoadedKernel has no attribute {name}")


class Program(Mapping[str, LoadedKernel]):
    """A code object in a card's memory: its kernels by name. Free it when nothing that was submitted uses it any
    more.
    """

    def __init__(self, code: CodeObject, base_va: int, free: Callable[[], None], owner: object = None) -> None:
        """`owner`: of the card that holds the code; streams of others refuse it. None: any may run it."""
        self.code, self.base_va, self._free, self.owner = code, base_va, free, owner
        self.lost = ""  # how, once it is
        self._kernels = {
            name: LoadedKernel(self, kernel, base_va) for name, kernel in code.kernels.items() if not kernel.empty
        }

    def __getitem__(self, name: str) -> LoadedKernel:
        try:
            return self._kernels[name]
        except KeyError:
            if name in self.code.kernels:
                raise KeyError(
                    f"{self.code.what}: kernel {name!r} has no code; its compiler left none for {self.code.target}"
                ) from None
            raise KeyError(f"{self.code.what} has no kernel {name!r}; it has {', '.join(self._kernels)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def only(self) -> LoadedKernel:
        """Return the kernel of a program that has one; a `ValueError` names them where there are more."""
        if len(self._kernels) != 1:
            raise ValueError(
                f"{self.code.what} has {len(self)} kernels ({', '.join(self._kernels)}): name one, program[NAME]"
            )
        return next(iter(self._kernels.values()))

    def where(self, gpu_va: int) -> str:
        """Say what of the program lies at an address, for a report: kernel and offset; empty outside of it."""
        offset = gpu_va - self.base_va
        if self.lost or not 0 <= offset < self.code.image_bytes:
            return ""
        name, start = self.code.what, 0
        for kernel in self._kernels.values():
            if start <= kernel.kernel.entry_offset <= offset:
                name, start = kernel.name, kernel.kernel.entry_offset
        return f"{name}+{offset - start:#x}" + (f" of {self.code.what}" if name != self.code.what else "")

    def lose(self, how: str) -> None:
        """Mark the program as lost with the card's memory; every later start raises an error that says `how`."""
        self.lost, self._free = how, lambda: None
        for kernel in self._kernels.values():
            kernel.lose()

    def free(self) -> None:
        """Give the memory back. Twice is harmless."""
        if not self.lost:
            self._free()
            self.lose("freed")


def kernel_of(program: Program | LoadedKernel) -> LoadedKernel:
    """Return the kernel that is meant. Raises what `only` raises, `TypeError` for what is neither a program nor a
    kernel.
    """
    if isinstance(program, LoadedKernel):
        return program
    if not isinstance(program, Program):
        raise TypeError(f"a loaded program or one of its kernels is dispatched, not {type(program).__name__}")
    return program.only()


class ScratchRoom(NamedTuple):
    """Scratch memory as a dispatch names it: where, how many bytes a wave has, how many waves fit."""

    gpu_va: int
    wave_bytes: int
    waves: int


class Scratch:
    """Scratch memory of one queue, grown when a kernel asks for more. Old rooms stay: waves that run may still use
    them.

    All dispatches that may run at once share a room, and waves find their part by number: so one size a wave serves all
    of them.
    """

    UNIT_BYTES = 1024  # COMPUTE_TMPRING_SIZE counts units of 256 or 1024 bytes; a multiple of both

    def __init__(self, waves: int, alloc: Callable[[int], int]) -> None:
        """`waves`: that the chip can run at once; `alloc(size_bytes)` returns the address of memory that stays until
        the queue goes.
        """
        self._waves, self._alloc = waves, alloc
        self._room: ScratchRoom | None = None

    def room(self, wave_bytes: int) -> ScratchRoom:
        """Return a room whose waves have at least so many bytes. Raises `OutOfMemory`."""
        if self._room is None or self._room.wave_bytes < wave_bytes:
            size = -(-wave_bytes // self.UNIT_BYTES) * self.UNIT_BYTES
            size = 1 << (size - 1).bit_length()  # grows by doubling: few rooms stay behind
            self._room = ScratchRoom(self._alloc(size * self._waves), size, self._waves)
        return self._room
