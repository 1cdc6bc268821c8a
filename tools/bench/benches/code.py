"""Compiled code compared with LLVM's: the machine IR of a kernel goes through our back end and through LLVM -O3, and
both results are measured in the same way.

Both code objects run on the virtual cores with the same data. They must give the same output. The run shows how often
each block is executed. Instructions are counted in the decoded bytes of both. Cycles are those of
`compiler/amd/model.py`, at the occupancy that each code's registers allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.effects import effects
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Pair
from ringup.compiler.compile import Step, compile_graph
from ringup.compiler.graph.index import bounds
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.target import target
from ringup.errors import NotSupported, RingupError
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.program import load
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.listing import listing, traces
from ringup.tools.bench.llvm import back_end
from ringup.tools.bench.llvm.ir import module
from ringup.tools.bench.models import GRAPHS, Maker
from ringup.tools.bench.ours import kit

TARGET, OTHER_TARGET, WIDE_TARGET = "gfx1100", "gfx1201", "gfx942"
# graphs whose products of matrices are measured for gfx1201 too, without LLVM
MATRICES = ("matmul f16", "attention f16", "attention of one query f16")
MEASURED = (
    "matmul 1024",
    "matmul f16",
    "softmax",
    "layer norm",
    "conv",
    "attention",
    "attention f16",
    "attention of one query",
    "attention of one query f16",
)
# a product that fills the units of WIDE_TARGET; "matmul f16" has fewer tiles than it has units
LARGE_MATMUL, LARGE_SIZE = "matmul f16 4096", 4096
MAX_GROUPS = 4  # run of each kernel: enough to count loop iterations
NO_WORSE, PEAK = Goal("ratio", 1), Goal("ours", 80)
WITH_POWERS = ("attention f16",)  # the code between its products keeps them from the peak with any compiler
NO_SLOWER = Goal("ratio", 0.995)  # the model treats differences below half a percent as equal
# of WIDE_TARGET: ours adds to addresses by two scalar instructions, LLVM by one vector instruction
NEARLY_AS_SHORT = Goal("ratio", 0.85)
# of values about 1; with the same operations in the same order only divisions differ
TOLERANCE = 1e-5
WIDE_GOALS = {"loop: instructions": NEARLY_AS_SHORT, "VGPRs": None, "waves a SIMD holds": NO_WORSE}
LOOP_NOTE = "of one wave in the innermost loop that runs most, of the whole kernel where there is none"
CYCLE_NOTE = (
    "modelled cycles of a wave (compiler/amd/model.py) with as many waves on the SIMD as its registers and LDS allow"
)
Arrays = list[NDArray[Any]]


@dataclass(frozen=True)
class Counted:
    """One kernel's code in numbers. `loop_` counts are of the hot loop, or of the whole kernel without a loop. Cycles
    are those of one wave.
    """

    vgprs: int
    sgprs: int
    occupancy: int
    loop_instructions: int
    loop_lds: int
    loop_waits: int
    loop_cycles: float
    cycles: float
    matrix_share: float


def measure(bench: Bench) -> Iterator[Figure]:
    """Compare every kernel of every graph."""
    for graph in MEASURED:
        for step in kernels(graph):
            # without the signature's checksum
            name = f"{graph}, {step.binary.name.rpartition('_')[0]}"
            bench.say(name)
            yield from _figures(name, *compared(step), NO_WORSE if graph in WITH_POWERS else PEAK)
    for graph in (*MEASURED, LARGE_MATMUL):
        for step in kernels(graph, WIDE_TARGET):
            name = f"{WIDE_TARGET}: {graph}, {step.binary.name.rpartition('_')[0]}"
            bench.say(name)
            yield from _wide_figures(name, *compared(step), PEAK if graph == LARGE_MATMUL else NO_WORSE)
    for graph in MATRICES:
        for step in kernels(graph, OTHER_TARGET):
            bench.say(f"{graph}, {OTHER_TARGET}")
            yield from matrix_figures(graph, step, OTHER_TARGET)


def matrix_figures(graph: str, step: Step, of: str) -> Iterator[Figure]:
    """Run our code of a kernel on the cores of a processor; measure its products of matrices, if it has any."""
    elf = target(of).code_object([step.binary])
    share = 100 * count(elf, step, run(elf, step, data_for(step), of), of).matrix_share
    if share:
        name = f"{graph}, {step.binary.name.rpartition('_')[0]}: wmma peak, {of}"
        yield Figure(name, "%", share, None, None if graph in WITH_POWERS else PEAK, "more", note=CYCLE_NOTE)


def kernels(graph: str, of: str = TARGET) -> list[Step]:
    """Compile a graph of `models`, or the large product, and return its distinct kernels."""
    found: list[Step] = []
    make = Maker(kit())
    made = make.matmul(LARGE_SIZE, "float16") if graph == LARGE_MATMUL else GRAPHS[graph](make)
    compile_graph([made.node], of, watch=found.append)
    return list({step.binary.name: step for step in found}.values())


def _figures(name: str, ours: Counted, theirs: Counted, peak: Goal = PEAK) -> Iterator[Figure]:
    beside = f"LLVM {back_end.version()} -O3"
    rows: Sequence[tuple[str, str, float, float, Goal | None, str]] = (
        ("loop: instructions", "instructions", ours.loop_instructions, theirs.loop_instructions, NO_WORSE, LOOP_NOTE),
        ("loop: LDS accesses", "instructions", ours.loop_lds, theirs.loop_lds, NO_WORSE, LOOP_NOTE),
        ("loop: waits", "instructions", ours.loop_waits, theirs.loop_waits, NO_WORSE, LOOP_NOTE),
        ("loop: cycles", "cycles", ours.loop_cycles, theirs.loop_cycles, NO_SLOWER, f"{CYCLE_NOTE}; {LOOP_NOTE}"),
        ("cycles", "cycles", ours.cycles, theirs.cycles, NO_SLOWER, CYCLE_NOTE),
        ("VGPRs", "registers", ours.vgprs, theirs.vgprs, NO_WORSE, ""),
        ("SGPRs", "registers", ours.sgprs, theirs.sgprs, None, ""),
    )
    for what, unit, mine, other, goal, note in rows:
        if mine or other:
            yield Figure(f"{name}: {what}", unit, mine, other, goal, beside=beside, note=note)
    yield Figure(f"{name}: waves a SIMD holds", "waves", ours.occupancy, theirs.occupancy, better="more", beside=beside)
    if ours.matrix_share:
        yield Figure(
            f"{name}: wmma peak",
            "%",
            100 * ours.matrix_share,
            100 * theirs.matrix_share,
            peak,
            "more",
            beside,
            CYCLE_NOTE,
        )


def _wide_figures(name: str, ours: Counted, theirs: Counted, peak: Goal) -> Iterator[Figure]:
    """Return the figures of code for WIDE_TARGET. Its registers have no goal of their own, as they matter only where
    fewer waves fit, which has one.
    """
    for one in _figures(name, ours, theirs, peak):
        what = one.name.removeprefix(f"{name}: ")
        if what in WIDE_GOALS:
            yield replace(one, goal=WIDE_GOALS[what])
        else:
            yield one


def compared(step: Step) -> tuple[Counted, Counted]:
    """Count one kernel's code of ours and of LLVM, on the cores for which it was compiled. Raise RingupError if their
    outputs differ.
    """
    name, of = step.binary.name, step.binary.target
    counted, outputs = [], []
    for elf in (target(of).code_object([step.binary]), back_end.code_object(module(step.lowered.function, of), of)):
        arguments = data_for(step)
        runs = run(elf, step, arguments, of)
        outputs.append(arguments)
        counted.append(count(elf, step, runs, of))
    for mine, theirs in zip(*outputs, strict=True):
        wrong = difference(mine, theirs)
        if wrong > TOLERANCE:
            raise RingupError(
                f"bench code: {name}: the code of LLVM and ours differ by {wrong} in what they "
                "store: one of them is wrong"
            )
    return counted[0], counted[1]


def difference(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the largest difference of two arrays, relative for values above 1; infinity if only one of them is NaN."""
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y) / np.maximum(1.0, np.abs(y)))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


