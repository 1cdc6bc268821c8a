"""Rules about instructions that follow each other, over the blocks of a program: what a block begins behind is known by
the way into it.

A `State` is what a wave's last instructions leave to look back at; most blocks leave nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.silicon.shader.rdna.interpreter.hazards import MAX_BETWEEN, Sequence, State, is_vector
from ringup.silicon.shader.rdna.strict.history import RuleBroken

if TYPE_CHECKING:
    from ringup.silicon.shader.rdna.decoding.cfg import Block, Key

FRESH: State = Sequence().state
Broken = tuple[int, RuleBroken]  # number of the instruction within its block


@dataclass(slots=True)
class Ways:
    """By block and state before it: the state behind it and the rule that it breaks, if any."""

    behind: dict[Key, dict[State, State]] = field(default_factory=dict)
    broken: dict[Key, dict[State, Broken]] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        """Whether a block breaks a rule only after some of the blocks before it."""
        return any(before is not FRESH for some in self.broken.values() for before in some)


def follow(blocks: dict[Key, Block]) -> Ways:
    """Find what blocks leave and break, by what was before them."""
    found = Ways({key: {} for key in blocks}, {key: {} for key in blocks})
    for key, block in blocks.items():
        _take(found, key, block, FRESH)
    work = [(key, FRESH) for key in blocks]
    while work:
        key, before = work.pop()
        block = blocks[key]
        after = found.behind[key][before]
        if after is FRESH or block.ending == "leave":
            continue
        for other in block.successors:
            if after not in found.behind[other]:
                _take(found, other, blocks[other], after)
                work.append((other, after))
    return found


def _take(found: Ways, key: Key, block: Block, before: State) -> None:
    """Go through a block; what was before it counts for a few vector instructions, or to the end of a clause."""
    sequence, vectors = Sequence(before), 0
    for index, step in enumerate(block.code):
        if before is not FRESH and vectors > MAX_BETWEEN and index > before.left:
            found.behind[key][before] = found.behind[key][FRESH]
            if FRESH in found.broken[key]:
                found.broken[key][before] = found.broken[key][FRESH]
            return
        vectors += is_vector(step.ins)
        try:
            sequence.check(step.ins)
        except RuleBroken as broken:
            found.broken[key][before] = index, broken
            break
    state = sequence.state
    found.behind[key][before] = FRESH if state == FRESH else state
