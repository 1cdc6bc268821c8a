"""Runs inside tinygrad's environment: its launch descriptors under the descriptor bench's statements. One job on stdin,
one answer on stdout, both JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import timeit
from types import SimpleNamespace
from typing import Any

nv = importlib.import_module("tinygrad.runtime.ops_nv")


def loop_ns(statement: str, names: dict[str, Any], loops: int) -> float:
    """Time as ringup's side does: CPU time, an empty loop taken off, names local to the loop."""
    given = {f"_{name}": value for name, value in names.items()}
    setup = "\n".join(f"{name} = _{name}" for name in names)
    full = timeit.Timer(statement, setup, timer=time.process_time, globals=given).timeit(loops)
    empty = timeit.Timer("pass", setup, timer=time.process_time, globals=given).timeit(loops)
    return max(full - empty, 0.0) / loops * 1e9


def main() -> None:
    job = json.load(sys.stdin)
    device = SimpleNamespace(iface=SimpleNamespace(compute_class=nv.nv_gpu.AMPERE_COMPUTE_B))
    names = {"W": nv.QMD, "dev": device, "values": job["values"], "w": nv.QMD(device, **job["values"])}
    made = bytes(names["w"].mv).hex()
    times = {name: loop_ns(statement, names, loops) for name, (statement, loops) in job["statements"].items()}
    print(json.dumps({"bytes": made, "times": times}))


if __name__ == "__main__":
    main()
