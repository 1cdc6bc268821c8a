"""Pushbuffers: GPFIFO entries, and the methods that their words are.

Source: clc56f.h of open-gpu-doc (NVC56F_GP_ENTRY0, NVC56F_DMA), "Pushbuffer" in its manuals/…/dev_pbdma.ref.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

ENTRY_BYTES = 8


class Operation(IntEnum):
    """The opcode of a method header, in its bits 31:29."""

    TERTIARY = 0
    INCREMENTING = 1
    TERTIARY_OLD = 2
    NON_INCREMENTING = 3
    IMMEDIATE = 4
    INCREMENT_ONCE = 5
    END_SEGMENT = 7


class BadPushbuffer(Exception):  # an event of the card
    """An entry or a header that the host refuses."""


class Entry(NamedTuple):
    """A GPFIFO entry: a run of words, or a command to the host if there are none."""

    gpu_va: int
    dwords: int
    opcode: int


class Method(NamedTuple):
    """A method: a byte address, data, and the subchannel that it goes to."""

    subchannel: int
    address: int
    data: int


def entry(word0: int, word1: int) -> Entry:
    """Read a GPFIFO entry."""
    return Entry(word0 & ~3 | (word1 & 0xFF) << 32, word1 >> 10 & 0x1F_FFFF, word1 & 0xFF)


def methods(words: list[int]) -> Iterator[Method]:
    """Yield the methods of a segment. Raises `BadPushbuffer` where it reaches a header that is none, or its end within
    a method.
    """
    at = 0
    while at < len(words):
        header = words[at]
        at += 1
        operation, count = header >> 29, header >> 16 & 0x1FFF
        subchannel, address = header >> 13 & 7, (header & 0xFFF) << 2
        if operation == Operation.END_SEGMENT:
            return
        if operation == Operation.TERTIARY:
            # a word of zeros does nothing; so do masks of sub-devices on a board with one
            if header and header >> 16 & 3 == 0:
                raise BadPushbuffer(f"header {header:#010x} has the format of Kepler and before")
            continue
        if operation == Operation.IMMEDIATE:
            yield Method(subchannel, address, count)
            continue
        if operation not in (Operation.INCREMENTING, Operation.NON_INCREMENTING, Operation.INCREMENT_ONCE):
            raise BadPushbuffer(f"header {header:#010x} has opcode {operation}, which is none")
        if at + count > len(words):
            raise BadPushbuffer(f"header {header:#010x} has {count} data words, and {len(words) - at} follow")
        for index, data in enumerate(words[at : at + count]):
            step = {Operation.INCREMENTING: index, Operation.NON_INCREMENTING: 0}.get(
                Operation(operation), min(index, 1)
            )
            yield Method(subchannel, address + 4 * step, data)
        at += count
