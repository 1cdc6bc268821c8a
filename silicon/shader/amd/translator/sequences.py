"""Check the rules about consecutive instructions over all blocks of a program.

What a block follows depends on the path to it. A `State` is what later rules need of a wave's last instructions; it is
empty after most blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.interpreter.hazards import MAX_BETWEEN, Sequence, State, is_vector
from ringup.silicon.shader.amd.strict.history import RuleBroken

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Block, Key
    from ringup.silicon.shader.amd.decoding.generations import Generation

FRESH: State = Sequence().state
Broken = tuple[int, RuleBroken]  # index of the instruction in its block


@dataclass(slots=True)
class Ways:
    """For each block and state before it: the state after it, and the rule that it breaks, if any."""

    behind: dict[Key, dict[State, State]] = field(default_factory=dict)
    broken: dict[Key, dict[State, Broken]] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        """Whether some block breaks a rule only after certain predecessors."""
        return any(before is not FRESH for some in self.broken.values() for before in some)


def follow(blocks: dict[Key, Block], generation: Generation) -> Ways:
    """Find the states after all blocks and the rules that they break, for each state before them."""
    trails = generation.trails_transcendentals
    found = Ways({key: {} for key in blocks}, {key: {} for key in blocks})
    for key, block in blocks.items():
        _check_block(found, key, block, FRESH, trails=trails)
    work = [(key, FRESH) for key in blocks]
    while work:
        key, before = work.pop()
        block = blocks[key]
        after = found.behind[key][before]
        if after is FRESH or block.ending == "leave":
            continue
        for other in block.successors:
            if after not in found.behind[other]:
                _check_block(found, other, blocks[other], after, trails=trails)
                work.append((other, after))
    return found


def _check_block(found: Ways, key: Key, block: Block, before: State, *, trails: bool) -> None:
    """Check a block after `before`, which matters for a few vector instructions, or to the end of a clause."""
    sequence, vectors = Sequence(before, trails_transcendentals=trails), 0
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
