"""Queues: where streams become work on a card. One class for every vendor; packets and the way to the card are given.

A submission is: what the queue must wait for, the stream's commands, the packet that signals the queue's timeline. It is published whole.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ringup.errors import DeviceTimeout, RingupError
from ringup.queues.arena import Arena
from ringup.queues.ring import Ring
from ringup.queues.timeline import Point, Timeline, copy_of

ADDRESS = struct.Struct("<Q")
TIMEOUT_S = 10.0  # TIMEOUT: how long a full ring waits for old work; amdgpu's default lockup timeout for compute is the same order


class Owner:
    """The thread that a card and all that hangs on it belongs to: none of it is locked. `thread`: who may submit; no thread while none may."""

    __slots__ = ("_cause", "_cured", "_holder", "name", "thread")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = self._holder = threading.get_ident()
        self._cause: Exception | None = None
        self._cured: Callable[[], bool] | None = None

    def adopt(self) -> None:
        """Give it to the calling thread. Nobody else may be using it meanwhile."""
        self._holder = threading.get_ident()
        self.thread = self._holder if self._cause is None else NO_THREAD

    def refuse(self, cause: Exception, cured: Callable[[], bool] | None = None) -> None:
        """Take no submission from now on: each raises `cause`, unless `cured`, which is asked first, says that all is well again."""
        self.thread, self._cause, self._cured = NO_THREAD, cause, cured

    def accept(self) -> None:
        """Take submissions again."""
        self.thread, self._cause, self._cured = self._holder, None, None

    def admit(self) -> None:
        """Raise what keeps the calling thread from submitting, if anything does."""
        self.check()
        if self._cause is not None:
            if self._cured is None or not self._cured():
                raise copy_of(self._cause)
            self.accept()

    def check(self) -> None:
        """Raise a `ValueError` in any other thread."""
        if threading.get_ident() != self._holder:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            holder = f"thread {names[self._holder]!r}" if self._holder in names else "a thread that has ended"
            raise ValueError(
                f"{self.name} belongs to {holder}, not to {threading.current_thread().name!r}: call `card.adopt()` here first"
            )


class Commands(Protocol):
    """What an engine's packets are, for whoever submits: bytes, ready to store."""

    @property
    def kind(self) -> str:
        """The engine's language, such as `pm4`; a stream of another is refused."""
        ...

    @property
    def begin(self) -> bytes:
        """What every submission starts with: caches that others may have written behind are invalidated."""
        ...

    @property
    def pad(self) -> bytes:
        """A packet that does nothing, the unit that submissions and indirect buffers are filled to; empty where any length will do."""
        ...

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Store 64-bit `value` at `gpu_va` when everything before is done and visible, and interrupt; the value's place is `signal_places`."""
        ...

    @property
    def signal_places(self) -> tuple[tuple[int, struct.Struct, int], ...]:
        """Where in `signal`'s bytes the value stands: (byte, format, shift right of the value), for each part."""
        ...

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Wait until the low 32 bits at `gpu_va` are at least those of `value`, unsigned."""
        ...

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Run an indirect buffer; `at_bytes`: where in the ring the packet comes to lie, for engines that care."""
        ...

    @property
    def call_period(self) -> int:
        """Calls at places that differ by a multiple of so many bytes are alike."""
        ...


class Stream:
    """Commands being built: bytes, and where addresses of kernel arguments must go. Touches no hardware; its engine's class adds verbs.

    A stream may be submitted more than once, also while it runs: each time gets arguments of its own.
    """

    def __init__(self, commands: Commands, owner: Owner) -> None:
        self.kind = commands.kind
        self.owner = owner
        self.body = bytearray(commands.begin)
        self.args = bytearray()
        self.fixups: list[tuple[int, int]] = []  # (byte in body, byte in args): a 64-bit address to fill in
        self.arg_fixups: list[tuple[int, int]] = []  # the same in the arguments themselves
        self.waits: list[Point] = []
        # a profile's hook: called before a command with its name, returns what to call behind it
        self.around: Callable[[Any, str], Callable[[], None]] | None = None

    @property
    def size_bytes(self) -> int:
        """How long the commands are, without the final signal."""
        return len(self.body)

    def wait_for(self, point: Point) -> None:
        """Let the whole stream wait for a point of this or another queue before it starts."""
        check_point(point)
        self.waits.append(point)


def check_point(point: Point) -> None:
    """Raise a `TypeError` for what nobody can wait for."""
    if not isinstance(point, Point):
        raise TypeError(f"a point is waited for, such as `submit` returns, not {type(point).__name__}")


