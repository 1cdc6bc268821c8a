"""The vendor's firmware, unchanged or with one byte patched: SCSI commands that read and write the chip's memory; all
else is built on them.

PCI Express requests are assembled in registers of the chip, a byte per command, and a command starts them. Bytes that
are there already are not sent again; registers whose write has an effect are always written. Source: tinygrad,
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
KIND, COUNT, ENABLES, LOW, HIGH, DATA = 0xB210, 0xB213, 0xB217, 0xB218, 0xB21C, 0xB220  # one request; big-endian
FIELDS = range(KIND, DATA + 4)  # what these hold only counts when a request is fired
HEADER = 0xB22A  # completion: status in bits 15:13, byte count in 11:0
FIRE, CARRIED, STATE = 0xB254, 0xB284, 0xB296
FIRE_ALL = 0x0F
GARBLED, DONE, SEND = 0x01, 0x02, 0x04  # of `STATE`; the first two go when written as one
ANSWER = struct.Struct(">I6xH")  # `DATA` to the end of `HEADER`
CONFIG = 0x04  # format and type: a configuration request, whichever way
TRIES, PAUSE_US = 10, 1_000  # TIMEOUT: of a request that the link garbled
# TIMEOUT: twice the longest completion timeout that a PCI Express 4.0 port has by default
ANSWER_US, POLL_US = 100_000, 500
# TIMEOUT: the firmware trains the link by itself, about 2 s after it was switched on
TRAIN_US, TRAIN_POLL_US = 3_000_000, 20_000
GROUP = 32  # requests sent ahead of the first answer: what may have to be done again


class StockFirmware:
    """A `Bridge`. The slot has power whenever the enclosure has, and the firmware trains its link."""

    def __init__(self, port: Port, *, patched: bool = False) -> None:
        """`patched`: by its identity it finishes writes without a drive. Raises `NotSupported` for a chip of another
        family.
        """
        self.port = port
        self.lent: set[int] = set()
        self._scsi = scsi.connect(port)
        self._known: dict[int, int] = {}  # bytes of `FIELDS` as we left them
        self.version = self._version()
        # the fast path's addresses are those of one version; another one that says it is patched is treated as if it
        # were not
        fast = patched and self.version.startswith(PATCHED_VERSION)
        self.kind = "patched" if fast else "stock"
        self.bulk: Bulk | None = PatchedBulk(self, self._scsi) if fast else None
        self.page = StockBulk(self)  # the same with and without the patch; it has no slots, so it is nobody's `bulk`

    @property
    def transport(self) -> str:
        """How commands go."""
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
        """Write it, a byte per command, without waiting."""
        _check(address, len(data))
        self._forget(range(address, address + len(data)))
        self._post([xdata_write(address + at, value, page) for at, value in enumerate(data)])

    def link(self) -> Link:
        """Read the state of the link to the card. This firmware shows width and generation in no documented place."""
        return Link(self.xdata_read(LTSSM, 1)[0])

    def power(self, on: bool) -> None:
        """Wait for the link, for `on`. Raises `NotSupported` for off: no way is documented."""
        if not on:
            raise NotSupported(
                f"{self.port.name}: the vendor's firmware does not let the slot be switched off; use the enclosure's switch or plug"
            )
        poll(self.link, lambda link: link.up, clock=self.port.clock, timeout_us=TRAIN_US, poll_us=TRAIN_POLL_US)

    # --- requests ---------------------------------------------------------------------------------------------------
    def request(self, requests: Sequence[Request], *, replay: bool = False, absent: bool = False) -> list[Completion]:
        """Do requests in order, several ahead of the first answer; see `Bridge`.

        A request that the link garbles is repeated, and so are all those sent after it: reads, and with `replay` any.
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
        """Write whole dwords, a request each."""
        values = struct.unpack(f"<{len(data) // 4}I", data)
        self.post([tlp.memory_write(address + 4 * at, value) for at, value in enumerate(values)])

    def read_block(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords, a request each; all ones where nothing answers."""
        answers = self.request([tlp.memory_read(address + at) for at in range(0, size_bytes, 4)])
        return struct.pack(f"<{len(answers)}I", *(answer.value for answer in answers))

    def poll(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords; this firmware has no cheaper way."""
        return self.read_block(address, size_bytes)

    def push(self, address: int) -> None:
        """Read a dword only to push posted writes."""
        self.request([tlp.memory_read(address)])

    def _prepare(self, request: Request) -> Iterator[Command]:
        """Return the commands that assemble and start a request. ORDER: all fields, then the two registers that start
        it.
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
        if not request.posted:  # what an earlier request left would be taken for this one's answer
            yield xdata_write(STATE, GARBLED)
            yield xdata_write(STATE, DONE)
        yield xdata_write(FIRE, FIRE_ALL)
        yield xdata_write(STATE, SEND)

    def _fire(self, group: Sequence[Request]) -> list[Completion]:
        """Send requests, each followed by a read of its answer. Return the completions up to the first that is garbled
        or missing.
        """
        commands: list[Command] = []
        looks: list[int] = []  # where each request's own answers begin among the commands'
        for request in group:
            commands += self._prepare(request)
            looks.append(len(commands))
            if not request.posted:
                commands += _look()
                self._forget(range(DATA, DATA + 4))  # the card's answer comes there
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
        """Decode an answer; None for one that is garbled, missing, or another request's."""
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
        """Wait for the answer of the last request that was sent; None for a garbled one."""
        look = poll(
            lambda: self._execute(_look()),
            lambda look: bool(look[0][0] & (GARBLED | DONE)),
            clock=self.port.clock,
            timeout_us=ANSWER_US,
            poll_us=POLL_US,
        )
        return self._completion(request, look)

    def _rest(self, state: int) -> None:
        """Let the last request of a group end before one is repeated, so that its answer is not taken for another's."""
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
            self._known.clear()  # who knows how far it came
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
        """Return False: this firmware leaves no engine waiting."""
        return False

    def close(self) -> None:
        """Wait for commands in flight. Twice is harmless."""
        self.settle()
        self.port.settle()


def _look() -> list[Command]:
    """Look at the engine's state, then at the answer. Reading that early is harmless: a state of not done makes the
    rest worthless.
    """
    return [scsi.xdata_read(STATE, 1), scsi.xdata_read(DATA, ANSWER.size), scsi.xdata_read(CARRIED, 1)]


def _dword(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _check(address: int, count: int) -> None:
    if not 0 <= address <= XDATA_BYTES - count or count <= 0:
        raise ValueError(f"the chip's memory ends at {XDATA_BYTES:#x}; {count} bytes at {address:#x} are not in it")
