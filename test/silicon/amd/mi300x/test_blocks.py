"""The accelerator with several dies: what a driver finds and does there that no Radeon has. Numbers are written by hand
from gfx_v9_4_3.c, gmc_v9_0.c, sdma_v4_4_2.c, nbio_v7_9.c, amdgpu_irq.h, smu_v13_0_6_ppt.c and their headers.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from machines.mi300x import (
    CORES,
    DATA,
    FIRMWARE,
    PASID,
    PROCESS,
    RING,
    TABLE,
    TARGET,
    USER,
    USER_POINTER,
    USER_RING,
    VRAM_AT,
    Machine,
    check_unmapped,
    order_unmap,
    packet,
    run_list,
    started,
    store,
    unmap,
    user_queue,
)

from ringup.autogen.amd.smu_v13_0_6 import MetricsTableX_t
from ringup.silicon import card
from ringup.silicon.amd.board import discovery
from ringup.silicon.amd.board.chips import find
from ringup.silicon.amd.gc.cp.pm4_sync import RULES_9
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.amd.memory.vm import FORMATS, Context, WalkFault, walk
from ringup.silicon.amd.psp.ring import Refused


@pytest.fixture(scope="module")
def machine():
    return started()


# --- what the board's firmware leaves -------------------------------------------------------------------------------
def blocks(data):
    """Return (hw id, instance, version, bases) of the list, version 4 with 64-bit bases."""
    at = struct.unpack_from("<H", data, 12)[0]
    signature, version = struct.unpack_from("<IH", data, at)
    assert (signature, version, data[at + 78] & 1) == (0x53445049, 4, 1)
    die = struct.unpack_from("<H", data, at + 16)[0]
    count = struct.unpack_from("<H", data, die + 2)[0]
    at, found = die + 4, []
    for _ in range(count):
        hw_id, instance, bases = struct.unpack_from("<HBB", data, at)
        values = struct.unpack_from(f"<{bases}Q", data, at + 8)
        found.append((hw_id, instance, tuple(data[at + 4 : at + 7]), values))
        at += 8 + 8 * bases
    return found


def test_a_driver_finds_every_instance_of_every_block():
    found = blocks(discovery.build(find("mi300x")))
    # Numbers of soc15_hw_ip.h.
    wanted = {11: (8, (9, 4, 3)), 42: (16, (4, 4, 2)), 34: (4, (1, 8, 0)), 108: (4, (7, 9, 0)), 1: (1, (13, 0, 6))}
    for hw_id, (count, version) in wanted.items():
        instances = [(instance, which) for one, instance, which, _ in found if one == hw_id]
        assert instances == [(number, version) for number in range(count)], hw_id
    cores = [bases[0] for hw_id, _, _, bases in found if hw_id == 11]
    assert cores == [0x2000 + 0x1_0000 * number for number in range(CORES)]


def test_the_cards_memory_is_whole_and_costs_nothing():
    row = find("mi300x")
    radeon = card("mi300x")
    assert radeon.vram.size_bytes == row.vram_bytes > 191 << 30
    base, top = (radeon.mmhub.cells[f"MC_VM_FB_LOCATION_{end}"] for end in ("BASE", "TOP"))
    # The last 16 MiB lie beyond amdgpu's system aperture.
    assert (top - base) << 24 >= row.vram_bytes
    assert sum(core.grbm.row.compute_units for core in radeon.cores) == 304
    assert radeon.nbio.cells["RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"] == row.vram_bytes >> 20


def test_a_core_has_registers_of_its_own(machine):
    for core in range(CORES):
        machine.set("gc", core, "SCRATCH_REG0", 0x100 + core)
    assert [machine.get("gc", core, "SCRATCH_REG0") for core in range(CORES)] == [0x100 + n for n in range(CORES)]
    # CP_HYP_XCP_CTL: VIRTUAL_XCC_ID 2:0, NUM_XCC_IN_XCP 6:3. All run together.
    assert [machine.get("gc", core, "CP_HYP_XCP_CTL") for core in range(CORES)] == [
        core | 8 << 3 for core in range(CORES)
    ]
    # PARTITION_COMPUTE_STATUS: SPX; PARTITION_MEM_STATUS.NPS_MODE: NPS1.
    assert machine.get("nbio", 0, "BIF_BX_PF0_PARTITION_COMPUTE_STATUS") == 0
    assert machine.get("nbio", 0, "BIF_BX_PF0_PARTITION_MEM_STATUS") == 1 << 4


def test_a_core_can_have_half_its_units_and_the_table_can_contradict_the_card():
    made = Machine()
    made.card.faults.inject("half_core", 3)
    made.card.faults.inject("discovery_contradicts", 1)
    made.card.mode1_reset()
    units = []
    for core in range(CORES):
        left = 0
        for engine in range(4):
            made.set("gc", core, "GRBM_GFX_INDEX", engine << 16 | 1 << 30)
            # INACTIVE_CUS, of ten.
            off = made.get("gc", core, "CC_GC_SHADER_ARRAY_CONFIG") >> 16
            left += 10 - bin(off & 0x3FF).count("1")
        units.append(left)
    assert units == [38, 38, 38, 20, 38, 38, 38, 38]
    top = made.card.vram.size_bytes - discovery.TOP_OFFSET
    data = made.card.vram.read(top, discovery.TOP_OFFSET)
    # The harvest table: "HARV", version, then (hw id, instance, 0).
    at = struct.unpack_from("<H", data, 12 + 2 * 8)[0]
    listed = [struct.unpack_from("<HB", data, at + 8 + 4 * n) for n in range(32)]
    assert (11, 7) in listed
    assert len([one for one in blocks(data) if one[0] == 11]) == CORES
    made.card.faults.inject("discovery_contradicts", 2)
    made.card.mode1_reset()
    found = blocks(made.card.vram.read(top, discovery.TOP_OFFSET))
    assert [bases[0] for hw_id, instance, _, bases in found if (hw_id, instance) == (11, 0)] == [0x2000, 0x3000]
    made.card.faults.inject("discovery_contradicts", 3)
    made.card.mode1_reset()
    data = made.card.vram.read(top, discovery.TOP_OFFSET)
    size = struct.unpack_from("<H", data, 10)[0]
    assert sum(data[10:size]) & 0xFFFF != struct.unpack_from("<H", data, 8)[0]


# --- queues ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("core", [0, 5])
def test_the_kiq_of_a_core_names_registers_by_the_first_cores_addresses(machine, core):
    doorbell = 2 * 0x20 * core + 2
    machine.queue(core, 2, 1, doorbell)
    machine.set("gc", core, "RLC_CP_SCHEDULERS", 0x80 | 2 << 5 | 1 << 3)
    for other in range(CORES):
        machine.set("gc", other, "SCRATCH_REG0", 0)
    # SET_UCONFIG_REG: the ring test of gfx_v9_4_3.c.
    scratch = machine.address("gc", 0, "SCRATCH_REG0") // 4
    words = (*packet(0x79, scratch - 0xC000, 0xDEAD_BEEF), *store(DATA, 7))
    machine.put(RING, *words)
    machine.ring(doorbell, len(words))
    assert machine.word(DATA) == 7
    seen = [machine.get("gc", other, "SCRATCH_REG0") for other in range(CORES)]
    assert seen == [0xDEAD_BEEF if other == core else 0 for other in range(CORES)]
    machine.set("gc", core, "GRBM_GFX_CNTL", 1 | 2 << 2)
    machine.set("gc", core, "CP_HQD_DEQUEUE_REQUEST", 1)
    machine.card.clock.sleep_us(500)
    assert machine.get("gc", core, "CP_HQD_ACTIVE") == 0


def test_a_doorbell_reaches_the_queue_of_every_core(machine):
    """A user's queue on eight cores has one doorbell. CP_HQD_VMID is 0 here, so all have the same ring."""
    words = store(DATA + 4, 9)
    machine.put(RING, *words)
    for core in range(CORES):
        machine.queue(core, 1, 2, 0x44)
    machine.ring(0x44, len(words))
    for core in range(CORES):
        machine.set("gc", core, "GRBM_GFX_CNTL", 2 | 1 << 2)
        assert machine.get("gc", core, "CP_HQD_PQ_RPTR") == len(words)
        machine.set("gc", core, "CP_HQD_DEQUEUE_REQUEST", 1)
    machine.card.clock.sleep_us(500)
    assert machine.word(DATA + 4) == 9


