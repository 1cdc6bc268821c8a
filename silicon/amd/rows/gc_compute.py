"""The graphics core's compute queues and waves: hardware queue descriptors, dispatch state, shader memory, sequencers.

Sources: amdgpu gfx_v11_0.c (compute_mqd_init, init_compute_vmid), amdgpu_amdkfd_gfx_v11.c; gc_11_0_0_default.h for
values after reset.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

TIME = "share of time and order among queues, which the model does not follow"

ROWS = (
    # --- queue descriptors ---------------------------------------------------------------------------------------
    behaviour("CP_HQD_ACTIVE CP_HQD_DEQUEUE_REQUEST CP_HQD_VMID", "gc/cp/processor.py, gc/hqd.py: connect, stop and save a queue"),
    behaviour(
        "CP_HQD_PQ_BASE CP_HQD_PQ_BASE_HI CP_HQD_PQ_RPTR CP_HQD_PQ_WPTR_LO CP_HQD_PQ_WPTR_HI"
        " CP_HQD_PQ_RPTR_REPORT_ADDR CP_HQD_PQ_RPTR_REPORT_ADDR_HI CP_HQD_PQ_WPTR_POLL_ADDR"
        " CP_HQD_PQ_WPTR_POLL_ADDR_HI CP_HQD_PQ_DOORBELL_CONTROL CP_MQD_BASE_ADDR CP_MQD_BASE_ADDR_HI",
        "gc/hqd.py: ring, pointers, doorbell, memory image",
    ),
    behaviour("CP_HQD_PQ_CONTROL", "gc/hqd.py: size, privilege, what the pointers count", reset=0x0030_8509),
    behaviour(
        "CP_HQD_PERSISTENT_STATE",
        "gc/cp/aql.py, gc/cp/queue.py: waves saved with the queue; gc/cp/processor.py: PRELOAD_REQ",
        reset=0x0BE0_5501,
    ),
    behaviour("CP_HQD_IB_CONTROL", "gc/cp/pm4_parser.py: the current indirect buffer", reset=0x0030_0000),
    behaviour("CP_HQD_IB_BASE_ADDR CP_HQD_IB_BASE_ADDR_HI CP_HQD_IB_RPTR", "gc/cp/pm4_parser.py: the same"),
    behaviour("CP_HQD_AQL_CONTROL", "gc/cp/processor.py: packets are AQL packets"),
    behaviour("CP_HQD_ERROR", "gc/cp/aql.py: why the queue stopped"),
    unmodelled(
        "CP_MQD_CONTROL", "VMID and rights for access to the memory image: here always VMID 0", reset=0x100,
    ),
    inert("CP_HQD_PIPE_PRIORITY CP_HQD_QUEUE_PRIORITY CP_HQD_QUANTUM", TIME, "gfx_v11_0.c, compute_mqd_init"),
    behaviour("CP_HQD_EOP_RPTR", "gc/cp/processor.py: INIT_FETCHER; the rest belongs to the end-of-pipe queue"),
    unmodelled("CP_HQD_EOP_CONTROL", "size of the end-of-pipe queue, which the model does not need", reset=0x6),
    unmodelled(
        "CP_HQD_EOP_BASE_ADDR CP_HQD_EOP_BASE_ADDR_HI CP_HQD_EOP_WPTR CP_HQD_EOP_WPTR_MEM"
        " CP_HQD_EOP_EVENTS",
        "the end-of-pipe queue, which the model does not need",
    ),
    unmodelled(
        "CP_HQD_CTX_SAVE_* CP_HQD_CNTL_STACK_* CP_HQD_WG_STATE_OFFSET CP_HQD_SUSPEND_*",
        "memory for saved waves, which are kept inside the model",
    ),
    unmodelled("CP_HQD_GDS_RESOURCE_STATE", "GDS is not modelled"),
    # two fields that only amdkfd names: the dispatch pointer and PCIe atomics. Source: kfd_mqd_manager_v11.c
    unmodelled(
        "CP_HQD_HQ_SCHEDULER0 CP_HQD_HQ_STATUS0", "the firmware's state of the queue", spare=1 << 14 | 1 << 29,
    ),
    unmodelled("CP_HQD_*", "the firmware's state of the queue; saved in the memory image"),
    # --- dispatch ------------------------------------------------------------------------------------------------
    behaviour(
        "COMPUTE_START_* COMPUTE_NUM_THREAD_* COMPUTE_PGM_LO COMPUTE_PGM_HI COMPUTE_PGM_RSRC1 COMPUTE_PGM_RSRC2"
        " COMPUTE_TMPRING_SIZE"
        " COMPUTE_USER_DATA_# COMPUTE_DISPATCH_SCRATCH_BASE_LO COMPUTE_DISPATCH_SCRATCH_BASE_HI",
        "gc/dispatch.py: a grid on the cores",
    ),
    behaviour("COMPUTE_STATIC_THREAD_MGMT_SE#", "gc/dispatch.py: CUs that may run; none is an error", reset=ALL),
    behaviour("COMPUTE_DISPATCH_PKT_ADDR_LO COMPUTE_DISPATCH_PKT_ADDR_HI COMPUTE_DISPATCH_ID", "gc/cp/aql_dispatch.py"),
    inert(
        "COMPUTE_PGM_RSRC3",
        "gc/dispatch.py: where accumulation registers begin (GFX9); else prefetch of instructions, which affects speed only; traps"
        " at start or end of a wave are refused",
        "LLVM AMDGPUUsage, compute_pgm_rsrc3 for GFX90A, GFX942 and for GFX10-GFX11", starts=("TRAP_ON_START", "TRAP_ON_END"),
    ),
    behaviour("COMPUTE_TG_CHUNK_SIZE", "gc/dispatch.py: each of several graphics cores runs a share of a grid"),
    inert(
        "COMPUTE_RESOURCE_LIMITS", "how many waves run at once, and on which SIMDs: affects speed only", "Mesa radv_shader.c",
    ),
    inert(
        "COMPUTE_DISPATCH_INTERLEAVE", "threads that go to one shader engine before the next: affects cache hits, not results",
        "Mesa ac_cmdbuf.c, init_compute_preamble_state", reset=0x40,
    ),
    unmodelled("COMPUTE_PIPELINESTAT_ENABLE", "pipeline statistics", reset=1),
    unmodelled("COMPUTE_MISC_RESERVED", "data of waves for interrupts of the sequencers", reset=7),
    unmodelled("COMPUTE_PERFCOUNT_ENABLE COMPUTE_THREAD_TRACE_ENABLE", "counters and traces of this queue's waves"),
    unmodelled(
        "COMPUTE_DISPATCH_INITIATOR", "a dispatch by register; the model dispatches by packets only", starts=("COMPUTE_SHADER_EN",),
    ),
    unmodelled("COMPUTE_*", "restart, relaunch and identity of a dispatch, which are kept inside the model"),
    # --- shader memory, trap handlers, sequencers ----------------------------------------------------------------
    behaviour("SH_MEM_CONFIG", "gc/dispatch.py: address mode, alignment", reset=0xC000),
    behaviour("SH_MEM_BASES", "gc/dispatch.py: where LDS and scratch lie in flat addresses"),
    behaviour("SQ_SHADER_TBA_LO SQ_SHADER_TBA_HI SQ_SHADER_TMA_LO SQ_SHADER_TMA_HI", "gc/dispatch.py: the trap handler"),
    behaviour("SQ_CMD SQ_IND_INDEX SQ_IND_DATA", "gc/sq.py: debuggers read and kill waves"),
    behaviour("SPI_COMPUTE_QUEUE_RESET", "gc/cp/processor.py: the waves of a queue end"),
    inert(
        "SPI_GDBG_PER_VMID_CNTL",
        "TRAP_EN: trap handlers run if the VMID has one; the debugger's other fields are refused",
        "gfx_v11_0.c, init_compute_vmid",
        starts=("STALL_VMID", "LAUNCH_MODE", "EXCP_EN", "TRAP_ON_START", "TRAP_ON_END"),
    ),
    unmodelled("SQ_WATCH#_CNTL TCP_WATCH#_CNTL", "address watches of debuggers", starts=("VALID",)),
    unmodelled("SPI_GDBG_WAVE_CNTL SPI_GDBG_WAVE_CNTL#", "waves stopped for a debugger", starts=("*",)),
    unmodelled("SQ_DEBUG", "executing one instruction at a time", starts=("SINGLE_MEMOP", "SINGLE_ALU_OP")),
)  # fmt: skip
