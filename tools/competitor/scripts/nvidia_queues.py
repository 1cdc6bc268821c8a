"""Runs inside tinygrad's environment: its queues for NVIDIA's cards built and submitted over plain memory. One job on
stdin, one answer on stdout, both JSON.
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
nv = importlib.import_module("tinygrad.runtime.ops_nv")
device_module = importlib.import_module("tinygrad.device")
uop = importlib.import_module("tinygrad.uop.ops")
dtypes = importlib.import_module("tinygrad.dtype").dtypes
# the memory of raw addresses
MEMORIES: list[mmap.mmap] = []
# descriptors lie below 2**40, where no memory of a process is
FIRST_VA, VA_ALIGN = 0x1_0000_0000, 1 << 16
# its own choices
ENTRIES, COMMANDS_BYTES, ARGUMENTS_BYTES = 0x10000, 2 << 20, 16 << 20
SHARED_WINDOW, LOCAL_WINDOW = 0x7294_0000_0000, 0x7293_0000_0000
# of a GA102
SASS_VERSION = 0x86
BUFFERS = 3
next_va = itertools.count(FIRST_VA, 1 << 28).__next__


def buffer(size_bytes: int) -> Any:
    """Return plain memory as tinygrad's buffer, at an address of the card."""
    memory = mmap.mmap(-1, -(-size_bytes // VA_ALIGN) * VA_ALIGN)
    MEMORIES.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return hcq.HCQBuffer(next_va(), size_bytes, view=hcq.MMIOInterface(address, size_bytes))


def gpfifo() -> Any:
    """Return the entries of a channel with their index in memory."""
    area = buffer(8 * ENTRIES + 4096).cpu_view()
    return nv.GPFifo(
        ring=area.view(0, 8 * ENTRIES, "Q"), gpput=area.view(8 * ENTRIES, 4096, "I"), entries_count=ENTRIES, token=1
    )


class Device:
    """The device that its queues and programs need. It answers as tinygrad's driver of a GA102 does, over plain
    memory.
    """

    pma_enabled, renderer, sass_version = False, None, SASS_VERSION
    shared_mem_window, local_mem_window, slm_per_thread = SHARED_WINDOW, LOCAL_WINDOW, 0

    def __init__(self) -> None:
        self.iface = SimpleNamespace(compute_class=nv.nv_gpu.AMPERE_COMPUTE_B)
        self.prof_prg_counter = itertools.count()
        self.allocator = SimpleNamespace(
            alloc=lambda size, options: buffer(max(size, 4096)), free=lambda *given: None, _copyin=lambda *given: None
        )
        self.compute_gpfifo, self.dma_gpfifo = gpfifo(), gpfifo()
        self.gpu_mmio = buffer(1 << 16).cpu_view().view(fmt="I")
        self.cmdq_page = buffer(COMMANDS_BYTES)
        self.cmdq_allocator = hcq.BumpAllocator(size=self.cmdq_page.size, base=self.cmdq_page.va_addr, wrap=True)
        self.cmdq = self.cmdq_page.cpu_view().view(fmt="I")
        self.kernargs_buf = buffer(ARGUMENTS_BYTES)
        self.kernargs_offset_allocator = hcq.BumpAllocator(self.kernargs_buf.size, wrap=True)
        self.timeline_signal = nv.NVSignal(buffer(4096), owner=None, is_timeline=True)
        self.timeline_value = 1

    def synchronize(self) -> None:
        """Wait for nothing: a program's code is not copied."""

    def _ensure_has_local_memory(self, size_bytes: int) -> None:
        self.slm_per_thread = max(self.slm_per_thread, size_bytes)


def program(device: Device, cubin: bytes) -> Any:
    """Return its program of the cubin: three buffers and a number."""
    signature = ((None, 0, dtypes.int32, ()),)
    return nv.NVProgram(device, device_module.TinyELF(cubin, "add", None, signature))


def us(work: Callable[[], Any], times: int) -> float:
    """Return the CPU microseconds of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1e6


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Time its queues."""
    device, times = Device(), job["times"]
    made, data = program(device, bytes.fromhex(job["cubin"])), tuple(buffer(4096) for _ in range(BUFFERS))
    grid, block, group = tuple(job["grid"]), tuple(job["block"]), job["group"]
    signal = device.timeline_signal

    def append(queue: Any, count: Any = 4096) -> Any:
        return queue.exec(made, made.fill_kernargs(data, (count,)), grid, block)

    def appends(count: int = group) -> Any:
        queue = nv.NVComputeQueue()
        for _ in range(count):
            append(queue)
        return queue

    def copies(count: int = group) -> Any:
        queue = nv.NVCopyQueue()
        for _ in range(count):
            queue.copy(data[0], data[1], 4096)
        return queue

    def launch(count: Any = 4096) -> Any:
        queue = nv.NVComputeQueue().wait(signal, device.timeline_value - 1).memory_barrier()
        append(queue, count)
        device.timeline_value += 1
        return queue.signal(signal, device.timeline_value - 1)

    ready, long = launch(), appends(job["long"]).signal(signal, 1)
    bound = launch(uop.UOp.variable("n", 1, 1 << 30))
    bound.bind(device)
    numbers = itertools.cycle(range(1, 1 << 20))
    copy = copies(1).signal(signal, 1)
    # a launch of a long queue is an address in the descriptor before it; it stores one descriptor for each launch
    return {
        "append_us": us(appends, max(1, times // group)) / group,
        "append_bytes": 4 * len(appends()._q) / group,
        "argument_bytes": made.kernargs_alloc_size,
        "launch_us": us(launch, times),
        "launch_bytes": 4 * len(launch()._q),
        "launch_submit_us": us(lambda: launch().submit(device), times),
        "submit_us": us(lambda: ready.submit(device), times),
        "submit_long_us": us(lambda: long.submit(device), times),
        "copy_us": us(copies, max(1, times // group)) / group,
        "copy_bytes": 4 * len(copies()._q) / group,
        "copy_submit_us": us(lambda: copy.submit(device), times),
        "patch_us": us(lambda: bound._apply_var_vals({"n": next(numbers)}), times),
        "patch_submit_us": us(lambda: bound.submit(device, {"n": next(numbers)}), times),
    }


if __name__ == "__main__":
    # as on our side
    gc.disable()
    sys.stdout.write(json.dumps(measure(json.load(sys.stdin))))
