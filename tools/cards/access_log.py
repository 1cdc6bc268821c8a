"""Access logs: the events of a served card as text for people and for `ringup trace --decode`. One line for each event;
repetitions are counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ringup.errors import TransportError
from ringup.silicon.common.log import Event
from ringup.silicon.pci.slot import SlotCard
from ringup.tools.common import files

LOG = logging.getLogger(__name__)
HEAD = "ringup access log 1"
LINE = re.compile(r" *(\d+\.\d) us  card (\d+)  (\S+) +(\S+) +(.*?)(?:  \(x(\d+)\))?\n?")
MAX_LINES = 4_000_000
MAX_LINE_CHARACTERS = 4096
MAX_TEXT_CHARACTERS = 3900  # of an event's text, without the rest of the line
UNPRINTABLE = dict.fromkeys((*range(32), 127, 133, 8232, 8233), " ")  # a text is one line for every reader


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of a served card, `count` times in a row. `card`: the card's number among the served cards."""

    time_us: float
    card: int
    block: str
    kind: str
    text: str
    count: int = 1

    def __str__(self) -> str:
        times = f"  (x{self.count})" if self.count > 1 else ""
        return f"{self.time_us:14.1f} us  card {self.card}  {self.block:8} {self.kind:10} {self.text}{times}"


class AccessLog:
    """A log that is being written. `follow` each card once. If writing fails, cards continue, and `close` raises the
    `OSError`.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last: Entry | None = None
        self._cards = 0
        self._closed = False
        self._error: OSError | None = None

    def follow(self, card: SlotCard) -> None:
        """Write the events of a card from now on, including every register access."""
        number = self._cards
        self._cards += 1
        self._write(f"# card {number}: {card.name}")
        card.log.accesses = True
        card.log.watch(lambda event: self._note(number, event))

    def mark(self, text: str) -> None:
        """Write a line of the caller, such as what the guest does."""
        self.flush()
        self._write(f"# {text.translate(UNPRINTABLE)[:MAX_TEXT_CHARACTERS]}", at_once=True)

    def _note(self, card: int, event: Event) -> None:
        text = event.text.translate(UNPRINTABLE)[:MAX_TEXT_CHARACTERS].rstrip()
        last = self._last
        if last is not None and (last.card, last.block, last.kind, last.text) == (card, event.block, event.kind, text):
            self._last = Entry(last.time_us, card, event.block, event.kind, text, last.count + 1)
            return
        self.flush()
        self._last = Entry(event.time_ns / 1000, card, event.block, event.kind, text)

    def flush(self) -> None:
        """Write the event that is being counted."""
        if self._last is not None:
            self._write(str(self._last))
            self._last = None

    def _write(self, line: str, *, at_once: bool = False) -> None:
        if self._closed or self._error is not None:
            return
        try:
            self._stream.write(f"{line}\n")
            if at_once:
                # the caller of `mark` may read up to this line
                self._stream.flush()
        except OSError as error:
            self._error = error
            LOG.warning("the access log ends here: %s", error.strerror)

    def close(self) -> None:
        """Write the event that is being counted, and end the log. Raises the `OSError` that ended it earlier."""
        self.flush()
        self._closed = True
        if self._error is not None:
            raise self._error


@contextmanager
def writing(path: Path | None) -> Iterator[AccessLog | None]:
    """Yield a log that goes to `path`, or None without a path. Raises `OSError`."""
    if path is None:
        yield None
        return
    with files.naming(path), path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(f"{HEAD}\n")
        log = AccessLog(stream)
        try:
            yield log
        finally:
            log.close()


def is_log(path: Path) -> bool:
    """Whether a file begins like an access log. Raises `OSError`."""
    with path.open("rb") as stream:
        return stream.read(len(HEAD)) == HEAD.encode()


def read(path: Path) -> tuple[list[Entry], list[str]]:
    """Return the entries of a log and its remarks. Raises `TransportError` with the line for another file.

    A log that is still being written, or whose writer was killed, may end in the middle of a line; that part becomes a
    remark.
    """
    entries: list[Entry] = []
    remarks: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number in range(1, MAX_LINES + 2):
            line = stream.readline(MAX_LINE_CHARACTERS)
            if not line:
                return entries, remarks
            if number == 1 and line.rstrip("\n") == HEAD:
                continue
            if line.startswith("#"):
                remarks.append(line[1:].strip())
            elif not line.endswith("\n") and len(line) < MAX_LINE_CHARACTERS and line.isprintable():
                return entries, [*remarks, f"the last line is incomplete: {line.strip()}"]
            elif match := LINE.fullmatch(line):
                time_us, card, block, kind, text, count = match.groups()
                entries.append(Entry(float(time_us), int(card), block, kind, text, int(count or 1)))
            else:
                raise TransportError(
                    f"access log {path}: line {number} is not an event: {line[:60].rstrip()!r}; it "
                    "is damaged or was edited"
                )
    raise TransportError(f"access log {path} has more than {MAX_LINES} lines; cut it into pieces")