def test_gfx9_acquires_memory_without_gcr():
    # PACKET3_ACQUIRE_MEM of soc15d.h has six dwords after the header, nvd.h's has seven.
    assert RULES_9[0x58].counts == (5, 5)


def test_the_firmware_runs_the_queue_of_a_process(machine):
    order_bell = 0x60
    for core in range(CORES):
        machine.set("gc", core, "SCRATCH_REG1", 0)
    used = run_list(machine, user_queue(machine, 0x1002), order_bell)
    # PM4 packets run on the core that the descriptor names.
    seen = [machine.get("gc", core, "SCRATCH_REG1") for core in range(CORES)]
    assert seen == [0x600D if core == TARGET else 0 for core in range(CORES)]
    # The process's number in the tables of the cores and dies.
    table = f"IH_VMID_{PROCESS}_LUT"
    cells = machine.card.ih.cells
    assert {cells.of(node, table) for node in (0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14)} == {PASID}
    assert machine.get("mmhub", 2, f"VM_CONTEXT{PROCESS}_PAGE_TABLE_BASE_ADDR_LO32") == TABLE | 1
    unmap(machine, used, order_bell)


def test_a_queue_mapped_again_has_the_pointers_of_its_new_memory(machine):
    """What amdkfd does for a process that closes the card and opens it again: the addresses stay, the memory is other.
    The KIQ of every core drops the process's translations: gmc_v9_0.c, flush_gpu_tlb_pasid.
    """
    order_bell = 0x60
    unmap(machine, run_list(machine, user_queue(machine, 0x1002), order_bell), order_bell)
    machine.set("gc", TARGET, "SCRATCH_REG1", 0)
    page, other = (USER_POINTER - USER) // 4096, USER + 0x30_0000
    core, memory = machine.card.gfxhubs[TARGET], machine.card.mmhubs[2]
    machine.set("mmhub", 2, f"VM_CONTEXT{PROCESS}_CNTL", 1)
    machine.set("mmhub", 2, f"VM_CONTEXT{PROCESS}_PAGE_TABLE_END_ADDR_LO32", 511)
    # all pages: gfxhub_v1_2.c, xcc_program_invalidation
    for block, instance in (("gc", TARGET), ("mmhub", 2)):
        for half, value in (("LO32", 0xFFFF_FFFF), ("HI32", 0x1F)):
            machine.set(block, instance, f"VM_INVALIDATE_ENG5_ADDR_RANGE_{half}", value)
    machine.card.settle()
    assert [hub.read(PROCESS, page * 4096, 1, "") for hub in (core, memory)] == [b"\3", b"\3"]
    core.cells["VM_L2_PROTECTION_FAULT_STATUS"] = 7
    listed = user_queue(machine, 0x1002)
    machine.put(other, 0, 0)
    machine.put(TABLE + 8 * page, other | 0x71, 0)
    # INVALIDATE_TLBS of a process in all hubs, heavyweight
    machine.put(RING, *packet(0x98, 1 | 1 << 4 | PASID << 5 | 2 << 29))
    for number in range(CORES):
        machine.queue(number, 2, 1, order_bell)
    machine.ring(order_bell, 2)
    for one in machine.card.cores:
        one.cp.queues[Slot(2, 1, 0)].disconnect(save=False)
    assert core.cells["VM_L2_PROTECTION_FAULT_STATUS"] == 7
    assert [hub.read(PROCESS, page * 4096, 1, "") for hub in (core, memory)] == [b"\0", b"\0"]
    used = run_list(machine, listed, order_bell)
    assert machine.get("gc", TARGET, "SCRATCH_REG1") == 0
    unmap(machine, used, order_bell)
    core.reset()


