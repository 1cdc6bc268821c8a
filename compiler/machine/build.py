"""A builder of machine IR. It reuses equal pure values that are in scope, folds constants, and derives uniformity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringup.compiler.machine.fold import fold
from ringup.compiler.machine.ir import (
    F32,
    I1,
    I32,
    I64,
    OPS,
    VOID,
    Function,
    If,
    Loop,
    Param,
    Region,
    Type,
    Value,
)
from ringup.compiler.machine.scoped import Scoped

_COMPARING = frozenset(("eq", "ne", "lt_s", "le_s", "lt_u", "le_u", "feq", "fne", "flt", "fle"))


class Builder:
    """Builds one function, in order. New values go to the innermost region that `loop` or `when` has opened."""

    def __init__(self, name: str, params: Sequence[Param], group_size: int, *, wave_size: int = 32) -> None:
        self.function = Function(name, tuple(params), Region(), group_size, wave_size=wave_size)
        self._regions = [self.function.body]
        self._known: Scoped[tuple[object, ...], Value] = Scoped()
        # For a value that was converted from a narrower form in memory: that form, by the name of its type. Whoever
        # stores or multiplies the narrow form need not convert back.
        self.narrow_forms: dict[tuple[Value, str], Value] = {}

    def op(self, op: str, type_: Type, *args: Value, imm: object = None) -> Value:
        """Return the value of an operation: an equal one in scope, a folded constant, or a new one at the end of the
        region.
        """
        row = OPS[op]
        if row.effect != "pure":
            made = Value(
                op, type_, args, imm, uniform=row.keeps_uniform and op == "load" and all(a.uniform for a in args)
            )
            self._regions[-1].items.append(made)
            return made
        folded = fold(op, type_, args, imm)
        if isinstance(folded, Value):
            return folded
        if folded is not None:
            op, args, imm = "const", (), folded
        # -0.0 equals 0.0, and NaN does not equal NaN: their text tells them apart.
        mark = repr(imm) if isinstance(imm, float) else imm
        # Each type is a single object. A key that holds only plain numbers is not tracked by the garbage collector.
        key = (op, id(type_), mark, *map(id, args))
        known = self._known.get(key)
        if known is not None:
            return known
        made = Value(op, type_, args, imm, uniform=row.keeps_uniform and all(one.uniform for one in args))
        # Leaves stand at the start of the function and are in scope everywhere.
        if op == "const" or not args:
            self._known.keep(key, made)
            self.function.body.items.insert(self._leaves, made)
            self._leaves += 1
        else:
            self._known.put(key, made)
            self._regions[-1].items.append(made)
        return made

    _leaves = 0

    def const(self, value: float, type_: Type = I32) -> Value:
        """Return a constant. Integers wrap to the type."""
        if type_.is_float:
            return self.op("const", type_, imm=float(value))
        return self.op("const", type_, imm=int(value) & (1 << type_.bits) - 1)

    def param(self, number: int) -> Value:
        """Return a kernel argument."""
        return self.op("param", self.function.params[number].type, imm=number)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """Return a condition."""
        if op not in _COMPARING:
            raise ValueError(f"{op} is not a comparison")
        return self.op(op, I1, a, b)

    def add(self, a: Value, b: Value | int) -> Value:
        """Return a sum of integers."""
        return self.op("add", a.type, a, b if isinstance(b, Value) else self.const(b, a.type))

    def mul(self, a: Value, b: Value | int) -> Value:
        """Return a product of integers."""
        return self.op("mul", a.type, a, b if isinstance(b, Value) else self.const(b, a.type))

    def load(self, type_: Type, base: Value, offset: Value, *, constant: int = 0, mask: Value | None = None) -> Value:
        """Load from memory at `base` plus `offset` bytes (i32 unsigned, or i64) plus `constant`. The value is 0 where
        `mask` is false.
        """
        return self.op("load", type_, base, offset, *([mask] if mask else []), imm=constant)

    def store(self, base: Value, offset: Value, value: Value, *, constant: int = 0, mask: Value | None = None) -> None:
        """Store to memory, addressed as in `load`."""
        self.op("store", VOID, base, offset, value, *([mask] if mask else []), imm=constant)

    def lds_load(self, type_: Type, offset: Value, *, constant: int = 0) -> Value:
        """Load from LDS."""
        return self.op("lds_load", type_, offset, imm=constant)

    def lds_store(self, offset: Value, value: Value, *, constant: int = 0) -> None:
        """Store to LDS."""
        self.op("lds_store", VOID, offset, value, imm=constant)

    def barrier(self) -> None:
        """Wait until all threads of the group have arrived."""
        self.op("barrier", VOID)

    def vector(self, parts: Sequence[Value]) -> Value:
        """Return a vector of scalars."""
        return self.op("vector", parts[0].type.of(len(parts)), *parts) if len(parts) > 1 else parts[0]

    def extract(self, vector: Value, index: int) -> Value:
        """Return one element of a vector."""
        return vector if vector.type.count == 1 else self.op("extract", vector.type.of(1), vector, imm=index)

    @contextmanager
    def loop(
        self, start: Value | int, stop: Value | int, step: int, initial: Sequence[Value], *, unroll: int = 1
    ) -> Iterator[Loop]:
        """Open a loop. Set `following` on the yielded loop before the block ends, and use its `results` afterwards."""
        first = start if isinstance(start, Value) else self.const(start)
        last = stop if isinstance(stop, Value) else self.const(stop)
        sure = isinstance(start, int) and isinstance(stop, int) and start < stop
        made = Loop(
            Value("index", I32, uniform=True), first, last, step, Region(), list(initial),
            [Value("carried", one.type, imm=i) for i, one in enumerate(initial)], [],
            [Value("result", one.type, imm=i) for i, one in enumerate(initial)], sure, unroll,
        )  # fmt: skip
        self._regions.append(made.body)
        self._known.enter()
        yield made
        self._regions.pop()
        self._known.leave()
        if len(made.following) != len(made.carried):
            raise ValueError(f"a loop has {len(made.carried)} carried values, but {len(made.following)} following ones")
        self._regions[-1].items.append(made)

    @contextmanager
    def when(self, condition: Value) -> Iterator[If]:
        """Open a conditional region: it runs where the condition holds."""
        made = If(condition, Region())
        self._regions.append(made.body)
        self._known.enter()
        yield made
        self._regions.pop()
        self._known.leave()
        self._regions[-1].items.append(made)


__all__ = ["F32", "I32", "I64", "Builder"]
