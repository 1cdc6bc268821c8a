"""Traces, read back by protobuf's rules. The field numbers are from Perfetto's .proto files. Perfetto's own Python
classes read such a file the same way (0.59).
"""

import random
import struct

import pytest

from ringup.queues.trace import Correlation, Trace


def fields(data):
    """Yield (number, value) of a message's fields: integers, 8 bytes or a run of bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, data[at : at + 8]
            at += 8
        else:
            assert key & 7 == 2
            size = varint()
            assert at + size <= len(data)
            yield key >> 3, data[at : at + size]
            at += size


class Read:
    """A trace as a viewer sees it: tracks by uuid, slices, instants and points in time."""

    def __init__(self, data):
        self.tracks, self.slices, self.instants, self.points, self.flows = {}, [], [], [], {}
        began = {}
        packets = [dict(fields(packet)) for number, packet in fields(data) if number == 1]
        # trusted_packet_sequence_id; SEQ_INCREMENTAL_STATE_CLEARED
        assert packets[0] == {10: 1, 13: 1}
        assert {packet[10] for packet in packets} == {1}
        for packet in packets[1:]:
            if 60 in packet:
                track = dict(fields(packet[60]))
                self.tracks[track[1]] = (track[2].decode(), track.get(5), 8 in track)
                continue
            event, at = dict(fields(packet[11])), packet[8]
            name = event.get(23, b"").decode()
            args = [dict(fields(value)) for number, value in fields(packet[11]) if number == 4]
            where = self.tracks[event[11]][0], event[11]
            if event[9] == 1:
                assert where[1] not in began, "slices of a track overlap"
                began[where[1]] = (at, name, args)
                if 47 in event:
                    self.flows.setdefault(struct.unpack("<Q", event[47])[0], []).append(name)
            elif event[9] == 2:
                start, begun, args = began.pop(where[1])
                self.slices.append((where[0], begun, start, at - start, args))
            elif event[9] == 3:
                self.instants.append((where[0], name, at))
            else:
                self.points.append((where[0], at, struct.unpack("<d", event[44])[0]))
        assert not began


def test_what_was_added_is_in_the_file(tmp_path):
    trace = Trace()
    trace.add("navi31/host", "submit", 10, 2.5, {"bytes": 220, "queue": "compute 0"}, flow=7)
    trace.add("navi31/compute 0", "scale", 60, 12.25, {"ratio": 0.5, "late": False, "delta": -3}, flow=7)
    trace.add("bring-up", "psp", 0, 100)
    trace.add("bring-up", "done", 100, 0)
    trace.count("navi31/clock MHz", 5, 2500.5)
    trace.save(tmp_path / "a.pftrace")
    read = Read((tmp_path / "a.pftrace").read_bytes())
    assert sorted(read.tracks.values(), key=str) == [
        ("bring-up", None, False),
        ("clock MHz", 1, True),
        ("compute 0", 1, False),
        ("host", 1, False),
        ("navi31", None, False),
    ]
    assert read.slices == [
        ("host", "submit", 10_000, 2_500, [{10: b"bytes", 3: 220}, {10: b"queue", 6: b"compute 0"}]),
        (
            "compute 0",
            "scale",
            60_000,
            12_250,
            [{10: b"ratio", 5: struct.pack("<d", 0.5)}, {10: b"late", 2: 0}, {10: b"delta", 4: (1 << 64) - 3}],
        ),
        ("bring-up", "psp", 0, 100_000, []),
    ]
    assert read.instants == [("bring-up", "done", 100_000)]
    assert read.points == [("clock MHz", 5_000, 2500.5)]
    assert read.flows == {7: ["submit", "scale"]}


def test_events_that_overlap_stand_in_rows_of_one_name():
    rng, trace, wanted = random.Random(3), Trace(), []
    for number in range(2000):
        start, took = rng.randrange(100_000), rng.randrange(1, 400)
        wanted.append(("compute 0", f"k{number}", start * 1000, took * 1000, []))
        trace.add("compute 0", f"k{number}", start, took)
    # `Read` refuses slices that overlap.
    read = Read(trace.pack())
    assert sorted(read.slices) == sorted(wanted)
    assert {name for name, _, _ in read.tracks.values()} == {"compute 0"}
    ends = [(start, 1) for *_, start, _, _ in wanted] + [(start + took, -1) for *_, start, took, _ in wanted]
    deepest = running = 0
    for _, step in sorted(ends):
        running += step
        deepest = max(deepest, running)
    assert len(read.tracks) == deepest  # no more rows than run at once


def test_ticks_are_placed_between_and_beyond_the_two_moments():
    clock = Correlation((1 << 40, 5_000.0), ((1 << 40) + 100_000, 6_000.0))  # 100 MHz
    assert clock.ticks_per_us == 100
    assert [clock.us((1 << 40) + ticks) for ticks in (0, 250, 100_000, 150_000, -100)] == [
        5000,
        5002.5,
        6000,
        6500,
        4999,
    ]


@pytest.mark.parametrize("second", [(10, 200.0), (20, 100.0), (5, 300.0)])
def test_moments_without_time_between_are_refused(second):
    with pytest.raises(ValueError, match=r"no time passed between \(10, 100.0\) and"):
        Correlation((10, 100.0), second)


@pytest.mark.parametrize(("start_us", "duration_us"), [(-1, 5), (1, -5)])
def test_times_that_have_no_place_are_refused(start_us, duration_us):
    with pytest.raises(ValueError, match="scale on compute 0 begins at"):
        Trace().add("compute 0", "scale", start_us, duration_us)
