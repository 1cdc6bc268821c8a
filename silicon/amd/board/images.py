"""Firmware files of a virtual card, in the kernel's containers: laid out as the chip's real files, with random bytes
instead of code.

The virtual cards' own key (`psp_signing`) signs them, so real cards refuse them; nothing executes them. They give a
driver's parser and the model's PSP what real files have: headers, offsets, signed parts, space for stacks. Source:
amdgpu_ucode.h (headers); Debian's firmware-amd-graphics 20250410 (header versions, order and kinds of the parts, start
addresses, which bytes `crc32` covers: all after the common header).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256, shake_128
from typing import Any

from ringup.autogen.amd import discovery as facts
from ringup.autogen.amd import ucode
from ringup.autogen.structs import memory
from ringup.silicon.amd.board import discovery
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.psp import images as psp_images
from ringup.silicon.amd.psp import parts as psp_parts
from ringup.silicon.amd.psp import signing as psp_signing

# union amdgpu_firmware_header, or a multiple where that is too short; the parts follow it
HEADER_ROOM_BYTES = 0x100
# low and high dword, of the micro engines
CODE_START = (0x3000, 0x7_0000)
MES_CODE_START, MES_DATA_START = (0xF000_5000, 0xFFFF_FFFF), (0xF010_0000, 0xFFFF_FFFF)
OTHERS = (psp_parts.TOC, psp_parts.APPLICATION)
# path of the common header in most headers
IP_PATH = "header"


@dataclass(frozen=True, slots=True)
class Part:
    """One image inside a file. `kind`: the type word of its header; `room_bytes`: zeros after it, sent along; `marked`:
    its header has a magic; `version`: of its own, where it is not the file's.
    """

    kind: int
    body_bytes: int = 0x400
    room_bytes: int = 0
    marked: bool = True
    version: int = 0

    def build(self, name: str, version: int) -> bytes:
        """Return the bytes that are sent to the PSP."""
        kind = self.kind & 0xFFFF
        stated = self.kind >> 24 & psp_images.DIGEST_STATED
        body = shake_128(name.encode()).digest(self.body_bytes)
        if kind == psp_parts.KEY_DATABASE.kind:
            body = psp_signing.database(psp_parts.USAGES)
        head = bytearray(psp_images.HEADER_BYTES)
        size = len(head) + len(body) + psp_signing.KEY_BYTES
        for at, value in (
            (psp_images.BODY_SIZE_AT, len(body)), (psp_images.SIGNED_AT, 1), (psp_images.KIND_AT, self.kind),
            (psp_images.VERSION_AT, self.version or version), (psp_images.SIZE_AT, size if stated else 0),
        ):  # fmt: skip
            struct.pack_into("<I", head, at, value)
        head[psp_images.KEY_AT : psp_images.KEY_AT + psp_images.KEY_BYTES] = _key(kind)
        if stated:
            head[psp_images.DIGEST_AT : psp_images.DIGEST_AT + psp_images.DIGEST_BYTES] = sha256(body).digest()
        if self.marked:
            head[psp_images.MAGIC_AT : psp_images.MAGIC_AT + 4] = psp_images.MAGIC
        image = bytes(head) + body
        return image + psp_signing.sign(image) + bytes(self.room_bytes)


def _key(kind: int) -> bytes:
    """Return the id of the key that signs a kind of image: the ROM's key for images that boot first, else a key of the
    key database.
    """
    parts = (*psp_parts.BOOT.values(), *psp_parts.FIRMWARE.values(), *OTHERS)
    part = next(part for part in parts if kind in (part.kind, *part.or_kinds))
    return psp_signing.ROOT_ID if part.rooted else psp_signing.key_id(part.usages[0])


@dataclass(frozen=True, slots=True)
class Place:
    """The offset and size of a part in its file."""

    at: int
    size_bytes: int


Fields = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class File:
    """A kind of file: its header and parts. `fields` returns the members that the common header lacks, by their path,
    from the places of the parts; `entries` what follows the header.
    """

    header: Any  # of autogen.amd.ucode
    version: tuple[int, int]
    parts: tuple[Part, ...]
    fields: Callable[..., Fields]
    ucode_version: int = 1
    common: str = IP_PATH  # path of the common header
    # how many parts its `ucode_size_bytes` counts, from the first on; None: all
    counted: int | None = None
    entries: Callable[..., bytes] = lambda *places: b""


def _engine(code: int, data: int, ucode_version: int) -> File:
    """A micro engine of the command processor: its code, and the stack that every pipe gets a copy of."""
    return File(
        ucode.gfx_firmware_header_v2_0, (2, 0), (Part(code, 0x1000), Part(data, 0x400, 0xA00)),
        lambda code, data: {
            "ucode_feature_version": 29,
            "ucode_size_bytes": code.size_bytes, "ucode_offset_bytes": code.at,
            "data_size_bytes": data.size_bytes, "data_offset_bytes": data.at,
            "ucode_start_addr_lo": CODE_START[0], "ucode_start_addr_hi": CODE_START[1],
        },
        ucode_version,
    )  # fmt: skip


def _scheduler(code: int, data: int, ucode_version: int) -> File:
    """A MES firmware: code and data. Its version is in the code: the common header has no field for it."""
    return File(
        ucode.mes_firmware_header_v1_0, (1, 0), (Part(code, 0x1000), Part(data, 0x800, 0x600)),
        lambda code, data: {
            "mes_ucode_version": ucode_version, "mes_ucode_data_version": ucode_version,
            "mes_ucode_size_bytes": code.size_bytes, "mes_ucode_offset_bytes": code.at,
            "mes_ucode_data_size_bytes": data.size_bytes, "mes_ucode_data_offset_bytes": data.at,
            "mes_uc_start_addr_lo": MES_CODE_START[0], "mes_uc_start_addr_hi": MES_CODE_START[1],
            "mes_data_start_addr_lo": MES_DATA_START[0], "mes_data_start_addr_hi": MES_DATA_START[1],
        },
        ucode_version,
    )  # fmt: skip


RLC = File(
    ucode.rlc_firmware_header_v2_3, (2, 3),
    tuple(Part(kind) for kind in (0x8101_2009, 0x8101_200B, 0x8101_200C, 0x8101_2016, 0x8101_2017, 0x8101_200F, 0x8101_200A)),
    lambda g, gpm, srm, iram, dram, p, v: {
        "v2_2.v2_1.v2_0.ucode_feature_version": 1,
        "v2_2.v2_1.save_restore_list_cntl_offset_bytes": gpm.at,  # an empty list
        "v2_2.v2_1.save_restore_list_gpm_size_bytes": gpm.size_bytes, "v2_2.v2_1.save_restore_list_gpm_offset_bytes": gpm.at,
        "v2_2.v2_1.save_restore_list_srm_size_bytes": srm.size_bytes, "v2_2.v2_1.save_restore_list_srm_offset_bytes": srm.at,
        "v2_2.rlc_iram_ucode_size_bytes": iram.size_bytes, "v2_2.rlc_iram_ucode_offset_bytes": iram.at,
        "v2_2.rlc_dram_ucode_size_bytes": dram.size_bytes, "v2_2.rlc_dram_ucode_offset_bytes": dram.at,
        "rlcp_ucode_version": 1, "rlcp_ucode_feature_version": 1,
        "rlcp_ucode_size_bytes": p.size_bytes, "rlcp_ucode_offset_bytes": p.at,
        "rlcv_ucode_version": 1, "rlcv_ucode_feature_version": 1,
        "rlcv_ucode_size_bytes": v.size_bytes, "rlcv_ucode_offset_bytes": v.at,
    },
    0x80, "v2_2.v2_1.v2_0.header", counted=1,
)  # fmt: skip
IMU = File(
    ucode.imu_firmware_header_v1_0, (1, 0), (Part(0x8101_203B, 0x800), Part(0x8101_203C, 0x800)),
    lambda iram, dram: {  # offsets count from the first part
        "imu_iram_ucode_size_bytes": iram.size_bytes, "imu_iram_ucode_offset_bytes": 0,
        "imu_dram_ucode_size_bytes": dram.size_bytes, "imu_dram_ucode_offset_bytes": dram.at - iram.at,
    },
    0x0B1F_4B00,
)  # fmt: skip
SDMA = File(
    ucode.sdma_firmware_header_v2_0, (2, 0), (Part(0x8101_203E, 0x800), Part(0x8101_203F, 0x800)),
    lambda context, control: {
        "ucode_feature_version": 60,
        "ctx_ucode_size_bytes": context.size_bytes, "ctx_jt_offset": 0x180, "ctx_jt_size": 0x80,
        "ctl_ucode_offset": control.at, "ctl_ucode_size_bytes": control.size_bytes, "ctl_jt_offset": 0x180,
    },
    0x18,
)  # fmt: skip
# GC 12: the newer form of header, one thread in each copy engine, one scheduler firmware for both pipes
RLC_2_2 = File(
    ucode.rlc_firmware_header_v2_2, (2, 2),
    tuple(Part(kind) for kind in (0x8202_2009, 0x8202_200B, 0x8202_200C, 0x8202_2016, 0x8202_2017)),
    lambda g, gpm, srm, iram, dram: {
        "v2_1.v2_0.ucode_feature_version": 1,
        "v2_1.save_restore_list_cntl_offset_bytes": gpm.at,  # an empty list
        "v2_1.save_restore_list_gpm_size_bytes": gpm.size_bytes, "v2_1.save_restore_list_gpm_offset_bytes": gpm.at,
        "v2_1.save_restore_list_srm_size_bytes": srm.size_bytes, "v2_1.save_restore_list_srm_offset_bytes": srm.at,
        "rlc_iram_ucode_size_bytes": iram.size_bytes, "rlc_iram_ucode_offset_bytes": iram.at,
        "rlc_dram_ucode_size_bytes": dram.size_bytes, "rlc_dram_ucode_offset_bytes": dram.at,
    },
    0x00BE_7DA0, "v2_1.v2_0.header", counted=1,
)  # fmt: skip
IMU_12 = replace(IMU, parts=(Part(0x8202_203B, 0x800), Part(0x8202_203C, 0x800)), ucode_version=0x0C30_2A00)
SDMA_7 = File(
    ucode.sdma_firmware_header_v3_0, (3, 0), (Part(0x8202_2025, 0x800),),
    lambda code: {
        "ucode_feature_version": 0x406F_3B46, "ucode_offset_bytes": code.at, "ucode_size_bytes": code.size_bytes,
    },
    0x006F_3B46,
)  # fmt: skip
GC_FILES = {
    "pfp": _engine(0x8101_2044, 0x8101_2045, 2520),
    "me": _engine(0x8101_2046, 0x8101_2047, 2380),
    "mec": _engine(0x8101_2048, 0x8101_2049, 2590),
    "mes_2": _scheduler(0x8101_2007, 0x8101_2008, 0x7B),
    "mes1": _scheduler(0x8101_2042, 0x8101_2043, 0x102),
    "rlc": RLC,
    "imu": IMU,
}
GC_FILES_12 = {
    "pfp": _engine(0x8202_2044, 0x8202_2045, 2810),
    "me": _engine(0x8202_2046, 0x8202_2047, 2760),
    "mec": _engine(0x8202_2048, 0x8202_2049, 3010),
    "uni_mes": _scheduler(0x8202_2007, 0x8202_2008, 0x76),
    "rlc": RLC_2_2,
    "imu": IMU_12,
}
# GC 9.4.3: the engines before RS64, whose jump table is an image of its own
MEC_9 = File(
    ucode.gfx_firmware_header_v1_0, (1, 0), (Part(0x8101_2004, 0x1000), Part(0x8101_2005, 0x180)),
    lambda code, table: {
        "ucode_feature_version": 50, "jt_offset": code.size_bytes // 4, "jt_size": table.size_bytes // 4,
    },
    0xB4,
)  # fmt: skip
RLC_2_1 = File(
    ucode.rlc_firmware_header_v2_1, (2, 1),
    tuple(Part(kind) for kind in (0x8101_2009, 0x8101_200D, 0x8101_200B, 0x8101_200C)),
    lambda g, control, gpm, srm: {
        "v2_0.ucode_feature_version": 1,
        "save_restore_list_cntl_size_bytes": control.size_bytes, "save_restore_list_cntl_offset_bytes": control.at,
        "save_restore_list_gpm_size_bytes": gpm.size_bytes, "save_restore_list_gpm_offset_bytes": gpm.at,
        "save_restore_list_srm_size_bytes": srm.size_bytes, "save_restore_list_srm_offset_bytes": srm.at,
    },
    0x41, "v2_0.header", counted=1,
)  # fmt: skip
SDMA_4 = File(
    ucode.sdma_firmware_header_v1_0, (1, 0), (Part(0x8101_2025, 0x800),),
    lambda code: {"ucode_feature_version": 0x40, "jt_offset": 0x180, "jt_size": 0x80}, 0x18,
)  # fmt: skip
GC_FILES_9 = {"mec": MEC_9, "rlc": RLC_2_1}
# by major version of GC: the core's files, the copy engines'
CORE_FILES: dict[int, tuple[dict[str, File], File]] = {
    9: (GC_FILES_9, SDMA_4), 11: (GC_FILES, SDMA), 12: (GC_FILES_12, SDMA_7),
}  # fmt: skip


def _smu(firmware_version: int) -> File:
    """The SMU's firmware. No tables follow it: boards bring their own power-play table."""
    return File(
        ucode.smc_firmware_header_v2_1, (2, 1), (Part(0x0100_1001, 0x1000),),
        lambda code: {"v1_0.ucode_start_addr": 0x2_0000, "pptable_count": 0, "pptable_entry_offset": code.at + code.size_bytes},
        firmware_version, "v1_0.header", counted=1,
    )  # fmt: skip


