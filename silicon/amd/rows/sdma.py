"""The copy engines' registers, which are among the graphics core's.

Sources: amdgpu sdma_v6_0.c, sdma_v7_0.c.
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
