"""Random functions of machine IR by seed: arithmetic of several types, uniform and varying, with loops, conditions,
loads, exchanges.

Only operations with exact results are used. Floats are kept free of NaN where bits would show, and each store goes to
its own place. So every implementation that obeys `ir.py` leaves the same bits in memory.
"""

from __future__ import annotations

import random

import numpy as np

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import BF16, F16, F32, F64, I1, I8, I16, I32, I64, VOID, Param, Type, Value

SLOTS = 24  # stores of a function, each to 8 bytes of every thread
ELEMENTS = 512
INTEGER = ("add", "sub", "mul", "and", "or", "xor", "min_s", "max_s", "min_u", "max_u")
COMPARE = ("eq", "ne", "lt_s", "le_s", "lt_u", "le_u")
FLOAT = ("fadd", "fsub", "fmul", "fadd", "fmul")
CONSTANTS = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    31,
    64,
    65,
    100,
    255,
    256,
    1000,
    65535,
    65536,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFF0,
    0xFFFFFFFF,
    0x3F800000,
    0xDEADBEEF,
)


class Maker:
    """One random function. `pool` holds the available values by type."""

    def __init__(self, seed: int, wave_size: int = 0) -> None:
        r = self.r = random.Random(seed)
        self.wave_size = wave_size or (64 if r.random() < 0.15 else 32)
        group = r.choice((32, 64, 64, 96, 50))
        known = r.random() < 0.5
        self.groups = r.choice((1, 2, 3))
        self.threads = group * self.groups
        size = ELEMENTS * 4
        params = [
            Param("a", I64, True, False, size if known else 0), Param("b", I64, True, r.random() < 0.3, size if known else 0),
            Param("out", I64, True, True, self.threads * 8 * SLOTS if known else 0), Param("n", I32), Param("x", F32), Param("w", I64),
        ]  # fmt: skip
        b = self.b = Builder(f"random_{seed}", params, group, wave_size=self.wave_size)
        self.lds = r.random() < 0.4
        b.function.lds_bytes = group * 8 if self.lds else 0
        self.thread = b.op("thread_id", I32)
        self.group_id = b.op("group_id", I32, imm=0)
        self.at = b.add(b.mul(self.group_id, group), self.thread)
        self.pool: dict[Type, list[Value]] = {one: [] for one in (I1, I16, I32, I64, F16, F32, F64)}
        self.slot = self.depth = 0
        # inside no condition that varies by lane
        self.uniform_flow = True
        for one in (self.thread, self.group_id, self.at, b.param(3), b.op("lane_id", I32), b.op("wave_id", I32)):
            self.pool[I32].append(one)
        self.pool[I64].append(b.param(5))
        self.pool[F32].append(b.param(4))
        for _ in range(3):
            self.load()

    def pick(self, kind: Type) -> Value:
        """Return a value of a type: one of the pool, preferably a recent one, or a constant."""
        r, b, have = self.r, self.b, self.pool[kind]
        if not have or r.random() < 0.15:
            if kind == I1:
                return b.const(r.randrange(2), I1)
            if kind.is_float:
                return b.const(r.choice((0.0, 1.0, -1.0, 0.5, 2.0, 3.25, -0.1, 1e-3, 100.0, 4.0)), kind)
            number = (
                r.choice(CONSTANTS)
                if kind != I64
                else r.choice(CONSTANTS) << r.choice((0, 0, 16, 32)) | r.choice(CONSTANTS)
            )
            return b.const(number, kind)
        return have[-1 - min(int(r.expovariate(0.3)), len(have) - 1)] if r.random() < 0.8 else r.choice(have)

    def keep(self, value: Value) -> None:
        """Put a value into the pool."""
        self.pool[value.type].append(value)

    def finite(self, value: Value) -> Value:
        """Return a float that is not NaN and whose zero has no sign."""
        b = self.b
        good = b.op("feq", I1, value, value)
        return b.op(
            "fadd",
            value.type,
            b.op("select", value.type, good, value, b.const(1.5, value.type)),
            b.const(0.0, value.type),
        )

    def load(self) -> None:
        """Load an element, masked or not, from a varying or a uniform place."""
        r, b = self.r, self.b
        kind = r.choice((I32, I32, F32, F32, I64, I16, F16, F64, I8, F32.of(2), F32.of(4), I32.of(2), F16.of(2)))
        last = ELEMENTS * 4 // kind.size_bytes
        index = self.pick(I32)
        if r.random() < 0.3:
            index = r.choice((self.group_id, b.param(3), b.const(r.randrange(9))))
        mask, constant = None, 0
        if r.random() < 0.35:
            mask = b.op("lt_u", I1, index, b.const(last))
            if r.random() < 0.3:
                mask = b.op("and", I1, mask, self.pick(I1))
            index = b.op("min_u", I32, index, b.const(1 << 20))
        else:
            index = b.op("and", I32, index, b.const(last // 2 - 1))
            constant = r.choice((0, 0, kind.size_bytes, last // 4 * kind.size_bytes))
        offset = b.mul(index, kind.size_bytes)
        if r.random() < 0.2:
            offset = b.op("zext", I64, offset)
        value = b.load(kind, b.param(r.randrange(2)), offset, constant=constant, mask=mask)
        if kind == I8:
            value = b.op(r.choice(("zext", "sext")), I32, value)
        if kind.count > 1:
            parts = [b.extract(value, i) for i in range(kind.count)]
            for one in parts:
                self.keep(self.finite(one) if one.type.is_float else one)
            return
        self.keep(self.finite(value) if kind.is_float else value)

    def integer(self) -> None:
        """Add an integer operation."""
        r, b = self.r, self.b
        kind = r.choice((I32, I32, I32, I64, I16))
        x, y = self.pick(kind), self.pick(kind)
        choice = r.random()
        if choice < 0.55:
            value = b.op(r.choice(INTEGER), kind, x, y)
        elif choice < 0.7:
            amount = b.op("and", I32, self.pick(I32), b.const(kind.bits - 1))
            value = b.op(r.choice(("shl", "shr_u", "shr_s")), kind, x, amount)
        elif choice < 0.8 and kind != I16:
            divisor = b.const(r.choice((1, 2, 3, 5, 6, 7, 10, 12, 16, 100, 641, 1000, 0x7FFFFFFF, 0x80000000)), kind)
            if r.random() < 0.4:
                divisor = b.op("or", kind, y, b.const(1, kind))
            value = b.op(r.choice(("div_u", "div_s", "rem_u", "rem_s")), kind, x, divisor)
        elif choice < 0.9 and kind == I32:
            op = r.choice(("mul_hi_u", "mul_hi_s", "mad", "bit_count", "leading_zeros", "dot4_s", "dot4_u"))
            count = {"mul_hi_u": 2, "mul_hi_s": 2, "bit_count": 1, "leading_zeros": 1}.get(op, 3)
            value = b.op(op, I32, *(x, y, self.pick(I32))[:count])
        else:
            value = b.op("not", kind, x)
        self.keep(value)

    def floating(self) -> None:
        """Add a float operation."""
        r, b = self.r, self.b
        kind = r.choice((F32, F32, F32, F16, F64))
        x, y = self.pick(kind), self.pick(kind)
        if r.random() < 0.3:
            x = b.op(r.choice(("fneg", "fabs")), kind, x)
        choice = r.random()
        if choice < 0.5:
            value = b.op(r.choice(FLOAT), kind, x, y)
        elif choice < 0.7:
            value = b.op("fma", kind, x, y, self.pick(kind))
        elif choice < 0.85:
            value = b.op(r.choice(("fmin", "fmax")), kind, x, y)
            if r.random() < 0.5:
                value = b.op("fmin", kind, b.op("fmax", kind, x, b.const(-1.0, kind)), b.const(1.0, kind))
        elif choice < 0.95:
            value = b.op(r.choice(("floor", "ceil", "trunc", "round")), kind, x)
        else:
            value = b.op("div", kind, x, y) if r.random() < 0.5 else b.op("fsqrt", kind, x)
        self.keep(self.finite(value))

    def convert(self) -> None:
        """Add a conversion."""
        r, b = self.r, self.b
        op, source, to = r.choice((
            ("zext", I16, I32), ("sext", I16, I32), ("zext", I32, I64), ("sext", I32, I64), ("truncate", I32, I16), ("truncate", I64, I32),
            ("to_float_s", I32, F32), ("to_float_u", I32, F32), ("to_float_s", I32, F64), ("to_float_s", I64, F32), ("to_float_u", I64, F64),
            ("to_float_s", I16, F16), ("to_int_s", F32, I32), ("to_int_u", F32, I32), ("to_int_s", F64, I64), ("to_int_s", F32, I64),
            ("fconvert", F32, F16), ("fconvert", F16, F32), ("fconvert", F32, F64), ("fconvert", F64, F32), ("fconvert", F64, F16),
            ("bitcast", F32, I32), ("bitcast", F64, I64), ("zext", I1, I32),
        ))  # fmt: skip
        value = b.op(op, to, self.pick(source))
        if op == "fconvert" and r.random() < 0.3:
            value = b.op("fconvert", F32, b.op("fconvert", BF16, value))
        self.keep(self.finite(value) if value.type.is_float else value)

    def condition(self) -> None:
        """Add a condition or a choice."""
        r, b = self.r, self.b
        if r.random() < 0.5:
            kind = r.choice((I32, I32, I64, I16, F32, F16, F64))
            op = r.choice(("feq", "fne", "flt", "fle")) if kind.is_float else r.choice(COMPARE)
            self.keep(b.op(op, I1, self.pick(kind), self.pick(kind)))
        elif r.random() < 0.5:
            self.keep(b.op(r.choice(("and", "or", "xor")), I1, self.pick(I1), self.pick(I1)))
        else:
            kind = r.choice((I32, F32, I64, I16, F64, I1))
            self.keep(b.op("select", kind, self.pick(I1), self.pick(kind), self.pick(kind)))

    def exchange(self) -> None:
        """Add an exchange between lanes. All lanes must run; what absent lanes would give is ignored."""
        r, b = self.r, self.b
        if not self.uniform_flow or self.b.function.group_size % self.wave_size:
            return
        kind = r.choice((I32, F32, I64, F16))
        value = self.pick(kind)
        if value.uniform:
            return
        op = r.choice(("shuffle_xor", "shuffle_xor", "shuffle_up", "shuffle", "read_lane"))
        if op == "shuffle":
            made = b.op(op, kind, value, b.op("and", I32, self.pick(I32), b.const(self.wave_size - 1)))
        else:
            made = b.op(op, kind, value, imm=r.randrange(1, 16 if op == "shuffle_up" else self.wave_size))
            if op == "read_lane":
                made.uniform = True
        if r.random() < 0.5 and kind in (F32, I32):
            made = b.op("fadd" if kind == F32 else "add", kind, made, value)
        self.keep(self.finite(made) if kind.is_float else made)

    def through_lds(self) -> None:
        """Write a value to LDS and read a neighbour's."""
        r, b = self.r, self.b
        if not self.lds or not self.uniform_flow or self.depth:
            return
        kind = r.choice((I32, F32, I64))
        at = b.mul(self.thread, 8)
        b.barrier()
        b.lds_store(at, self.pick(kind))
        b.barrier()
        last = b.const(self.b.function.group_size - 1)
        other = b.op("sub", I32, last, self.thread)
        mask = [b.op("lt_u", I1, self.pick(I32), b.const(1000))] if r.random() < 0.4 else []
        self.keep(b.op("lds_load", kind, b.mul(other, 8), *mask, imm=0))

    def store(self) -> None:
        """Store a value to its own place."""
        r, b = self.r, self.b
        if self.slot == SLOTS:
            return
        kind = r.choice([one for one, have in self.pool.items() if have and one != I1])
        value = self.pick(kind)
        mask = self.pick(I1) if r.random() < 0.3 else None
        b.store(b.param(2), b.mul(self.at, 8), value, constant=self.slot * self.threads * 8, mask=mask)
        self.slot += 1

    def structure(self, budget: int) -> None:
        """Add a loop or a condition with operations inside."""
        r, b = self.r, self.b
        kept = {kind: len(have) for kind, have in self.pool.items()}
        flow = self.uniform_flow
        self.depth += 1
        if r.random() < 0.5:
            condition = self.pick(I1)
            self.uniform_flow = flow and condition.uniform
            with b.when(condition):
                self.some(budget)
                self.store()
            results = []
        else:
            kinds = [r.choice((I32, F32, I64, F64, I16, I1)) for _ in range(r.randrange(4))]
            initial = [self.pick(kind) for kind in kinds]
            stop = r.choice(
                (
                    b.const(r.randrange(4)),
                    b.op("and", I32, b.param(3), b.const(3)),
                    b.op("and", I32, self.group_id, b.const(1)),
                )
            )
            with b.loop(r.choice((0, 1)), stop, r.choice((1, 2)), initial) as loop:
                self.keep(loop.index)
                for one in loop.carried:
                    self.keep(one)
                self.some(budget)
                following = [self.pick(kind) for kind in kinds]
                if len(kinds) > 1 and r.random() < 0.3 and kinds[0] == kinds[1]:
                    following[0], following[1] = loop.carried[1], loop.carried[0]
                for i, one in enumerate(loop.carried):
                    if one.type == F32 and r.random() < 0.5:
                        following[i] = self.finite(b.op("fma", F32, self.pick(F32), self.pick(F32), one))
                loop.following.extend(following)
            results = loop.results
        self.depth -= 1
        self.uniform_flow = flow
        for kind, count in kept.items():
            del self.pool[kind][count:]
        for one in results:
            self.keep(one)

    def some(self, budget: int) -> None:
        """Add about that many operations."""
        r = self.r
        steps = (
            self.integer,
            self.integer,
            self.floating,
            self.floating,
            self.convert,
            self.condition,
            self.load,
            self.exchange,
            self.store,
            self.through_lds,
        )
        for _ in range(budget):
            if self.depth < 3 and r.random() < 0.08:
                self.structure(max(2, budget // 2))
            else:
                r.choice(steps)()


def random_function(seed: int, budget: int = 30, wave_size: int = 0):
    """Return (function, arguments, groups). The same seed gives the same arguments. `wave_size` 0: either."""
    maker = Maker(seed, wave_size)
    maker.some(budget)
    for kind in (I32, F32, I64, F64, F16, I16):
        if maker.pool[kind]:
            maker.slot = min(maker.slot, SLOTS - 1)
            maker.b.store(
                maker.b.param(2), maker.b.mul(maker.at, 8), maker.pool[kind][-1], constant=maker.slot * maker.threads * 8
            )  # fmt: skip
            maker.slot += 1
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, ELEMENTS * 4, np.uint8)
    second = rng.normal(scale=3, size=ELEMENTS).astype(np.float32)
    out = np.zeros(maker.threads * 8 * SLOTS, np.uint8)
    arguments = [a, second, out, rng.integers(0, 100), float(np.float32(rng.normal())), int(rng.integers(0, 1 << 62))]
    return maker.b.function, arguments, (maker.groups, 1, 1)


__all__ = ["VOID", "random_function"]
