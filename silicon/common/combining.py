"""A processor's write-combining buffers, for windows mapped so: lines that gather what is written and leave when they
like, in any order.

A mapping with write combining (a prefetchable BAR) gives up the order of its writes: bytes of one line are put
together, and lines leave for the bus when there are too few of them, or at an event that drains all: a fence, a locked
instruction, any access to uncached memory. Here they leave at the latter and when a line is needed; `pick` chooses
which one. Behind them come the bus's own buffers (`posted`).

Source: Intel SDM volume 3, "Buffering of Write Combining Memory Locations"; AMD64 APM volume 2, "Write-Combining
Buffers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LINE = 64
LINES = 4  # fewer than a processor has: more orders are seen
Send = Callable[[int, bytes], None]
Place = tuple[Send, int]  # a window, and the offset of a line in it


class Combining:
    """The buffers of one processor. `pick(places)` returns the index of the line that leaves next; the newest, if it is
    left out.
    """

    def __init__(self, pick: Callable[[Sequence[Place]], int] | None = None) -> None:
        self._pick = pick or (lambda places: len(places) - 1)
        self._lines: dict[Place, tuple[bytearray, bytearray]] = {}  # bytes, and which of them were written

    def write(self, send: Send, offset: int, data: bytes) -> None:
        """Gather a write; `send(offset, data)` is the way to the bus."""
        done = 0
        while done < len(data):
            first, start = divmod(offset + done, LINE)
            count = min(LINE - start, len(data) - done)
            place = (send, first * LINE)
            if place not in self._lines and len(self._lines) == LINES:
                self._leave()
            line, mask = self._lines.setdefault(place, (bytearray(LINE), bytearray(LINE)))
            line[start : start + count] = data[done : done + count]
            mask[start : start + count] = b"\1" * count
            done += count

    def drain(self) -> None:
        """Let all lines leave."""
        while self._lines:
            self._leave()

    def forget(self) -> None:
        """Lose what is here: the link is down."""
        self._lines.clear()

    def _leave(self) -> None:
        places = list(self._lines)
        place = places[self._pick(places)]
        line, mask = self._lines.pop(place)
        send, first = place
        at = 0
        while (start := mask.find(1, at)) >= 0:
            at = mask.find(0, start) if 0 in mask[start:] else LINE
            send(first + start, bytes(line[start:at]))
