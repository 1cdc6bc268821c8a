"""List scheduling of each block before register allocation: long waits start early, stores come late, within a register
budget.

Top-down: of the instructions whose operands are ready, the one with the longest path to the block's end goes first.
When the live VGPRs reach the budget (what the intended occupancy leaves a wave), an instruction that frees registers
goes first instead. A new order that needs more registers than the budget, and more than the source order, is dropped.
The result is deterministic: equal candidates keep the source order.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from ringup.compiler.amd.instructions.code import Part, Reg
from ringup.compiler.amd.instructions.effects import EXEC_LO
from ringup.compiler.amd.instructions.effects import VECTOR as VECTOR_KINDS
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.passes.memory_order import Roots, memory_edges
from ringup.compiler.amd.registers.liveness import _bits, _flow, _summary

# Loads of one base that are kept together. Source: RDNA3 ISA reference, "S_CLAUSE": up to 63, but long ones delay other
# waves.
CLUSTER = 8
# Register files.
VECTOR, SCALAR = 1, 2
# Live SGPRs above which pressure matters: 106 less what tuples waste and masks need.
SCALARS = 84
# Registers below the budget at which pressure starts to matter.
SLACK = 6
# Larger than any path to a block's end.
LOAD_PRIORITY = 1 << 20
# Up to this many eighths of the budget, loads go first, whatever else is ready. Where the source order needs more, up
# to that.
LOADS_EIGHTHS = 5
MAX_LOADS_COMPARED = 4
# Candidates compared under pressure.
MAX_COMPARED = 24


class Report(NamedTuple):
    """The maximum number of live VGPRs in the source order and in the new one, and the budget."""

    before: int
    after: int
    budget: int


def schedule(program: Program, occupancy: int = 0) -> Report:
    """Reorder every block's steps. `occupancy`: waves of a SIMD that must fit; 0: as many as LDS and the source order
    allow.
    """
    code = program.code
    edges = program.edges()
    summaries = [_summary(steps, set()) for steps in program.blocks]
    live_in, live_out = _flow(edges, [one[0] for one in summaries], [one[1] for one in summaries])
    banks = bytearray(program.unit_count)
    for reg in program.regs:
        base = program.base[reg]
        banks[base : base + reg.count] = bytes((VECTOR if reg.bank == "v" else SCALAR,)) * reg.count
    blocks = [_Block(program, steps, live_in[b], live_out[b], banks) for b, steps in enumerate(program.blocks)]
    before = max((block.peak_of(block.steps)[VECTOR] for block in blocks), default=0)
    row = limits(code.target)
    waves = occupancy or min(row.occupancy(before, code.lds_bytes, code.group_size, code.wave_size), row.waves)
    budget = row.budget(waves, code.wave_size)
    roots = Roots(program)
    after = 0
    for b, block in enumerate(blocks):
        if len(block.steps) > 2:
            block.reorder(budget, roots)
        program.blocks[b] = block.steps
        after = max(after, block.peak[VECTOR])
    return Report(before, after, budget)


class _Block:
    """One block. `banks[unit]` is a unit's register file; `peak` and `now` count live dwords of each file."""

    def __init__(self, program: Program, steps: list[Step], live_in: int, live_out: int, banks: bytearray) -> None:
        self.program, self.steps, self.banks = program, steps, banks
        self.live_out, self.live_in = set(_bits(live_out)), set(_bits(live_in))
        self.at_start = [0, 0, 0]
        for unit in self.live_in:
            self.at_start[banks[unit]] += 1
        self.peak = [0, 0, 0]
        # For each unit of a file, the number of instructions that read it.
        self.readers: dict[int, int] = {}
        for step in steps:
            for unit in step.reads:
                if banks[unit]:
                    self.readers[unit] = self.readers.get(unit, 0) + 1

    def peak_of(self, steps: list[Step]) -> list[int]:
        """Return the maximum of live dwords of each file if the steps run in that order."""
        left, live, banks, live_out = dict(self.readers), set(self.live_in), self.banks, self.live_out
        now = list(self.at_start)
        peak = list(now)
        for step in steps:
            for unit in step.reads:
                bank = banks[unit]
                if bank:
                    left[unit] -= 1
                    if not left[unit] and unit not in live_out and unit in live:
                        live.discard(unit)
                        now[bank] -= 1
            dead = []
            for unit in step.writes:
                bank = banks[unit]
                if bank and unit not in live:
                    now[bank] += 1
                    if now[bank] > peak[bank]:
                        peak[bank] = now[bank]
                    if left.get(unit) or unit in live_out:
                        live.add(unit)
                    else:
                        dead.append(bank)
            for bank in dead:
                now[bank] -= 1
        self.peak = peak
        return peak

    def reorder(self, budget: int, roots: Roots) -> None:
        old, before = self.steps, self.peak
        self.left, self.live, self.now = dict(self.readers), set(self.live_in), list(self.at_start)
        made: list[Step] = []
        region: list[Step] = []
        for step in old:
            # ORDER: nothing moves across these.
            if step.effects.ordered or EXEC_LO in step.writes:
                self._region(region, made, budget, roots)
                made.append(step)
                self._take(step)
                region = []
            else:
                region.append(step)
        self._region(region, made, budget, roots)
        after = self.peak_of(made)
        if after[VECTOR] > max(budget, before[VECTOR]) or after[SCALAR] > max(SCALARS, before[SCALAR]):
            self.peak = before
        else:
            self.steps = made

    def _take(self, step: Step) -> None:
        """Count the live ranges that end and begin with a step."""
        left, live, banks, live_out, now = self.left, self.live, self.banks, self.live_out, self.now
        for unit in step.reads:
            bank = banks[unit]
            if bank:
                left[unit] -= 1
                if not left[unit] and unit not in live_out and unit in live:
                    live.discard(unit)
                    now[bank] -= 1
        for unit in step.writes:
            bank = banks[unit]
            if bank and unit not in live and (left.get(unit) or unit in live_out):
                live.add(unit)
                now[bank] += 1

    def _growth(self, step: Step, bank: int) -> int:
        """Return by how much a step increases the live registers of a file."""
        left, live, banks, live_out = self.left, self.live, self.banks, self.live_out
        found = 0
        for unit in step.reads:
            if banks[unit] == bank and left[unit] == 1 and unit not in live_out:
                found -= 1
        for unit in step.writes:
            if banks[unit] == bank and unit not in live:
                found += 1
        return found

    def _region(self, steps: list[Step], made: list[Step], budget: int, roots: Roots) -> None:
        count = len(steps)
        if count < 3:
            for step in steps:
                self._take(step)
            made += steps
            return
        after, waiting = dependencies(self.program, steps, roots)
        height = [0] * count
        for i in range(count - 1, -1, -1):
            best = 0
            for j, latency in after[i].items():
                way = height[j] + latency
                if way > best:
                    best = way
            height[i] = best + steps[i].effects.cycles
        is_load = [is_vector_load(step) for step in steps]
        key = [(-height[i] - (LOAD_PRIORITY if is_load[i] else 0), i) for i in range(count)]
        ready: list[tuple[int, int]] = []
        # Ready loads are kept apart, so that under pressure they do not hide instructions that free registers.
        loads: list[tuple[int, int]] = []
        home = [loads if one else ready for one in is_load]
        pending: list[tuple[int, int]] = []  # (cycle, index)
        ready_at = [0] * count
        done = bytearray(count)
        open_loads: dict[tuple[object, ...], list[int]] = {}
        names = [cluster_of(step) for step in steps]
        for i in range(count):
            if not waiting[i]:
                heappush(home[i], key[i])
                name = names[i]
                if name is not None:
                    open_loads.setdefault(name, []).append(i)
        cycle, run, run_name = 0, 0, None
        limit, now = budget - SLACK, self.now
        enough = min(limit, max(self.peak[VECTOR], budget * LOADS_EIGHTHS // 8))
        for _ in range(count):
            while pending and pending[0][0] <= cycle:
                i = heappop(pending)[1]
                heappush(home[i], key[i])
            for heap in (ready, loads):
                while heap and done[heap[0][1]]:
                    heappop(heap)
            chosen = -1
            if now[VECTOR] >= limit:
                chosen = self._relief(steps, ready, loads, pending, done, VECTOR)
            elif now[SCALAR] >= SCALARS:
                chosen = self._relief(steps, ready, loads, pending, done, SCALAR)
            elif run_name is not None and run < CLUSTER:
                mates = open_loads.get(run_name)
                while mates and done[mates[0]]:
                    mates.pop(0)
                if mates:
                    chosen = mates[0]
            if chosen < 0:
                if loads and (now[VECTOR] < enough or not ready):
                    chosen = heappop(loads)[1]
                elif not ready:
                    while done[pending[0][1]]:
                        heappop(pending)
                    cycle, chosen = pending[0][0], heappop(pending)[1]
                else:
                    chosen = heappop(ready)[1]
            done[chosen] = 1
            step = steps[chosen]
            made.append(step)
            self._take(step)
            if ready_at[chosen] > cycle:
                cycle = ready_at[chosen]
            name = names[chosen]
            run, run_name = (run + 1 if name == run_name else 1, name) if name is not None else (0, None)
            for j, latency in after[chosen].items():
                at = cycle + latency
                if at > ready_at[j]:
                    ready_at[j] = at
                waiting[j] -= 1
                if not waiting[j]:
                    heappush(pending, (ready_at[j], j))
                    if names[j] is not None:
                        heappush(open_loads.setdefault(names[j], []), j)  # type: ignore[arg-type]
            cycle += step.effects.cycles

    def _relief(
        self,
        steps: list[Step],
        ready: list[tuple[int, int]],
        loads: list[tuple[int, int]],
        pending: list[tuple[int, int]],
        done: bytearray,
        bank: int,
    ) -> int:
        """Choose the step that frees most registers; of equals, the earliest in source order. Return -1 if there is no
        candidate.
        """
        best, chosen = (1 << 30, 0), -1
        compared = 0
        for _, i in sorted(
            ready[: 4 * MAX_COMPARED] + pending[: 4 * MAX_COMPARED] + loads[:MAX_LOADS_COMPARED], key=_second
        ):
            if done[i]:
                continue
            rating = (self._growth(steps[i], bank), i)
            if rating < best:
                best, chosen = rating, i
            compared += 1
            if compared >= MAX_COMPARED:
                break
        return chosen


def is_vector_load(step: Step) -> bool:
    """Return whether a step loads vector data from memory. It is issued as early as registers allow, so that the
    arithmetic after it fills the wait.
    """
    effects = step.effects
    return effects.access == "read" and effects.memory in ("lds", "global", "scratch")


def _second(pair: tuple[int, int]) -> int:
    return pair[1]


def cluster_of(step: Step) -> tuple[object, ...] | None:
    """Return what loads must have in common to be kept together: place and base."""
    effects = step.effects
    if effects.access != "read" or effects.memory not in ("global", "scratch", "scalar"):
        return None
    operands = step.instr.operands
    base = operands[1] if effects.memory == "scalar" else operands[-1] if len(operands) > 2 else operands[1]
    if isinstance(base, Part):
        base = (base.reg, base.first)  # type: ignore[assignment]
    return (effects.memory, base if isinstance(base, (Reg, tuple)) else str(base))


def dependencies(program: Program, steps: list[Step], roots: Roots) -> tuple[list[dict[int, int]], list[int]]:
    """Return for each step the later steps that must stay after it, with the cycles from issue to issue, and how many
    predecessors each step has.
    """
    after: list[dict[int, int]] = [{} for _ in steps]
    waiting = [0] * len(steps)
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    memory = []
    for j, step in enumerate(steps):
        before: dict[int, int] = {}
        for unit in step.reads:
            if unit in writer:
                i = writer[unit]
                made = steps[i].effects
                before[i] = made.latency + step.effects.lead if made.kind in VECTOR_KINDS else made.latency
            if unit in readers:
                readers[unit].append(j)
            else:
                readers[unit] = [j]
        if step.effects.memory and step.effects.memory != "scalar":
            memory.append((j, roots.place(step, writer)))
        for unit in step.writes:
            found = readers.pop(unit, None)
            if found is not None:
                for i in found:
                    if i != j and i not in before:
                        before[i] = 0
            i = writer.get(unit, -1)
            if i >= 0 and i not in before:
                before[i] = 1
            writer[unit] = j
        if before:
            for i, latency in before.items():
                after[i][j] = latency
            waiting[j] = len(before)
    for i, j in memory_edges(memory):
        if j not in after[i]:
            after[i][j] = 1
            waiting[j] += 1
    return after, waiting
