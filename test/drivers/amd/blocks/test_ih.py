"""The interrupt ring: decoded entries of the card's own blocks, ring wraps, overflow, and both ways to report the read
pointer.
"""

from __future__ import annotations

import struct

import pytest

from ringup.drivers.amd.bus import ih_decode
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.ih import Ih

ENTRIES = 4096 // 32
CP, EOP = 0x14, 181  # soc15_ih_clientid.h, SOC21_IH_CLIENTID_GRBM_CP; irqsrcs_gfx_11_0_0.h, CP_EOP_INTERRUPT


@pytest.fixture(params=["doorbell", "register"])
def rig(hands, request):
    """A card with MMHUB up and its interrupt ring started; `rig.raise_` raises an interrupt as a block of the card
    does.
    """
    card = hands()
    card.gmc.start_mmhub()
    base, pa = card.gmc.fb_base, card.RING_PA
    bell = Doorbell(card.radeon.bars[DOORBELL_BAR], NAVI10.ih_index) if request.param == "doorbell" else None
    card.ring = Ih(card.osssys, card.vram(pa, 4096), base + pa, card.vram(pa + 8192, 4), base + pa + 8192, bell)
    card.ring.start(message_signalled=True)

    def raise_(client, source, **details):
        card.radeon.ih.interrupt(client, source, **details)
        card.radeon.clock.sleep_us(100)

    card.raise_ = raise_
    return card


def test_an_entry_arrives_decoded_and_once(rig):
    assert not rig.ring.pending
    rig.raise_(CP, EOP, ring_id=1 << 2 | 2 | 3 << 4, vmid=8, data=(0xABC,))
    assert rig.ring.pending
    (entry,) = rig.ring.drain()
    assert (entry.kind, entry.queue, entry.vmid, entry.data[0]) == ("end of pipe", (1, 2, 3), 8, 0xABC)
    assert entry.text == "end of pipe: queue 1.2.3 vmid 8 data 0xabc"
    assert not rig.ring.pending
    assert rig.ring.drain() == []


def test_the_ring_wraps_many_times_and_loses_nothing(rig):
    seen = []
    for number in range(5 * ENTRIES):
        rig.raise_(CP, EOP, data=(number,))
        if number % 7 == 6:
            seen += [entry.data[0] for entry in rig.ring.drain()]
    seen += [entry.data[0] for entry in rig.ring.drain()]
    assert seen == list(range(5 * ENTRIES))
    assert rig.ring.overflows == 0


def test_after_an_overflow_the_newest_entries_are_read_and_more_follow(rig):
    for number in range(ENTRIES + 50):
        rig.raise_(CP, EOP, data=(number,))
    numbers = [entry.data[0] for entry in rig.ring.drain()]
    assert rig.ring.overflows == 1
    assert numbers == list(range(numbers[0], ENTRIES + 50))
    assert len(numbers) >= ENTRIES - 2
    rig.raise_(CP, EOP, data=(0x777,))
    assert [entry.data[0] for entry in rig.ring.drain()] == [0x777]
    assert rig.ring.overflows == 1


def test_a_message_comes_for_every_entry_that_finds_the_driver_up_to_date(hands):
    card = hands()
    card.gmc.start_mmhub()
    base, pa, msi = card.gmc.fb_base, card.RING_PA, 0xA0
    card.radeon.config.write(msi + 4, 0xFEE0_0000)
    card.radeon.config.write(msi + 12, 0x20)
    card.radeon.config.write(msi + 2, card.radeon.config.read(msi + 2, 2) | 1, 2)
    bell = Doorbell(card.radeon.bars[DOORBELL_BAR], NAVI10.ih_index)
    ring = Ih(card.osssys, card.vram(pa, 4096), base + pa, card.vram(pa + 8192, 4), base + pa + 8192, bell)
    ring.start(message_signalled=True)
    for _ in range(3):
        card.radeon.ih.interrupt(CP, EOP)
        assert card.radeon.interrupts.wait(1000) == (0,)
        assert len(ring.drain()) == 1
    ring.stop()
    card.radeon.ih.interrupt(CP, EOP)
    assert card.radeon.interrupts.wait(1000) == ()


@pytest.mark.parametrize("stored", [0xFFFF_FFFF, 0x0000_0014])
def test_a_write_pointer_that_no_card_stores_ends_the_drain(rig, stored):
    rig.vram(rig.RING_PA + 8192, 4)[:] = struct.pack("<I", stored)
    assert rig.ring.drain() == []


def test_a_start_forgets_what_the_ring_held(rig):
    rig.raise_(CP, EOP)
    rig.ring.stop()
    rig.ring.start(message_signalled=False)
    assert rig.ring.drain() == []
    rig.raise_(CP, EOP, data=(5,))
    assert [entry.data[0] for entry in rig.ring.drain()] == [5]


# amdgpu_ih_decode_iv_helper, gmc_v11_0_process_interrupt, sdma_v6_0_process_trap_irq, kfd_int_process_v11.c
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0x0800_000A, 0, 0, 0, 0x1234_5678, 0x25), "page fault: gfxhub vmid 8 wrote page 0x512345678000"),
        ((0x8300_0012, 0, 0, 0, 0x10, 0), "page fault: mmhub vmid 3 read page 0x10000"),
        ((0x0812_310A, 0, 0, 0, 7, 0), "SDMA trap: SDMA1 queue 2 vmid 8 data 0x7"),
        ((0x0804_B714, 0, 0, 0, 0, 0), "bad opcode: queue 1.0.0 vmid 8 data 0x0"),
        ((0x0800_EF14, 0, 0, 0, 1 << 21, 0x80), "shader: illegal instruction, vmid 8 data 0x200000 0x80"),
        ((0x0000_EF0A, 0, 0, 0, 2 << 21, 0x80), "shader: memory violation, vmid 0 data 0x400000 0x80"),
        (
            (0x0000_000F, 0, 0, 0, 0, 0),
            "temperature above its limit: THM source 0x0 ring 0x0 vmid 0 data 0x0 0x0 0x0 0x0",
        ),
        ((0x0000_FE1F, 0, 0, 0, 6, 0), "SMU event: MP1 source 0xfe ring 0x0 vmid 0 data 0x6 0x0 0x0 0x0"),
        ((0x0000_99AA, 0, 0, 0, 0, 0), "unknown: client 0xaa source 0x99 ring 0x0 vmid 0 data 0x0 0x0 0x0 0x0"),
    ],
)
def test_entries_say_what_happened(words, text):
    assert ih_decode.decode(struct.pack("<8I", *words, 0, 0)).text == text


def test_every_fatal_kind_is_one_that_entries_have():
    assert ih_decode.FATAL.issubset(ih_decode.KINDS.values())


def test_an_entry_keeps_its_time_and_process():
    entry = ih_decode.decode(struct.pack("<8I", 0, 0x89AB_CDEF, 0x8000_4567, 0x1234, 0, 0, 0, 0))
    assert (entry.timestamp, entry.pasid) == (0x4567_89AB_CDEF, 0x1234)


def test_rings_that_the_block_cannot_have_are_refused(hands):
    card = hands()
    for size, address, message in (
        (5000, 0, "power of two"),
        (4096, 0x80, "on 256 bytes"),
        (1 << 20, 0, "power of two"),
    ):
        with pytest.raises(ValueError, match=message):
            Ih(card.osssys, memoryview(bytearray(size)), address, memoryview(bytearray(4)), 0)
