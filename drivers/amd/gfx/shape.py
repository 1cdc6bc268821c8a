"""Which parts of a graphics core exist and are switched on: shader engines, arrays, compute units.

The discovery table says how many the design has; fuses and the driver (`CC_*`, `GC_USER_*`) say which are off.
Source: amdgpu gfx_v11_0.c (gfx_v11_0_get_cu_info, gfx_v11_0_select_se_sh), gfx_v12_0.c, gfx_v9_4_3.c.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import reduce
from operator import or_
from typing import NamedTuple

from ringup.autogen.amd import gc
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.rows import core_row
from ringup.errors import DeviceFault


class Design(NamedTuple):
    """The parts of the chip's design, from its discovery table, whether switched on or off."""

    shader_engines: int
    arrays_per_engine: int
    cus_per_array: int


class Shape(NamedTuple):
    """The parts that are on. `cu_masks[engine][array]` has a bit for every compute unit; it is 0 for an array that is
    off.
    """

    design: Design
    cu_masks: tuple[tuple[int, ...], ...]

    @property
    def cu_total(self) -> int:
        """Compute units that run programs."""
        return sum(mask.bit_count() for engine in self.cu_masks for mask in engine)

    @property
    def arrays(self) -> tuple[tuple[int, int], ...]:
        """The (engine, array) pairs that have compute units."""
        return tuple((se, sa) for se, masks in enumerate(self.cu_masks) for sa, mask in enumerate(masks) if mask)


def instance(block: Block, engine: int, array: int, unit: int | None = None) -> AbstractContextManager[None]:
    """Select a shader array, and a unit of it, for the banked registers; at the end select all of them again."""
    one = _array(block, engine, array)
    one = one.replace(instance_broadcast_writes=1) if unit is None else one.replace(instance_index=unit)
    return block.selected(one, _everything(block))


def _array(block: Block, engine: int, array: int) -> gc.GRBM_GFX_INDEX:
    """Return what selects a shader array."""
    return block.make(gc.GRBM_GFX_INDEX, se_index=engine, **{f"{core_row(block.version).arrays}_index": array})


def _everything(block: Block) -> gc.GRBM_GFX_INDEX:
    """Return what selects all units of all arrays."""
    arrays = {f"{core_row(block.version).arrays}_broadcast_writes": 1}
    return block.make(gc.GRBM_GFX_INDEX, se_broadcast_writes=1, instance_broadcast_writes=1, **arrays)


def read_shape(block: Block, design: Design) -> Shape:
    """Read from every shader array which of its parts are on."""
    disable = core_row(block.version).sa_disable
    arrays_off = 0 if disable is None else _or(int(block.read(word).sa_disable) for word in disable)
    masks = [[0] * design.arrays_per_engine for _ in range(design.shader_engines)]
    with block.selecting(_everything(block)) as select:
        for engine in range(design.shader_engines):
            for array in range(design.arrays_per_engine):
                if not arrays_off >> engine * design.arrays_per_engine + array & 1:
                    select(_array(block, engine, array).replace(instance_broadcast_writes=1))
                    masks[engine][array] = _array_mask(block, design)
    shape = Shape(design, tuple(map(tuple, masks)))
    if not shape.cu_total:
        raise DeviceFault(
            f"{block.name}: every compute unit of {design} is switched off by its fuses (arrays {arrays_off:#x}): the card is broken, "
            "or its registers are not read rightly; reset it"
        )
    return shape


def _array_mask(block: Block, design: Design) -> int:
    """Return the compute units of the selected array that are on."""
    fused, chosen = block.read_both(gc.CC_GC_SHADER_ARRAY_CONFIG, gc.GC_USER_SHADER_ARRAY_CONFIG)
    row = core_row(block.version)
    off, size = _or(int(getattr(word, row.cus_off)) for word in (fused, chosen)), row.cus_of_unit
    unit = (1 << size) - 1
    return sum(unit << size * at for at in range(design.cus_per_array // size) if not off >> at & 1)


def _or(numbers: Iterable[int]) -> int:
    """Return the bits that any of the numbers has."""
    return reduce(or_, numbers, 0)