def data_for(step: Step) -> Arrays:
    """Return a kernel's buffers with random numbers in them, always the same numbers; outputs hold zeros."""
    if step.lowered.sizes:
        raise NotSupported(f"bench code: {step.binary.name} depends on sizes that are not given here")
    draw = np.random.default_rng(1)
    made: Arrays = []
    for node, param in zip(step.lowered.memory, step.lowered.function.params, strict=True):
        name, count = node.dtype.name, bounds(node.size)[1]
        numbers = np.zeros(count, np.float32) if param.written else draw.standard_normal(count, np.float32)
        if name == "bfloat16":
            made.append((numbers.view(np.uint32) >> 16).astype(np.uint16))
        else:
            made.append(numbers.astype(np.uint8 if name.startswith("float8") else node.dtype.numpy))
    return made


def run(elf: bytes, step: Step, arguments: Arrays, of: str = TARGET) -> dict[int, float]:
    """Run some groups of a kernel on the virtual cores, in strict mode. Return how often a wave executed each byte
    offset of the code.
    """
    binary, program = step.binary, load(elf)
    x, y, z = (bounds(size)[1] for size in step.lowered.groups)
    groups = (
        min(x, MAX_GROUPS),
        min(y, max(1, MAX_GROUPS // min(x, MAX_GROUPS))),
        1 if x * y >= MAX_GROUPS else min(z, MAX_GROUPS),
    )
    counters = workbench.run(
        Translator(counting=True, target=of),
        program,
        binary.name,
        list(arguments),
        groups=groups,
        group_size=(binary.group_size, 1, 1),
    ).counters
    entry = workbench.CODE + program.kernels[binary.name].entry_address
    return {pc - entry: times / counters.waves for pc, times in counters.by_pc.items()}


def count(elf: bytes, step: Step, runs: dict[int, float], of: str = TARGET) -> Counted:
    """Count one kernel of a code object; `runs` says how often a wave executes each byte offset."""
    binary = step.binary
    found = elf_read.read(elf, binary.name)
    symbol = next(one for one in found.symbols if one.name == binary.name and one.section == ".text")
    data = found.sections[".text"].data[symbol.offset : symbol.offset + symbol.size_bytes]
    told = (found.metadata or {})["amdhsa.kernels"][0]
    vgprs, sgprs = told.get(".vgpr_count", binary.vgprs), told.get(".sgpr_count", binary.sgprs)
    occupancy = limits(of).occupancy(vgprs, binary.lds_bytes, binary.group_size, binary.wave_size)
    code = listing(binary.name, of, data, binary.group_size, binary.wave_size)
    pieces = [
        one.timed(of, binary.wave_size, occupancy)
        for one in traces(code, [runs.get(start, 0.0) for start in code.starts])
    ]
    hot = max((one for one in pieces if one.loops), key=lambda one: one.cycles, default=None)
    inside = [hot] if hot is not None else pieces
    times = hot.runs if hot is not None else 1.0
    loop_cycles = sum(one.cycles for one in inside) / times
    instrs = [instr for one in inside for instr in one.instrs]
    matrix = sum(one.estimate.busy.get("wmma", 0) * one.runs for one in inside) / times
    return Counted(
        vgprs, sgprs, occupancy, len(instrs), _of_kind(instrs, "lds", of), _of_kind(instrs, "wait", of),
        loop_cycles, sum(one.cycles for one in pieces), matrix / loop_cycles,
    )  # fmt: skip


def _of_kind(instrs: Sequence[Instr], kind: str, of: str) -> int:
    table = effects(of)
    return sum(table.of(instr).kind == kind for instr in instrs if not isinstance(instr, Pair))
