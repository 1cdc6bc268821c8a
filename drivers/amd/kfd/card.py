"""An open Radeon that stays with amdgpu: the same verbs as a card that ringup drives itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ringup.drivers.amd.bus.chips import CHIPS, Chip
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.kfd import faults
from ringup.drivers.amd.kfd.memory import KfdMemory
from ringup.drivers.amd.kfd.queues import KfdQueues, compute_units, shader_engines
from ringup.drivers.amd.submission.aql_queue import AqlQueue
from ringup.drivers.amd.verbs import AnyRadeon, CardInfo
from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.poll import Poller
from ringup.drivers.rung import Rung
from ringup.drivers.stages import Stages, Watcher
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.health import CardReport, CardStats
from ringup.drivers.submission.queue_stats import QueueStats, queue_stats
from ringup.drivers.submission.verbs import AnyCard
from ringup.drivers.transport.kfd import sensors
from ringup.drivers.transport.kfd.calls import HwException
from ringup.drivers.transport.kfd.device import Happened, KfdDevice
from ringup.drivers.transport.kfd.sensors import Sensors
from ringup.drivers.transport.kfd.topology import Node
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout, NotSupported, RingupError
from ringup.queues.timeline import copy_of

LOG = logging.getLogger(__name__)
# TIMEOUT: ours, for empty work while other processes use the card: the kernel lets its queues take turns
SELF_TEST_US = 5_000_000
QUEUES_US = 10_000_000
# events end a wait, so a sleep may be long; it bounds how late a card that is gone is noticed
LONGEST_NAP_US = 200_000
LINK_CHECK_EVERY = 4
GRACE_US, GRACE_POLL_US = 20_000, 1_000  # TIMEOUT: ours: what still runs may end by itself before it is killed
KIB = 1024
FOUND = "driven by amdgpu"
QUEUE_RUNG = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class KfdStats(CardStats):
    """What a card does now, with the kernel's sensors."""

    sensors: Sensors


@dataclass(frozen=True, slots=True, kw_only=True)
class KfdReport(CardReport):
    """A post-mortem. `interface`: the release of amdkfd's calls. Of a virtual card below the kernel nothing is seen."""

    interface: str

    def _driver(self) -> str:
        return f"interface {self.interface} of amdkfd"


