"""Build the tables on a card itself, discovery binary and expansion ROM: for tests, and for synthetic cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from construct import Array, Int32ul, Int64ul

from ringup.autogen.amd import atom
from ringup.autogen.amd import discovery as facts
from ringup.firmware.amd import discovery, vbios
from ringup.firmware.layouts import Fields, Value, build, size_bytes


@dataclass(frozen=True, slots=True)
class TableBytes:
    """A table of a discovery binary, ready to place: its index (`facts.GC`) and its bytes, header included."""

    index: int
    data: bytes


def discovery_binary(
    dies: Iterable[Iterable[discovery.Ip]], tables: Iterable[TableBytes] = (), *, version: int = 3, wide: bool = False
) -> bytes:
    """Build a discovery binary: blocks by die, then tables. `wide` writes 64-bit bases, which need `version` 4."""
    bodies = [_die(number, list(ips), version, wide=wide) for number, ips in enumerate(dies)]
    places: dict[str, Value] = {}
    at = discovery.HEADER.sizeof()
    die_at = at + discovery.IP_HEADER.sizeof()
    for number, body in enumerate(bodies):
        places |= {f"die_info[{number}].die_id": number, f"die_info[{number}].die_offset": die_at}
        die_at += len(body)
    size = die_at - at
    listed = build(
        discovery.IP_HEADER,
        {
            "signature": facts.DISCOVERY_TABLE_SIGNATURE,
            "version": version,
            "size": size,
            "num_dies": len(bodies),
            "flags.base_addr_64_bit": wide,
            **places,
        },
    ) + b"".join(bodies)
    head: dict[str, Value] = {"binary_signature": facts.BINARY_SIGNATURE, "version_major": 1}
    payload = bytearray()
    for table in (TableBytes(facts.IP_DISCOVERY, listed), *tables):
        row = f"table_list[{table.index}]"
        head |= {
            f"{row}.offset": at + len(payload),
            f"{row}.size": len(table.data),
            f"{row}.checksum": discovery.byte_sum(table.data),
        }
        payload += table.data
    head["binary_size"] = at + len(payload)
    summed = build(discovery.HEADER, head)[discovery.SUMMED_FROM :] + payload
    return build(discovery.HEADER, head | {"binary_checksum": discovery.byte_sum(summed)}) + bytes(payload)


def _die(number: int, ips: list[discovery.Ip], version: int, *, wide: bool) -> bytes:
    body = bytearray(build(discovery.DIE, {"die_id": number, "num_ips": len(ips)}))
    for ip in ips:
        row: dict[str, Value] = {
            "hw_id": ip.hw_id,
            "instance": ip.instance,
            "num_base_address": len(ip.bases),
            "major": ip.version[0],
            "minor": ip.version[1],
            "revision": ip.version[2] | ip.fused,
            "low.sub_revision": ip.sub_revision if version >= 3 else ip.harvest,
            "low.variant": ip.variant,
        }
        body += build(discovery.IP, row) + bytes(
            Array(len(ip.bases), Int64ul if wide else Int32ul).build(list(ip.bases))
        )
    return bytes(body)


def info_table(index: int, version: tuple[int, int], fields: Fields) -> TableBytes:
    """Build a GC, MALL, VCN or NPS table of a version that `discovery` knows."""
    table_id, layouts = {
        facts.GC: (facts.GC_TABLE_ID, discovery.GC_INFO),
        facts.MALL_INFO: (facts.MALL_INFO_TABLE_ID, discovery.MALL_INFO),
        facts.VCN_INFO: (facts.VCN_INFO_TABLE_ID, discovery.VCN_INFO),
        facts.NPS_INFO: (facts.NPS_INFO_TABLE_ID, discovery.NPS_INFO),
    }[index]
    described = layouts[version[0]][version[1]]
    size = "header.size" if index in (facts.GC, facts.VCN_INFO) else "header.size_bytes"
    head = {
        "header.table_id": table_id,
        "header.version_major": version[0],
        "header.version_minor": version[1],
        size: size_bytes(described),
    }
    return TableBytes(index, build(described, head | dict(fields)))


def harvest_table(harvested: Iterable[tuple[int, int]]) -> TableBytes:
    """Build the table of instances that are fused off, as (hw_id, instance)."""
    rows: dict[str, Value] = {"header.signature": facts.HARVEST_TABLE_SIGNATURE}
    for index, (hw_id, instance) in enumerate(harvested):
        rows |= {f"list[{index}].hw_id": hw_id, f"list[{index}].number_instance": instance}
    return TableBytes(facts.HARVEST_INFO, build(discovery.HARVEST, rows))


@dataclass(frozen=True, slots=True)
class DataTable:
    """A data table of a ROM: its revision, and the fields after its header, or its bytes if `vbios` does not decode
    it.
    """

    revision: tuple[int, int]
    fields: Fields | bytes


def expansion_rom(
    tables: Mapping[str, DataTable],
    commands: Mapping[str, bytes] | None = None,
    *,
    strings: tuple[str, ...] = ("113-000000-000",),
    title: str = "",
    version: str = "",
    date: str = "01/01/24 00:00",
    pci: tuple[int, int] = (0x1002, 0),
) -> bytes:
    """Build a ROM of one image, padded to whole blocks, whose bytes add up to 0; `pci` is vendor and device."""
    body = bytearray(vbios.ROM.sizeof())
    places: dict[str, int] = {}

    def put(name: str, data: bytes) -> None:
        body.extend(b"\0" * (-len(body) % 4))
        places[name] = len(body)
        body.extend(data)

    put("pcir", build(vbios.PCI_DATA, {"signature": vbios.PCIR, "vendor": pci[0], "device": pci[1]}).ljust(24, b"\0"))
    put("strings", b"".join(text.encode() + b"\0" for text in strings) + b"\r\n" + title.encode() + b"\0")
    put("version", b"ATOMBIOSBK-AMD VER" + version.encode() + b"\0")
    at: dict[str, dict[str, Value]] = {"data": {}, "commands": {}}
    for name, table in tables.items():
        put(name, _data_table(name, table))
        at["data"][name] = places[name]
    for name, code in (commands or {}).items():
        put(name, _headed(2, 1, code))
        at["commands"][name] = places[name]
    put("data", _headed(2, 1, build(vbios.DATA_LIST, at["data"])))
    put("commands", _headed(2, 1, build(vbios.COMMAND_LIST, at["commands"])))
    put(
        "header",
        build(
            vbios.HEADER,
            {
                "table_header.structuresize": vbios.HEADER.SIZE,
                "table_header.format_revision": 2,
                "table_header.content_revision": 2,
                "atom_bios_string": tuple(vbios.ATOM_MAGIC),
                "masterhwfunction_offset": places["commands"],
                "masterdatatable_offset": places["data"],
            },
        ),
    )
    # at least one byte is left for the sum
    blocks = len(body) // vbios.ROM_BLOCK_BYTES + 1
    body.extend(b"\0" * (blocks * vbios.ROM_BLOCK_BYTES - len(body)))
    body[: vbios.ROM.sizeof()] = build(
        vbios.ROM,
        {
            "magic": vbios.MAGIC,
            "blocks": blocks,
            "pcir": places["pcir"],
            "strings": len(strings),
            "ati_magic": vbios.ATI_MAGIC,
            "header": places["header"],
            "date": date.encode(),
            "string_start": places["strings"],
        },
    )
    body[-1] = -sum(body) & 0xFF
    return bytes(body)


def _data_table(name: str, table: DataTable) -> bytes:
    major, minor = table.revision
    if isinstance(table.fields, bytes):
        return _headed(major, minor, table.fields)
    described = vbios.DECODED[name][table.revision]
    head = {
        "table_header.structuresize": described.SIZE,
        "table_header.format_revision": major,
        "table_header.content_revision": minor,
    }
    return build(described, head | dict(table.fields))


def _headed(major: int, minor: int, data: bytes) -> bytes:
    size = atom.atom_common_table_header.SIZE + len(data)
    return (
        build(vbios.TABLE_HEADER, {"structuresize": size, "format_revision": major, "content_revision": minor}) + data
    )
