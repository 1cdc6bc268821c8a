"""The driver on a card whose caches can be stale. Results are right as the driver is; where a packet lacks a bit, they
are wrong and a note says why.
"""

import struct
from dataclasses import replace

import numpy as np
import pytest

import ringup
from ringup.queues.amd.aql import Order
from ringup.silicon import card as virtual
from ringup.silicon.amd.gc.cp import pm4_sync
from ringup.silicon.amd.sdma import packets as sdma_packets

SOURCE = """
__kernel void plus_one(__global uint *out, __global const uint *in) {
  uint x = __builtin_amdgcn_workitem_id_x(); out[x] = in[x] + in[0] + 1;
}
"""
FIRST, SECOND = np.arange(64, dtype=np.uint32), np.arange(1000, 1064, dtype=np.uint32)


TARGETS = {"navi31": "gfx1100", "navi48": "gfx1201"}


@pytest.fixture
def up(request, opencl):
    """A card with caches and the kernel above: (virtual card, card, program). navi31 unless a test names another."""
    chip = getattr(request, "param", "navi31")
    radeon = virtual(chip, vram_bytes=1 << 30, caches=True)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        yield radeon, card, card.load(opencl(SOURCE, TARGETS[chip]))
    assert radeon.violations == []


def run(card, program, out, source):
    stream = card.compute.stream()
    stream.dispatch(program["plus_one"], 1, 64, [out, source])
    return card.compute.submit(stream)


def compute(card, program, out, source, data, queue=None):
    """Upload, launch, download."""
    queue = queue or card.compute
    done = card.copy.upload(source, data.tobytes())
    stream = queue.stream()
    stream.wait_for(done)
    stream.dispatch(program["plus_one"], 1, 64, [out, source])
    card.copy.wait_for(queue.submit(stream))
    return np.frombuffer(card.copy.download(out)[:256], np.uint32)


def wanted(data):
    return data + data[0] + 1


def stale(radeon):
    return [event.text for event in radeon.log.find("stale", "gl")]


def mutate(patch, *, acquire=None, release=None):
    """Remove bits from packets, also from those of copy engines. A stream makes these packets once, when a card comes
    up.
    """
    asked = pm4_sync.from_gcr

    def fewer(bits, **kind):
        return replace(asked(bits, **kind), **(acquire if kind else release) or {})

    for module in (pm4_sync, sdma_packets):
        patch.setattr(module, "from_gcr", fewer)
    # The driver caches the words of a release. Here it computes them each time.
    patch.setattr(pm4_sync, "_release", pm4_sync._release.__wrapped__)


@pytest.mark.parametrize("up", TARGETS, indirect=True)
@pytest.mark.parametrize("kind", ["compute", "aql"])
def test_copies_and_kernels_in_turn_are_right_and_nothing_is_stale(up, kind):
    radeon, card, program = up
    queue = getattr(card, kind)
    with card.alloc(4096) as source, card.alloc(4096) as out:
        for data in (FIRST, SECOND, FIRST * 3):
            assert compute(card, program, out, source, data, queue).tolist() == wanted(data).tolist()
    assert stale(radeon) == []


@pytest.mark.parametrize("kind", ["compute", "aql"])
def test_dependent_dispatches_of_two_queues_are_right(up, kind):
    radeon, card, program = up
    queue = getattr(card, kind)
    with card.alloc(4096) as source, card.alloc(4096) as middle, card.alloc(4096) as out:
        for data in (FIRST, SECOND):
            done = card.copy.upload(source, data.tobytes())
            stream = queue.stream()
            stream.wait_for(done)
            stream.dispatch(program["plus_one"], 1, 64, [middle, source])
            stream.barrier()
            stream.dispatch(program["plus_one"], 1, 64, [out, middle])
            card.copy.wait_for(queue.submit(stream))
            found = np.frombuffer(card.copy.download(out)[:256], np.uint32)
            assert found.tolist() == wanted(wanted(data)).tolist()
    assert stale(radeon) == []


def test_kernels_behind_signals_of_another_queue_see_what_it_stored(up):
    radeon, card, program = up
    first, second = card.aql, card.new_aql_queue()
    with card.alloc(4096) as source, card.alloc(4096) as middle, card.alloc(4096) as out:
        for data in (FIRST, SECOND):
            ready, done = card.signal(1), card.signal(1)
            waiting = second.stream()
            waiting.barrier_and(ready)
            waiting.dispatch(program["plus_one"], 1, 64, [out, middle], completion=done)
            second.submit(waiting)
            stream = first.stream()
            stream.wait_for(card.copy.upload(source, data.tobytes()))
            stream.dispatch(program["plus_one"], 1, 64, [middle, source], completion=ready)
            first.submit(stream)
            done.wait()
            at = radeon.gfxhub.piece(8, out.gpu_va, False).address
            assert struct.unpack("<64I", radeon.vram.read(at, 256)) == tuple(wanted(wanted(data)))
    assert stale(radeon) == []


