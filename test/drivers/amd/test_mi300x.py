"""A virtual MI300X by the bare driver: queues of both kinds on all eight dies, every copy engine, a cold and a warm
start, each rung of resets. The firmware files are the published ones.
"""

import pytest

import ringup
from ringup.silicon import card as virtual

WORDS = (7, 8)


@pytest.fixture(scope="module")
def opened(sources):
    folder = sources.root("firmware-amd") / "lib/firmware"
    radeon = virtual("mi300x")
    return lambda: ringup.open(radeon.name, transport={"card": radeon}, firmware=folder)


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
