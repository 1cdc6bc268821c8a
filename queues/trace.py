"""Traces of queues: what ran on which track at which time, as a file that ui.perfetto.dev opens. A track is a queue,
the host's submissions, or a bring-up.

The file is a sequence of TracePacket messages in protobuf's wire format. This module writes it without a library,
because a dozen fields are enough.
Source: Perfetto trace_packet.proto, track_descriptor.proto, track_event.proto, debug_annotation.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Value = int | float | str | bool
VARINT, FIXED64, BYTES = 0, 1, 2  # wire types
NS_PER_US = 1000
MASK64 = 0xFFFF_FFFF_FFFF_FFFF

TRACE_PACKET = 1  # Trace
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, SEQUENCE_FLAGS, TRACK_DESCRIPTOR = 8, 10, 11, 13, 60  # TracePacket
UUID, NAME, PARENT_UUID, COUNTER = 1, 2, 5, 8  # TrackDescriptor
ANNOTATIONS, TYPE, TRACK_UUID, EVENT_NAME, DOUBLE_COUNTER, FLOW_IDS = 4, 9, 11, 23, 44, 47  # TrackEvent
SLICE_BEGIN, SLICE_END, INSTANT, COUNT = 1, 2, 3, 4  # TrackEvent.Type
A_BOOL, A_UINT, A_INT, A_DOUBLE, A_STRING, A_NAME = 2, 3, 4, 5, 6, 10  # DebugAnnotation
# SEQ_INCREMENTAL_STATE_CLEARED: a sequence begins
STATE_CLEARED = 1
ONE_SEQUENCE = 1


@dataclass(frozen=True)
class Event:
    """An event on a track. Arrows join events with the same `flow`, such as a submission and its run."""

    track: str
    name: str
    start_us: float
    duration_us: float
    args: Mapping[str, Value]
    flow: int | None = None


class Correlation:
    """Converts a card's counter to the host's clock: a straight line through two moments at which both were read."""

    def __init__(self, first: tuple[int, float], second: tuple[int, float]) -> None:
        """Each moment is (ticks, microseconds); `second` is later. The further apart they are, the better the fit."""
        (ticks, us), (later_ticks, later_us) = first, second
        if later_ticks <= ticks or later_us <= us:
            raise ValueError(f"no time passed between {first} and {second}, or it ran backwards")
        self._ticks, self._us = ticks, us
        self.ticks_per_us = (later_ticks - ticks) / (later_us - us)

    def us(self, ticks: int) -> float:
        """Return the host's time of a counter value, in microseconds."""
        return self._us + (ticks - self._ticks) / self.ticks_per_us


class Trace:
    """Events of any number of tracks. A track `a/b` is shown under a group `a`. Events that overlap on a track are
    shown in rows below each other.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.counts: dict[str, list[tuple[float, float]]] = {}

    def add(
        self,
        track: str,
        name: str,
        start_us: float,
        duration_us: float,
        args: Mapping[str, Value] | None = None,
        flow: int | None = None,
    ) -> None:
        """Add an event; a duration of 0 is an instant. Raises a `ValueError` for times before 0, which the file cannot
        hold.
        """
        if start_us < 0 or duration_us < 0:
            raise ValueError(f"{name} on {track} begins at {start_us} us and takes {duration_us} us")
        self.events.append(Event(track, name, start_us, duration_us, dict(args or {}), flow))

    def count(self, track: str, at_us: float, value: float) -> None:
        """Add a point of a curve, such as a clock or a fill level."""
        self.counts.setdefault(track, []).append((at_us, value))

    def save(self, path: str | Path) -> None:
        """Write the file."""
        Path(path).write_bytes(self.pack())

    def pack(self) -> bytes:
        """Return the file's bytes."""
        return b"".join(_field(TRACE_PACKET, packet) for packet in self._packets())

    def _packets(self) -> Iterator[bytes]:
        yield _number(SEQUENCE_ID, ONE_SEQUENCE) + _number(SEQUENCE_FLAGS, STATE_CLEARED)
        tracks: dict[str, list[Event]] = {}
        for event in self.events:
            tracks.setdefault(event.track, []).append(event)
        groups = dict.fromkeys(track.rpartition("/")[0] for track in (*tracks, *self.counts))
        uuids = {group: number for number, group in enumerate((group for group in groups if group), 1)}
        for group, uuid in uuids.items():
            yield _descriptor(uuid, group)
        following = len(uuids)
        for track, events in tracks.items():
            group, _, title = track.rpartition("/")
            for lane in _lanes(sorted(events, key=lambda event: event.start_us)):
                following += 1
                yield _descriptor(following, title, uuids.get(group))
                for event in lane:
                    yield from _event_packets(event, following)
        for track, points in self.counts.items():
            group, _, title = track.rpartition("/")
            following += 1
            yield _descriptor(following, title, uuids.get(group), counter=True)
            for at_us, value in points:
                body = _number(TYPE, COUNT) + _number(TRACK_UUID, following) + _double(DOUBLE_COUNTER, value)
                yield _packet(at_us, body)


