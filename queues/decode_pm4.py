"""Decoder of PM4: bytes of a ring or an indirect buffer in, packets out. The layouts are those that the builders go by."""

from __future__ import annotations

from collections.abc import Sequence

from ringup.autogen.amd import pm4
from ringup.errors import NotSupported
from ringup.queues.decode import Fetch, Follow, Packet, dwords_of, leftover
from ringup.queues.packets import Version
from ringup.queues.pm4_layout import MAX_BODY, REGISTERS, TYPE_0, TYPE_2, TYPE_3, WINDOW_STARTS, Layout, layouts

RESERVED_HEADER = 0xF8  # bits that HEADER has no field for
CALLS = ("INDIRECT_BUFFER", "RUN_LIST")


class Pm4Decoder:
    """Decodes streams of one version of the graphics core. `fetch(gpu_va, size_bytes)`: follow indirect buffers with it."""

    def __init__(self, version: Version, fetch: Fetch | None = None) -> None:
        """Raise `NotSupported` for a version without facts."""
        if version not in pm4.PLACES:
            raise NotSupported(
                f"no packets are known for graphics core {version}; known: {', '.join(map(str, pm4.PLACES))}"
            )
        self.version, self.fetch = version, fetch
        self._layouts, self._names = layouts(version), pm4.OPCODES[version]

    def decode(self, data: bytes | bytearray | memoryview | Sequence[int]) -> list[Packet]:
        """Return the packets of a stream, given as bytes or dwords; every dword belongs to one of them."""
        return self._decode(data, Follow(self.fetch))

    def _decode(self, data: bytes | bytearray | memoryview | Sequence[int], follow: Follow) -> list[Packet]:
        dwords, rest = dwords_of(data)
        packets: list[Packet] = []
        at, total = 0, len(dwords)
        while at < total:
            head = dwords[at]
            kind = head >> 30
            if kind == TYPE_3:
                packet, size = self._type3(dwords, at, follow)
            elif kind == TYPE_2:
                packet, size = Packet(at, "TYPE_2", {}, (head,), "filler of one dword"), 1
            elif kind == TYPE_0:
                packet, size = _type0(dwords, at)
            else:
                packet, size = Packet(at, "TYPE_1", {}, (head,), "no engine takes type-1 packets"), 1
            packets.append(packet)
            at += size
        return packets + leftover(total, rest)

    def _type3(self, dwords: tuple[int, ...], at: int, follow: Follow) -> tuple[Packet, int]:
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
                inner, note = self._call(fields, follow)
                notes += [note] if note else []
        else:
            fields |= {f"dword_{i}": value for i, value in enumerate(raw[1:], 1)}
        return Packet(at, name, fields, raw, "; ".join(notes), tuple(registers), inner), max(len(raw), 1)

    def _call(self, fields: dict[str, int], follow: Follow) -> tuple[tuple[Packet, ...], str]:
        data, note = follow.enter(fields["ib_base"], fields["ib_size"])
        chained = "chained: what follows is not run" if fields.get("chain") else ""
        if data is None:
            return (), "; ".join(filter(None, (chained, note)))
        inner = tuple(self._decode(data, follow))
        follow.leave()
        return inner, "; ".join(filter(None, (chained, note)))


def _fields(layout: Layout, raw: tuple[int, ...], fields: dict[str, int], registers: list[tuple[int, int]]) -> None:
    """Take a packet's fields out of its dwords, as many as there are."""
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


def _type0(dwords: tuple[int, ...], at: int) -> tuple[Packet, int]:
    """Show a type-0 packet: consecutive registers from the low 16 bits on."""
    head = dwords[at]
    size = (head >> 16 & MAX_BODY) + 2
    raw = dwords[at : at + size]
    note = "type-0 packets are not taken by compute queues"
    if len(raw) < size:
        note += f"; truncated: the header says {size} dwords, {len(raw)} are left"
    return Packet(at, "TYPE_0", {}, raw, note, tuple(enumerate(raw[1:], head & 0xFFFF))), max(len(raw), 1)


def decode_pm4(
    data: bytes | bytearray | memoryview | Sequence[int], version: Version, fetch: Fetch | None = None
) -> list[Packet]:
    """Decode one PM4 stream of a graphics core's version."""
    return Pm4Decoder(version, fetch).decode(data)
