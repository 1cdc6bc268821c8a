"""Who accesses memory for a channel, as fault reports name it.

Source: dev_fault.h of NVIDIA's open kernel modules (NV_PFAULT_CLIENT_*, NV_PFAULT_MMU_ENG_ID_*).
"""

from __future__ import annotations

from ringup.autogen.nv import mmu
from ringup.silicon.nv.memory.space import Client
from ringup.silicon.nv.rm.boards.facts import Engine, EngineKind
from ringup.silicon.nv.rm.controls.hosting import PBDMA_FAULT_BASE

# the engine's name in NVIDIA's log
NAMES = {EngineKind.GR: "GRAPHICS"}
# the graphics engine's own unit
FRONT_END = "FE"


def host(pbdma: int) -> Client:
    """Return the host itself, by the unit that fetches pushbuffers and handles semaphores."""
    return Client(f"HOST{pbdma}", PBDMA_FAULT_BASE + pbdma, "HOST", mmu.NV_PFAULT_CLIENT_HUB_HOST)


def engine(row: Engine) -> Client:
    """Return an engine of the board: the graphics engine's front end, or a copy engine.

    GUESS: copy engines beyond the second report as the second does; the headers have no more units.
    """
    name = NAMES.get(row.kind, row.name)
    if row.kind is EngineKind.CE:
        unit = f"CE{min(row.instance, 1)}"
        return Client(name, row.fault_id, unit, int(getattr(mmu, f"NV_PFAULT_CLIENT_HUB_{unit}")))
    if row.kind is EngineKind.GR:
        return Client(name, row.fault_id, FRONT_END, mmu.NV_PFAULT_CLIENT_HUB_FE)
    return Client(name, row.fault_id, "DONT_CARE", mmu.NV_PFAULT_CLIENT_HUB_DONT_CARE)
