"""The interrupt handler: entries, pointers, overflow, write-back, messages, and routing to ring 1. Source: ih_v6_0.c,
amdgpu_ih.c.
"""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.amd.board.ih import Ih
from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.common.cells import RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

RING, WRITE_BACK, RING1 = 0x7FFF_0000_0100, 0x7FFF_0008_0000, 0x7FFF_0009_0000
# 64 dwords are eight entries.
LOG2_DWORDS = 6
ON, WRITEBACK, OVERFLOW, INTR, REARM, CLEAR = 1, 1 << 8, 1 << 16, 1 << 17, 1 << 21, 1 << 31  # osssys_6_0_0_sh_mask.h
DRAIN, VIRTUAL, BUS = 1 << 9, 4 << 28, 2 << 28
CONTROL = ON | LOG2_DWORDS << 1 | WRITEBACK | OVERFLOW | INTR | VIRTUAL


class Pages:
    """A hub over one flat piece of memory. `on_fault` is called for accesses outside of it."""

    def __init__(self):
        self.data, self.on_fault = bytearray(1 << 20), lambda: None

    def write(self, vmid, gpu_va, data, client):
        at = gpu_va - 0x7FFF_0000_0000
        if vmid or not 0 <= at < len(self.data):
            self.on_fault()
            raise VmFault("mmhub", vmid, gpu_va, True, "unmapped")
        self.data[at : at + len(data)] = data


class Rig:
    def __init__(self):
        clock = VirtualClock()
        self.board = Board("navi31", clock, EventLog(clock), Faults(), RegisterSpace(), Vram(4096), HostMemory())
        self.pages, self.messages = Pages(), []
        self.ih = Ih(self.board, self.pages, self.messages.append)
        self.set("IH_RB_BASE", RING >> 8 & 0xFFFF_FFFF)
        self.set("IH_RB_BASE_HI", RING >> 40)
        self.set("IH_RB_WPTR_ADDR_LO", WRITE_BACK & 0xFFFF_FFFF)
        self.set("IH_RB_WPTR_ADDR_HI", WRITE_BACK >> 32)
        self.set("IH_RB_CNTL", CONTROL)

    def set(self, name, value):
        self.ih.cells.write(self.ih.cells.address(name), value)

    def get(self, name):
        return self.ih.cells.read(self.ih.cells.address(name))

    def raise_(self, count=1, client=0x14, source=181, **rest):
        for _ in range(count):
            self.ih.interrupt(client, source, **rest)
        self.board.clock.sleep_us(10)

    def entry(self, number, ring=RING):
        return struct.unpack_from("<8I", self.pages.data, ring - 0x7FFF_0000_0000 + number * 32)

    @property
    def written_back(self):
        return int.from_bytes(self.pages.data[0x80000:0x80004], "little")


@pytest.fixture
def rig():
    return Rig()


def test_an_entry_has_the_layout_that_the_kernel_decodes(rig):
    rig.board.clock.sleep_us(1_000_000)
    rig.raise_(ring_id=0x41, vmid=9, pasid=0x8123, data=(1, 2, 3, 4))
    dwords = rig.entry(0)
    # client 0x14, source 181 = 0xb5, ring 0x41, vmid 9
    assert dwords[0] == 0x0941_B514
    # A second of the 100 MHz reference clock.
    assert dwords[1] | dwords[2] << 32 == 100_000_000
    assert dwords[3:] == (0x8123, 1, 2, 3, 4)


def test_the_process_id_comes_from_the_table_of_the_clients_hub(rig):
    rig.set("IH_VMID_3_LUT", 0x1111)
    rig.set("IH_VMID_3_LUT_MM", 0x2222)
    rig.raise_(vmid=3)
    rig.raise_(client=0x12, source=0, vmid=3)
    assert (rig.entry(0)[3], rig.entry(1)[3]) == (0x1111, 0x2222)
    assert rig.entry(1)[0] >> 31 == 1  # vmid_src: MMHUB


def test_the_pointer_in_memory_the_register_and_a_message_follow_the_entry(rig):
    rig.raise_()
    assert (rig.written_back, rig.get("IH_RB_WPTR"), rig.messages) == (32, 32, [0])


