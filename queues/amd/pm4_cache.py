"""Caches between a compute queue, the host and the other engines: which are written back or forgotten, and with which
bits.

A card of GFX11 has, near the cores, instruction (GLI), scalar (GLK) and vector (GLV) caches, a first level for both
(GL1), the second level GL2 and a cache of compression metadata (GLM); GFX9 has SQC caches, TCL1 and TC. What a dispatch
writes lies in the second level, where every dispatch of the card sees it; only the host, the copy engines and other
cards need it written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.autogen.amd import pm4
from ringup.autogen.layout import Word
from ringup.queues.amd.packets import Version


class Caches(NamedTuple):
    """What is done to caches: the first three are forgotten, the second level is written back, or written back and
    forgotten.
    """

    instructions: bool = False
    scalar: bool = False
    vector: bool = False
    l2_writeback: bool = False
    l2_invalidate: bool = False


NOTHING = Caches()
NEXT_DISPATCH = Caches(scalar=True, vector=True)  # results of an earlier dispatch of this card
# host, copy engine or peer wrote
FROM_OUTSIDE = Caches(scalar=True, vector=True, l2_writeback=True, l2_invalidate=True)
NEW_CODE = Caches(instructions=True, scalar=True, vector=True, l2_writeback=True, l2_invalidate=True)
TO_OUTSIDE = Caches(l2_writeback=True)  # host, copy engine or peer will read

# By generation: the fields that each wish sets. GFX11: radv_cs.c, gfx10_cs_emit_cache_flush. GLM takes no write-back
# without an invalidation. GL1 lies below both GLK and GLV.
ACQUIRE_GFX11: Mapping[str, Mapping[str, int]] = {
    "instructions": {"gli_inv": pm4.ACQUIRE_MEM_GCR_GLI_INV_GLI_ALL},
    "scalar": {"gl1_inv": 1, "glk_inv": 1},
    "vector": {"gl1_inv": 1, "glv_inv": 1},
    "l2_writeback": {"gl2_wb": 1, "glm_wb": 1, "glm_inv": 1},
    "l2_invalidate": {"gl2_wb": 1, "gl2_inv": 1, "glm_wb": 1, "glm_inv": 1},
}
RELEASE_GFX11: Mapping[str, Mapping[str, int]] = {
    "scalar": {"gl1_inv": 1, "glk_inv": 1},
    "vector": {"gl1_inv": 1, "glv_inv": 1},
    "l2_writeback": ACQUIRE_GFX11["l2_writeback"],
    "l2_invalidate": ACQUIRE_GFX11["l2_invalidate"],
}
# GFX12 has no GLM: radv_cs.c leaves its bits out, as gfx_v12_0_ring_emit_fence does (gfx_v12_0_emit_mem_sync sets them
# all the same).
NO_GLM_L2: Mapping[str, Mapping[str, int]] = {
    "l2_writeback": {"gl2_wb": 1},
    "l2_invalidate": {"gl2_wb": 1, "gl2_inv": 1},
}
ACQUIRE_GFX12, RELEASE_GFX12 = {**ACQUIRE_GFX11, **NO_GLM_L2}, {**RELEASE_GFX11, **NO_GLM_L2}
# GFX9: radv_cs.c lists the combinations that work: TC with TC_WB writes all of the second level back and forgets it.
# TC_WB alone does nothing, and with TC_NC it leaves lines of other memory types; so a write-back is a whole one here,
# as in gfx_v9_4_3_ring_emit_fence.
ACQUIRE_GFX9: Mapping[str, Mapping[str, int]] = {
    "instructions": {"sh_icache_action_ena": 1},
    "scalar": {"sh_kcache_action_ena": 1},
    "vector": {"tcl1_action_ena": 1},
    "l2_writeback": {"tc_action_ena": 1, "tc_wb_action_ena": 1, "tcl1_action_ena": 1},
    "l2_invalidate": {"tc_action_ena": 1, "tc_wb_action_ena": 1, "tcl1_action_ena": 1},
}
L2_RELEASE_GFX9 = {"tc_action_ena": 1, "tc_wb_action_ena": 1, "tcl1_action_ena": 1, "tc_md_action_ena": 1}
RELEASE_GFX9: Mapping[str, Mapping[str, int]] = {
    "vector": {"tcl1_action_ena": 1},
    "l2_writeback": L2_RELEASE_GFX9,
    "l2_invalidate": L2_RELEASE_GFX9,
}


class CacheRow(NamedTuple):
    """How one generation's packets say it: the acquiring word and the bits of both; `release` also sets what every
    release has.
    """

    acquire_word: type[Word]
    acquire: Mapping[str, Mapping[str, int]]
    release: Mapping[str, Mapping[str, int]]
    always: Mapping[str, int]

    def acquire_bits(self, caches: Caches, version: Version) -> Word:
        """Return the acquiring word."""
        return self.acquire_word.at(version)(**_fields(self.acquire, caches))

    def release_fields(self, caches: Caches) -> dict[str, int]:
        """Return the cache fields of RELEASE_MEM; a `ValueError` for a cache that a release cannot forget."""
        missing = [name for name in WISHES if getattr(caches, name) and name not in self.release]
        if missing:
            raise ValueError(f"RELEASE_MEM has no bit for {', '.join(missing)}; acquire them instead")
        return {**self.always, **_fields(self.release, caches)}


WISHES = ("instructions", "scalar", "vector", "l2_writeback", "l2_invalidate")
# gfx_v11_0_ring_emit_fence: the caches in order, first level to second, and the fence's value past the second level
ORDERED = {"seq": pm4.RELEASE_MEM_SEQ_SEQ_FORWARD, "cache_policy": 3}
ROWS = {
    9: CacheRow(pm4.ACQUIRE_MEM_COHER_CNTL, ACQUIRE_GFX9, RELEASE_GFX9, {}),
    11: CacheRow(pm4.ACQUIRE_MEM_GCR_CNTL, ACQUIRE_GFX11, RELEASE_GFX11, ORDERED),
    12: CacheRow(pm4.ACQUIRE_MEM_GCR_CNTL, ACQUIRE_GFX12, RELEASE_GFX12, ORDERED),
}


def _fields(table: Mapping[str, Mapping[str, int]], caches: Caches) -> dict[str, int]:
    fields: dict[str, int] = {}
    for name in WISHES:
        if getattr(caches, name):
            fields |= table.get(name, {})
    return fields
