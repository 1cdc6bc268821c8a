"""Runs inside tinygrad's environment: its driver brings a card up. One job on standard input, one answer on standard
output, both JSON.

The card is its own mock if the job names a checkout of its source, else a card behind its protocol for remote cards.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

from firmware_folders import replace_firmware

COUNTED = {"rreg": "reads", "wreg": "writes"}

UNUSED = {  # mocks of kernel drivers, which need files of the source tree and are not used
    "test.mockgpu.nv.nvdriver": "NVDriver",
    "test.mockgpu.amd.amddriver": "AMDDriver",
}


def main() -> None:
    job = json.load(sys.stdin)
    if job.get("checkout"):
        sys.path.insert(0, job["checkout"])
        for name, driver in UNUSED.items():
            sys.modules[name] = module = ModuleType(name)
            setattr(module, driver, None)
    os.environ.update(job["variables"])
    start = time.process_time()
    runtime = importlib.import_module("tinygrad.runtime.ops_amd")
    amdev: Any = importlib.import_module("tinygrad.runtime.support.am.amdev")
    answer: dict[str, Any] = {"import_s": time.process_time() - start, "reads": 0, "writes": 0}

    def counted(function: Any, key: str) -> Any:
        def call(*given: Any) -> Any:
            answer[key] += 1
            return function(*given)

        return call

    replace_firmware(job["firmware"])
    for name, key in COUNTED.items():
        setattr(amdev.AMDev, name, counted(getattr(amdev.AMDev, name), key))
    cpu, wall = time.process_time(), time.perf_counter()
    device = runtime.AMDDevice("AMD")
    answer |= {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    answer |= {
        "warm": device.iface.dev_impl.partial_boot,
        "chip": device.arch,
        "reads": answer["reads"],
        "writes": answer["writes"],
    }
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    device.iface.device_fini()
    # its exit handlers would do this again, and print
    os._exit(0)


if __name__ == "__main__":
    main()
