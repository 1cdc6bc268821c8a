"""Creates machine IR values inside a region that is being rewritten. `legalize` and its rules use it."""

from __future__ import annotations

from ringup.compiler.amd.instructions.targets import Row
from ringup.compiler.amd.legalize.ranges import Bounds, top
from ringup.compiler.machine.fold import fold
from ringup.compiler.machine.ir import I1, I32, OPS, Item, Type, Value, vector_type

I32X2 = vector_type("i32", 2)


class Maker:
    """Appends to `items`, the items of the current region. New constants go to `constants`, which the function's body
    will start with.
    """

    def __init__(self, row: Row, bounds: Bounds, group_size: int) -> None:
        self.row, self.bounds, self.group_size = row, bounds, group_size
        self.items: list[Item] = []
        self.constants: dict[tuple[str, str], Value] = {}
        self.quotients: dict[tuple[str, Value, Value], Value] = {}

    def op(self, op: str, type_: Type, *args: Value, imm: object = None) -> Value:
        """Return the value of a pure operation, folded if possible."""
        folded = fold(op, type_, args, imm)
        if isinstance(folded, Value):
            return folded
        if folded is not None:
            return self.const(folded, type_)
        uniform = OPS[op].keeps_uniform
        if uniform:
            for one in args:
                if not one.uniform:
                    uniform = False
                    break
        made = Value(op, type_, args, imm, uniform=uniform)
        self.items.append(made)
        return made

    def const(self, number: float, type_: Type = I32) -> Value:
        """Return a constant. Integers wrap to the type."""
        value = float(number) if type_.is_float else int(number) & (1 << type_.bits) - 1
        # As text, since -0.0 equals 0.0.
        key = (type_.element, repr(value))
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = Value("const", type_, imm=value, uniform=True)
        return found

    def top(self, value: Value) -> int:
        """Return an upper bound of a scalar, read as unsigned."""
        return top(value, self.bounds, self.group_size)

    def halves(self, value: Value) -> tuple[Value, Value]:
        """Return the lower and upper 32 bits of a 64-bit value."""
        if value.op == "const":
            return self.const(int(value.imm)), self.const(int(value.imm) >> 32)
        if value.op == "zext" and value.args[0].type == I32:
            return value.args[0], self.const(0)
        if value.op == "bitcast" and value.args[0].op == "vector" and value.args[0].type == I32X2:
            return value.args[0].args[0], value.args[0].args[1]
        pair = self.op("bitcast", I32X2, value)
        return self.op("extract", I32, pair, imm=0), self.op("extract", I32, pair, imm=1)

    def joined(self, low: Value, high: Value, type_: Type) -> Value:
        """Return a 64-bit value from two halves."""
        if low.op == high.op == "const" and not type_.is_float:
            return self.const(int(low.imm) | int(high.imm) << 32, type_)
        if type_.element == "i64" and high.op == "const" and high.imm == 0:
            return self.op("zext", type_, low)
        return self.op("bitcast", type_, self.op("vector", I32X2, low, high))

    def not_(self, condition: Value) -> Value:
        """Return a condition's opposite."""
        return self.op("not", I1, condition)
