"""A virtual USB host behind a socket for tinygrad, which runs in its own interpreter with its libusb calls sent here.
It counts the cost of tinygrad's work on the cable.

`scripts/virtual_libusb.py` is the other end.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from typing import Any

from usb.core import USBError

from ringup.silicon.asm2464pd import VirtualUsbHost
from ringup.tools.competitor.door import Door

# the key of a loopback socket for one process
KEY = b"ringup"
# TIMEOUT: in virtual time; tinygrad's own bounds are shorter
EVENTS_MS = 60_000
FIELDS = ("idVendor", "idProduct", "iProduct", "iSerialNumber")
ENGLISH, STRING, GET_DESCRIPTOR, STRING_BYTES, STRING_MS = 0x0409, 3, 6, 255, 1_000
COMPLETED = "completed"
# libusb's error code and enum libusb_transfer_status, by the status of a transfer. Source: libusb.h
RESULTS = {
    COMPLETED: (0, 0), "error": (-1, 1), "timed_out": (-7, 2), "cancelled": (-10, 3), "stall": (-9, 4), "no_device": (-4, 5),
    "overflow": (-8, 6),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost: transfers, calls that waited for one or more of them, microseconds of the enclosure's clock.

    `turns`: how often the virtual host had to let time pass until a transfer ended; 0 on real hardware.
    """

    transfers: int
    waits: int
    turns: int
    time_us: float

    def since(self, before: Cost) -> Cost:
        """Return the difference."""
        return Cost(
            self.transfers - before.transfers,
            self.waits - before.waits,
            self.turns - before.turns,
            self.time_us - before.time_us,
        )


