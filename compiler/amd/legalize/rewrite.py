"""Rewrites operations without an RDNA instruction, in machine IR itself: 64-bit products, division, some conversions
and roots.

The result is a new function: regions, loops and changed values are new; unchanged values are shared with the original.
Since the rewritten parts are machine IR, uniform ones can use the SALU, and the evaluator of machine IR can check them.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.amd.instructions.targets import Row
from ringup.compiler.amd.legalize import conversions as legal_convert
from ringup.compiler.amd.legalize import division as legal_divide
from ringup.compiler.amd.legalize import floats
from ringup.compiler.amd.legalize import products as legal_multiply
from ringup.compiler.amd.legalize.ranges import Bounds, enter_loop
from ringup.compiler.amd.legalize.region_builder import Maker
from ringup.compiler.machine.ir import I1, I32, I64, Function, If, Item, Loop, Region, Value

Rule = Callable[[Maker, Value], "Value | None"]


def legalize(function: Function, row: Row) -> tuple[Function, Bounds]:
    """Return an equivalent function of operations that have instructions, and the known bounds of its values."""
    rewriter = _Rewriter(function, row)
    body = rewriter.region(function.body)
    body.items[:0] = rewriter.maker.constants.values()
    made = Function(
        function.name, function.params, body, function.group_size, function.lds_bytes, function.wave_size, function.grid
    )
    return made, rewriter.maker.bounds


class _Rewriter:
    def __init__(self, function: Function, row: Row) -> None:
        self.maker = Maker(row, {}, function.group_size)
        self._replaced: dict[Value, Value] = {}

    def region(self, region: Region) -> Region:
        maker, replaced = self.maker, self._replaced
        outer = maker.items
        items: list[Item] = []
        maker.items = items
        known = maker.quotients
        maker.quotients = dict(known)
        for item in region.items:
            if not isinstance(item, Value):
                items.append(self._structure(item))
                continue
            now = item
            if replaced:
                for one in item.args:
                    if one in replaced:
                        args = tuple([replaced.get(arg, arg) for arg in item.args])
                        now = Value(item.op, item.type, args, item.imm, uniform=item.uniform, name=item.name)
                        break
            rule = RULES.get(now.op)
            if rule is not None:
                instead = rule(maker, now)
                if instead is not None:
                    replaced[item] = instead
                    continue
            if now is not item:
                replaced[item] = now
            items.append(now)
        maker.items = outer
        maker.quotients = known
        return Region(items)

    def _structure(self, item: Loop | If) -> Loop | If:
        now = self._replaced
        if isinstance(item, If):
            return If(now.get(item.condition, item.condition), self.region(item.body))
        enter_loop(item, self.maker.bounds)
        start, stop = now.get(item.start, item.start), now.get(item.stop, item.stop)
        initial = [now.get(one, one) for one in item.initial]
        body = self.region(item.body)
        following = [now.get(one, one) for one in item.following]
        return Loop(
            item.index, start, stop, item.step, body, initial, item.carried, following, item.results, item.at_least_once, item.unroll,
            item.expected,
        )  # fmt: skip


def _wide_choice(m: Maker, v: Value) -> Value | None:
    """Rewrite the minimum or maximum of 64-bit integers as a select: there are no such instructions."""
    if v.type != I64:
        return None
    a, b = v.args
    least, sign = v.op.startswith("min"), v.op[-1]
    first, second = (a, b) if least else (b, a)
    return m.op("select", I64, m.op(f"lt_{sign}", I1, first, second), a, b)


def _lanes(m: Maker, v: Value) -> Value | None:
    """Move conditions between lanes as integers."""
    if v.type != I1:
        return None
    number = m.op("zext", I32, v.args[0])
    return m.op("ne", I1, m.op(v.op, I32, number, *v.args[1:], imm=v.imm), m.const(0))


RULES: dict[str, Rule] = {
    "mul": legal_multiply.product, "mad": legal_multiply.product_and_sum,
    "min_s": _wide_choice, "max_s": _wide_choice, "min_u": _wide_choice, "max_u": _wide_choice,
    "shuffle_xor": _lanes, "shuffle_up": _lanes, "shuffle": _lanes, "read_lane": _lanes, "first_lane": _lanes,
    "div_u": legal_divide.unsigned, "div_s": legal_divide.signed, "rem_u": legal_divide.remainder, "rem_s": legal_divide.remainder,
    "to_float_s": legal_convert.to_float, "to_float_u": legal_convert.to_float,
    "to_int_s": legal_convert.to_int, "to_int_u": legal_convert.to_int, "fconvert": legal_convert.between_floats,
    "fsqrt": floats.root, "ldexp": floats.scaled,
}  # fmt: skip
