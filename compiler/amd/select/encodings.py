"""Fits operands to the encodings of GFX9, after selection: a vector instruction reads one scalar value (an SGPR or
pair, VCC as a mask, or a literal), and only the short encodings have a literal, as their first source.

A literal elsewhere is put into an SGPR, once for a block, or once for the kernel if the block is in a loop. Scalars
beyond the first are copied to VGPRs. Source: CDNA3 ISA reference, "Vector ALU Operands", "Limitations on Constants";
LLVM SIInstrInfo.cpp, verifyInstruction (constant bus).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ringup.autogen.isa import InstructionFacts
from ringup.compiler.amd.instructions.code import EXEC, Block, Instr, Operand, Part, Reg, Signed, Special
from ringup.compiler.amd.instructions.effects import VCC_LO, EffectTable, effects
from ringup.errors import CompileError

_SHORT: Final = frozenset(("VOP1", "VOP2", "VOPC"))
# Literals kept in SGPRs for the whole kernel, and for a block.
MAX_KEPT, MAX_OF_BLOCK = 24, 16
# Those kept in VGPRs for a block.
MAX_VECTORS: Final = 4
# Instructions whose scalar sources are no constants: lane numbers, and a source that must be scalar.
_LANES: Final = frozenset(("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32"))


def fit_encodings(blocks: Sequence[Block], target: str) -> None:
    """Insert the copies that the vector instructions of a kernel need."""
    fitting = _Fitting(effects(target))
    for block in blocks:
        block.instrs = fitting.block(block)
    blocks[0].instrs[:0] = fitting.kept_moves


class _Fitting:
    def __init__(self, table: EffectTable) -> None:
        self._table = table
        self._kept: dict[int, Reg] = {}
        self.kept_moves: list[Instr] = []
        self._here: dict[int, Reg] = {}
        self._vectors: dict[int, Reg] = {}
        self._made: list[Instr] = []
        self._loops = False

    def block(self, block: Block) -> list[Instr]:
        """Return the instructions of a block, with the copies."""
        self._here, self._vectors, self._made, self._loops = {}, {}, [], block.depth > 0
        for instr in block.instrs:
            if instr.mnemonic[:2] == "v_" and instr.mnemonic not in _LANES:
                self._fit(instr)
            elif "saveexec" in instr.mnemonic or instr.operands[:1] == [EXEC]:
                # Copies made for the lanes of before may lack lanes, or have more.
                self._vectors = {}
            self._made.append(instr)
        return self._made

    def _fit(self, instr: Instr) -> None:
        found = self._table.of(instr)
        # Masks and literals of the encoding's own take precedence.
        scalar: object = Special("vcc") if VCC_LO in found.hidden_uses else None
        operands = instr.operands
        form = self._short_form(instr)
        tail = _tail(self._table.forms(instr.mnemonic))
        if tail is not None:
            scalar = operands[tail]
        elif _has_mask(instr):
            scalar = operands[-1]
        for i in found.uses:
            operand = operands[i]
            base = operand.source if isinstance(operand, Signed) else operand
            if i == tail or not _is_scalar(base) or i in found.defs:
                continue
            if scalar is not None and base != scalar:
                operands[i] = self._in_vector(operand)
                continue
            if isinstance(base, int):
                if tail is not None:
                    operands[i] = self._in_vector(operand)
                    continue
                if form is None or i != form:
                    operands[i] = base = self._in_scalar(base)
            scalar = base

    def _short_form(self, instr: Instr) -> int | None:
        """Return the position of the source that may be a literal, None if the instruction needs the long encoding."""
        if instr.modifiers or any(isinstance(one, Signed) for one in instr.operands):
            return None
        found = self._table.of(instr)
        if not _SHORT.intersection(found.formats):
            return None
        # A mask other than VCC needs the long encoding, as source or as result.
        for one in instr.operands:
            if isinstance(one, (Reg, Part)) and _bank(one) == "s" and one is instr.operands[0]:
                return None
        if _has_carry(instr) and instr.operands[1] != Special("vcc"):
            return None
        sources = [i for i in found.uses if i not in found.defs]
        rest = sources[1:-1] if _has_mask(instr) else sources[1:]
        if any(_is_scalar(instr.operands[i], inline=True) for i in rest):
            return None
        return sources[0] if sources else None

    def _in_scalar(self, literal: int) -> Reg:
        kept = self._kept.get(literal) or self._here.get(literal)
        if kept is not None:
            return kept
        made = Reg("s")
        move = Instr("s_mov_b32", made, literal)
        if self._loops and len(self._kept) < MAX_KEPT:
            self._kept[literal] = made
            self.kept_moves.append(move)
            return made
        if len(self._here) < MAX_OF_BLOCK:
            self._here[literal] = made
        self._made.append(move)
        return made

    def _in_vector(self, operand: Operand) -> Operand:
        base = operand.source if isinstance(operand, Signed) else operand
        if isinstance(base, (Reg, Part)) and base.count > 1:
            made = Reg("v", base.count)
            for k in range(base.count):
                self._made.append(
                    Instr("v_mov_b32", made[k], base[k] if isinstance(base, Reg) else Part(base.reg, base.first + k, 1))
                )
        elif isinstance(base, Special) and base.name in ("vcc", "exec"):
            raise CompileError(f"{base} as a second scalar operand")
        elif isinstance(base, int):
            found = self._vectors.get(base)
            if found is None:
                found = Reg("v")
                self._made.append(Instr("v_mov_b32", found, base))
                if len(self._vectors) < MAX_VECTORS:
                    self._vectors[base] = found
            made = found
        else:
            made = Reg("v")
            self._made.append(Instr("v_mov_b32", made, base))
        return Signed(made, operand.neg, operand.abs) if isinstance(operand, Signed) else made


def _bank(operand: Reg | Part) -> str:
    return operand.bank if isinstance(operand, Reg) else operand.reg.bank


def _is_scalar(operand: Operand, *, inline: bool = False) -> bool:
    """Return whether an operand takes the one scalar read: SGPRs, a named register or a literal. `inline`: or is any
    constant.
    """
    if isinstance(operand, (Reg, Part)):
        return _bank(operand) == "s"
    if isinstance(operand, (int, float)):
        return inline or (isinstance(operand, int) and not -16 <= operand <= 64)
    return isinstance(operand, Special)


def _tail(forms: Sequence[InstructionFacts]) -> int | None:
    """Return the position of a literal that the encoding always has."""
    for form in forms:
        if "tail" in form.flags:
            shown = [one for one in form.operands if one.field != "hidden"]
            return next(i for i, one in enumerate(shown) if one.field == "literal")
    return None


def _has_mask(instr: Instr) -> bool:
    return "cndmask" in instr.mnemonic or "_co_ci_" in instr.mnemonic


def _has_carry(instr: Instr) -> bool:
    return "_co_" in instr.mnemonic
