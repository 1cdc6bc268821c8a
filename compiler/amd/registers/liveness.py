"""The live ranges of each dword of each virtual register, as one long integer for each dword: bit 2i for reads of
instruction i, 2i + 1 for its writes.

Two dwords can share a register if their integers have no common bit, so an interference test is one `&`. A register
that dies where another is written does not interfere with it. Instructions are numbered through all blocks in order. A
value that lives around a loop is live in all of it.
"""

from __future__ import annotations

from ringup.compiler.amd.instructions.steps import FIRST, Program, Step
from ringup.compiler.amd.registers.masks import UNKNOWN, States, states


class Liveness:
    """`mask[unit]`: where a unit is live. `starts[block]`: the number of a block's first instruction. `live_in[block]`:
    a set of units as bits.
    """

    __slots__ = ("count", "live_in", "live_out", "mask", "masks", "starts")

    def __init__(self, program: Program) -> None:
        blocks = program.blocks
        self.starts: list[int] = []
        number = 0
        for steps in blocks:
            self.starts.append(number)
            number += len(steps)
        self.count = number
        self.masks = states(program)
        keeps = _kept(program, self.masks)
        edges = program.edges()
        uses, kills = [0] * len(blocks), [0] * len(blocks)
        for b, steps in enumerate(blocks):
            uses[b], kills[b] = _summary(steps, keeps)
        self.live_in, self.live_out = _flow(edges, uses, kills)
        undefined = self.live_in[0] & ~_set_of({unit for reg in program.code.inputs for unit in program.units(reg)})
        if undefined >> FIRST:
            _refuse_never_written(program, undefined >> FIRST << FIRST)
        if keeps or undefined:
            _only_behind_writes(program, edges, _set_of(keeps) | undefined, self.live_in, self.live_out)
        self.mask = [0] * program.unit_count
        self._fill(program, keeps)

    def _fill(self, program: Program, keeps: set[int]) -> None:
        """Walk each block backwards. The range of a unit starts where it is written."""
        mask = self.mask
        for b, steps in enumerate(program.blocks):
            start = self.starts[b]
            end = start + len(steps)
            # Unit: the bit after its last use in this block.
            until: dict[int, int] = {}
            for unit in _bits(self.live_out[b]):
                until[unit] = 2 * end
            i = end
            for step in reversed(steps):
                i -= 1
                for unit in step.writes:
                    if unit in keeps:
                        if unit not in until:
                            mask[unit] |= 2 << 2 * i
                        continue
                    last = until.pop(unit, 0)
                    first = 2 * i + 1
                    mask[unit] |= ((1 << (last - first)) - 1) << first if last else 1 << first
                for unit in step.reads:
                    if unit not in until:
                        until[unit] = 2 * i + 1
                late = step.effects.late
                if late:
                    for position in late:
                        for unit in program.units(step.instr.operands[position]):
                            mask[unit] |= 2 << 2 * i
            first = 2 * start
            entering = self.live_in[b]
            for unit, last in until.items():
                if entering >> unit & 1:
                    mask[unit] |= ((1 << (last - first)) - 1) << first
                else:
                    # A register that keeps lanes: live from its first write in this block.
                    low = min(self._first_touch(steps, start, unit), last - 1)
                    mask[unit] |= ((1 << (last - low)) - 1) << low

    @staticmethod
    def _first_touch(steps: list[Step], start: int, unit: int) -> int:
        for i, step in enumerate(steps):
            if unit in step.writes:
                return 2 * (start + i) + 1
        return 2 * start


