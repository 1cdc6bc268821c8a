"""Programs on a card: code objects at their addresses, their kernels with what a launch needs, and the scratch memory
of a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ringup.autogen.amd.gc_compute import COMPUTE_TMPRING_SIZE
from ringup.autogen.layout import Word
from ringup.errors import NotSupported
from ringup.queues.amd.arguments import Packer
from ringup.queues.amd.packets import Version

if TYPE_CHECKING:
    from ringup.queues.amd.launch import Launch
    from ringup.queues.amd.objects.code_object import CodeObject, Kernel

# bytes: COMPUTE_PGM_LO holds an address without its low eight bits
ENTRY_ALIGN = 256
# bytes: a cache line of the scalar cache, more than the alignment of any argument
KERNARG_ALIGN = 64
# prepared launches that a kernel caches
PREPARED_LIMIT = 4096


class LoadedKernel:
    """A kernel at its address. `prepared` is a cache of the stream builder: the packets of a launch, by the launch."""

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
        """Return the byte of argument `number` (from 0) in the kernel's arguments. `Kept.patch_args` takes the sum of
        it and of the value that `dispatch` returns.
        """
        return self.packer.arguments[number].offset

    def check_owner(self, owner: object) -> None:
        """Raise a `ValueError` if the kernel lies on another card than the one of `owner`."""
        if not self.program.lost and self.program.owner not in (None, owner):
            raise ValueError(f"{self.name} was loaded on another card: load it on {getattr(owner, 'name', owner)} too")

    def append_args(self, memory: bytearray, args: Sequence[Any], launch: Launch) -> int:
        """Append a launch's arguments to `memory`, aligned, and return the byte where they begin. Raises what
        `Packer.pack_into` raises, and leaves `memory` as it was then.
        """
        packer, end = self.packer, len(memory)
        at = end + -end % KERNARG_ALIGN
        if packer.size_bytes or args:
            memory.extend(bytes(at - end + packer.size_bytes))
            try:
                packer.pack_into(memory, at, args, launch)
            except BaseException:
                del memory[end:]
                raise
        return at

    def keep_prepared(self, key: Any, prepared: Any) -> None:
        """Cache what a launch needs; the cache is emptied when it is full."""
        if len(self.prepared) >= PREPARED_LIMIT:
            self.prepared.clear()
        self.prepared[key] = prepared

    def lose(self) -> None:
        """Forget the address. The program calls it when the code is gone: no launch is possible any more."""
        self.prepared.clear()
        del self.entry_va

    # Python calls it only for an attribute that is missing
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name == "entry_va":
                raise ValueError(f"{self.name} was {self.program.lost}: load the program again")
            raise AttributeError(f"a LoadedKernel has no attribute {name}")


class Program(Mapping[str, LoadedKernel]):
    """A code object in a card's memory: a mapping from names to kernels. Free it when no submitted work uses it any
    more.
    """

    def __init__(self, code: CodeObject, base_va: int, free: Callable[[], None], owner: object = None) -> None:
        """`owner`: the owner of the card that holds the code; streams of other cards refuse the program. None: every
        card may run it.
        """
        self.code, self.base_va, self._free, self.owner = code, base_va, free, owner
        # how the program was lost; empty while it is there
        self.lost = ""
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
        """Return the kernel of a program with one kernel. If there are more, a `ValueError` lists them."""
        if len(self._kernels) != 1:
            raise ValueError(
                f"{self.code.what} has {len(self)} kernels ({', '.join(self._kernels)}): name one, program[NAME]"
            )
        return next(iter(self._kernels.values()))

    def where(self, gpu_va: int) -> str:
        """Return which kernel of the program is at an address, and the offset in it, for a report. Empty outside the
        program.
        """
        offset = gpu_va - self.base_va
        if self.lost or not 0 <= offset < self.code.image_bytes:
            return ""
        name, start = self.code.what, 0
        for kernel in self._kernels.values():
            if start <= kernel.kernel.entry_offset <= offset:
                name, start = kernel.name, kernel.kernel.entry_offset
        return f"{name}+{offset - start:#x}" + (f" of {self.code.what}" if name != self.code.what else "")

    def lose(self, how: str) -> None:
        """Mark the program as lost with the card's memory. Every later launch raises an error with `how`."""
        self.lost, self._free = how, lambda: None
        for kernel in self._kernels.values():
            kernel.lose()

    def free(self) -> None:
        """Free the memory. May be called twice."""
        if not self.lost:
            self._free()
            self.lose("freed")


def kernel_of(program: Program | LoadedKernel) -> LoadedKernel:
    """Return the kernel itself, or the one kernel of a program. Raises what `only` raises, and a `TypeError` for
    anything else.
    """
    if isinstance(program, LoadedKernel):
        return program
    if not isinstance(program, Program):
        raise TypeError(f"a loaded program or one of its kernels is dispatched, not {type(program).__name__}")
    return program.only()


class ScratchBlock(NamedTuple):
    """A block of scratch memory for dispatches: its address, the bytes of each wave, how many waves fit. Dies that
    share a queue have equal `parts` of it.
    """

    gpu_va: int
    wave_bytes: int
    waves: int
    parts: int = 1

    @property
    def part_waves(self) -> int:
        """The waves that fit one die's part."""
        return self.waves // self.parts

    @property
    def part_bytes(self) -> int:
        """The bytes of one die's part."""
        return self.wave_bytes * self.part_waves


# bytes of COMPUTE_TMPRING_SIZE.WAVESIZE; ac_gpu_info.c, scratch_wavesize_granularity
SCRATCH_UNIT = {
    9: 1024,
    11: 256,
    12: 256,
}
# the generations whose COMPUTE_TMPRING_SIZE.WAVES counts the waves of one shader engine; ac_shader_util.c
SCRATCH_BY_ENGINE = (11, 12)


def tmpring_size(version: Version, block: ScratchBlock | None, engines: int) -> Word:
    """Return COMPUTE_TMPRING_SIZE for dispatches that use `block` on a chip with that many shader engines."""
    word, generation = COMPUTE_TMPRING_SIZE.at(version), version[0]
    if block is None:
        return word(0)
    waves = block.part_waves // engines if generation in SCRATCH_BY_ENGINE else block.part_waves
    return word(waves=waves, wavesize=block.wave_bytes // SCRATCH_UNIT[generation])


class Scratch:
    """Scratch memory of one queue. It grows when a kernel needs more: a new block is allocated, and old blocks stay,
    because running waves may still use them.

    All dispatches that run at the same time share a block. A wave finds its part by the wave's number, so all waves
    have the same size.
    """

    # COMPUTE_TMPRING_SIZE counts units of 256 or 1024 bytes; this is a multiple of both
    UNIT_BYTES = 1024

    def __init__(self, waves: int, alloc: Callable[[int], int], parts: int = 1) -> None:
        """`waves`: how many the chip can run at the same time, on all dies that share the queue; `parts`: how many dies
        those are. `alloc(size_bytes)` returns the address of memory that stays until the queue is closed.
        """
        self._waves, self._alloc, self._parts = waves, alloc, parts
        self._block: ScratchBlock | None = None

    def block(self, wave_bytes: int) -> ScratchBlock:
        """Return a block whose waves have at least `wave_bytes` each. Raises `OutOfMemory`."""
        if self._block is None or self._block.wave_bytes < wave_bytes:
            size = -(-wave_bytes // self.UNIT_BYTES) * self.UNIT_BYTES
            # a power of two: few old blocks stay
            size = 1 << (size - 1).bit_length()
            self._block = ScratchBlock(self._alloc(size * self._waves), size, self._waves, self._parts)
        return self._block
