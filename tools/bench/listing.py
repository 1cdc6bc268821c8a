"""Machine code of any compiler, decoded into the back end's instructions. The chip's model and instruction counts use
it.

Source: RDNA3 ISA reference (encodings), through `compiler/isa`'s decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.amd.instructions.code import Block, Code, Instr, Operand, Special, physical
from ringup.compiler.amd.instructions.steps import Pair
from ringup.compiler.amd.model import Estimate, estimate
from ringup.compiler.isa.amd.assembly.disassembler import branch_target
from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.processor import processor
from ringup.compiler.isa.amd.encoding.registers import Literal, Marked, Register
from ringup.compiler.isa.amd.encoding.registers import Operand as Decoded
from ringup.errors import CompileError

PADDING = ("s_code_end",)
NAMES = {"src_scc": "scc"}
ALIKE = 0.5  # two blocks are one trace if each runs at least this share of the other's count


@dataclass(frozen=True)
class Listing:
    """One kernel's code as blocks, and the byte offset of each block's first instruction."""

    code: Code
    starts: tuple[int, ...]


def listing(name: str, target: str, data: bytes, group_size: int, wave_size: int = 32) -> Listing:
    """Decode the code of one kernel, from its entry to the padding after it. Raise CompileError at bytes that are not
    an instruction.
    """
    machine = processor(target, wave_size)
    found: list[tuple[int, Instruction]] = []
    for offset, one in machine.walk(data):
        if one is not None and one.mnemonic in PADDING:
            break
        if one is None:
            raise CompileError(
                f"kernel {name}: byte {offset:#x} begins no instruction of {target}: {data[offset : offset + 8].hex()}"
            )
        found.append((offset, one))
    targets = {to for offset, one in found if (to := branch_target(offset, one)) is not None}
    blocks: list[Block] = []
    starts: list[int] = []
    fresh = True
    for offset, one in found:
        if fresh or offset in targets:
            blocks.append(Block(f"b{len(blocks)}"))
            starts.append(offset)
        blocks[-1].instrs.append(_instr(one))
        fresh = one.mnemonic.startswith(("s_branch", "s_cbranch", "s_endpgm"))
    place = dict(zip(starts, blocks, strict=True))
    at = {block: i for i, block in enumerate(blocks)}
    for offset, one in found:
        to = branch_target(offset, one)
        if to is None:
            continue
        holder = blocks[max(i for i, start in enumerate(starts) if start <= offset)]
        goal = place.get(to)
        if goal is None:
            raise CompileError(f"kernel {name}: the branch at {offset:#x} goes to {to:#x}, where no instruction begins")
        holder.instrs[-1].operands[0] = goal
        if at[goal] <= at[holder] and (goal.loop_end is None or at[goal.loop_end] < at[holder]):
            goal.loop_end = holder
    for first in blocks:
        if first.loop_end is not None:
            for block in blocks[at[first] : at[first.loop_end] + 1]:
                block.depth += 1
    return Listing(Code(name, target, blocks, [], 0, group_size, wave_size), tuple(starts))


@dataclass(frozen=True)
class Trace:
    """Blocks that a wave executes in sequence, and how often. `loops`: the end branches back to the start."""

    instrs: tuple[Instr, ...]
    runs: float
    loops: bool

    def timed(self, target: str, wave_size: int, waves: int) -> Timed:
        """Estimate it as one block, in its steady state if it loops, with `waves - 1` other waves on the SIMD."""
        block, elsewhere = Block("trace"), Block("elsewhere")
        for one in self.instrs:
            made = one
            if one.operands and isinstance(one.operands[0], Block):
                made = Instr(one.mnemonic, block if self.loops and one is self.instrs[-1] else elsewhere)
            block.instrs.append(made)
        block.loop_end = block if self.loops else None
        found, _ = estimate(Code("trace", target, [block, elsewhere], [], 0, 32, wave_size), waves)
        return Timed(self.instrs, self.runs, self.loops, found, waves)


@dataclass(frozen=True)
class Timed(Trace):
    """A trace with its estimate for a number of waves per SIMD."""

    estimate: Estimate
    waves: int

    @property
    def cycles(self) -> float:
        """Return the cycles of one wave for all runs."""
        return self.runs * self.estimate.together / self.waves


def traces(found: Listing, runs: Sequence[float]) -> list[Trace]:
    """Join consecutive blocks that run about equally often, so that a load in one and its wait in the next are seen
    together.

    `runs` says how often a wave executes each block. Blocks that never run are left out.
    """
    blocks = [(block, times) for block, times in zip(found.code.blocks, runs, strict=True) if times > 0]
    made: list[Trace] = []
    i = 0
    while i < len(blocks):
        first, most = blocks[i]
        j, end = i + 1, first.loop_end
        if end is not first:
            while j < len(blocks) and blocks[j][0].depth == first.depth and (blocks[j][0].loop_end is None):
                times = blocks[j][1]
                if min(times, most) < ALIKE * max(times, most):
                    break
                j += 1
                if blocks[j - 1][0] is end:
                    break
        joined = [block for block, _ in blocks[i:j]]
        instrs = tuple(instr for block in joined for instr in block.instrs)
        made.append(Trace(instrs, max(times for _, times in blocks[i:j]), end is not None and joined[-1] is end))
        i = j
    return made


def _instr(one: Instruction) -> Instr:
    # SDWA reads and writes parts of registers, at the same cost.
    made = Instr(one.mnemonic.removesuffix("_sdwa"), *map(_operand, one.operands), **one.modifiers)
    if one.second is None:
        return made
    return Pair(made, Instr(one.second.mnemonic, *map(_operand, one.second.operands)))


def _operand(one: Decoded) -> Operand:
    """Return an operand with its registers, which the model uses; without signs."""
    if isinstance(one, tuple):
        raise CompileError(f"{one}: an image's address in several places has no form here")
    if isinstance(one, Marked):
        one = one.value
    if isinstance(one, Literal):
        one = one.value
    if not isinstance(one, Register):
        return one
    if one.name:
        return Special(NAMES.get(one.name, one.name))
    if one.kind == "t":
        return Special(f"ttmp{one.index}")
    return physical("v" if one.kind in "va" else "s", one.index, one.count)
