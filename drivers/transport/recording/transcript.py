"""Transcripts: every access of a driver to its card, in order, with the card's answer. A transcript is a gzip file of
rows. Readers treat it as hostile input.

A row is a request (operation, window, numbers, bytes) and its answer. Host memory is stored as differences: `PUSH` is
what the driver wrote before an access, `PULL` is what the card wrote until the end of an access.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct
from typing import IO, Any

from ringup import errors
from ringup.drivers.transport.seam import Observation
from ringup.errors import RingupError, TransportError

MAGIC = b"ringup transcript 1\n"
# operation, window, size_bytes, offset, value, result, bytes of the request, bytes of the answer
ROW = Struct("<BBHQQQII")
RUN = Struct("<QQ")  # bus_addr, size_bytes
VECTOR = Struct("<I")
# windows; 0 to 5 are BARs
ROM, CONFIG, NO_WINDOW = 6, 7, 8
WINDOW_NAMES = {ROM: "rom", CONFIG: "config", NO_WINDOW: ""}
# host memory is allocated in pages of 4 KiB or 2 MiB
PAGE_BYTES, DWORD_BYTES = 4096, 4
HUGE_PAGE_BYTES = 2 << 20
# of an unpacked transcript: a small file may unpack to any size
MAX_BYTES, MAX_ROWS = 512 << 20, 4_000_000
# flags of host memory; UNSEEN: the CPU does not reach it
COHERENT, CONTIGUOUS, UNSEEN = 1, 2, 4
NS_PER_US = 1000
MASK16, MASK64 = 0xFFFF, 0xFFFF_FFFF_FFFF_FFFF


class Op(IntEnum):
    """The operation of a row. The comments give the fields: of the request -> of the answer. Times are in nanoseconds,
    but that of `NOW` is in microseconds.
    """

    INFO = 0  # data: JSON of name, polls_vram, bars, rom; the first row
    READ = 1  # window, size_bytes, offset -> result
    WRITE = 2  # window, size_bytes, offset, value
    READ_BLOCK = 3  # window, offset, value: how many bytes -> answer
    WRITE_BLOCK = 4  # window, offset, data
    SIZE = 5  # window -> result
    BATCH = 6  # window
    BATCH_END = 7  # window
    WAIT = 8  # offset: the bound -> answer: vectors
    NOW = 9  # -> result
    SLEEP = 10  # offset: how long
    LOST = 11  # -> result; only recorded when it changes
    ALLOC = 12  # offset: size in bytes, value: number of the memory -> result: flags, answer: runs
    PIN = 13
    FREE = 14  # value: number of the memory
    PUSH = 15  # value: number of the memory, offset, data
    PULL = 16
    RESETS = 17  # -> answer: names with a zero after each
    RESET = 18  # data: which
    FIRMWARE = 19  # data: name -> result: whether there is such an image, answer: the image
    CLOSE = 20
    ERROR = 21  # the access of the row before raised an error; data: class, zero, message
    END = 22  # value: rows before it
    WITNESS = 23  # data: mistakes or unfinished -> answer: JSON, a list of `Seen`


Request = tuple[Op, int, int, int, int, bytes]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the request, then `result` and `answer`."""

    op: Op
    window: int = NO_WINDOW
    size_bytes: int = 0
    offset: int = 0
    value: int = 0
    data: bytes = b""
    result: int = 0
    answer: bytes = b""

    @property
    def request(self) -> Request:
        """Return the request without the answer. Numbers are truncated to the width of the row's fields."""
        return self.op, self.window, self.size_bytes & MASK16, self.offset & MASK64, self.value & MASK64, self.data

    def pack(self) -> bytes:
        """Return the bytes of the row."""
        *numbers, data = self.request
        return ROW.pack(*numbers, self.result, len(data), len(self.answer)) + data + self.answer

    def __str__(self) -> str:
        """Return the request as text, for errors."""
        where = WINDOW_NAMES.get(self.window, f"bar{self.window}")
        text = f"{self.op.name.lower()}{8 * self.size_bytes or ''} {where}+{self.offset:#x}, {self.value:#x}"
        return text + (f", {len(self.data)} bytes {self.data[:16].hex()}" if self.data else "")


@dataclass(frozen=True)
class Info:
    """The properties of a recorded card."""

    name: str
    polls_vram: bool
    bars: tuple[int, ...]
    rom: bool
    witness: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation in a transcript."""

    key: str
    text: str
    pc: int
    gpu_va: int
    vmid: int


def seen_row(row: Row, observations: Sequence[Observation]) -> Row:
    """Return `row` with observations as its answer."""
    plain = [[one.key, one.text, one.pc, one.gpu_va, one.vmid] for one in observations]
    return replace(row, answer=json.dumps(plain).encode())


def seen_of(row: Row) -> list[Seen]:
    """Return the observations of a row. Raises `ValueError` or `TypeError` for a damaged row."""
    found = [Seen(*one) for one in json.loads(row.answer)]
    for one in found:
        if not all(isinstance(text, str) for text in (one.key, one.text)):
            raise TypeError(f"{one} is no observation")
        if not all(type(number) is int for number in (one.pc, one.gpu_va, one.vmid)):
            raise TypeError(f"{one} is no observation")
    return found


RAISED: dict[str, type[Exception]] = {
    **{cls.__name__: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, RingupError)},
    "ValueError": ValueError,
    "TypeError": TypeError,
}


def changes(now: memoryview, before: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) for each run of dwords that differ. Both arguments have the same number of whole pages."""
    if before == now:
        return
    for page in range(0, len(before), PAGE_BYTES):
        held, fresh = bytes(before[page : page + PAGE_BYTES]), bytes(now[page : page + PAGE_BYTES])
        if held == fresh:
            continue
        start = None
        pairs = zip(memoryview(held).cast("I"), memoryview(fresh).cast("I"), strict=True)
        for dword, (old, new) in enumerate(pairs):
            if old != new and start is None:
                start = dword * DWORD_BYTES
            elif old == new and start is not None:
                yield page + start, fresh[start : dword * DWORD_BYTES]
                start = None
        if start is not None:
            yield page + start, fresh[start:]


