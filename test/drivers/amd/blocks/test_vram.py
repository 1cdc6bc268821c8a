"""VRAM through the window and through the index registers; writes that wait in the host data path."""

import random

import pytest

from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.bus.vram import VramWindow

MIB = 1 << 20
WINDOW = 256 * MIB


@pytest.fixture
def far(virtual_card):
    """A card whose window shows the lower half of its memory: the card, its registers, the driver's view."""
    radeon = virtual_card("navi31", vram_bytes=512 * MIB, bar0_bytes=WINDOW)
    registers = Registers(radeon)
    return radeon, registers, VramWindow(radeon, registers, 512 * MIB)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 13, 64])
@pytest.mark.parametrize("offset", range(4))
def test_bytes_beyond_the_window_arrive_and_leave_their_neighbours(far, size, offset):
    radeon, _, window = far
    at = WINDOW + 0x1234_0000 % MIB + offset
    radeon.vram.view[at - 8 : at + size + 8] = b"\xa5" * (size + 16)
    data = random.Random(size * 4 + offset).randbytes(size)
    window.write(at, data)
    radeon.settle()
    assert bytes(radeon.vram.view[at - 8 : at + size + 8]) == b"\xa5" * 8 + data + b"\xa5" * 8
    assert window.read(at, size) == data


def test_an_access_across_the_end_of_the_window_is_whole(far):
    radeon, _, window = far
    data = random.Random(1).randbytes(50)
    window.write(WINDOW - 22, data)
    radeon.settle()
    radeon.hdp.flush()
    assert bytes(radeon.vram.view[WINDOW - 22 : WINDOW + 28]) == data
    assert window.read(WINDOW - 22, 50) == data


def test_memory_above_two_gib_needs_the_high_half_of_the_index(virtual_card):
    # 24 GiB of memory; the window shows 256 MiB.
    radeon = virtual_card("navi31", vram_bytes=None)
    window = VramWindow(radeon, Registers(radeon), radeon.vram.size_bytes)
    # MM_INDEX holds 31 bits of the address
    for at in (0x7FFF_FFFC, 0x8000_0000, 20 << 30):
        window.write(at, at.to_bytes(8, "little"))
        radeon.settle()
        assert bytes(radeon.vram.view[at : at + 8]) == at.to_bytes(8, "little")
        assert window.read(at, 8) == at.to_bytes(8, "little")


def test_a_run_of_dwords_costs_two_accesses_each(far):
    _, registers, window = far
    window.read(WINDOW, 4 * 100)
    # The high half of the index is written once.
    assert (registers.reads, registers.writes) == (100, 101)


def test_addresses_outside_of_memory_are_refused(far):
    _, _, window = far
    for at, size in ((512 * MIB, 1), (512 * MIB - 4, 8), (-4, 4)):
        with pytest.raises(ValueError, match="VRAM has 0x20000000 bytes, none of"):
            window.read(at, size)
        with pytest.raises(ValueError, match="VRAM has 0x20000000 bytes, none of"):
            window.write(at, bytes(size))
    assert window.read(512 * MIB, 0) == b""


def test_only_what_the_window_shows_is_plain_memory(far):
    radeon, _, window = far
    assert window.view(WINDOW - 4, 8) is None
    shown = window.view(0x1000, 16)
    shown[:] = b"sixteen bytes of"
    radeon.hdp.flush()
    assert window.read(0x1000, 16) == b"sixteen bytes of"


def test_host_writes_wait_until_they_are_flushed(boot):
    card = boot("navi31")
    # Without a flush, writes wait forever.
    card.radeon.hdp.drain_us = None
    card.window.write(0x5000, b"not there yet")
    assert bytes(card.radeon.vram.view[0x5000:0x500D]) == bytes(13)
    before = card.hdp.flushes
    card.hdp.flush()
    assert bytes(card.radeon.vram.view[0x5000:0x500D]) == b"not there yet"
    assert card.hdp.flushes == before + 1
