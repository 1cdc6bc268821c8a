"""Queues of HSA (AQL) of a Radeon: a compute queue whose packets have 64 bytes, and its `amd_queue_t`.

The engine's firmware finds the `amd_queue_t` by its read index, reads there how much scratch memory a dispatch may use,
and reports errors in a signal. It reads the object when the queue is mapped, so a queue that needs more scratch memory
is drained and mapped again (`reserve_scratch`).

Source: ROCr amd_aql_queue.cpp (constructor, InitScratchSRD, HandleInsufficientScratch, DynamicQueueEventsHandler).
The doorbell gets the number of the last packet: its ExecutePM4, and tinygrad's ops_amd.py, AMDComputeAQLQueue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringup.drivers.amd.submission.hsa_signals import HsaSignals
from ringup.drivers.amd.submission.queue_memory import INACTIVE_AT, OBJECT_AT
from ringup.drivers.memory.access import Access
from ringup.drivers.submission.card_queue import CardQueue, CardQueueParts
from ringup.drivers.submission.hardware_queue import Position
from ringup.drivers.transport.seam import Clock
from ringup.drivers.transport.wait import until
from ringup.queues.amd import aql
from ringup.queues.amd.aql import PACKET_BYTES
from ringup.queues.amd.aql_stream import AqlCommands, AqlStream
from ringup.queues.amd.decode_aql import AqlDecoder
from ringup.queues.amd.hsa_objects import (
    READ_INDEX_BYTE,
    SCRATCH_BYTE,
    VALUE_BYTE,
    WRITE_INDEX_BYTE,
    scratch_fields,
)
from ringup.queues.amd.program import Scratch, tmpring_size
from ringup.queues.decode import Packet
from ringup.queues.kept import Kept, KeptMemory, KeptPlace
from ringup.queues.queue import PACK_ADDRESS, TIMEOUT_S, Owner, Put, Stream
from ringup.queues.timeline import Point

# of the queue's page: where the engine and the host store how many packets they have taken and stored
READ_AT, WRITE_AT = OBJECT_AT + READ_INDEX_BYTE, OBJECT_AT + WRITE_INDEX_BYTE
TAKEN_POLL_US = 20
INVALID_TYPE = aql.INVALID[:1]
# what the firmware stores in a queue's inactive signal. Source: ROCr amd_aql_queue.cpp, DynamicQueueEventsHandler
REASONS = {
    0x1: "more scratch memory than the queue has",
    0x2: "a grid or a work-group of a wrong size",
    0x4: "more LDS than a work-group has",
    0x8: "no kernel at that address",
    0x20: "a packet of no known type, or with a wrong field",
    0x40: "a work-group that is too large",
    0x80: "more registers than a work-group has",
    0x100: "a vendor's packet of no known format",
    0x200: "scratch memory to be given back",
    0x400: "more scratch memory than the queue has",
    0x2000_0000: "an access outside the address space",
    0x4000_0000: "an illegal instruction",
    0x8000_0000: "a trap of a wave",
}


@dataclass(frozen=True, slots=True)
class AqlStreams:
    """What a queue of HSA has besides. `scratch` grows; `engines`: the chip's number of shader engines."""

    commands: AqlCommands
    owner: Owner
    scratch: Scratch
    engines: int
    page: Access
    ring: Access
    signals: HsaSignals
    clock: Clock

    def begin(self) -> AqlStream:
        """Return an empty stream."""
        return AqlStream(self.commands, self.owner)


def taken(name: str, page: Access, clock: Clock) -> Callable[[int, float], int]:
    """Return what waits until a queue's engine has taken so many packets. It returns how many those are, and raises
    `DeviceTimeout`.
    """
    read = page.reader(READ_AT)

    def wait(packets: int, timeout_s: float) -> int:
        return until(
            read,
            lambda index: index >= packets,
            clock=clock,
            timeout_us=timeout_s * 1e6,
            poll_us=TAKEN_POLL_US,
            doing=f"waiting for {name} to take packet {packets}, whose work is done",
            describe=lambda index: f"its read index was {index}",
        )

    return wait


