"""A virtual card behind tinygrad's protocol for cards on other machines, over loopback.

Source of the protocol: the client in its `runtime/support/system.py`, class RemotePCIDevice.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from ringup.tools.competitor.door import Door

if TYPE_CHECKING:
    from ringup.silicon.pci.slot import SlotCard

REQUEST = struct.Struct("<BIIQQQ")  # number, device, BAR or handle, three operands
ANSWER = struct.Struct("<BQQ")  # error, two results
PROBE, MAP_BAR, READ_CONFIG, WRITE_CONFIG, RESET = 0, 1, 3, 4, 5
READ_BAR, WRITE_BAR, ALLOCATE, READ_HOST, WRITE_HOST = 6, 7, 8, 9, 10
PAGE_BYTES = 4096
SINGLE = (4, 8)  # bytes in one request


class PciDoor(Door):
    """The server of one card. It serves one driver after another in its own thread. The card's clock follows the wall
    clock.
    """

    def __init__(self, card: SlotCard) -> None:
        self.card = card
        self._host: list[Any] = []
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers: dict[int, Callable[[IO[bytes], int, int, int, int], bytes]] = {
            PROBE: self._probe, MAP_BAR: self._map_bar, READ_CONFIG: self._read_config, WRITE_CONFIG: self._write_config,
            READ_BAR: self._read_bar, WRITE_BAR: self._write_bar, ALLOCATE: self._allocate, READ_HOST: self._read_host,
            WRITE_HOST: self._write_host, RESET: self._reset,
        }  # fmt: skip
        super().__init__("the card's server", self._listener.getsockname())

    def _stop(self) -> None:
        self._closing = True
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            line, _ = self._listener.accept()
            with line, line.makefile("rb") as incoming:
                if self._closing:
                    return
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    self._converse(line, incoming)
                except ConnectionError:
                    # the driver's process has ended
                    pass
                except Exception as error:  # noqa: BLE001 - raised by `close`, in the thread that asks
                    self.errors.append(error)
            for memory in self._host:
                memory.free()
            self._host.clear()

    def _converse(self, line: socket.socket, incoming: IO[bytes]) -> None:
        last = time.monotonic_ns()
        while len(head := incoming.read(REQUEST.size)) == REQUEST.size:
            number, _, which, *operands = REQUEST.unpack(head)
            now = time.monotonic_ns()
            self.card.clock.advance_ns(now - last)
            last = now
            answer = self._answers.get(number, _refuse)(incoming, which, *operands)
            if answer:
                line.sendall(answer)

    def _probe(self, incoming: IO[bytes], which: int, base_class: int, size_bytes: int, vendor: int) -> bytes:
        incoming.read(size_bytes)
        return ANSWER.pack(0, 1, 0) + b"0"

    def _map_bar(self, incoming: IO[bytes], which: int, *_: int) -> bytes:
        return ANSWER.pack(0, self.card.gpu.bar_address(which), self.card.bars[which].size_bytes)

    def _read_config(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, _: int) -> bytes:
        return ANSWER.pack(0, self.card.config.read(offset, size_bytes), 0)

    def _write_config(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, value: int) -> bytes:
        self.card.config.write(offset, value, size_bytes)
        return ANSWER.pack(0, 0, 0)

    def _reset(self, incoming: IO[bytes], which: int, *_: int) -> bytes:
        """Reset the card by the mildest reset that it has, as a kernel does when its `reset` file is written."""
        self.card.reset(self.card.resets()[0])
        return ANSWER.pack(0, 0, 0)

    def _read_bar(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, _: int) -> bytes:
        bar = self.card.bars[which]
        if size_bytes in SINGLE:
            return ANSWER.pack(0, 0, 0) + bar.read(offset, size_bytes).to_bytes(size_bytes, "little")
        return ANSWER.pack(0, 0, 0) + bar.read_block(offset, size_bytes)

    def _write_bar(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, _: int) -> bytes:
        bar, data = self.card.bars[which], incoming.read(size_bytes)
        if size_bytes in SINGLE:
            bar.write(offset, int.from_bytes(data, "little"), size_bytes)
        else:
            bar.write_block(offset, data)
        return b""

    def _allocate(self, incoming: IO[bytes], which: int, size_bytes: int, *_: int) -> bytes:
        memory = self.card.alloc_host(size_bytes)
        self._host.append(memory)
        pages = [memory.bus_addr(at) for at in range(0, size_bytes, PAGE_BYTES)]
        return ANSWER.pack(0, 8 * len(pages), len(self._host) - 1) + struct.pack(f"<{len(pages)}Q", *pages)

    def _read_host(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, _: int) -> bytes:
        return ANSWER.pack(0, 0, 0) + bytes(self._host[which].view[offset : offset + size_bytes])

    def _write_host(self, incoming: IO[bytes], which: int, offset: int, size_bytes: int, _: int) -> bytes:
        self._host[which].view[offset : offset + size_bytes] = incoming.read(size_bytes)
        return b""


def _refuse(incoming: IO[bytes], which: int, *operands: int) -> bytes:
    """Answer a request that a virtual slot cannot do, such as resizing a BAR, with an error without text."""
    return ANSWER.pack(1, 0, 0)
