"""A recording transport: it wraps any other transport and writes every access of the driver to a transcript.

The driver works on a copy of host memory (`alloc_host`). Before each access of any kind, the recorder copies what the
driver wrote to the card's memory. After it, the recorder copies back what the card wrote. So a transcript says when
each change became visible, and a replay does the same. A card that polls host memory for a write pointer sees these
changes in the order of addresses, not of the driver's stores. Pinned memory belongs to the caller: its changes are only
recorded. Memory that the CPU does not see, such as a bridge's own, is not copied. The fast accesses of a slow path
(`remote`) are not offered. Windows are not mapped (`NotSupported`, as behind a USB bridge), because accesses through
mapped memory could not be recorded. A transcript contains all that the driver stored, also firmware of vendors.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.recording import transcript
from ringup.drivers.transport.recording.transcript import CONFIG, ROM, RUN, VECTOR, Info, Op, Row, changes, wait_ns
from ringup.drivers.transport.seam import (
    Batch,
    Clock,
    ConfigSpace,
    Device,
    DmaMemory,
    Interrupts,
    Mmio,
    Observation,
    Remote,
    Reply,
    Witness,
    witness_of,
)
from ringup.errors import NotSupported, RingupError

T = TypeVar("T")


def _result(row: Row, value: int) -> Row:
    return replace(row, result=int(value))


def _answer(row: Row, data: bytes) -> Row:
    return replace(row, answer=bytes(data))


def _nothing(row: Row, _: Any) -> Row:
    return row


class Recorder:
    """A device that writes every access to a transcript: a path, or a stream that is open for writing. `close` closes
    the device and ends the transcript.
    """

    def __init__(self, device: Device, to: str | Path | IO[bytes]) -> None:
        self._device = device
        self._owns_file = isinstance(to, (str, Path))
        # `close` closes it
        self._file = open(to, "wb") if isinstance(to, (str, Path)) else to  # noqa: SIM115
        self._zip = gzip.GzipFile(fileobj=self._file, mode="wb", mtime=0)
        self._zip.write(transcript.MAGIC)
        self._rows = self._made = 0
        # why nothing more is written
        self._failed: OSError | None = None
        self._closed = self._lost = False
        self._memories: dict[int, RecordedMemory] = {}
        rom = device.rom
        witness = witness_of(device)
        info = Info(device.name, device.polls_vram, tuple(device.bars), rom is not None, witness is not None)
        self.write(transcript.info_row(info))
        self.witness: Witness | None = None if witness is None else RecordedWitness(self, witness)
        self.name, self.polls_vram = device.name, device.polls_vram
        # not offered: a replay can answer only accesses of the other kinds
        self.remote: Remote | None = None
        self.bars: Mapping[int, Mmio] = {number: RecordedMmio(self, number, bar) for number, bar in device.bars.items()}
        self.rom: Mmio | None = None if rom is None else RecordedMmio(self, ROM, rom)
        self.config: ConfigSpace = RecordedConfig(self, device.config)
        self.interrupts: Interrupts = RecordedInterrupts(self, device.interrupts)
        self.clock: Clock = RecordedClock(self, device.clock)

    @property
    def lost(self) -> bool:
        """Whether the card is gone. Only changes are recorded: tools that only look at a device also read this."""
        lost = self._device.lost
        if lost != self._lost:
            self._lost = self.access(Row(Op.LOST), lambda: lost, _result)
        return lost

    @property
    def why_lost(self) -> str:
        """Why the device is lost, in its own words."""
        return self._device.why_lost

    def alloc_host(self, size_bytes: int) -> DmaMemory:
        """Return zeroed host memory: a copy of the card's, which each access brings up to date both ways."""
        number = self._made
        row = Row(Op.ALLOC, offset=size_bytes, value=number)
        memory = self.access(row, lambda: self._device.alloc_host(size_bytes), _memory)
        if _is_seen(memory):
            return self._keep(memory, staged=True)
        self._made += 1
        free = partial(self.access, Row(Op.FREE, value=number), memory.free, _nothing)
        return BusMemory(memory.bus_addr(), memory.size_bytes, free)

    def pin(self, buffer: memoryview) -> DmaMemory:
        """Let the card reach the caller's memory, and record what is written there."""
        row = Row(Op.PIN, offset=buffer.nbytes, value=self._made)
        return self._keep(self.access(row, lambda: self._device.pin(buffer), _memory), staged=False)

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that are possible."""
        return self.access(Row(Op.RESETS), self._device.resets, _names)

    def reset(self, method: str) -> None:
        """Do a reset."""
        self.access(Row(Op.RESET, data=method.encode()), lambda: self._device.reset(method), _nothing)

    def firmware(self, name: str) -> bytes | None:
        """Return a firmware image that only this device has."""
        return self.access(Row(Op.FIRMWARE, data=name.encode()), lambda: self._device.firmware(name), _image)

    def close(self) -> None:
        """Close the device, then the transcript."""
        if self._closed:
            return
        self._closed = True
        self.push()
        # closing the device may free their memory
        self._memories.clear()
        try:
            self.access(Row(Op.CLOSE), self._device.close, _nothing)
        finally:
            try:
                self.write(Row(Op.END, value=self._rows))
                self._zip.close()
            finally:
                if self._owns_file:
                    self._file.close()
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, row: Row) -> None:
        """Append a row. If the file cannot be written, for instance on a full disk, the card keeps working without a
        recording, and `close` raises the `OSError`.
        """
        if self._failed is not None:
            return
        try:
            self._zip.write(row.pack())
        except OSError as error:
            self._failed = error
            return
        self._rows += 1

    def access(self, row: Row, perform: Callable[[], T], answered: Callable[[Row, T], Row]) -> T:
        """Push host memory, perform an access, record it, also if it raises an error, and pull host memory."""
        self.push()
        try:
            answer = perform()
        except (RingupError, ValueError, TypeError) as error:
            kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in transcript.RAISED)
            self.write(row)
            self.write(Row(Op.ERROR, data=f"{kind}\0{error}".encode()))
            self.pull()
            raise
        self.write(answered(row, answer))
        self.pull()
        return answer

    def push(self) -> None:
        """Copy what the driver wrote to the card's memory."""
        for memory in self._memories.values():
            memory.push()

    def pull(self) -> None:
        """Copy what the card wrote to the driver's memory."""
        for memory in self._memories.values():
            memory.pull()

    def forget(self, number: int) -> None:
        """Stop recording a memory."""
        self._memories.pop(number, None)

    def _keep(self, memory: DmaMemory, *, staged: bool) -> RecordedMemory:
        kept = self._memories[self._made] = RecordedMemory(self, self._made, memory, staged=staged)
        self._made += 1
        return kept


