"""An open card that stays with NVIDIA's kernel driver: the same verbs as a card that ringup drives itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.nv.nodes.channel import Channel
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.nv.nodes.queues import NodesQueues
from ringup.drivers.nv.nodes.watch import card_info
from ringup.drivers.nv.observe.channels import ChannelReport
from ringup.drivers.nv.rm import sensors
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.drivers.nv.rm.sensors import Sensors
from ringup.drivers.nv.rm.xids import MMU_FAULT, WORKS_OWN
from ringup.drivers.nv.verbs import SELF_TEST_US, AnyNvidia, CardInfo
from ringup.drivers.poll import Poller
from ringup.drivers.stages import Stages, Watcher
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.health import CardStats
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, NotSupported, RingupError

LOG = logging.getLogger(__name__)
# TIMEOUT: ours, for calls of the kernel's driver that start nothing
OBJECTS_US, QUEUES_US = 10_000_000, 10_000_000
# events end a wait, so a sleep may be long; it bounds how late a card that is gone is noticed
LONGEST_NAP_US = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesStats(CardStats):
    """What a card does now, with the driver's sensors."""

    sensors: Sensors


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesReport(ChannelReport):
    """A post-mortem. `release`: of NVIDIA's kernel driver."""

    release: str

    def _driver(self) -> str:
        return f"release {self.release} of NVIDIA's kernel driver"


