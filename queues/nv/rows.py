"""What differs between generations, as one row each: class ids, the launch descriptor's version, the target of their
machine code, limits of an SM, addresses of windows.

Sources: classes of a chip: OGKM g_gpu_class_list.c. Descriptor versions: what libcuda and Mesa NVK send (nak/qmd.rs).
Limits of an SM: CUDA C Programming Guide, "Technical Specifications per Compute Capability". Windows: Mesa
nak/hw_runner.rs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.nv import methods_host
from ringup.autogen.nv.classes import (
    ADA_COMPUTE_A,
    AMPERE_CHANNEL_GPFIFO_A,
    AMPERE_COMPUTE_A,
    AMPERE_COMPUTE_B,
    AMPERE_DMA_COPY_A,
    AMPERE_DMA_COPY_B,
    BLACKWELL_CHANNEL_GPFIFO_A,
    BLACKWELL_CHANNEL_GPFIFO_B,
    BLACKWELL_COMPUTE_A,
    BLACKWELL_COMPUTE_B,
    BLACKWELL_DMA_COPY_A,
    BLACKWELL_DMA_COPY_B,
    HOPPER_CHANNEL_GPFIFO_A,
    HOPPER_COMPUTE_A,
    HOPPER_DMA_COPY_A,
    TURING_CHANNEL_GPFIFO_A,
    TURING_COMPUTE_A,
    TURING_DMA_COPY_A,
)
from ringup.errors import NotSupported
from ringup.queues.nv.methods import HOST, Methods

KB = 1024
# all generations: 32-bit registers of an SM and of a thread, threads of a warp and of a block, barriers of a block
REGISTERS_PER_SM = 65536
MAX_REGISTERS = 255
WARP_THREADS = 32
MAX_BLOCK_THREADS = 1024
MAX_BARRIERS = 16
# threads of a block and blocks of a grid, by axis
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (0x7FFF_FFFF, 0xFFFF, 0xFFFF)
# bytes of local memory of a thread
MAX_LOCAL_BYTES = 512 * KB
SMS_PER_TPC = 2
# bytes of a constant bank
MAX_BANK_BYTES = 64 * KB


class BankLayout(NamedTuple):
    """Where compilers read what a launch is, as bytes of constant bank 0: three words each for block and grid, the
    windows' addresses (64 bits), the top of a thread's stack in local memory (R1 at the start), the first parameter.

    `shared_window`: None where code reads a special register (SR_SWINHI) instead. UNKNOWN: the descriptor of global
    memory that code for sm_80 and above reads at 0x118, 0x208 or 0x358; it is left 0, as are counters of launches and
    SMs. Source: code that ptxas 13.5 makes of %ntid, %nctaid, cvta and local arrays.
    """

    block: int
    grid: int
    shared_window: int | None
    local_window: int
    stack_top: int
    params: int


BANK_TURING = BankLayout(0, 0xC, 0x18, 0x20, 0x28, 0x160)
BANK_HOPPER = BANK_TURING._replace(params=0x210)
BANK_BLACKWELL = BankLayout(0x360, 0x370, None, 0x2F8, 0x37C, 0x380)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRow:
    """One generation. Sizes are in bytes.

    `sm`: major and minor number of its machine code. `qmd`: version of its launch descriptor. `bank`: the layout of
    constant bank 0. `shared_configs`: how much of an SM's memory may be shared memory. `shared_reserved`: of a block's
    shared memory, what CUDA keeps back; from Hopper on, compilers count it in a kernel's own.
    """

    name: str
    channel_class: int
    compute_class: int
    copy_class: int
    sm: tuple[int, int]
    qmd: tuple[int, int]
    qmd_bytes: int
    bank: BankLayout
    max_threads_per_sm: int
    max_blocks_per_sm: int
    shared_configs: tuple[int, ...]
    shared_reserved: int
    shared_window_va: int
    # the generic addresses of a thread's local memory
    local_window_va: int = 0xFF00_0000
    local_window_bytes: int = 16 << 20
    shared_window_bytes: int = 16 << 20

    @property
    def target(self) -> str:
        """The target of its machine code, such as `sm_86`."""
        return f"sm_{self.sm[0]}{self.sm[1]}"

    @property
    def max_shared_bytes(self) -> int:
        """The most shared memory that a block may have."""
        return self.shared_configs[-1] - self.shared_reserved

    @property
    def max_warps_per_sm(self) -> int:
        """The warps that an SM runs at the same time."""
        return self.max_threads_per_sm // WARP_THREADS


# bytes of shared memory that an SM can be configured for
SHARED_TURING = (32 * KB, 64 * KB)
SHARED_100 = (8 * KB, 16 * KB, 32 * KB, 64 * KB, 100 * KB)
SHARED_164 = (*SHARED_100, 132 * KB, 164 * KB)
SHARED_228 = (*SHARED_164, 196 * KB, 228 * KB)
# up to Ada the window's address has 32 bits; from Hopper on it is a multiple of 4 GB
SHARED_WINDOW, SHARED_WINDOW_HOPPER = 0xFE00_0000, 0xFE_0000_0000

ROWS = (
    GenerationRow(
        name="turing",
        channel_class=TURING_CHANNEL_GPFIFO_A,
        compute_class=TURING_COMPUTE_A,
        copy_class=TURING_DMA_COPY_A,
        sm=(7, 5),
        qmd=(2, 3),
        qmd_bytes=256,
        bank=BANK_TURING,
        max_threads_per_sm=1024,
        max_blocks_per_sm=16,
        shared_configs=SHARED_TURING,
        shared_reserved=0,
        shared_window_va=SHARED_WINDOW,
    ),
    GenerationRow(
        name="ga100",
        channel_class=AMPERE_CHANNEL_GPFIFO_A,
        compute_class=AMPERE_COMPUTE_A,
        copy_class=AMPERE_DMA_COPY_A,
        sm=(8, 0),
        qmd=(2, 4),
        qmd_bytes=256,
        bank=BANK_TURING,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        shared_configs=SHARED_164,
        shared_reserved=KB,
        shared_window_va=SHARED_WINDOW,
    ),
    GenerationRow(
        name="ampere",
        channel_class=AMPERE_CHANNEL_GPFIFO_A,
        compute_class=AMPERE_COMPUTE_B,
        copy_class=AMPERE_DMA_COPY_B,
        sm=(8, 6),
        qmd=(3, 0),
        qmd_bytes=256,
        bank=BANK_TURING,
        max_threads_per_sm=1536,
        max_blocks_per_sm=16,
        shared_configs=SHARED_100,
        shared_reserved=KB,
        shared_window_va=SHARED_WINDOW,
    ),
    GenerationRow(
        name="ada",
        channel_class=AMPERE_CHANNEL_GPFIFO_A,
        compute_class=ADA_COMPUTE_A,
        copy_class=AMPERE_DMA_COPY_B,
        sm=(8, 9),
        qmd=(3, 0),
        qmd_bytes=256,
        bank=BANK_TURING,
        max_threads_per_sm=1536,
        max_blocks_per_sm=24,
        shared_configs=SHARED_100,
        shared_reserved=KB,
        shared_window_va=SHARED_WINDOW,
    ),
    GenerationRow(
        name="hopper",
        channel_class=HOPPER_CHANNEL_GPFIFO_A,
        compute_class=HOPPER_COMPUTE_A,
        copy_class=HOPPER_DMA_COPY_A,
        sm=(9, 0),
        qmd=(4, 0),
        qmd_bytes=384,
        bank=BANK_HOPPER,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        shared_configs=SHARED_228,
        shared_reserved=0,
        shared_window_va=SHARED_WINDOW_HOPPER,
        shared_window_bytes=4 << 30,
    ),
    GenerationRow(
        name="blackwell gb100",
        channel_class=BLACKWELL_CHANNEL_GPFIFO_A,
        compute_class=BLACKWELL_COMPUTE_A,
        copy_class=BLACKWELL_DMA_COPY_A,
        sm=(10, 0),
        qmd=(5, 0),
        qmd_bytes=384,
        bank=BANK_BLACKWELL,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        shared_configs=SHARED_228,
        shared_reserved=0,
        shared_window_va=SHARED_WINDOW_HOPPER,
        shared_window_bytes=4 << 30,
    ),
    GenerationRow(
        name="blackwell gb202",
        channel_class=BLACKWELL_CHANNEL_GPFIFO_B,
        compute_class=BLACKWELL_COMPUTE_B,
        copy_class=BLACKWELL_DMA_COPY_B,
        sm=(12, 0),
        qmd=(5, 0),
        qmd_bytes=384,
        bank=BANK_BLACKWELL,
        max_threads_per_sm=1536,
        max_blocks_per_sm=24,
        shared_configs=SHARED_100,
        shared_reserved=0,
        shared_window_va=SHARED_WINDOW_HOPPER,
        shared_window_bytes=4 << 30,
    ),
)

# the class whose header lays out the host's methods, and older classes that have those which newer headers, cut down
# by their publisher, lack. Linux sends Volta's methods to all later channels (nouveau gv100_fence.c)
HOST_LAYOUTS = {
    TURING_CHANNEL_GPFIFO_A: (TURING_CHANNEL_GPFIFO_A,),
    AMPERE_CHANNEL_GPFIFO_A: (AMPERE_CHANNEL_GPFIFO_A,),
    HOPPER_CHANNEL_GPFIFO_A: (HOPPER_CHANNEL_GPFIFO_A, AMPERE_CHANNEL_GPFIFO_A),
    BLACKWELL_CHANNEL_GPFIFO_A: (HOPPER_CHANNEL_GPFIFO_A, AMPERE_CHANNEL_GPFIFO_A),
    BLACKWELL_CHANNEL_GPFIFO_B: (HOPPER_CHANNEL_GPFIFO_A, AMPERE_CHANNEL_GPFIFO_A),
}


def row_of(compute_class: int) -> GenerationRow:
    """Return the row of a compute class. Raises `NotSupported` for one that ringup cannot drive."""
    for row in ROWS:
        if row.compute_class == compute_class:
            return row
    known = ", ".join(f"{row.compute_class:#x} ({row.name})" for row in ROWS)
    raise NotSupported(f"compute class {compute_class:#x} is none that ringup drives; it knows {known}")


def row_among(class_ids: set[int] | frozenset[int]) -> GenerationRow:
    """Return the row whose three classes are all among those that a card offers. Raises `NotSupported`."""
    for row in ROWS:
        if {row.channel_class, row.compute_class, row.copy_class} <= class_ids:
            return row
    offered = ", ".join(f"{one:#x}" for one in sorted(class_ids))
    raise NotSupported(f"the card offers classes {offered or 'none'}; no generation that ringup drives has them")


def host_methods(channel_class: int) -> Methods:
    """Return the methods that the host of a channel of this class executes."""
    try:
        layout, *older = HOST_LAYOUTS[channel_class]
    except KeyError:
        known = ", ".join(f"{one:#x}" for one in HOST_LAYOUTS)
        raise NotSupported(f"channel class {channel_class:#x} is none that ringup drives; it knows {known}") from None
    return Methods(methods_host, channel_class, HOST, layout, *older)
