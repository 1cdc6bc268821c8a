"""The transport `replay`: it plays a transcript as a card, `replay:PATH`, with the answers of the recorded card.

Requests must come in the recorded order with the recorded values, and the driver must write the recorded contents to
host memory. The first difference raises a `TransportError` that shows it. The writes of the recorded card appear in
host memory after the same access as in the recording. The clock returns the recorded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from ringup.cards import Found
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.recording import transcript
from ringup.drivers.transport.recording.transcript import CONFIG, ROM, RUN, VECTOR, Op, Row, Seen, changes, wait_ns
from ringup.drivers.transport.seam import Batch, Clock, ConfigSpace, DmaMemory, Interrupts, Mmio, Remote, Reply, Witness
from ringup.errors import NotSupported, TransportError


def find() -> Iterable[Found]:
    """List nothing: a transcript may be in any folder."""
    return ()


def open(rest: str) -> Replay:
    """Open the transcript at the path `rest`, as `ringup.open("replay:PATH")` does."""
    return Replay(rest)


class Replay:
    """The device of a transcript: a path, or a stream that is open for reading."""

    why_lost = "was lost when this was recorded"

    def __init__(self, of: str | Path | IO[bytes]) -> None:
        if isinstance(of, (str, Path)):
            self._source = str(of)
            try:
                with Path(of).open("rb") as stream:
                    info, self._rows = transcript.read(stream, self._source)
            except OSError as error:
                raise TransportError(f"transcript {of} cannot be read ({error.strerror}); check its path") from error
        else:
            self._source = "the transcript"
            info, self._rows = transcript.read(of, self._source)
        self._at = self._made = 0
        self._closed = self._lost = False
        # the first difference. It is raised again by later accesses, because nothing after it can be compared
        self._difference: TransportError | None = None
        self._memories: dict[int, ReplayedMemory] = {}
        self.name, self.polls_vram = info.name, info.polls_vram
        self.remote: Remote | None = None
        self.bars: Mapping[int, Mmio] = {number: ReplayedMmio(self, number) for number in info.bars}
        self.rom: Mmio | None = ReplayedMmio(self, ROM) if info.rom else None
        self.config: ConfigSpace = ReplayedConfig(self)
        self.interrupts: Interrupts = ReplayedInterrupts(self)
        self.clock: Clock = ReplayedClock(self)
        self.witness: Witness | None = ReplayedWitness(self) if info.witness else None

    @property
    def left(self) -> int:
        """How many rows of the transcript are not replayed yet."""
        return len(self._rows) - self._at

    @property
    def lost(self) -> bool:
        """Whether the recorded card was gone."""
        following = next((row.op for row in islice(self._rows, self._at, None) if row.op != Op.PUSH), None)
        if following == Op.LOST:
            self._lost = bool(self.access(Row(Op.LOST)).result)
        return self._lost

    def alloc_host(self, size_bytes: int) -> DmaMemory:
        """Return host memory at the recorded addresses."""
        row = self.access(Row(Op.ALLOC, offset=size_bytes, value=self._made))
        if row.result & transcript.UNSEEN:
            return self._unseen(row)
        size = sum(size for _, size in RUN.iter_unpack(row.answer))
        return self._keep(ReplayedMemory(self, row, memoryview(bytearray(size)), staged=True))

    def _unseen(self, row: Row) -> BusMemory:
        """Return memory that the CPU does not see, as in the recording."""
        self._made += 1
        start, size_bytes = RUN.unpack_from(row.answer)

        def free() -> None:
            self.access(Row(Op.FREE, value=row.value))

        return BusMemory(start, size_bytes, free)

    def pin(self, buffer: memoryview) -> DmaMemory:
        """Write to the caller's memory what the recorded card wrote."""
        row = self.access(Row(Op.PIN, offset=buffer.nbytes, value=self._made))
        return self._keep(ReplayedMemory(self, row, buffer.cast("B"), staged=False))

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that were possible."""
        names = self.access(Row(Op.RESETS)).answer.split(b"\0")[:-1]
        return tuple(name.decode("utf-8", "replace") for name in names)

    def reset(self, method: str) -> None:
        """Replay a reset."""
        self.access(Row(Op.RESET, data=method.encode()))

    def firmware(self, name: str) -> bytes | None:
        """Return the image that the recorded device returned."""
        row = self.access(Row(Op.FIRMWARE, data=name.encode()))
        return row.answer if row.result else None

    def close(self) -> None:
        """Replay the close. Raises a `TransportError` if the transcript has more accesses."""
        if self._closed:
            return
        self._closed = True
        self.check_memory()
        self._memories.clear()
        self.access(Row(Op.CLOSE))
        if self.left:
            raise TransportError(
                f"{self._source}: {self.left} recorded accesses follow the end: {self._rows[self._at]}"
            )

    def access(self, asked: Row) -> Row:
        """Return the recorded row of a request, or raise what the recorded access raised."""
        self.check_memory()
        if self._at >= len(self._rows):
            raise self._differs(f"{self._source} ends after {self._at} accesses; seen: {asked}")
        row = self._rows[self._at]
        if row.request != asked.request:
            raise self._differs(f"{self._source}, access {self._at}: recorded: {row}; seen: {asked}")
        self._at += 1
        failed = self._take(Op.ERROR)
        self._pull()
        if failed is not None:
            kind, _, message = failed.data.partition(b"\0")
            raise transcript.RAISED[kind.decode()](message.decode("utf-8", "replace"))
        return row

    def batch(self, window: int, asked: list[tuple[Row, ReplayedReply | None]]) -> None:
        """Replay a batch: in the transcript, its accesses are between the rows BATCH and BATCH_END."""
        self.check_memory()
        for each, reply in ((Row(Op.BATCH, window), None), *asked, (Row(Op.BATCH_END, window), None)):
            row = self._rows[self._at] if self.left else Row(Op.END)
            if row.request != each.request:
                raise self._differs(f"{self._source}, access {self._at}: recorded: {row}; seen: {each}")
            self._at += 1
            if reply is not None:
                reply.answer(row.result)
        self._pull()

    def check_memory(self) -> None:
        """Compare what the driver wrote since its last access with the recording."""
        if self._difference is not None:
            raise self._difference
        written = [Row(Op.PUSH, offset=o, value=n, data=d) for n, m in self._memories.items() for o, d in m.written()]
        for seen in written:
            row = self._rows[self._at] if self.left else Row(Op.END)
            if row.request != seen.request:
                raise self._differs(f"{self._source}, access {self._at}: recorded: {row}; seen in memory: {seen}")
            self._at += 1
        missing = self._take(Op.PUSH)
        if missing is not None:
            raise self._differs(f"{self._source}, access {self._at - 1}: recorded: {missing}; not written")

    def forget(self, number: int) -> None:
        """Stop comparing a memory."""
        self._memories.pop(number, None)

    def _differs(self, message: str) -> TransportError:
        self._difference = TransportError(message)
        return self._difference

    def _keep(self, memory: ReplayedMemory) -> ReplayedMemory:
        self._memories[self._made] = memory
        self._made += 1
        self._pull()
        return memory

    def _take(self, op: Op) -> Row | None:
        """Return the next row and skip it, if it has the operation `op`; else None."""
        if not self.left or self._rows[self._at].op != op:
            return None
        self._at += 1
        return self._rows[self._at - 1]

    def _pull(self) -> None:
        while self.left and self._rows[self._at].op == Op.PULL:
            row = self._rows[self._at]
            memory = self._memories.get(row.value)
            # the row belongs to a memory that `_keep` stores next
            if memory is None:
                return
            memory.show(row.offset, row.data)
            self._at += 1


class ReplayedMemory:
    """Host memory: what the driver sees (`view`), and the contents at which it and the recording were equal last
    (`_agreed`).
    """

    def __init__(self, replay: Replay, row: Row, view: memoryview, *, staged: bool) -> None:
        self._replay, self._number = replay, row.value
        self._runs: tuple[tuple[int, int], ...] = tuple((at, size) for at, size in RUN.iter_unpack(row.answer))
        self.view, self.size_bytes = view, view.nbytes
        self.coherent = bool(row.result & transcript.COHERENT)
        self.contiguous = bool(row.result & transcript.CONTIGUOUS)
        self._agreed = bytearray(view) if staged else None

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return the address that the recorded card put on the bus."""
        start = 0
        for address, size_bytes in self._runs:
            if 0 <= offset_bytes - start < size_bytes:
                return address + offset_bytes - start
            start += size_bytes
        raise ValueError(f"host memory of {self.size_bytes:#x} bytes has no byte {offset_bytes:#x}")

    def runs(self) -> Iterator[tuple[int, int]]:
        """Return the contiguous pieces."""
        return iter(self._runs)

    def free(self) -> None:
        """Replay the free."""
        self._replay.check_memory()
        self._replay.forget(self._number)
        self._replay.access(Row(Op.FREE, value=self._number))

    def written(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the driver changed since the last call: (offset, bytes)."""
        if self._agreed is not None:
            for offset, data in changes(self.view, self._agreed):
                self._agreed[offset : offset + len(data)] = data
                yield offset, data

    def show(self, offset_bytes: int, data: bytes) -> None:
        """Store what the recorded card wrote."""
        self.view[offset_bytes : offset_bytes + len(data)] = data
        if self._agreed is not None:
            self._agreed[offset_bytes : offset_bytes + len(data)] = data


class ReplayedMmio:
    """A window of a recorded device."""

    def __init__(self, replay: Replay, window: int) -> None:
        self._replay, self._window = replay, window

    @property
    def size_bytes(self) -> int:
        """The size of the recorded window."""
        return self._replay.access(Row(Op.SIZE, self._window)).result

    def read32(self, offset: int) -> int:
        """Read a dword."""
        return self._replay.access(Row(Op.READ, self._window, 4, offset)).result

    def read64(self, offset: int) -> int:
        """Read a quadword."""
        return self._replay.access(Row(Op.READ, self._window, 8, offset)).result

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        self._replay.access(Row(Op.WRITE, self._window, 4, offset, value))

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword."""
        self._replay.access(Row(Op.WRITE, self._window, 8, offset, value))

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes."""
        return self._replay.access(Row(Op.READ_BLOCK, self._window, 0, offset, size_bytes)).answer

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes."""
        self._replay.access(Row(Op.WRITE_BLOCK, self._window, 0, offset, data=bytes(data)))

    def map(self) -> memoryview:
        """Raise `NotSupported`, as the recording transport does."""
        raise NotSupported("a replayed device maps no window: use its read and write methods")

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect accesses. They are compared with the transcript when the batch ends."""
        batch = ReplayedBatch(self._replay, self._window)
        try:
            yield batch
        finally:
            self._replay.batch(self._window, batch.asked)


class ReplayedReply:
    """A read of a batch."""

    def __init__(self) -> None:
        self._value: int | None = None

    @property
    def value(self) -> int:
        """The value that was read."""
        if self._value is None:
            raise ValueError("the batch has not ended: nothing is read yet")
        return self._value

    def answer(self, value: int) -> None:
        """Set the value."""
        self._value = value


class ReplayedBatch:
    """Accesses that are sent together."""

    def __init__(self, replay: Replay, window: int) -> None:
        self._replay, self._window = replay, window
        self.asked: list[tuple[Row, ReplayedReply | None]] = []

    def read32(self, offset: int) -> Reply:
        """Queue a dword read."""
        reply = ReplayedReply()
        self._ask(Row(Op.READ, self._window, 4, offset), reply)
        return reply

    def write32(self, offset: int, value: int) -> None:
        """Queue a dword write."""
        self._ask(Row(Op.WRITE, self._window, 4, offset, value))

    def write64(self, offset: int, value: int) -> None:
        """Queue a quadword write."""
        self._ask(Row(Op.WRITE, self._window, 8, offset, value))

    def _ask(self, row: Row, reply: ReplayedReply | None = None) -> None:
        self._replay.check_memory()
        self.asked.append((row, reply))


class ReplayedConfig:
    """Configuration space of a recorded device."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes."""
        return self._replay.access(Row(Op.READ, CONFIG, size_bytes, offset)).result

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes."""
        self._replay.access(Row(Op.WRITE, CONFIG, size_bytes, offset, value))


class ReplayedInterrupts:
    """Interrupts of a recorded device."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Return the vectors of the recorded wait. The call does not wait."""
        answer = self._replay.access(Row(Op.WAIT, offset=wait_ns(timeout_us))).answer
        return tuple(vector for (vector,) in VECTOR.iter_unpack(answer))


class ReplayedWitness:
    """The recorded observations of a virtual card about its driver."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def mistakes(self) -> list[Seen]:
        """Return the recorded driver's mistakes up to here."""
        return transcript.seen_of(self._replay.access(Row(Op.WITNESS, data=b"mistakes")))

    def unfinished(self) -> list[Seen]:
        """Return the work that was not finished."""
        return transcript.seen_of(self._replay.access(Row(Op.WITNESS, data=b"unfinished")))


class ReplayedClock:
    """A clock with the recorded time."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    @property
    def now_us(self) -> int:
        """The recorded clock's microseconds."""
        return self._replay.access(Row(Op.NOW)).result

    def sleep_us(self, time_us: float) -> None:
        """Replay a sleep. The call does not sleep."""
        self._replay.access(Row(Op.SLEEP, offset=wait_ns(time_us)))
