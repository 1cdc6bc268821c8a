"""Mode-2 reset of a card of several dies, and what gives its engines back: the power controller resets the graphics
core, the copy engines and the bus interface, whose configuration space is lost too. Memory keeps its content; the
secure OS, the trusted memory region, the memory hubs, the interrupt ring and the power controller stay up.

`reset(blocks)` leaves a card as a warm start finds one; `start_engines(blocks)` is for a card that stays open. Source:
amdgpu aldebaran.c, aldebaran_mode2_suspend_ip, _reset and _restore_ip; smu_v13_0_6_ppt.c, smu_v13_0_6_mode2_reset;
smu_v13_0.c, smu_v13_0_wait_for_reset_complete; gfx_v9_4_3.c, gfx_v9_4_3_xcc_rlc_resume.
"""

from __future__ import annotations

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.gfx.core import start_all
from ringup.drivers.amd.gfx.gating import set_gating
from ringup.drivers.amd.gfx.partition import join, share_evenly
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.transport.config_space import restore, save, set_master, wait_for_answer
from ringup.drivers.transport.seam import Device
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceTimeout

# TIMEOUT: AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h, for registers to answer behind the wait that the reset takes
BACK_TIMEOUT_US = 100_000
BACK_POLL_US = 1000


def reset(blocks: Blocks) -> None:
    """Reset the engines and load their firmware again. Left: hubs of the graphics core up, engines not started, bus
    mastering off, since the interrupt ring may be that of a process that died.

    Raises `NotSupported` for a power controller that cannot, `DeviceTimeout` when it or the card does not answer again.
    """
    _take(blocks.device, blocks.nbio, blocks.smu)
    blocks.nbio.start(len(blocks.sdma))
    blocks.hdp.start()
    blocks.hdp.place(blocks.gmc.fb_base)
    blocks.nbio.interrupt_page(blocks.stray.bus_addr(0))
    # ORDER: as aldebaran_mode2_restore_ip: hubs, firmware, run-list controllers, and only then the power controller
    # ends the reset, for which it needs these
    blocks.gmc.start_gfxhub()
    blocks.psp.load_again(blocks.firmware.ip_parts(blocks.ips.version("gc")))
    set_gating(blocks.cores, blocks.ips.block("mmhub"), blocks.sdma, on=False)
    blocks.smu.end_mode2_reset()


def _take(device: Device, nbio: Nbio, smu: Smu) -> None:
    """Send the message, stay away while the card is in reset, and give it its configuration space back."""
    # ORDER: nothing of the card reaches host memory while it is reset
    set_master(device.config, on=False)
    kept = save(device.config)
    away_us = smu.tell_mode2_reset()
    device.clock.sleep_us(away_us)
    wait_for_answer(device.config, device.clock, "waiting for the card behind a mode-2 reset")
    # QUIRK: some switches answer reads of BARs themselves, with what they held before. Source: smu_v13_0_6_mode2_reset
    restore(device.config, kept, always=True)
    if not poll(lambda: nbio.answers, bool, clock=device.clock, timeout_us=BACK_TIMEOUT_US, poll_us=BACK_POLL_US):
        nbio.block.registers.check_link("waiting for registers behind a mode-2 reset")
        raise DeviceTimeout(
            f"mode-2 reset: registers read all ones {(away_us + BACK_TIMEOUT_US) / 1000:g} ms later; reset the whole card"
        )
    smu.hear_mode2_reset()


def start_engines(blocks: Blocks) -> None:
    """Start the engines of a card that stays open, behind `reset`; no queue is mapped yet."""
    set_master(blocks.device.config, on=True)
    join(blocks.cores, blocks.psp.partition)
    start_all(blocks.cores)
    share_evenly(blocks.cores)
    for engine in blocks.sdma:
        engine.start()
    set_gating(blocks.cores, blocks.ips.block("mmhub"), blocks.sdma, on=True)
