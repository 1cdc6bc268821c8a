"""Runs inside tinygrad's environment: its driver starts an NVIDIA card behind its protocol for remote cards, until
GSP-RM answers. One job on standard input, one answer on standard output, both JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from firmware_folders import replace_firmware

# the BAR with the registers
REGISTERS = 0


def count_accesses(system: Any, counts: dict[str, int]) -> None:
    """Count accesses of the register BAR in dwords, single ones and blocks, in `counts`."""
    mmio = system.RemoteMMIOInterface

    def counted(function: Any, key: str) -> Any:
        def call(view: Any, index: Any, *given: Any) -> Any:
            if view.residx == REGISTERS and view.rd_cmd == system.RemoteCmd.MMIO_READ:
                counts[key] += len(range(*index.indices(len(view)))) if isinstance(index, slice) else 1
            return function(view, index, *given)

        return call

    mmio.__getitem__ = counted(mmio.__getitem__, "reads")
    mmio.__setitem__ = counted(mmio.__setitem__, "writes")


def main() -> None:
    job = json.load(sys.stdin)
    os.environ.update(job["variables"])
    start = time.process_time()
    runtime = importlib.import_module("tinygrad.runtime.ops_nv")
    answer: dict[str, Any] = {"import_s": time.process_time() - start}
    counts = {"reads": 0, "writes": 0}
    replace_firmware(job["firmware"], "nv")
    count_accesses(importlib.import_module("tinygrad.runtime.support.system"), counts)
    start_card = runtime.NVDev.__init__

    def timed(device: Any, *given: Any) -> None:
        cpu = time.process_time()
        start_card(device, *given)
        answer.update(cpu_s=time.process_time() - cpu, **counts)

    runtime.NVDev.__init__ = timed
    interface = runtime.PCIIface(None, 0)
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    interface.device_fini()
    # its exit handlers would do this again, and print
    os._exit(0)


if __name__ == "__main__":
    main()
