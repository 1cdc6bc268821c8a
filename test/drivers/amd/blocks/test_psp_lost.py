"""A card that goes away during the bring-up of its processors: the error is always DeviceLost, whenever it happens."""

import random

import pytest

from ringup.drivers.amd.psp import runtime, vbios
from ringup.drivers.amd.smu.reset import mode1_reset
from ringup.errors import DeviceLost

CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48")
FAULTS = {"all_ones_after_reads": 250, "link_drop_after_bytes": 200_000}  # about what a whole start needs


def bring_up(make_boot, radeon):
    """Start and manage the card, then return it to the cold state."""
    card = make_boot(radeon).load()
    board = vbios.board_table(vbios.read(radeon, card.ips))
    card.smu.start(board, signed=runtime.power_table_is_signed(card.window))
    card.smu.metrics()
    card.smu.stop()
    mode1_reset(radeon, card.nbio, card.psp, card.smu)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("chip", CHIPS)
def test_whenever_a_card_goes_away_it_is_lost(virtual_card, boot_of, chip, fault):
    chance = random.Random(f"{chip} {fault}")
    lost = 0
    for _ in range(12):
        radeon = virtual_card(chip, vram_bytes=64 << 20)
        radeon.faults.inject(fault, chance.randrange(FAULTS[fault]))
        try:
            bring_up(boot_of, radeon)
        except DeviceLost:
            lost += 1
        radeon.violations.clear()
    assert lost > 3
