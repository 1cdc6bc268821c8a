"""Schedulers and the graphics ring: packets of the kernel interface queue, MES frames, and the start of the graphics
ring as amdgpu does it.
"""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.amd import mes_v11 as api
from ringup.autogen.amd import mqd
from ringup.autogen.structs import memory
from ringup.errors import Unmodelled

KIQ_RING, MES_RING, GFX_RING, USER_RING = 0x60_0000, 0x61_0000, 0x62_0000, 0x63_0000
MES_MQD, GFX_MQD, KCQ_MQD, USER_MQD = 0x70_0000, 0x70_2000, 0x70_4000, 0x70_6000
STATUS, POINTERS = 0x71_0000, 0x72_0000
FENCE = 0x73_0000
WRITE_DATA = 0x37


def store(at, *values):
    return [0xC000_0000 | len(values) + 2 << 16 | WRITE_DATA << 8, 5 << 8 | 1 << 20, at, 0, *values]


def compute_mqd(ring, doorbell, pointer, at, **more):
    """Return an MQD as gfx_v11_0_compute_mqd_init fills it, with a ring of 256 dwords."""
    image = mqd.v11_compute_mqd(
        cp_mqd_base_addr_lo=at,
        cp_hqd_pq_base_lo=ring >> 8,
        cp_hqd_pq_control=0xD830_8907 & ~(1 << 27),
        cp_hqd_pq_rptr_report_addr_lo=pointer + 0x100,
        cp_hqd_pq_wptr_poll_addr_lo=pointer,
        cp_hqd_pq_doorbell_control=doorbell << 2,
        cp_hqd_persistent_state=0x0BE0_5501 | 1 << 30,
        cp_hqd_ib_control=0x30_0000,
        compute_static_thread_mgmt_se0=0xFFFF_FFFF,
        **more,
    )
    return bytes(memory(image))


def gfx_mqd(ring, doorbell, pointer, at):
    """Return an MQD as gfx_v11_0_gfx_mqd_init fills it."""
    image = mqd.v11_gfx_mqd(
        cp_mqd_base_addr=at,
        cp_gfx_hqd_base=ring >> 8,
        cp_gfx_hqd_cntl=0x00A0_0507,
        cp_gfx_hqd_rptr_addr=pointer + 0x100,
        cp_rb_wptr_poll_addr_lo=pointer,
        cp_rb_doorbell_control=doorbell << 2 | 1 << 30,
        cp_gfx_hqd_active=1,
    )
    return bytes(memory(image))