def _kept(program: Program, masks: States | None) -> set[int]:
    """Return the VGPR units that some instruction writes under a narrower mask than another one reads or writes them.
    Writes do not end their ranges.
    """
    if masks is None:
        return set()
    vector = bytearray(program.unit_count)
    for reg in program.regs:
        if reg.bank == "v":
            base = program.base[reg]
            for unit in range(base, base + reg.count):
                vector[unit] = 1
    touched: dict[int, set[int]] = {}
    written: dict[int, set[int]] = {}
    for b, steps in enumerate(program.blocks):
        state, changes = masks.at[b], dict(masks.changes[b])
        for i, step in enumerate(steps):
            for unit in step.reads:
                if vector[unit]:
                    touched.setdefault(unit, set()).add(state)
            for unit in step.writes:
                if vector[unit]:
                    touched.setdefault(unit, set()).add(state)
                    written.setdefault(unit, set()).add(state)
            state = changes.get(i, state)
    found = set()
    for unit, outer in written.items():
        every = touched[unit]
        if every == outer == {0}:
            continue
        if any(one == UNKNOWN or not all(masks.within(other, one) for other in every) for one in outer):
            found.add(unit)
    return found


def _refuse_never_written(program: Program, undefined: int) -> None:
    """Raise a ValueError for a register that is read and never written. A register that is written on some paths only
    may be intended.
    """
    written = _set_of({unit for steps in program.blocks for step in steps for unit in step.writes})
    for unit in _bits(undefined & ~written):
        (name,) = (reg for reg in program.regs if program.base[reg] <= unit < program.base[reg] + reg.count)
        (step, *_) = (step for steps in program.blocks for step in steps if unit in step.reads)
        raise ValueError(f"kernel {program.code.name}: `{step}` reads {name}, which nothing writes")


def _summary(steps: list[Step], keeps: set[int]) -> tuple[int, int]:
    """Return the units that a block reads before it writes them, and those that it writes, as bits."""
    used: set[int] = set()
    written: set[int] = set()
    for step in steps:
        for unit in step.reads:
            if unit not in written:
                used.add(unit)
        written.update(step.writes)
    written -= keeps
    return _set_of(used), _set_of(written)


def _set_of(units: set[int]) -> int:
    if not units:
        return 0
    data = bytearray(max(units) // 8 + 1)
    for unit in units:
        data[unit >> 3] |= 1 << (unit & 7)
    return int.from_bytes(data, "little")


def _bits(value: int) -> list[int]:
    found = []
    base = 0
    for byte in value.to_bytes((value.bit_length() + 7) // 8, "little"):
        if byte:
            found += [base + i for i in range(8) if byte >> i & 1]
        base += 8
    return found


def _flow(edges: list[tuple[int, ...]], uses: list[int], kills: list[int]) -> tuple[list[int], list[int]]:
    """Solve liveness over the blocks, backwards until nothing changes."""
    count = len(edges)
    live_in, live_out = [0] * count, [0] * count
    changed = True
    while changed:
        changed = False
        for b in range(count - 1, -1, -1):
            out = 0
            for after in edges[b]:
                out |= live_in[after]
            into = uses[b] | (out & ~kills[b])
            if out != live_out[b] or into != live_in[b]:
                live_out[b], live_in[b], changed = out, into, True
    return live_in, live_out


def _only_behind_writes(
    program: Program, edges: list[tuple[int, ...]], mine: int, live_in: list[int], live_out: list[int]
) -> None:
    """Restrict the ranges of registers that keep lanes, or that are read before any write, to where a write has reached
    them. Before that, they hold nothing to keep.
    """
    made = []
    for steps in program.blocks:
        made.append(_set_of({unit for step in steps for unit in step.writes}) & mine)
    start = _set_of({unit for reg in program.code.inputs for unit in program.units(reg)}) & mine
    before = [0] * len(edges)
    before[0] = start
    changed = True
    while changed:
        changed = False
        for b, after in enumerate(edges):
            out = before[b] | made[b]
            for other in after:
                if out & ~before[other]:
                    before[other] |= out
                    changed = True
    for b in range(len(edges)):
        live_in[b] &= ~mine | before[b]
        live_out[b] &= ~mine | before[b] | made[b]
