"""Check the rules about consecutive instructions over all blocks of a program.

What a block follows depends on the path to it. A state is what later rules need of a wave's last instructions; it is
empty after most blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.interpreter.gcn_hazards import GcnSequence, GcnState
from ringup.silicon.shader.amd.interpreter.hazards import Sequence, State
from ringup.silicon.shader.amd.strict.history import RuleBroken

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Block, Key
    from ringup.silicon.shader.amd.decoding.generations import Generation

Before = State | GcnState
Broken = tuple[int, RuleBroken]  # index of the instruction in its block


@dataclass(slots=True)
class Ways:
    """For each block and state before it: the state after it, and the rule that it breaks, if any."""

    fresh: Before
    behind: dict[Key, dict[Before, Before]] = field(default_factory=dict)
    broken: dict[Key, dict[Before, Broken]] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        """Whether some block breaks a rule only after certain predecessors."""
        return any(before is not self.fresh for some in self.broken.values() for before in some)


def _sequence(of: Generation, before: Before | None = None) -> Sequence | GcnSequence:
    if of.is_gcn:
        return GcnSequence(before if isinstance(before, GcnState) else None)
    return Sequence(before if isinstance(before, State) else None, trails_transcendentals=of.trails_transcendentals)


def follow(blocks: dict[Key, Block], generation: Generation) -> Ways:
    """Find the states after all blocks and the rules that they break, for each state before them."""
    fresh = _sequence(generation).state
    found = Ways(fresh, {key: {} for key in blocks}, {key: {} for key in blocks})
    for key, block in blocks.items():
        _check_block(found, key, block, fresh, generation)
    work = [(key, fresh) for key in blocks]
    while work:
        key, before = work.pop()
        block = blocks[key]
        after = found.behind[key][before]
        if after is fresh or block.ending == "leave":
            continue
        for other in block.successors:
            if after not in found.behind[other]:
                _check_block(found, other, blocks[other], after, generation)
                work.append((other, after))
    return found


def _check_block(found: Ways, key: Key, block: Block, before: Before, generation: Generation) -> None:
    """Check a block after `before`, as far as that matters."""
    sequence, fresh = _sequence(generation, before), found.fresh
    for index, step in enumerate(block.code):
        if before is not fresh and sequence.is_settled:
            found.behind[key][before] = found.behind[key][fresh]
            if fresh in found.broken[key]:
                found.broken[key][before] = found.broken[key][fresh]
            return
        try:
            sequence.check(step.ins)
        except RuleBroken as broken:
            found.broken[key][before] = index, broken
            break
    state = sequence.state
    found.behind[key][before] = fresh if state == fresh else state
