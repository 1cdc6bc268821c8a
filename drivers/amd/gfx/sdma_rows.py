"""What differs between generations of the system DMA engines: their registers, where those lie, and what an engine has
or lacks.

Source: amdgpu sdma_v6_0.c, sdma_v7_0.c, sdma_v4_4_2.c; amdgpu_amdkfd_gfx_v11.c, amdgpu_amdkfd_gc_9_4_3.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ringup.autogen.amd import sdma, sdma_v4
from ringup.autogen.layout import Word

Pair = tuple[type[Word], type[Word]]  # low half, high half
ContextStatus = sdma.SDMA0_QUEUE0_CONTEXT_STATUS | sdma_v4.SDMA_RLC0_CONTEXT_STATUS


class EngineWords(NamedTuple):
    """The registers of an engine, and those of its first queue; those of the second give the distance to the next."""

    control: type[sdma.SDMA0_F32_CNTL | sdma.SDMA0_MCU_CNTL | sdma_v4.SDMA_F32_CNTL]
    settings: type[Word]
    semaphore_timer: type[Word]
    status: type[sdma.SDMA0_STATUS_REG | sdma_v4.SDMA_STATUS_REG]
    more_status: tuple[type[Word], ...]
    ring: type[sdma.SDMA0_QUEUE0_RB_CNTL | sdma_v4.SDMA_RLC0_RB_CNTL]
    next_ring: type[Word]
    indirect: type[Word]
    context: type[ContextStatus]
    doorbell: type[Word]
    doorbell_offset: type[Word]
    rptr: Pair
    wptr: Pair
    minor_pointer: type[Word]
    base: Pair
    rptr_address: Pair
    wptr_address: Pair


SINCE_6 = EngineWords(
    control=sdma.SDMA0_F32_CNTL,
    settings=sdma.SDMA0_CNTL,
    semaphore_timer=sdma.SDMA0_SEM_WAIT_FAIL_TIMER_CNTL,
    status=sdma.SDMA0_STATUS_REG,
    more_status=(
        sdma.SDMA0_STATUS1_REG,
        sdma.SDMA0_STATUS2_REG,
        sdma.SDMA0_STATUS3_REG,
        sdma.SDMA0_UTCL1_RD_STATUS,
        sdma.SDMA0_UTCL1_WR_STATUS,
        sdma.SDMA0_QUEUE_STATUS0,
    ),
    ring=sdma.SDMA0_QUEUE0_RB_CNTL,
    next_ring=sdma.SDMA0_QUEUE1_RB_CNTL,
    indirect=sdma.SDMA0_QUEUE0_IB_CNTL,
    context=sdma.SDMA0_QUEUE0_CONTEXT_STATUS,
    doorbell=sdma.SDMA0_QUEUE0_DOORBELL,
    doorbell_offset=sdma.SDMA0_QUEUE0_DOORBELL_OFFSET,
    rptr=(sdma.SDMA0_QUEUE0_RB_RPTR, sdma.SDMA0_QUEUE0_RB_RPTR_HI),
    wptr=(sdma.SDMA0_QUEUE0_RB_WPTR, sdma.SDMA0_QUEUE0_RB_WPTR_HI),
    minor_pointer=sdma.SDMA0_QUEUE0_MINOR_PTR_UPDATE,
    base=(sdma.SDMA0_QUEUE0_RB_BASE, sdma.SDMA0_QUEUE0_RB_BASE_HI),
    rptr_address=(sdma.SDMA0_QUEUE0_RB_RPTR_ADDR_LO, sdma.SDMA0_QUEUE0_RB_RPTR_ADDR_HI),
    wptr_address=(sdma.SDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO, sdma.SDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI),
)
OF_4 = EngineWords(
    control=sdma_v4.SDMA_F32_CNTL,
    settings=sdma_v4.SDMA_CNTL,
    semaphore_timer=sdma_v4.SDMA_SEM_WAIT_FAIL_TIMER_CNTL,
    status=sdma_v4.SDMA_STATUS_REG,
    more_status=(
        sdma_v4.SDMA_STATUS1_REG,
        sdma_v4.SDMA_STATUS2_REG,
        sdma_v4.SDMA_STATUS3_REG,
        sdma_v4.SDMA_UTCL1_RD_STATUS,
        sdma_v4.SDMA_UTCL1_WR_STATUS,
    ),
    ring=sdma_v4.SDMA_RLC0_RB_CNTL,
    next_ring=sdma_v4.SDMA_RLC1_RB_CNTL,
    indirect=sdma_v4.SDMA_RLC0_IB_CNTL,
    context=sdma_v4.SDMA_RLC0_CONTEXT_STATUS,
    doorbell=sdma_v4.SDMA_RLC0_DOORBELL,
    doorbell_offset=sdma_v4.SDMA_RLC0_DOORBELL_OFFSET,
    rptr=(sdma_v4.SDMA_RLC0_RB_RPTR, sdma_v4.SDMA_RLC0_RB_RPTR_HI),
    wptr=(sdma_v4.SDMA_RLC0_RB_WPTR, sdma_v4.SDMA_RLC0_RB_WPTR_HI),
    minor_pointer=sdma_v4.SDMA_RLC0_MINOR_PTR_UPDATE,
    base=(sdma_v4.SDMA_RLC0_RB_BASE, sdma_v4.SDMA_RLC0_RB_BASE_HI),
    rptr_address=(sdma_v4.SDMA_RLC0_RB_RPTR_ADDR_LO, sdma_v4.SDMA_RLC0_RB_RPTR_ADDR_HI),
    wptr_address=(sdma_v4.SDMA_RLC0_RB_WPTR_POLL_ADDR_LO, sdma_v4.SDMA_RLC0_RB_WPTR_POLL_ADDR_HI),
)


class EngineRow(NamedTuple):
    """One generation.

    `own_block`: each engine is a block of its own in the discovery table; else its registers lie among the graphics
    core's. `settings`: fields of the engine's control while it runs. `reset_field`: of the halt register. `poll_field`:
    of a queue. `freezes`, `semaphore_timer`, `noalloc`: features that the engine has or lacks. `resets`: whether the
    driver can halt and reset one engine; else its firmware runs on until the card is reset, and `stop` leaves it
    running without queues. `watchdog`: whether it has one, and settings of its own translations.
    """

    words: EngineWords
    settings: Mapping[str, int] = MappingProxyType({"trap_enable": 1, "ctxempty_int_enable": 0})
    reset_field: str = "reset"
    poll_field: str = ""
    freezes: bool = False
    semaphore_timer: bool = False
    noalloc: bool = False
    own_block: bool = False
    resets: bool = True
    watchdog: bool = True


ROWS: dict[int, EngineRow] = {
    4: EngineRow(
        OF_4,
        # sdma_v4_4_2_inst_start and _inst_ctx_switch_enable; queues of users run by context switches
        settings=MappingProxyType(
            {"trap_enable": 1, "ctxempty_int_enable": 0, "auto_ctxsw_enable": 1, "utc_l1_enable": 1}
        ),
        semaphore_timer=True,
        own_block=True,
        resets=False,
        watchdog=False,
    ),
    6: EngineRow(
        SINCE_6,
        reset_field="th1_reset",
        poll_field="f32_wptr_poll_enable",
        freezes=True,
        semaphore_timer=True,
        noalloc=True,
    ),
    7: EngineRow(SINCE_6._replace(control=sdma.SDMA0_MCU_CNTL), poll_field="mcu_wptr_poll_enable"),
}
