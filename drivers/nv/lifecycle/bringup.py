"""A card's start, stage by stage: from whatever state it is found in to a GSP-RM that answers.

| found | what the start does |
|---|---|
| nothing protected, GSP quiet | cold start |
| a GSP-RM runs | GSP is reset and its unload programs run; resets of the bus if that fails; cold start |
| memory is protected, GSP quiet | the same |
| the VBIOS' firmware or FSP does not end | resets of the bus, cold start |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp import boot
from ringup.drivers.nv.gsp.boot import Firmware
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.gsp.system import REGISTRY
from ringup.drivers.nv.lifecycle import firmware
from ringup.drivers.nv.lifecycle.inspect import Found, look
from ringup.drivers.nv.lifecycle.recovery import Recovery, quiet
from ringup.drivers.rung import Rung
from ringup.drivers.stages import Stages
from ringup.drivers.transport.config_space import set_master, wake
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceTimeout
from ringup.firmware.store import Store

LOG = logging.getLogger(__name__)
SECOND_US = 1_000_000


class Bringup:
    """One start. It sets `registers`, `firmware` and `running`; `found` and `rungs` say what had to be done."""

    registers: Registers
    firmware: Firmware
    running: Running

    def __init__(
        self,
        device: Device,
        stages: Stages,
        store: Store,
        *,
        release: str | None = None,
        settings: Mapping[str, int] = REGISTRY,
        rom: bytes | None = None,
    ) -> None:
        """`release`: of the firmware, such as "535.113.01"; None: the best known that is there. `settings`: GSP-RM's
        registry. `rom`: the VBIOS' images, where an earlier start has read them.
        """
        self._device, self._stages, self._store = device, stages, store
        self._release, self._settings, self.rom = release, settings, rom
        self.found = Found.COLD
        self.rungs: list[Rung] = []

    def run(self) -> None:
        """Start the card. Raises an error that names the failing stage; what was started is taken down then."""
        stage = self._stages.stage
        with stage("waking the bus", SECOND_US):
            wake(self._device.config, self._device.clock)
            # ORDER: a GSP-RM that was left writes to memory that now belongs to another process
            quiet(self._device)
        with stage("reading which chip it is", SECOND_US):
            self.registers = Registers(self._device)
        with stage("reading firmware", 60 * SECOND_US):
            self.firmware, self.rom = firmware.read(self.registers, self._store, self._release, self.rom)
        with stage("looking who was here", 10 * SECOND_US):
            ready = self._look()
        if self.found is not Found.COLD or not ready:
            with stage("resetting what was left", 60 * SECOND_US):
                recovery = Recovery(self.registers, self._new)
                self.rungs = recovery.rungs
                recovery.climb()
        self.running = running = self._new()
        with undone_on_error(running.stop):
            self._start(running)

    def _start(self, running: Running) -> None:
        stage = self._stages.stage
        with stage("preparing memory", 10 * SECOND_US):
            running.prepare()
            # ORDER: before the bus is the card's, which may read from a page that a dead process has left, and before
            # any falcon is reset
            running.tell_flush_page()
            set_master(self._device.config, on=True)
        with stage("protecting memory", 10 * SECOND_US):
            running.protect()
        with stage("starting GSP-RM", 45 * SECOND_US):
            running.start(self._settings)
        with stage("waiting for GSP-RM", 20 * SECOND_US):
            running.wait_ready()
        with stage("asking GSP-RM about the card", 10 * SECOND_US):
            running.ask()
        with stage("letting interrupts come", 10 * SECOND_US):
            running.arm_interrupt()

    def _look(self) -> bool:
        """Find out the card's state; return whether its own firmware has ended."""
        self.found = look(self.registers)
        if self.found is Found.COLD:
            try:
                boot.wait_own_firmware(self.registers)
            except DeviceTimeout as error:
                LOG.info("%s: %s", self._device.name, error)
                return False
        return True

    def _new(self) -> Running:
        return Running(self.registers, self.firmware)
