"""Runs inside tinygrad's environment: its range allocator and page tables in plain memory. One job on stdin, one answer
on stdout, both JSON.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import random
import sys
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

TABLE_BYTES = 256 << 20  # the part of VRAM that exists; tables are at its start
BOOT_BYTES = 32 << 20


def us(step: Callable[[], Any], times: int, rounds: int) -> float:
    """Return microseconds of CPU a step takes, the median of the rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            step()
        found.append((time.process_time() - start) / times * 1e6)
    return median(found)


def ranges_us(job: dict[str, Any], count: int) -> float:
    """Time a free and an allocation of random sizes among random ranges."""
    memory = importlib.import_module("tinygrad.runtime.support.memory")
    rnd = random.Random(count)
    ranges = memory.TLSFAllocator(job["vram_bytes"])
    sizes = [job["page_bytes"] * rnd.randint(1, job["max_pages"]) for _ in range(count)]
    live = [ranges.alloc(size, job["page_bytes"]) for size in sizes]
    rnd.shuffle(live)
    order = iter(rnd.choices(range(count), k=job["steps"] * job["rounds"]))

    def step() -> None:
        i = next(order)
        ranges.free(live[i])
        live[i] = ranges.alloc(sizes[i], job["page_bytes"])

    return us(step, job["steps"], job["rounds"])


def tables(job: dict[str, Any]) -> Any:
    """Return its memory manager of a navi31 over plain memory; flushes of translations are left out."""
    amdev = importlib.import_module("tinygrad.runtime.support.am.amdev")
    hcq = importlib.import_module("tinygrad.runtime.support.hcq")
    support = importlib.import_module("tinygrad.runtime.support.amd")
    am, gmc_type = amdev.am, amdev.AM_GMC
    plain = mmap.mmap(-1, TABLE_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(plain))

    class Tables(amdev.AMMemoryManager):  # type: ignore[misc,name-defined]
        def on_range_mapped(self) -> None:
            """Flush nothing."""

    device = SimpleNamespace(
        vram=hcq.MMIOInterface(address, TABLE_BYTES), is_booting=True, smi_dev=False, devfmt="plain",
        ip_ver={am.GC_HWIP: (11, 0, 0)}, soc=SimpleNamespace(module=support.import_soc((11, 0, 0))), plain=plain,
        paddr2xgmi=lambda pa: pa, xgmi2paddr=lambda pa: pa,
    )  # fmt: skip
    device.gmc = gmc_type.__new__(gmc_type)
    device.gmc.adev, device.gmc.address_space_mask = device, (1 << 48) - 1
    memory_type: Any = Tables
    device.mm = manager = memory_type.__new__(memory_type)
    manager.dev = device
    levels = 9 * (3 - am.AMDGPU_VM_PDB2)
    memory_type.__init__(
        manager, device, job["vram_bytes"], boot_size=BOOT_BYTES, pt_t=amdev.AMPageTableEntry, va_shifts=[12, 21, 30, 39],
        va_bits=48, first_lv=am.AMDGPU_VM_PDB2, va_base=amdev.AMMemoryManager.va_allocator.base, reserve_ptable=True,
        palloc_ranges=[(1 << (i + 12), (2 << 20) if i >= 9 else 0x1000) for i in range(levels, -1, -1)],
    )  # fmt: skip
    device.is_booting = False
    return manager


def main() -> None:
    job = json.load(sys.stdin)
    answer = {name: ranges_us(job, count) for name, count in job["live"].items()}
    manager = tables(job)
    space = importlib.import_module("tinygrad.runtime.support.memory").AddrSpace
    base, page = manager.va_base + job["base"], job["page_bytes"]
    # tables of the upper levels are there already
    manager.map_range(base - page, page, [(page, page)], space.PHYS)
    for name, (kind, runs, times) in job["mappings"].items():
        size = sum(length for _, length in runs)
        where = space.PHYS if kind == "vram" else space.SYS
        pieces = [tuple(run) for run in runs]

        def pair(size: int = size, where: Any = where, pieces: list[tuple[int, ...]] = pieces) -> None:
            manager.map_range(base, size, pieces, where)
            manager.unmap_range(base, size)

        answer[name] = us(pair, times, job["rounds"])
    print(json.dumps(answer))


if __name__ == "__main__":
    gc.disable()  # as on our side
    main()