def test_a_dispatch_of_an_hsa_queue_sees_a_store_behind_a_barrier_and_not_without_an_acquire(up):
    radeon, card, program = up
    with card.alloc(4096) as source, card.alloc(3 * 4096) as out:
        card.copy.upload(source, FIRST.tobytes()).wait()
        stream = card.aql.stream()
        stream.dispatch(program["plus_one"], 1, 64, [out, source])
        stream.store(source.gpu_va, 500)
        stream.dispatch(program["plus_one"], 1, 64, [out.gpu_va + 4096, source], order=Order(barrier=True))
        stream.barrier()
        # a packet of PM4 has no fences, so the barrier's are those of the packet behind it
        stream.store(out.gpu_va + 4092, 0)
        stream.dispatch(program["plus_one"], 1, 64, [out.gpu_va + 8192, source])
        card.copy.wait_for(card.aql.submit(stream))
        found = np.frombuffer(card.copy.download(out), np.uint32).reshape(3, 1024)[:, :64]
    assert found[0].tolist() == found[1].tolist() == wanted(FIRST).tolist()
    assert found[2].tolist() == [1001, *(FIRST[1:] + 501)]
    assert stale(radeon)


@pytest.mark.parametrize("less", [{"scalar": False}, {"gl0": False}, {"gl1": False}])
def test_a_kernel_after_a_copy_reads_old_bytes_without_its_acquire(up, monkeypatch, less):
    radeon, card, program = up
    with card.alloc(4096) as source, card.alloc(4096) as out:
        mutate(monkeypatch, acquire=less, release=less)
        assert compute(card, program, out, source, FIRST).tolist() == wanted(FIRST).tolist()
        assert compute(card, program, out, source, SECOND).tolist() == wanted(FIRST).tolist()
        assert any(f"line {source.gpu_va:#x}: a stale copy" in text and "SDMA" in text for text in stale(radeon))


@pytest.mark.parametrize("up", ["navi48"], indirect=True)
@pytest.mark.parametrize(
    ("less", "seen"),
    [("scalar", SECOND + FIRST[0] + 1), ("gl0", FIRST + SECOND[0] + 1), ("gl1", wanted(SECOND))],
)
def test_scalars_and_vectors_of_rdna4_have_a_cache_each_and_no_third_one(up, monkeypatch, less, seen):
    """The kernel reads `in[0]` by the scalar unit."""
    _, card, program = up
    with card.alloc(4096) as source, card.alloc(4096) as out:
        mutate(monkeypatch, acquire={less: False}, release={less: False})
        assert compute(card, program, out, source, FIRST).tolist() == wanted(FIRST).tolist()
        assert compute(card, program, out, source, SECOND).tolist() == seen.tolist()


def test_host_stores_through_the_window_stay_behind_the_second_level_without_an_invalidation(up, monkeypatch):
    radeon, card, program = up
    with card.alloc(4096) as source, card.alloc(4096) as out:
        mutate(monkeypatch, acquire={"second_invalidate": False})
        compute(card, program, out, source, FIRST)
        at = radeon.gfxhub.piece(8, source.gpu_va, False).address
        radeon.vram.write(at, SECOND.tobytes())
        card.copy.wait_for(run(card, program, out, source))
        assert np.frombuffer(card.copy.download(out)[:256], np.uint32).tolist() == wanted(FIRST).tolist()
        monkeypatch.undo()
        card.copy.wait_for(run(card, program, out, source))
        assert np.frombuffer(card.copy.download(out)[:256], np.uint32).tolist() == wanted(SECOND).tolist()


def test_results_are_the_hosts_after_the_release_and_not_without(up, monkeypatch):
    radeon, card, program = up
    with card.alloc(4096) as source, card.alloc(4096) as out:
        compute(card, program, out, source, FIRST)
        at = radeon.gfxhub.piece(8, out.gpu_va, False).address
        assert struct.unpack("<64I", radeon.vram.read(at, 256)) == tuple(wanted(FIRST))
        card.copy.upload(source, SECOND.tobytes()).wait()
        with monkeypatch.context() as patched:
            mutate(patched, release={"second_writeback": False})
            run(card, program, out, source).wait()
            assert struct.unpack("<64I", radeon.vram.read(at, 256)) == tuple(wanted(FIRST))
        run(card, program, out, source).wait()
        assert struct.unpack("<64I", radeon.vram.read(at, 256)) == tuple(wanted(SECOND))


@pytest.mark.parametrize("kind", ["compute", "aql"])
def test_code_that_was_overwritten_runs_as_it_was_without_its_invalidation(up, monkeypatch, opencl, kind):
    """The copy engine writes another kernel over one that has run."""
    radeon, card, program = up
    queue = getattr(card, kind)
    other = card.load(opencl(SOURCE.replace("+ 1;", "+ 2;"), "gfx1100"))
    mutate(monkeypatch, acquire={"instructions": False})
    with card.alloc(4096) as source, card.alloc(4096) as out:
        assert compute(card, program, out, source, FIRST, queue).tolist() == wanted(FIRST).tolist()
        kernels = [one["plus_one"] for one in (program, other)]
        old, new = (radeon.gfxhub.piece(8, one.entry_va, False).address for one in kernels)
        radeon.board.caches.write(old, radeon.vram.read(new, 256), "SDMA0")
        assert compute(card, program, out, source, FIRST, queue).tolist() == wanted(FIRST).tolist()
        assert any("from I$;" in text for text in stale(radeon))
        monkeypatch.undo()
        assert compute(card, program, out, source, FIRST, queue).tolist() == (wanted(FIRST) + 1).tolist()
