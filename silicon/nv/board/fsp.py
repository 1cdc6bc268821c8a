"""The FSP of Hopper and later, the processor that has booted the chip, behind its message memory (EMEM) and queues.

A message is MCTP packets: a transport header, in the first packet a message header with the NVDM type, and payload. The
CPU writes a packet to the start of EMEM, its last dword's place to QUEUE_TAIL, then QUEUE_HEAD, which interrupts the
FSP. The FSP sets QUEUE_HEAD to QUEUE_TAIL when it has taken the packet, and puts its answer to the same place, with
MSGQ_HEAD and MSGQ_TAIL around it; the CPU makes these equal when it has read it.

Sources: dev_fsp_pri.h, kern_fsp.c, kern_fsp_gh100.c (who writes which pointer, headers, fragments) and
kern_fsp_retval.h (error codes) of NVIDIA's open kernel modules 570.144; DSP0236, the MCTP base specification (which
packets are dropped without an answer). GUESS: the size of EMEM, how long a command takes, and that an answer waits
until the one before it was read.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from ringup.autogen.nv import boot, engines, fsp
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.common.faults import FSP_SILENT
from ringup.silicon.nv.common.registers import ALL, Registers

# eight channels of 1 KiB: fsp_emem_channels.h has the first one's size, dev_fsp_pri.h the number of ports
CHANNEL_BYTES = fsp.FSP_EMEM_CHANNEL_RM_SIZE
EMEM_BYTES = 8 * CHANNEL_BYTES
CHANNEL = fsp.FSP_EMEM_CHANNEL_RM
COMMAND_US = 500
DWORD, HEADERS_BYTES = 4, 8
INCREMENT_WRITE, INCREMENT_READ, ADDRESS = 1 << 24, 1 << 25, 0xFFFC
SEQUENCES = 4
# A version of the FSP's own code without the error that kfspRequiresBug3957833WAR_GH100 works around. GUESS: which
UCODE_VERSION = 0x44C
# GUESS: the number of the FSP's task that answers
TASK = 0
ANSWER = struct.Struct("<IIIII")


class FspError(IntEnum):
    """FSP_ERR_* of kern_fsp_retval.h: what an answer says."""

    OK = 0
    INVALID_STATE = 0x9E
    NOT_SUPPORTED = 0xA0
    INVALID_DATA = 0xA1


class Fsp:
    """The FSP, which has booted the chip. `commands`: by NVDM type, what takes a message's payload and returns the
    error that the answer has.
    """

    def __init__(self, registers: Registers, clock: VirtualClock, log: EventLog, faults: Faults) -> None:
        self._clock, self._log, self._faults = clock, log, faults
        self.commands: dict[int, Callable[[bytes], int]] = {}
        self._emem = bytearray(EMEM_BYTES)
        self._run = 0
        self._message: list[bytes] = []
        self._expected = 0
        self._answers: deque[bytes] = deque()
        for index in range(registers.count(engines.NV_PFSP_EMEMC)):
            port = registers.cell(engines.NV_PFSP_EMEMC, index)
            data = registers.cell(engines.NV_PFSP_EMEMD, index)
            data.on_write = partial(self._write_data, index)
            data.on_read = partial(self._read_data, index)
            if index == 0:
                self._ports = [port]
            else:
                self._ports.append(port)
        pairs = (
            (engines.NV_PFSP_QUEUE_HEAD, engines.NV_PFSP_QUEUE_TAIL),
            (engines.NV_PFSP_MSGQ_HEAD, engines.NV_PFSP_MSGQ_TAIL),
        )
        (self._head, self._tail), (self._answer_head, self._answer_tail) = (
            (registers.cell(head, CHANNEL), registers.cell(tail, CHANNEL)) for head, tail in pairs
        )
        self._head.on_write = lambda value: self._sent()
        for cell in (self._answer_head, self._answer_tail):
            cell.on_write = lambda value: self._next_answer()
        # the FSP is done with booting the chip
        registers.cell(boot.NV_THERM_I2CS_SCRATCH, reset=boot.NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE_STATUS_SUCCESS)
        for group in (engines.NV_PFSP_FALCON_COMMON_SCRATCH_GROUP_2, engines.NV_PFSP_FALCON_COMMON_SCRATCH_GROUP_3):
            for index in range(registers.count(group)):
                version = group is engines.NV_PFSP_FALCON_COMMON_SCRATCH_GROUP_3 and index == 1
                registers.cell(group, index, reset=UCODE_VERSION if version else 0, fixed=ALL)

    def reset(self) -> None:
        """Forget every message: the chip was reset, and booted by the FSP again. Registers are reset before."""
        self._run += 1
        self._emem = bytearray(EMEM_BYTES)
        self._message.clear()
        self._answers.clear()

    def mistake(self, form: str, *values: object) -> None:
        """Record a mistake of the driver, and what the FSP does about it."""
        self._log.note("fsp", "violation", form, *values)

    # --- EMEM -------------------------------------------------------------------------------------------------------
    def _at(self, index: int, increment: int) -> int:
        """Return the place that a port is at, and move it on if it is to."""
        port = self._ports[index]
        at = port.value & ADDRESS
        if port.value & increment:
            port.value = port.value & ~ADDRESS | at + DWORD & ADDRESS
        return at

    def _write_data(self, index: int, value: int) -> None:
        at = self._at(index, INCREMENT_WRITE)
        if at + DWORD > EMEM_BYTES:
            self.mistake("EMEMD writes byte {:#x} of an EMEM of {:#x}", at, EMEM_BYTES)
        else:
            self._emem[at : at + DWORD] = value.to_bytes(DWORD, "little")

    def _read_data(self, index: int) -> int:
        at = self._at(index, INCREMENT_READ)
        return int.from_bytes(self._emem[at : at + DWORD], "little")

    # --- packets ----------------------------------------------------------------------------------------------------
    def _sent(self) -> None:
        """The CPU has written QUEUE_HEAD: there is a packet up to the dword at QUEUE_TAIL."""
        head, tail = self._head.value, self._tail.value
        if head == tail:
            return
        run = self._run
        self._clock.after(COMMAND_US, lambda: self._take(head, tail) if run == self._run else None)

    def _take(self, head: int, tail: int) -> None:
        self._head.value = tail
        if head % DWORD or tail % DWORD or not head < tail < head + CHANNEL_BYTES or tail >= CHANNEL_BYTES:
            self.mistake(
                "a packet from {:#x} to {:#x} of EMEM, whose channel has {:#x} bytes", head, tail, CHANNEL_BYTES
            )
            return
        packet = bytes(self._emem[head : tail + DWORD])
        header = fsp.MCTP_TRANSPORT_HEADER(int.from_bytes(packet[:DWORD], "little"))
        if header.som:
            if self._message:
                self.mistake("a message begins within another, which is dropped")
            self._message, self._expected = [], header.seq
        elif not self._message:
            self.mistake("a packet that begins no message is dropped")
            return
        if header.seq != self._expected:
            self.mistake(
                "packet {} of a message comes as number {}: the message is dropped", self._expected, header.seq
            )
            self._message = []
            return
        self._expected = (self._expected + 1) % SEQUENCES
        self._message.append(packet[DWORD:])
        if header.eom:
            message, self._message = b"".join(self._message), []
            self._carry_out(message)

    def _carry_out(self, message: bytes) -> None:
        head = fsp.MCTP_MSG_HEADER(int.from_bytes(message[:DWORD], "little"))
        if head.type != fsp.MCTP_MSG_HEADER_TYPE_VENDOR_PCI or head.vendor_id != fsp.MCTP_MSG_HEADER_VENDOR_ID_NV:
            self.mistake("a message of type {:#x} of vendor {:#x} is dropped", head.type, head.vendor_id)
            return
        if self._faults.take(FSP_SILENT):
            return
        command = self.commands.get(head.nvdm_type)
        if command is None:
            self._log.note("fsp", "unmodelled", "a message of NVDM type {:#x} is refused", head.nvdm_type)
            self._answer(head.nvdm_type, FspError.NOT_SUPPORTED)
            return
        self._answer(head.nvdm_type, command(message[DWORD:]))

    def _answer(self, nvdm_type: int, error: int) -> None:
        transport = fsp.MCTP_TRANSPORT_HEADER(som=1, eom=1)
        head = fsp.MCTP_MSG_HEADER(
            type=fsp.MCTP_MSG_HEADER_TYPE_VENDOR_PCI,
            vendor_id=fsp.MCTP_MSG_HEADER_VENDOR_ID_NV,
            nvdm_type=fsp.NVDM_TYPE_FSP_RESPONSE,
        )
        self._answers.append(ANSWER.pack(int(transport), int(head), TASK, nvdm_type, error))
        self._next_answer()

    def _next_answer(self) -> None:
        """Put the next answer into EMEM, if the one before it was read."""
        if not self._answers or self._answer_head.value != self._answer_tail.value:
            return
        answer = self._answers.popleft()
        self._emem[: len(answer)] = answer
        # ORDER: both move together; on metal the head moves last, after the data
        self._answer_tail.value, self._answer_head.value = len(answer) - DWORD, 0
