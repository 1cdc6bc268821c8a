"""Waiting for a card: read the timeline's word in memory a while, sleep until an interrupt, check for faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringup.drivers.transport.seam import Clock, Interrupts
from ringup.errors import DeviceTimeout, RingupError
from ringup.queues.timeline import Timeline

# reads of the word before the first sleep: some microseconds, in which short work ends
LOOKS = 64
# sleep where no interrupt comes; each is twice as long as the one before
FIRST_NAP_US, LONGEST_NAP_US = 20, 2_000


class Sleeps(Protocol):
    """The part of a device that waits need."""

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """What ends a sleep."""
        ...


class Poller:
    """The `Waiter` of the queues of one card.

    `examine(last)` drains interrupts and raises any fault they report. It is called after every sleep (`last`: for the
    last time). `glance(looked)` is a cheap check for pending interrupts, made when the work is done; if it finds some,
    `examine` is called too. `looked`: words in memory were just read. `explain` adds what is known to an error that is
    about to be raised.
    """

    def __init__(
        self,
        device: Sleeps,
        examine: Callable[[bool], None],
        glance: Callable[[bool], bool],
        explain: Callable[[RingupError], None],
        *,
        longest_nap_us: int = LONGEST_NAP_US,
    ) -> None:
        """`longest_nap_us`: of one sleep; long where everything that matters ends it."""
        self._device, self._examine, self._glance, self._explain = device, examine, glance, explain
        self._longest_nap_us = longest_nap_us
        # the end of the error of a wait that ran out
        self.advice = ""

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return once the timeline is at `value`. Raises `DeviceTimeout` after `timeout_us`, or what `examine`
        raises.
        """
        known = timeline.known >= value
        if known or timeline.look(value, LOOKS):
            if self._glance(not known):
                self._examine(False)
            return
        self._sleep_until(
            lambda: timeline.completed >= value,
            lambda: (
                f"waiting for {value} on {timeline.name}: it stood at {timeline.completed} (of {timeline.last} submitted)"
            ),
            timeout_us,
        )

    def until(self, met: Callable[[], bool], seen: Callable[[], str], timeout_us: int) -> None:
        """Return once `met()` is true, a condition on memory that the card writes. Raises what `wait` raises; `seen`
        says for the error what was waited for and what was there.
        """
        for _ in range(LOOKS):
            if met():
                if self._glance(False):
                    self._examine(False)
                return
        self._sleep_until(met, seen, timeout_us)

    def _sleep_until(self, met: Callable[[], bool], seen: Callable[[], str], timeout_us: int) -> None:
        clock, interrupts = self._device.clock, self._device.interrupts
        end_us = clock.now_us + timeout_us
        nap_us = FIRST_NAP_US
        while True:
            left_us = end_us - clock.now_us
            if left_us > 0:
                interrupts.wait(min(nap_us, left_us))
            done = met()
            self._examine(left_us <= 0)
            if done:
                return
            if left_us <= 0:
                error = DeviceTimeout(f"{seen()} for {timeout_us / 1e6:g} s{self.advice}")
                self._explain(error)
                raise error
            nap_us = min(2 * nap_us, self._longest_nap_us)
