"""How GSP-RM gets over its own reset while it starts: up to Ada, it asks the CPU to reset the GSP and to load a signed
program into SEC2. That program lets it go on.

Sources: GSP_SEQ_BUF_OPCODE_CORE_RESUME in kernel_gsp_tu102.c and kernel_gsp_ga102.c of NVIDIA's open kernel modules;
nova-core (gsp/sequencer.rs), whose driver for real cards waits for the sequence in each start. The order of accesses to
SEC2 is that of s_dmaTransfer_GA102 and kgspExecuteHsFalcon_GA102. GUESS: what else a real sequence does, and that the
program lies in memory that GSP-RM keeps below its protected region.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.layout import Word
from ringup.autogen.nv import boot
from ringup.autogen.nv import falcon as regs
from ringup.silicon.common.memory import Vram
from ringup.silicon.nv.board.falcon import (
    DMA_IDLE,
    DMACTL_SCRUBBING,
    ENGINE_RESET,
    HWCFG2_SCRUBBING,
    SIGNATURE_BYTES,
    Falcon,
    Target,
)
from ringup.silicon.nv.board.falcon_memory import BLOCK_BYTES
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.registers import ALL, Registers, place
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, stamp
from ringup.silicon.nv.firmware.sequence import Sequence

CODE_BYTES, DATA_BYTES = 4 * BLOCK_BYTES, 2 * BLOCK_BYTES
SIGNATURE_AT = 0x10
# GUESS: of SEC2's signed programs, the booter is 3
UCODE_ID = 4
RSA_3072 = 1
PHYSICAL, ALLOW_PHYSICAL = 1 << 2, 1 << 7
# DMATRFCMD: 256 bytes; into code memory, with a tag, signed
DMA_DATA, DMA_CODE, DMA_SIGNED = 6 << 8, 6 << 8 | 1 << 4 | 1 << 16, 1 << 2
RESET_US = 10
HANDED_OFF = 1 << 26


class Sec2Rtos:
    """The program, and the sequence that brings it into SEC2. `resume(arguments)` lets GSP-RM go on, with the address
    that the GSP's mailboxes hold; it returns whether GSP-RM waits for that.
    """

    def __init__(
        self, chip: ChipRow, registers: Registers, vram: Vram, gsp: Falcon, resume: Callable[[int], bool]
    ) -> None:
        self._chip, self._vram, self._gsp, self._resume = chip, vram, gsp, resume
        self._handed_off = registers.cell(boot.NV_PGC6_BSI_SECURE_SCRATCH_14, fixed=ALL)

    def prepare(self, vram_pa: int) -> list[int]:
        """Put the program into VRAM, and return the sequence that loads and starts it."""
        code, data = self._image()
        self._vram.write(vram_pa, code + data)
        self._handed_off.value &= ~HANDED_OFF
        sequence = Sequence()
        sequence.core_reset()
        self._reset(sequence)
        self._load(sequence, vram_pa, len(code), len(data))
        self._set_up_start(sequence)
        sequence.core_resume()
        return sequence

    def run(self, falcon: Falcon) -> int:
        """Let GSP-RM go on; return what mailbox 0 gets: 0, or an error, of which GUESS."""
        arguments = self._gsp.mailbox0.value | self._gsp.mailbox1.value << 32
        if not self._resume(arguments):
            falcon.mistake("SEC2 is to resume GSP-RM, which does not wait for it")
            return 1
        self._handed_off.value |= HANDED_OFF
        return 0

    def _image(self) -> tuple[bytes, bytes]:
        """Return code and data. On Turing an unsigned block starts the signed code."""
        code = stamp(Part.SEC2_RTOS, self._chip.name, "", bytes(CODE_BYTES - STAMP_BYTES))
        data = bytes(SIGNATURE_AT) + b"\x5a" * SIGNATURE_BYTES
        return (b"" if self._chip.boots_from_hs else bytes(BLOCK_BYTES)) + code, data.ljust(DATA_BYTES, b"\0")

    def _address(self, word: type[Word], index: int = 0) -> int:
        """Return where a register of SEC2 is."""
        row, where = self._chip.falcon("sec2"), place(self._chip.name, word)
        second, interface = (word.__name__.startswith(name) for name in ("NV_PFALCON2", "NV_PFALCON_FBIF"))
        return (row.base2 if second else row.fbif if interface else row.base) + where.offset + index * where.stride

    def _reset(self, sequence: Sequence) -> None:
        engine = self._chip.falcon("sec2").base + ENGINE_RESET
        sequence.write(engine, 1)
        sequence.delay(RESET_US)
        sequence.write(engine, 0)
        if self._chip.boots_from_hs:
            sequence.poll(self._address(regs.NV_PFALCON_FALCON_HWCFG2), HWCFG2_SCRUBBING, 0)
        else:
            sequence.poll(self._address(regs.NV_PFALCON_FALCON_DMACTL), DMACTL_SCRUBBING, 0)

    def _load(self, sequence: Sequence, vram_pa: int, code_bytes: int, data_bytes: int) -> None:
        sequence.write(self._address(regs.NV_PFALCON_FBIF_CTL), ALLOW_PHYSICAL)
        sequence.write(self._address(regs.NV_PFALCON_FALCON_DMACTL), 0)
        sequence.write(self._address(regs.NV_PFALCON_FBIF_TRANSCFG), PHYSICAL | Target.LOCAL_FB)
        signed_from = 0 if self._chip.boots_from_hs else BLOCK_BYTES
        for first, size_bytes, command in ((0, code_bytes, DMA_CODE), (code_bytes, data_bytes, DMA_DATA)):
            source = vram_pa + first
            sequence.write(self._address(regs.NV_PFALCON_FALCON_DMATRFBASE), source >> 8 & ALL)
            sequence.write(self._address(regs.NV_PFALCON_FALCON_DMATRFBASE1), source >> 40)
            for at in range(0, size_bytes, BLOCK_BYTES):
                signed = DMA_SIGNED if command == DMA_CODE and at >= signed_from else 0
                sequence.write(self._address(regs.NV_PFALCON_FALCON_DMATRFMOFFS), at)
                sequence.write(self._address(regs.NV_PFALCON_FALCON_DMATRFFBOFFS), at)
                sequence.write(self._address(regs.NV_PFALCON_FALCON_DMATRFCMD), command | signed)
                sequence.poll(self._address(regs.NV_PFALCON_FALCON_DMATRFCMD), DMA_IDLE, DMA_IDLE)

    def _set_up_start(self, sequence: Sequence) -> None:
        if self._chip.boots_from_hs:
            sequence.write(self._address(regs.NV_PFALCON2_FALCON_BROM_PARAADDR), SIGNATURE_AT)
            sequence.write(self._address(regs.NV_PFALCON2_FALCON_BROM_ENGIDMASK), self._chip.falcon("sec2").engine_id)
            sequence.write(self._address(regs.NV_PFALCON2_FALCON_BROM_CURR_UCODE_ID), UCODE_ID)
            sequence.write(self._address(regs.NV_PFALCON2_FALCON_MOD_SEL), RSA_3072)
        for word in (regs.NV_PFALCON_FALCON_BOOTVEC, regs.NV_PFALCON_FALCON_MAILBOX0, regs.NV_PFALCON_FALCON_MAILBOX1):
            sequence.write(self._address(word), 0)
