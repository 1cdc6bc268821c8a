"""Limits of power and clocks: what may be set, that it is always restored, and what heat does to running work."""

import pytest

import ringup
from ringup.autogen.amd.smu_v13_0_0 import PPCLK_GFXCLK, PPCLK_UCLK  # 13.0.7 has the same numbers
from ringup.errors import DeviceHung, DeviceTimeout

CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48", "mi300x")
CLOCKS = {"gfx": PPCLK_GFXCLK, "memory": PPCLK_UCLK}
SCORCHING_C, COOL_C = 130, 40


@pytest.mark.parametrize("chip", CHIPS)
def test_limits_are_the_cards_own(bench, chip):
    bench = bench(chip)
    limits, power = bench.card.limits, bench.radeon.smu.power
    assert limits.power_default_w == power.row.power_limit
    assert limits.power_min_w <= limits.power_default_w <= limits.power_max_w
    assert 80 <= limits.hotspot_temperature_c < limits.shutdown_temperature_c
    for name, clock in CLOCKS.items():
        table = power.row.frequencies[clock]
        assert limits.clocks_mhz[name] == (table[0], table[-1])


@pytest.mark.parametrize("chip", CHIPS)
def test_a_close_gives_everything_back_and_leaves_clocks_low(bench, chip):
    bench = bench(chip)
    card, power = bench.card, bench.radeon.smu.power
    low, high = card.limits.clocks_mhz["gfx"]
    card.set_power_limit(card.limits.power_min_w)
    card.set_clock_range("gfx", low + 100, high - 100)
    card.workload("compute")
    assert power.power_limit == card.limits.power_min_w
    assert power.bounds(PPCLK_GFXCLK) == (low + 100, high - 100)
    busy = bench.radeon.smu.workload
    # the power controller of an MI300X has no hints of work (smu_v13_0_6_ppt.c), and keeps the one of its start
    hinted = chip != "mi300x"
    card.close()
    assert power.power_limit == power.row.power_limit
    assert [power.bounds(clock) for clock in CLOCKS.values()] == [
        (power.row.frequencies[clock][0],) * 2 for clock in CLOCKS.values()
    ]
    assert (bench.radeon.smu.workload != busy) == hinted


def test_the_next_start_undoes_what_a_killed_process_set(bench):
    bench = bench()
    card, radeon = bench.card, bench.radeon
    low, high = card.limits.clocks_mhz["memory"]
    card.set_power_limit(card.limits.power_min_w)
    card.set_clock_range("memory", low, low)
    card.workload("vr")
    hint = radeon.smu.workload
    radeon.kill_holder()
    with ringup.open(radeon.name, transport={"card": radeon}) as again:
        assert again.info.found == "dirty"
        assert radeon.smu.power.power_limit == again.limits.power_default_w
        assert radeon.smu.power.bounds(PPCLK_UCLK) == (low, high)
        assert radeon.smu.workload != hint


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda card: card.set_power_limit(5000), r"the power limit takes \d+ to \d+ W, not 5000"),
        (lambda card: card.set_power_limit(0), r"the power limit takes \d+ to \d+ W, not 0"),
        (lambda card: card.set_clock_range("gfx", 1, 9999), r"the gfx clock takes \d+ to \d+ MHz, not 1 to 9999"),
        (lambda card: card.set_clock_range("gfx", 2000, 1000), "not 2000 to 1000"),
        (lambda card: card.set_clock_range("shader", 1, 2), "no clock 'shader'; there are gfx, memory, fabric, soc"),
        (lambda card: card.workload("mining"), "no workload 'mining'; there are default, power saving, compute"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_range(bench, wrong, message):
    card = bench().card
    with pytest.raises(ValueError, match=message):
        wrong(card)


def test_heat_stops_work_and_slows_the_card_until_it_has_cooled(bench):
    bench = bench()
    card, power = bench.card, bench.radeon.smu.power
    low, high = card.limits.clocks_mhz["gfx"]
    card.set_clock_range("gfx", low, high - 200)
    power.temperature = SCORCHING_C
    assert card.stats().too_hot
    assert power.bounds(PPCLK_GFXCLK) == (low, low)
    with pytest.raises(
        DeviceHung, match=r"is too hot: edge \d+ °C, \d+ °C is the most; .* taken again when it has cooled"
    ):
        card.copy.fill(bench.flag, 0)
    power.temperature = COOL_C
    card.copy.fill(bench.flag, 0).wait()
    assert power.bounds(PPCLK_GFXCLK) == (low, high - 200)
    assert not card.stats().too_hot


def test_heat_is_noticed_during_a_wait(bench):
    bench = bench()
    # Nobody signals this point.
    never = bench.card.copy.timeline.next()
    bench.radeon.smu.power.temperature = SCORCHING_C
    with pytest.raises(DeviceTimeout):
        never.wait(1.2)
    with pytest.raises(DeviceHung, match="too hot"):
        bench.card.copy.fill(bench.flag, 5)
    assert bench.card.stats().interrupts["temperature above its limit"] == 1


def test_a_power_controller_that_falls_silent_does_not_end_a_wait(bench):
    bench = bench()
    never = bench.card.copy.timeline.next()
    bench.radeon.faults.inject("smu_silent")
    with pytest.raises(DeviceTimeout, match=f"waiting for {never.value} on virtual:navi31 copy 0.0"):
        never.wait(1.2)
    bench.radeon.faults.clear()
    assert bench.works(3)