class Host:
    """amdgpu's side: it starts the KIQ by registers on micro engine 3, pipe 1, and does everything else through the KIQ
    or MES.
    """

    def __init__(self, core, make_feeder):
        self.core, self.make_feeder = core, make_feeder
        core.set("RLC_CP_SCHEDULERS", 0x68)
        # mes_v11_0_kiq_setting: me 3, pipe 1, queue 0
        core.set("RLC_CP_SCHEDULERS", 0xE8)
        self.kiq = core.queue(3, 1, 0, doorbell=0x18, ring=KIQ_RING)
        self.sequence = 0

    def feeder(self, ring, doorbell, pointer, dwords=256):
        return self.make_feeder(self.core, ring, doorbell, 0, pointer + 0x100, dwords)

    def map_queues(self, engine, me, pipe, queue, doorbell, at, pointer):
        """As gfx11_kiq_map_queues does."""
        control = queue << 13 | pipe << 16 | me << 18 | engine << 26 | 1 << 29
        self.kiq.run(0xC005_A200, control, doorbell << 2, at, 0, pointer, 0)

    def start_mes(self):
        self.core.hub.write(0, MES_MQD, compute_mqd(MES_RING, 0x16, POINTERS, MES_MQD), "")
        self.map_queues(5, 2, 0, 0, 0x16, MES_MQD, POINTERS)
        self.mes = self.feeder(MES_RING, 0x16, POINTERS)
        self.call(api.MESAPI_SET_HW_RESOURCES, api.MES_SCH_API_SET_HW_RSRC, vmid_mask_gfxhub=0xFF00, compute_hqd_mask=[0xC] * 4 + [0] * 4,
                  sdma_hqd_mask=[0xFC, 0xFC])  # fmt: skip

    def call(self, layout, command, us=500, **members):
        """Submit a frame and return whether its fence came."""
        self.sequence += 1
        frame = layout(**members)
        frame.header.type, frame.header.opcode, frame.header.dwsize = 1, command, 64
        frame.api_status.api_completion_fence_addr = STATUS
        frame.api_status.api_completion_fence_value = self.sequence
        self.mes.run(*struct.unpack("<64I", bytes(memory(frame))), us=us)
        return self.core.number(STATUS, 8) == self.sequence

    def add_user_queue(self, number, pasid=0x8001, context=0xC000, **more):
        pointer, at, ring = POINTERS + 0x1000 * (number + 1), USER_MQD + 0x1000 * number, USER_RING + 0x1000 * number
        doorbell = 0x1000 + 2 * number
        self.core.hub.write(0, at, compute_mqd(ring, doorbell, pointer, at), "")
        done = self.call(
            api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, process_id=pasid, page_table_base_addr=0x12_3000, process_va_end=0xF_FFFF,
            process_context_addr=context, gang_context_addr=context + number, doorbell_offset=doorbell, mqd_addr=at, wptr_addr=pointer,
            queue_type=api.MES_QUEUE_TYPE_COMPUTE, is_kfd_process=1, trap_handler_addr=0xFFFF_BF00_0000, **more,
        )  # fmt: skip
        assert done
        return self.feeder(ring, doorbell, pointer)

    def remove(self, doorbell):
        return self.call(api.MESAPI__REMOVE_QUEUE, api.MES_SCH_API_REMOVE_QUEUE, doorbell_offset=doorbell)

    def misc(self, opcode, **members):
        return self.call(api.MESAPI__MISC, api.MES_SCH_API_MISC, opcode=opcode, **members)


@pytest.fixture
def host(core, mec):
    return Host(core, type(mec))


@pytest.fixture
def mes(host):
    host.start_mes()
    return host


def test_mes_maps_an_aql_queue_with_its_write_index_and_gives_it_back(core, mes, make_aql):
    aql = make_aql(1, doorbell=0x1002)
    # Its registers are in its MQD now.
    assert core.dequeue(core.DRAIN, pipe=1)
    signal = aql.signal(2)
    # The packet is written before the queue is mapped.
    aql.write(aql.barrier(signal=signal))
    for turn in range(2):
        assert mes.call(
            api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, process_id=0x8001, page_table_base_addr=0x12_3000, process_va_end=0xF_FFFF,
            process_context_addr=0xC000, gang_context_addr=0xC001, doorbell_offset=aql.bell, mqd_addr=aql.mqd, wptr_addr=aql.shared + 56,
            queue_type=api.MES_QUEUE_TYPE_COMPUTE, is_kfd_process=1, is_aql_queue=1, trap_handler_addr=0xFFFF_BF00_0000,
        )  # fmt: skip
        core.clock.sleep_us(200)
        assert aql.value(signal) == 1 - turn
        assert mes.remove(aql.bell)
        aql.write(aql.barrier(signal=signal))
    assert (aql.read_index, core.violations()) == (2, [])


# --- KIQ ----------------------------------------------------------------------------------------------------------
def test_the_kiq_writes_registers_and_interrupts_the_host(core, host):
    status = core.cells.address("CPC_INT_STATUS") // 4
    # gfx_v11_0_ring_emit_fence_kiq
    host.kiq.run(0xC003_3700, 1 << 20, status, 0, 0x2000_0000)
    assert core.ih.entries == [(0x14, 178, 3 << 2 | 1, 0, ())]


def test_map_queues_connects_the_queue_of_an_mqd_with_the_pointer_in_memory(core, host):
    core.hub.write(0, KCQ_MQD, compute_mqd(USER_RING, 0x8, POINTERS, KCQ_MQD), "")
    core.put(USER_RING, *store(core.DATA, 1))
    # The work was submitted before.
    core.put(POINTERS, 5, 0)
    host.map_queues(0, 1, 2, 3, 0x8, KCQ_MQD, POINTERS)
    assert core.number(core.DATA) == 1
    core.select(1, 2, 3)
    assert core.get("CP_HQD_ACTIVE") == 1
    queue = host.feeder(USER_RING, 0x8, POINTERS)
    queue.wptr = 5
    queue.run(*store(core.DATA + 4, 2))
    assert core.number(core.DATA + 4) == 2


