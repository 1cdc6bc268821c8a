"""Tests every page of a mapping of another card's memory: its owner and the card that mapped it see the same bytes.

A switch, a root or an IOMMU may pass on requests to the first pages and not to the others, and nothing reports that. So
the copy engines of both cards store marks in each page that tell its address, and read those of the other card.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.submission.card_queue import CardQueue, CopyVerbs
from ringup.queues.queue import TIMEOUT_S

PAGE_BYTES = 4096
# at the start of each page
MARK = struct.Struct("<QQ")
# pages that are tested at a time, with a packet for each: a part of what a queue has for a long stream
PAGES_AT_ONCE = 1 << 12
# which of the two cards has stored a mark; page addresses leave these bits free
OWNERS, OTHERS = 1, 2
ALL = 0xFFFF_FFFF_FFFF_FFFF


class TestedCard(Protocol):
    """A card, as far as testing its memory needs it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def copy(self) -> CopyVerbs:
        """Its first copy queue."""
        ...

    @property
    def queues(self) -> tuple[CardQueue, ...]:
        """All its queues."""
        ...

    def alloc(self, size_bytes: int, where: Where = ..., *, visible: bool = ..., name: str = ...) -> Buffer:
        """Return memory."""
        ...


class Side:
    """A card and the address at which it sees the pages."""

    def __init__(self, card: TestedCard, first_va: int, count: int) -> None:
        """`count`: how many marks it holds at a time."""
        self.card, self._first_va = card, first_va
        self._marks = card.alloc(count * MARK.size, "host", name="marks of pages")

    def read(self, first: int, count: int) -> bytes:
        """Return the marks of `count` pages."""
        self._copy(first, count, inwards=True)
        return bytes(self._view(count))

    def write(self, first: int, marks: bytes) -> None:
        """Store the marks of pages."""
        count = len(marks) // MARK.size
        self._view(count)[:] = marks
        self._copy(first, count, inwards=False)

    def free(self) -> None:
        """Free its memory."""
        self._marks.free()

    def _view(self, count: int) -> memoryview:
        view = self._marks.view
        assert view is not None  # it is memory of the host
        return view[: count * MARK.size]

    def _copy(self, first: int, count: int, *, inwards: bool) -> None:
        page_va, mark_va = self._first_va + first * PAGE_BYTES, self._marks.gpu_va
        stream: Any = self.card.copy.stream()
        # no rectangles: virtual cards and this driver do not agree on the packet's pitches on SDMA 7
        for _ in range(count):
            stream.copy(*((mark_va, page_va) if inwards else (page_va, mark_va)), MARK.size)
            page_va += PAGE_BYTES
            mark_va += MARK.size
        self.card.copy.submit(stream).wait(TIMEOUT_S)


def why_not_reached(card: TestedCard, owner: TestedCard, here_va: int, there: Buffer) -> str:
    """Return why `card`, which has mapped `there` of `owner` at `here_va`, does not reach each page of it; empty if it
    does.

    Waits for all submitted work of both cards. The memory keeps its contents. `card` stores nothing unless it has read
    all pages rightly. Raises the error of a card that was lost, hung or faulted.
    """
    for queue in (*card.queues, *owner.queues):
        queue.idle(TIMEOUT_S)
    total = -(-there.size_bytes // PAGE_BYTES)
    most = min(total, PAGES_AT_ONCE)
    owners = Side(owner, there.gpu_va, most)
    with undone_on_error(owners.free):
        others = Side(card, here_va, most)
        with undone_on_error(others.free):
            wrong = ""
            for first in range(0, total, most):
                wrong = wrong or _test(owners, others, first, min(most, total - first), there.gpu_va)
    owners.free()
    others.free()
    return f"of {total} pages of {there!r} {wrong}" if wrong else ""


def _test(owners: Side, others: Side, first: int, count: int, there_va: int) -> str:
    """Return what is wrong with `count` pages from page `first` on, and put their contents back."""
    pages = [there_va + (first + number) * PAGE_BYTES for number in range(count)]
    contents = owners.read(first, count)
    try:
        owners.write(first, wanted := _marks(pages, OWNERS))
        if wrong := _differ(others.read(first, count), wanted, first, f"{others.card.name} reads"):
            return wrong
        others.write(first, wanted := _marks(pages, OTHERS))
        # ORDER: a read does not pass the stores before it on their way to the other card. Source: PCI Express Base
        # Specification, "Transaction Ordering"
        others.read(first + count - 1, 1)
        return _differ(owners.read(first, count), wanted, first, f"{others.card.name} stored")
    finally:
        owners.write(first, contents)


def _marks(pages: list[int], whose: int) -> bytes:
    return b"".join(MARK.pack(page_va | whose, ALL ^ page_va) for page_va in pages)


def _differ(seen: bytes, wanted: bytes, first: int, what: str) -> str:
    """Return which marks differ from those that are wanted; empty if none does."""
    if seen == wanted:
        return ""
    size = MARK.size
    places = range(0, len(wanted), size)
    wrong = [at // size for at in places if seen[at : at + size] != wanted[at : at + size]]
    at = wrong[0] * size
    return (
        f"{len(wrong)} that {what} over the bus are wrong, the first is page {first + wrong[0]}: it holds "
        f"{seen[at : at + size].hex()} for {wanted[at : at + size].hex()}"
    )
