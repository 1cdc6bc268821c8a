"""Hardware queues: activation, ring and pointers, doorbells, disconnecting, and halted engines. Source: gfx_v11_0.c,
mes_v11_0.c.
"""

from __future__ import annotations

import re
import struct

import pytest

from ringup.autogen.amd.mqd import v11_compute_mqd
from ringup.silicon.amd.gc.grbm import Slot

WRITE_DATA = 0x37


def store(at, *values):
    return [0xC000_0000 | len(values) + 2 << 16 | WRITE_DATA << 8, 5 << 8 | 1 << 20, at, 0, *values]


def wait_for(at, value):
    return [0xC005_3C00, 3 | 1 << 4, at, 0, value, 0xFFFF_FFFF, 4]


@pytest.mark.parametrize("start", range(246, 258))
def test_a_packet_may_wrap_around_the_rings_end_at_any_dword(core, start):
    queue = core.queue(wptr=start)
    queue.run(*store(core.DATA, 0x11, 0x22, 0x33, start))
    assert core.words(core.DATA, 4) == [0x11, 0x22, 0x33, start]
    assert queue.done()


@pytest.mark.parametrize("start", [0xFFFF_FFF0, 0xFFFF_FFFF, 0x1_0000_0000, 0x7_FFFF_FFFE])
def test_pointers_go_on_beyond_32_bits(core, start):
    queue = core.queue(wptr=start)
    for number in range(6):
        queue.run(*store(core.DATA + 4 * number, number + 1))
    assert core.words(core.DATA, 6) == [1, 2, 3, 4, 5, 6]
    assert core.number(queue.report) == queue.wptr & 0xFFFF_FFFF
    assert core.violations() == []


def test_a_32_bit_doorbell_moves_the_low_half(core):
    queue = core.queue(wptr=0x5_0000_0010)
    queue.write(*store(core.DATA, 1))
    queue.ring_bell(size_bytes=4)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == 1
    core.select(1, 0, 0)
    assert (core.get("CP_HQD_PQ_WPTR_HI"), core.get("CP_HQD_PQ_WPTR_LO")) == (5, 0x15)


def test_a_write_pointer_farther_than_the_ring_is_reported(core, mec):
    core.gc.doorbell(6, 257, 8)
    assert "0x101 dwords ahead" in core.violations()[0]


def test_a_packet_that_is_not_whole_yet_waits_for_the_rest(core, mec):
    words = store(core.DATA, 1)
    mec.run(*words[:3])
    assert core.number(core.DATA) == 0
    mec.run(*words[3:])
    assert core.number(core.DATA) == 1


def test_a_doorbell_outside_of_the_mec_range_is_ignored_and_told(core):
    queue = core.queue(doorbell=0x120)
    queue.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert "doorbell 0x120" in core.violations()[0]


def test_doorbells_of_processes_lie_behind_the_ranges_page(core):
    queue = core.queue(doorbell=0x1002)
    queue.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1


def test_a_doorbell_no_queue_listens_to_is_nobodys(core, mec):
    assert core.gc.doorbell(0x10, 4, 8) is False


def test_no_rptr_is_written_when_the_queue_says_so(core):
    queue = core.queue(CP_HQD_PQ_CONTROL=0xD830_8907 | 1 << 27)
    queue.run(*store(core.DATA, 1))
    assert (core.number(core.DATA), core.number(queue.report)) == (1, 0)


def test_the_write_pointer_can_be_polled_from_memory(core):
    queue = core.queue(CP_HQD_PQ_WPTR_POLL_ADDR=core.POINTER)
    core.set("CP_PQ_WPTR_POLL_CNTL", 1 << 31)
    queue.write(*store(core.DATA, 1))
    core.put(core.POINTER, queue.wptr, 0)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == 1


def test_queues_run_side_by_side_and_wait_for_each_other(core):
    one, two = core.queue(doorbell=6), core.queue(pipe=1, doorbell=8)
    flag, back = core.DATA + 0x100, core.DATA + 0x200
    one.write(*wait_for(flag, 1), *store(back, 2), *store(core.DATA, 1))
    two.write(*store(flag, 1), *wait_for(back, 2), *store(core.DATA + 4, 1))
    one.ring_bell()
    core.clock.sleep_us(500)
    assert core.number(core.DATA) == 0
    two.ring_bell()
    core.clock.sleep_us(500)
    assert core.words(core.DATA, 2) == [1, 1]


