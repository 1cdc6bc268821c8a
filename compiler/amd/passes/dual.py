"""Joins two vector instructions into one (VOPD) that the hardware issues together. Pairs are searched within a short
window. Wave32 only.

A later instruction moves up to an earlier one where nothing between depends on it. The rules for registers are the
hardware's: destinations of different parity, first and second sources from different banks (number modulo 4), third
sources of different parity, at most two scalar values, at most one literal. Source: RDNA3 and RDNA4 ISA references,
"Dual Issue VALU".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from ringup.autogen.isa import target
from ringup.compiler.amd.instructions.code import Instr, Operand, Physical, Special
from ringup.compiler.amd.instructions.steps import Pair, Program, Step
from ringup.compiler.amd.passes.pairs import PairFinder
from ringup.compiler.isa.amd.encoding.constants import inline_code

# Instructions after the first of a pair among which the second is searched.
WINDOW: Final = 20
# Instructions whose two sources may be exchanged, and their names afterwards.
EXCHANGED: Final = {
    name: name for name in ("v_fmac_f32", "v_add_f32", "v_mul_f32", "v_max_f32", "v_min_f32", "v_max_num_f32", "v_min_num_f32", "v_add_nc_u32",
                            "v_and_b32", "v_mul_dx9_zero_f32", "v_dot2acc_f32_f16", "v_dot2acc_f32_bf16")
} | {"v_sub_f32": "v_subrev_f32", "v_subrev_f32": "v_sub_f32"}  # fmt: skip
# Types of operands that a half may have.
_PLAIN: Final = frozenset((Physical, Special, int, float))
ADDS_TO_RESULT: Final = frozenset(("v_fmac_f32", "v_dot2acc_f32_f16", "v_dot2acc_f32_bf16"))


class _Half:
    """One instruction that can be half of a pair: its name, its operands, and what the rules depend on. `src0` to
    `src2` are VGPR numbers, -1 where no VGPR is read.
    """

    __slots__ = (
        "_exchanged",
        "_other_name",
        "literal",
        "name",
        "operands",
        "result",
        "scalars",
        "src0",
        "src1",
        "src2",
    )

    def __init__(self, name: str, operands: list[Operand], other_name: str | None = None) -> None:
        self.name, self.operands = name, operands
        self.result = operands[0].first  # type: ignore[union-attr]
        self._other_name = other_name
        self._exchanged: _Half | None = None
        self.scalars: set[object] = set()
        self.literal: object = None
        self.src0 = self._source(operands[1])
        self.src1 = self.src2 = -1
        if name == "v_fmamk_f32":
            self._source(operands[2])
            self.src2 = self._source(operands[3])
        elif len(operands) > 2:
            self.src1 = self._source(operands[2])
            if name == "v_fmaak_f32":
                self._source(operands[3])
        if name in ADDS_TO_RESULT:
            self.src2 = self.result
        if name == "v_cndmask_b32":
            self.scalars.add("vcc_lo")

    @property
    def exchanged(self) -> _Half | None:
        """Return the same instruction with its two sources exchanged, None if they may not be."""
        if self._exchanged is None and self._other_name is not None:
            result, first, second = self.operands
            self._exchanged = _Half(self._other_name, [result, second, first])
        return self._exchanged

    def _source(self, operand: Operand) -> int:
        if isinstance(operand, Physical):
            if operand.bank == "v":
                return operand.first
            self.scalars.add(str(operand))
        elif isinstance(operand, Special):
            self.scalars.add(operand.name)
        elif inline_code(operand, "f32", 32) is None:  # type: ignore[arg-type]
            self.literal = (type(operand), operand)
        return -1


@cache
def _sides(name: str) -> dict[str, tuple[bool, bool]]:
    """Return for each mnemonic whether it can be the X half and whether it can be the Y half."""
    facts = target(name)
    x, y = (
        {row.mnemonic.replace("v_dual_", "v_") for op in range(1 << bits) if (row := facts.by_opcode(side, op))}
        for side, bits in (("VOPDX", 4), ("VOPDY", 5))
    )
    return {mnemonic: (mnemonic in x, mnemonic in y) for mnemonic in x | y}


def pair(program: Program) -> int:
    """Join pairs in every block; return their number."""
    if program.wave_size != 32:
        return 0
    finder = _Finder(program)
    for b, steps in enumerate(program.blocks):
        if len(steps) > 1:
            program.blocks[b] = finder.block(steps)
    return finder.pairs


class _Finder(PairFinder[_Half]):
    def __init__(self, program: Program) -> None:
        super().__init__(WINDOW)
        self.sides = _sides(program.code.target)

    def half(self, step: Step) -> _Half | None:
        """Return an instruction as half of a pair, None if it cannot be one."""
        instr = step.instr
        name, operands = instr.mnemonic, instr.operands
        if name not in self.sides or instr.modifiers or step.effects.kind != "valu":
            return None
        if name == "v_cndmask_b32":
            if str(operands[3]) != "vcc_lo":
                return None
            operands = operands[:3]
        if type(operands[0]) is not Physical or not _PLAIN.issuperset(map(type, operands)):
            return None
        second = 3 if name == "v_fmamk_f32" else 2
        swapped = EXCHANGED.get(name)
        right = len(operands) <= 2 or _is_vector(operands[second])
        if not right and not (swapped and _is_vector(operands[1])):
            return None
        may_exchange = swapped in self.sides and len(operands) == 3 and _is_vector(operands[1])
        if right:
            return _Half(name, operands, swapped if may_exchange else None)
        return _Half(swapped, [operands[0], operands[2], operands[1]]) if may_exchange and swapped is not None else None

    def join(self, first: _Half, second: _Half, overwrites: bool) -> Instr | None:
        """Return the pair if the rules allow it. `overwrites`: the second writes what the first reads, so it must be
        Y.
        """
        if (first.result ^ second.result) & 1 == 0:
            return None
        sides = self.sides
        for a, b in _ways(first, second):
            if not self._ports(a, b) or not _scalars_fit(a, b):
                continue
            if sides[a.name][0] and sides[b.name][1]:
                return Pair(_dual(a), _dual(b))
            if not overwrites and sides[b.name][0] and sides[a.name][1]:
                return Pair(_dual(b), _dual(a))
        return None

    @staticmethod
    def _ports(a: _Half, b: _Half) -> bool:
        """Return whether no two reads need the same bank. QUIRK: RDNA4's reference allows one register for both; LLVM
        refuses that, and so do we.
        """
        for one, other in ((a.src0, b.src0), (a.src1, b.src1)):
            if one >= 0 and other >= 0 and (one ^ other) & 3 == 0:
                return False
        return not (a.src2 >= 0 and b.src2 >= 0 and (a.src2 ^ b.src2) & 1 == 0)


def _ways(first: _Half, second: _Half) -> Iterator[tuple[_Half, _Half]]:
    """Yield the two halves with their sources in either order."""
    for i in range(4):
        a = first.exchanged if i & 2 else first
        b = second.exchanged if i & 1 else second
        if a is not None and b is not None:
            yield a, b


def _is_vector(operand: Operand) -> bool:
    return isinstance(operand, Physical) and operand.bank == "v"


def _scalars_fit(a: _Half, b: _Half) -> bool:
    if a.literal is not None and b.literal is not None and a.literal != b.literal:
        return False
    return len(a.scalars | b.scalars) + (a.literal is not None or b.literal is not None) <= 2


def _dual(half: _Half) -> Instr:
    return Instr(half.name.replace("v_", "v_dual_", 1), *half.operands)
