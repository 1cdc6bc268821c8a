"""The possible contents of an amdgpu firmware file: by kind and header version, its header and its sections.

Source: amdgpu_ucode.h (headers); amdgpu_ucode.c, amdgpu_ucode_init_single_fw, amdgpu_rlc.c and amdgpu_psp.c (section
offsets).
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.amd import ucode
from ringup.autogen.amd.ucode import rlc_firmware_header_v2_2
from ringup.autogen.structs import Struct

FILE, CODE = "", "header.ucode_array_offset_bytes"  # the base of a section's offset


class Cut(NamedTuple):
    """The location of one section.

    `at` and `size` are header fields, counted in `unit` bytes; `base` is FILE, CODE or an earlier section. A section
    without `at` begins where its base does, or after it (`behind`). An `inside` section is part of another one, such as
    a jump table at the end of its code.
    """

    name: str
    at: str | None
    size: str
    base: str = FILE
    unit: int = 1
    inside: bool = False
    behind: bool = False
    version: str | None = None


class Container(NamedTuple):
    """One header version: its struct, its sections, and the list of packed parts if it has one."""

    header: type[Struct]
    cuts: tuple[Cut, ...]
    # The field that counts the packed parts, whose descriptions follow the header.
    packed: str = ""
    tables: bool = False  # soft power tables, listed by `pptable_count` and `pptable_entry_offset`


class rlc_firmware_header_v2_5(Struct):
    """The RLC's header since a second core is loaded in addition to the first.

    Source: amdgpu_ucode.h of kernels newer than 6.12.
    """

    SIZE, ALIGN = 188, 4
    LAYOUT = (
        "v2_2:rlc_firmware_header_v2_2@0 rlc_1_iram_ucode_size_bytes:u32@172 rlc_1_iram_ucode_offset_bytes:u32@176 "
        "rlc_1_dram_ucode_size_bytes:u32@180 rlc_1_dram_ucode_offset_bytes:u32@184"
    )
    v2_2: rlc_firmware_header_v2_2
    rlc_1_iram_ucode_size_bytes: int
    rlc_1_iram_ucode_offset_bytes: int
    rlc_1_dram_ucode_size_bytes: int
    rlc_1_dram_ucode_offset_bytes: int


def _placed(name: str, stem: str, version: str | None = None) -> Cut:
    """Return a section whose header has `<stem>offset_bytes` and `<stem>size_bytes`, counted from the file's start."""
    return Cut(name, f"{stem}offset_bytes", f"{stem}size_bytes", version=version)


def _packed(name: str) -> Cut:
    """Return a part of a PSP image that its own descriptor locates relative to the code's start."""
    return Cut(name, f"{name}.offset_bytes", f"{name}.size_bytes", CODE, version=f"{name}.fw_version")


