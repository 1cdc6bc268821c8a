"""Vector memory accesses of lanes that are not contiguous: gathers and scatters.

They first try the region that the site accessed last, then go lane by lane. Every helper answers (status, detail,
rows). A broken rule is reported before anything is written. Lanes are accessed lowest first. Source: RDNA3 ISA
reference, "Memory Alignment and Out-of-Range Behavior", "Alignment".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import (
    ALIGNMENT,
    CONTEXT,
    DONE,
    MEMORY,
    Helper,
    Region,
    Shape,
    as_mask,
    each_lane,
    first_lane,
    give,
    helper,
    is_unaligned,
    local,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SITE = Value("%site", "ptr")
QUAD_BYTES, GROUP = 16, 16  # four dwords; number of lanes transposed at once


class Spread(NamedTuple):
    """How addresses are passed in few registers: a base (i64) and a per-lane offset of type `kind`.

    Without `kind` the offset is `stride` bytes times the lane.
    """

    kind: str
    stride: int


@cache
def _reach(*, write: bool) -> Helper:
    """Return `(context, site, gpu_va) -> answer with host address and bytes left in its region`.

    0 bytes means that no memory is mapped there.
    """
    gpu_va = Value("%gpu_va", "i64")

    def body(code: Code) -> None:
        met, miss, found, lost = (code.fresh(one) for one in ("met", "miss", "found", "lost"))
        code.branch(Region.read(code, SITE).holds(code, gpu_va, 1), met, miss)
        code.block(miss)
        flag = Value("true" if write else "false", "i1")
        code.branch(code.call("translate", "i1", CONTEXT, SITE, gpu_va, flag), found, lost)
        code.block(lost)
        give(code, DONE, None, [code.const(0, "i64")] * 2)
        for label in (met, found):
            code.block(label)
            region = Region.read(code, SITE)
            left = code.op("sub", region.size_bytes, code.op("sub", gpu_va, region.gpu_va))
            give(code, DONE, None, [code.op("add", gpu_va, region.delta), left])

    return helper(f"reach_{'write' if write else 'read'}", (CONTEXT, SITE, gpu_va), body)


def reached(code: Code, gpu_va: Value, *, write: bool) -> tuple[Value, Value]:
    """Return the host address of a gpu_va and the bytes left in its region; 0 bytes if no memory is mapped there."""
    host, left = take(code, _reach(write=write).include(code), ["i64", "i64"], CONTEXT, SITE, gpu_va).rows
    return host, left


def _pointer(code: Code, host: Value) -> Value:
    to = f"<{host.lanes} x ptr>" if host.lanes else "ptr"
    return code.emit(f"inttoptr {host.type} {host.text} to {to}", to)


def _lane(code: Code, values: Value, lane: Value) -> Value:
    return code.load(code.gep(values, lane, "i64"), "i64", 8)


def aligned(
    code: Code, address: Value, mask: Value, shape: Shape, *, strict: bool, always: bool, empty: list[Value]
) -> Value:
    """Return addresses aligned as the alignment mode requires.

    Misaligned ones are a fault (`strict`, or `always` as for atomics), else rounded down.
    """
    if shape.align == 1:
        return address
    unaligned = Value("false", "i1") if always else is_unaligned(code)
    low = code.op("and", address, code.const(shape.align - 1, address.type))
    if strict or always:
        wrong, right = code.fresh("misaligned"), code.fresh("aligned")
        bad = code.op("and", as_mask(code, code.icmp("ne", low, code.const(0, low.type))), mask)
        some = code.op(
            "and", code.icmp("ne", bad, code.const(0, bad.type)), code.op("xor", unaligned, Value("true", "i1"))
        )
        code.branch(some, wrong, right, likely=False)
        code.block(wrong)
        give(code, ALIGNMENT, code.resize(code.extract(address, first_lane(code, bad)), "i64"), empty)
        code.block(right)
        return address
    return code.select(unaligned, address, code.op("sub", address, low))


def _outside(code: Code, address: Value, mask: Value, shape: Shape) -> Value:
    """Return the active lanes whose addresses the site's region does not hold."""
    inside = as_mask(code, Region.read(code, SITE).holds(code, address, shape.size_bytes))
    return code.op("and", mask, code.invert(inside))


