"""Waiting for a card: look at the word in memory a while, then sleep until an interrupt, then ask whether the card is
still well.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceTimeout, RingupError
from ringup.queues.timeline import Timeline

LOOKS = 64  # at the word before the first sleep: some microseconds, in which short work ends
FIRST_NAP_US, LONGEST_NAP_US = 20, 2_000  # without an interrupt; each nap doubles


class Poller:
    """A `Waiter` of the queues of one card.

    `examine(last)` takes in interrupts and raises what befell the card; it is asked after every nap (`last`: for the
    last time), and behind work that is done when `glance(looked)`, which must be cheap, says that something came;
    `looked`: words in memory were just looked at. `explain` adds what is known to an error that is about to be raised.
    """

    def __init__(
        self,
        device: Device,
        examine: Callable[[bool], None],
        glance: Callable[[bool], bool],
        explain: Callable[[RingupError], None],
    ) -> None:
        self._device, self._examine, self._glance, self._explain = device, examine, glance, explain
        self.advice = ""  # what an error of a wait that ran out ends with

    def wait(self, timeline: Timeline, value: int, timeout_us: int) -> None:
        """Return once the timeline is at `value`. Raises `DeviceTimeout` after `timeout_us`, or what `examine`
        raises.
        """
        known = timeline.known >= value
        if known or timeline.look(value, LOOKS):
            if self._glance(not known):
                self._examine(False)
            return
        clock, interrupts = self._device.clock, self._device.interrupts
        end_us = clock.now_us + timeout_us
        nap_us = FIRST_NAP_US
        while True:
            left_us = end_us - clock.now_us
            if left_us > 0:
                interrupts.wait(min(nap_us, left_us))
            done = timeline.completed >= value
            self._examine(left_us <= 0)
            if done:
                return
            if left_us <= 0:
                error = DeviceTimeout(
                    f"waiting for {value} on {timeline.name}: it stood at {timeline.completed} (of {timeline.last} submitted)"
                    f" for {timeout_us / 1e6:g} s{self.advice}"
                )
                self._explain(error)
                raise error
            nap_us = min(2 * nap_us, LONGEST_NAP_US)