WHOLE = (Cut("code", None, "header.ucode_size_bytes", CODE),)
JUMPS = Cut("jump_table", "jt_offset", "jt_size", CODE, unit=4, inside=True)
RS64 = (Cut("code", None, "ucode_size_bytes", CODE), _placed("data", "data_"))
MES = (
    _placed("code", "mes_ucode_", "mes_ucode_version"),
    _placed("data", "mes_ucode_data_", "mes_ucode_data_version"),
)
IMU = (
    Cut("iram", None, "imu_iram_ucode_size_bytes", CODE),
    Cut("dram", None, "imu_dram_ucode_size_bytes", "iram", behind=True),
)
SDMA_V2 = (
    Cut("ctx", None, "ctx_ucode_size_bytes", CODE),
    Cut("ctl", "ctl_ucode_offset", "ctl_ucode_size_bytes"),
    Cut("ctx_jump_table", "ctx_jt_offset", "ctx_jt_size", CODE, unit=4, inside=True),
    Cut("ctl_jump_table", "ctl_jt_offset", "ctl_jt_size", "ctl", unit=4, inside=True),
)
RLC_V2_0 = (
    *WHOLE,
    Cut("reg_list_format", "reg_list_format_array_offset_bytes", "reg_list_format_size_bytes"),
    Cut("reg_list", "reg_list_array_offset_bytes", "reg_list_size_bytes"),
)
RLC_V2_1 = (
    *RLC_V2_0,
    _placed("restore_list_cntl", "save_restore_list_cntl_", "save_restore_list_cntl_ucode_ver"),
    _placed("restore_list_gpm", "save_restore_list_gpm_", "save_restore_list_gpm_ucode_ver"),
    _placed("restore_list_srm", "save_restore_list_srm_", "save_restore_list_srm_ucode_ver"),
)
RLC_V2_2 = (*RLC_V2_1, _placed("iram", "rlc_iram_ucode_"), _placed("dram", "rlc_dram_ucode_"))
RLC_V2_3 = (
    *RLC_V2_2,
    _placed("rlcp", "rlcp_ucode_", "rlcp_ucode_version"),
    _placed("rlcv", "rlcv_ucode_", "rlcv_ucode_version"),
)
TAP_DELAYS = ("global_tap_delays", "se0_tap_delays", "se1_tap_delays", "se2_tap_delays", "se3_tap_delays")
RLC_V2_4 = (*RLC_V2_3, *(_placed(name, f"{name}_ucode_") for name in TAP_DELAYS))
RLC_V2_5 = (*RLC_V2_2, _placed("iram_1", "rlc_1_iram_ucode_"), _placed("dram_1", "rlc_1_dram_ucode_"))
SOS_V1_0 = (
    Cut("sys_drv", None, "sos.offset_bytes", CODE),  # it precedes the secure OS
    _packed("sos"),
)
SOS_V1_1 = (*SOS_V1_0, _packed("toc"), _packed("kdb"))
SOS_V1_3 = (*SOS_V1_1, _packed("spl"), _packed("rl"), _packed("sys_drv_aux"), _packed("sos_aux"))
TA_V1_0 = (
    Cut("xgmi", None, "xgmi.size_bytes", CODE, version="xgmi.fw_version"),
    Cut("ras", "ras.offset_bytes", "ras.size_bytes", CODE, version="ras.fw_version"),
    Cut("hdcp", None, "hdcp.size_bytes", CODE, version="hdcp.fw_version"),
    Cut("dtm", "dtm.offset_bytes", "dtm.size_bytes", CODE, version="dtm.fw_version"),
    Cut(
        "securedisplay",
        "securedisplay.offset_bytes",
        "securedisplay.size_bytes",
        CODE,
        version="securedisplay.fw_version",
    ),
)