class KfdRadeon(AnyRadeon[KfdDevice, KfdQueues]):
    """One card through /dev/kfd. Other processes may use it at the same time."""

    def __init__(self, device: KfdDevice, *, watch: Watcher | None = None) -> None:
        """Create the process's queues on the card.

        Raises `NotSupported` for another chip, and the kernel's refusals; `device` is closed by the caller then.
        """
        super().__init__(device)
        self._faults = self._resets = self._looks = 0
        stages = Stages(device.name, device.clock, watch)
        self.stages = stages.done
        with stages.stage("reading what amdgpu knows", QUEUES_US):
            self._chip, self._gc, self._sdma = identify(device.node)
            seen = sensors.read(device.node)
            self._window_bytes = seen.vram_visible_bytes or 0
            large = bool(self._window_bytes) and self._window_bytes == seen.vram_total_bytes
            self._memory = KfdMemory(device, device.node.vram_bytes, large_bar=large)
            self._memory.admit = self.owner.check
        self._waiter = Poller(device, self._examine, self._glance, self._explain, longest_nap_us=LONGEST_NAP_US)
        self._queues = KfdQueues(device, self._memory, self._gc, self._sdma, self._waiter, self.owner)
        with undone_on_error(self._shut):
            with stages.stage("creating queues", QUEUES_US):
                self.compute = self._queues.compute()
                self._copies = {0: self._queues.copy(0)}
            with stages.stage("testing the queues", 2 * SELF_TEST_US):
                for queue in self._queues.queues:
                    queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)
        self._waiter.advice = "; `card.report()` tells more, `card.reset()` ends it"

    # --- what it is -------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return f"<{self.chip.name} {self.name}>"

    @property
    def memory(self) -> KfdMemory:
        """The address space of its queues."""
        return self._memory

    @property
    def chip(self) -> Chip:
        """The names of its chip."""
        return self._chip

    @property
    def _copy_engines(self) -> int:
        return self.device.node.properties.get("num_sdma_engines", 0)

    def gpu_clock(self) -> int:
        """Read the counter of the reference clock."""
        return self.device.calls.clocks(self.device.gpu_id)[0]

    @property
    def info(self) -> CardInfo:
        """What the card is, as the kernel tells it."""
        node = self.device.node
        seen = node.properties
        return CardInfo(
            name=self.name,
            chip=self.chip.name,
            target=self.chip.target,
            pci_id=f"{seen.get('vendor_id', 0):04x}:{seen.get('device_id', 0):04x}",
            vram_bytes=node.vram_bytes,
            window_bytes=self._window_bytes,
            compute_units=compute_units(node),
            shader_engines=shader_engines(node),
            wave_size=seen.get("wave_front_size", 0),
            lds_bytes=seen.get("lds_size_in_kb", 0) * KIB,
            l2_bytes=node.l2_bytes,
            versions={"gc": ".".join(map(str, self._gc)), "sdma0": ".".join(map(str, self._sdma))},
            firmware={"mec": f"{seen.get('fw_version', 0):#x}", "sdma": f"{seen.get('sdma_fw_version', 0):#x}"},
            found=FOUND,
            resets=(),
            doubts=(),
        )

    def flush_place(self, other: AnyCard[Any, Any, Any, Any]) -> None:
        """Return None: amdgpu gives a card's engines no other card's registers, so the host orders what they store in
        another card's VRAM.
        """

    # --- memory -----------------------------------------------------------------------------------------------------
    def pin(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach the caller's memory without a copy: any writable and contiguous object with the buffer
        protocol, such as a NumPy array or an `mmap`. Free the result before that memory is freed.

        The kernel maps whole pages, so the card reaches what else lies in the first and the last one. It follows the
        pages where the kernel moves them. The result's `gpu_va` is the CPU's address where the card has it free, so
        pointers hold on both sides then.
        """
        self._check()
        return self._memory.pin(_plain_bytes(buffer), name)

    def share(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach the caller's memory at the CPU's own address (SVM), so that pointers hold on both sides:
        any writable and contiguous object with the buffer protocol. It may begin inside a page.

        The kernel moves the pages as it likes, and ends the card's access when the process unmaps them, not when the
        result is freed. Raises `NotSupported` where the kernel is built without HSA_AMD_SVM; `pin` works there too, but
        promises no address.
        """
        self._check()
        return self._memory.share(_plain_bytes(buffer), name)

    def export(self, buffer: Buffer) -> int:
        """Return a file descriptor (a dma-buf) of a buffer's memory, for `import_buffer` of another process, which gets
        it by a fork or over a Unix socket. The caller closes it; the memory stays as long as anybody has it.
        """
        self._check()
        return self._memory.export(buffer)

    def import_buffer(self, node: int, name: str = "") -> Buffer:
        """Return memory that another process exported, as a buffer of this card. The CPU does not see it.

        Both processes order their work by themselves: a timeline is one process's. Raises `TransportError` for a file
        descriptor that is closed, or of other memory than this card's.
        """
        self._check()
        return self._memory.import_memory(node, name)

    # --- health -----------------------------------------------------------------------------------------------------
    def stats(self) -> KfdStats:
        """Return the kernel's sensors of the card, and what this process has on it."""
        self._check()
        self._lost("reading statistics")
        return KfdStats(
            name=self.name,
            at_us=self.device.clock.now_us,
            sensors=sensors.read(self.device.node),
            memory={place: replace(usage) for place, usage in self._memory.stats().items()},
            queues=self._queue_stats(),
            faults=self._faults,
            resets=self._resets,
        )

    @property
    def limits(self) -> Any:
        """Raise `NotSupported`: amdgpu sets power and clocks, for all users of the card."""
        raise NotSupported(f"{self.name}: amdgpu holds the limits of power and clocks: see its files in sysfs (hwmon)")

    @property
    def mistakes(self) -> list[str]:
        """Mistakes that a virtual card saw: none, since the kernel is between."""
        return []

    def report(self) -> KfdReport:
        """Return a post-mortem. It works for a lost or closed card too."""
        self.owner.check()
        unreachable = "the card was closed" if self._closed else "the card is gone" if self.device.lost else ""
        return KfdReport(
            name=self.name,
            cause=f"{type(self.fault).__name__}: {self.fault}" if self.fault else "",
            errors_so_far=tuple(self._errors_so_far),
            unreachable=unreachable,
            queues=() if self._closed else self._queue_stats(),
            memory={str(place): replace(usage) for place, usage in self._memory.table.usage.items()},
            interface=".".join(map(str, self.device.calls.version)),
        )

    def reset(self, first: str = QUEUE_RUNG) -> list[Rung]:
        """Take queues with unfinished work off and map them again; their work fails. Memory stays.

        amdgpu alone resets more than a queue: after a fault, and after it has reset the card, it runs no queue of this
        process any more, and `DeviceHung` says so.
        """
        self._check()
        if first != QUEUE_RUNG:
            raise ValueError(
                f"{self.name} has no reset {first!r}; it has {QUEUE_RUNG}: amdgpu does the others by itself"
            )
        self._take_in()
        cause = self.fault
        if cause is not None and (self.device.stopped or isinstance(cause, DeviceLost)):
            raise copy_of(cause)
        cause = cause or DeviceHung(f"{self.name} was reset before the work was done")
        for queue in (hit := self._unfinished()):
            queue.hardware.reset()
        for queue in hit:
            self._queues.map_again(queue, cause)
        self.fault = None
        self.owner.accept()
        for queue in hit:
            queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)
        self._resets += 1
        return [Rung(QUEUE_RUNG, "memory and the other queues")]

    def _unfinished(self) -> list[CardQueue]:
        live = [queue for queue in self._queues.queues if not queue.closed]
        busy: list[CardQueue] = poll(
            lambda: [queue for queue in live if not queue.timeline.idle],
            lambda busy: not busy,
            clock=self.device.clock,
            timeout_us=GRACE_US,
            poll_us=GRACE_POLL_US,
        )
        return busy or live

    def _queue_stats(self) -> tuple[QueueStats, ...]:
        return tuple(queue_stats(queue) for queue in self._queues.queues if not queue.closed)

    # --- waiting ----------------------------------------------------------------------------------------------------
    def _glance(self, looked: bool) -> bool:
        self.owner.check()
        return True

    def _look(self, last: bool) -> None:
        """Take in faults and resets; raise the error that they report. `last`: no later call comes."""
        self.owner.check()
        self._take_in()
        if self.fault is None:
            self._look_at_aql()
        if self.fault is not None:
            raise copy_of(self.fault)
        self._looks += 1
        if last or self._looks % LINK_CHECK_EVERY == 0:
            self._lost("waiting for work")

    def _lost(self, doing: str) -> None:
        try:
            self.device.check(doing)
        except (DeviceLost, DeviceHung) as error:
            self._fail(error)
            raise

    def _take_in(self) -> None:
        for one in self.device.interrupts.faults():
            self._take_one(one)

    def _take_one(self, one: Happened) -> None:
        self._faults += not isinstance(one, HwException)
        cause = faults.error_of(self.name, one, self._memory.describe_page)
        self.device.stop(str(cause))
        self._fail(cause)

    def _explain(self, error: RingupError) -> None:
        """Add to an error where the queues stand."""
        if not isinstance(error, DeviceTimeout):
            return
        for one in self._queue_stats():
            error.add_note(f"{one.name}: {one.completed} of {one.submitted} done")
        for queue in self._queues.queues:
            if isinstance(queue, AqlQueue) and not queue.closed:
                for line in queue.stands():
                    error.add_note(line)
        self._explain_peers(error)

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
        with Teardown(f"{self.name}: closing", logged=RingupError, kept=()) as teardown:
            for step in (close_queues, self._queues.hdp.close, self._memory.close, self.device.close):
                teardown.attempt(step)