def _is_seen(memory: DmaMemory) -> bool:
    """Return whether the CPU sees a memory. It does not see a bridge's own memory."""
    try:
        return memory.view is not None
    except NotSupported:
        return False


def _memory(row: Row, made: DmaMemory) -> Row:
    flags = transcript.COHERENT * made.coherent | transcript.CONTIGUOUS * made.contiguous
    flags |= transcript.UNSEEN * (not _is_seen(made))
    return replace(row, result=flags, answer=b"".join(RUN.pack(*run) for run in made.runs()))


def _names(row: Row, names: tuple[str, ...]) -> Row:
    return replace(row, answer=b"".join(name.encode() + b"\0" for name in names))


def _image(row: Row, image: bytes | None) -> Row:
    return replace(row, result=image is not None, answer=image or b"")


def _vectors(row: Row, vectors: tuple[int, ...]) -> Row:
    return replace(row, answer=b"".join(map(VECTOR.pack, vectors)))


class RecordedMemory:
    """Host memory of a recorded device: the driver's copy (`view`), the card's memory, and the contents at which both
    were equal last (`_agreed`).
    """

    def __init__(self, recorder: Recorder, number: int, memory: DmaMemory, *, staged: bool) -> None:
        self._recorder, self._number, self._memory, self._staged = recorder, number, memory, staged
        self._agreed = bytearray(memory.view)
        self.view = memoryview(bytearray(self._agreed)) if staged else memory.view
        self.size_bytes, self.contiguous, self.coherent = memory.size_bytes, memory.contiguous, memory.coherent

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return the address that the card puts on the bus."""
        return self._memory.bus_addr(offset_bytes)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Return the contiguous pieces."""
        return self._memory.runs()

    def free(self) -> None:
        """Free the memory: the card must not use it any more."""
        self._recorder.push()
        self._recorder.forget(self._number)
        self._recorder.access(Row(Op.FREE, value=self._number), self._memory.free, _nothing)

    def push(self) -> None:
        """Copy what the driver changed to the card's memory."""
        if self._staged:
            self._carry(Op.PUSH, self.view, self._memory.view)

    def pull(self) -> None:
        """Copy what the card changed to the driver's copy."""
        self._carry(Op.PULL, self._memory.view, self.view)

    def _carry(self, op: Op, source: memoryview, target: memoryview) -> None:
        for offset, data in changes(source, self._agreed):
            self._agreed[offset : offset + len(data)] = data
            if self._staged:
                target[offset : offset + len(data)] = data
            self._recorder.write(Row(op, offset=offset, value=self._number, data=data))