def test_unmap_queues_writes_the_mqd_back_and_frees_the_slot(core, host):
    core.hub.write(0, KCQ_MQD, compute_mqd(USER_RING, 0x8, POINTERS, KCQ_MQD), "")
    host.map_queues(0, 1, 2, 3, 0x8, KCQ_MQD, POINTERS)
    host.feeder(USER_RING, 0x8, POINTERS).run(*store(core.DATA, 1))
    host.kiq.run(0xC004_A300, 1 << 29, 0x8 << 2, 0, 0, 0)
    core.select(1, 2, 3)
    assert core.get("CP_HQD_ACTIVE") == 0
    image = mqd.v11_compute_mqd.view(bytearray(core.hub.read(0, KCQ_MQD, mqd.v11_compute_mqd.SIZE, "")))
    assert (image.cp_hqd_pq_rptr, image.cp_hqd_active) == (5, 0)
    # The queue goes on behind the five dwords, in another slot.
    host.map_queues(0, 1, 0, 1, 0x8, KCQ_MQD, 0)
    queue = host.feeder(USER_RING, 0x8, POINTERS)
    queue.wptr = 5
    queue.run(*store(core.DATA + 4, 2))
    assert core.number(core.DATA + 4) == 2


def test_a_hung_queue_is_reset_when_it_does_not_unmap_in_time(core, host):
    core.hub.write(0, KCQ_MQD, compute_mqd(USER_RING, 0x8, POINTERS, KCQ_MQD), "")
    host.map_queues(0, 1, 2, 3, 0x8, KCQ_MQD, POINTERS)
    host.feeder(USER_RING, 0x8, POINTERS).run(0)
    # SET_RESOURCES: unmap_latency 0.1 s
    host.kiq.run(0xC006_A000, 1 << 16, 0, 0, 0, 0, 0, 0)
    host.kiq.run(0xC004_A300, 1 << 29, 0x8 << 2, 0, 0, 0, us=50_000)
    core.select(1, 2, 3)
    assert core.get("CP_HQD_ACTIVE") == 1
    core.clock.sleep_us(60_000)
    assert core.get("CP_HQD_ACTIVE") == 0
    assert "did not stop in time" in core.violations()[-1]


def test_query_status_stores_its_fence(core, host):
    host.kiq.run(0xC005_A400, 2 << 30, 0x8 << 2, FENCE, 0, 0x77, 0x1)
    assert core.number(FENCE, 8) == 0x1_0000_0077


def test_invalidate_tlbs_finds_the_vmids_of_a_process(core, host):
    core.board.space.write(core.osssys.address("IH_VMID_9_LUT"), 0x8001)
    host.kiq.run(0xC000_9800, 1 | 0x8001 << 5 | 2 << 29)
    assert core.flushed == [1 << 9 | 2 << 16 | 0xF8 << 16]


def test_only_the_kiq_takes_its_packets(core, host):
    core.set("RLC_CP_SCHEDULERS", 0)
    other = core.queue(pipe=2, doorbell=0xA)
    other.run(0xC005_A400, 2 << 30, 0x8 << 2, FENCE, 0, 1, 0)
    assert core.number(FENCE) == 0
    assert core.ih.entries[0][1] == 183


# --- graphics -----------------------------------------------------------------------------------------------------
def gfx_by_kiq(core, host):
    core.hub.write(0, GFX_MQD, gfx_mqd(GFX_RING, 0x116, POINTERS, GFX_MQD), "")
    host.map_queues(4, 0, 0, 0, 0x116, GFX_MQD, POINTERS)
    return host.feeder(GFX_RING, 0x116, POINTERS)


CLEAR_STATE = (  # gfx_v11_0_cp_gfx_start
    0xC000_4A00, 2 << 28, 0xC001_2800, 0x8000_0000, 0x8000_0000, 0xC002_6900, 0x0, 1, 2, 0xC000_4A00, 3 << 28, 0xC000_1200, 0,
)  # fmt: skip


