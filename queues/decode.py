"""What the decoders of all engines share: a decoded packet, and the bytes of a live ring in order.

A decoder shows whatever it is given. What no engine would take is a packet with a note, never an exception.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ringup.errors import RingupError

# (gpu_va, size_bytes) of an indirect buffer to its bytes; raises where there are none
Fetch = Callable[[int, int], bytes]
Stream = bytes | bytearray | memoryview | Sequence[int]  # bytes, or dwords
MAX_DEPTH = 4  # of indirect buffers in one another: more than any engine keeps return addresses for
MAX_DWORDS = 1 << 20  # of all indirect buffers that one call follows


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a stream.

    `fields`: what its dwords say, by name, in order; bits that no field covers as `NAME.reserved`. `registers`: (dword
    address, value) of what it writes. `raw`: all its dwords that were there. `note`: what is wrong or special. `inner`:
    the indirect buffer that it calls, if fetched.
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
    """Return a stream's dwords and the bytes behind the last whole one."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        flat = bytes(data)
        whole = len(flat) // 4
        return struct.unpack_from(f"<{whole}I", flat), flat[whole * 4 :]
    return tuple(data), b""


def leftover(offset_dwords: int, rest: bytes) -> list[Packet]:
    """Return the packet that shows the bytes behind the last whole dword."""
    if not rest:
        return []
    value = int.from_bytes(rest, "little")
    return [Packet(offset_dwords, "BYTES", {}, (value,), f"{len(rest)} bytes behind the last whole dword")]


def decode_ring(
    decoder: Decoder, view: bytes | bytearray | memoryview, rptr: int, wptr: int, unit_bytes: int = 4
) -> list[Packet]:
    """Decode what lies between the pointers of a live ring, around its end where it must be.

    `view` is the whole ring; the pointers count `unit_bytes` (PM4 rings dwords, SDMA rings bytes: 1) and may have run
    past the end any number of times. Only the last ring full can still be there. Offsets in the packets count from
    `rptr`, or from where the oldest dword lies.
    """
    size = len(view)
    if size % 4 or size == 0:
        raise ValueError(f"a ring is a whole number of dwords, not {size} bytes")
    start, end = rptr * unit_bytes, wptr * unit_bytes
    if start % 4 or end % 4 or start < 0:
        raise ValueError(f"ring pointers stand at whole dwords, not at bytes {start} and {end}")
    if end < start:  # pointers that wrap with the ring
        end += -((end - start) // size) * size
    start = max(start, end - size)
    first, length = start % size, end - start
    data = bytes(view[first : first + length])
    return decoder.decode(data + bytes(view[: length - len(data)]))


class Walk:
    """One decoder at one stream and the indirect buffers it calls: their fetcher, how many dwords are left, which are
    being shown.

    `packet_at(dwords, at, walk)` decodes the packet that begins at dword `at`; it takes one dword or more.
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
        """Return the packets of an indirect buffer, and what is wrong with it or why there are none; nothing is said
        where nobody asked.
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
        except (RingupError, LookupError, OSError, ValueError) as error:  # what memory that is not there can mean
            return None, f"not followed: {error}"
        self._left -= count_dwords
        return data, "" if len(data) == count_dwords * 4 else f"{len(data)} of its {count_dwords * 4} bytes were there"
