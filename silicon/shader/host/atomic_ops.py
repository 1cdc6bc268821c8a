"""Atomic operations as IR over scalars, and helper functions that apply them lane by lane.

Source: RDNA3 ISA reference, "LDS Instructions", "MUBUF Instructions", "Float Memory Atomics"; RDNA4 ISA reference, "VDS
Instructions", "Float Memory Atomics".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.emitter import Code, Value, bits
from ringup.silicon.shader.host.memory_shape import DONE, Helper, as_mask, each_lane, first_lane, give, helper, local

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[Code, Value, Value, Value, "Flush"], Value]  # old, data, second data


class Flush(NamedTuple):
    """Which denormals count as zeroes of their sign."""

    inputs: bool = False
    results: bool = False


NO_FLUSH = Flush()
_FLOATS = {32: ("float", 23), 64: ("double", 52)}  # type, bits of the mantissa
_REDUCTIONS = {"add": 0, "or": 0, "xor": 0, "and": -1, "umax": 0, "umin": -1}  # with their neutral value


def _intrinsic(name: str) -> Operation:
    return lambda code, old, data, second, flush: code.intrinsic(name, old, data)


def _plain(name: str) -> Operation:
    return lambda code, old, data, second, flush: code.op(name, old, data)


def _rsub(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return code.op("sub", data, old)


def _swap(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return data


def _inc(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    more = code.op("add", old, code.const(1, old.type))
    return code.select(code.icmp("uge", old, data), code.const(0, old.type), more)


def _dec(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    wraps = code.op("or", code.icmp("eq", old, code.const(0, old.type)), code.icmp("ugt", old, data))
    return code.select(wraps, data, code.op("sub", old, code.const(1, old.type)))


def _mskor(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return code.op("or", code.op("and", old, code.invert(data)), second)


def _wrap(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return code.select(code.icmp("uge", old, data), code.op("sub", old, data), code.op("add", old, second))


def _cmpswap(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return code.select(code.icmp("eq", old, second), data, old)


# floats, as integers of their bits ------------------------------------------------------------------------------------


def _sign(value: Value) -> int:
    return 1 << bits(value.type) - 1


def _infinity(value: Value) -> int:
    mantissa = _FLOATS[bits(value.type)][1]
    return _sign(value) - (1 << mantissa)


def _quiet_bit(value: Value) -> int:
    return 1 << _FLOATS[bits(value.type)][1] - 1


def _magnitude(code: Code, value: Value) -> Value:
    return code.op("and", value, code.const(_sign(value) - 1, value.type))


def _flushed(code: Code, value: Value, *, on: bool) -> Value:
    if not on:
        return value
    smallest = code.const(1 << _FLOATS[bits(value.type)][1], value.type)
    small = code.icmp("ult", _magnitude(code, value), smallest)
    return code.select(small, code.op("and", value, code.const(_sign(value), value.type)), value)


def _is_nan(code: Code, value: Value) -> Value:
    return code.icmp("ugt", _magnitude(code, value), code.const(_infinity(value), value.type))


def _is_signalling(code: Code, value: Value) -> Value:
    quiet = code.op("and", value, code.const(_quiet_bit(value), value.type))
    return code.op("and", _is_nan(code, value), code.icmp("eq", quiet, code.const(0, value.type)))


def _quieted(code: Code, value: Value) -> Value:
    return code.op("or", value, code.const(_quiet_bit(value), value.type))


def _order(code: Code, value: Value, nan: int) -> Value:
    """Return an unsigned number that grows with a float: -inf ... -0, +0 ... +inf; a quiet NaN is `nan`."""
    negative = code.icmp("slt", value, code.const(0, value.type))
    key = code.select(negative, code.invert(value), code.op("or", value, code.const(_sign(value), value.type)))
    return code.select(_is_nan(code, value), code.const(nan, value.type), key)


def _extreme(how: str, nan: int) -> Operation:
    """Return min or max.

    Denormals are flushed for the comparison only. A quiet NaN loses; a signalling one wins and is quieted.
    """

    def chosen(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
        ours, theirs = (_order(code, _flushed(code, one, on=flush.inputs), nan) for one in (data, old))
        result = code.select(code.icmp(how, ours, theirs), data, old)
        result = code.select(_is_signalling(code, old), _quieted(code, old), result)
        return code.select(_is_signalling(code, data), _quieted(code, data), result)

    return chosen


def _extreme_number(how: str) -> Operation:
    """Return min_num or max_num: any NaN loses, and two give the data's, quieted. Denormals are flushed."""

    def chosen(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
        data, old = (_flushed(code, one, on=flush.inputs) for one in (data, old))
        result = code.select(code.icmp(how, _order(code, data, 0), _order(code, old, 0)), data, old)
        is_bad = _is_nan(code, old)
        result = code.select(is_bad, data, result)
        return code.select(_is_nan(code, data), code.select(is_bad, _quieted(code, data), old), result)

    return chosen


def _cond_sub(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    return code.select(code.icmp("uge", old, data), code.op("sub", old, data), old)


def _cmpswap_float(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    kind = _FLOATS[bits(old.type)][0]
    left, right = (code.cast("bitcast", _flushed(code, one, on=flush.inputs), kind) for one in (old, second))
    return code.select(code.fcmp("oeq", left, right), _flushed(code, data, on=flush.inputs), old)


def _add_float(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    """Add, rounding to nearest even. A NaN is the result, quieted; the data's NaN comes before the memory's."""
    kind = _FLOATS[bits(old.type)][0]
    left, right = (_flushed(code, one, on=flush.inputs) for one in (data, old))
    total = code.op("fadd", code.cast("bitcast", left, kind), code.cast("bitcast", right, kind))
    whole = _flushed(code, code.cast("bitcast", total, old.type), on=flush.results)
    # result of infinities of both signs
    default = code.const(_sign(old) | _infinity(old) | _quiet_bit(old), old.type)
    whole = code.select(_is_nan(code, whole), default, whole)
    whole = code.select(_is_nan(code, old), _quieted(code, old), whole)
    return code.select(_is_nan(code, data), _quieted(code, data), whole)


def _add_plain_float(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    """Add as the host does."""
    kind = _FLOATS[bits(old.type)][0]
    left, right = (code.cast("bitcast", _flushed(code, one, on=flush.inputs), kind) for one in (old, data))
    return _flushed(code, code.cast("bitcast", code.op("fadd", left, right), old.type), on=flush.results)


def _add_one_nan(code: Code, old: Value, data: Value, second: Value, flush: Flush) -> Value:
    """Add; every NaN has all bits below the sign set."""
    total = _add_plain_float(code, old, data, second, flush)
    return code.select(_is_nan(code, total), code.const(_sign(old) - 1, old.type), total)


OPERATIONS: dict[str, Operation] = {
    "add": _plain("add"), "sub": _plain("sub"), "and": _plain("and"), "or": _plain("or"), "xor": _plain("xor"),
    "umin": _intrinsic("umin"), "umax": _intrinsic("umax"), "smin": _intrinsic("smin"), "smax": _intrinsic("smax"),
    "csub": _intrinsic("usub.sat"), "rsub": _rsub, "swap": _swap, "inc": _inc, "dec": _dec, "mskor": _mskor, "wrap": _wrap,
    "cmpswap": _cmpswap, "cmpswap_float": _cmpswap_float, "add_float": _add_float,
    "add_plain_float": _add_plain_float, "add_one_nan": _add_one_nan,
    "min_float": _extreme("ult", -1), "max_float": _extreme("ugt", 0),
    "min_num_float": _extreme_number("ult"), "max_num_float": _extreme_number("ugt"), "cond_sub": _cond_sub,
}  # fmt: skip


@cache
def atomic(name: str, kind: str, lanes: int, flush: Flush, *, returns: bool) -> Helper:
    """Return `(host addresses, mask, data, second data) -> answer with old values` (type `kind` a lane).

    Active lanes run in turn, lowest first. Old values of inactive lanes are 0, and all of them unless it `returns`.
    """
    vector = f"<{lanes} x {kind}>"
    hosts, mask = Value("%hosts", f"<{lanes} x i64>"), Value("%mask", f"i{lanes}")
    data, second = Value("%data", vector), Value("%second", vector)
    size = bits(kind) // 8

    def body(code: Code) -> None:
        saved = [local(code, one.type) for one in (hosts, data, second)]
        olds = local(code, vector)
        code.store(Value("zeroinitializer", vector), olds, 64)
        if name in _REDUCTIONS and not returns:
            _combined(code, name, hosts, mask, data)
        for place, one in zip(saved, (hosts, data, second), strict=True):
            code.store(one, place, 64)

        def one_lane(lane: Value) -> None:
            host = code.load(code.gep(saved[0], lane, "i64"), "i64", 8)
            ours, other = (code.load(code.gep(place, lane, kind), kind, size) for place in saved[1:])
            pointer = code.cast("inttoptr", host, "ptr")
            old = code.load(pointer, kind, 1)
            code.store(OPERATIONS[name](code, old, ours, other, flush), pointer, 1)
            if returns:
                code.store(old, code.gep(olds, lane, kind), size)

        each_lane(code, mask, one_lane)
        give(code, DONE, None, [code.load(olds, vector, 64)])

    suffix = "_rtn" * returns + "_fi" * flush.inputs + "_fr" * flush.results
    return helper(f"atomic_{name}_{kind}_w{lanes}{suffix}", (hosts, mask, data, second), body)


def _combined(code: Code, name: str, hosts: Value, mask: Value, data: Value) -> None:
    """Emit the case that all active lanes access one address: their data is combined first."""
    some, same, apart = code.fresh("some"), code.fresh("same"), code.fresh("apart")
    code.branch(code.icmp("ne", mask, code.const(0, mask.type)), some, apart)
    code.block(some)
    host = code.extract(hosts, first_lane(code, mask))
    equal = as_mask(code, code.icmp("eq", hosts, code.splat(host, hosts.lanes)))
    others = code.op("and", mask, code.invert(equal))
    code.branch(code.icmp("eq", others, code.const(0, others.type)), same, apart)
    code.block(same)
    nothing = code.const(_REDUCTIONS[name], data.type)
    active = code.bitcast(mask, f"<{data.lanes} x i1>")
    total = code.intrinsic(
        f"vector.reduce.{name}", code.select(active, data, nothing), result=data.element, overload=(data.type,)
    )
    pointer = code.cast("inttoptr", host, "ptr")
    old = code.load(pointer, data.element, 1)
    code.store(OPERATIONS[name](code, old, total, total, NO_FLUSH), pointer, 1)
    give(code, DONE, None, [Value("zeroinitializer", data.type)])
    code.block(apart)