def _within(
    code: Code, address: Value, mask: Value, shape: Shape, empty: list[Value], *, write: bool
) -> tuple[str, str]:
    """Emit the search for a region that holds all active lanes; return the blocks for "one region" and "several".

    The current block is neither of them afterwards.
    """
    quick, search, several, lost, again = (code.fresh(one) for one in ("quick", "search", "several", "lost", "again"))
    outside = _outside(code, address, mask, shape)
    code.branch(code.icmp("eq", outside, code.const(0, outside.type)), quick, search, likely=True)
    code.block(search)
    gpu_va = code.extract(address, first_lane(code, outside))
    _, left = reached(code, gpu_va, write=write)
    code.branch(code.icmp("eq", left, code.const(0, "i64")), lost, again, likely=False)
    code.block(lost)
    give(code, MEMORY, gpu_va, empty)
    code.block(again)
    outside = _outside(code, address, mask, shape)
    code.branch(code.icmp("eq", outside, code.const(0, outside.type)), quick, several)
    return quick, several


def unless_empty(code: Code, mask: Value, empty: list[Value]) -> None:
    """Emit an early return of `empty` rows for a mask without active lanes."""
    no_lanes, some_lanes = code.fresh("no_lanes"), code.fresh("some_lanes")
    code.branch(code.icmp("eq", mask, code.const(0, mask.type)), no_lanes, some_lanes, likely=False)
    code.block(no_lanes)
    give(code, DONE, None, empty)
    code.block(some_lanes)


def _whole(shape: Shape) -> str:
    return f"i{8 * shape.size_bytes}"


def _bytes_of_lane(
    code: Code,
    gpu_va: Value,
    shape: Shape,
    empty: list[Value],
    *,
    write: bool,
    access: Callable[[Value, int], None],
) -> None:
    """Emit the accesses of one lane: `access(host pointer, -1)` once, or with each byte's number if it straddles
    regions.
    """
    host, left = reached(code, gpu_va, write=write)
    lost, found, whole, split, done = (code.fresh(one) for one in ("lost", "found", "whole", "split", "done"))
    code.branch(code.icmp("eq", left, code.const(0, "i64")), lost, found, likely=False)
    code.block(lost)
    give(code, MEMORY, gpu_va, empty)
    code.block(found)
    if shape.size_bytes == 1:
        access(_pointer(code, host), -1)
        return
    code.branch(code.icmp("uge", left, code.const(shape.size_bytes, "i64")), whole, split, likely=True)
    code.block(whole)
    access(_pointer(code, host), -1)
    code.jump(done)
    code.block(split)
    for byte in range(shape.size_bytes):
        at = code.op("add", gpu_va, code.const(byte, "i64"))
        host, left = reached(code, at, write=write)
        lost, found = code.fresh("lost"), code.fresh("found")
        code.branch(code.icmp("eq", left, code.const(0, "i64")), lost, found, likely=False)
        code.block(lost)
        give(code, MEMORY, at, empty)
        code.block(found)
        access(_pointer(code, host), byte)
    code.jump(done)
    code.block(done)


def _zeroes(shape: Shape) -> list[Value]:
    return [Value("zeroinitializer", shape.row)] * shape.rows


