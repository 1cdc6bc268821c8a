"""What differs by version of the power controller (SMU, MP1): messages and tables, which features it may run, how it
resets the card.

Source: amdgpu smu_v13_0_0_ppt.c (13.0.0, 13.0.10), smu_v13_0_7_ppt.c, smu_v14_0_2_ppt.c, their
get_allowed_feature_mask, set_power_profile_mode, mode1_reset and check_fw_status; smu_v13_0.c; soc21.c (which chips
gate ATHUB and MMHUB); smu_v13_0_6_ppt.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from ringup.drivers.amd.bus.registers import Version
from ringup.errors import NotSupported

ALL_FEATURES = (1 << 64) - 1
# the firmware would change the link's speed by load; hosts of some makers do not bear it, and amdgpu forbids it there,
# whatever the card: amdgpu_device_pcie_dynamic_switching_supported, PP_PCIE_DPM_MASK. The link stays as it was trained
LINK_FEATURES = ("DPM_LINK", "DS_LCLK")
# of smu_v14_0.c, smu_v14_0_deep_sleep_control, those that 14.0.2 has; the link's is never allowed here
DEEP_SLEEP_14 = "DS_GFXCLK DS_UCLK DS_FCLK DS_SOCCLK DS_VCN"
# smnMP1_FIRMWARE_FLAGS of mp_13_0_0_offset.h; smnMP1_FIRMWARE_FLAGS_SMU_13_0_7
FLAGS, FLAGS_SHIFTED = (
    0x3B10024,
    0x3B10028,
)
FEATURES_13_0_7 = (  # smu_v13_0_7_ppt.c names what it allows, the others what they forbid
    "FW_DATA_READ DPM_GFXCLK GFX_IMU DPM_GFX_POWER_OPTIMIZER GFXOFF DPM_UCLK DPM_FCLK VMEMP_SCALING VDDIO_MEM_SCALING DPM_SOCCLK "
    "DS_GFXCLK GFX_ULV DPM_MP0CLK MM_DPM DS_VCN DS_FCLK DF_CSTATE THROTTLERS VR0HOT FW_CTF FAN_CONTROL DS_SOCCLK "
    "GFXCLK_SPREAD_SPECTRUM MEM_TEMP_READ FW_DSTATE SOC_MPCLK_DS BACO_MPCLK_DS GFX_PCC_DFLL SOC_CG BACO DPM_DCN ATHUB_MMHUB_PG"
)


@dataclass(frozen=True, slots=True)
class SmuRow:
    """One version.

    `facts`: the module of its messages and tables. `interface`: the driver interface these tables are of. `allowed`:
    names of the only features allowed; empty: all but `forbidden`. `gfxoff_since`: the firmware that may switch the
    graphics core off. `writes_power_table`: the driver hands the table with the board's part back. `mode1_debug`: the
    reset goes through the second mailbox; `mode1_message`: its name and argument; `mode1_since`: the firmware that
    knows it; `mode1_us`: how long the card stays away. `mode2`: the argument of `GfxDriverReset` that resets the
    engines alone, 0 where there is no such reset; `mode2_us`: how long that takes. `no_display`: the firmware is told
    that nobody drives displays. `told_of_mains`: it is told what the card is fed by. `power_saving_since`: firmware
    that computes better with both workload hints, a single version or
    all from the last one on. `awake_to_compute`: features that are off while the workload hint is `compute`: clocks do
    not sleep between two pieces of work. `accelerator`: the firmware has its tables and limits for itself, see
    `accelerator.AcceleratorSmu`. `metrics`: the table of them. `throttlers`: the feature that limits power.
    `watches_die`: whether the driver sets the thermal monitor's thresholds.
    """

    facts: str
    interface: int
    flags: int = FLAGS
    allowed: str = ""
    forbidden: str = ""
    gfxoff_since: int = 0
    writes_power_table: bool = True
    mode1_debug: bool = False
    mode1_message: tuple[str, int] = ("Mode1Reset", 0)
    mode1_since: int = 0
    mode1_us: int = 500_000
    mode2: int = 0
    mode2_us: int = 200_000
    no_display: bool = False
    told_of_mains: bool = True
    power_saving_since: tuple[int, ...] = ()
    awake_to_compute: str = ""
    accelerator: bool = False
    metrics: str = "SmuMetricsExternal_t"
    throttlers: str = "THROTTLERS"
    watches_die: bool = True

    @property
    def module(self) -> ModuleType:
        """Messages and tables."""
        return import_module(f"ringup.autogen.amd.{self.facts}")

    def features(self, firmware: int) -> int:
        """Return the mask of features that the firmware of version `firmware` may run."""
        mask = self._bits(self.allowed.split()) if self.allowed else ALL_FEATURES
        forbidden = [*LINK_FEATURES, *self.forbidden.split(), *(["GFXOFF"] if firmware < self.gfxoff_since else [])]
        return mask & ~self._bits(forbidden)

    @property
    def sleeps(self) -> int:
        """The mask of the features that are off while the workload hint is `compute`."""
        return self._bits(self.awake_to_compute.split())

    def _bits(self, names: Sequence[str]) -> int:
        return sum(1 << self.feature_bit(name) for name in names)

    def feature_bit(self, name: str) -> int:
        """Return the bit of a feature in the masks; headers name it with or without `_BIT`."""
        module = self.module
        return int(getattr(module, f"FEATURE_{name}" if self.accelerator else f"FEATURE_{name}_BIT"))


# QUIRK: 14.0.2 and 14.0.3 are not told of mains. Source: Linux commit 76c7f0809476, "skip setting the power source on
# smu v14.0.2/3"
V14 = SmuRow(
    "smu_v14_0_2",
    0x2E,
    writes_power_table=False,
    mode1_debug=True,
    mode1_us=1_000_000,
    told_of_mains=False,
    awake_to_compute=DEEP_SLEEP_14,
)
ROWS: dict[Version, SmuRow] = {
    (13, 0, 0): SmuRow(
        "smu_v13_0_0",
        0x3D,
        gfxoff_since=0x004E_3A00,
        mode1_since=0x004E_2900,
        no_display=True,
        power_saving_since=(0x004E_6601, 0x004E_7300),
    ),
    (13, 0, 6): SmuRow(
        "smu_v13_0_6",
        0x0804_2024,
        # smu_v13_0_6_ppt.c, smnMP1_FIRMWARE_FLAGS
        flags=FLAGS_SHIFTED,
        writes_power_table=False,
        # amdgpu_smu.h, SMU_RESET_MODE_1 and _2
        mode1_message=("GfxDriverReset", 1),
        mode2=2,
        told_of_mains=False,
        accelerator=True,
        metrics="MetricsTableX_t",
        throttlers="PPT",
        watches_die=False,
    ),
    (13, 0, 7): SmuRow("smu_v13_0_7", 0x35, flags=FLAGS_SHIFTED, allowed=FEATURES_13_0_7),
    (13, 0, 10): SmuRow(
        "smu_v13_0_0",
        0x3D,
        forbidden="ATHUB_MMHUB_PG",
        gfxoff_since=0x004E_3A00,
        mode1_debug=True,
        mode1_since=0x004E_2900,
        no_display=True,
        power_saving_since=(0x0050_4500,),
    ),
    (14, 0, 2): V14,
    (14, 0, 3): V14,
}


def row(version: Version) -> SmuRow:
    """Return the row of a version of MP1. Raises `NotSupported` for another."""
    if version not in ROWS:
        known = ", ".join(".".join(map(str, one)) for one in ROWS)
        raise NotSupported(f"the power controller is version {'.'.join(map(str, version))}; known are {known}")
    return ROWS[version]
