"""USB Attached SCSI. At SuperSpeed, up to 31 commands are in flight on streams. Without streams, commands run one after
another, and the device asks for each data stage.

There are four pipes: commands out, statuses in, data in, data out. The tag of a command is the number of its stream.
The status is an information unit and is always parsed: a transfer that ended says nothing about the command. Source:
T10 USB Attached SCSI (UAS), section 6, for the information units; Linux include/linux/usb/uas.h for their layout.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringup.drivers.usb4.host import COMPLETED
from ringup.drivers.usb4.port import Pending, Port
from ringup.drivers.usb4.scsi import (
    COMMAND_PIPE,
    DATA_IN_PIPE,
    DATA_OUT_PIPE,
    GOOD,
    STATUS_PIPE,
    TIMEOUT_MS,
    Command,
    Refused,
    Setting,
    parse_sense,
    refusal,
)
from ringup.errors import DeviceLost, DeviceTimeout, RingupError, TransportError

# identifier, tag, priority and attribute, additional length, unit, command
COMMAND_IU = struct.Struct(">BxHBxBx8s16s")
# identifier, tag, function, tag of the task, unit
TASK_IU = struct.Struct(">BxHBxH8s")
# identifier, tag, qualifier, status, length of the sense data
SENSE_HEAD = struct.Struct(">BxHHB7xH")
# identifier, tag, code
RESPONSE_IU = struct.Struct(">BxH3xB")
COMMAND, SENSE, RESPONSE, TASK, READ_READY, WRITE_READY = 0x01, 0x03, 0x04, 0x05, 0x06, 0x07
ABORT_TASK_SET = 0x02
TASK_DONE = (0x00, 0x08)  # complete, succeeded
RESPONSES = {
    0x02: "invalid information unit",
    0x04: "function not supported",
    0x05: "function failed",
    0x09: "wrong unit",
    0x0A: "tag in use",
}
UNIT = bytes(8)
MAX_CDB_BYTES = 16
# a whole SuperSpeed packet, so that nothing overflows. A status has 16 bytes and the sense data
STATUS_BYTES = 1024
# in flight: the bridge's other drivers use as many of its 32 streams
MAX_COMMANDS = 31
# how many statuses may come before the response to an abort
STATUSES_BEFORE_ABORT = 2
# of a command for which the device sent a good status instead of asking for its data
MAX_TRIES = 3


@dataclass(slots=True)
class Flight:
    """One command in flight."""

    command: Command
    tag: int
    sent: Pending
    status: Pending
    data: Pending | None


class Uas:
    """SCSI over four bulk pipes."""

    def __init__(self, port: Port, setting: Setting) -> None:
        """Choose the alternate setting and allocate streams for its pipes, where device and host support them."""
        self.port = port
        self._command, self._status = setting.pipes[COMMAND_PIPE], setting.pipes[STATUS_PIPE]
        self._data_in, self._data_out = setting.pipes[DATA_IN_PIPE], setting.pipes[DATA_OUT_PIPE]
        streamed = (self._status, self._data_in, self._data_out)
        port.set_alt(setting.number)
        most = min((setting.streams.get(endpoint, 0) for endpoint in streamed), default=0)
        self.depth = min(port.alloc_streams(min(most, MAX_COMMANDS), streamed), MAX_COMMANDS) if most else 0
        self._free = deque(range(1, self.depth + 1))
        # the tag of the last command without streams
        self._tag = 0
        self._flights: deque[Flight] = deque()
        self._broken = ""

    @property
    def name(self) -> str:
        """Its name."""
        return f"Attached SCSI, {self.depth} streams" if self.depth else "Attached SCSI without streams"

    def execute(self, commands: Sequence[Command]) -> list[bytes]:
        """Do commands in order; see `Scsi`. The firmware runs commands in the order in which they arrive."""
        self._usable()
        if not self.depth:
            return [self._serial(command) for command in commands]
        self.settle()
        results: list[bytes] = []
        for at in range(0, len(commands), self.depth):
            for command in commands[at : at + self.depth]:
                self._begin(command)
            results += self._finish(len(self._flights))
        return results

    def post(self, commands: Sequence[Command]) -> None:
        """Begin commands; when all tags are in use, wait for the older half."""
        self._usable()
        if not self.depth:
            self.execute(commands)
            return
        for command in commands:
            if not self._free:
                self._finish((len(self._flights) + 1) // 2)
            self._begin(command)

    def settle(self) -> None:
        """Wait for all posted commands."""
        self._usable()
        self._finish(len(self._flights))

    def _usable(self) -> None:
        if self._broken:
            raise TransportError(
                f"{self.port.name}: {self._broken}; close the card, switch the enclosure off and on, and open it again"
            )

    # --- with streams -----------------------------------------------------------------------------------------------
    def _begin(self, command: Command) -> None:
        """Send a command. ORDER: the buffers for its status and data are submitted before the command."""
        port, tag, bound_ms, doing = self.port, self._free.popleft(), command.timeout_ms, str(command)
        begun: list[Pending] = []
        try:
            status = port.start_bulk_in(self._status, STATUS_BYTES, bound_ms, tag, doing)
            begun.append(status)
            data = self._begin_data(command, tag)
            begun += [data] if data else []
            sent = port.start_bulk_out(self._command, self._wrap(command, tag), bound_ms, doing=doing)
        except BaseException:
            port.cancel(*begun)
            self._free.append(tag)
            raise
        self._flights.append(Flight(command, tag, sent, status, data))

    def _begin_data(self, command: Command, stream: int) -> Pending | None:
        port, doing = self.port, str(command)
        if command.read_bytes:
            return port.start_bulk_in(self._data_in, command.read_bytes, command.timeout_ms, stream, doing)
        if command.data:
            return port.start_bulk_out(self._data_out, command.data, command.timeout_ms, stream, doing)
        return None

    def _wrap(self, command: Command, tag: int) -> bytes:
        if not 0 < len(command.cdb) <= MAX_CDB_BYTES:
            raise ValueError(f"a command has 1 to {MAX_CDB_BYTES} bytes, not {len(command.cdb)}")
        return COMMAND_IU.pack(COMMAND, tag, 0, 0, UNIT, command.cdb)

    def _finish(self, count: int) -> list[bytes]:
        """Wait for the oldest `count` commands and return their data. The error of the first that failed is raised
        after all have ended.
        """
        flights = [self._flights[index] for index in range(count)]
        if not flights:
            return []
        first: RingupError | None = None
        results: list[bytes] = []
        try:
            self.port.wait(*(flight.status for flight in flights))
        except (DeviceLost, DeviceTimeout, TransportError) as error:
            first = error
            if any(flight.status.status != COMPLETED for flight in flights):
                self._abort(error)
                raise
        except BaseException as error:
            # also ctrl-C: otherwise a later command would receive what the device still wants to send
            self._abort(error)
            raise
        for flight in flights:
            self._flights.popleft()
            try:
                results.append(self._end(flight))
            except RingupError as error:
                first = first or error
            self._free.append(flight.tag)
        if first:
            raise first
        return results

    def _end(self, flight: Flight) -> bytes:
        """Check the status and the number of data bytes of a command that has ended; return its data."""
        command = flight.command
        begun = [one for one in (flight.sent, flight.data) if one]
        try:
            self._check_status(command, flight.tag, flight.status.data)
        except BaseException:
            self.port.cancel(*begun)
            raise
        self.port.wait(*begun)
        return self._data(command, flight.data)

    def _data(self, command: Command, data: Pending | None) -> bytes:
        if data is None:
            return b""
        expected = command.read_bytes or len(command.data)
        if data.actual != expected and not command.short_ok:
            raise TransportError(
                f"{self.port.name}: {command}: {data.actual} of {expected} bytes were moved though the status is good"
            )
        return data.data if command.read_bytes else b""

    def _check_status(self, command: Command, tag: int, unit: bytes) -> None:
        """Decode a sense unit. Raises `Refused` for a status that is not good and `TransportError` for another unit."""
        name = self.port.name
        if len(unit) >= RESPONSE_IU.size and unit[0] == RESPONSE:
            code = RESPONSE_IU.unpack_from(unit)[2]
            raise TransportError(
                f"{name}: {command}: the bridge did not take it: {RESPONSES.get(code, f'response {code:#04x}')}"
            )
        if len(unit) < SENSE_HEAD.size or unit[0] != SENSE:
            raise TransportError(f"{name}: {command}: {unit[:16].hex(' ') or 'nothing'} came, which is no status")
        _, seen, _, status, length = SENSE_HEAD.unpack_from(unit)
        if seen != tag:
            raise TransportError(f"{name}: {command}: a status of command {seen} came, expected was {tag}")
        if status != GOOD:
            raise refusal(name, command, status, parse_sense(unit[SENSE_HEAD.size : SENSE_HEAD.size + length]))

    # --- without streams --------------------------------------------------------------------------------------------
    def _serial(self, command: Command) -> bytes:
        """Do one command. QUIRK: the chip may send a good status where it should ask for data. No data moved then, and
        the command is sent again.
        """
        for _ in range(MAX_TRIES):
            self._tag = self._tag % 0xFFFF + 1
            sent = self.port.start_bulk_out(
                self._command, self._wrap(command, self._tag), command.timeout_ms, doing=str(command)
            )
            try:
                done = self._converse(command, sent)
            except Refused:
                raise
            except BaseException as error:
                self._abort(error)
                raise
            if done is not None:
                return done
        raise TransportError(
            f"{self.port.name}: {command}: the bridge says it is done and asked for no data, {MAX_TRIES} times"
        )

    def _converse(self, command: Command, sent: Pending) -> bytes | None:
        """Move the data that the device asks for until the status comes. Return None if the status came before the
        data.
        """
        data: Pending | None = None
        for unit in self._units(command, sent):
            wanted = READ_READY if command.read_bytes else WRITE_READY
            if unit and unit[0] == wanted and data is None and (command.read_bytes or command.data):
                data = self._begin_data(command, 0)
                # the command has data: the condition above checks it
                assert data is not None
                self.port.wait(data)
                continue
            self._check_status(command, self._tag, unit)
            break
        missing = data is None and bool(command.read_bytes or command.data)
        return None if missing else self._data(command, data)

    def _units(self, command: Command, sent: Pending) -> Iterator[bytes]:
        before: tuple[Pending, ...] = (sent,)
        while True:
            status = self.port.start_bulk_in(self._status, STATUS_BYTES, command.timeout_ms, doing=str(command))
            self.port.wait(*before, status)
            yield status.data
            before = ()

    # --- when one is stuck ------------------------------------------------------------------------------------------
    def _abort(self, cause: BaseException) -> None:
        """Abort all commands, in the host and in the device. If that fails, the transport is unusable until it is
        opened again.
        """
        port = self.port
        flights, self._flights = list(self._flights), deque()
        taken = {flight.tag for flight in flights}
        port.cancel(*(one for flight in flights for one in (flight.status, flight.data, flight.sent) if one))
        self._free = deque(range(1, self.depth + 1))
        if isinstance(cause, DeviceLost):
            return
        # a tag that no command had, if there is one: on the stream of a command, that command's status may come first
        tag = next((tag for tag in self._free if tag not in taken), 1) if self.depth else self._tag % 0xFFFF + 1
        doing = "aborting the commands that are under way"
        try:
            sent = port.start_bulk_out(
                self._command, TASK_IU.pack(TASK, tag, ABORT_TASK_SET, 0, UNIT), TIMEOUT_MS, doing=doing
            )
            port.wait(sent)
            self._await_abort(tag if self.depth else 0, doing)
        except RingupError as error:
            self._broken = f"a command was stuck and could not be aborted ({error})"
            cause.add_note(self._broken)

    def _await_abort(self, stream: int, doing: str) -> None:
        """Wait for the response to an abort. Statuses that were on their way are skipped."""
        units: list[bytes] = []
        for _ in range(STATUSES_BEFORE_ABORT + 1):
            status = self.port.start_bulk_in(self._status, STATUS_BYTES, TIMEOUT_MS, stream, doing)
            self.port.wait(status)
            units.append(status.data)
            if units[-1][:1] != bytes([SENSE]):
                break
        unit = units[-1]
        if len(unit) < RESPONSE_IU.size or unit[0] != RESPONSE or RESPONSE_IU.unpack_from(unit)[2] not in TASK_DONE:
            raise TransportError(f"{doing}: {unit[:16].hex(' ') or 'nothing'} came")
