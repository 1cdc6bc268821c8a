"""A process may die at any moment, as by kill -9. The next process takes the card over, reports the state it found, and
reports what it did.
"""

import random

import pytest

import ringup
from ringup.errors import CardBusy
from ringup.silicon import card as virtual

VRAM = 64 << 20
TARGETS = {"navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102", "navi48": "gfx1201", "mi300x": "gfx942"}
SEEDS = range(100_000)
# How many seeds each run of the suite takes. The run's number is its seed.
RUNS = {"navi31": 30, "navi32": 6, "navi33": 6, "navi48": 3, "mi300x": 4}
# With fewer runs, the counts of states say nothing.
ENOUGH = 30
# Roughly how many accesses a cold and a warm start take, with some work and a close. The deaths are spread over these.
ACCESSES = {
    True: 1500,
    False: 700,
}
# A card of eight dies takes more.
TIMES = {"mi300x": 4}
FOUND = ("cold", "clean", "dirty", "foreign", "stuck")
ENDLESS = "__kernel void endless(volatile __global int *p) { while (!p[1]) p[0]++; }"


class Killed(BaseException):
    """The process is dead: none of its code runs any more, whatever it catches."""


class Life:
    """The rest of a process's life: it makes this many accesses over the bus, then no more."""

    def __init__(self, radeon, accesses):
        self._path, self._left, self._real = radeon.path, accesses, radeon.path.arrives
        radeon.path.arrives = self._arrives

    def _arrives(self, size_bytes, write):
        if self._left <= 0:
            raise Killed
        self._left -= 1
        return self._real(size_bytes, write)

    def end(self):
        self._path.arrives = self._real


def connect(radeon, **options):
    return ringup.open(radeon.name, transport={"card": radeon}, **options)


def works(card):
    data = random.Random(1).randbytes(20_000)
    with card.alloc(len(data)) as source, card.alloc(len(data)) as target:
        stream = card.compute.stream()
        stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, len(data)))
        stream.wait_for(card.copy.upload(source, data))
        card.copy.wait_for(card.compute.submit(stream))
        return card.copy.download(target) == data


def endless_compute(card):
    stream = card.compute.stream()
    # Nobody ever writes there.
    stream.append(stream.pm4.wait_mem(card.compute.timeline.gpu_va + 8, 1))
    card.compute.submit(stream)


def endless_copy(card):
    stream = card.copy.stream()
    stream.append(stream.sdma.wait_mem(card.copy.timeline.gpu_va + 8, 1))
    card.copy.submit(stream)


def live(radeon, work):
    card = connect(radeon)
    if work is not None:
        work(card)
    for _ in range(3):
        assert work is not None or works(card)
        queue = card.new_compute_queue()
        queue.submit(queue.stream()).wait()
        queue.close()
    card.close()


def take_over(radeon):
    """Open a card whose owner died; return the state found and the actions taken."""

    def watch(stage):
        # Until now, the dead owner's engines still access freed memory.
        if stage == "opening bus and doorbells":
            radeon.violations.clear()

    with connect(radeon, watch=watch) as card:
        assert works(card)
        return card.info.found, card.info.resets


# A dead process closes no generator.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("chip", RUNS)
def test_a_card_is_taken_over_from_processes_that_died_at_any_access(chip, sample):
    radeon = virtual(chip, vram_bytes=VRAM)
    seen = {}
    for seed in sample(SEEDS, few=RUNS[chip], spread=False):
        rng, cold = random.Random(seed), seed % 2 == 0
        if cold:
            radeon.clock.forget()
            radeon.replug()
        life = Life(radeon, rng.randrange(1, ACCESSES[cold] * TIMES.get(chip, 1)))
        with pytest.raises(Killed):
            live(radeon, (None, endless_compute, endless_copy)[seed % 3])
        life.end()
        radeon.kill_holder(memory=seed % 5 < 3)
        found, resets = take_over(radeon)
        assert found in FOUND, seed
        assert bool(resets) == (found in ("dirty", "foreign", "stuck")), seed
        assert not resets or "verified" in resets[-1], seed
        told = [event for event in radeon.violations if "secure OS already runs" not in str(event)]
        # A boot that the dead process began may end during ours. It is then refused, reset and repeated.
        assert not told, seed
        radeon.violations.clear()
        radeon.kill_holder()
        seen[found] = seen.get(found, 0) + 1
    if sample.fixed and (runs := sum(seen.values())) >= ENOUGH:
        assert seen["dirty"] > runs // 5
        assert seen["foreign"] > runs // 10
        assert seen["clean"] > runs // 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_card_is_taken_over_from_processes_that_died_while_they_reset_it(sample):
    """The run's number is its seed. The access counts are roughly those of one reset and the start after it, so that a
    few processes survive.
    """
    radeon, died, runs = virtual("navi31", vram_bytes=VRAM), 0, 0
    for seed in sample(SEEDS, few=ENOUGH, spread=False):
        runs += 1
        rng, card = random.Random(seed), connect(radeon)
        if seed % 3:
            (endless_copy if seed % 20 == 1 else endless_compute)(card)
        rung, accesses = (("queue", 20), ("engine", 130), ("mode1", 900), ("slot", 900))[seed % 4]
        life = Life(radeon, rng.randrange(1, accesses))
        try:
            card.reset(rung)
        except Killed:
            died += 1
        life.end()
        radeon.kill_holder(memory=seed % 5 < 3)
        found, resets = take_over(radeon)
        assert found in FOUND, seed
        assert not resets or "verified" in resets[-1], seed
        assert not [event for event in radeon.violations if "secure OS already runs" not in str(event)], seed
        radeon.violations.clear()
        radeon.kill_holder()
    assert not sample.fixed or died > runs * 3 // 4


@pytest.mark.parametrize("memory", [True, False], ids=["memory gone", "memory stays"])
@pytest.mark.parametrize("chip", RUNS)
def test_an_endless_kernel_of_a_dead_process_is_killed_and_the_firmware_kept(chip, memory, opencl):
    radeon = virtual(chip, vram_bytes=VRAM)
    card = connect(radeon)
    program, flag = card.load(opencl(ENDLESS, TARGETS[chip])), card.alloc(4096)
    card.copy.fill(flag, 0).wait()
    stream = card.compute.stream()
    stream.dispatch(program, 4, 32, [flag])
    card.compute.submit(stream)
    radeon.clock.sleep_us(100)
    radeon.kill_holder(memory=memory)
    found, resets = take_over(radeon)
    assert found == "dirty"
    assert resets == ("queue: verified; survived: firmware, VRAM, clocks",)
    assert radeon.violations == []


def test_a_card_that_is_open_is_refused_to_a_second_and_free_again_after_close_or_death(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    first = connect(radeon)
    with pytest.raises(CardBusy, match=r"virtual:navi31: held by process \d+, thread 'MainThread'.*close it"):
        connect(radeon)
    # The holder noticed nothing.
    assert works(first)
    first.close()
    second = connect(radeon)
    radeon.kill_holder(memory=False)
    with connect(radeon) as third:
        assert third.info.found == "dirty"
        assert works(third)
    del second


def test_a_start_that_failed_holds_nothing(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    radeon.faults.inject("smu_silent")
    with pytest.raises(ringup.errors.DeviceTimeout):
        connect(radeon)
    radeon.faults.clear()
    with connect(radeon) as card:
        assert works(card)
