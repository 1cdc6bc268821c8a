"""The registers of a VM hub: contexts, invalidation engines, apertures. Two blocks have them, prefixed GC and MM, or
without a prefix in GC 9.4.3 and MMHUB 1.8.0.

Sources: amdgpu gfxhub_v3_0.c, mmhub_v3_0.c, gmc_v11_0.c, gfxhub_v1_2.c, gfxhub_v1_1.c, mmhub_v1_8.c.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, Row, behaviour, inert, unmodelled

SPEED = "caching and prefetching of translations: affects speed only"

_ROWS = (
    behaviour("VM_CONTEXT#_PAGE_TABLE_*", "memory/hub.py: page tables of a VMID"),
    # QUIRK: tinygrad's driver sets two bits above the last field in the header, on working cards
    behaviour("VM_CONTEXT#_CNTL", "memory/hub.py: enable of a VMID, depth of its tables, which faults interrupt", spare=3 << 23),
    behaviour(
        "VM_INVALIDATE_ENG#_REQ VM_INVALIDATE_ENG#_SEM VM_INVALIDATE_ENG#_ADDR_RANGE_*",
        "memory/hub.py: invalidation of translations",
    ),
    behaviour("VM_INVALIDATE_ENG#_ACK", "memory/hub.py: VMIDs whose invalidation is done", read_only=ALL),
    behaviour("VM_L2_CNTL", "memory/hub.py: ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY; the rest affects speed only"),
    behaviour("VM_L2_CNTL2", "memory/hub.py: invalidation of all translations"),
    behaviour(
        "VM_L2_PROTECTION_FAULT_CNTL VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32 VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32",
        "memory/hub.py: effects of a fault",
    ),
    # two registers since GC 12 and MMHUB 4.1; the second tells of poisoned memory, which the model lacks
    behaviour("VM_L2_PROTECTION_FAULT_STATUS VM_L2_PROTECTION_FAULT_STATUS_LO32", "memory/hub.py: the first fault", read_only=ALL),
    behaviour("VM_L2_PROTECTION_FAULT_ADDR_LO32 VM_L2_PROTECTION_FAULT_ADDR_HI32", "memory/hub.py: its page", read_only=ALL),
    behaviour(
        "MC_VM_FB_OFFSET MC_VM_FB_LOCATION_BASE MC_VM_FB_LOCATION_TOP MC_VM_AGP_BASE MC_VM_AGP_BOT MC_VM_AGP_TOP"
        " MC_VM_SYSTEM_APERTURE_LOW_ADDR MC_VM_SYSTEM_APERTURE_HIGH_ADDR",
        "memory/hub.py: untranslated addresses",
    ),
    behaviour("MC_VM_MX_L1_TLB_CNTL", "memory/hub.py: enable of translation"),
    inert("VM_L2_CNTL3 VM_L2_CNTL4 VM_L2_CNTL5", SPEED, "gfxhub_v3_0.c, init_cache_regs"),
    unmodelled("VM_L2_CONTEXT1_IDENTITY_APERTURE_* VM_L2_CONTEXT_IDENTITY_*", "untranslated addresses of VMID 1"),
    unmodelled(
        "MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB",
        "target of accesses to unmapped addresses",
    ),
    unmodelled("VM_L2_PROTECTION_FAULT_CNTL2", "which clients' faults are reported, and the limit of retries"),
    unmodelled("VM_CONTEXTS_DISABLE", "contexts that are disabled regardless of CONTEXT#_CNTL", starts=("*",)),
    unmodelled("MC_VM_MARC_* MC_VM_FB_SIZE_OFFSET_VF#", "memory of relocation and virtual functions"),
    unmodelled("VM_* MC_VM_*", "the rest of the hub"),
)  # fmt: skip


_PRIVATE = "VM_L2_BANK_SELECT_RESERVED_CID2"
_PRIVATE_CACHE = {
    "MM": behaviour(_PRIVATE, "memory/hub.py: invalidation of the private cache"),
    "GC": inert(_PRIVATE, SPEED, "gfxhub_v3_0.c, init_cache_regs"),
    "": inert(_PRIVATE, SPEED, "gfxhub_v1_2.c, init_cache_regs"),
}


_LINKS = behaviour("MC_VM_XGMI_LFB_CNTL MC_VM_XGMI_LFB_SIZE", "card.py: the card's place among those linked with it")


def rows(prefix: str) -> tuple[Row, ...]:
    """Return the rows of the hub whose names begin with `prefix`."""
    links = () if prefix else (_LINKS,)
    return tuple(row.with_prefix("", prefix) for row in (_PRIVATE_CACHE[prefix], *links, *_ROWS))
