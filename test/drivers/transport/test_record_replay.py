"""Sessions recorded on a virtual card and replayed without it: same answers, same memory, and an error for each
difference.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import mmap
import random

import pytest

import ringup
from ringup import cards
from ringup.drivers.amd.bus.discovery import discover
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.select import start
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.recording import transcript
from ringup.drivers.transport.recording.record import Recorder
from ringup.drivers.transport.recording.replay import Replay
from ringup.drivers.transport.recording.transcript import Info, Op, Row
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported, TransportError
from ringup.silicon import card

PAGE = 4096
FENCE, RING = 0, 64  # offsets in host memory
DOORBELL = 0x400


class Session:
    """What a driver does: registers, VRAM, a ring in host memory, a doorbell, and a fence that the card
    writes later.
    """

    def __init__(self, device: Device, packet: bytes = b"packet 1", doorbell: int = 2, answer=None) -> None:
        self.device, self.seen = device, []
        device.config.write(4, 6, 2)
        self.seen.append(device.config.read(0, 4))
        ips, window = discover(device, Registers(device))
        Hdp(ips.block("nbio")).start()
        self.seen += [
            window.size_bytes,
            ips.block("gc").bases,
            device.rom.read_block(0, 64),
            device.lost,
            device.resets(),
        ]
        window.write(0x10000, bytes(range(200)))
        self.seen.append(window.read(0x10000, 200))
        memory = device.alloc_host(2 * PAGE)
        self.seen += [memory.bus_addr(0), list(memory.runs()), memory.contiguous, memory.coherent]
        memory.view[RING : RING + len(packet)] = packet
        if answer:
            answer(memory)
        with device.bars[2].batch() as batch:
            batch.write64(DOORBELL, doorbell)
        with device.bars[5].batch() as batch:
            replies = [batch.read32(offset) for offset in (0xDE3 * 4, 0)]
        self.seen += [reply.value for reply in replies]
        end = device.clock.now_us + 1000
        while not memory.view[FENCE] and device.clock.now_us < end:
            device.clock.sleep_us(10)
        self.seen += [
            bytes(memory.view),
            device.clock.now_us,
            device.interrupts.wait(12.5),
            device.firmware("no such file"),
        ]
        with contextlib.suppress(ValueError):
            device.bars[5].read32(3)
        memory.view[FENCE] = 0
        memory.free()
        self.pinned = memoryview(mmap.mmap(-1, PAGE))
        pinned = device.pin(self.pinned)
        if answer:
            answer(pinned)
        device.clock.sleep_us(200)
        self.seen.append(bytes(self.pinned))
        pinned.free()
        device.close()


class Answers:
    """The card's side: it reads the ring as the card sees it and writes a fence there 95 us later."""

    def __init__(self, radeon):
        self.radeon, self.rings = radeon, []

    def __call__(self, memory):
        where = memory.bus_addr(0)
        self.radeon.clock.after(95, lambda: self.answer(where))

    def answer(self, where):
        self.rings.append(self.radeon.host.read(where + RING, 8))
        self.radeon.host.write(where + FENCE, b"\x07")
        self.radeon.host.write(where + PAGE - 4, b"done")


@pytest.fixture(scope="module")
def recorded():
    """A session on a virtual card: the transcript, what the driver saw, what the card saw."""
    radeon, stream = card("navi31", vram_bytes=64 << 20), io.BytesIO()
    answers = Answers(radeon)
    session = Session(Recorder(radeon, stream), answer=answers)
    return stream.getvalue(), session.seen, answers.rings


def test_a_session_replays_without_the_card(recorded):
    data, seen, _ = recorded
    replay = Replay(io.BytesIO(data))
    assert Session(replay).seen == seen
    assert replay.left == 0
    # The card wrote into the caller's own memory.
    assert seen[-1][:1] + seen[-1][PAGE - 4 :] == b"\x07done"


def test_a_transcript_is_opened_by_name(recorded, tmp_path):
    (tmp_path / "a.transcript").write_bytes(recorded[0])
    device = cards.connect(f"replay:{tmp_path / 'a.transcript'}")
    # Inspecting the transcript does not consume it.
    assert isinstance(device, Device)
    assert Session(device).seen == recorded[1]


def test_the_card_sees_the_ring_before_the_doorbell(recorded):
    assert recorded[2][0] == b"packet 1"


def test_recording_changes_nothing_that_the_driver_sees(recorded):
    radeon = card("navi31", vram_bytes=64 << 20)
    assert Session(radeon, answer=Answers(radeon)).seen == recorded[1]


