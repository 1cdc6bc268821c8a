"""Runs in tinygrad's interpreter. The driver is unmodified; the calls of its libusb go to a virtual host over a socket.

One job comes on standard input, one answer goes to standard output. Both are JSON. The driver names each piece of its
work.
"""

import importlib
import json
import sys
from pathlib import Path

from firmware_folders import replace_firmware
from virtual_libusb import replace_libusb


def main():
    job = json.load(sys.stdin)
    host = replace_libusb(job["address"])
    replace_firmware([job["firmware"]])
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