class Queue:
    """One queue of a card."""

    def __init__(
        self, name: str, commands: Commands, timeline: Timeline, ring: Ring, args: Arena, indirect: Arena, owner: Owner
    ) -> None:
        """`args`: memory for kernel arguments; `indirect`: memory for streams that are too long for the ring."""
        self.name, self.commands, self.timeline, self.ring = name, commands, timeline, ring
        self._args, self._indirect, self._owner = args, indirect, owner
        self._signal = bytearray(commands.signal(timeline.gpu_va, 0))
        self._places = commands.signal_places
        self._waits: list[Point] = []

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def wait_for(self, point: Point) -> None:
        """Make everything submitted from now on wait for a point of another queue or card."""
        self._owner.check()
        check_point(point)
        self._waits.append(point)

    def check(self, stream: Stream) -> None:
        """Raise a `TypeError` or `ValueError` for what is no stream of this queue's engine and card."""
        if not isinstance(stream, Stream):
            raise TypeError(f"{self.name} takes streams, not {type(stream).__name__}")
        if stream.kind != self.commands.kind:
            raise ValueError(f"{self.name} takes {self.commands.kind} streams, not {stream.kind}")
        if stream.owner is not self._owner:
            raise ValueError(
                f"the stream was begun for another card, or before {self._owner.name} lost its memory: build it anew"
            )

    def submit(self, stream: Stream, timeout_s: float = TIMEOUT_S) -> Point:
        """Hand a stream to the card and return the point that it reaches when done.

        A full ring waits, at most `timeout_s`. Raises a `ValueError` for a stream of another engine, card or thread, the first cause while the
        card takes no work, and what a wait raises; nothing of the stream is submitted then.
        """
        if threading.get_ident() != self._owner.thread:
            self._owner.admit()
        self.check(stream)
        head = self._prefix(stream.waits) if self._waits or stream.waits else b""
        args = self._args
        body: bytes | bytearray = stream.body
        used_args = bool(stream.fixups)
        if used_args:
            at = args.take(len(stream.args), timeout_s)
            base = args.gpu_va + at
            for place, offset in stream.fixups:
                ADDRESS.pack_into(body, place, base + offset)
            for place, offset in stream.arg_fixups:
                ADDRESS.pack_into(stream.args, place, base + offset)
            args.put(at, stream.args)
        used_indirect = len(body) > self.ring.size_bytes // 4
        if used_indirect:
            body = self._outside(body, len(head), timeout_s)
        point = self._push(b"".join((head, body)) if head else body, timeout_s)
        if used_args:
            args.keep_until(point)
        if used_indirect:
            self._indirect.keep_until(point)
        self._waits.clear()
        return point

    def call(
        self,
        gpu_va: int,
        size_bytes: int,
        waits: list[Point],
        known: dict[tuple[int, int], bytes],
        timeout_s: float = TIMEOUT_S,
    ) -> Point:
        """Run commands that lie in the card's memory and return the point behind them. `known` keeps the packets of earlier calls."""
        if threading.get_ident() != self._owner.thread:
            self._owner.admit()
        commands, head = self.commands, b""
        if self._waits or waits:
            head = self._prefix(waits)
        at = self.ring.wptr + len(head)
        key = gpu_va, at % commands.call_period
        data = known.get(key)
        if data is None:
            begin = commands.begin
            data = known[key] = begin + commands.call(gpu_va, size_bytes, at + len(begin))
        point = self._push(head + data, timeout_s)
        if self._waits:
            self._waits.clear()
        return point

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware: what was not done fails with `cause`, pointers start at 0, nothing is under way."""
        self.timeline = self.timeline.fail(cause)
        self.ring.restart()
        self._args.forget()
        self._indirect.forget()
        self._waits.clear()

    def _push(self, data: bytes | bytearray, timeout_s: float) -> Point:
        """Store commands and the signal behind them."""
        ring, signal, timeline = self.ring, self._signal, self.timeline
        size = len(data) + len(signal)
        fill = b""
        if pad := self.commands.pad:
            short = -(ring.wptr + size) % (8 * len(pad))  # engines that want padding fetch eight units at a time
            fill = pad * (short // len(pad))
            rest = ring.size_bytes - ring.wptr % ring.size_bytes
            if rest < size + len(fill):
                # UNKNOWN: whether a packet may run over the ring's end; the other users of these engines pad to it (ROCr amd_blit_sdma.cpp,
                # PadRingToEnd; the kernel's submissions fill whole 256 dwords). Ends and beginnings stay multiples of eight units.
                data = pad * (rest // len(pad)) + data
                size += rest
        ring.reserve(size + len(fill), timeout_s)
        value = timeline.last + 1
        for place, form, shift in self._places:
            form.pack_into(signal, place, value >> shift & MASKS[form.size])
        point = timeline.next()
        ring.put(data + signal, point, fill)
        return point

    def _outside(self, body: bytes | bytearray, at_bytes: int, timeout_s: float) -> bytes:
        """Put a long stream into the indirect arena and return the call."""
        pad = self.commands.pad
        if pad:
            body = body + pad * (-len(body) // len(pad) % 8)
        at = self._indirect.take(len(body), timeout_s)
        self._indirect.put(at, body)
        return self.commands.call(self._indirect.gpu_va + at, len(body), self.ring.wptr + at_bytes)

    def _prefix(self, more: list[Point]) -> bytes:
        """Return the packets that wait for points; those that only the host can wait for are waited for here."""
        latest: dict[Timeline, int] = {}
        for point in (*self._waits, *more):
            if point.timeline is not self.timeline and not point.done:
                latest[point.timeline] = max(point.value, latest.get(point.timeline, 0))
        parts = []
        for timeline, value in latest.items():
            if timeline.space is self.timeline.space and timeline.comparable(value):
                parts.append(self.commands.wait(timeline.gpu_va, value))
            else:
                self._wait_here(Point(timeline, value))
        return b"".join(parts)

    def _wait_here(self, point: Point) -> None:
        """Wait in the queue's stead. What befell the other card is raised once: this queue can go on without it then."""
        try:
            point.wait(TIMEOUT_S)
        except DeviceTimeout:
            raise
        except RingupError:
            self._waits = [other for other in self._waits if other.timeline is not point.timeline]
            raise


NO_THREAD = -1
MASKS = {4: 0xFFFF_FFFF, 8: 0xFFFF_FFFF_FFFF_FFFF}
