"""AD102 on an L40S, run without its display outputs, which is how the board is delivered for compute.

Sources: nv_ref.h, published/ada/ad102 and g_nv_name_released.h (the board's ids) of NVIDIA's open kernel modules
570.144; pci.ids; the L40S's product brief (48 GB).
"""

from __future__ import annotations

from ringup.silicon.nv.chips.ga102 import FUSES, GSP, SEC2
from ringup.silicon.nv.chips.row import MIB, ChipRow

AD102 = ChipRow(
    name="ad102",
    product="NVIDIA L40S",
    chipset=0x192,
    device_id=0x26B9,
    subsystem_id=0x1851,
    vram_bytes=48 << 30,
    bar1_bytes=256 * MIB,
    generation=4,
    cores="sm_89",
    falcons=(GSP, SEC2),
    boots_from_hs=True,
    fuses=FUSES,
)
