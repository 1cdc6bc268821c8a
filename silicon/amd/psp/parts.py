"""Which images the PSP accepts: the kind in the image's header, and the usage of the key that may sign it.

Source: measured on Debian's firmware-amd-graphics, releases 20230210 to 20260916 (gc_11_0_*, sdma_6_0_*, smu_13_0_*,
psp_13_0_*, dcn_3_2_*, vcn_4_0_*), and for GC 12 on release 20250410 (gc_12_0_*, sdma_7_0_*, smu_14_0_2, smu_14_0_3,
psp_14_0_2, psp_14_0_3, dcn_4_0_1, vcn_5_0_0), for GC 9.4.3 on the same (gc_9_4_3_*, sdma_4_4_2, smu_13_0_6,
psp_13_0_6); the usages are the numbers of the keys in each chip's key database.
UNKNOWN: what else metal accepts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringup.autogen.amd import psp as gfx
from ringup.autogen.amd import psp_boot as boot

# usages of keys
VIDEO, GRAPHICS, DISPLAY, TRUSTED, SECURE_OS, SMU, RAS, LIST, IMU, DRIVERS = (
    6,
    0xA,
    0xF,
    0x11,
    0x1E,
    0x2F,
    0x3A,
    0x3C,
    0x8B,
    0x91,
)
USAGES = (VIDEO, GRAPHICS, DISPLAY, TRUSTED, SECURE_OS, SMU, RAS, LIST, IMU, DRIVERS)


@dataclass(frozen=True, slots=True)
class Part:
    """An image that the PSP loads. `rooted`: a key in the ROM may sign it; `unmarked`: some have no `$PS1`; `or_kinds`:
    other accepted kinds.
    """

    name: str
    kind: int
    usages: tuple[int, ...]
    rooted: bool = False
    unmarked: bool = False
    or_kinds: tuple[int, ...] = ()


def _engines(*rows: tuple[Iterable[int], str, int, tuple[int, ...]]) -> dict[int, Part]:
    return {
        fw_type: Part(name, kind, (GRAPHICS,), or_kinds=others)
        for types, name, kind, others in rows
        for fw_type in types
    }


KEY_DATABASE = Part("KDB", 0x4F, (), rooted=True, unmarked=True)
BOOT = {
    boot.PSP_BL__LOAD_KEY_DATABASE: KEY_DATABASE,
    # QUIRK: amdgpu sends the key database a second time, and metal accepts it. Source: psp_v13_0.c, bootloader_load_spl
    boot.PSP_BL__LOAD_TOS_SPL_TABLE: Part(
        "SPL", 0x56, (SECURE_OS,), rooted=True, unmarked=True, or_kinds=(KEY_DATABASE.kind,)
    ),
    boot.PSP_BL__LOAD_SYSDRV: Part("SYS_DRV", 0x0A, (SECURE_OS,), rooted=True),
    boot.PSP_BL__LOAD_SOCDRV: Part("SOC_DRV", 0x14A, (DRIVERS,)),
    boot.PSP_BL__LOAD_INTFDRV: Part("INTF_DRV", 0x14C, (DRIVERS,)),
    boot.PSP_BL__LOAD_DBGDRV: Part("DBG_DRV", 0x14B, (DRIVERS,)),
    boot.PSP_BL__LOAD_RASDRV: Part("RAS_DRV", 0x152, (DRIVERS,)),
    boot.PSP_BL__LOAD_IPKEYMGRDRV: Part("IPKEYMGR_DRV", 0x1E1, (DRIVERS,)),
    boot.PSP_BL__LOAD_SOSDRV: Part("SOS", 0x09, (SECURE_OS,), rooted=True),
}
TOC = Part("TOC", 0x200E, (GRAPHICS,))
# the RAS application of 14.0 has a kind of its own
APPLICATION = Part("trusted application", 0x0000, (TRUSTED, RAS, DRIVERS), or_kinds=(0x0F1B,))
# the scheduler's own firmware, which GC 12 also runs in the KIQ's pipe
UNIFIED_MES = 0x2007
# the engines of an I/O die
SDMA_OF_DIE = (gfx.GFX_FW_TYPE_SDMA0, gfx.GFX_FW_TYPE_SDMA1, gfx.GFX_FW_TYPE_SDMA2, gfx.GFX_FW_TYPE_SDMA3)
FIRMWARE = _engines(
    ([gfx.GFX_FW_TYPE_SDMA_UCODE_TH0], "SDMA_UCODE_TH0", 0x203E, (0x2025,)),
    ([gfx.GFX_FW_TYPE_SDMA_UCODE_TH1], "SDMA_UCODE_TH1", 0x203F, ()),
    ([gfx.GFX_FW_TYPE_RS64_PFP], "RS64_PFP", 0x2044, ()),
    ((gfx.GFX_FW_TYPE_RS64_PFP_P0_STACK, gfx.GFX_FW_TYPE_RS64_PFP_P1_STACK), "RS64_PFP_STACK", 0x2045, ()),
    ([gfx.GFX_FW_TYPE_RS64_ME], "RS64_ME", 0x2046, ()),
    ((gfx.GFX_FW_TYPE_RS64_ME_P0_STACK, gfx.GFX_FW_TYPE_RS64_ME_P1_STACK), "RS64_ME_STACK", 0x2047, ()),
    ([gfx.GFX_FW_TYPE_RS64_MEC], "RS64_MEC", 0x2048, ()),
    (range(gfx.GFX_FW_TYPE_RS64_MEC_P0_STACK, gfx.GFX_FW_TYPE_RS64_MEC_P3_STACK + 1), "RS64_MEC_STACK", 0x2049, ()),
    ([gfx.GFX_FW_TYPE_CP_MES], "CP_MES", 0x2007, ()),
    ([gfx.GFX_FW_TYPE_MES_STACK], "MES_STACK", 0x2008, ()),
    ([gfx.GFX_FW_TYPE_CP_MES_KIQ], "CP_MES_KIQ", 0x2042, (UNIFIED_MES,)),
    ([gfx.GFX_FW_TYPE_MES_KIQ_STACK], "MES_KIQ_STACK", 0x2043, (0x2008,)),
    ([gfx.GFX_FW_TYPE_RLC_G], "RLC_G", 0x2009, ()),
    ([gfx.GFX_FW_TYPE_RLC_V], "RLC_V", 0x200A, ()),
    ([gfx.GFX_FW_TYPE_RLC_P], "RLC_P", 0x200F, ()),
    ([gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_GPM_MEM], "RLC_RESTORE_LIST_GPM_MEM", 0x200B, ()),
    ([gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_MEM], "RLC_RESTORE_LIST_SRM_MEM", 0x200C, ()),
    ([gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_CNTL], "RLC_RESTORE_LIST_SRM_CNTL", 0x200D, ()),
    ([gfx.GFX_FW_TYPE_CP_MEC], "CP_MEC", 0x2004, ()),
    ([gfx.GFX_FW_TYPE_CP_MEC_ME1, gfx.GFX_FW_TYPE_CP_MEC_ME2], "CP_MEC_JT", 0x2005, ()),
    (SDMA_OF_DIE, "SDMA", 0x2025, ()),
    ([gfx.GFX_FW_TYPE_RLC_IRAM], "RLC_IRAM", 0x2016, ()),
    ([gfx.GFX_FW_TYPE_RLC_DRAM_BOOT], "RLC_DRAM_BOOT", 0x2017, ()),
) | {
    # from the power management's tables to those of the board's parts
    gfx.GFX_FW_TYPE_P2S_TABLE: Part("P2S_TABLE", 0x1D2, (SMU,)),
    gfx.GFX_FW_TYPE_SMU: Part("SMU", 0x1001, (SMU,)),
    gfx.GFX_FW_TYPE_IMU_I: Part("IMU_I", 0x203B, (IMU,)),
    gfx.GFX_FW_TYPE_IMU_D: Part("IMU_D", 0x203C, (IMU,)),
    gfx.GFX_FW_TYPE_REG_LIST: Part("REG_LIST", 0x135, (LIST,)),
    gfx.GFX_FW_TYPE_DMUB: Part("DMUB", 0x1005, (DISPLAY,)),
    gfx.GFX_FW_TYPE_VCN: Part("VCN", 0x2038, (VIDEO,)),
    gfx.GFX_FW_TYPE_VCN0_RAM: Part("VCN0_RAM", 0x2038, (VIDEO,)),
}
NAMES = {part.kind: part.name for part in (*FIRMWARE.values(), *BOOT.values(), TOC, APPLICATION)}