def test_the_graphics_ring_takes_its_clear_state_and_passes_amdgpus_ring_test(core, host):
    gfx = gfx_by_kiq(core, host)
    gfx.run(*CLEAR_STATE, 0xC001_7900, 0x40, 0xDEAD_BEEF)
    assert core.get("SCRATCH_REG0") == 0xDEAD_BEEF
    assert gfx.done()
    assert core.violations() == []


def test_the_default_state_is_sent_as_ranges_with_unnamed_context_registers_between(core, host):
    gfx = gfx_by_kiq(core, host)
    # gfx11_SECT_CONTEXT_def_4 of clearstate_gfx11.h
    gfx.run(0xC000_6900 | 158 << 16, 0x1FF, *range(158))
    assert gfx.done()
    assert core.get("PA_CL_CLIP_CNTL") == 0x204 - 0x1FF
    assert core.violations() == []


def test_context_registers_are_set_in_pairs_plain_and_packed(core, host):
    gfx = gfx_by_kiq(core, host)
    # SET_CONTEXT_REG_PAIRS: PA_CL_CLIP_CNTL, CB_BLEND_RED
    gfx.write(0xC003_B800, 0x204, 0x11, 0x105, 0x22)
    # The packed form. The last pair is one too many.
    gfx.run(0xC006_B900, 3, 0x106 << 16 | 0x107, 0x33, 0x44, 0x107 << 16 | 0x108, 0x55, 0x66)
    names = ("PA_CL_CLIP_CNTL", "CB_BLEND_RED", "CB_BLEND_BLUE", "CB_BLEND_GREEN", "CB_BLEND_ALPHA")
    assert [core.get(name) for name in names] == [0x11, 0x22, 0x33, 0x44, 0x55]
    assert core.violations() == []


@pytest.mark.parametrize(
    "draw",
    [
        # DRAW_INDEX_AUTO: three vertices, auto index. Source: nvd.h, Mesa radv_cmd_buffer.c.
        (0xC001_2D00, 3, 2),
        (0xC004_2700, 3, 0x8000, 0, 3, 0),  # DRAW_INDEX_2
    ],
)
def test_drawing_is_set_up_and_no_draw_is_a_success(core, host, draw):
    gfx = gfx_by_kiq(core, host)
    gfx.run(0xC000_6900 | 158 << 16, 0x1FF, *range(158))
    assert gfx.done()
    with pytest.raises(Unmodelled, match="DRAW"):
        gfx.run(*draw)
    assert not gfx.done()


def spin(core, queue, gate):
    """Let a queue run waves until `gate` is not 0."""
    code = core.DATA + 0x1000
    # spin: s_load_b32 s4, s[0:1], 0x0 glc; s_waitcnt lgkmcnt(0); s_cmp_eq_u32 s4, 0; s_cbranch_scc1 spin; s_endpgm
    core.put(code, 0xF400_4100, 0xF800_0000, 0xBF89_FC07, 0xBF06_8004, 0xBFA2_FFFB, 0xBFB0_0000)
    for offset, values in ((0x20C, (code >> 8, 0)), (0x212, (0x602C_0000, 4)), (0x207, (32, 1, 1)), (0x240, (gate, 0))):
        queue.write(0xC000_7602 | len(values) << 16, offset, *values)
    queue.write(0xC003_1502, 1, 1, 1, 0x8005)  # DISPATCH_DIRECT


def test_pixel_wait_sync_waits_for_the_release_before(core, host):
    gfx, gate = gfx_by_kiq(core, host), core.DATA + 0x2000
    spin(core, gfx, gate)
    # RELEASE_MEM: CS_DONE with PWS_ENABLE
    gfx.write(0xC006_4900, 0x2F | 6 << 8 | 1 << 31, 0, 0, 0, 0, 0, 0)
    # ACQUIRE_MEM: the last of CS_DONE
    gfx.write(0xC006_5800, 1 << 17 | 2 << 14, 0xFFFF_FFFF, 0x1FF_FFFF, 0, 0, 1 << 31, 0)
    gfx.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    core.put(gate, 1)
    core.clock.sleep_us(500)
    assert gfx.done()
    assert core.number(core.DATA) == 1
    assert core.violations() == []