@cache
def gather(shape: Shape, *, strict: bool) -> Helper:
    """Return `(context, site, mask, addresses) -> answer with rows`: load every active lane; the others get 0."""
    address, mask = Value("%address", f"<{shape.lanes} x i64>"), Value("%mask", shape.mask)
    empty = _zeroes(shape)

    def body(code: Code) -> None:
        places = local(code, address.type)
        data = local(code, shape.packed)
        unless_empty(code, mask, empty)
        where = aligned(code, address, mask, shape, strict=strict, always=False, empty=empty)
        quick, several = _within(code, where, mask, shape, empty, write=False)
        code.block(several)
        code.store(where, places, 64)
        code.store(Value("zeroinitializer", shape.packed), data, 64)

        def one(lane: Value) -> None:
            base = code.op("mul", lane, code.const(shape.size_bytes, "i64"))

            def access(host: Value, byte: int) -> None:
                kind = _whole(shape) if byte == -1 else "i8"
                at = base if byte == -1 else code.op("add", base, code.const(byte, "i64"))
                code.store(code.load(host, kind, 1), code.gep(data, at), 1)

            _bytes_of_lane(code, _lane(code, places, lane), shape, empty, write=False, access=access)

        each_lane(code, mask, one)
        give(code, DONE, None, shape.unpack(code, code.load(data, shape.packed, 64)))
        code.block(quick)
        host = code.op("add", where, code.splat(Region.read(code, SITE).delta, shape.lanes))
        give(code, DONE, None, load_lanes(code, host, mask, shape, data, places))

    return helper(
        f"gather_{shape.name}{'_strict' * strict}",
        (CONTEXT, SITE, mask, address),
        body,
    )


def load_lanes(code: Code, host: Value, mask: Value, shape: Shape, data: Value, places: Value) -> list[Value]:
    """Return the rows at host addresses (vector of i64) for active lanes: one load if they are all the same.

    Ends in a fresh block.
    """
    same, differ, done = code.fresh("same"), code.fresh("differ"), code.fresh("done")
    one = code.extract(host, first_lane(code, mask))
    equal = as_mask(code, code.icmp("eq", host, code.splat(one, shape.lanes)))
    others = code.op("and", mask, code.invert(equal))
    code.branch(code.icmp("eq", others, code.const(0, others.type)), same, differ)
    code.block(same)
    pointer = _pointer(code, one)
    if shape.size_bytes < 4:
        alike = [code.resize(code.load(pointer, _whole(shape), 1), "i32")]
    else:
        alike = [code.load(code.gep(pointer, 4 * row), "i32", 1) for row in range(shape.rows)]
    alike = [code.splat(row, shape.lanes) for row in alike]
    code.jump(done)
    code.block(differ)
    rows = _load_different(code, host, mask, shape, data, places, one)
    end = code.label
    code.jump(done)
    code.block(done)
    return [code.phi((a, same), (b, end)) for a, b in zip(alike, rows, strict=True)]


def _load_different(
    code: Code, host: Value, mask: Value, shape: Shape, data: Value, places: Value, one_host: Value
) -> list[Value]:
    if shape.size_bytes == QUAD_BYTES:
        return _load_quads(code, host, mask, places, one_host)
    # No processor has gathers of these sizes.
    if shape.size_bytes < 4:
        code.store(host, places, 64)
        code.store(Value("zeroinitializer", shape.packed), data, 64)
        kind = _whole(shape)

        def one(lane: Value) -> None:
            value = code.load(_pointer(code, _lane(code, places, lane)), kind, 1)
            code.store(value, code.gep(data, lane, kind), 1)

        each_lane(code, mask, one)
        return shape.unpack(code, code.load(data, shape.packed, 64))
    rows: list[Value] = []
    active = code.bitcast(mask, f"<{shape.lanes} x i1>")
    for kind, at in _pieces(shape):
        pointers = _pointer(code, code.op("add", host, code.const(at, host.type)))
        value = code.intrinsic(
            "masked.gather", pointers, Value("1", "i32"), active, Value("zeroinitializer", f"<{shape.lanes} x {kind}>"),
            result=f"<{shape.lanes} x {kind}>", overload=(f"<{shape.lanes} x {kind}>", pointers.type),
        )  # fmt: skip
        rows += _halves(code, value)
    return rows


