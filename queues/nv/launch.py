"""A launch: how many blocks of how many threads. Source: CUDA C Programming Guide, "Technical Specifications per
Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ringup.errors import NotSupported
from ringup.queues.nv.rows import (
    MAX_BLOCK,
    MAX_BLOCK_THREADS,
    MAX_GRID,
    REGISTERS_PER_SM,
    WARP_THREADS,
    GenerationRow,
)
from ringup.queues.triple import AXES, Triple, triple

if TYPE_CHECKING:
    from ringup.queues.nv.cubin import Kernel

# registers are given to warps in units of so many (CUDA occupancy calculator, compute capability 7.5 to 12.0)
REGISTER_UNIT = 256


@dataclass(frozen=True)
class Launch:
    """A grid. `grid` counts blocks, `block` the threads of each. `dynamic_shared_bytes`: shared memory of a block
    behind the kernel's own.
    """

    grid: Triple
    block: Triple
    dynamic_shared_bytes: int = 0

    def __post_init__(self) -> None:
        """Raise a `ValueError` for counts that no kernel can be started with."""
        for axis, count, limit in zip(AXES, self.grid, MAX_GRID, strict=True):
            if not 1 <= count <= limit:
                raise ValueError(f"grid {axis} is {count} blocks; 1 to {limit} are possible")
        for axis, count, limit in zip(AXES, self.block, MAX_BLOCK, strict=True):
            if not 1 <= count <= limit:
                raise ValueError(f"block {axis} is {count} threads; 1 to {limit} are possible")
        if self.dynamic_shared_bytes < 0:
            raise ValueError(f"{self.dynamic_shared_bytes} bytes of dynamic shared memory")

    @classmethod
    def of(cls, grid: int | tuple[int, ...], block: int | tuple[int, ...], dynamic_shared_bytes: int = 0) -> Launch:
        """Make a launch from one to three counts each."""
        return cls(triple(grid, "the grid"), triple(block, "the block"), dynamic_shared_bytes)

    @classmethod
    def of_items(
        cls, items: int | tuple[int, ...], block: int | tuple[int, ...], dynamic_shared_bytes: int = 0
    ) -> Launch:
        """Make a launch of `items` threads. They have to fill the blocks along every axis."""
        wanted, size = triple(items, "the grid"), triple(block, "the block")
        if min(wanted) < 1 or min(size) < 1:
            raise ValueError(f"{wanted} threads in blocks of {size}: none may be below 1")
        if any(count % group for count, group in zip(wanted, size, strict=True)):
            raise NotSupported(
                f"{wanted} threads do not fill blocks of {size}; NVIDIA's cards run full blocks only: round the grid up"
                " and let the kernel skip the rest"
            )
        x, y, z = (count // group for count, group in zip(wanted, size, strict=True))
        return cls((x, y, z), size, dynamic_shared_bytes)

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return prod(self.block)

    def check(self, kernel: Kernel, row: GenerationRow) -> None:
        """Raise a `ValueError` with the limit and the value if the kernel cannot be started with this launch."""
        threads, name = self.threads, kernel.name
        limit = min(kernel.max_threads or MAX_BLOCK_THREADS, MAX_BLOCK_THREADS)
        if threads > limit:
            raise ValueError(f"{name}: a block of {self.block} is {threads} threads; {limit} is its limit")
        if kernel.required_block not in (None, self.block):
            raise ValueError(f"{name} was compiled for blocks of {kernel.required_block}, not {self.block}")
        shared = kernel.shared_bytes + self.dynamic_shared_bytes
        if shared > row.max_shared_bytes:
            raise ValueError(
                f"{name}: {kernel.shared_bytes} bytes of shared memory and {self.dynamic_shared_bytes} dynamic ones;"
                f" a block of {row.target} has {row.max_shared_bytes}"
            )
        warps = -(-threads // WARP_THREADS)
        registers = warps * (-(-kernel.registers * WARP_THREADS // REGISTER_UNIT) * REGISTER_UNIT)
        if registers > REGISTERS_PER_SM:
            raise ValueError(
                f"{name}: {threads} threads of {kernel.registers} registers need {registers} registers; an SM has"
                f" {REGISTERS_PER_SM}: take smaller blocks"
            )
