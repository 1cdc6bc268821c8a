"""Find the origin of an undefined value: a register that was never written, or LDS bytes that were never written.

Translated code tracks whether registers are written, not where their values come from. So the origin is searched after
a violation, in the program's code alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR
from ringup.silicon.shader.amd.strict.analysis import lds_fills, reads
from ringup.silicon.shader.amd.strict.indirect import is_indirect, moves
from ringup.silicon.shader.amd.strict.registers import scalar_name, vector_name

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Key, Program, Step

    Place = tuple[Key, int, int]  # block, index past the last instruction that may have written it, register


def register_name(register: int) -> str:
    """Return the name of a register numbered as in `analysis`."""
    return vector_name(register - FIRST_VGPR) if register >= FIRST_VGPR else scalar_name(register)


def birth(program: Program, base: int, lanes: int, pc: int, register: int, written: int) -> str:
    """Return the origin of the undefined value in `register` at `pc`; empty if the register itself was never written.

    `base` is the program's gpu_va, `written` the registers that are written at the program's entry.
    """
    vectors = -1 << FIRST_VGPR
    # An instruction that writes some lanes of a VGPR keeps the others. So the search first stops at every write. Then
    # it passes writes of other VGPRs, and last writes of the register itself.
    for kept in (0, vectors & ~(1 << register), vectors):
        found = _search(program, base, lanes, pc - base, register, written, kept)
        if found is not None:
            return found
    return ""


def _search(program: Program, base: int, lanes: int, offset: int, register: int, written: int, kept: int) -> str | None:
    """Search backwards over all paths, breadth first. For registers in `kept` the search also goes on past their
    writes.
    """
    before: dict[Key, list[Key]] = {key: [] for key in program.blocks}
    work: list[Place] = []
    for key, block in program.blocks.items():
        for other in block.successors:
            before[other].append(key)
        work += [(key, at, register) for at, step in enumerate(block.code) if step.offset == offset]
    seen = set(work)
    # The list grows while the loop runs.
    for key, end, one in work:
        at = _written_before(program.blocks[key].code[:end], one, lanes)
        more: list[Place] = []
        if at is not None:
            step = program.blocks[key].code[at]
            if one in lds_fills(step.ins):
                return f"LDS that was never written, loaded at {base + step.offset:#x}"
            if _picked_by_m0(step, one, lanes):
                return f"a register that M0 picked at {base + step.offset:#x}"
            more = [(key, at, source) for source in _sources(step, one, lanes)]
            if kept >> one & 1 or is_indirect(step.ins):
                more.append((key, at, one))
        elif key == program.entries[0] and not written >> one & 1:
            return "" if one == register else f"{register_name(one)}, which was never written"
        if at is None:
            more = [(other, len(program.blocks[other].code), one) for other in before[key]]
        work += [place for place in more if place not in seen]
        seen.update(more)
    return None


def _written_before(code: list[Step], register: int, lanes: int) -> int | None:
    """Return the index of the last instruction that writes a register, or may write it through M0."""
    for at in reversed(range(len(code))):
        by_m0 = any(target.reached(lanes) >> register & 1 for target, _ in moves(code[at].ins))
        if by_m0 or code[at].effects.defs >> register & 1:
            return at
    return None


def _picked_by_m0(step: Step, register: int, lanes: int) -> bool:
    """Return whether a move writes a register that the code alone names from a source that M0 selects."""
    return any(
        target.bits is None and target.reached(lanes) >> register & 1 and source is not None and source.bits is not None
        for target, source in moves(step.ins)
    )


def _sources(step: Step, register: int, lanes: int) -> tuple[int, ...]:
    """Return the registers from which an instruction computes `register`, as far as the code alone determines them."""
    if is_indirect(step.ins):
        known = [source for _, source in moves(step.ins) if source is not None and source.bits is None]
        return tuple(source.first for source in known)
    return tuple(source for target, some in reads(step.ins, lanes).moves if target == register for source in some)