def test_graphics_nests_indirect_buffers_twice_and_fences(core, host):
    core.set("CP_INT_CNTL_RING0", 1 << 26)
    gfx, first, second = gfx_by_kiq(core, host), core.DATA + 0x1000, core.DATA + 0x2000
    core.put(first, 0xC002_3F00, second, 0, 5, *store(core.DATA, 1))
    core.put(second, *store(core.DATA + 4, 2))
    gfx.run(
        0xC000_4200,
        0,
        0xC002_3F00,
        first,
        0,
        9 | 3 << 24,
        0xC006_4900,
        0x1428_0514,
        2 << 29 | 2 << 24,
        FENCE,
        0,
        5,
        0,
        0,
    )
    assert core.words(core.DATA, 2) == [1, 2]
    assert core.number(FENCE) == 5
    assert core.ih.entries == [(0x14, 181, 0, 0, (0,))]


def test_ring_buffer_0_is_started_by_registers(core):
    """As in gfx_v11_0_cp_gfx_resume, without asynchronous rings."""
    for name, value in (
        ("CP_RB_VMID", 0), ("CP_RB0_CNTL", 7 | 5 << 8), ("CP_RB0_WPTR", 0), ("CP_RB0_WPTR_HI", 0), ("CP_RB0_RPTR_ADDR", POINTERS + 0x100),
        ("CP_RB0_RPTR_ADDR_HI", 0), ("CP_RB0_BASE", GFX_RING >> 8), ("CP_RB0_BASE_HI", 0), ("CP_RB_ACTIVE", 1),
        ("CP_RB_DOORBELL_CONTROL", 0x116 << 2 | 1 << 30),
    ):  # fmt: skip
        core.set(name, value)
    core.put(GFX_RING, *CLEAR_STATE, *store(core.DATA, 1))
    assert core.gc.doorbell(0x116, len(CLEAR_STATE) + 5, 8)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == 1
    assert core.get("CP_RB0_RPTR") == core.number(POINTERS + 0x100) == len(CLEAR_STATE) + 5


# --- MES ----------------------------------------------------------------------------------------------------------
def test_the_version_of_each_pipe_is_read_while_it_runs(core):
    core.select(3, 0)
    # After this, amdgpu maps kernel queues through MES.
    assert core.get("CP_MES_GP3_LO") & 0xFFF >= 0x47
    core.set("CP_MES_CNTL", 1 << 30)
    assert core.get("CP_MES_GP3_LO") == 0


def test_every_frame_is_answered_around_the_rings_end(core, mes):
    # Four frames fill the ring once.
    for _ in range(9):
        assert mes.call(api.MESAPI__QUERY_MES_STATUS, api.MES_SCH_API_QUERY_SCHEDULER_STATUS)


def test_a_frame_that_is_no_frame_stops_the_firmware(core, mes):
    assert not mes.call(api.MESAPI__QUERY_MES_STATUS, 0x77)
    assert not mes.call(api.MESAPI__QUERY_MES_STATUS, api.MES_SCH_API_QUERY_SCHEDULER_STATUS)
    assert "MES stops" in core.violations()[-1]


def test_kernel_queues_are_mapped_to_the_slots_named(core, mes):
    core.hub.write(0, KCQ_MQD, compute_mqd(USER_RING, 0x8, POINTERS + 0x1000, KCQ_MQD), "")
    assert mes.call(api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, pipe_id=1, queue_id=0, doorbell_offset=0x8, mqd_addr=KCQ_MQD,
                    wptr_addr=POINTERS + 0x1000, queue_type=api.MES_QUEUE_TYPE_COMPUTE, map_legacy_kq=1)  # fmt: skip
    queue = mes.feeder(USER_RING, 0x8, POINTERS + 0x1000)
    queue.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1
    core.select(1, 1, 0)
    assert core.get("CP_HQD_ACTIVE") == 1
    assert mes.call(api.MESAPI__REMOVE_QUEUE, api.MES_SCH_API_REMOVE_QUEUE, pipe_id=1, queue_id=0, unmap_legacy_queue=1,
                    queue_type=api.MES_QUEUE_TYPE_COMPUTE)  # fmt: skip
    assert core.get("CP_HQD_ACTIVE") == 0


