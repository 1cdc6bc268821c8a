"""Packets of the kernel interface queue (KIQ): they tell the scheduling firmware to map, unmap and query queues.

Source: amdgpu gfx_v11_0.c and gfx_v12_0.c, gfx11_kiq_*; gfx_v9_4_3.c. The layouts are facts from kfd_pm4_headers_ai.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ringup.autogen.amd import pm4, pm4_queues
from ringup.queues.amd.packets import Version, address, wide
from ringup.queues.amd.pm4_layout import header

# in one UNMAP_QUEUES
MAX_DOORBELLS = 4
# gfx11_kiq_set_resources: about one second
UNMAP_LATENCY = 0xA
FENCE_AFTER_WRITE = pm4_queues.command__mes_query_status__fence_only_after_write_ack
# dst_sel of gfx_v11_0_ring_invalidate_tlbs, for the KIQ
TO_ENGINE = 1


class QueueEngine(IntEnum):
    """The engine that runs a queue. Source: pm4_mes_map_queues's engine_sel; gfx11_kiq_map_queues for graphics and
    MES.
    """

    COMPUTE = 0
    SDMA0 = 2
    SDMA1 = 3
    GRAPHICS = 4
    MES = 5


class UnmapAction(IntEnum):
    """What UNMAP_QUEUES does to a queue. Source: nvd.h, PACKET3_UNMAP_QUEUES_ACTION."""

    PREEMPT = 0
    RESET = 1
    DISABLE_PROCESS = 2
    PREEMPT_NO_UNMAP = 3


def set_resources(version: Version, queue_mask: int, vmid_mask: int = 0) -> list[int]:
    """Tell the scheduling firmware which queue slots (a mask of 64 bits) and VMIDs it may use. Source:
    gfx11_kiq_set_resources.
    """
    control = pm4_queues.SET_RESOURCES_CONTROL.at(version)(vmid_mask=vmid_mask, unmap_latency=UNMAP_LATENCY)
    return [header(pm4.SET_RESOURCES, 7), int(control), *wide(queue_mask, "SET_RESOURCES.queue_mask"), 0, 0, 0, 0]


def map_queues(
    version: Version,
    mqd_va: int,
    wptr_va: int,
    doorbell: int,
    *,
    me: int = 1,
    pipe: int = 0,
    queue: int = 0,
    engine: QueueEngine = QueueEngine.COMPUTE,
    vmid: int = 0,
) -> list[int]:
    """Map one queue. The firmware loads its descriptor at `mqd_va` and polls `wptr_va`. `doorbell` is a dword index.

    Source: gfx11_kiq_map_queues.
    """
    control = pm4_queues.MAP_QUEUES_CONTROL.at(version)(
        vmid=vmid, queue=queue, pipe=pipe, me=me, engine_sel=engine, num_queues=1
    )
    control2 = pm4_queues.MAP_QUEUES_CONTROL2.at(version)(doorbell_offset=doorbell)
    places = *address(mqd_va, 4, "MAP_QUEUES.mqd_addr"), *address(wptr_va, 4, "MAP_QUEUES.wptr_addr")
    return [header(pm4.MAP_QUEUES, 6), int(control), int(control2), *places]


def unmap_queues(
    version: Version, doorbells: Sequence[int], action: UnmapAction, engine: QueueEngine = QueueEngine.COMPUTE
) -> list[int]:
    """Unmap or reset up to 4 queues, named by the dword indices of their doorbells. Source: gfx11_kiq_unmap_queues."""
    if not 1 <= len(doorbells) <= MAX_DOORBELLS:
        raise ValueError(f"UNMAP_QUEUES names 1 to {MAX_DOORBELLS} doorbells, not {len(doorbells)}")
    control = pm4_queues.UNMAP_QUEUES_CONTROL.at(version)(action=action, engine_sel=engine, num_queues=len(doorbells))
    four = *doorbells, *[0] * (MAX_DOORBELLS - len(doorbells))
    controls = (
        pm4_queues.UNMAP_QUEUES_CONTROL2.at(version)(doorbell_offset0=four[0]),
        pm4_queues.UNMAP_QUEUES_CONTROL3.at(version)(doorbell_offset1=four[1]),
        pm4_queues.UNMAP_QUEUES_CONTROL4.at(version)(doorbell_offset2=four[2]),
        pm4_queues.UNMAP_QUEUES_CONTROL5.at(version)(doorbell_offset3=four[3]),
    )
    return [header(pm4.UNMAP_QUEUES, 5), int(control), *map(int, controls)]


def query_status(version: Version, doorbell: int, fence_va: int, value: int) -> list[int]:
    """Store a quadword at `fence_va` once a compute queue's state is written back. Source: gfx11_kiq_query_status.

    Only for compute queues: their `engine_sel` is zero, and nvd.h and kfd_pm4_headers_ai.h put that field at different
    bits.
    """
    control = pm4_queues.QUERY_STATUS_CONTROL.at(version)(command=FENCE_AFTER_WRITE)
    control2 = pm4_queues.QUERY_STATUS_CONTROL2.at(version)(doorbell_offset=doorbell)
    operands = *address(fence_va, 8, "QUERY_STATUS.addr"), *wide(value, "QUERY_STATUS.data")
    return [header(pm4.QUERY_STATUS, 6), int(control), int(control2), *operands]


def invalidate_tlbs(version: Version, pasid: int, flush_type: int = 0, *, every_hub: bool = True) -> list[int]:
    """Invalidate the cached translations of a process, named by its PASID. Source: gfx_v11_0_ring_invalidate_tlbs,
    gfx11_kiq_invalidate_tlbs.
    """
    control = pm4.INVALIDATE_TLBS_CONTROL.at(version)(
        dst_sel=TO_ENGINE, all_hub=every_hub, pasid=pasid, flush_type=flush_type
    )
    return [header(pm4.INVALIDATE_TLBS, 1), int(control)]
