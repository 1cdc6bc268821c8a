"""`ringup explain`: how tensors are compiled: kernels, the computation of each, the roles of axes, every pass,
registers, limits.

Without --kernel it shows the schedule and a summary of each kernel. With it, that kernel after each pass and its
machine code.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ringup.compiler.explain import Explained, Explanation, assembly_of, explain, groups_text, passes_of
from ringup.compiler.target import target
from ringup.tools.code import graph_file
from ringup.tools.code.compile import counted, size, summary
from ringup.tools.common import files
from ringup.tools.common.table import Column, plain, show
from ringup.tools.common.wrong_usage import WrongUsage


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("explain", help="show how tensors are compiled", description=__doc__)
    graph_file.add_arguments(parser)
    parser.add_argument(
        "--kernel",
        metavar="N",
        help="one kernel, by its number or a part of its name: every pass, and its machine code",
    )
    parser.add_argument(
        "--pass",
        dest="passes",
        action="append",
        metavar="NAME",
        help="of --kernel: only the text after this pass; may be repeated",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with all of it instead")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Show it. Raises `CompileError` for errors in the file and graphs that cannot be compiled, and `WrongUsage` for an
    unknown kernel or pass.
    """
    if args.passes and args.kernel is None:
        raise WrongUsage("--pass needs a kernel: choose it with --kernel")
    files.check_outputs(args.html, keep=graph_file.path_of(args.file))
    found = explain(graph_file.outputs_of(args.file), args.target, tuning=graph_file.tuning_of(args))
    chosen = None if args.kernel is None else kernel_of(found, args.kernel)
    if args.html is not None:
        from ringup.tools.code.explain_page import page_of

        text = page_of(args.file, found, [chosen] if chosen is not None else found.kernels)
        files.write(args.html, text)
        print(f"{args.html}: {len(text)} bytes; {summary(found)}")
    elif chosen is not None:
        for line in kernel_lines(found, chosen):
            print(line)
        for line in pass_lines(chosen, args.passes):
            print(line)
    else:
        print(summary(found))
        show(SCHEDULE, [schedule_row(found, i) for i in range(len(found.graph.launches))])
        for one in found.kernels:
            print()
            for line in kernel_lines(found, one):
                print(line)
    return 0


def kernel_of(found: Explanation, text: str) -> Explained:
    """Return the kernel with this launch number, or with this part of a name. Raises `WrongUsage`."""
    launches = len(found.graph.launches)
    if text.isdigit():
        if int(text) >= launches:
            raise WrongUsage(f"there is no launch {text}; there are {launches}, from 0")
        return next(one for one in found.kernels if int(text) in one.launches)
    named = [one for one in found.kernels if text in one.name]
    if len(named) != 1:
        names = ", ".join(one.name for one in named or found.kernels)
        raise WrongUsage(f"{len(named) or 'no'} kernels have {text!r} in their names; there is {names}")
    return named[0]


SCHEDULE = (
    Column("#", "right"), Column("kernel"), Column("computes"), Column("groups", "right"), Column("threads", "right"), Column("VGPRs", "right"),
    Column("LDS", "right"), Column("waves", "right"), Column("moved", "right"), Column("us", "right"), Column("limit"),
)  # fmt: skip


def schedule_row(found: Explanation, number: int) -> tuple[str, ...]:
    """Return one launch's line of the schedule."""
    one = next(kernel for kernel in found.kernels if number in kernel.launches)
    binary, cost = one.step.binary, one.cost
    return (
        str(number), one.name, one.nodes[-1].type, groups_text(one.step.lowered.groups), str(binary.group_size), str(binary.vgprs),
        size(binary.lds_bytes), str(binary.occupancy), size(cost.bytes_moved), f"{cost.microseconds:.2f}", cost.bound,
    )  # fmt: skip


