"""Launches: a grid of work-groups, and the check whether a kernel can be started with it. Source: LLVM AMDGPUUsage; AMD
RDNA3 ISA, "Work-groups".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ringup.errors import NotSupported
from ringup.queues.triple import AXES, Triple, triple

if TYPE_CHECKING:
    from ringup.queues.amd.objects.code_object import Kernel

# work-items: 16 waves of 64, or 32 of 32
MAX_GROUP_SIZE = 1024
# COMPUTE_DIM_X, _Y and _Z are dwords
MAX_GROUPS = 0xFFFF_FFFF
ONES: Triple = (1, 1, 1)
NONE: Triple = (0, 0, 0)


@dataclass(frozen=True)
class Launch:
    """A grid. `grid` counts work-groups. `block` counts the work-items of a full group.

    `last`: the work-items of the last group of an axis if that group is not full, else 0. `offset`: where OpenCL's
    global ids begin. A launch does not depend on a kernel; `check` compares it with one.
    """

    grid: Triple
    block: Triple
    dynamic_lds_bytes: int = 0
    last: Triple = NONE
    offset: Triple = NONE

    def __post_init__(self) -> None:
        """Raise a `ValueError` for counts that no kernel can be started with."""
        for axis, groups, items, last in zip(AXES, self.grid, self.block, self.last, strict=True):
            if not 1 <= groups <= MAX_GROUPS:
                raise ValueError(f"grid {axis} is {groups} work-groups; 1 to {MAX_GROUPS} are possible")
            if not 1 <= items <= MAX_GROUP_SIZE:
                raise ValueError(f"block {axis} is {items} work-items; 1 to {MAX_GROUP_SIZE} are possible")
            if not 0 <= last < items:
                raise ValueError(f"the last group along {axis} is {last} work-items, of {items} in a full one")
        if self.dynamic_lds_bytes < 0:
            raise ValueError(f"{self.dynamic_lds_bytes} bytes of dynamic LDS")

    @classmethod
    def of(cls, grid: int | tuple[int, ...], block: int | tuple[int, ...], dynamic_lds_bytes: int = 0) -> Launch:
        """Make a launch of full groups from one to three counts each."""
        return cls(triple(grid, "the grid"), triple(block, "the block"), dynamic_lds_bytes)

    @classmethod
    def of_items(cls, items: int | tuple[int, ...], block: int | tuple[int, ...], dynamic_lds_bytes: int = 0) -> Launch:
        """Make a launch of `items` work-items. The last group of an axis holds the rest where it does not divide."""
        wanted, size = triple(items, "the grid"), triple(block, "the block")
        if min(wanted) < 1 or min(size) < 1:
            raise ValueError(f"{wanted} work-items in groups of {size}: none may be below 1")
        grid = tuple(-(-count // group) for count, group in zip(wanted, size, strict=True))
        last = tuple(count % group for count, group in zip(wanted, size, strict=True))
        return cls(triple(grid, "the grid"), size, dynamic_lds_bytes, triple(last, "the rest"))

    @property
    def full_groups(self) -> Triple:
        """Return the number of full groups along each axis."""
        x, y, z = self.grid
        rest_x, rest_y, rest_z = self.last
        return x - (rest_x > 0), y - (rest_y > 0), z - (rest_z > 0)

    @property
    def dimensions(self) -> int:
        """Return the number of dimensions: up to the last axis that has more than one work-item."""
        sizes = [groups > 1 or items > 1 for groups, items in zip(self.grid, self.block, strict=True)]
        return 3 if sizes[2] else 2 if sizes[1] else 1

    @property
    def block_items(self) -> int:
        """Return the work-items of a full group."""
        return prod(self.block)

    def check(self, kernel: Kernel) -> None:
        """Raise an error if the kernel cannot be started with this launch: `ValueError` with the limit and the value,
        `NotSupported` for clusters.
        """
        items, limit = self.block_items, min(kernel.max_group_size, MAX_GROUP_SIZE)
        if items > limit:
            raise ValueError(f"{kernel.name}: a block of {self.block} is {items} work-items; {limit} is its limit")
        if kernel.required_group_size not in (None, self.block):
            raise ValueError(f"{kernel.name} was compiled for blocks of {kernel.required_group_size}, not {self.block}")
        if kernel.uniform_groups and self.last != NONE:
            raise ValueError(f"{kernel.name} was compiled for full groups; the last ones would be {self.last}")
        lds_bytes = kernel.lds_bytes + self.dynamic_lds_bytes
        if lds_bytes > kernel.target.lds_bytes:
            raise ValueError(
                f"{kernel.name}: {kernel.lds_bytes} bytes of LDS and {self.dynamic_lds_bytes} dynamic ones;"
                f" a group has {kernel.target.lds_bytes}"
            )
        if kernel.cluster not in (None, ONES):
            raise NotSupported(f"{kernel.name} runs in clusters of {kernel.cluster} groups; compile it without")
