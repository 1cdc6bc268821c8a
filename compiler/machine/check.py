"""Checks a machine IR function: order, types, numbers of operands, uniformity, masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringup.compiler.machine.ir import I1, I32, I64, MASKED, OPS, VOID, Function, If, Loop, Region, Type, Value

_INTEGERS = frozenset(("i16", "i32", "i64"))
_FLOATS = frozenset(("f16", "f32", "f64"))
_SAME_INTEGER = frozenset(("add", "sub", "mul", "min_s", "max_s", "min_u", "max_u"))
_DIVISIONS = frozenset(("div_u", "div_s", "rem_u", "rem_s"))
_LOGIC = frozenset(("and", "or", "xor", "not"))
_SHIFTS = frozenset(("shl", "shr_u", "shr_s"))
_INT32 = frozenset(("mul_hi_u", "mul_hi_s", "mad", "bit_count", "leading_zeros", "dot4_s", "dot4_u"))
_SAME_FLOAT = frozenset((
    "fadd", "fsub", "fmul", "fma", "fmin", "fmax", "fneg", "fabs", "floor", "ceil", "trunc", "round", "rcp", "rsq", "sqrt", "exp2", "log2",
    "frexp_mantissa", "div", "fsqrt",
))  # fmt: skip
_INTEGER_COMPARES = frozenset(("eq", "ne", "lt_s", "le_s", "lt_u", "le_u"))
_FLOAT_COMPARES = frozenset(("feq", "fne", "flt", "fle"))
# They are uniform whatever their operands are.
_MAKES_UNIFORM = frozenset(("read_lane", "first_lane"))
_LEAVES = frozenset(("index", "carried", "result"))


def problems(function: Function) -> list[str]:
    """Return the problems of a function, each with its value; nothing for a correct one."""
    return list(_Check(function).all())


class _Check:
    def __init__(self, function: Function) -> None:
        self.function = function
        # Values defined before, in this region or an enclosing one.
        self.seen: set[Value] = set()

    def all(self) -> Iterator[str]:
        """Yield every problem."""
        function = self.function
        if function.wave_size not in (32, 64):
            yield f"{function.name}: waves of {function.wave_size} lanes"
        if not 1 <= function.group_size <= 1024:
            yield f"{function.name}: groups of {function.group_size} threads"
        yield from self._region(function.body, True)

    def _region(self, region: Region, uniform_flow: bool) -> Iterator[str]:
        """Check a region's items. The values they define stay in scope until the caller removes them."""
        for item in region.items:
            if isinstance(item, Value):
                yield from (f"{item.op} {item!r}: {one}" for one in self._value(item, uniform_flow))
                if item in self.seen or item.op in _LEAVES:
                    yield f"{item.op} {item!r}: is an item of a region, but was defined before or belongs to a loop"
                self.seen.add(item)
            elif isinstance(item, If):
                if item.condition.type != I1:
                    yield f"if: its condition {item.condition!r} is not an i1"
                yield from self._reach("if", (item.condition,))
                outer = set(self.seen)
                yield from self._region(item.body, uniform_flow and item.condition.uniform)
                self.seen = outer
            else:
                yield from self._loop(item, uniform_flow)

    def _reach(self, what: str, values: tuple[Value, ...]) -> Iterator[str]:
        for one in values:
            if one not in self.seen:
                yield f"{what}: {one!r} ({one.op}) is not defined before, in scope"

    def _loop(self, loop: Loop, uniform_flow: bool) -> Iterator[str]:
        yield from self._reach("loop", (loop.start, loop.stop, *loop.initial))
        for one in (loop.start, loop.stop):
            if one.type != I32 or not one.uniform:
                yield f"loop: its bound {one!r} is not a uniform i32"
        if loop.step <= 0:
            yield f"loop: its step is {loop.step}"
        if not len(loop.carried) == len(loop.initial) == len(loop.following) == len(loop.results):
            starts, ends = (
                f"{len(loop.initial)} initial",
                f"{len(loop.following)} following, {len(loop.results)} results",
            )
            yield f"loop: the numbers of values differ: {len(loop.carried)} carried, {starts}, {ends}"
            return
        for one, first, after, left in zip(loop.carried, loop.initial, loop.following, loop.results, strict=True):
            if not one.type == first.type == after.type == left.type:
                yield f"loop: {one!r} is initially {first.type}, then {after.type}, and {left.type} as a result"
            if one.uniform and not (first.uniform and after.uniform):
                yield f"loop: {one!r} claims to be uniform, its initial or following value does not"
            if left.uniform and not one.uniform:
                yield f"loop: {left!r} claims to be uniform, {one!r} does not"
        outer = set(self.seen)
        self.seen |= {loop.index, *loop.carried}
        yield from self._region(loop.body, uniform_flow)
        yield from self._reach("loop's end", tuple(loop.following))
        self.seen = outer | set(loop.results)

    def _value(self, v: Value, uniform_flow: bool) -> Iterator[str]:
        row = OPS.get(v.op)
        if row is None:
            yield "no such operation"
            return
        at = MASKED.get(v.op)
        allowed = (at, at + 1) if at is not None else (len(v.args),) if row.arity < 0 else (row.arity,)
        if len(v.args) not in allowed:
            yield f"has {len(v.args)} operands, not {' or '.join(map(str, allowed))}"
            return
        yield from self._reach("operand", tuple(one for one in v.args))
        if at is not None and len(v.args) > at and v.args[at].type != I1:
            yield f"its mask {v.args[at]!r} is not an i1"
        if v.uniform and v.op not in _MAKES_UNIFORM and not (row.keeps_uniform and all(one.uniform for one in v.args)):
            yield "claims to be uniform, its operands do not make it so"
        rule = _TYPES.get(v.op)
        if rule is not None:
            problem = rule(v, *(one.type for one in v.args))
            if problem:
                yield problem
        yield from self._imm(v)
        if v.op == "barrier" and not uniform_flow:
            yield "is not reached by all threads"

    def _imm(self, v: Value) -> Iterator[str]:
        function, imm = self.function, v.imm
        if v.op == "param" and not (
            isinstance(imm, int) and 0 <= imm < len(function.params) and function.params[imm].type == v.type
        ):
            yield f"there is no argument {imm} of that type"
        elif v.op == "group_id" and imm not in (0, 1, 2):
            yield f"there is no axis {imm}"
        elif v.op == "const" and not isinstance(imm, int | float):
            yield f"its number is {imm!r}"
        elif v.op == "extract" and not (isinstance(imm, int) and 0 <= imm < v.args[0].type.count):
            yield f"{v.args[0].type} has no element {imm}"
        elif v.op in ("shuffle_xor", "read_lane") and not (isinstance(imm, int) and 0 <= imm < function.wave_size):
            yield f"a wave has no lane {imm}"
        elif v.op == "shuffle_up" and not (isinstance(imm, int) and 0 < imm < 16):
            yield f"a row has no lane {imm} below another"
        elif v.op == "store" and not self._may_write(v.args[0]):
            yield "stores to a buffer whose parameter is not `written`"

    def _may_write(self, base: Value) -> bool:
        while base.op == "add":
            base = next((one for one in base.args if one.op in ("param", "add")), base.args[0])
        return base.op != "param" or self.function.params[base.imm].written