def kernel_lines(found: Explanation, one: Explained) -> Iterator[str]:
    """Yield the summary of a kernel: its memory, computation, axes, needs and cost."""
    numbers = ", ".join(map(str, one.launches))
    yield f"{one.name}  ({'launch' if len(one.launches) == 1 else 'launches'} {numbers})"
    for name, value in facts_of(found, one).items():
        yield f"  {name:10} {value}"
    yield "  memory"
    for line in plain(PLACES, place_rows(one)):
        yield f"    {line}"
    yield "  computes"
    for line in plain(NODES, [(node.name, node.does, node.type) for node in one.nodes])[1:]:
        yield f"    {line}"
    yield "  axes"
    for line in plain(AXES, axis_rows(one))[1:]:
        yield f"    {line}"


PLACES = (Column("argument"), Column("holds"), Column("lies in"), Column("bytes", "right"), Column("access"))
NODES = (Column("name"), Column("does"), Column("type"))
AXES = (Column("role"), Column("axis"), Column("size", "right"), Column("meaning"))


def place_rows(one: Explained) -> list[tuple[str, ...]]:
    """Return the memory of a kernel's first launch."""
    return [
        (place.argument, place.what, place.where, str(place.size_bytes), "written" if place.written else "read")
        for place in one.places[0]
    ]


def axis_rows(one: Explained) -> list[tuple[str, ...]]:
    """Return the axes with their roles, without axes of one step."""
    return [(axis.role, axis.name, str(axis.size), axis.meaning) for axis in one.step.lowered.axes if axis.size != 1]


def facts_of(found: Explanation, one: Explained) -> dict[str, str]:
    """Return a kernel's shape, needs and estimated limits by name."""
    step, binary, cost = one.step, one.step.binary, one.cost
    folds = len(step.kernel.folds)
    rounds = counted(cost.rounds, "round", "rounds")
    chip = target(found.graph.target).chip
    share = (
        f"{cost.flops / max(cost.microseconds, 1e-9) / 1e6:.2f} TFLOP/s, "
        f"{cost.bytes_moved / max(cost.microseconds, 1e-9) / 1e3:.0f} GB/s"
    )
    return {
        "fuses": f"{counted(len(one.nodes), 'node', 'nodes')}, {counted(folds, 'reduction', 'reductions')}",
        "shape": f"{step.lowered.choice} ({'found by tune' if step.choice is not None else 'heuristic'})",
        "groups": f"{groups_text(step.lowered.groups)} of {binary.group_size} threads",
        "registers": f"{binary.vgprs} VGPRs, {binary.sgprs} SGPRs, {binary.scratch_bytes} bytes of scratch a thread",
        "LDS": f"{binary.lds_bytes} bytes a group",
        "occupancy": f"{binary.occupancy} waves fit on a SIMD; this launch has {cost.resident} at once, in {rounds}",
        "code": f"{len(binary.code)} bytes, {binary.instructions} instructions",
        "moves": f"{cost.bytes_moved} bytes for {cost.flops} floating-point operations: "
        f"{cost.intensity:.2f} for each byte",
        "limit": f"{cost.bound}: {cost.compute_cycles} cycles on the compute units, {cost.memory_cycles} for memory",
        "modelled": f"{cost.microseconds:.2f} us on a {chip.name} at {chip.mhz} MHz: {share}",
    }


def pass_lines(one: Explained, wanted: list[str] | None) -> Iterator[str]:
    """Yield a kernel's text after each pass, its machine code last. Raises `WrongUsage` for an unknown pass."""
    texts = {f"{each.level} {each.name}": each.text for each in passes_of(one.step)}
    texts["assembly"] = "\n".join(assembly_of(one.step)) + "\n"
    if wanted:
        short = {name.split()[-1] for name in texts}
        for name in wanted:
            if name not in texts and name not in short:
                raise WrongUsage(f"there is no pass {name}; there is {', '.join(texts)}")
        texts = {name: text for name, text in texts.items() if name in wanted or name.split()[-1] in wanted}
    for name, text in texts.items():
        yield f"\n--- {name} ".ljust(100, "-")
        yield text.rstrip("\n")
