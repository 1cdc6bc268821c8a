"""The blocks of one Radeon, made from its discovery table and its firmware; nothing is started here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ringup.drivers.amd.board import known
from ringup.drivers.amd.bus.discovery import Ips, discover
from ringup.drivers.amd.bus.doorbells import ASSIGNMENTS, Assignment
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.nbio_dies import SpreadNbio, far_index
from ringup.drivers.amd.bus.registers import Registers, Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.rows import core_row
from ringup.drivers.amd.gfx.sdma import SdmaEngine
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.memory.firmware_door import MIN_BYTES, FirmwareDoor
from ringup.drivers.amd.memory.layout import Layout
from ringup.drivers.amd.memory.spaces import SYSTEM_VMID, USER_VMID
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.accelerator import make_smu
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.seam import Device, DmaMemory
from ringup.firmware.store import Store

if TYPE_CHECKING:
    from ringup.firmware.amd.files import FirmwareSet
    from ringup.firmware.amd.image import Image

LOG = logging.getLogger(__name__)
PAGE_BYTES = 4096
VMIDS = (SYSTEM_VMID, USER_VMID)  # those that shaders run in
PLACED_HDP: frozenset[Version] = frozenset({(4, 4, 2)})  # versions that must be told where VRAM lies
STARTS = ("pfp", "me", "mec")  # engines whose programs have a start, in images of version 2


def program_start(image: Image) -> int:
    """Return the byte address at which a micro engine's program begins. Source: gfx_v11_0_config_gfx_rs64."""
    return image.number("ucode_start_addr_lo") | image.number("ucode_start_addr_hi") << 32


class Blocks(NamedTuple):
    """A card's blocks. `cores`: the dies of the graphics core (XCCs) by logical number, or the one core. `stray` is the
    page of host memory that accesses to unmapped addresses go to.
    """

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
    cores: tuple[Gfx, ...]
    sdma: tuple[SdmaEngine, ...]
    doorbells: Assignment
    stray: DmaMemory

    @property
    def gfx(self) -> Gfx:
        """The graphics core, or the first of its dies: the one whose registers speak for all."""
        return self.cores[0]

    @property
    def cu_total(self) -> int:
        """The compute units of all cores that are up."""
        return sum(core.shape.cu_total for core in self.cores if core.shape is not None)


def wire(device: Device, store: Store, *, force: bool = False) -> Blocks:
    """Read the card's table of blocks, find its firmware and make the blocks. `force`: the nearest rows stand in for
    those of versions that this driver does not know, see `known`.

    Raises `NotSupported` for a chip or a block without a row, `FirmwareError` for files.
    """
    # as all that reads images, when there is a card
    from ringup.drivers.amd.psp.firmware import firmware_set

    registers = Registers(device)
    ips, window = discover(device, registers)
    if force:
        known.force(ips, device.name)
    else:
        known.check(ips)
    LOG.debug("%s is a %s", device.name, ips.chip.name)  # it raises for a chip without a row
    nbio = make_nbio(registers, ips)
    if not nbio.posted:
        # UNKNOWN: amdgpu would run the VBIOS's code. Its table in VRAM was read, so its memory works; cards behind USB
        # bridges, where no VBIOS runs, and cards after a mode-1 reset are known to start without
        LOG.info("%s: its VBIOS has not run since power on", device.name)
    firmware = firmware_set(device, ips, store, force=force)
    layout = Layout(window.size_bytes)
    hdp = make_hdp(ips)
    doorbells = ASSIGNMENTS[ips.version("gc")[0]]
    cores = _cores(ips, firmware, nbio, doorbells)
    remote = device.remote
    stray = device.alloc_host(PAGE_BYTES) if remote is None else BusMemory(remote.stray_bus_addr, PAGE_BYTES)
    with undone_on_error(stray.free):
        gmc = make_gmc(ips, hdp, window.size_bytes, layout.scratch, stray.bus_addr(0))
        door = _door(device, window, gmc, hdp, ips.version("gc")[0], layout)
        psp = Psp(ips.block("mp0"), ips.version("mp0"), window, hdp, layout.psp, gmc.fb_base, door=door)
        smu = make_smu(ips.block("mp1"), ips.version("mp1"), window, hdp, layout.smu_table, gmc.fb_base)
    return Blocks(
        device, registers, ips, window, layout, firmware, nbio, hdp, gmc, psp, smu, cores, make_engines(ips), doorbells,
        stray,
    )  # fmt: skip


def make_nbio(registers: Registers, ips: Ips) -> Nbio:
    """Make the bus interface; from then on registers of other dies are reached too, where there are any."""
    block, version = ips.block("nbio"), ips.version("nbio")
    if not ips.spread:
        return Nbio(block, version)
    registers.far = far_index(block)
    dies = {aid: ips.die_block("nbio", aid) for aid in ips.aids}
    return SpreadNbio(block, version, dies, ips.xccs, ips.sdma_instances, ips.sub_revision("nbio"))


def make_hdp(ips: Ips) -> Hdp:
    """Make the host data path."""
    return Hdp(ips.block("nbio"), ips.block("hdp") if ips.version("hdp") in PLACED_HDP else None)


def make_gmc(ips: Ips, hdp: Hdp, vram_bytes: int, scratch_pa: int, default_bus_addr: int) -> Gmc:
    """Make the memory controller; see `Gmc`."""
    return Gmc(
        ips.mmhubs,
        ips.cores,
        hdp.flush,
        vram_bytes=vram_bytes,
        scratch_pa=scratch_pa,
        default_bus_addr=default_bus_addr,
    )


def _cores(ips: Ips, firmware: FirmwareSet, nbio: Nbio, doorbells: Assignment) -> tuple[Gfx, ...]:
    """Make the graphics core, or each of its dies."""
    shape = ips.shape
    design = Design(shape.shader_engines, shape.arrays_per_engine, shape.cus_per_array)
    has_starts = core_row(ips.cores[0].version).micro_engine.starts is not None
    pfp, me, mec = (program_start(firmware.image(kind)) if has_starts else 0 for kind in STARTS)
    return tuple(
        Gfx(
            block, ips.block("smuio"), design, mec, VMIDS, front_starts=(pfp, me),
            first_silicon=lambda: not nbio.revision, doorbells=doorbells, xcc=xcc,
        )
        for xcc, block in enumerate(ips.cores)
    )  # fmt: skip


def make_engines(ips: Ips) -> tuple[SdmaEngine, ...]:
    """Make the copy engines, which lie among the graphics core's registers or are blocks of their own."""
    return tuple(
        SdmaEngine(ips.cores[0], version, index, ips.block("sdma0", ips.sdma_instances[index]) if ips.spread else None)
        for index, version in enumerate(ips.sdma_versions)
    )


def _door(
    device: Device, window: VramWindow, gmc: Gmc, hdp: Hdp, generation: int, layout: Layout
) -> FirmwareDoor | None:
    """Return the path for firmware through a bridge's memory, None where there is none or it is not faster."""
    bulk = device.remote.bulk if device.remote is not None else None
    if bulk is None or bulk.size_bytes < MIN_BYTES:
        return None
    return FirmwareDoor(bulk, window, gmc, hdp, generation, layout.tables)