Rule = Callable[..., "str | None"]


def _all(allowed: frozenset[str], *, vectors: bool = False) -> Rule:
    def rule(v: Value, *types: Type) -> str | None:
        if v.type.element not in allowed or (v.type.count > 1 and not vectors):
            return f"does not work with {v.type}"
        return None if all(one == v.type for one in types) else f"mixes {', '.join(map(str, types))} into {v.type}"

    return rule


def _compare(allowed: frozenset[str]) -> Rule:
    def rule(v: Value, a: Type, b: Type) -> str | None:
        if v.type != I1 or a != b or a.element not in allowed or a.count > 1:
            return f"compares {a} with {b} into {v.type}"
        return None

    return rule


def _fixed(*wanted: Type | None) -> Rule:
    """Return a rule that requires these types of result and operands; None: any."""

    def rule(v: Value, *types: Type) -> str | None:
        wrong = [one for one, want in zip((v.type, *types), wanted, strict=False) if want is not None and one != want]
        return (
            f"has {wrong[0]} where {', '.join(str(one) if one else 'any' for one in wanted)} (result first) belong"
            if wrong
            else None
        )

    return rule


def _shift(v: Value, a: Type, amount: Type) -> str | None:
    return (
        None
        if v.type == a and a.element in _INTEGERS and a.count == 1 and amount == I32
        else f"shifts {a} by {amount} into {v.type}"
    )


