"""The benches of NVIDIA's driver: each one runs without the competitor. These tests check no measured time."""

import struct

import pytest

from ringup.errors import RingupError
from ringup.tools.bench import nvidia_starts, plain_memory
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches import nvidia_bringup, nvidia_descriptor, nvidia_queues
from ringup.tools.bench.plot import Bars
from ringup.tools.competitor.environment import Peer


class FreshStub:
    """Runs ringup's part in this process."""

    def __init__(self):
        self.answers = {}

    def evaluate(self, code):
        return 4.0

    def call(self, module, job):
        assert module == nvidia_starts.__name__
        task = job["task"]
        if task not in self.answers:
            self.answers[task] = nvidia_starts.TASKS[task](job["chip"])
        return self.answers[task]


class PeerStub(Peer):
    """A competitor that answers what it was given."""

    def __init__(self, answer):
        super().__init__(None)
        self.answer = answer

    def call(self, script, job):
        return self.answer


def bench(peer=None):
    return Bench(sources=None, peer=peer or Peer(None), fresh=FreshStub(), quick=True, say=lambda text: None)


def test_the_queues_bench_gives_times_and_bytes(monkeypatch):
    monkeypatch.setattr(plain_memory, "TIMES", 40)
    figures = {figure.name: figure for figure in nvidia_queues.measure(bench())}
    assert figures.keys() == {row.name for row in nvidia_queues.ROWS} | {nvidia_queues.STORES}
    assert all(figure.ours > 0 and figure.peer is None and figure.met is None for figure in figures.values())
    # clc7b5.h: a header and two addresses of two dwords; a header and LINE_LENGTH_IN; LAUNCH_DMA, in its header
    assert figures["append a copy, stream"].ours == 32
    # clc6c0qmd.h: a descriptor has 64 dwords; bank 0 with 0x160 bytes before the parameters has 448 with its end
    assert figures["append a launch, descriptor and arguments"].ours == 256 + 512


def test_the_queues_bench_submits_what_it_says():
    card = nvidia_queues.Instant(nvidia_queues.cubin())
    card.launch()
    card.compute.submit(card.stream(plain_memory.LONG))
    card.kept.patch_args(card.number_byte, struct.pack("<I", 77))
    card.kept.submit()
    assert card.compute.timeline.last == 3
    assert card.compute.timeline.idle
    assert card.stream(plain_memory.LONG).dispatches == plain_memory.LONG


def test_a_descriptor_of_the_bench_is_what_the_header_describes():
    word = int(nvidia_descriptor.names()["w"])
    # clc6c0qmd.h, QMDV03_00: REGISTER_COUNT_V MW(656:648), CTA_RASTER_WIDTH MW(415:384), CTA_THREAD_DIMENSION0
    # MW(607:592), CONSTANT_BUFFER_VALID(0) MW(640:640), CONSTANT_BUFFER_ADDR_LOWER(0) MW(1055:1024)
    assert word >> 648 & 0x1FF == 40
    assert word >> 384 & 0xFFFF_FFFF == 16
    assert word >> 592 & 0xFFFF == 256
    assert word >> 640 & 1
    assert word >> 1024 & 0xFFFF_FFFF == 0x5678_0000


def test_the_descriptor_bench_refuses_a_peer_that_writes_other_bytes(monkeypatch):
    monkeypatch.setattr(nvidia_descriptor, "STATEMENTS", {"read a field": ("w.register_count_v", "", 10)})
    (figure,) = nvidia_descriptor.measure(bench())
    assert (figure.name, figure.peer) == ("read a field", None)
    wrong = PeerStub({"bytes": "00" * 256, "times": {}})
    with pytest.raises(RingupError, match="do not write the same bytes"):
        list(nvidia_descriptor.measure(bench(wrong)))


@pytest.mark.parametrize("name", nvidia_descriptor.STATEMENTS)
def test_every_statement_of_the_descriptor_bench_runs(name):
    exec(nvidia_descriptor.STATEMENTS[name][0], nvidia_descriptor.names())


def test_the_bringup_bench_opens_and_starts_a_card():
    found = list(nvidia_bringup.measure(bench()))
    figures = {figure.name: figure for figure in found if not isinstance(figure, Bars)}
    assert all(figure.ours > 0 and figure.peer is None for figure in figures.values())
    total, parts = "cold start, register accesses", ("cold start, register reads", "cold start, register writes")
    assert figures[total].ours == sum(figures[part].ours for part in parts)
    bars = [one for one in found if isinstance(one, Bars)]
    assert len(bars) == 2
