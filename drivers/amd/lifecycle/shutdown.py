"""Shutting down a card that was left by another process: what runs on it is stopped, then it sleeps.

| found | what is done |
|---|---|
| nothing runs | nothing |
| closed by ringup | nothing: its firmware waits for the next start |
| left running, or another driver's firmware runs | the gentlest verified reset of the card: mode-1, then the bus's |

Bus mastering is switched off before anything else, so nothing that still runs reaches host memory. At the end the
function goes to D3hot if its configuration survives that; the host decides whether its slot loses power then. No
firmware file is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ringup.drivers.amd.board.wiring import make_gmc, make_hdp, make_nbio
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.lifecycle.inspect import CLEAN, COLD, Bare
from ringup.drivers.amd.lifecycle.recovery import WHOLE, by_bus
from ringup.drivers.amd.memory.layout import Layout
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.accelerator import make_smu
from ringup.drivers.amd.smu.controller import PING_US, Smu
from ringup.drivers.left import Rest, from_first, settle
from ringup.drivers.rung import Rung, climb
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, NotSupported

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Few:
    """The parts of a card that its resets need. None is started."""

    device: Device
    registers: Registers
    nbio: Nbio
    psp: Psp
    smu: Smu


def few(bare: Bare) -> Few:
    """Make the parts of a card that its resets need."""
    ips, window = bare.ips, bare.window
    layout, nbio, hdp = Layout(window.size_bytes), make_nbio(bare.registers, ips), make_hdp(ips)
    # nothing is started, so nothing strays
    gmc = make_gmc(ips, hdp, window.size_bytes, layout.scratch, default_bus_addr=0)
    return Few(
        bare.device,
        bare.registers,
        nbio,
        Psp(ips.block("mp0"), ips.version("mp0"), window, hdp, layout.psp, gmc.fb_base),
        make_smu(ips.block("mp1"), ips.version("mp1"), window, hdp, layout.smu_table, gmc.fb_base),
    )


def doubts(bare: Bare) -> tuple[str, ...]:
    """Return where a card's tables and firmware differ from what the driver was written for, and whether its power
    controller is silent.

    The controller is asked only if this process holds the card and a driver has started it; nothing is changed.
    """
    told = list(bare.ips.doubts)
    if bare.own and bare.secure_os:
        smu = few(bare).smu
        try:
            if smu.running:
                smu.ask_versions(PING_US)
        except (DeviceTimeout, DeviceFault, NotSupported) as error:
            LOG.info("%s: %s", bare.device.name, error)
        told += filter(None, (smu.mismatch, smu.mailbox.heard.silent))
    return tuple(told)


def offered(device: Device) -> tuple[str, ...]:
    """Return the names of the resets of the whole card that the path to it offers, gentle ones first."""
    return ("mode1", *device.resets())


def reset(bare: Bare, first: str | None = None) -> list[Rung]:
    """Reset the whole card by the rungs of `offered` from `first` on; return those tried. Left: a cold card, bus
    mastering off.

    Without `first` it begins with mode-1, or with the bus where no firmware runs that could do mode-1. Raises a
    `ValueError` for a rung that is not offered, `DeviceLost`, `DeviceHung` when none helped.
    """
    names = offered(bare.device)
    if first is not None:
        from_first(bare.device, names, first)
    try:
        asked = bare.secure_os
    except DeviceLost as error:
        if bare.device.lost:
            raise
        return _climb_silent(bare, names[names.index(first) if first else 0 :], error)
    first = first or (names[0] if asked else names[min(1, len(names) - 1)])
    return _climb(bare, names[names.index(first) :])


def _climb_silent(bare: Bare, names: Sequence[str], why: DeviceLost) -> list[Rung]:
    """Reset a card whose registers do not answer: only the bus can. Its blocks are read once it answers."""
    rungs = list[Rung]()

    def take(name: str) -> None:
        if name not in bare.device.resets():
            raise why
        by_bus(bare.device, name, lambda: few(bare))

    climb(bare.device, names, take, rungs)
    return rungs


def _climb(bare: Bare, names: Sequence[str]) -> list[Rung]:
    parts, rungs = few(bare), list[Rung]()

    def take(name: str) -> None:
        WHOLE[name](parts)
        if parts.psp.alive:
            raise DeviceHung("the secure OS still runs")

    climb(bare.device, names, take, rungs)
    return rungs


def rest(bare: Bare, *, sleep: bool = True) -> Rest:
    """Shut down a card that this process holds; `sleep`: put it to D3hot. Raises `DeviceLost`, `DeviceHung` when its
    work cannot be stopped.
    """
    done = Rest(bare.state())
    if done.found not in (COLD, CLEAN):
        done.rungs = _climb(bare, offered(bare.device))
    done.power = settle(bare.device, sleep=sleep)
    bare.registers.check_link("looking at it a last time")
    return done
