"""The pieces of firmware files for the security processor: by `psp_gfx_fw_type`, boot-loader part or trusted
application.

Pieces are cut as amdgpu cuts them, to the byte: the security processor checks a signature over each. Source:
amdgpu_ucode.c, amdgpu_ucode_init_single_fw; amdgpu_psp.c, psp_get_fw_type and parse_sos_bin_descriptor; gfx_v11_0.c and
gfx_v12_0.c, init_microcode (how many pipes get a stack); gfx_v9_4_3.c; amdgpu_sdma.c, amdgpu_sdma_init_microcode;
smu_v13_0_6_ppt.c, smu_v13_0_6_init_microcode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.autogen.amd import psp, ucode
from ringup.errors import FirmwareError
from ringup.firmware.amd.image import PACKED, Image

Version = tuple[int, int, int]
AUX = "_aux"


@dataclass(frozen=True, slots=True)
class Part:
    """One piece to send. `ucode_id` is its place in the loading order (`AMDGPU_UCODE_ID_*`), 0 for what boots the
    PSP.
    """

    fw_type: int
    name: str
    data: bytes = field(repr=False)
    version: int
    ucode_id: int = 0


class Row(NamedTuple):
    """How a section is sent.

    `pipe` selects the engine's pipe that gets this copy. `without` is a section at its end that is cut off. `cores`:
    major versions of the graphics core that it is sent to; none: all.
    """

    ucode_id: int
    fw_type: int
    section: str = "code"
    pipe: int | None = None
    without: str = ""
    cores: tuple[int, ...] = ()


# Stacks loaded for each engine, by major version of the graphics core.
STACK_PIPES: dict[int, dict[str, int]] = {
    9: {},
    11: {"pfp": 2, "me": 2, "mec": 4},
    12: {"pfp": 1, "me": 1, "mec": 2},
}
RS64_PFP = (
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_PFP, psp.GFX_FW_TYPE_RS64_PFP),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_PFP_P0_STACK, psp.GFX_FW_TYPE_RS64_PFP_P0_STACK, "data", 0),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_PFP_P1_STACK, psp.GFX_FW_TYPE_RS64_PFP_P1_STACK, "data", 1),
)
RS64_ME = (
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_ME, psp.GFX_FW_TYPE_RS64_ME),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_ME_P0_STACK, psp.GFX_FW_TYPE_RS64_ME_P0_STACK, "data", 0),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_ME_P1_STACK, psp.GFX_FW_TYPE_RS64_ME_P1_STACK, "data", 1),
)
RS64_MEC = (
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_MEC, psp.GFX_FW_TYPE_RS64_MEC),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_MEC_P0_STACK, psp.GFX_FW_TYPE_RS64_MEC_P0_STACK, "data", 0),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_MEC_P1_STACK, psp.GFX_FW_TYPE_RS64_MEC_P1_STACK, "data", 1),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_MEC_P2_STACK, psp.GFX_FW_TYPE_RS64_MEC_P2_STACK, "data", 2),
    Row(ucode.AMDGPU_UCODE_ID_CP_RS64_MEC_P3_STACK, psp.GFX_FW_TYPE_RS64_MEC_P3_STACK, "data", 3),
)
SMU = (Row(ucode.AMDGPU_UCODE_ID_SMC, psp.GFX_FW_TYPE_SMU),)
RLC_G = (Row(ucode.AMDGPU_UCODE_ID_RLC_G, psp.GFX_FW_TYPE_RLC_G),)
RLC_2_1 = (
    Row(ucode.AMDGPU_UCODE_ID_RLC_RESTORE_LIST_CNTL, psp.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_CNTL, "restore_list_cntl"),
    Row(ucode.AMDGPU_UCODE_ID_RLC_RESTORE_LIST_GPM_MEM, psp.GFX_FW_TYPE_RLC_RESTORE_LIST_GPM_MEM, "restore_list_gpm"),
    Row(ucode.AMDGPU_UCODE_ID_RLC_RESTORE_LIST_SRM_MEM, psp.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_MEM, "restore_list_srm"),
    *RLC_G,
)
RLC_2_2 = (
    *RLC_2_1,
    Row(ucode.AMDGPU_UCODE_ID_RLC_IRAM, psp.GFX_FW_TYPE_RLC_IRAM, "iram"),
    Row(ucode.AMDGPU_UCODE_ID_RLC_DRAM, psp.GFX_FW_TYPE_RLC_DRAM_BOOT, "dram"),
)
RLC_2_3 = (
    *RLC_2_2,
    Row(ucode.AMDGPU_UCODE_ID_RLC_P, psp.GFX_FW_TYPE_RLC_P, "rlcp"),
    Row(ucode.AMDGPU_UCODE_ID_RLC_V, psp.GFX_FW_TYPE_RLC_V, "rlcv"),
)
# QUIRK: amdgpu ignores RLC_P and RLC_V of a 2.4 image, though its header describes them.
RLC_2_4 = (
    *RLC_2_2,
    Row(ucode.AMDGPU_UCODE_ID_GLOBAL_TAP_DELAYS, psp.GFX_FW_TYPE_GLOBAL_TAP_DELAYS, "global_tap_delays"),
    Row(ucode.AMDGPU_UCODE_ID_SE0_TAP_DELAYS, psp.GFX_FW_TYPE_SE0_TAP_DELAYS, "se0_tap_delays"),
    Row(ucode.AMDGPU_UCODE_ID_SE1_TAP_DELAYS, psp.GFX_FW_TYPE_SE1_TAP_DELAYS, "se1_tap_delays"),
    Row(ucode.AMDGPU_UCODE_ID_SE2_TAP_DELAYS, psp.GFX_FW_TYPE_SE2_TAP_DELAYS, "se2_tap_delays"),
    Row(ucode.AMDGPU_UCODE_ID_SE3_TAP_DELAYS, psp.GFX_FW_TYPE_SE3_TAP_DELAYS, "se3_tap_delays"),
)
SDMA_V1 = (
    Row(ucode.AMDGPU_UCODE_ID_SDMA0, psp.GFX_FW_TYPE_SDMA0),
    # a copy for each engine of an I/O die; all dies take the same ones
    Row(ucode.AMDGPU_UCODE_ID_SDMA1, psp.GFX_FW_TYPE_SDMA1, cores=(9,)),
    Row(ucode.AMDGPU_UCODE_ID_SDMA2, psp.GFX_FW_TYPE_SDMA2, cores=(9,)),
    Row(ucode.AMDGPU_UCODE_ID_SDMA3, psp.GFX_FW_TYPE_SDMA3, cores=(9,)),
)
# What a file serves as: header version: pieces.
ROWS: dict[str, dict[tuple[int, int], tuple[Row, ...]]] = {
    "pfp": {(1, 0): (Row(ucode.AMDGPU_UCODE_ID_CP_PFP, psp.GFX_FW_TYPE_CP_PFP),), (2, 0): RS64_PFP},
    "me": {(1, 0): (Row(ucode.AMDGPU_UCODE_ID_CP_ME, psp.GFX_FW_TYPE_CP_ME),), (2, 0): RS64_ME},
    "mec": {
        # The jump table is not sent if the RLC loads the engines: psp_load_non_psp_fw, fw_load_skip_check
        (1, 0): (
            Row(ucode.AMDGPU_UCODE_ID_CP_MEC1, psp.GFX_FW_TYPE_CP_MEC, without="jump_table"),
            Row(ucode.AMDGPU_UCODE_ID_CP_MEC1_JT, psp.GFX_FW_TYPE_CP_MEC_ME1, "jump_table", cores=(9,)),
        ),
        (2, 0): RS64_MEC,
    },
    "mes": {
        (1, 0): (
            Row(ucode.AMDGPU_UCODE_ID_CP_MES, psp.GFX_FW_TYPE_CP_MES),
            Row(ucode.AMDGPU_UCODE_ID_CP_MES_DATA, psp.GFX_FW_TYPE_MES_STACK, "data"),
        )
    },
    "mes_kiq": {
        (1, 0): (
            Row(ucode.AMDGPU_UCODE_ID_CP_MES1, psp.GFX_FW_TYPE_CP_MES_KIQ),
            Row(ucode.AMDGPU_UCODE_ID_CP_MES1_DATA, psp.GFX_FW_TYPE_MES_KIQ_STACK, "data"),
        )
    },
    "imu": {
        (1, 0): (
            Row(ucode.AMDGPU_UCODE_ID_IMU_I, psp.GFX_FW_TYPE_IMU_I, "iram"),
            Row(ucode.AMDGPU_UCODE_ID_IMU_D, psp.GFX_FW_TYPE_IMU_D, "dram"),
        )
    },
    "rlc": {(2, 0): RLC_G, (2, 1): RLC_2_1, (2, 2): RLC_2_2, (2, 3): RLC_2_3, (2, 4): RLC_2_4},
    "sdma": {
        (1, 0): SDMA_V1,
        (1, 1): SDMA_V1,
        (2, 0): (
            Row(ucode.AMDGPU_UCODE_ID_SDMA_UCODE_TH0, psp.GFX_FW_TYPE_SDMA_UCODE_TH0, "ctx"),
            Row(ucode.AMDGPU_UCODE_ID_SDMA_UCODE_TH1, psp.GFX_FW_TYPE_SDMA_UCODE_TH1, "ctl"),
        ),
        (3, 0): (Row(ucode.AMDGPU_UCODE_ID_SDMA_RS64, psp.GFX_FW_TYPE_SDMA_UCODE_TH0),),
    },
    "smu": {(1, 0): SMU, (2, 0): SMU, (2, 1): SMU},
    "vcn": {(1, 0): (Row(ucode.AMDGPU_UCODE_ID_VCN, psp.GFX_FW_TYPE_VCN),)},
}
# tables of a smu file for the security processor (P2S): of a card, and of one whose PCI device id ends in `P2S_VARIANT`
P2S_TABLE, P2S_TABLE_VARIANT, P2S_VARIANT = 0x5032_5358, 0x5032_5303, 0x5
REG_LIST = psp.GFX_FW_TYPE_REG_LIST  # it is in the PSP's own file, as its "rl" part


def ip_parts(image: Image, gc: Version, kind: str | None = None) -> list[Part]:
    """Cut a file into the pieces for `LOAD_IP_FW`, in loading order.

    `kind` is what the file serves as, by default its own kind. `gc` is the version of the card's graphics core, whose
    engines differ in pipes. A PSP image gives its register list, if any. Raises `FirmwareError` for a header version
    that no card with such a core loads.
    """
    kind = kind or image.kind
    if kind == "sos":
        rows: tuple[Row, ...] = (Row(0, REG_LIST, "rl"),)
    elif kind not in ROWS:
        raise ValueError(
            f"{image.name}: a {kind} file is not loaded through LOAD_IP_FW; those are {', '.join(ROWS)}, sos"
        )
    elif image.header_version not in ROWS[kind]:
        known = ", ".join(f"{major}.{minor}" for major, minor in ROWS[kind])
        major, minor = image.header_version
        raise FirmwareError(
            f"{image.name}: pieces of a {kind} image {major}.{minor} have no known types; known: {known}"
        )
    else:
        rows = ROWS[kind][image.header_version]
    if gc[0] not in STACK_PIPES:
        raise ValueError(f"graphics core {gc} does not have major version {', '.join(map(str, STACK_PIPES))}")
    pipes = STACK_PIPES[gc[0]].get(kind, 0)
    sent = [row for row in rows if (row.pipe is None or row.pipe < pipes) and (not row.cores or gc[0] in row.cores)]
    return load_order(part for row in sent for part in _part(image, row, kind))


def _part(image: Image, row: Row, kind: str) -> list[Part]:
    section = image.section(row.section)
    if section is None:
        return []
    data = image.data(section)
    less = image.section(row.without) if row.without else None
    if less is not None:
        data = data[: len(data) - less.size_bytes]
    version = image.version if section.version is None else section.version
    stem = kind if row.section == "code" else f"{kind}.{row.section}"
    return [Part(row.fw_type, stem if row.pipe is None else f"{stem}{row.pipe}", data, version, row.ucode_id)]


def p2s_table(image: Image, pci_device: int) -> Part | None:
    """Return a smu file's table for the security processor, which is sent before all else; None without one."""
    wanted = P2S_TABLE_VARIANT if pci_device & 0xF == P2S_VARIANT else P2S_TABLE
    for section in image.sections:
        if section.number == wanted:
            kind, place = psp.GFX_FW_TYPE_P2S_TABLE, ucode.AMDGPU_UCODE_ID_P2S_TABLE
            return Part(kind, "smu.p2s_table", image.data(section), image.version, place)
    return None


