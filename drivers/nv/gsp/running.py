"""GSP-RM from before its start to its end: its memory, queues, arguments and calls, and what watches over it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from ringup.autogen.linux import pci
from ringup.autogen.nv import gsp_rpc
from ringup.autogen.nv.engines import NV_PGSP_QUEUE_HEAD
from ringup.autogen.nv.falcon import (
    NV_PFALCON_FALCON_INTR_RETRIGGER,
    NV_PFALCON_FALCON_IRQSCLR,
    NV_PFALCON_FALCON_IRQSTAT,
)
from ringup.autogen.nv.gsp_static import GspStaticConfigInfo
from ringup.autogen.nv.rm_ctrl_2080_internal import (
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
    NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS,
)
from ringup.drivers.cleanup import Teardown
from ringup.drivers.nv.bus.interrupts import MAX_LEAVES, VECTORS_PER_LEAF, InterruptTree
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import boot, crash_queue, events, flush_page, layout, radix3, system
from ringup.drivers.nv.gsp.arguments import Arguments
from ringup.drivers.nv.gsp.boot import Firmware, Way
from ringup.drivers.nv.gsp.crash_queue import Crashes
from ringup.drivers.nv.gsp.door import Door
from ringup.drivers.nv.gsp.falcon import GSP, SEC2, Falcon
from ringup.drivers.nv.gsp.host_memory import PAGE_BYTES, HostMemory
from ringup.drivers.nv.gsp.queue import Queues
from ringup.drivers.nv.gsp.releases import constant, struct
from ringup.drivers.nv.gsp.rpc import Received, Rpc
from ringup.drivers.nv.gsp.sequencer import Sequencer
from ringup.drivers.nv.gsp.system import StaticInfo
from ringup.drivers.transport.config_space import answers, ask, set_master
from ringup.errors import DeviceHung, RingupError

T = TypeVar("T")
LOG = logging.getLogger(__name__)
QUEUE_INDEX = 0
# TIMEOUT: OGKM kgspWaitForRmInitDone: as any call, 6 s. Linux nouveau r535.c waits 4 s, nova-core 10 s
INIT_US = 10_000_000
# TIMEOUT: as any call; GSP-RM takes some 100 ms to end
UNLOAD_US = 6_000_000
KEPT = 256
BUS_TRIES = 2
# MC_ENGINE_IDX_GSP in engine_idx.h, by branch of the release
GSP_ENGINE_INDEX = {"535": 49, "570": 50}
NO_VECTOR = 0xFFFF_FFFF


class Running:
    """One GSP-RM. `prepare`, `start` and `stop` in this order; `stop` may be called twice."""

    static: StaticInfo
    door: Door

    def __init__(self, registers: Registers, firmware: Firmware) -> None:
        self.registers, self.firmware = registers, firmware
        self.device, self.release = registers.device, firmware.release
        self.gsp, self.sec2 = Falcon(registers, GSP), Falcon(registers, SEC2)
        self._block = Block(registers)
        self.memory = HostMemory(registers.device)
        self.tree = InterruptTree(registers)
        self.way: Way = boot.way(self.gsp, self.sec2, self.memory, firmware)
        self.layout: layout.FbLayout | None = None
        self.errors: deque[events.ErrorLog] = deque(maxlen=KEPT)
        self.triggered: deque[events.Triggered] = deque(maxlen=KEPT)
        self.posted: deque[events.Posted] = deque(maxlen=KEPT)
        self.printed: deque[events.Printed] = deque(maxlen=KEPT)
        self.mmu_faults = 0
        self.locked_down = False
        self.vector: int | None = None
        # by index of OGKM's engine_idx.h: vectors of interrupts that ask for service, and that only tell
        self.vectors: dict[int, tuple[int, int]] = {}
        self._rpc: Rpc | None = None
        self._arguments: Arguments | None = None
        # GSP-RM was told of the system; its processor was started; it has said that it is ready, or failed to
        self._started = self._runs = self._ready = self._failed = False
        self._stopped = self._left = False
        self._flushes = False
        self._metadata = 0
        self._last_logs: dict[str, bytes] = {}
        self._last_crashes: Crashes = crash_queue.NONE

    # before the start

    def tell_flush_page(self) -> None:
        """Give the chip its flush page. ORDER: before any falcon is reset."""
        page = self.memory.alloc(PAGE_BYTES, "the flush page")
        flush_page.tell(self.registers, page.bus_addr())
        self._flushes = True

    def prepare(self) -> None:
        """Lay out the card's memory, and put everything that the start needs into the host's."""
        registers, files, family = self.registers, self.firmware.files, self.registers.chip.family
        parts = files.bootloader
        sizes = layout.Sizes(len(files.gsp.image), len(parts.image))
        signature = self.memory.put(files.signature, "GSP-RM's signature")
        images = layout.Images(
            sizes,
            radix3.put(files.gsp.image, self.memory, files.gsp.name),
            self.memory.put(parts.image, parts.name).bus_addr(),
            parts.code_offset_bytes,
            parts.data_offset_bytes,
            parts.manifest_offset_bytes,
            signature.bus_addr(),
            len(files.signature),
        )
        if family.cot_version:
            told = layout.sizes_alone(self._block, family, images, self.release)
        else:
            self.layout = layout.place(self._block, family, self.release, sizes)
            told = layout.metadata(self.layout, images, self.release)
        self._metadata = self.memory.put(told, "GSP-RM's metadata").bus_addr()
        queues = Queues(self.memory, registers.clock, self._ring)
        self._arguments = Arguments(self.memory, queues, self.release)
        self._queues = queues
        self._rpc = Rpc(queues, registers.clock, self._check)
        self.door = Door(self._rpc, self.release)
        self.sequencer = Sequencer(self.gsp, self.sec2, self._arguments.bus_addr, parts.app_version)
        self._handle()

    def protect(self) -> None:
        """Protect the end of memory, where that is not part of the start."""
        if self.layout is not None:
            self.way.protect(self.layout.frts.start)

    # the start

    def start(self, settings: Mapping[str, int] = system.REGISTRY) -> None:
        """Start GSP-RM; it has been told of the system then, and its processor runs."""
        rpc, chip = self.rpc, self.registers.chip
        # ORDER: both before GSP-RM runs: it reads them first
        rpc.post(gsp_rpc.NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, system.system_info(self.device, chip, self.release))
        rpc.post(gsp_rpc.NV_VGPU_MSG_FUNCTION_SET_REGISTRY, system.registry(settings))
        self._started = True
        self.way.start(self._metadata, self.arguments.bus_addr)
        self._runs = True

    def wait_ready(self) -> None:
        """Wait until GSP-RM has set itself up. Raises `DeviceTimeout`, `DeviceHung`."""
        try:
            self._queues.link(lambda: self._check("waiting for GSP-RM to set up its queue"))
            self.rpc.wait_event(gsp_rpc.NV_VGPU_MSG_EVENT_GSP_INIT_DONE, INIT_US)
        except RingupError:
            self._failed = True
            raise
        self._ready = True

    def ask(self) -> StaticInfo:
        """Ask GSP-RM about the card."""
        layout_of = struct(GspStaticConfigInfo, self.release)
        payload = self.door.call(gsp_rpc.NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, bytes(layout_of.SIZE))
        self.static = system.static_info(payload, self.release)
        return self.static

    def arm_interrupt(self) -> None:
        """Let GSP send interrupts, by the vector that it names for itself. Where it names none, there are none."""
        params = struct_of_table(self.release)
        raw = self.door.control(
            self.static.client,
            self.static.subdevice,
            NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
            bytes(params.SIZE),
        )
        table = params.view(bytearray(raw))
        wanted = GSP_ENGINE_INDEX[self.release.partition(".")[0]]
        for index in range(min(table.tableLen, len(table.table))):
            row = table.table[index]
            self.vectors[row.engineIdx] = row.vectorStall, row.vectorNonStall
            if row.engineIdx == wanted and row.vectorStall != NO_VECTOR:
                self.vector = row.vectorStall
        if self.vector is None or self.vector >= MAX_LEAVES * VECTORS_PER_LEAF:
            self.vector = None
            LOG.warning(
                "%s: GSP-RM names no interrupt of its own (engine %d) among %d; waits look for its messages instead",
                self.device.name,
                wanted,
                table.tableLen,
            )
            return
        self.tree.arm(self.vector, self._serve)
        # what came before must not keep the engine's line high
        self._serve()

    # while it runs

    def nonstall_vectors(self) -> list[int]:
        """Return the vectors by which engines tell that work is done, where work asks for it."""
        return sorted({tells for _, tells in self.vectors.values() if tells != NO_VECTOR})

    @property
    def rpc(self) -> Rpc:
        """Calls of GSP-RM. Raises a `ValueError` before `prepare`."""
        if self._rpc is None:
            raise ValueError("GSP-RM is not prepared yet")
        return self._rpc

    @property
    def arguments(self) -> Arguments:
        """LIBOS' arguments and logs. Raises a `ValueError` before `prepare`."""
        if self._arguments is None:
            raise ValueError("GSP-RM is not prepared yet")
        return self._arguments

    def poll(self) -> int:
        """Handle the events that have come; return how many."""
        return self.rpc.drain()

    def wait_interrupt(self, timeout_us: float) -> list[int]:
        """Wait for an interrupt of the card and serve it; return the vectors that were served. Where the path has no
        interrupts, the time passes and events are looked for.
        """
        self.device.interrupts.wait(timeout_us)
        served = self.tree.serve()
        if not served:
            self.poll()
        return served

    def logs(self) -> dict[str, bytes]:
        """Return GSP's own logs so far, raw; see `Arguments.logs`. After the end, what they were then."""
        return self._last_logs if self._arguments is None else self._arguments.logs()

    def crashes(self) -> Crashes:
        """Return the crash reports of GSP's processor so far. After the end, what they were then."""
        # its registers are closed while it is locked down
        if self._runs and not self._stopped and not self.locked_down and not self.device.lost:
            self._last_crashes = crash_queue.read(self.gsp)
        return self._last_crashes

    @property
    def events(self) -> tuple[Received, ...]:
        """The last events as they came."""
        return () if self._rpc is None else tuple(self._rpc.events)

    # the end

    def stop(self) -> None:
        """End GSP-RM and take down what it leaves. Bus mastering is off then, and the memory is free. Raises the first
        error when all steps were tried; the card is dirty then. Twice is harmless. Memory is kept while bus mastering
        cannot be switched off; another call tries that again.
        """
        if self._left:
            return
        with Teardown(f"stopping {self.device.name}") as teardown:
            # an interrupt, too, leaves a card that is quiet
            try:
                if not self._stopped:
                    # ORDER: before its processor is reset
                    teardown.attempt(self.crashes)
                    self._stopped = True
                    self._end(teardown)
            finally:
                self._leave(teardown)

    def abandon(self) -> None:
        """Free the memory of a card that was reset or is gone, after its bus mastering is off."""
        self._stopped = True
        with Teardown(f"leaving {self.device.name}", logged=RingupError) as teardown:
            self._leave(teardown)

    def _end(self, teardown: Teardown) -> None:
        if self._started:
            teardown.attempt(self.tree.silence)
            if self._unload(teardown) or not self.registers.chip.family.cot_version:
                teardown.attempt(self.way.teardown)
            else:
                teardown.attempt(self._reset_function)
        elif layout_is_protected(self._block):
            teardown.attempt(self.way.teardown)

    def _leave(self, teardown: Teardown) -> None:
        if self._rpc is not None:
            self._rpc.forget()
        self._last_logs, self._arguments = self.logs(), None
        # ORDER: the chip reads from its flush page, and what it can still write to must not be free. A step that was
        # interrupted is taken again
        off = any(teardown.attempt(self._take_bus) for _ in range(BUS_TRIES))
        if self._flushes:
            teardown.attempt(lambda: flush_page.tell(self.registers, 0))
        if off or not answers(self.device.config):
            teardown.attempt(self.memory.free)
            self._left = True

    def _take_bus(self) -> None:
        """Switch bus mastering off and read that back. Raises `DeviceHung`, `DeviceLost`."""
        config, doing = self.device.config, f"switching off {self.device.name}'s bus mastering"
        set_master(config, on=False)
        command = ask(config, pci.PCI_COMMAND, 2, doing)
        if command & pci.PCI_COMMAND_MASTER:
            raise DeviceHung(
                f"{doing}: the command register reads {command:#06x} after it; memory that the card can still write to "
                "is not freed; reset the card"
            )

    def _reset_function(self) -> None:
        """End a GSP-RM that does not end itself, and which only FSP can reset. ORDER: before bus mastering is off:
        channels that it has started still read memory.
        """
        for name in self.device.resets()[:1]:
            self.device.reset(name)

    def _unload(self, teardown: Teardown) -> bool:
        """Let GSP-RM end itself, if it runs; return whether it did. ORDER: it takes no such call before it is ready: an
        interrupted start is waited for. Source: Linux nouveau nvkm/subdev/gsp/base.c, nvkm_gsp_fini (`running`).
        """
        if not self._runs or self._failed or not (self._ready or teardown.attempt(self.wait_ready)):
            return False
        payload = bytes(struct(gsp_rpc.rpc_unloading_guest_driver_v1F_07, self.release).SIZE)
        function = gsp_rpc.NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER
        told = teardown.attempt(lambda: self.door.call(function, payload, timeout_us=UNLOAD_US))
        # an interrupt ends the wait, not what GSP-RM does: it writes to memory until it has ended
        told = told or self.rpc.owes(function)
        if told and not self.registers.chip.family.cot_version:
            return teardown.attempt(lambda: boot.wait_suspended(self.gsp))
        return told

    # what watches over it

    def _ring(self) -> None:
        self._block.set(NV_PGSP_QUEUE_HEAD, 0, QUEUE_INDEX)

    def _check(self, doing: str) -> None:
        """Raise `DeviceHung` if GSP's processor has died, `DeviceLost` if the card is gone."""
        # while it is locked down, nobody can tell
        if self.locked_down or self.gsp.riscv_active or not self.gsp.open:
            return
        low, high = self.gsp.mailboxes
        said = "".join(f"; it reports: {crash}" for crash in self.crashes().reports[-1:])
        raise DeviceHung(
            f"{doing}: GSP's processor has stopped; its mailboxes read {low:#x}, {high:#x}{said}; reset the card"
        )

    def _serve(self) -> None:
        """Serve GSP's interrupt: clear it in the engine, then read what it has sent. While GSP is locked down, its
        interrupt registers are closed. Source: OGKM kgspService_TU102.
        """
        if self.locked_down:
            self.poll()
            if self.locked_down:
                return
        falcon = self.gsp.block
        seen = falcon.read(NV_PFALCON_FALCON_IRQSTAT)
        # ORDER: cleared before the queue is read, or a message that comes between is not told
        falcon.write(falcon.typed(NV_PFALCON_FALCON_IRQSCLR)(swgen0=seen.swgen0, halt=seen.halt))
        self.poll()
        if self.locked_down:
            return
        if seen.halt:
            self._check("serving GSP's interrupt")
        if falcon.has(NV_PFALCON_FALCON_INTR_RETRIGGER):
            falcon.set(NV_PFALCON_FALCON_INTR_RETRIGGER, trigger=1)

    def _handle(self) -> None:
        on, release = self.rpc.on, self.release
        on(gsp_rpc.NV_VGPU_MSG_EVENT_GSP_RUN_CPU_SEQUENCER, self.sequencer.run)
        on(gsp_rpc.NV_VGPU_MSG_EVENT_OS_ERROR_LOG, _keeper(events.error_log, self.errors, release))
        on(gsp_rpc.NV_VGPU_MSG_EVENT_POST_EVENT, _keeper(events.posted, self.posted, release))
        on(gsp_rpc.NV_VGPU_MSG_EVENT_RC_TRIGGERED, _keeper(events.triggered, self.triggered, release))
        on(gsp_rpc.NV_VGPU_MSG_EVENT_UCODE_LIBOS_PRINT, _keeper(events.printed, self.printed, release))
        on(gsp_rpc.NV_VGPU_MSG_EVENT_MMU_FAULT_QUEUED, self._count_fault)
        on(constant(gsp_rpc, "NV_VGPU_MSG_EVENT_GSP_LOCKDOWN_NOTICE", release), self._note_lockdown)

    def _note_lockdown(self, payload: bytes) -> None:
        """Note that GSP closes its registers to the host, or opens them. Source: OGKM _kgspRpcGspLockdownNotice."""
        if len(payload) < gsp_rpc.rpc_gsp_lockdown_notice_v17_00.SIZE:
            LOG.warning("GSP-RM: a lockdown notice without a state")
            return
        self.locked_down = bool(payload[0])

    def _count_fault(self, payload: bytes) -> None:
        self.mmu_faults += 1


def _keeper(decode: Callable[[bytes, str], T], kept: deque[T], release: str) -> Callable[[bytes], None]:
    def keep(payload: bytes) -> None:
        try:
            event = decode(payload, release)
        except DeviceHung as error:
            # a call that waits for its answer need not fail for it
            LOG.warning("GSP-RM: %s", error)
            return
        LOG.warning("GSP-RM: %s", event)
        kept.append(event)

    return keep


def layout_is_protected(block: Block) -> bool:
    """Whether the write-protected region is up."""
    return layout.wpr2(block) is not None


def struct_of_table(release: str) -> type[NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS]:
    """Return the interrupt table as a release has it."""
    return struct(NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS, release)
