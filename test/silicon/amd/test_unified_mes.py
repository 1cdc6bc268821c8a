"""The scheduler of GC 12: both pipes of its micro engine run the same firmware, and the KIQ's pipe takes frames, not
packets. Source: mes_v12_0.c.
"""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.amd import mes_v12 as api
from ringup.autogen.amd import mqd
from ringup.autogen.structs import memory
from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.grbm import Slot

KIQ_RING, SCHED_RING, GFX_RING, USER_RING = 0x60_0000, 0x61_0000, 0x62_0000, 0x63_0000
SCHED_MQD, GFX_MQD, USER_MQD = 0x70_0000, 0x70_2000, 0x70_6000
STATUS, POINTERS = 0x71_0000, 0x72_0000
KIQ_BELL, SCHED_BELL = 0x18, 0x16


def compute_mqd(ring, doorbell, pointer, at):
    """Return an MQD as mes_v12_0_mqd_init fills it, with a ring of 256 dwords."""
    image = mqd.v12_compute_mqd(
        cp_mqd_base_addr_lo=at,
        cp_hqd_pq_base_lo=ring >> 8,
        cp_hqd_pq_control=0xD830_8907 & ~(1 << 27),
        cp_hqd_pq_rptr_report_addr_lo=pointer + 0x100,
        cp_hqd_pq_wptr_poll_addr_lo=pointer,
        cp_hqd_pq_doorbell_control=doorbell << 2,
        cp_hqd_persistent_state=0x0BE0_5501 | 1 << 30,
        compute_static_thread_mgmt_se0=0xFFFF_FFFF,
    )
    return bytes(memory(image))


class Host:
    """amdgpu's side: mes_v12_0_kiq_hw_init."""

    def __init__(self, core):
        self.core, self.sequence = core, 0
        core.set("RLC_CP_SCHEDULERS", 0xE8)
        self.kiq = core.queue(3, 1, 0, doorbell=KIQ_BELL, ring=KIQ_RING)

    def feeder(self, ring, doorbell, pointer):
        return type(self.kiq)(self.core, ring, doorbell, 0, pointer + 0x100, 256)

    def call(self, ring, layout, command, **members):
        """Submit a frame and return whether its fence came."""
        self.sequence += 1
        frame = layout(**members)
        frame.header.type, frame.header.opcode, frame.header.dwsize = 1, command, 64
        frame.api_status.api_completion_fence_addr = STATUS
        frame.api_status.api_completion_fence_value = self.sequence
        ring.run(*struct.unpack("<64I", bytes(memory(frame))), us=500)
        return self.core.number(STATUS, 8) == self.sequence

    def map_scheduler(self):
        """mes_v12_0_map_legacy_queue, for the ring of the scheduler's pipe."""
        self.core.hub.write(0, SCHED_MQD, compute_mqd(SCHED_RING, SCHED_BELL, POINTERS, SCHED_MQD), "")
        self.sched = self.feeder(SCHED_RING, SCHED_BELL, POINTERS)
        return self.call(
            self.kiq, api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, map_legacy_kq=1, queue_type=api.MES_QUEUE_TYPE_SCHQ,
            doorbell_offset=SCHED_BELL, mqd_addr=SCHED_MQD, wptr_addr=POINTERS,
        )  # fmt: skip

    def set_resources(self, ring, **members):
        return self.call(ring, api.MESAPI_SET_HW_RESOURCES, api.MES_SCH_API_SET_HW_RSRC, **members)

    def add_user_queue(self):
        pointer = POINTERS + 0x1000
        self.core.hub.write(0, USER_MQD, compute_mqd(USER_RING, 0x1000, pointer, USER_MQD), "")
        done = self.call(
            self.sched, api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, process_id=0x8001, page_table_base_addr=0x12_3000,
            process_va_end=0xF_FFFF, process_context_addr=0xC000, gang_context_addr=0xC001, doorbell_offset=0x1000,
            mqd_addr=USER_MQD, wptr_addr=pointer, queue_type=api.MES_QUEUE_TYPE_COMPUTE, is_kfd_process=1,
        )  # fmt: skip
        assert done
        return self.feeder(USER_RING, 0x1000, pointer)


@pytest.fixture
def host(navi48_core):
    return Host(navi48_core)


@pytest.fixture
def started(host):
    """Both pipes, as after mes_v12_0_hw_init."""
    assert host.set_resources(host.kiq)
    assert host.map_scheduler()
    assert host.set_resources(host.sched, vmid_mask_gfxhub=0xFF00, compute_hqd_mask=[0xC] * 2 + [0] * 6)
    return host


def test_the_kiqs_pipe_takes_frames_and_maps_the_schedulers_ring(navi48_core, host):
    assert host.set_resources(host.kiq)
    assert host.call(host.kiq, api.MESAPI_SET_HW_RESOURCES_1, api.MES_SCH_API_SET_HW_RSRC_1, mes_kiq_unmap_timeout=0xA)
    assert host.map_scheduler()
    assert navi48_core.gc.cp.queues[Slot(3, 0, 0)].connected
    assert host.call(host.sched, api.MESAPI__QUERY_MES_STATUS, api.MES_SCH_API_QUERY_SCHEDULER_STATUS)
    # amdgpu_mes_unmap_legacy_queue, RESET_QUEUES.
    assert host.call(
        host.kiq, api.MESAPI__REMOVE_QUEUE, api.MES_SCH_API_REMOVE_QUEUE, unmap_legacy_queue=1,
        queue_type=api.MES_QUEUE_TYPE_SCHQ, doorbell_offset=SCHED_BELL,
    )  # fmt: skip
    assert not navi48_core.gc.cp.queues[Slot(3, 0, 0)].connected
    assert navi48_core.violations() == []