def _select(v: Value, condition: Type, a: Type, b: Type) -> str | None:
    return None if condition == I1 and a == b == v.type else f"selects from {a} and {b} by {condition} into {v.type}"


def _convert(sources: frozenset[str], results: frozenset[str]) -> Rule:
    def rule(v: Value, a: Type) -> str | None:
        good = a.element in sources and v.type.element in results and a.count == v.type.count == 1
        return None if good else f"does not convert {a} to {v.type}"

    return rule


def _bitcast(v: Value, a: Type) -> str | None:
    same = a.bits * a.count == v.type.bits * v.type.count
    return None if same and I1 not in (a, v.type) else f"does not read {a} as {v.type}: the bits differ"


def _widen(v: Value, a: Type) -> str | None:
    good = a.bits < v.type.bits and not a.is_float and not v.type.is_float and (v.op == "zext" or a != I1)
    return None if good else f"does not widen {a} to {v.type}"


def _narrow(v: Value, a: Type) -> str | None:
    return (
        None
        if a.bits > v.type.bits and not a.is_float and not v.type.is_float
        else f"does not truncate {a} to {v.type}"
    )


def _vector(v: Value, *types: Type) -> str | None:
    good = len(types) == v.type.count and all(one == v.type.of(1) for one in types)
    return None if good else f"makes {v.type} of {', '.join(map(str, types))}"


def _extract(v: Value, a: Type) -> str | None:
    return None if v.type == a.of(1) else f"extracts {v.type} from {a}"


def _memory(v: Value, *types: Type) -> str | None:
    if v.op.startswith("lds"):
        if types[0] != I32:
            return f"has an LDS offset of {types[0]}"
    elif types[0] != I64 or types[1] not in (I32, I64):
        return f"has base {types[0]} and offset {types[1]}"
    elif not v.args[0].uniform:
        return "has a base that is not uniform"
    stored = {"store": 2, "lds_store": 1, "atomic": 2}.get(v.op)
    if stored is not None and (types[stored] == I1 or (v.type != VOID) != (v.op == "atomic")):
        return f"stores {types[stored]} into {v.type}"
    return "has no value" if stored is None and v.type in (VOID, I1) else None


def _packed(v: Value, *types: Type) -> str | None:
    if v.type.element not in ("f16", "i16") or v.type.count % 2:
        return f"does not work with {v.type}"
    return (
        None
        if all(one == v.type for one in types) and len(types) == (3 if v.imm == "fma" else 2)
        else "has other operands than its result"
    )


_I = _INTEGERS
_TYPES: dict[str, Rule] = {
    **dict.fromkeys(_SAME_INTEGER, _all(_I)), **dict.fromkeys(_DIVISIONS, _all(frozenset(("i32", "i64")))),
    **dict.fromkeys(_LOGIC, _all(_I | {"i1"})), **dict.fromkeys(_SHIFTS, _shift), **dict.fromkeys(_INT32, _all(frozenset(("i32",)))),
    **dict.fromkeys(_SAME_FLOAT, _all(_FLOATS)), **dict.fromkeys(_INTEGER_COMPARES, _compare(_I | {"i1", "i8"})),
    **dict.fromkeys(_FLOAT_COMPARES, _compare(_FLOATS)), "sin_turns": _all(frozenset(("f32", "f16"))), "select": _select,
    "mad_wide_u": _fixed(I64, I32, I32, I64), "ldexp": _fixed(None, None, I32), "frexp_exponent": _fixed(I32, None),
    "zext": _widen, "sext": _widen, "truncate": _narrow, "to_float_s": _convert(_I, _FLOATS), "to_float_u": _convert(_I, _FLOATS),
    "to_int_s": _convert(_FLOATS, _I), "to_int_u": _convert(_FLOATS, _I), "fconvert": _convert(_FLOATS | {"bf16"}, _FLOATS | {"bf16"}),
    "bitcast": _bitcast, "vector": _vector, "extract": _extract, "packed": _packed,
    **dict.fromkeys(("load", "store", "atomic", "lds_load", "lds_store"), _memory),
    **dict.fromkeys(("thread_id", "lane_id", "wave_id", "group_id"), _fixed(I32)), "shuffle": _fixed(None, None, I32),
}  # fmt: skip
