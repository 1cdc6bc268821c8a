"""LDS accesses of lanes that are not contiguous: gathers, scatters and atomics, within the group's allocation.

Source: RDNA3 ISA reference, "LDS/GDS Alignment and Out-of-Range": reads beyond the allocation give 0, for all dwords of
an access; writes are dropped.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.context import Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_helpers import aligned, load_lanes, store_lanes, unless_empty
from ringup.silicon.shader.host.memory_shape import (
    CONTEXT,
    DONE,
    MEMORY,
    Helper,
    Shape,
    as_mask,
    first_lane,
    give,
    helper,
    local,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LDS = Value("%lds", "i64")  # host address of the group's LDS
WRITTEN = 0x0101_0101  # shadow of a dword of LDS whose bytes were all written
# This far before the end of the shadow is the count of bytes from the start of LDS that were all written.
WRITTEN_BYTES = 8


def _checked(
    code: Code, address: Value, mask: Value, shape: Shape, empty: list[Value], *, strict: bool, atomic: bool
) -> tuple[Value, Value]:
    """Return host addresses, and the active lanes whose access is within the allocation."""
    where = aligned(code, address, mask, shape, strict=strict, always=atomic, empty=empty)
    size = code.load(code.gep(CONTEXT, Word.LDS_SIZE, "i64"), "i64", 8)
    spare = code.cast("trunc", code.intrinsic("usub.sat", size, code.const(shape.size_bytes - 1, "i64")), "i32")
    inside = as_mask(code, code.icmp("ult", where, code.splat(spare, shape.lanes)))
    if strict:
        outside = code.op("and", mask, code.invert(inside))
        beyond, good = code.fresh("beyond"), code.fresh("good")
        code.branch(code.icmp("ne", outside, code.const(0, outside.type)), beyond, good, likely=False)
        code.block(beyond)
        give(code, MEMORY, code.resize(code.extract(where, first_lane(code, outside)), "i64"), empty)
        code.block(good)
    host = code.op("add", code.splat(LDS, shape.lanes), code.resize(where, "i64"))
    return host, code.op("and", mask, inside)


def _helper(
    kind: str,
    shape: Shape,
    rows: list[Value],
    body: Callable[[Code, Value, Value], None],
    *,
    strict: bool,
) -> Helper:
    address, mask = Value("%address", shape.row), Value("%mask", shape.mask)
    name = f"lds_{kind}_{shape.name}{'_strict' * strict}"
    return helper(name, (CONTEXT, LDS, address, mask, *rows), lambda code: body(code, address, mask))


@cache
def lds_gather(shape: Shape, *, strict: bool) -> Helper:
    """Return `(context, lds, addresses, mask) -> answer with rows`."""
    empty = [Value("zeroinitializer", shape.row)] * shape.rows

    def body(code: Code, address: Value, mask: Value) -> None:
        places, data = local(code, f"<{shape.lanes} x i64>"), local(code, shape.packed)
        unless_empty(code, mask, empty)
        host, inside = _checked(code, address, mask, shape, empty, strict=strict, atomic=False)
        unless_empty(code, inside, empty)
        rows = load_lanes(code, host, inside, shape, data, places)
        if not strict:
            valid = code.bitcast(inside, f"<{shape.lanes} x i1>")
            rows = [code.select(valid, row, empty[0]) for row in rows]
        give(code, DONE, None, rows)

    return _helper("gather", shape, [], body, strict=strict)


@cache
def lds_scatter(shape: Shape, *, strict: bool) -> Helper:
    """Return `(context, lds, addresses, mask, rows) -> answer`."""
    rows = [Value(f"%row{at}", shape.row) for at in range(shape.rows)]

    def body(code: Code, address: Value, mask: Value) -> None:
        places, data = local(code, f"<{shape.lanes} x i64>"), local(code, shape.packed)
        unless_empty(code, mask, [])
        host, inside = _checked(code, address, mask, shape, [], strict=strict, atomic=False)
        code.store(shape.pack(code, rows), data, 64)
        store_lanes(code, host, inside, shape, data, places)
        give(code, DONE, None, [])

    return _helper("scatter", shape, rows, body, strict=strict)


def _advance(code: Code) -> Value:
    """Advance the count of bytes from the start of LDS that were all written, as far as possible; return it (i64).

    `LDS` is the address of the shadow here.
    """
    head, whole, done = code.fresh("scan"), code.fresh("whole"), code.fresh("scanned")
    behind = code.load(code.gep(CONTEXT, Word.LDS_SHADOW, "i64"), "i64", 8)
    place = _pointer(code, code.op("sub", code.op("add", LDS, behind), code.const(WRITTEN_BYTES, "i64")))
    code.jump(head)
    code.block(head)
    end = code.load(place, "i64", 8)
    eight = code.load(_pointer(code, code.op("add", LDS, end)), "i64", 8)
    code.branch(code.icmp("eq", eight, code.const(WRITTEN << 32 | WRITTEN, "i64")), whole, done)
    code.block(whole)
    code.store(code.op("add", end, code.const(8, "i64")), place, 8)
    code.jump(head)
    code.block(done)
    return end


def _pointer(code: Code, host: Value) -> Value:
    return code.cast("inttoptr", host, "ptr")


@cache
def lds_written(shape: Shape, *, by_register: bool) -> Helper:
    """Return `(context, shadow of lds, addresses, mask) -> answer with masks`: lanes with bytes that were never
    written.

    A mask by register has the lanes in which all its bytes were never written, since a register may hold two halves.
    Addresses are within the allocation.
    """
    count = shape.rows if by_register else 1
    empty = [Value("0", shape.mask)] * count

    def body(code: Code, address: Value, mask: Value) -> None:
        places, data = local(code, f"<{shape.lanes} x i64>"), local(code, shape.packed)
        unless_empty(code, mask, empty)
        spare = code.intrinsic("usub.sat", _advance(code), code.const(shape.size_bytes - 1, "i64"))
        spare = code.cast("trunc", spare, "i32")
        beyond = code.op("and", as_mask(code, code.icmp("uge", address, code.splat(spare, shape.lanes))), mask)
        unless_empty(code, beyond, empty)
        host = code.op("add", code.splat(LDS, shape.lanes), code.resize(address, "i64"))
        rows = load_lanes(code, host, mask, shape, data, places)
        if not by_register:
            for row in rows[1:]:
                rows[0] = code.op("and", rows[0], row)
        whole = code.const(WRITTEN & (1 << 8 * min(shape.size_bytes, 4)) - 1, shape.row)
        none = by_register and shape.size_bytes >= 4
        wrong = ("eq", code.const(0, shape.row)) if none else ("ne", whole)
        found = [as_mask(code, code.icmp(wrong[0], row, wrong[1])) for row in rows[:count]]
        give(code, DONE, None, [code.op("and", one, mask) for one in found])

    return _helper(f"written_by_{'register' if by_register else 'lane'}", shape, [], body, strict=True)


@cache
def lds_locate(shape: Shape, *, strict: bool) -> Helper:
    """Return `(context, lds, addresses, mask) -> answer with host addresses and the lanes to access`.

    Misaligned atomics are always an error.
    """
    places = f"<{shape.lanes} x i64>"
    empty = [Value("zeroinitializer", places), Value("0", shape.mask)]

    def body(code: Code, address: Value, mask: Value) -> None:
        host, inside = _checked(code, address, mask, shape, empty, strict=strict, atomic=True)
        give(code, DONE, None, [host, inside])

    return _helper("locate", shape, [], body, strict=strict)
