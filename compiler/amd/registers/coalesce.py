"""Coalescing: joins registers that copies connect. A frame is a run of dwords that several virtual registers share at
fixed offsets.

A copy whose sides are never live at once is removed. A temporary that is moved into a part of a wide register becomes
that part from the start. Conservative coalescing in Chaitin's sense is not needed: frames only grow where the live
ranges of all their dwords are disjoint, and spilling splits them again.
"""

from __future__ import annotations

from ringup.compiler.amd.instructions.code import Operand, Part, Reg
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.registers.liveness import Liveness

COPIES = frozenset(("v_mov_b32", "s_mov_b32", "s_mov_b64"))
# Dwords of a frame at most: no instruction takes more at once.
WIDEST = 32


class Frame:
    """`masks[i]`: where dword i is live. `members`: the registers in the frame with their offsets. The number of its
    first register, modulo `align`, is `residue`.
    """

    __slots__ = ("align", "bank", "count", "fixed", "masks", "members", "number", "residue", "whole")

    def __init__(self, reg: Reg, masks: list[int], vgpr_align: int) -> None:
        self.bank, self.count, self.masks, self.fixed = reg.bank, reg.count, masks, reg.fixed
        self.members: list[tuple[Reg, int]] = [(reg, 0)]
        self.align = 1 if reg.count == 1 else vgpr_align if reg.bank == "v" else 2 if reg.count == 2 else 4
        self.residue = 0
        # The physical register assigned to it.
        self.number = -1
        self.whole = 0
        for mask in masks:
            self.whole |= mask


class Frames:
    """All frames of a program, and the place of each register in them."""

    def __init__(self, program: Program, liveness: Liveness) -> None:
        self.place: dict[Reg, tuple[Frame, int]] = {}
        align = limits(program.code.target).vgpr_align
        for reg in program.regs:
            base = program.base[reg]
            self.place[reg] = (Frame(reg, liveness.mask[base : base + reg.count], align), 0)
        # Copies that could not be removed.
        self.hints: list[tuple[Reg, int, Reg, int]] = []

    def all(self) -> list[Frame]:
        """Return the frames in the order of their registers."""
        return list(dict.fromkeys(frame for frame, _ in self.place.values()))

    def join(self, one: Reg, one_at: int, other: Reg, other_at: int) -> bool:
        """Put dword `one_at` of one register and `other_at` of another at the same place, if live ranges, fixed numbers
        and alignments allow it. Return whether that was done.
        """
        a, a_at = self.place[one]
        b, b_at = self.place[other]
        # The number of b's first dword in a.
        shift = (a_at + one_at) - (b_at + other_at)
        if a is b:
            return shift == 0
        # Make `a` the one that contains the other.
        if shift < 0 or b.count + shift > a.count:
            if shift > 0 or a.count - shift > b.count:
                return False
            a, b, shift = b, a, -shift
        if a.fixed is not None and b.fixed is not None:
            return False
        fixed = a.fixed if b.fixed is None else b.fixed - shift
        if b.fixed is not None and b.count != a.count:
            return False
        align, residue = a.align, a.residue
        if b.align > 1:
            wanted = (b.residue - shift) % b.align
            small, large = sorted(((align, residue), (b.align, wanted)))
            if large[1] % small[0] != small[1]:
                return False
            align, residue = large
        if fixed is not None and fixed % align != residue:
            return False
        masks, theirs = a.masks, b.masks
        if a.whole & b.whole:
            for k, mask in enumerate(theirs):
                if masks[shift + k] & mask:
                    return False
        for k, mask in enumerate(theirs):
            masks[shift + k] |= mask
        a.whole |= b.whole
        a.fixed, a.align, a.residue = fixed, align, residue
        for reg, at in b.members:
            self.place[reg] = (a, at + shift)
            a.members.append((reg, at + shift))
        return True


def whole_part(operand: Operand) -> tuple[Reg, int, int] | None:
    """Return register, first dword and count of an operand that is a virtual register."""
    if isinstance(operand, Reg):
        return operand, 0, operand.count
    if isinstance(operand, Part):
        return operand.reg, operand.first, operand.count
    return None


def is_copy(step: Step) -> bool:
    """Return whether a step only moves one register to another of its file."""
    instr = step.instr
    return instr.mnemonic in COPIES and not instr.modifiers


def coalesce(program: Program, liveness: Liveness) -> Frames:
    """Create frames, then join the sides of copies, innermost loops first, and the results of matrix products with
    their addends.
    """
    frames = Frames(program, liveness)
    wanted: list[tuple[int, int, tuple[Reg, int, int], tuple[Reg, int, int]]] = []
    products = []
    for b, steps in enumerate(program.blocks):
        depth = program.code.blocks[b].depth
        for i, step in enumerate(steps):
            if is_copy(step):
                to, source = whole_part(step.instr.operands[0]), whole_part(step.instr.operands[1])
                if to and source and to[0].bank == source[0].bank:
                    wanted.append((-depth, liveness.starts[b] + i, to, source))
            elif step.effects.kind == "wmma" and len(step.instr.operands) == 4:
                result, added = whole_part(step.instr.operands[0]), whole_part(step.instr.operands[3])
                if result and added and result[0] is not added[0]:
                    products.append((liveness.starts[b] + i, result, added))
                    wanted.append((-depth, liveness.starts[b] + i, result, added))
    wanted.sort(key=lambda one: one[:2])
    for _, _, to, source in wanted:
        if not frames.join(to[0], to[1], source[0], source[1]):
            frames.hints.append((to[0], to[1], source[0], source[1]))
    for number, result, added in products:
        frame, at = frames.place[result[0]]
        other, other_at = frames.place[added[0]]
        if frame is not other or at + result[1] != other_at + added[1]:
            # QUIRK: D and C must be the same registers or have none in common. Source: LLVM VOP3PInstructions.td, two
            # forms of each WMMA.
            for k in range(added[2]):
                other.masks[other_at + added[1] + k] |= 2 << 2 * number
                other.whole |= 2 << 2 * number
    return frames
