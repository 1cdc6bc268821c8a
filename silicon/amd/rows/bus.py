"""The bus interface (NBIO) and the mailboxes of the security processor and the SMU (MP).

Sources: amdgpu nbio_v4_3.c, nbio_v7_9.c, nbif_v6_3_1.c, amdgpu_device.c, psp_v13_0.c, psp_v14_0.c, smu_v13_0.c;
nbio_2_3_default.h for two values after reset.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

# ATOM_S7_ASIC_INIT_COMPLETE_MASK of atombios.h: the card has been posted
ASIC_INIT_COMPLETE = 0x200
FLUSH_MEM, FLUSH_REG = 0x385C, 0x3858  # the flush registers themselves
STRAPS = "board/nbio.py: the chip's identity and size"

_BUS = (
    behaviour("RCC_STRAP0_RCC_DEV0_EPF0_STRAP0 RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", STRAPS, read_only=ALL),
    behaviour(
        "RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER", "board/nbio.py: a physical function, virtualisation off", read_only=ALL,
    ),
    behaviour("RCC_DEV0_0_RCC_CONFIG_APER_SIZE RCC_DEV0_0_RCC_CONFIG_REG_APER_SIZE", STRAPS, read_only=ALL),
    behaviour("BIF_BX0_BIF_FB_EN", "board/apertures.py: reads and writes of BAR 0 are enabled", reset=3),
    behaviour(
        "BIF_BX_PF0_MM_INDEX BIF_BX_PF0_MM_INDEX_HI BIF_BX_PF0_MM_DATA", "board/nbio.py: a window to registers and VRAM",
    ),
    behaviour(
        "BIF_BX_PF0_RSMU_INDEX BIF_BX_PF0_RSMU_INDEX_HI BIF_BX_PF0_RSMU_DATA BIF_BX0_PCIE_INDEX BIF_BX0_PCIE_INDEX_HI"
        " BIF_BX0_PCIE_DATA BIF_BX0_PCIE_INDEX2 BIF_BX0_PCIE_INDEX2_HI BIF_BX0_PCIE_DATA2",
        "board/nbio.py: windows to every register",
    ),
    behaviour(
        "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL BIF_BX_PF0_HDP_REG_COHERENCY_FLUSH_CNTL"
        " BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_ONLY_CNTL BIF_BX_PF0_GPU_HDP_FLUSH_REQ",
        "board/nbio.py: flushes of the host data path",
    ),
    behaviour("BIF_BX_PF0_GPU_HDP_FLUSH_DONE", "board/nbio.py: engines whose flush is done", read_only=ALL),
    behaviour("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", "board/nbio.py: a second address of the flush register", reset=FLUSH_MEM),
    behaviour("BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL", "board/nbio.py: the same", reset=FLUSH_REG),
    behaviour("BIF_BX_PF0_BIF_BME_STATUS", "board/nbio.py: an engine tried DMA while bus mastering was off", read_only=1),
    behaviour("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", "board/nbio.py: doorbells are on"),
    behaviour("BIF_BX0_BIOS_SCRATCH_7", "board/nbio.py: the card's own firmware has posted it", reset=ASIC_INIT_COMPLETE),
    inert(
        "BIF_BX0_BIOS_SCRATCH_# BIF_BX0_SBIOS_SCRATCH_# BIF_BX0_DRIVER_SCRATCH_# BIF_BX0_FW_SCRATCH_#",
        "32 bits through which VBIOS, firmware and drivers pass notes", "amdgpu_atombios.c, scratch registers",
    ),
    inert(
        "BIF_BX0_INTERRUPT_CNTL BIF_BX0_INTERRUPT_CNTL2",
        "a dummy read before each legacy interrupt", "nbio_v4_3.c, ih_control",
    ),
    inert(
        "BIF_BX0_BIF_DOORBELL_INT_CNTL", "interrupts of memory errors, of which the card has none",
        "nbio_v4_3.c, handle_ras_*",
    ),
    inert(
        "RCC_DEV0_EPF2_STRAP2", "whether the USB function keeps its state in D3; the model of it has only configuration space",
        "nbio_v4_3.c, init_registers",
    ),
    unmodelled(
        "BIF_BX_PF0_DOORBELL_SELFRING_GPA_APER_*", "doorbells that the card rings by writing to host memory",
    ),
    unmodelled("BIF_BX0_GFX_MMIOREG_CAM_CNTL", "registers mapped to other addresses", starts=("CAM_ENABLE",)),
    unmodelled("BIF_BX0_BIF_RB_CNTL", "the bus interface's own interrupt ring", starts=("RB_ENABLE",)),
    unmodelled("BIF_BX0_BIF_MM_INDACCESS_CNTL", "disabling the windows to registers", starts=("MM_INDACCESS_DIS",)),
)  # fmt: skip

_ROUTES = behaviour("S2A_DOORBELL_ENTRY_#_CTRL", "board/nbio.py, board/chips.py: where doorbells lead")
_GATING = inert(
    "CPM_CONTROL PCIE_CNTL2", "clock gating: affects power only", "nbio_v4_3.c, update_medium_grain_clock_gating"
)
_CHIPLETS = (
    behaviour("DOORBELL0_CTRL_ENTRY_#", "board/nbio.py, board/chips.py: where doorbells lead, with several dies"),
    behaviour("BIF_BX_PF0_PARTITION_MEM_STATUS BIF_BX_PF0_PARTITION_MEM_CAP", "board/nbio.py: memory is one partition", read_only=ALL),
    behaviour("BIF_BX_PF0_PARTITION_COMPUTE_STATUS", "card.py: how the graphics cores are partitioned", read_only=ALL),
    inert(
        "BIFC_DOORBELL_ACCESS_EN_PF BIFC_GFX_INT_MONITOR_MASK XCC_DOORBELL_FENCE", "order and reach of doorbells, which all arrive here",
        "nbio_v7_9.c, enable_doorbell_aperture, init_registers",
    ),
)  # fmt: skip
NBIO = (*_BUS, *_CHIPLETS, _ROUTES, _GATING)
# since 6.3 the registers of the link are a block of their own
NBIF = (*_BUS, _ROUTES.with_prefix("", "GDC_S2A0_"))
PCIE = (
    _GATING,
    inert(
        "PCIE_LC_CNTL PCIE_LC_CNTL# PCIE_LC_RXRECOVER_RXSTANDBY_CNTL",
        "low-power states of the link, which affect power only", "nbif_v6_3_1.c, program_aspm",
    ),
)  # fmt: skip

_MP0 = (
    behaviour("C2PMSG_35 C2PMSG_36", "psp/processor.py: the boot loader's command and image"),
    behaviour("C2PMSG_33 C2PMSG_58 C2PMSG_81", "psp/processor.py: ready, version, alive", read_only=ALL),
    behaviour("C2PMSG_64 C2PMSG_67 C2PMSG_69 C2PMSG_70 C2PMSG_71", "psp/processor.py: the ring"),
)
MP = (
    *(row.with_prefix("", "MP0_SMN_") for row in _MP0),
    # in 14.0
    *(row.with_prefix("", "MPASP_SMN_") for row in _MP0),
    behaviour("MP1_SMN_C2PMSG_66 MP1_SMN_C2PMSG_82 MP1_SMN_C2PMSG_90", "smu/controller.py: message, argument, answer"),
    behaviour("MP1_SMN_C2PMSG_53 MP1_SMN_C2PMSG_54 MP1_SMN_C2PMSG_75", "smu/controller.py: the same, for debugging"),
    behaviour("MP1_FIRMWARE_FLAGS MP1_CRU1_MP1_FIRMWARE_FLAGS", "smu/controller.py: the SMU runs", read_only=ALL),
    inert(
        "MP1_SMN_IH_SW_INT MP1_SMN_IH_SW_INT_CTRL",
        "interrupts from the SMU to the driver, which the model never raises", "smu_v13_0.c, set_irq_state",
    ),
)  # fmt: skip
