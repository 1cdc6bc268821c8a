"""Programs on a card: cubins at their addresses, their kernels with what a launch needs, and the local memory of a
queue's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ringup.queues.nv.arguments import Packer
from ringup.queues.nv.rows import MAX_LOCAL_BYTES, SMS_PER_TPC, WARP_THREADS, GenerationRow

if TYPE_CHECKING:
    from ringup.queues.nv.cubin import Cubin, Kernel

# prepared launches that a kernel caches
PREPARED_LIMIT = 4096
# bytes: the units of local memory of a warp and of a TPC. Source: Mesa nvk_device.c, nvk_slm_area_ensure
WARP_UNIT, TPC_UNIT = 0x200, 0x8000
# bytes: of a thread's local memory
THREAD_UNIT = 16


class LoadedKernel:
    """A kernel at its address. `prepared` is a cache of the stream builder: what a launch stores, by the launch."""

    __slots__ = ("entry_va", "kernel", "packer", "prepared", "program")

    def __init__(self, program: Program, kernel: Kernel, base_va: int) -> None:
        self.program, self.kernel = program, kernel
        self.entry_va = base_va + kernel.entry_offset
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
        return self.packer.parameters[number].offset

    def check_owner(self, owner: object) -> None:
        """Raise a `ValueError` if the kernel lies on another card than the one of `owner`."""
        if not self.program.lost and self.program.owner not in (None, owner):
            raise ValueError(f"{self.name} was loaded on another card: load it on {getattr(owner, 'name', owner)} too")

    def bank_va(self, bank: int) -> tuple[int, int]:
        """Return address and bytes of one of the kernel's constant banks."""
        offset, size = self.kernel.banks[bank]
        return self.program.base_va + offset, size

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
    """A cubin in a card's memory: a mapping from names to kernels. Free it when no submitted work uses it any more."""

    def __init__(self, code: Cubin, base_va: int, free: Callable[[], None], owner: object = None) -> None:
        """`code.at(base_va)` lies at `base_va`. `owner`: the owner of the card that holds the code; streams of other
        cards refuse the program. None: every card may run it.
        """
        self.code, self.base_va, self._free, self.owner = code, base_va, free, owner
        # how the program was lost; empty while it is there
        self.lost = ""
        self._kernels = {name: LoadedKernel(self, kernel, base_va) for name, kernel in code.kernels.items()}

    def __getitem__(self, name: str) -> LoadedKernel:
        try:
            return self._kernels[name]
        except KeyError:
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
        for kernel in self._kernels.values():
            start = kernel.kernel.entry_offset
            if start <= offset < start + kernel.kernel.code_bytes:
                return f"{kernel.name}+{offset - start:#x} of {self.code.what}"
        return f"{self.code.what}+{offset:#x}"

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
