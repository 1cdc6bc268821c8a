"""The ladder for an open card: queues are killed and mapped again, by gentle rungs first, until empty work runs through
them.

Work that was not done by then fails. The first two rungs keep memory and act only on the engines whose queues have
unfinished work. Mode 2, where the card has it, keeps memory and resets all engines. The others reset the whole chip,
lose its memory and bring it up again. Every rung is verified, and reported with what survived.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ringup.drivers.amd.board import mark
from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB
from ringup.drivers.amd.lifecycle import hive, mode2
from ringup.drivers.amd.lifecycle.recovery import KEEPS_FIRMWARE, RUNGS, SURVIVED, Ladder, reset_cores
from ringup.drivers.amd.submission.queue_set import QueueSet
from ringup.drivers.rung import Rung, climb
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.hardware_queue import COMPUTE
from ringup.drivers.transport.wait import poll
from ringup.errors import CardBusy, DeviceHung, RingupError

LOG = logging.getLogger(__name__)
GRACE_US, GRACE_POLL_US = 20_000, 1_000  # TIMEOUT: ours: what still runs may end by itself before anything is killed
TEST_S = 0.2  # TIMEOUT: ours, as at the start: empty work takes microseconds


def names(blocks: Blocks) -> tuple[str, ...]:
    """Return the rungs that this card and the path to it offer, gentle ones first."""
    return Ladder(blocks).names


class Member(NamedTuple):
    """A card that a reset of the whole card takes; `restart(rung)` brings it up again."""

    blocks: Blocks
    restart: Callable[[str], None]


class Reset:
    """One reset of a card that is up. `calm` forgets a fault and accepts work again."""

    def __init__(
        self,
        blocks: Blocks,
        queues: QueueSet,
        cause: Exception,
        calm: Callable[[], None],
        members: Sequence[Member],
    ) -> None:
        """`cause`: the error with which undone work fails. `members`: the card, and those of its hive that are reset
        with it.
        """
        self._blocks, self._queues, self._cause = blocks, queues, cause
        self._calm, self._members = calm, members
        self.rungs: list[Rung] = []

    def climb(self, first: str) -> None:
        """Try rungs from `first` on until one is verified. Raises `DeviceLost`, `CardBusy` for a rung that others who
        use linked cards would notice, or `DeviceHung` with the error of every rung.
        """
        device, offered = self._blocks.device, names(self._blocks)
        if first not in offered:
            raise ValueError(f"the card has no reset {first!r}; it has {', '.join(offered)}")
        others = hive.used_by_others(self._blocks)
        kept = f"a reset of all of {device.name} would break the links (XGMI) of {others}; end their use first"
        if others and first not in KEEPS_FIRMWARE:
            raise CardBusy(kept)
        chosen, rungs = self._unfinished(), offered[offered.index(first) :]
        if others:
            rungs = tuple(rung for rung in rungs if rung in KEEPS_FIRMWARE)
        try:
            climb(device, rungs, lambda name: self._take(name, chosen), self.rungs, SURVIVED)
        except DeviceHung as error:
            if others:
                raise CardBusy(f"{'; '.join(map(str, self.rungs))}; {kept}") from error
            raise

    @property
    def took_all(self) -> bool:
        """Whether a rung was tried that resets the whole card, and the other members with it."""
        return any(rung.name not in KEEPS_FIRMWARE for rung in self.rungs)

    def _unfinished(self) -> list[CardQueue]:
        """Return the queues whose work does not end within `GRACE_US`. If there is none, return all: the reset was
        asked for because of a fault then.
        """
        live = [queue for queue in self._queues.queues if not queue.closed]
        busy = poll(
            lambda: [queue for queue in live if not queue.timeline.idle],
            lambda busy: not busy,
            clock=self._blocks.registers.clock,
            timeout_us=GRACE_US,
            poll_us=GRACE_POLL_US,
        )
        return busy or live

    def _take(self, name: str, chosen: list[CardQueue]) -> None:
        if name not in KEEPS_FIRMWARE:
            self._take_whole(name)
            return
        hit = chosen
        if name == "queue":
            _take_off(chosen)
        elif name == "engine":
            hit = self._engines(chosen)
        else:
            hit = self._every_engine()
        for hub in (GFXHUB, MMHUB):
            # the hub keeps the first fault only, until it is read
            self._blocks.gmc.read_fault(hub)
        self._calm()
        for queue in hit:
            self._queues.map_again(queue, self._cause)
        for queue in hit:
            queue.submit(queue.stream()).wait(TEST_S)

    def _take_whole(self, name: str) -> None:
        """Reset all of the card, and of the others of its hive, and bring them up again."""
        for member in self._members:
            _halt(member.blocks)
        if name == "mode1":
            hive.mode1_reset([member.blocks for member in self._members])
        else:
            for member in self._members:
                RUNGS[name](member.blocks)
        for member in self._members:
            member.restart(name)

    def _engines(self, chosen: list[CardQueue]) -> list[CardQueue]:
        """Reset the engines of the chosen queues; return all queues of these engines."""
        blocks = self._blocks
        used = {queue.hardware.engine_number for queue in chosen}
        for engine in blocks.sdma:
            if engine.index in used:
                engine.reset()
        if COMPUTE in used:
            reset_cores(blocks)
        return [queue for queue in self._queues.queues if not queue.closed and queue.hardware.engine_number in used]

    def _every_engine(self) -> list[CardQueue]:
        """Reset all engines by mode 2 and start them again; return all queues."""
        blocks = self._blocks
        left = mark.read(blocks.gfx.block)
        _halt(blocks)
        mode2.reset(blocks)
        mode2.start_engines(blocks)
        if left is not None:
            mark.write(blocks.gfx.block, left)
        return [queue for queue in self._queues.queues if not queue.closed]


def _halt(blocks: Blocks) -> None:
    """Halt the engines, whose queues may still fetch from the host: the reset begins by taking the bus from the card.
    Source: amdgpu_device_ip_suspend before amdgpu_device_mode1_reset. A card that does not listen is reset all the
    same.
    """
    try:
        for core in blocks.cores:
            core.halt()
        for engine in blocks.sdma:
            engine.stop()
    except RingupError as error:
        LOG.info("%s: halting its engines before a reset: %s", blocks.device.name, error)


def _take_off(queues: Iterable[CardQueue]) -> None:
    """Kill the work of queues and take them off the hardware. Raises `DeviceHung` for those that do not let go; the
    others are off then.
    """
    stuck = []
    for queue in queues:
        try:
            queue.hardware.reset()
        except DeviceHung as error:
            stuck.append(str(error))
    if stuck:
        raise DeviceHung("; ".join(stuck))
