"""TU102 on a Tesla T10, a board without display outputs.

Sources: nv_ref.h and published/turing/tu102 of NVIDIA's open kernel modules; pci.ids (the board's ids, 16 GB).
"""

from __future__ import annotations

from ringup.silicon.nv.chips.row import MIB, ChipRow, FalconRow

# as on GA102; its falcons have no boot ROM that starts signed code
GSP = FalconRow("gsp", 0x11_0000, 0x11_1000, 0x11_0600, 0x400, 0x1_0000, 0x1_0000)
# SEC2 has no RISC-V core; GUESS
SEC2 = FalconRow("sec2", 0x84_0000, 0x84_1000, 0x84_0600, 0x1, 0x1_0000, 0x1_0000, riscv=False)

TU102 = ChipRow(
    name="tu102",
    product="NVIDIA Tesla T10",
    chipset=0x162,
    device_id=0x1E37,
    subsystem_id=0x1370,
    vram_bytes=16 << 30,
    bar1_bytes=256 * MIB,
    generation=3,
    cores="sm_75",
    falcons=(GSP, SEC2),
    boots_from_hs=False,
    pascal_interrupts=True,
)
