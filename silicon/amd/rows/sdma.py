"""The copy engines' registers, which are among the graphics core's.

Sources: amdgpu sdma_v6_0.c, sdma_v7_0.c; those of 4.4.2, a block of their own: sdma_v4_4_2.c.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

START = "sdma_v6_0.c, gfx_resume"

ROWS = (
    behaviour("SDMA#_F32_CNTL SDMA#_MCU_CNTL", "sdma/engine.py: the engine halts and runs", reset=1),
    behaviour("SDMA#_STATUS_REG SDMA#_QUEUE#_CONTEXT_STATUS", "sdma/engine.py: what is busy", read_only=ALL),
    behaviour("SDMA#_FREEZE SDMA#_QUEUE_RESET_REQ", "sdma/engine.py: freezing the engine; dropping queues"),
    behaviour("SDMA#_CNTL", "sdma/engine.py: enabled interrupts"),
    behaviour("SDMA#_WATCHDOG_CNTL", "sdma/engine.py: how long a queue may hold the engine"),
    behaviour(
        "SDMA#_QUEUE#_RB_CNTL SDMA#_QUEUE#_RB_BASE SDMA#_QUEUE#_RB_BASE_HI SDMA#_QUEUE#_RB_RPTR SDMA#_QUEUE#_RB_RPTR_HI"
        " SDMA#_QUEUE#_RB_WPTR SDMA#_QUEUE#_RB_WPTR_HI SDMA#_QUEUE#_RB_RPTR_ADDR_LO SDMA#_QUEUE#_RB_RPTR_ADDR_HI"
        " SDMA#_QUEUE#_RB_WPTR_POLL_ADDR_LO SDMA#_QUEUE#_RB_WPTR_POLL_ADDR_HI SDMA#_QUEUE#_IB_CNTL"
        " SDMA#_QUEUE#_DOORBELL SDMA#_QUEUE#_DOORBELL_OFFSET SDMA#_QUEUE#_MINOR_PTR_UPDATE",
        "sdma/engine.py: ring, pointers, doorbell, indirect buffers",
    ),
    inert("SDMA#_RLC_CGCG_CTRL", "clock gating: affects power only", "gfx_v11_0.c, update_coarse_grain_clock_gating"),
    inert("SDMA#_UTCL1_CNTL SDMA#_UTCL1_PAGE", "retries and caching of translations, which are never delayed here", START),
    inert("SDMA#_SEM_WAIT_FAIL_TIMER_CNTL", "waits of semaphore packets, which this engine does not have", START),
    unmodelled("SDMA#_QUEUE#_PREEMPT SDMA#_QUEUE#_RB_PREEMPT", "preemption within a queue", starts=("*",)),
    unmodelled("SDMA#_QUEUE#_RB_AQL_CNTL", "AQL packets for the copy engine", starts=("AQL_ENABLE",)),
    behaviour("SDMA#_UCODE_DATA SDMA#_BROADCAST_UCODE_DATA", "gc/direct_load.py: firmware without the PSP is refused"),
    unmodelled("SDMA#_*", "registers of the engine's firmware and caches, which the model lacks"),
)  # fmt: skip

_START_4 = "sdma_v4_4_2.c, gfx_resume"
_QUEUE_4 = " ".join(
    f"SDMA_{queue}_{name}"
    for queue in ("GFX", "PAGE", "RLC#")
    for name in (
        "RB_CNTL", "RB_BASE", "RB_BASE_HI", "RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI", "RB_RPTR_ADDR_LO",
        "RB_RPTR_ADDR_HI", "RB_WPTR_POLL_ADDR_LO", "RB_WPTR_POLL_ADDR_HI", "RB_WPTR_POLL_CNTL", "IB_CNTL", "DOORBELL",
        "DOORBELL_OFFSET", "MINOR_PTR_UPDATE",
    )
)  # fmt: skip
ROWS_4 = (
    behaviour("SDMA_F32_CNTL", "sdma/engine.py: the engine halts and runs", reset=1),
    behaviour(
        "SDMA_STATUS_REG SDMA_GFX_CONTEXT_STATUS SDMA_PAGE_CONTEXT_STATUS SDMA_RLC#_CONTEXT_STATUS",
        "sdma/engine.py: what is busy", read_only=ALL,
    ),
    behaviour("SDMA_FREEZE", "sdma/engine.py: freezing the engine"),
    behaviour("SDMA_CNTL", "sdma/engine.py: enabled interrupts"),
    behaviour(_QUEUE_4, "sdma/engine.py: ring, pointers, doorbell, indirect buffers"),
    inert("SDMA_CLK_CTRL SDMA_POWER_CNTL", "clock gating and sleep: affects power only", "sdma_v4_4_2.c, update_medium_grain_clock_gating"),
    inert("SDMA_UTCL1_CNTL SDMA_UTCL1_PAGE SDMA_UTCL1_TIMEOUT", "retries and caching of translations, which are never delayed here", _START_4),
    inert("SDMA_SEM_WAIT_FAIL_TIMER_CNTL", "waits of semaphore packets, which this engine does not have", _START_4),
    inert("SDMA_GB_ADDR_CONFIG SDMA_GB_ADDR_CONFIG_READ", "the shape of tiled surfaces, which the engine does not copy here", _START_4),
    behaviour("SDMA_UCODE_DATA", "gc/direct_load.py: firmware without the PSP is refused"),
    unmodelled("SDMA_*", "registers of the engine's firmware and caches, which the model lacks"),
)  # fmt: skip