def test_the_same_session_is_the_same_transcript(recorded):
    radeon, stream = card("navi31", vram_bytes=64 << 20), io.BytesIO()
    Session(Recorder(radeon, stream), answer=Answers(radeon))
    assert stream.getvalue() == recorded[0]


def test_the_first_difference_of_a_write_is_named(recorded):
    with pytest.raises(
        TransportError, match=r"access \d+: recorded: write64 bar2\+0x400, 0x2; seen: write64 bar2\+0x400, 0x3"
    ):
        Session(Replay(io.BytesIO(recorded[0])), doorbell=3)


def test_the_first_difference_in_memory_is_named(recorded):
    with pytest.raises(
        TransportError,
        match=r"recorded: push \+0x40, 0x0, 8 bytes 7061636b65742031; seen in memory: push \+0x40, 0x0, 8 bytes .*32",
    ):
        Session(Replay(io.BytesIO(recorded[0])), packet=b"packet 2")
    with pytest.raises(TransportError, match=r"recorded: push \+0x40, 0x0, 8 bytes 7061636b65742031; not written"):
        Session(Replay(io.BytesIO(recorded[0])), packet=b"")


def test_a_driver_that_makes_more_or_fewer_accesses_gets_an_error(recorded, tmp_path):
    (tmp_path / "a.transcript").write_bytes(recorded[0])
    replay = Replay(tmp_path / "a.transcript")
    with pytest.raises(
        TransportError, match=r"a\.transcript, access 0: recorded: write16 config\+0x4, 0x6; seen: close"
    ):
        replay.close()
    replay = Replay(tmp_path / "a.transcript")
    Session(replay)
    with pytest.raises(TransportError, match=r"a\.transcript ends after \d+ accesses; seen: read32 bar5\+0x0"):
        replay.bars[5].read32(0)
    with pytest.raises(TransportError, match=r"cannot be read \(No such file or directory\); check its path"):
        Replay(tmp_path / "nowhere")


def test_an_error_of_an_access_is_raised_again_in_the_replay(tmp_path):
    path = tmp_path / "a.transcript"
    with Recorder(card("navi31", vram_bytes=64 << 20), path) as recorder:
        for ask in (lambda d: d.bars[5].read32(3), lambda d: d.reset("wish"), lambda d: d.bars[5].read32(-8)):
            with pytest.raises(Exception) as told:  # noqa: PT011  # whatever the device raises
                ask(recorder)
            again = Replay(io.BytesIO(one(ask)))
            with pytest.raises(type(told.value)) as raised:
                ask(again)
            assert str(raised.value) == str(told.value)
        with pytest.raises(NotSupported, match="a recorded device maps no window"):
            recorder.bars[0].map()


def one(ask):
    """Return the transcript of one access."""
    stream = io.BytesIO()
    with Recorder(card("navi31", vram_bytes=64 << 20), stream) as recorder, contextlib.suppress(Exception):
        ask(recorder)
    return stream.getvalue()


def told(device):
    """Requests of every shape, as they are recorded."""
    device.config.write(4, 6, 2)
    device.bars[2].write32(DOORBELL, 1)
    device.bars[0].write_block(PAGE, b"abcd")
    device.clock.sleep_us(5)


WRITTEN = "access 1: recorded: write32 bar2\\+0x400, 0x1; seen: "


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d: d.config.write(4, 2, 2), "access 0: recorded: write16 config\\+0x4, 0x6; seen: .*, 0x2"),
        (lambda d: d.config.write(6, 6, 2), "access 0: recorded: write16 config\\+0x4, 0x6; seen: .*\\+0x6, 0x6"),
        (lambda d: d.config.write(4, 6, 4), "access 0: recorded: write16 .*; seen: write32"),
        (lambda d: d.bars[2].write32(DOORBELL, 2), WRITTEN + "write32 bar2\\+0x400, 0x2"),
        (lambda d: d.bars[2].write32(DOORBELL + 4, 1), WRITTEN + "write32 bar2\\+0x404, 0x1"),
        (lambda d: d.bars[5].write32(DOORBELL, 1), WRITTEN + "write32 bar5\\+0x400, 0x1"),
        (lambda d: d.bars[2].write64(DOORBELL, 1), WRITTEN + "write64 bar2\\+0x400, 0x1"),
        (lambda d: d.bars[0].write_block(PAGE, b"abce"), "access 2: recorded: write_block .*61626364; seen: .*65"),
        (lambda d: d.bars[0].write_block(PAGE + 4, b"abcd"), "access 2: recorded: write_block .*; seen: .*0x1004"),
        (lambda d: d.clock.sleep_us(6), "access 3: recorded: sleep.*; seen: sleep"),
    ],
)
def test_a_request_that_differs_in_one_thing_alone_is_named(ask, message):
    replay = Replay(io.BytesIO(one(told)))
    steps = (
        lambda d: d.config.write(4, 6, 2),
        lambda d: d.bars[2].write32(DOORBELL, 1),
        lambda d: d.bars[0].write_block(PAGE, b"abcd"),
    )
    for step in steps[: int(message.split(":")[0].removeprefix("access "))]:
        step(replay)
    with pytest.raises(TransportError, match=message):
        ask(replay)
    with pytest.raises(TransportError, match=message):  # what follows means nothing
        replay.clock.sleep_us(5)


