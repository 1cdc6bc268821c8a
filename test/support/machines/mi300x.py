"""A driver's accesses to the virtual accelerator with several dies, for its tests. Numbers are written by hand from
gfx_v9_4_3.c, kfd_packet_manager_v9.c and their headers.
"""

from __future__ import annotations

import struct

from ringup.autogen.amd.mqd import v9_mqd
from ringup.silicon import card
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.common.cells import block_map

# FB_LOCATION_BASE << 24: the board's firmware puts VRAM there.
VRAM_AT = 0x80_0000_0000
RING, MQD, REPORT, DATA, IH_RING = 0x10_0000, 0x20_0000, 0x21_0000, 0x30_0000, 0x40_0000
# GFX_FW_TYPE_RLC_G, GFX_FW_TYPE_CP_MEC, GFX_FW_TYPE_SDMA0 to 3 of psp_gfx_if.h.
FIRMWARE = (8, 4, 9, 10, 52, 53)
BAR5_BYTES = 2 << 20
CORES, COPIERS, DIES = 8, 16, 4
USER, USER_RING, USER_POINTER, TABLE, LIST = 0x50_0000, 0x51_0000, 0x52_0000, 0x60_0000, 0x61_0000
STRIDE, PASID, PROCESS, TARGET = 0x1000, 0x8001, 8, 6


def started():
    """Make a card whose firmware is loaded. Tests that share it leave its queues alone when they end."""
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
        # the kernel's ranges: those of two cores have no doorbell in common
        self.set("gc", core, "CP_MEC_DOORBELL_RANGE_UPPER", (0x1F + 0x20 * core) * 8)
        self.set("gc", core, "CP_MEC_DOORBELL_RANGE_LOWER", 0x20 * core * 8)
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
        # all but the first have no_update_rptr: init_mqd_hiq_v9_4_3
        machine.queue(core, 2, 0, order_bell, CP_HQD_PQ_CONTROL=0xD030_8907 | bool(core) << 27)
        # What MAP_QUEUES with engine_sel 1 does: kgd_gfx_v9_hiq_mqd_load.
        machine.card.cores[core].cp.orders.add(Slot(2, 0, 0))
    machine.ring(order_bell, len(words))
    machine.card.clock.sleep_us(2_000)
    return len(words)


def order_unmap(machine, used, order_bell):
    """Order all cores to unmap all but static queues, and to store the fence."""
    fence = VRAM_AT + DATA + 0x100
    words = (
        *packet(0xA3, 3 << 4, 0, 0, 0, 0),
        *packet(0xA4, 2 << 30, 0, fence & 0xFFFF_FFFF, fence >> 32, 0x55, 0),
    )
    machine.put(DATA + 0x100, 0)
    machine.put(RING + 4 * used, *words)
    machine.ring(order_bell, used + len(words))
    machine.card.clock.sleep_us(2_000)


def check_unmapped(machine):
    """Check that only the kernel's queues are left; drop those."""
    for core in machine.card.cores:
        assert [slot for slot, queue in core.cp.queues.items() if queue.connected] == [Slot(2, 0, 0)]
        core.cp.orders.clear()
        core.cp.queues[Slot(2, 0, 0)].disconnect(save=False)


def unmap(machine, used, order_bell):
    """Unmap all but static queues of all cores."""
    order_unmap(machine, used, order_bell)
    assert machine.word(DATA + 0x100) == 0x55
    check_unmapped(machine)
