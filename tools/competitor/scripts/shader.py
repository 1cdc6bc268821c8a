"""Runs inside tinygrad's environment: its emulator of the shader cores on one kernel. One job on stdin, one answer on
stdout, both JSON.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import struct
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any


def mapped(data: bytes, size_bytes: int = 0) -> tuple[mmap.mmap, int]:
    """Return memory that holds `data`, and its address."""
    memory = mmap.mmap(-1, max(len(data), size_bytes) + mmap.PAGESIZE)
    memory[: len(data)] = data
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def emulator(job: dict[str, Any], folder: str) -> Any:
    """Import the emulator from tinygrad's source tree; it compiles for this computer with `clang`."""
    Path(folder, "clang").symlink_to(job["compiler"])
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    # code compiled in an earlier run would not be a first run
    os.environ["CACHELEVEL"] = "0"
    sys.path.insert(0, job["checkout"])
    return importlib.import_module("test.mockgpu.amd.emu").run_asm


def main() -> None:
    job = json.load(sys.stdin)
    code, base = mapped(bytes.fromhex(job["image"]))
    inputs = [mapped(Path(file).read_bytes()) for file in job["inputs"]]
    out, out_address = mapped(b"", job["out_bytes"])
    arguments, arguments_address = mapped(struct.pack("<4Q", out_address, *(one for _, one in inputs), job["n"]))

    def run(groups: list[int]) -> float:
        start = time.perf_counter()
        run_asm(base + job["entry"], len(code), *groups, *job["group_size"], arguments_address, job["rsrc2"])
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        run_asm = emulator(job, folder)
        first_s = run([1, 1, 1])
        times = [run(job["groups"]) for _ in range(job["runs"])]
    Path(job["out"]).write_bytes(out[: job["out_bytes"]])
    del arguments, inputs
    print(json.dumps({"first_s": first_s, "warm_s": median(times)}))


if __name__ == "__main__":
    main()