def load_order(parts: Iterable[Part]) -> list[Part]:
    """Sort pieces in amdgpu's sending order. The RLC's own code is the last piece of the graphics core and starts its
    autoload.
    """
    return sorted(parts, key=lambda part: part.ucode_id)


def boot_parts(image: Image, *, aux: bool = False) -> dict[int, Part]:
    """Return the parts for the PSP's boot loader, by `PSP_FW_TYPE_*`; `aux` selects the second set if an image has one.

    Raises `FirmwareError` if the secure OS or its system driver is missing: without them no card starts.
    """
    if image.kind != "sos":
        raise ValueError(f"{image.name} is a {image.kind} image; the boot loader takes parts of a sos image")
    second = aux and any(section.name.endswith(AUX) for section in image.sections)
    # such images take what the second set lacks from the first
    shared = image.header_version[0] == 1
    found = {}
    for number, name in PACKED["sos"].items():
        section = image.section(name + AUX) if second else None
        if section is None and (shared or not second):
            section = image.section(name)
        if section is not None:
            version = image.version if section.version is None else section.version
            found[number] = Part(number, section.name, image.data(section), version)
    for number in (ucode.PSP_FW_TYPE_PSP_SYS_DRV, ucode.PSP_FW_TYPE_PSP_SOS):
        if number not in found:
            raise FirmwareError(
                f"{image.name}: the image has no {PACKED['sos'][number]}; the security processor cannot boot"
            )
    return found


def trusted_applications(image: Image) -> dict[int, Part]:
    """Return the trusted applications of a `ta` image by `TA_FW_TYPE_*`, including the driver application ASD."""
    if image.kind != "ta":
        raise ValueError(f"{image.name} is a {image.kind} image; trusted applications come in ta images")
    numbers = {name: number for number, name in PACKED["ta"].items()}
    return {
        numbers[section.name]: Part(numbers[section.name], section.name, image.data(section), section.version or 0)
        for section in image.sections
        if section.name in numbers
    }
