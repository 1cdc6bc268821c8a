"""GB202 on an RTX PRO 6000 Blackwell Server Edition, run without its display outputs: the engine is there, and GSP-RM
says that nothing is connected to it.

Sources: nv_ref.h, published/blackwell/gb202 and published/hopper/gh100 of NVIDIA's open kernel modules 570.144;
nouveau's fsp/gb202.c (version and sizes of the chain of trust), fb/gb202.c with gb10b's dev_fbhub.h (the page for
flushes), pci/gh100.c and instmem/gh100.c (Linux 6.16); g_nv_name_released.h of 575.64 (the board's ids); the board's
data sheet (96 GB, PCI Express 5.0). Its shader cores, sm_120, are not modelled.
"""

from __future__ import annotations

from ringup.silicon.nv.chips.ga102 import FUSES, GSP, SEC2
from ringup.silicon.nv.chips.row import MIB, BusRow, ChipRow, FspRow

GB202 = ChipRow(
    name="gb202",
    product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    chipset=0x1B2,
    device_id=0x2BB5,
    subsystem_id=0x204E,
    vram_bytes=96 << 30,
    # GUESS: what a board has before its BAR is resized
    bar1_bytes=256 * MIB,
    generation=5,
    cores="sm_120",
    falcons=(GSP, SEC2),
    boots_from_hs=True,
    fuses=FUSES,
    # a point of P-384 and an ECDSA signature
    fsp=FspRow(cot_version=2, public_key_bytes=97, signature_bytes=96),
    bus=BusRow(
        config=0x9_2000,
        window=("NV_XAL_EP_BAR0_WINDOW", 0x10_FD40),
        flush=(
            ("NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO", 0x8A_1D58),
            ("NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI", 0x8A_1D5C),
        ),
        rearms=True,
    ),
    mmu_version=3,
    has_display=True,
)
