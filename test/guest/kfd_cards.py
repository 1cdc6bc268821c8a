"""Several cards of one process on a real kernel, through /dev/kfd: two generations, one with a small BAR, points across
them. The tests build on each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kfd_story import LOAD_S, RUN_S, Story, booted

from ringup.errors import NoSuchCard


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with booted(tmp_path_factory.mktemp("cards"), "navi31", "navi48", "navi31", small=(2,)) as story:
        yield story


@pytest.fixture(autouse=True)
def no_violations(story: Story) -> Iterator[None]:
    yield
    assert [story.served.violations(place) for place in range(3)] == [[], [], []]


def test_three_cards_in_one_process_one_of_another_generation_one_with_a_small_bar(story):
    """Queues of all kinds on each, a healthy run beside the others. Debian's kernel maps no VRAM for another card, so
    the host carries it; memory of the host is reached by all.
    """
    story.plug(3)
    done = story.python(
        """
import itertools, logging
import numpy as np
logging.basicConfig(level=logging.WARNING, format="LOG %(message)s")
cards = [ringup.open(f"kfd:{number}") for number in range(3)]
say("CHIPS", *(card.info.chip for card in cards), *(card.info.target for card in cards))
for card in cards:
    data = random.Random(2).randbytes(1 << 20)
    with card.alloc(1 << 20) as far:
        card.copy.upload(far, data).wait()
        said = [card.copy.download(far) == data]
    numbers = np.random.default_rng(1).random((48, 48), np.float32)
    tensor = card.tensor(numbers)
    said.append(bool(np.abs((tensor @ tensor).numpy() - numbers @ numbers).max() < 1e-4))
    signal = card.signal(3)
    stream = card.aql.stream()
    stream.barrier_and(completion=signal)
    card.aql.submit(stream)
    said.append(signal.wait(timeout_s=20, value=2) == 2)
    try:
        card.alloc(4096, visible=True)
        said.append("visible")
    except RingupError as error:
        said.append(type(error).__name__)
    say("WORKS", card.name, *said)
for card, other in itertools.permutations(cards[:2]):
    peer = card.peer(other)
    source, target = other.alloc(3 << 20), card.alloc(3 << 20)
    said = [not peer.direct]
    peer.copy(target, source, after=[other.copy.upload(source, data * 3)]).wait()
    said.append(card.copy.download(target) == data * 3)
    peer.copy(source, target, 4096, source_offset=8192).wait()
    said.append(other.copy.download(source, size_bytes=4096) == data[8192:12288])
    near = other.alloc(4096, "host")
    here = peer.map(near)
    card.copy.fill(here, 0x01020304).wait()
    said.append(bytes(near.view[:4]) == bytes([4, 3, 2, 1]))
    stream = other.compute.stream()
    stream.append(stream.pm4.write_data(here.gpu_va, 5))
    card.copy.wait_for(other.compute.submit(stream))
    said.append(card.copy.download(here, size_bytes=4) == bytes([5, 0, 0, 0]))
    near.free()
    said.append(here.freed)
    say("PEER", card.name, *said)
for card in cards:
    card.close()
""",
        before="env PYTHONWARNINGS=default",
    )
    assert done.status == 0, done.output
    lines = done.output.splitlines()
    assert "CHIPS navi31 navi48 navi31 gfx1100 gfx1201 gfx1100" in lines, done.output
    for number, seen in ((0, "visible"), (1, "visible"), (2, "NotSupported")):
        assert f"WORKS kfd:{number} True True True {seen}" in lines, done.output
    for number in (0, 1):
        assert f"PEER kfd:{number} True True True True True True" in lines, done.output
        said = f"LOG the host carries bytes from kfd:{1 - number} to kfd:{number} and back: "
        assert any(line.startswith(said) and "built with HSA_AMD_P2P" in line for line in lines), done.output


def test_queues_of_two_cards_wait_for_one_another_without_the_host(story):
    """The host submits all work before any of it runs: six turns, each of which reads what the turn before stored."""
    story.plug(2)
    done = story.python(
        """
import numpy as np
from ringup.queues.amd.pm4 import CopySource, CopyTarget
from ringup.queues.queue import Queue
wait_here = Queue._wait_here
def noted(self, point):
    say("HOST WAITS", self.name, point)
    wait_here(self, point)
Queue._wait_here = noted
cards = [ringup.open(f"kfd:{number}") for number in range(2)]
peers = [cards[0].peer(cards[1]), cards[1].peer(cards[0])]
gate, word = cards[0].alloc(4096, "host"), cards[0].alloc(4096, "host")
words = [word, peers[1].map(word)]
point = None
for turn in range(6):
    card = cards[turn % 2]
    stream, here = card.compute.stream(), words[turn % 2].gpu_va
    pm4 = stream.pm4
    if point is None:
        stream.append(pm4.wait_mem(gate.gpu_va, 1))
    else:
        stream.wait_for(point)
    stream.append(pm4.copy_data(CopySource.MEMORY, here, CopyTarget.MEMORY, here + 64 + 4 * turn))
    stream.append(pm4.write_data(here, turn + 1))
    point = card.compute.submit(stream)
    # copies of the other card wait for it too
    other = cards[1 - turn % 2]
    copying = other.copy.stream()
    copying.wait_for(point)
    copying.copy(words[1 - turn % 2].gpu_va + 1024 + 4 * turn, words[1 - turn % 2].gpu_va, 4)
    point = other.copy.submit(copying)
