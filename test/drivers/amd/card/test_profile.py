"""A profile of a virtual card: every dispatch and copy has a span, in order, inside the measured time."""

from itertools import pairwise

import numpy as np
import pytest

import ringup
from ringup.silicon import card as virtual
from ringup.tools.demo.kernels import BLOCK, compile_for


@pytest.mark.parametrize("chip", ["navi31", "navi33", "mi300x"])
def test_every_dispatch_and_copy_has_a_span_on_the_clock_of_the_host(tmp_path, chip):
    radeon = virtual(chip, vram_bytes=512 << 20)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        program = card.load(compile_for(card.info.target))
        out = card.alloc(1 << 16)
        began = card.device.clock.now_us
        with card.profile() as profile:
            stream = card.compute.stream()
            for _ in range(3):
                stream.dispatch(program, 64, BLOCK, [out, 256, 50, -2.2, -1.5, 0.01])
            card.copy.wait_for(card.compute.submit(stream))
            card.copy.fill(out, 7, 0, 4096)
            card.copy.download_array(out, np.uint32, 16)
        ended = card.device.clock.now_us
        spans = profile.spans()
        assert [span.name for span in spans] == ["mandelbrot"] * 3 + ["fill 4096", "copy 64"]
        assert {span.track for span in spans} == {"compute 0", "copy 0.0"}
        times = [
            (event.start_us, event.start_us + event.duration_us)
            for event in profile.trace().events
            if event.track.startswith("card/")
        ]
        assert all(began <= start <= end <= ended for start, end in times)
        assert all(before[1] <= after[0] for before, after in pairwise(times))
        assert all(profile.duration_us(span) > 0 for span in spans[:3])
        profile.save(tmp_path / "trace.pftrace")
        assert (tmp_path / "trace.pftrace").stat().st_size > 500
        stream = card.compute.stream()
        assert stream.around is None, "a profile that has ended stamps nothing"
    assert radeon.violations == []


def test_dispatches_of_an_hsa_queue_have_spans_that_lie_around_the_times_of_their_signals():
    with ringup.open("virtual:navi31", kind=ringup.Radeon) as card:
        program = card.load(compile_for(card.info.target))
        out, queue = card.alloc(1 << 16), card.aql
        signals = [card.signal(1) for _ in range(3)]
        with card.profile() as profile:
            stream = queue.stream()
            for signal in signals:
                stream.dispatch(program, 64, BLOCK, [out, 256, 50, -2.2, -1.5, 0.01], completion=signal)
            queue.submit(stream)
        spans = profile.spans()
        assert [(span.name, span.track) for span in spans] == [("mandelbrot", queue.name)] * 3
        for span, signal in zip(spans, signals, strict=True):
            assert span.begin_ticks <= signal.start_ticks < signal.end_ticks <= span.end_ticks
            assert signal.duration_us <= profile.duration_us(span)
        assert card.mistakes == []
        assert {one.name: (one.submitted, one.completed) for one in card.stats().queues}[queue.name] == (1, 1)
