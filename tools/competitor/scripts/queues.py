"""Runs inside tinygrad's environment: its queues built and submitted over plain memory. One job on stdin, one answer on
stdout, both JSON.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import json
import mmap
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

hcq = importlib.import_module("tinygrad.runtime.support.hcq")
amd = importlib.import_module("tinygrad.runtime.ops_amd")
support = importlib.import_module("tinygrad.runtime.support.amd")
uop = importlib.import_module("tinygrad.uop.ops")
dtypes = importlib.import_module("tinygrad.dtype").dtypes
MEMORIES: list[mmap.mmap] = []  # the memory of raw addresses
RING_BYTES = 16 << 20  # its own choice
BUFFERS = 3


def buffer(size_bytes: int) -> Any:
    """Return plain memory as tinygrad's buffer."""
    memory = mmap.mmap(-1, size_bytes)
    MEMORIES.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return hcq.HCQBuffer(address, size_bytes, view=hcq.MMIOInterface(address, size_bytes))


def queue_memory() -> Any:
    """Return a ring with its pointers and a doorbell."""
    page = buffer(4096).cpu_view()
    return amd.AMDQueueDesc(
        ring=buffer(RING_BYTES).cpu_view().view(fmt="I"),
        read_ptr=page.view(0, 8, "Q"), write_ptr=page.view(64, 8, "Q"), doorbell=page.view(128, 8, "Q"),
    )  # fmt: skip


class Device:
    """The device that its queues need. It answers as tinygrad's driver of a navi31 does, over plain memory."""

    target, xccs, sqtt_enabled = (11, 0, 0), 1, False

    def __init__(self) -> None:
        module, offsets = support.import_module, importlib.import_module("tinygrad.runtime.autogen.am.navi_offsets")
        self.soc = support.import_soc(self.target)
        self.pm4 = importlib.import_module("tinygrad.runtime.autogen.am.pm4_nv")
        self.sdma = module("sdma", (6, 0, 0))

        def block(name: str, version: tuple[int, int, int], prefix: str, count: int) -> Any:
            bases = {0: tuple(getattr(offsets, f"{prefix}_BASE__INST0_SEG{n}", 0) for n in range(count))}
            return support.AMDIP(name, version, bases=bases)

        self.gc, self.nbio = block("gc", (11, 0, 0), "GC", 6), block("nbio", (4, 3, 0), "NBIO", 9)
        self.scratch, self.tmpring_size = buffer(1 << 20), 0x100
        flush = buffer(4096).cpu_view().view(fmt="I")
        gmc = SimpleNamespace(flush_hdp=lambda: flush.__setitem__(0, 0))  # a register write
        self.iface = SimpleNamespace(dev_impl=SimpleNamespace(gmc=gmc))
        self.compute_queue, copies = queue_memory(), queue_memory()
        self.sdma_queue: Any = lambda index: copies
        self.allocator = SimpleNamespace(alloc=lambda size, options: buffer(max(size, 4096)), free=lambda *given: None)
        self.timeline_signal = amd.AMDSignal(buffer(4096), owner=None, is_timeline=True)
        self.kernargs_buf = buffer(16 << 20)
        self.kernargs_offset_allocator = hcq.BumpAllocator(self.kernargs_buf.size, wrap=True)
        self.timeline_value = 1

    def is_am(self) -> bool:
        """Return that it drives the card itself."""
        return True

    def is_usb(self) -> bool:
        """Return that the card is in a slot."""
        return False


def program(device: Device) -> Any:
    """Return the program that its queue needs: three buffers and a number."""
    made = amd.AMDProgram.__new__(amd.AMDProgram)
    made.dev, made.args_state_t, made.kernargs_alloc_size = device, hcq.CLikeArgsState, 8 * BUFFERS + 4
    made.signature = ((None, 0, dtypes.int32, ()),)
    made.enable_private_segment_sgpr = made.enable_dispatch_ptr = 0
    made.prog_addr, made.rsrc1, made.rsrc2, made.rsrc3, made.wave32 = 0x1000000, 0x60AF0000, 0x84, 0, True
    made._fini = lambda *given: None
    return made


def us(work: Callable[[], Any], times: int) -> float:
    """Return the CPU microseconds of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1e6


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Time its queues."""
    device, times = Device(), job["times"]
    made, data = program(device), tuple(buffer(4096) for _ in range(BUFFERS))
    grid, block, group = job["grid"], job["block"], job["group"]
    signal = device.timeline_signal

    def append(queue: Any, count: Any = 4096) -> Any:
        return queue.exec(made, made.fill_kernargs(data, (count,)), grid, block)

    def appends(count: int = group) -> Any:
        queue = amd.AMDComputeQueue(device)
        for _ in range(count):
            append(queue)
        return queue

    def copies() -> Any:
        queue = amd.AMDCopyQueue(device)
        for _ in range(group):
            queue.copy(data[0], data[1], 4096)
        return queue

    def launch(count: Any = 4096) -> Any:
        queue = amd.AMDComputeQueue(device).wait(signal, device.timeline_value - 1).memory_barrier()
        append(queue, count)
        device.timeline_value += 1
        return queue.signal(signal, device.timeline_value - 1)

    ready, long = launch(), appends(job["long"]).signal(signal, 1)
    variable = uop.UOp.variable("n", 1, 1 << 30)
    bound = launch(variable).bind(device)
    numbers = itertools.cycle(range(1, 1 << 20))
    copy = amd.AMDCopyQueue(device).copy(data[0], data[1], 4096).signal(signal, 1)
    pointers = device.sdma_queue(0)

    def submit_copy() -> None:
        copy.submit(device)
        pointers.read_ptr[0] = pointers.put_value  # an engine that keeps up

    return {
        "append_us": us(appends, max(1, times // group)) / group,
        "append_bytes": 4 * len(appends()._q) / group,
        "launch_us": us(launch, times),
        "launch_bytes": 4 * len(launch()._q),
        "launch_submit_us": us(lambda: launch().submit(device), times),
        "submit_us": us(lambda: ready.submit(device), times),
        "submit_long_us": us(lambda: long.submit(device), times),
        "copy_us": us(copies, max(1, times // group)) / group,
        "copy_bytes": 4 * len(copies()._q) / group,
        "copy_submit_us": us(submit_copy, times),
        "patch_us": us(lambda: bound._apply_var_vals({"n": next(numbers)}), times),
        "patch_submit_us": us(lambda: bound.submit(device, {"n": next(numbers)}), times),
    }


if __name__ == "__main__":
    gc.disable()  # as on our side
    sys.stdout.write(json.dumps(measure(json.load(sys.stdin))))