def test_the_fence_of_an_order_waits_for_all_cores(machine):
    """amdkfd frees the memory of the queues when it sees the one fence: unmap_queues_cpsch."""
    order_bell = 0x60
    listed = user_queue(machine, 0x1002)
    # no packet: the queue stops, and is reset after a second
    machine.put(USER_RING, 0)
    order_unmap(machine, run_list(machine, listed, order_bell), order_bell)
    assert machine.word(DATA + 0x100) == 0
    machine.card.clock.sleep_us(990_000)
    # the first core may poll only every 40 us; the others look as often
    while not machine.word(DATA + 0x100):
        machine.card.clock.sleep_us(1)
    # it is stored once: amdkfd may use it for the next order now
    machine.put(DATA + 0x100, 0)
    machine.card.clock.sleep_us(1_000)
    assert machine.word(DATA + 0x100) == 0
    check_unmapped(machine)


# --- copies ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("engine", "page"), [(0, 0), (6, 0), (15, 0), (1, 0x1000), (2, 0x1400)])
def test_a_copy_engine_fences_and_its_interrupt_names_its_die(machine, engine, page):
    # Its doorbells have the same place on every page, also on those of processes.
    place = 0x200 + 20 * engine
    bell = page + place
    die, number = engine // 4, engine % 4
    # DOORBELL0_CTRL_ENTRY_1 + 4 * die: first dword, 20 dwords.
    machine.set("nbio", 0, f"DOORBELL0_CTRL_ENTRY_{1 + number + 4 * die}", place | 20 << 10)
    # vega20_ih.c: 4096 bytes in the bus's address space (1), write-back off.
    heard = []
    machine.card.ih.interrupt, real = lambda *ids, **values: heard.append((ids, values)), machine.card.ih.interrupt
    ring = RING + 0x1_0000 + 0x1000 * engine
    fence, copy = VRAM_AT + DATA + 16, VRAM_AT + DATA + 32
    words = (5, fence & 0xFFFF_FFFF, VRAM_AT >> 32, 0x77 + engine)
    # COPY_LINEAR of four bytes, TRAP.
    words += (1, 3, 0, fence & 0xFFFF_FFFF, VRAM_AT >> 32, copy & 0xFFFF_FFFF, VRAM_AT >> 32, 6, 5)
    machine.put(ring, *words)
    for name, value in {
        "SDMA_CNTL": 1,
        "SDMA_GFX_RB_BASE": VRAM_AT + ring >> 8,
        "SDMA_GFX_RB_BASE_HI": VRAM_AT >> 40,
        "SDMA_GFX_DOORBELL": 1 << 28,
        "SDMA_GFX_DOORBELL_OFFSET": bell << 2,
        "SDMA_GFX_RB_CNTL": 1 | 10 << 1 | 1 << 23,
    }.items():
        machine.set("sdma", engine, name, value)
    # Its firmware has unhalted it.
    assert machine.get("sdma", engine, "SDMA_F32_CNTL") & 1 == 0
    machine.ring(bell, 4 * len(words))
    machine.card.ih.interrupt = real
    assert machine.word(DATA + 16) == machine.word(DATA + 32) == 0x77 + engine
    # SOC15_IH_CLIENTID_SDMA0 to 3; the trap's number; AID0_NODEID and so on.
    client = (8, 9, 1, 4)[number]
    assert [(ids, values["ring_id"], values["node_id"]) for ids, values in heard] == [((client, 224), 0, 4 * die)]


