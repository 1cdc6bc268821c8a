"""Runs in an interpreter of its own. The driver is unmodified, except for where it finds firmware.

One job comes on standard input, one answer goes to standard output. Both are JSON.
"""

import importlib
import json
import sys

import numpy
from firmware_folders import replace_firmware

KERNELS = {
    "elementwise": lambda a, b: a * 2 + b,
    "matmul": lambda a, b: a @ b,
    "sum": lambda a, b: (a * b).sum(axis=1),
    "softmax": lambda a, b: a.softmax(axis=1),
    "integers": lambda a, b: ((a * 1000).int() // 7 ^ (b * 1000).int() % 5).float(),
}


def moves(tinygrad, sizes):
    """Copy bytes in and out, once for each size. Return the sizes that came back otherwise."""
    wrong = []
    for size in sizes:
        data = bytes((7 * at + size) & 0xFF for at in range(251)) * (size // 251 + 1)
        there = tinygrad.Tensor(data[:size], device="NV").realize()
        if bytes(there.data()) != data[:size]:
            wrong.append(size)
    return wrong


def keeps_several(tinygrad):
    """Make and drop buffers in turn. Return whether those that stayed kept their values."""
    kept = [tinygrad.Tensor(bytes([turn]) * 5000, device="NV").realize() for turn in range(12)]
    del kept[::2]
    kept += [tinygrad.Tensor(bytes([turn]) * 9000, device="NV").realize() for turn in range(12)]
    wanted = [*range(1, 12, 2), *range(12)]
    return [set(bytes(one.data())) for one in kept] == [{turn} for turn in wanted]


def fault(tinygrad, device):
    """Take a buffer's pages away under a kernel that reads it. Return the buffer's address and the driver's error."""
    data = tinygrad.Tensor(bytes(1 << 16), device="NV").realize()
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
    replace_firmware([job["firmware"]], "nv")
    tinygrad = importlib.import_module("tinygrad")
    device = tinygrad.Device["NV"]
    shape = device.num_gpcs, device.num_tpc_per_gpc, device.num_sm_per_tpc, device.max_warps_per_sm
    answer = {"arch": device.arch, "shape": shape, "outputs": {}}
    answer["wrong copies"] = moves(tinygrad, job["sizes"])
    answer["keeps several"] = keeps_several(tinygrad)
    for name, (rows, columns, *files) in job["work"].items():
        a, b = (
            tinygrad.Tensor(numpy.fromfile(file, numpy.float32).reshape(rows, columns), device="NV") for file in files
        )
        output = KERNELS[name](a.realize(), b.realize()).contiguous()
        answer["outputs"][name] = bytes(output.data()).hex()
    if job["fault"]:
        answer["fault"] = fault(tinygrad, device)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
