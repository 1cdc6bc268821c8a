"""USB Attached SCSI: information units on four pipes, commands with tags, with streams (SuperSpeed) or without (USB 2).

Source: USB Attached SCSI (INCITS 471), "IUs" and "Task management"; Linux drivers/usb/storage/uas.c for what a host
relies on; `tinygrad` `USB3` (stock protocol) for the number of streams. The image's state machine runs one command at a
time and queues the others.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringup.silicon.asm2464pd.hardware.endpoints import InEndpoint, OutEndpoint
from ringup.silicon.asm2464pd.hardware.xdata import Cpu
from ringup.silicon.asm2464pd.storage.scsi import ABORTED, NEVER, Commands, Ending, Plan, Sense

COMMAND_IU, SENSE_IU, RESPONSE_IU, TASK_IU, READ_READY_IU, WRITE_READY_IU = 1, 3, 4, 5, 6, 7
COMMAND_BYTES, TASK_BYTES = 32, 16
# commands at once: one for each stream except the reserved one
MAX_COMMANDS = 31
GOOD, CHECK_CONDITION, TASK_SET_FULL = 0x00, 0x02, 0x28
TASK_COMPLETE, INVALID_IU, TASK_UNKNOWN, TASK_SUCCEEDED, WRONG_LUN, OVERLAPPED_TAG = 0x00, 0x02, 0x04, 0x08, 0x09, 0x0A
ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, UNIT_RESET, NEXUS_RESET, QUERY_TASK = 0x01, 0x02, 0x04, 0x08, 0x10, 0x80
ABORTS_ALL = (ABORT_TASK_SET, CLEAR_TASK_SET, UNIT_RESET, NEXUS_RESET)
LONGEST_IU = 1024


@dataclass(eq=False, slots=True)
class Task:
    """A command in the device."""

    tag: int
    lun: int
    cdb: bytes


class AttachedScsi:
    """The device server on the four pipes. Tasks run in the order of arrival; a task that never ends lets the next ones
    run.
    """

    def __init__(
        self,
        command: OutEndpoint,
        status: InEndpoint,
        data_in: InEndpoint,
        data_out: OutEndpoint,
        commands: Commands,
        cpu: Cpu,
    ) -> None:
        self._command, self._status, self._in, self._out = command, status, data_in, data_out
        self._commands, self._cpu = commands, cpu
        self._streams = False
        self._tasks: dict[int, Task] = {}
        self._waiting: deque[Task] = deque()
        self._current: Task | None = None

    def start(self, streams: bool) -> None:
        """Start to accept commands. `streams`: data and status move on the stream with the number of the
        command's tag.
        """
        self._streams = streams
        self.stop()
        self._listen()

    def stop(self) -> None:
        """Drop all tasks and accept no more."""
        self._tasks.clear()
        self._waiting.clear()
        self._current = None
        for out in (self._command, self._out):
            out.disarm()
        for into in (self._status, self._in):
            into.clear()

    def cleared(self, address: int) -> None:
        """Listen for commands again, after the host has cleared the command pipe."""
        if address == self._command.address:
            self._listen()

    # --- units in --------------------------------------------------------------------------------------------------
    def _listen(self) -> None:
        self._collect(self._command, LONGEST_IU, 0, self._got)

    @staticmethod
    def _collect(out: OutEndpoint, size_bytes: int, stream: int, then: Callable[[bytes], None]) -> None:
        parts = bytearray()

        def take(data: bytes, complete: bool, more: bool) -> None:
            parts.extend(data)
            if complete:
                then(bytes(parts))

        out.arm(size_bytes, take, stream=stream)

    def _got(self, unit: bytes) -> None:
        self._listen()
        tag = int.from_bytes(unit[2:4], "big")
        kind, size = unit[:1], len(unit)
        if kind == bytes([COMMAND_IU]) and size == COMMAND_BYTES and not unit[6] >> 2 and self._usable(tag):
            self._got_command(tag, unit)
        elif kind == bytes([TASK_IU]) and size == TASK_BYTES and self._usable(tag):
            self._got_task_management(tag, unit)
        else:
            self._respond(tag, INVALID_IU)

    def _usable(self, tag: int) -> bool:
        return 0 < tag <= MAX_COMMANDS if self._streams else 0 < tag < 0xFFFF

    def _got_command(self, tag: int, unit: bytes) -> None:
        if tag in self._tasks:
            self._drop_all()
            self._respond(tag, OVERLAPPED_TAG)
        elif len(self._tasks) >= MAX_COMMANDS:
            self._send_sense(tag, TASK_SET_FULL, b"")
        else:
            task = Task(tag, _lun(unit), unit[16:COMMAND_BYTES])
            self._tasks[tag] = task
            self._waiting.append(task)
            self._next()

    def _got_task_management(self, tag: int, unit: bytes) -> None:
        function, managed = unit[4], int.from_bytes(unit[6:8], "big")
        if tag in self._tasks:
            self._drop_all()
            code = OVERLAPPED_TAG
        elif _lun(unit) and function != NEXUS_RESET:
            code = WRONG_LUN
        elif function == ABORT_TASK:
            if managed in self._tasks:
                self._drop(self._tasks[managed])
            code = TASK_COMPLETE
        elif function in ABORTS_ALL:
            self._drop_all()
            code = TASK_COMPLETE
        elif function == QUERY_TASK:
            code = TASK_SUCCEEDED if managed in self._tasks else TASK_COMPLETE
        else:
            code = TASK_UNKNOWN
        self._respond(tag, code)

    # --- tasks -----------------------------------------------------------------------------------------------------
    def _next(self) -> None:
        if self._current is None and self._waiting:
            task = self._current = self._waiting.popleft()
            job = self._commands.start(task.cdb, task.lun, None)
            self._cpu.run(job, self._if_held(task, lambda plan: self._planned(task, plan)))

    def _if_held(self, task: Task, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return `then`, guarded: it does nothing if the task was aborted meanwhile."""
        return lambda result: then(result) if self._tasks.get(task.tag) is task else None

    def _planned(self, task: Task, plan: Plan) -> None:
        stream = self._stream(task.tag)
        if plan.send:
            if not self._streams:
                self._status.send(_ready(READ_READY_IU, task.tag))
            sent = self._if_held(task, lambda _: self._end(task, plan, plan.ending))
            self._in.send(plan.send, stream=stream, done=lambda: sent(None))
        elif plan.take_bytes:
            if not self._streams:
                self._status.send(_ready(WRITE_READY_IU, task.tag))
            taken = self._if_held(task, lambda data: self._taken(task, plan, data))
            self._collect(self._out, plan.take_bytes, stream, taken)
        else:
            self._end(task, plan, plan.ending)

    def _taken(self, task: Task, plan: Plan, data: bytes) -> None:
        if len(data) < plan.take_bytes:
            self._end(task, plan, ABORTED)
        else:
            ended = self._if_held(task, lambda ending: self._end(task, plan, ending))
            self._cpu.run(self._commands.finish(plan, data), ended)

    def _end(self, task: Task, plan: Plan, ending: Ending) -> None:
        """Report the end of a task. The task is no longer held once the report waits for the host."""
        if ending is not NEVER:
            del self._tasks[task.tag]
            if isinstance(ending, Sense):
                # the host has it with the status
                self._commands.device.take_sense()
                self._send_sense(task.tag, CHECK_CONDITION, ending.fixed())
            else:
                self._send_sense(task.tag, GOOD, b"", plan.after)
        self._release(task)

    def _drop_all(self) -> None:
        """Drop all tasks, as SAM-4 demands for a tag used twice, "Overlapped commands"."""
        for task in list(self._tasks.values()):
            self._drop(task)

    def _drop(self, task: Task) -> None:
        del self._tasks[task.tag]
        if task in self._waiting:
            self._waiting.remove(task)
        if self._streams or task is self._current:
            self._in.clear(self._stream(task.tag))
            self._out.disarm(self._stream(task.tag))
        self._release(task)

    def _release(self, task: Task) -> None:
        if self._current is task:
            self._current = None
            self._next()

    # --- units out -------------------------------------------------------------------------------------------------
    def _stream(self, tag: int) -> int:
        return tag if self._streams else 0

    def _send_sense(self, tag: int, status: int, sense: bytes, after: Callable[[], None] | None = None) -> None:
        unit = struct.pack(">BxHHB7xH", SENSE_IU, tag, 0, status, len(sense)) + sense
        self._status.send(unit, stream=self._stream(tag), done=after or (lambda: None))

    def _respond(self, tag: int, code: int) -> None:
        self._status.send(struct.pack(">BxH3xB", RESPONSE_IU, tag, code), stream=self._stream(tag))


def _ready(kind: int, tag: int) -> bytes:
    return struct.pack(">BxH", kind, tag)


def _lun(unit: bytes) -> int:
    """Return the LUN of a unit: single level, peripheral addressing. Other forms are LUNs that this device lacks."""
    return unit[9] if unit[8] == 0 and not any(unit[10:16]) else 0xFFFF
