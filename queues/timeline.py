"""Timelines: counters in memory that a queue writes when work is done, and the points on them that others wait for.

The card writes the word after all earlier work is done and visible. The host only reads it. The values of points have
64 bits and only grow. Where the hardware writes 32 bits, this module counts the upper half: that is right while fewer
than 2**31 values are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

# values of one timeline that may be in flight while a queue compares 32 bits of them: no ring holds so many packets
EPOCH_MARGIN = 1 << 20
LOW = 0xFFFF_FFFF


class Waiter(Protocol):
    """Waits for a card: it polls, sleeps on the card's clock, and notices faults and the loss of the card."""

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return once `timeline.completed >= value`; raise `DeviceTimeout`, `DeviceHung`, `DeviceFault` or
        `DeviceLost`.
        """
        ...


def copy_of(error: Exception) -> Exception:
    """Return a copy of `error` with its notes and cause. The copy is raised instead, because an error that is raised
    twice collects both tracebacks.
    """
    fresh = type(error)(*error.args)
    for note in getattr(error, "__notes__", ()):
        fresh.add_note(note)
    fresh.__cause__ = error.__cause__
    return fresh


class Failed:
    """The `Waiter` of a timeline that ended because of `cause`: work that was not done then is never done."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return if the work was done before the end; raise the cause otherwise."""
        if timeline.completed < value:
            raise copy_of(self.cause)


class Timeline:
    """One counter. `read` returns the word in memory. `gpu_va` is its address in `space`, an address space of
    queues.
    """

    __slots__ = ("_read", "gpu_va", "known", "last", "name", "space", "waiter", "word_bits")

    def __init__(
        self,
        name: str,
        read: Callable[[], int],
        gpu_va: int,
        space: object,
        waiter: Waiter,
        *,
        word_bits: int = 64,
        start: int = 0,
    ) -> None:
        """`start`: the 64-bit count whose low bits memory holds now."""
        if word_bits not in (32, 64):
            raise ValueError(f"a timeline's word has 32 or 64 bits, not {word_bits}")
        self.name, self._read, self.gpu_va, self.space, self.waiter = name, read, gpu_va, space, waiter
        self.word_bits = word_bits
        # `last`: the last value that was given to a point. `known`: the highest value seen in memory; it stays valid
        # when the card is gone
        self.last = self.known = start

    def __repr__(self) -> str:
        return f"<timeline {self.name}: {self.known} of {self.last}>"

    def next(self) -> Point:
        """Return the point after the last; the caller must make the queue signal it."""
        self.last += 1
        return Point(self, self.last)

    @property
    def completed(self) -> int:
        """The highest value known to be done. A word above `last` is ignored: its memory is lost."""
        raw, done = self._read(), self.known
        seen = raw if self.word_bits == 64 else done + (raw - done & LOW)
        if done < seen <= self.last:
            self.known = seen
            return seen
        return done

    def look(self, value: int, times: int) -> bool:
        """Read memory up to `times` times; return whether it reached `value`."""
        read, most, is_whole, done = self._read, self.last, self.word_bits == 64, self.known
        for _ in range(times):
            raw = read()
            seen = raw if is_whole else done + (raw - done & LOW)
            if done < seen <= most:
                self.known = done = seen
            if done >= value:
                return True
        return False

    def reached(self, value: int) -> None:
        """Mark all values up to `value` as done. The caller has seen the results of the work, but memory may not show
        the value yet.
        """
        self.known = max(self.known, value)

    def fail(self, cause: Exception) -> Timeline:
        """End this timeline, because a reset of the card ended the queue's work. Work that is not done fails with
        `cause`. Return the successor.

        The successor uses the same memory and counts on from the last value. No engine may write that memory now. No
        queue can wait for a point of the ended timeline any more.
        """
        done = self.completed
        successor = Timeline(
            self.name, self._read, self.gpu_va, self.space, self.waiter, word_bits=self.word_bits, start=self.last
        )
        self._read, self.space, self.waiter = lambda: done, self, Failed(cause)
        return successor

    def skip_to(self, value: int) -> None:
        """Count on from `value`: the queue has new memory and keeps its count. Nothing may be submitted yet."""
        self.last = self.known = value

    @property
    def failed(self) -> bool:
        """Whether this timeline has ended."""
        return isinstance(self.waiter, Failed)

    @property
    def idle(self) -> bool:
        """Whether all values given to points are done."""
        return self.completed == self.last

    def comparable(self, value: int) -> bool:
        """Return whether a queue that compares 32 unsigned bits can wait for `value`, which is not done.

        It cannot across a wrap of the low half. Before the wrap, the current count looks larger than `value`. A queue
        that waits for a value just before the wrap may see a count after it, which looks smaller.
        """
        return self.known >> 32 == value >> 32 and (value & LOW) < (1 << 32) - EPOCH_MARGIN


class Point:
    """A value on a timeline: done or not, waited for by the host or by queues."""

    __slots__ = ("timeline", "value")

    def __init__(self, timeline: Timeline, value: int) -> None:
        self.timeline, self.value = timeline, value

    def __repr__(self) -> str:
        return f"<point {self.value} of {self.timeline.name}>"

    @property
    def done(self) -> bool:
        """Whether the work up to this point is done. After a fault of the card, work may be done with wrong results:
        `wait` raises the fault.
        """
        timeline = self.timeline
        return timeline.known >= self.value or timeline.completed >= self.value

    def wait(self, timeout_s: float = 10.0) -> None:
        """Wait until the point is done. Raises `DeviceTimeout` after `timeout_s` of the card's clock, or the card's
        error.
        """
        self.timeline.waiter.wait(self.timeline, self.value, round(timeout_s * 1_000_000))


def retire(pending: deque[tuple[Point, int]], timeout_s: float) -> int:
    """Remove the entries that are done from `pending`: points of one timeline in order, each with the end of its bytes.
    Return the end of the last removed entry.

    If none is done, wait for the first point. If its `wait` raises, nothing is removed.
    """
    point, end = pending[0]
    if not point.done:
        point.wait(timeout_s)
    done = max(point.value, point.timeline.known)
    last, end_of_all = pending[-1]
    # the usual case: all work has ended before its space is needed again
    if last.value <= done:
        pending.clear()
        return end_of_all
    while pending and pending[0][0].value <= done:
        _, end = pending.popleft()
    return end
