"""The bus interface of a card of several dies (MI300): doorbells go to the dies of the graphics core, and to the copy
engines of every I/O die.

Two tables send a doorbell to a copy engine: one of the bus interface, which all dies share, and one on the engine's own
I/O die. Source: amdgpu nbio_v7_9.c, nbio_v7_9_init_registers, _sdma_doorbell_range, _ih_doorbell_range,
_enable_doorbell_aperture and _get_rev_id; aqua_vanjaram.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ringup.autogen.amd import nbio_doorbell as doorbell
from ringup.autogen.amd.nbio import (
    BIF_BX0_BACO_CNTL,
    BIF_BX0_PCIE_DATA2,
    BIF_BX0_PCIE_INDEX2,
    BIF_BX0_PCIE_INDEX2_HI,
    BIF_BX_PF0_PARTITION_COMPUTE_STATUS,
)
from ringup.autogen.amd.nbio_link import BIFC_GFX_INT_MONITOR_MASK
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.discovery import SDMA_PER_AID
from ringup.drivers.amd.bus.doorbells import LAYOUT1
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Block, FarIndex, Version

VERSIONS = frozenset({(7, 9, 0)})
EVERY_XCC = 0xFF
EVERY_INTERRUPT = 0x7FF
EVERY_DOORBELL = 0xF_FFFF
IH_RANGE_DWORDS = 8


class Route(NamedTuple):
    """A line of the table on an I/O die that sends doorbells to an engine."""

    entry: type[Word]
    port: int
    awid: int
    address_31_28: int


# by the engine's place on its I/O die: the line of that die, and the line of the shared table for the first die
ENGINES = (
    Route(doorbell.S2A_DOORBELL_ENTRY_1_CTRL, 1, 0xE, 0x1),
    Route(doorbell.S2A_DOORBELL_ENTRY_2_CTRL, 2, 0x8, 0x2),
    Route(doorbell.S2A_DOORBELL_ENTRY_5_CTRL, 5, 0x9, 0x8),
    Route(doorbell.S2A_DOORBELL_ENTRY_6_CTRL, 6, 0xA, 0x9),
)
INTERRUPTS = Route(doorbell.S2A_DOORBELL_ENTRY_3_CTRL, 3, 0x0, 0x0)


def far_index(nbio: Block) -> FarIndex:
    """Return the registers through which addresses of other dies are reached."""
    words = (BIF_BX0_PCIE_INDEX2, BIF_BX0_PCIE_DATA2, BIF_BX0_PCIE_INDEX2_HI)
    return FarIndex(*(nbio.address(word) for word in words))


class SpreadNbio(Nbio):
    """The bus interface of one card of several dies.

    `dies`: its registers on each I/O die, by number; 0 is the one that `block` is on. `xccs` and `sdma`: the dies of
    the graphics core and the copy engines that are there, by logical number the physical one. `sub_revision`: of the
    discovery table; 0: the strap tells.
    """

    known = VERSIONS

    def __init__(
        self,
        block: Block,
        version: Version,
        dies: Mapping[int, Block],
        xccs: Sequence[int],
        sdma: Sequence[int],
        sub_revision: int = 0,
    ) -> None:
        super().__init__(block, version)
        self._dies, self._xccs, self._sdma, self._sub_revision = dies, tuple(xccs), tuple(sdma), sub_revision

    @property
    def revision(self) -> int:
        """Revision of the silicon: 0 is A0."""
        return self._sub_revision or super().revision

    @property
    def partition_mode(self) -> int:
        """The partition mode of the graphics core that the card's firmware reports."""
        return int(self.block.read(BIF_BX_PF0_PARTITION_COMPUTE_STATUS).partition_mode)

    def start(self, sdma_engines: int) -> None:
        """Open the framebuffer and the doorbells to the host, and route doorbells to the first `sdma_engines` copy
        engines and to the interrupt ring.
        """
        block = self.block
        self._open_memory()
        off = EVERY_XCC & ~sum(1 << xcc for xcc in self._xccs)
        block.write(doorbell.XCC_DOORBELL_FENCE.at(block.version)(off))
        block.write(BIFC_GFX_INT_MONITOR_MASK.at(block.version)(EVERY_INTERRUPT))
        with block.registers.far_run():
            for aid, die in self._dies.items():
                if aid:
                    die.write(die.make(doorbell.XCC_DOORBELL_FENCE, shub_slv_mode=1))
        block.update(BIF_BX0_BACO_CNTL, baco_en=0, baco_dummy_en=0)
        self._range(0, LAYOUT1.ih_index, IH_RANGE_DWORDS)
        self._send(block, INTERRUPTS, IH_RANGE_DWORDS)
        engines = [divmod(physical, SDMA_PER_AID) for physical in self._sdma[:sdma_engines]]
        for logical, (aid, place) in enumerate(engines):
            self._range(1 + place + SDMA_PER_AID * aid, LAYOUT1.sdma_index(logical, 0), LAYOUT1.sdma_dwords)
        with block.registers.far_run():
            for aid, place in engines:
                self._send(self._dies[aid], ENGINES[place], LAYOUT1.sdma_dwords)
        block.write(block.make(doorbell.BIFC_DOORBELL_ACCESS_EN_PF, bifc_doorbell_access_en_pf=EVERY_DOORBELL))
        self._doorbells(True)

    def _range(self, line: int, index: int, dwords: int) -> None:
        """Write a line of the table that all dies share. Its lines follow one another, with the same fields."""
        block, word = self.block, doorbell.DOORBELL0_CTRL_ENTRY_0
        fields = {"bif_doorbell0_range_offset_entry": index, "bif_doorbell0_range_size_entry": dwords}
        block.write(block.make(word, **fields), line * block.distance(word, doorbell.DOORBELL0_CTRL_ENTRY_1))

    def _send(self, die: Block, route: Route, dwords: int) -> None:
        """Write a line of an I/O die's own table."""
        names = {
            "enable": 1,
            "awid": route.awid,
            "range_offset": route.awid,
            "range_size": dwords,
            "awaddr_31_28_value": route.address_31_28,
        }
        fields: dict[str, Any] = {f"s2a_doorbell_port{route.port}_{name}": value for name, value in names.items()}
        die.write(die.make(route.entry, **fields))
