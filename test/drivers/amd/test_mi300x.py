"""A virtual MI300X by the bare driver: queues of both kinds on all eight dies, every copy engine, a cold and a warm
start, each rung of resets. The firmware files are the published ones.
"""

import numpy as np
import pytest

import ringup
from ringup.errors import WrongTarget
from ringup.silicon import card as virtual

WORDS = (7, 8)


@pytest.fixture(scope="module")
def opened(sources):
    folder = sources.root("firmware-amd") / "lib/firmware"
    shared = virtual("mi300x")
    return lambda radeon=shared: ringup.open(radeon.name, transport={"card": radeon}, firmware=folder)


def works(card):
    """Tell whether what a compute queue stores on one die, and an HSA queue behind it, comes back through each copy
    engine, and both queues stamp the time.
    """
    with card.alloc(4096) as buffer:
        card.copy.fill(buffer, 0).wait()
        stream = card.compute.stream()
        stream.store(buffer.gpu_va, *WORDS)
        stream.barrier()
        stream.stamp(buffer.gpu_va + 64)
        stored = card.compute.submit(stream)
        behind = card.aql.stream()
        behind.wait_for(stored)
        behind.barrier_and()
        behind.stamp(buffer.gpu_va + 72)
        card.aql.submit(behind).wait()
        data = card.copy.download(buffer)
        first, second = (int.from_bytes(data[at : at + 8], "little") for at in (64, 72))
        return data[:8] == b"\7\0\0\0\10\0\0\0" and 0 < first <= second <= card.gpu_clock()


def test_it_starts_cold_and_warm_and_comes_back_from_every_reset(opened):
    with opened() as card:
        assert (card.info.chip, card.info.target, card.info.found) == ("mi300x", "gfx942", "cold")
        # of one die: the white paper of CDNA 3
        assert (card.info.compute_units, card.info.l2_bytes) == (304, 4 << 20)
        assert len(card.blocks.cores) == 8
        assert works(card)
        for engine in range(16):
            queue = card.copy if engine == 0 else card.new_copy_queue(engine)
            with card.alloc(4096) as buffer:
                queue.fill(buffer, 0x1234_0000 + engine).wait()
                assert queue.download(buffer)[:4] == (0x1234_0000 + engine).to_bytes(4, "little")
        assert card.stats().metrics.power_w > 0
        for rung in ("queue", "engine", "mode1"):
            assert [one.name for one in card.reset(rung) if not one.error] == [rung]
            assert works(card)
    with opened() as card:
        assert card.info.found == "clean"
        assert works(card)


KERNELS = """
#define X __builtin_amdgcn_workitem_id_x()
#define GX __builtin_amdgcn_workgroup_id_x()
__kernel void add(__global uint *o, uint value) { o[GX * 64 + X] += value + GX; }
__kernel void stack(__global uint *o, uint n) {
  uint a[64], s = 0;
  for (uint i = 0; i < 64; i++) a[i] = i * n + GX;
  for (uint i = 0; i < n; i++) s += a[(i * 37 + X) & 63];
  o[GX * 64 + X] += s;
}
"""
GROUPS, LANES, TERMS = 20, 64, 16


@pytest.mark.parametrize("kind", ["compute", "aql"])
def test_the_dies_share_a_kernel_and_each_has_scratch_memory(opened, opencl, kind):
    radeon = virtual("mi300x")
    group, lane = np.divmod(np.arange(GROUPS * LANES, dtype=np.uint32), LANES)
    terms = ((np.arange(TERMS)[:, None] * 37 + lane) & 63) * TERMS + group
    with opened(radeon) as card, card.alloc(4 * GROUPS * LANES) as out:
        # What HIP's compiler is told for this card (rocminfo, "ISA 1"), and what the card is not.
        with pytest.raises(WrongTarget, match=r"built with xnack on, this chip has it off: compile it for gfx942:sra"):
            card.load(opencl(KERNELS, "gfx942:xnack+"))
        programs = card.load(opencl(KERNELS, "gfx942:sramecc+:xnack-"))
        card.copy.fill(out, 0).wait()
        queue = getattr(card, kind)
        stream = queue.stream()
        stream.dispatch(programs["add"], GROUPS, LANES, [out, 5])
        stream.barrier()
        stream.dispatch(programs["stack"], GROUPS, LANES, [out, TERMS])
        queue.submit(stream).wait()
        assert np.array_equal(card.copy.download_array(out, np.uint32, GROUPS * LANES), 5 + group + terms.sum(0))
    assert all(core.busy_ns for core in radeon.cores)
    assert not radeon.violations
