"""What the decoders of all engines share: a decoded packet, and the bytes of a live ring in order.

A decoder shows any data. It never raises an exception for bytes that no engine accepts: it returns a packet with a
note.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ringup.errors import RingupError

# takes the gpu_va and size_bytes of an indirect buffer, returns its bytes; raises an error where there is no memory
Fetch = Callable[[int, int], bytes]
Stream = bytes | bytearray | memoryview | Sequence[int]  # bytes, or dwords
# how deep indirect buffers may call each other: engines keep fewer return addresses
MAX_DEPTH = 4
# of all indirect buffers together that one call follows
MAX_DWORDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a stream.

    `fields`: the values of its fields, by name, in order; bits that no field covers are `NAME.reserved`. `registers`:
    (dword address, value) of each register that it writes. `raw`: its dwords, as far as the stream holds them. `note`:
    what is wrong or special. `inner`: the packets of the indirect buffer that it calls, if it was fetched.
    """

    offset_dwords: int
    name: str
    fields: dict[str, int]
    raw: tuple[int, ...]
    note: str = ""
    registers: tuple[tuple[int, int], ...] = ()
    inner: tuple[Packet, ...] = field(default=())


class Decoder(Protocol):
    """A decoder of one engine's packets."""

    def decode(self, data: Stream) -> list[Packet]:
        """Return the packets of a stream, given as bytes or dwords; every dword belongs to one of them."""
        ...


def dwords_of(data: Stream) -> tuple[tuple[int, ...], bytes]:
    """Return a stream's dwords, and the bytes after the last whole dword."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        flat = bytes(data)
        whole = len(flat) // 4
        return struct.unpack_from(f"<{whole}I", flat), flat[whole * 4 :]
    return tuple(data), b""


def leftover(offset_dwords: int, rest: bytes) -> list[Packet]:
    """Return the packet that shows the bytes after the last whole dword."""
    if not rest:
        return []
    value = int.from_bytes(rest, "little")
    return [Packet(offset_dwords, "BYTES", {}, (value,), f"{len(rest)} bytes behind the last whole dword")]


def decode_ring(
    decoder: Decoder, view: bytes | bytearray | memoryview, rptr: int, wptr: int, unit_bytes: int = 4
) -> list[Packet]:
    """Decode the bytes between the pointers of a live ring. They may wrap at the ring's end.

    `view` is the whole ring. The pointers count in `unit_bytes`: 4 for PM4 rings (dwords), 1 for SDMA rings (bytes).
    They may have wrapped any number of times. The ring holds only the last `len(view)` bytes. Offsets in the packets
    count from `rptr`, or from the oldest dword that is still in the ring.
    """
    size = len(view)
    if size % 4 or size == 0:
        raise ValueError(f"a ring is a whole number of dwords, not {size} bytes")
    start, end = rptr * unit_bytes, wptr * unit_bytes
    if start % 4 or end % 4 or start < 0:
        raise ValueError(f"ring pointers stand at whole dwords, not at bytes {start} and {end}")
    # these pointers wrap with the ring
    if end < start:
        end += -((end - start) // size) * size
    start = max(start, end - size)
    first, length = start % size, end - start
    data = bytes(view[first : first + length])
    return decoder.decode(data + bytes(view[: length - len(data)]))


class Walk:
    """The state while one decoder decodes one stream and the indirect buffers it calls: the fetch function, how many
    dwords may still be followed, which indirect buffers are open.

    `packet_at(dwords, at, walk)` decodes the packet that begins at dword `at`. A packet has at least one dword.
    """

    def __init__(self, packet_at: Callable[[tuple[int, ...], int, Walk], Packet], fetch: Fetch | None) -> None:
        self._packet_at, self._fetch, self._left = packet_at, fetch, MAX_DWORDS
        self._open: list[tuple[int, int]] = []

    def packets(self, data: Stream) -> list[Packet]:
        """Return the packets of a stream; every dword belongs to one of them."""
        dwords, rest = dwords_of(data)
        packets: list[Packet] = []
        at, total = 0, len(dwords)
        while at < total:
            packet = self._packet_at(dwords, at, self)
            packets.append(packet)
            at += len(packet.raw)
        return packets + leftover(total, rest)

    def called(self, gpu_va: int, count_dwords: int) -> tuple[tuple[Packet, ...], str]:
        """Return the packets of an indirect buffer, and a note: what is wrong with it, or why it was not followed. The
        note is empty where there is no fetch function.
        """
        data, note = self._fetched(gpu_va, count_dwords)
        if data is None:
            return (), note
        self._open.append((gpu_va, count_dwords))
        inner = tuple(self.packets(data))
        self._open.pop()
        return inner, note

    def _fetched(self, gpu_va: int, count_dwords: int) -> tuple[bytes | None, str]:
        if self._fetch is None:
            return None, ""
        if (gpu_va, count_dwords) in self._open:
            return None, "not followed: it is being shown already"
        if len(self._open) >= MAX_DEPTH:
            return None, f"not followed: deeper than {MAX_DEPTH} indirect buffers"
        if count_dwords > self._left:
            return None, f"not followed: {count_dwords} dwords, {self._left} are left of the limit"
        try:
            data = self._fetch(gpu_va, count_dwords * 4)
        # the errors that a fetch function raises for memory that it cannot read
        except (RingupError, LookupError, OSError, ValueError) as error:
            return None, f"not followed: {error}"
        self._left -= count_dwords
        return data, "" if len(data) == count_dwords * 4 else f"{len(data)} of its {count_dwords * 4} bytes were there"
