"""Two cards of one program: one reaches the other's memory over the bus, or the host carries the bytes between them.

No kernel and no register says whether the switches and the root between two cards pass requests on. So a page is stored
and read over the bus before any memory is mapped, and every page of a mapping before the mapping is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.submission import transfer
from ringup.drivers.submission.card_queue import CardQueue, CopyVerbs
from ringup.drivers.submission.peer_pages import why_not_reached
from ringup.drivers.submission.peer_points import FarPoints, WaitingCard, WordMemory
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, NotSupported, RingupError
from ringup.queues.queue import TIMEOUT_S
from ringup.queues.timeline import Point

LOG = logging.getLogger(__name__)
PAGE_BYTES = 4096
# of a copy that the host carries: so much host memory at once
PIECE_BYTES = 8 << 20
LINE_BYTES = 64
# what no other way of moving bytes mends
BROKEN = (DeviceLost, DeviceHung, DeviceFault, DeviceTimeout)


class PeerCard(WaitingCard, Protocol):
    """A card, as far as peers need it."""

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

    def flush_place(self, other: Any) -> int | None:
        """Return where this card's engines flush the other card's host data path."""
        ...


def pattern(seed: int) -> bytes:
    """Return a page whose bytes tell where they belong, also beyond 256 bytes."""
    return bytes(at * 31 + (at >> 8) * 17 + seed & 0xFF for at in range(PAGE_BYTES))


class Peer:
    """What `card` does with the memory of `other`. `direct`: it reaches VRAM there; if not, `why` says why not, and
    the host carries the bytes of `copy`.
    """

    def __init__(self, card: PeerCard, other: PeerCard) -> None:
        """Try it with a page. Raises the error of a card that was lost, hung or faulted."""
        self._card, self._other = card, other
        self.memories: tuple[WordMemory, WordMemory] = (card.memory, other.memory)
        self.points = FarPoints(card, other)
        # whether VRAM of the other card was mapped, which engines of this one may store to
        self.maps_vram = False
        self._flush: tuple[Buffer, int] | None = None
        self._mapped: dict[Buffer, Buffer] = {}
        self._scratch = card.alloc(PAGE_BYTES, "vram", name=f"what is read back from {other.name}")
        with undone_on_error(self._scratch.free):
            self.why = self._try()
        if self.why:
            LOG.warning("the host carries bytes from %s to %s and back: %s", other.name, card.name, self.why)

    def __repr__(self) -> str:
        how = "directly" if self.direct else "through the host"
        return f"<{self._card.name} reaches {self._other.name} {how}>"

    @property
    def direct(self) -> bool:
        """Whether the card reaches VRAM of the other one over the bus."""
        return not self.why

    def map(self, buffer: Buffer, name: str = "") -> Buffer:
        """Map a buffer of the other card for this card's queues, not cached. It is freed with `buffer` at the latest.

        The result is for kernels and copies, as every buffer of this card. Of VRAM, each page is stored and read over
        the bus first, and keeps its contents: all submitted work of both cards ends before that, and no third card may
        use the buffer meanwhile. Raises `NotSupported` with the reason where the card does not reach it all: memory of
        the host it always does over PCI. What this card has stored is seen by the other one in work submitted after
        this card's point was reached.
        """
        refused = f"{self._card.name} does not reach {buffer!r} of {self._other.name}"
        if self.why and buffer.where == "vram":
            raise NotSupported(f"{refused}: {self.why}")
        here = self._card.memory.reach(
            self._other.memory, buffer, name or f"{buffer.name or 'memory'} of {self._other.name}"
        )
        if buffer.where == "vram":
            with undone_on_error(here.free):
                if wrong := why_not_reached(self._card, self._other, here.gpu_va, buffer):
                    raise NotSupported(f"{refused}: {wrong}")
            self.maps_vram = True
        return here

    def push(self, point: Point) -> Point | None:
        """Return a point of this card that is reached when what its work up to `point` stored in the other card's VRAM
        is there for the other card's engines. None where no engine of this card can see to that.

        The copy engine reads a page there, which does not pass the stores before it. Then it stores to the register
        that flushes the other card's host data path, and reads again. Source: PCI Express Base Specification,
        "Transaction Ordering"; ROCr amd_gpu_agent.cpp, which lets engines of all cards reach that register.
        """
        if self._flush is None:
            flush_va = self._card.flush_place(self._other)
            if flush_va is None:
                return None
            page = self._other.alloc(PAGE_BYTES, "vram", visible=True, name=f"read by {self._card.name}")
            with undone_on_error(page.free):
                here = self.memories[0].reach(self.memories[1], page, page.name)
            self._flush = here, flush_va
        page_here, flush_va = self._flush
        stream: Any = self._card.copy.stream()
        stream.wait_for(point)
        stream.copy(self._scratch.gpu_va, page_here.gpu_va, LINE_BYTES)
        stream.barrier()
        stream.store(flush_va, 0)
        stream.copy(self._scratch.gpu_va, page_here.gpu_va, LINE_BYTES)
        return self._card.copy.submit(stream)

    def copy(
        self,
        target: Buffer,
        source: Buffer,
        size_bytes: int | None = None,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
        after: Iterable[Point] = (),
    ) -> Point:
        """Copy between a buffer of one card and a buffer of the other, once the points `after` are reached.

        Without a size, copy all of the source. The card's copy engine moves the bytes; where it does not reach the
        other buffer, the host does, and the call returns when it has read them. The first copy of a buffer maps it as
        `map` does. Engines store faster over a bus than they read.
        """
        size = source.size_bytes - source_offset if size_bytes is None else size_bytes
        for buffer, offset in ((target, target_offset), (source, source_offset)):
            transfer.check_range(buffer, offset, size)
        ours = [self._is_ours(buffer) for buffer in (target, source)]
        if ours[0] == ours[1]:
            raise ValueError(
                f"one buffer of {self._card.name} and one of {self._other.name} are wanted, not {target!r} and {source!r}"
            )
        try:
            places = [
                buffer if mine else self._here(buffer) for buffer, mine in zip((target, source), ours, strict=True)
            ]
        except NotSupported as error:
            LOG.info("the host carries %d bytes: %s", size, error)
            return self._carry(ours[0], target, target_offset, source, source_offset, size, after)
        stream: Any = self._card.copy.stream()
        for point in after:
            stream.wait_for(point)
        to = places[0].gpu_va + target_offset
        stream.copy(to, places[1].gpu_va + source_offset, size)
        if not ours[0] and size:
            # ORDER: a read does not pass the stores before it on their way to the other card, so these have arrived
            # when the point is reached. Source: PCI Express Base Specification, "Transaction Ordering"
            last = min(size, LINE_BYTES)
            stream.copy(self._scratch.gpu_va, to + size - last, last)
        return self._card.copy.submit(stream)

    def _is_ours(self, buffer: Buffer) -> bool:
        for card, ours in ((self._card, True), (self._other, False)):
            if card.copy.memory.holds(buffer):
                return ours
        raise ValueError(f"{buffer!r} is neither {self._card.name}'s nor {self._other.name}'s")

    def _here(self, buffer: Buffer) -> Buffer:
        """Return where this card sees a buffer of the other one."""
        found = self._mapped.get(buffer)
        if found is None or found.freed:
            self._mapped = {other: here for other, here in self._mapped.items() if not (other.freed or here.freed)}
            found = self._mapped[buffer] = self.map(buffer)
        return found

    def _carry(
        self,
        inwards: bool,
        target: Buffer,
        target_offset: int,
        source: Buffer,
        source_offset: int,
        size: int,
        after: Iterable[Point],
    ) -> Point:
        here, there = self._card.copy, self._other.copy
        reader, writer = (there, here) if inwards else (here, there)
        for point in after:
            point.wait(TIMEOUT_S)
        done = None
        for at in range(0, size, PIECE_BYTES):
            data = reader.download(source, None, source_offset + at, min(PIECE_BYTES, size - at))
            done = writer.upload(target, data, target_offset + at)
        return done or writer.submit(writer.stream())

    def _try(self) -> str:
        """Return why the card does not reach VRAM of the other one; empty if a page went over and came back."""
        card, other = self._card, self._other
        page = other.alloc(PAGE_BYTES, "vram", visible=True, name=f"tried by {card.name}")
        try:
            here = card.memory.reach(other.memory, page, f"a page of {other.name}")
            card.copy.upload(here, stored := pattern(1)).wait()
            card.copy.copy_buffer(self._scratch, here).wait()
            wrong = _differ(other.copy.download(page), stored, f"{card.name} stored")
            if not wrong:
                other.copy.upload(page, stored := pattern(2)).wait()
                wrong = _differ(card.copy.download(here), stored, f"{card.name} read")
        except BROKEN:
            raise
        except RingupError as error:
            wrong = str(error)
        finally:
            # the error that is on its way says more
            with suppress(RingupError):
                page.free()
        return wrong


def _differ(seen: bytes, wanted: bytes, what: str) -> str:
    """Return how a page differs from the pattern; empty if it does not."""
    wrong = [at for at in range(PAGE_BYTES) if seen[at] != wanted[at]]
    if not wrong:
        return ""
    return (
        f"of a page that {what} over the bus {len(wrong)} of {PAGE_BYTES} bytes are wrong, the first at {wrong[0]:#x} "
        f"({seen[wrong[0]]:#04x} for {wanted[wrong[0]]:#04x}): what lies between the cards does not pass requests on"
    )
