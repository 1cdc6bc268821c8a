"""Runs in tinygrad's interpreter. The driver is unmodified, except for where it finds firmware.

One job comes on standard input, one answer goes to standard output. Both are JSON.
"""

import importlib
import json
import sys
from pathlib import Path

from firmware_folders import replace_firmware

KERNELS = {
    "elementwise": lambda a, b: a * 2 + b,
    "matmul": lambda a, b: a @ b,
    "half matmul": lambda a, b: a.half().matmul(b.half(), dtype="float"),
    "sum": lambda a, b: (a * b).sum(axis=1),
    "copy": lambda a, b: a,
}


def fault(tinygrad, device):
    """Take a buffer's pages away under a kernel that reads it. Return the buffer's address and the driver's error."""
    data = tinygrad.Tensor(bytes(1 << 16), device="AMD").contiguous().realize()
    memory = data.uop.buffer.ensure_allocated()._buf
    tables = device.iface.dev_impl.mm
    tables.unmap_range(int(memory.va_addr), memory.size)
    # The driver's own flush.
    tables.on_range_mapped()
    try:
        (data + 1).contiguous().realize()
        device.synchronize()
    except RuntimeError as error:
        return int(memory.va_addr), str(error)
    return int(memory.va_addr), ""


def main():
    job = json.load(sys.stdin)
    replace_firmware([job["firmware"]])
    tinygrad = importlib.import_module("tinygrad")
    device = tinygrad.Device["AMD"]
    card = device.iface.dev_impl
    answer = {"partial": card.partial_boot, "large_bar": card.large_bar, "arch": device.arch, "outputs": {}}
    if job["fault"]:
        answer["fault"] = fault(tinygrad, device)
    for name, (kernel, rows, columns, *files) in job["work"].items():
        a, b = (
            tinygrad.Tensor(Path(file).read_bytes(), device="AMD").bitcast(tinygrad.dtypes.float32).reshape(rows, columns)
            for file in files
        )  # fmt: skip
        output = KERNELS[kernel](a.realize(), b.realize()).contiguous()
        answer["outputs"][name] = bytes(output.data()).hex()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
