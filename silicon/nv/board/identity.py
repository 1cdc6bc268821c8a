"""What a chip says about itself: PMC, straps, fuses, the state that its own boot firmware left, and configuration space
as registers.

Sources: dev_boot.h, dev_fuse.h, dev_gc6_island.h, dev_nv_xve.h of NVIDIA's open kernel modules; for what these leave
out: envytools (PEXTDEV straps, 0x101000), nouveau (base.c, devinit/tu102.c, fb/gp102.c, pci/nv40.c).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.nv import boot, mmu
from ringup.silicon.nv.chips.row import MIB, ChipRow
from ringup.silicon.nv.common.registers import ALL, Registers
from ringup.silicon.pci.function import Function

MIRROR_BYTES = 0x1000
# the mirror's own registers: CYA_2, by which the CPU says that it has taken a message
EOI = 0x704
ROM_AT, ROM_BYTES = 0x30_0000, 1 << 20
# memory size on Turing: a number in 9:4 and its unit in MiB as a power of two in 3:0
LOCAL_MEMORY_RANGE = 0x10_0CE0
DISPLAY_FUSE, COPY_FUSE = 0x2_1C04, 0x2_1C00
# legacy VGA ports; the CRT controller's index and data
VGA_AT, VGA_BYTES = 0x60_1000, 0x1000
CRTC_INDEX, CRTC_DATA = 0x3D4, 0x3D5


class Identity:
    """Registers that are constants of the row, or storage for software."""

    def __init__(
        self, chip: ChipRow, registers: Registers, image: bytes, gpu: Function, eoi: Callable[[], None]
    ) -> None:
        self._image, self._gpu, self._eoi = image, gpu, eoi
        self._crtc, self._crtc_index, self._note = bytearray(256), 0, registers.note
        at = registers.at
        registers.cell(boot.NV_PMC_BOOT_0, reset=chip.boot_0, fixed=ALL)
        # little-endian: it reads 0
        at(0x4, "NV_PMC_BOOT_1", fixed=ALL)
        at(0xA00, "NV_PMC_BOOT_42", reset=chip.boot_42, fixed=ALL)
        at(0x10_1000, "NV_PEXTDEV_BOOT_0", reset=chip.strap)
        self._fuses(chip, registers)
        self._booted(chip, registers)
        registers.cell(mmu.NV_PFB_NISO_FLUSH_SYSMEM_ADDR)
        if registers.has(mmu.NV_PFB_NISO_FLUSH_SYSMEM_ADDR_HI):
            registers.cell(mmu.NV_PFB_NISO_FLUSH_SYSMEM_ADDR_HI)
        for name, address in chip.bus.flush:
            at(address, name)
        registers.window(chip.bus.config, MIRROR_BYTES, "PCI", self._read_config, self._write_config)
        registers.window(ROM_AT, ROM_BYTES, "PROM", self._read_rom, lambda offset, data: None)
        registers.window(VGA_AT, VGA_BYTES, "VGA", self._read_vga, self._write_vga)

    def _fuses(self, chip: ChipRow, registers: Registers) -> None:
        # production boards: no debugging of signed code
        registers.cell(boot.NV_FUSE_OPT_SECURE_GSP_DEBUG_DIS, reset=1, fixed=ALL)
        # 1: display is fused off
        registers.cell(boot.NV_FUSE_STATUS_OPT_DISPLAY, reset=int(not chip.has_display), fixed=ALL)
        if not registers.has(boot.NV_FUSE_OPT_FPF_SEC2_UCODE1_VERSION):
            registers.at(COPY_FUSE, "NV_FUSE_STATUS_OPT_CE", fixed=ALL)
            return
        blown = {(family, number): value for family, number, value in chip.fuses}
        for family in ("SEC2", "GSP", "NVDEC"):
            for number in range(1, 17):
                word = getattr(boot, f"NV_FUSE_OPT_FPF_{family}_UCODE{number}_VERSION")
                registers.cell(word, reset=blown.get((family, number), 0), fixed=ALL)

    def _booted(self, chip: ChipRow, registers: Registers) -> None:
        """Set what the chip's own boot firmware leaves: it is done, and it has found the memory."""
        registers.cell(boot.NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_PRIV_LEVEL_MASK, reset=1, fixed=ALL)
        registers.cell(
            boot.NV_PGC6_AON_SECURE_SCRATCH_GROUP_05,
            reset=boot.NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT_PROGRESS_COMPLETED,
            fixed=ALL,
        )
        if registers.has(mmu.NV_PFB_PRI_MMU_LOCK_CFG_PRIV_LEVEL_MASK):
            # a range at the end of memory that the VBIOS locks away, for spare rows. GUESS: these boards have none,
            # which is an end below the start
            enable = mmu.NV_PFB_PRI_MMU_LOCK_CFG_PRIV_LEVEL_MASK_READ_PROTECTION_LEVEL0_ENABLE
            registers.cell(mmu.NV_PFB_PRI_MMU_LOCK_CFG_PRIV_LEVEL_MASK, reset=enable, fixed=ALL)
            registers.cell(mmu.NV_PFB_PRI_MMU_LOCK_ADDR_LO, reset=1 << 4, fixed=ALL)
            registers.cell(mmu.NV_PFB_PRI_MMU_LOCK_ADDR_HI, fixed=ALL)
        size_mib = chip.vram_bytes // MIB
        if chip.boots_from_hs:
            registers.cell(boot.NV_USABLE_FB_SIZE_IN_MB, reset=size_mib, fixed=ALL)
        else:
            unit = max(0, size_mib.bit_length() - 5)
            registers.at(
                LOCAL_MEMORY_RANGE, "NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE", reset=size_mib >> unit << 4 | unit, fixed=ALL
            )

    def _read_rom(self, offset: int, size_bytes: int) -> bytes:
        return self._image[offset : offset + size_bytes].ljust(size_bytes, b"\xff")

    def _read_config(self, offset: int, size_bytes: int) -> bytes:
        return self._gpu.config.get(offset, size_bytes).to_bytes(size_bytes, "little")

    def _write_config(self, offset: int, data: bytes) -> None:
        if offset == EOI:
            self._eoi()
        else:
            self._gpu.config.write(offset, int.from_bytes(data, "little"), len(data))

    def _read_vga(self, offset: int, size_bytes: int) -> bytes:
        """Read VGA ports. GUESS: without a display, the CRT controller's registers are kept and have no effect."""
        if (offset, size_bytes) == (CRTC_INDEX, 1):
            return bytes([self._crtc_index])
        if (offset, size_bytes) == (CRTC_DATA, 1):
            return bytes([self._crtc[self._crtc_index]])
        self._note("vga", "unmodelled", "{} bytes of port {:#x} are read as 0", size_bytes, offset)
        return bytes(size_bytes)

    def _write_vga(self, offset: int, data: bytes) -> None:
        if (offset, len(data)) == (CRTC_INDEX, 1):
            self._crtc_index = data[0]
        elif (offset, len(data)) == (CRTC_DATA, 1):
            self._crtc[self._crtc_index] = data[0]
        else:
            self._note("vga", "unmodelled", "{} to port {:#x} goes nowhere", data.hex(), offset)
