"""Programs on a card: cubins at their addresses, their kernels with what a launch needs, and the local memory of a
queue's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ringup.queues.nv.arguments import Packer
from ringup.queues.nv.rows import MAX_LOCAL_BYTES, SMS_PER_TPC, WARP_THREADS, GenerationRow
from ringup.queues.program import AnyKernel, AnyProgram, kernel_among

if TYPE_CHECKING:
    from ringup.queues.nv.cubin import Cubin, Kernel

# bytes: the units of local memory of a warp and of a TPC. Source: Mesa nvk_device.c, nvk_slm_area_ensure
WARP_UNIT, TPC_UNIT = 0x200, 0x8000
# bytes: of a thread's local memory
THREAD_UNIT = 16


class LoadedKernel(AnyKernel):
    """A kernel of a cubin at its address."""

    __slots__ = ()

    kernel: Kernel
    packer: Packer
    program: Program

    def __init__(self, program: Program, kernel: Kernel, base_va: int) -> None:
        super().__init__(program, kernel, base_va, Packer(kernel))

    def arg_offset(self, number: int) -> int:
        """Return the byte of argument `number` (from 0) in the kernel's arguments. `Kept.patch_args` takes the sum of
        it and of the value that `dispatch` returns.
        """
        return self.packer.parameters[number].offset

    def bank_va(self, bank: int) -> tuple[int, int]:
        """Return address and bytes of one of the kernel's constant banks."""
        offset, size = self.kernel.banks[bank]
        return self.program.base_va + offset, size


class Program(AnyProgram[LoadedKernel]):
    """A cubin in a card's memory: a mapping from names to kernels."""

    def __init__(self, code: Cubin, base_va: int, free: Callable[[], None], owner: object = None) -> None:
        """`code.at(base_va)` lies at `base_va`. `owner`: the owner of the card that holds the code; streams of other
        cards refuse the program. None: every card may run it.
        """
        self.code = code
        kernels = {name: LoadedKernel(self, kernel, base_va) for name, kernel in code.kernels.items()}
        super().__init__(code, base_va, kernels, free, owner)

    def where(self, gpu_va: int) -> str:
        """Return which kernel of the program is at an address, and the offset in it, for a report. Empty outside the
        program.
        """
        offset = gpu_va - self.base_va
        if self.lost or not 0 <= offset < self.code.image_bytes:
            return ""
        for kernel in self._kernels.values():
            start = kernel.kernel.entry_offset
            if start <= offset < start + kernel.kernel.code_bytes:
                return f"{kernel.name}+{offset - start:#x} of {self.code.what}"
        return f"{self.code.what}+{offset:#x}"


def kernel_of(program: Program | LoadedKernel) -> LoadedKernel:
    """Return the kernel itself, or the one kernel of a program, as `kernel_among` does."""
    return kernel_among(program, LoadedKernel, Program)


class LocalBlock(NamedTuple):
    """Local memory for the threads of a channel: its address, the bytes of a TPC, the bytes that a thread may use."""

    gpu_va: int
    tpc_bytes: int
    thread_bytes: int


class LocalMemory:
    """Local memory of one channel. It grows when a kernel needs more: a new block is allocated, and old blocks stay,
    because running threads may still use them.

    Every warp that the chip can run at the same time has a part of it.
    """

    def __init__(self, row: GenerationRow, tpcs: int, alloc: Callable[[int], int]) -> None:
        """`tpcs`: how many the chip has. `alloc(size_bytes)` returns the address of memory that stays until the queue
        is closed, a multiple of 32 KB.
        """
        self._row, self._tpcs, self._alloc = row, tpcs, alloc
        self._block: LocalBlock | None = None

    def block(self, thread_bytes: int) -> LocalBlock:
        """Return a block whose threads have at least `thread_bytes` each. Raises `OutOfMemory`."""
        block = self._block
        if block is None or block.thread_bytes < thread_bytes:
            if thread_bytes > MAX_LOCAL_BYTES:
                raise ValueError(f"a thread has at most {MAX_LOCAL_BYTES} bytes of local memory, not {thread_bytes}")
            # a power of two: few old blocks stay
            size = 1 << max(thread_bytes - 1, THREAD_UNIT - 1).bit_length()
            warp = -(-size * WARP_THREADS // WARP_UNIT) * WARP_UNIT
            tpc = -(-warp * self._row.max_warps_per_sm * SMS_PER_TPC // TPC_UNIT) * TPC_UNIT
            block = self._block = LocalBlock(self._alloc(tpc * self._tpcs), tpc, size)
        return block