def wait_ns(time_us: float) -> int:
    """Return a time in nanoseconds, limited to 64 bits, as in rows."""
    return min(max(0, round(time_us * NS_PER_US)), (1 << 64) - 1)


def info_row(info: Info) -> Row:
    """Make the first row."""
    known = {"name": info.name, "polls_vram": info.polls_vram, "bars": info.bars, "rom": info.rom}
    known |= {"witness": True} if info.witness else {}
    return Row(Op.INFO, data=json.dumps(known).encode())


def read(stream: IO[bytes], name: str) -> tuple[Info, list[Row]]:
    """Read and check a whole transcript. Return the card's properties, and the rows between the first and the last.

    Raises `TransportError` that begins with `name` for a damaged transcript.
    """
    try:
        with gzip.GzipFile(fileobj=stream) as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TransportError(f"{name} is cut short or damaged ({error}); record it again") from error
    if len(text) > MAX_BYTES:
        raise TransportError(f"{name} unpacks to more than {MAX_BYTES} bytes; record a shorter session")
    if not text.startswith(MAGIC):
        raise TransportError(f"{name} is no transcript of this version: it begins with {text[:20]!r}")
    rows = list(_rows(text, name))
    if len(rows) < 2 or rows[-1].op != Op.END or rows[-1].value != len(rows) - 1:
        raise TransportError(f"{name} lacks its end: {len(rows)} rows; the recorder was not closed")
    info, body = _info(rows[0], name), rows[1:-1]
    _check(info, body, name)
    return info, body


def _rows(text: bytes, name: str) -> Iterator[Row]:
    at, size, known = len(MAGIC), len(text), frozenset(Op)
    for _ in range(MAX_ROWS):
        if at == size:
            return
        if at + ROW.size > size:
            raise TransportError(f"{name} is cut short at byte {at}; record it again")
        op, window, size_bytes, offset, value, result, asked, answered = ROW.unpack_from(text, at)
        at += ROW.size
        middle, end = at + asked, at + asked + answered
        if op not in known or window > NO_WINDOW or end > size:
            raise TransportError(f"{name} is damaged at byte {at}: operation {op}, window {window}, {end - at} bytes")
        yield Row(Op(op), window, size_bytes, offset, value, text[at:middle], result, text[middle:end])
        at = end
    raise TransportError(f"{name} has more than {MAX_ROWS} rows; record a shorter session")


def _info(row: Row, name: str) -> Info:
    try:
        known: Any = json.loads(row.data) if row.op == Op.INFO else None
        info = Info(
            str(known["name"]),
            bool(known["polls_vram"]),
            tuple(known["bars"]),
            bool(known["rom"]),
            bool(known.get("witness")),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TransportError(f"{name} does not say what card it is of ({error}); record it again") from error
    if not all(type(bar) is int and 0 <= bar < ROM for bar in info.bars):
        raise TransportError(f"{name} does not say what card it is of (BARs {info.bars}); record it again")
    return info


def _check(info: Info, rows: list[Row], name: str) -> None:
    """Check what a replay relies on: that windows exist, that answers have the right size, that memory is not freed."""
    windows = {*info.bars, CONFIG, NO_WINDOW} | ({ROM} if info.rom else set())
    memories: dict[int, int] = {}
    raised = [row.op == Op.ERROR for row in rows[1:]] + [False]
    for number, (row, failed) in enumerate(zip(rows, raised, strict=True)):
        wrong = row.window not in windows
        match row.op:
            case Op.READ:
                wrong |= row.size_bytes not in (1, 2, 4, 8) or bool(row.result >> 8 * row.size_bytes)
            case Op.READ_BLOCK:
                wrong |= row.value != len(row.answer) and not failed
            case Op.WAIT:
                wrong |= bool(len(row.answer) % VECTOR.size)
            case Op.ALLOC | Op.PIN if not failed:
                wrong |= row.value in memories or bool(len(row.answer) % RUN.size)
                total = sum(size for _, size in RUN.iter_unpack(row.answer[: len(row.answer) // RUN.size * RUN.size]))
                most = -(-row.offset // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
                wrong |= not row.offset <= total <= most or bool(total % PAGE_BYTES)
                wrong |= bool(row.result & UNSEEN) and len(row.answer) != RUN.size
                memories[row.value] = total
            case Op.FREE:
                memories.pop(row.value, None)
            case Op.PUSH | Op.PULL:
                wrong |= row.offset + len(row.data) > memories.get(row.value, -1)
            case Op.ERROR:
                wrong |= row.data.partition(b"\0")[0].decode("ascii", "replace") not in RAISED
            case Op.WITNESS:
                wrong |= not (failed or _is_testimony(row))
            case Op.INFO | Op.END:
                wrong = True
        if wrong:
            raise TransportError(f"{name}: access {number} is damaged: {row}; record it again")


def _is_testimony(row: Row) -> bool:
    try:
        seen_of(row)
    except (ValueError, TypeError, RecursionError):
        return False
    return True
