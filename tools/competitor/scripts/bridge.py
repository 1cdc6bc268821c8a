"""Runs inside tinygrad's environment: its driver brings up a card behind a USB bridge, computes, copies. Job on stdin,
answer on stdout, JSON.

Its libusb calls and its sleeps go to a virtual USB host. Nothing above libusb is changed. It names each piece of work
there.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from typing import Any

from firmware_folders import replace_firmware
from virtual_libusb import replace_libusb

LEFT, RIGHT, SUMS = [1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0], [11.0, 22.0, 33.0, 44.0]


def compute(tinygrad: Any, device: Any, ask: Any, warm: int) -> bool:
    """Add two vectors of four numbers, repeatedly; return whether the sums are right."""
    left, right = (tinygrad.Tensor(values, device="AMD").realize() for values in (LEFT, RIGHT))
    device.synchronize()
    ask("mark", "")
    right_ones = True
    for name in ("first kernel", *(f"warm kernel {number}" for number in range(warm))):
        total = (left + right).realize()
        device.synchronize()
        ask("mark", name)
        right_ones &= total.tolist() == SUMS
        # its memory serves the next one, without new page tables
        del total
        ask("mark", "")
    return right_ones


def copy(device: Any, ask: Any, size: int) -> bool:
    """Copy bytes into the card's memory and back; return whether they are equal."""
    data, back = random.Random(size).randbytes(size), bytearray(size)
    options = importlib.import_module("tinygrad.device").BufferSpec()
    memory = device.allocator.alloc(size, options)
    ask("mark", "")
    device.allocator._copyin(memory, memoryview(bytearray(data)))
    device.synchronize()
    ask("mark", f"in {size}")
    device.allocator._copyout(memoryview(back), memory)
    ask("mark", f"out {size}")
    device.allocator.free(memory, size, options)
    ask("mark", "")
    return back == data


def main() -> None:
    job = json.load(sys.stdin)
    os.environ.update(job["variables"])
    ask = replace_libusb(job["address"])
    replace_firmware(job["firmware"])
    tinygrad: Any = importlib.import_module("tinygrad")
    ask("mark", "")
    device = tinygrad.Device["AMD"]
    ask("mark", "cold boot")
    right = compute(tinygrad, device, ask, job["warm"]) if job["warm"] else True
    same = all(copy(device, ask, size) for size in job["sizes"])
    sys.stdout.write(f"\n{json.dumps({'right': right, 'same': same, 'chip': device.arch})}\n")
    sys.stdout.flush()
    ask.close()
    # at exit it would talk to the host again
    os._exit(0)


if __name__ == "__main__":
    main()
