"""How the data of a WRITE command reaches the bridge's SRAM: 16 KiB slots in groups of four, counters, marks of used
slots.

Source: tinygrad's stock driver (`ASM24Controller.scsi_write`, its seven pokes); the stock image 240417 for the meaning
of the pokes. UNKNOWN: which register is which counter; here the strictest reading for which that driver's copies work.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage.scsi import NEVER, Ending, Memory, Plan

SECTOR_BYTES = 512
SLOT_BYTES = 0x4000
# XDATA of the image 240417: two of the seven pokes
SECTORS_A_SLOT, SLOTS_A_GROUP = 0x054B, 0x054E
SECTOR_SIZE_HIGH = 0xC422
SLOT_MARKS, MARKS, FREE = 0x0171, 3, 0xFF
COUNTERS, COUNTED = 0xCE40, 4  # for each slot its group
ENGINE_STATE = 0xCE6E, 0xCE6F


class SlotWriter:
    """Receives the data of WRITE commands.

    A command of one slot uses the counters and does not change them. In a longer command each slot goes to the group of
    its own counter, which then advances. A command is accepted only after marks and engine state of the previous one
    were reset.
    """

    def __init__(
        self, xdata: Memory, land: Callable[[int, bytes], None], finishes: bool, complain: Callable[[str], None]
    ) -> None:
        """`land(offset, data)` stores in SRAM, a moment later. `finishes`: the firmware is patched to end a WRITE with
        status. `complain` reports a command that can never end.
        """
        self._xdata, self._land, self._finishes, self._complain = xdata, land, finishes, complain

    def boot(self) -> None:
        """Initialize at the firmware's start: all slots are free."""
        for at in range(MARKS):
            self._xdata.write(SLOT_MARKS + at, FREE)

    def write_plan(self, size_bytes: int) -> Plan:
        """Return the plan for a WRITE of so many bytes while a medium seems to be present."""
        if not size_bytes:
            return Plan()
        read = self._xdata.read
        slots = -(-size_bytes // SLOT_BYTES)
        wrong = {
            "slots or sectors have another size": (read(SECTORS_A_SLOT) * SECTOR_BYTES, read(SECTOR_SIZE_HIGH) << 8)
            != (SLOT_BYTES, SECTOR_BYTES),
            "it is more than a group of slots": slots > 1 and slots > min(COUNTED, read(SLOTS_A_GROUP)),
            "the slots of the previous one were not marked free": any(
                read(SLOT_MARKS + at) != FREE for at in range(MARKS)
            ),
            "the engine was not reset after the previous one": any(read(at) for at in ENGINE_STATE),
        }
        for why, holds in wrong.items():
            if holds:
                self._complain(f"a WRITE of {size_bytes} bytes is never taken: {why}")
                return Plan(NEVER)
        return Plan(take_bytes=size_bytes, finish=self._finish)

    def _finish(self, data: bytes) -> Job[Ending]:
        read, write = self._xdata.read, self._xdata.write
        yield 0
        for at in range(MARKS):
            write(SLOT_MARKS + at, 0)
        for at in ENGINE_STATE:
            write(at, 1)
        pieces = range(0, len(data), SLOT_BYTES)
        for slot, start in enumerate(pieces):
            group = read(COUNTERS + slot)
            self._land((group * COUNTED + slot) * SLOT_BYTES, data[start : start + SLOT_BYTES])
            if len(pieces) > 1:
                write(COUNTERS + slot, group + 1)
        if self._finishes:
            return None
        self._complain(f"a WRITE of {len(data)} bytes has no end: this firmware waits for a disk to complete it")
        return NEVER
