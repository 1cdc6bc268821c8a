"""The programs that GSP-RM has the host run: register writes, waits, and the start of GSP's falcon core while GSP-RM
sleeps. Turing's GSP-RM boots with the help of one.

A program is hostile input: it is bounded, and touches registers of BAR 0 alone. Source: OGKM kernel_gsp.c,
kgspExecuteSequencerBuffer_IMPL; kernel_gsp_tu102.c and _ga102.c, kgspExecuteSequencerCommand; rmgspseq.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ringup.autogen.nv import gsp_queue as seq
from ringup.autogen.nv.boot import NV_PGC6_BSI_SECURE_SCRATCH_14
from ringup.autogen.nv.falcon import NV_PFALCON_FALCON_OS
from ringup.autogen.nv.gsp_rpc import rpc_run_cpu_sequencer_v17_00
from ringup.drivers.nv.bus.registers import REGISTER_BYTES, Block
from ringup.drivers.nv.gsp.falcon import Falcon
from ringup.drivers.transport.wait import until
from ringup.errors import DeviceHung, DeviceTimeout, FirmwareError

HEAD_BYTES = rpc_run_cpu_sequencer_v17_00.SIZE
# dwords that follow each operation. Source: GSP_SEQUENCER_PAYLOAD_SIZE_DWORDS
DWORDS = {
    seq.GSP_SEQ_BUF_OPCODE_REG_WRITE: 2,
    seq.GSP_SEQ_BUF_OPCODE_REG_MODIFY: 3,
    seq.GSP_SEQ_BUF_OPCODE_REG_POLL: 5,
    seq.GSP_SEQ_BUF_OPCODE_DELAY_US: 1,
    seq.GSP_SEQ_BUF_OPCODE_REG_STORE: 2,
    seq.GSP_SEQ_BUF_OPCODE_CORE_RESET: 0,
    seq.GSP_SEQ_BUF_OPCODE_CORE_START: 0,
    seq.GSP_SEQ_BUF_OPCODE_CORE_WAIT_FOR_HALT: 0,
    seq.GSP_SEQ_BUF_OPCODE_CORE_RESUME: 0,
}
MAX_DWORDS = 16_384
# TIMEOUT: OGKM's default, for waits that give no bound of their own or a longer one
MAX_WAIT_US = 4_000_000
MAX_DELAY_US = 1_000_000
# a limit of ours for one program: the waits of a hostile one add up
PROGRAM_US = 10_000_000
POLL_US, MAX_LOOKS = 10, 4_000


class Sequencer:
    """Runs programs on one card. `libos` is the address that GSP's mailboxes get before it goes on."""

    def __init__(self, gsp: Falcon, sec2: Falcon, libos: int, app_version: int) -> None:
        self._gsp, self._sec2, self._libos, self._app_version = gsp, sec2, libos, app_version
        self._registers = gsp.registers
        self._top = Block(gsp.registers)
        self.programs = 0
        self._saved = [0] * seq.GSP_SEQ_BUF_REG_SAVE_SIZE
        self._steps: dict[int, Callable[..., None]] = {
            seq.GSP_SEQ_BUF_OPCODE_REG_WRITE: self._write,
            seq.GSP_SEQ_BUF_OPCODE_REG_MODIFY: self._modify,
            seq.GSP_SEQ_BUF_OPCODE_REG_POLL: self._poll,
            seq.GSP_SEQ_BUF_OPCODE_DELAY_US: self._delay,
            seq.GSP_SEQ_BUF_OPCODE_REG_STORE: self._store,
            seq.GSP_SEQ_BUF_OPCODE_CORE_RESET: self._core_reset,
            seq.GSP_SEQ_BUF_OPCODE_CORE_START: self._gsp.start_core,
            seq.GSP_SEQ_BUF_OPCODE_CORE_WAIT_FOR_HALT: self._core_wait,
            seq.GSP_SEQ_BUF_OPCODE_CORE_RESUME: self._core_resume,
        }

    def run(self, payload: bytes) -> None:
        """Run the program of one event. Raises `FirmwareError` for one that is damaged, `DeviceTimeout`."""
        operations = parse(payload)
        self.programs += 1
        clock = self._registers.clock
        end_us = clock.now_us + PROGRAM_US
        for number, (opcode, arguments) in enumerate(operations):
            if clock.now_us >= end_us:
                raise DeviceTimeout(
                    f"a program of GSP-RM's runs for more than {PROGRAM_US / 1000:g} ms and has done {number} of its "
                    f"{len(operations)} operations; reset the card"
                )
            self._steps[opcode](*arguments)

    def _write(self, address: int, value: int) -> None:
        self._registers.write(_register(address), value)

    def _modify(self, address: int, mask: int, value: int) -> None:
        seen = self._registers.read(_register(address))
        self._registers.write(address, seen & ~mask & 0xFFFF_FFFF | value)

    def _poll(self, address: int, mask: int, value: int, timeout_us: int, error: int) -> None:
        bounded = min(timeout_us, MAX_WAIT_US) or MAX_WAIT_US
        until(
            lambda: self._registers.read(_register(address)),
            lambda seen: seen & mask == value,
            clock=self._registers.clock,
            timeout_us=bounded,
            poll_us=max(POLL_US, bounded // MAX_LOOKS),
            doing=f"a program of GSP-RM's waits for register {address:#x} & {mask:#x} = {value:#x} (error {error:#x})",
            describe=lambda seen: f"it read {seen:#010x}",
        )

    def _delay(self, time_us: int) -> None:
        self._registers.clock.sleep_us(min(time_us, MAX_DELAY_US))

    def _store(self, address: int, index: int) -> None:
        if index >= len(self._saved):
            raise FirmwareError(f"a program of GSP-RM's stores a register at place {index} of {len(self._saved)}")
        self._saved[index] = self._registers.read(_register(address))

    def _core_reset(self) -> None:
        self._gsp.reset()
        self._gsp.allow_physical()

    def _core_wait(self) -> None:
        self._gsp.wait_halted("a program of GSP-RM's waits for the falcon core")

    def _core_resume(self) -> None:
        """Let SEC2 start GSP-RM again."""
        doing = "SEC2 starts GSP-RM again"
        if self._gsp.family.boot_rom:
            self._gsp.reset_to_riscv()
        else:
            self._gsp.reset()
        self._gsp.post_address(self._libos)
        self._sec2.start_core()
        self._top.wait(NV_PGC6_BSI_SECURE_SCRATCH_14, lambda seen: bool(seen.boot_stage_3_handoff), MAX_WAIT_US, doing)
        if error := self._sec2.mailboxes[0]:
            raise DeviceTimeout(f"{doing}: its mailbox reads {error:#x}; reset the card")
        self._gsp.block.set(NV_PFALCON_FALCON_OS, self._app_version)
        if not self._gsp.riscv_active:
            raise DeviceHung(f"{doing}: GSP's RISC-V core does not run; reset the card")


def parse(payload: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """Return the operations of a program and their arguments. Raises `FirmwareError` for one that is damaged."""
    if len(payload) < HEAD_BYTES:
        raise FirmwareError(f"a program of GSP-RM's has {len(payload)} bytes, its header alone {HEAD_BYTES}")
    size, end = struct.unpack_from("<II", payload)
    room = (len(payload) - HEAD_BYTES) // 4
    if not end <= size <= MAX_DWORDS or end > room:
        raise FirmwareError(f"a program of GSP-RM's ends at dword {end}, of {size} that it has and {room} that came")
    dwords = struct.unpack_from(f"<{end}I", payload, HEAD_BYTES)
    operations, at = [], 0
    while at < end:
        opcode = dwords[at]
        if opcode not in DWORDS:
            raise FirmwareError(f"a program of GSP-RM's has operation {opcode:#x} at dword {at}, which is not known")
        arguments = dwords[at + 1 : at + 1 + DWORDS[opcode]]
        if len(arguments) != DWORDS[opcode]:
            raise FirmwareError(f"a program of GSP-RM's ends in the arguments of operation {opcode:#x} at dword {at}")
        operations.append((opcode, arguments))
        at += 1 + len(arguments)
    return operations


def _register(address: int) -> int:
    if address % 4 or not 0 <= address < REGISTER_BYTES:
        raise FirmwareError(f"a program of GSP-RM's accesses register {address:#x}, which BAR 0 does not have")
    return address
