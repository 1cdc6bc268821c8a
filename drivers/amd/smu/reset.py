"""Mode-1 reset: the power controller resets the whole chip but its bus interface. Memory keeps power but not its
contents' meaning; every processor's firmware is gone, the VBIOS's initialisation stays.

`mode1_reset(device, nbio, psp, smu)`. Source: amdgpu amdgpu_device.c, amdgpu_device_mode1_reset; smu_v13_0_0_ppt.c,
smu_v13_0_0_mode1_reset.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.linux import pci
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.transport.config_space import change_command, restore, save, wait_for_answer
from ringup.drivers.transport.seam import Device
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceTimeout

# TIMEOUT: AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h, for registers to answer behind the wait that the reset takes
BACK_TIMEOUT_US = 100_000
BACK_POLL_US = 1000


class Away(NamedTuple):
    """A card in reset: its header from before, how long it must not be accessed, and until when, in microseconds."""

    kept: dict[int, int]
    away_us: int
    until_us: float


def mode1_reset(device: Device, nbio: Nbio, psp: Psp, smu: Smu) -> None:
    """Reset the card and wait until its boot loader listens again. Left: a cold, posted card, bus mastering off.

    Raises `NotSupported` when the power controller cannot, `DeviceTimeout` when the card does not come back or its
    secure OS survived.
    """
    end(device, nbio, psp, begin(device, nbio, smu))


def begin(device: Device, nbio: Nbio, smu: Smu) -> Away:
    """Send the card into reset; `end` comes next. Raises `NotSupported`."""
    # ORDER: nothing of the card reaches host memory while it is reset
    change_command(device.config, off=pci.PCI_COMMAND_MASTER)
    kept = save(device.config)
    nbio.mark_hung(True)
    away_us = smu.tell_mode1_reset()
    return Away(kept, away_us, device.clock.now_us + away_us)


def end(device: Device, nbio: Nbio, psp: Psp, away: Away) -> None:
    """Wait until a card is back from its reset and its boot loader listens. Raises `DeviceTimeout`."""
    # no access in between: a card in reset answers none, and some hosts take that badly
    device.clock.sleep_us(max(0, away.until_us - device.clock.now_us))
    wait_for_answer(device.config, device.clock, "waiting for the card behind a mode-1 reset")
    restore(device.config, away.kept)
    if not poll(lambda: nbio.answers, bool, clock=device.clock, timeout_us=BACK_TIMEOUT_US, poll_us=BACK_POLL_US):
        nbio.block.registers.check_link("waiting for registers behind a mode-1 reset")
        raise DeviceTimeout(
            f"mode-1 reset: registers read all ones {(away.away_us + BACK_TIMEOUT_US) / 1000:g} ms later; reset the slot or power the card off"
        )
    psp.wait_loader("waiting for the boot loader behind a mode-1 reset")
    nbio.mark_hung(False)
    if psp.alive:
        raise DeviceTimeout(
            "mode-1 reset: the secure OS still runs, so nothing was reset; reset the slot or power the card off"
        )
