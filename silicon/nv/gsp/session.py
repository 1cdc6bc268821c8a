"""What exists between the firmware's start and its end: queues, the resource manager, and what the CPU has told."""

from __future__ import annotations

import struct
from collections import deque

from ringup.autogen.nv import error_notifier as errors
from ringup.autogen.nv import gsp_rpc as rpc
from ringup.autogen.structs import memory as struct_bytes
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.gsp import calls
from ringup.silicon.nv.gsp.libos import Queues, Region
from ringup.silicon.nv.gsp.ports import Boot, Events, Memory
from ringup.silicon.nv.gsp.queue import Receiver, Sender
from ringup.silicon.nv.gsp.releases import Release
from ringup.silicon.nv.rm import memory_map
from ringup.silicon.nv.rm.boards.facts import Board
from ringup.silicon.nv.rm.controls.table import Controls
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.objects import Subscription
from ringup.silicon.nv.rm.parts import Channel, Chip, RmError

BLOCK = "GSP"
# records that wait for room in the status queue. GUESS: metal's bound; a CPU that never reads must not cost memory
MAX_WAITING = 4096


class Session:
    """One run of the firmware."""

    def __init__(
        self,
        board: Board,
        chip: Chip,
        memory: Memory,
        events: Events,
        log: EventLog,
        boot: Boot,
        release: Release,
        controls: Controls,
    ) -> None:
        """Raises `ValueError` if the loader left no room in VRAM."""
        self.board, self.chip, self.memory, self.events, self.log = board, chip, memory, events, log
        self.release, self.controls = release, controls
        self.map = memory_map.divide(boot.reserved_start, boot.fb_bytes)
        self.boot = boot
        self.manager = Manager(board, chip, memory, events, self, log, release.layouts, release.name, self.map)
        self.receiver: Receiver | None = None
        self.sender: Sender | None = None
        self.system_info: bytes | None = None
        self.registry: dict[str, int | bytes] | None = None
        self.initialised = False
        self.ending = self.sleeping = False
        # the regions that the CPU gave, and where the queues are: to go on after a sleep
        self.regions: dict[str, Region] = {}
        self.places: Queues | None = None
        self.violations: list[str] = []
        self._waiting: deque[bytes] = deque()

    def note(self, kind: str, text: str) -> None:
        """Log an event."""
        self.log.note(BLOCK, kind, "{}", text)

    def violation(self, kind: str, reason: str) -> None:
        """Record a mistake of the CPU's side."""
        self.violations.append(f"{kind}: {reason}")
        self.log.note(BLOCK, "violation", "{}: {}", kind, reason)

    def refused(self, what: str, error: RmError) -> int:
        """Log that a request was refused; return its status."""
        self.log.note(BLOCK, "refused", "{}: {}", what, error)
        return error.code

    def post(self, function: int, body: bytes, result: int = 0, private: int = 0, sequence: int = 0) -> None:
        """Send a call's answer, or an event, as soon as there is room."""
        for record in calls.records(function, body, result, private, sequence):
            if len(self._waiting) >= MAX_WAITING:
                self.violation("full", f"the CPU reads nothing; {calls.name(function)} is lost")
                return
            self._waiting.append(record)
        self.flush()

    def flush(self) -> bool:
        """Write what waits, in order; return whether all of it went. Raises `QueueError` for a bad read pointer."""
        if self.sender is None:
            return not self._waiting
        sent = False
        while self._waiting and self.sender.send(self._waiting[0]):
            self._waiting.popleft()
            sent = True
        if sent:
            # GUESS: one interrupt for what was written together. Both drivers read the queue until it is empty.
            self.events.interrupt()
        return not self._waiting

    # What the resource manager tells: rm/events.py. Layouts: g_rpc-structures.h.

    def notified(self, client: int, event: int, subscription: Subscription, data: int, info: int) -> None:
        """Tell a client of an event: POST_EVENT."""
        body = rpc.rpc_post_event_v17_00.at(self.release.layouts)(
            hClient=client, hEvent=event, notifyIndex=subscription.index & 0xFFFF, data=data, info16=info & 0xFFFF
        )
        self.post(rpc.NV_VGPU_MSG_EVENT_POST_EVENT, bytes(struct_bytes(body)))

    def channel_failed(self, channel: Channel, code: int, engine_type: int, scope: int) -> None:
        """Tell that a channel was stopped: RC_TRIGGERED. Since 555 it has the address of a page fault, and its type."""
        layout = rpc.rpc_rc_triggered_v17_02.at(self.release.rc_layout)
        body = layout(nv2080EngineType=engine_type, chid=channel.number, exceptType=code, scope=scope)
        fault = channel.mmu_faults[-1] if channel.mmu_faults else None
        if (
            fault is not None
            and code == errors.ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
            and "mmuFaultType" in layout.members()
        ):
            body.mmuFaultAddrHi, body.mmuFaultAddrLo = divmod(fault.gpu_va, 1 << 32)
            body.mmuFaultType = fault.kind
        self.post(rpc.NV_VGPU_MSG_EVENT_RC_TRIGGERED, bytes(struct_bytes(body)))

    def fault_queued(self) -> None:
        """Tell that there is a page fault in the shadow buffer: MMU_FAULT_QUEUED, which has no parameters."""
        self.post(rpc.NV_VGPU_MSG_EVENT_MMU_FAULT_QUEUED, b"")

    def error_logged(self, code: int, runlist: int, channel_number: int, text: str) -> None:
        """Send a line for the system's log: OS_ERROR_LOG."""
        layout = rpc.rpc_os_error_log_v17_00.at(self.release.layouts)
        body = bytearray(layout.SIZE)
        struct.pack_into("<III", body, 0, code, runlist, channel_number)
        at = layout.offset_of("errString")
        line = text.encode("ascii", "replace")[:255]
        body[at : at + len(line)] = line
        self.post(rpc.NV_VGPU_MSG_EVENT_OS_ERROR_LOG, bytes(body))
