"""Bulk-Only Transport: SCSI commands one after another. Each has a wrapper, its data, and a status that must match.

It is the only transport of the mask ROM, and the one that is used at USB 2 speed. Source: USB Mass Storage Class,
Bulk-Only Transport, revision 1.0; numbers of sections are those of this document.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ringup.drivers.usb4.host import STALL
from ringup.drivers.usb4.port import Pending, Port, Stalled
from ringup.drivers.usb4.scsi import (
    CHECK_CONDITION,
    DATA_IN_PIPE,
    DATA_OUT_PIPE,
    REQUEST_SENSE,
    TIMEOUT_MS,
    Command,
    Sense,
    Setting,
    parse_sense,
    refusal,
    request_sense,
)
from ringup.errors import DeviceLost, RingupError, TransportError

# 5.1: signature, tag, length, flags, unit, length of the command, command
CBW = struct.Struct("<4sIIBBB16s")
# 5.2: signature, tag, residue, status
CSW = struct.Struct("<4sIIB")
CBW_SIGNATURE, CSW_SIGNATURE = b"USBC", b"USBS"
DATA_IN = 0x80
PASSED, FAILED, PHASE_ERROR = 0, 1, 2
MAX_CDB_BYTES = 16
CLASS_OUT, BULK_ONLY_RESET = 0x21, 0xFF  # 3.1
# at SuperSpeed. A status is read as a whole packet, so that one that is too long is noticed
LONGEST_PACKET = 1024


class Bot:
    """SCSI over two bulk pipes. If host and device are out of step, the transport is reset (5.3.4) before the error is
    raised.
    """

    name = "Bulk-Only Transport"

    def __init__(self, port: Port, setting: Setting) -> None:
        self.port = port
        self._in, self._out = setting.pipes[DATA_IN_PIPE], setting.pipes[DATA_OUT_PIPE]
        self._tag = 0
        port.set_alt(setting.number)

    def execute(self, commands: Sequence[Command]) -> list[bytes]:
        """Do commands one after another; see `Scsi`."""
        return [self._do(command) for command in commands]

    def post(self, commands: Sequence[Command]) -> None:
        """Do commands and wait for each: this transport has one command in flight at most."""
        self.execute(commands)

    def settle(self) -> None:
        """Do nothing: no command is ever left in flight."""

    def _do(self, command: Command) -> bytes:
        try:
            data, status = self._exchange(command)
        except DeviceLost:
            raise
        except BaseException as error:
            # also ctrl-C: otherwise the next command would receive what the device still wants to send
            self._recover(error)
            raise
        if status == FAILED:
            raise refusal(self.port.name, command, CHECK_CONDITION, self._sense(command))
        return data

    def _exchange(self, command: Command) -> tuple[bytes, int]:
        """Send one command; return its data and status."""
        port, doing, bound_ms = self.port, str(command), command.timeout_ms
        expected = command.read_bytes or len(command.data)
        self._tag = self._tag % 0xFFFF_FFFF + 1
        flags = DATA_IN if command.read_bytes else 0
        if not 0 < len(command.cdb) <= MAX_CDB_BYTES:
            raise ValueError(f"a command has 1 to {MAX_CDB_BYTES} bytes, not {len(command.cdb)}")
        wrapper = CBW.pack(CBW_SIGNATURE, self._tag, expected, flags, 0, len(command.cdb), command.cdb)
        first = port.start_bulk_out(self._out, wrapper, bound_ms, doing=doing)
        data, early = b"", b""
        before: tuple[Pending, ...] = ()
        if command.read_bytes:
            data, early = self._receive(first, command, doing)
        elif command.data:
            self._send(first, command, doing)
        else:
            before = (first,)
        raw = early or self._status(doing, bound_ms, *before)
        return data, self._check(raw, command, len(data), doing)

    def _receive(self, first: Pending, command: Command, doing: str) -> tuple[bytes, bytes]:
        """Receive the data stage and return its bytes. A stall ends it early (6.7.2). If the device skips the data
        stage, it sends the status at once: then the status is the second result.
        """
        port = self.port
        incoming = port.start_bulk_in(self._in, command.read_bytes, command.timeout_ms, doing=doing)
        try:
            port.wait(first, incoming)
        except Stalled:
            # the wrapper itself was refused
            if first.status == STALL:
                raise
            port.clear_halt(self._in)
        data = incoming.data
        if len(data) == CSW.size and data.startswith(CSW_SIGNATURE + self._tag.to_bytes(4, "little")):
            return b"", data
        return data, b""

    def _send(self, first: Pending, command: Command, doing: str) -> None:
        """Send the data stage. A stall ends it early (6.7.3); the status says how many bytes moved."""
        port = self.port
        try:
            port.wait(first, port.start_bulk_out(self._out, command.data, command.timeout_ms, doing=doing))
        except Stalled:
            if first.status == STALL:
                raise
            port.clear_halt(self._out)

    def _status(self, doing: str, bound_ms: int, *before: Pending) -> bytes:
        """Read the status. Read it once more after a stall, which is cleared (figure 2), or after an empty packet that
        ended the data.
        """
        port = self.port
        pending = port.start_bulk_in(self._in, LONGEST_PACKET, bound_ms, doing=doing)
        try:
            port.wait(*before, pending)
        except Stalled:
            if pending.status != STALL:
                raise
            port.clear_halt(self._in)
        if not pending.data:
            pending = port.start_bulk_in(self._in, LONGEST_PACKET, bound_ms, doing=doing)
            port.wait(pending)
        return pending.data

    def _check(self, raw: bytes, command: Command, received: int, doing: str) -> int:
        """Check that the status is valid and meaningful (6.3). Return it: passed or failed."""
        name = self.port.name
        if len(raw) != CSW.size:
            raise TransportError(f"{name}: {doing}: a status of {len(raw)} bytes came, one has {CSW.size}")
        signature, tag, residue, status = CSW.unpack(raw)
        if signature != CSW_SIGNATURE or tag != self._tag:
            raise TransportError(f"{name}: {doing}: the status begins {raw[:8].hex(' ')}, not USBS and tag {self._tag}")
        if status == PHASE_ERROR:
            raise TransportError(f"{name}: {doing}: the bridge lost step (phase error); it was reset, try again")
        expected = command.read_bytes or len(command.data)
        if status not in (PASSED, FAILED) or residue > expected:
            raise TransportError(
                f"{name}: {doing}: the status says {status} and {residue} of {expected} bytes left, which cannot be"
            )
        if status == PASSED and not command.short_ok:
            moved = min(received, expected - residue) if command.read_bytes else expected - residue
            if moved != expected:
                raise TransportError(
                    f"{name}: {doing}: {moved} of {expected} bytes were moved though the command passed"
                )
        return int(status)

    def _sense(self, command: Command) -> Sense | None:
        """Ask the device why a command failed. Return None if that fails too: the first error matters more."""
        if command.cdb[0] == REQUEST_SENSE:
            return None
        try:
            data, status = self._exchange(request_sense())
        except DeviceLost:
            raise
        except RingupError as error:
            self._recover(error)
            return None
        return parse_sense(data) if status == PASSED else None

    def _recover(self, cause: BaseException) -> None:
        """Reset the transport (5.3.4). If the reset fails, its error becomes a note of `cause`."""
        port = self.port
        try:
            port.wait(
                port.start_control_out(
                    BULK_ONLY_RESET, 0, 0, timeout_ms=TIMEOUT_MS, doing="resetting the transport", kind=CLASS_OUT
                )
            )
            port.clear_halt(self._in)
            port.clear_halt(self._out)
        except RingupError as error:
            cause.add_note(f"resetting the transport failed too: {error}")
