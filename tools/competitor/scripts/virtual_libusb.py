"""A libusb for tinygrad, inside its environment: each call goes to a virtual USB host over a socket.

`usb_door.py` is the other end.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from multiprocessing.connection import Client
from typing import Any

KEY = b"ringup"


class VirtualHost:
    """The virtual USB host at an address: one request and one answer at a time."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._line = Client((host, int(port)), authkey=KEY)

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Ask the host; its server knows the names."""
        self._line.send((name, arguments))
        return self._line.recv()

    def close(self) -> None:
        """End the session."""
        self._line.close()


class Libusb:
    """The calls that tinygrad makes, in libusb's terms; their names are looked up by the name of the method."""

    def __init__(self, ask: Any, names: Any) -> None:
        self._ask, self._names = ask, names
        self._rows: dict[int, dict[str, Any]] = {}
        # memory that pointers refer to
        self._kept: list[Any] = []
        self._flying: dict[int, Any] = {}
        self._device: Any = None

    def _row(self, device: Any) -> dict[str, Any]:
        return self._rows[ctypes.cast(device, ctypes.c_void_p).value or 0]

    def _code(self, name: str, *arguments: Any) -> int:
        code: int = self._ask(name, *arguments)[0]
        return code

    def init(self, context: Any) -> int:
        return 0

    def strerror(self, code: int) -> bytes:
        return f"libusb error {code}".encode()

    def get_device_list(self, context: Any, into: Any) -> int:
        rows = self._ask("list")
        pointer = ctypes.POINTER(self._names.struct_libusb_device)
        array = (pointer * (len(rows) + 1))()
        for at, row in enumerate(rows):
            memory = ctypes.create_string_buffer(64)
            self._kept.append(memory)
            self._rows[ctypes.addressof(memory)] = row
            array[at] = ctypes.cast(memory, pointer)
        self._kept.append(array)
        ctypes.memmove(
            ctypes.byref(into), ctypes.byref(ctypes.c_void_p(ctypes.addressof(array))), ctypes.sizeof(ctypes.c_void_p)
        )
        return len(rows)

    def free_device_list(self, devices: Any, unref: int) -> None:
        return None

    def get_device_descriptor(self, device: Any, into: Any) -> int:
        for name, value in self._row(device)["fields"].items():
            setattr(getattr(into, "_obj", into), name, value)
        return 0

    def ref_device(self, device: Any) -> Any:
        return ctypes.cast(ctypes.cast(device, ctypes.c_void_p), ctypes.POINTER(self._names.struct_libusb_device))

    def get_bus_number(self, device: Any) -> int:
        return int(self._row(device)["bus"])

    def get_device_address(self, device: Any) -> int:
        return int(self._row(device)["address"])

    def open(self, device: Any, handle: Any) -> int:
        self._device = device
        return self._code("open", self._row(device)["address"])

    def get_device(self, handle: Any) -> Any:
        return self._device

    def get_string_descriptor_ascii(self, handle: Any, index: int, buffer: Any, size: int) -> int:
        code, data = self._ask("product", index)
        if code < 0:
            return int(code)
        text = data[2:].decode("utf-16-le").encode("ascii", "replace")[: size - 1]
        ctypes.memmove(buffer, text, len(text))
        return len(text)

    def kernel_driver_active(self, handle: Any, interface: int) -> int:
        return self._code("held_by_kernel", interface)

    def set_configuration(self, handle: Any, value: int) -> int:
        return self._code("configure", value)

    def claim_interface(self, handle: Any, interface: int) -> int:
        return self._code("claim", interface)

    def set_interface_alt_setting(self, handle: Any, interface: int, setting: int) -> int:
        return self._code("alternate", interface, setting)

    def control_transfer(
        self, handle: Any, kind: int, request: int, value: int, index: int, buffer: Any, length: int, timeout_ms: int
    ) -> int:
        payload = length if kind & 0x80 else ctypes.string_at(buffer, length)
        code, data = self._ask("control", kind, request, value, index, payload, timeout_ms)
        ctypes.memmove(buffer, data, len(data))
        return int(code)

    def bulk_transfer(self, handle: Any, endpoint: int, buffer: Any, length: int, moved: Any, timeout_ms: int) -> int:
        payload = length if endpoint & 0x80 else ctypes.string_at(buffer, length)
        code, data = self._ask("bulk", endpoint, payload, timeout_ms)
        moved.value = max(0, code)
        ctypes.memmove(buffer, data, len(data))
        return min(int(code), 0)

    def alloc_transfer(self, packets: int) -> Any:
        memory = self._names.struct_libusb_transfer()
        self._kept.append(memory)
        return ctypes.pointer(memory)

    def submit_transfer(self, pointer: Any) -> int:
        transfer = pointer.contents
        data, setup = ctypes.string_at(transfer.buffer, transfer.length), b""
        payload: bytes | int = transfer.length if transfer.endpoint & 0x80 else data
        if transfer.type == self._names.LIBUSB_TRANSFER_TYPE_CONTROL:
            setup = data[:8]
            payload = transfer.length - 8 if setup[0] & 0x80 else data[8:]
        self._flying[transfer.user_data] = pointer
        return self._code("submit", transfer.user_data, transfer.endpoint, setup, payload, transfer.timeout)

    def handle_events(self, context: Any) -> int:
        for tag, status, moved, data in self._ask("events"):
            pointer = self._flying.pop(tag)
            transfer = pointer.contents
            transfer.status, transfer.actual_length = status, moved
            ahead = 8 if transfer.type == self._names.LIBUSB_TRANSFER_TYPE_CONTROL else 0
            if data:
                ctypes.memmove((ctypes.cast(transfer.buffer, ctypes.c_void_p).value or 0) + ahead, data, len(data))
            transfer.callback(pointer)
        return 0


def replace_libusb(address: str) -> VirtualHost:
    """Put the virtual host at `address` in the place of the library's functions, and of `time.sleep`."""
    host = VirtualHost(address)
    names: Any = importlib.import_module("tinygrad.runtime.autogen.libusb")
    library = Libusb(host, names)
    for name in vars(Libusb):
        if not name.startswith("_"):
            setattr(names, f"libusb_{name}", getattr(library, name))
    time.sleep = lambda seconds: host("sleep", seconds)
    return host
