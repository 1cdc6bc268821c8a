"""A card through NVIDIA's kernel driver does what every card does: copies, launches, points, kept streams."""

import random

import numpy as np
import pytest
from nvidia_code.copies import copies_and_keeps_the_rest

import ringup
from ringup.drivers.card import Card
from ringup.errors import CompileError, NotSupported, OutOfMemory, WrongTarget
from ringup.queues.timeline import Point

TARGETS = {"tu102": "sm_75", "ga100": "sm_80", "ga102": "sm_86", "ad102": "sm_89"}
MIB = 1 << 20
# a release of each branch whose layouts differ, as the table of branches has them
RELEASES = ("535.261.03", "545.29.06", "550.163.01", "555.58.02", "560.35.03", "565.77", "570.195.03", "575.64.05")


def launch(card, kernel, grid, block, args):
    stream = card.compute.stream()
    stream.dispatch(kernel, grid, block, args)
    return card.compute.submit(stream)


def test_it_is_a_card_and_says_what_it_is(card):
    # not `isinstance`, which would ask for the limits
    assert {name for name in dir(Card) if not name.startswith("_")} <= set(dir(card))
    info = card.info
    assert info.target == TARGETS[info.chip]
    assert info.name == card.name == f"virtual:{info.chip}@nvidia"
    assert info.pci_id.startswith("10de:")
    assert info.vram_bytes >= 16 << 30
    assert info.compute_units >= 48
    assert len(bytes.fromhex(info.gid)) == 16
    assert info.versions["nvidia"] == "535.261.03"
    assert [stage.error for stage in card.stages] == [""] * 3


@pytest.mark.parametrize("release", RELEASES)
def test_every_branch_of_the_driver_is_spoken_to_in_its_layouts(opened, program, release):
    card = opened("ga102", release=release)
    assert card.info.versions == {"nvidia": release, "layouts": release}
    words = np.arange(128, dtype=np.uint32)
    with card.alloc(512) as buffer:
        card.copy.upload(buffer, words).wait()
        launch(card, program(card)["reverse"], 1, 128, [buffer]).wait()
        assert (card.copy.download_array(buffer, "u4", 128) == words[::-1]).all()


def test_kernels_compute(card, program):
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
    # each thread has local memory of its own, at every place of it
    for at in (0, 7, 63):
        launch(card, kernels["local"], 1, 128, [c, at]).wait()
        assert (card.copy.download_array(c, "u4", 128) == np.arange(128) + 1000).all()


@pytest.mark.parametrize("size", [1, 3, 4, 255, 4096, 4097, 65535, MIB + 13])
def test_copies_move_every_byte_and_no_other(ga102, size):
    copies_and_keeps_the_rest(ga102, size)


@pytest.mark.parametrize(("target_at", "source_at"), [(0, 100), (100, 0), (4096, 4000), (4000, 4096)])
def test_overlapping_copies_are_right(ga102, target_at, source_at):
    data = random.Random(target_at).randbytes(8192)
    with ga102.alloc(16384) as buffer:
        ga102.copy.upload(buffer, data, source_at)
        ga102.copy.copy_buffer(buffer, buffer, 8192, target_offset=target_at, source_offset=source_at).wait()
        assert ga102.copy.download(buffer, None, target_at, 8192) == data


def test_rectangles_are_copied(ga102):
    plane = np.random.default_rng(3).integers(0, 255, (50, 300), dtype=np.uint8)
    with ga102.alloc(plane.nbytes) as source, ga102.alloc(64 * 256) as target:
        ga102.copy.upload(source, plane)
        ga102.copy.copy_rect(target, 256, source, 300, 201, 40, target_offset=3, source_offset=5).wait()
        seen = np.frombuffer(ga102.copy.download(target), np.uint8).reshape(64, 256)
        assert (seen[:40, 3:204] == plane[:40, 5:206]).all()


def test_memory_of_all_kinds_is_the_cards_and_the_cpus(ga102):
    for where, visible in (("vram", True), ("host", False)):
        buffer = ga102.alloc(10_000, where, visible=visible)
        buffer.view[:] = bytes(range(250)) * 40
        assert ga102.copy.download(buffer) == bytes(range(250)) * 40
        ga102.copy.fill(buffer, 0x01020304, 0, 8).wait()
        assert bytes(buffer.view[:9]) == b"\x04\x03\x02\x01" * 2 + b"\x08"
        buffer.free()
    assert ga102.alloc(4096).view is None
    # the caller's own memory, which begins inside a page
    mine = bytearray(20_000)
    pinned = ga102.pin(memoryview(mine)[100:-100])
    ga102.copy.fill(pinned, 0xAABBCCDD, 0, 400).wait()
    assert mine[:104] == bytes(100) + b"\xdd\xcc\xbb\xaa"
    pinned.free()
    mine.append(0)


def test_memory_comes_back(ga102):
    def use():
        for size in (1, 4096, 100_000, 5 * MIB):
            for where in ("vram", "host"):
                ga102.alloc(size, where, visible=True).free()

    # the driver keeps page tables that it has once made
    use()
    before = ga102.stats().memory["vram"].free_bytes
    for _ in range(25):
        use()
    after = ga102.stats().memory
    assert after["vram"].free_bytes == before
    assert after["vram"].buffers == 0


def test_too_much_memory_is_refused_with_what_there_is(ga102):
    with pytest.raises(
        OutOfMemory, match=r"allocating 1099511627776 bytes of vram \(giant\).*of 25769803776 bytes of VRAM"
    ):
        ga102.alloc(1 << 40, name="giant")
    ga102.alloc(4096).free()


