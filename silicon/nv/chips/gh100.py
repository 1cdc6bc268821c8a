"""GH100 on an H100 PCIe, a board without display outputs.

Sources: nv_ref.h and published/hopper/gh100 of NVIDIA's open kernel modules 570.144; g_nv_name_released.h (the board's
ids); nouveau's fsp/gh100.c (version and sizes of the chain of trust), fb/gh100.c, pci/gh100.c and instmem/gh100.c
(Linux 6.16); the board's data sheet (80 GB, PCI Express 5.0). Launches are refused: no driver has judged sm_90 yet.
"""

from __future__ import annotations

from ringup.silicon.nv.chips.ga102 import FUSES, GSP, SEC2
from ringup.silicon.nv.chips.row import MIB, BusRow, ChipRow, FspRow

GH100 = ChipRow(
    name="gh100",
    # as the kernel lists the boards of this chip: BARs 0, 2 and 4
    wide_registers=True,
    product="NVIDIA H100 PCIe",
    chipset=0x180,
    device_id=0x2331,
    subsystem_id=0x1626,
    vram_bytes=80 << 30,
    # metal has 128 GiB, for which an emulator's bridges have no room; GUESS: BAR1 may be made as small as this
    bar1_bytes=256 * MIB,
    generation=5,
    cores="sm_90",
    falcons=(GSP, SEC2),
    boots_from_hs=True,
    fuses=FUSES,
    # RSA-3072
    fsp=FspRow(cot_version=1, public_key_bytes=384, signature_bytes=384),
    bus=BusRow(
        config=0x9_2000,
        window=("NV_XAL_EP_BAR0_WINDOW", 0x10_FD40),
        flush=(
            ("NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO", 0x10_0A34),
            ("NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI", 0x10_0A38),
        ),
        rearms=True,
    ),
    mmu_version=3,
)
