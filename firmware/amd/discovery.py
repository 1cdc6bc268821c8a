"""The IP discovery binary at the top of a Radeon's memory: blocks, versions, base addresses, what is fused off.

It is a header with a byte sum of the rest, then tables, each with its own sum. The list of blocks must be valid.
Another table that is invalid is left out, with the reason in `reasons`; `require` raises an error for callers that need
it. Source: include/discovery.h; amdgpu_discovery.c, amdgpu_discovery_init and amdgpu_discovery_reg_base_init.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from construct import Array, BitStruct, ByteSwapped, Flag, Int8ul, Int16ul, Int32ul, Int64ul, Nibble, Padding
from construct import BitsInteger as Bits
from construct import Struct as Layout

from ringup.autogen.amd import discovery as facts
from ringup.errors import FirmwareError
from ringup.firmware.layouts import Fields, Versions, integer, layout, read, size_bytes

Version = tuple[int, int, int]
SIZE_BYTES = 10 << 10  # the size that amdgpu reads: amdgpu_discovery.h, DISCOVERY_TMR_SIZE
# Where the binary begins, counted back from the end of memory: DISCOVERY_TMR_OFFSET.
FROM_END_BYTES = 64 << 10
MAX_IPS = 1024  # of one die; a card has about 100
HW_ID_MAX = 300  # soc15_hw_ip.h ends at 271; amdgpu_discovery.c, HW_ID_MAX
MAX_INSTANCE = 44  # soc15_hw_ip.h of amdgpu: HWIP_MAX_INSTANCE
BASE_MASK = 0x3FFF_FFFF  # a 64-bit base is in dwords of a 32-bit space: amdgpu_discovery_reg_base_init
# The reason for an absent table, as opposed to a damaged one.
ABSENT = "the binary has none"
VCN_DISABLED = 0xC0  # in a VCN's revision: its encoder (0x80) or decoder (0x40) is fused off

HEADER = Layout(
    "binary_signature" / Int32ul,
    "version_major" / Int16ul,
    "version_minor" / Int16ul,
    "binary_checksum" / Int16ul,
    "binary_size" / Int16ul,
    "table_list" / Array(facts.TOTAL_TABLES, layout(facts.table_info)),
)
SUMMED_FROM = facts.binary_header.offset_of("binary_size")
# struct ip_discovery_header; its last two bytes hold a flag since version 4
IP_HEADER = Layout(
    "signature" / Int32ul,
    "version" / Int16ul,
    "size" / Int16ul,
    "id" / Int32ul,
    "num_dies" / Int16ul,
    "die_info" / Array(16, layout(facts.die_info)),
    "flags" / BitStruct(Padding(7), "base_addr_64_bit" / Flag),
    Padding(1),
)
DIE = facts.die_header
# struct ip and ip_v3: the last byte is `harvest` before version 3, `sub_revision` and `variant` from then on
IP = Layout(
    "hw_id" / Int16ul,
    "instance" / Int8ul,
    "num_base_address" / Int8ul,
    "major" / Int8ul,
    "minor" / Int8ul,
    "revision" / Int8ul,
    "low" / BitStruct("variant" / Nibble, "sub_revision" / Nibble),
)
TABLE_HEADER = facts.gpu_info_header
HARVEST = facts.harvest_table
# union _fuse_data, high bits first
FUSES = ByteSwapped(
    BitStruct(Padding(28), *(f"{codec}_disabled" / Bits(1) for codec in ("h264", "hevc", "vp9", "av1")))
)
VCN = Layout(
    "header" / layout(TABLE_HEADER),
    "num_of_instances" / Int32ul,
    "instance_info" / Array(4, Layout("instance_num" / Int32ul, "fuse_data" / FUSES, Padding(8))),
    Padding(16),
)
# Major version: minor version: layout. A newer minor version only adds fields.
GC_INFO: Versions = {
    1: {
        0: facts.gc_info_v1_0,
        1: facts.gc_info_v1_1,
        2: facts.gc_info_v1_2,
        3: facts.gc_info_v1_3,
    },
    2: {0: facts.gc_info_v2_0, 1: facts.gc_info_v2_1},
}
MALL_INFO: Versions = {1: {0: facts.mall_info_v1_0}, 2: {0: facts.mall_info_v2_0}}
VCN_INFO: Versions = {1: {0: VCN}}
NPS_INFO: Versions = {1: {0: facts.nps_info_v1_0}}
NAMES = {value: name.removesuffix("_HWID") for name, value in vars(facts).items() if name.endswith("_HWID")}
NAMES[facts.VCN_HWID] = "VCN"  # the header gives the number two names


@dataclass(frozen=True, slots=True)
class Ip:
    """One instance of a block. `bases` are the dword bases of its segments; `fused` are a video core's disabled
    parts.
    """

    hw_id: int
    instance: int
    version: Version
    bases: tuple[int, ...]
    die: int = 0
    sub_revision: int = 0
    variant: int = 0
    harvest: int = 0
    fused: int = 0

    @property
    def name(self) -> str:
        return NAMES.get(self.hw_id, f"HWID{self.hw_id}")


@dataclass(frozen=True, slots=True)
class Discovery:
    """A card's blocks and tables. A table that is None is absent or invalid; `reasons` says which, by its name."""

    version: tuple[int, int]
    size_bytes: int
    ips: tuple[Ip, ...]
    gc: Fields | None = field(default=None, repr=False)
    harvest: tuple[tuple[int, int], ...] | None = None
    mall: Fields | None = field(default=None, repr=False)
    vcn: Fields | None = field(default=None, repr=False)
    nps: Fields | None = field(default=None, repr=False)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def find(self, hw_id: int) -> tuple[Ip, ...]:
        """Return every instance of a block, `GC_HWID` and so on; there may be none."""
        return tuple(ip for ip in self.ips if ip.hw_id == hw_id)

    def ip(self, hw_id: int, instance: int = 0) -> Ip:
        """Return one instance of a block. Raises `FirmwareError` if the card lists none."""
        for ip in self.ips:
            if ip.hw_id == hw_id and ip.instance == instance:
                return ip
        raise FirmwareError(f"discovery: the card lists no {NAMES.get(hw_id, hw_id)} instance {instance}")

    def harvested(self, hw_id: int, instance: int) -> bool:
        """Return whether an instance is fused off; False if the card has no harvest table.

        Raises `FirmwareError` for a damaged table.
        """
        if self.harvest is None and self.reasons["harvest"] != ABSENT:
            raise FirmwareError(f"discovery: what is fused off is not known: {self.reasons['harvest']}")
        return (hw_id, instance) in (self.harvest or ())

    def require(self, table: str) -> Fields:
        """Return `gc`, `mall`, `vcn` or `nps`. Raises `FirmwareError` with the reason if the card has no valid one."""
        found: Fields | None = {"gc": self.gc, "mall": self.mall, "vcn": self.vcn, "nps": self.nps}[table]
        if found is None:
            raise FirmwareError(f"discovery: no {table} table: {self.reasons[table]}")
        return found


