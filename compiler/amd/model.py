"""A model of one SIMD. It estimates the cycles of finished code, for figures and comparisons; it promises nothing.

A wave issues in order, one instruction a cycle. Results are ready after the latencies of `instructions/effects.py`.
Memory accesses return in the order of each counter, and an s_waitcnt stalls until enough have returned. `waves` waves
of the same kernel share the units. The time of a loop iteration of all waves is that of its busiest unit, or that of a
single wave, whichever is longer.

| unit | cycles of one wave32 | source |
|---|---|---|
| VALU | 1 (a dual pair too); transcendentals 4, apart; f64 16; 32-bit multiply 4 | "Dual Issue VALU"; SISchedule.td |
| WMMA | 32 on the VALU (gfx12: 16) | peak rates: 512, 1024 f16 operations a cycle and CU |
| SALU, branches | 1 | RDNA white paper |
| LDS | bytes / 64 | 128 bytes a cycle and CU, two SIMDs (RDNA white paper) |
| L0 cache | bytes / 64 | the same width; everything hits, accesses are coalesced |

On CDNA3, a wave64 takes four cycles of the VALU, a matrix instruction four for each pass, and four SIMDs share the 128
bytes (CDNA3 white paper; AMD's matrix instruction calculator). CDNA4's LDS has 256 bytes a cycle
(`instructions/limits.py`).

Left out: instruction fetch, bank conflicts, cache misses and DRAM, the return of stores, waves that do not run in
step, register-cache misses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringup.compiler.amd.instructions.code import Block, Code
from ringup.compiler.amd.instructions.effects import VECTOR
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.passes.waits import waits_of

# Bytes a cycle of a CU's L0 cache, which its SIMDs share.
CACHE_WIDTH = 128
# Iterations after which a loop is in its steady state.
ROUNDS = 3
_BITS = re.compile(r"_[biuf](8|16|32|64|96|128|256|512)(?:_|$)")


class Estimate(NamedTuple):
    """One execution of a block. `alone`: cycles of a single wave. `busy`: cycles that each unit is occupied.
    `together`: cycles of `waves` waves. `bound`: what limits them.

    `busy["each"]` is a wave's share of `together`.
    """

    block: Block
    alone: int
    busy: dict[str, int]
    together: int
    bound: str

    @property
    def matrix_share(self) -> float:
        """Return the share of the time in which the matrix unit works when all waves run: 1.0 is the peak rate."""
        return self.busy.get("wmma", 0) / max(1, self.busy.get("each", 1))


def estimate(code: Code, waves: int) -> list[Estimate]:
    """Estimate every block of finished code at an occupancy of `waves` per SIMD. A block that is a loop by itself is
    estimated in its steady state.
    """
    program = Program(code)
    return [
        _estimate(program, block, steps, waves, loops=block.loop_end is block)
        for block, steps in zip(code.blocks, program.blocks, strict=True)
    ]


def hot_loop(code: Code, waves: int) -> Estimate | None:
    """Return the estimate of one iteration of the deepest loop; of equally deep ones, of that with most work. None
    without loops.

    Blocks inside that a wave may skip count as executed.
    """
    program = Program(code)
    found = []
    for first, block in enumerate(code.blocks):
        if block.loop_end is not None:
            last = code.blocks.index(block.loop_end)
            if not any(inner.loop_end is not None for inner in code.blocks[first + 1 : last + 1]):
                steps = [step for some in program.blocks[first : last + 1] for step in some]
                found.append(_estimate(program, block, steps, waves, loops=True))
    return max(found, key=lambda one: (one.block.depth, one.together), default=None)


def _estimate(program: Program, block: Block, steps: list[Step], waves: int, *, loops: bool) -> Estimate:
    wave = _Wave(program)
    before = 0
    for _ in range(ROUNDS if loops else 1):
        before = wave.cycle
        wave.run(steps)
    alone = wave.cycle - before
    busy = _busy(steps, program.wave_size, _widths(program))
    unit, most = max(busy.items(), key=lambda one: one[1], default=("valu", 0))
    together = max(most * waves, alone)
    busy["each"] = round(together / max(1, waves))
    return Estimate(block, alone, busy, together, unit if most * waves >= alone else "latency")


def _bytes(step: Step, lanes: int) -> int:
    """Return how many bytes a vector memory instruction transfers for a whole wave."""
    name = step.instr.mnemonic
    found = _BITS.search(name)
    bits = max(32, int(found[1])) if found else 32
    return bits // 8 * lanes * (2 if "2addr" in name else 1)


class _Widths(NamedTuple):
    """The bytes a cycle that one SIMD gets from LDS and from the cache."""

    lds: int
    vmem: int


def _widths(program: Program) -> _Widths:
    row = limits(program.code.target)
    return _Widths(row.lds_width // row.simds, CACHE_WIDTH // row.simds)


def _busy(steps: list[Step], lanes: int, widths: _Widths) -> dict[str, int]:
    passes = lanes // 32
    busy: dict[str, int] = {}

    def add(unit: str, cycles: int) -> None:
        busy[unit] = busy.get(unit, 0) + cycles

    for step in steps:
        effects = step.effects
        kind = effects.kind
        if kind == "wmma":
            add("wmma", effects.cycles * passes)
            add("valu", effects.cycles * passes)
        elif kind == "trans":
            add("trans", effects.cycles * passes)
            add("valu", passes)
        elif kind in VECTOR:
            add("valu", effects.cycles * passes)
        elif effects.memory == "lds":
            add("lds", -(-_bytes(step, lanes) // widths.lds))
        elif kind == "vmem":
            add("vmem", -(-_bytes(step, lanes) // widths.vmem) if effects.memory else 1)
        elif kind in ("salu", "branch", "smem"):
            add("scalar", 1)
    return busy


class _Wave:
    """One wave alone: its current cycle, the cycle at which each register is ready, and the cycles at which the
    accesses of each counter return.
    """

    def __init__(self, program: Program) -> None:
        self.cycle = 0
        self._counters, self._widths = program.table.counters, _widths(program)
        self._ready: dict[int, int] = {}
        self._free: dict[str, int] = {}
        self._out: dict[str, list[int]] = {}

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            effects = step.effects
            if effects.kind == "wait":
                for counter, count in waits_of(step.instr, self._counters).items():
                    out = self._out.get(counter, [])
                    if len(out) > count:
                        self.cycle = max(self.cycle, *out[: len(out) - count])
                        del out[: len(out) - count]
                self.cycle += 1
                continue
            start = self.cycle
            for unit in step.reads:
                start = max(start, self._ready.get(unit, 0))
            kind = effects.kind
            pool = "valu" if kind in VECTOR and kind != "trans" else kind
            start = max(start, self._free.get(pool, 0))
            taken = effects.cycles
            if effects.memory and kind in ("lds", "vmem"):
                taken = -(-_bytes(step, 32) // (self._widths.lds if kind == "lds" else self._widths.vmem))
            self._free[pool] = start + taken
            self.cycle = start + 1
            if effects.counters:
                back = start + taken + effects.latency
                for counter in effects.counters:
                    self._out.setdefault(counter, []).append(back)
            else:
                for unit in step.writes:
                    self._ready[unit] = start + effects.latency
