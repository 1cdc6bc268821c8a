"""The IP discovery binary: which blocks a chip has, their versions and register bases. Firmware stores it 64 KiB below
the top of VRAM.

Source: amdgpu include/discovery.h (layout, checksums), amdgpu_discovery.c (what a reader checks).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringup.autogen.amd import discovery as facts
from ringup.autogen.regdb import open_chip
from ringup.autogen.structs import memory
from ringup.silicon.amd.board.chips import ChipRow

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
    "vcn": "VCN_HWID",
    "dcn": "DMU_HWID",
}
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


def build(chip: ChipRow) -> bytes:
    """Return the binary of a chip."""
    listed = ips(chip)
    tables = {
        facts.IP_DISCOVERY: _ip_table(listed, facts.binary_header.SIZE),
        facts.GC: _gc_table(chip),
        facts.HARVEST_INFO: _harvest_table(chip, listed),
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
    struct.pack_into("<H", binary, SUM_START - 2, _byte_sum(binary[SUM_START:]))
    return bytes(binary)


def _byte_sum(data: bytes | bytearray) -> int:
    return sum(data) & 0xFFFF


def _bytes(view: object, size_bytes: int) -> bytes:
    return bytes(memory(view)[:size_bytes])


def _ip_table(listed: Iterable[Ip], place: int) -> bytes:
    """Return the list of blocks of one die, version 3. Offsets in it count from the start of the binary, where it lies
    at `place`.
    """
    entries = [
        facts.ip_v3.pack(ip.hw_id, ip.instance, len(ip.bases), *ip.version, 0, 0)
        + struct.pack(f"<{len(ip.bases)}I", *ip.bases)
        for ip in listed
    ]
    die = facts.die_header.pack(0, len(entries)) + b"".join(entries)
    header_size = facts.ip_discovery_header.SIZE
    header = facts.ip_discovery_header(
        signature=facts.DISCOVERY_TABLE_SIGNATURE, version=3, size=header_size + len(die), num_dies=1
    )
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


def _harvest_table(chip: ChipRow, listed: Iterable[Ip]) -> bytes:
    fused_off = {getattr(facts, HW_IDS[block]) for block in chip.harvested}
    table = facts.harvest_table()
    table.header.signature = facts.HARVEST_TABLE_SIGNATURE
    for entry, ip in enumerate(ip for ip in listed if ip.hw_id in fused_off):
        table.list[entry].hw_id, table.list[entry].number_instance = ip.hw_id, ip.instance
    return _bytes(table, facts.harvest_table.SIZE)


def _mall_table(chip: ChipRow) -> bytes:
    table = facts.mall_info_v1_0(mall_size_per_m=chip.mall_bytes_per_umc)
    table.header.table_id = facts.MALL_INFO_TABLE_ID
    table.header.version_major = 1
    table.header.size_bytes = facts.mall_info_v1_0.SIZE
    return _bytes(table, facts.mall_info_v1_0.SIZE)
