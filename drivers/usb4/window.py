"""A BAR of a card behind the bridge: the seam's `Mmio`, by single dwords or streams. If the card is gone, reads return
all ones and writes have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.bridge import Bridge
from ringup.errors import DeviceLost, NotSupported

ONES64 = 0xFFFF_FFFF_FFFF_FFFF


class Answer:
    """A read of a batch."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: int | None = None

    @property
    def value(self) -> int:
        """The value that was read; raises a `ValueError` before the batch has ended."""
        if self._value is None:
            raise ValueError("a batch's reads are answered when it ends")
        return self._value

    def put(self, value: int) -> None:
        """Set the value. The batch calls it at its end."""
        self._value = value


class Batch:
    """The seam's `Batch`: accesses are collected and sent together at its end."""

    def __init__(self, window: BridgeWindow) -> None:
        self._window = window
        self.requests: list[tlp.Request] = []
        self.answers: list[Answer | None] = []
        self.ended = False

    def _keep(self, request: tlp.Request, answer: Answer | None) -> None:
        if self.ended:
            raise ValueError(f"a batch of {self._window.name} has ended: nothing can be added")
        self.requests.append(request)
        self.answers.append(answer)

    def read32(self, offset: int) -> Answer:
        """Queue a dword read."""
        answer = Answer()
        self._keep(tlp.memory_read(self._window.place(offset, 4)), answer)
        return answer

    def write32(self, offset: int, value: int) -> None:
        """Queue a dword write."""
        self._keep(tlp.memory_write(self._window.place(offset, 4), value), None)

    def write64(self, offset: int, value: int) -> None:
        """Queue a quadword write."""
        at = self._window.place(offset, 8)
        self._keep(tlp.memory_write(at + 4, value >> 32), None)
        self._keep(tlp.memory_write(at, value & tlp.ONES), None)


class BridgeWindow:
    """`size_bytes` of memory space at `address`. It calls `lost()` when it finds that the card is gone."""

    def __init__(self, name: str, bridge: Bridge, address: int, size_bytes: int, lost: Callable[[], None]) -> None:
        self.name, self.size_bytes = name, size_bytes
        self._bridge, self._address, self._lost = bridge, address, lost

    def place(self, offset: int, size_bytes: int) -> int:
        """Return the bus address of an access. Raises a `ValueError` if the access is not aligned or outside."""
        if offset % size_bytes or not 0 <= offset <= self.size_bytes - size_bytes:
            raise ValueError(f"{self.name} has no {size_bytes} bytes at {offset:#x}")
        return self._address + offset

    def read32(self, offset: int) -> int:
        """Read a dword."""
        return self._read(self.place(offset, 4), 1)

    def read64(self, offset: int) -> int:
        """Read a quadword as two requests, the low half first: the bridge has no request of eight bytes."""
        return self._read(self.place(offset, 8), 2)

    def _read(self, address: int, dwords: int) -> int:
        try:
            answers = self._bridge.request([tlp.memory_read(address + 4 * at) for at in range(dwords)])
        except DeviceLost:
            self._lost()
            return (1 << 32 * dwords) - 1
        return sum(answer.value << 32 * at for at, answer in enumerate(answers))

    def write32(self, offset: int, value: int) -> None:
        """Write a dword; posted."""
        self._post([tlp.memory_write(self.place(offset, 4), value)])

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword as two posted requests, the high half first. So a doorbell rings at the low half."""
        at = self.place(offset, 8)
        self._post([tlp.memory_write(at + 4, value >> 32), tlp.memory_write(at, value & tlp.ONES)])

    def _post(self, requests: list[tlp.Request]) -> None:
        try:
            self._bridge.post(requests)
        except DeviceLost:
            self._lost()

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes. The requests read whole dwords."""
        first, end = self._block(offset, size_bytes)
        if first == end:
            return b""
        try:
            data = self._bridge.read_block(self._address + first, end - first)
        except DeviceLost:
            self._lost()
            return b"\xff" * size_bytes
        return data[offset - first :][:size_bytes]

    def poll(self, offset: int, size_bytes: int) -> bytes:
        """Read whole dwords as fast as the bridge can. Without an answer, the result may be older bytes."""
        address = self.place(offset, 4)
        self.place(offset + size_bytes - 4, 4)
        try:
            return self._bridge.poll(address, size_bytes)
        except DeviceLost:
            self._lost()
            return b"\xff" * size_bytes

    def push(self, offset: int) -> None:
        """Read a dword only so that earlier posted writes arrive. Does not wait if possible."""
        try:
            self._bridge.push(self.place(offset, 4))
        except DeviceLost:
            self._lost()

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes: whole dwords as a stream, partial dwords at the edges with byte enables."""
        size = len(data)
        first, end = self._block(offset, size)
        if first == end:
            return
        head = min(-offset % 4, size)
        tail = (size - head) % 4
        middle = data[head : size - tail]
        try:
            if head:
                self._bridge.post([self._edge(offset, data[:head])])
            if len(middle):
                self._bridge.write_block(self._address + offset + head, middle)
            if tail:
                self._bridge.post([self._edge(offset + size - tail, data[size - tail :])])
        except DeviceLost:
            self._lost()

    def _edge(self, offset: int, data: bytes | memoryview) -> tlp.Request:
        """Write bytes inside one dword."""
        lane = offset & 3
        enables = ((1 << len(data)) - 1) << lane
        return tlp.memory_write(self._address + (offset & ~3), int.from_bytes(data, "little") << 8 * lane, enables)

    def _block(self, offset: int, size_bytes: int) -> tuple[int, int]:
        if not 0 <= offset <= self.size_bytes - size_bytes or size_bytes < 0:
            raise ValueError(f"{self.name} has no {size_bytes:#x} bytes at {offset:#x}")
        return offset & ~3, offset + size_bytes + -(offset + size_bytes) % 4

    def map(self) -> memoryview:
        """Raise `NotSupported`: a BAR cannot be mapped over USB."""
        raise NotSupported(f"{self.name} lies behind a USB bridge: use its read and write methods")

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect accesses and send them when the `with` block ends. Writes of consecutive dwords become a stream;
        consecutive reads take one round trip.
        """
        batch = Batch(self)
        try:
            yield batch
        finally:
            batch.ended = True
        self._run(batch)

    def _run(self, batch: Batch) -> None:
        """Do the accesses of a batch in order."""
        requests, answers, at = batch.requests, batch.answers, 0
        try:
            while at < len(requests):
                end = at
                if requests[at].posted:
                    while end < len(requests) and _follows(requests[at], requests[end], end - at):
                        end += 1
                    values = b"".join(request.value.to_bytes(4, "little") for request in requests[at:end])
                    self._bridge.write_block(requests[at].address, values)
                else:
                    while end < len(requests) and not requests[end].posted:
                        end += 1
                    for answer, completion in zip(answers[at:end], self._bridge.request(requests[at:end]), strict=True):
                        # every read has one
                        assert answer is not None
                        answer.put(completion.value)
                at = end
        except DeviceLost:
            self._lost()
            for answer in answers[at:]:
                if answer is not None:
                    answer.put(tlp.ONES)


def _follows(first: tlp.Request, request: tlp.Request, distance: int) -> bool:
    """Return whether `request` writes the dword `distance` dwords after that of `first`."""
    return request.posted and request.address == first.address + 4 * distance