def test_a_card_that_falls_off_the_bus_is_replayed_so():
    radeon, stream = card("navi31", vram_bytes=64 << 20), io.BytesIO()
    recorder = Recorder(radeon, stream)
    radeon.unplug()
    seen = [recorder.lost, recorder.config.read(0, 2), recorder.bars[5].read32(0)]
    recorder.close()
    assert seen == [True, 0xFFFF, 0xFFFF_FFFF]
    replay = Replay(io.BytesIO(stream.getvalue()))
    assert [replay.lost, replay.config.read(0, 2), replay.bars[5].read32(0)] == seen


def test_the_drivers_write_does_not_undo_the_cards(tmp_path):
    """Between two accesses, both write the same page: each its own dword."""
    radeon = card("navi31", vram_bytes=64 << 20)
    radeon.config.write(4, 6, 2)
    recorder = Recorder(radeon, tmp_path / "a")
    memory = recorder.alloc_host(PAGE)
    radeon.host.write(memory.bus_addr(0), b"card")
    memory.view[4:8] = b"host"
    assert bytes(memory.view[:8]) == b"\0\0\0\0host"  # not visible before an access
    recorder.clock.sleep_us(1)
    assert bytes(memory.view[:8]) == b"cardhost" == radeon.host.read(memory.bus_addr(0), 8)
    recorder.close()
    replay = Replay(tmp_path / "a")
    memory = replay.alloc_host(PAGE)
    memory.view[4:8] = b"host"
    replay.clock.sleep_us(1)
    assert bytes(memory.view[:8]) == b"cardhost"


def test_what_was_written_is_pushed_ahead_of_whatever_follows():
    """The write goes before each access of a batch, which may be a doorbell, and before the memory or the session is
    closed.
    """
    radeon, stream = card("navi31", vram_bytes=64 << 20), io.BytesIO()
    radeon.config.write(4, 6, 2)
    recorder = Recorder(radeon, stream)
    memory, kept = recorder.alloc_host(PAGE), recorder.alloc_host(PAGE)
    where, seen = memory.bus_addr(0), []
    with recorder.bars[2].batch() as batch:
        for number, ask in enumerate((batch.write32, batch.write64, lambda at, _: batch.read32(at)), 1):
            memory.view[0] = number
            ask(DOORBELL, 0)
            seen.append(radeon.host.read(where, 1)[0])
    assert seen == [1, 2, 3]
    # No engine listens to that doorbell.
    radeon.violations.clear()
    memory.view[0] = 4
    memory.free()
    kept.view[0] = 5
    recorder.close()
    pushes = [row for row in transcript.read(io.BytesIO(stream.getvalue()), "t")[1] if row.op == Op.PUSH]
    assert [row.data[0] for row in pushes] == [1, 2, 3, 4, 5]


# -- hostile transcripts --


def packed(*rows, info=True, end=True, magic=transcript.MAGIC):
    first = [transcript.info_row(Info("virtual:navi31", False, (0, 2, 5), True))] if info else []
    rows = [*first, *rows]
    rows += [Row(Op.END, value=len(rows))] if end else []
    # Both workers of the suite must collect the same bytes.
    return gzip.compress(magic + b"".join(row.pack() for row in rows), 1, mtime=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the transcript is no transcript of this version|is cut short or damaged"),
        (b"text", "is cut short or damaged"),
        (gzip.compress(b"text", mtime=0), "is no transcript of this version: it begins with b'text'"),
        (packed(magic=b"ringup transcript 9\n"), "is no transcript of this version"),
        (packed(end=False), "lacks its end: 1 rows; the recorder was not closed"),
        (packed(info=False), "lacks its end|does not say what card it is of"),
        (packed(Row(Op.READ, 1, 4)), r"access 0 is damaged: read32 bar1\+0x0"),
        (packed(Row(Op.READ, 5, 3)), "access 0 is damaged"),
        (packed(Row(Op.READ, 5, 2, result=1 << 16)), "access 0 is damaged"),
        (packed(Row(Op.READ_BLOCK, 5, value=3, answer=b"12")), "access 0 is damaged: read_block"),
        (packed(Row(Op.PULL, value=0, data=b"1234")), "access 0 is damaged: pull"),
        (packed(Row(Op.ALLOC, offset=PAGE, answer=transcript.RUN.pack(0, 100))), "access 0 is damaged: alloc"),
        (packed(Row(Op.ALLOC, result=transcript.UNSEEN)), "access 0 is damaged: alloc"),
        (packed(Row(Op.ERROR, data=b"KeyboardInterrupt\0stop")), "access 0 is damaged: error"),
        (packed(Row(Op.END)), "access 0 is damaged: end"),
        (packed(Row(Op.INFO, data=b"[1]")), "access 0 is damaged: info"),
    ],
)
def test_damage_is_one_error(data, message):
    with pytest.raises(TransportError, match=message):
        Replay(io.BytesIO(data))


