"""SCSI on the bridge's CPU: the plan of a command, its sense data, the memory it uses. Commands and transports are in
other modules.

Source: the stock image 240417: state machine at code 0x0016, ready check at 0x3F4A, sense data at XDATA 0x0201.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ringup.silicon.asm2464pd.hardware.faults import strikes
from ringup.silicon.asm2464pd.hardware.flash import PowerLost, SpiFlash
from ringup.silicon.asm2464pd.hardware.flash_image import Config
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.common.faults import FaultKind, Faults

CHECK_CONDITION = "scsi_check_condition"
FAULTS = (
    FaultKind(
        CHECK_CONDITION,
        "a SCSI command ends as aborted, with check condition",
        "commands until it strikes, once; -1: each",
    ),
)

# GUESS: chosen so that E4 with 128 bytes takes the measured 160 us (usb-to-pcie-re issue 1), including its transfers
COMMAND_US = 100.0
# GUESS: the loop that copies one byte to the reply buffer
BYTE_US = 0.35
# for commands whose CDB has an allocation length
LONGEST_REPLY = 0x4000

# XDATA of the image 240417
SENSE_KEY, SENSE_ASC, SENSE_VALID = 0x0203, 0x020D, 0x07E5
# which entry of the table of ports a LUN uses, and where its state is
LUN_ENTRY, ENTRY_STATE, ENTRY_BYTES = 0x05A8, 0x05B4, 0x22
NO_MEDIUM_FLAG = 0x07EF
MANAGED = 0xB480  # bit 0: the device below is up
REPLY = 0x8000  # the bulk-IN buffer
STATE_READY, STATE_STOPPED = 4, 0x80


class Sense(NamedTuple):
    """Sense key, additional sense code and its qualifier."""

    key: int
    asc: int
    ascq: int = 0

    def fixed(self) -> bytes:
        """The 18 bytes of current fixed-format sense data (SPC-4, "Fixed format sense data")."""
        return bytes([0x70, 0, self.key, 0, 0, 0, 0, 10, 0, 0, 0, 0, self.asc, self.ascq, 0, 0, 0, 0])


NO_SENSE = Sense(0, 0)
BAD_OPCODE, BAD_FIELD, BAD_LUN = Sense(5, 0x20), Sense(5, 0x24), Sense(5, 0x25)
NEEDS_START, BECOMING_READY, NO_MEDIUM = Sense(2, 4, 2), Sense(2, 4, 1), Sense(2, 0x3A)
# the image's sense data after a data transfer error, code 0x280A
ABORTED = Sense(0x0B, 0x47, 3)


class Endless(Enum):
    """The ending of a command that never ends."""

    NEVER = "never"


NEVER = Endless.NEVER
Ending = Sense | Endless | None  # check condition, no ending, or good


@dataclass(frozen=True, slots=True)
class Plan:
    """What the firmware does with a command: it sends `send`, or receives `take_bytes` and runs `finish` with them, or
    neither; then it ends.

    An empty `send` is a data stage without bytes; None is no data stage. A host that sends data gets a phase error in
    the first case only. `after` runs once the host has the status.
    """

    ending: Ending = None
    send: bytes | None = None
    take_bytes: int = 0
    finish: Callable[[bytes], Job[Ending]] | None = None
    after: Callable[[], None] | None = None


class Memory(Protocol):
    """The 8051's external memory as its firmware accesses it."""

    def read(self, address: int, page: int = 0) -> int:
        """Read a byte, side effects included."""
        ...

    def write(self, address: int, value: int, page: int = 0) -> None:
        """Write a byte."""
        ...


class Power(NamedTuple):
    """Power events of the whole bridge."""

    restart: Callable[[], None]  # E8 50: restart the CPU
    # E8 51: leave USB until VBUS is cycled
    detach: Callable[[], None]
    lose: Callable[[], None]  # power was lost during a flash write


class BulkMemory(Protocol):
    """Receives the data of a WRITE command."""

    def write_plan(self, size_bytes: int) -> Plan:
        """Return the plan for a WRITE of so many bytes while a medium seems to be present."""
        ...


