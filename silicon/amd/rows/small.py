"""Small blocks: host data path, interrupt handler, SMUIO, thermal monitor.

Sources: amdgpu hdp_v4_0.c, hdp_v6_0.c, vega20_ih.c, ih_v6_0.c, smuio_v13_0_6.c, smu_v13_0.c.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

HDP = (
    inert(
        "HDP_CLK_CNTL HDP_MEM_POWER_CTRL",
        "clock gating and sleeping memory: affects power only",
        "hdp_v6_0.c, update_clock_gating",
    ),
)
HDP_4 = (
    inert(
        "HDP_MISC_CNTL HDP_NONSURFACE_BASE HDP_NONSURFACE_BASE_HI", "caching and place of the data path's memory: all of VRAM here",
        "hdp_v4_0.c, init_registers",
    ),
)  # fmt: skip
OSSSYS = (
    behaviour("IH_VMID_LUT_INDEX", "board/ih.py: the node whose process ids are accessed"),
    inert(
        "IH_RETRY_INT_CAM_CNTL IH_DOORBELL_RETRY_CAM", "repeated page faults, which the model does not raise", "vega20_ih.c, irq_init",
    ),
    behaviour(
        "IH_RB_CNTL IH_RB_BASE IH_RB_BASE_HI IH_RB_RPTR IH_RB_WPTR IH_RB_WPTR_ADDR_LO IH_RB_WPTR_ADDR_HI"
        " IH_DOORBELL_RPTR IH_RB_BASE_RING1 IH_RB_BASE_HI_RING1 IH_RB_RPTR_RING1 IH_RB_WPTR_RING1 IH_DOORBELL_RPTR_RING1",
        "board/ih.py: the two rings",
    ),
    # the header omits WPTR_WRITEBACK_ENABLE of ring 1; amdgpu sets it as for ring 0: ih_v6_0.c, rb_cntl
    behaviour("IH_RB_CNTL_RING1", "board/ih.py: the second ring", spare=0x100),
    behaviour("IH_VMID_#_LUT IH_VMID_#_LUT_MM", "board/ih.py: process ids of VMIDs, written into entries"),
    behaviour("IH_RING1_CLIENT_CFG_INDEX IH_RING1_CLIENT_CFG_DATA", "board/ih.py: which sources ring 1 takes"),
    behaviour("IH_STATUS", "board/ih.py: idle, full, overflow", read_only=ALL),
    inert(
        "IH_CLK_CTRL IH_MEM_POWER_CTRL", "clock gating and sleeping memory: affects power only",
        "ih_v6_0.c, update_clockgating_state",
    ),
    inert(
        "IH_CNTL2 IH_STORM_CLIENT_LIST_CNTL IH_INT_FLOOD_CNTL IH_MSI_STORM_CTRL",
        "limits on interrupt storms, which do not occur here", "ih_v6_0.c, irq_init",
    ),
    unmodelled("IH_CHICKEN", "forces rings into the bus's address space"),
    unmodelled("IH_PERFMON_CNTL", "performance counters", starts=("ENABLE0", "ENABLE1")),
)  # fmt: skip
SMUIO = (
    behaviour("ROM_INDEX", "board/smuio.py: address of the window to the flash"),
    behaviour("ROM_DATA", "board/smuio.py: the flash", read_only=ALL),
    behaviour("GOLDEN_TSC_COUNT_UPPER GOLDEN_TSC_COUNT_LOWER", "board/smuio.py: the golden time stamp", read_only=ALL),
    behaviour("SMUIO_MCM_CONFIG", "a constant: one package, die 0", read_only=ALL),
    behaviour("IP_DISCOVERY_VERSION", "a constant: 0, the first layout", read_only=ALL),
    inert("SCRATCH_REGISTER#", "32 bits for firmware", "smuio_13_0_6_offset.h: named, used by no driver"),
)
THM = (
    behaviour("THM_TCON_CUR_TMP CG_MULT_THERMAL_STATUS", "smu/thm.py: the temperature", read_only=ALL),
    behaviour("THM_THERMAL_INT_ENA THM_THERMAL_INT_CTRL", "smu/thm.py: thresholds and their interrupts"),
    unmodelled("CG_FDO_CTRL# CG_TACH_CTRL CG_TACH_STATUS", "the fan, by register; the model has its SMU messages"),
)
