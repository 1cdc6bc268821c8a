"""All shaders of this folder that are judged, with their inputs and answers."""

from __future__ import annotations

from vulkan import basics, images, lanes, memories, programs, values

# what NVIDIA cards run besides
MORE = (*values.ROWS, *lanes.ROWS, *memories.ROWS, *programs.ROWS, *images.ROWS)
# those that ask something of a Radeon's driver which the basic ones do not
_ALSO_ON_RADEONS = (
    *("convert", "diverge", "lanes64", "atomic64", "tree", "base", "counts", "scalar", "printing"),
    *("volatile", "radix", "quantised", "indexing"),
)
SHADERS = (*basics.ROWS, *(row for row in MORE if row.file in _ALSO_ON_RADEONS))
