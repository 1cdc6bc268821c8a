"""Code for processors that no virtual core runs here, compared with LLVM's by what stands in it: instructions of the
kernel, of its innermost loops, and wait states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringup.compiler.compile import Step
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.target import target
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.listing import listing
from ringup.tools.bench.llvm import back_end
from ringup.tools.bench.llvm.ir import module

# Ours adds to addresses by two scalar instructions, LLVM by one vector instruction.
GOAL = Goal("ratio", 0.85)


class Written(NamedTuple):
    """What stands in one kernel's code. `loops`: instructions of the loops within most others; `nops`: s_nop."""

    instructions: int
    loops: int
    nops: int


def written(elf: bytes, step: Step) -> Written:
    """Count one kernel of a code object, to its last s_endpgm."""
    binary = step.binary
    found = elf_read.read(elf, binary.name)
    symbol = next(one for one in found.symbols if one.name == binary.name and one.section == ".text")
    data = found.sections[".text"].data[symbol.offset : symbol.offset + symbol.size_bytes]
    blocks = listing(binary.name, binary.target, data, binary.group_size, binary.wave_size).code.blocks
    every = [(block.depth, instr.mnemonic) for block in blocks for instr in block.instrs]
    last = max(i for i, (_, name) in enumerate(every) if name == "s_endpgm")
    every = every[: last + 1]
    deepest = max(depth for depth, _ in every)
    loops = sum(depth == deepest for depth, _ in every) if deepest else 0
    return Written(len(every), loops, sum(name == "s_nop" for _, name in every))


def compared(step: Step) -> tuple[Written, Written]:
    """Return what stands in our code of a kernel, and in LLVM's."""
    name = step.binary.target
    ours = target(name).code_object([step.binary])
    return written(ours, step), written(back_end.code_object(module(step.lowered.function, name), name), step)


def figures(graph: str, steps: list[Step]) -> Iterator[Figure]:
    """Compare the kernels of one graph, all together."""
    both = [compared(step) for step in steps]
    ours, theirs = (Written(*map(sum, zip(*side, strict=True))) for side in zip(*both, strict=True))
    beside = f"LLVM {back_end.version()} -O3"
    place = f"{steps[0].binary.target}: {graph}"
    yield Figure(f"{place}: instructions", "instructions", ours.instructions, theirs.instructions, GOAL, beside=beside)
    if ours.loops or theirs.loops:
        yield Figure(f"{place}: innermost loops", "instructions", ours.loops, theirs.loops, GOAL, beside=beside)
    if ours.nops or theirs.nops:
        yield Figure(f"{place}: s_nop", "instructions", ours.nops, theirs.nops, None, beside=beside)
