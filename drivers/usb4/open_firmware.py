"""The open firmware: its vendor requests do PCI Express requests, stream dwords, move the bridge's memory over USB, and
switch the slot.

One 8051 serves all requests one after another, endpoint 0 before the bulk endpoints. `F0` ends a stream that is in
flight, so the bytes of a stream must have arrived before the next request is sent. The firmware answers before `F0` is
done, so `Port` does not begin a request before the previous one has ended. Source: asm2464pd-firmware,
handmade/src/main.c, handle_usb_control, handle_usb_bulk_data; docs/asm2464pd.md, "Open firmware".
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence

from ringup.drivers.transport.wait import poll
from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.bridge import (
    LINK_INFO,
    LINK_INFO_PAGE,
    LTSSM,
    SLOT_BYTES,
    SRAM_BUS_ADDR,
    SRAM_BYTES,
    UP,
    Link,
    garbled,
)
from ringup.drivers.usb4.landing import Landing
from ringup.drivers.usb4.naming import AGAIN
from ringup.drivers.usb4.port import Pending, Port
from ringup.drivers.usb4.tlp import Completion, Request
from ringup.errors import DeviceLost, DeviceTimeout, RingupError, TransportError

LOG = logging.getLogger(__name__)
BULK_OUT, BULK_IN = 0x02, 0x81
# XDATA: the memory that the card sees at `OpenBulk.progress_bus_addr` and `go_bus_addr`
PROGRESS, GO = 0xA800, 0xA840
# vendor requests. XDATA_WRITE and SRAM are done when they answer, so one may follow another at once; REQUEST is not.
# Source: main.c, handle_usb_control
XDATA_READ, XDATA_WRITE, REQUEST, SRAM, POWER = 0xE4, 0xE5, 0xF0, 0xF2, 0xF3
# low bits of wIndex of `F0`
SINGLE, STREAM_WRITE, STREAM_READ = 0, 1, 2
# of `F0`: address, value or count of dwords
ARGUMENTS = struct.Struct("<QI")
# data, bytes 6 and 7 of the completion's header, whether data came, result
ANSWER = struct.Struct("<I4B")
DONE = 0
SRAM_TO_HOST = 1 << 15
SECTOR_BYTES = 512
# the longest answer of endpoint 0 at USB2; registers are single bytes
XDATA_PIECE = 64
# TIMEOUT: the bounds of the firmware's own host programs
REQUEST_MS, POWER_MS, BULK_MS = 5_000, 10_000, 10_000
# TIMEOUT: ours. The firmware answers at once. After a request without a completion, it answers after a third of a
# second
LOOKS, LOOK_MS = 3, 1_500
# TIMEOUT: a third of the slower of the two measured rates, 1.8 MB/s
STREAM_BYTES_PER_MS = 500
# TIMEOUT: how often a request that the link garbled is repeated; the pause is the firmware author's
TRIES, PAUSE_US = 10, 1_000
# TIMEOUT: a packet that is left in the endpoint arrives at once
STALE_MS, STALE_PACKETS, PACKET_BYTES = 10, 4, 1024
CPU_RESTART = 0xCC31  # XDATA
# TIMEOUT: the bridge is back after a third of a second, or after 3 s with the link trained
RESTART_MS, BACK_US, BACK_POLL_US = 500, 6_000_000, 50_000
# of a request to a function that may not exist
ABSENT_TRIES = 1
# TIMEOUT: `F3` waits 2 s itself; cold cards were seen to need a little more
TRAIN_US, TRAIN_POLL_US = 3_000_000, 20_000
# so many dwords take no more transfers as single requests than as a stream, and the host does not wait for them
POSTED_DWORDS = 2
# requests of one round trip: the bound of an answer must be long enough for all of them
READ_AHEAD = 32
# fewer dwords are read by requests, each with a status
STREAM_MIN_DWORDS = 8
STREAM_MAX_BYTES = 1 << 20


class OpenFirmware:
    """A `Bridge`, for a port whose product string names this firmware. `close` does not switch the slot."""

    kind = "open"

    def __init__(self, port: Port) -> None:
        self.port, self.version = port, port.product
        self.lent: set[int] = set()
        self._closed = self._restarted = False
        # the transfers of a stream, which must end before the next request
        self._under_way: tuple[Pending, ...] = ()
        # transfers into the bridge's memory
        self._fills: deque[Pending] = deque()
        # whether the bulk endpoint last served the bridge's memory, and not a stream; unknown at the start
        self._moved_memory = True
        self.bulk = OpenBulk(self)
        # a transfer of the bridge's memory was interrupted: its engine keeps waiting for the rest
        self._memory_torn = False
        # a program that died may have left an unfinished stream
        self._resync()

    # --- the chip ---------------------------------------------------------------------------------------------------
    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space."""
        self.quiet()
        return self.look(address, count, page)

    def look(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space, also while bytes are sent into the bridge's memory. A read has no side
        effects, so it is repeated if it fails.
        """
        port = self.port
        for _ in range(LOOKS):
            pieces = [
                port.start_control_in(XDATA_READ, address + at, page << 8, min(XDATA_PIECE, count - at), LOOK_MS)
                for at in range(0, count, XDATA_PIECE)
            ]
            if port.ended_well(*pieces) and sum(piece.actual for piece in pieces) == count:
                break
        port.wait(*pieces)
        data = b"".join(piece.data for piece in pieces)
        if len(data) != count:
            raise TransportError(
                f"{port.name}: reading {count} bytes of XDATA at {address:#06x}: {len(data)} came; {AGAIN}"
            )
        return data

    def xdata_write(self, address: int, data: bytes, page: int = 0) -> None:
        """Write the chip's own address space, one byte a request, without waiting."""
        self.quiet()
        for at, value in enumerate(data):
            self.port.post(
                self.port.start_control_out(
                    XDATA_WRITE, address + at, page << 8 | value, timeout_ms=REQUEST_MS, whole=True
                )
            )

    def link(self) -> Link:
        """Read the state of the link to the card."""
        ltssm = self.xdata_read(LTSSM, 1)[0]
        if ltssm not in UP:
            return Link(ltssm)
        info = self.xdata_read(LINK_INFO, 1, LINK_INFO_PAGE)[0]
        return Link(ltssm, info & 0xF, info >> 4)

    def power(self, on: bool) -> None:
        """Switch the slot on or off. A link that does not train in time raises no error: `link` returns its state."""
        self.quiet()
        self.port.control_out(
            POWER, int(on), 0, timeout_ms=POWER_MS, doing=f"switching the slot {'on' if on else 'off'}"
        )
        if on:
            poll(self.link, lambda link: link.up, clock=self.port.clock, timeout_us=TRAIN_US, poll_us=TRAIN_POLL_US)

    # --- requests ---------------------------------------------------------------------------------------------------
    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order. A request that the link garbles is repeated, and so are all requests that were sent
        after it. Without `replay`, only reads are sent after a request that is not answered yet.
        """
        self.quiet()
        done: list[Completion] = []
        most = tries = ABSENT_TRIES if absent else TRIES
        while len(done) < len(requests):
            group = requests[len(done) : len(done) + READ_AHEAD]
            if not replay:
                group = group[: tlp.answered_at_once(group)]
            answers = [self._start(request) for request in group]
            self.port.wait(*[pending for pair in answers for pending in pair])
            for request, pair in zip(group, answers, strict=True):
                completion = self._completion(request, pair[-1])
                if completion is None:
                    break
                done.append(completion)
                tries = most
            else:
                continue
            if not tries:
                error = garbled(self, requests[len(done)], most + 1)
                if not absent or isinstance(error, DeviceLost):
                    raise error
                # UNKNOWN: whether this is how the engine reports a function that does not exist
                done.append(Completion(tlp.UNSUPPORTED))
                tries = most
                continue
            tries -= 1
            self.port.clock.sleep_us(PAUSE_US)
        return done

    def _start(self, request: Request) -> list[Pending]:
        """Send a request, and read its completion if it has one."""
        sent = self._send(request.kind, request.enables, SINGLE, request.address, request.value, str(request))
        if request.posted:
            return [sent]
        # not a lost write if it fails: the completion says whether it was done
        sent.sends = False
        return [sent, self.port.start_control_in(REQUEST, 0, 0, ANSWER.size, REQUEST_MS, str(request))]

    def _send(self, kind: int, enables: int, mode: int, address: int, value: int, doing: str) -> Pending:
        data = ARGUMENTS.pack(address, value)
        return self.port.start_control_out(REQUEST, enables << 8 | kind, mode, data, REQUEST_MS, doing)

    def _completion(self, request: Request, answer: Pending) -> Completion | None:
        """Decode an answer. Return None if the link garbled it."""
        if request.posted:
            return Completion(tlp.SUCCESS)
        if len(answer.data) != ANSWER.size:
            raise TransportError(
                f"{self.port.name}: {request}: {len(answer.data)} of {ANSWER.size} bytes came as its answer; {AGAIN}"
            )
        value, high, _, _, result = ANSWER.unpack(answer.data)
        if result != DONE:
            return None
        status = high >> 5
        return Completion(status, value if status == tlp.SUCCESS else tlp.ONES)

    def post(self, requests: Sequence[Request]) -> None:
        """Send memory writes without waiting."""
        self.quiet()
        for request in requests:
            self.port.post(self._start(request)[0])

    # --- blocks -----------------------------------------------------------------------------------------------------
    def write_block(self, address: int, data: bytes | memoryview) -> None:
        """Write whole dwords: a few by requests, more as a stream. On return, the stream may still be in flight."""
        dwords = len(data) // 4
        if dwords <= POSTED_DWORDS:
            values = struct.unpack(f"<{dwords}I", data)
            self.post([tlp.memory_write(address + 4 * at, value) for at, value in enumerate(values)])
            return
        for at in range(0, len(data), STREAM_MAX_BYTES):
            self.quiet()
            piece = data[at : at + STREAM_MAX_BYTES]
            first = tlp.memory_write(address + at, 0)
            doing = f"streaming {len(piece)} bytes to {address + at:#x}"
            try:
                armed = self._send(first.kind, 0xF, STREAM_WRITE, first.address, len(piece) // 4, doing)
                if self._moved_memory:
                    # ORDER: armed before the bytes are sent, or the engine of the bridge's memory would take them.
                    # After another stream, the bytes may be sent at once: the endpoint holds them until it is armed, as
                    # between two packets of a stream
                    self.port.wait(armed)
                    self._moved_memory = False
                sent = self.port.start_bulk_out(BULK_OUT, bytes(piece), _stream_ms(len(piece)), doing=doing)
            # the stream may be armed: it would take the next bytes for these
            except BaseException:
                self.port.torn = True
                raise
            self._under_way = (armed, sent)
            self.port.leave(armed, sent)

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords: a few by requests, more as a stream. The first dword of a stream is also read by a
        request, because a stream has no status.
        """
        dwords = size_bytes // 4
        if dwords <= STREAM_MIN_DWORDS:
            answers = self.request([tlp.memory_read(address + 4 * at) for at in range(dwords)])
            return struct.pack(f"<{dwords}I", *(answer.value for answer in answers))
        parts = []
        for at in range(0, size_bytes, STREAM_MAX_BYTES):
            length = min(STREAM_MAX_BYTES, size_bytes - at)
            first = tlp.memory_read(address + at)
            self.quiet()
            probe = self._start(first)
            data = self.poll(address + at, length)
            self.port.wait(*probe)
            completion = self._completion(first, probe[-1])
            if completion is None:
                (completion,) = self.request([first])
                data = self.poll(address + at, length)
            parts.append(data if completion.status == tlp.SUCCESS else b"\xff" * length)
        return b"".join(parts)

    def poll(self, address: int, size_bytes: int) -> bytes:
        """Read dwords as a stream. For a dword without an answer, the firmware sends old bytes of its engine.

        While a drain is armed, the endpoint's bytes belong to the drain, so each dword is read by a request.
        """
        self.quiet()
        if self.bulk.draining:
            answers = self.request([tlp.memory_read(address + at) for at in range(0, size_bytes, 4)])
            return b"".join(answer.value.to_bytes(4, "little") for answer in answers)
        doing = f"streaming {size_bytes} bytes from {address:#x}"
        try:
            asked = self._send(tlp.memory_read(address).kind, 0xF, STREAM_READ, address, size_bytes // 4, doing)
            asked.sends = False
            came = self.port.start_bulk_in(BULK_IN, size_bytes, _stream_ms(size_bytes), doing=doing, exact=True)
            self.port.wait(asked, came)
        # the stream may be armed: its bytes would stay in the endpoint
        except BaseException:
            self.port.torn = True
            raise
        return came.data

    def push(self, address: int) -> None:
        """Read a dword and ignore its value. This does not wait, because its completion arrives before the next request
        is begun.
        """
        self.quiet()
        for pending in self._start(tlp.memory_read(address)):
            self.port.post(pending)

    def _resync(self) -> None:
        """Reset the endpoints. Selecting the alternate setting resets them and ends a stream. Bytes that are left in
        the IN endpoint are read and dropped.

        Source: asm2464pd-firmware, handmade/src/main.c, SET_INTERFACE and CLEAR_FEATURE; for the order,
        handmade/test_pcie_badstate.py.
        """
        port = self.port
        self._memory_torn = self._memory_torn or bool(self._fills) or self.bulk.draining
        port.drop()
        self._under_way, self._moved_memory = (), True
        self._fills.clear()
        self.bulk.forget()
        try:
            port.set_alt(0)
            port.clear_halt(BULK_OUT)
            port.clear_halt(BULK_IN)
            for _ in range(STALE_PACKETS):
                try:
                    port.bulk_in(BULK_IN, PACKET_BYTES, STALE_MS)
                except DeviceTimeout:
                    break
            port.clear_halt(BULK_IN)
        # the firmware hangs in a handler until its power is switched off
        except DeviceTimeout as error:
            raise port.give_up("resetting its endpoints") from error
        port.torn = False

    def quiet(self) -> None:
        """Wait for the bytes in flight on the bulk endpoints: for those of the bridge's memory, as `settle_memory`
        does, and for those of a stream.
        """
        self.settle_memory()
        if self._under_way:
            self.port.wait(*self._under_way)
            self._under_way = ()

    def settle_memory(self) -> None:
        """Wait for the bytes in flight into the bridge's memory. If a transfer was interrupted, reset the endpoints.

        Raises `TransportError` after bytes for the card were lost, because the card may be in any state then. Raises it
        too if the bridge could take the next bytes of a bulk endpoint for others.
        """
        if self.port.torn and not self.port.lost:
            self._resync()
        self.check()
        self.settle(0)

    def fill(self, arm: Callable[[], Pending], send: Callable[[], Pending]) -> None:
        """For `OpenBulk`: wait until at most one fill is in flight, arm the engine, then send the bytes."""
        if self._under_way or self.port.torn:
            self.quiet()
        self.check()
        self.settle(1)
        try:
            self.port.wait(arm())
            self._fills.append(send())
        # the engine may be armed, even if the error is that of an earlier posted transfer
        except BaseException:
            self.tear_memory()
            raise
        self._moved_memory = True

    def tear_memory(self) -> None:
        """For `OpenBulk`: record that the engine of the bridge's memory may wait for bytes that will not come."""
        self._memory_torn = self.port.torn = True

    def check(self) -> None:
        """Raise `TransportError` if the bridge is unusable until a restart. A lost bridge raises no error here, but at
        the next request.
        """
        if self.port.lost:
            return
        if self.port.lost_write:
            why = f"{self.port.lost_write}: that was interrupted, and the card may not have received it"
        elif self._memory_torn:
            why = "a transfer of the bridge's memory was interrupted, and its engine waits for the rest"
        else:
            return
        raise TransportError(f"{self.port.name}: {why}; close the card, which restarts the bridge, and open it again")

    def settle(self, fills: int) -> None:
        """For `OpenBulk`: wait until at most `fills` fills are in flight."""
        while len(self._fills) > fills:
            self.port.wait(self._fills[0])
            self._fills.popleft()

    def close(self) -> None:
        """Wait for transfers in flight. Restart the bridge if its engine may be armed. May be called twice."""
        if self._closed or self.port.lost:
            return
        self._closed = True
        try:
            self.quiet()
            self.port.settle()
        finally:
            if self.unsettled and not self.port.lost:
                self.restart()

    @property
    def unsettled(self) -> bool:
        """Whether an engine may be armed, or the card may not have received what was sent."""
        return not self._restarted and bool(self._memory_torn or self.bulk.draining or self.port.lost_write)

    def restart(self) -> None:
        """Restart the chip's processor and wait, within a bound, until the bridge has left USB and come back at the
        same place.

        Raises `TransportError` if it does not leave, or does not come back.

        Source: asm2464pd-firmware, registers.h, REG_CPU_EXEC_CTRL (measured there: back after a third of a second, with
        the slot after seconds).
        """
        port, clock = self.port, self.port.clock
        LOG.info("%s: the bridge is restarted: a transfer of its memory was interrupted, or may have been", port.name)
        try:
            port.control_out(XDATA_WRITE, CPU_RESTART, 1, timeout_ms=RESTART_MS, doing="restarting the bridge")
        # the bridge may leave before it has answered
        except RingupError as error:
            LOG.debug("%s: %s", port.name, error)
        end_us, gone, back = clock.now_us + BACK_US, False, False
        while clock.now_us < end_us and not back:
            present = port.present
            gone, back = gone or not present, gone and present
            clock.sleep_us(BACK_POLL_US)
        if not back:
            raise TransportError(
                f"{port.name}: restarting the bridge: it {'did not come back' if gone else 'stayed as it was'}"
                f" for {BACK_US // 1_000_000} s; switch the enclosure off and on, or pull its cable, and open it again"
            )
        self._restarted = True


class OpenBulk:
    """A `Bulk` of 31 of the 32 slots, in two windows of 15. After each window there is a slot that is never filled.
    UNKNOWN: whether a fill up to a window's end damages the last slot: one project saw it, another did not. Drains use
    all slots as long as no pages of the last one are allocated.
    """

    bus_addr, total_bytes, size_bytes = SRAM_BUS_ADDR, SRAM_BYTES, SRAM_BYTES - SLOT_BYTES
    windows = range(15 * SLOT_BYTES), range(16 * SLOT_BYTES, 31 * SLOT_BYTES)
    # in the second half of the page of an NVMe device's submission queue: stores to the first half disturb fills that
    # are in flight
    progress_bus_addr = 0x82_0800
    # a cache line after that. Cards are known to read rings that the chip's CPU stored in this page
    go_bus_addr = 0x82_0840
    # the first entry of the completion queue of the NVMe device that the chip expects: any write to it works
    release_bus_addr = 0x82_200C
    # writes through a window run at 3.6 MB/s; a fill and the wait for it take a tenth of a millisecond more
    min_fill_bytes = 64 << 10

    def __init__(self, firmware: OpenFirmware) -> None:
        self._firmware, self._port = firmware, firmware.port
        self._drain: Pending | None = None
        self._landing = Landing(firmware.port, firmware.xdata_read)

    @property
    def drain_bytes(self) -> int:
        """The bytes of all slots, as is known from metal (tinygrad, `_copyout`). If pages of the last slot are
        allocated, the bytes of the others.
        """
        return self.size_bytes if self._firmware.lent else self.total_bytes

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Arm the engine, then begin to send. The engine may be armed while it moves the previous fill. The bytes of
        the two fills follow each other without a gap.
        """
        self._refuse_if_draining()
        size = -(-len(data) // SECTOR_BYTES) * SECTOR_BYTES
        padded = bytes(data).ljust(size, b"\0") if size != len(data) else data
        doing = f"filling {size} bytes of the bridge's memory at {offset:#x}"
        self._firmware.fill(
            lambda: self._arm(offset, size, 0, doing),
            lambda: self._port.start_bulk_out(BULK_OUT, padded, BULK_MS, doing=doing),
        )

    def settle(self, under_way: int) -> None:
        """Wait until at most `under_way` fills are in flight."""
        self._firmware.settle(under_way)

    def land(self) -> None:
        """Wait until the bytes of all fills have arrived."""

        def fill(mark: bytes) -> None:
            self.fill(0, mark)
            self.settle(0)

        try:
            self._landing.wait(fill)
        except DeviceTimeout:
            self.give_up()
            raise

    def progress(self) -> int:
        """Read the dword that the card stores. It is in the chip's own memory and can be read also during fills."""
        return int.from_bytes(self._firmware.look(PROGRESS, 4), "little")

    def tell(self, value: int) -> None:
        """Store a byte that the card reads, by one request without data."""
        self._firmware.xdata_write(GO, bytes([value]))

    def arm(self, offset: int, size_bytes: int) -> None:
        """Arm the engine for a drain and begin to receive. This is ordered before the requests that follow, which start
        the drain.

        Bytes of a stream may still be in flight: streams are sent while a drain is armed (tinygrad, `_copyout`).
        """
        self._refuse_if_draining()
        self._firmware.settle_memory()
        size = -(-size_bytes // SECTOR_BYTES) * SECTOR_BYTES
        doing = f"draining {size} bytes of the bridge's memory at {offset:#x}"
        try:
            self._port.post(self._arm(offset, size, SRAM_TO_HOST, doing))
            self._drain = self._port.start_bulk_in(BULK_IN, size, BULK_MS, doing=doing, exact=True)
        # the engine may be armed, and its bytes would not be read
        except BaseException:
            self.give_up()
            raise

    def drain(self) -> bytes:
        """Wait for the bytes of the armed drain."""
        drain = self._drain
        if drain is None:
            raise ValueError("nothing was armed to be drained")
        self._port.wait(drain)
        self._drain = None
        return drain.data

    @property
    def draining(self) -> bool:
        """Whether a drain is armed, or was armed when a transfer failed."""
        drain = self._drain
        return drain is not None and not (drain.went_well and drain.actual == drain.exact)

    def _refuse_if_draining(self) -> None:
        """Raise `TransportError` while an interrupted drain may be armed: arming the engine again would hang it."""
        if self.draining:
            self.give_up()
            self._firmware.quiet()

    def give_up(self) -> None:
        """Refuse to move bytes from now on. `close` then restarts the bridge."""
        self._firmware.tear_memory()

    def forget(self) -> None:
        """Forget the armed drain."""
        self._drain = None

    def _arm(self, offset: int, size_bytes: int, direction: int, doing: str) -> Pending:
        most = self.drain_bytes if direction else self.size_bytes
        if offset % SLOT_BYTES or not 0 < size_bytes <= most - offset:
            raise ValueError(f"{doing}: slots of {SLOT_BYTES} bytes up to {most} can be used")
        slots = -(-size_bytes // SLOT_BYTES)
        where = slots << 8 | offset // SLOT_BYTES
        return self._port.start_control_out(
            SRAM, direction | size_bytes // SECTOR_BYTES, where, timeout_ms=REQUEST_MS, doing=doing, whole=True
        )


def _stream_ms(size_bytes: int) -> int:
    return BULK_MS + size_bytes // STREAM_BYTES_PER_MS
