"""GA100 on an A100 PCIe, a board without display outputs. It is of Ampere, and starts like Turing: its falcons have no
boot ROM for signed code.

Sources: nv_ref.h, published/ampere/ga100 and g_nv_name_released.h (the board's ids) of NVIDIA's open kernel modules
570.144; nouveau 7.3, gsp/ga100.c and gsp/tu102.c (who starts the GSP, and that there is no FRTS data); the A100's
product brief (40 GB, PCI Express 4.0).
"""

from __future__ import annotations

from ringup.silicon.nv.chips.row import MIB, ChipRow
from ringup.silicon.nv.chips.tu102 import GSP, SEC2

GA100 = ChipRow(
    name="ga100",
    product="NVIDIA A100-PCIE-40GB",
    chipset=0x170,
    device_id=0x20F1,
    subsystem_id=0x145F,
    vram_bytes=40 << 30,
    # metal has 64 GiB, for which an emulator's bridges have no room; GUESS: BAR1 may be made as small as this
    bar1_bytes=256 * MIB,
    generation=4,
    cores="sm_80",
    falcons=(GSP, SEC2),
    boots_from_hs=False,
    has_frts=False,
)