# --- translation ----------------------------------------------------------------------------------------------------
def test_a_table_below_a_block_fragment_holds_pages_or_further_tables():
    """gmc_v9_0.c, get_vm_pde, and gfxhub_v1_2.c with translate_further: depth 2 of 3, block size 9."""
    valid, system, further, read = 1, 2, 1 << 56, 1 << 5
    # PDE1 at 0x1000, PDE0 with a block fragment of 9 at 0x2000, whose entry 1 is a page of 2 MiB, and 2 a table.
    memory = {
        (0x1000, 0): 0x2000 | valid,
        (0x2000, 0): 0x3000 | valid | 9 << 59,
        (0x3000, 1): 0x4000_0000 | valid | read,
        (0x3000, 2): 0x5000 | valid | further,
        (0x5000, 3): 0x9000 | valid | system | read,
    }

    def fetch(address, system, level, key):
        base = address & ~0xFFF
        return memory.get((base, address - base >> 3), 0)

    context = Context(True, 2, 9, 0x1000 | valid, 0, (1 << 36) - 1)
    leaf = walk(fetch, context, 0x20_1234, FORMATS[9])
    assert (leaf.gpu_va, leaf.size_bytes, leaf.address, leaf.system) == (0x20_0000, 2 << 20, 0x4000_0000, False)
    leaf = walk(fetch, context, 0x40_3456, FORMATS[9])
    assert (leaf.gpu_va, leaf.size_bytes, leaf.address, leaf.system) == (0x40_3000, 4096, 0x9000, True)
    with pytest.raises(WalkFault):
        walk(fetch, context, 0x60_0000, FORMATS[9])


def test_a_fault_of_a_core_names_it(machine):
    heard = []
    machine.card.ih.interrupt, real = lambda *ids, **values: heard.append((ids, values)), machine.card.ih.interrupt
    hub = machine.card.gfxhubs[5]
    # RANGE_PROTECTION_FAULT_ENABLE_INTERRUPT and ENABLE_CONTEXT; pages 1 and on are outside.
    name = "VM_CONTEXT1_CNTL"
    enabled = hub.cells.replace(name, 1, RANGE_PROTECTION_FAULT_ENABLE_INTERRUPT=1)
    machine.set("gc", 5, name, enabled)
    machine.card.settle()
    with pytest.raises(Exception, match="gfxhub vmid 1"):
        hub.read(1, 0x1000, 4, "TCP")
    machine.card.ih.interrupt = real
    # SOC15_IH_CLIENTID_UTCL2; XCD5_NODEID.
    assert [(ids[0], values["node_id"]) for ids, values in heard] == [(0x1B, 10)]


