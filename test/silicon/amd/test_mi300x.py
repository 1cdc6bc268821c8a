"""The accelerator with several dies: what a driver finds and does there that no Radeon has. Numbers are written by hand
from gfx_v9_4_3.c, gmc_v9_0.c, sdma_v4_4_2.c, nbio_v7_9.c, amdgpu_irq.h, smu_v13_0_6_ppt.c and their headers.
"""

from __future__ import annotations

import struct
from functools import partial

import pytest

from ringup.autogen.amd.mqd import v9_mqd
from ringup.autogen.amd.smu_v13_0_6 import MetricsTableX_t
from ringup.silicon import card
from ringup.silicon.amd.board import discovery
from ringup.silicon.amd.board.chips import find
from ringup.silicon.amd.gc.cp.pm4_sync import RULES_9
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.amd.memory.vm import FORMATS, Context, WalkFault, walk
from ringup.silicon.common.cells import block_map

# FB_LOCATION_BASE << 24: the board's firmware puts VRAM there.
VRAM_AT = 0x80_0000_0000
RING, MQD, REPORT, DATA, IH_RING = 0x10_0000, 0x20_0000, 0x21_0000, 0x30_0000, 0x40_0000
# GFX_FW_TYPE_RLC_G, GFX_FW_TYPE_CP_MEC, GFX_FW_TYPE_SDMA0 to 3 of psp_gfx_if.h.
FIRMWARE = (8, 4, 9, 10, 52, 53)
BAR5_BYTES = 2 << 20
CORES, COPIERS, DIES = 8, 16, 4


@pytest.fixture(scope="module")
def machine():
    """A card whose firmware is loaded; tests leave its queues alone when they end."""
    made = Machine()
    for kind in FIRMWARE:
        for target in (*made.card.cores, *made.card.sdma):
            target.firmware_loaded(kind, b"")
    for core in range(CORES):
        made.set("gc", core, "CP_MEC_CNTL", 0)
    return made


