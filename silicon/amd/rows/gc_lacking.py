"""What the model of the graphics core lacks: drawing, GDS, counters, traces. A write that starts any of them raises
`Unmodelled`.

Other writes are stored and logged: drivers set this state up before the first draw (amdgpu's clear state, RADV's
preamble), which is no mistake and has no effect. Sources: clearstate_gfx11.h, gfx_v11_0.c (init_gds_vmid,
ring_emit_gds_switch), Mesa ac_perfcounter.c, ac_sqtt.c.
"""

from __future__ import annotations

from ringup.silicon.common.rows import unmodelled

DRAWING = "state of drawing, which the model lacks"
GDS = "GDS, global wave sync and ordered append"
COUNTERS = "performance counters"
TRACE = "thread traces"

ROWS = (
    # --- counters and traces -------------------------------------------------------------------------------------
    unmodelled("CP_PERFMON_CNTL", COUNTERS, starts=("PERFMON_STATE=1", "SPM_PERFMON_STATE=1")),
    unmodelled("RLC_PERFMON_CNTL", COUNTERS, starts=("PERFMON_STATE=1",)),
    unmodelled("*_PERFCOUNTER_RSLT_CNTL", COUNTERS, starts=("ENABLE_ANY", "START_TRIGGER")),
    unmodelled("*PERFCOUNTER* *_PERFCNT_* *PERFMON* *_PERF_COUNTER* *_PERF_SNAPSHOT_CTRL", COUNTERS),
    unmodelled("*_LATENCY_STATS_* *_TC_PERF_COUNTER_WINDOW_SELECT *PERFCOUNT_CNTL*", COUNTERS),
    unmodelled("RLC_SPM_*", "streamed performance counters"),
    unmodelled("SQ_THREAD_TRACE_CTRL", TRACE, starts=("MODE",)),
    unmodelled("SQ_THREAD_TRACE_*", TRACE),
    # --- GDS -----------------------------------------------------------------------------------------------------
    unmodelled("GDS_VMID#_SIZE GDS_OA_VMID#", GDS, starts=("*",)),
    unmodelled("GDS_GWS_VMID#", GDS, starts=("SIZE",)),
    unmodelled("GDS_WR_DATA GDS_WR_BURST_DATA GDS_ATOM_OP GDS_MEMORY_CLEAN GDS_GWS_RESOURCE_CNTL", GDS, starts=("*",)),
    unmodelled("GDS_* CP_*GDS_*", GDS),
    # --- drawing -------------------------------------------------------------------------------------------------
    # the clear state sets cache policies of the previous generation, which this one's header omits: clearstate_gfx11.h
    unmodelled("CB_RMI_GL2_CACHE_CONTROL", DRAWING, spare=0x5_0050),
    unmodelled("VGT_DRAW_INITIATOR VGT_EVENT_INITIATOR", "drawing by register", starts=("*",)),
    unmodelled(
        "PA_* DB_* CB_* VGT_* GE_* GE1_* GE2_* IA_* WD_* SX_* PC_* SPI_PS_* SPI_SHADER_* SPI_VS_* SPI_GFX_*", DRAWING,
    ),
    unmodelled("SPI_INTERP_* SPI_BARYC_* SPI_ATTRIBUTE_* SPI_TMPRING_SIZE COHER_DEST_*", DRAWING),
    unmodelled(
        "CP_INDEX_* CP_DRAW_* CP_MAX_DRAW_COUNT CP_MAX_CONTEXT CP_DEVICE_ID CP_VGT_* CP_PA_* CP_SC_* CP_GE_*", DRAWING,
    ),
    unmodelled("TA_BC_BASE_* TA_CS_BC_BASE_*", "border colours of samplers, which the model lacks"),
    unmodelled("*_DEBUG *_DEBUG_* *_DSM_CNTL* *_EDC_*", "debugging and error injection"),
)  # fmt: skip