def test_rings_and_entries_wrap(ga102):
    queue, total = ga102.copy, 20_000
    buffer = ga102.alloc(4096)
    for number in range(total):
        stream = queue.stream()
        if number % 7 == 0:
            stream.store(buffer.gpu_va + 4 * (number % 1024), number)
        queue.submit(stream)
    queue.idle()
    assert queue.timeline.completed == queue.timeline.last >= total
    last = max(number for number in range(total) if number % 7 == 0)
    assert ga102.copy.download_array(buffer, "u4", 1024)[last % 1024] == last


def test_kept_streams_are_patched_and_run_again(ga102, program):
    kernel = program(ga102)["add"]
    a, b, c, d = (ga102.alloc(512) for _ in range(4))
    ga102.copy.upload(a, np.arange(128, dtype=np.uint32))
    ga102.copy.upload(b, np.full(128, 1000, np.uint32)).wait()
    stream = ga102.compute.stream()
    at = stream.dispatch(kernel, 1, 128, [a, b, c, 128])
    kept = ga102.compute.keep(stream)
    for target in (c, d, c):
        kept.patch_args(at + kernel.arg_offset(2), target.gpu_va.to_bytes(8, "little"))
        ga102.copy.fill(target, 0).wait()
        kept.submit().wait()
        assert (ga102.copy.download_array(target, "u4", 128) == np.arange(128) + 1000).all()
    # many in flight at once
    kept.patch_args(at + kernel.arg_offset(2), a.gpu_va.to_bytes(8, "little"))
    for _ in range(500):
        kept.submit()
    ga102.compute.idle()
    assert (ga102.copy.download_array(a, "u4", 128) == np.arange(128) + 500 * 1000).all()
    kept.free()


def test_queues_wait_for_each_other_both_ways(ga102, program):
    kernel, rounds = program(ga102)["add"], 20
    a, b = ga102.alloc(512), ga102.alloc(512)
    ga102.copy.fill(a, 0)
    done = ga102.copy.fill(b, 1)
    for _ in range(rounds):
        stream = ga102.compute.stream()
        stream.wait_for(done)
        stream.dispatch(kernel, 1, 128, [a, b, a, 128])
        summed = ga102.compute.submit(stream)
        stream = ga102.copies[1].stream()
        stream.wait_for(summed)
        stream.copy(b.gpu_va, a.gpu_va, 512)
        done = ga102.copies[1].submit(stream)
    done.wait()
    assert (ga102.copy.download_array(a, "u4", 128) == 2 ** (rounds - 1)).all()


def test_more_queues_than_one_of_each_engine(ga102, program):
    kernel = program(ga102)["counts"]
    queues = [ga102.compute, ga102.new_compute_queue(), ga102.new_compute_queue()]
    assert len({queue.name for queue in queues}) == 3
    cell = ga102.alloc(4096)
    ga102.copy.fill(cell, 0, 0, 4).wait()
    for queue in queues:
        stream = queue.stream()
        stream.dispatch(kernel, 4, 32, [cell])
        queue.submit(stream)
    for queue in queues:
        queue.idle()
    assert ga102.copy.download_array(cell, "u4", 1)[0] == 3 * 128
    assert len(ga102.copies) == ga102.info.copy_engines == 3
    queues[1].close()
    with pytest.raises(ValueError, match="was closed"):
        queues[1].submit(queues[1].stream())
    assert len(ga102.queues) == 5


def test_a_profile_times_launches_and_copies(ga102, program):
    kernel = program(ga102)["counts"]
    cell = ga102.alloc(MIB)
    with ga102.profile() as profile:
        ga102.copy.fill(cell, 0)
        ga102.copy.idle()
        launch(ga102, kernel, 4, 32, [cell])
    names = [span.name for span in profile.spans()]
    assert "counts" in names
    assert all(profile.duration_us(span) >= 0 for span in profile.spans())
    assert profile.trace()


def test_programs_of_others_are_refused(ga102, program):
    from nvidia_code import sass_programs

    with pytest.raises(WrongTarget, match="sm_89"):
        ga102.load(sass_programs.cubin("sm_89"))
    with pytest.raises(CompileError):
        ga102.load(sass_programs.cubin("sm_86")[:500])
    with pytest.raises(TypeError, match="cubin"):
        ga102.load("add.cubin")
    kernels = program(ga102)
    assert ga102.stats().memory["vram"].buffers == 1
    kernels.free()
    assert ga102.stats().memory["vram"].buffers == 0


def test_it_takes_no_firmware_no_force_and_sets_no_limits(ga102):
    with pytest.raises(NotSupported, match="nvidia-smi"):
        _ = ga102.limits
    for options in ({"firmware": "folder"}, {"force": True}):
        with pytest.raises(NotSupported):
            ringup.open("virtual:ga102@nvidia", **options)


def test_closing_twice_is_harmless_and_ends_all_use(ga102):
    buffer = ga102.alloc(4096)
    ga102.close()
    ga102.close()
    assert ga102.is_closed
    with pytest.raises(ValueError, match="was closed"):
        ga102.alloc(4096)
    with pytest.raises(ValueError, match="its gpu_va is gone"):
        _ = buffer.gpu_va
    assert "the card was closed" in str(ga102.report())


def test_a_point_counts_64_bits(ga102):
    queue = ga102.copy
    queue.idle()
    # the word in memory and the count go on from just below 2**32
    queue.timeline.skip_to((1 << 32) - 3)
    queue.store_timeline()
    points = [queue.submit(queue.stream()) for _ in range(6)]
    points[-1].wait()
    assert [point.value for point in points] == list(range((1 << 32) - 2, (1 << 32) + 4))
    stream = ga102.compute.stream()
    stream.wait_for(Point(queue.timeline, points[-1].value))
    ga102.compute.submit(stream).wait()
