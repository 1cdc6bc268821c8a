"""A page of the host's memory that the chip reads when it must know that its earlier writes have arrived. Resets of
falcons wait for such a read, so the page is told first. Source: OGKM kern_mem_sys_gm107.c, _ga100.c, _gh100.c;
Linux nova-core fb.rs, fb/hal/*.rs.
"""

from __future__ import annotations

from ringup.autogen.layout import Word
from ringup.autogen.nv.mmu import (
    NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI,
    NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO,
    NV_PFB_HSHUB_ZB_EG_PCIE_FLUSH_SYSMEM_ADDR_HI,
    NV_PFB_HSHUB_ZB_EG_PCIE_FLUSH_SYSMEM_ADDR_LO,
    NV_PFB_HSHUB_ZB_PCIE_FLUSH_SYSMEM_ADDR_HI,
    NV_PFB_HSHUB_ZB_PCIE_FLUSH_SYSMEM_ADDR_LO,
    NV_PFB_NISO_FLUSH_SYSMEM_ADDR,
    NV_PFB_NISO_FLUSH_SYSMEM_ADDR_HI,
)
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.bus.words import (
    HSHUB0_BASE,
    NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI,
    NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO,
)
from ringup.errors import NotSupported

# by the chip that has the facts: (base, bits that the low register leaves out, low, high; None: there is no high one)
Pair = tuple[int, int, type[Word], type[Word] | None]
WAYS: dict[str, tuple[Pair, ...]] = {
    "tu102": ((0, 8, NV_PFB_NISO_FLUSH_SYSMEM_ADDR, None),),
    **dict.fromkeys(
        ("ga100", "ga102", "ad102"), ((0, 8, NV_PFB_NISO_FLUSH_SYSMEM_ADDR, NV_PFB_NISO_FLUSH_SYSMEM_ADDR_HI),)
    ),
    "gh100": ((0, 0, NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO, NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI),),
    "gb100": (
        (HSHUB0_BASE, 0, NV_PFB_HSHUB_ZB_PCIE_FLUSH_SYSMEM_ADDR_LO, NV_PFB_HSHUB_ZB_PCIE_FLUSH_SYSMEM_ADDR_HI),
        (HSHUB0_BASE, 0, NV_PFB_HSHUB_ZB_EG_PCIE_FLUSH_SYSMEM_ADDR_LO, NV_PFB_HSHUB_ZB_EG_PCIE_FLUSH_SYSMEM_ADDR_HI),
    ),
    "gb202": ((0, 0, NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO, NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI),),
}
LOW = 0xFFFF_FFFF


def tell(registers: Registers, bus_addr: int) -> None:
    """Tell the chip where the page lies; 0 takes it away. Raises `NotSupported` for a page that it does not reach."""
    for base, shift, low, high in WAYS[registers.chip.facts]:
        block = Block(registers, base=base)
        value = bus_addr >> shift
        if high is None and value > LOW:
            raise NotSupported(f"{registers.device.name}: the chip does not reach a page at {bus_addr:#x}")
        # ORDER: the high half first: on some chips the low one's write starts a flush
        if high is not None:
            block.set(high, value >> 32)
        block.set(low, value & LOW)
