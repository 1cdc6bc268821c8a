"""A card that falls off the bus at any moment: the error is DeviceLost, nothing hangs, nothing leaks, and other cards
continue.
"""

import random
import time

import pytest

import ringup
from ringup.errors import DeviceLost, LinkDown
from ringup.silicon import card as virtual

VRAM = 64 << 20
SEEDS = range(100_000)
# How many seeds each run of the suite takes. The run's number is its seed.
RUNS = {"navi31": 36, "navi32": 36, "navi33": 36, "navi48": 3, "mi300x": 9}
TARGETS = {"navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102", "navi48": "gfx1201", "mi300x": "gfx942"}
# With fewer runs, the counts of where losses fall say nothing.
ENOUGH = 30
# The longest wait that one of our calls may take: TIMEOUT_S of queues.
LONGEST_VIRTUAL_US = 10_000_000
# A longer run hangs; a slow machine alone does not take this long. A run takes 0.03 s.
LONGEST_WALL_S = 60
# Roughly what a cold start takes. The losses are spread over these.
READS_OF_START, BYTES_OF_START, US_OF_START = (
    620,
    300_000,
    60_000,
)
TWICE = """
__kernel void twice(__global int *p) { int n = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x(); p[n] *= 2; }
"""


def connect(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


def arm(radeon, rng, cause, reads, data_bytes, time_us):
    """Let the link fail at a random point within the given number of register reads, bytes or microseconds. Half of the
    points are early ones.
    """
    most = {"reads": reads, "bytes": data_bytes, "time": time_us}[cause]
    when = rng.randrange(1, most) if rng.random() < 0.5 else int(most ** rng.random())
    if cause == "reads":
        radeon.faults.inject("all_ones_after_reads", when)
    elif cause == "bytes":
        radeon.faults.inject("link_drop_after_bytes", when)
    else:
        radeon.clock.after(when, radeon.unplug)


def move_bytes(card, rng, program):
    data = rng.randbytes(rng.choice((1, 5000, 70_000)))
    with card.alloc(len(data)) as target:
        card.copy.upload(target, data).wait()
        assert card.copy.download(target) == data


def dispatch(card, rng, program):
    groups = rng.randrange(1, 20)
    data = rng.randbytes(groups * 256)
    with card.alloc(len(data), rng.choice(("vram", "host"))) as target:
        stream = card.compute.stream()
        stream.dispatch(program, groups, 64, [target])
        stream.wait_for(card.copy.upload(target, data))
        card.copy.wait_for(card.compute.submit(stream))
        got = card.copy.download(target)
        for at in range(0, len(data), 4):
            old, new = (int.from_bytes(what[at : at + 4], "little") for what in (data, got))
            assert new == 2 * old & 0xFFFF_FFFF


def replay_kept(card, rng, program):
    with card.alloc(256) as target:
        stream = card.compute.stream()
        stream.dispatch(program, 1, 64, [target])
        kept = card.compute.keep(stream)
        for _ in range(3):
            kept.submit()
        kept.free()


def new_queue(card, rng, program):
    queue = rng.choice((card.new_compute_queue, card.new_copy_queue))()
    queue.submit(queue.stream()).wait()


def pin_pages(card, rng, program):
    import mmap

    pages = mmap.mmap(-1, 8192)
    with card.pin(memoryview(pages)) as buffer:
        card.copy.fill(buffer, 0x01020304).wait()
        assert pages[:4] == b"\x04\x03\x02\x01"


WORK = (move_bytes, dispatch, replay_kept, new_queue, pin_pages)


def use(radeon, rng, cause, phase, code, made):
    """Use a card from start to end. The link fails in `phase` (0 start, 1 work, 2 close)."""
    if phase == 0:
        arm(radeon, rng, cause, READS_OF_START, BYTES_OF_START, US_OF_START)
    card = connect(radeon)
    made.append(card)
    program = card.load(code)
    if phase == 1:
        arm(radeon, rng, cause, 60, 40_000, 2_000)
    for _ in range(rng.randrange(2, 6)):
        rng.choice(WORK)(card, rng, program)
    if phase == 2:
        arm(radeon, rng, cause, 150, 5_000, 3_000)
    card.close()


@pytest.mark.parametrize("chip", RUNS)
def test_seeded_losses_are_reported_as_lost_and_leak_nothing(chip, opencl, sample):
    radeon, other = virtual(chip, vram_bytes=VRAM), virtual(chip, vram_bytes=VRAM)
    code = opencl(TWICE, TARGETS[chip])
    told, runs = {}, 0
    with connect(other) as neighbour:
        theirs = neighbour.load(code)
        for seed in sample(SEEDS, few=RUNS[chip], spread=False):
            runs += 1
            rng, made = random.Random(seed), []
            cause, phase = ("reads", "bytes", "time")[seed % 3], seed // 3 % 3
            begun_us, begun_s = radeon.clock.now_us, time.monotonic()
            try:
                use(radeon, rng, cause, phase, code, made)
            except (DeviceLost, LinkDown):
                told[phase] = told.get(phase, 0) + 1
                assert radeon.lost, seed
            for card in made:
                card.close()
            assert radeon.clock.now_us - begun_us < LONGEST_VIRTUAL_US, seed
            assert time.monotonic() - begun_s < LONGEST_WALL_S, seed
            assert not radeon.host._bases, f"host memory stayed with the card in run {seed}"
            assert radeon.violations == [], seed
            radeon.clock.forget()
            radeon.replug()
            if runs % 10 == 0:
                dispatch(neighbour, rng, theirs)
    assert other.violations == []
    if sample.fixed and runs >= ENOUGH:
        # The losses fell where they should.
        assert told[0] > runs // 5
        assert told[1] > runs // 8


def submit_endless(queue):
    """Make a queue wait for a word that nobody writes; return the point."""
    stream = queue.stream()
    stream.body += queue.commands.wait(queue.timeline.gpu_va + 8, 1)
    return queue.submit(stream)


@pytest.mark.parametrize("timeout_s", [0.0001, 0.001, 0.1, 10.0])
def test_a_wait_for_a_lost_card_says_lost_however_short_it_is(virtual_card, timeout_s):
    radeon = virtual_card(vram_bytes=VRAM)
    card = connect(radeon)
    point = submit_endless(card.compute)
    radeon.unplug()
    with pytest.raises(DeviceLost):
        point.wait(timeout_s)
    card.close()


def test_work_for_a_lost_card_is_refused_as_lost_or_its_wait_says_so(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    card = connect(radeon)
    radeon.unplug()
    for queue in (card.compute, card.copy):
        for _ in range(3):
            with pytest.raises(DeviceLost):
                queue.submit(queue.stream()).wait(1)
    card.close()


def test_a_card_that_waits_for_a_lost_one_reports_it_once_and_continues(virtual_card):
    lost, well = virtual_card("navi31", vram_bytes=VRAM), virtual_card("navi33", vram_bytes=VRAM)
    card, other = connect(lost), connect(well)
    point = submit_endless(card.compute)
    lost.unplug()
    for queue in (other.compute, other.copy):
        queue.wait_for(point)
        with pytest.raises(DeviceLost, match="virtual:navi31 is gone from the bus"):
            queue.submit(queue.stream())
        queue.submit(queue.stream()).wait(1)
    card.close()
    other.close()


def test_points_of_a_lost_card_that_was_closed_still_say_how_it_went(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    card = connect(radeon)
    done = card.compute.submit(card.compute.stream())
    done.wait()
    undone = [submit_endless(queue) for queue in (card.compute, card.copy)]
    radeon.unplug()
    stream = card.compute.stream()
    card.close()
    done.wait()
    assert done.done
    for point in undone:
        assert not point.done
        with pytest.raises(DeviceLost):
            point.wait()
    for use in (lambda: card.compute.submit(stream), lambda: card.alloc(4096), card.stats):
        with pytest.raises((ValueError, DeviceLost)):
            use()
    card.report()
    card.close()


def test_losses_in_resets_are_reported_as_lost(sample):
    """For each reset of the ladder; a queue hangs in half of the runs."""
    radeon = virtual("navi31", vram_bytes=VRAM)
    told = runs = 0
    for seed in sample(SEEDS, few=ENOUGH, spread=False):
        runs += 1
        rng, card = random.Random(seed), connect(radeon)
        if seed % 2:
            submit_endless(card.compute)
        rung = ("queue", "engine", "mode1", "slot")[seed % 4]
        reads = 300 if rung in ("queue", "engine") else 900
        arm(radeon, rng, ("reads", "bytes", "time")[seed // 4 % 3], reads, 200_000, 100_000)
        try:
            card.reset(rung)
            move_bytes(card, rng, None)
        except (DeviceLost, LinkDown):
            told += 1
        assert str(card.report()), seed
        card.close()
        assert not radeon.host._bases, seed
        assert radeon.violations == [], seed
        radeon.clock.forget()
        radeon.replug()
    assert not sample.fixed or told > runs * 2 // 5