def test_a_waiting_queue_keeps_no_other_of_its_pipe_from_running(core):
    one, two = core.queue(doorbell=6), core.queue(queue=1, doorbell=8)
    one.run(*wait_for(core.DATA + 0x100, 1))
    two.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1


# --- disconnecting ------------------------------------------------------------------------------------------------
def active(core, me=1, pipe=0, queue=0):
    core.select(me, pipe, queue)
    return core.get("CP_HQD_ACTIVE") & 1


def test_an_idle_queue_is_drained_at_once_and_its_mqd_written(core, mec):
    mec.run(*store(core.DATA, 1))
    assert core.dequeue(core.DRAIN)
    image = v11_compute_mqd.view(bytearray(core.hub.read(0, core.MQD, v11_compute_mqd.SIZE, "")))
    assert (image.cp_hqd_pq_rptr, image.cp_hqd_pq_wptr_lo, image.cp_hqd_pq_base_lo) == (5, 5, core.RING >> 8)
    assert core.get("CP_HQD_DEQUEUE_REQUEST") == 0


def test_a_queue_that_waits_for_memory_can_be_drained_and_goes_on_at_the_same_packet(core, mec):
    mec.run(*wait_for(core.DATA + 0x100, 1), *store(core.DATA, 1))
    assert core.dequeue(core.DRAIN)
    core.select(1, 0, 0)
    assert core.get("CP_HQD_PQ_RPTR") == 0
    core.put(core.DATA + 0x100, 1)
    core.set("CP_HQD_ACTIVE", 1)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == 1


def test_a_queue_drained_within_an_indirect_buffer_goes_on_there(core, mec):
    at = core.DATA + 0x1000
    core.put(at, *store(core.DATA, 1), *wait_for(core.DATA + 0x100, 1), *store(core.DATA + 4, 2))
    mec.run(0xC002_3F00, at, 0, 17 | 1 << 23)
    assert core.dequeue(core.DRAIN)
    core.put(core.DATA, 0, 0)
    core.put(core.DATA + 0x100, 1)
    core.set("CP_HQD_ACTIVE", 1)
    core.clock.sleep_us(100)
    # The first store does not run again.
    assert core.words(core.DATA, 2) == [0, 2]


def test_a_hung_queue_does_not_drain_but_can_be_reset(core, mec):
    mec.run(0, us=100)
    assert not core.dequeue(core.DRAIN)
    assert core.dequeue(core.RESET)


def test_a_queue_can_be_used_again_after_a_reset(core, mec):
    mec.run(0, us=100)
    assert core.dequeue(core.RESET)
    again = core.queue()
    again.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1


# --- engines ------------------------------------------------------------------------------------------------------
def test_nothing_runs_before_the_firmware_was_loaded(cold_core):
    core = cold_core
    core.set("CP_MEC_RS64_CNTL", 0x3C00_0000)
    queue = core.queue()
    queue.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert "has not been booted" in core.violations()[-1]


# Halted, and pipe 0 not active.
@pytest.mark.parametrize("control", [1 << 30 | 0x3C00_0000, 0x3800_0000])
def test_a_halted_engine_takes_doorbells_and_works_once_it_runs(core, mec, control):
    core.set("CP_MEC_RS64_CNTL", control)
    mec.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    core.set("CP_MEC_RS64_CNTL", 0x3C00_0000)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == 1


def test_a_pipe_reset_disconnects_its_queues(core, mec):
    other = core.queue(pipe=1, doorbell=8)
    core.set("CP_MEC_RS64_CNTL", 0x3C00_0000 | 1 << 16)
    core.set("CP_MEC_RS64_CNTL", 0x3C00_0000)
    assert not active(core)
    other.run(*store(core.DATA, 1))
    assert core.number(core.DATA) == 1


def test_soft_reset_of_the_cp_disconnects_everything(core, mec):
    core.set("GRBM_SOFT_RESET", 1)
    assert not active(core)


