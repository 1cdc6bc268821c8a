"""Thermal interrupts: the driver receives them through the interrupt ring, and receives none after a stop."""

import pytest

from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.smu.thermal import Thermal

SECOND_US = 1_000_000
TRACED = {  # recorded from amdgpu.ko on a navi31, except for its threshold
    "THM_THERMAL_INT_ENA": 0x38,
    "MP1_SMN_IH_SW_INT_CTRL": 0,
}


@pytest.fixture(params=["navi31", "navi32", "navi33"])
def rig(hands, request):
    """A card with its interrupt ring started, and a thermal watch that is not started."""
    card = hands(request.param)
    card.gmc.start_mmhub()
    base, pa = card.gmc.fb_base, card.RING_PA
    bell = Doorbell(card.radeon.bars[DOORBELL_BAR], NAVI10.ih_index)
    card.ring = Ih(card.osssys, card.vram(pa, 4096), base + pa, card.vram(pa + 8192, 4), base + pa + 8192, bell)
    card.ring.start(message_signalled=True)
    card.watch = Thermal(card.block("thm"), card.block("mp"))
    return card


def test_heat_above_the_threshold_is_heard_once_and_its_end_too(rig):
    rig.watch.start(118)
    rig.radeon.faults.inject("thermal_trip", 3)
    rig.radeon.clock.sleep_us(2 * SECOND_US)
    heard = [entry.kind for entry in rig.ring.drain()]
    assert heard[0] == "temperature above its limit"
    assert heard.count("temperature above its limit") == 1


def test_the_registers_hold_what_the_kernels_driver_writes(rig):
    rig.watch.start(118, 0)
    cells = rig.radeon.thm.cells
    assert cells["THM_THERMAL_INT_ENA"] == TRACED["THM_THERMAL_INT_ENA"]
    control = cells["THM_THERMAL_INT_CTRL"]
    # DIG_THERM_INTH 118, DIG_THERM_INTL 0
    assert control & 0xFFFF == 118
    # MAX_IH_CREDIT 5, THERM_IH_HW_ENA, no mask: smu_v13_0.c
    assert control >> 24 == 0xB0
    assert rig.radeon.smu.cells["MP1_SMN_IH_SW_INT_CTRL"] == TRACED["MP1_SMN_IH_SW_INT_CTRL"]


def test_a_stopped_watch_is_silent(rig):
    rig.watch.start(118)
    rig.watch.stop()
    rig.watch.stop()
    rig.radeon.faults.inject("thermal_trip", 3)
    rig.radeon.clock.sleep_us(2 * SECOND_US)
    assert rig.ring.drain() == []


def test_impossible_thresholds_are_refused(rig):
    for high, low in ((50, 50), (10, 20), (10, -1)):
        with pytest.raises(ValueError, match="a lower bound below an upper one"):
            rig.watch.start(high, low)
