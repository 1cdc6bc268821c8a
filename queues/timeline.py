"""Timelines: counters in memory that a queue writes when work is done, and the points on them that others wait for.

The card writes the word, after everything before it is done and visible; the host only reads it. A user's values have
64 bits and only grow; where the hardware writes 32, the rest is followed here, which is right as long as fewer than
2**31 values are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

# values of one timeline that may be in flight while a queue compares 32 bits of them: more than any ring holds packets
EPOCH_MARGIN = 1 << 20
LOW = 0xFFFF_FFFF


class Waiter(Protocol):
    """Waits for a card: polls, sleeps on its clock, notices faults and loss."""

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return once `timeline.completed >= value`; raise `DeviceTimeout`, `DeviceHung`, `DeviceFault` or
        `DeviceLost`.
        """
        ...


def copy_of(error: Exception) -> Exception:
    """Return a copy of `error` with its notes and cause, to be raised instead: an error that is raised twice collects
    both tracebacks.
    """
    fresh = type(error)(*error.args)
    for note in getattr(error, "__notes__", ()):
        fresh.add_note(note)
    fresh.__cause__ = error.__cause__
    return fresh


class Failed:
    """The `Waiter` of a timeline that ended: work that was not done by then never will be, because of `cause`."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return for work that was done; raise the cause for other work."""
        if timeline.completed < value:
            raise copy_of(self.cause)


class Timeline:
    """One counter. `read` returns the word as memory has it; `gpu_va` is where queues of `space` (an address space)
    find it.
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
        """`start`: the value that memory holds now, as its 64-bit count."""
        if word_bits not in (32, 64):
            raise ValueError(f"a timeline's word has 32 or 64 bits, not {word_bits}")
        self.name, self._read, self.gpu_va, self.space, self.waiter = name, read, gpu_va, space, waiter
        self.word_bits = word_bits
        # the last value that was given to a point; the highest value seen in memory, which stays known when the card is
        # gone
        self.last = self.known = start

    def __repr__(self) -> str:
        return f"<timeline {self.name}: {self.known} of {self.last}>"

    def next(self) -> Point:
        """Return the point after the last; the caller must make the queue signal it."""
        self.last += 1
        return Point(self, self.last)

    @property
    def completed(self) -> int:
        """The highest value known to be done. A word beyond `last` does not count: its memory is lost."""
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
        """Take all up to `value` as done. The caller has seen the work's results, though memory may not show the value
        yet.
        """
        self.known = max(self.known, value)

    def fail(self, cause: Exception) -> Timeline:
        """End this timeline, as a reset of the card ends a queue's work: undone work fails with `cause`. Return its
        successor.

        The successor uses the same memory, which no engine may be writing now, and counts on from the last value. No
        queue can wait for a point of this timeline any more.
        """
        done = self.completed
        successor = Timeline(
            self.name, self._read, self.gpu_va, self.space, self.waiter, word_bits=self.word_bits, start=self.last
        )
        self._read, self.space, self.waiter = lambda: done, self, Failed(cause)
        return successor

    def skip_to(self, value: int) -> None:
        """Count on from `value`, before anything is submitted: the queue has new memory and keeps its count."""
        self.last = self.known = value

    @property
    def failed(self) -> bool:
        """Whether it ended: nothing more will be done on it."""
        return isinstance(self.waiter, Failed)

    @property
    def idle(self) -> bool:
        """Whether all values given to points are done."""
        return self.completed == self.last

    def comparable(self, value: int) -> bool:
        """Return whether a queue that compares 32 unsigned bits can wait for `value`, which was just seen undone.

        It cannot across a wrap of the low half: before the wrap the old count looks larger, after it the new one
        smaller.
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
        """Whether the work up to here is done. Work that a card does after a fault may be done and wrong: `wait` raises
        the fault.
        """
        timeline = self.timeline
        return timeline.known >= self.value or timeline.completed >= self.value

    def wait(self, timeout_s: float = 10.0) -> None:
        """Wait until it is done. Raises `DeviceTimeout` after `timeout_s` of the card's time, or the card's error."""
        self.timeline.waiter.wait(self.timeline, self.value, round(timeout_s * 1_000_000))


def retire(pending: deque[tuple[Point, int]], timeout_s: float) -> int:
    """Remove what is done from `pending`, which holds points of one timeline in order, each with an end. Return the
    last end removed.

    Waits for the first point if none is done. Raises what its `wait` raises, and removes nothing then.
    """
    point, end = pending[0]
    if not point.done:
        point.wait(timeout_s)
    done = max(point.value, point.timeline.known)
    last, end_of_all = pending[-1]
    # the usual case: space is reclaimed later than the work ends
    if last.value <= done:
        pending.clear()
        return end_of_all
    while pending and pending[0][0].value <= done:
        _, end = pending.popleft()
    return end