def _plain_bytes(buffer: Any) -> memoryview:
    """Return the bytes of the caller's memory."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError("a card can be given memory that is contiguous, which this buffer is not")
    return view.cast("B") if view.nbytes else memoryview(b"")


def identify(node: Node) -> tuple[Chip, Version, Version]:
    """Return the chip of a node, and the versions of its graphics core and copy engines.

    Raises `NotSupported` for a chip that ringup does not know, or a kernel that shows no versions.
    """
    chip = next((row for row in CHIPS.values() if row.target == node.target), None)
    if chip is None:
        known = ", ".join(f"{row.name} ({row.target})" for row in CHIPS.values())
        raise NotSupported(f"the card is a {node.target}; ringup drives {known}")
    versions = [node.block_version(name) for name in ("GC", "SDMA0")]
    gc, sdma = versions
    if gc is None or sdma is None:
        raise NotSupported(
            f"the kernel shows no versions of the card's blocks ({node.function.path}/ip_discovery): it takes Linux 5.18"
        )
    return chip, gc, sdma


CARD = KfdRadeon


def start(
    device: KfdDevice, *, firmware: Path | str | Iterable[Path | str] = (), force: bool = False, **options: Any
) -> KfdRadeon:
    """Use the card behind `device`; what `drivers.select` calls. Raises `NotSupported` for `firmware` and `force`."""
    if force:
        raise NotSupported(f"opening {device.name} by force: amdgpu drives the card, and knows its blocks or does not")
    if [firmware] if isinstance(firmware, (str, Path)) else list(firmware):
        raise NotSupported(f"opening {device.name} with firmware of one's own: amdgpu has loaded the system's already")
    return KfdRadeon(device, **options)
