"""`ringup compile`: compile the tensors of a Python file to a code object, and show what each kernel needs. No card is
touched.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ringup.compiler.explain import Explained, Explanation, explain, groups_text
from ringup.tools.code import graph_file
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.table import Column, show


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser(
        "compile", help="compile tensors of a Python file for a target, without a card", description=__doc__
    )
    graph_file.add_arguments(parser)
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="output file for the code object (default: none)"
    )
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the code object and show the kernels. Raises `CompileError` for errors in the file and for
    graphs that cannot be compiled.
    """
    files.check_outputs(args.out, keep=graph_file.path_of(args.file))
    found = explain(graph_file.outputs_of(args.file), args.target, tuning=graph_file.tuning_of(args))
    if args.out is not None and found.kernels:
        code = found.graph.code_object()
        files.write(args.out, code)
    if args.json:
        print(json_text(document(found), indent=1))
        return 0
    show(COLUMNS, [row(one) for one in found.kernels])
    print(summary(found))
    if args.out is not None:
        print(
            f"{args.out}: {args.out.stat().st_size} bytes"
            if found.kernels
            else "nothing to compile: no code object was written"
        )
    return 0


COLUMNS = (
    Column("kernel"), Column("launches", "right"), Column("groups", "right"), Column("threads", "right"), Column("VGPRs", "right"),
    Column("SGPRs", "right"), Column("LDS", "right"), Column("scratch", "right"), Column("waves", "right"), Column("code", "right"),
    Column("moved", "right"),
)  # fmt: skip


def row(one: Explained) -> tuple[str, ...]:
    """Return a kernel's line: registers of a lane or wave, LDS of a group, waves that fit on a SIMD, bytes of code and
    bytes moved.
    """
    binary = one.step.binary
    return (
        one.name, str(len(one.launches)), groups_text(one.step.lowered.groups), str(binary.group_size), str(binary.vgprs), str(binary.sgprs),
        size(binary.lds_bytes), size(binary.scratch_bytes), str(binary.occupancy), size(len(binary.code)), size(one.cost.bytes_moved),
    )  # fmt: skip


def size(count: int) -> str:
    """Return a number of bytes as short text, exact below 10 KiB."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if count >= 10 << shift:
            return f"{count / (1 << shift):.0f}{unit}"
    return str(count)


def summary(found: Explanation) -> str:
    """Return the graph in one line."""
    graph = found.graph
    return (
        f"{graph.target}: {counted(len(graph.launches), 'launch', 'launches')} of "
        f"{counted(len(found.kernels), 'kernel', 'kernels')}, "
        f"{size(found.bytes_moved)} bytes moved, {size(graph.arena_bytes)} bytes for intermediates, "
        f"{found.microseconds:.1f} us by the model"
    )


def counted(count: int, one: str, more: str) -> str:
    """Return a number with its noun."""
    return f"{count} {one if count == 1 else more}"


def document(found: Explanation) -> dict[str, Any]:
    """Return everything as plain values."""
    graph = found.graph
    return {
        "target": graph.target,
        "launches": len(graph.launches),
        "arena_bytes": graph.arena_bytes,
        "outputs": [{"dtype": str(one.dtype), "shape": [*map(_plain, one.shape)]} for one in graph.outputs],
        "bytes_moved": found.bytes_moved,
        "flops": found.flops,
        "modelled_us": found.microseconds,
        "kernels": [kernel_document(one) for one in found.kernels],
    }


def kernel_document(one: Explained) -> dict[str, Any]:
    """Return one kernel as plain values; counts as in `amd.emit.Binary`, the estimate of one launch."""
    binary, cost = one.step.binary, one.cost
    return {
        "name": one.name,
        "launches": list(one.launches),
        "shape": one.step.lowered.choice,
        "tuned": one.step.choice is not None,
        "groups": [*map(_plain, one.step.lowered.groups)],
        "threads": binary.group_size,
        "vgprs": binary.vgprs,
        "sgprs": binary.sgprs,
        "lds_bytes": binary.lds_bytes,
        "scratch_bytes": binary.scratch_bytes,
        "occupancy": binary.occupancy,
        "code_bytes": len(binary.code),
        "instructions": binary.instructions,
        "bytes_moved": cost.bytes_moved,
        "flops": cost.flops,
        "estimate": {
            "cycles": cost.cycles,
            "compute_cycles": cost.compute_cycles,
            "memory_cycles": cost.memory_cycles,
            "bound": cost.bound,
            "us": cost.microseconds,
        },
    }


def _plain(number: object) -> int | str:
    return number if isinstance(number, int) else str(number)
