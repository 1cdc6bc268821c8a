"""Bus interface (NBIO, NBIF): memory size, straps, the doorbell aperture and the routes of doorbells to engines,
scratch words of the VBIOS.

A doorbell reaches an engine only if a route of the S2A table sends its range there.

Source: amdgpu nbio_v4_3.c, nbif_v6_3_1.c, soc21.c; of MI300: `nbio_dies`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ringup.autogen.amd import nbio_doorbell as doorbell
from ringup.autogen.amd.atom import ATOM_ASIC_INIT_COMPLETE
from ringup.autogen.amd.nbio import (
    BIF_BX0_BIF_FB_EN,
    BIF_BX0_BIOS_SCRATCH_3,
    BIF_BX0_BIOS_SCRATCH_7,
    BIF_BX0_INTERRUPT_CNTL,
    BIF_BX0_INTERRUPT_CNTL2,
    RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE,
    RCC_STRAP0_RCC_DEV0_EPF0_STRAP0,
)
from ringup.autogen.amd.nbio_link import RCC_DEV0_EPF2_STRAP2
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.doorbells import NAVI10
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.errors import NotSupported

# ATOM_S3_ASIC_GUI_ENGINE_HUNG of amdgpu's atombios.h: tells the VBIOS that a driver is resetting the card
ENGINE_HUNG = 0x2000_0000
# versions whose USB function must not keep its state over a reset of D3hot
SOFT_RESET_STRAP = frozenset({(4, 3, 0), (6, 3, 1)})
PAGE_SHIFT = 8  # INTERRUPT_CNTL2 holds an address in units of 256 bytes


IH_RANGE_DWORDS = 2  # nbio_v4_3.c, nbio_v4_3_ih_doorbell_range


class Route(NamedTuple):
    """One line of the S2A table: doorbells of a range go out as writes with this id to this part of the address map."""

    port: int
    awid: int
    address_31_28: int
    offset_dwords: int
    size_dwords: int
    whole: bool  # the entry is written whole; else what it holds besides is kept


S2A = (
    doorbell.S2A_DOORBELL_ENTRY_0_CTRL,
    doorbell.S2A_DOORBELL_ENTRY_1_CTRL,
    doorbell.S2A_DOORBELL_ENTRY_2_CTRL,
    doorbell.S2A_DOORBELL_ENTRY_3_CTRL,
)
GDC = (
    doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_0_CTRL,
    doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_1_CTRL,
    doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_2_CTRL,
    doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_3_CTRL,
)
ENTRIES: dict[Version, tuple[type[Word], ...]] = {(4, 3, 0): S2A, (4, 3, 1): S2A, (6, 3, 1): GDC}


def routes(sdma_engines: int) -> tuple[Route, ...]:
    """Return the routes of a card with that many SDMA engines: two for the command processor, which take any doorbell,
    then IH and SDMA.
    """
    return (
        Route(0, 0x3, 0x3, 0, 0, whole=True),  # nbio_v4_3.c, nbio_v4_3_gc_doorbell_init: 0x30000007
        Route(3, 0x6, 0x3, 0, 0, whole=True),  # the same: 0x3000000d
        Route(1, 0x0, 0x0, NAVI10.ih_index, IH_RANGE_DWORDS, whole=False),
        Route(2, 0xE, 0x3, NAVI10.sdma_index_first, NAVI10.sdma_dwords * sdma_engines, whole=False),
    )


class Nbio:
    """The bus interface of one card. Up after `start`; needs nothing else up.

    `version` is the chip's own; `block` may serve its facts by another.
    """

    def __init__(self, block: Block, version: Version) -> None:
        if block.version not in self.known:
            raise NotSupported(
                f"the bus interface is version {'.'.join(map(str, version))}, whose doorbell routes are not known"
            )
        self.block, self.version = block, version

    known: Collection[Version] = ENTRIES.keys()

    @property
    def vram_bytes(self) -> int:
        """Size of the card's memory."""
        return int(self.block.read(RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE)) << 20

    @property
    def answers(self) -> bool:
        """Whether registers read as registers; false while the chip is in reset. Never raises."""
        return self.block.registers.answer

    @property
    def revision(self) -> int:
        """Revision of the silicon: 0 is A0."""
        return int(self.block.read(RCC_STRAP0_RCC_DEV0_EPF0_STRAP0).strap_ati_rev_id_dev0_f0)

    @property
    def posted(self) -> bool:
        """Whether the VBIOS has initialised the card."""
        return bool(int(self.block.read(BIF_BX0_BIOS_SCRATCH_7)) & ATOM_ASIC_INIT_COMPLETE)

    def start(self, sdma_engines: int) -> None:
        """Open the framebuffer and the doorbells to the host and route doorbells to the engines; the card's own
        doorbell aperture stays closed.
        """
        block = self.block
        if self.version in SOFT_RESET_STRAP:
            block.update(RCC_DEV0_EPF2_STRAP2, strap_no_soft_reset_dev0_f2=0)
        self._open_memory()
        for route in routes(sdma_engines):
            self._route(route)
        self._doorbells(True)

    def _open_memory(self) -> None:
        """Let the host reach the framebuffer, and close the card's own doorbell aperture."""
        block = self.block
        block.write(block.make(BIF_BX0_BIF_FB_EN, fb_read_en=1, fb_write_en=1))
        block.write(block.make(doorbell.BIF_BX_PF0_DOORBELL_SELFRING_GPA_APER_CNTL))

    def stop(self) -> None:
        """Close the doorbells: they reach no queue any more."""
        self._doorbells(False)

    def interrupt_page(self, bus_addr: int) -> None:
        """Set the page, 256-byte aligned, for the dummy read that pushes an interrupt's writes; with MSI it is not
        read.
        """
        if bus_addr & ((1 << PAGE_SHIFT) - 1):
            raise ValueError(f"the interrupt page lies on 256 bytes, not at {bus_addr:#x}")
        block = self.block
        block.write(block.make(BIF_BX0_INTERRUPT_CNTL2, ih_dummy_rd_addr=bus_addr >> PAGE_SHIFT))
        block.update(BIF_BX0_INTERRUPT_CNTL, ih_dummy_rd_override=0, ih_req_nonsnoop_en=0)

    def mark_hung(self, hung: bool) -> None:
        """Tell the VBIOS that the card is being reset by a driver. Source: amdgpu_atombios.c,
        amdgpu_atombios_scratch_regs_engine_hung.
        """
        word = BIF_BX0_BIOS_SCRATCH_3.at(self.block.version)
        now = int(self.block.read(word)) & ~ENGINE_HUNG
        self.block.write(word(now | ENGINE_HUNG if hung else now))

    def _doorbells(self, enable: bool) -> None:
        word = doorbell.RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN
        self.block.update(word, bif_doorbell_aper_en=int(enable))

    def _route(self, route: Route) -> None:
        names: dict[str, int] = {
            "enable": 1,
            "awid": route.awid,
            "range_offset": route.offset_dwords,
            "range_size": route.size_dwords,
            "awaddr_31_28_value": route.address_31_28,
        }
        fields: dict[str, Any] = {f"s2a_doorbell_port{route.port}_{name}": value for name, value in names.items()}
        word = ENTRIES[self.block.version][route.port]
        if route.whole:
            self.block.write(self.block.make(word, **fields))
        else:
            self.block.update(word, **fields)