def _smu_14(firmware_version: int) -> File:
    """The same with the header of 14.0, which names one table."""
    return File(
        ucode.smc_firmware_header_v2_0, (2, 0), (Part(0x8101_1001, 0x1000),),
        lambda code: {"v1_0.ucode_start_addr": 0x2_0000, "ppt_offset_bytes": code.at + code.size_bytes, "ppt_size_bytes": 0},
        firmware_version, "v1_0.header", counted=1,
    )  # fmt: skip


def _smu_13_0_6(firmware_version: int) -> File:
    """No firmware, which the board's boot loads, but tables from it to the board's parts (P2S)."""
    return File(
        ucode.smc_firmware_header_v2_1, (2, 1), tuple(Part(0x0100_01D2, 0x180) for _ in P2S_TABLES),
        lambda *places: {
            "pptable_count": len(P2S_TABLES), "pptable_entry_offset": ucode.smc_firmware_header_v2_1.SIZE,
        },
        # the published file counts no byte of them as firmware
        0, "v1_0.header", counted=0,
        entries=lambda *places: b"".join(
            struct.pack("<3I", number, place.at, place.size_bytes)
            for number, place in zip(P2S_TABLES, places, strict=True)
        ),
    )  # fmt: skip


# the ids of the tables: smu_v13_0_6_ppt.c
P2S_TABLES = (0x5032_5341, 0x5032_5358, 0x5032_5303)
# by major version of MP1, or by all of it
SMU_FILES = {13: _smu, 14: _smu_14}
OTHER_SMU_FILES = {(13, 0, 6): _smu_13_0_6}
TA_VERSION = 0x0007_0001
SYSDRV, TOC = (ucode.PSP_FW_TYPE_PSP_SYS_DRV, Part(0x8101_000A)), (ucode.PSP_FW_TYPE_PSP_TOC, Part(0x8101_200E))
BOOT_14 = (
    (ucode.PSP_FW_TYPE_PSP_KDB, Part(0x8202_004F)),
    (ucode.PSP_FW_TYPE_PSP_SYS_DRV, Part(0x8202_000A)),
    (ucode.PSP_FW_TYPE_PSP_SOS, Part(0x8202_0009)),
    (ucode.PSP_FW_TYPE_PSP_SOC_DRV, Part(0x8202_014A)),
    (ucode.PSP_FW_TYPE_PSP_INTF_DRV, Part(0x8202_014C)),
    (ucode.PSP_FW_TYPE_PSP_DBG_DRV, Part(0x8202_014B)),
    (ucode.PSP_FW_TYPE_PSP_TOC, Part(0x8202_200E)),
    (ucode.PSP_FW_TYPE_PSP_IPKEYMGR_DRV, Part(0x8202_01E1)),
    (ucode.PSP_FW_TYPE_PSP_SPL, Part(0x0100_0056, 0x140)),
)
RL = (ucode.PSP_FW_TYPE_PSP_RL, Part(0x0100_0135))
PLAIN_SOS = (ucode.PSP_FW_TYPE_PSP_SOS, Part(0x0100_0009))
PLAIN_KDB = (ucode.PSP_FW_TYPE_PSP_KDB, Part(0x0100_004F, marked=False))
SPL = (ucode.PSP_FW_TYPE_PSP_SPL, Part(0x0100_0056, 0xA0))
# by version of MP0: firmware version, and parts in the order of the files
BOOT: dict[tuple[int, int, int], tuple[int, tuple[tuple[int, Part], ...]]] = {
    (13, 0, 0): (0x0031_0032, (SYSDRV, PLAIN_SOS, TOC, PLAIN_KDB, SPL, RL)),
    (13, 0, 7): (0x0033_0021, (SYSDRV, PLAIN_SOS, TOC, PLAIN_KDB, SPL)),
    (13, 0, 10): (
        0x0032_1517,
        (
            (ucode.PSP_FW_TYPE_PSP_KDB, Part(0x8101_004F)),
            SYSDRV,
            (ucode.PSP_FW_TYPE_PSP_SOS, Part(0x8101_0009)),
            (ucode.PSP_FW_TYPE_PSP_SOC_DRV, Part(0x8101_014A)),
            (ucode.PSP_FW_TYPE_PSP_INTF_DRV, Part(0x8101_014C)),
            (ucode.PSP_FW_TYPE_PSP_DBG_DRV, Part(0x8101_014B)),
            TOC,
            (ucode.PSP_FW_TYPE_PSP_RAS_DRV, Part(0x8101_0152)),
            RL,
        ),
    ),
    (13, 0, 6): (
        0x0036_0256,
        (
            SYSDRV,
            (ucode.PSP_FW_TYPE_PSP_SOS, Part(0x8101_0009)),
            (ucode.PSP_FW_TYPE_PSP_KDB, Part(0x8101_004F)),
            (ucode.PSP_FW_TYPE_PSP_SOC_DRV, Part(0x8101_014A)),
            (ucode.PSP_FW_TYPE_PSP_INTF_DRV, Part(0x8101_014C)),
            (ucode.PSP_FW_TYPE_PSP_DBG_DRV, Part(0x8101_014B)),
            (ucode.PSP_FW_TYPE_PSP_RAS_DRV, Part(0x8101_0152)),
            (ucode.PSP_FW_TYPE_PSP_RL, Part(0x8101_0135)),
        ),
    ),
    (14, 0, 2): (0x003B_0B0D, BOOT_14),
    (14, 0, 3): (
        0x003A_0B14,
        (
            *BOOT_14,
            (ucode.PSP_FW_TYPE_PSP_RAS_DRV, Part(0x8202_0152)),
            (ucode.PSP_FW_TYPE_PSP_RL, Part(0x8202_0135)),
        ),
    ),
}
APPLICATIONS = tuple(
    (kind, Part(0x0100_0000))
    for kind in (
        ucode.TA_FW_TYPE_PSP_ASD,
        ucode.TA_FW_TYPE_PSP_HDCP,
        ucode.TA_FW_TYPE_PSP_DTM,
        ucode.TA_FW_TYPE_PSP_RAS,
    )
)
# likewise, with versions of their own
OTHER_APPLICATIONS = {
    (13, 0, 6): (
        (ucode.TA_FW_TYPE_PSP_XGMI, Part(0x8101_0000, version=0x2000_0014)),
        (ucode.TA_FW_TYPE_PSP_RAS, Part(0x8202_0F1B, version=0x1B36_0212)),
    )
}
# whose list has a second half, for boards that this one is not
TWO_LISTS = ((13, 0, 6),)


