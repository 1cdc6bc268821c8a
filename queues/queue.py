"""Queues submit streams to a card. One class serves every vendor: the vendor's packets and a ring are its arguments.

A submission consists of packets that wait for points, the stream's commands, and the packet that signals the queue's
timeline. It is published as a whole.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Any, NamedTuple

from ringup.errors import DeviceTimeout, RingupError
from ringup.queues.arena import Arena
from ringup.queues.commands import Commands
from ringup.queues.ring import Ring
from ringup.queues.timeline import Point, Timeline, copy_of

ADDRESS = struct.Struct("<Q")
PACK_ADDRESS = ADDRESS.pack_into
# ring bytes that stay free for the submissions that `put` of `Queue.submit` makes itself, in its one or two calls
PUT_ROOM_BYTES = 256
# bytes: a cache line of the scalar cache, more than any argument needs; what addresses in other forms than 64 bits need
ARGS_ALIGN, FORM_ALIGN = 64, 256
# the head of a packet that carries arguments; the largest arguments that go into the ring
HEAD_BYTES, INLINE_BYTES = 4, 4096
# TIMEOUT: ours, for work whose submission was interrupted
BROKEN_OFF_S = 0.2
# TIMEOUT: how long a full ring waits for old work; amdgpu's default lockup timeout for compute is the same order
TIMEOUT_S = 10.0


class Owner:
    """The thread that owns a card and all its objects. None of these objects has a lock. `thread`: the thread that may
    submit; `NO_THREAD` while no thread may.
    """

    __slots__ = ("_cause", "_cured", "_holder", "name", "thread")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = self._holder = get_ident()
        self._cause: Exception | None = None
        self._cured: Callable[[], bool] | None = None

    def adopt(self) -> None:
        """Give the card to the calling thread. No other thread may be using it."""
        self._holder = get_ident()
        self.thread = self._holder if self._cause is None else NO_THREAD

    def refuse(self, cause: Exception, cured: Callable[[], bool] | None = None) -> None:
        """Make every later submission raise `cause`. Each submission calls `cured` first: when it returns True,
        submissions are accepted again.
        """
        self.thread, self._cause, self._cured = NO_THREAD, cause, cured

    def accept(self) -> None:
        """Accept submissions again."""
        self.thread, self._cause, self._cured = self._holder, None, None

    def admit(self) -> None:
        """Raise an error if the calling thread may not submit now."""
        self.check()
        if self._cause is not None:
            if self._cured is None or not self._cured():
                raise copy_of(self._cause)
            self.accept()

    def check(self) -> None:
        """Raise a `ValueError` if another thread than the owner calls."""
        if get_ident() != self._holder:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            holder = f"thread {names[self._holder]!r}" if self._holder in names else "a thread that has ended"
            raise ValueError(
                f"{self.name} belongs to {holder}, not to {threading.current_thread().name!r}: call `card.adopt()` here"
                " first"
            )


# where the arguments are: the arena, its head at that time, how many addresses were filled in, the arguments themselves
Placed = tuple[Arena | None, int, int, bytes]
NOWHERE: Placed = (None, 0, 0, b"")
# which arguments a submission uses: none, a new piece of the arena, or those of an earlier submission
NONE, NEW, OLD = range(3)


class Form(NamedTuple):
    """How addresses of arguments are stored, where not as plain 64 bits: `pack(memory, byte, value)`, where `value` is
    the second number of the fixup plus the address of the arguments, shifted right. The arguments begin at a multiple
    of 256 bytes.
    """

    pack: Callable[[bytearray, int, int], None]
    shift: int


PLAIN = Form(PACK_ADDRESS, 0)


class Stream:
    """Commands while they are built: bytes, and the places in them for the addresses of kernel arguments. It does not
    access hardware. A subclass for each engine adds the commands.

    A stream may be submitted more than once, also while it runs. Each submission gets its own copy of the arguments.
    It uses the copy of the last submission if the arguments are equal and that copy is the last piece of the arena.
    """

    # set by the first submission
    placed: Placed | None = None

    def __init__(self, commands: Commands, owner: Owner) -> None:
        self.kind = commands.kind
        self.owner = owner
        self.body = bytearray(commands.begin)
        self.args = bytearray()
        # (byte in body, byte in args): the body needs the 64-bit address of this byte of the arguments
        self.fixups: list[tuple[int, int]] = []
        # the same for addresses in the arguments themselves
        self.arg_fixups: list[tuple[int, int]] = []
        # the forms of the addresses in the body and in the arguments, where they are not plain 64 bits
        self.forms: tuple[Form, Form] | None = None
        self.waits: list[Point] = []
        # the hook of a profile: called with a command's name before the command; returns a function to call after it
        self.around: Callable[[Any, str], Callable[[], None]] | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the commands, without the signal at the end."""
        return len(self.body)

    def wait_for(self, point: Point) -> None:
        """Make the whole stream wait for a point of this or another queue before it starts."""
        check_point(point)
        self.waits.append(point)


