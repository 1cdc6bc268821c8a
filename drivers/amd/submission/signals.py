"""Words that the card writes and the host reads, for a path where each read is a round trip: all lie in one page and
are read at once.

The page lies in VRAM. It begins with the interrupt ring's write pointer, which the card stores there, and a canary; the
timelines of the queues follow, a dword each, since every dword of a read takes time. The host writes the canary, zeroes
words before they are used, and writes those that the card only reads; the card writes all others. When nothing answers,
a path's cheap read may return the bytes of an earlier read; then the canary is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.bus.vram import VRAM_BAR
from ringup.drivers.buffer import Buffer
from ringup.drivers.memory.access import Access
from ringup.drivers.memory.buffers import Memory
from ringup.drivers.submission.queue_memory import TimelineWord
from ringup.drivers.transport.seam import Remote
from ringup.errors import OutOfMemory

PAGE_BYTES = 4096
CANARY_AT, FIRST_AT, EACH_BYTES = 4, 8, 4
WORD_BITS = 8 * EACH_BYTES
CANARY, LOW = 0x5AFE_C0DE, 0xFFFF_FFFF
DWORD = struct.Struct("<I")
TRIES = 3


class Signals:
    """The page of one card. The interrupt ring and the engines reach it in their own address spaces."""

    def __init__(self, system: Memory, user: Memory, registers: Registers, remote: Remote | None) -> None:
        self._user, self._registers, self._remote = user, registers, remote
        self.page: Buffer = system.alloc(
            PAGE_BYTES, "vram", visible=True, name="signals", cached=False, executable=False
        )
        self._access: Access = system.access(self.page)
        self._vram_pa = system.place(self.page)
        self._access.write(0, bytes(PAGE_BYTES))
        self._access.write(CANARY_AT, DWORD.pack(CANARY))
        self._in_user_space = user.share(system, self.page, "signals")
        self._taken: set[int] = set()
        self._seen = bytes(PAGE_BYTES)

    def timeline(self) -> TimelineWord:
        """Take a word for a queue's timeline."""
        place = self.take()
        return TimelineWord(
            self.gpu_va(place),
            self.reader(place),
            partial(self.store, place),
            WORD_BITS,
            partial(self._taken.discard, place),
        )

    def take(self) -> int:
        """Take a free word, zero it and return its place. Raises `OutOfMemory`."""
        place = next((at for at in range(FIRST_AT, PAGE_BYTES, EACH_BYTES) if at not in self._taken), None)
        if place is None:
            raise OutOfMemory(f"{len(self._taken)} timelines fill the page of signals; close some queues")
        self._taken.add(place)
        self.store(place, 0)
        return place

    def gpu_va(self, place: int) -> int:
        """Return the address of a word for queues."""
        return self._in_user_space.gpu_va + place

    def store(self, place: int, value: int) -> None:
        """Store the low half of `value` in a timeline that no engine is writing."""
        self._access.write(place, DWORD.pack(value & LOW))

    def reader(self, place: int) -> Callable[[], int]:
        """Return a function that reads a timeline; it reads all words up to that one."""
        return partial(self._look_at, place)

    def _look_at(self, place: int) -> int:
        self._look(place + EACH_BYTES)
        return self.seen(place)

    def seen(self, place: int) -> int:
        """Return a word as it was when the words were last read; 0 for one that was not read then."""
        if len(self._seen) < place + 4:
            return 0
        (value,) = DWORD.unpack_from(self._seen, place)
        return int(value)

    def _look(self, size_bytes: int) -> None:
        """Read the first `size_bytes` of the words again. Raises `DeviceLost` when nothing answers."""
        for _ in range(TRIES):
            self._seen = seen = self._read(size_bytes)
            if DWORD.unpack_from(seen, CANARY_AT)[0] == CANARY:
                return
            self._registers.check("looking at the card's signals")
        # slower, and reliable
        self._seen = bytes(self._access[:PAGE_BYTES])

    def _read(self, size_bytes: int) -> bytes:
        if self._remote is None:
            return bytes(self._access[:size_bytes])
        return self._remote.poll(VRAM_BAR, self._vram_pa, size_bytes)

    def interrupt_pointer(self, looked: bool) -> int:
        """Return the interrupt ring's write pointer: as it was last read, if the caller has just `looked` at the words;
        else it is read now.
        """
        if not looked:
            self._look(FIRST_AT)
        return self.seen(0)
