"""Bare cards as users open them: ringup starts GSP-RM, and memory, channels and queues are its own."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from nvidia_code import sass_programs

import ringup
from ringup.drivers.card import Card
from ringup.drivers.nv.card import GspCard
from ringup.errors import NotSupported, OutOfMemory

COMPUTING = ("tu102", "ga100", "ga102", "ad102")
CHIPS = (*COMPUTING, "gh100", "gb202")
# by chip: the target of its code, copy engines beside the graphics engine (the model's)
TARGETS = {"tu102": "sm_75", "ga100": "sm_80", "ga102": "sm_86", "ad102": "sm_89", "gh100": "sm_90", "gb202": "sm_120"}
COMMAND, MASTER = 4, 4  # the command register, and its bit for bus mastering
MIB = 1 << 20


def program(card):
    """Load the kernels of `sass_programs`."""
    return card.load(sass_programs.cubin(card.target), "sass_programs")


def launch(card, kernel, grid, block, args):
    stream = card.compute.stream()
    stream.dispatch(kernel, grid, block, args)
    return card.compute.submit(stream)


@pytest.mark.parametrize("chip", CHIPS)
def test_it_is_a_card_that_says_what_it_is_and_moves_bytes(bare, chip):
    card = bare(chip)
    assert {name for name in dir(Card) if not name.startswith("_")} <= set(dir(card))
    info = card.info
    assert (info.chip, info.target) == (chip, TARGETS[chip])
    assert info.pci_id.startswith("10de:")
    assert info.vram_bytes == card.device.chip.vram_bytes
    assert info.window_bytes == card.device.bars[2 if chip == "gh100" else 1].size_bytes == 256 * MIB
    assert info.compute_units >= 48
    assert len(bytes.fromhex(info.gid)) == 16
    assert info.found.startswith("cold")
    assert not any(stage.error for stage in card.stages)
    data = bytes(range(251)) * 100
    near, far = card.alloc(len(data), visible=True), card.alloc(len(data))
    # a queue of every copy engine
    assert len(card.copies) == info.copy_engines >= 3
    # the model's window is no plain memory, and there is no view of it
    card.memory.access(near).write(0, data)
    for queue in card.copies:
        queue.copy_buffer(far, near).wait()
        assert queue.download(far) == data
        queue.fill(far, 0).wait()
    # engines wake the process
    assert card.stats().interrupts
    # a report and statistics are of their moment
    before = card.report(), card.stats()
    with card.alloc(4096):
        for told, now in zip(before, (card.report(), card.stats()), strict=True):
            assert now.memory["vram"].buffers == told.memory["vram"].buffers + 1
    assert card.gpu_clock() < card.gpu_clock()
    model = card.device
    card.close()
    card.close()
    assert not model.config.read(COMMAND, 2) & MASTER
    assert bare(chip, model=model).info.found.startswith("cold")


@pytest.mark.parametrize("chip", COMPUTING)
def test_kernels_compute(bare, chip):
    card = bare(chip)
    kernels, n = program(card), 1000
    ours, theirs = (np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32) for seed in (1, 2))
    a, b, c = (card.alloc(4 * n) for _ in range(3))
    card.copy.upload(a, ours)
    card.compute.wait_for(card.copy.upload(b, theirs))
    launch(card, kernels["add"], 8, 128, [a, b, c, n]).wait()
    assert (card.copy.download_array(c, "u4", n) == ours + theirs).all()
    launch(card, kernels["reverse"], 1, 128, [a]).wait()
    assert (card.copy.download_array(a, "u4", 128) == ours[:128][::-1]).all()
    card.copy.fill(b, 0, 0, 4).wait()
    launch(card, kernels["counts"], (5, 3), (32, 2, 2), [b]).wait()
    assert card.copy.download_array(b, "u4", 1)[0] == 15 * 128
    launch(card, kernels["local"], 1, 128, [c, 63]).wait()
    assert (card.copy.download_array(c, "u4", 128) == np.arange(128) + 1000).all()


@pytest.mark.parametrize("chip", ["tu102", "ga102"])
def test_the_other_release_of_the_firmware_does_the_same(bare, chip):
    card = bare(chip, release="570.144")
    assert card.info.firmware == {"gsp": "570.144"}
    cell = card.alloc(4096)
    card.copy.fill(cell, 0).wait()
    launch(card, program(card)["counts"], 3, 32, [cell]).wait()
    assert card.copy.download_array(cell, "u4", 1)[0] == 96


def test_a_name_opens_it():
    with ringup.open("virtual:ga102", kind=GspCard) as card:
        assert card.copy.download(card.alloc(64, "host")) == bytes(64)


def test_two_cards_work_at_the_same_time(bare):
    one, other = bare("ga102"), bare("ad102")
    cells = [card.alloc(4096) for card in (one, other)]
    points = [card.copy.fill(cell, 7 + at) for at, (card, cell) in enumerate(zip((one, other), cells, strict=True))]
    for point in points:
        point.wait()
    assert one.copy.download(cells[0], None, 0, 4) == b"\7\0\0\0"
    assert other.copy.download(cells[1], None, 0, 4) == b"\x08\0\0\0"


@pytest.mark.parametrize("chip", ["ga102", "gh100"])
def test_memory_of_all_kinds_is_the_cards_and_the_cpus(bare, chip):
    card = bare(chip)
    for where, visible in (("vram", True), ("host", False)):
        buffer = card.alloc(10_000, where, visible=visible)
        seen = card.memory.access(buffer)
        seen.write(0, bytes(range(250)) * 40)
        assert card.copy.download(buffer) == bytes(range(250)) * 40
        card.copy.fill(buffer, 0x01020304, 0, 8).wait()
        assert bytes(seen[:9]) == b"\x04\x03\x02\x01" * 2 + b"\x08"
        buffer.free()
    # beyond the window, and of large pages
    far = card.alloc(5 * MIB)
    assert far.view is None
    card.copy.fill(far, 0x55667788).wait()
    assert card.copy.download(far) == b"\x88\x77\x66\x55" * (5 * MIB // 4)
    assert bytes(card.memory.access(far)[3:9]) == b"\x55\x88\x77\x66\x55\x88"


def test_the_callers_memory_is_reached_where_it_is(bare):
    card = bare()
    with mmap.mmap(-1, 8192) as mine:
        pinned = card.pin(mine)
        card.copy.fill(pinned, 0xAABBCCDD, 4096, 8).wait()
        assert mine[4092:4106] == bytes(4) + b"\xdd\xcc\xbb\xaa" * 2 + bytes(2)
        mine[:4] = b"mine"
        assert card.copy.download(pinned, None, 0, 4) == b"mine"
        pinned.free()
    with pytest.raises(ValueError, match="contiguous"):
        card.pin(memoryview(bytearray(64))[::2])


def test_memory_comes_back(bare):
    card = bare()

    def use():
        for size in (1, 4096, 100_000, 5 * MIB):
            for where in ("vram", "host"):
                card.alloc(size, where, visible=True).free()

    use()
    before = card.stats().memory
    for _ in range(10):
        use()
    card.new_compute_queue().close()
    card.new_copy_queue(1).close()
    after = card.stats().memory
    assert after["vram"].free_bytes == before["vram"].free_bytes
    assert after["host"].used_bytes == before["host"].used_bytes


def test_more_memory_than_there_is_and_more_than_the_window_shows_are_refused(bare):
    card = bare()
    with pytest.raises(OutOfMemory, match=r"1024 GiB asked for giant"):
        card.alloc(1 << 40, name="giant")
    with pytest.raises(OutOfMemory, match=r"VRAM in the CPU window: 300 MiB asked for seen"):
        card.alloc(300 * MIB, visible=True, name="seen")
    card.alloc(300 * MIB, name="unseen").free()


def test_rings_and_entries_wrap(bare):
    card, total = bare(), 8_500
    queue, buffer = card.copy, card.alloc(4096)
    for number in range(total):
        stream = queue.stream()
        if number % 7 == 0:
            stream.store(buffer.gpu_va + 4 * (number % 1024), number)
        queue.submit(stream)
    queue.idle()
    assert queue.timeline.completed == queue.timeline.last >= total
    last = max(number for number in range(total) if number % 7 == 0)
    assert card.copy.download_array(buffer, "u4", 1024)[last % 1024] == last


def test_queues_wait_for_each_other_and_more_are_made(bare):
    card = bare()
    kernel, cell = program(card)["counts"], card.alloc(4096)
    extra = [card.new_compute_queue(), card.new_compute_queue()]
    assert [queue.name for queue in extra] == ["compute.1", "compute.2"]
    point = card.copy.fill(cell, 0)
    for queue in (card.compute, *extra):
        queue.wait_for(point)
        stream = queue.stream()
        stream.dispatch(kernel, 1, 32, [cell])
        point = queue.submit(stream)
    card.copy.wait_for(point)
    assert card.copy.download_array(cell, "u4", 1)[0] == 96
    with pytest.raises(ValueError, match="copy engines 0 to 2, not 3"):
        card.new_copy_queue(3)


def test_freed_memory_is_a_fault_not_anothers(bare):
    card = bare()
    buffer = card.alloc(4096, name="gone")
    gpu_va = buffer.gpu_va
    card.copy.fill(buffer, 1).wait()
    buffer.free()
    stream = card.copy.stream()
    stream.store(gpu_va, 2)
    with pytest.raises(ringup.errors.DeviceFault, match="'gone', which was freed"):
        card.copy.submit(stream).wait(1)
    card.reset()


def test_it_takes_no_force_and_sets_no_limits(bare, virtual_card):
    with pytest.raises(NotSupported, match="by force"):
        ringup.drivers.select.start(virtual_card("ga102"), force=True)
    with pytest.raises(NotSupported, match="sets power and clocks by itself"):
        assert bare().limits


def test_bytes_in_vram_arrive_before_the_card_learns_of_work(bare):
    """A read of the window behind what was written there, and before GP_PUT: nothing passes it on the bus."""
    card = bare("ga102")
    buffer = card.alloc(4096, visible=True)
    window = card.memory._window
    card.memory.access(buffer).write(0, b"argument")
    assert window.is_dirty
    card.copy.submit(card.copy.stream())
    assert not window.is_dirty
    card.copy.idle()
