"""The open firmware: vendor requests that fire PCI Express requests, stream dwords, move the bridge's memory over USB,
switch the slot.

One 8051 serves every request in turn, endpoint 0 before the bulk endpoints. `F0` ends a stream that is in flight, so
the bytes of a stream must have arrived before the next request is sent. The firmware answers before `F0` is done, so no
request is sent before another has ended; `Port` sees to that. Source: asm2464pd-firmware, handmade/src/main.c,
handle_usb_control, handle_usb_bulk_data; docs/asm2464pd.md, "Open firmware".
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
PROGRESS, GO = 0xA800, 0xA840  # XDATA: what the card sees at `OpenBulk.progress_bus_addr` and `go_bus_addr`
# of these XDATA_WRITE and SRAM are done when they answer, so one may follow another at once; REQUEST is not. Source:
# main.c, handle_usb_control
XDATA_READ, XDATA_WRITE, REQUEST, SRAM, POWER = 0xE4, 0xE5, 0xF0, 0xF2, 0xF3
SINGLE, STREAM_WRITE, STREAM_READ = 0, 1, 2  # low bits of wIndex of `F0`
ARGUMENTS = struct.Struct("<QI")  # of `F0`: address, value or count of dwords
ANSWER = struct.Struct("<I4B")  # data, completion header bytes 6 and 7, whether data came, how it went
DONE = 0
SRAM_TO_HOST = 1 << 15
SECTOR_BYTES = 512
XDATA_PIECE = 64  # a USB2 endpoint 0 has no longer answers; registers are single bytes
REQUEST_MS, POWER_MS, BULK_MS = 5_000, 10_000, 10_000  # TIMEOUT: what the firmware's own host programs give it
# TIMEOUT: ours. The firmware answers at once, or behind a request that nothing completes, which takes a third of a
# second
LOOKS, LOOK_MS = 3, 1_500
STREAM_BYTES_PER_MS = 500  # TIMEOUT: a third of the slower of the two measured rates, 1.8 MB/s
TRIES, PAUSE_US = 10, 1_000  # TIMEOUT: of a request that the link garbled; the pause is the firmware author's
STALE_MS, STALE_PACKETS, PACKET_BYTES = 10, 4, 1024  # TIMEOUT: a packet that is still there comes at once
CPU_RESTART = 0xCC31  # XDATA
# TIMEOUT: back in a third of a second, or in 3 s with the link trained
RESTART_MS, BACK_US, BACK_POLL_US = 500, 6_000_000, 50_000
ABSENT_TRIES = 1  # of a request to what may not be there
# TIMEOUT: `F3` waits 2 s itself; cold cards were seen to need a little more
TRAIN_US, TRAIN_POLL_US = 3_000_000, 20_000
POSTED_DWORDS = 2  # up to here single requests cost no more transfers than a stream, and nobody waits for them
READ_AHEAD = 32  # requests of one round trip: their answers' bound must hold for all of them
STREAM_MIN_DWORDS = 8  # fewer are read one by one, each with its status
STREAM_MAX_BYTES = 1 << 20


class OpenFirmware:
    """A `Bridge`. Made for a port whose product string says so; `close` leaves the slot as it is."""

    kind = "open"

    def __init__(self, port: Port) -> None:
        self.port, self.version = port, port.product
        self.lent: set[int] = set()
        self._closed = self._restarted = False
        self._under_way: tuple[Pending, ...] = ()  # the stream that must be through before the next request
        self._fills: deque[Pending] = deque()  # bytes on their way into the bridge's memory
        # whether the bulk endpoint last served the bridge's memory; unknown at the start
        self._moved_memory = True
        self.bulk = OpenBulk(self)
        # a transfer of the bridge's memory was broken off: its engine keeps waiting for the rest
        self._memory_torn = False
        self._resync()  # a program that died may have left a stream half-way

    # --- the chip ---------------------------------------------------------------------------------------------------
    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space."""
        self.quiet()
        return self.look(address, count, page)

    def look(self, address: int, count: int, page: int = 0) -> bytes:
        """Read it also while bytes are being sent into the bridge's memory. A read changes nothing, so one that fails
        is repeated.
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
        """Write it, byte after byte."""
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
        """Switch the slot on or off. A link that does not train in time is no error here; `link` returns its state."""
        self.quiet()
        self.port.control_out(
            POWER, int(on), 0, timeout_ms=POWER_MS, doing=f"switching the slot {'on' if on else 'off'}"
        )
        if on:
            poll(self.link, lambda link: link.up, clock=self.port.clock, timeout_us=TRAIN_US, poll_us=TRAIN_POLL_US)

    # --- requests ---------------------------------------------------------------------------------------------------
    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order. A request that the link garbles is repeated. With `replay` all later ones are repeated
        too, as configuration requests may be; without, only reads are sent after an unanswered request.
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
                # UNKNOWN: whether the engine shows a function that is not there so
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
        sent.sends = False  # whoever waits for the completion learns whether it was
        return [sent, self.port.start_control_in(REQUEST, 0, 0, ANSWER.size, REQUEST_MS, str(request))]

    def _send(self, kind: int, enables: int, mode: int, address: int, value: int, doing: str) -> Pending:
        data = ARGUMENTS.pack(address, value)
        return self.port.start_control_out(REQUEST, enables << 8 | kind, mode, data, REQUEST_MS, doing)

    def _completion(self, request: Request, answer: Pending) -> Completion | None:
        """Read an answer; None for one that the link garbled."""
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
        """Write whole dwords: a few by requests, more as a stream, whose bytes may still be in flight on return."""
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
                    # ORDER: armed before the bytes come, lest the other engine takes them. Behind a stream they may
                    # come at once: the endpoint is as it is between two packets of one, when it holds bytes up until it
                    # is armed
                    self.port.wait(armed)
                    self._moved_memory = False
                sent = self.port.start_bulk_out(BULK_OUT, bytes(piece), _stream_ms(len(piece)), doing=doing)
            except BaseException:  # armed, perhaps, and the next bytes would be taken for these
                self.port.torn = True
                raise
            self._under_way = (armed, sent)
            self.port.leave(armed, sent)

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords: a few by requests, more as a stream. The first dword of a stream is read by a request,
        since a stream has no status.
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
        """Stream dwords in. For a dword without an answer, the firmware sends old bytes of its engine.

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
        except BaseException:  # asked for, perhaps, and not taken
            self.port.torn = True
            raise
        return came.data

    def push(self, address: int) -> None:
        """Read a dword and drop its value. Its completion arrives before the next request is sent, so this does not
        wait.
        """
        self.quiet()
        for pending in self._start(tlp.memory_read(address)):
            self.port.post(pending)

    def _resync(self) -> None:
        """Reset the endpoints: choosing the setting resets them and ends a stream; bytes that are left in the IN
        endpoint are read and dropped.

        Source: asm2464pd-firmware, handmade/src/main.c, SET_INTERFACE and CLEAR_FEATURE;
        handmade/test_pcie_badstate.py, the order.
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
        except DeviceTimeout as error:  # the firmware hangs in a handler, and will until its power goes
            raise port.give_up("setting its endpoints right") from error
        port.torn = False

    def quiet(self) -> None:
        """Wait for the bytes in flight on a bulk endpoint, as `settle_memory` does, and for those of a stream."""
        self.settle_memory()
        if self._under_way:
            self.port.wait(*self._under_way)
            self._under_way = ()

    def settle_memory(self) -> None:
        """Wait for the bytes being sent into the bridge's memory; reset the endpoints if a transfer was broken off.

        Raises `TransportError` once bytes for the card were lost, since the card may be in any state then, or when the
        next bytes of a bulk endpoint could be taken for others.
        """
        if self.port.torn and not self.port.lost:
            self._resync()
        self.check()
        self.settle(0)

    def fill(self, arm: Callable[[], Pending], send: Callable[[], Pending]) -> None:
        """For `OpenBulk`: arm the engine while at most one fill is in flight, then send the bytes after that fill's."""
        if self._under_way or self.port.torn:
            self.quiet()
        self.check()
        self.settle(1)
        try:
            self.port.wait(arm())
            self._fills.append(send())
        except BaseException:  # of one that was posted before, perhaps: the engine may be armed all the same
            self.tear_memory()
            raise
        self._moved_memory = True

    def tear_memory(self) -> None:
        """For `OpenBulk`: note that the engine of the bridge's memory may wait for bytes that will not come."""
        self._memory_torn = self.port.torn = True

    def check(self) -> None:
        """Raise `TransportError` when the bridge is unusable before a restart. A lost bridge is noticed by its
        requests.
        """
        if self.port.lost:
            return
        if self.port.lost_write:
            why = f"{self.port.lost_write}: that was broken off, and the card may not have got it"
        elif self._memory_torn:
            why = "a transfer of the bridge's memory was broken off, and its engine waits for the rest"
        else:
            return
        raise TransportError(f"{self.port.name}: {why}; close the card, which restarts the bridge, and open it again")

    def settle(self, fills: int) -> None:
        """For `OpenBulk`: wait until at most that many fills are in flight."""
        while len(self._fills) > fills:
            self.port.wait(self._fills[0])
            self._fills.popleft()

    def close(self) -> None:
        """Wait for transfers in flight; restart a bridge whose engine was left waiting. Twice is harmless."""
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
        """Restart the chip's processor: the bridge leaves USB and comes back at the same place. Wait for that, within a
        bound.

        Raises `TransportError` when it does not leave, or does not come back.

        Source: asm2464pd-firmware, registers.h, REG_CPU_EXEC_CTRL (measured there: back after a third of a second, with
        the slot after seconds).
        """
        port, clock = self.port, self.port.clock
        LOG.info("%s: the bridge is restarted: a transfer of its memory was broken off, or may have been", port.name)
        try:
            port.control_out(XDATA_WRITE, CPU_RESTART, 1, timeout_ms=RESTART_MS, doing="restarting the bridge")
        except RingupError as error:  # it may be gone before it has said so
            LOG.debug("%s: %s", port.name, error)
        end_us, gone, back = clock.now_us + BACK_US, False, False
        while clock.now_us < end_us and not back:
            present = port.present
            gone, back = gone or not present, gone and present
            clock.sleep_us(BACK_POLL_US)
        if not back:
            raise TransportError(
                f"{port.name}: restarting the bridge: it {'did not come back' if gone else 'stayed as it was'} for {BACK_US // 1_000_000} s; "
                "switch the enclosure off and on, or pull its cable, and open it again"
            )
        self._restarted = True