def build(chip: ChipRow) -> dict[str, bytes]:
    """Return every file of a chip, by the name that the kernel requests, without its folder. The bytes are the same
    each time.
    """
    version = {ip.hw_id: ip.version for ip in discovery.ips(chip)}
    gc, psp, smu, sdma = (version[getattr(facts, f"{block}_HWID")] for block in ("GC", "MP0", "MP1", "SDMA0"))
    core, copier = CORE_FILES[gc[0]]
    files = {_name("gc", gc, suffix): (file, gc) for suffix, file in core.items()}
    files[_name("sdma", sdma)] = (copier, sdma)
    power = OTHER_SMU_FILES.get(smu, SMU_FILES[smu[0]])
    files[_name("smu", smu)] = (power(chip.power.firmware_version), smu)
    images = {name: _file(name, file, ip) for name, (file, ip) in files.items()}
    for suffix, header, parts, ucode_version in (
        ("sos", _sos_header(psp), BOOT[psp][1], BOOT[psp][0]),
        ("ta", ucode.ta_firmware_header_v2_0, OTHER_APPLICATIONS.get(psp, APPLICATIONS), 0),
    ):
        name = _name("psp", psp, suffix)
        images[name] = _package(name, header, parts, ucode_version, psp)
    return images


def _sos_header(psp: tuple[int, int, int]) -> Any:
    return ucode.psp_firmware_header_v2_1 if psp in TWO_LISTS else ucode.psp_firmware_header_v2_0


