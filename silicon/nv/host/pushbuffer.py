"""Pushbuffers: GPFIFO entries, and the runs of methods that their words are.

Source: clc56f.h of open-gpu-doc (NVC56F_GP_ENTRY0, NVC56F_DMA); manuals/ampere/ga100/dev_pbdma.ref.txt ("GP_ENTRY");
manuals/turing/tu104/dev_ram.ref.txt ("FIFO DMA").
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

ENTRY_BYTES = 8
# the board's number among those that share a pushbuffer
SUBDEVICE = 0
# methods of one turn: others get theirs in a long run
MAX_RUN = 1024
LAST_VA = (1 << 40) - 1


class Operation(IntEnum):
    """The opcode of a method header, in its bits 31:29."""

    TERTIARY = 0
    INCREMENTING = 1
    TERTIARY_OLD = 2
    NON_INCREMENTING = 3
    IMMEDIATE = 4
    INCREMENT_ONCE = 5
    END_SEGMENT = 7


class Control(IntEnum):
    """What an entry without words asks of the host, GP_ENTRY1_OPCODE."""

    NOP = 0
    ILLEGAL = 1
    GP_CRC = 2
    PB_CRC = 3


class Tertiary(IntEnum):
    """The operation of a header with opcode 0, in its bits 17:16."""

    METHOD = 0
    SET_MASK = 1
    STORE_MASK = 2
    USE_MASK = 3


# how far the address moves along a run
STEPS = {Operation.INCREMENTING: 1, Operation.NON_INCREMENTING: 0, Operation.INCREMENT_ONCE: 2}


class BadPushbuffer(Exception):  # an event of the card
    """An entry or a header that the host refuses."""


class Entry(NamedTuple):
    """A GPFIFO entry: a run of words, or a command to the host if there are none.

    `conditional`: it is fetched only while the board is active. `waits`: only when the segment before is done.
    """

    gpu_va: int
    dwords: int
    opcode: int
    conditional: bool
    subroutine: bool
    waits: bool
    operand: int


class Run(NamedTuple):
    """Methods of one header: the byte address of the first, how the address moves (`STEPS`), and their data."""

    subchannel: int
    address: int
    step: int
    data: Sequence[int]


def entry(word0: int, word1: int) -> Entry:
    """Read a GPFIFO entry. Raises `BadPushbuffer` for words beyond the address space."""
    gpu_va, dwords = word0 & ~3 | (word1 & 0xFF) << 32, word1 >> 10 & 0x1F_FFFF
    if dwords and gpu_va + 4 * dwords > LAST_VA:
        raise BadPushbuffer(f"a GPFIFO entry of {dwords} words at {gpu_va:#x} crosses the end of the address space")
    return Entry(gpu_va, dwords, word1 & 0xFF, bool(word0 & 1), bool(word1 >> 9 & 1), bool(word1 >> 31), word0)


class Parser:
    """Reads the words of a channel. A run may go on in the next segment; the mask of boards lasts."""

    def __init__(self) -> None:
        self._mask = self._stored = 0xFFF
        # the run that goes on: its header's subchannel, next address, step and words left
        self._rest: tuple[int, int, int, int] | None = None

    @property
    def active(self) -> bool:
        """Whether the mask includes this board. While it does not, methods are ignored."""
        return bool(self._mask >> SUBDEVICE & 1)

    @property
    def within_run(self) -> bool:
        """Whether the last segment ended within a run."""
        return self._rest is not None

    def runs(self, words: Sequence[int]) -> Iterator[Run]:
        """Yield the runs of a segment. Raises `BadPushbuffer` where it reaches a header that is none."""
        at = 0
        while at < len(words):
            if self._rest is not None:
                at = yield from self._go_on(words, at)
                continue
            header = words[at]
            at += 1
            # a word of zeros does nothing, whatever format it has
            if not header:
                continue
            operation, count = header >> 29, header >> 16 & 0x1FFF
            subchannel, address = header >> 13 & 7, (header & 0xFFF) << 2
            if operation == Operation.END_SEGMENT:
                return
            if operation == Operation.TERTIARY:
                self._tertiary(header)
            elif operation == Operation.IMMEDIATE:
                if self.active:
                    yield Run(subchannel, address, 1, (count,))
            elif operation in STEPS:
                if count:
                    self._rest = subchannel, address, STEPS[Operation(operation)], count
            else:
                raise BadPushbuffer(f"header {header:#010x} has opcode {operation}, which is none")

    def _go_on(self, words: Sequence[int], at: int) -> Generator[Run, None, int]:
        """Yield a piece of the run that goes on, and return the position behind it."""
        assert self._rest is not None
        subchannel, address, step, left = self._rest
        count = min(left, len(words) - at, MAX_RUN)
        end = at + count
        # behind a piece, the address is where the next one begins
        moved = address + 4 * (count if step == 1 else 1 if step else 0)
        self._rest = None if count == left else (subchannel, moved, 0 if step == 2 else step, left - count)
        if self.active:
            yield Run(subchannel, address, step, words[at:end])
        return end

    def _tertiary(self, header: int) -> None:
        value = header >> 4 & 0xFFF
        operation = header >> 16 & 3
        if operation == Tertiary.SET_MASK:
            self._mask = value
        elif operation == Tertiary.STORE_MASK:
            self._stored = value
        elif operation == Tertiary.USE_MASK:
            self._mask = self._stored
        else:
            raise BadPushbuffer(f"header {header:#010x} has the format of Kepler and before")
