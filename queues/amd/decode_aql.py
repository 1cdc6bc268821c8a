"""Decoder of AQL: bytes of an HSA queue in, packets of 64 bytes out. It uses the same layouts as the builders."""

from __future__ import annotations

import struct

from ringup.autogen.amd import hsa
from ringup.autogen.layout import Struct
from ringup.queues.amd.aql import (
    HEADER,
    PACKET_BYTES,
    SIGNAL_ALIGN,
    PacketType,
    Pm4Ib,
    VendorFormat,
    members,
)
from ringup.queues.amd.decode_pm4 import Pm4Decoder
from ringup.queues.amd.packets import Version
from ringup.queues.decode import Fetch, Packet, Stream, Walk

PACKET_DWORDS = PACKET_BYTES // 4
KINDS: dict[int, type[Struct]] = {
    PacketType.KERNEL_DISPATCH: hsa.hsa_kernel_dispatch_packet_s,
    PacketType.AGENT_DISPATCH: hsa.hsa_agent_dispatch_packet_s,
    PacketType.BARRIER_AND: hsa.hsa_barrier_and_packet_s,
    PacketType.BARRIER_OR: hsa.hsa_barrier_or_packet_s,
}
VENDOR_KINDS: dict[int, type[Struct]] = {
    VendorFormat.PM4_IB: Pm4Ib,
    VendorFormat.BARRIER_VALUE: hsa.hsa_amd_barrier_value_packet_s,
}
MEMBERS = {kind: members(kind) for kind in (*KINDS.values(), *VENDOR_KINDS.values())}
TYPES = {kind.value: kind.name for kind in PacketType}
FORMATS = {kind.value: kind.name for kind in VendorFormat}
DIMENSIONS = (1 << hsa.HSA_KERNEL_DISPATCH_PACKET_SETUP_WIDTH_DIMENSIONS) - 1
# the vendor's header behind the first 16 bits: the format is its low byte
FORMAT_MASK = 0xFF


class AqlDecoder:
    """Decodes queues of one version of the graphics core. `fetch(gpu_va, size_bytes)` returns the bytes of PM4 that a
    packet runs; without it, they are not followed.
    """

    def __init__(self, version: Version, fetch: Fetch | None = None) -> None:
        """Raise `NotSupported` for a version without facts."""
        self.version = version
        self._pm4 = Pm4Decoder(version, fetch)

    def decode(self, data: Stream) -> list[Packet]:
        """Return the packets of a queue, given as bytes or dwords; every dword belongs to one of them."""
        called = self._pm4.walk()
        return Walk(lambda dwords, at, _: self._packet(dwords, at, called), None).packets(data)

    def _packet(self, dwords: tuple[int, ...], at: int, called: Walk) -> Packet:
        raw = dwords[at : at + PACKET_DWORDS]
        notes = []
        if len(raw) < PACKET_DWORDS:
            notes.append(f"truncated: a packet has {PACKET_DWORDS} dwords, {len(raw)} are left")
        head = HEADER(raw[0] & 0xFFFF)
        kind, name = _kind(head.type, raw[0] >> 16 & FORMAT_MASK)
        fields: dict[str, int] = {
            "type": head.type,
            "barrier": head.barrier,
            "acquire_fence_scope": head.acquire_fence_scope,
            "release_fence_scope": head.release_fence_scope,
        }
        if head.reserved:
            fields["header.reserved"] = head.reserved
        inner: tuple[Packet, ...] = ()
        if kind is None:
            fields |= {f"dword_{n}": value for n, value in enumerate(raw)} if head.type != PacketType.INVALID else {}
            notes.append(WITHOUT.get(head.type, f"no packet has the type {head.type}"))
        else:
            data = struct.pack(f"<{len(raw)}I", *raw)
            values = {
                member.name: struct.unpack_from(f"<{member.letter}", data, member.at)[0]
                for member in MEMBERS[kind]
                if member.at + member.bits // 8 <= len(data)
            }
            fields |= {_field(kind, name): value for name, value in values.items() if name not in HEADERS}
            if len(raw) == PACKET_DWORDS:
                notes += _wrong(kind, values)
                if kind is Pm4Ib:
                    inner, note = self._run(raw, fields, called)
                    notes += [note] if note else []
        return Packet(at, name, fields, raw, "; ".join(notes), (), inner)

    def _run(self, raw: tuple[int, ...], fields: dict[str, int], called: Walk) -> tuple[tuple[Packet, ...], str]:
        """Read the PM4 packet that a packet contains, and follow it."""
        jump = self._pm4.decode(raw[1:5])[0]
        if jump.name != "INDIRECT_BUFFER" or len(jump.raw) != 4:
            return (), f"its ib_jump_cmd is no INDIRECT_BUFFER but {jump.name}"
        for n in range(4):
            del fields[f"ib_jump_cmd[{n}]"]
        fields |= jump.fields
        return called.called(jump.fields["ib_base"], jump.fields["ib_size"])


HEADERS = ("header", "header.header")
WITHOUT = {
    PacketType.INVALID: "no packet: a queue stops here until one is stored",
    PacketType.VENDOR_SPECIFIC: "no vendor packet of AMD has this format",
}


def _kind(packet_type: int, vendor_format: int) -> tuple[type[Struct] | None, str]:
    if packet_type == PacketType.VENDOR_SPECIFIC:
        return VENDOR_KINDS.get(vendor_format), FORMATS.get(vendor_format, f"VENDOR_{vendor_format:#x}")
    return KINDS.get(packet_type), TYPES.get(packet_type, f"UNKNOWN_{packet_type:#x}")


def _field(kind: type[Struct], name: str) -> str:
    """Return the name under which a value is shown: `type` is the header's, so that of an agent's function differs."""
    return (
        "agent_function" if kind is hsa.hsa_agent_dispatch_packet_s and name == "type" else name.removeprefix("header.")
    )


def _wrong(kind: type[Struct], values: dict[str, int]) -> list[str]:
    """Return what an engine refuses in a whole packet."""
    notes = [f"{name} is {value:#x}, not 0" for name, value in values.items() if "reserved" in name and value]
    for name, value in values.items():
        if ("signal" in name) and value % SIGNAL_ALIGN:
            notes.append(f"{name} {value:#x} is not aligned to {SIGNAL_ALIGN} bytes")
    if kind is hsa.hsa_kernel_dispatch_packet_s:
        notes += _wrong_dispatch(values)
    return notes


def _wrong_dispatch(values: dict[str, int]) -> list[str]:
    notes = []
    if not 1 <= values["setup"] <= DIMENSIONS:
        notes.append(f"setup {values['setup']:#x}: a grid has 1 to 3 dimensions")
    zero = [name for name, value in values.items() if name.startswith(("grid_size", "workgroup_size")) and not value]
    if zero:
        notes.append(f"{', '.join(zero)} 0")
    if not values["kernel_object"]:
        notes.append("no kernel")
    return notes


def decode_aql(data: Stream, version: Version, fetch: Fetch | None = None) -> list[Packet]:
    """Decode the packets of an HSA queue of a graphics core's version."""
    return AqlDecoder(version, fetch).decode(data)