class UsbDoor(Door):
    """The server of one libusb: one session, one device. `costs` has the names that tinygrad gave to its pieces of
    work.

    Each call that libusb makes synchronously is a wait; an asynchronous transfer is one when its events are waited for.
    """

    def __init__(self, host: VirtualUsbHost) -> None:
        assert host.clock is not None  # an enclosure is plugged in
        self.costs: dict[str, Cost] = {}
        self._host, self._clock = host, host.clock
        self._transfers = self._waits = 0
        self._handle: Any = None
        self._pending: dict[int, Any] = {}
        self._answers: dict[str, Callable[..., Any]] = {
            "list": self._list, "open": self._open, "product": self._product, "held_by_kernel": self._held_by_kernel,
            "configure": self._configure, "claim": self._claim, "alternate": self._alternate, "control": self._control, "bulk": self._bulk,
            "submit": self._submit, "events": self._events, "sleep": self._sleep, "mark": self._mark,
        }  # fmt: skip
        self._last = self._now()
        self._listener = Listener(("127.0.0.1", 0), authkey=KEY)
        super().__init__("the server of the virtual host", self._listener.address)

    def _stop(self) -> None:
        # Without a client the thread still waits for one.
        if self._thread.is_alive():
            socket.create_connection(self._listener.address).close()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        try:
            if (line := self._accept()) is not None:
                with line:
                    self._converse(line)
        except Exception as error:  # noqa: BLE001 - raised by `close`, in the thread that asks
            self.errors.append(error)

    def _accept(self) -> Connection[Any, Any] | None:
        """Return the line to tinygrad, None if whoever came has left at once, as `_stop` does."""
        try:
            return self._listener.accept()
        except (EOFError, ConnectionError):
            return None

    def _converse(self, line: Connection[Any, Any]) -> None:
        """Answer until tinygrad's process has ended."""
        while True:
            try:
                name, arguments = line.recv()
            except (EOFError, ConnectionError):
                return
            try:
                answer = self._answers[name](*arguments)
            except USBError as error:
                answer = (error.backend_error_code, b"")
            try:
                line.send(answer)
            except ConnectionError:
                return

    def _now(self) -> Cost:
        return Cost(self._transfers, self._waits, self._host.waits, self._clock.now_us)

    # --- calls of libusb: an answer is (code, data) if it may fail ----------------------------------------------------
    def _list(self) -> list[dict[str, Any]]:
        rows = []
        for device in self._host.enumerate_devices():
            descriptor = self._host.get_device_descriptor(device)
            fields = {name: getattr(descriptor, name) for name in FIELDS}
            rows.append({"fields": fields, "bus": descriptor.bus, "address": descriptor.address})
        return rows

    def _open(self, address: int) -> tuple[int, bytes]:
        device = next(one for one in self._host.enumerate_devices() if one.address == address)
        self._handle = self._host.open_device(device)
        return 0, b""

    def _product(self, index: int) -> tuple[int, bytes]:
        return self._control(0x80, GET_DESCRIPTOR, STRING << 8 | index, ENGLISH, STRING_BYTES, STRING_MS)

    def _held_by_kernel(self, interface: int) -> tuple[int, bytes]:
        return int(self._host.is_kernel_driver_active(self._handle, interface)), b""

    def _configure(self, value: int) -> tuple[int, bytes]:
        self._host.set_configuration(self._handle, value)
        return 0, b""

    def _claim(self, interface: int) -> tuple[int, bytes]:
        self._host.claim_interface(self._handle, interface)
        return 0, b""

    def _alternate(self, interface: int, setting: int) -> tuple[int, bytes]:
        self._host.set_interface_altsetting(self._handle, interface, setting)
        return 0, b""

    def _control(
        self, kind: int, request: int, value: int, index: int, payload: bytes | int, timeout_ms: int
    ) -> tuple[int, bytes]:
        length = payload if isinstance(payload, int) else len(payload)
        setup = bytes((kind, request)) + b"".join(one.to_bytes(2, "little") for one in (value, index, length))
        return self._finish(self._begin(0, payload, setup, timeout_ms))

    def _bulk(self, endpoint: int, payload: bytes | int, timeout_ms: int) -> tuple[int, bytes]:
        return self._finish(self._begin(endpoint, payload, b"", timeout_ms))

    def _begin(self, endpoint: int, payload: bytes | int, setup: bytes, timeout_ms: int) -> Any:
        self._transfers += 1
        return self._host.submit(self._handle, endpoint, payload, setup=setup, timeout_ms=timeout_ms)

    def _finish(self, transfer: Any) -> tuple[int, bytes]:
        self._waits += 1
        while not transfer.done:
            self._host.handle_events(EVENTS_MS)
        if transfer.status == COMPLETED:
            return transfer.actual, transfer.data
        return RESULTS[transfer.status][0], b""

    def _submit(
        self, tag: int, endpoint: int, setup: bytes, payload: bytes | int, timeout_ms: int
    ) -> tuple[int, bytes]:
        self._pending[tag] = self._begin(endpoint, payload, setup, timeout_ms)
        return 0, b""

    def _events(self) -> list[tuple[int, int, int, bytes]]:
        """Return (tag, status, bytes moved, data) of the asynchronous transfers that have ended, at least one if any is
        pending.
        """
        if self._pending and not any(transfer.done for transfer in self._pending.values()):
            self._waits += 1
            self._host.handle_events(EVENTS_MS)
        ended = [(tag, transfer) for tag, transfer in self._pending.items() if transfer.done]
        for tag, _ in ended:
            del self._pending[tag]
        return [(tag, RESULTS[one.status][1], one.actual, one.data) for tag, one in ended]

    # --- replacements for tinygrad's environment ----------------------------------------------------------------------
    def _sleep(self, seconds: float) -> tuple[int, bytes]:
        self._clock.sleep_us(seconds * 1e6)
        return 0, b""

    def _mark(self, name: str) -> tuple[int, bytes]:
        """Give the work since the last mark the name `name`; without a name it is kept."""
        now = self._now()
        if name:
            self.costs[name] = now.since(self._last)
        self._last = now
        return 0, b""