COMMON = {(1, 0): Container(ucode.common_firmware_header, WHOLE)}
CP = {
    (1, 0): Container(ucode.gfx_firmware_header_v1_0, (*WHOLE, JUMPS)),
    (2, 0): Container(ucode.gfx_firmware_header_v2_0, RS64),
}
# Kind: header version: container.
CONTAINERS = {
    "pfp": CP,
    "me": CP,
    "ce": CP,
    "mec": CP,
    "mec2": CP,
    "mes": {(1, 0): Container(ucode.mes_firmware_header_v1_0, MES)},
    "imu": {(1, 0): Container(ucode.imu_firmware_header_v1_0, IMU)},
    "rlc": {
        (1, 0): Container(ucode.rlc_firmware_header_v1_0, WHOLE),
        (2, 0): Container(ucode.rlc_firmware_header_v2_0, RLC_V2_0),
        (2, 1): Container(ucode.rlc_firmware_header_v2_1, RLC_V2_1),
        (2, 2): Container(ucode.rlc_firmware_header_v2_2, RLC_V2_2),
        (2, 3): Container(ucode.rlc_firmware_header_v2_3, RLC_V2_3),
        (2, 4): Container(ucode.rlc_firmware_header_v2_4, RLC_V2_4),
        (2, 5): Container(rlc_firmware_header_v2_5, RLC_V2_5),
    },
    "sdma": {
        (1, 0): Container(ucode.sdma_firmware_header_v1_0, (*WHOLE, JUMPS)),
        (1, 1): Container(ucode.sdma_firmware_header_v1_1, (*WHOLE, JUMPS)),
        (2, 0): Container(ucode.sdma_firmware_header_v2_0, SDMA_V2),
        (3, 0): Container(ucode.sdma_firmware_header_v3_0, (Cut("code", None, "ucode_size_bytes", CODE),)),
    },
    "smu": {
        (1, 0): Container(ucode.smc_firmware_header_v1_0, WHOLE),
        (2, 0): Container(ucode.smc_firmware_header_v2_0, (*WHOLE, _placed("pptable", "ppt_"))),
        (2, 1): Container(ucode.smc_firmware_header_v2_1, WHOLE, tables=True),
    },
    "sos": {
        (1, 0): Container(ucode.psp_firmware_header_v1_0, SOS_V1_0),
        (1, 1): Container(ucode.psp_firmware_header_v1_1, SOS_V1_1),
        (1, 2): Container(ucode.psp_firmware_header_v1_2, (*SOS_V1_0, _packed("kdb"))),
        (1, 3): Container(ucode.psp_firmware_header_v1_3, SOS_V1_3),
        (2, 0): Container(ucode.psp_firmware_header_v2_0, (), "psp_fw_bin_count"),
        (2, 1): Container(ucode.psp_firmware_header_v2_1, (), "psp_fw_bin_count"),
    },
    "ta": {
        (1, 0): Container(ucode.ta_firmware_header_v1_0, TA_V1_0),
        (2, 0): Container(ucode.ta_firmware_header_v2_0, (), "ta_fw_bin_count"),
    },
    "toc": {
        (1, 0): Container(ucode.psp_firmware_header_v1_0, WHOLE),
    },
    "asd": {
        (1, 0): Container(ucode.psp_firmware_header_v1_0, WHOLE),
        (1, 1): Container(ucode.psp_firmware_header_v1_1, WHOLE),
    },
    "vpe": {
        (1, 0): Container(
            ucode.vpe_firmware_header_v1_0,
            (Cut("ctx", None, "ctx_ucode_size_bytes", CODE), Cut("ctl", "ctl_ucode_offset", "ctl_ucode_size_bytes")),
        )
    },
    "umsch": {
        (1, 0): Container(
            ucode.umsch_mm_firmware_header_v1_0,
            (Cut("code", None, "umsch_mm_ucode_size_bytes", CODE), _placed("data", "umsch_mm_ucode_data_")),
        )
    },
    "dmcu": {
        (1, 0): Container(
            ucode.dmcu_firmware_header_v1_0,
            (*WHOLE, Cut("intv", "intv_offset_bytes", "intv_size_bytes", CODE, inside=True)),
        )
    },
    "dmcub": {(1, 0): Container(ucode.dmcub_firmware_header_v1_0, (Cut("code", None, "inst_const_bytes", CODE),))},
    "mc": {
        (1, 0): Container(
            ucode.mc_firmware_header_v1_0,
            (*WHOLE, Cut("io_debug", "io_debug_array_offset_bytes", "io_debug_size_bytes")),
        )
    },
    "gpu_info": {(1, 0): Container(ucode.gpu_info_firmware_header_v1_0, WHOLE)},
    "vcn": COMMON,
    "uvd": COMMON,
    "vce": COMMON,
    "isp": COMMON,
    "cap": COMMON,
}
# Part of a file name, between underscores and without trailing digits: kind.
KIND_OF = {
    "smc": "smu",
    "umsch_mm": "umsch",
    "uni_mes": "mes",
    **{kind: kind for kind in CONTAINERS},
}
