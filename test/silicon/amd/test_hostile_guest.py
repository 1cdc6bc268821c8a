"""A guest writes random values to random places. It gets answers, refusals or nothing. The model raises no exception of
its own, and every step ends.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from ringup.errors import RingupError

FB = 0x80_0000_0000
RSMU_INDEX, RSMU_DATA = 0x14 * 4, 0x15 * 4
RING, RING_AT = FB + 0x10_0000, 0x10_0000


def anything(rng):
    return rng.choice(
        (0, 1, 0xFFFF_FFFF, rng.getrandbits(32), rng.getrandbits(4), 1 << rng.randrange(32), rng.getrandbits(16))
    )


def attempt(action, *arguments):
    with suppress(RingupError):
        action(*arguments)


@pytest.fixture
def mastered(radeon):
    radeon.config.write(4, 6, 2)
    return radeon


@pytest.mark.parametrize("seed", range(6))
def test_any_register_takes_anything(mastered, seed):
    rng, regs, bells = random.Random(seed), mastered.bars[5], mastered.bars[2]
    for _ in range(1500):
        address = rng.randrange(0, regs.size_bytes, 4)
        attempt(*rng.choice(((regs.write32, address, anything(rng)), (regs.read32, address))))
        attempt(regs.write32, RSMU_INDEX, rng.choice((address, anything(rng), 0x1014_0000 + rng.getrandbits(14))))
        attempt(*rng.choice(((regs.write32, RSMU_DATA, anything(rng)), (regs.read32, RSMU_DATA))))
        if not rng.randrange(20):
            attempt(bells.write64, 8 * rng.randrange(0x400), anything(rng))
            attempt(mastered.clock.sleep_us, 100)
    attempt(mastered.clock.sleep_us, 10_000)


@pytest.mark.parametrize("seed", range(6))
def test_any_configuration_write_leaves_a_card_that_a_reset_brings_back(mastered, seed):
    rng = random.Random(seed)
    for _ in range(800):
        size = rng.choice((1, 2, 4))
        offset = rng.choice((rng.randrange(4096), rng.randrange(256))) // size * size
        place = rng.choice(tuple(mastered.places.values()))
        attempt(mastered.tree.write, *place, offset, anything(rng) & (1 << 8 * size) - 1, size)
        attempt(mastered.bars[5].read32, 0)
    mastered.replug()
    assert mastered.bars[5].read32(0xDE3 * 4) == 64


def packet(rng, row):
    """Return one packet of a row's kinds with random content, but with small sizes so that it is done soon."""
    (op, sub_op), (layout, _) = rng.choice(tuple(row.packets.items()))
    dwords = [anything(rng) for _ in range(layout.place(row.version)[0])]
    for at in range(1, len(dwords) - 1):
        if rng.random() < 0.5:
            dwords[at : at + 2] = struct.unpack("<2I", struct.pack("<Q", FB + rng.randrange(64 << 20)))
    dwords[0] = op | (sub_op or 0) << 8 | rng.choice((0, 0, anything(rng) & 0xFFFF_0000))
    if layout.__name__.startswith(("SDMA_PKT_COPY_LINEAR", "SDMA_PKT_CONSTANT", "SDMA_PKT_WRITE")):
        dwords[-1 if "COPY" not in layout.__name__ else 1] &= 0xFFF
    return dwords


@pytest.mark.parametrize("seed", range(6))
def test_any_packet_is_done_or_stops_its_queue(mastered, seed):
    rng, engine = random.Random(seed), mastered.sdma[0]
    cells, row = engine.cells, mastered.chip.gc.sdma

    def put(name, value):
        cells.write(cells.address(name), value)

    put("GCMC_VM_MX_L1_TLB_CNTL", 0x1859)  # gfxhub_v3_0.c, init_tlb_regs
    put("GCMC_VM_SYSTEM_APERTURE_LOW_ADDR", FB >> 18)
    put("GCMC_VM_SYSTEM_APERTURE_HIGH_ADDR", FB + (64 << 20) - 1 >> 18)
    for number in row.firmware:
        engine.firmware_loaded(number, b"")
    put(f"SDMA0_{row.control}", 0)
    for _ in range(40):
        words = [word for _ in range(rng.randrange(1, 6)) for word in packet(rng, row)]
        mastered.vram.write(RING_AT, struct.pack(f"<{len(words)}I", *words))
        put("SDMA0_QUEUE0_RB_CNTL", 0)
        for name in ("RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"):
            put(f"SDMA0_QUEUE0_{name}", 0)
        put("SDMA0_QUEUE0_RB_BASE", RING >> 8)
        put("SDMA0_QUEUE0_IB_CNTL", 1)
        put("SDMA0_QUEUE0_RB_CNTL", 1 | 10 << 1 | 1 << 23)
        put("SDMA0_QUEUE0_RB_WPTR", 4 * len(words))
        attempt(mastered.clock.sleep_us, 500)
        attempt(mastered.clock.sleep_us, 500)
