"""The Bulk-Only Transport: command block wrapper, data, status wrapper, and the cases in which host and device
disagree.

Source: USB Mass Storage Class, Bulk-Only Transport 1.0 (5, 6.6, 6.7); where it leaves a choice, the stock image 240417,
code 0x0016.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware.endpoints import InEndpoint, OutEndpoint
from ringup.silicon.asm2464pd.hardware.xdata import Cpu
from ringup.silicon.asm2464pd.storage.scsi import NEVER, Commands, Ending, Plan
from ringup.silicon.common.log import EventLog

CBW, CSW = struct.Struct("<IIIBBB16s"), struct.Struct("<IIIB")
CBW_SIGNATURE, CSW_SIGNATURE = 0x4342_5355, 0x5342_5355
PASSED, FAILED, PHASE_ERROR = 0, 1, 2
TO_HOST = 0x80  # bmCBWFlags; the other bits are reserved
LONGEST_CDB = 16


class BulkOnly:
    """The transport's state machine over two endpoints. One command at a time."""

    def __init__(self, out: OutEndpoint, into: InEndpoint, commands: Commands, cpu: Cpu, log: EventLog) -> None:
        self._out, self._in, self._commands, self._cpu, self._log = out, into, commands, cpu, log
        self._packet_bytes = 512
        self._round = 0  # results of an earlier round are dropped
        # a wrapper was invalid: only a reset recovery helps
        self._wedged = False
        self._tag = self._host_bytes = 0
        self._to_host = False
        # a status wrapper that is sent once the host clears the halt of the IN endpoint
        self._status: bytes | None = None
        self._after: Callable[[], None] | None = None

    def start(self, packet_bytes: int) -> None:
        """Start to wait for a command block wrapper."""
        self._packet_bytes = packet_bytes
        self.reset()

    def stop(self) -> None:
        """Drop everything in progress and receive nothing more."""
        self._round += 1
        self._wedged, self._status, self._after = False, None, None
        self._out.disarm()
        self._in.clear()

    def reset(self) -> None:
        """Do a Bulk-Only Mass Storage Reset: wait for the next wrapper. Halts stay until the host clears them."""
        self.stop()
        self._expect_wrapper()

    def cleared(self, address: int) -> None:
        """React to the host's clearing of an endpoint's halt."""
        if self._wedged:
            (self._in if address == self._in.address else self._out).halt()
        elif address == self._in.address and self._status is not None:
            status, self._status = self._status, None
            self._in.send(status, done=self._sent())

    # --- wrapper in ------------------------------------------------------------------------------------------------
    def _expect_wrapper(self) -> None:
        self._collect(self._packet_bytes, self._wrapped)

    def _collect(self, size_bytes: int, then: Callable[[bytes], None]) -> None:
        """Receive up to `size_bytes`, or up to a short packet, and pass them to `then`."""
        mine, parts = self._round, bytearray()

        def take(data: bytes, complete: bool, more: bool) -> None:
            if mine != self._round:
                return
            parts.extend(data)
            if complete:
                then(bytes(parts))

        self._out.arm(size_bytes, take)

    def _wrapped(self, data: bytes) -> None:
        fields = CBW.unpack(data) if len(data) == CBW.size else (0,) * 7
        signature, tag, host_bytes, flags, lun, length, cdb = fields
        if signature != CBW_SIGNATURE or flags & ~TO_HOST or lun > 15 or not 1 <= length <= LONGEST_CDB:
            self._log.note(
                "bridge", "violation", "{} bytes on {:#04x} are no command block wrapper", len(data), self._out.address
            )
            self._wedged = True
            self._in.halt()
            self._out.halt()
            return
        self._tag, self._host_bytes, self._to_host = tag, host_bytes, bool(flags & TO_HOST)
        mine = self._round
        job = self._commands.start(cdb[:length].ljust(LONGEST_CDB, b"\0"), lun, host_bytes)
        self._cpu.run(job, lambda plan: self._planned(plan) if mine == self._round else None)

    # --- the thirteen cases (6.7) -------------------------------------------------------------------------------------
    def _planned(self, plan: Plan) -> None:
        self._after = plan.after
        if plan.ending is NEVER:
            return
        if not self._host_bytes:
            nothing = not plan.send and not plan.take_bytes
            self._end(plan.ending) if nothing else self._disagree(None)  # cases 1; 2 and 3
        elif self._to_host:
            self._to_host_cases(plan)
        else:
            self._to_device_cases(plan)

    def _to_host_cases(self, plan: Plan) -> None:
        if plan.take_bytes or len(plan.send or b"") > self._host_bytes:  # cases 10 and 7
            self._disagree(self._in)
            return
        short = self._host_bytes - len(plan.send or b"")
        if not plan.send:  # case 4
            self._end(plan.ending, short, halt=True)
            return
        mine = self._round

        def sent() -> None:
            if mine == self._round:
                self._end(None, short, halt=bool(short))  # cases 5 and 6

        self._in.send(plan.send, done=sent)

    def _to_device_cases(self, plan: Plan) -> None:
        host_bytes, wanted = self._host_bytes, plan.take_bytes
        if plan.send is not None or wanted > host_bytes:  # cases 8 and 13
            self._disagree(self._out)
            return

        def taken(data: bytes) -> None:
            if len(data) < host_bytes:
                self._disagree(None)  # the host promised more
            elif not wanted:  # case 9
                self._end(plan.ending, host_bytes)
            else:  # cases 11 and 12
                self._finish(plan, data[:wanted], host_bytes - wanted)

        self._collect(host_bytes, taken)

    def _finish(self, plan: Plan, data: bytes, residue: int) -> None:
        mine = self._round

        def ended(ending: Ending) -> None:
            if mine == self._round:
                self._end(ending, residue)

        self._cpu.run(self._commands.finish(plan, data), ended)

    # --- wrapper out ----------------------------------------------------------------------------------------------
    def _disagree(self, halted: InEndpoint | OutEndpoint | None) -> None:
        """End with a phase error, and stall the endpoint on which the host wants to move data."""
        if halted is self._out:
            self._out.halt()
        self._send_status(PHASE_ERROR, 0, halt=halted is self._in)

    def _end(self, ending: Ending, residue: int = 0, *, halt: bool = False) -> None:
        if ending is not NEVER:
            self._send_status(PASSED if ending is None else FAILED, residue, halt=halt)

    def _send_status(self, status: int, residue: int, *, halt: bool) -> None:
        wrapper = CSW.pack(CSW_SIGNATURE, self._tag, residue, status)
        if halt:
            self._status = wrapper
            self._in.halt()
        else:
            self._in.send(wrapper, done=self._sent())

    def _sent(self) -> Callable[[], None]:
        mine = self._round

        def sent() -> None:
            if mine != self._round:
                return
            after, self._after = self._after, None
            self._expect_wrapper()
            if after is not None:
                after()

        return sent
