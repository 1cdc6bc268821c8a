"""Runs inside tinygrad's environment: its struct type under the field bench's statements. One job on stdin, one answer
on stdout, both JSON.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
import timeit
from statistics import median
from typing import Any

CTYPES = {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
support = importlib.import_module("tinygrad.runtime.support.c")


def struct(name: str, size_bytes: int, fields: list[tuple[Any, ...]]) -> Any:
    """Return a struct type made as tinygrad's generated modules make theirs."""
    made = support.record(type(name, (support.Struct,), {"SIZE": size_bytes}))
    made.register_fields(fields)
    return made


def new_part(job: dict[str, Any]) -> Any:
    return struct("Part", job["part_bytes"], [(name, CTYPES[kind], byte) for name, kind, byte in job["part"]])


def views(job: dict[str, Any]) -> dict[str, Any]:
    """Return the names that the statements use."""
    part = new_part(job)
    places = [(f"p{i}", part, i * job["part_bytes"]) for i in range(job["parts"])]
    whole = struct("Whole", job["parts"] * job["part_bytes"], places)
    rows = [(name, ctypes.c_uint32, byte, width, bit) for name, byte, bit, width in job["bit_rows"]]
    bits_type = struct("Bits", job["bit_bytes"], rows)
    memory, bits = bytearray(whole.SIZE), bytearray(bits_type.SIZE)
    view = whole.from_buffer(memory)
    made = {"s": view, "p": view.p3, "b": bits_type.from_buffer(bits)}
    return {**made, "S": whole, "lay": whole.from_buffer, "memory": memory, "bits": bits}


def loop_ns(statement: str, names: dict[str, Any], loops: int) -> float:
    """Time as ringup's side does: CPU time, an empty loop taken off, names local to the loop."""
    given = {f"_{name}": value for name, value in names.items()}
    setup = "\n".join(f"{name} = _{name}" for name in names)
    full = timeit.Timer(statement, setup, timer=time.process_time, globals=given).timeit(loops)
    empty = timeit.Timer("pass", setup, timer=time.process_time, globals=given).timeit(loops)
    return max(full - empty, 0.0) / loops * 1e9


def first_touch_ns(job: dict[str, Any]) -> tuple[float, float]:
    clock = time.perf_counter_ns
    touches, wholes, clocks = [], [], []
    for _ in range(job["first_touches"]):
        start = clock()
        made = new_part(job)()
        before = clock()
        made.f10  # noqa: B018 - the read that is timed
        after = clock()
        clocks.append(clock() - after)
        touches.append(after - before)
        wholes.append(after - start)
    return max(median(touches) - median(clocks), 0), median(wholes) - median(clocks)


def main() -> None:
    job = json.load(sys.stdin)
    names, times = views(job), {}
    for name, (memory, wanted) in job["writes"].items():
        statement, _, _, values = job["loops"][name]
        exec(statement, {**names, **values})
        if names[memory].hex() != wanted:
            raise SystemExit(f"{name}: tinygrad does not write the same bytes")
    for name, (statement, accesses, loops, values) in job["loops"].items():
        times[name] = loop_ns(statement, {**names, **values}, loops) / accesses
    times["first touch of a field"], times["new struct type to first touch"] = first_touch_ns(job)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
