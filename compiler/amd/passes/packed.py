"""Joins two f32 instructions into a packed one, which CDNA3 executes in the time of one: sums, products, multiply-adds.

Results go to an even VGPR and the next one. Each source is a pair of VGPRs that begins at an even one; op_sel and
op_sel_hi choose the dword of it for the lower and the upper result, so a source may be the same register for both.
Scalars and constants stay unpacked. Source: CDNA3 ISA reference, "Packed Math", V_PK_FMA_F32; LLVM
VOP3PInstructions.td, V_PK_FMA_F32.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import Instr, Physical, Signed, physical
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.passes.pairs import PairFinder

WINDOW: Final = 20
# For each instruction: the operation, and the position of a source whose sign changes (-1: none).
_OPERATIONS: Final = {
    "v_add_f32": ("add", -1), "v_sub_f32": ("add", 1), "v_subrev_f32": ("add", 0), "v_mul_f32": ("mul", -1), "v_fma_f32": ("fma", -1),
    "v_fmac_f32": ("fma", -1),
}  # fmt: skip


class _Half(NamedTuple):
    """One instruction: its operation, the number of its result, and of its sources, with their signs."""

    operation: str
    result: int
    sources: tuple[tuple[int, bool], ...]


def pack(program: Program) -> int:
    """Join pairs in every block; return their number."""
    finder = _Finder(program)
    for b, steps in enumerate(program.blocks):
        if len(steps) > 1:
            program.blocks[b] = finder.block(steps)
    return finder.pairs


class _Finder(PairFinder[_Half]):
    def __init__(self, program: Program) -> None:
        super().__init__(WINDOW)
        self._program = program

    def half(self, step: Step) -> _Half | None:
        """Return an instruction whose operands are all VGPRs, without modifiers."""
        instr = step.instr
        known = _OPERATIONS.get(instr.mnemonic)
        if known is None or instr.modifiers:
            return None
        operation, changed = known
        result, *sources = instr.operands
        if instr.mnemonic == "v_fmac_f32":
            sources.append(result)
        found = []
        for i, one in enumerate(sources):
            register, negative = (one.source, one.neg) if isinstance(one, Signed) else (one, False)
            if not isinstance(register, Physical) or register.bank != "v" or (isinstance(one, Signed) and one.abs):
                return None
            found.append((register.first, negative != (i == changed)))
        assert isinstance(result, Physical)
        return _Half(operation, result.first, tuple(found))

    def join(self, first: _Half, second: _Half, overwrites: bool) -> Instr | None:
        """Return the packed instruction, if results and sources are pairs. The hardware reads all sources first."""
        if first.operation != second.operation or first.result ^ second.result != 1:
            return None
        low, high = (first, second) if first.result < second.result else (second, first)
        sources = high.sources
        if not _pairs(low.sources, sources):
            # The factors, or the terms of a sum, may be exchanged.
            sources = (sources[1], sources[0], *sources[2:])
            if not _pairs(low.sources, sources):
                return None
        operands = [physical("v", number & ~1, 2) for number, _ in low.sources]
        both = (low.sources, sources)
        op_sel, op_sel_hi = (tuple(number & 1 for number, _ in one) for one in both)
        neg_lo, neg_hi = (tuple(int(negative) for _, negative in one) for one in both)
        packed = Instr(f"v_pk_{low.operation}_f32", physical("v", low.result, 2), *operands)
        packed.modifiers["op_sel_hi"] = op_sel_hi
        for name, bits in (("op_sel", op_sel), ("neg_lo", neg_lo), ("neg_hi", neg_hi)):
            if any(bits):
                packed.modifiers[name] = bits
        return packed

    def step(self, joined: Instr, first: Step, second: Step) -> Step:
        """Return the step. It reads whole pairs of registers, also a half that neither instruction uses: that one must
        not be on its way from memory.
        """
        return self._program.step(joined)


def _pairs(low: tuple[tuple[int, bool], ...], high: tuple[tuple[int, bool], ...]) -> bool:
    """Return whether each source of one is in the same pair of registers as that of the other."""
    return all(a >> 1 == b >> 1 for (a, _), (b, _) in zip(low, high, strict=True))
