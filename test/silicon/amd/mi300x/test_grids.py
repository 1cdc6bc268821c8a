"""Grids on all cores of the accelerator with several dies, and the AQL queues that start them. Numbers are written by
hand from v9_structs.h, kfd_mqd_manager_v9.c, amd_hsa_queue.h, amd_aql_queue.cpp and LLVM's AMDGPUUsage.
"""

from __future__ import annotations

import struct
from functools import partial

import pytest
from machines.mi300x import (
    CORES,
    MQD,
    RING,
    STRIDE,
    USER,
    USER_POINTER,
    USER_RING,
    VRAM_AT,
    packet,
    run_list,
    started,
    unmap,
    user_queue,
)

from ringup.autogen.amd.mqd import v9_mqd
from ringup.silicon.amd.gc.grbm import Slot

CODE, COUNTS, ARGUMENTS, DESCRIPTOR = 0x70_0000, 0x71_0000, 0x72_0000, 0x72_0100
AQL_RING, SHARED, SIGNAL, SCRATCH = 0x73_0000, 0x74_0000, 0x75_0000, 0x76_0000
GROUPS, LANES = 20, 64
# Assembled for gfx942. Each lane adds 1 to the group's first dword; its second gets HW_REG_XCC_ID. s[0:1]: COUNTS.
COUNT = (
    0xB883F814, 0x8E048302, 0x7E020204, 0x7E040281, 0x7E060203, 0xDD088000, 0x00000201, 0xDC708004, 0x00000301, 0xBF810000,
)  # fmt: skip
# The same by the group's number that a lane has kept in scratch memory, at 4. s[0:1]: an address that holds COUNTS.
COUNT_BY_SCRATCH = (
    0xB883F814, 0xC0060000, 0x00000000, 0x8E048302, 0x7E020204, 0x7E040281, 0x7E060203, 0x7E080202, 0xDC704004, 0x007F0400,
    0xBF8C0F70, 0xDC504004, 0x057F0000, 0xBF8C0070, 0x240A0A83, 0xDD088000, 0x00000205, 0xDC708004, 0x00000301, 0xBF810000,
)  # fmt: skip
# The first count by way of a7, the last of sixteen registers of which eight are VGPRs.
COUNT_BY_ACCUMULATOR = (
    0x8E048302, 0x7E020204, 0x7E040281, 0xD3D94007, 0x18000102, 0xBF800007, 0xD3D84003, 0x18000107, 0xBF800007, 0xDD088000,
    0x00000301, 0xBF810000,
)  # fmt: skip
# RSRC1: eight VGPRs; RSRC2: two user SGPRs, then the group's x.
RSRC1, RSRC2 = 0xC0 << 12, 2 << 1 | 1 << 7
# Offsets of SET_SH_REG: gc_9_4_3_offset.h. LOGIC_XCC has no name there; v9_structs.h puts it two dwords before
# COMPUTE_TG_CHUNK_SIZE.
NUM_THREAD, PGM, RESOURCES, LOGIC_XCC, CHUNK_SIZE, RSRC3, USER_DATA = 0x207, 0x20C, 0x212, 0x225, 0x227, 0x22D, 0x240
# COMPUTE_STATIC_THREAD_MGMT_SE0, SE1 and behind another register SE2, SE3.
MASKS, ALL = 0x216, 0xFFFF_FFFF


@pytest.fixture(scope="module")
def machine():
    return started()


def split(address):
    return address & 0xFFFF_FFFF, address >> 32


def grid(chunk, before=()):
    """The packets of a grid of COUNT's groups, behind those that `before` has."""
    return (
        *packet(0x76, NUM_THREAD, LANES, 1, 1),
        *packet(0x76, PGM, *split(VRAM_AT + CODE >> 8)),
        *packet(0x76, RESOURCES, RSRC1, RSRC2),
        *packet(0x76, RSRC3, 1),
        *packet(0x76, MASKS, ALL, ALL),
        *packet(0x76, MASKS + 3, ALL, ALL),
        *packet(0x76, USER_DATA, *split(VRAM_AT + COUNTS)),
        *(() if chunk is None else packet(0x76, CHUNK_SIZE, chunk)),
        *before,
        *packet(0x15, GROUPS, 1, 1, 1 | 1 << 2),
    )


def logic(core):
    return (core + 3) % CORES


