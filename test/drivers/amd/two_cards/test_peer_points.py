"""Points of one card that engines of another wait for, without the host between them."""

import numpy as np
import pytest

import ringup
from ringup.errors import DeviceFault, DeviceHung, DeviceTimeout
from ringup.queues.amd.pm4 import CopySource, CopyTarget
from ringup.queues.queue import Queue
from ringup.silicon import card as virtual
from ringup.silicon.common.clock import VirtualClock


def two():
    # one clock, as boards of one computer have it: while one card waits, the other works
    clock = VirtualClock()
    radeons = [virtual("navi31", vram_bytes=256 << 20, clock=clock) for _ in range(2)]
    cards = [ringup.open(radeon.name, transport={"card": radeon}) for radeon in radeons]
    for card, other in (cards, cards[::-1]):
        card.peer(other)
    yield radeons, *cards
    for card, radeon in zip(cards, radeons, strict=True):
        card.close()
        assert radeon.violations == []


@pytest.fixture(scope="module")
def pair():
    yield from two()


@pytest.fixture
def own_pair():
    yield from two()


@pytest.fixture
def host_waits(monkeypatch):
    """The points that the host has waited for before it submitted."""
    points, wait_here = [], Queue._wait_here

    def noted(self, point):
        points.append(point)
        wait_here(self, point)

    monkeypatch.setattr(Queue, "_wait_here", noted)
    return points


class Gate:
    """Holds a queue until it is opened."""

    def __init__(self, card):
        self._word = card.alloc(4096, "host", name="gate")

    def hold(self, stream):
        packets = stream.pm4 if hasattr(stream, "pm4") else stream.sdma
        stream.append(packets.wait_mem(self._word.gpu_va, 1))

    def open(self):
        self._word.view[:4] = b"\1\0\0\0"


def copied(card, target_va, source_va):
    """Return PM4 that copies a dword."""
    pm4 = card.compute.stream().pm4
    return pm4.copy_data(CopySource.MEMORY, source_va, CopyTarget.MEMORY, target_va)


def held_work(card, gate, gpu_va, value):
    """Submit work that stores a dword once the gate is open."""
    stream = card.compute.stream()
    gate.hold(stream)
    stream.append(stream.pm4.write_data(gpu_va, value))
    return card.compute.submit(stream)


@pytest.mark.parametrize("kind", ["compute", "copy", "aql"])
def test_a_queue_waits_for_a_point_of_the_other_card_by_itself(pair, host_waits, kind):
    _, first, second = pair
    gate, there, mine = Gate(second), second.alloc(4096, "host"), first.alloc(4096, "host")
    here, ours = first.peer(second).map(there), mine
    far = held_work(second, gate, there.gpu_va, 11)
    queue = getattr(first, kind)
    stream = queue.stream()
    stream.wait_for(far)
    if kind == "copy":
        stream.copy(ours.gpu_va, here.gpu_va, 4)
    else:
        commands = copied(first, ours.gpu_va, here.gpu_va)
        stream.append(commands) if kind == "compute" else stream.run_pm4(commands)
    near = queue.submit(stream)
    assert (far.done, near.done, host_waits) == (False, False, [])
    gate.open()
    near.wait()
    assert bytes(mine.view[:4]) == bytes([11, 0, 0, 0])


def test_what_a_kernel_stored_in_the_other_cards_memory_has_arrived_when_its_engines_go_on(pair, host_waits):
    """Work goes back and forth three times; the host submits all of it before any of it runs."""
    _, first, second = pair
    gate, cards = Gate(first), (first, second)
    words = [card.alloc(4096) for card in cards]
    for card, word in zip(cards, words, strict=True):
        card.copy.fill(word, 0).wait()
    across = [first.peer(second).map(words[1]), second.peer(first).map(words[0])]
    near = [card.alloc(4096, "host") for card in cards]
    point = None
    for turn in range(6):
        at = turn % 2
        card, stream = cards[at], cards[at].compute.stream()
        if point is None:
            gate.hold(stream)
        else:
            stream.wait_for(point)
        # what the other card has stored here goes to the host, and the next number to the other card
        stream.append(copied(card, near[at].gpu_va + 4 * turn, words[at].gpu_va))
        stream.append(stream.pm4.write_data(across[at].gpu_va, turn + 1))
        point = card.compute.submit(stream)
    assert not point.done
    assert host_waits == []
    gate.open()
    point.wait()
    seen = np.frombuffer(near[0].view, np.uint32)[:6] + np.frombuffer(near[1].view, np.uint32)[:6]
    assert seen.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_wait_that_runs_out_says_what_the_other_card_has_not_done(pair):
    _, first, second = pair
    gate, there = Gate(second), second.alloc(4096)
    far = held_work(second, gate, there.gpu_va, 1)
    first.copy.wait_for(far)
    point = first.copy.submit(first.copy.stream())
    with pytest.raises(DeviceTimeout) as caught:
        point.wait(0.005)
    assert any(f"waits for {far!r}" in note and "stands at" in note for note in caught.value.__notes__)
    gate.open()
    point.wait()


def test_an_error_of_the_other_card_is_raised_where_work_waits_for_it(pair):
    radeons, first, second = pair
    gate, gone = Gate(second), second.alloc(4096, name="gone")
    where = gone.gpu_va
    gone.free()
    far = held_work(second, gate, where, 1)
    first.copy.wait_for(far)
    point = first.copy.submit(first.copy.stream())
    gate.open()
    with pytest.raises(DeviceFault, match="'gone', which was freed") as caught:
        point.wait()
    assert any(f"{point!r} waits for {far!r}" in note for note in caught.value.__notes__)
    second.reset()
    # the other card's work up to there was done
    point.wait()
    first.copy.submit(first.copy.stream()).wait()
    assert all("fault" in str(one) for one in radeons[1].violations)
    radeons[1].violations.clear()


@pytest.mark.parametrize("how", ["queue", "mode1", "close"])
def test_work_goes_on_when_the_queue_it_waits_for_ends(own_pair, how):
    """Its words stay mapped: an engine that looks at them later faults nowhere."""
    radeons, first, second = own_pair
    gate, late, there = Gate(second), Gate(first), second.alloc(4096)
    far = held_work(second, gate, there.gpu_va, 1)
    stream = first.compute.stream()
    late.hold(stream)
    first.compute.submit(stream)
    first.compute.wait_for(far)
    point = first.compute.submit(first.compute.stream())
    if how == "close":
        second.close()
    else:
        second.reset(how)
    late.open()
    with pytest.raises(DeviceHung if how != "close" else ValueError):
        point.wait()
    point.wait()
    target = first.alloc(4096, "host")
    first.copy.fill(target, 7).wait()
    assert bytes(target.view[:4]) == bytes([7, 0, 0, 0])
    if how == "mode1":
        # the engine polled its gate when the chip was reset, as on a card without peers
        assert all("bus mastering is off" in str(one) or "stops" in str(one) for one in radeons[1].violations)
        radeons[1].violations.clear()
