"""The packet parser of one queue: fetches packets from the ring and from indirect buffers, and executes them one after
the other.

It is a generator. At every `yield` time passes: a number is the time in microseconds, None means until something wakes
the queue. Source: amdgpu nvd.h, PAL packet headers, Mesa ac_cmdbuf usage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringup.errors import GuestError
from ringup.silicon.amd.gc.cp.pm4_decode import (
    EC_REGISTER_INVALID,
    SRC_PRIVILEGED_REGISTER,
    Packet,
    PacketError,
    Rule,
    check_header,
    check_rule,
    packet_dwords,
    reserved,
)
from ringup.silicon.amd.gc.hqd import COMPUTE, LOW

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.processor import Cp
    from ringup.silicon.amd.gc.cp.queue import Queue

# virtual time of a packet, chosen for the model: no estimate of performance
PACKET_US = 0.1
# a wait polls quickly at first, then ever more slowly: hung queues cost little
POLL_US, POLL_LIMIT_US = 0.5, 40.0
FETCH_DWORDS = 32
HEADER = struct.Struct("<I")
BODIES = [struct.Struct(f"<{max(0, size - 1)}I") for size in range(FETCH_DWORDS + 1)]  # by the packet's size
# levels of nested indirect buffers; MEC has one: Mesa radv_amdgpu_cs.c
GRAPHICS_LEVELS = 2
# dwords that unprivileged packets may write: SH, context, UCONFIG
OPEN_WINDOWS = ((0x2C00, 0x3000), (0xA000, 0xA400), (0xC000, 0xC800))


@dataclass(slots=True)
class Buffer:
    """An indirect buffer being executed."""

    base: int  # gpu_va
    size_dwords: int
    vmid: int
    at: int = 0


class Parser:
    """Executes the packets of one queue. `engines` are the letters of `pm4_decode.Rule` that apply to it."""

    def __init__(self, cp: Cp, queue: Queue, engines: str, rules: dict[int, Rule]) -> None:
        self.cp, self.queue, self.hqd = cp, queue, queue.hqd
        self.engines, self._rules = engines, rules
        self._own_rules = {code: rule for code, rule in rules.items() if not set(engines).isdisjoint(rule.engines)}
        self.client = "CPG" if "g" in engines else "CPC"
        self.buffers: list[Buffer] = []
        # between packets, or in a wait that may be abandoned
        self.resting = True
        self.packet: Packet | None = None
        # describes the current wait
        self.awaited: Callable[[], str] | None = None
        self.atomic_return = 0
        self.bases: dict[int, int] = {}  # SET_BASE
        self.skipped = 0  # dwords to skip after the packet
        # pixel wait sync, by counter: RELEASE_MEMs issued, and how many have completed
        self.released, self.completed = [0, 0, 0], [0, 0, 0]
        self._reported = -1
        self._resume()

    # --- where it is --------------------------------------------------------------------------------------------
    @property
    def vmid(self) -> int:
        """The VMID that the current packet uses."""
        return self.buffers[-1].vmid if self.buffers else self.hqd.vmid

    @property
    def privileged(self) -> bool:
        """Whether the current packet may access every register."""
        return self.hqd.privileged and (not self.buffers or self.vmid == 0)

    @property
    def can_stop(self) -> bool:
        """Whether the queue can be disconnected here and continue later from its registers."""
        if not self.resting:
            return False
        return not self.buffers or (self.hqd.names is COMPUTE and self.vmid == self.hqd.vmid)

    def complete(self, counter: int) -> None:
        """Count a release that has completed."""
        self.completed[counter] += 1

    def note(self, text: str, *values: object) -> None:
        """Log a mistake that metal would punish or ignore."""
        where = "" if self.packet is None else f"{self.packet}: "
        self.cp.board.log.note("cp", "violation", f"queue {self.hqd.slot}: {where}{text}", *values)

    def _left(self) -> int:
        if self.buffers:
            top = self.buffers[-1]
            return top.size_dwords - top.at
        return self.hqd.pending_dwords

    def _bytes(self, first: int, count: int) -> tuple[int, bytes]:
        """Return the address of the dword `first` dwords after the current position, and `count` dwords from there."""
        if self.buffers:
            top = self.buffers[-1]
            gpu_va = top.base + (top.at + first) * 4
            return gpu_va, self.cp.hub.read(top.vmid, gpu_va, count * 4, self.client)
        facts = self.hqd.facts()
        size = facts.size_dwords
        start = (self.hqd.rptr + first) % size
        gpu_va, run = facts.base + start * 4, min(count, size - start)
        data = self.cp.hub.read(facts.vmid, gpu_va, run * 4, self.client)
        while run < count:
            place = (start + run) % size
            more = min(count - run, size - place)
            data += self.cp.hub.read(facts.vmid, facts.base + place * 4, more * 4, self.client)
            run += more
        return gpu_va, data

    def _fetch(self, left: int) -> Packet | None:
        """Read the next packet; `left` dwords remain. Return None while the ring does not hold all of it."""
        count = min(left, FETCH_DWORDS)
        gpu_va, data = self._bytes(0, count)
        (header,) = HEADER.unpack_from(data)
        size = packet_dwords(header)
        if not size:
            check_header(header, gpu_va)
        if size > left:
            if not self.buffers:
                return None
            raise reserved(
                f"packet {header:#010x} at {gpu_va:#x} has {size} dwords, its indirect buffer ends after {left}"
            )
        if size > count:
            data += self._bytes(count, size - count)[1]
        body = BODIES[size].unpack_from(data, 4) if size <= FETCH_DWORDS else struct.unpack(f"<{size}I", data)[1:]
        return Packet(header, body, gpu_va, self.cp.opcodes.get(header >> 8 & 0xFF, ""))

    def _advance(self, buffer: Buffer | None, dwords: int) -> None:
        hqd = self.hqd
        if buffer is None:
            hqd.rptr = rptr = hqd.rptr + dwords & LOW
            shift = hqd.facts().report_shift
            if rptr >> shift != self._reported >> shift:
                self.report()
            return
        buffer.at = min(buffer.at + dwords, buffer.size_dwords)
        if hqd.names is COMPUTE:
            hqd.set("CP_HQD_IB_RPTR", buffer.at)

    def report(self) -> None:
        """Write the read pointer to memory."""
        rptr = self.hqd.rptr
        if rptr != self._reported and (gpu_va := self.hqd.report_address):
            self.cp.hub.write(self.hqd.vmid, gpu_va, struct.pack("<I", rptr), self.client)
        self._reported = rptr

    # --- running ------------------------------------------------------------------------------------------------
    def run(self) -> Iterator[float | None]:
        """Execute packets for ever."""
        while True:
            self.packet = None
            self.resting = True
            if self.queue.draining:
                yield None
                continue
            left = self._left()
            if not left:
                if self.buffers:
                    self._return()
                else:
                    self.report()
                    yield None
                continue
            packet = self._fetch(left)
            if packet is None:
                yield None
                continue
            yield from self._execute(packet)

    def _execute(self, packet: Packet) -> Iterator[float | None]:
        """Execute one packet and advance past it."""
        self.resting, self.packet = False, packet
        self.skipped = 0
        slot, cp = self.hqd.slot, self.cp
        top = self.buffers[-1] if self.buffers else None
        cp.board.log.note("cp", "packet", "queue {}: {}", slot, packet)
        cp.header_seen(slot, packet.header)
        steps = self.rule(packet).execute(self, packet)
        if steps is not None:
            yield from steps
        self._advance(top, 1 + len(packet.body) + self.skipped)
        yield PACKET_US

    def rule(self, packet: Packet) -> Rule:
        """Return the rule for a packet, or refuse the packet."""
        rule = self._own_rules.get(packet.header >> 8 & 0xFF)
        if rule is not None and rule.counts[0] <= packet.header >> 16 & 0x3FFF <= rule.counts[1]:
            return rule
        return check_rule(packet, self._rules, self.engines, self.cp.row.version)

    def poll(self, done: Callable[[], bool], awaited: Callable[[], str], may_stop: bool = True) -> Iterator[float]:
        """Wait until `done()`; `awaited` describes the wait.

        With `may_stop` the queue may be disconnected meanwhile; it then executes the packet again.
        """
        wait = POLL_US
        while not done():
            self.resting, self.awaited = may_stop, awaited
            yield wait
            self.resting, self.awaited = False, None
            wait = min(wait * 1.5, POLL_LIMIT_US)

    # --- indirect buffers ---------------------------------------------------------------------------------------
    def call(self, gpu_va: int, size_dwords: int, vmid: int, chain: bool) -> None:
        """Continue in an indirect buffer, and afterwards after the packet. `chain` replaces the current indirect
        buffer.
        """
        if self.hqd.vmid:
            # a user queue's buffers use its own VMID, whatever the packet says
            vmid = self.hqd.vmid
        elif self.buffers:
            vmid = self.vmid
        if chain:
            if not self.buffers:
                raise reserved("an indirect buffer is chained from the ring")
            self.buffers.pop()
        elif len(self.buffers) >= (GRAPHICS_LEVELS if "g" in self.engines else 1):
            raise reserved(f"indirect buffers nest deeper than {len(self.buffers)}")
        self.buffers.append(Buffer(gpu_va, size_dwords, vmid))
        if self.hqd.names is COMPUTE:
            self.hqd.set("CP_HQD_IB_BASE_ADDR", gpu_va & LOW)
            self.hqd.set("CP_HQD_IB_BASE_ADDR_HI", gpu_va >> 32)
            self.hqd.set("CP_HQD_IB_RPTR", 0)
            self.hqd.put("CP_HQD_IB_CONTROL", ib_size=size_dwords, processing_ib=1)

    def _return(self) -> None:
        self.buffers.pop()
        if self.hqd.names is COMPUTE:
            self.hqd.put("CP_HQD_IB_CONTROL", ib_size=0, processing_ib=0)

    def _resume(self) -> None:
        """Continue in the indirect buffer in which the queue was disconnected."""
        if self.hqd.names is COMPUTE and self.hqd.field("CP_HQD_IB_CONTROL", "processing_ib"):
            base = self.hqd.pair(("CP_HQD_IB_BASE_ADDR", "CP_HQD_IB_BASE_ADDR_HI"))
            size = self.hqd.field("CP_HQD_IB_CONTROL", "ib_size")
            self.buffers.append(Buffer(base, size, self.hqd.vmid, self.hqd.get("CP_HQD_IB_RPTR")))

    # --- memory and registers -----------------------------------------------------------------------------------
    def read(self, gpu_va: int, size_bytes: int) -> bytes:
        """Read memory in the current VMID."""
        return self.cp.hub.read(self.vmid, gpu_va, size_bytes, self.client)

    def write(self, gpu_va: int, data: bytes | memoryview) -> None:
        """Write memory in the current VMID."""
        self.cp.hub.write(self.vmid, gpu_va, data, self.client)

    def read_number(self, gpu_va: int, size_bytes: int = 4) -> int:
        """Read a little-endian number."""
        return int.from_bytes(self.read(gpu_va, size_bytes), "little")

    def write_number(self, gpu_va: int, value: int, size_bytes: int = 4) -> None:
        """Write a little-endian number, truncated to `size_bytes`."""
        self.write(gpu_va, (value & (1 << 8 * size_bytes) - 1).to_bytes(size_bytes, "little"))

    def read_register(self, dword: int) -> int:
        """Read a register as the CP does: in the queue's own bank."""
        with self.cp.grbm.acting(self.hqd.slot, self.vmid):
            try:
                return self.cp.board.space.read(dword * 4)
            except GuestError as error:
                self.note("{}", error)
                return 0

    def write_register(self, dword: int, value: int) -> None:
        """Write a register as the CP does. A privileged register stops an unprivileged queue."""
        if not self.privileged and not any(first <= dword < end for first, end in OPEN_WINDOWS):
            name = self.cp.board.space.name(dword * 4)
            raise PacketError(
                SRC_PRIVILEGED_REGISTER, EC_REGISTER_INVALID, f"{name} (dword {dword:#x}) needs privilege"
            )
        self.store_register(dword, value)

    def store_register(self, dword: int, value: int) -> None:
        """Write a register without checking privilege."""
        with self.cp.grbm.acting(self.hqd.slot, self.vmid):
            try:
                self.cp.board.space.write(dword * 4, value & LOW)
            except GuestError as error:
                self.note("{}", error)
