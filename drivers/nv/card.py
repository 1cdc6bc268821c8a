"""An open card whose GSP-RM ringup has started: the same verbs as a card that stays with NVIDIA's kernel driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ringup.autogen.linux import pci
from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import Teardown
from ringup.drivers.memory.buffers import Memory
from ringup.drivers.mistakes import Mistakes
from ringup.drivers.nv.bus import timer
from ringup.drivers.nv.bus.interrupts import MAX_LEAVES, VECTORS_PER_LEAF
from ringup.drivers.nv.channels import faults
from ringup.drivers.nv.channels.channel import Channel, ChannelParts
from ringup.drivers.nv.channels.facts import row_of_chip
from ringup.drivers.nv.channels.objects import CardObjects
from ringup.drivers.nv.channels.queues import GspQueues
from ringup.drivers.nv.gsp import log_records
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.lifecycle.bringup import Bringup
from ringup.drivers.nv.memory.space import Space
from ringup.drivers.nv.observe.bare import GspReport, GspStats
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.drivers.nv.verbs import CHANNEL_RUNG, SELF_TEST_US, AnyNvidia, CardInfo
from ringup.drivers.poll import Poller
from ringup.drivers.rung import Rung
from ringup.drivers.stages import Stages, Watcher, patience_with
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device, Observation
from ringup.errors import DeviceHung, DeviceLost, NotSupported, OutOfMemory, RingupError
from ringup.firmware.store import Store
from ringup.queues.queue import Owner

LOG = logging.getLogger(__name__)
# TIMEOUT: ours; each call of GSP-RM within has a bound of its own
MEMORY_US, OBJECTS_US, QUEUES_US = 10_000_000, 20_000_000, 60_000_000
CARD_RUNG = "card"
RUNGS = (CHANNEL_RUNG, CARD_RUNG)
# sleeps of a wait between two checks of whether the card is still there
CHECK_EVERY = 16


class GspCard(AnyNvidia[Device, GspQueues]):
    """One card that is up, on which GSP-RM runs for this process alone. It belongs to the thread that opened it."""

    def __init__(
        self,
        device: Device,
        *,
        firmware: Path | str | Iterable[Path | str] = (),
        release: str | None = None,
        rom: bytes | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Bring the card up. `firmware`: one or several files or folders that come before the system's. `release`: of
        that firmware, such as "535.113.01"; None: the best known one. `rom`: the VBIOS' images, where `card.rom` of an
        earlier start has them: to read them takes most of a start. `watch` is called for every stage.

        Raises a `RingupError` that names the failing stage; the card is torn down then.
        """
        super().__init__(device)
        self._explicit = (firmware,) if isinstance(firmware, (str, Path)) else tuple(firmware)
        self._release, self._watch = release, watch
        self.rom = rom
        self.rungs: list[Rung] = []
        self._looks = self._interrupts = 0
        # of the last start that came so far; `_up` while GSP-RM runs for it
        self._running: Running | None = None
        self._space: Space | None = None
        self._up = False
        # queues that a reset has not made anew yet
        self._unreplaced: list[CardQueue] = []
        ids = (ask(device.config, at, 2, f"opening {device.name}") for at in (pci.PCI_VENDOR_ID, pci.PCI_DEVICE_ID))
        self._pci_id = ":".join(f"{one:04x}" for one in ids)
        # mistakes that the caller was given
        self._reported = 0
        self._mistakes = Mistakes(device, self._locate)
        self._waiter = Poller(device, self._examine, self._glance, self._explain)
        self._start()

    # --- the start --------------------------------------------------------------------------------------------------
    def _start(self, replaced: Sequence[CardQueue] = ()) -> None:
        """Bring the card up. `replaced`: queues from before a reset of the whole card; the same objects go on."""
        device = self.device
        stages = Stages(device.name, device.clock, self._watch, patience=patience_with(device))
        self.stages, self.fault = stages.done, None
        self._mistakes.forget()
        store = Store(explicit=self._explicit)
        self._bringup = start = Bringup(device, stages, store, release=self._release, rom=self.rom)
        try:
            start.run()
            self.rom, self._running = start.rom, start.running
            self._prepare(stages, start.running)
            self._up = True
            with stages.stage("making queues", QUEUES_US):
                self._make_queues(replaced)
            with stages.stage("testing the queues", 2 * SELF_TEST_US):
                for queue in self._queues.queues:
                    queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)
        except BaseException as error:
            if isinstance(error, RingupError):
                self._mistakes.explain(error)
            self._abandon()
            raise
        self._waiter.advice = "; `card.report()` tells more, `card.reset()` ends it"

    def _prepare(self, stages: Stages, running: Running) -> None:
        with stages.stage("opening the memory", MEMORY_US):
            self._space = space = Space(running.registers, running.static, row_of_chip(running.registers.chip))
            space.memory.admit = self.owner.check
        with stages.stage("making objects of GSP-RM", OBJECTS_US):
            self._objects = objects = CardObjects(running)
            objects.make_space(space)
            self._parts = ChannelParts(objects, space)
            self._faults_seen = faults.Watch(running, self._parts.numbers, space.memory)
            self._arm(running)

    def _arm(self, running: Running) -> None:
        """Let engines wake this process when they are asked to ("non-stall interrupts")."""
        for vector in running.nonstall_vectors():
            if vector < MAX_LEAVES * VECTORS_PER_LEAF:
                running.tree.arm(vector, self._woken)

    def _woken(self) -> None:
        self._interrupts += 1

    def _make_queues(self, replaced: Sequence[CardQueue]) -> None:
        self._queues = GspQueues(self.name, self._parts, self._waiter, self.owner)
        for queue in replaced:
            self._queues.replace(queue)
        if not replaced:
            self.compute = self._queues.compute()
            self._copies = {0: self._queues.copy(0)}

    def _abandon(self) -> None:
        """Stop what was started, as far as possible. An error is being raised already, so those here are logged."""
        with Teardown(f"{self.name}: stopping what was started", logged=RingupError) as teardown:
            self._end(teardown, "freed")

    def _end(self, teardown: Teardown, how: str) -> None:
        """End GSP-RM, then free memory. ORDER: host memory is free only when the card is off the bus."""
        running, space = self._running, self._space
        self._up = False
        if running is not None:
            teardown.attempt(running.stop)
        if space is not None:
            teardown.attempt(lambda: space.lose(how))

    # --- what it is -------------------------------------------------------------------------------------------------
    @property
    def facts(self) -> CardFacts:
        """What GSP-RM tells of the card."""
        return self._objects.facts

    @property
    def running(self) -> Running:
        """Its GSP-RM."""
        if self._running is None:
            raise ValueError(f"{self.name} is not up")
        return self._running

    @property
    def memory(self) -> Memory:
        """The address space of its queues."""
        if self._space is None:
            raise ValueError(f"{self.name} is not up")
        return self._space.memory

    def gpu_clock(self) -> int:
        """Read the card's clock, in ns."""
        return timer.clock_ns(self._bringup.registers)

    @property
    def info(self) -> CardInfo:
        """What the card is, and how it was found."""
        seen, running = self.facts, self.running
        return CardInfo(
            name=self.name,
            chip=seen.chip,
            target=self.target,
            product=seen.product,
            pci_id=self._pci_id,
            address=self.name,
            vram_bytes=seen.vram_bytes,
            window_bytes=self._window_bytes,
            compute_units=seen.sms,
            warps_per_unit=seen.warps_per_sm,
            wave_size=32,
            l2_bytes=seen.l2_bytes,
            copy_engines=len(seen.copy_engines),
            gid=seen.gid.hex(),
            versions={"gsp": running.release},
            firmware={"gsp": running.release},
            found=self._bringup.found.value,
        )

    @property
    def _window_bytes(self) -> int:
        return 0 if self._space is None else self._space.window.visible_bytes

    # --- memory -----------------------------------------------------------------------------------------------------
    def pin(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach the caller's memory without a copy: a writable buffer of whole pages. Free the result
        before that memory is freed.

        Raises `NotSupported` where the path to the card cannot do it.
        """
        self._check()
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise ValueError("a card can be given memory that is contiguous, which this buffer is not")
        return self.memory.import_host(self.device.pin(view.cast("B")), name, adopt=True)

    # --- health -----------------------------------------------------------------------------------------------------
    def stats(self) -> GspStats:
        """Return what the card has to do now."""
        self._check()
        return GspStats(
            name=self.name,
            at_us=self.device.clock.now_us,
            memory={place: replace(usage) for place, usage in self.memory.stats().items()},
            queues=self._queue_stats(),
            faults=self._faults,
            resets=self._resets,
            interrupts=self._interrupts,
            calls=self.running.rpc.calls,
        )

    @property
    def limits(self) -> Any:
        """Raise `NotSupported`: GSP-RM sets power and clocks by itself."""
        raise NotSupported(f"{self.name}: GSP-RM sets power and clocks by itself; ringup does not change its limits")

    @property
    def mistakes(self) -> list[str]:
        """Mistakes of the driver and of submitted work that a virtual card saw since the start or the last reset;
        always empty for a real card.
        """
        self.owner.check()
        seen = self._mistakes.seen()
        self._reported = len(seen)
        return seen

    def report(self) -> GspReport:
        """Return a post-mortem. It works for a lost or closed card too."""
        self.owner.check()
        unreachable = "the card was closed" if self._closed else "the card is gone" if self.device.lost else ""
        if self.device.lost and not self._closed and self.fault is None:
            self._fail(DeviceLost(f"{self.name} {self.device.why_lost}"))
        live = () if self._closed else tuple(queue for queue in self._queues.queues if not queue.closed)
        running = self.running
        logs, crashes = running.logs(), running.crashes()
        return GspReport(
            name=self.name,
            cause=f"{type(self.fault).__name__}: {self.fault}" if self.fault else "",
            errors_so_far=tuple(self._errors_so_far),
            unreachable=unreachable,
            found=self._bringup.found.value,
            stages=tuple(self.stages),
            rungs=tuple(map(str, self.rungs)),
            queues=() if self._closed else self._queue_stats(),
            channels={queue.name: tuple(self.stands(queue)) for queue in live},
            memory={str(place): replace(usage) for place, usage in self.memory.table.usage.items()},
            release=running.release,
            errors=tuple(faults.described(error) for error in running.errors),
            events=tuple(event.name for event in running.events),
            crashes=crashes.reports,
            unread=crashes.unread,
            logs=logs,
            records={name: log_records.decode(data) for name, data in logs.items()},
            mistakes=self._mistakes.seen(),
        )

    # --- errors -----------------------------------------------------------------------------------------------------
    def stopped_for(self, queue: CardQueue) -> RingupError | None:
        """Return why GSP-RM stopped a queue's channel."""
        channel = queue.hardware
        return channel.error if isinstance(channel, Channel) else None

    def _take_in(self) -> None:
        """Serve interrupts and events, then note which channels were stopped."""
        if not self._up:
            return
        try:
            if not self.running.tree.serve():
                self.running.poll()
        except (DeviceLost, DeviceHung) as error:
            self._fail(error)
            return
        other = self._faults_seen.take(self.name)
        super()._take_in()
        if other is not None and self.fault is None:
            self._fail(other)

    def _look(self, last: bool) -> None:
        super()._look(last)
        self._looks += 1
        if self._looks % CHECK_EVERY == 0:
            self._check_there("waiting for work")

    def _glance(self, looked: bool) -> bool:
        self.owner.check()
        if self.fault is not None or not self._up:
            return True
        try:
            return self._faults_seen.pending or self._waits_for_peers
        except (DeviceLost, DeviceHung) as error:
            self._fail(error)
            return True

    def _check_there(self, doing: str) -> None:
        try:
            self._bringup.registers.check(doing)
        except DeviceLost as error:
            self._fail(error)
            raise

    def _explain(self, error: RingupError) -> None:
        self._mistakes.explain(error)
        super()._explain(error)

    def _locate(self, seen: Observation) -> str:
        """Return what lies at the address of an observation."""
        if seen.gpu_va < 0 or self._space is None:
            return ""
        return f"{seen.gpu_va:#x} is {self.memory.describe(seen.gpu_va)}"

    # --- reset ------------------------------------------------------------------------------------------------------
    def reset(self, first: str = CHANNEL_RUNG) -> list[Rung]:
        """Make the card usable again by the rungs `channel` and `card`, from `first` on; return those that were tried.

        Work that does not end in a moment fails. Queues go on as the same objects. `channel` makes stopped channels
        anew and leaves memory alone; `card` ends GSP-RM and starts it anew, and all memory of the card is lost. Raises
        `ValueError` for another rung, `DeviceLost`, or `DeviceHung` when none helped.
        """
        self._check()
        if first not in RUNGS:
            raise ValueError(f"{self.name} has no reset {first!r}; it has {', '.join(RUNGS)}")
        tried: list[Rung] = []
        if first == CHANNEL_RUNG and self._up:
            try:
                tried += super().reset()
            # memory is not given up for want of memory
            except (DeviceLost, OutOfMemory):
                raise
            except RingupError as error:
                tried.append(Rung(CHANNEL_RUNG, "", str(error)))
                self._fail(error)
            else:
                self._mistakes.forget()
                self._reported = 0
                self.rungs += tried
                return tried
        cause = self.fault or DeviceHung(f"{self.name} was reset before the work was done")
        try:
            self._restart(cause)
        except RingupError as error:
            tried.append(Rung(CARD_RUNG, "", str(error)))
            self.rungs += tried
            self._fail(error)
            raise
        tried.append(Rung(CARD_RUNG, "nothing"))
        self.rungs += tried
        self._resets += 1
        return tried

    def _restart(self, cause: RingupError) -> None:
        """End GSP-RM, and come up again; queues go on as the same objects."""
        how = f"lost in a reset of the card ({CARD_RUNG})"
        # an earlier try may have failed before all queues had new parts
        queues = self._unreplaced or [queue for queue in self._queues.queues if not queue.closed]
        self._unreplaced = queues
        for queue in queues:
            queue.lose(cause, how)
        for program in list(self._programs.values()):
            program.lose(how)
        self._programs.clear()
        with Teardown(f"{self.name}: ending GSP-RM", logged=RingupError) as teardown:
            self._end(teardown, how)
        self._stopped.clear()
        self.owner.refuse(cause)
        # a new owner distinguishes new streams from those that were begun before
        self.owner = Owner(self.name)
        self._start(queues)
        self._unreplaced = []

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Take queues off, free memory, end GSP-RM, leave the card quiet. Twice is harmless."""
        if self._closed:
            return
        self.owner.check()
        self._closed = True
        close_queues: Callable[[], None] = partial(self._queues.close, patient=self.fault is None)
        # an interrupt is raised when all is done: what the card can still write to must not be free
        with Teardown(f"{self.name}: closing", logged=RingupError) as teardown:
            teardown.attempt(close_queues)
            self._end(teardown, "freed")
            self._log_mistakes()
            teardown.attempt(self.device.close)

    def _log_mistakes(self) -> None:
        """Log the mistakes that the caller has not asked for: the same work may fail on a real card."""
        self._mistakes.close()
        seen = self._mistakes.seen()[self._reported :]
        if seen and self.fault is None:
            more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
            LOG.warning("%s saw a mistake that a real card punishes: %s%s", self.name, seen[0], more)


CARD = GspCard


def start(device: Device, *, force: bool = False, **options: Any) -> GspCard:
    """Bring up the card behind `device`; what `drivers.select` calls. Raises `NotSupported` for `force`."""
    if force:
        raise NotSupported(f"opening {device.name} by force: GSP-RM knows the card, or does not")
    return GspCard(device, **options)