def test_a_process_gets_a_vmid_with_page_tables_process_id_and_trap_handler(core, mes):
    user = mes.add_user_queue(0)
    core.hub.vmids.clear()
    user.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1
    assert set(core.hub.vmids) == {8}
    assert core.get("GCVM_CONTEXT8_PAGE_TABLE_BASE_ADDR_LO32") == 0x12_3001
    assert core.get("GCVM_CONTEXT8_PAGE_TABLE_END_ADDR_LO32") == 0xF_FFFF
    assert core.osssys["IH_VMID_8_LUT"] == 0x8001
    assert core.flushed == [1 << 8 | 0xF8 << 16]
    core.select(vmid=8)
    assert (core.get("SQ_SHADER_TBA_LO"), core.get("SQ_SHADER_TBA_HI")) == (0xFFBF_0000, 0x8000_00FF)


def test_a_process_keeps_the_fault_interrupts_that_the_host_has_switched_on(core, mes):
    # gfxhub_v3_0.c, vm_cntx_cntl_vm_fault
    interrupts = 0x2A_AA00
    core.set("GCVM_CONTEXT8_CNTL", interrupts)
    mes.add_user_queue(0, vm_context_cntl=0x1 | 3 << 1 | 9 << 3)
    assert core.get("GCVM_CONTEXT8_CNTL") == interrupts | 0x1 | 3 << 1 | 9 << 3


def test_processes_get_different_vmids_and_their_queues_share_one(core, mes):
    for number, context in enumerate((0xC000, 0xD000, 0xC000)):
        mes.add_user_queue(number, pasid=context, context=context)
    vmids = []
    for number in range(3):
        core.hub.vmids.clear()
        mes.feeder(USER_RING + 0x1000 * number, 0x1000 + 2 * number, POINTERS + 0x1000 * (number + 1)).run(
            *store(core.DATA, 1)
        )
        vmids.append(set(core.hub.vmids))
    assert vmids == [{8}, {9}, {8}]


def test_the_vmid_is_free_again_when_the_last_queue_is_gone(core, mes):
    mes.add_user_queue(0)
    assert mes.remove(0x1000)
    assert core.osssys["IH_VMID_8_LUT"] == 0
    mes.add_user_queue(1, pasid=0x9001, context=0xD000)
    assert core.osssys["IH_VMID_8_LUT"] == 0x9001


def test_a_queue_more_than_there_are_slots_waits_for_one(core, mes):
    # The mask leaves two slots on each of the four pipes.
    queues = [mes.add_user_queue(number) for number in range(9)]
    queues[8].write(*store(core.DATA, 9))
    core.put(POINTERS + 0x9000, 5, 0)
    assert queues[8].ring_bell()
    core.clock.sleep_us(500)
    assert core.number(core.DATA) == 0
    assert mes.remove(0x1000)
    core.clock.sleep_us(500)
    assert core.number(core.DATA) == 9


def test_a_queue_that_waits_gets_a_slot_that_became_free_when_the_host_tells_of_work(core, mes):
    queues = [mes.add_user_queue(number) for number in range(9)]
    queues[8].write(*store(core.DATA, 9))
    core.put(POINTERS + 0x9000, 5, 0)
    assert queues[8].ring_bell()
    core.select(1, 0, 2)
    # The scheduler does not know of it.
    core.set("CP_HQD_DEQUEUE_REQUEST", core.DRAIN)
    core.clock.sleep_us(500)
    assert core.number(core.DATA) == 0
    assert mes.misc(api.MESAPI_MISC__NOTIFY_WORK_ON_UNMAPPED_QUEUE, queue_sch_level=1)
    core.clock.sleep_us(500)
    assert core.number(core.DATA) == 9


