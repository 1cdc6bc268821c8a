"""Counts the work of a thread of a kernel: floating-point operations, bytes loaded and stored, iterations of loops. For
estimates, not for passes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.machine.ir import Function, If, Loop, Region, Value, walk

# Iterations assumed for a loop whose bounds are known only at run time, and that states no `expected`.
UNKNOWN_TURNS: Final = 16
# Rows, columns and depth of a matrix operation.
FRAGMENT: Final = 16
# Floating-point operations for each element. Conversions, comparisons and moves have none.
FLOPS: Final = {
    "fadd": 1, "fsub": 1, "fmul": 1, "fma": 2, "fmin": 1, "fmax": 1, "rcp": 1, "rsq": 1, "sqrt": 1, "exp2": 1, "log2": 1, "sin_turns": 1,
    "div": 1, "fsqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "dot2": 4, "dot4_s": 8, "dot4_u": 8,
}  # fmt: skip


class Work(NamedTuple):
    """The work of one thread. All conditions hold, and loops of unknown length have `UNKNOWN_TURNS` iterations."""

    flops: float = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0
    lds_bytes: int = 0

    def plus(self, other: Work, times: int) -> Work:
        """Return the sum of this work and `times` times another."""
        return Work(
            self.flops + other.flops * times,
            self.loaded_bytes + other.loaded_bytes * times,
            self.stored_bytes + other.stored_bytes * times,
            self.lds_bytes + other.lds_bytes * times,
        )


def turns(loop: Loop) -> int:
    """Return the number of iterations of a loop, as far as it is known."""
    if loop.start.op != "const" or loop.stop.op != "const":
        return loop.expected or UNKNOWN_TURNS
    return max(0, -(-int(loop.stop.imm - loop.start.imm) // loop.step))


def loops(function: Function) -> list[Loop]:
    """Return the loops in the order of their heads in the code."""
    return [item for item in walk(function.body) if isinstance(item, Loop)]


def work(function: Function) -> Work:
    """Return the work of one thread."""
    return _region(function.body, function.wave_size)


def _region(region: Region, wave_size: int) -> Work:
    found = Work()
    for item in region.items:
        if isinstance(item, Value):
            found = found.plus(_value(item, wave_size), 1)
        elif isinstance(item, If):
            found = found.plus(_region(item.body, wave_size), 1)
        else:
            found = found.plus(_region(item.body, wave_size), turns(item))
    return found


def _value(value: Value, wave_size: int) -> Work:
    op = value.op
    if op == "matrix":
        depth = int(value.imm.partition("x")[2] or FRAGMENT)
        return Work(2 * FRAGMENT * FRAGMENT * depth / wave_size)
    if op == "packed":
        return Work(FLOPS.get(value.imm, 0) * value.type.count)
    if op == "load":
        return Work(0, value.type.size_bytes)
    if op == "store" or op == "atomic":
        return Work(0, 0, value.args[2].type.size_bytes)
    if op == "lds_load":
        return Work(0, 0, 0, value.type.size_bytes)
    if op == "lds_store":
        return Work(0, 0, 0, value.args[1].type.size_bytes)
    return Work(FLOPS.get(op, 0) * value.type.count)
