"""The IP discovery binary: which blocks a chip has, their versions and register bases. Firmware stores it 64 KiB below
the top of VRAM.

Source: amdgpu include/discovery.h (layout, checksums), amdgpu_discovery.c (what a reader checks).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ringup.autogen.amd import discovery as facts
from ringup.autogen.regdb import open_chip
from ringup.autogen.structs import memory
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.common.faults import FaultKind

TOP_OFFSET = 64 << 10  # DISCOVERY_TMR_OFFSET of amdgpu_discovery.h
HW_IDS = {  # block of the register database: its name in soc15_hw_ip.h
    "gc": "GC_HWID",
    "mmhub": "MMHUB_HWID",
    "athub": "ATHUB_HWID",
    "nbio": "NBIF_HWID",
    "nbif": "NBIF_HWID",
    "pcie": "PCIE_HWID",
    "hdp": "HDP_HWID",
    "osssys": "OSSSYS_HWID",
    "mp": "MP0_HWID",
    "smuio": "SMUIO_HWID",
    "thm": "THM_HWID",
    "df": "DF_HWID",
    "umc": "UMC_HWID",
    "lsdma": "LSDMA_HWID",
    # a block of its own where the graphics core lies on several dies
    "sdma": "SDMA0_HWID",
    "vcn": "VCN_HWID",
    "dcn": "DMU_HWID",
}
CORE_HARVESTED, LISTED_TWICE, BAD_SUM = 1, 2, 3
FAULTS = (
    FaultKind(
        "discovery_contradicts",
        "after the next reset the discovery binary contradicts the card or itself",
        "1: the last graphics core is listed as fused off; 2: the first is listed twice, with other bases; 3: bad checksum",
    ),
)
# in dwords, between the two bases
MOVED = 0x1000
# the checksum of the binary covers everything after it
SUM_START = facts.binary_header.offset_of("binary_checksum") + 2


@dataclass(frozen=True, slots=True)
class Ip:
    """One instance of a block."""

    hw_id: int
    instance: int
    version: tuple[int, int, int]
    bases: tuple[int, ...]


def ips(chip: ChipRow) -> list[Ip]:
    """List the blocks of a chip, in the order of their numbers."""
    found = list(_database(chip))
    for hw_id, block, version in chip.external_ips:
        owner = next(ip for ip in found if ip.hw_id == getattr(facts, HW_IDS[block]))
        found.append(Ip(getattr(facts, hw_id), 0, version, owner.bases))
    if chip.controllers is not None:
        version, bases = chip.controllers
        found += [Ip(facts.UMC_HWID, instance, version, (base,)) for instance, base in enumerate(bases)]
    return sorted(found, key=lambda ip: (ip.hw_id, ip.instance))


def _database(chip: ChipRow) -> Iterator[Ip]:
    for place in open_chip(chip.name).row.places:
        if place.block not in HW_IDS:
            continue
        major, minor, revision = (int(part) for part in place.version.split("."))
        extra = chip.extra_bases.get(place.block, ())
        for instance, bases in enumerate(place.bases):
            hw_id = getattr(facts, HW_IDS[place.block])
            yield Ip(hw_id, instance, (major, minor, revision), (*bases, *extra))


def build(chip: ChipRow, wrong: int = 0) -> bytes:
    """Return the binary of a chip. `wrong`: a value of the fault `discovery_contradicts`."""
    listed = ips(chip)
    core = next(ip for ip in listed if ip.hw_id == facts.GC_HWID)
    if wrong == LISTED_TWICE:
        listed.append(replace(core, bases=tuple(base + MOVED for base in core.bases)))
    tables = {
        facts.IP_DISCOVERY: _ip_table(listed, facts.binary_header.SIZE, chip.table_version),
        facts.GC: _gc_table(chip) if chip.gc.core.cus_per_wgp > 1 else _gc_table_2(chip),
        facts.HARVEST_INFO: _harvest_table(chip, listed, lost_core=wrong == CORE_HARVESTED),
        facts.MALL_INFO: _mall_table(chip),
    }
    header = facts.binary_header(binary_signature=facts.BINARY_SIGNATURE, version_major=1, version_minor=0)
    body = bytearray()
    for index, table in tables.items():
        entry = header.table_list[index]
        entry.offset, entry.size = facts.binary_header.SIZE + len(body), len(table)
        entry.checksum = _byte_sum(table)
        body += table + bytes(-len(table) % 4)
    header.binary_size = facts.binary_header.SIZE + len(body)
    binary = bytearray(_bytes(header, facts.binary_header.SIZE)) + body
    struct.pack_into("<H", binary, SUM_START - 2, _byte_sum(binary[SUM_START:]) ^ (wrong == BAD_SUM))
    return bytes(binary)


def _byte_sum(data: bytes | bytearray) -> int:
    return sum(data) & 0xFFFF


def _bytes(view: object, size_bytes: int) -> bytes:
    return bytes(memory(view)[:size_bytes])


def _ip_table(listed: Iterable[Ip], place: int, version: int) -> bytes:
    """Return the list of blocks of one die, version 3, or 4 with 64-bit bases. Offsets in it count from the start of
    the binary, where it lies at `place`.
    """
    wide = version >= 4
    size, digit = (facts.ip_v4.SIZE, "Q") if wide else (facts.ip_v3.SIZE, "I")
    entries = [
        struct.pack("<HBB3BB", ip.hw_id, ip.instance, len(ip.bases), *ip.version, 0).ljust(size, b"\0")
        + struct.pack(f"<{len(ip.bases)}{digit}", *ip.bases)
        for ip in listed
    ]
    die = facts.die_header.pack(0, len(entries)) + b"".join(entries)
    header_size = facts.ip_discovery_header.SIZE
    header = facts.ip_discovery_header(
        signature=facts.DISCOVERY_TABLE_SIGNATURE, version=version, size=header_size + len(die), num_dies=1,
        base_addr_64_bit=int(wide),
    )  # fmt: skip
    header.die_info[0].die_offset = place + header_size
    return _bytes(header, header_size) + die


def _gc_table(chip: ChipRow) -> bytes:
    gc = chip.gc
    shape = {
        "gc_num_se": gc.core.shader_engines,
        "gc_num_wgp0_per_sa": gc.core.wgps_per_array,
        "gc_num_wgp1_per_sa": 0,
        "gc_num_rb_per_se": gc.backends_per_engine,
        "gc_num_gl2c": gc.gl2_channels,
        "gc_num_sa_per_se": gc.core.arrays_per_engine,
        "gc_num_tcp_per_sa": gc.core.wgps_per_array * 2,
        "gc_num_tcps": gc.core.compute_units,
        "gc_num_gprs": gc.core.simd_vgprs,
        "gc_gl1c_size_per_instance": gc.l1_kib,
        "gc_gl2c_per_gpu": gc.l2_kib,
    }
    table = facts.gc_info_v1_2(**shape, **gc.info)
    table.header.table_id = facts.GC_TABLE_ID
    table.header.version_major, table.header.version_minor = 1, 2
    table.header.size = facts.gc_info_v1_2.SIZE
    return _bytes(table, facts.gc_info_v1_2.SIZE)


def _gc_table_2(chip: ChipRow) -> bytes:
    """Return the shape of one of the cores without WGPs."""
    gc = chip.gc
    table = facts.gc_info_v2_1(
        gc_num_se=gc.core.shader_engines,
        gc_num_cu_per_sh=gc.core.wgps_per_array,
        gc_num_sh_per_se=gc.core.arrays_per_engine,
        gc_num_rb_per_se=gc.backends_per_engine,
        gc_num_tccs=gc.gl2_channels,
        gc_num_gprs=gc.core.simd_vgprs,
        gc_num_tcp_per_sh=gc.core.wgps_per_array,
        gc_tcp_size_per_cu=gc.l1_kib,
        # of all channels of a core: kfd_crat.c reports it as the size of its L2
        gc_tcc_size=gc.l2_kib,
        **gc.info,
    )
    table.header.table_id = facts.GC_TABLE_ID
    table.header.version_major, table.header.version_minor = 2, 1
    table.header.size = facts.gc_info_v2_1.SIZE
    return _bytes(table, facts.gc_info_v2_1.SIZE)


def _harvest_table(chip: ChipRow, listed: Sequence[Ip], *, lost_core: bool) -> bytes:
    fused_off = {getattr(facts, HW_IDS[block]) for block in chip.harvested}
    gone = [ip for ip in listed if ip.hw_id in fused_off]
    if lost_core:
        gone.append([ip for ip in listed if ip.hw_id == facts.GC_HWID][-1])
    table = facts.harvest_table()
    table.header.signature = facts.HARVEST_TABLE_SIGNATURE
    for entry, ip in enumerate(gone):
        table.list[entry].hw_id, table.list[entry].number_instance = ip.hw_id, ip.instance
    return _bytes(table, facts.harvest_table.SIZE)


def _mall_table(chip: ChipRow) -> bytes:
    table = facts.mall_info_v1_0(mall_size_per_m=chip.mall_bytes_per_umc)
    table.header.table_id = facts.MALL_INFO_TABLE_ID
    table.header.version_major = 1
    table.header.size_bytes = facts.mall_info_v1_0.SIZE
    return _bytes(table, facts.mall_info_v1_0.SIZE)