@pytest.mark.parametrize("start", range(0, 256, 32))
def test_the_ring_wraps_at_every_offset(rig, start):
    rig.set("IH_RB_WPTR", start)
    rig.set("IH_RB_RPTR", start)
    for number in range(7):
        rig.raise_(data=(number,))
    assert [rig.entry((start // 32 + number) % 8)[4] for number in range(7)] == list(range(7))
    assert rig.written_back == (start + 7 * 32) % 256


def test_a_full_ring_overwrites_and_says_so_until_it_is_cleared(rig):
    rig.raise_(7)
    assert rig.written_back & 1 == 0
    rig.raise_()
    # Offset 0, RB_OVERFLOW.
    assert rig.written_back == 1
    assert rig.get("IH_RB_WPTR") == 1
    rig.set("IH_RB_CNTL", CONTROL | CLEAR)
    rig.set("IH_RB_CNTL", CONTROL)
    assert rig.get("IH_RB_WPTR") == 0


def test_without_overflow_entries_wait_for_room(rig):
    rig.set("IH_RB_CNTL", CONTROL & ~OVERFLOW)
    for number in range(9):
        rig.raise_(data=(number,))
    assert rig.written_back == 7 * 32
    rig.set("IH_RB_RPTR", 3 * 32)
    assert [rig.entry(number)[4] for number in (7, 0)] == [7, 8]


def test_a_draining_ring_drops_what_does_not_fit(rig):
    rig.set("IH_RB_CNTL", CONTROL & ~OVERFLOW | DRAIN)
    rig.raise_(9)
    rig.set("IH_RB_RPTR", 3 * 32)
    rig.board.clock.sleep_us(10)
    assert rig.written_back == 7 * 32


def test_a_ring_that_is_off_takes_nothing(rig):
    rig.set("IH_RB_CNTL", CONTROL & ~ON)
    rig.raise_()
    assert (rig.written_back, rig.messages, rig.entry(0)[0]) == (0, [], 0)


def test_no_message_without_enable_and_no_write_back_without_its_bit(rig):
    rig.set("IH_RB_CNTL", CONTROL & ~INTR & ~WRITEBACK)
    rig.raise_()
    assert (rig.written_back, rig.messages, rig.get("IH_RB_WPTR")) == (0, [], 32)


def test_with_rearm_one_message_goes_out_until_the_read_pointer_moves(rig):
    rig.set("IH_RB_CNTL", CONTROL | REARM)
    rig.raise_(3)
    assert rig.messages == [0]
    # Two entries are left, so another message comes at once.
    rig.set("IH_RB_RPTR", 32)
    assert rig.messages == [0, 0]
    rig.set("IH_RB_RPTR", 96)
    assert rig.messages == [0, 0]
    rig.raise_()
    assert rig.messages == [0, 0, 0]


def test_the_read_pointer_comes_by_doorbell_when_that_is_on(rig):
    assert not rig.ih.doorbell(0x2F0, 32, 4)
    # The value that amdgpu writes: enable, offset 0x2f0.
    rig.set("IH_DOORBELL_RPTR", 0x1000_02F0)
    assert rig.ih.doorbell(0x2F0, 32, 4)
    assert rig.get("IH_RB_RPTR") == 32
    assert not rig.ih.doorbell(0x2F2, 64, 4)


def test_routed_sources_go_to_ring_1_which_tells_ring_0(rig):
    rig.set("IH_RB_BASE_RING1", RING1 >> 8 & 0xFFFF_FFFF)
    rig.set("IH_RB_BASE_HI_RING1", RING1 >> 40)
    rig.set("IH_RB_CNTL_RING1", ON | LOG2_DWORDS << 1 | DRAIN | VIRTUAL)
    rig.set("IH_RING1_CLIENT_CFG_INDEX", 0)
    # ih_v6_0.c: client 0xa, source 0, match the source.
    rig.set("IH_RING1_CLIENT_CFG_DATA", 0x1_000A)
    rig.raise_(client=0x0A, source=0, data=(0x55,))
    rig.raise_(client=0x0A, source=49, data=(0x66,))
    assert rig.entry(0, RING1)[4] == 0x55
    told, direct = rig.entry(0), rig.entry(1)
    # Client 0, source 0, ring 1: its write pointer.
    assert (told[0], told[4]) == (0x0001_0000, 32)
    assert direct[4] == 0x66


def test_a_ring_at_a_bus_address_is_reached_without_translation(rig):
    buffer = rig.board.host.allocate(4096)
    rig.set("IH_RB_BASE", buffer.bus_addr() >> 8)
    rig.set("IH_RB_BASE_HI", 0)
    rig.set("IH_RB_CNTL", CONTROL & ~WRITEBACK & ~VIRTUAL | BUS)
    rig.raise_()
    assert bytes(buffer.view[0:4]) == 0xB514.to_bytes(4, "little")


def test_an_unmapped_ring_is_the_guests_mistake_and_the_pointer_stays(rig):
    rig.set("IH_RB_BASE", 0)
    rig.raise_()
    assert rig.get("IH_RB_WPTR") == 0
    assert "cannot be written" in rig.board.log.find("violation")[0].text


def test_a_lost_interrupt_leaves_the_entry_and_sends_no_message(rig):
    rig.board.faults.inject("lost_interrupt", 1)
    rig.raise_()
    assert (rig.written_back, rig.messages) == (32, [])
    rig.raise_()
    assert rig.messages == [0]


def test_reset_forgets_rings_and_routes(rig):
    rig.raise_()
    rig.ih.reset()
    assert [rig.get(name) for name in ("IH_RB_CNTL", "IH_RB_WPTR", "IH_RING1_CLIENT_CFG_DATA")] == [0, 0, 0]


def test_a_ring_nobody_mapped_does_not_interrupt_about_itself_for_ever(rig):
    rig.pages.on_fault = lambda: rig.ih.interrupt(0x12, 0)
    rig.set("IH_RB_BASE", 0)
    rig.raise_()
    rig.board.clock.sleep_us(1000)
    assert len(rig.board.log.find("violation")) == 1


def test_pointers_of_a_ring_larger_than_they_reach_wrap_where_they_end(rig):
    rig.set("IH_RB_CNTL", CONTROL | 0x1F << 1)
    rig.set("IH_RB_WPTR", 0x3FFE0)
    rig.set("IH_RB_RPTR", 0x3FFE0)
    rig.raise_()
    assert rig.get("IH_RB_WPTR") == 0


def test_news_of_ring_1_go_to_ring_0_even_when_everything_is_routed_away(rig):
    # Clients 0x14 and 0, with any source.
    for index, route in enumerate((0x14, 0x100)):
        rig.set("IH_RING1_CLIENT_CFG_INDEX", index)
        rig.set("IH_RING1_CLIENT_CFG_DATA", route)
    rig.set("IH_RB_BASE_RING1", RING1 >> 8 & 0xFFFF_FFFF)
    rig.set("IH_RB_BASE_HI_RING1", RING1 >> 40)
    rig.set("IH_RB_CNTL_RING1", ON | LOG2_DWORDS << 1 | DRAIN | VIRTUAL)
    rig.raise_(client=0x14)
    assert rig.get("IH_RB_WPTR_RING1") == rig.get("IH_RB_WPTR") == 32


@pytest.mark.parametrize("how", ["read to its end", "switched off", "interrupts off", "reset"])
def test_the_level_of_intx_is_taken_back_when_there_is_nothing_to_be_read(rig, how):
    quiet = []
    rig.ih = Ih(rig.board, rig.pages, rig.messages.append, lambda: quiet.append(how))
    for name, value in (
        ("IH_RB_BASE", RING >> 8 & 0xFFFF_FFFF),
        ("IH_RB_BASE_HI", RING >> 40),
        ("IH_RB_CNTL", CONTROL),
    ):
        rig.set(name, value)
    rig.raise_(2)
    rig.set("IH_RB_RPTR", 32)
    assert rig.messages
    # One entry is left.
    assert not quiet
    if how == "read to its end":
        rig.set("IH_RB_RPTR", 64)
    elif how == "reset":
        rig.ih.reset()
    else:
        rig.set("IH_RB_CNTL", CONTROL & ~(ON if how == "switched off" else INTR))
    assert quiet == [how]
