"""A processor's write-combining buffers, for windows mapped that way: lines collect writes and leave in any order.

A mapping with write combining (a prefetchable BAR) does not keep the order of writes. Writes to one line are merged.
Lines leave for the bus when a new line is needed, or at an event that drains them all: a fence, a locked instruction,
an access to uncached memory. Here they leave in just these two cases; `pick` chooses which line leaves first. The bus's
own buffers follow (`posted`).

Source: Intel SDM volume 3, "Buffering of Write Combining Memory Locations"; AMD64 APM volume 2, "Write-Combining
Buffers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LINE = 64
# fewer than a processor has, so that more orders occur
LINES = 4
Send = Callable[[int, bytes], None]
# a window, and the offset of a line in it
Place = tuple[Send, int]


class Combining:
    """The buffers of one processor. `pick(places)` returns the index of the line that leaves next; by default the
    newest.
    """

    def __init__(self, pick: Callable[[Sequence[Place]], int] | None = None) -> None:
        self._pick = pick or (lambda places: len(places) - 1)
        # bytes, and a mask of the written ones
        self._lines: dict[Place, tuple[bytearray, bytearray]] = {}

    def write(self, send: Send, offset: int, data: bytes) -> None:
        """Collect a write; `send(offset, data)` sends it to the bus."""
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
        """Send all lines."""
        while self._lines:
            self._leave()

    def forget(self) -> None:
        """Drop all lines: the link is down."""
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
