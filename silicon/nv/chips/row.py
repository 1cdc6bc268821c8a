"""What describes a chip and the board that it sits on."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.linux import pci as regs
from ringup.silicon.pci.capabilities import advanced_errors, express, extended, msi, power_management
from ringup.silicon.pci.function import Bar, FunctionRow

NVIDIA = 0x10DE
MIB = 1 << 20
CONTROLLER_3D = 0x030200
# registers, and no prefetch: a plain 32-bit window
REGISTER_BAR = regs.PCI_BASE_ADDRESS_MEM_TYPE_32
WIDE_REGISTER_BAR = regs.PCI_BASE_ADDRESS_MEM_TYPE_64 | regs.PCI_BASE_ADDRESS_MEM_PREFETCH
IO_BAR = regs.PCI_BASE_ADDRESS_SPACE_IO


@dataclass(frozen=True, slots=True)
class FalconRow:
    """One falcon. `base`: of its registers in BAR0. `base2`: of those of its second page, RISC-V included. `fbif`: of
    its frame-buffer interface. `engine_id`: its bit in a signed image's engine mask.
    """

    name: str
    base: int
    base2: int
    fbif: int
    engine_id: int
    imem_bytes: int
    dmem_bytes: int
    riscv: bool = True

    @property
    def prefix(self) -> str:
        """What logs put in front of the names of its registers, which all falcons share."""
        return f"{self.name.upper()}."


@dataclass(frozen=True, slots=True)
class FspRow:
    """How a chip's FSP boots its GSP: the version of the chain-of-trust command, bytes of the public key and of the
    signature of the GSP's first code.
    """

    cot_version: int
    public_key_bytes: int
    signature_bytes: int


@dataclass(frozen=True, slots=True)
class BusRow:
    """Where registers of the bus interface are. `config`: configuration space. `window`: name and address of the
    register that PRAMIN's place in video memory is written to, in units of 64 KiB; None: NV_PBUS_BAR0_WINDOW. `flush`:
    names and addresses of registers for the page by which writes to system memory are flushed, beside those of
    dev_fb.h. `rearms`: enabling the top of the interrupt tree allows the next message; otherwise a write to
    configuration space does.
    """

    config: int = 0x8_8000
    window: tuple[str, int] | None = None
    flush: tuple[tuple[str, int], ...] = ()
    rearms: bool = False


@dataclass(frozen=True, slots=True)
class ChipRow:
    """A chip on its board.

    `chipset`: implementation and architecture as in PMC_BOOT_0, 0x172 for GA102. `cores`: the instruction set of its
    shader cores. `boots_from_hs`: its falcons start signed code by their boot ROM, which GA102 brought. `fuses`:
    versions of signed code by falcon and ucode id, where a board has blown some; drivers choose an image's signature
    by them. `pascal_interrupts`: the chip still has the interrupt tree of Pascal, NV_PMC_INTR; NVIDIA's
    modules use it on Turing alone (g_intr_nvoc.c, intrSetIntrEnInHw). `fsp`: what boots the GSP; None: the driver does,
    by FWSEC and the booter. `has_frts`: data for power management lie in the protected region, which FWSEC begins with
    them; otherwise the booter makes the region by itself. `has_display`: the display
    engine is not fused off. `mmu_version`: the format of page tables, 2 (Pascal to Ada) or 3 (Hopper on).
    """

    name: str
    product: str
    chipset: int
    device_id: int
    subsystem_id: int
    vram_bytes: int
    bar1_bytes: int
    generation: int
    cores: str
    falcons: tuple[FalconRow, ...]
    boots_from_hs: bool
    pascal_interrupts: bool = False
    has_frts: bool = True
    has_display: bool = False
    strap: int = 0
    revision: int = 0xA1
    fuses: tuple[tuple[str, int, int], ...] = ()
    fsp: FspRow | None = None
    bus: BusRow = BusRow()
    mmu_version: int = 2
    # GSP-RM's vector for its message queue, the falcon's SWGEN0
    gsp_vector: int = 192
    # whether the register BAR is one of 64 bits
    wide_registers: bool = False

    @property
    def boot_0(self) -> int:
        """PMC_BOOT_0: chipset in 28:20, revision in 7:0. Source: nv_ref.h, NV_PMC_BOOT_0."""
        return self.chipset << 20 | self.revision

    @property
    def boot_42(self) -> int:
        """PMC_BOOT_42: chipset in 28:20, revision in 19:12. Source: nv_ref.h, NV_PMC_BOOT_42."""
        return self.chipset << 20 | self.revision << 12

    def falcon(self, name: str) -> FalconRow:
        """Return the row of a falcon: `gsp` or `sec2`."""
        return next(row for row in self.falcons if row.name == name)

    @property
    def memory_bars(self) -> tuple[int, int, int]:
        """The numbers of the BARs with registers, memory and instance memory: one of 64 bits takes two places. Source:
        Linux nouveau device/pci.c; OGKM nv-pci.c, nv_pci_probe.
        """
        return (0, 2, 4) if self.wide_registers else (0, 1, 3)

    @property
    def function(self) -> FunctionRow:
        """The PCI function: registers, memory, instance memory, and where there is room the legacy port window."""
        registers, memory, instance = self.memory_bars
        bars = [
            Bar(registers, 16 * MIB, WIDE_REGISTER_BAR if self.wide_registers else REGISTER_BAR),
            Bar(memory, self.bar1_bytes),
            Bar(instance, 32 * MIB),
        ]
        if not self.wide_registers:
            bars.append(Bar(5, 128, IO_BAR))
        capabilities = (
            power_management(0x60, 0x4803, keeps_state=True),
            msi(0x68),
            express(
                0x78, regs.PCI_EXP_TYPE_ENDPOINT, generation=self.generation, lanes=16, device=regs.PCI_EXP_DEVCAP_FLR
            ),
            extended("virtual channel", regs.PCI_EXT_CAP_ID_VC, 0x100),
            advanced_errors(0x420),
        )
        return FunctionRow(
            "gpu",
            NVIDIA,
            self.device_id,
            CONTROLLER_3D,
            self.revision,
            (NVIDIA, self.subsystem_id),
            tuple(bars),
            512 << 10,
            capabilities,
        )
