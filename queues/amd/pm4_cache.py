"""The caches between a compute queue, the host and the other engines: which caches a packet writes back or invalidates,
and by which bits.

GFX11 has instruction (GLI), scalar (GLK) and vector (GLV) caches near the cores, a first level below GLK and GLV (GL1),
the second level (GL2) and a cache of compression metadata (GLM). GFX9 has SQC caches, TCL1 and TC. The results of a
dispatch are in the second level, where every dispatch of the card sees them. Only the host, the copy engines and other
cards need a write-back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.autogen.amd import pm4
from ringup.autogen.layout import Word
from ringup.queues.amd.packets import Version


class Caches(NamedTuple):
    """What a packet does to caches: it invalidates the first three; it writes the second level back, or writes it back
    and invalidates it.
    """

    instructions: bool = False
    scalar: bool = False
    vector: bool = False
    l2_writeback: bool = False
    l2_invalidate: bool = False


NOTHING = Caches()
# before a dispatch that reads the results of an earlier dispatch of this card
NEXT_DISPATCH = Caches(scalar=True, vector=True)
# before a read of what the host, a copy engine or another card wrote
FROM_OUTSIDE = Caches(scalar=True, vector=True, l2_writeback=True, l2_invalidate=True)
# the same, where the host or a copy engine may have written code too
NEW_CODE = Caches(instructions=True, scalar=True, vector=True, l2_writeback=True, l2_invalidate=True)
# before the host, a copy engine or another card reads
TO_OUTSIDE = Caches(l2_writeback=True)

# By generation: the fields that each attribute of `Caches` sets. GFX11: radv_cs.c, gfx10_cs_emit_cache_flush. GLM does
# not write back without an invalidation. GL1 is below both GLK and GLV.
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
# GFX12 has no GLM: radv_cs.c and gfx_v12_0_ring_emit_fence do not set its bits (but gfx_v12_0_emit_mem_sync does). By
# Mesa's ac_cmdbuf_cp.c it has no GL1 either; gfx_v12_0_emit_mem_sync sets that bit too, so it does no harm here.
NO_GLM_L2: Mapping[str, Mapping[str, int]] = {
    "l2_writeback": {"gl2_wb": 1},
    "l2_invalidate": {"gl2_wb": 1, "gl2_inv": 1},
}
ACQUIRE_GFX12, RELEASE_GFX12 = {**ACQUIRE_GFX11, **NO_GLM_L2}, {**RELEASE_GFX11, **NO_GLM_L2}
# GFX9: radv_cs.c lists the combinations that work. TC with TC_WB writes back and invalidates all of the second level.
# TC_WB alone does nothing. TC_WB with TC_NC skips lines of other memory types. So a write-back includes all lines here,
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
    """The cache control of one generation's packets. `acquire_word`: the word of ACQUIRE_MEM that holds the bits.
    `acquire` and `release`: the fields that each attribute of `Caches` sets. `always`: fields that every release sets.
    """

    acquire_word: type[Word]
    acquire: Mapping[str, Mapping[str, int]]
    release: Mapping[str, Mapping[str, int]]
    always: Mapping[str, int]

    def acquire_bits(self, caches: Caches, version: Version) -> Word:
        """Return the word of ACQUIRE_MEM for these caches."""
        return self.acquire_word.at(version)(**_fields(self.acquire, caches))

    def release_fields(self, caches: Caches) -> dict[str, int]:
        """Return the cache fields of RELEASE_MEM. Raises a `ValueError` for a cache that it cannot invalidate."""
        missing = [name for name in WISHES if getattr(caches, name) and name not in self.release]
        if missing:
            raise ValueError(f"RELEASE_MEM has no bit for {', '.join(missing)}; acquire them instead")
        return {**self.always, **_fields(self.release, caches)}


WISHES = ("instructions", "scalar", "vector", "l2_writeback", "l2_invalidate")
# gfx_v11_0_ring_emit_fence: the caches in order, from the first level to the second; the fence's value bypasses the
# second level
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
