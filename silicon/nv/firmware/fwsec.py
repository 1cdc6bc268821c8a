"""FWSEC, the signed program in the VBIOS that the GSP falcon runs: it sets up the protected region (FRTS), and ends
secure boot (SB).

Its data is an interface table, whose mapper says where the command and its arguments are. Sources: the structures and
their checks in kernel_gsp_frts_tu102.c of NVIDIA's open kernel modules. GUESS: the error codes, which only have to be
non-zero, and that FRTS data is the VBIOS image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from ringup.autogen.nv import boot
from ringup.silicon.common.faults import Faults
from ringup.silicon.nv.board import vbios
from ringup.silicon.nv.board.falcon import Falcon
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.faults import FWSEC_ERROR
from ringup.silicon.nv.common.registers import Registers
from ringup.silicon.nv.memory.protected import GRANULE, ProtectedVram

FRTS, SB = 0x15, 0x19
READ_VBIOS = struct.Struct("<IIQII")
REGION = struct.Struct("<IIIII")
MEDIA_FB = 2
PAGE_SHIFT = 12
FRTS_BYTES = 1 << 20
# VBIOS scratch: FRTS leaves its error in 31:16 of one, SB in 15:0 of the other
FRTS_SCRATCH, SB_SCRATCH = 0x0E, 0x15


class FwsecError(IntEnum):
    """What went wrong."""

    NO_COMMAND = 0x1
    BAD_ARGUMENTS = 0x2
    BAD_REGION = 0x3
    WPR2_UP = 0x4


class Fwsec:
    """The program, and the scratch registers in which it leaves its errors. `set_up` makes the protected region."""

    def __init__(self, chip: ChipRow, registers: Registers, vram: ProtectedVram, faults: Faults) -> None:
        self._chip, self._vram, self._faults = chip, vram, faults
        scratch = [
            registers.cell(boot.NV_PBUS_SW_SCRATCH, index) for index in range(registers.count(boot.NV_PBUS_SW_SCRATCH))
        ]
        self._frts, self._sb = scratch[FRTS_SCRATCH], scratch[SB_SCRATCH]

    def run(self, falcon: Falcon) -> None:
        """Execute the command in DMEM. FWSEC leaves mailboxes alone."""
        mapper = vbios.MAPPER.unpack(falcon.dmem.read(vbios.MAPPER_AT, vbios.MAPPER.size))
        magic, version, _, command_at, *_ = mapper
        command, mask = mapper[12], mapper[14]
        commands: dict[int, Callable[[Falcon, int], None]] = {FRTS: self._set_up, SB: self._end_secure_boot}
        if magic != vbios.MAPPER_MAGIC or version != vbios.MAPPER_VERSION or not mask >> command & 1:
            self._fail(falcon, FwsecError.NO_COMMAND, f"the mapper names command {command:#x}")
            return
        commands[command](falcon, command_at)

    def _set_up(self, falcon: Falcon, at: int) -> None:
        """Protect the region that the driver chose, and put FRTS data into it."""
        arguments = falcon.dmem.read(at + READ_VBIOS.size, REGION.size)
        version, size, page, pages, media = REGION.unpack(arguments)
        injected = self._faults.get(FWSEC_ERROR)
        if injected is not None:
            self._frts.value = self._frts.value & 0xFFFF | (injected & 0xFFFF if injected > 0 else 1) << 16
            return
        first, size_bytes = page << PAGE_SHIFT, pages << PAGE_SHIFT
        if not self._reads_vbios(falcon, at) or (version, size, media) != (1, REGION.size, MEDIA_FB):
            self._fail(falcon, FwsecError.BAD_ARGUMENTS, f"FRTS has arguments {arguments.hex()}")
        elif size_bytes != FRTS_BYTES or first % GRANULE or first + size_bytes > self._vram.vram.size_bytes:
            self._fail(falcon, FwsecError.BAD_REGION, f"FRTS is to protect {size_bytes:#x} bytes at {first:#x}")
        elif self._vram.up:
            self._fail(falcon, FwsecError.WPR2_UP, "FRTS runs while a protected region is up")
        else:
            self._vram.vram.write(first, vbios.build(self._chip))
            self._vram.protect(first, first + size_bytes)
            self._frts.value &= 0xFFFF

    def _end_secure_boot(self, falcon: Falcon, at: int) -> None:
        if not self._reads_vbios(falcon, at):
            self._sb.value = self._sb.value & ~0xFFFF | FwsecError.BAD_ARGUMENTS
            falcon.mistake("FWSEC: SB has no description of the VBIOS")
        else:
            self._sb.value &= ~0xFFFF

    def _reads_vbios(self, falcon: Falcon, at: int) -> bool:
        """Check the arguments that say where the VBIOS is: in the ROM, which is flag 2."""
        version, size, address, size_bytes, flags = READ_VBIOS.unpack(falcon.dmem.read(at, READ_VBIOS.size))
        return (version, size, address, size_bytes, flags) == (1, READ_VBIOS.size, 0, 0, 2)

    def _fail(self, falcon: Falcon, error: FwsecError, why: str) -> None:
        self._frts.value = self._frts.value & 0xFFFF | error << 16
        falcon.mistake("FWSEC: {}", why)
