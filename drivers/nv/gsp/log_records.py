"""GSP's own logs, as far as the public sources tell: records of 64-bit words, arguments first, then where the record's
text lies in a table, then the time.

The table has the text and the number of arguments; the vendor does not publish it. So where a record begins is a
GUESS: behind the nearest word that is a time no later than this record's, with a place of a text near this one's before
it. Source: OGKM liblogdecode.c, libosExtractLog_ReadRecord; libos_log.h, libosLogMetadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

# LIBOS_LOG_MAX_ARGS; words behind a record's arguments
MAX_ARGUMENTS, TAIL_WORDS = 20, 2
# limits of ours: how far apart texts lie in the table, and records of one log in time
MAX_TABLE_BYTES, MAX_GAP_NS = 16 << 20, 1 << 50
PLACE_ALIGN = 8
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record. `time_ns`: of the card's clock. `text_at`: where its text lies in the vendor's table."""

    time_ns: int
    text_at: int
    arguments: tuple[int, ...]

    def __str__(self) -> str:
        arguments = ", ".join(f"{value:#x}" for value in self.arguments)
        return f"{self.time_ns / NS_PER_S:.6f} s: text {self.text_at:#x}({arguments})"


@dataclass(frozen=True, slots=True)
class Log:
    """The records of one log, the oldest first. `lost_words`: words before them that belong to no whole record."""

    records: tuple[LogRecord, ...]
    lost_words: int


def decode(raw: bytes) -> Log:
    """Return the records of a log's words, the oldest first, as `Arguments.logs` gives them."""
    words = struct.unpack_from(f"<{len(raw) // 8}Q", raw)
    records: list[LogRecord] = []
    end = len(words)
    while end >= TAIL_WORDS and _is_place(words[end - TAIL_WORDS]):
        text_at, time_ns = words[end - TAIL_WORDS : end]
        start = _start(words, end - TAIL_WORDS, text_at, time_ns)
        if start is None:
            break
        records.append(LogRecord(time_ns, text_at, words[start : end - TAIL_WORDS]))
        end = start
    return Log(tuple(reversed(records)), end)


def _start(words: tuple[int, ...], end: int, text_at: int, time_ns: int) -> int | None:
    """Return where the arguments that end at `end` begin; None where no record ends before them."""
    for start in range(end, max(-1, end - MAX_ARGUMENTS - 1), -1):
        # the log's first record
        if start == 0:
            return start
        if start >= TAIL_WORDS:
            place, time = words[start - TAIL_WORDS : start]
            near = _is_place(place) and abs(place - text_at) < MAX_TABLE_BYTES
            if near and time and 0 <= time_ns - time < MAX_GAP_NS:
                return start
    return None


def _is_place(word: int) -> bool:
    return word != 0 and word % PLACE_ALIGN == 0
