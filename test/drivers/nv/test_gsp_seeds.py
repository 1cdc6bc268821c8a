"""Seeded histories on bare cards: copies, kernels, kept streams, resets, while one to three faults strike anywhere.

Each failure is one error of ours, no byte is lost that was said to be done, nothing hangs, the closed card is quiet and
keeps no memory of the host, and it starts again.
"""

from __future__ import annotations

from functools import partial

import pytest
from nvidia_code.histories import Moments
from nvidia_code.seeds import MISTAKES, Seed, interrupt

from ringup.autogen.nv import status
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.card import RUNGS, GspCard
from ringup.silicon import nvidia_card

# How many seeds each run of the suite takes, by chip. The run's number is its seed.
RUNS = {"ga102": 4, "tu102": 1, "ad102": 1, "gh100": 2, "gb202": 2}
COMPUTING = ("ga102", "tu102", "ad102")
SEEDS = range(100_000)
COMMAND, MASTER = 4, 4  # the command register, and its bit for bus mastering
STATUSES = (
    status.NV_ERR_GENERIC, status.NV_ERR_NO_MEMORY, status.NV_ERR_GPU_IS_LOST, status.NV_ERR_TIMEOUT,
    status.NV_ERR_RESET_REQUIRED, status.NV_ERR_INVALID_STATE, status.NV_ERR_NOT_SUPPORTED, 0xDEAD,
)  # fmt: skip
COUNTED = (
    "lost_interrupt", "falcon_stuck", "fsp_silent", "gsp_no_start", "gsp_silent", "gsp_crash", "gsp_bad_checksum",
    "invalidate_stuck", "engine_stuck",
)  # fmt: skip
# what a fault's number may be
ARGUMENTS = {
    "all_ones_after_reads": lambda rng: int(800 ** rng.random()),
    "link_drop_after_bytes": lambda rng: int(200_000 ** rng.random()),
    "rm_status": lambda rng: rng.choice(STATUSES),
    **{name: lambda rng: rng.choice((-1, 1, 0x31)) for name in ("fwsec_error", "booter_error", "fsp_error")},
    **{name: lambda rng: rng.choice((1, 1, 2, 5, -1)) for name in COUNTED},
}
# a card that has fallen off the bus does not come back as it was
LOSSES = {"all_ones_after_reads", "link_drop_after_bytes"}
KINDS = (*ARGUMENTS, *5 * ("interrupt",), "unplug", *2 * MISTAKES)
# for cards with peers
OF_PEERS = {"peer_requests_turned_away", "peer_reads_turned_away"}
# how many accesses to a card the phases take, at least
ACCESSES = {"start": 750, "work": 300, "reset": 1000, "close": 320}
# by chip: what the first start has read of the VBIOS, which takes most of a start's time
ROMS = {}


class BareSeed(Seed):
    """What happens to a bare card."""

    def __init__(self, chip, seed, moments):
        self.model = model = nvidia_card(chip)
        super().__init__(seed, model.clock, RUNGS, ACCESSES, moments, computes=chip in COMPUTING)
        places = (model.clock, "sleep_us"), (model.interrupts, "wait"), (model.config, "write"), (model, "alloc_host")
        for part, name in places:
            setattr(part, name, _counted(getattr(part, name), moments))
        self.plan()

    def fault(self):
        kind = self.rng.choice(KINDS)
        if kind in ARGUMENTS:
            return kind, partial(self.model.faults.inject, kind, ARGUMENTS[kind](self.rng))
        return kind, {"interrupt": interrupt, "unplug": self.model.unplug}.get(kind)

    def heal(self):
        self.moments.forget()
        for name in set(ARGUMENTS) - LOSSES:
            self.model.faults.clear(name)

    def open(self, *, healed=False):
        if healed:
            self.model.faults.clear()
            if self.model.lost:
                self.model.replug()
        card = GspCard(self.model, rom=ROMS.get(self.model.name))
        ROMS[self.model.name] = card.rom
        return card

    def check_left(self):
        model = self.model
        assert not model.host._bases, "host memory stayed with the card"
        if not model.lost:
            assert not model.config.read(COMMAND, 2) & MASTER, "bus mastering stayed on"
        model.settle()
        assert model.violations == []


def _counted(access, moments):
    """Return an access to a card that counts."""

    def counted(*args):
        moments()
        return access(*args)

    return counted


@pytest.fixture
def moments(monkeypatch):
    """Counts accesses to registers, too."""
    made = Moments()
    for name in ("read", "write", "write_run"):
        monkeypatch.setattr(Registers, name, _counted_method(getattr(Registers, name), made))
    return made


def _counted_method(access, moments):
    def counted(self, *args):
        moments()
        return access(self, *args)

    return counted


def test_all_faults_of_the_cards_are_injected():
    assert set(ARGUMENTS) | OF_PEERS == set(nvidia_card("gb202").faults.kinds)


@pytest.mark.parametrize("chip", RUNS)
def test_seeded_faults_are_errors_and_leave_cards_that_start(chip, moments, sample):
    for seed in sample(SEEDS, few=RUNS[chip], spread=False):
        moments.forget()
        try:
            BareSeed(chip, seed, moments).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
