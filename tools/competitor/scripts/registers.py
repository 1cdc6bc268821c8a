"""Runs inside tinygrad's environment: its register tables opened and looked up. One job on stdin, one answer on stdout,
both JSON.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from statistics import median


def main() -> None:
    job = json.load(sys.stdin)
    importlib.import_module("tinygrad.runtime.autogen.am")
    start = time.perf_counter()
    importlib.import_module("tinygrad.runtime.autogen.am.regs")
    open_ms = (time.perf_counter() - start) * 1e3
    amd = importlib.import_module("tinygrad.runtime.support.amd")
    block = amd.AMDIP("gc", (11, 0, 0), {0: (0, 0, 0, 0, 0, 0)})
    start = time.perf_counter()
    names = list(block.regs)
    first_ms = open_ms + (time.perf_counter() - start) * 1e3
    place_ns, fields_ns = [], []
    for name in random.Random(job["seed"]).choices(names, k=job["count"]):
        before = time.perf_counter_ns()
        found = block.regs[name]
        _place = found.offset, found.segment
        middle = time.perf_counter_ns()
        _fields = found.fields
        after = time.perf_counter_ns()
        place_ns.append(middle - before)
        fields_ns.append(after - before)
    answer = {
        "open_ms": open_ms,
        "first_ms": first_ms,
        "place_us": median(place_ns) / 1e3,
        "fields_us": median(fields_ns) / 1e3,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