def _lanes(events: Sequence[Event]) -> list[list[Event]]:
    """Divide events, sorted by start, into rows without overlap, as few as possible."""
    lanes: list[list[Event]] = []
    for event in events:
        free = (lane for lane in lanes if lane[-1].start_us + lane[-1].duration_us <= event.start_us)
        lane = next(free, None)
        if lane is None:
            lanes.append([event])
        else:
            lane.append(event)
    return lanes


def _event_packets(event: Event, track_uuid: int) -> Iterator[bytes]:
    """Yield packets for the beginning and the end of an event, or one packet for an instant."""
    kind = SLICE_BEGIN if event.duration_us else INSTANT
    body = _number(TYPE, kind) + _number(TRACK_UUID, track_uuid) + _field(EVENT_NAME, event.name.encode())
    body += b"".join(_field(ANNOTATIONS, _annotation(name, value)) for name, value in event.args.items())
    if event.flow is not None:
        body += _tag(FLOW_IDS, FIXED64) + struct.pack("<Q", event.flow & MASK64)
    yield _packet(event.start_us, body)
    if event.duration_us:
        yield _packet(event.start_us + event.duration_us, _number(TYPE, SLICE_END) + _number(TRACK_UUID, track_uuid))


def _annotation(name: str, value: Value) -> bytes:
    named = _field(A_NAME, name.encode())
    if isinstance(value, bool):
        return named + _number(A_BOOL, value)
    if isinstance(value, int):
        return named + _number(A_UINT if value >= 0 else A_INT, value)
    if isinstance(value, float):
        return named + _double(A_DOUBLE, value)
    return named + _field(A_STRING, value.encode())


def _descriptor(uuid: int, name: str, parent: int | None = None, *, counter: bool = False) -> bytes:
    body = _number(UUID, uuid) + _field(NAME, name.encode())
    if parent is not None:
        body += _number(PARENT_UUID, parent)
    if counter:
        body += _field(COUNTER, b"")
    return _field(TRACK_DESCRIPTOR, body) + _number(SEQUENCE_ID, ONE_SEQUENCE)


def _packet(at_us: float, event: bytes) -> bytes:
    at_ns = round(at_us * NS_PER_US)
    return _number(TIMESTAMP, at_ns) + _number(SEQUENCE_ID, ONE_SEQUENCE) + _field(TRACK_EVENT, event)


def _varint(value: int) -> bytes:
    """Encode a number with seven bits a byte, low bits first. Negative numbers become 64-bit two's complement."""
    value &= MASK64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _number(number: int, value: int) -> bytes:
    return _tag(number, VARINT) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _tag(number, FIXED64) + struct.pack("<d", value)


def _field(number: int, data: bytes) -> bytes:
    return _tag(number, BYTES) + _varint(len(data)) + data
