"""Programs on a card: code objects at their addresses, their kernels with what a launch needs, and the scratch memory
of a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ringup.autogen.amd.gc_compute import COMPUTE_TMPRING_SIZE
from ringup.autogen.layout import Word
from ringup.errors import NotSupported
from ringup.queues.amd.arguments import Packer
from ringup.queues.amd.packets import Version
from ringup.queues.program import AnyKernel, AnyProgram, kernel_among

if TYPE_CHECKING:
    from ringup.queues.amd.launch import Launch
    from ringup.queues.amd.objects.code_object import CodeObject, Kernel

# bytes: COMPUTE_PGM_LO holds an address without its low eight bits
ENTRY_ALIGN = 256
# bytes: a cache line of the scalar cache, more than the alignment of any argument
KERNARG_ALIGN = 64


class LoadedKernel(AnyKernel):
    """A kernel of a code object at its address."""

    __slots__ = ()

    kernel: Kernel
    packer: Packer
    program: Program

    def __init__(self, program: Program, kernel: Kernel, base_va: int) -> None:
        super().__init__(program, kernel, base_va, Packer(kernel))
        if self.entry_va % ENTRY_ALIGN:
            raise NotSupported(
                f"{kernel.name} begins at {self.entry_va:#x}; a wave starts at a multiple of {ENTRY_ALIGN} only"
            )

    def arg_offset(self, number: int) -> int:
        """Return the byte of argument `number` (from 0) in the kernel's arguments. `Kept.patch_args` takes the sum of
        it and of the value that `dispatch` returns.
        """
        return self.packer.arguments[number].offset

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


class Program(AnyProgram[LoadedKernel]):
    """A code object in a card's memory: a mapping from names to kernels."""

    def __init__(self, code: CodeObject, base_va: int, free: Callable[[], None], owner: object = None) -> None:
        """`owner`: the owner of the card that holds the code; streams of other cards refuse the program. None: every
        card may run it.
        """
        self.code = code
        kernels = {
            name: LoadedKernel(self, kernel, base_va) for name, kernel in code.kernels.items() if not kernel.empty
        }
        super().__init__(code, base_va, kernels, free, owner)

    def _missing(self, name: str) -> str:
        if name in self.code.kernels:
            return f"{self.code.what}: kernel {name!r} has no code; its compiler left none for {self.code.target}"
        return super()._missing(name)

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


def kernel_of(program: Program | LoadedKernel) -> LoadedKernel:
    """Return the kernel itself, or the one kernel of a program, as `kernel_among` does."""
    return kernel_among(program, LoadedKernel, Program)


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