# Operation, its layout, and members with a request.
LACKING = (
    (api.MES_SCH_API_SET_SCHEDULING_CONFIG, api.MESAPI__SET_SCHEDULING_CONFIG, {"normal_yield_percent": 10}),
    (api.MES_SCH_API_PERFORM_YIELD, api.MESAPI__PERFORM_YIELD, {}),
    (api.MES_SCH_API_SET_GANG_PRIORITY_LEVEL, api.MESAPI__CHANGE_GANG_PRIORITY_LEVEL, {"gang_context_addr": 0xC001}),
    (api.MES_SCH_API_CHANGE_GANG_PRORITY, api.MESAPI__CHANGE_GANG_PRIORITY_LEVEL, {"gang_context_addr": 0xC001}),
    (api.MES_SCH_API_SET_LOG_BUFFER, api.MESAPI__SET_LOGGING_BUFFER, {"logging_buffer_addr": STATUS}),
    (api.MES_SCH_API_PROGRAM_GDS, api.MESAPI__PROGRAM_GDS, {"gds_size": 0x1000}),
    (api.MES_SCH_API_SET_DEBUG_VMID, api.MESAPI__SET_DEBUG_VMID, {"debug_vmid": 1}),
    (api.MES_SCH_API_AMD_LOG, api.MESAPI_AMD_LOG, {"p_buffer_memory": STATUS}),
    (api.MES_SCH_API_SET_HW_RSRC, api.MESAPI_SET_HW_RESOURCES, {"limit_single_process": 1}),
    (api.MES_SCH_API_ADD_QUEUE, api.MESAPI__ADD_QUEUE, {"gws_size": 1}),
    (api.MES_SCH_API_ADD_QUEUE, api.MESAPI__ADD_QUEUE, {"is_tmz_queue": 1}),
    (api.MES_SCH_API_MISC, api.MESAPI__MISC, {"opcode": api.MESAPI_MISC__NOTIFY_TO_UNMAP_PROCESSES}),
    (api.MES_SCH_API_MISC, api.MESAPI__MISC,
     {"opcode": api.MESAPI_MISC__CHANGE_CONFIG, "change_config": {"opcode": 0, "option": {"all": 1}}}),
)  # fmt: skip


@pytest.mark.parametrize(("operation", "layout", "members"), LACKING)
def test_what_the_scheduler_does_not_have_is_no_success(core, mes, operation, layout, members):
    core.put(STATUS, 0, 0)
    with pytest.raises(Unmodelled, match=r"^MES "):
        mes.call(layout, operation, **members)
    # There is no fence either.
    assert core.number(STATUS, 8) == 0


def test_what_metal_does_without_a_trace_is_answered(core, mes):
    for operation, layout, members in (
        (api.MES_SCH_API_QUERY_SCHEDULER_STATUS, api.MESAPI__QUERY_MES_STATUS, {}),
        (api.MES_SCH_API_SET_HW_RSRC_1, api.MESAPI_SET_HW_RESOURCES_1, {"enable_mes_info_ctx": 1}),
        (api.MES_SCH_API_SET_HW_RSRC_1, api.MESAPI_SET_HW_RESOURCES_1, {"cleaner_shader_fence_mc_addr": 0x74_0000}),
        (api.MES_SCH_API_MISC, api.MESAPI__MISC, {"opcode": api.MESAPI_MISC__QUERY_STATUS}),
        (api.MES_SCH_API_MISC, api.MESAPI__MISC, {"opcode": api.MESAPI_MISC__CHANGE_CONFIG}),
    ):
        assert mes.call(layout, operation, **members)


def test_an_event_log_that_stays_empty_is_noted(core, mes):
    members = {
        "enable_mes_event_int_logging": 1,
        "event_intr_history_gpu_mc_ptr": 0x74_0000,
        "vmid_mask_gfxhub": 0xFF00,
    }
    assert mes.call(api.MESAPI_SET_HW_RESOURCES, api.MES_SCH_API_SET_HW_RSRC, **members)
    assert [event.text for event in core.board.log.find("unmodelled", "mes")] == [
        "the event log at 0x740000 stays empty"
    ]


def test_every_operation_of_the_header_is_known(any_core):
    header = any_core.gc.grbm.row.generation.mes
    named = {
        value for name, value in vars(header).items() if name.startswith("MES_SCH_API_") and not name.endswith("_MAX")
    }
    assert set(any_core.gc.mes.handlers) == named


