"""A Radeon's start, stage by stage: from whatever state it is found in to engines that take queues.

| found | what the start does |
|---|---|
| no secure OS | cold start |
| our mark, clean, same firmware | warm start: no firmware is loaded |
| our mark, running | the ladder, then warm where the firmware survived it |
| a secure OS without our mark, or other firmware | mode-1 reset, cold start |
| a card whose warm start has just failed | the same |
| a boot loader that reports an error | mode-1 reset or one from the bus, cold start |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial

from ringup.autogen.linux import pci
from ringup.drivers.amd.board import mark
from ringup.drivers.amd.board.mark import Mark, State
from ringup.drivers.amd.board.wiring import Blocks, wire
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, Doorbell
from ringup.drivers.amd.bus.ih import Ih, silence
from ringup.drivers.amd.gfx.core import start_all
from ringup.drivers.amd.gfx.gating import set_gating
from ringup.drivers.amd.gfx.partition import join, share_evenly
from ringup.drivers.amd.gfx.reset import reset_command_processors
from ringup.drivers.amd.lifecycle.recovery import KEEPS_FIRMWARE, Ladder
from ringup.drivers.amd.memory.layout import TOP_SHARE
from ringup.drivers.amd.memory.spaces import Spaces
from ringup.drivers.amd.psp.runtime import power_table_is_signed
from ringup.drivers.amd.smu.control import Control
from ringup.drivers.amd.submission.signals import Signals
from ringup.drivers.cleanup import Teardown
from ringup.drivers.stages import Stages
from ringup.drivers.transport import bars
from ringup.drivers.transport.config_space import ask, change_command, find_capability, set_master, wake
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceTimeout, FirmwareError, RingupError
from ringup.firmware.store import Store

LOG = logging.getLogger(__name__)
IH_RING_BYTES = 64 << 10
MIB = 1 << 20
SECOND_US = 1_000_000


class Found(Enum):
    """The state in which a card was found."""

    COLD = "cold"
    CLEAN = "clean"
    DIRTY = "dirty"
    FOREIGN = "foreign"
    STUCK = "stuck"
    FAILED = "failed"


# where the ladder begins
FIRST_RUNG = {
    Found.DIRTY: "queue",
    Found.FOREIGN: "mode1",
    Found.STUCK: "mode1",
    Found.FAILED: "mode1",
}


class Bringup:
    """One start. It sets `blocks`, `spaces` and `ih`; `found` and `ladder.rungs` say what had to be done."""

    blocks: Blocks
    spaces: Spaces
    ih: Ih
    signals: Signals | None = None  # where the host only polls

    def __init__(
        self, device: Device, stages: Stages, store: Store, *, whole: bool = False, force: bool = False
    ) -> None:
        """`whole`: reset the whole card first, since a warm start has just failed. `force`: see `wire`."""
        self._device, self._stages, self._store, self._whole = device, stages, store, whole
        self._force = force
        self.found = Found.COLD
        self.ladder: Ladder | None = None
        self.warm = False

    def run(self) -> None:
        """Start the card. Raises an error that names the failing stage; the caller stops what was started by `stop`."""
        stage = self._stages.stage
        with stage("waking the bus", SECOND_US):
            for row in bars.NEEDED[bars.AMD]:
                bars.window(self._device, row.number)
            decode_memory(self._device)
        with stage("reading what the card is", 30 * SECOND_US):
            self.blocks = wire(self._device, self._store, force=self._force)
        with stage("looking who was here", 30 * SECOND_US):
            self._look()
        if self.found in FIRST_RUNG:
            with stage("resetting what was left", 20 * SECOND_US):
                self._reset()
        with stage("opening bus and doorbells", 5 * SECOND_US):
            self._open_bus()
        if not self.warm:
            self._start_cold()
        with stage("taking up the power controller", 20 * SECOND_US):
            self._start_power()
        # ORDER: the core's hub must have the tables of VMID 0 when the micro engine begins to run, as amdgpu has it
        with stage("making address spaces", SECOND_US):
            self._make_spaces()
        with stage("starting the graphics core", 5 * SECOND_US):
            self._start_core()
        with stage("letting interrupts come", SECOND_US):
            self._start_interrupts()
        with stage("starting the copy engines", SECOND_US):
            for engine in self.blocks.sdma:
                # a halted engine would go on with the packet that it was halted in
                engine.reset() if self.warm else engine.start()
            set_gating(self.blocks.cores, self.blocks.ips.block("mmhub"), self.blocks.sdma, on=True)

    def _look(self) -> None:
        blocks = self.blocks
        if not blocks.psp.alive:
            try:
                blocks.psp.wait_loader("looking after the boot loader")
            except (FirmwareError, DeviceTimeout) as error:
                # an earlier start went wrong: only a reset makes it listen again
                LOG.info("%s: %s", self._device.name, error)
                self.found = Found.STUCK
            return
        left = mark.read(blocks.gfx.block)
        if left is None or left.fingerprint != blocks.firmware.fingerprint:
            self.found = Found.FOREIGN
        elif left.state == State.CLEAN:
            self.found, self.warm = Found.CLEAN, True
        else:
            self.found = Found.DIRTY
        if left is not None:
            self._tmr_bytes = left.tmr_mib * MIB
            try:
                blocks.layout.tmr(self._tmr_bytes)
            except FirmwareError as error:
                # registers that hold our magic and nonsense beside it are no mark
                LOG.warning("%s: the mark of its last driver: %s; the card is reset", self._device.name, error)
                self.found, self.warm, self._tmr_bytes = Found.FOREIGN, False, 0
        if self._whole:
            self.found, self.warm = Found.FAILED, False

    def _reset(self) -> None:
        self.ladder = Ladder(self.blocks)
        rung = self.ladder.climb(FIRST_RUNG[self.found])
        self.warm = rung.name in KEEPS_FIRMWARE

    def _open_bus(self) -> None:
        # ORDER: a card that was left running is quiet by now; before, its requests would have gone to memory that now
        # belongs to another process
        blocks = self.blocks
        silence(blocks.ips.block("osssys"))
        set_master(self._device.config, on=True)
        blocks.nbio.start(len(blocks.sdma))
        blocks.hdp.start()
        blocks.hdp.place(blocks.gmc.fb_base)
        blocks.gmc.start_mmhub()

    def _start_cold(self) -> None:
        from ringup.drivers.amd.psp.firmware import psp_firmware

        blocks = self.blocks
        pci_device = ask(self._device.config, pci.PCI_DEVICE_ID, 2, "reading which card it is")
        gc, aux = blocks.ips.version("gc"), blocks.psp.older_power()
        firmware = psp_firmware(blocks.firmware, gc, blocks.psp.row, pci_device, aux=aux)
        with self._stages.stage("booting the secure OS", 60 * SECOND_US):
            try:
                blocks.psp.boot(firmware.boot)
            except FirmwareError as error:
                if not blocks.psp.alive:
                    raise
                # the boot that a dead process had begun has ended meanwhile: what runs now is not the firmware we know
                LOG.info("%s: %s", self._device.name, error)
                self.found = Found.FOREIGN
                self._reset()
                self._open_bus()
                blocks.psp.boot(firmware.boot)
        with self._stages.stage("loading firmware", 60 * SECOND_US):
            blocks.psp.load(firmware, blocks.layout.tmr)
        layout, psp = blocks.layout, blocks.psp
        kept = min(psp.row.boot_tmr_bytes, layout.vram_bytes // TOP_SHARE)
        self._tmr_bytes = max(psp.tmr_bytes, kept, *(layout.end - start for start in psp.reserved))

    _tmr_bytes = 0

    def _start_power(self) -> None:
        smu = self.blocks.smu
        if self.warm:
            smu.attach()
            Control(smu).restore()
            return
        signed = self.blocks.psp.row.runtime_facts and power_table_is_signed(self.blocks.window)
        board = None
        if smu.row.writes_power_table and not signed:
            # cards whose tables are signed need none of it
            from ringup.drivers.amd.psp import vbios

            try:
                board = vbios.board_table(vbios.read(self._device, self.blocks.ips))
            except FirmwareError as error:
                LOG.warning("%s: %s", self._device.name, error)
        smu.start(board, signed=signed)

    def _start_core(self) -> None:
        blocks = self.blocks
        for core in blocks.cores:
            core.boot()
        if self.warm:
            # ORDER: before anything is set in the command processors
            reset_command_processors(blocks.cores)
        for core in blocks.cores:
            core.place_programs()
        join(blocks.cores, blocks.psp.partition)
        blocks.gmc.start_gfxhub()
        start_all(blocks.cores)
        if blocks.ips.spread:
            share_evenly(blocks.cores)
        tmr_mib = -(-self._tmr_bytes // MIB)
        mark.write(blocks.gfx.block, Mark(State.RUNNING, blocks.firmware.fingerprint, tmr_mib))

    def _make_spaces(self) -> None:
        blocks = self.blocks
        end = blocks.layout.tmr(self._tmr_bytes)
        self.spaces = Spaces(
            self._device, blocks.window, blocks.gmc, blocks.hdp, blocks.ips.version("gc"), blocks.layout.pool, end
        )

    def _start_interrupts(self) -> None:
        blocks, where = self.blocks, "vram" if self._device.polls_vram else "host"
        system = self.spaces.system
        ring = self.spaces.firmware_page(where, IH_RING_BYTES, "interrupt ring")
        last_seen: Callable[[bool], int] | None = None
        if self._device.polls_vram:
            self.signals = signals = Signals(system, self.spaces.user, blocks.registers, self._device.remote)
            page, last_seen = signals.page, signals.interrupt_pointer
        else:
            page = self.spaces.firmware_page(where, 4096, "interrupt write pointer")
        doorbell = Doorbell(bars.window(self._device, DOORBELL_BAR), blocks.doorbells.ih_index)
        accesses = system.access(ring), system.access(page)
        xccs = blocks.ips.xccs if blocks.ips.spread else ()
        self.ih = Ih(
            blocks.ips.block("osssys"), accesses[0], ring.gpu_va, accesses[1], page.gpu_va, doorbell, last_seen, xccs
        )
        blocks.nbio.interrupt_page(blocks.stray.bus_addr(0))
        self.ih.start(message_signalled=True)


def decode_memory(device: Device) -> None:
    """Bring the function to D0 and let it decode memory; bus mastering stays off until its engines are known to be
    quiet.
    """
    wake(device.config, device.clock)
    stay_awake(device)
    change_command(device.config, on=pci.PCI_COMMAND_MEMORY, off=pci.PCI_COMMAND_MASTER)


def stay_awake(device: Device) -> None:
    """Switch off the link's low-power states (ASPM) at the card's end, until the link is trained again. A link enters
    one only if both ends allow it.

    UNKNOWN: behind retimers and USB bridges, reads during the wake from L1 are reported to return all ones, and amdgpu
    leaves ASPM off on some hosts (amdgpu_device_aspm_support_quirk). VFIO does not pass writes of the register on.
    """
    at = find_capability(device.config, pci.PCI_CAP_ID_EXP)
    if at is None:
        return
    control = ask(device.config, at + pci.PCI_EXP_LNKCTL, 2, "keeping the link awake")
    if control & pci.PCI_EXP_LNKCTL_ASPMC:
        device.config.write(at + pci.PCI_EXP_LNKCTL, control & ~pci.PCI_EXP_LNKCTL_ASPMC, 2)


def stop(blocks: Blocks, ih: Ih | None, *, clean: bool) -> None:
    """Stop all blocks of the card. Raises the first error after all were tried.

    `clean`: queues are unmapped, so the next start may be warm if no error comes here either; else it begins with a
    reset.
    """
    gfx, cores = blocks.gfx, blocks.cores
    with Teardown(f"stopping {blocks.device.name}", kept=RingupError) as teardown:
        if ih is not None:
            teardown.attempt(ih.stop)
        teardown.attempt(partial(set_gating, cores, blocks.ips.block("mmhub"), blocks.sdma, on=False))
        for engine in blocks.sdma:
            teardown.attempt(engine.stop)
        for step in (*(core.stop for core in cores), blocks.psp.stop, blocks.smu.stop):
            teardown.attempt(step)
        if clean and teardown.first is None:
            teardown.attempt(partial(mark.set_state, gfx.block, State.CLEAN))
        else:
            teardown.attempt(partial(mark.erase, gfx.block))
        for step in (blocks.gmc.stop, blocks.nbio.stop, partial(set_master, blocks.device.config, on=False)):
            teardown.attempt(step)
        teardown.attempt(blocks.stray.free)
