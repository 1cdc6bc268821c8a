"""The blocks of one Radeon, made from its discovery table and its firmware; nothing is started here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ringup.drivers.amd.bus.discovery import Ips, discover
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.sdma import SdmaEngine
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.memory.firmware_door import MIN_BYTES, FirmwareDoor
from ringup.drivers.amd.memory.layout import Layout
from ringup.drivers.amd.memory.spaces import SYSTEM_VMID, USER_VMID
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.seam import Device, DmaMemory
from ringup.firmware.store import Store

if TYPE_CHECKING:
    from ringup.firmware.amd.files import FirmwareSet
    from ringup.firmware.amd.image import Image

LOG = logging.getLogger(__name__)
CUS_PER_WGP = 2
PAGE_BYTES = 4096
VMIDS = (SYSTEM_VMID, USER_VMID)  # those that shaders run in


def program_start(image: Image) -> int:
    """Return the byte address at which a micro engine's program begins. Source: gfx_v11_0_config_gfx_rs64."""
    return image.number("ucode_start_addr_lo") | image.number("ucode_start_addr_hi") << 32


class Blocks(NamedTuple):
    """A card's blocks. `stray` is the page of host memory that accesses to unmapped addresses go to."""

    device: Device
    registers: Registers
    ips: Ips
    window: VramWindow
    layout: Layout
    firmware: FirmwareSet
    nbio: Nbio
    hdp: Hdp
    gmc: Gmc
    psp: Psp
    smu: Smu
    gfx: Gfx
    sdma: tuple[SdmaEngine, ...]
    stray: DmaMemory


def wire(device: Device, store: Store) -> Blocks:
    """Read the card's table of blocks, find its firmware and make the blocks.

    Raises `NotSupported` for a chip or a block without a row, `FirmwareError` for files.
    """
    # as all that reads images, when there is a card
    from ringup.drivers.amd.psp.firmware import firmware_set

    registers = Registers(device)
    ips, window = discover(device, registers)
    LOG.debug("%s is a %s", device.name, ips.chip.name)  # it raises for a chip without a row
    gc = ips.block("gc")
    nbio = Nbio(ips.block("nbio"), ips.version("nbio"))
    if not nbio.posted:
        # UNKNOWN: amdgpu would run the VBIOS's code. Its table in VRAM was read, so its memory works; cards behind USB
        # bridges, where no VBIOS runs, and cards after a mode-1 reset are known to start without
        LOG.info("%s: its VBIOS has not run since power on", device.name)
    firmware = firmware_set(device, ips, store)
    layout = Layout(window.size_bytes)
    hdp = Hdp(ips.block("nbio"))
    shape = ips.shape
    design = Design(shape.shader_engines, shape.arrays_per_engine, shape.wgps_per_array * CUS_PER_WGP)
    pfp, me, mec = (program_start(firmware.image(kind)) for kind in ("pfp", "me", "mec"))
    gfx = Gfx(
        gc, ips.block("smuio"), design, mec, VMIDS, front_starts=(pfp, me), first_silicon=lambda: not nbio.revision
    )
    engines = tuple(SdmaEngine(gc, version, index) for index, version in enumerate(ips.sdma_versions))
    remote = device.remote
    stray = device.alloc_host(PAGE_BYTES) if remote is None else BusMemory(remote.stray_bus_addr, PAGE_BYTES)
    with undone_on_error(stray.free):
        gmc = Gmc(
            ips.block("mmhub"), gc, hdp.flush, vram_bytes=window.size_bytes, scratch_pa=layout.scratch,
            default_bus_addr=stray.bus_addr(0),
        )  # fmt: skip
        door = _door(device, window, gmc, hdp, ips.version("gc")[0], layout)
        psp = Psp(ips.block("mp0"), ips.version("mp0"), window, hdp, layout.psp, gmc.fb_base, door=door)
        smu = Smu(ips.block("mp1"), ips.version("mp1"), window, hdp, layout.smu_table, gmc.fb_base)
    return Blocks(
        device, registers, ips, window, layout, firmware, nbio, hdp, gmc, psp, smu, gfx, engines, stray
    )  # fmt: skip


def _door(
    device: Device, window: VramWindow, gmc: Gmc, hdp: Hdp, generation: int, layout: Layout
) -> FirmwareDoor | None:
    """Return the path for firmware through a bridge's memory, None where there is none or it is not faster."""
    bulk = device.remote.bulk if device.remote is not None else None
    if bulk is None or bulk.size_bytes < MIN_BYTES:
        return None
    return FirmwareDoor(bulk, window, gmc, hdp, generation, layout.tables)
