"""ringup's part of the benches that need a fresh interpreter: one job on standard input, one answer on standard output,
both JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import Sources
from ringup.errors import HeaderError
from ringup.tools.bench.models import Kit, Maker, results
from ringup.tools.common.collector import collect_seldom

Job = Mapping[str, Any]


def _cpu_s() -> float:
    """CPU seconds of this process and of the children it has waited for."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def _sources(job: Job) -> Sources:
    return Sources(
        load(Path(job["manifest"])), Path(job["cache"]), {name: Path(folder) for name, folder in job["trees"].items()}
    )


def c_module(job: Job) -> dict[str, Any]:
    """Read the headers of a C module of the manifest; emit every struct and constant they hold."""
    from ringup.autogen.generate.emit.structs import emit_module
    from ringup.autogen.generate.run import parse_module

    sources = _sources(job)
    module = next((module for module in sources.manifest.modules if module.module == job["module"]), None)
    if module is None:
        raise HeaderError(
            f"the manifest has no module {job['module']}, which this bench reads; run it with ringup's own"
        )
    start = time.process_time()
    unit = parse_module(module, sources).unit
    text = emit_module(module.doc, "", tuple(unit.structs.values()), tuple(unit.constants.values()))
    return {"cpu_s": time.process_time() - start, "bytes": len(text)}


def headers(job: Job) -> dict[str, Any]:
    """Read headers as one translation unit; emit every struct and constant they hold."""
    from ringup.autogen.generate.c.clang import parse
    from ringup.autogen.generate.emit.structs import emit_module

    files = [Path(file) for file in job["files"]]
    first = [Path(file) for file in job["first"]]
    start = time.process_time()
    unit = parse([*first, *files], include=[Path(folder) for folder in job["include"]], from_files=files)
    text = emit_module("", "", tuple(unit.structs.values()), tuple(unit.constants.values()))
    return {"cpu_s": time.process_time() - start, "bytes": len(text), "names": len(unit.structs) + len(unit.constants)}


def registers(job: Job) -> dict[str, Any]:
    """Read blocks of register headers and make their databases; `only` takes one of a block's headers."""
    from ringup.autogen.generate.amd.registers import read_block
    from ringup.autogen.generate.emit.regdb import write_block

    with tempfile.TemporaryDirectory() as folder:
        stems = [Path(stem) for stem in job["stems"]]
        if job["only"]:
            stems = [_alone(stem, job["only"], Path(folder)) for stem in stems]
        start = time.process_time()
        count, size = 0, 0
        for stem in stems:
            rows = read_block(stem).registers
            count, size = count + len(rows), size + len(write_block(rows))
        return {"cpu_s": time.process_time() - start, "bytes": size, "registers": count}


def _alone(stem: Path, ending: str, folder: Path) -> Path:
    """Return a stem for which only the header with that ending is found."""
    link = folder / stem.name
    link.with_name(stem.name + ending).symlink_to(stem.with_name(stem.name + ending))
    return link


def manifest(job: Job) -> dict[str, Any]:
    """Generate into memory: everything from headers, or with `disassembler` the sets made with a disassembler."""
    from ringup.autogen.generate.run import generate

    sources = _sources(job)
    asked = {group.name for group in sources.manifest.sets if any(label.startswith("llvm") for label in group.packages)}
    names = [module.module for module in sources.manifest.modules] + [group.name for group in sources.manifest.sets]
    chosen = [name for name in names if (name in asked) == job["disassembler"]]
    start = _cpu_s()
    made = generate(sources, chosen, strict=False)
    cpu_s = _cpu_s() - start
    return {
        "cpu_s": cpu_s,
        "bytes": sum(map(len, made.files.values())),
        "files": len(made.files),
        "left_out": made.left_out,
    }


def lookups(job: Job) -> dict[str, Any]:
    """Open a chip's register database; look up random registers of all its blocks, each for the first time."""
    from ringup.autogen.regdb import open_chip

    start = time.perf_counter()
    chip = open_chip(job["chip"])
    open_ms = (time.perf_counter() - start) * 1e3
    chip.register(job["first"])
    first_ms = (time.perf_counter() - start) * 1e3
    files = [chip.file(place) for place in chip.row.places]
    names = random.Random(job["seed"]).choices([name for file in files for name in file.names()], k=job["count"])
    place_ns, fields_ns = [], []
    for name in names:
        before = time.perf_counter_ns()
        found = chip.register(name)
        _place = found.offset, found.segment
        middle = time.perf_counter_ns()
        _fields = found.fields
        after = time.perf_counter_ns()
        place_ns.append(middle - before)
        fields_ns.append(after - before)
    return {
        "open_ms": open_ms,
        "first_ms": first_ms,
        "place_us": median(place_ns) / 1e3,
        "fields_us": median(fields_ns) / 1e3,
    }


def kit() -> Kit:
    """Return our tensor language as a `Kit` of `models`."""
    from ringup.compiler.tensor import Tensor, device, gradient
    from ringup.optim import AdamW

    def step(loss: Any, weights: Sequence[Any]) -> Sequence[Any]:
        optimiser = AdamW(weights)
        with device(_Nowhere()):
            # its state between steps is in memory already
            optimiser.realize()
        loss.backward()
        optimiser.step()
        return [loss, *weights, *optimiser.memory()]

    def weight(sizes: Sequence[int]) -> Any:
        return Tensor(np.zeros(sizes, np.float32), requires_grad=True)

    return Kit(
        lambda sizes, dtype: Tensor.empty(*sizes, dtype=dtype),
        lambda x: x.layer_norm(),
        lambda a, b, axis: a.cat(b, axis=axis),
        lambda logits, classes: logits.cross_entropy(classes),
        gradient,
        weight,
        step,
    )


class _Nowhere:
    """Memory of zeros for any tensor, because graphs of benches are compiled and not run."""

    def evaluate(self, nodes: Sequence[Any], sizes: Mapping[str, int]) -> Sequence[bytearray]:
        return [bytearray(one.size * one.dtype.size_bytes) for one in nodes]


def graph(job: Job) -> dict[str, Any]:
    """Compile one graph of `models` for a target, from building it to the code object. Count its kernels and the bytes
    of their buffers.
    """
    from ringup.compiler.compile import compile_graph
    from ringup.compiler.tensor import order

    made = Maker(kit())
    start, start_cpu = time.perf_counter(), time.process_time()
    nodes = order.prepared(list(dict.fromkeys(one.node for one in results(job["graph"], made) if one.node.sources)))
    compiled = compile_graph(nodes, job["target"])
    compiled.code_object()
    cpu_s, wall_s = time.process_time() - start_cpu, time.perf_counter() - start
    found: list[int] = []
    compile_graph(
        nodes,
        job["target"],
        watch=lambda step: found.append(sum(one.size_bytes for one in step.lowered.function.params)),
    )
    return {"wall_s": wall_s, "cpu_s": cpu_s, "kernels": len(found), "bytes": sum(found)}


TASKS: Mapping[str, Callable[[Job], dict[str, Any]]] = {
    "c": c_module,
    "headers": headers,
    "registers": registers,
    "manifest": manifest,
    "lookups": lookups,
    "graph": graph,
}


def main() -> None:
    collect_seldom()
    job = json.load(sys.stdin)
    print(json.dumps(TASKS[job["task"]](job)))


if __name__ == "__main__":
    main()