def _name(block: str, version: tuple[int, int, int], suffix: str = "") -> str:
    return "_".join([block, *map(str, version), *filter(None, [suffix])]) + ".bin"


def _file(name: str, file: File, ip: tuple[int, int, int]) -> bytes:
    parts = [part.build(f"{name} {number}", file.ucode_version) for number, part in enumerate(file.parts)]
    places = _places(parts)
    view = file.header()
    for path, value in file.fields(*places).items():
        *outer, member = path.split(".")
        setattr(reduce(getattr, outer, view), member, value)
    header = bytes(memory(view)[: file.header.SIZE]) + file.entries(*places)
    common = reduce(getattr, file.common.split("."), view)
    ucode_bytes = sum(map(len, parts[: file.counted]))
    summary = file.version, file.ucode_version, ucode_bytes, ip
    return _whole(header, common, parts, summary, file.header.SIZE)


def _package(
    name: str, header: Any, parts: tuple[tuple[int, Part], ...], ucode_version: int, ip: tuple[int, int, int]
) -> bytes:
    """Build a file that lists its parts by type; offsets count from the first part.

    A file with header 2.1 has a second set, for boards with older firmware of the SMU (psp_v13_0.c,
    psp_v13_0_is_aux_sos_load_required). Both are of one version here.
    """
    version = ucode_version or TA_VERSION
    minor = int(header is ucode.psp_firmware_header_v2_1)
    names = [f"{name} {kind}" for kind, _ in parts]
    if minor:
        parts, names = parts * 2, [*names, *(f"{one} aux" for one in names)]
    built = [part.build(one, version) for one, (_, part) in zip(names, parts, strict=True)]
    rows = [
        ucode.psp_fw_bin_desc.pack(kind, part.version or version, place.at - HEADER_ROOM_BYTES, place.size_bytes)
        for (kind, part), place in zip(parts, _places(built), strict=True)
    ]
    view = header()
    # the number of parts, and where the second set begins
    count = struct.pack("<2I", len(rows), len(rows) // 2) if minor else struct.pack("<I", len(rows))
    head = bytes(ucode.common_firmware_header.SIZE) + count + b"".join(rows)
    return _whole(
        head, view.header, built, ((2, minor), ucode_version, sum(map(len, built)), ip), header_bytes=header.SIZE
    )


def _places(parts: list[bytes]) -> list[Place]:
    places, at = [], HEADER_ROOM_BYTES
    for part in parts:
        places.append(Place(at, len(part)))
        at += len(part)
    return places


def _whole(
    header: bytes,
    common: Any,
    parts: list[bytes],
    summary: tuple[tuple[int, int], int, int, tuple[int, int, int]],
    header_bytes: int = 0,
) -> bytes:
    """Join header and parts and fill in the common header, which describes the whole file."""
    version, ucode_version, ucode_bytes, ip = summary
    room = -(-len(header) // HEADER_ROOM_BYTES) * HEADER_ROOM_BYTES
    data = bytearray(header.ljust(room, b"\0") + b"".join(parts))
    size = ucode.common_firmware_header.SIZE
    data[:size] = ucode.common_firmware_header.pack(
        len(data), header_bytes or len(header), *version, *ip[:2], ucode_version, ucode_bytes, room,
        zlib.crc32(data[size:]),
    )  # fmt: skip
    return bytes(data)
