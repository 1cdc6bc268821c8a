"""The layout of SDMA packets: which packet a header begins, how long it is, which of its dwords are operands to patch.

Source: the facts from sdma_v6_0_0_pkt_open.h and vega10_sdma_pkt_open.h; sdma_v6_0.c for payloads and for counts that
are stored minus one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from ringup.queues.amd.packets import Hole, Template, Version, numbered
from ringup.queues.amd.sdma_words import COPY_LINEAR_V7, KINDS, words_of
from ringup.queues.dwords import to_bytes

# the header's names of an operand's pieces end in the piece's bits of the operand, or in dw0 and dw1
PIECE = re.compile(r"(.+)_(?:\d+_(\d+)|dw([01]))")
# counts of bytes that are stored minus one and have the dword for themselves
LESS_ONE = ("COPY_LINEAR.count", "CONSTANT_FILL.count")
# operands that must be aligned: to how many bytes
ALIGNED = {
    "FENCE.addr": 4,
    "POLL_REGMEM.addr": 4,
    "COND_EXE.addr": 4,
    "WRITE_UNTILED.dst_addr": 4,
    "CONSTANT_FILL.dst_addr": 4,
    "INDIRECT.ib_base": 32,
    "PTEPDE_GEN.dst_addr": 8,
}


class FieldAt(NamedTuple):
    """A field of a packet: `(dwords[at] >> lo & mask) << shift`. The pieces of an operand are several fields of one
    name; their sum is the operand.
    """

    name: str
    at: int
    lo: int
    mask: int
    shift: int = 0


class Layout(NamedTuple):
    """A packet in one version. `size`: its dwords. `rests`: for each dword, the bits that no field covers.

    `payload` and `extra`: the packet has as many more dwords as the value of the field `payload` plus `extra`.
    `longer`: the last dword is there only if this field is set.
    """

    name: str
    size: int
    fields: tuple[FieldAt, ...]
    rests: tuple[int, ...]
    payload: FieldAt | None = None
    extra: int = 0
    longer: FieldAt | None = None

    def length(self, dwords: Sequence[int], at: int) -> int:
        """Return how many dwords the packet at `dwords[at]` has. In a truncated packet, a missing count is 0."""
        size = self.size
        longer, payload = self.longer, self.payload
        if longer is not None and not dwords[at] >> longer.lo & longer.mask:
            size -= 1
        if payload is not None and at + payload.at < len(dwords):
            size += (dwords[at + payload.at] >> payload.lo & payload.mask) + self.extra
        return size


@cache
def layouts(version: Version) -> dict[tuple[int, int], Layout]:
    """Return the packets of a version by opcode and sub-opcode."""
    words = words_of(version)
    found = {}
    for kind in KINDS:
        if kind.name not in words:
            continue
        word = words[kind.name]
        size = word.WIDTH // 32
        covered = 0
        for field in word.FIELDS.values():
            covered |= field.mask
        rests = tuple(~covered >> 32 * at & 0xFFFF_FFFF for at in range(size))
        fields = {
            name: _field(name, field.lo, field.width)
            for name, field in word.FIELDS.items()
            if name not in ("op", "sub_op")
        }
        # `data0` is the first dword of the payload
        if kind.name == "NOP":
            del fields["data0"]
            layout = Layout(kind.name, 1, tuple(fields.values()), rests[:1], fields["count"])
        # the same; its count is stored minus one
        elif kind.name == "WRITE_UNTILED":
            del fields["data0"]
            layout = Layout(kind.name, 4, tuple(fields.values()), rests[:4], fields["count"], extra=1)
        else:
            longer = fields["cpv"] if word is COPY_LINEAR_V7 else None
            layout = Layout(kind.name, size, tuple(fields.values()), rests, longer=longer)
        found[kind.op, kind.sub_op] = layout
    return found


def _field(name: str, lo: int, width: int) -> FieldAt:
    piece = PIECE.fullmatch(name)
    base, shift = name, 0
    if piece:
        base, shift = piece[1], int(piece[2]) if piece[2] else 32 * int(piece[3])
    return FieldAt(base, lo // 32, lo % 32, (1 << width) - 1, shift)


def template(dwords: Sequence[int], version: Version) -> Template:
    """Return a stream of builders' packets as bytes, with the places of its operands. They are called `FENCE.addr`,
    `COPY_LINEAR.count`, `WRITE_UNTILED.data[1]`.

    Counts are in bytes, as in the builders' arguments.
    """
    known = layouts(version)
    found: list[tuple[str, Hole]] = []
    at = 0
    while at < len(dwords):
        layout = known.get((dwords[at] & 0xFF, dwords[at] >> 8 & 0xFF))
        size = layout.length(dwords, at) if layout else 0
        if layout is None or at + size > len(dwords):
            raise ValueError(f"dword {at} of the stream, {dwords[at]:#010x}, begins no packet whose operands are known")
        found += _holes(layout, at, size)
        at += size
    return Template(to_bytes(dwords), numbered(found))


def _holes(layout: Layout, at: int, size: int) -> Iterator[tuple[str, Hole]]:
    high = {(field.name, field.at) for field in layout.fields if field.shift == 32 and field.mask == 0xFFFF_FFFF}
    for field in layout.fields:
        name = f"{layout.name}.{field.name}"
        where = (at + field.at) * 4
        if field.at >= size or field.lo != field.shift:
            continue
        if (field.name, field.at + 1) in high:
            yield name, Hole(where, 8, max(ALIGNED.get(name, 1), 1 << field.lo))
        elif name in LESS_ONE:
            yield name, Hole(where, minus=1, bits=field.mask.bit_length())
        elif field.mask == 0xFFFF_FFFF:
            yield name, Hole(where)
    if layout.payload is not None and layout.name != "NOP":
        for i in range(layout.size, size):
            yield f"{layout.name}.data", Hole((at + i) * 4)
