"""The paths to memory apart from the VM hubs: arbiters, ATHUB, LSDMA.

Sources: amdgpu mmhub_v3_0.c, athub_v3_0.c, lsdma_v6_0.c, amdgpu_amdkfd_gc_9_4_3.c.
"""

from __future__ import annotations

from ringup.silicon.common.rows import behaviour, inert, unmodelled

COUNTERS = "performance counters"
ARBITERS = "arbitration of memory requests, which take no time here"

GC = (unmodelled("GCEA_* GUS_* RMI_* UTCL1_* GCUTCL2_* GCVML2_* GL1* GL2* CH* GCR_* GCRD_*", ARBITERS),)
MMHUB = (
    inert(
        "MM_ATC_L2_MISC_CG DAGB#_CNTL_MISC2",
        "clock gating: affects power only",
        "mmhub_v3_0.c, update_medium_grain_clock_gating",
    ),
    unmodelled("*_PERFCOUNTER_RSLT_CNTL", COUNTERS, starts=("ENABLE_ANY", "START_TRIGGER")),
    unmodelled("*_PERFCOUNTER*", COUNTERS),
    unmodelled("DAGB* MMEA* PCTL*", ARBITERS),
)
ATHUB = (
    behaviour("ATC_VMID#_PASID_MAPPING", "memory/athub.py: process ids of VMIDs"),
    behaviour("ATC_VMID_PASID_MAPPING_UPDATE_STATUS", "memory/athub.py: which have arrived", clears=0xFFFF),
    inert("ATHUB_MISC_CNTL", "clock gating: affects power only", "athub_v3_0.c, update_medium_grain_clock_gating"),
    unmodelled("*_PERFCOUNTER_RSLT_CNTL", COUNTERS, starts=("ENABLE_ANY", "START_TRIGGER")),
    unmodelled("*_PERFCOUNTER* *_PERF_COUNTER_*", COUNTERS),
    unmodelled("XPB_* RPB_*", ARBITERS),
)
LSDMA = (
    inert(
        "LSDMA_MEM_POWER_CTRL", "sleep of the block's memory while it is idle: affects power only",
        "lsdma_v6_0.c, update_memory_power_gating",
    ),
    unmodelled("LSDMA_PIO_COMMAND", "a copy by register", starts=("*",)),
    unmodelled("LSDMA_QUEUE#_RB_CNTL", "a queue of the block", starts=("RB_ENABLE",)),
    unmodelled("LSDMA_UCODE_DATA", "firmware stored by register", starts=("*",)),
    unmodelled("*_PERFCOUNTER_RSLT_CNTL", COUNTERS, starts=("ENABLE_ANY", "START_TRIGGER")),
)  # fmt: skip