# --- registers ----------------------------------------------------------------------------------------------------
def test_registers_of_queues_and_vmids_are_banked(core):
    for pipe in range(4):
        core.select(1, pipe, 2)
        core.set("CP_HQD_PQ_BASE", 0x100 + pipe)
    for vmid in range(16):
        core.select(vmid=vmid)
        core.set("SH_MEM_BASES", vmid)
    core.select(1, 3, 2)
    assert core.get("CP_HQD_PQ_BASE") == 0x103
    core.select(1, 3, 1)
    assert core.get("CP_HQD_PQ_BASE") == 0
    core.select(vmid=9)
    assert core.get("SH_MEM_BASES") == 9


def test_per_array_registers_follow_grbm_gfx_index(core):
    # Engine 2, array 1.
    core.set("GRBM_GFX_INDEX", 2 << 16 | 1 << 8 | 1 << 30)
    core.set("GC_USER_SHADER_ARRAY_CONFIG", 3 << 16)
    core.set("GRBM_GFX_INDEX", 2 << 16 | 0 << 8 | 1 << 30)
    assert core.get("GC_USER_SHADER_ARRAY_CONFIG") == 0
    core.set("GRBM_GFX_INDEX", 0xE000_0000)
    # A broadcast reaches all.
    core.set("GC_USER_SHADER_ARRAY_CONFIG", 1 << 16)
    core.set("GRBM_GFX_INDEX", 5 << 16 | 1 << 8 | 1 << 30)
    assert core.get("GC_USER_SHADER_ARRAY_CONFIG") == 1 << 16


def test_all_registers_of_amdgpus_dump_can_be_read(core, headers):
    text = (headers("linux") / "drivers/gpu/drm/amd/amdgpu/gfx_v11_0.c").read_text()
    names = re.findall(r"SOC15_REG_ENTRY_STR\(GC, 0, reg(\w+)\)", text)
    assert len(names) > 120
    values = {name: core.get(name) for name in names}
    assert values["GRBM_STATUS"] & 1 << 31 == 0  # GUI_ACTIVE: idle
    assert values["CP_STALLED_STAT1"] == 0


def test_status_shows_work(core, mec):
    mec.run(*wait_for(core.DATA + 0x100, 1))
    assert core.get("GRBM_STATUS") & 1 << 31
    assert core.get("CP_CPC_STATUS") & 1 << 31
    core.put(core.DATA + 0x100, 1)
    core.clock.sleep_us(200)
    assert not core.get("GRBM_STATUS") & 1 << 31


def test_the_clock_counter_is_latched_by_a_write(core):
    core.set("RLC_CAPTURE_GPU_CLOCK_COUNT", 1)
    first = core.get("RLC_GPU_CLOCK_COUNT_LSB")
    core.clock.sleep_us(10)
    assert core.get("RLC_GPU_CLOCK_COUNT_LSB") == first
    core.set("RLC_CAPTURE_GPU_CLOCK_COUNT", 1)
    assert 1000 <= core.get("RLC_GPU_CLOCK_COUNT_LSB") - first <= 1010  # 100 MHz


def test_safe_mode_is_taken_after_a_while(core):
    core.set("RLC_SAFE_MODE", 1 | 1 << 1)
    assert core.get("RLC_SAFE_MODE") & 1
    core.clock.sleep_us(50)
    assert not core.get("RLC_SAFE_MODE") & 1


def test_the_boot_status_comes_some_time_after_autoload(cold_core):
    cold_core.load()
    cold_core.gc.autoload()
    assert cold_core.get("RLC_RLCS_BOOTLOAD_STATUS") == 0
    cold_core.clock.sleep_us(1000)
    assert cold_core.get("RLC_RLCS_BOOTLOAD_STATUS") >> 31
    assert cold_core.get("CP_STAT") == 0


RLC_PARTS = {26: "IRAM", 48: "DRAM_BOOT", 25: "RLC_P", 7: "RLC_V"}  # psp_gfx_if.h, GFX_FW_TYPE_RLC_*


@pytest.mark.parametrize(("left_out", "name"), [(20, "GPM_MEM"), (21, "SRM_MEM")])
def test_autoload_does_without_the_restore_lists_and_says_so(cold_core, left_out, name):
    cold_core.boot(without=left_out)
    assert cold_core.get("RLC_RLCS_BOOTLOAD_STATUS") >> 31
    assert f"{name} not loaded: power gating would lose registers" in cold_core.board.log.find("boot", "rlc")[-1].text


