"""A card that lost its link: it reads as all ones, drops writes and does not reach its host. Only a request for a reset
raises an error, whatever was in progress.
"""

from __future__ import annotations

import random

import pytest

from ringup.errors import DeviceLost

MEMSIZE, SCRATCH_0 = 0xDE3 * 4, 0x4C * 4
ONES = 0xFFFF_FFFF
C2PMSG_35, C2PMSG_36 = (0x16040 + 35) * 4, (0x16040 + 36) * 4
LOSSES = ("all_ones_after_reads", "link_drop_after_bytes", "unplug")


class Busy:
    """A card that interrupts its host every 20 us and loads firmware from its memory, while its driver accesses it all
    the time.
    """

    def __init__(self, radeon):
        self.radeon, self.regs, self.ring = radeon, radeon.bars[5], radeon.alloc_host(4096)
        radeon.config.write(4, 6, 2)
        radeon.config.write(0xA2, 1, 2)  # MSI
        names = radeon.ih.cells
        self.regs.write32(names.address("IH_RB_BASE"), self.ring.bus_addr() >> 8 & ONES)
        self.regs.write32(names.address("IH_RB_BASE_HI"), self.ring.bus_addr() >> 40)
        control = names.replace("IH_RB_CNTL", 0, RB_ENABLE=1, RB_SIZE=10, ENABLE_INTR=1, MC_SPACE=2)
        self.regs.write32(names.address("IH_RB_CNTL"), control)
        self._tick()

    def _tick(self):
        self.radeon.ih.interrupt(0x14, 181, data=(1,))
        self.radeon.clock.after(20, self._tick)

    def step(self, rng):
        """Do one of the things that a driver does all the time."""
        radeon, regs = self.radeon, self.regs
        rng.choice((
            lambda: regs.read32(MEMSIZE),
            lambda: regs.write32(SCRATCH_0, rng.getrandbits(32)),
            lambda: radeon.bars[0].write_block(0x10_0000, rng.randbytes(512)),
            lambda: radeon.bars[0].read_block(0x10_0000, 512),
            lambda: radeon.config.read(0),
            lambda: radeon.clock.sleep_us(30),
            lambda: radeon.interrupts.wait(50),
        ))()  # fmt: skip

    def strike(self, loss, rng):
        if loss == "unplug":
            self.radeon.clock.after(rng.randrange(2000), self.radeon.unplug)
        else:
            self.radeon.faults.inject(loss, rng.randrange(40 if "reads" in loss else 4000))


@pytest.fixture
def busy(radeon):
    return Busy(radeon)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_a_card_that_is_cut_off_answers_ones_and_leaves_its_host_alone(busy, loss, seed):
    rng, radeon = random.Random(seed), busy.radeon
    radeon.vram.write(0x10_0000, b"\1" * 4096)
    busy.regs.write32(C2PMSG_36, 0x80_0010_0000 >> 20)
    # The PSP reads a key database while the link goes down.
    busy.regs.write32(C2PMSG_35, 0x80000)
    busy.strike(loss, rng)
    for _ in range(2000):
        if radeon.lost:
            break
        busy.step(rng)
    radeon.interrupts.take()
    assert radeon.lost
    # A host that reads notices the loss.
    busy.regs.read32(MEMSIZE)
    before = bytes(busy.ring.view)
    for _ in range(200):
        # No write arrives, whether the register has a name or not.
        place = rng.randrange(0, busy.regs.size_bytes, 4)
        assert busy.regs.read32(place) == ONES
        busy.regs.write32(place, rng.getrandbits(32))
        radeon.bars[2].write64(8 * rng.randrange(0x100), rng.getrandbits(64))
        assert radeon.bars[0].read_block(place, 3) == b"\xff" * 3
        assert radeon.rom.read32(0) == ONES
        radeon.config.write(4, 7, 2)
        assert radeon.config.read(rng.randrange(0, 4096, 2), 2) == 0xFFFF
        assert radeon.interrupts.wait(10_000) == ()
    with pytest.raises(DeviceLost, match="is gone from the bus"):
        radeon.reset("slot")
    radeon.close()
    assert radeon.lost
    assert bytes(busy.ring.view) == before
    assert radeon.host.read(busy.ring.bus_addr(), 4) == b"\xff" * 4
    assert radeon.violations == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_card_comes_back_as_new(busy, loss):
    rng, radeon = random.Random(1), busy.radeon
    busy.strike(loss, rng)
    while not radeon.lost:
        busy.step(rng)
    radeon.replug()
    assert not radeon.lost
    assert (busy.regs.read32(MEMSIZE), radeon.config.read(4, 2) & 7) == (64, 2)
    radeon.config.write(4, 6, 2)
    buffer = radeon.alloc_host(4096)
    radeon.host.write(buffer.bus_addr(), b"new")
    assert bytes(buffer.view[:3]) == b"new"
