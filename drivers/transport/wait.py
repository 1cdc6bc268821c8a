"""Bounded waits: look, nap, look again, as Linux' `read_poll_timeout` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringup.drivers.transport.seam import Clock
from ringup.errors import DeviceTimeout

T = TypeVar("T")


def poll(read: Callable[[], T], done: Callable[[T], bool], *, clock: Clock, timeout_us: float, poll_us: float) -> T:
    """Read until `done(seen)`, or until `timeout_us` have passed; return what was seen last.

    The first read comes at once, `poll_us` of sleep lie between two, and the last read begins when the time is over: a
    process that was descheduled meanwhile reads once more. An error of `read` is raised at once.
    """
    return _poll(read, done, clock, timeout_us, poll_us)[0]


def until(
    read: Callable[[], T],
    done: Callable[[T], bool],
    *,
    clock: Clock,
    timeout_us: float,
    poll_us: float,
    doing: str,
    describe: Callable[[T], str] = repr,
    advice: str = "",
) -> T:
    """Read until `done(seen)` and return what was seen. Raises `DeviceTimeout` after `timeout_us`.

    The error says what was awaited (`doing`), what was seen last (by `describe`), for how long, and `advice`.
    """
    seen, came = _poll(read, done, clock, timeout_us, poll_us)
    if not came:
        raise DeviceTimeout(f"{doing}: {describe(seen)} for {timeout_us / 1000:g} ms{advice}")
    return seen


def _poll(
    read: Callable[[], T], done: Callable[[T], bool], clock: Clock, timeout_us: float, poll_us: float
) -> tuple[T, bool]:
    """Return what was seen last, and whether it was `done`."""
    end_us = clock.now_us + timeout_us
    while True:
        late = clock.now_us >= end_us
        seen = read()
        came = done(seen)
        if came or late:
            return seen, came
        clock.sleep_us(poll_us)
