"""Numbers by which the firmware names engines and units, as its release has them.

Sources: gpu_engine_type.h (RM_ENGINE_TYPE_*) and engine_idx.h (MC_ENGINE_IDX_*) of NVIDIA's open kernel modules
535.261.03 and 550.163.01; those of 555.58.02 and 570.144 are the latter's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ringup.autogen.releases import branch_of
from ringup.silicon.nv.rm.boards.facts import Engine, EngineKind


@dataclass(frozen=True, slots=True)
class Numbering:
    """One release's. `rm_types`, `mc_indices`: the first of each kind. The others are indices of units."""

    rm_types: Mapping[EngineKind, int]
    mc_indices: Mapping[EngineKind, int]
    timer: int
    gsp: int
    replayable_fault: int
    access_counter: int
    non_replayable_fault: int
    replayable_fault_error: int
    non_replayable_fault_error: int
    cpu_doorbell: int
    display: int
    # of the vector for head timing; 0: the release does not know it
    display_low: int = 0

    def rm_type(self, engine: Engine) -> int:
        """Return RM_ENGINE_TYPE_* of an engine."""
        return self.rm_types[engine.kind] + engine.instance

    def mc_index(self, engine: Engine) -> int:
        """Return MC_ENGINE_IDX_* of an engine, by which the interrupt table names it."""
        return self.mc_indices[engine.kind] + engine.instance


KINDS = tuple(EngineKind)
ROWS = {
    "535": Numbering(
        dict(zip(KINDS, (0x01, 0x09, 0x1D, 0x25, 0x35, 0x3D, 0x30), strict=True)),
        dict(zip(KINDS, (82, 15, 64, 38, 50, 80, 46), strict=True)),
        *(1, 49, 58, 59, 60, 61, 62, 72, 2),
    ),
    "550": Numbering(
        dict(zip(KINDS, (0x01, 0x09, 0x1D, 0x25, 0x36, 0x3E, 0x31), strict=True)),
        dict(zip(KINDS, (84, 15, 65, 38, 51, 81, 47), strict=True)),
        *(1, 50, 59, 60, 61, 62, 63, 73, 2),
    ),
}
ROWS["570"] = replace(ROWS["550"], display_low=176)


def of(release: str) -> Numbering:
    """Return the numbers of a release, such as 570.195.03."""
    return ROWS[branch_of(release, tuple(ROWS))]