def parse(blob: bytes, name: str = "discovery") -> Discovery:
    """Read and check a discovery binary; bytes after its stated size are ignored.

    Raises `FirmwareError`, with the byte, if the binary or its list of blocks is truncated, damaged or of an unknown
    version.
    """
    head = read(HEADER, blob, 0, name, "the binary header")
    if head["binary_signature"] != facts.BINARY_SIGNATURE:
        raise FirmwareError(
            f"{name}: byte 0 holds {integer(head, 'binary_signature'):#010x}, a discovery binary begins with {facts.BINARY_SIGNATURE:#010x}"
        )
    size = integer(head, "binary_size")
    if not HEADER.sizeof() <= size <= len(blob):
        raise FirmwareError(f"{name}: byte {SUMMED_FROM} says {size} bytes; the image has {len(blob)}")
    blob = blob[:size]
    _check_sum(blob, SUMMED_FROM, size, integer(head, "binary_checksum"), name, "the binary")
    ips = _ips(blob, head, name)
    reasons: dict[str, str] = {}

    def optional(table: str, reader: Callable[[bytes, int, int, str], Any], index: int) -> Any:
        start, total = integer(head, f"table_list[{index}].offset"), integer(head, f"table_list[{index}].checksum")
        if not start:
            reasons[table] = ABSENT
            return None
        try:
            return reader(blob, start, total, name)
        except FirmwareError as error:
            reasons[table] = str(error)
            return None

    return Discovery(
        (integer(head, "version_major"), integer(head, "version_minor")),
        size,
        ips,
        optional("gc", _info("gc", facts.GC_TABLE_ID, GC_INFO), facts.GC),
        optional("harvest", _harvest, facts.HARVEST_INFO),
        optional("mall", _info("mall", facts.MALL_INFO_TABLE_ID, MALL_INFO), facts.MALL_INFO),
        optional("vcn", _info("vcn", facts.VCN_INFO_TABLE_ID, VCN_INFO), facts.VCN_INFO),
        optional("nps", _info("nps", facts.NPS_INFO_TABLE_ID, NPS_INFO), facts.NPS_INFO),
        MappingProxyType(reasons),
    )


def byte_sum(data: bytes) -> int:
    """Return the checksum of the binary or a table: the sum of its bytes, modulo 2**16."""
    return sum(data) & 0xFFFF


def _check_sum(blob: bytes, start: int, end: int, stated: int, name: str, what: str) -> None:
    if not start <= end <= len(blob):
        raise FirmwareError(f"{name}: {what} takes bytes {start} to {end}, the binary ends at byte {len(blob)}")
    seen = byte_sum(blob[start:end])
    if seen != stated:
        raise FirmwareError(f"{name}: the bytes of {what} from byte {start} add up to {seen:#06x}, not {stated:#06x}")


