"""The run-list controller and the power management of the graphics core.

Sources: amdgpu gfx_v11_0.c (rlc_*, update_*_clock_gating), imu_v11_0.c, psp_gfx_if.h.
"""

from __future__ import annotations

from ringup.silicon.common.rows import ALL, behaviour, inert, unmodelled

GATING = "gfx_v11_0.c, update_gfx_clock_gating"

ROWS = (
    behaviour("RLC_RLCS_BOOTLOAD_STATUS", "gc/rlc.py: progress of the boot", read_only=ALL),
    behaviour("RLC_CNTL", "gc/rlc.py: the controller runs after the boot"),
    behaviour("RLC_SAFE_MODE", "gc/rlc.py: its message is acknowledged"),
    behaviour("RLC_GPM_STAT RLC_STAT", "gc/rlc.py: power and clock are on", read_only=ALL),
    behaviour("RLC_CP_SCHEDULERS", "gc/cp/processor.py: which queues are the kernel's", reset=0x3038),
    behaviour("RLC_CAPTURE_GPU_CLOCK_COUNT RLC_CAPTURE_GPU_CLOCK_COUNT_#", "gc/grbm.py: the counters latch"),
    behaviour("RLC_GPU_CLOCK_COUNT_LSB* RLC_GPU_CLOCK_COUNT_MSB*", "gc/grbm.py: the latched counters", read_only=ALL),
    inert(
        "RLC_CGCG_CGLS_CTRL RLC_CGCG_CGLS_CTRL_3D RLC_CGTT_MGCG_OVERRIDE RLC_MGCG_CTRL RLC_MEM_SLP_CNTL",
        "clock gating: affects power only", GATING,
    ),
    inert(
        "RLC_CSIB_ADDR_LO RLC_CSIB_ADDR_HI RLC_CSIB_LENGTH RLC_SRM_CNTL",
        "state restored after the core was powered off, which never happens here", "gfx_v11_0.c, init_csb, rlc_enable_srm",
    ),
    inert(
        "RLC_SPM_MC_CNTL", "the VMID of streamed counters, which the model lacks",
        "gfx_v11_0.c, update_spm_vmid",
    ),
    inert(
        "RLC_PG_CNTL", "power gating is refused; the other bits control its handshake with the SMU",
        "gfx_v11_0.c, rlc_smu_handshake_cntl",
        starts=(
            "GFX_POWER_GATING_ENABLE", "DYN_PER_WGP_PG_ENABLE", "STATIC_PER_WGP_PG_ENABLE", "GFX_PIPELINE_PG_ENABLE",
        ),
    ),
    unmodelled("RLC_AUTO_PG_CTRL", "automatic power gating", starts=("AUTO_PG_EN",)),
    unmodelled("RLC_DYN_PG_REQUEST RLC_SRM_GPM_COMMAND", "power gating and its saved state", starts=("*",)),
    behaviour(
        "RLC_GPM_UCODE_DATA RLC_PACE_UCODE_DATA RLC_GPU_IOV_UCODE_DATA GFX_IMU_I_RAM_DATA GFX_IMU_D_RAM_DATA"
        " GFX_IMU_RLC_BOOTLOADER_SIZE",
        "gc/direct_load.py: firmware without the PSP is refused",
    ),
    unmodelled("RLC_*IRAM_DATA RLC_*DRAM_DATA", "firmware stored by register", starts=("*",)),
    unmodelled("RLC_GPU_IOV_VF_ENABLE", "virtual functions", starts=("VF_ENABLE",)),
    unmodelled("GFX_IMU_*", "the unit that boots the core; here the PSP's autoload boots it"),
    unmodelled("RLC_*", "registers of the controller's firmware, which the model does not run"),
)  # fmt: skip