class OpenBulk:
    """A `Bulk` of 31 of the 32 slots, in two windows of 15, each followed by a slot that is never filled. UNKNOWN: one
    project that filled windows to their end saw the last slot damaged, another did not. Drains take all slots, as long
    as no pages of the last one are allocated.
    """

    bus_addr, total_bytes, size_bytes = SRAM_BUS_ADDR, SRAM_BYTES, SRAM_BYTES - SLOT_BYTES
    windows = range(15 * SLOT_BYTES), range(16 * SLOT_BYTES, 31 * SLOT_BYTES)
    # in the second half of the page where an NVMe device finds its submission queue: stores to the first half disturb
    # fills that are under way
    progress_bus_addr = 0x82_0800
    # a cache line further. Cards are known to read rings of theirs from this page, which the chip's CPU had filled
    go_bus_addr = 0x82_0840
    # the first entry of the completion queue of the NVMe device that the chip believes in: any write will do
    release_bus_addr = 0x82_200C
    min_fill_bytes = 64 << 10  # a window takes 3.6 MB/s, a fill and the wait for it a tenth of a millisecond

    def __init__(self, firmware: OpenFirmware) -> None:
        self._firmware, self._port = firmware, firmware.port
        self._drain: Pending | None = None
        self._landing = Landing(firmware.port, firmware.xdata_read)

    @property
    def drain_bytes(self) -> int:
        """All slots, as is known from metal (tinygrad, `_copyout`), or those that are not allocated."""
        return self.size_bytes if self._firmware.lent else self.total_bytes

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Arm the engine, then begin to send. The engine may be armed while it moves the previous fill; the bytes
        follow at once.
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
        """Wait until at most that many fills are in flight."""
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
        """Read the dword that the card stores; the chip shows it in its own memory, also during fills."""
        return int.from_bytes(self._firmware.look(PROGRESS, 4), "little")

    def tell(self, value: int) -> None:
        """Store a byte that the card reads, in one request without data."""
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
        except BaseException:  # armed, perhaps, with nobody to take what comes
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
        """Refuse to move bytes from now on, and restart the bridge when it is closed."""
        self._firmware.tear_memory()

    def forget(self) -> None:
        """Treat the armed drain as lost."""
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
