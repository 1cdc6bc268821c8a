"""WRITE(16) into the bridge's SRAM: what patched firmware accepts, and what other firmware does with it."""

import random
import struct

import pytest
import usb.core

NO_MEDIUM = (2, 0x3A, 0)
SLOT, GROUP = 0x4000, 0x1_0000
# extra/usbgpu, ASM24Controller: the seven pokes, each with its bytes.
POKES = ((0x054B, 0x20), (0x054E, 4), (0x05A8, 2), (0x05F8, 4), (0x07EC, 1, 0, 0, 0), (0xC422, 2), (0x0000, 0x33))
NEEDED = (0x054B, 0x05A8, 0x05F8, 0x07EC, 0xC422)


def write_16(size_bytes, lba=0):
    return struct.pack(">BBQIBB", 0x8A, 0, lba, size_bytes // 512, 0, 0)


def noise(size_bytes, seed=1):
    return random.Random(seed).randbytes(size_bytes)


@pytest.fixture
def ready(storage):
    """Make an enclosure with a card, and do all pokes but those left out."""

    def make(firmware="patched", *, without=()):
        s = storage(firmware, card=True)
        for address, *values in POKES:
            if address not in without:
                s.poke(address, *values)
        return s

    return make


def free(s):
    s.poke(0x0171, 0xFF, 0xFF, 0xFF)
    s.poke(0xCE6E, 0, 0)


def sram(s, start, size_bytes):
    s.clock.sleep_us(100)
    return bytes(s.enclosure.chip.sram.view[start : start + size_bytes])


def times_out(s, cdb, data):
    """Send a command whose data the device never takes."""
    s.dev.write(0x02, s.wrapper(cdb, len(data), to_host=False))
    with pytest.raises(usb.core.USBTimeoutError):
        s.dev.write(0x02, data, timeout=200)


def test_one_slot_lands_at_the_start_of_sram_and_shows_at_f000(ready):
    s = ready()
    data = noise(SLOT)
    assert s.bot(write_16(SLOT), data=data).status == 0
    assert sram(s, 0, SLOT) == data
    assert s.peek(0xF000, 255) == data[:255]
    assert s.peek(0xFFFF, 1) == data[0xFFF:0x1000]


def test_the_status_comes_before_the_data_is_in_memory(ready):
    s = ready()
    s.start_uas()
    status, data = s.submit(0x83, 64, 1), s.submit(0x02, noise(512), 1)
    s.submit(0x04, s.command_unit(1, write_16(512)))
    s.clock.run_until(lambda: status.ended == "completed", 1e6)
    assert data.ended == "completed"
    assert bytes(s.enclosure.chip.sram.view[:512]) == bytes(512)
    assert sram(s, 0, 512) == noise(512)


def test_chunks_follow_each_other_by_the_counters_whatever_the_block_address_says(ready):
    s = ready()
    data = noise(8 * GROUP)
    for index in range(8):
        chunk = data[index * GROUP : (index + 1) * GROUP]
        assert s.bot(write_16(GROUP, lba=77), data=chunk).status == 0
        free(s)
    # All 512 KiB.
    assert sram(s, 0, len(data)) == data
    s.poke(0xCE40, 0, 0, 0, 0)
    assert s.bot(write_16(GROUP), data=data[GROUP : 2 * GROUP]).status == 0
    assert sram(s, 0, GROUP) == data[GROUP : 2 * GROUP]


def test_one_slot_alone_moves_no_counter(ready):
    s = ready()
    for seed in (1, 2):
        assert s.bot(write_16(SLOT), data=noise(SLOT, seed)).status == 0
        free(s)
    assert sram(s, 0, SLOT) == noise(SLOT, 2)


@pytest.mark.parametrize("left", ["marks", "engine"])
def test_a_write_is_not_taken_before_the_one_before_was_freed(ready, left):
    s = ready()
    assert s.bot(write_16(512), data=noise(512)).status == 0
    if left == "marks":
        s.poke(0xCE6E, 0, 0)
    else:
        s.poke(0x0171, 0xFF, 0xFF, 0xFF)
    times_out(s, write_16(512), noise(512))
    assert "is never taken: the " in s.enclosure.violations[0].text


@pytest.mark.parametrize("address", NEEDED)
def test_without_one_of_the_pokes_no_write_is_carried_out(ready, address):
    s = ready(without=(address,))
    # Without these two pokes the sizes are wrong.
    if address in (0x054B, 0xC422):
        times_out(s, write_16(512), noise(512))
    else:
        assert s.bot(write_16(512), data=noise(512)).status == 1
        assert s.sense() == NO_MEDIUM
    assert sram(s, 0, 512) == bytes(512)


def test_more_than_a_slot_needs_its_poke_and_more_than_a_group_is_never_taken(ready):
    times_out(ready(without=(0x054E,)), write_16(GROUP), noise(GROUP))
    times_out(ready(), write_16(2 * GROUP), noise(2 * GROUP))


def test_unpatched_firmware_takes_the_data_and_never_says_so(ready):
    s = ready("stock")
    s.start_uas()
    data = noise(SLOT)
    status, sent = s.submit(0x83, 64, 1, timeout_ms=500), s.submit(0x02, data, 1)
    s.send_unit(s.command_unit(1, write_16(SLOT)))
    assert s.wait(sent).status == "completed"
    assert s.wait(status).status == "timed_out"
    assert "waits for a disk" in s.enclosure.violations[0].text
    # The task is still there.
    assert s.manage(0x80, 1)[7] == 0x08
    # The task stays until it is aborted.
    assert s.manage(0x01, 1)[7] == 0x00
    assert s.uas(bytes.fromhex("e4065007f000"), 6, tag=2)[1] == bytes.fromhex("240417850000")


def test_a_bulk_only_reset_frees_a_bridge_that_waits(ready):
    s = ready("stock")
    s.dev.write(0x02, s.wrapper(write_16(512), 512, to_host=False))
    s.dev.write(0x02, noise(512))
    with pytest.raises(usb.core.USBTimeoutError):
        s.dev.read(0x81, 13, timeout=500)
    s.dev.ctrl_transfer(0x21, 0xFF, 0, 0, None)
    assert s.peek(0x07F0, 3) == bytes.fromhex("240417")


@pytest.mark.parametrize("cdb", [struct.pack(">BBQIBB", 0x88, 0, 0, 1, 0, 0), bytes.fromhex("28000000000000000100")])
def test_a_read_fails_even_when_a_medium_seems_to_be_there(ready, cdb):
    s = ready()
    assert s.bot(bytes(6)).status == 0
    assert s.bot(cdb, 512).status == 1


def test_a_restart_takes_the_pokes_back(ready):
    s = ready()
    s.bot(bytes.fromhex("e850"))
    s.clock.sleep_us(4e6)
    s.open()
    assert s.bot(write_16(512), data=noise(512)).status == 1
    assert s.sense() == NO_MEDIUM
