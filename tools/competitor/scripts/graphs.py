"""Runs inside tinygrad's environment: one graph compiled through LLVM, no card. One job on stdin, one answer on stdout,
both JSON.

tinygrad's null device takes any of its renderers; the target is named by the environment, which is read when tinygrad
is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any


def models(path: str) -> Any:
    """Load the file that builds the graphs."""
    spec = importlib.util.spec_from_file_location("models", path)
    # a path to a Python file has one
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["models"] = made
    spec.loader.exec_module(made)
    return made


def moved_bytes(linear: Any) -> tuple[int, int]:
    """Return the number of kernels, and the bytes of the distinct buffers of each, summed."""
    realize = importlib.import_module("tinygrad.engine.realize")
    kernels = total = 0
    for call in linear.src:
        if call.src[0].op.name not in ("SINK", "PROGRAM"):
            continue
        buffers = {id(one.buffer): one.buffer.nbytes for one in realize.get_call_arg_uops(call)}
        kernels, total = kernels + 1, total + sum(buffers.values())
    return kernels, total


def stepped(loss: Any, weights: list[Any]) -> list[Any]:
    """Return what a step of AdamW computes; its state between steps is in memory already."""
    tinygrad = importlib.import_module("tinygrad")
    with importlib.import_module("tinygrad.helpers").Context(TRAINING=1):
        optimiser = tinygrad.nn.optim.AdamW(weights)
        tinygrad.Tensor.realize(optimiser.lr, *optimiser.m, *optimiser.v, optimiser.b1_t, optimiser.b2_t)
        loss.backward()
        return [loss, *optimiser.schedule_step()]


def main() -> None:
    job = json.load(sys.stdin)
    # without a disk cache, and in one process like ours
    os.environ |= {
        "DEV": f"NULL:AMDLLVM:{job['target']}",
        "CACHELEVEL": "0",
        "PARALLEL": "0",
    }
    tinygrad = importlib.import_module("tinygrad")
    realize = importlib.import_module("tinygrad.engine.realize")
    made, tensor = models(job["models"]), tinygrad.Tensor
    kit = made.Kit(
        lambda sizes, dtype: tensor.empty(*sizes, dtype=dtype),
        lambda x: x.layernorm(),
        lambda a, b, axis: a.cat(b, dim=axis),
        lambda logits, classes: logits.sparse_categorical_crossentropy(classes),
        lambda loss, weights: loss.gradient(*weights),
        lambda sizes: tensor.empty(*sizes),
        stepped,
    )
    # loads LLVM, which is not part of compiling a graph
    _ready = tinygrad.Device[tinygrad.Device.DEFAULT].renderer
    start, start_cpu = time.perf_counter(), time.process_time()
    first, *others = made.results(job["graph"], made.Maker(kit))
    linear, _ = first.linear_with_vars(*others)
    kernels, moved = moved_bytes(linear)
    if job["compile"]:
        realize.compile_linear(linear)
    cpu_s = time.process_time() - start_cpu
    print(json.dumps({"wall_s": time.perf_counter() - start, "cpu_s": cpu_s, "kernels": kernels, "bytes": moved}))


if __name__ == "__main__":
    main()
