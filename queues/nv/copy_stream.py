"""Streams of a copy queue: copies, fills, rectangles, block-linear surfaces, stamps and small stores.

Commands run in order, and each sees what earlier ones wrote.
"""

from __future__ import annotations

import struct

from ringup.queues.dword_stream import DwordStream
from ringup.queues.dwords import to_bytes
from ringup.queues.nv.copy import MAX_LINE, CopyEngine, Surface
from ringup.queues.nv.rows import GenerationRow, host_methods
from ringup.queues.nv.semaphores import HostCommands
from ringup.queues.queue import Owner

# a copy of one line: a header, addresses with the upper half first, a header, the length, the launch
LINE = struct.Struct("<8I")


class CopyCommands(HostCommands):
    """The packets of a copy queue that the queue itself needs."""

    kind = "nv copy"

    def __init__(self, row: GenerationRow, *, channel_class: int | None = None, interrupts: bool = True) -> None:
        """`channel_class`: of the channel, where it is not the row's own."""
        super().__init__(host_methods(channel_class or row.channel_class), interrupts=interrupts)
        self.engine = CopyEngine(row.copy_class)
        # the words around the values
        offsets, *_, length, _, launch = self.engine.line(0, 0, MAX_LINE)
        self.line = offsets, length, launch

    def setup(self, engine: int = 0) -> bytes:
        """Return what a new channel runs first. `engine`: as the kernel driver names the class's engine, else 0."""
        return to_bytes(self.engine.set_object(engine))


class CopyStream(DwordStream):
    """Commands of a copy queue. Addresses are GPU virtual: `Buffer.gpu_va` plus an offset."""

    def __init__(self, commands: CopyCommands, owner: Owner) -> None:
        super().__init__(commands, owner)
        self.engine = commands.engine
        self._commands, self._line = commands, commands.line
        self._address_end = 1 << commands.engine.address_bits

    def copy(self, target_va: int, source_va: int, size_bytes: int) -> None:
        """Copy any number of bytes; the ranges may overlap."""
        # one line
        if (
            self.around is None
            and 0 < size_bytes <= MAX_LINE
            and abs(target_va - source_va) >= size_bytes
            and 0 <= target_va < self._address_end
            and 0 <= source_va < self._address_end
        ):
            offsets, length, launch = self._line
            self.body += LINE.pack(
                offsets,
                source_va >> 32,
                source_va & 0xFFFF_FFFF,
                target_va >> 32,
                target_va & 0xFFFF_FFFF,
                length,
                size_bytes,
                launch,
            )
            return
        self._add(f"copy {size_bytes}", self.engine.copy(target_va, source_va, size_bytes))

    def copy_rect(
        self,
        target_va: int,
        target_pitch_bytes: int,
        source_va: int,
        source_pitch_bytes: int,
        width_bytes: int,
        height: int,
    ) -> None:
        """Copy `height` rows of `width_bytes`, which begin a pitch apart. The planes may not overlap."""
        self._add(
            f"copy {width_bytes} x {height}",
            self.engine.copy_rect(target_va, target_pitch_bytes, source_va, source_pitch_bytes, width_bytes, height),
        )

    def copy_surface(self, target: Surface, source: Surface, width_bytes: int, height: int) -> None:
        """Copy a rectangle between surfaces, each `Pitched` or `BlockLinear`, that do not overlap."""
        self._add(f"copy {width_bytes} x {height}", self.engine.copy_surface(target, source, width_bytes, height))

    def fill(self, gpu_va: int, value: int, size_bytes: int) -> None:
        """Fill a multiple of 4 bytes with a dword."""
        self._add(f"fill {size_bytes}", self.engine.fill(gpu_va, value, size_bytes))

    def store(self, gpu_va: int, *dwords: int) -> None:
        """Store dwords at `gpu_va` (4-byte aligned)."""
        self.append(self.engine.store(gpu_va, *dwords))

    def barrier(self) -> None:
        """Make later commands wait for all earlier copies and see what they wrote."""
        self.append(self._commands.semaphores.wait_for_idle())

    def stamp(self, gpu_va: int) -> None:
        """Store 16 bytes at `gpu_va` (16-byte aligned) when all earlier copies have ended: zero, and the card's clock
        in ns from byte 8 on.
        """
        self.append(self._commands.stamp(gpu_va, after_all=True))
