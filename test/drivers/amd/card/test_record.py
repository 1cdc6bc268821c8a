"""A whole session of the driver, recorded on a virtual card and replayed without one; also over a path that maps
nothing and polls VRAM.
"""

import numpy as np
import pytest
from far_path import Far

from ringup.drivers import select
from ringup.drivers.transport.recording.record import Recorder
from ringup.drivers.transport.recording.replay import Replay
from ringup.errors import TransportError


def session(card, seed=1):
    """Upload, run the compute queue and a kept stream, download; return the bytes that came out."""
    data = np.random.default_rng(seed).bytes(100_000)
    source, target = card.alloc(len(data)), card.alloc(len(data))
    stream = card.compute.stream()
    stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, len(data)))
    stream.wait_for(card.copy.upload(source, data))
    card.compute.submit(stream)
    kept = card.compute.keep(card.compute.stream())
    kept.submit()
    card.copy.wait_for(kept.submit())
    assert card.copy.download(target) == data
    kept.free()
    return data


@pytest.mark.parametrize("chip", ["navi31", "navi32", "navi33", "navi48", "mi300x"])
def test_a_session_is_recorded_and_replayed_to_its_end(virtual_card, tmp_path, chip):
    radeon = virtual_card(chip, vram_bytes=256 << 20)
    with Recorder(radeon, tmp_path / "session") as recorder, select.start(recorder) as card:
        stages = [stage.name for stage in card.stages]
        wanted = session(card)
    replay = Replay(tmp_path / "session")
    with select.start(replay) as card:
        assert [stage.name for stage in card.stages] == stages
        assert session(card) == wanted
    assert replay.left == 0


def test_the_first_difference_of_a_driver_is_named(virtual_card, tmp_path):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    with Recorder(radeon, tmp_path / "session") as recorder, select.start(recorder) as card:
        session(card)
    with pytest.raises(TransportError, match=r"access \d+"), select.start(Replay(tmp_path / "session")) as card:
        session(card, seed=2)


def test_rings_and_timelines_work_in_vram_over_a_path_that_maps_nothing(virtual_card):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    with select.start(Far(radeon)) as card:
        session(card)
        assert {queue.memory.ring.where for queue in card.queues} == {"vram"}
