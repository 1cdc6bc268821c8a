"""The ASM2464PD itself, without firmware or USB host: CPU, registers, memories, TLP engine, slot, endpoints.

Source: asm2464pd-firmware registers.h and main.c; usb-to-pcie-re ASM2x6x/doc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringup.silicon.asm2464pd.hardware.endpoints import InEndpoint, OutEndpoint
from ringup.silicon.asm2464pd.hardware.fabric import Fabric
from ringup.silicon.asm2464pd.hardware.faults import KINDS
from ringup.silicon.asm2464pd.hardware.link import Link
from ringup.silicon.asm2464pd.hardware.sram import Sram, SramEngine
from ringup.silicon.asm2464pd.hardware.timing import SPEEDS, Speed
from ringup.silicon.asm2464pd.hardware.tlp import TlpEngine
from ringup.silicon.asm2464pd.hardware.xdata import Cpu, Xdata
from ringup.silicon.common.clock import PowerDomain, VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import Event, EventLog

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon

USB_SPEED, CPU_RESTART = 0x9100, 0xCC31
ENDPOINTS = (0x81, 0x02, 0x83, 0x04)
VIOLATIONS_KEPT = 1_000
NVME_CONTROL, NVME_FIRST, NVME_END, NVME_COUNT, NVME_SLOT = 0xC412, 0xC414, 0xC415, 0xC426, 0xC429
NVME_START, NVME_FROM_HOST, NVME_ENABLE = 0x02, 0x01, 0x80
FLAGS = (0xC42A, 0xC422, 0xC423, NVME_FIRST, NVME_END, NVME_CONTROL, NVME_COUNT, NVME_COUNT + 1)


class Chip:
    """One bridge chip. `clock` is its power domain; `violations` lists what metal punishes; `faults` are injected by
    tests.
    """

    def __init__(self, card: VirtualRadeon | None, machine: VirtualClock) -> None:
        self.clock = PowerDomain(machine)
        self.log = EventLog(self.clock)
        self.faults = Faults(KINDS)
        self.violations: list[Event] = []
        self.log.watch(self._collect)
        self.speed: Speed = SPEEDS["super_plus_by2"]
        self.xdata = Xdata(self.log)
        self.cpu = Cpu(self.clock)
        self.fabric = Fabric(card, self.clock, self.log)
        self.tlp = TlpEngine(self.xdata, self.fabric, self.clock, self.faults, self.log)
        self.link = Link(self.xdata, self.fabric, self.clock, self.faults, self.log)
        self.endpoints: dict[int, InEndpoint | OutEndpoint] = {
            address: (InEndpoint if address & 0x80 else OutEndpoint)(address) for address in ENDPOINTS
        }
        self.sram = Sram(self.xdata, self.fabric)
        self.sram_engine = SramEngine(self.sram, self.out(0x02), self.into(0x81), self.clock, self.log, self.fabric)
        self.on_restart: Callable[[], None] = lambda: None  # hook of the enclosure: restart the CPU
        # hook of the enclosure: leave the bus until VBUS is cycled
        self.on_detach: Callable[[], None] = lambda: None
        # hook of the enclosure: its power supply failed
        self.on_power_lost: Callable[[], None] = lambda: None
        self.xdata.on_read(USB_SPEED, lambda: self.speed.code)
        self.xdata.read_only(USB_SPEED)
        self.xdata.on_write(CPU_RESTART, lambda value: self.on_restart() if value & 1 else None)
        for address in FLAGS:
            self.xdata.storage(address, address)
        self.xdata.on_write(NVME_SLOT, self._start_engine)

    def out(self, address: int) -> OutEndpoint:
        """Return a bulk OUT endpoint."""
        endpoint = self.endpoints[address]
        assert isinstance(endpoint, OutEndpoint)
        return endpoint

    def into(self, address: int) -> InEndpoint:
        """Return a bulk IN endpoint."""
        endpoint = self.endpoints[address]
        assert isinstance(endpoint, InEndpoint)
        return endpoint

    def reset(self, *, power: bool) -> None:
        """Reset the chip as a restart of its CPU does, or (`power`) a loss of power."""
        self.clock.forget()
        self.cpu.reset()
        self.tlp.reset()
        self.sram_engine.reset()
        for endpoint in self.endpoints.values():
            endpoint.reset()
        if power:
            self.xdata.lose()
            self.sram.lose()
        else:
            self.xdata.reset()
        self.link.reset()
        self.fabric.reset()

    def _start_engine(self, slot: int) -> None:
        """Start the SRAM engine with its register values. Source: main.c, request F2, which writes C429 last."""
        get = self.xdata.get
        control, first = get(NVME_CONTROL), get(NVME_FIRST)
        if control & NVME_START and first & NVME_ENABLE:
            first &= ~NVME_ENABLE
            sectors = get(NVME_COUNT) << 8 | get(NVME_COUNT + 1)
            self.sram_engine.arm(first, get(NVME_END) - first, sectors, to_host=not control & NVME_FROM_HOST)

    def _collect(self, event: Event) -> None:
        if event.kind == "violation" and len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(event)
