"""Check the rules about consecutive instructions over all blocks of a program.

What a block follows depends on the path to it. A state is what later rules need of a wave's last instructions; it is
empty after most blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.interpreter.gcn_hazards import GcnSequence, GcnState
from ringup.silicon.shader.amd.interpreter.hazards import Sequence, State
from ringup.silicon.shader.amd.interpreter.scalar_hazards import ScalarHazards, ScalarState, join, settling_pairs
from ringup.silicon.shader.amd.strict.history import RuleBroken

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Block, Key
    from ringup.silicon.shader.amd.decoding.generations import Generation

Before = State | GcnState
# States before a block that are told apart. Code of a compiler that does not know RDNA4's rules of SGPRs has thousands.
STATES_LIMIT = 64
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


@dataclass(frozen=True, slots=True)
class _Rules:
    """What is followed: `scalars` are the pairs of SGPRs that may be read too early on some path, and those whose reads
    end that.
    """

    generation: Generation
    lanes: int
    scalars: frozenset[int] = frozenset()

    def sequence(self, before: Before | None = None) -> Sequence | GcnSequence:
        """Return the rules behind a state."""
        if self.generation.is_gcn:
            return GcnSequence(before if isinstance(before, GcnState) else None)
        start = before if isinstance(before, State) else State()
        scalars = ScalarHazards(self.lanes, start.scalars, self.scalars) if self.scalars else None
        trails = self.generation.trails_transcendentals
        return Sequence(start, trails_transcendentals=trails, scalars=scalars)


def follow(blocks: dict[Key, Block], generation: Generation, lanes: int, *, trusts_scalars: bool = False) -> Ways:
    """Find the states after all blocks and the rules that they break, for each state before them."""
    follows = generation.trails_scalars and not trusts_scalars
    scalars = doubtful_scalars(blocks, lanes) if follows else frozenset()
    rules = _Rules(generation, lanes, scalars)
    fresh = rules.sequence().state
    found = Ways(fresh, {key: {} for key in blocks}, {key: {} for key in blocks})
    for key, block in blocks.items():
        _check_block(found, key, block, fresh, rules)
    work = [(key, fresh) for key in blocks]
    while work:
        key, before = work.pop()
        block = blocks[key]
        after = found.behind[key][before]
        if after is fresh or block.ending == "leave":
            continue
        for other in block.successors:
            known = found.behind[other]
            if after not in known and (not scalars or len(known) < STATES_LIMIT):
                _check_block(found, other, blocks[other], after, rules)
                work.append((other, after))
    return found


def doubtful_scalars(blocks: dict[Key, Block], lanes: int) -> frozenset[int]:
    """Return the pairs of SGPRs that may be read too early, by half their number, and the pairs whose reads by the
    scalar ALU settle them. Paths are merged, so that a pair may be found of which each path is right.
    """
    before = dict.fromkeys(blocks, ScalarState())
    doubtful: set[int] = set()
    by_vectors = False
    work = list(blocks)
    while work:
        key = work.pop()
        hazards = ScalarHazards(lanes, before[key], merged=True)
        for step in blocks[key].code:
            for register, by_salu in hazards.step(step.ins):
                doubtful.add(register >> 1)
                by_vectors |= not by_salu
        after = hazards.state
        for other in blocks[key].successors if blocks[key].ending != "leave" else ():
            joined = join(before[other], after)
            if joined != before[other]:
                before[other] = joined
                work.append(other)
    if by_vectors:
        doubtful |= settling_pairs(step.ins for block in blocks.values() for step in block.code)
    return frozenset(doubtful)


def _check_block(found: Ways, key: Key, block: Block, before: Before, rules: _Rules) -> None:
    """Check a block after `before`, as far as that matters."""
    sequence, fresh = rules.sequence(before), found.fresh
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
            # the wave stops here
            found.behind[key][before] = fresh
            return
    state = sequence.state
    found.behind[key][before] = fresh if state == fresh else state
