"""Sensors in registers whose reading changes nothing: for a second process that watches a card which another drives.

Only registers in the register BAR itself are read: index registers and the power controller's mailbox are for the
card's holder. Power, clocks and fan are in `smu_published`, as the holder left them.

Source: amdgpu vega10_thermal.c, vega10_thermal_get_temperature (CTF_TEMP); gfx_v11_0.c (GRBM_STATUS); PCI Express Base
Specification, "Link Status Register".
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from ringup.autogen.amd.gc import GRBM_STATUS
from ringup.autogen.amd.nbio import RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE
from ringup.autogen.amd.thm import CG_MULT_THERMAL_STATUS
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.discovery import Ips
from ringup.drivers.amd.bus.registers import REGISTER_BAR, Block
from ringup.drivers.amd.smu.rows import row
from ringup.drivers.transport.link import Link, link_of
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported

W = TypeVar("W", bound=Word)


class Activity(NamedTuple):
    """What the graphics core was doing when its status was read. `any` is set while there is work anywhere in it."""

    any: bool
    command_processor: bool
    shaders: bool
    caches: bool


class Sensors:
    """Sensors of one card. Usable beside its driver, from any process that may map the register BAR."""

    def __init__(self, device: Device, ips: Ips) -> None:
        self._device = device
        self._gc, self._nbio = ips.cores[0], ips.block("nbio")
        self._thm = ips.block("thm") if row(ips.version("mp1")).watches_die else None

    @property
    def temperature_c(self) -> int | None:
        """Temperature of the die in degrees Celsius, from the thermal monitor itself; None for a card of several dies,
        whose firmware tells it.
        """
        if self._thm is None:
            return None
        return int(self._read(self._thm, CG_MULT_THERMAL_STATUS).ctf_temp)

    @property
    def vram_bytes(self) -> int:
        """Size of the card's memory."""
        return int(self._read(self._nbio, RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE)) << 20

    def activity(self) -> Activity:
        """Return what the graphics core is doing now. The core must not be switched off: the holder keeps it on while
        it computes.
        """
        status = self._read(self._gc, GRBM_STATUS)
        return Activity(
            any=bool(status.gui_active),
            command_processor=bool(status.cp_busy),
            shaders=bool(status.spi_busy),
            caches=bool(status.ta_busy),
        )

    def link(self) -> Link:
        """Return speed and width of the card's own link, which on most cards ends at a switch on the board."""
        return link_of(self._device)

    def _read(self, block: Block, word: type[W]) -> W:
        """Read a register of the BAR. Raises `NotSupported` for one beyond it, which index registers would have to
        reach.
        """
        at = block.address(word)
        if at >= self._device.bars[REGISTER_BAR].size_bytes:
            raise NotSupported(
                f"{word.__name__} of this card lies at {at:#x}, outside the register BAR: only its holder may read it"
            )
        return block.read(word)
