"""NVIDIA's decoded packets as text: one line a packet, its methods, fields and enumerated values indented below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ringup.queues.decode import Packet
from ringup.queues.nv.decode_packet import Method, NvPacket

# dwords of a packet, or data words of a method, that its line shows; the number of the others follows
RAW_SHOWN = 8
INDENT = "    "
# fields that count something
DECIMAL = ("count", "length")


def lines(packets: Iterable[Packet], *, everything: bool = True, depth: int = 0) -> Iterator[str]:
    """Yield the text of a stream, line by line. Without `everything`, fields that are zero are left out, and those of a
    header, which its line tells in short.
    """
    pad = INDENT * depth
    for packet in packets:
        target = f" {packet.target}" if isinstance(packet, NvPacket) and packet.target else ""
        yield f"{pad}[{packet.offset_dwords:#06x}] {packet.name}{target}  ({_words(packet.raw)}){_note(packet.note)}"
        if isinstance(packet, NvPacket):
            if everything or not packet.target:
                yield from _fields(packet.fields, packet.names, pad + INDENT, everything)
            for method in packet.methods:
                yield from _method(method, pad + INDENT, everything)
        yield from lines(packet.inner, everything=everything, depth=depth + 1)


def _words(words: tuple[int, ...]) -> str:
    more = f" +{len(words) - RAW_SHOWN}" if len(words) > RAW_SHOWN else ""
    return " ".join(f"{word:08x}" for word in words[:RAW_SHOWN]) + more


def _note(note: str) -> str:
    return f"  ! {note}" if note else ""


def _fields(fields: Mapping[str, int], names: Mapping[str, str], pad: str, everything: bool) -> Iterator[str]:
    for name, value in fields.items():
        if value or everything:
            shown = f"{value}" if name in DECIMAL else f"{value:#x}"
            yield f"{pad}{name}: {shown}" + (f" ({names[name]})" if name in names else "")


def _method(method: Method, pad: str, everything: bool) -> Iterator[str]:
    value = f"{method.values[0]:#010x}" if len(method.values) == 1 else _words(method.values)
    yield f"{pad}{method.name} ({method.address_bytes:#06x}) <- {value}{_note(method.note)}"
    if len(method.fields) > 1 or method.names:
        yield from _fields(method.fields, method.names, pad + INDENT, everything)


def document(packet: Packet) -> dict[str, object]:
    """Return a packet as plain values that can be written as JSON."""
    shown: dict[str, object] = {
        "offset_dwords": packet.offset_dwords,
        "name": packet.name,
        "fields": packet.fields,
        "raw": list(packet.raw),
    }
    if isinstance(packet, NvPacket):
        if packet.target:
            shown["target"] = packet.target
        if packet.names:
            shown["names"] = dict(packet.names)
        if packet.methods:
            shown["methods"] = [_method_document(method) for method in packet.methods]
    if packet.note:
        shown["note"] = packet.note
    if packet.inner:
        shown["inner"] = [document(one) for one in packet.inner]
    return shown


def _method_document(method: Method) -> dict[str, object]:
    shown: dict[str, object] = {
        "address": method.address_bytes,
        "name": method.name,
        "values": list(method.values),
        "fields": dict(method.fields),
    }
    if method.names:
        shown["names"] = dict(method.names)
    if method.note:
        shown["note"] = method.note
    return shown