# --- power ----------------------------------------------------------------------------------------------------------
def test_a_fault_of_a_copy_engine_names_it_and_reaches_host_memory():
    """mmhub_client_ids_aldebaran; *_FAULT_ENABLE_DEFAULT with a page on the bus: mmhub_v1_8.c."""
    made = Machine()
    page = made.card.alloc_host(0x1000)
    page.view[:4] = b"page"
    at, everything, seen = page.bus_addr(0) >> 12, 0xFFFF_FFFF, []
    for engine in (0, 6, 15):
        hub = made.card.mmhubs[engine // 4]
        hub.cells["VM_CONTEXT9_CNTL"] = hub.cells["VM_L2_PROTECTION_FAULT_CNTL"] = everything
        hub.cells["VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32"] = at & everything
        hub.cells["VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32"] = at >> 32
        assert hub.read(9, 0x12_3000, 4, f"SDMA{engine}") == b"page"
        seen.append(hub.cells.get("VM_L2_PROTECTION_FAULT_STATUS", "CID"))
    assert seen == [256, 258, 259]


def test_what_stands_still_names_its_core():
    made = started()
    made.set("gc", 3, "CP_MEC_CNTL", 1 << 28 | 1 << 30)
    made.queue(3, 1, 0, 0x50)
    made.ring(0x50, 4)
    (seen,) = made.card.witness.unfinished()
    assert seen.text == "XCC 3, queue 1.0.0 has 0x4 dwords to do, and its engine is halted"


def message(machine, number, argument=0):
    machine.set("mp", 0, "MP1_SMN_C2PMSG_90", 0)
    machine.set("mp", 0, "MP1_SMN_C2PMSG_82", argument)
    machine.set("mp", 0, "MP1_SMN_C2PMSG_66", number)
    machine.card.clock.sleep_us(1_000)
    return machine.get("mp", 0, "MP1_SMN_C2PMSG_90"), machine.get("mp", 0, "MP1_SMN_C2PMSG_82")


def test_the_smu_runs_before_any_driver_and_exports_metrics(machine):
    # PPSMC_MSG_GetSmuVersion, GetMaxGfxDpmFreq, GetDpmFreqByIndex of UCLK: the last level, not their number.
    assert message(machine, 2) == (1, find("mi300x").power.firmware_version)
    assert message(machine, 0x33) == (1, 2100)
    assert message(machine, 0x17, 3 << 16 | 0xFF) == (1, 3)
    assert message(machine, 0x17, 3 << 16 | 3) == (1, 1300)
    assert message(machine, 0x17, 9 << 16)[0] == 0xFF
    # SetDriverDramAddrHigh and Low, GetMetricsTable.
    message(machine, 0xD, VRAM_AT >> 32)
    message(machine, 0xE, DATA + 0x1000)
    counters = []
    for _ in range(2):
        assert message(machine, 9)[0] == 1
        counters.append(machine.word(DATA + 0x1000))
    assert counters[1] == counters[0] + 1 > 1
    # MaxSocketPowerLimit, ten bits after the point.
    at = DATA + 0x1000 + MetricsTableX_t.offset_of("MaxSocketPowerLimit")
    assert machine.word(at) == 750 << 10


def test_the_flags_of_the_smus_firmware_are_where_its_driver_reads_them(machine):
    # smnMP1_FIRMWARE_FLAGS and regMP1_PUB_SCRATCH0, by PCIE_INDEX2.
    for address, wanted in ((0x3B1_0028, 1), (0x3B1_0090, find("mi300x").power.firmware_version)):
        assert machine.card.bars[5].read32(machine.reach(address)) == wanted


# --- partitions and resets ------------------------------------------------------------------------------------------
def split(machine, parts):
    """Ask the PSP for partitions: GFX_CMD_ID_SRIOV_SPATIAL_PART."""
    machine.card.psp.ring.partition(SimpleNamespace(cmd_spatial_part=SimpleNamespace(mode=parts)), None)


@pytest.mark.parametrize(("parts", "mode"), [(2, 1), (4, 3), (8, 4), (1, 0)])
def test_the_cores_are_split_into_partitions(machine, parts, mode):
    """CP_HYP_XCP_CTL: VIRTUAL_XCC_ID 2:0, NUM_XCC_IN_XCP 6:3; enum amdgpu_gfx_partition: SPX 0, DPX 1, QPX 3, CPX 4,
    in PARTITION_MODE 7:4.
    """
    split(machine, parts)
    size = CORES // parts
    seen = [machine.get("gc", core, "CP_HYP_XCP_CTL") for core in range(CORES)]
    assert seen == [core % size | size << 3 for core in range(CORES)]
    assert machine.get("nbio", 0, "BIF_BX_PF0_PARTITION_COMPUTE_STATUS") == mode << 4


def test_the_cores_can_be_found_split():
    made = Machine()
    made.card.faults.inject("partitioned", 2)
    made.card.mode1_reset()
    assert [made.get("gc", core, "CP_HYP_XCP_CTL") for core in (3, 4)] == [3 | 4 << 3, 0 | 4 << 3]
    split(made, 1)
    assert made.get("gc", 7, "CP_HYP_XCP_CTL") == 7 | 8 << 3


@pytest.mark.parametrize("parts", [0, 3, 5, 16])
def test_a_wrong_number_of_partitions_is_refused(machine, parts):
    before = machine.get("gc", 5, "CP_HYP_XCP_CTL")
    with pytest.raises(Refused, match=f"into {parts} parts"):
        split(machine, parts)
    assert machine.get("gc", 5, "CP_HYP_XCP_CTL") == before


def test_the_answer_to_a_mode_1_reset_is_there_for_a_host_that_reads_late(machine):
    """amdgpu waits for it: smu_v13_0_6_ppt.c, mode1_reset. A busy emulator reads it after the reset."""
    machine.set("mp", 0, "MP1_SMN_C2PMSG_90", 0)
    machine.set("mp", 0, "MP1_SMN_C2PMSG_82", 1)
    machine.set("mp", 0, "MP1_SMN_C2PMSG_66", 3)
    machine.card.clock.sleep_us(200_000)
    assert machine.card.log.find("reset", "card")[-1].text == "mode 1"
    assert machine.get("mp", 0, "MP1_SMN_C2PMSG_90") == 1
    assert machine.get("mp", 0, "MP1_SMN_C2PMSG_66") == 0


def test_a_reset_of_the_engines_keeps_memory_and_firmware_and_loses_configuration_space():
    """GfxDriverReset with SMU_RESET_MODE_2; smu_v13_0_6_ppt.c restores configuration space, then reads the answer."""
    made = started()
    words = store(DATA, 7)
    made.put(RING, *words)
    made.queue(3, 1, 0, 0x50)
    made.card.gpu.config.write(0x3C, 0x55, 1)
    saved = made.card.gpu.save()
    features = made.card.smu.power.features
    made.set("mp", 0, "MP1_SMN_C2PMSG_90", 0)
    made.set("mp", 0, "MP1_SMN_C2PMSG_82", 2)
    made.set("mp", 0, "MP1_SMN_C2PMSG_66", 3)
    made.card.settle()
    made.card.clock.sleep_us(200_000)
    assert made.card.config.read(4, 2) & 6 == 0
    assert made.card.config.read(0x3C, 1) != 0x55
    made.card.gpu.restore(saved)
    assert made.get("mp", 0, "MP1_SMN_C2PMSG_90") == 1
    assert made.card.vram.read(RING, 4 * len(words)) == struct.pack(f"<{len(words)}I", *words)
    assert made.card.smu.power.features == features
    for core in made.card.cores:
        assert not any(queue.connected for queue in core.cp.queues.values())
    made.set("gc", 3, "GRBM_GFX_CNTL", 1 << 2)
    assert made.get("gc", 3, "CP_HQD_ACTIVE") == 0
    assert made.get("gc", 3, "MC_VM_FB_LOCATION_BASE") == VRAM_AT >> 24
    # Without its firmware an engine does not run.
    made.set("gc", 3, "CP_MEC_CNTL", 0)
    made.set("nbio", 0, "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    made.queue(3, 1, 0, 0x50)
    made.ring(0x50, len(words))
    assert made.word(DATA) == 0
    for kind in FIRMWARE:
        for target in (*made.card.cores, *made.card.sdma):
            target.firmware_loaded(kind, b"")
    made.card.clock.sleep_us(1_000)
    made.ring(0x50, len(words))
    assert made.word(DATA) == 7
