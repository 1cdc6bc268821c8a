"""Requests from one virtual card to another one's BAR, as the PCI Express Base Specification routes them."""

import pytest

from ringup.autogen.linux import pci as regs
from ringup.errors import NotSupported
from ringup.silicon import card

DECODING = regs.PCI_COMMAND_MEMORY
# BIF_BX0_BIOS_SCRATCH_7, as a byte of the register BAR
SCRATCH_AT = 0x53 * 4


@pytest.fixture
def boards():
    made = [card("navi31", vram_bytes=64 << 20) for _ in range(2)]
    for one in made:
        one.config.write(regs.PCI_COMMAND, DECODING | regs.PCI_COMMAND_MASTER, 2)
    return made


def test_a_request_arrives_at_the_other_boards_memory_behind_its_earlier_writes(boards):
    first, second = boards
    memory = second.reach(first, 0, 0x10_0000, 8192)
    second.host.write(memory.bus_addr(4090), b"from the other board")
    assert second.host.read(memory.bus_addr(4094), 3) == b" th"
    first.settle()
    assert first.bars[0].read_block(0x10_0000 + 4090, 20) == b"from the other board"
    where = memory.bus_addr()
    memory.free()
    assert second.host.find(where) is None


def test_a_board_that_does_not_decode_or_is_gone_answers_nothing(boards):
    first, second = boards
    memory = second.reach(first, 0, 0, 4096)
    first.bars[0].write_block(0, b"here")
    first.settle()
    first.config.write(regs.PCI_COMMAND, 0, 2)
    assert second.host.read(memory.bus_addr(), 4) == b"\xff" * 4
    first.config.write(regs.PCI_COMMAND, DECODING, 2)
    assert second.host.read(memory.bus_addr(), 4) == b"here"
    first.unplug()
    errors = second.host.errors
    assert second.host.read(memory.bus_addr(), 4) == b"\xff" * 4
    second.host.write(memory.bus_addr(), b"lost")
    assert second.host.errors == errors + 2


def test_a_root_may_turn_requests_away(boards):
    first, second = boards
    memory = second.reach(first, 0, 0, 4096)
    second.faults.inject("peer_reads_turned_away")
    second.host.write(memory.bus_addr(), b"in")
    assert second.host.read(memory.bus_addr(), 2) == b"\xff" * 2
    second.faults.clear()
    assert second.host.read(memory.bus_addr(), 2) == b"in"
    second.faults.inject("peer_requests_turned_away")
    second.host.write(memory.bus_addr(), b"no")
    second.faults.clear()
    assert second.host.read(memory.bus_addr(), 2) == b"in"


def test_only_boards_and_what_their_bars_have_is_reached(boards):
    first, second = boards
    with pytest.raises(NotSupported, match="sits in a slot of a virtual computer"):
        second.reach(object(), 0, 0, 4096)
    with pytest.raises(ValueError, match="has no 0x1000 bytes"):
        second.reach(first, 0, 256 << 20, 4096)


def test_registers_are_reached_by_requests_alone(boards):
    first, second = boards
    memory = second.reach(first, 5, 0, 4096)
    # a scratch register of the bus interface holds what was stored
    first.bars[5].write32(SCRATCH_AT, 0x1234)
    assert second.host.read(memory.bus_addr(SCRATCH_AT), 4) == bytes([0x34, 0x12, 0, 0])
    second.host.write(memory.bus_addr(SCRATCH_AT), bytes([1, 2, 3, 4]))
    first.settle()
    assert first.bars[5].read32(SCRATCH_AT) == 0x0403_0201
