"""Decoder of SDMA: bytes of a ring or an indirect buffer in, packets out. It uses the same layouts as the builders.

A header does not say how long its packet is. So after an unknown header, each dword becomes a packet of its own until
one looks like a known header.
"""

from __future__ import annotations

from ringup.autogen.amd import sdma_packets as sdma
from ringup.queues.amd.packets import Version
from ringup.queues.amd.sdma_layout import Layout, layouts
from ringup.queues.amd.sdma_words import row_of
from ringup.queues.decode import Fetch, Packet, Stream, Walk


class SdmaDecoder:
    """Decodes streams of one version of the copy engine. `fetch(gpu_va, size_bytes)` returns the bytes of an indirect
    buffer; without it, indirect buffers are not followed.
    """

    def __init__(self, version: Version, fetch: Fetch | None = None) -> None:
        """Raise `NotSupported` for a version without facts."""
        row_of(version)
        self.version, self.fetch = version, fetch
        self._layouts = layouts(version)

    def decode(self, data: Stream) -> list[Packet]:
        """Return the packets of a stream, given as bytes or dwords; every dword belongs to one of them."""
        return Walk(self._packet, self.fetch).packets(data)

    def _packet(self, dwords: tuple[int, ...], at: int, walk: Walk) -> Packet:
        head = dwords[at]
        op, sub_op = head & 0xFF, head >> 8 & 0xFF
        layout = self._layouts.get((op, sub_op))
        if layout is None:
            return Packet(at, f"UNKNOWN_{op:#x}_{sub_op:#x}", {}, (head,), "no such packet in this version")
        size = layout.length(dwords, at)
        raw = dwords[at : at + size]
        notes = [] if len(raw) == size else [f"truncated: it has {size} dwords, {len(raw)} are left"]
        fields = _fields(layout, raw)
        inner: tuple[Packet, ...] = ()
        if op == sdma.SDMA_OP_INDIRECT and len(raw) == size:
            inner, note = walk.called(fields["ib_base"], fields["ib_size"])
            notes += [note] if note else []
        return Packet(at, layout.name, fields, raw, "; ".join(notes), (), inner)


def _fields(layout: Layout, raw: tuple[int, ...]) -> dict[str, int]:
    """Read a packet's fields from its dwords, as far as the stream holds them. The pieces of an operand become one."""
    fields: dict[str, int] = {}
    end = len(raw)
    for name, at, lo, mask, shift in layout.fields:
        if at < end:
            fields[name] = fields.get(name, 0) | (raw[at] >> lo & mask) << shift
    for at, rest in enumerate(layout.rests[:end]):
        if raw[at] & rest:
            fields[f"dword_{at}.reserved"] = raw[at] & rest
    if layout.payload is not None:
        for i, value in enumerate(raw[layout.size :]):
            fields[f"data[{i}]"] = value
    return fields


def decode_sdma(data: Stream, version: Version, fetch: Fetch | None = None) -> list[Packet]:
    """Decode one SDMA stream of an engine's version."""
    return SdmaDecoder(version, fetch).decode(data)