def numbered():
    """SET_SH_REG of each core's number behind a PRED_EXEC for it."""
    return [
        word
        for core in range(CORES)
        for word in (*packet(0x23, 3 | 1 << 24 + core), *packet(0x76, LOGIC_XCC, logic(core)))
    ]


def counts(machine, at=COUNTS):
    words = struct.unpack(f"<{2 * GROUPS}I", machine.card.vram.read(at, 8 * GROUPS))
    return list(words[::2]), list(words[1::2])


def drop(machine, slot):
    for core in machine.card.cores:
        core.cp.queues[slot].disconnect(save=False)


@pytest.mark.parametrize(("chunk", "times"), [(1, 1), (2, 1), (0, CORES)])
def test_the_cores_share_the_groups_of_a_grid_in_chunks(machine, chunk, times):
    """COMPUTE_TG_CHUNK_SIZE 0 is for a queue of one core: here each of eight runs all groups."""
    machine.put(CODE, *COUNT)
    machine.put(COUNTS, *[0] * 2 * GROUPS)
    words = grid(chunk, numbered())
    machine.put(RING, *words)
    for core in range(CORES):
        machine.queue(core, 1, 0, 0x50)
    machine.ring(0x50, len(words))
    machine.card.clock.sleep_us(1_000)
    drop(machine, Slot(1, 0, 0))
    seen, where = counts(machine)
    assert seen == [LANES * times] * GROUPS
    if chunk:
        assert where == [(group // chunk - 3) % CORES for group in range(GROUPS)]


def test_a_queue_that_registers_activate_takes_its_share_from_its_descriptor(machine):
    """PRELOAD_REQ of kfd_mqd_manager_v9.c, init_mqd."""
    machine.put(CODE, *COUNT)
    machine.put(COUNTS, *[0] * 2 * GROUPS)
    words = grid(None)
    machine.put(RING, *words)
    for core in range(CORES):
        at = MQD + STRIDE * core
        machine.card.vram.write(at, bytes(STRIDE))
        for name, value in {"compute_tg_chunk_size": 1, "compute_current_logic_xcc_id": logic(core)}.items():
            machine.put(at + v9_mqd.offset_of(name), value)
        place = dict(zip(("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI"), split(VRAM_AT + at), strict=True))
        machine.queue(core, 1, 3, 0x5C, **place, CP_HQD_PERSISTENT_STATE=1)
    machine.ring(0x5C, len(words))
    machine.card.clock.sleep_us(500)
    drop(machine, Slot(1, 3, 0))
    assert counts(machine) == ([LANES] * GROUPS, [(group - 3) % CORES for group in range(GROUPS)])


def aql_dispatch(signal):
    """A kernel dispatch with the barrier bit: hsa_kernel_dispatch_packet_t."""
    return struct.pack(
        "<HHHHHHIIIIIQQQQ", 2 | 1 << 8, 1, LANES, 1, 1, 0, GROUPS * LANES, 1, 1, 16, 0, VRAM_AT + DESCRIPTOR,
        VRAM_AT + ARGUMENTS, 0, signal,
    )  # fmt: skip


def aql_work(machine):
    """Store two kernels, and between them a barrier that waits for the first one; return the places of the signals."""
    write = machine.card.vram.write
    machine.put(CODE, *COUNT_BY_SCRATCH)
    machine.put(COUNTS, *[0] * 2 * GROUPS)
    machine.put(ARGUMENTS, *split(VRAM_AT + COUNTS))
    # llvm::amdhsa::kernel_descriptor_t: entry, RSRC3, RSRC1, RSRC2 with scratch, ENABLE_SGPR_KERNARG_SEGMENT_PTR.
    write(DESCRIPTOR, bytes(64))
    write(DESCRIPTOR + 16, struct.pack("<q", CODE - DESCRIPTOR))
    write(DESCRIPTOR + 44, struct.pack("<IIIHH", 1, RSRC1, RSRC2 | 1, 1 << 3, 0))
    # amd_queue_t: read_dispatch_id and its offset, two waves of 1 KiB for each core, and where.
    write(SHARED, bytes(256))
    write(SHARED + 136, struct.pack("<II", 128, 2 | 1 << 12))
    write(SHARED + 160, struct.pack("<QQII", VRAM_AT + SCRATCH, CORES << 11, 16, 0))
    write(SCRATCH, b"\xff" * (CORES << 11))
    one, two, between = (VRAM_AT + SIGNAL + 64 * n for n in range(3))
    for at in (one, two, between):
        write(at - VRAM_AT, struct.pack("<qqQIIQQQQ", 1, 1, 0, 0, 0, 0, 0, 0, 0))
    barrier = struct.pack("<HHIQQQQQQQ", 3, 0, 0, one, 0, 0, 0, 0, 0, between)
    write(AQL_RING, aql_dispatch(one) + barrier + aql_dispatch(two) + struct.pack("<H", 1) + bytes(62))
    return one, two, between


def aql_queue(machine, cores, rung=2, at=0):
    """Activate the queue with that work on some cores from packet `at` on, then ring for packets up to `rung`.
    NO_UPDATE_RPTR except on the first. INIT_FETCHER, as hqd_load of amdkfd sets it.
    """
    for core in cores:
        machine.set("gc", core, "GRBM_GFX_CNTL", 1 | 1 << 2)
        machine.set("gc", core, "COMPUTE_TG_CHUNK_SIZE", 1)
        control = 7 | 5 << 8 | 1 << 14 | 2 << 25 | (1 << 27 if core else 0)
        machine.queue(
            core, 1, 1, 0x54, AQL_RING, CP_HQD_PQ_CONTROL=control, CP_HQD_AQL_CONTROL=1,
            CP_HQD_PQ_RPTR_REPORT_ADDR=(VRAM_AT + SHARED + 128) & 0xFFFF_FFFF, CP_HQD_EOP_RPTR=1 << 31,
            CP_HQD_PQ_RPTR=16 * at,
        )  # fmt: skip
    machine.ring(0x54, rung)
    machine.card.clock.sleep_us(2_000)


def values(machine, signals):
    return [struct.unpack("<q", machine.card.vram.read(at - VRAM_AT + 8, 8))[0] for at in signals]


def test_a_kernel_of_an_aql_queue_runs_once_on_all_cores_and_the_first_reports_it(machine):
    signals = aql_work(machine)
    reports = []
    for core in machine.card.cores:
        core.cp.hub.write = partial(_written, core.cp.number, reports, core.cp.hub.write)
    aql_queue(machine, range(CORES))
    for core in machine.card.cores:
        del core.cp.hub.write
    drop(machine, Slot(1, 1, 0))
    seen, where = counts(machine)
    assert seen == [2 * LANES] * GROUPS
    assert where == [group % CORES for group in range(GROUPS)]
    assert values(machine, signals) == [0, 0, 0]
    assert machine.word(SHARED + 128) == 3
    # Each core has had its own part of the scratch memory: the first lane's second dword, by wave.
    for core in range(CORES):
        assert machine.word(SCRATCH + 2048 * core + 4 * LANES) % CORES == core
    assert {number for number, _ in reports} == {0}
    assert [gpu_va for _, gpu_va in reports].count(VRAM_AT + SHARED + 128) == 3


def test_a_packet_has_ended_when_the_last_core_has_run_its_share(machine):
    """Also where the queue has the place of an older one, as here if the test above has run."""
    signals = aql_work(machine)
    aql_queue(machine, range(CORES - 1))
    assert (values(machine, signals), machine.word(SHARED + 128)) == ([1, 1, 1], 0)
    aql_queue(machine, [CORES - 1])
    assert (values(machine, signals), machine.word(SHARED + 128)) == ([0, 0, 0], 3)
    drop(machine, Slot(1, 1, 0))
    assert counts(machine)[0] == [2 * LANES] * GROUPS


# amd_queue_t: queue_properties with USE_SCRATCH_ONCE, queue_inactive_signal; hsa.h and amd_aql_queue.cpp: the reasons.
PROPERTIES, INACTIVE, LENT = SHARED + 180, SHARED + 192, 1 << 4
ASKED, USED = 1, 512


def lend(machine, place, waves=2):
    """Give the queue scratch memory for one packet, as HandleInsufficientScratch does: `waves` of 1 KiB a core."""
    machine.put(PROPERTIES, LENT)
    machine.put(SHARED + 140, waves | 1 << 12)
    machine.card.vram.write(SHARED + 160, struct.pack("<QQI", VRAM_AT + place, CORES * waves << 10, 16))
    answer(machine)


def take_back(machine):
    """Do what DynamicQueueEventsHandler does when it hears that the packet has ended."""
    machine.put(SHARED + 176, 0)
    machine.put(SHARED + 140, 0)
    answer(machine)
    machine.put(PROPERTIES, 0)


def answer(machine):
    machine.card.vram.write(SIGNAL + 0x200 + 8, bytes(8))


def reason(machine):
    return machine.word(SIGNAL + 0x200 + 8)


def lent_work(machine):
    """Store two kernels that need scratch memory, one directly behind the other, in a queue that has none yet."""
    one, two, _ = aql_work(machine)
    machine.card.vram.write(AQL_RING, aql_dispatch(one) + aql_dispatch(two) + struct.pack("<H", 1) + bytes(62))
    machine.put(SHARED + 176, 0)
    machine.card.vram.write(SIGNAL + 0x200, struct.pack("<qq48x", 1, 0))
    machine.card.vram.write(INACTIVE, struct.pack("<Q", VRAM_AT + SIGNAL + 0x200))
    return one, two


def test_scratch_memory_is_lent_to_one_packet_on_all_cores(machine):
    """A core that is slow to see that the runtime has taken the memory back goes on when it has lent other memory."""
    signals, other = lent_work(machine), SCRATCH + 0x1_0000
    aql_queue(machine, range(CORES), rung=1)
    assert (reason(machine), values(machine, signals)) == (ASKED, [1, 1])
    lend(machine, SCRATCH)
    machine.card.clock.sleep_us(2_000)
    assert (reason(machine), values(machine, signals), machine.word(SHARED + 128)) == (USED, [0, 1], 1)
    # CP_MEC_CNTL: the last core's micro engines are halted.
    machine.set("gc", CORES - 1, "CP_MEC_CNTL", 1 << 28 | 1 << 30)
    take_back(machine)
    machine.card.clock.sleep_us(2_000)
    assert reason(machine) == ASKED
    machine.card.vram.write(other, b"\xff" * (CORES << 11))
    lend(machine, other)
    machine.card.clock.sleep_us(2_000)
    assert (reason(machine), values(machine, signals)) == (0, [0, 1])
    machine.set("gc", CORES - 1, "CP_MEC_CNTL", 0)
    machine.card.clock.sleep_us(2_000)
    assert (reason(machine), values(machine, signals), machine.word(SHARED + 128)) == (USED, [0, 0], 2)
    assert counts(machine)[0] == [2 * LANES] * GROUPS
    for core in range(CORES):
        assert machine.word(other + 2048 * core + 4 * LANES) % CORES == core
    take_back(machine)
    drop(machine, Slot(1, 1, 0))


def test_a_queue_that_comes_back_waits_for_its_lent_memory_on_each_core(machine):
    """It is preempted on all cores while the runtime has not taken the memory back."""
    signals = lent_work(machine)
    aql_queue(machine, range(CORES), rung=1)
    lend(machine, SCRATCH)
    machine.card.clock.sleep_us(2_000)
    assert reason(machine) == USED
    drop(machine, Slot(1, 1, 0))
    aql_queue(machine, range(CORES), rung=1, at=1)
    assert (reason(machine), values(machine, signals)) == (USED, [0, 1])
    take_back(machine)
    machine.card.clock.sleep_us(2_000)
    assert reason(machine) == ASKED
    lend(machine, SCRATCH)
    machine.card.clock.sleep_us(2_000)
    assert (values(machine, signals), machine.word(SHARED + 128)) == ([0, 0], 2)
    take_back(machine)
    drop(machine, Slot(1, 1, 0))


def test_a_kernel_has_preloaded_arguments_and_accumulation_registers(machine):
    """LLVM AMDGPUUsage, "Preloaded Kernel Arguments" and compute_pgm_rsrc3. A queue with chunk size 0 has one core."""
    signal, *_ = aql_work(machine)
    # What firmware that does not preload would run.
    machine.put(CODE, 0xFFFF_FFFF)
    machine.put(CODE + 256, *COUNT_BY_ACCUMULATOR)
    # ACCUM_OFFSET 1, 16 registers; two dwords from the second on, no other user SGPRs.
    machine.put(ARGUMENTS, 0, *split(VRAM_AT + COUNTS))
    machine.card.vram.write(DESCRIPTOR + 44, struct.pack("<IIIHH", 1, RSRC1 | 1, RSRC2, 0, 2 | 1 << 7))
    machine.set("gc", 4, "GRBM_GFX_CNTL", 2 | 1 << 2)
    for engine in range(4):
        machine.set("gc", 4, f"COMPUTE_STATIC_THREAD_MGMT_SE{engine}", ALL)
    machine.queue(
        4, 1, 2, 0x58, AQL_RING, CP_HQD_PQ_CONTROL=7 | 5 << 8 | 2 << 25 | 1 << 27, CP_HQD_AQL_CONTROL=1,
        CP_HQD_PQ_RPTR_REPORT_ADDR=(VRAM_AT + SHARED + 128) & 0xFFFF_FFFF, CP_HQD_EOP_RPTR=1 << 31,
    )  # fmt: skip
    machine.ring(0x58, 0)
    machine.card.clock.sleep_us(500)
    drop(machine, Slot(1, 2, 0))
    assert counts(machine)[0] == [LANES] * GROUPS
    assert (values(machine, [signal]), machine.word(SHARED + 128)) == ([0], 1)


def test_the_firmware_maps_an_aql_queue_of_a_process_on_all_cores(machine):
    """kfd_mqd_manager_v9.c, init_mqd_v9_4_3: chunk size, logical numbers, the master. The process's memory is from USER
    on.
    """
    write, order_bell = machine.card.vram.write, 0x60
    code, counted, descriptor, signal, shared = (0x19_0000 + 0x1000 * n for n in range(5))
    machine.put(USER + code, *COUNT)
    write(USER + counted, bytes(8 * GROUPS))
    write(USER + descriptor, struct.pack("<16xq20xIIIHH4x", code - descriptor, 1, RSRC1, RSRC2, 1 << 3, 0))
    write(USER + signal, struct.pack("<qq48x", 1, 1))
    write(USER + shared, bytes(256))
    machine.put(USER + shared + 136, 128)

    def members(core):
        return {
            "cp_hqd_pq_control": 7 | 5 << 8 | 2 << 25 | (1 << 27 if core else 0),
            "cp_hqd_aql_control": 1,
            "cp_hqd_pq_rptr_report_addr_lo": shared + 128,
            "compute_tg_chunk_size": 1,
            "compute_current_logic_xcc_id": logic(core),
            **{f"compute_static_thread_mgmt_se{engine}": ALL for engine in range(4)},
        }

    listed = user_queue(machine, 0x1002, members)
    packets = struct.pack(
        "<HHHHHHIIIIIQQQQ", 2 | 1 << 8, 1, LANES, 1, 1, 0, GROUPS * LANES, 1, 1, 0, 0, descriptor, counted, 0, signal
    )  # fmt: skip
    write(USER_RING, packets + struct.pack("<H", 1) + bytes(62))
    machine.put(USER_POINTER, 1, 0)
    used = run_list(machine, listed, order_bell)
    seen, where = counts(machine, USER + counted)
    assert (seen, where) == ([LANES] * GROUPS, [(group - 3) % CORES for group in range(GROUPS)])
    assert (machine.word(USER + signal + 8), machine.word(USER + shared + 128)) == (0, 1)
    unmap(machine, used, order_bell)


def _written(number, reports, write, vmid, gpu_va, data, client):
    reports.append((number, gpu_va))
    return write(vmid, gpu_va, data, client)


def test_an_illegal_instruction_interrupts_as_the_core_that_met_it(machine):
    machine.put(CODE, 0xFFFF_FFFF)
    heard = []
    machine.card.ih.interrupt, real = lambda *ids, **values: heard.append((ids, values)), machine.card.ih.interrupt
    words = grid(0)
    machine.put(RING, *words)
    machine.queue(5, 1, 0, 0x50)
    machine.ring(0x50, len(words))
    machine.card.ih.interrupt = real
    drop(machine, Slot(1, 0, 0))
    # SOC15_IH_CLIENTID_SE0SH, the sequencers' source; XCD5_NODEID; kfd_int_process_v9.c: an error (2 in 27:26), an
    # illegal instruction (1 in bits 7:4 of the second word).
    ((ids, values),) = heard
    assert (ids, values["node_id"], values["data"]) == ((0x0A, 239), 10, (2 << 26, 1 << 4))
