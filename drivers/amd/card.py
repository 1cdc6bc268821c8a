"""An open Radeon: memory, programs, queues, statistics, reports. Its blocks are made by `wiring` and started by
`bringup`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringup.autogen.linux import pci
from ringup.drivers.amd.bus.ih_decode import FATAL, TOO_HOT, Interrupt
from ringup.drivers.amd.bus.registers import REGISTER_BAR
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB
from ringup.drivers.amd.gmc.pte import PAGE_BYTES
from ringup.drivers.amd.lifecycle import bringup, hive, host_reach
from ringup.drivers.amd.lifecycle.bringup import Bringup
from ringup.drivers.amd.lifecycle.reset import Member, Reset
from ringup.drivers.amd.memory.spaces import USER_VMID
from ringup.drivers.amd.observe.health import Counts, Health, Stats
from ringup.drivers.amd.smu.control import CardLimits, Control
from ringup.drivers.amd.submission.queue_set import QueueSet
from ringup.drivers.amd.verbs import AnyRadeon, CardInfo
from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import Teardown
from ringup.drivers.memory.buffers import Memory
from ringup.drivers.mistakes import Mistakes
from ringup.drivers.poll import Poller
from ringup.drivers.rung import Rung
from ringup.drivers.stages import Stages, Watcher, patience_with
from ringup.drivers.submission.card_queue import CardQueue
from ringup.drivers.submission.verbs import AnyCard
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device, Observation, Reaches
from ringup.errors import CardBusy, DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, RingupError
from ringup.firmware.store import Store
from ringup.queues.queue import Owner
from ringup.queues.timeline import copy_of

if TYPE_CHECKING:
    from ringup.drivers.amd.bus.chips import Chip
    from ringup.drivers.amd.observe.report import Report

LOG = logging.getLogger(__name__)
INTERRUPTS_KEPT = 256
SELF_TEST_US = 200_000
# only a card that came up has a report
REPORT_TELLS = "; `card.report()` tells more"
# sleeps of a wait between two checks of the link
LINK_CHECK_EVERY = 8


class Radeon(AnyRadeon[Device, QueueSet]):
    """One card that is up. It belongs to the thread that opened it. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        device: Device,
        *,
        firmware: Path | str | Iterable[Path | str] = (),
        watch: Watcher | None = None,
        force: bool = False,
    ) -> None:
        """Bring the card up. `firmware`: one or several files or folders that come before the system's. `watch` is
        called for every stage. `force`: a block of a version that this driver does not know is driven as the nearest
        one that it knows; a warning and `info.doubts` name it.

        Raises a `RingupError` that names the failing stage; the card is torn down then.
        """
        super().__init__(device)
        self._explicit = (firmware,) if isinstance(firmware, (str, Path)) else tuple(firmware)
        self._watch, self._force = watch, force
        self.interrupts: deque[Interrupt] = deque(maxlen=INTERRUPTS_KEPT)
        self.rungs: list[Rung] = []
        self._counts = Counts()
        self._looks = 0
        self._warned: set[str] = set()  # doubts that were logged
        # for a queue whose wait ran out: the value that was done, and when
        self._stalled: dict[CardQueue, tuple[int, int]] = {}
        ids = (ask(device.config, at, 2, f"opening {device.name}") for at in (pci.PCI_VENDOR_ID, pci.PCI_DEVICE_ID))
        self._pci_id = ":".join(f"{one:04x}" for one in ids)
        # mistakes that the caller was given
        self._reported = 0
        self._late: DeviceTimeout | None = None  # the last wait that ran out
        self._mistakes = Mistakes(device, self._locate)
        self._start()

    def _start(self, replaced: Sequence[CardQueue] = ()) -> None:
        """Bring the card up. `replaced`: queues from before a reset of the whole card; the same objects go on."""
        try:
            self._start_once(replaced, whole=False)
        except (DeviceTimeout, DeviceHung, DeviceFault) as error:
            if not self._bringup.warm:
                raise
            LOG.info("%s; the card is reset as a whole", error)
            self._errors_so_far.append(str(error))
            before = self.stages
            self._start_once(replaced, whole=True)
            self.stages[:0] = before

    def _start_once(self, replaced: Sequence[CardQueue], *, whole: bool) -> None:
        stages = Stages(self.device.name, self.device.clock, self._watch, patience=patience_with(self.device))
        self.stages, self.fault, self._late, self._reported = stages.done, None, None, 0
        self._mistakes.forget()
        self._bringup = start = Bringup(
            self.device, stages, Store(explicit=self._explicit), whole=whole, force=self._force
        )
        try:
            start.run()
            self.blocks, self.spaces, self.ih = start.blocks, start.spaces, start.ih
            for doubt in self._doubts:
                if doubt not in self._warned:
                    self._warned.add(doubt)
                    LOG.warning("%s: %s", self.name, doubt)
            self.spaces.user.admit = self.owner.check
            self._control = Control(self.blocks.smu)
            self._health = Health(self.blocks, self._control, self._too_hot)
            self._health.start()
            # TIMEOUT: 4 s were seen on an emulated processor; each wait within has a bound of its own
            with stages.stage("testing the queues", 10_000_000):
                if not self.device.polls_vram:
                    host_reach.check(self.blocks, self.spaces)
                self._make_queues(replaced)
            self._waiter.advice = REPORT_TELLS
        except BaseException as error:
            if isinstance(error, RingupError):
                self._mistakes.explain(error)
            self._abandon()
            raise

    def _make_queues(self, replaced: Sequence[CardQueue]) -> None:
        self._waiter = Poller(self.device, self._examine, self._glance, self._explain)
        self._queues = QueueSet(self.blocks, self.spaces, self._waiter, self.owner, self._bringup.signals)
        for queue in replaced:
            self._queues.replace(queue)
        if not replaced:
            self._aql = None
            self.compute = self._queues.compute()
            self._copies = {0: self._queues.copy(0)}
        for queue in self._queues.queues:
            queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)

    def _abandon(self) -> None:
        """Stop what was started, as far as possible. An error is being raised already, so those here are logged."""
        start = self._bringup
        if not hasattr(start, "blocks"):
            return
        try:
            try:
                bringup.stop(start.blocks, getattr(start, "ih", None), clean=False)
            finally:
                # the card sends nothing any more, so its memory may be freed
                if hasattr(start, "spaces"):
                    start.spaces.close()
        except RingupError as error:
            LOG.info("%s: stopping what was started: %s", self.device.name, error)

    def flush_place(self, other: AnyCard[Any, Any, Any, Any]) -> int | None:
        """Return where this card's engines store a dword to flush the other card's host data path into its VRAM."""
        if not isinstance(other, Radeon) or not isinstance(self.device, Reaches):
            return None
        at = other.blocks.hdp.flush_at
        page = at - at % PAGE_BYTES
        registers = self.device.reach(other.device, REGISTER_BAR, page, PAGE_BYTES)
        name = f"flush register of {other.name}"
        return self.memory.import_host(registers, name, adopt=True, seen=False).gpu_va + at - page

    # --- what it is -------------------------------------------------------------------------------------------------
    @property
    def memory(self) -> Memory:
        """The address space of its queues."""
        return self.spaces.user

    @property
    def chip(self) -> Chip:
        """The names of its chip."""
        return self.blocks.ips.chip

    @property
    def _copy_engines(self) -> int:
        return len(self.blocks.sdma)

    def gpu_clock(self) -> int:
        """Read the counter of the reference clock."""
        return self.blocks.gfx.gpu_clock()

    def __repr__(self) -> str:
        return f"<{self.chip.name} {self.name}>"

    @property
    def info(self) -> CardInfo:
        """What the card is and how it was found."""
        ips, blocks = self.blocks.ips, self.blocks
        shape = ips.shape
        versions = ("gc", "sdma0", "mmhub", "nbio", "mp0", "mp1", "osssys", "hdp", "smuio", "thm")
        return CardInfo(
            name=self.name,
            chip=ips.chip.name,
            target=ips.chip.target,
            pci_id=self._pci_id,
            vram_bytes=blocks.window.size_bytes,
            window_bytes=blocks.window.visible_bytes,
            compute_units=blocks.cu_total,
            shader_engines=shape.shader_engines * len(blocks.cores),
            wave_size=shape.wave_size,
            lds_bytes=shape.lds_bytes_per_cu,
            l2_bytes=shape.l2_bytes,
            versions={name: ".".join(map(str, ips.version(name))) for name in versions},
            firmware=self._firmware,
            found=self._bringup.found.value,
            resets=tuple(map(str, self._bringup.ladder.rungs)) if self._bringup.ladder else (),
            doubts=self._doubts,
        )

    @property
    def _firmware(self) -> dict[str, str]:
        """Versions by kind: of the files, and of the firmware that runs where the card reports it."""
        versions = {kind: f"{version:#x}" for kind, version in self.blocks.firmware.versions.items()}
        return versions | ({"smu": f"{running:#x}"} if (running := self.blocks.smu.firmware_version) else {})

    @property
    def _doubts(self) -> tuple[str, ...]:
        smu = self.blocks.smu
        return tuple(filter(None, (smu.mismatch, *smu.doubts, *self.blocks.ips.doubts)))

    # --- queues -----------------------------------------------------------------------------------------------------
    def pin(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach the caller's memory without a copy: a writable buffer of whole pages. Free the result
        before that memory is freed.

        Raises `NotSupported` where the path to the card cannot do it.
        """
        self._check()
        return self.spaces.user.import_host(self.device.pin(memoryview(buffer).cast("B")), name, adopt=True)

    # --- health -----------------------------------------------------------------------------------------------------
    def stats(self) -> Stats:
        """Return the card's statistics, and leave the metrics where other processes find them."""
        self._check()
        return self._health.stats(self.spaces.user.stats(), self._queues.queues, self._counts, self.ih.overflows)

    @property
    def limits(self) -> CardLimits:
        """The bounds within which power and clocks may be set."""
        self._check()
        return self._control.limits

    def set_power_limit(self, power_w: int) -> None:
        """Set the power limit in watts until `close`. The `ValueError` for another value gives the range."""
        self._check()
        self._control.set_power_limit(power_w)

    def set_clock_range(self, name: str, min_mhz: int, max_mhz: int) -> None:
        """Keep the clock `gfx`, `memory`, `fabric` or `soc` in a range until `close`. The `ValueError` for another
        range gives the bounds.
        """
        self._check()
        self._control.set_clock_range(name, min_mhz, max_mhz)

    def workload(self, profile: str) -> None:
        """Set the power controller's workload profile, such as `compute`, until `close`. A `ValueError` lists the
        profiles.
        """
        self._check()
        self._control.workload(profile)

    def report(self) -> Report:
        """Return a post-mortem: first cause, queues, waves, last interrupts, memory. It works for a lost or closed card
        too.
        """
        self.owner.check()
        unreachable = "the card was closed" if self._closed else "the card is gone" if self.device.lost else ""
        if unreachable and not self._closed:
            self._fail(DeviceLost(f"{self.name} {self.device.why_lost}"))
        from ringup.drivers.amd.observe import report as post_mortem

        return post_mortem.make(
            post_mortem.Known(
                name=self.name,
                cause=self.fault,
                errors_so_far=list(self._errors_so_far),
                unreachable=unreachable,
                found=self._bringup.found.value,
                blocks=self.blocks,
                spaces=self.spaces,
                stages=self.stages,
                rungs=self.rungs,
                queues=self._queues.queues,
                programs=self._programs,
                interrupts=[interrupt.text for interrupt in self.interrupts],
                late=self._late,
                mistakes=self._mistakes,
                stalled=self._stalled,
                doubts=self._doubts,
            )
        )

    @property
    def mistakes(self) -> list[str]:
        """Mistakes of the driver and of submitted work that a virtual card saw since the start or the last reset;
        always empty for a real card.
        """
        self.owner.check()
        seen = self._mistakes.seen()
        self._reported = len(seen)
        return seen

    def reset(self, first: str = "queue", *, linked: Sequence[Radeon] = ()) -> list[Rung]:
        """Make the card usable again by the rungs `queue`, `engine`, `mode2` (MI300X only), `mode1`, `function`,
        `slot`, from `first` on. Return the rungs that were tried.

        Work that does not end within 20 ms fails: its points raise the first cause. Queues go on as the same objects.
        `queue` and `engine` leave memory and the queues of other engines alone; `mode2` takes all queues and leaves
        memory alone. The other rungs lose all memory of the card: every later use of an old buffer, program or kept
        stream is a `ValueError`. `linked`: open cards that XGMI links with it: these other rungs reset and restart
        them at the same time. Raises `CardBusy` instead of such a rung while other processes or amdgpu use linked
        cards, `DeviceLost`, or `DeviceHung` when no rung helped.
        """
        for one in (self, *linked):
            one._check()
        hive.check(self.blocks, [one.blocks for one in linked])
        cause = self._cause_of_reset(f"{self.name} was reset")
        with_it = [
            one._cause_of_reset(f"{one.name} was reset with {self.name}, which is linked with it,") for one in linked
        ]
        members = [one._member(why) for one, why in zip((self, *linked), (cause, *with_it), strict=True)]
        reset = Reset(self.blocks, self._queues, cause, self._calm, members)
        try:
            reset.climb(first)
        except RingupError as error:
            if reset.rungs or not isinstance(error, CardBusy):
                for one in self._taken(reset, linked):
                    one._fail(error)
            raise
        finally:
            for one in self._taken(reset, linked):
                one.rungs += reset.rungs
        for one in self._taken(reset, linked):
            one._counts.resets += 1
        return reset.rungs

    def _taken(self, reset: Reset, linked: Sequence[Radeon]) -> tuple[Radeon, ...]:
        """Return the cards that a reset took."""
        return (self, *linked) if reset.took_all else (self,)

    def _cause_of_reset(self, how: str) -> RingupError:
        """Return the error with which undone work fails."""
        if self.fault is not None:
            return self.fault
        cause = DeviceHung(f"{how} before the work was done")
        self._mistakes.explain(cause)
        return cause

    def _member(self, cause: RingupError) -> Member:
        """Return what a reset of the whole card needs of this one."""
        live = [queue for queue in self._queues.queues if not queue.closed]
        return Member(self.blocks, lambda rung: self._restart(rung, live, cause))

    def _calm(self) -> None:
        """Drain the interrupts of a fault, forget it and accept work again."""
        self._take_in()
        self.fault, self._late, self._reported = None, None, 0
        self._mistakes.forget()
        self.owner.accept()

    def _restart(self, rung: str, queues: list[CardQueue], cause: RingupError) -> None:
        """Come up again after a reset of the whole card; queues go on as the same objects."""
        how = f"lost in a reset of the card ({rung})"
        for queue in queues:
            queue.lose(cause, how)
        for program in list(self._programs.values()):
            program.lose(how)
        self._programs.clear()
        self.spaces.lose(how)
        self.blocks.stray.free()
        self.owner.refuse(cause)
        # a new owner distinguishes new streams from those that were begun before
        self.owner = Owner(self.device.name)
        self.fault = None
        self._start(queues)

    def _glance(self, looked: bool) -> bool:
        self.owner.check()
        return self.fault is not None or self.ih.glance(looked) or self._waits_for_peers

    def _explain(self, error: RingupError) -> None:
        """Add to an error the mistakes that led to it and where the queues stand."""
        if isinstance(error, DeviceTimeout):
            now = self.device.clock.now_us
            late = [
                queue
                for queue in self._queues.queues
                if not queue.closed and queue.timeline.known != queue.timeline.last
            ]
            self._stalled |= {queue: (queue.timeline.known, now) for queue in late if queue not in self._stalled}
        from ringup.drivers.amd.observe import report as post_mortem

        self._mistakes.explain(error)
        if isinstance(error, DeviceTimeout):
            self._late = error
        for line in post_mortem.brief(self._queues.queues, self.blocks, self.spaces):
            error.add_note(line)
        self._explain_peers(error)

    def _locate(self, seen: Observation) -> str:
        """Return what lies at the addresses of an observation: kernel and offset, buffer."""
        if seen.vmid not in (-1, USER_VMID) or not hasattr(self, "spaces"):
            return ""
        parts = [
            f"in {where}" for program in self._programs.values() if seen.pc >= 0 and (where := program.where(seen.pc))
        ]
        if seen.gpu_va >= 0:
            parts.append(f"{seen.gpu_va:#x} is {self.spaces.user.describe(seen.gpu_va)}")
        return "; ".join(parts)

    def _look(self, last: bool) -> None:
        """Drain interrupts; raise the error that they report. `last`: no later call comes, so the link is checked in
        any case.
        """
        self.owner.check()
        self._take_in()
        self._looks += 1
        # where each look is a round trip, the host looks less often
        if self.fault is None and (last or not self.device.polls_vram or self._looks % LINK_CHECK_EVERY == 0):
            self._look_at_aql()
        if self.fault is not None:
            raise copy_of(self.fault)
        try:
            if last or self._looks % LINK_CHECK_EVERY == 0:
                self.blocks.registers.check("waiting for work")
            self._health.tick()
        except DeviceLost as error:
            self._fail(error)
            raise

    def _take_in(self) -> None:
        for interrupt in self.ih.drain():
            self.interrupts.append(interrupt)
            self._counts.interrupts[interrupt.kind] += 1
            if interrupt.kind in FATAL:
                self._counts.faults += 1
                if self.fault is None:
                    self._fail(self._fault_of(interrupt))
            elif interrupt.kind == TOO_HOT:
                self._health.hurry()

    def _too_hot(self, why: str) -> None:
        if self.fault is None:
            cause = DeviceHung(
                f"{self.name} is too hot: {why}; its clocks are at their lowest, and work is taken again when it has cooled"
            )
            self.owner.refuse(cause, self._health.cooled)

    def _fault_of(self, interrupt: Interrupt) -> RingupError:
        if interrupt.kind not in ("page fault", "SDMA page fault"):
            refused = self._queues.refused(interrupt)
            return DeviceHung(f"{self.name}: {refused or interrupt.text}")
        gpu_va = interrupt.fault_va
        where = self.spaces.user.faulted(gpu_va) if interrupt.vmid == USER_VMID else f"vmid {interrupt.vmid}"
        fault = self.blocks.gmc.read_fault(interrupt.hub if interrupt.hub in (GFXHUB, MMHUB) else GFXHUB, gpu_va)
        detail = str(fault) if fault is not None else interrupt.text
        return DeviceFault(f"{self.name}: {detail}: {where}")

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Take queues off, free memory, leave the card cold and quiet. Twice is harmless."""
        if self._closed:
            return
        self.owner.check()
        self._closed = True
        clean = self.fault is None
        try:
            self._shut(clean)
        except RingupError as error:
            LOG.info("%s: closing: %s", self.name, error)
        finally:
            self._log_mistakes()
            self.device.close()

    def _log_mistakes(self) -> None:
        """Log the mistakes that the caller has not asked for: the same work may fail on a real card."""
        self._mistakes.close()
        seen = self._mistakes.seen()[self._reported :]
        if seen and self.fault is None and self._late is None:
            more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
            LOG.warning("%s saw a mistake that a real card punishes: %s%s", self.name, seen[0], more)

    def _shut(self, clean: bool) -> None:
        teardown = Teardown(f"{self.name}: closing", logged=RingupError, kept=())
        close_queues = partial(self._queues.close, patient=clean)
        for step in (close_queues, self._health.stop, self._control.close):
            clean = teardown.attempt(step) and clean
        try:
            bringup.stop(self.blocks, self.ih, clean=clean)
        finally:
            # the card is quiet, or gone: its memory is freed in any case
            self.spaces.close()


CARD = Radeon


def start(device: Device, **options: Any) -> Radeon:
    """Bring up the card behind `device`; what `drivers.select` calls."""
    return Radeon(device, **options)