def _ips(blob: bytes, head: Fields, name: str) -> tuple[Ip, ...]:
    start = integer(head, f"table_list[{facts.IP_DISCOVERY}].offset")
    row = read(IP_HEADER, blob, start, name, "the list of blocks")
    if row["signature"] != facts.DISCOVERY_TABLE_SIGNATURE:
        signature = facts.DISCOVERY_TABLE_SIGNATURE
        raise FirmwareError(
            f"{name}: byte {start} holds {integer(row, 'signature'):#010x}, a list of blocks begins with {signature:#010x}"
        )
    stated = integer(head, f"table_list[{facts.IP_DISCOVERY}].checksum")
    _check_sum(blob, start, start + integer(row, "size"), stated, name, "the list of blocks")
    version, dies = integer(row, "version"), integer(row, "num_dies")
    if not 1 <= version <= 4:
        raise FirmwareError(f"{name}: byte {start + 4} says version {version} of the list of blocks; 1 to 4 are known")
    if dies > 16:
        raise FirmwareError(f"{name}: byte {start + 12} counts {dies} dies; the list has room for 16")
    wide = bool(row["flags.base_addr_64_bit"]) and version >= 4
    found: list[Ip] = []
    for die in range(dies):
        found += _die(blob, die, integer(row, f"die_info[{die}].die_offset"), version, name, wide=wide)
    return tuple(found)


def _die(blob: bytes, number: int, at: int, version: int, name: str, *, wide: bool) -> list[Ip]:
    die = read(DIE, blob, at, name, f"die {number}")
    if die["die_id"] != number:
        raise FirmwareError(f"{name}: byte {at} calls the die {integer(die, 'die_id')}, the list calls it {number}")
    count = integer(die, "num_ips")
    if count > MAX_IPS:
        raise FirmwareError(f"{name}: byte {at + 2} counts {count} blocks; a die has at most {MAX_IPS}")
    at += DIE.SIZE
    found = []
    for index in range(count):
        row = read(IP, blob, at, name, f"block {index} of die {number}")
        at += IP.sizeof()
        bases = Array(integer(row, "num_base_address"), Int64ul if wide else Int32ul)
        raw = read(Layout("bases" / bases), blob, at, name, f"the bases of block {index} of die {number}")["bases"]
        at += bases.sizeof()
        assert isinstance(raw, tuple)  # what the layout says
        if integer(row, "hw_id") < HW_ID_MAX and integer(row, "instance") < MAX_INSTANCE:  # amdgpu skips the others too
            found.append(_ip(row, number, version, tuple(base & BASE_MASK for base in raw) if wide else raw))
    return found


def _ip(row: Fields, die: int, version: int, bases: tuple[int, ...]) -> Ip:
    hw_id, revision = integer(row, "hw_id"), integer(row, "revision")
    fused = revision & VCN_DISABLED if hw_id == facts.VCN_HWID else 0
    triple = (integer(row, "major"), integer(row, "minor"), revision & ~fused)
    low, high = integer(row, "low.sub_revision"), integer(row, "low.variant")
    if version < 3:
        return Ip(hw_id, integer(row, "instance"), triple, bases, die, harvest=low, fused=fused)
    return Ip(hw_id, integer(row, "instance"), triple, bases, die, low, high, fused=fused)


def _info(what: str, table_id: int, layouts: Versions) -> Callable[[bytes, int, int, str], Fields]:
    """Return the reader of a table with id, version, size and 32-bit fields."""

    def reader(blob: bytes, start: int, stated: int, name: str) -> Fields:
        head = read(TABLE_HEADER, blob, start, name, f"the {what} table")
        if head["table_id"] != table_id:
            raise FirmwareError(
                f"{name}: byte {start} holds {integer(head, 'table_id'):#x}, a {what} table begins with {table_id:#x}"
            )
        size = integer(head, "size")
        _check_sum(blob, start, start + size, stated, name, f"the {what} table")
        major, minor = integer(head, "version_major"), integer(head, "version_minor")
        known = [number for number in layouts.get(major, ()) if number <= minor]
        if not known:
            raise FirmwareError(
                f"{name}: byte {start + 4} says version {major}.{minor} of the {what} table, which is not known"
            )
        chosen = layouts[major][max(known)]
        if size < size_bytes(chosen):
            raise FirmwareError(
                f"{name}: the {what} table {major}.{minor} at byte {start} takes {size_bytes(chosen)} bytes, not {size}"
            )
        return read(chosen, blob, start, name, f"the {what} table")

    return reader


def _harvest(blob: bytes, start: int, stated: int, name: str) -> tuple[tuple[int, int], ...]:
    table = read(HARVEST, blob, start, name, "the harvest table")
    if table["header.signature"] != facts.HARVEST_TABLE_SIGNATURE:
        raise FirmwareError(
            f"{name}: byte {start} holds {integer(table, 'header.signature'):#x}, a harvest table {facts.HARVEST_TABLE_SIGNATURE:#x}"
        )
    _check_sum(blob, start, start + HARVEST.SIZE, stated, name, "the harvest table")
    found = []
    for index in range(facts.harvest_table.members()["list"].dims[0]):
        hw_id = integer(table, f"list[{index}].hw_id")
        if not hw_id:
            # the first empty row ends the list
            break
        found.append((hw_id, integer(table, f"list[{index}].number_instance")))
    return tuple(found)