def test_suspend_and_resume_all_gangs(core, mes):
    user = mes.add_user_queue(0)
    assert mes.call(
        api.MESAPI__SUSPEND,
        api.MES_SCH_API_SUSPEND,
        suspend_all_gangs=1,
        suspend_fence_addr=FENCE,
        suspend_fence_value=6,
    )
    assert core.number(FENCE) == 6
    user.write(*store(core.DATA, 1))
    core.put(POINTERS + 0x1000, user.wptr, 0)
    user.ring_bell()
    core.clock.sleep_us(200)
    assert core.number(core.DATA) == 0
    assert mes.call(api.MESAPI__RESUME, api.MES_SCH_API_RESUME, resume_all_gangs=1)
    assert core.number(core.DATA) == 1


def test_reset_drops_the_hung_work_and_the_queue_goes_on(core, mes):
    user = mes.add_user_queue(0)
    user.run(0, *store(core.DATA, 1))
    assert mes.call(api.MESAPI__RESET, api.MES_SCH_API_RESET, reset_queue_only=1, doorbell_offset=0x1000)
    user.run(*store(core.DATA + 4, 2))
    assert core.words(core.DATA, 2) == [0, 2]


def test_what_was_saved_of_a_queue_is_kept_until_its_process_ends(core, mes):
    saved, contexts = core.gc.cp.saved, (0xC000, 0xD000)
    for number, context in enumerate(contexts):
        user = mes.add_user_queue(number, context=context)
        spin(core, user, core.DATA + 0x2000)
        user.run()
        assert mes.remove(0x1000 + 2 * number)
    kept = []
    for context in contexts:
        flush = {"process_context_addr": context, "flags": {"process_ctx_flush": 1}}
        kept.append(sorted(saved))
        assert mes.misc(api.MESAPI_MISC__SET_SHADER_DEBUGGER, set_shader_debugger=flush)
    assert kept == [[USER_MQD, USER_MQD + 0x1000], [USER_MQD + 0x1000]]
    assert not saved


def test_misc_reads_writes_and_waits_for_registers(core, mes):
    scratch = core.cells.address("SCRATCH_REG0") // 4
    assert mes.misc(api.MESAPI_MISC__WRITE_REG, write_reg={"reg_offset": scratch, "reg_value": 0x99})
    assert mes.misc(api.MESAPI_MISC__READ_REG, read_reg={"reg_offset": scratch, "buffer_addr": FENCE})
    assert core.number(FENCE) == 0x99
    request, acknowledge = (core.cells.address(f"GCVM_INVALIDATE_ENG17_{name}") // 4 for name in ("REQ", "ACK"))
    wait = {"op": 1, "reference": 0x00F8_0001, "mask": 1, "reg_offset1": request, "reg_offset2": acknowledge}
    assert mes.misc(api.MESAPI_MISC__WAIT_REG_MEM, wait_reg_mem=wait)
    assert core.flushed == [0x00F8_0001]


def test_an_sdma_queue_of_a_process_goes_to_its_engine_with_the_pointer_in_memory(core, mes):
    image = mqd.v11_sdma_mqd(sdmax_rlcx_rb_base=0x1234, sdma_queue_id=3)
    core.hub.write(0, USER_MQD, bytes(memory(image)), "")
    core.put(POINTERS + 0x1000, 0x40, 0)
    assert mes.call(api.MESAPI__ADD_QUEUE, api.MES_SCH_API_ADD_QUEUE, process_id=1, process_context_addr=0xC000, doorbell_offset=0x1100,
                    mqd_addr=USER_MQD, wptr_addr=POINTERS + 0x1000, queue_type=api.MES_QUEUE_TYPE_SDMA)  # fmt: skip
    descriptor, vmid = core.sdma.mapped[3]
    seen = mqd.v11_sdma_mqd.view(bytearray(descriptor))
    assert (seen.sdmax_rlcx_rb_base, seen.sdmax_rlcx_rb_wptr, vmid) == (0x1234, 0x40, 8)
    # The SDMA engine takes this doorbell, not the graphics core.
    assert not core.gc.doorbell(0x1100, 0x80, 8)
    assert mes.remove(0x1100)
    assert core.sdma.mapped == {}
