"""Profiles: stamps around commands, spans from stamps, a trace on the host's time."""

import struct

import pytest

from ringup.queues.profile import Profile, Span
from ringup.queues.trace import Correlation


class Stream:
    """Records the calls that it receives."""

    def __init__(self):
        self.told = []

    def barrier(self):
        self.told.append("barrier")

    def stamp(self, gpu_va):
        self.told.append(gpu_va)


def test_a_command_is_stamped_before_and_after_until_places_run_out():
    profile, stream = Profile(0x1000, 2, lambda byte: 0), Stream()
    around = profile.around("compute 0")
    for name in ("first", "second", "third"):
        after = around(stream, name)
        stream.told.append(name)
        after()
    assert stream.told == ["barrier", 0x1000, "first", 0x1008, "barrier", 0x1010, "second", 0x1018, "third"]
    assert profile.dropped == 1


def test_only_what_ran_is_a_span_in_the_order_of_its_beginning():
    # The third command has not run.
    memory = struct.pack("<6Q", 900, 950, 100, 200, 0, 0)
    profile = Profile(0, 8, lambda byte: struct.unpack_from("<Q", memory, byte)[0])
    for track, name in (("compute 0", "late"), ("copy 0.0", "early"), ("copy 0.0", "never")):
        profile.around(track)(Stream(), name)
    assert profile.spans() == [Span("copy 0.0", "early", 100, 200), Span("compute 0", "late", 900, 950)]


@pytest.mark.parametrize("ticks_per_us", [100, 27])
def test_the_trace_is_on_the_host_s_time(ticks_per_us):
    profile = Profile(0, 1, lambda byte: 0)
    profile.host.append(("compute 0 1", 5.0, 2.0))
    clock = Correlation((1000, 10.0), (1000 + 40 * ticks_per_us, 50.0))
    spans = [Span("compute 0", "kernel", 1000 + 10 * ticks_per_us, 1000 + 15 * ticks_per_us)]
    trace = profile.trace(clock, spans)
    found = {event.track: (event.name, event.start_us, event.duration_us) for event in trace.events}
    assert found == {"host": ("compute 0 1", 5.0, 2.0), "card/compute 0": ("kernel", 20.0, 5.0)}
