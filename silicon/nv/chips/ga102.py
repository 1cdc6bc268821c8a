"""GA102 on an A10, a board without display outputs.

Sources: nv_ref.h, published/ampere/ga102 and g_nv_name_released.h (the board's ids) of NVIDIA's open kernel modules
570.144; pci.ids; the A10's product brief (24 GB).
"""

from __future__ import annotations

from ringup.silicon.nv.chips.row import MIB, ChipRow, FalconRow

# NV_PGSP, NV_FALCON2_GSP_BASE, NV_PGSP_FBIF_BASE; NV_PSEC and its pages. GUESS: the sizes of IMEM and DMEM, which
# FALCON_HWCFG reports; they hold the published images
GSP = FalconRow("gsp", 0x11_0000, 0x11_1000, 0x11_0600, 0x400, 0x1_0000, 0x1_0000)
SEC2 = FalconRow("sec2", 0x84_0000, 0x84_1000, 0x84_0600, 0x1, 0x1_0000, 0x1_0000)

# the published booters have no signature for version 0 of ucode 3
FUSES = (("SEC2", 3, 1),)

GA102 = ChipRow(
    name="ga102",
    product="NVIDIA A10",
    chipset=0x172,
    device_id=0x2236,
    subsystem_id=0x1482,
    vram_bytes=24 << 30,
    bar1_bytes=256 * MIB,
    generation=4,
    cores="sm_86",
    falcons=(GSP, SEC2),
    boots_from_hs=True,
    fuses=FUSES,
)
