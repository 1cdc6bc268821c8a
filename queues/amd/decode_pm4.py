"""Decoder of PM4: bytes of a ring or an indirect buffer in, packets out. It uses the same layouts as the builders."""

from __future__ import annotations

from ringup.autogen.amd import pm4
from ringup.queues.amd.packets import Version
from ringup.queues.amd.pm4_layout import (
    MAX_BODY,
    REGISTERS,
    TYPE_0,
    TYPE_2,
    TYPE_3,
    WINDOW_STARTS,
    Layout,
    layouts,
    opcodes,
)
from ringup.queues.decode import Fetch, Packet, Stream, Walk

# the bits of a header that no field of HEADER covers
RESERVED_HEADER = 0xF8
CALLS = ("INDIRECT_BUFFER", "RUN_LIST")


class Pm4Decoder:
    """Decodes streams of one version of the graphics core. `fetch(gpu_va, size_bytes)` returns the bytes of an indirect
    buffer; without it, indirect buffers are not followed.
    """

    def __init__(self, version: Version, fetch: Fetch | None = None) -> None:
        """Raise `NotSupported` for a version without facts."""
        self.version, self.fetch = version, fetch
        self._layouts, self._names = layouts(version), opcodes(version)

    def decode(self, data: Stream) -> list[Packet]:
        """Return the packets of a stream, given as bytes or dwords; every dword belongs to one of them."""
        return self.walk().packets(data)

    def walk(self) -> Walk:
        """Return what follows indirect buffers, with one limit for all of them: for decoders of what calls them."""
        return Walk(self._packet, self.fetch)

    def _packet(self, dwords: tuple[int, ...], at: int, walk: Walk) -> Packet:
        head = dwords[at]
        kind = head >> 30
        if kind == TYPE_3:
            return self._type3(dwords, at, walk)
        if kind == TYPE_2:
            return Packet(at, "TYPE_2", {}, (head,), "filler of one dword")
        if kind == TYPE_0:
            return _type0(dwords, at)
        return Packet(at, "TYPE_1", {}, (head,), "no engine takes type-1 packets")

    def _type3(self, dwords: tuple[int, ...], at: int, walk: Walk) -> Packet:
        head = dwords[at]
        opcode, count = head >> 8 & 0xFF, head >> 16 & MAX_BODY
        size = 1 if count == MAX_BODY and opcode == pm4.NOP else count + 2
        raw = dwords[at : at + size]
        name, layout = self._names.get(opcode), self._layouts.get(opcode)
        notes = []
        if name is None:
            name = f"UNKNOWN_{opcode:#04x}"
            notes.append(f"no opcode {opcode:#04x} in this version")
        if head & RESERVED_HEADER:
            notes.append(f"reserved header bits {head & RESERVED_HEADER:#x}")
        if len(raw) < size:
            notes.append(f"truncated: the header says {size} dwords, {len(raw)} are left")
        fields: dict[str, int] = {"predicate": 1} if head & 1 else {}
        registers: list[tuple[int, int]] = []
        inner: tuple[Packet, ...] = ()
        if layout is not None:
            _fields(layout, raw, fields, registers)
            if size - 1 < layout.body and layout.name != "NOP":
                notes.append(f"{size - 1} dwords behind the header, its layout has {layout.body}")
            elif size - 1 > layout.body and not layout.open_:
                notes.append(f"{size - 1 - layout.body} dwords more than its layout has")
            if name in CALLS and len(raw) == size and size - 1 >= layout.body:
                inner, note = walk.called(fields["ib_base"], fields["ib_size"])
                notes += ["chained: what follows is not run"] if fields.get("chain") else []
                notes += [note] if note else []
        else:
            fields |= {f"dword_{i}": value for i, value in enumerate(raw[1:], 1)}
        return Packet(at, name, fields, raw, "; ".join(notes), tuple(registers), inner)


def _fields(layout: Layout, raw: tuple[int, ...], fields: dict[str, int], registers: list[tuple[int, int]]) -> None:
    """Read a packet's fields from its dwords, as far as the stream holds them."""
    end = len(raw)
    for part, taken, rest in layout.places(raw, 0, end):
        at = part.at
        value = raw[at]
        if taken:
            for name, lo, mask in taken:
                fields[name] = value >> lo & mask
            if value & rest:
                fields[f"{part.name}.reserved"] = value & rest
        elif part is REGISTERS:
            start = WINDOW_STARTS[layout.name] + (raw[1] & 0xFFFF)
            registers += enumerate(raw[at:], start)
        elif part.size == 0:
            for i, one in enumerate(raw[at:]):
                fields[f"{part.name}[{i}]"] = one
        elif part.size == 2:
            fields[part.name] = value | (raw[at + 1] << 32 if at + 1 < end else 0)
        else:
            fields[part.name] = value


def _type0(dwords: tuple[int, ...], at: int) -> Packet:
    """Return a type-0 packet. It writes consecutive registers; the low 16 bits of the header are the first one."""
    head = dwords[at]
    size = (head >> 16 & MAX_BODY) + 2
    raw = dwords[at : at + size]
    note = "type-0 packets are not taken by compute queues"
    if len(raw) < size:
        note += f"; truncated: the header says {size} dwords, {len(raw)} are left"
    return Packet(at, "TYPE_0", {}, raw, note, tuple(enumerate(raw[1:], head & 0xFFFF)))


def decode_pm4(data: Stream, version: Version, fetch: Fetch | None = None) -> list[Packet]:
    """Decode one PM4 stream of a graphics core's version."""
    return Pm4Decoder(version, fetch).decode(data)