class Machine:
    """A driver's accesses."""

    def __init__(self):
        self.card = card("mi300x", vram_bytes=64 << 20)
        self.card.config.write(4, 6, 2)
        self.set("nbio", 0, "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)

    def address(self, block, instance, name):
        return block_map("mi300x", block, instance).addresses[name]

    def reach(self, address):
        """Point PCIE_INDEX2 at a register beyond BAR 5 and return the place of its data."""
        for name, value in (("INDEX2", address & 0xFFFF_FFFF), ("INDEX2_HI", address >> 32)):
            self.card.bars[5].write32(self.address("nbio", 0, f"BIF_BX0_PCIE_{name}"), value)
        return self.address("nbio", 0, "BIF_BX0_PCIE_DATA2")

    def place(self, block, instance, name):
        address = self.address(block, instance, name)
        return address if address < BAR5_BYTES else self.reach(address)

    def set(self, block, instance, name, value):
        self.card.bars[5].write32(self.place(block, instance, name), value)

    def get(self, block, instance, name):
        return self.card.bars[5].read32(self.place(block, instance, name))

    def put(self, at, *words):
        self.card.vram.write(at, struct.pack(f"<{len(words)}I", *words))

    def word(self, at):
        return struct.unpack("<I", self.card.vram.read(at, 4))[0]

    def ring(self, doorbell, value):
        self.card.bars[2].write64(doorbell * 4, value)
        self.card.settle()
        self.card.clock.sleep_us(500)

    def queue(self, core, me, pipe, doorbell, ring=RING, **registers):
        """Activate a queue by registers: gfx_v9_4_3_xcc_kiq_init_register. 256 dwords."""
        self.set("gc", core, "GRBM_GFX_CNTL", pipe | me << 2)
        self.set("gc", core, "CP_MEC_DOORBELL_RANGE_UPPER", 0xFFC)
        self.set("gc", core, "CP_MEC_DOORBELL_RANGE_LOWER", 0)
        for name, value in {
            "CP_HQD_PQ_BASE": VRAM_AT + ring >> 8,
            "CP_HQD_PQ_BASE_HI": VRAM_AT >> 40,
            "CP_HQD_PQ_CONTROL": 0xD030_8907,
            "CP_HQD_PQ_RPTR_REPORT_ADDR": (VRAM_AT + REPORT) & 0xFFFF_FFFF,
            "CP_HQD_PQ_RPTR_REPORT_ADDR_HI": VRAM_AT >> 32,
            "CP_HQD_PQ_DOORBELL_CONTROL": doorbell << 2 | 1 << 30,
            "CP_HQD_PQ_RPTR": 0,
            "CP_HQD_PQ_WPTR_LO": 0,
            "CP_HQD_VMID": 0,
            "CP_HQD_AQL_CONTROL": 0,
            **registers,
            "CP_HQD_ACTIVE": 1,
        }.items():
            self.set("gc", core, name, value)
        self.set("gc", core, "GRBM_GFX_CNTL", 0)


def packet(opcode, *body):
    return (0xC000_0000 | len(body) - 1 << 16 | opcode << 8, *body)


def store(at, value):
    """WRITE_DATA to memory, confirmed."""
    return packet(0x37, 5 << 8 | 1 << 20, (VRAM_AT + at) & 0xFFFF_FFFF, VRAM_AT >> 32, value)


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


USER, USER_RING, USER_POINTER, TABLE, LIST = 0x50_0000, 0x51_0000, 0x52_0000, 0x60_0000, 0x61_0000
STRIDE, PASID, PROCESS, TARGET = 0x1000, 0x8001, 8, 6


def user_queue(machine, doorbell, members=lambda core: {}):
    """Store descriptors for every core, a page table, and the packets of a process's queue; return what a list holds:
    kfd_packet_manager_v9.c, pm_map_process_aldebaran and pm_map_queues_v9.
    """
    # Valid, executable, readable, writable: 2 MiB from virtual 0 on, as far in VRAM as USER.
    for page in range(512):
        machine.put(TABLE + 8 * page, USER + 0x1000 * page | 0x71, 0)
    ring, pointer = USER_RING - USER, USER_POINTER - USER
    for core in range(CORES):
        at = USER + 0x18_0000 + STRIDE * core
        machine.card.vram.write(at, bytes(STRIDE))
        for name, value in {
            "cp_mqd_base_addr_lo": (VRAM_AT + at) & 0xFFFF_FFFF,
            "cp_mqd_base_addr_hi": VRAM_AT >> 32,
            "cp_hqd_pq_base_lo": ring >> 8,
            "cp_hqd_pq_control": 0xD000_8907 & ~(1 << 28 | 1 << 30),
            "cp_hqd_pq_doorbell_control": doorbell << 2,
            "cp_hqd_pq_wptr_poll_addr_lo": pointer,
            "cp_mqd_stride_size": STRIDE,
            "pm4_target_xcc_in_xcp": TARGET,
            **members(core),
        }.items():
            machine.put(at + v9_mqd.offset_of(name), value)
    scratch = machine.address("gc", 0, "SCRATCH_REG1") // 4
    words = packet(0x79, scratch - 0xC000, 0x600D)
    machine.put(USER_RING, *words)
    machine.put(USER_POINTER, len(words), 0)
    base = TABLE | 1
    process = packet(0xA1, PASID, base, 0, 0x1_0002, 0xC000, *[0] * 15)
    descriptor = VRAM_AT + USER + 0x18_0000
    queue = packet(0xA2, 1 << 4 | 1 << 29, doorbell << 2, descriptor & 0xFFFF_FFFF, descriptor >> 32, pointer, 0)
    return (*process, *queue)


def run_list(machine, listed, order_bell):
    """Give a list to the firmware of all cores; return how many dwords of the ring that took."""
    machine.put(LIST, *listed)
    place = VRAM_AT + LIST
    # SET_RESOURCES for an HIQ: VMIDs 8 to 15, the queues of the first engine. RUN_LIST: valid.
    words = (
        *packet(0xA0, 0xFF00 | 1 << 29, 0xFFFF_FFFF, 0, 0, 0, 0, 0),
        *packet(0xA5, place & 0xFFFF_FFFF, place >> 32, len(listed) | 1 << 23),
    )
    machine.put(RING, *words)
    for core in range(CORES):
        # ENABLE_CONTEXT, depth 0; pages 0 to 511.
        machine.set("gc", core, f"VM_CONTEXT{PROCESS}_CNTL", 1)
        machine.set("gc", core, f"VM_CONTEXT{PROCESS}_PAGE_TABLE_END_ADDR_LO32", 511)
        machine.queue(core, 2, 0, order_bell)
        # What MAP_QUEUES with engine_sel 1 does: kgd_gfx_v9_hiq_mqd_load.
        machine.card.cores[core].cp.orders.add(Slot(2, 0, 0))
    machine.ring(order_bell, len(words))
    machine.card.clock.sleep_us(2_000)
    return len(words)


def unmap(machine, used, order_bell):
    """Unmap all but static queues, ask for the fence, and check that only the kernel's queues are left; drop those."""
    fence = VRAM_AT + DATA + 0x100
    words = (
        *packet(0xA3, 3 << 4, 0, 0, 0, 0),
        *packet(0xA4, 2 << 30, 0, fence & 0xFFFF_FFFF, fence >> 32, 0x55, 0),
    )
    machine.put(DATA + 0x100, 0)
    machine.put(RING + 4 * used, *words)
    machine.ring(order_bell, used + len(words))
    machine.card.clock.sleep_us(2_000)
    assert machine.word(DATA + 0x100) == 0x55
    for core in machine.card.cores:
        assert [slot for slot, queue in core.cp.queues.items() if queue.connected] == [Slot(2, 0, 0)]
        core.cp.orders.clear()
        core.cp.queues[Slot(2, 0, 0)].disconnect(save=False)


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


# --- grids on all cores ---------------------------------------------------------------------------------------------
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


def aql_queue(machine, cores):
    """Activate the queue with that work on some cores, then ring for its three packets. NO_UPDATE_RPTR except on the
    first. INIT_FETCHER, as hqd_load of amdkfd sets it.
    """
    for core in cores:
        machine.set("gc", core, "GRBM_GFX_CNTL", 1 | 1 << 2)
        machine.set("gc", core, "COMPUTE_TG_CHUNK_SIZE", 1)
        control = 7 | 5 << 8 | 1 << 14 | 2 << 25 | (1 << 27 if core else 0)
        machine.queue(
            core, 1, 1, 0x54, AQL_RING, CP_HQD_PQ_CONTROL=control, CP_HQD_AQL_CONTROL=1,
            CP_HQD_PQ_RPTR_REPORT_ADDR=(VRAM_AT + SHARED + 128) & 0xFFFF_FFFF, CP_HQD_EOP_RPTR=1 << 31,
        )  # fmt: skip
    machine.ring(0x54, 2)
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
