"""Two cards in one process, and queues that come and go while others work."""

import numpy as np
import pytest

import ringup
from ringup.silicon import card as virtual
from ringup.tools.demo import BLOCK, compile_for

ARGUMENTS = [256, 50, -2.2, -1.5, 0.01]


@pytest.fixture
def cards():
    radeons = [virtual("navi31", vram_bytes=256 << 20) for _ in range(2)]
    opened = [ringup.open(radeon.name, transport={"card": radeon}) for radeon in radeons]
    yield opened
    for card, radeon in zip(opened, radeons, strict=True):
        card.close()
        assert radeon.violations == []


def picture(card, program):
    with card.alloc(1 << 16) as out:
        stream = card.compute.stream()
        stream.dispatch(program, 64, BLOCK, [out, *ARGUMENTS])
        card.copy.wait_for(card.compute.submit(stream))
        return card.copy.download_array(out, np.uint32, 1 << 14)


def test_two_cards_work_side_by_side_and_wait_for_each_other(cards):
    first, second = cards
    assert np.array_equal(*(picture(card, card.load(compile_for(card.info.target))) for card in cards))
    with first.alloc(4096) as here, second.alloc(4096) as there:
        second.copy.wait_for(first.copy.fill(here, 7))  # the host waits: the cards share no addresses
        second.copy.upload(there, first.copy.download(here))
        assert second.copy.download(there) == b"\7\0\0\0" * 1024


def test_a_program_runs_where_it_was_loaded_and_not_when_it_was_freed(cards):
    first, second = cards
    program = first.load(compile_for("gfx1100"))
    stream = second.compute.stream()
    with (
        second.alloc(1 << 16) as out,
        pytest.raises(ValueError, match="mandelbrot was loaded on another card: load it on virtual:navi31 too"),
    ):
        stream.dispatch(program, 64, BLOCK, [out, *ARGUMENTS])
    picture(first, program)
    program.free()
    program.free()
    with pytest.raises(ValueError, match="mandelbrot was freed: load the program again"):
        picture(first, program)


def test_a_queue_may_be_closed_while_another_waits_for_it(cards):
    card = cards[0]
    for _ in range(5):
        queue = card.new_compute_queue()
        stream = queue.stream()
        stream.append(stream.pm4.nop(64))
        point = queue.submit(stream)
        later = card.compute.stream()
        later.wait_for(point)
        done = card.compute.submit(later)
        queue.close()
        done.wait(1)
        assert point.done


def test_a_queue_whose_work_never_ends_is_closed_and_lets_go_who_waited_for_it(cards):
    card = cards[0]
    queue = card.new_compute_queue()
    endless = queue.stream()
    endless.append(endless.pm4.wait_mem(queue.memory.page.gpu_va + 512, 1))  # nobody ever writes there
    point = queue.submit(endless)
    later = card.compute.stream()
    later.wait_for(point)
    done = card.compute.submit(later)
    assert queue.close() is False
    done.wait(1)
    with pytest.raises(ValueError, match="compute 1 was closed"):
        point.wait(1)