class RecordedMmio:
    """A window of a recorded device."""

    def __init__(self, recorder: Recorder, window: int, mmio: Mmio) -> None:
        self._recorder, self._window, self._mmio = recorder, window, mmio

    @property
    def size_bytes(self) -> int:
        """The size of the window."""
        return self._recorder.access(Row(Op.SIZE, self._window), lambda: self._mmio.size_bytes, _result)

    def read32(self, offset: int) -> int:
        """Read a dword."""
        return self._recorder.access(Row(Op.READ, self._window, 4, offset), lambda: self._mmio.read32(offset), _result)

    def read64(self, offset: int) -> int:
        """Read a quadword."""
        return self._recorder.access(Row(Op.READ, self._window, 8, offset), lambda: self._mmio.read64(offset), _result)

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        row = Row(Op.WRITE, self._window, 4, offset, value)
        self._recorder.access(row, lambda: self._mmio.write32(offset, value), _nothing)

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword."""
        row = Row(Op.WRITE, self._window, 8, offset, value)
        self._recorder.access(row, lambda: self._mmio.write64(offset, value), _nothing)

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes."""
        row = Row(Op.READ_BLOCK, self._window, 0, offset, size_bytes)
        return self._recorder.access(row, lambda: self._mmio.read_block(offset, size_bytes), _answer)

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes."""
        row = Row(Op.WRITE_BLOCK, self._window, 0, offset, data=bytes(data))
        self._recorder.access(row, lambda: self._mmio.write_block(offset, data), _nothing)

    def map(self) -> memoryview:
        """Raise `NotSupported`: accesses through mapped memory cannot be recorded."""
        raise NotSupported("a recorded device maps no window: use its read and write methods")

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect accesses. In the transcript, the value of a read is in the row of its request."""
        recorder = self._recorder
        asked: list[tuple[Row, Reply | None]] = []
        ended = False
        try:
            with self._mmio.batch() as batch:
                yield RecordedBatch(recorder, self._window, batch, asked)
            ended = True
        finally:
            recorder.write(Row(Op.BATCH, self._window))
            for row, reply in asked:
                recorder.write(_result(row, reply.value) if reply is not None and ended else row)
            recorder.write(Row(Op.BATCH_END, self._window))
            recorder.pull()


class RecordedBatch:
    """Accesses that are sent together. On a fast link, each is sent at once, so host memory is pushed before each."""

    def __init__(self, recorder: Recorder, window: int, batch: Batch, asked: list[tuple[Row, Reply | None]]) -> None:
        self._recorder, self._window, self._batch, self._asked = recorder, window, batch, asked

    def read32(self, offset: int) -> Reply:
        """Queue a dword read."""
        self._recorder.push()
        reply = self._batch.read32(offset)
        self._asked.append((Row(Op.READ, self._window, 4, offset), reply))
        return reply

    def write32(self, offset: int, value: int) -> None:
        """Queue a dword write."""
        self._recorder.push()
        self._batch.write32(offset, value)
        self._asked.append((Row(Op.WRITE, self._window, 4, offset, value), None))

    def write64(self, offset: int, value: int) -> None:
        """Queue a quadword write."""
        self._recorder.push()
        self._batch.write64(offset, value)
        self._asked.append((Row(Op.WRITE, self._window, 8, offset, value), None))


class RecordedConfig:
    """Configuration space of a recorded device."""

    def __init__(self, recorder: Recorder, config: ConfigSpace) -> None:
        self._recorder, self._config = recorder, config

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes."""
        row = Row(Op.READ, CONFIG, size_bytes, offset)
        return self._recorder.access(row, lambda: self._config.read(offset, size_bytes), _result)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes."""
        row = Row(Op.WRITE, CONFIG, size_bytes, offset, value)
        self._recorder.access(row, lambda: self._config.write(offset, value, size_bytes), _nothing)


class RecordedInterrupts:
    """Interrupts of a recorded device."""

    def __init__(self, recorder: Recorder, interrupts: Interrupts) -> None:
        self._recorder, self._interrupts = recorder, interrupts

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Wait for an interrupt. Return the vectors."""
        row = Row(Op.WAIT, offset=wait_ns(timeout_us))
        return self._recorder.access(row, lambda: self._interrupts.wait(timeout_us), _vectors)


class RecordedWitness:
    """The observations of a recorded virtual card about its driver."""

    def __init__(self, recorder: Recorder, witness: Witness) -> None:
        self._recorder, self._witness = recorder, witness

    def mistakes(self) -> Sequence[Observation]:
        """Return the driver's mistakes so far."""
        return self._recorder.access(Row(Op.WITNESS, data=b"mistakes"), self._witness.mistakes, transcript.seen_row)

    def unfinished(self) -> Sequence[Observation]:
        """Return the work that is not finished."""
        return self._recorder.access(Row(Op.WITNESS, data=b"unfinished"), self._witness.unfinished, transcript.seen_row)


class RecordedClock:
    """The clock of a recorded device. Each read of it is an access, because drivers read it while they poll memory."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder, self._clock = recorder, clock

    @property
    def now_us(self) -> int:
        """Microseconds since a fixed moment in the past."""
        return self._recorder.access(Row(Op.NOW), lambda: self._clock.now_us, _result)

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        row = Row(Op.SLEEP, offset=wait_ns(time_us))
        self._recorder.access(row, lambda: self._clock.sleep_us(time_us), _nothing)
