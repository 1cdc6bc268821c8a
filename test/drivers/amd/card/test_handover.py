"""Hand-overs between the host and the engines: an engine that reads finds what the host stored through the window."""

import pytest
from far_path import Far

from ringup.drivers import select
from ringup.drivers.transport.recording.record import Recorder

DATA = bytes(range(256)) * 16


@pytest.fixture
def card(virtual_card):
    """A card whose host data path delays writes until a flush. The path maps nothing, so every write goes through the
    host data path.
    """
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    radeon.hdp.drain_us = None
    with Recorder(radeon, "/dev/null") as recorder, select.start(recorder) as opened:
        yield opened


def test_engines_find_what_the_host_stored_in_vram_with_rings_in_host_memory(card):
    assert {queue.memory.ring.where for queue in card.queues} == {"host"}
    source, target = card.alloc(len(DATA), visible=True), card.alloc(len(DATA))
    stream = card.compute.stream()
    stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, len(DATA)))
    for fill in (DATA, DATA[::-1]):
        card.spaces.user.access(source).write(0, fill)
        card.copy.wait_for(card.compute.submit(stream))
        assert card.copy.download(target) == fill
        card.spaces.user.access(source).write(0, fill[:-1] + b"!")
        assert card.copy.download(source) == fill[:-1] + b"!"


def test_a_kept_stream_sees_what_the_host_stored_between_its_runs(card):
    source, target = card.alloc(len(DATA), visible=True), card.alloc(len(DATA))
    stream = card.compute.stream()
    stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, len(DATA)))
    kept = card.compute.keep(stream)
    for fill in (DATA, DATA[::-1]):
        card.spaces.user.access(source).write(0, fill)
        card.copy.wait_for(kept.submit())
        assert card.copy.download(target) == fill
    kept.free()


@pytest.mark.parametrize("make", [lambda card: card.new_compute_queue(), lambda card: card.new_copy_queue(1)])
def test_a_queue_in_reused_vram_begins_with_clean_pointers(virtual_card, make):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    radeon.vram.write(2 << 20, b"\x07" * (126 << 20))
    with select.start(Far(radeon)) as card:
        for _ in range(3):
            queue = make(card)
            page = card.spaces.user.access(queue.memory.page)
            assert queue.memory.page.where == "vram"
            assert bytes(page[:256]) == bytes(256)
            for _ in range(5):
                queue.submit(queue.stream()).wait()
            assert queue.close()


def test_hardware_of_a_closed_queue_is_given_out_again_and_closing_twice_does_it_no_harm(card):
    first = [card.new_copy_queue(1) for _ in range(8)]
    assert first[3].close()
    again = card.new_copy_queue(1)
    assert again.hardware.number == first[3].hardware.number
    assert first[3].close()
    again.submit(again.stream()).wait()
