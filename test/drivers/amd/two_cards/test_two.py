"""Two cards in one process, and queues that open and close while others work."""

import numpy as np
import pytest

import ringup
from ringup.silicon import card as virtual
from ringup.tools.demo.kernels import BLOCK, compile_for

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
        # The host waits, because the cards share no addresses.
        second.copy.wait_for(first.copy.fill(here, 7))
        second.copy.upload(there, first.copy.download(here))
        assert second.copy.download(there) == b"\7\0\0\0" * 1024


def test_a_copy_queue_takes_no_buffer_of_another_card(cards):
    first, second = cards
    with first.alloc(4096) as here, second.alloc(4096) as there:
        first.copy.fill(here, 7).wait()
        second.copy.fill(there, 5).wait()
        for copy in (
            lambda: first.copy.upload(there, bytes(4096)),
            lambda: first.copy.fill(there, 0),
            lambda: first.copy.copy_buffer(there, here),
            lambda: first.copy.copy_rect(here, 64, there, 64, 64, 64),
            lambda: first.copy.download(there),
        ):
            with pytest.raises(ValueError, match=r"is another card's, not copy 0.0's"):
                copy()
        assert first.copy.download(here) == b"\7\0\0\0" * 1024
        assert second.copy.download(there) == b"\5\0\0\0" * 1024


def test_a_closed_object_is_named_in_the_error(cards):
    first, _ = cards
    queue = first.new_compute_queue()
    queue.close()
    with pytest.raises(ValueError, match="compute 1 was closed"):
        queue.stream()
    first.device.unplug()
    first.close()
    for begin in (first.compute.stream, first.copy.stream):
        with pytest.raises(ValueError, match=r"(compute 0|copy 0\.0) was closed"):
            begin()
    with pytest.raises(ValueError, match="virtual:navi31 was closed"), first:
        pass


def test_sizes_may_be_integers_of_any_type(cards):
    first, _ = cards
    program = first.load(compile_for(first.info.target))
    with first.alloc(np.int64(1 << 16)) as out:
        for grid in (64, np.int64(64), [64], (np.uint32(64), 1)):
            stream = first.compute.stream()
            stream.dispatch(program, grid, BLOCK, [out, *ARGUMENTS])
            stream.dispatch_items(program, [64 * BLOCK], np.int32(BLOCK), [out, *ARGUMENTS])
            first.compute.submit(stream).wait()
        for size in (4096.0, float("nan"), "4096", None):
            with pytest.raises(TypeError, match="a buffer has a whole number of bytes"):
                first.alloc(size)
            with pytest.raises(TypeError, match="the grid is one to three whole numbers"):
                first.compute.stream().dispatch(program, size, BLOCK, [out, *ARGUMENTS])
    with pytest.raises(TypeError, match="code is the bytes of an ELF file"):
        first.load("kernel.co")
    with pytest.raises(TypeError, match="a loaded program or one of its kernels is dispatched, not str"):
        first.compute.stream().dispatch("mandelbrot", 1, 1, [])


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


def test_a_queue_with_endless_work_is_closed_and_waiting_queues_continue(cards):
    card = cards[0]
    queue = card.new_compute_queue()
    endless = queue.stream()
    # Nobody ever writes there.
    endless.append(endless.pm4.wait_mem(queue.memory.page.gpu_va + 512, 1))
    point = queue.submit(endless)
    later = card.compute.stream()
    later.wait_for(point)
    done = card.compute.submit(later)
    assert queue.close() is False
    done.wait(1)
    with pytest.raises(ValueError, match="compute 1 was closed"):
        point.wait(1)