say("BEFORE", point.done)
gate.view[:4] = bytes([1, 0, 0, 0])
point.wait(60)
seen = np.frombuffer(word.view, np.uint32)
say("SEEN", seen[16:22].tolist(), seen[256:262].tolist())
# a card that ends first leaves nothing that the other one misses
held = cards[1].alloc(4096, "host")
stream = cards[1].compute.stream()
stream.append(stream.pm4.wait_mem(held.gpu_va, 1))
cards[1].compute.submit(stream)
cards[1].compute.wait_for(cards[0].compute.submit(cards[0].compute.stream()))
last = cards[1].compute.submit(cards[1].compute.stream())
cards[0].close()
held.view[:4] = bytes([1, 0, 0, 0])
last.wait(20)
cards[1].close()
say("CLOSED")
"""
    )
    assert done.status == 0, done.output
    # the log says that the host carries VRAM, which Debian's kernel maps for no other card
    lines = [line for line in done.output.splitlines() if "the host carries bytes" not in line]
    assert lines == ["BEFORE False", "SEEN [0, 1, 2, 3, 4, 5] [1, 2, 3, 4, 5, 6]", "CLOSED"], done.output


# Works on each of its cards until an error comes, and says which one, then what comes of another try.
OWNER = """
cards = [ringup.open(f"kfd:{number}") for number in NUMBERS]
buffers = [card.alloc(1 << 16) for card in cards]
turn, seconds = 0, {}
while len(seconds) < len(cards):
    for card, buffer in zip(cards, buffers):
        began = time.monotonic()
        try:
            if card not in seconds:
                card.copy.upload(buffer, bytes([turn % 256]) * (1 << 16)).wait(60)
        except RingupError as error:
            seconds[card] = time.monotonic() - began
            say("ERROR", card.name, type(error).__name__, error)
    turn += 1
    if turn < 3:
        say("TURN", turn)
for card in cards:
    for doing in (lambda: card.copy.upload(buffers[cards.index(card)], bytes(4096)).wait(60), card.reset):
        try:
            doing()
            say("WORKS", card.name)
        except RingupError as error:
            say("THEN", card.name, type(error).__name__)
say("SOON", all(waited < 30 for waited in seconds.values()))
for card in cards:
    card.close()
for number in NUMBERS:
    try:
        ringup.open(f"kfd:{number}")
    except RingupError as error:
        say("AGAIN", type(error).__name__, error)
say("ENDED")
"""


def test_amdgpu_stays_for_its_users_and_a_card_that_is_taken_from_it_ends_the_work_on_all(story):
    """Linux stops the queues of all processes then, and lets no process begin until amdgpu is loaded again: one that
    used the card, and one that uses another card alone, say so instead of waiting.
    """
    story.plug(2)
    logs = [story.begin(f"owner{len(numbers)}", OWNER.replace("NUMBERS", str(numbers))) for numbers in ([0, 1], [1])]
    for log in logs:
        story.guest.wait_for(f"grep -q -e TURN -e Traceback {log}", RUN_S)
    refused = story.guest.run("modprobe -r amdgpu", LOAD_S)
    assert refused.status
    assert "in use" in refused.output
    address = story.guest.address(1)
    story.guest.check(f"echo {address} > /sys/bus/pci/drivers/amdgpu/unbind", LOAD_S)
    both, other = (story.ended(log) for log in logs)
    assert "ERROR kfd:0 DeviceLost" in both, both
    why = f"no queue runs on kfd:1 any more: amdgpu was taken from the card at {address}"
    for said in (both, other):
        assert re.search(f"ERROR kfd:1 DeviceHung .*: {why}", said), said
        assert "SOON True" in said
        assert "WORKS" not in said
        assert "AGAIN DeviceHung" in said
    # the process cannot know that the kernel has closed the card's doorbells before it rings one
    mistakes = story.served.violations()
    assert [mistake for mistake in mistakes if "RCC_DOORBELL_APER_EN is off" not in mistake] == []
    refused = story.ringup("up kfd:0")
    assert "a card was taken from amdgpu while a process used it" in refused.output, refused.output
    assert "`modprobe -r amdgpu`" in refused.output
    # the kernel ends a process's context a little after the process
    story.guest.wait_for("modprobe -r amdgpu", LOAD_S)
    assert not [row for row in json.loads(story.ringup("list --json").output) if row["name"].startswith("kfd:")]
    gone = story.ringup("stats kfd:0")
    assert gone.status == NoSuchCard.exit_code, gone.output
