"""Which chip a register names, and the rows behind it."""

from __future__ import annotations

import pytest

from ringup.drivers.nv.bus.chips import CHIPS, Boot, identify
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.bus.words import NV_PMC_BOOT_42
from ringup.drivers.transport.config_space import change_command
from ringup.errors import DeviceLost, NotSupported
from ringup.silicon import nvidia_card, nvidia_cards


@pytest.mark.parametrize(
    ("value", "name"),
    # OGKM g_chips2halspec_nvoc.h: architecture 29:24, implementation 23:20
    [
        (0x1620_00A1, "tu102"),
        (0x1670_00A1, "tu117"),
        (0x1700_00A1, "ga100"),
        (0x1740_00A1, "ga104"),
        (0x1800_00A1, "gh100"),
        (0x1920_00A1, "ad102"),
        (0x1A20_00A1, "gb102"),
        (0x1B20_00A1, "gb202"),
    ],
)
def test_chips_are_named_by_architecture_and_implementation(value, name):
    assert identify(NV_PMC_BOOT_42(value), "a card").name == name


@pytest.mark.parametrize("value", [0x1340_00A1, 0x1610_00A1, 0xBADF_1100, 0])
def test_an_unknown_chip_is_refused_with_what_was_read(value):
    with pytest.raises(NotSupported, match=f"a card: NV_PMC_BOOT_42 reads {value:#010x}"):
        identify(NV_PMC_BOOT_42(value), "a card")


def test_rows_are_distinct_and_whole():
    assert len({chip.name for chip in CHIPS}) == len(CHIPS)
    assert len({(chip.architecture, chip.implementation) for chip in CHIPS}) == len(CHIPS)
    for chip in CHIPS:
        assert (chip.family.boot is Boot.FSP) == bool(chip.family.cot_version)


@pytest.mark.parametrize("name", nvidia_cards())
def test_every_virtual_card_is_known(name):
    card = nvidia_card(name)
    change_command(card.config, on=2)
    assert Registers(card).chip.name == name


def test_a_card_that_does_not_decode_memory_is_silent():
    card = nvidia_card("ga102")
    change_command(card.config, off=2)
    with pytest.raises(DeviceLost, match="registers read all ones though the card is on the bus"):
        Registers(card)


def test_a_card_without_its_register_bar_is_refused():
    card = nvidia_card("ga102")

    class Bare:
        name, clock, bars = card.name, card.clock, {}

    with pytest.raises(NotSupported, match=r"BAR 0 \(its registers\) shows 0 bytes"):
        Registers(Bare())
