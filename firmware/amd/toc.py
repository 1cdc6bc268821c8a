"""The RLC's table of contents: the pieces of firmware in the buffer from which the RLC loads the graphics core.

A `toc` file of the graphics core holds such a table unencrypted. The TOC part of a PSP image is a signed container of
another format, which only the security processor reads. Source: amdgpu_rlc.h, RLC_TABLE_OF_CONTENT and
RLC_TABLE_OF_CONTENT_V2; gfx_v11_0.c and gfx_v12_0.c, parse_rlc_toc.
"""

from __future__ import annotations

from dataclasses import dataclass

from construct import BitsInteger as Bits
from construct import BitStruct, ByteSwapped, Int16ul
from construct import Struct as Layout

from ringup.firmware.layouts import Fields, build, read

PLACE = ByteSwapped(BitStruct("id" / Bits(7), "offset" / Bits(25)))
ENTRY_V1 = Layout(
    "place" / PLACE,
    "load"
    / ByteSwapped(
        BitStruct(
            "size" / Bits(18),
            "signed_source" / Bits(1),
            "reserved" / Bits(1),
            "save_for_vfflr" / Bits(1),
            "save_for_vddgfx" / Bits(1),
            "load_mode_direct" / Bits(1),
            "vfflr_image_code" / Bits(4),
            "memory_destination" / Bits(2),
            "load_at_reset" / Bits(1),
            "load_at_vddgfx" / Bits(1),
            "load_at_boot" / Bits(1),
        )
    ),
    "indirect_addr_reg" / Int16ul,
    "index" / Int16ul,
    "indirect_data_reg" / Int16ul,
    "indirect_start_offset" / Int16ul,
)
ENTRY_V2 = Layout(
    "place" / PLACE,
    "load"
    / ByteSwapped(
        BitStruct(
            "size" / Bits(18),
            "reserved13" / Bits(1),
            "size_x16" / Bits(1),
            "reserved9" / Bits(3),
            "vfflr_image_code" / Bits(4),
            "memory_destination" / Bits(2),
            "reserved0" / Bits(3),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Format:
    """The units of one generation: bytes of a unit of offset, of size, and of size if `size_x16` is set."""

    offset_unit_bytes: int
    size_unit_bytes: int
    large_unit_bytes: int


LAYOUTS = {11: ENTRY_V1, 12: ENTRY_V2}
FORMATS = {11: Format(4, 4, 4), 12: Format(32, 4, 4096)}  # gfx_v12_0.c: RLC_TOC_OFFSET_DWUNIT, RLC_SIZE_MULTIPLE
# amdgpu_rlc.h, SOC21_FIRMWARE_ID; the last six are from SOC24
NAMES = (
    *("INVALID", "RLC_G_UCODE", "RLC_TOC", "RLCG_SCRATCH", "RLC_SRM_ARAM", "RLC_P_UCODE", "RLC_V_UCODE", "RLX6_UCODE"),
    *(
        "RLX6_UCODE_CORE1",
        "RLX6_DRAM_BOOT",
        "RLX6_DRAM_BOOT_CORE1",
        "SDMA_UCODE_TH0",
        "SDMA_UCODE_TH1",
        "CP_PFP",
        "CP_ME",
    ),
    *(
        "CP_MEC",
        "RS64_MES_P0",
        "RS64_MES_P1",
        "RS64_PFP",
        "RS64_ME",
        "RS64_MEC",
        "RS64_MES_P0_STACK",
        "RS64_MES_P1_STACK",
    ),
    *("RS64_PFP_P0_STACK", "RS64_PFP_P1_STACK", "RS64_ME_P0_STACK", "RS64_ME_P1_STACK", "RS64_MEC_P0_STACK"),
    *(
        "RS64_MEC_P1_STACK",
        "RS64_MEC_P2_STACK",
        "RS64_MEC_P3_STACK",
        "RLC_SRM_DRAM_SR",
        "RLCG_SCRATCH_SR",
        "RLCP_SCRATCH_SR",
    ),
    *("RLCV_SCRATCH_SR", "RLX6_DRAM_SR", "RLX6_DRAM_SR_CORE1"),
    *("RLCDEBUGLOG", "SRIOV_DEBUG", "SRIOV_CSA_RLC", "SRIOV_CSA_SDMA", "SRIOV_CSA_CP", "UMF_ZONE_PAD"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece: its id, its offset in the buffer and the space for it. `fields` are all of the entry's bits."""

    id: int
    offset_bytes: int
    size_bytes: int
    fields: Fields

    @property
    def name(self) -> str:
        return NAMES[self.id] if self.id < len(NAMES) else f"ID_{self.id}"


def parse(data: bytes, gc: tuple[int, int, int], name: str = "toc") -> tuple[Entry, ...]:
    """Read the table up to its end, an entry of id 0; `gc` is the graphics core's version.

    Ids without a name in amdgpu occur, and UMF_ZONE_PAD several times. Raises `FirmwareError` if the table has no end.
    """
    if gc[0] not in LAYOUTS:
        raise ValueError(f"graphics core {gc} does not have major version {', '.join(map(str, LAYOUTS))}")
    described, how = LAYOUTS[gc[0]], FORMATS[gc[0]]
    found: list[Entry] = []
    for at in range(0, len(data) + 1, described.sizeof()):
        row = read(described, data, at, name, "the next entry of the table of contents")
        number, offset, size = (row[key] for key in ("place.id", "place.offset", "load.size"))
        # the layout says so, for all three
        assert isinstance(number, int)
        assert isinstance(offset, int)
        assert isinstance(size, int)
        if number == 0:
            break
        unit = how.large_unit_bytes if row.get("load.size_x16") else how.size_unit_bytes
        found.append(Entry(number, offset * how.offset_unit_bytes, size * unit, row))
    return tuple(found)


def build_table(entries: tuple[Fields, ...], gc: tuple[int, int, int]) -> bytes:
    """Build a table from the entries' fields, its end included."""
    described = LAYOUTS[gc[0]]
    return b"".join(build(described, fields) for fields in (*entries, {}))
