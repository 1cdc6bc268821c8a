"""Runs inside tinygrad's environment: its launches through /dev/kfd. One job on stdin, one answer on stdout, both JSON.

The kernel of the job is an ELF file. tinygrad's own driver loads and launches it, on the card's queue.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["DEV"] = "KFD+AMD"
amd = importlib.import_module("tinygrad.runtime.ops_amd")
device_module = importlib.import_module("tinygrad.device")
dtypes = importlib.import_module("tinygrad.dtype").dtypes
BYTES = 4096


class Held:
    """A doorbell in plain memory. `let_go` rings the real one with the last value."""

    def __init__(self, queue: Any) -> None:
        self.queue, self.real, self.value = queue, queue.doorbell, 0

    def __setitem__(self, place: int, value: int) -> None:
        self.value = value

    def __enter__(self) -> Held:
        self.queue.doorbell = self
        return self

    def __exit__(self, *error: object) -> None:
        self.queue.doorbell = self.real
        self.real[0] = self.value


def us(work: Callable[[], Any], times: int) -> float:
    """Return the CPU microseconds of one call."""
    start = time.process_time_ns()
    for _ in range(times):
        work()
    return (time.process_time_ns() - start) / times / 1e3


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Time its launches."""
    device = device_module.Device["AMD"]
    if not isinstance(device.iface, amd.KFDIface):
        raise SystemExit(f"tinygrad has opened the card by {type(device.iface).__name__}")
    signature = ((None, 0, dtypes.int32, ()),)
    code = device_module.TinyELF(bytes.fromhex(job["code"]), job["name"], None, signature)
    made = amd.AMDProgram(device, code)
    data = tuple(device.allocator.alloc(BYTES, device_module.BufferSpec()) for _ in range(3))
    grid, block, group, groups = job["grid"], job["block"], job["group"], job["groups"]
    queue_type = device.hw_compute_queue_t

    def eager() -> None:
        made(*data, global_size=grid, local_size=block, vals=(BYTES // 4,))

    def appends() -> None:
        queue = queue_type()
        for _ in range(group):
            queue.exec(made, made.fill_kernargs(data, (BYTES // 4,)), grid, block)

    def submits() -> list[Any]:
        ready = []
        for _ in range(group):
            queue = queue_type().wait(device.timeline_signal, device.timeline_value - 1).memory_barrier()
            queue.exec(made, made.fill_kernargs(data, (BYTES // 4,)), grid, block)
            ready.append(queue.signal(device.timeline_signal, device.next_timeline()))
        return ready

    def timed(work: Callable[[], None], *, held: bool) -> float:
        """Time a group of launches; the card does them afterwards, or meanwhile."""
        if held:
            with Held(device.compute_queue):
                took = us(work, group)
        else:
            took = us(work, group)
        device.synchronize()
        return took

    def submit_all(*, held: bool) -> float:
        ready = iter(submits())
        return timed(lambda: next(ready).submit(device), held=held)

    def launch_and_wait() -> float:
        start = time.perf_counter_ns()
        eager()
        device.synchronize()
        return (time.perf_counter_ns() - start) / 1e3

    eager()
    device.synchronize()
    rounds: dict[str, list[float]] = {}
    for _ in range(groups):
        for key, took in (
            ("append_us", us(appends, 1) / group),
            ("eager_us", timed(eager, held=True)),
            ("eager_rung_us", timed(eager, held=False)),
            ("submit_us", submit_all(held=True)),
            ("submit_rung_us", submit_all(held=False)),
            ("wait_us", launch_and_wait()),
        ):
            rounds.setdefault(key, []).append(took)
    return {key: sorted(took)[len(took) // 2] for key, took in rounds.items()}


if __name__ == "__main__":
    gc.disable()  # as on our side
    sys.stdout.write("\n" + json.dumps(measure(json.load(sys.stdin))))
