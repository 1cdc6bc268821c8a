"""The vendor's firmware, unchanged or with one byte patched: SCSI commands that read and write the chip's memory.
Everything else is built on them.

PCI Express requests are assembled in registers of the chip, one byte a command, and a command starts them. Bytes that
the registers hold already are not sent again. Registers whose write has an effect are always written. Source: tinygrad,
tinygrad/runtime/support/usb.py before it dropped this firmware (order of writes, fast path); cyrozap/usb-to-pcie-re,
asm2x6x_tool.py (completion); docs/asm2464pd.md, "Stock firmware".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from ringup.drivers.transport.seam import Bulk
from ringup.drivers.transport.wait import poll
from ringup.drivers.usb4 import scsi, tlp
from ringup.drivers.usb4.bridge import LTSSM, Link, garbled
from ringup.drivers.usb4.port import Port
from ringup.drivers.usb4.scsi import Command, Refused, xdata_write
from ringup.drivers.usb4.sram import PatchedBulk, StockBulk
from ringup.drivers.usb4.tlp import Completion, Request
from ringup.errors import DeviceLost, NotSupported
from ringup.firmware.asm2464pd import PATCHED_VERSION, VERSION_BYTES, version_text

VERSION = 0x07F0
XDATA_BYTES = 0x1_0000
# one request; big-endian
KIND, COUNT, ENABLES, LOW, HIGH, DATA = 0xB210, 0xB213, 0xB217, 0xB218, 0xB21C, 0xB220
# registers whose contents have an effect only when a request is started
FIELDS = range(KIND, DATA + 4)
# completion: status in bits 15:13, byte count in 11:0
HEADER = 0xB22A
FIRE, CARRIED, STATE = 0xB254, 0xB284, 0xB296
FIRE_ALL = 0x0F
# bits of `STATE`; writing one to the first two clears them
GARBLED, DONE, SEND = 0x01, 0x02, 0x04
# `DATA` to the end of `HEADER`
ANSWER = struct.Struct(">I6xH")
# of format and type: set in configuration requests, reads and writes
CONFIG = 0x04
# TIMEOUT: how often a request that the link garbled is repeated, and the pause before
TRIES, PAUSE_US = 10, 1_000
# TIMEOUT: twice the longest completion timeout that a PCI Express 4.0 port has by default
ANSWER_US, POLL_US = 100_000, 500
# TIMEOUT: the firmware trains the link by itself, about 2 s after it was switched on
TRAIN_US, TRAIN_POLL_US = 3_000_000, 20_000
# requests that are sent before the first answer is read; they may have to be repeated
GROUP = 32


class StockFirmware:
    """A `Bridge`. The slot has power whenever the enclosure has. The firmware trains the link by itself."""

    def __init__(self, port: Port, *, patched: bool = False) -> None:
        """`patched`: by its identity, the firmware finishes writes without a drive. Raises `NotSupported` for a chip of
        another family.
        """
        self.port = port
        self.lent: set[int] = set()
        self._scsi = scsi.connect(port)
        # the present contents of `FIELDS`, as far as they are known
        self._known: dict[int, int] = {}
        self.version = self._version()
        # the addresses of the fast path are those of one version. Other versions are treated as unpatched
        fast = patched and self.version.startswith(PATCHED_VERSION)
        self.kind = "patched" if fast else "stock"
        self.bulk: Bulk | None = PatchedBulk(self, self._scsi) if fast else None
        # works with and without the patch. It is not used as `bulk`, because it has no slots
        self.page = StockBulk(self)

    @property
    def transport(self) -> str:
        """The name of the transport for commands."""
        return self._scsi.name

    def _version(self) -> str:
        try:
            raw = self.xdata_read(VERSION, VERSION_BYTES)
        except Refused as error:
            raise NotSupported(
                f"{self.port.name}: the bridge refuses to read its own memory the way an ASM246x does ({error.sense}): "
                "an older chip, or another maker's; ringup drives the ASM2464PD"
            ) from error
        return version_text(raw) or raw.hex()

    # --- the chip ---------------------------------------------------------------------------------------------------
    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes:
        """Read the chip's own address space, 255 bytes per command."""
        _check(address, count)
        step = scsi.MAX_XDATA_BYTES
        commands = [scsi.xdata_read(address + at, min(step, count - at), page) for at in range(0, count, step)]
        return b"".join(self._execute(commands))

    def xdata_write(self, address: int, data: bytes, page: int = 0) -> None:
        """Write the chip's own address space, one byte a command, without waiting."""
        _check(address, len(data))
        self._forget(range(address, address + len(data)))
        self._post([xdata_write(address + at, value, page) for at, value in enumerate(data)])

    def link(self) -> Link:
        """Read the state of the link to the card. No document says where this firmware shows width and generation."""
        return Link(self.xdata_read(LTSSM, 1)[0])

    def power(self, on: bool) -> None:
        """With `on`, wait for the link. Raises `NotSupported` for off: no document says how."""
        if not on:
            raise NotSupported(
                f"{self.port.name}: the vendor's firmware does not let the slot be switched off;"
                " use the enclosure's switch or plug"
            )
        poll(self.link, lambda link: link.up, clock=self.port.clock, timeout_us=TRAIN_US, poll_us=TRAIN_POLL_US)

    # --- requests ---------------------------------------------------------------------------------------------------
    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order. Several are sent before the first answer is read; see `Bridge`.

        A request that the link garbles is repeated, and so are all requests that were sent after it. Those are reads,
        or, with `replay`, any requests.
        """
        done: list[Completion] = []
        tries = TRIES
        while len(done) < len(requests):
            group = requests[len(done) : len(done) + GROUP]
            if not replay:
                group = group[: tlp.answered_at_once(group)]
            answers = self._fire(group)
            done += answers
            if len(answers) == len(group):
                tries = TRIES
                continue
            tries = TRIES if answers else tries
            if not tries:
                error = garbled(self, requests[len(done)], TRIES + 1)
                if not absent or isinstance(error, DeviceLost):
                    raise error
                done.append(Completion(tlp.UNSUPPORTED))
                tries = TRIES
                continue
            tries -= 1
            self.port.clock.sleep_us(PAUSE_US)
        return done

    def post(self, requests: Sequence[Request]) -> None:
        """Send memory writes without waiting."""
        self._post([command for request in requests for command in self._prepare(request)])

    def write_block(self, address: int, data: bytes | memoryview) -> None:
        """Write whole dwords, one request each."""
        values = struct.unpack(f"<{len(data) // 4}I", data)
        self.post([tlp.memory_write(address + 4 * at, value) for at, value in enumerate(values)])

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords, one request each. Without an answer, a dword is all ones."""
        answers = self.request([tlp.memory_read(address + at) for at in range(0, size_bytes, 4)])
        return struct.pack(f"<{len(answers)}I", *(answer.value for answer in answers))

    def poll(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords, as `read_block` does: this firmware has no faster way."""
        return self.read_block(address, size_bytes)

    def push(self, address: int) -> None:
        """Read a dword only so that earlier posted writes arrive."""
        self.request([tlp.memory_read(address)])

    def _prepare(self, request: Request) -> Iterator[Command]:
        """Yield the commands that assemble and start a request. ORDER: first all fields, then the two registers that
        start it.
        """
        fields = [
            (COUNT, b"\x01"),
            (LOW, _dword(request.address & tlp.ONES)),
            (HIGH, _dword(request.address >> 32)),
            (ENABLES, bytes([request.enables])),
            (KIND, bytes([request.kind])),
        ]
        if request.writes:
            fields.insert(0, (DATA, _dword(request.value)))
        for address, data in fields:
            for at, value in enumerate(data, address):
                if self._known.get(at) != value:
                    self._known[at] = value
                    yield xdata_write(at, value)
        # otherwise the state of an earlier request would be taken for this one's answer
        if not request.posted:
            yield xdata_write(STATE, GARBLED)
            yield xdata_write(STATE, DONE)
        yield xdata_write(FIRE, FIRE_ALL)
        yield xdata_write(STATE, SEND)

    def _fire(self, group: Sequence[Request]) -> list[Completion]:
        """Send requests, each followed by a read of its answer. Return the completions up to the first that is garbled
        or missing.
        """
        commands: list[Command] = []
        # the index of the command that reads a request's state
        looks: list[int] = []
        for request in group:
            commands += self._prepare(request)
            looks.append(len(commands))
            if not request.posted:
                commands += _look()
                # the card's answer overwrites these
                self._forget(range(DATA, DATA + 4))
        results = self._execute(commands)
        last = max((at for at, request in zip(looks, group, strict=True) if not request.posted), default=-1)
        done: list[Completion] = []
        for at, request in zip(looks, group, strict=True):
            completion = Completion(tlp.SUCCESS) if request.posted else self._completion(request, results[at : at + 3])
            if completion is None and at == last and not results[at][0] & (GARBLED | DONE):
                completion = self._late(request)
            elif completion is None:
                self._rest(results[last][0])
            if completion is None:
                break
            done.append(completion)
        return done

    def _completion(self, request: Request, look: Sequence[bytes]) -> Completion | None:
        """Decode an answer. Return None if it is garbled, missing, or belongs to another request."""
        state, answer, carried = look
        if state[0] & GARBLED or not state[0] & DONE:
            return None
        value, header = ANSWER.unpack(answer)
        status, count = header >> 13, header & 0xFFF
        if status != tlp.SUCCESS:
            return Completion(status)
        config = bool(request.kind & CONFIG)
        if count != (4 if config else request.enables.bit_count()):
            return None
        if config and bool(carried[0] & 1) == request.writes:
            return None
        return Completion(tlp.SUCCESS, value)

    def _late(self, request: Request) -> Completion | None:
        """Wait for the answer to the last request that was sent. Return None for a garbled one."""
        look = poll(
            lambda: self._execute(_look()),
            lambda look: bool(look[0][0] & (GARBLED | DONE)),
            clock=self.port.clock,
            timeout_us=ANSWER_US,
            poll_us=POLL_US,
        )
        return self._completion(request, look)

    def _rest(self, state: int) -> None:
        """Wait for the end of a group's last request before a request is repeated. Otherwise its answer would be taken
        for that of the repeated request.
        """
        clock = self.port.clock
        end_us = clock.now_us + ANSWER_US
        while not state & (GARBLED | DONE) and clock.now_us < end_us:
            clock.sleep_us(POLL_US)
            state = self.xdata_read(STATE, 1)[0]

    # --- commands ---------------------------------------------------------------------------------------------------
    def _execute(self, commands: Sequence[Command]) -> list[bytes]:
        try:
            return self._scsi.execute(commands)
        except BaseException:
            # some of the commands may have been done
            self._known.clear()
            raise

    def _post(self, commands: Sequence[Command]) -> None:
        try:
            self._scsi.post(commands)
        except BaseException:
            self._known.clear()
            raise

    def _forget(self, addresses: Iterable[int]) -> None:
        for address in addresses:
            self._known.pop(address, None)

    def settle(self) -> None:
        """Wait for all posted commands."""
        try:
            self._scsi.settle()
        except BaseException:
            self._known.clear()
            raise

    @property
    def unsettled(self) -> bool:
        """Return False: no engine of this firmware waits for bytes."""
        return False

    def close(self) -> None:
        """Wait for commands in flight. May be called twice."""
        self.settle()
        self.port.settle()


def _look() -> list[Command]:
    """Return the commands that read the engine's state, then the answer. An early read does no harm: if the state is
    not done, the answer is ignored.
    """
    return [scsi.xdata_read(STATE, 1), scsi.xdata_read(DATA, ANSWER.size), scsi.xdata_read(CARRIED, 1)]


def _dword(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _check(address: int, count: int) -> None:
    if not 0 <= address <= XDATA_BYTES - count or count <= 0:
        raise ValueError(f"the chip's memory ends at {XDATA_BYTES:#x}; {count} bytes at {address:#x} are not in it")
