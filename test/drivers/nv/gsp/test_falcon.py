"""A falcon that takes its time: memories that are scrubbed, and transfers that queue up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp import falcon
from ringup.drivers.nv.gsp.falcon import GSP, Falcon, Segment
from ringup.drivers.transport.config_space import change_command
from ringup.errors import DeviceHung, DeviceTimeout, FirmwareError, NotSupported
from ringup.silicon import nvidia_card
from ringup.silicon.common.clock import VirtualClock

# NV_PMC_BOOT_42 of TU102 and GA102: architecture in bits 29:24, implementation in 23:20
BOOT_42 = {"tu102": 0x1620_00A1, "ga102": 0x1720_00A1}
# dev_falcon_v4.h, relative to the engine; dev_gsp.h: NV_PGSP_FALCON_ENGINE
HWCFG2, DMACTL, BOOTVEC = 0xF4, 0x10C, 0x104
DMATRFBASE, DMATRFMOFFS, DMATRFCMD, DMATRFFBOFFS, DMATRFBASE1 = 0x110, 0x114, 0x118, 0x11C, 0x128
ENGINE = 0x3C0
SCRUBBING = {"tu102": (DMACTL, 6), "ga102": (HWCFG2, 1 << 12)}
FULL, IDLE = 1, 2
DEPTH = 4


class Engine:
    """GSP's registers. A reset scrubs for `looks` reads; `DEPTH` transfers may wait, and each read ends one."""

    def __init__(self, chip, looks=3):
        self.chip, self.looks, self.scrubbing, self.waiting, self.kept = chip, looks, 0, 0, {}
        self.fetched, self.mistakes = [], []

    size_bytes = 16 << 20

    def read32(self, at):
        if at == 0xA00:
            return BOOT_42[self.chip]
        at -= GSP.base
        value = self.kept.get(at, 0)
        if at == SCRUBBING[self.chip][0] and self.scrubbing:
            self.scrubbing -= 1
            return value | SCRUBBING[self.chip][1]
        if at == DMATRFCMD:
            self.waiting = max(self.waiting - 1, 0)
            return FULL if self.waiting >= DEPTH else 0 if self.waiting else IDLE
        return value

    def write32(self, at, value):
        at -= GSP.base
        if at == ENGINE:
            self.scrubbing = 0 if value else self.looks
        elif self.scrubbing:
            self.mistakes.append(f"{at:#x} is written while the memories are scrubbed")
        elif at in {DMATRFBASE, DMATRFBASE1, DMATRFMOFFS, DMATRFFBOFFS} and self.waiting >= DEPTH:
            self.mistakes.append(f"{at:#x} is written while the queue is full")
        elif at == DMATRFCMD:
            self.waiting += 1
            self.fetched.append((self.kept.get(DMATRFMOFFS), self.kept.get(DMATRFFBOFFS), value))
        elif at == BOOTVEC and self.waiting:
            self.mistakes.append("it is started while it fetches")
        self.kept[at] = value

    def batch(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def falcon_of(engine):
    """Return the driver's falcon for an engine."""
    config = SimpleNamespace(read=lambda offset, size_bytes: 0x10DE)
    device = SimpleNamespace(name="a card", clock=VirtualClock(), bars={0: engine}, lost=False, config=config)
    return Falcon(Registers(device), GSP)


@pytest.mark.parametrize("chip", SCRUBBING)
def test_nothing_is_written_while_memories_are_scrubbed(chip):
    engine = Engine(chip)
    falcon_of(engine).reset()
    assert not engine.mistakes
    assert not engine.scrubbing


@pytest.mark.parametrize("chip", SCRUBBING)
def test_memories_that_stay_scrubbed_are_named(monkeypatch, chip):
    monkeypatch.setattr(falcon, "WAIT_US", 1000)
    with pytest.raises(DeviceTimeout, match="until GSP's memories are scrubbed"):
        falcon_of(Engine(chip, looks=1 << 30)).reset()


def test_a_reset_that_nothing_answers_is_named():
    engine = Engine("ga102")
    gsp = falcon_of(engine)
    read = engine.read32
    # the bus inside the chip has no answer
    engine.read32 = lambda at: 0xBADF_5040 if at == GSP.base + ENGINE else read(at)
    with pytest.raises(DeviceHung, match="resetting GSP: its reset register reads 0xbadf5040"):
        gsp.reset()


def test_a_segment_is_fetched_in_blocks_and_its_end_waited_for():
    engine = Engine("ga102")
    gsp = falcon_of(engine)
    gsp.fetch(0x12_3456_7000, Segment(0x300, 0xA00, to=0x400, tag=0x100), code=True)
    gsp.start(0x100)
    assert not engine.mistakes
    assert engine.kept[DMATRFBASE] | engine.kept[DMATRFBASE1] << 32 == 0x12_3456_7200 >> 8
    # the falcon's address, that of the memory, and: imem, secure, blocks of 256 bytes
    assert engine.fetched == [(0x400 + at, 0x100 + at, 0x614) for at in range(0, 0xA00, 0x100)]


def test_a_transfer_that_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(falcon, "WAIT_US", 1000)
    engine = Engine("ga102")
    gsp = falcon_of(engine)
    engine.waiting = 1 << 30
    with pytest.raises(DeviceTimeout, match=r"GSP fetches data: NV_PFALCON_FALCON_DMATRFCMD read 0x0*1 "):
        gsp.fetch(0x1000, Segment(0, 0x100), code=False)


def test_what_cannot_be_fetched_is_refused():
    gsp = falcon_of(Engine("ga102"))
    with pytest.raises(FirmwareError, match="whole blocks of 256 bytes, not 257 from 0x1000 on"):
        gsp.fetch(0x1000, Segment(0, 0x101), code=False)
    with pytest.raises(FirmwareError, match="not 256 from 0x1080 on"):
        gsp.fetch(0x1080, Segment(0, 0x100), code=False)
    for address in ((1 << 49) + 0x100, 0):
        with pytest.raises(NotSupported, match="does not reach the host's memory"):
            gsp.fetch(address, Segment(0, 0x100, tag=0x100), code=True)


@pytest.mark.parametrize("chip", ["tu102", "ga102", "gh100"])
def test_a_core_that_is_closed_to_the_host_neither_runs_nor_has_halted(monkeypatch, chip):
    """OGKM gpu_access.c: 0xbadfxxxx is the bus' error. Here with the bits of either state set."""
    card = nvidia_card(chip)
    change_command(card.config, on=2)
    gsp = Falcon(Registers(card), GSP)
    monkeypatch.setattr(gsp.registers, "read", lambda address: 0xBADF_FFFF)
    assert not gsp.riscv_active
    if chip != "tu102":
        assert not gsp.riscv_halted