def _load_quads(code: Code, host: Value, mask: Value, places: Value, one_host: Value) -> list[Value]:
    """Return four rows: one load a lane and a transposition, which takes hosts a fifth of the time of gathers.

    Inactive lanes load from `one_host`, an address of an active lane, and get 0. If all groups of lanes have the
    addresses of the first one, as in a matrix product, they get copies.
    """
    lanes = host.lanes
    active = code.bitcast(mask, f"<{lanes} x i1>")
    where = code.select(active, host, code.splat(one_host, lanes))
    code.store(where, places, 64)
    first = _transposed(code, places, 0)
    repeated = code.shuffle(where, None, [lane % GROUP for lane in range(lanes)])
    differs = as_mask(code, code.icmp("ne", where, repeated))
    before, other, done = code.label, code.fresh("other"), code.fresh("groups")
    code.branch(code.icmp("ne", differs, code.const(0, differs.type)), other, done)
    code.block(other)
    others = [_transposed(code, places, at) for at in range(GROUP, lanes, GROUP)]
    code.jump(done)
    code.block(done)
    copies = [[code.phi((a, before), (b, other)) for a, b in zip(first, one, strict=True)] for one in others]
    groups = [first, *copies]
    rows = []
    for parts in zip(*groups, strict=True):
        row = _joined(code, list(parts))
        rows.append(code.select(active, row, Value("zeroinitializer", row.type)))
    return rows


