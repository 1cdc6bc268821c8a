"""The graphics core's register bus, command processor and fuses, apart from compute queues.

Sources: amdgpu gfx_v11_0.c, soc21.c, mes_v11_0.c, gc_11_0_0_default.h for values after reset.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

PAST_PSP = "gc/direct_load.py: firmware without the PSP is refused"

ROWS = (
    # --- register bus --------------------------------------------------------------------------------------------
    behaviour("GRBM_GFX_CNTL", "gc/grbm.py: queue and VMID that accesses select"),
    behaviour("GRBM_GFX_INDEX", "gc/grbm.py: shader engine and array that accesses select", reset=0xE000_0000),
    behaviour("GRBM_STATUS GRBM_STATUS2 GRBM_STATUS_SE#", "gc/grbm.py: what is busy", read_only=ALL),
    behaviour("GRBM_SOFT_RESET", "board/core.py: resets parts of the command processor and the copy engines"),
    inert(
        "GRBM_CNTL", "timeout of accesses to a block; in the model all blocks answer", "gfx_v11_0.c, constants_init",
        reset=0x18,
    ),
    inert("SCRATCH_REG#", "32 bits of storage, on metal too", "gfx_v11_0.c, ring_test_ring"),
    behaviour("GB_ADDR_CONFIG", "gc/grbm.py: shape of pipes and packers"),
    behaviour("GB_ADDR_CONFIG_READ", "gc/grbm.py: the same", read_only=ALL),
    behaviour("CC_GC_SHADER_ARRAY_CONFIG CC_GC_SHADER_RATE_CONFIG", "gc/grbm.py: fuses of each array", read_only=ALL),
    behaviour("GC_USER_SHADER_ARRAY_CONFIG GC_USER_SHADER_RATE_CONFIG", "gc/grbm.py: units that drivers disable in each array"),
    # UNKNOWN: which of these are disabled on metal; here none
    inert(
        "CC_GC_SA_UNIT_DISABLE GC_USER_SA_UNIT_DISABLE CC_RB_BACKEND_DISABLE GC_USER_RB_BACKEND_DISABLE"
        " CGTS_TCC_DISABLE CGTS_USER_TCC_DISABLE",
        "disabled arrays, backends and cache channels: none here",
        "gfx_v11_0.c, get_sa_active_bitmap, get_rb_active_bitmap, get_tcc_info",
    ),
    # --- engines and their firmware ------------------------------------------------------------------------------
    behaviour("CP_ME_CNTL", "gc/cp/processor.py: graphics' engines halt, reset, run", reset=0x1500_0000),
    behaviour("CP_MEC_RS64_CNTL", "gc/cp/processor.py: the compute engine halts, resets, runs", reset=0x4000_0000),
    behaviour("CP_MES_CNTL", "gc/cp/processor.py: the scheduler halts, resets, runs", reset=0x4000_0000),
    behaviour("CP_HYP_XCP_CTL", "card.py: which of the graphics cores this is, and how many run together", read_only=ALL),
    behaviour("CP_MEC_CNTL", "gc/cp/processor.py: the engine before RS64; a write makes queues look for work", reset=0x5000_0000),
    behaviour("CP_MES_GP3_LO", "gc/cp/processor.py: the scheduler's version"),
    behaviour("CP_MES_MTIME_LO CP_MES_MTIME_HI", "gc/grbm.py: the reference clock", read_only=ALL),
    behaviour(
        "CP_CPC_IC_OP_CNTL CP_PFP_IC_OP_CNTL CP_ME_IC_OP_CNTL CP_MES_IC_OP_CNTL CP_MEC_DC_OP_CNTL"
        " CP_GFX_RS64_DC_OP_CNTL",
        "gc/cp/processor.py: a cache operation completes at once",
    ),
    behaviour(
        "CP_MEC_ME#_HEADER_DUMP CP_ME_HEADER_DUMP CP_MES_HEADER_DUMP", "gc/cp/processor.py: the last packet", reset=0xDEF0_DEF0,
    ),
    unmodelled("CP_PFP_HEADER_DUMP", "the prefetch parser's last packet", reset=0xDEF0_DEF0),
    unmodelled(
        "CP_*_PRGRM_CNTR_START CP_*_PRGRM_CNTR_START_HI CP_*_IC_BASE_* CP_*_MDBASE_* CP_*_DC_BASE* CP_*_MDBOUND_*"
        " CP_*_MIBOUND_*",
        "addresses of the firmware's code and data; the model implements the firmware's interface and does not run its code",
    ),
    behaviour(
        "CP_PFP_UCODE_DATA CP_HYP_PFP_UCODE_DATA CP_HYP_ME_UCODE_DATA CP_HYP_MEC1_UCODE_DATA CP_MEC_ME1_UCODE_DATA"
        " CP_HYP_MEC2_UCODE_DATA CP_MEC_ME2_UCODE_DATA CP_PFP_IC_BASE_LO CP_ME_IC_BASE_LO CP_CPC_IC_BASE_LO"
        " CP_MES_IC_BASE_LO",
        PAST_PSP,
    ),
    unmodelled("CP_ME_RAM_DATA", "firmware stored by register", starts=("*",)),
    # --- rings, doorbells, interrupts ----------------------------------------------------------------------------
    behaviour(
        "CP_RB#_BASE CP_RB#_BASE_HI CP_RB#_RPTR CP_RB#_RPTR_ADDR CP_RB#_RPTR_ADDR_HI CP_RB#_WPTR CP_RB#_WPTR_HI"
        " CP_RB#_ACTIVE CP_RB#_CNTL",
        "gc/cp/gfx_ring.py: aliases of a graphics queue's registers",
    ),
    behaviour("CP_RB0_CNTL", "gc/cp/gfx_ring.py: the same", reset=0x00A0_0000),
    behaviour("CP_RB_VMID", "gc/cp/gfx_ring.py: VMIDs of the ring buffers"),
    behaviour("CP_RB_DOORBELL_CONTROL", "gc/hqd.py: a graphics queue's doorbell"),
    behaviour("CP_RB_WPTR_POLL_ADDR_LO CP_RB_WPTR_POLL_ADDR_HI", "gc/hqd.py: a graphics queue's pointer in memory"),
    behaviour("CP_RB_DOORBELL_RANGE_LOWER", "gc/cp/processor.py: which doorbells the engine accepts"),
    behaviour("CP_RB_DOORBELL_RANGE_UPPER", "gc/cp/processor.py: the same", reset=0x108),
    behaviour("CP_MEC_DOORBELL_RANGE_UPPER", "gc/cp/processor.py: the same", reset=0xFFC),
    behaviour("CP_MEC_DOORBELL_RANGE_LOWER", "gc/cp/processor.py: the same", reset=0x110),
    behaviour("CP_PQ_WPTR_POLL_CNTL CP_PQ_WPTR_POLL_CNTL1", "gc/cp/processor.py: write pointers read from memory"),
    behaviour("CP_INT_CNTL_RING# CP_INT_STATUS_RING#", "gc/cp/processor.py: graphics' interrupts"),
    behaviour("CP_ME#_PIPE#_INT_CNTL CP_ME#_PIPE#_INT_STATUS", "gc/cp/processor.py: compute's interrupts"),
    behaviour("CPC_INT_CNTL CPC_INT_STATUS", "gc/cp/processor.py: an interrupt by register, as the KIQ's fence"),
    behaviour("CP_GFX_ERROR", "gc/cp/queue.py: why a graphics queue stopped"),
    inert(
        "CP_INT_CNTL", "enables CNTX_BUSY and GFX_IDLE interrupts, which drivers do not use",
        "gfx_v11_0.c, soft_reset",
    ),
    behaviour("CP_VMID_RESET", "gc/cp/processor.py: graphics queues of a VMID are reset"),
    behaviour("CP_STAT CP_CPC_STATUS", "gc/grbm.py: what is busy", read_only=ALL),
    behaviour(
        "CP_GFX_HQD_ACTIVE CP_GFX_HQD_VMID CP_GFX_HQD_BASE CP_GFX_HQD_BASE_HI CP_GFX_HQD_RPTR CP_GFX_HQD_RPTR_ADDR"
        " CP_GFX_HQD_RPTR_ADDR_HI CP_GFX_HQD_WPTR CP_GFX_HQD_WPTR_HI CP_GFX_HQD_DEQUEUE_REQUEST CP_GFX_MQD_BASE_ADDR"
        " CP_GFX_MQD_BASE_ADDR_HI",
        "gc/hqd.py: a graphics queue",
    ),
    behaviour("CP_GFX_HQD_CNTL", "gc/hqd.py: size, privilege, report of the read pointer", reset=0x00A0_0000),
    inert(
        "CP_GFX_HQD_QUANTUM", "share of time among queues, which the model does not follow",
        "gfx_v11_0.c, gfx_mqd_init", reset=0xA01,
    ),
    inert(
        "CP_GFX_HQD_QUEUE_PRIORITY", "order among queues, which the model does not follow",
        "gfx_v11_0.c, gfx_mqd_init",
    ),
    inert(
        "CP_RB_WPTR_POLL_CNTL", "how often a pointer in memory is polled",
        "gfx_v11_0.c, update_coarse_grain_clock_gating",
    ),
    unmodelled(
        "CP_PQ_STATUS", "whether doorbells of compute queues are accepted: here always",
        "gfx_v11_0.c, kiq_init_register",
    ),
    unmodelled("CP_VMID_PREEMPT", "preemption within a graphics queue", starts=("PREEMPT_REQUEST",)),
    unmodelled("CP_SUSPEND_RESUME_REQ", "suspended queues", starts=("*",)),
    unmodelled("CP_DMA_*_COMMAND", "a DMA by register; the model copies by packets only", starts=("*",)),
    unmodelled("CP_DMA_WATCH#_CNTL", "address watches", starts=("WATCH_READS", "WATCH_WRITES")),
    unmodelled("GCR_PIO_DATA", "cache operations by register; the model does them by packets only", starts=("*",)),
    # --- caches and other golden settings ------------------------------------------------------------------------
    inert(
        "TCP_CNTL TCP_CNTL2 TA_CNTL_AUX GL2C_CTRL3 CPF_GCR_CNTL CGTT_GS_NGG_CLK_CTRL CGTT_WD_CLK_CTRL",
        "settings of caches, filters and clocks for speed and stability; they do not change results",
        "gfx_v11_0.c, golden_settings_gc_11_0",
    ),
    inert("CGTT_* ICG_*", "clock gating: affects power only", "gfx_v11_0.c, golden_settings_gc_11_0_1"),
)  # fmt: skip
