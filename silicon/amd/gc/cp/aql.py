"""The packet processor of AQL queues: MEC firmware that executes 64-byte packets in order, and the PM4 that they may
carry.

Packets are launched in order and complete in order at the end of the pipe. There the packet's header becomes INVALID,
read_dispatch_id advances and the completion signal is decremented. The processor finds amd_queue_t from the address to
which the read index is written. Source: ROCR-Runtime hsa.h, hsa_ext_amd.h, amd_hsa_queue.h, amd_aql_queue.cpp;
ROCm-Device-Libs hsaqs.cl (what a signal's event is); amdkfd kfd_mqd_manager_v11.c, kfd_int_process_v11.c; amd-gfx list,
December 2020 (headers and signals are written by MEC firmware, not by hardware).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ringup.silicon.amd.common.cache_control import AGENT, SYSTEM, WRITE_BACK
from ringup.silicon.amd.gc.cp import aql_packets as aql
from ringup.silicon.amd.gc.cp.aql_dispatch import Refused, prepare
from ringup.silicon.amd.gc.cp.pm4_decode import MASK48, SRC_BAD_OPCODE, Packet, PacketError, Rule
from ringup.silicon.amd.gc.cp.pm4_parser import Parser
from ringup.silicon.amd.gc.cp.team import Team
from ringup.silicon.amd.gc.dispatch import CHUNK

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.processor import Cp
    from ringup.silicon.amd.gc.cp.queue import Queue

# virtual time of a packet and of a fence, chosen for the model
PACKET_US = 0.5
FENCE_US = 0.5
# from read_dispatch_id to read_dispatch_id_field_base_byte_offset
OFFSET_FIELD = 8
# packets that the 32 bits of CP_HQD_PQ_RPTR, which counts dwords, can distinguish
COUNT_MASK = (1 << 28) - 1
IB_PACKET_BODY = 3
# Exception codes. Source: kfd_ioctl.h, enum kfd_dbg_trap_exception_code
EC_PACKET_UNSUPPORTED, EC_PACKET_VENDOR_UNSUPPORTED = 20, 23
CONDITIONS: dict[int, Callable[[int, int], bool]] = {
    aql.CONDITION_EQ: lambda seen, wanted: seen == wanted,
    aql.CONDITION_NE: lambda seen, wanted: seen != wanted,
    aql.CONDITION_LT: lambda seen, wanted: seen < wanted,
    aql.CONDITION_GTE: lambda seen, wanted: seen >= wanted,
}
SIGNS = {aql.CONDITION_EQ: "==", aql.CONDITION_NE: "!=", aql.CONDITION_LT: "<", aql.CONDITION_GTE: ">="}
MASK64 = (1 << 64) - 1
Steps = Iterator[float | None]


class Aql(Parser):
    """Executes the packets of one AQL queue. The base class executes the PM4 of indirect buffers."""

    def __init__(self, cp: Cp, queue: Queue, rules: dict[int, Rule]) -> None:
        super().__init__(cp, queue, "m", rules)
        self.at = 0  # gpu_va of amd_queue_t
        # of the packet to be launched next
        self.index = 0
        self.retired = 0  # read_dispatch_id
        self._release = 0  # scope of the packet's release fence
        # inside the indirect buffer of a packet; true here if the queue was disconnected in one
        self._within = bool(self.buffers)
        # the cores that run the queue with this one
        self.team: Team | None = None
        # whether this core writes what the queue's packets leave in memory
        self.masters = True

    # --- what lies in memory ------------------------------------------------------------------------------------
    @property
    def shared(self) -> aql.Queue:
        """The amd_queue_t that runtime and processor share, as it is now."""
        return aql.Queue.view(bytearray(self.read(self.at, aql.Queue.SIZE)))

    @property
    def _packets(self) -> int:
        return self.hqd.size_dwords // aql.PACKET_DWORDS

    def place(self, index: int) -> int:
        """Return the gpu_va of a packet."""
        return self.hqd.base + index % self._packets * aql.PACKET_BYTES

    def _connect(self) -> None:
        """Find amd_queue_t and the queue's progress.

        CP_HQD_PQ_CONTROL.no_update_rptr, which amdkfd sets for AQL, concerns the read pointer in dwords; the read index
        is written anyway.
        """
        report = self.hqd.pair(self.hqd.names.report) & MASK48 & -8
        self.retired = self.read_number(report, 8)
        self.at = report - self.read_number(report + OFFSET_FIELD)
        launched = self.hqd.rptr // aql.PACKET_DWORDS
        ahead = launched - self.retired & COUNT_MASK
        if ahead > self._packets:
            self.note("read_dispatch_id {:#x} and the read pointer of packet {:#x} disagree", self.retired, launched)
            self.retired, ahead = launched, 0
        self.index = self.retired + ahead
        if self._join():
            return
        if ahead and self.queue.settled:
            self._give_up()

    def _join(self) -> bool:
        """Join the other cores that run the queue; return False if this one runs it alone."""
        cp, hqd = self.cp, self.hqd
        if CHUNK not in cp.cells or not hqd.get(CHUNK) or cp.fellows < 2:
            return False
        self.masters = not hqd.field(hqd.names.control, hqd.names.no_rptr)
        self.team = cp.teams.setdefault((hqd.doorbell_index, self.at), Team(cp.fellows))
        self.team.join(self, self.index, self.retired)
        return True

    def _settled(self) -> bool:
        """Whether all earlier packets have ended, on all cores that run the queue."""
        return self.queue.settled if self.team is None else self.team.retired == self.index

    def _judge(self, done: Callable[[], bool], awaited: Callable[[], str]) -> Steps:
        """Wait for what memory holds. Only the master looks; the others wait for it, as memory may change again."""
        team, index = self.team, self.index
        if team is None:
            yield from self.poll(done, awaited)
        elif self.masters:
            yield from self.poll(done, awaited)
            team.passed = max(team.passed, index + 1)
        else:
            yield from self.poll(lambda: team.passed > index, lambda: self._behind(index))

    def _give_up(self) -> None:
        """Retire the packets that were in progress when the queue was reset or lost its waves.

        UNKNOWN: what the firmware does. No driver continues such a queue: amdkfd refuses it, has_reset_queue. Here the
        packets retire without completion signals.
        """
        text = "queue {}: packets {:#x} to {:#x} were under way and are lost"
        self.cp.board.log.note("cp", "queue", text, self.hqd.slot, self.retired, self.index - 1)
        for index in range(self.retired, self.index):
            self.retire(index)

    def _ready(self) -> bool:
        """Whether the processor may take the next slot. The write index may be more than a ring ahead; packets in
        progress may not.
        """
        ahead = self.hqd.ahead_dwords // aql.PACKET_DWORDS
        return ahead > 0 and self.index - self.retired < self._packets

    def report(self) -> None:
        """Write nothing: the read index is written when packets retire."""

    # --- running ------------------------------------------------------------------------------------------------
    def run(self) -> Steps:
        """Execute packets for ever."""
        self._connect()
        if self.shared.queue_inactive_signal and self._lending():
            yield from self._reclaim()
        while True:
            self.packet, self.resting = None, True
            if self.queue.draining or not (self._within or self._ready()):
                yield None
                continue
            try:
                yield from self._launch()
            except Refused as refused:
                yield from self._halt(refused)

    def _launch(self) -> Steps:
        gpu_va = self.place(self.index)
        words = struct.unpack(f"<{aql.PACKET_DWORDS}I", self.read(gpu_va, aql.PACKET_BYTES))
        head = aql.Header(words[0])
        if head.type == aql.INVALID:
            # ROCR's StoreRelaxed: a doorbell for a packet that is still INVALID is allowed; the hardware stalls until
            # the packet is valid
            yield from self.poll(
                lambda: self.read_number(gpu_va, 1) != aql.INVALID,
                lambda: f"packet {self.index:#x} at {gpu_va:#x} is still INVALID, and the write index is beyond it",
            )
            return
        name = aql.NAMES[head.type] if head.type < len(aql.NAMES) else f"type {head.type}"
        self.packet = Packet(words[0], words[1:], gpu_va, name)
        if not self._within:
            self.cp.board.log.note("cp", "packet", "queue {}: {}, index {:#x}", self.hqd.slot, self.packet, self.index)
            self.cp.header_seen(self.hqd.slot, words[0])
            if head.barrier:
                yield from self.poll(self._settled, self._unsettled)
            self.resting = False
            for scope in (head.acquire, head.release):
                if scope == aql.SCOPE_RESERVED:
                    self.note("fence scope {} is reserved: taken as system", scope)
            self._release = head.release
            if head.acquire:
                if (caches := self.cp.board.caches) is not None:
                    caches.invalidate(AGENT if head.acquire == aql.SCOPE_AGENT else SYSTEM)
                yield FENCE_US
        kind = KINDS.get(head.type)
        if kind is None:
            raise Refused(aql.INACTIVE_FORMAT, EC_PACKET_UNSUPPORTED, f"{name} is no packet for a GPU")
        yield from kind(self, head, bytearray(struct.pack(f"<{aql.PACKET_DWORDS}I", *words)))
        yield PACKET_US

    def _halt(self, refused: Refused) -> Steps:
        """Report a packet that cannot be executed to the runtime and the host, and stop there. The queue can still be
        disconnected.

        UNKNOWN: whether signal or interrupt comes first, and whether the firmware continues once the signal is 0 again,
        as it does for scratch. Here it does not; a queue that is mapped again reaches the same packet.
        """
        yield from self.poll(self._settled, self._unsettled)
        text = f"{self.packet}: {refused}"
        self.hqd.put("CP_HQD_ERROR", aql_error=1)
        if self.masters:
            self.cp.board.log.note("cp", "violation", "queue {} stops: {}", self.hqd.slot, text)
            self.inactive(refused.reason)
            self.cp.bad_packet(self.queue, PacketError(SRC_BAD_OPCODE, refused.code, text))
        while True:
            self.resting = True
            yield None

    # --- completing ---------------------------------------------------------------------------------------------
    def finish(self, signal: int, start: int, *, early: bool = False, lent: bool = False) -> None:
        """Advance past the packet, and complete it at the end of the pipe.

        `early`: decrement its signal at once. `start`: the launch time, in ticks. `lent`: the packet has scratch memory
        for itself; its end is reported to the runtime.
        """
        index, profiled = self.index, bool(self._properties().enable_profiling)
        self.index += 1
        self.hqd.rptr = self.hqd.rptr + aql.PACKET_DWORDS
        if early and self.masters:
            self.signal(signal, start if profiled else None)
            signal = 0
        caches = self.cp.board.caches
        if caches is not None and self._release > aql.SCOPE_AGENT:
            self.queue.after_work(lambda queue: caches.invalidate(WRITE_BACK))
        self.queue.after_work(partial(_complete, index, signal, start if profiled else None, lent))

    def retire(self, index: int) -> None:
        """Return a packet's slot to the producers. UNKNOWN: how much of the header is written; here the 16 bits of
        hsa_packet_header_t.
        """
        self.write_number(self.place(index), aql.INVALID, 2)
        self.retired = index + 1
        self.write_number(self.hqd.pair(self.hqd.names.report) & MASK48 & -8, self.retired, 8)
        self.queue.wake()

    def signal(self, handle: int, start: int | None) -> None:
        """Decrement a completion signal by 1; if `start` is given, store it and the current time as time stamps. Handle
        0 is no signal.
        """
        if not handle:
            return
        seen = aql.Signal.view(bytearray(self.read(handle, aql.Signal.SIZE)))
        if seen.kind != aql.SIGNAL_KIND_USER:
            self.note("completion signal at {:#x} is of kind {}", handle, seen.kind)
        if start is not None:
            stamps = struct.pack("<QQ", start, self.cp.grbm.ticks())
            self.write(handle + aql.Signal.offset_of("start_ts"), stamps)
        self._store(handle, seen, seen.value - 1)

    def inactive(self, reason: int) -> None:
        """Store a reason in the signal that the runtime watches."""
        handle = self.shared.queue_inactive_signal
        if not handle:
            self.note("the queue has no queue_inactive_signal, so reason {:#x} is not reported", reason)
            return
        self._store(handle, aql.Signal.view(bytearray(self.read(handle, aql.Signal.SIZE))), reason)

    def _store(self, handle: int, seen: aql.Signal, value: int) -> None:
        """Store a signal's value, then deliver its event: write the event's number to the mailbox and raise an
        interrupt. Source: hsaqs.cl; kfd_events.c.
        """
        self.write_number(handle + aql.Signal.offset_of("value"), value, 8)
        if seen.event_mailbox_ptr:
            self.write_number(seen.event_mailbox_ptr, seen.event_id, 8)
            self.cp.end_of_pipe(self.queue, self.vmid, seen.event_id)

    def value(self, handle: int) -> int:
        """Return a signal's value, signed."""
        found: int = struct.unpack("<q", self.read(handle + aql.Signal.offset_of("value"), 8))[0]
        return found

    # --- scratch ------------------------------------------------------------------------------------------------
    def _properties(self) -> aql.QueueProperties:
        return aql.QueueProperties(self.read_number(self.at + aql.Queue.offset_of("queue_properties")))

    def _lending(self) -> bool:
        """Whether the queue was disconnected while one packet had scratch for itself."""
        if self.team is not None:
            return self.team.freed < self.team.lent == self.index
        if not self._properties().use_scratch_once:
            return False
        reported = self.value(self.shared.queue_inactive_signal) == aql.INACTIVE_SCRATCH_USED
        return reported or not self.queue.settled

    def scratch(self, wave_size: int, lane_bytes: int) -> Generator[float, None, bool]:
        """Wait until the runtime has given the queue enough scratch memory; return whether it had to.

        Earlier packets finish first: the runtime finds the packet by read_dispatch_id and frees the old memory. Source:
        amd_aql_queue.cpp, HandleInsufficientScratch (it stores 0 when done), InitScratchSRD (a wave64's lane has half
        of a wave32's).
        """
        asked, team, index = False, self.team, self.index
        if team is not None and lane_bytes and not self.masters:
            # the runtime may be in the middle of describing the memory
            yield from self.poll(lambda: team.equipped > index, lambda: self._behind(index))
            return True
        while lane_bytes * wave_size > self.shared.scratch_wave64_lane_byte_size * 64:
            asked = True
            yield from self.poll(self._settled, self._unsettled)
            self.inactive(aql.INACTIVE_SCRATCH_WAVE32 if wave_size == 32 else aql.INACTIVE_SCRATCH_WAVE64)
            yield from self.poll(self._answered, self._unanswered)
        if team is not None and lane_bytes:
            team.equipped = index + 1
        return asked

    def _reclaim(self) -> Steps:
        """Wait until the runtime has taken back the scratch memory of the packet before, which had it for itself. Only
        the master looks, as the runtime may lend again before another core does.
        """
        team, index = self.team, self.index
        if team is None:
            yield from self.poll(lambda: not self._properties().use_scratch_once, self._lent)
        elif self.masters:
            team.lent = index
            yield from self.poll(lambda: not self._properties().use_scratch_once, self._lent)
            team.freed = index
        else:
            yield from self.poll(lambda: team.freed >= index, self._lent)

    def _answered(self) -> bool:
        """Whether the runtime has reset queue_inactive_signal to 0."""
        handle = self.shared.queue_inactive_signal
        return bool(handle) and self.value(handle) == 0

    # --- descriptions of waits ----------------------------------------------------------------------------------
    def _signals(self, how: str, handles: list[int]) -> str:
        values = ", ".join(f"{handle:#x} holds {self.value(handle):#x}" for handle in handles) or "none is named"
        return f"{how} of its signals must be 0: {values}"

    def _behind(self, index: int) -> str:
        return f"the first core must pass packet {index:#x}"

    def _unsettled(self) -> str:
        return f"earlier work must end: {len(self.queue.grids)} grids still run"

    def _lent(self) -> str:
        return f"the runtime must clear use_scratch_once of amd_queue_t at {self.at:#x}"

    def _unanswered(self) -> str:
        handle = self.shared.queue_inactive_signal
        return f"the runtime must store 0 in queue_inactive_signal at {handle:#x}, once there is more scratch memory"

    # --- packets ------------------------------------------------------------------------------------------------
    def kernel_dispatch(self, head: aql.Header, data: bytearray) -> Steps:
        """Start a grid."""
        packet = aql.KernelDispatch.view(data)
        initiator, wave_size, dimensions = prepare(self, head, packet)
        asked = yield from self.scratch(wave_size, packet.private_segment_size)
        self.resting = False
        if asked:
            # with the scratch memory there is now
            prepare(self, head, packet)
        lent = bool(packet.private_segment_size and self._properties().use_scratch_once)
        self.queue.dispatch(dimensions, initiator)
        self.finish(packet.completion_signal, self.cp.grbm.ticks(), lent=lent)
        if lent:
            yield from self._reclaim()

    def barrier_and(self, head: aql.Header, data: bytearray) -> Steps:
        """Wait until all dependency signals are 0."""
        packet, start = aql.Barrier.view(data), self.cp.grbm.ticks()
        handles = [handle for handle in packet.dep_signal if handle]
        yield from self._judge(
            lambda: all(self.value(handle) == 0 for handle in handles), lambda: self._signals("all", handles)
        )
        self.finish(packet.completion_signal, start, early=True)

    def barrier_or(self, head: aql.Header, data: bytearray) -> Steps:
        """Wait until one of the dependency signals is 0. Without any signal it waits for ever: hsa.h says that a null
        handle does not satisfy it.
        """
        packet, start = aql.Barrier.view(data), self.cp.grbm.ticks()
        handles = [handle for handle in packet.dep_signal if handle]
        yield from self._judge(
            lambda: any(self.value(handle) == 0 for handle in handles), lambda: self._signals("any", handles)
        )
        self.finish(packet.completion_signal, start, early=True)

    def vendor_specific(self, head: aql.Header, data: bytearray) -> Steps:
        """Execute one of AMD's vendor packets."""
        if head.format == aql.FORMAT_PM4_IB:
            yield from self._pm4_ib(aql.Pm4Ib.view(data))
        elif head.format == aql.FORMAT_BARRIER_VALUE:
            yield from self._barrier_value(aql.BarrierValue.view(data))
        else:
            text = f"format {head.format} is no vendor packet"
            raise Refused(aql.INACTIVE_VENDOR_FORMAT, EC_PACKET_VENDOR_UNSUPPORTED, text)

    def _barrier_value(self, packet: aql.BarrierValue) -> Steps:
        start, condition = self.cp.grbm.ticks(), CONDITIONS.get(packet.cond)
        if condition is None:
            raise Refused(aql.INACTIVE_VENDOR_FORMAT, EC_PACKET_VENDOR_UNSUPPORTED, f"condition {packet.cond}")
        yield from self._judge(
            lambda: not packet.signal or condition(self.value(packet.signal) & packet.mask, packet.value),
            lambda: (
                f"the signal at {packet.signal:#x} holds {self.value(packet.signal):#x}, "
                f"wanted is {SIGNS[packet.cond]} {packet.value:#x} under mask {packet.mask & MASK64:#x}"
            ),
        )
        self.finish(packet.completion_signal, start, early=True)

    def _pm4_ib(self, packet: aql.Pm4Ib) -> Steps:
        """Execute the INDIRECT_BUFFER packet inside this one; completion waits for the grids that it started."""
        start, whole = self.cp.grbm.ticks(), self.packet
        if not self._within:
            header, *body = packet.ib_jump_cmd
            if header >> 30 != 3 or (header >> 16 & 0x3FFF) + 1 != IB_PACKET_BODY:
                text = f"PM4 header {header:#010x} is no INDIRECT_BUFFER"
                raise Refused(aql.INACTIVE_VENDOR_FORMAT, EC_PACKET_VENDOR_UNSUPPORTED, text)
            jump = Packet(header, tuple(body), self.place(self.index) + 4, self.cp.opcodes.get(header >> 8 & 0xFF, ""))
            yield from self._jump(jump)
        self._within = True
        while self.buffers:
            self.packet, self.resting = None, True
            if self.queue.draining:
                yield None
            elif not (left := self._left()):
                self._return()
            else:
                fetched = self._fetch(left)
                # only the ring may hold half a packet
                assert fetched is not None
                yield from self._execute(fetched)
        self._within, self.packet, self.resting = False, whole, False
        self.finish(packet.completion_signal, start)

    def _jump(self, packet: Packet) -> Steps:
        """Execute the one PM4 packet inside an AQL packet."""
        self.resting = False
        rule = self.rule(packet)
        steps = rule.execute(self, packet)
        if steps is not None:
            yield from steps


def _complete(index: int, signal: int, start: int | None, lent: bool, queue: Queue) -> None:
    """Complete a packet at the end of the pipe: retire its slot, then signal."""
    processor = queue.parser
    assert isinstance(processor, Aql)  # only its packets have this

    def report(master: Aql) -> None:
        master.signal(signal, start)
        if lent:
            master.inactive(aql.INACTIVE_SCRATCH_USED)

    if processor.team is not None:
        processor.team.end(processor, index, report)
        return
    processor.retire(index)
    report(processor)


KINDS: dict[int, Callable[[Aql, aql.Header, bytearray], Steps]] = {
    aql.VENDOR_SPECIFIC: Aql.vendor_specific,
    aql.KERNEL_DISPATCH: Aql.kernel_dispatch,
    aql.BARRIER_AND: Aql.barrier_and,
    aql.BARRIER_OR: Aql.barrier_or,
}