@dataclass(slots=True)
class Device:
    """What the commands operate on."""

    xdata: Memory
    flash: SpiFlash
    config: Config
    power: Power
    bulk: BulkMemory
    # whether this firmware uses the addresses above
    can_be_ready: bool = True

    def remember(self, sense: Sense) -> None:
        """Store sense data for REQUEST SENSE."""
        values = (SENSE_KEY, sense.key), (SENSE_ASC, sense.asc), (SENSE_ASC + 1, sense.ascq), (SENSE_VALID, 1)
        for address, value in values:
            self.xdata.write(address, value)

    def take_sense(self) -> Sense:
        """Return the stored sense data and clear it."""
        read = self.xdata.read
        left = Sense(read(SENSE_KEY), read(SENSE_ASC), read(SENSE_ASC + 1)) if read(SENSE_VALID) else NO_SENSE
        self.xdata.write(SENSE_VALID, 0)
        return left

    def not_ready(self) -> Sense | None:
        """Return why there is no medium; None if there seems to be one."""
        read = self.xdata.read
        if not self.can_be_ready or read(NO_MEDIUM_FLAG):
            return NO_MEDIUM
        state = read(ENTRY_STATE + ENTRY_BYTES * read(LUN_ENTRY))
        if state & STATE_STOPPED:
            return NEEDS_START
        if state != STATE_READY:
            return NO_MEDIUM
        return None if read(MANAGED) & 1 else BECOMING_READY

    def reply(self, data: bytes, asked: int) -> Job[Plan]:
        """Send the first `asked` bytes of `data`, from the reply buffer."""
        if asked > LONGEST_REPLY:
            return Plan(BAD_FIELD)
        for index, value in enumerate(data):
            self.xdata.write(REPLY + index, value)
        yield BYTE_US * len(data)
        return Plan(send=data[:asked])


@dataclass(frozen=True, slots=True)
class Request:
    """A command as its handler gets it. `asked`: number of bytes that the host wants to transfer; `queued`: it came
    over UAS, where only the CDB gives that number.
    """

    cdb: bytes
    lun: int
    asked: int
    queued: bool


class Command(NamedTuple):
    """A row of the dispatch table: the handler, and the position of the length in the CDB (or a number: always that
    length).
    """

    run: Callable[[Device, Request], Job[Plan]]
    length: slice | int = 0
    # a length of 0 is no error and ends it
    optional: bool = False
    any_lun: bool = False


class Commands:
    """The commands of one firmware on one bridge; its methods are jobs for the CPU."""

    def __init__(self, device: Device, table: Mapping[int, Command], faults: Faults) -> None:
        faults.know(*FAULTS)
        self.device, self._table, self._faults = device, table, faults

    def start(self, cdb: bytes, lun: int, host_bytes: int | None) -> Job[Plan]:
        """Run a command up to its data stage. `host_bytes`: number of bytes that the host wants to transfer (BOT); None
        if only the CDB has it (UAS).
        """
        yield COMMAND_US
        plan = yield from self._start(cdb, lun, host_bytes)
        if isinstance(plan.ending, Sense):
            self.device.remember(plan.ending)
        return plan

    def finish(self, plan: Plan, data: bytes) -> Job[Ending]:
        """Run the rest of a command with the data that it received."""
        assert plan.finish is not None
        try:
            ending = yield from plan.finish(data)
        except PowerLost:
            self.device.power.lose()
            return NEVER
        if isinstance(ending, Sense):
            self.device.remember(ending)
        return ending

    def _start(self, cdb: bytes, lun: int, host_bytes: int | None) -> Job[Plan]:
        if strikes(self._faults, CHECK_CONDITION):
            return Plan(ABORTED)
        row = self._table.get(cdb[0])
        if row is None:
            return Plan(BAD_OPCODE)
        if lun and not row.any_lun:
            return Plan(BAD_LUN)
        length = int.from_bytes(cdb[row.length], "big") if isinstance(row.length, slice) else row.length
        asked = length if host_bytes is None else host_bytes
        if row.optional and not asked:
            return Plan()
        return (yield from row.run(self.device, Request(cdb, lun, asked, host_bytes is None)))
