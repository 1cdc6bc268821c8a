"""What the model does with each register of a Radeon: one table for each block. `docs/silicon.md`, "Registers", counts
them.
"""

from __future__ import annotations

from ringup.silicon.amd.rows import bus, gc_compute, gc_core, gc_lacking, gc_rlc, memory, sdma, small, vm_hub
from ringup.silicon.common.rows import Rows

TABLES = {
    "gc": Rows(
        (
            *gc_lacking.ROWS,
            *gc_compute.ROWS,
            *gc_core.ROWS,
            *gc_rlc.ROWS,
            *sdma.ROWS,
            *vm_hub.rows("GC"),
            *vm_hub.rows(""),
            *memory.GC,
        )
    ),
    "mmhub": Rows((*memory.MMHUB, *vm_hub.rows("MM"), *vm_hub.rows(""))),
    "sdma": Rows(sdma.ROWS_4),
    "nbio": Rows(bus.NBIO),
    "nbif": Rows(bus.NBIF),
    "pcie": Rows(bus.PCIE),
    "mp": Rows(bus.MP),
    "hdp": Rows((*small.HDP, *small.HDP_4)),
    "osssys": Rows(small.OSSSYS),
    "smuio": Rows(small.SMUIO),
    "thm": Rows(small.THM),
    "athub": Rows(memory.ATHUB),
    "lsdma": Rows(memory.LSDMA),
}