def _transposed(code: Code, places: Value, first: int) -> list[Value]:
    """Load the quads of 16 lanes from `first` up; return each of their dwords as a vector."""

    def quad(lane: int) -> Value:
        return code.load(_pointer(code, code.load(code.gep(places, lane, "i64"), "i64", 8)), "<4 x i32>", 1)

    def interleaved(a: Value, b: Value, kind: str, at: int) -> Value:
        """Return every other element of blocks of four dwords, alternating between `a` and `b`.

        `at` 0 takes the low ones, 1 the high ones.
        """
        size = 4 if kind == "i32" else 2
        to = f"<{size * 4} x {kind}>"
        order = [
            block * size + at * size // 2 + i + size * 4 * (which)
            for block in range(4)
            for i in range(size // 2)
            for which in (0, 1)
        ]
        return code.bitcast(code.shuffle(code.bitcast(a, to), code.bitcast(b, to), order), a.type)

    # Block b of vector j holds lane 4 * b + j.
    w, x, y, z = (_joined(code, [quad(first + 4 * block + j) for block in range(4)]) for j in range(4))
    rows = []
    for at in (0, 1):
        left, right = interleaved(w, x, "i32", at), interleaved(y, z, "i32", at)
        rows += [interleaved(left, right, "i64", half) for half in (0, 1)]
    return rows


def _joined(code: Code, parts: list[Value]) -> Value:
    """Concatenate vectors, a power of two of them."""
    while len(parts) > 1:
        parts = [code.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _pieces(shape: Shape) -> list[tuple[str, int]]:
    """Split an access into pieces to gather: type, byte."""
    found = [("i64", at) for at in range(0, shape.size_bytes - 4, 8)]
    return found if shape.size_bytes % 8 == 0 else [*found, ("i32", shape.size_bytes - 4)]


def _halves(code: Code, value: Value) -> list[Value]:
    if value.element == "i32":
        return [value]
    high = code.op("lshr", value, code.const(32, value.type))
    return [code.cast("trunc", value, "i32"), code.cast("trunc", high, "i32")]


@cache
def scatter(shape: Shape, *, strict: bool) -> Helper:
    """Return `(context, site, mask, rows, addresses) -> answer`: store every active lane, or nothing if one faults."""
    address, mask = Value("%address", f"<{shape.lanes} x i64>"), Value("%mask", shape.mask)
    rows = [Value(f"%row{at}", shape.row) for at in range(shape.rows)]

    def body(code: Code) -> None:
        places, data = local(code, address.type), local(code, shape.packed)
        unless_empty(code, mask, [])
        where = aligned(code, address, mask, shape, strict=strict, always=False, empty=[])
        code.store(shape.pack(code, rows), data, 64)
        quick, several = _within(code, where, mask, shape, [], write=True)
        code.block(several)
        code.store(where, places, 64)

        def check(lane: Value) -> None:
            _bytes_of_lane(code, _lane(code, places, lane), shape, [], write=True, access=lambda host, byte: None)

        def one(lane: Value) -> None:
            base = code.op("mul", lane, code.const(shape.size_bytes, "i64"))

            def access(host: Value, byte: int) -> None:
                kind = _whole(shape) if byte == -1 else "i8"
                at = base if byte == -1 else code.op("add", base, code.const(byte, "i64"))
                code.store(code.load(code.gep(data, at), kind, 1), host, 1)

            _bytes_of_lane(code, _lane(code, places, lane), shape, [], write=True, access=access)

        each_lane(code, mask, check)
        each_lane(code, mask, one)
        give(code, DONE, None, [])
        code.block(quick)
        host = code.op("add", where, code.splat(Region.read(code, SITE).delta, shape.lanes))
        store_lanes(code, host, mask, shape, data, places)
        give(code, DONE, None, [])

    return helper(f"scatter_{shape.name}{'_strict' * strict}", (CONTEXT, SITE, mask, *rows, address), body)


def store_lanes(code: Code, host: Value, mask: Value, shape: Shape, data: Value, places: Value) -> None:
    """Store packed `data` to the host addresses of active lanes, lowest first. Ends in a fresh block."""
    code.store(host, places, 64)
    kind = _whole(shape)

    def one(lane: Value) -> None:
        value = code.load(code.gep(data, code.op("mul", lane, code.const(shape.size_bytes, "i64"))), kind, 1)
        code.store(value, _pointer(code, _lane(code, places, lane)), 1)

    each_lane(code, mask, one)


@cache
def locate(shape: Shape) -> Helper:
    """Return `(context, site, mask, addresses) -> answer with host addresses`, for atomics.

    Misaligned atomics are always an error.
    """
    address, mask = Value("%address", f"<{shape.lanes} x i64>"), Value("%mask", shape.mask)
    empty = [Value("zeroinitializer", address.type)]

    def body(code: Code) -> None:
        places, hosts = local(code, address.type), local(code, address.type)
        unless_empty(code, mask, empty)
        where = aligned(code, address, mask, shape, strict=True, always=True, empty=empty)
        quick, several = _within(code, where, mask, shape, empty, write=True)
        code.block(several)
        code.store(where, places, 64)
        code.store(empty[0], hosts, 64)

        def one(lane: Value) -> None:
            gpu_va = _lane(code, places, lane)
            host, left = reached(code, gpu_va, write=True)
            lost, found = code.fresh("lost"), code.fresh("found")
            code.branch(code.icmp("ult", left, code.const(shape.size_bytes, "i64")), lost, found, likely=False)
            code.block(lost)
            give(code, MEMORY, gpu_va, empty)
            code.block(found)
            code.store(host, code.gep(hosts, lane, "i64"), 8)

        each_lane(code, mask, one)
        give(code, DONE, None, [code.load(hosts, address.type, 64)])
        code.block(quick)
        give(code, DONE, None, [code.op("add", where, code.splat(Region.read(code, SITE).delta, shape.lanes))])

    return helper(f"locate_{shape.name}", (CONTEXT, SITE, mask, address), body)


@cache
def _spread(inner: str, how: Spread, shape: Shape, rows: int) -> tuple[str, str]:
    """Return the name and definition of a function that makes vectors of addresses for a helper."""
    mask, base = Value("%mask", shape.mask), Value("%base", "i64")
    data = [Value(f"%row{at}", shape.row) for at in range(rows)]
    offsets = [Value("%offsets", f"<{shape.lanes} x {how.kind}>")] if how.kind else []
    name = f"{inner}_{how.kind or how.stride}"

    def body(code: Code) -> None:
        steps = code.lane_const([how.stride * lane for lane in range(shape.lanes)], "i64")
        lanes = code.resize(offsets[0], "i64") if offsets else steps
        address = code.op("add", code.splat(base, shape.lanes), lanes)
        code.call(inner, "void", CONTEXT, SITE, mask, *data, address)
        code.line("ret void")

    return name, helper(name, (CONTEXT, SITE, mask, *data, base, *offsets), body).declarations[name]


def spread(inner: Helper, how: Spread, shape: Shape, rows: int = 0) -> Helper:
    """Return a helper with `rows` rows of data as one that takes a base and offsets instead of addresses."""
    name, text = _spread(inner.name, how, shape, rows)
    return Helper(name, {**inner.declarations, name: text})