class NodesCard(AnyNvidia[NvidiaDevice, NodesQueues]):
    """One card through the nodes of NVIDIA's kernel driver. Other processes may use it at the same time."""

    def __init__(self, device: NvidiaDevice, *, watch: Watcher | None = None) -> None:
        """Create the process's objects and queues on the card.

        Raises `NotSupported` for another generation, `PermissionNeeded` or `CardBusy` where the administrator's compute
        mode keeps this process out, and the driver's refusals; `device` is closed by the caller then.
        """
        super().__init__(device)
        stages = Stages(device.name, device.clock, watch)
        self.stages = stages.done
        with stages.stage("making objects of the resource manager", OBJECTS_US):
            self._objects = CardObjects(device)
            with undone_on_error(self._objects.close):
                self._objects.ask_to_compute()
            self._objects.let_work_be_long()
            self._memory = NodesMemory(self._objects)
            self._memory.admit = self.owner.check
            node = device.interrupts.connect(self._objects.client.root, self._objects.device)
            self._objects.listen_to_host(node)
        self._waiter = Poller(device, self._examine, self._glance, self._explain, longest_nap_us=LONGEST_NAP_US)
        self._queues = NodesQueues(self._objects, self._memory, self._waiter, self.owner)
        with undone_on_error(self._shut):
            with stages.stage("making queues", QUEUES_US):
                self.compute = self._queues.compute()
                self._copies = {0: self._queues.copy(0)}
            with stages.stage("testing the queues", 2 * SELF_TEST_US):
                for queue in self._queues.queues:
                    queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)
        self._waiter.advice = "; `card.report()` tells more, `card.reset()` ends it"

    # --- what it is -------------------------------------------------------------------------------------------------
    @property
    def facts(self) -> CardFacts:
        """What the resource manager tells of the card."""
        return self._objects.facts

    @property
    def memory(self) -> NodesMemory:
        """The address space of its queues."""
        return self._memory

    def gpu_clock(self) -> int:
        """Read the card's clock, in ns."""
        return self._objects.gpu_clock()

    @property
    def info(self) -> CardInfo:
        """What the card is, as the driver tells it."""
        return card_info(self._objects)

    # --- memory -----------------------------------------------------------------------------------------------------
    def pin(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach the caller's memory without a copy: any writable and contiguous object with the buffer
        protocol, such as a NumPy array or an `mmap`. Free the result before that memory is freed.

        The driver maps whole pages, so the card reaches what else lies in the first and the last one.
        """
        self._check()
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise ValueError("a card can be given memory that is contiguous, which this buffer is not")
        return self._memory.pin(view.cast("B") if view.nbytes else memoryview(b""), name)

    # --- health -----------------------------------------------------------------------------------------------------
    def stats(self) -> NodesStats:
        """Return what the driver tells of the card, and what this process has on it. Raises `DeviceLost`."""
        self._check()
        return NodesStats(
            name=self.name,
            at_us=self.device.clock.now_us,
            sensors=sensors.read(self._objects.client, self._objects.subdevice),
            memory={place: replace(usage) for place, usage in self._memory.stats().items()},
            queues=self._queue_stats(),
            faults=self._faults,
            resets=self._resets,
        )

    @property
    def limits(self) -> Any:
        """Raise `NotSupported`: the driver sets power and clocks, for all users of the card."""
        raise NotSupported(
            f"{self.name}: NVIDIA's driver holds the limits of power and clocks: `nvidia-smi` shows them"
        )

    @property
    def mistakes(self) -> list[str]:
        """Mistakes that a virtual card saw; none for a real one."""
        return self.device.system.mistakes()

    def report(self) -> NodesReport:
        """Return a post-mortem. It works for a lost or closed card too."""
        self.owner.check()
        unreachable = "the card was closed" if self._closed else "the card is gone" if self.device.lost else ""
        live = () if self._closed else tuple(queue for queue in self._queues.queues if not queue.closed)
        return NodesReport(
            name=self.name,
            cause=f"{type(self.fault).__name__}: {self.fault}" if self.fault else "",
            errors_so_far=tuple(self._errors_so_far),
            unreachable=unreachable,
            queues=() if self._closed else self._queue_stats(),
            channels={queue.name: tuple(self.stands(queue)) for queue in live},
            memory={str(place): replace(usage) for place, usage in self._memory.table.usage.items()},
            release=self.device.release,
            mistakes=self.mistakes,
        )

    # --- errors -----------------------------------------------------------------------------------------------------
    def stopped_for(self, queue: CardQueue) -> RingupError | None:
        """Return why the driver stopped a queue's channel."""
        channel = queue.hardware
        if not isinstance(channel, Channel) or not channel.handle:
            return None
        error = channel.error()
        if error is None:
            return None
        said = f"{self.name}: NVIDIA's driver stopped {channel} ({queue.name}): {error}"
        fault = channel.mmu_fault() if error.code == MMU_FAULT else None
        if fault is not None:
            return DeviceFault(f"{said}: {fault.kind} at {fault.gpu_va:#x}: {self._memory.describe(fault.gpu_va)}")
        return DeviceFault(said) if error.code in WORKS_OWN else DeviceHung(said)

    def _take_in(self) -> None:
        """Note which channels were stopped, and whether the nodes say that the card is gone."""
        super()._take_in()
        if self.device.lost:
            self._fail(DeviceLost(f"{self.name} {self.device.why_lost}"))

    def _explain(self, error: RingupError) -> None:
        super()._explain(error)
        for text in self.mistakes:
            error.add_note(f"the virtual card saw: {text}")

    def _glance(self, looked: bool) -> bool:
        self.owner.check()
        return self._waits_for_peers or any(
            isinstance(queue.hardware, Channel) and queue.hardware.is_stopped for queue in self._queues.queues
        )

    def _check_there(self, doing: str) -> None:
        try:
            self.gpu_clock()
        except DeviceLost as error:
            self.device.lose(error)
            self._fail(error)
            raise
        # busy or late, but there
        except RmRefused as error:
            LOG.info("%s: asking whether the card is there: %s", doing, error)

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Take queues off and free memory. Twice is harmless."""
        if self._closed:
            return
        self.owner.check()
        self._closed = True
        self._shut()

    def _shut(self) -> None:
        close_queues: Callable[[], None] = partial(self._queues.close, patient=self.fault is None)
        # an interrupt is raised when all is done: nobody else has the nodes
        with Teardown(f"{self.name}: closing", logged=RingupError) as teardown:
            for step in (close_queues, self._memory.close, self.device.interrupts.close, self._objects.close):
                teardown.attempt(step)
            teardown.attempt(self.device.close)


CARD = NodesCard


def start(
    device: NvidiaDevice, *, firmware: Path | str | Iterable[Path | str] = (), force: bool = False, **options: Any
) -> NodesCard:
    """Use the card behind `device`; what `drivers.select` calls. Raises `NotSupported` for `firmware` and `force`."""
    if force:
        raise NotSupported(f"opening {device.name} by force: NVIDIA's driver drives the card, and knows it or does not")
    if [firmware] if isinstance(firmware, (str, Path)) else list(firmware):
        raise NotSupported(f"opening {device.name} with firmware of one's own: NVIDIA's driver has loaded its own")
    return NodesCard(device, **options)