def check_point(point: Point) -> None:
    """Raise a `TypeError` for anything but a `Point`."""
    if not isinstance(point, Point):
        raise TypeError(f"a point is waited for, such as `submit` returns, not {type(point).__name__}")


Put = Callable[[int, bytes | bytearray], None]


class Inline(NamedTuple):
    """How arguments are stored in the ring, next to their commands. Used where each store into the card's memory costs
    a round trip.

    `gpu_va`: the address of the ring. `carry(size_bytes)`: the head of a packet that the engine skips together with
    the next `size_bytes` bytes.
    """

    gpu_va: int
    carry: Callable[[int], bytes]


class Call(NamedTuple):
    """A call of commands in memory, as `Queue.call` caches it."""

    packets: bytes
    # the packets, the signal and the padding
    submission: bytearray
    size_bytes: int
    # the byte of the signal's value in `submission`
    low_at: int
    # bytes of padding at the end
    fill_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParts:
    """The parts of a queue. `args`: memory for kernel arguments. `indirect`: memory for streams that are too long for
    the ring. `inline`: set where arguments are stored in the ring.
    """

    name: str
    commands: Commands
    timeline: Timeline
    ring: Ring
    args: Arena
    indirect: Arena
    owner: Owner
    inline: Inline | None = None


class Queue:
    """One queue of a card."""

    def __init__(self, parts: QueueParts) -> None:
        self._install(parts)

    def _install(self, parts: QueueParts) -> None:
        """Use `parts` from now on. A queue that already has parts may have no work in flight on them."""
        commands, timeline, ring = parts.commands, parts.timeline, parts.ring
        self.name, self.commands, self.timeline, self.ring = parts.name, commands, timeline, ring
        self._args, self._indirect, self.owner, self._inline = parts.args, parts.indirect, parts.owner, parts.inline
        self._kind = commands.kind
        self._longest_bytes = ring.size_bytes // 4
        self._signal = bytearray(commands.signal(timeline.gpu_va, 0))
        self._places = commands.signal_places
        # from one submission to the next, only the low part of the value changes, until the value needs more bits.
        # Packets without a place for the value leave all of it to `_sign`
        self._low_at, low, _ = next((place for place in self._places if place[2] == 0), NO_PLACE)
        self._pack_low, self._low_mask = low.pack_into, MASKS[low.size] if self._places else -1
        # engines that need padding fetch eight units at a time. The padding of a submission, by its length in bytes
        pad = commands.pad
        self._fetch_bytes = 8 * len(pad) or 1
        self._fills = {n * len(pad): commands.padding(n) for n in range(8)}
        self._call_period = math.lcm(commands.call_period, self._fetch_bytes)
        self.waits: list[Point] = []

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def wait_for(self, point: Point) -> None:
        """Make every later submission wait for a point of another queue or card."""
        self.owner.check()
        check_point(point)
        self.waits.append(point)

    @property
    def clear_ahead(self) -> bool:
        """Whether a submission would start at once: no work is in flight, and the queue waits for no point."""
        timeline = self.timeline
        return not self.waits and (timeline.known == timeline.last or timeline.idle)

    def admit(self) -> None:
        """Raise an error if the calling thread may not submit now."""
        if get_ident() != self.owner.thread:
            self.owner.admit()

    def check(self, stream: Stream) -> None:
        """Raise a `TypeError` or `ValueError` unless `stream` is one of this queue's engine and card."""
        if not isinstance(stream, Stream):
            raise TypeError(f"{self.name} takes streams, not {type(stream).__name__}")
        if stream.kind != self.commands.kind:
            raise ValueError(f"{self.name} takes {self.commands.kind} streams, not {stream.kind}")
        if stream.owner is not self.owner:
            raise ValueError(
                f"the stream was begun for another card, or before {self.owner.name} lost its memory: build it anew"
            )

    def submit(
        self,
        stream: Stream,
        timeout_s: float = TIMEOUT_S,
        put: Put | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        """Submit a stream to the card and return the point that is reached when its work is done.

        `put(at_bytes, data)` is optional: it writes the ring's bytes by DMA instead of by the CPU. It may submit up to
        128 bytes to this queue itself; that work must have ended when it returns. `stored` is called when all commands
        are stored, before the write pointer is published.

        Waits up to `timeout_s` for space in a full ring. Raises a `ValueError` for a stream of another engine, card or
        thread, the card's first error while the card refuses work, and the errors of waits. Nothing is submitted then.
        """
        owner = self.owner
        if get_ident() != owner.thread:
            owner.admit()
        try:
            fits = stream.owner is owner and stream.kind == self._kind
        # `stream` is not a stream
        except AttributeError:
            fits = False
        if not fits:
            self.check(stream)
        head = self._prefix(stream.waits) if self.waits or stream.waits else b""
        args, fixups = self._args, stream.fixups
        body: bytes | bytearray = stream.body
        used_args, used_indirect = NONE, len(body) > self._longest_bytes
        if fixups:
            inline = self._inline
            if inline is not None and not used_indirect and len(stream.args) <= INLINE_BYTES:
                head += self._carry(inline, stream, len(head))
                # the addresses of the arguments are right only if the commands begin at the write pointer
                put = None
            else:
                data, placed = stream.args, stream.placed
                if (
                    placed is not None
                    and placed[0] is args
                    and placed[1] == args.head
                    and placed[2] == len(fixups)
                    and placed[3] == data
                ):
                    used_args = OLD
                else:
                    used_args = NEW
                    at = args.take(len(data), timeout_s)
                    base = args.gpu_va + at
                    if stream.forms is None:
                        for place, offset in fixups:
                            PACK_ADDRESS(body, place, base + offset)
                        for place, offset in stream.arg_fixups:
                            PACK_ADDRESS(data, place, base + offset)
                    else:
                        (pack, shift), (arg_pack, arg_shift) = stream.forms
                        for place, value in fixups:
                            pack(stream.body, place, value + (base >> shift))
                        for place, value in stream.arg_fixups:
                            arg_pack(data, place, value + (base >> arg_shift))
                    args.put(at, data)
        try:
            if used_indirect:
                head, body = self._outside(head, body, timeout_s)
                put = None
            if head:
                body = b"".join((head, body))
            end = None
            if put is not None and self.commands.pad:
                end, body = self._put_ahead(body, put, timeout_s), b""
            point = self._push(body, timeout_s, end, stored)
        except BaseException:
            self._forget_begun()
            raise
        if used_args == NEW:
            args.keep_until(point)
            # most streams are submitted once. So the copy of the arguments, which later submissions compare with, is
            # made by the second submission
            stream.placed = NOWHERE if placed is None else (args, args.head, len(fixups), bytes(data))
        elif used_args:
            args.keep_on(point)
        if used_indirect:
            self._indirect.keep_until(point)
        if self.waits:
            self.waits.clear()
        return point

    def _carry(self, inline: Inline, stream: Stream, at: int) -> bytes:
        """Return a packet that contains a stream's arguments, and fill in their addresses. The packet begins `at` bytes
        after the start of its submission.
        """
        ring, args = self.ring, stream.args + bytes(-len(stream.args) % 4)
        forms = stream.forms or (PLAIN, PLAIN)
        align = ARGS_ALIGN if stream.forms is None else FORM_ALIGN
        # the packet has space to align the arguments wherever it begins
        room = len(args) + align
        size = at + HEAD_BYTES + room + len(stream.body) + len(self._signal)
        behind_head = ring.wptr + self._ahead(ring.wptr, size) + at + HEAD_BYTES
        skip = -behind_head % align
        base = inline.gpu_va + (behind_head + skip) % ring.size_bytes
        for (pack, shift), fixups, memory in zip(
            forms, (stream.fixups, stream.arg_fixups), (stream.body, args), strict=True
        ):
            for where, value in fixups:
                pack(memory, where, value + (base >> shift))
        return inline.carry(room) + bytes(skip) + args + bytes(align - skip)

    def call(
        self,
        gpu_va: int,
        size_bytes: int,
        waits: list[Point],
        known: dict[int, Call],
        timeout_s: float = TIMEOUT_S,
    ) -> Point:
        """Run commands in the card's memory and return the point that is reached when they are done.

        `known` caches the submissions of earlier calls of the same commands, by their place in the ring modulo
        `call_period`.
        """
        if get_ident() != self.owner.thread:
            self.owner.admit()
        ring = self.ring
        start = ring.wptr
        if not (waits or self.waits):
            call = known.get(start % self._call_period)
            if call is not None:
                timeline, whole = self.timeline, call.submission
                last, size = timeline.last, call.size_bytes
                if (
                    last < self._low_mask
                    and start + size <= ring.limit
                    and (start & ring.size_bytes - 1) + size <= ring.size_bytes
                ):
                    try:
                        timeline.last = value = last + 1
                        self._pack_low(whole, call.low_at, value)
                        point = Point(timeline, value)
                        ring.put_whole(whole, point, call.fill_bytes)
                    except BaseException:
                        self.broken_off(start, last)
                        raise
                    return point
        head = self._prefix(waits) if self.waits or waits else b""
        at = start + len(head)
        call = known.get(at % self._call_period) or self._compose(gpu_va, size_bytes, at)
        known[at % self._call_period] = call
        point = self._push(head + call.packets, timeout_s)
        if self.waits:
            self.waits.clear()
        return point

    def _compose(self, gpu_va: int, size_bytes: int, at: int) -> Call:
        """Return the submission that calls an indirect buffer, for the place `at` of the ring."""
        commands = self.commands
        packets = commands.begin + commands.call(gpu_va, size_bytes, at + len(commands.begin))
        size = len(packets) + len(self._signal)
        fill = self._fills[-(at + size) % self._fetch_bytes]
        whole = bytearray(packets + self._signal + fill)
        return Call(packets, whole, len(whole), len(packets) + self._low_at, len(fill))

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware: work that is not done fails with `cause`, the pointers start at 0, and
        nothing is in flight.
        """
        self.timeline = self.timeline.fail(cause)
        self.ring.restart()
        self._args.forget()
        self._indirect.forget()
        self.waits.clear()

    def _ahead(self, at: int, size_bytes: int) -> int:
        """Return the bytes of padding before a submission at `at`: up to the ring's end, if the submission would
        wrap.
        """
        ring = self.ring
        rest = ring.size_bytes - (at & ring.size_bytes - 1)
        # UNKNOWN: whether a packet may wrap at the ring's end. The other drivers of these engines pad to it (ROCr
        # amd_blit_sdma.cpp, PadRingToEnd; the kernel's submissions fill whole 256 dwords). Ends and beginnings stay
        # multiples of eight units.
        return rest if self.commands.pad and rest < size_bytes + -(at + size_bytes) % self._fetch_bytes else 0

    def _blank(self, size_bytes: int) -> bytes:
        """Return packets that do nothing, for the bytes that `_ahead` counts."""
        pad = self.commands.pad
        return pad * (size_bytes // len(pad))

    def _put_ahead(self, data: bytes | bytearray, put: Put, timeout_s: float) -> int:
        """Let `put` store commands a little after the write pointer, pad the bytes before them, and return where they
        end. The write pointer does not change.
        """
        ring, pad = self.ring, self.commands.pad
        unit, size = 8 * len(pad), ring.size_bytes
        data = data + pad * (-len(data) % unit // len(pad))
        begin = ring.wptr + PUT_ROOM_BYTES + -ring.wptr % unit
        # the submissions of `put` may begin at the ring's start: keep space for them there
        if begin // size != ring.wptr // size:
            begin += PUT_ROOM_BYTES - begin % size
        rest = size - begin % size
        start = begin + (rest if rest < len(data) else 0)
        ring.reserve(start + len(data) - ring.wptr, timeout_s)
        if start != begin:
            put(begin % size, pad * (rest // len(pad)))
        put(start % size, data)
        if ring.wptr > begin:
            raise ValueError(f"putting commands into {ring.name} took more of it than {PUT_ROOM_BYTES} bytes")
        ring.store(ring.wptr, pad * ((begin - ring.wptr) // len(pad)))
        return start + len(data)

    def _push(
        self,
        data: bytes | bytearray,
        timeout_s: float,
        at: int | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        """Store commands and their signal, and publish both. `at`: where they are stored; the bytes between the write
        pointer and `at` are stored already.
        """
        ring, signal, timeline = self.ring, self._signal, self.timeline
        start, last = ring.wptr, timeline.last
        usual = at is None and stored is None
        if at is None:
            at = start
        size = len(data) + len(signal)
        fill = self._fills[-(at + size) % self._fetch_bytes] if self._fetch_bytes > 1 else b""
        size += len(fill)
        if (at & ring.size_bytes - 1) + size > ring.size_bytes:
            usual, ahead = False, self._ahead(at, size)
            if ahead:
                data = self._blank(ahead) + data
                size += ahead
        value = last + 1
        try:
            if at + size > ring.limit:
                ring.reserve(at + size - start, timeout_s)
            if value <= self._low_mask:
                self._pack_low(signal, self._low_at, value)
            else:
                self._sign(value)
            timeline.last = value
            point = Point(timeline, value)
            whole = b"".join((data, signal, fill))
            if usual:
                ring.put_whole(whole, point, len(fill))
            else:
                ring.put(whole, point, len(fill), at, stored)
        except BaseException:
            self.broken_off(start, last)
            raise
        return point

    def _sign(self, value: int) -> None:
        """Store a value of the timeline in the packets that signal it: one that its low part alone cannot hold."""
        for place, form, shift in self._places:
            form.pack_into(self._signal, place, value >> shift & MASKS[form.size])

    def broken_off(self, start: int, last: int) -> None:
        """Undo a submission that failed or was interrupted, for instance by ctrl-C, while it was stored.

        If it was stored as a whole, the write pointer includes it: the engine may already run it, and the next
        submission would start it. So publish it and wait a bounded time for its end, before the caller frees the memory
        that it uses.
        """
        if self.ring.wptr == start:
            self.timeline.last = last
            return
        with suppress(RingupError):
            self.ring.publish()
            Point(self.timeline, self.timeline.last).wait(BROKEN_OFF_S)

    def _forget_begun(self) -> None:
        """Forget what was prepared for a submission that failed or was interrupted."""

    def _outside(self, head: bytes, body: bytes | bytearray, timeout_s: float) -> tuple[bytes, bytes | bytearray]:
        """Store a long stream in the indirect arena and return `head`, which comes before it, and the packet that calls
        it.
        """
        pad = self.commands.pad
        if pad:
            body = body + self.commands.padding(-len(body) // len(pad) % 8)
        at = self._indirect.take(len(body), timeout_s)
        self._indirect.put(at, body)
        return head, self.commands.call(self._indirect.gpu_va + at, len(body), self.ring.wptr + len(head))

    def _prefix(self, more: list[Point]) -> bytes:
        """Return the packets that wait for points. Wait here for the points that only the host can wait for."""
        waits = self.waits
        # the usual case
        if not waits and len(more) == 1:
            return self._wait_packet(more[0])
        latest: dict[Timeline, Point] = {}
        for point in (*waits, *more):
            timeline = point.timeline
            if timeline not in latest or latest[timeline].value < point.value:
                latest[timeline] = point
        return b"".join(map(self._wait_packet, latest.values()))

    def _wait_packet(self, point: Point) -> bytes:
        """Return the packet that waits for a point, nothing if it is done; or wait here and return nothing."""
        timeline, value, mine = point.timeline, point.value, self.timeline
        if timeline is mine or timeline.known >= value or timeline.completed >= value:
            return b""
        near = timeline.space is mine.space
        if near and timeline.comparable(value):
            return self.commands.wait(timeline.gpu_va, value)
        if not near and (place := self._across(point)) is not None:
            return self.commands.wait(*place)
        self._wait_here(point)
        return b""

    def _across(self, point: Point) -> tuple[int, int] | None:
        """Return address and value that the next submission waits for in place of a point of another card. None: the
        host has to wait.
        """
        return None

    def _wait_here(self, point: Point) -> None:
        """Let the host wait for a point. An error of the other card is raised once: after it, this queue no longer
        waits for that card.
        """
        try:
            point.wait(TIMEOUT_S)
        except DeviceTimeout:
            raise
        except RingupError:
            self.waits = [other for other in self.waits if other.timeline is not point.timeline]
            raise


NO_THREAD = -1
NO_PLACE = (0, ADDRESS, 0)
MASKS = {4: 0xFFFF_FFFF, 8: 0xFFFF_FFFF_FFFF_FFFF}