def test_a_transcript_cut_anywhere_is_one_error(recorded):
    data = recorded[0]
    for size in [*range(64), *range(64, len(data) - 64, 97), *range(len(data) - 64, len(data))]:
        with pytest.raises(TransportError):
            transcript.read(io.BytesIO(data[:size]), "t")


def test_random_damage_is_one_error_or_a_transcript():
    """20,000 mutations of a short transcript. Those that can be read are replayed to their first difference."""

    def ask(device):
        memory = device.alloc_host(PAGE)
        memory.view[0:4] = b"host"
        device.interrupts.wait(5)
        device.bars[5].read32(0)
        device.firmware("a")
        memory.free()
        device.resets()
        device.close()

    text = gzip.decompress(one(ask))
    ask(Replay(io.BytesIO(gzip.compress(text, 1))))
    rng, opened = random.Random(6), 0
    for _ in range(20_000):
        data = bytearray(text)
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 255, rng.randrange(256)))
        try:
            replay = Replay(io.BytesIO(gzip.compress(bytes(data), 0)))
        except TransportError:
            continue
        opened += 1
        with contextlib.suppress(TransportError, ValueError, TypeError, NotSupported):
            ask(replay)
    assert opened > 1000


def test_a_transcript_that_unpacks_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(transcript, "MAX_BYTES", 1 << 20)
    with pytest.raises(TransportError, match="unpacks to more than 1048576 bytes"):
        Replay(io.BytesIO(gzip.compress(transcript.MAGIC + bytes(2 << 20))))


def test_a_transcript_of_endless_rows_is_refused(monkeypatch):
    monkeypatch.setattr(transcript, "MAX_ROWS", 100)
    with pytest.raises(TransportError, match="has more than 100 rows; record a shorter session"):
        Replay(io.BytesIO(packed(*[Row(Op.NOW)] * 98)))
    assert Replay(io.BytesIO(packed(*[Row(Op.NOW)] * 97))).left == 97


class Unseen:
    """A path whose card reaches memory that the CPU does not see. Everything else is the card's own."""

    def __init__(self, radeon):
        self._radeon, self.freed = radeon, 0

    def __getattr__(self, name):
        return getattr(self._radeon, name)

    def alloc_host(self, size_bytes):
        return BusMemory(0x82_0000, size_bytes, self._free)

    def _free(self):
        self.freed += 1


def test_memory_that_the_cpu_does_not_see_is_recorded_and_replayed_as_that():
    device, stream = Unseen(card("navi31", vram_bytes=64 << 20)), io.BytesIO()
    seen = []
    for player in (Recorder(device, stream), None):
        path = player or Replay(io.BytesIO(stream.getvalue()))
        memory = path.alloc_host(PAGE)
        with pytest.raises(NotSupported, match="the CPU sees none of it"):
            memory.view  # noqa: B018  # that it raises is the point
        seen.append((memory.bus_addr(8), list(memory.runs()), memory.size_bytes, memory.contiguous, memory.coherent))
        memory.free()
        path.close()
    assert seen[0] == seen[1]
    assert device.freed == 1


class Full:
    """A file on a disk with room for a given number of bytes."""

    def __init__(self, room):
        self.room = room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    def flush(self):
        pass


@pytest.mark.parametrize("room", [100, 20_000, 150_000, 250_000])
def test_a_full_disk_ends_the_recording_and_not_the_card(room, monkeypatch):
    device = ringup.connect("virtual:navi31")
    closed, close = [], device.close
    monkeypatch.setattr(device, "close", lambda: (closed.append(True), close()))
    recorder = Recorder(device, Full(room))
    data = random.Random(room).randbytes(1 << 20)

    def work():
        with start(recorder) as card, card.alloc(1 << 20) as buffer:
            card.copy.upload(buffer, data).wait()
            assert card.copy.download(buffer) == data

    with pytest.raises(OSError, match="No space left"):
        work()
    assert closed
    assert not device.lost