def test_the_kiqs_own_firmware_takes_packets(navi48_core):
    """gc_12_0_1_mes1.bin, whose kind is 0x2042."""
    navi48_core.gc.firmware_loaded(0x51, bytes(0x58) + b"\x42\x20" + bytes(6))
    host = Host(navi48_core)
    # WRITE_DATA to a register.
    host.kiq.run(0xC003_3700, 1 << 20, navi48_core.cells.address("CPC_INT_STATUS") // 4, 0, 0x2000_0000)
    assert navi48_core.ih.entries == [(0x14, 178, 3 << 2 | 1, 0, ())]


def test_resources_of_the_kiqs_pipe_leave_the_schedulers_alone(navi48_core, started):
    assert started.set_resources(started.kiq)
    user = started.add_user_queue()
    user.run(0xC003_3700, 5 << 8 | 1 << 20, navi48_core.DATA, 0, 7)
    assert navi48_core.number(navi48_core.DATA) == 7
    connected = [slot for slot, queue in navi48_core.gc.cp.queues.items() if slot.me == 1 and queue.connected]
    assert connected == [Slot(1, 0, 2)]
    assert started.call(started.sched, api.MESAPI__REMOVE_QUEUE, api.MES_SCH_API_REMOVE_QUEUE, doorbell_offset=0x1000)
    assert navi48_core.violations() == []


def test_a_register_is_written_and_another_awaited_through_the_kiqs_pipe(navi48_core, started):
    """mes_v12_0_misc_op, as gmc_v12_0_flush_gpu_tlb uses it."""
    numbers = [navi48_core.cells.address(f"GCVM_INVALIDATE_ENG17_{name}") // 4 for name in ("REQ", "ACK")]
    assert started.call(
        started.kiq, api.MESAPI__MISC, api.MES_SCH_API_MISC, opcode=api.MESAPI_MISC__WAIT_REG_MEM,
        wait_reg_mem={"op": api.WRM_OPERATION__WR_WAIT_WR_REG, "reference": 1, "mask": 1, "reg_offset1": numbers[0], "reg_offset2": numbers[1]},
    )  # fmt: skip
    assert navi48_core.flushed == [1]


def test_a_reset_graphics_queue_is_unmapped_and_mapped_anew(navi48_core, started):
    """gfx_v12_0_reset_kgq: RESET, then ADD_QUEUE with the MQD's first state."""

    def add():
        return started.call(
            started.kiq, api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, map_legacy_kq=1, queue_type=api.MES_QUEUE_TYPE_GFX,
            doorbell_offset=0x116, mqd_addr=GFX_MQD, wptr_addr=POINTERS + 0x2000,
        )  # fmt: skip

    image = mqd.v12_gfx_mqd(
        cp_mqd_base_addr=GFX_MQD,
        cp_gfx_hqd_base=GFX_RING >> 8,
        cp_gfx_hqd_cntl=0x00A0_0507,
        cp_gfx_hqd_rptr_addr=POINTERS + 0x2100,
        cp_rb_doorbell_control=0x116 << 2 | 1 << 30,
        cp_gfx_hqd_active=1,
    )
    navi48_core.hub.write(0, GFX_MQD, bytes(memory(image)), "")
    assert add()
    gfx = started.feeder(GFX_RING, 0x116, POINTERS + 0x2000)
    # This is no packet.
    gfx.run(0)
    assert started.call(
        started.kiq, api.MESAPI__RESET, api.MES_SCH_API_RESET, reset_legacy_gfx=1, queue_type=api.MES_QUEUE_TYPE_GFX,
        doorbell_offset_lp=0x116,
    )  # fmt: skip
    assert not navi48_core.gc.cp.queues[Slot(0, 0, 0)].connected
    assert add()
    gfx.wptr = 0
    gfx.run(0xC003_3700, 5 << 8 | 1 << 20, navi48_core.DATA, 0, 7)
    assert navi48_core.number(navi48_core.DATA) == 7


@pytest.mark.parametrize(
    ("operation", "layout", "members"),
    [
        (api.MES_SCH_API_SET_SE_MODE, api.MESAPI__SET_SE_MODE, {"new_se_mode": 2}),
        (api.MES_SCH_API_SET_GANG_SUBMIT, api.MESAPI__SET_GANG_SUBMIT, {}),
        (api.MES_SCH_API_SET_HW_RSRC, api.MESAPI_SET_HW_RESOURCES, {"enable_mes_fence_int": 1}),
        (api.MES_SCH_API_MISC, api.MESAPI__MISC, {"opcode": api.MESAPI_MISC__QUERY_HUNG_ENGINE_ID}),
    ],
)
def test_what_only_this_generation_has_and_the_model_lacks_is_no_success(started, operation, layout, members):
    with pytest.raises(Unmodelled, match=r"^MES "):
        started.call(started.sched, layout, operation, **members)