class AqlQueue(CardQueue):
    """A compute queue that takes the packets of HSA."""

    def __init__(self, parts: CardQueueParts, streams: AqlStreams) -> None:
        super().__init__(parts)
        self._set_streams(streams)

    def replace_parts(self, parts: CardQueueParts, streams: AqlStreams) -> None:
        """Go on with parts that a new queue was made of, as `_replace` says."""
        self._replace(parts)
        self._set_streams(streams)

    def _set_streams(self, streams: AqlStreams) -> None:
        self._streams, self._wave_bytes = streams, 0
        # what the last packet of each submission runs, but for the value
        self._release = bytearray(streams.commands.signal_pm4(self.timeline.gpu_va, 0))

    def stream(self) -> AqlStream:
        """Return an empty stream."""
        return self._begin(self._streams.begin)

    def submit(
        self,
        stream: Stream,
        timeout_s: float = TIMEOUT_S,
        put: Put | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        """Submit a stream as `Queue.submit` does. Raises a `ValueError` for a stream whose signals were freed.

        A stream longer than a quarter of the ring becomes several submissions: if a wait for free slots raises an
        error, the first of them run. A stream whose kernels need more scratch memory than the queue has waits until all
        earlier work is done.
        """
        if isinstance(stream, AqlStream):
            self.ready(stream, timeout_s)
        # packets run from the ring alone, so nobody else can have stored them
        return super().submit(stream, timeout_s, None, stored)

    def ready(self, stream: AqlStream, timeout_s: float) -> None:
        """Make the queue ready for a stream. Raises what `submit` raises."""
        self.admit()
        self.check(stream)
        for signal in stream.signals:
            signal.gpu_va  # noqa: B018  it raises if the signal is gone
        if stream.scratch_bytes_per_wave > self._wave_bytes:
            self.reserve_scratch(stream.scratch_bytes_per_wave, timeout_s)

    def run(self, commands: bytes | bytearray, waits: list[Point], timeout_s: float) -> Point:
        """Submit packets that are complete."""
        head = self._prefix(waits) if self.waits or waits else b""
        if len(commands) > self._longest_bytes:
            head, commands = self._outside(head, commands, timeout_s)
        point = self._push(head + commands, timeout_s)
        if self.waits:
            self.waits.clear()
        return point

    def _outside(self, head: bytes, body: bytes | bytearray, timeout_s: float) -> tuple[bytes, bytes | bytearray]:
        """Submit a long stream piece by piece, since packets run from the ring alone; return the last piece."""
        step = self._longest_bytes
        last = (len(body) - 1) // step * step
        for at in range(0, last, step):
            self._push(head + body[at : at + step], timeout_s)
            head = b""
        return head, body[last:]

    def _make_kept(self, stream: Stream, copies: int) -> Kept:
        return AqlKept(self, stream, copies)

    def kept_memory(self, size_bytes: int) -> KeptMemory:
        """Return memory for a kept stream."""
        return self._services.kept_memory(size_bytes)

    # --- PM4 around the packets -------------------------------------------------------------------------------------
    def _prefix(self, more: list[Point]) -> bytes:
        """Return the packet that waits for points."""
        waits = super()._prefix(more)
        return self._streams.commands.run(self._place(waits), len(waits)) if waits else b""

    def _place(self, pm4: bytes | bytearray, timeout_s: float = TIMEOUT_S) -> int:
        """Store PM4 for the submission that is being made; return its address."""
        arena = self._indirect
        at = arena.take(len(pm4), timeout_s)
        arena.put(at, pm4)
        return arena.gpu_va + at

    def _sign(self, value: int) -> None:
        release = self._release
        self._streams.commands.sign_pm4(release, value)
        PACK_ADDRESS(self._signal, aql.IB_ADDRESS_BYTE, self._place(release))

    def _push(
        self,
        data: bytes | bytearray,
        timeout_s: float,
        at: int | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        point = super()._push(data, timeout_s, at, stored)
        self._indirect.keep_until(point)
        return point

    # --- scratch memory ---------------------------------------------------------------------------------------------
    def reserve_scratch(self, bytes_per_wave: int, timeout_s: float = TIMEOUT_S) -> None:
        """Give the queue scratch memory of at least so many bytes for each wave; more than it has makes it wait until
        its work is done. `submit` does it by itself: call it before work that waits for the host.

        Raises `OutOfMemory`, and what a point's `wait` raises.
        """
        self.admit()
        bytes_per_wave = aql.number(bytes_per_wave, "bytes_per_wave", 0, 0xFFFF_FFFF)
        if bytes_per_wave <= self._wave_bytes:
            return
        streams = self._streams
        block = streams.scratch.block(bytes_per_wave)
        self.idle(timeout_s)
        self.hardware.unmap()
        waits = list(self.waits)
        version = streams.commands.pm4.version
        tmpring = int(tmpring_size(version, block, streams.engines))
        streams.page.write(OBJECT_AT + SCRATCH_BYTE, scratch_fields(block, tmpring, version[0]))
        self._services.map_again(self, ValueError(f"{self.name} was mapped again"))
        self.waits = waits
        self._wave_bytes = block.wave_bytes

    # --- how it stands ----------------------------------------------------------------------------------------------
    def restart(self, cause: Exception) -> None:
        """Go on after the hardware was taken off."""
        super().restart(cause)
        self._streams.page.write(INACTIVE_AT + VALUE_BYTE, bytes(8))

    def _index(self, at: int) -> int:
        return int.from_bytes(self._streams.page[at : at + 8], "little")

    def position(self) -> Position:
        """Read where the queue stands: the indices in memory, since no public source says how its registers count."""
        at = self.hardware.position()
        return Position(at.mapped, self.taken_bytes, self._index(WRITE_AT) * PACKET_BYTES, at.status, at.behind)

    @property
    def taken_bytes(self) -> int:
        """How many bytes of packets the engine has taken since the queue was mapped."""
        return self._index(READ_AT) * PACKET_BYTES

    @property
    def refused(self) -> str:
        """Why the engine has stopped for good, in words; empty while it goes on. It reads the queue's inactive
        signal.
        """
        code = self._index(INACTIVE_AT + VALUE_BYTE)
        if not code:
            return ""
        reasons = [reason for bit, reason in REASONS.items() if code & bit]
        index = self._first()
        return (
            f"{self.name} has stopped at packet {index} ({self._packet_at(index)}):"
            f" {' and '.join(dict.fromkeys(reasons)) or 'no known reason'} (code {code:#x})"
        )

    def _first(self) -> int:
        """Return the number of the first packet that the engine has not taken. It may count packets later than it
        takes them: those are INVALID.
        """
        index, end = self._index(READ_AT), self.ring.wptr // PACKET_BYTES
        while index < end and self._streams.ring[(at := self._place_of(index)) : at + 1] == INVALID_TYPE:
            index += 1
        return index

    def _place_of(self, index: int) -> int:
        return index * PACKET_BYTES % self.ring.size_bytes

    def _packet_at(self, index: int) -> str:
        (packet,) = self._decoded(index)
        return packet.name

    def stands(self) -> list[str]:
        """Return lines that say for which signals the engine waits."""
        index = self._first()
        if index * PACKET_BYTES >= self.ring.wptr:
            return []
        (packet,) = self._decoded(index)
        handles = [value for name, value in packet.fields.items() if name.startswith("dep_signal") and value]
        if packet.name == "BARRIER_VALUE":
            handles = [packet.fields["signal"]]
        if not handles:
            return []
        return [f"{self.name}: packet {index}, {packet.name}, waits for {', '.join(map(self._signal_text, handles))}"]

    def _decoded(self, index: int) -> list[Packet]:
        at = self._place_of(index)
        return AqlDecoder(self._streams.commands.pm4.version).decode(bytes(self._streams.ring[at : at + PACKET_BYTES]))

    def _signal_text(self, gpu_va: int) -> str:
        signal = self._streams.signals.at(gpu_va)
        if signal is None:
            return f"the signal at {gpu_va:#x}, which is none of this card's"
        return f"{signal!r}, which is {signal.value}"


class AqlKept(Kept):
    """A kept stream of an HSA queue. Its arguments stay in the card's memory; its packets are stored in the ring by
    every submission.
    """

    def __init__(self, queue: AqlQueue, stream: Stream, copies: int) -> None:
        super().__init__(queue, stream, queue.kept_memory, copies)
        assert isinstance(stream, AqlStream)  # the queue has checked it
        self._aql_queue, self._stream = queue, stream

    def _run(self, place: KeptPlace, timeout_s: float) -> Point:
        self._aql_queue.ready(self._stream, timeout_s)
        return self._aql_queue.run(place.image[: self.commands_bytes], self._waits, timeout_s)
