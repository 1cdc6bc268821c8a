"""Runs in an interpreter of its own: the other driver, unmodified, with a libusb whose calls go to a virtual host over
a socket.

One job on standard input, one answer on standard output, both JSON. What it sleeps passes on the virtual host's clock.
"""

import ctypes
import importlib
import json
import os
import sys
import time
from multiprocessing.connection import Client
from pathlib import Path

STATUS = {"completed": 0, "error": 1, "timed_out": 2, "cancelled": 3, "stall": 4, "no_device": 5, "overflow": 6}
OK = 0


class Host:
    """The virtual host, one request and one answer at a time."""

    def __init__(self):
        host, port = os.environ["VIRTUAL_USB"].split(":")
        self._line = Client((host, int(port)), authkey=b"usb")

    def __call__(self, name, *arguments):
        self._line.send((name, arguments))
        return self._line.recv()


class Libusb:
    """The calls that the other driver makes, in libusb's terms."""

    def __init__(self, host, names):
        self._host, self._names = host, names
        self._devices, self._keep, self._flying = {}, [], {}

    def libusb_init(self, context):
        return OK

    def libusb_strerror(self, code):
        return f"libusb error {code}".encode()

    def libusb_get_device_list(self, context, list_pointer):
        found = self._host("list")
        pointer = ctypes.POINTER(self._names.struct_libusb_device)
        array = (pointer * (len(found) + 1))()
        for number, descriptor in enumerate(found):
            memory = ctypes.create_string_buffer(64)
            self._keep.append(memory)
            array[number] = ctypes.cast(memory, pointer)
            self._devices[ctypes.addressof(memory)] = descriptor
        self._keep.append(array)
        ctypes.memmove(ctypes.byref(list_pointer), ctypes.byref(ctypes.c_void_p(ctypes.addressof(array))), 8)
        return len(found)

    def _descriptor(self, device):
        return self._devices[ctypes.cast(device, ctypes.c_void_p).value]

    def libusb_get_device_descriptor(self, device, into):
        into = into._obj if hasattr(into, "_obj") else into
        for name, value in self._descriptor(device)["fields"].items():
            setattr(into, name, value)
        return OK

    def libusb_ref_device(self, device):
        return ctypes.cast(ctypes.cast(device, ctypes.c_void_p), ctypes.POINTER(self._names.struct_libusb_device))

    def libusb_get_bus_number(self, device):
        return self._descriptor(device)["bus"]

    def libusb_get_device_address(self, device):
        return self._descriptor(device)["address"]

    def libusb_free_device_list(self, devices, unref):
        return None

    def libusb_open(self, device, handle):
        self._opened = device
        return self._host("open", self._descriptor(device)["address"])

    def libusb_get_device(self, handle):
        return self._opened

    def libusb_get_string_descriptor_ascii(self, handle, index, buffer, size):
        code, data = self._host("control", 0x80, 6, 0x300 | index, 0x409, 255, 1000)
        if code < 0:
            return code
        text = data[2:].decode("utf-16-le").encode("ascii")[: size - 1]
        ctypes.memmove(buffer, text, len(text))
        return len(text)

    def libusb_kernel_driver_active(self, handle, interface):
        return self._host("kernel_driver_active", interface)

    def libusb_set_configuration(self, handle, value):
        return self._host("set_configuration", value)

    def libusb_claim_interface(self, handle, interface):
        return self._host("claim_interface", interface)

    def libusb_set_interface_alt_setting(self, handle, interface, alternate):
        return self._host("set_interface", interface, alternate)

    def libusb_control_transfer(self, handle, kind, request, value, index, buffer, length, timeout):
        payload = length if kind & 0x80 else ctypes.string_at(buffer, length)
        code, data = self._host("control", kind, request, value, index, payload, timeout)
        if code >= 0 and kind & 0x80:
            ctypes.memmove(buffer, data, len(data))
        return code

    def libusb_bulk_transfer(self, handle, endpoint, buffer, length, moved, timeout):
        payload = length if endpoint & 0x80 else ctypes.string_at(buffer, length)
        code, data = self._host("bulk", endpoint, payload, timeout)
        moved.value = max(0, code)
        if code > 0 and endpoint & 0x80:
            ctypes.memmove(buffer, data, len(data))
        return min(code, OK)

    def libusb_alloc_transfer(self, packets):
        memory = self._names.struct_libusb_transfer()
        self._keep.append(memory)
        return ctypes.pointer(memory)

    def libusb_submit_transfer(self, pointer):
        transfer = pointer.contents
        data = ctypes.string_at(transfer.buffer, transfer.length)
        tag = transfer.user_data
        if transfer.type == self._names.LIBUSB_TRANSFER_TYPE_CONTROL:
            setup, payload = data[:8], data[8:]
            if setup[0] & 0x80:
                payload = transfer.length - 8
        else:
            setup, payload = b"", transfer.length if transfer.endpoint & 0x80 else data
        self._flying[tag] = pointer
        return self._host("submit", tag, transfer.endpoint, setup, payload, transfer.timeout)

    def libusb_handle_events(self, context):
        for tag, status, actual, data in self._host("events"):
            pointer = self._flying.pop(tag)
            transfer = pointer.contents
            transfer.status, transfer.actual_length = STATUS[status], actual
            if data:
                place = ctypes.cast(transfer.buffer, ctypes.c_void_p).value
                offset = 8 if transfer.type == self._names.LIBUSB_TRANSFER_TYPE_CONTROL else 0
                ctypes.memmove(place + offset, data, len(data))
            transfer.callback(pointer)
        return OK


def main():
    job = json.load(sys.stdin)
    host = Host()
    names = importlib.import_module("tinygrad.runtime.autogen.libusb")
    library = Libusb(host, names)
    for name in dir(library):
        if name.startswith("libusb_"):
            setattr(names, name, getattr(library, name))
    for name in ("amdev", "ip"):  # they hold the function by its name
        module = importlib.import_module(f"tinygrad.runtime.support.am.{name}")
        if hasattr(module, "fetch_fw"):
            module.fetch_fw = lambda path, name, sha256: Path(job["firmware"], name).read_bytes()
    time.sleep = lambda seconds: host("sleep", seconds)
    tinygrad = importlib.import_module("tinygrad")
    tensor, device = tinygrad.Tensor, tinygrad.Device["AMD"]
    host("mark", "cold boot")
    left, right = (
        tensor(values, device="AMD").realize() for values in ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0])
    )
    host("mark", "two small copies in")
    sums = [(left + right).realize()]
    device.synchronize()
    host("mark", "first kernel")
    sums.append((left + right).contiguous().realize())
    device.synchronize()
    sums.append((left + right).contiguous().realize())
    device.synchronize()
    host("mark", "warm kernels")
    answers = [one.tolist() for one in sums]
    host("mark", "results out")
    data = Path(job["data"]).read_bytes()
    buffer = tensor(data[::-1], device="AMD").realize().uop.base.buffer
    device.synchronize()
    host("mark", "a large buffer, filled")
    memory = buffer.ensure_allocated()._buf
    device.allocator._copyin(memory, memoryview(bytearray(data)))
    device.synchronize()
    host("mark", "large copy in")
    back = bytearray(len(data))
    device.allocator._copyout(memoryview(back), memory)
    host("mark", "large copy out")
    sys.stdout.write(json.dumps({"sums": answers, "same": bytes(back) == data, "arch": device.arch}))


if __name__ == "__main__":
    main()
