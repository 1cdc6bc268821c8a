"""Estimates a whole launch with the model of `model.py`: cycles of every block and iteration on every compute unit,
compared with the time that the bytes take from memory.

Groups are distributed evenly over compute units, as many at a time as fit; the last round has what is left. Loops have
the numbers of iterations that the machine IR states. The larger of the two times is the launch's time. Left out,
besides what the model of a SIMD leaves out: caches between units, the time to start a launch, and data that is in a
cache before the launch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.amd.emit import Binary
from ringup.compiler.amd.instructions.code import Code
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.traits import traits
from ringup.compiler.amd.model import estimate
from ringup.compiler.machine.ir import Function
from ringup.compiler.machine.work import loops, turns, work


class Chip(NamedTuple):
    """One processor at its rated clock: product name, MHz, bytes per second from memory."""

    name: str
    mhz: int
    memory_bytes_s: float


# Source: AMD's product pages: boost clock, memory bandwidth. MI355X: 256 CUs (ROCm documentation, "AMD GPU
# specifications") of 8192 operations of FP8 a cycle make its 5 PFLOPS at 2400 MHz (AMD at ISSCC 2026).
CHIPS: Final = {
    "gfx1100": Chip("Radeon RX 7900 XTX", 2500, 960e9),
    "gfx1151": Chip("Radeon 8060S", 2900, 256e9),
    "gfx1201": Chip("Radeon RX 9070 XT", 2970, 640e9),
    "gfx942": Chip("MI300X", 2100, 5300e9),
    "gfx950": Chip("MI355X", 2400, 8000e9),
}


class Launch(NamedTuple):
    """The cost of one launch by the model. `cycles` is the larger of `compute_cycles` and `memory_cycles`; `unit` is
    the busiest unit of a SIMD.

    `resident`: waves of a SIMD. `rounds`: how often the compute units are filled, the last time perhaps in part.
    """

    cycles: int
    compute_cycles: int
    memory_cycles: int
    unit: str
    flops: int
    bytes_moved: int
    resident: int
    rounds: int
    microseconds: float

    @property
    def bound(self) -> str:
        """Return what limits the launch: memory, or the busiest unit of a SIMD ("latency" if none is busy all the
        time).
        """
        return "memory" if self.memory_cycles >= self.compute_cycles else self.unit

    @property
    def intensity(self) -> float:
        """Return the floating-point operations for each byte moved."""
        return self.flops / max(1, self.bytes_moved)


def launch(code: Code, binary: Binary, function: Function, groups: int, bytes_moved: int) -> Launch:
    """Estimate a launch of `groups` groups of finished code that was generated from `function`. `bytes_moved` is the
    traffic between memory and the chip.
    """
    row, chip, units = limits(code.target), CHIPS[code.target], traits(code.target).compute_units
    waves_of_group = -(-code.group_size // code.wave_size)
    fitting = max(1, binary.occupancy * row.simds // waves_of_group)
    together = max(1, min(fitting, -(-groups // units)))
    resident = -(-together * waves_of_group // row.simds)
    rounds = -(-groups // (units * together))
    last = -(-(groups - (rounds - 1) * units * together) // units)
    compute, by_unit = 0, dict[str, int]()
    for here, number in ((together, rounds - 1), (last, 1)):
        waves = -(-here * waves_of_group // row.simds)
        for one, times in zip(estimate(code, waves), block_turns(code, function), strict=True):
            cycles = one.together * times * number
            compute += cycles
            by_unit[one.bound] = by_unit.get(one.bound, 0) + cycles
    memory = round(bytes_moved / chip.memory_bytes_s * chip.mhz * 1e6)
    total = max(compute, memory)
    flops = round(work(function).flops * code.group_size * groups)
    return Launch(
        total, compute, memory, max(by_unit, key=lambda unit: by_unit[unit], default="latency"),
        flops, bytes_moved, resident, rounds, total / chip.mhz,
    )  # fmt: skip


def block_turns(code: Code, function: Function) -> list[int]:
    """Return how many times a wave runs each block. The machine IR has the loops in the same order, and states their
    iterations.
    """
    heads = iter(loops(function))
    # Enclosing loops: last block, iterations of all of them multiplied.
    times, running = list[int](), list[tuple[object, int]]()
    for block in code.blocks:
        if block.loop_end is not None:
            head = next(heads, None)
            around = running[-1][1] if running else 1
            running.append((block.loop_end, around * (turns(head) if head is not None else 1)))
        times.append(running[-1][1] if running else 1)
        while running and running[-1][0] is block:
            running.pop()
    return times
