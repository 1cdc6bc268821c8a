"""A program as blocks: words that a launch can reach, from its entry on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringup.silicon.shader.nv.decoding.decode import decode
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Instruction, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

# A path goes on elsewhere, or waits and is taken up behind the instruction.
ENDS = ("BRA", "EXIT", "BSYNC", "WARPSYNC", "YIELD", "BAR")


@dataclass(frozen=True)
class Block:
    """Instructions that run one after another; only the last one may leave the block."""

    start: int
    instructions: tuple[Instruction, ...]

    @property
    def end(self) -> int:
        """The place behind the block, in bytes from the entry."""
        return self.start + WORD_BYTES * len(self.instructions)


def target_of(ins: Instruction, at: int) -> int:
    """Return where a BRA leads, in bytes from the entry."""
    return at + WORD_BYTES + ins.operands[-1].value


def blocks_of(target: str, read: Callable[[int], int]) -> dict[int, Block]:
    """Return the blocks by their start, in bytes from the entry. `read` returns the word at such a place.

    Raises what `read` and the decoder raise.
    """
    known: dict[int, Instruction] = {}
    leaders, todo = {0}, [0]
    while todo:
        at = todo.pop()
        while at not in known:
            ins = known[at] = decode(target, read(at))
            following = at + WORD_BYTES
            if ins.name == "BRA":
                leaders.add(target_of(ins, at))
                todo.append(target_of(ins, at))
            if ins.name in ENDS:
                leaders.add(following)
            if ins.name in ("BRA", "EXIT") and not may_fall(ins):
                break
            at = following
    return {start: _block(known, start, leaders) for start in sorted(leaders) if start in known}


def may_fall(ins: Instruction) -> bool:
    """Return whether some lanes may go on behind a branch or an exit."""
    conditions = [one for one in ins.operands if one.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE)]
    return ins.is_guarded or any(one.value != 7 or one.invert for one in conditions)


def _block(known: dict[int, Instruction], start: int, leaders: set[int]) -> Block:
    found, at = [], start
    while at in known:
        found.append(known[at])
        at += WORD_BYTES
        if at in leaders or found[-1].name in ENDS:
            break
    return Block(start, tuple(found))


def successors(block: Block) -> list[int]:
    """Return where paths go on behind a block."""
    last = block.instructions[-1]
    found = []
    if last.name == "BRA":
        found.append(target_of(last, block.end - WORD_BYTES))
    if last.name not in ("BRA", "EXIT") or may_fall(last):
        found.append(block.end)
    return found