@pytest.mark.parametrize("left_out", RLC_PARTS)
def test_autoload_does_not_end_without_a_part_of_the_run_list_controller(cold_core, left_out):
    cold_core.load(without=left_out)
    cold_core.gc.autoload()
    cold_core.clock.sleep_us(1_000_000)
    assert cold_core.get("RLC_RLCS_BOOTLOAD_STATUS") == 0
    assert RLC_PARTS[left_out] in cold_core.violations()[-1]
    queue = cold_core.queue()
    queue.run(*store(cold_core.DATA, 1))
    assert not queue.done()


# Firmware that is left out, and the queues that do not run without it: micro engine and pipe. The PSP insists on MEC's
# code itself.
ENGINES = {89: [(1, 0), (1, 1), (1, 2), (1, 3)], 94: [(1, 0)], 95: [(1, 1)], 96: [(1, 2)], 97: [(1, 3)]}


@pytest.mark.parametrize("left_out", ENGINES)
def test_an_engine_or_pipe_without_its_firmware_does_not_move(cold_core, left_out):
    cold_core.boot(without=left_out)
    assert cold_core.get("RLC_RLCS_BOOTLOAD_STATUS") >> 31
    moved = []
    for pipe in range(4):
        queue = cold_core.queue(pipe=pipe, doorbell=6 + 2 * pipe)
        queue.run(*store(cold_core.DATA + 4 * pipe, 1 + pipe))
        if queue.done():
            moved.append((1, pipe))
        assert cold_core.words(cold_core.DATA + 4 * pipe, 1) == [(1 + pipe) * queue.done()]
    dead = ENGINES[left_out]
    assert moved == [(1, pipe) for pipe in range(4) if (1, pipe) not in dead]
    assert "was started: its firmware has not been loaded" in cold_core.violations()[0]


@pytest.mark.parametrize("left_out", [33, 34, 81, 82])
def test_a_scheduler_without_its_firmware_or_stack_does_not_move(cold_core, left_out):
    """CP_MES and MES_STACK are pipe 0's; CP_MES_KIQ and MES_KIQ_STACK are pipe 1's."""
    cold_core.boot(without=left_out)
    assert [cold_core.gc.cp.may_run(Slot(3, pipe, 0)) for pipe in range(2)] == [left_out >= 81, left_out < 81]


@pytest.mark.parametrize("left_out", [None, 87, 88, 90, 91, 92, 93])
def test_the_graphics_ring_does_not_move_without_its_engines_or_stacks(cold_core, left_out):
    """RS64_PFP, RS64_ME, and the stacks of pipe 0 (90, 92) and pipe 1."""
    cold_core.boot(without=left_out)
    runs = [cold_core.gc.cp.may_run(Slot(0, pipe, 0)) for pipe in range(2)]
    assert runs == [left_out not in (87, 88, 90, 92), left_out not in (87, 88, 91, 93)]


def test_an_engine_without_code_stays_halted_after_autoload(cold_core):
    cold_core.load(without=89)
    cold_core.gc.autoload()
    cold_core.clock.sleep_us(1000)
    assert cold_core.get("CP_MEC_RS64_CNTL") & 1 << 30
    assert not cold_core.get("CP_ME_CNTL") & 5 << 26


@pytest.mark.parametrize(
    "name",
    ["GFX_IMU_I_RAM_DATA", "RLC_GPM_UCODE_DATA", "CP_MEC_ME1_UCODE_DATA", "CP_CPC_IC_BASE_LO", "SDMA0_UCODE_DATA"],
)
def test_firmware_past_the_security_processor_is_not_taken(cold_core, name):
    """AMDGPU_FW_LOAD_DIRECT of gfx_v11_0.c, imu_v11_0.c and sdma_v6_0.c would load firmware this way."""
    for word in (0x1234_5678, 0x9ABC_DEF0):
        cold_core.set(name, word)
    assert cold_core.get(name) == 0
    assert cold_core.violations() == [f"{name}: firmware loaded without the PSP, which production cards refuse"]


def test_reset_forgets_queues_and_firmware(core, mec):
    mec.run(*store(core.DATA, 1))
    core.cells.reset()
    core.gc.reset()
    core.set("CP_MEC_RS64_CNTL", 0x3C00_0000)
    queue = core.queue()
    queue.run(*store(core.DATA, 2))
    assert struct.unpack("<I", core.hub.read(0, core.DATA, 4, ""))[0] == 1
