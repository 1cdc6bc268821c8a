"""Helper functions of translated code for local memory and for generic addresses.

A warp's local memory is `(word, lane)`: the same word of all its threads is contiguous. A generic address leads to
shared or local memory in their windows, else to global memory. Source: PTX ISA, "Generic Addressing".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.lds_helpers import lds_gather, lds_locate, lds_scatter
from ringup.silicon.shader.host.memory_helpers import aligned, gather, locate, scatter, unless_empty
from ringup.silicon.shader.host.memory_shape import (
    CONTEXT,
    DONE,
    MEMORY,
    Answer,
    Helper,
    Shape,
    as_mask,
    first_lane,
    give,
    helper,
    take,
)
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator.layout import Own

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROW, WIDE, FLAGS = f"<{LANES} x i32>", f"<{LANES} x i64>", f"<{LANES} x i1>"
WINDOW_BYTES = 1 << 24
ROW_BYTES = 4 * LANES
# Arguments of helpers: host addresses of the warp's local memory and of the group's shared memory.
LOCAL, SHARED = Value("%local", "i64"), Value("%shared", "i64")
SITE, MASK = Value("%site", "ptr"), Value("%mask", "i32")


def limit(code: Code, size_bytes: int) -> Value:
    """Return how many local addresses an access of some bytes may begin at (i32)."""
    size = code.load(code.gep(CONTEXT, Own.LOCAL_SIZE, "i64"), "i64", 8)
    return code.resize(code.intrinsic("usub.sat", size, code.const(size_bytes - 1, "i64")), "i32")


def _pointers(code: Code, place: Value, number: int) -> Value:
    """Return the host addresses of word `number` of an access at each lane's place."""
    offset = code.op("shl", code.resize(code.op("lshr", place, code.const(2, ROW)), "i64"), code.const(7, WIDE))
    own = code.lane_const(range(0, ROW_BYTES, 4), "i64")
    host = code.op("add", code.op("add", offset, own), code.splat(LOCAL, LANES))
    host = code.op("add", host, code.const(ROW_BYTES * number, WIDE))
    return code.emit(f"inttoptr {WIDE} {host.text} to <{LANES} x ptr>", f"<{LANES} x ptr>")


def _checked(code: Code, address: Value, shape: Shape, empty: list[Value]) -> Value:
    """Return places in local memory that are aligned and in bounds; the helper answers with what is wrong otherwise."""
    unless_empty(code, MASK, empty)
    place = code.op("and", address, code.const(WINDOW_BYTES - 1, ROW))
    place = aligned(code, place, MASK, shape, strict=True, always=True, empty=empty)
    inside = as_mask(code, code.icmp("ult", place, code.splat(limit(code, shape.size_bytes), LANES)))
    outside = code.op("and", MASK, code.invert(inside))
    beyond, good = code.fresh("beyond"), code.fresh("good")
    code.branch(code.icmp("ne", outside, code.const(0, "i32")), beyond, good, likely=False)
    code.block(beyond)
    give(code, MEMORY, code.resize(code.extract(place, first_lane(code, outside)), "i64"), empty)
    code.block(good)
    return place


def _loaded(code: Code, pointers: Value) -> Value:
    return code.intrinsic(
        "masked.gather", pointers, Value("4", "i32"), code.bitcast(MASK, FLAGS), Value("zeroinitializer", ROW),
        result=ROW, overload=(ROW, pointers.type),
    )  # fmt: skip


def _shift(code: Code, place: Value) -> Value:
    """Return by how many bits a part of a word is shifted."""
    return code.op("shl", code.op("and", place, code.const(3, ROW)), code.const(3, ROW))


def part_of(code: Code, word: Value, shift: Value, size_bytes: int) -> Value:
    """Return bytes of words."""
    return code.op("and", code.op("lshr", word, shift), code.const((1 << 8 * size_bytes) - 1, word.type))


def with_part(code: Code, word: Value, shift: Value, size_bytes: int, part: Value) -> Value:
    """Return words in which some bytes are replaced."""
    ones = code.const((1 << 8 * size_bytes) - 1, word.type)
    kept = code.op("and", word, code.invert(code.op("shl", ones, shift)))
    return code.op("or", kept, code.op("shl", code.op("and", part, ones), shift))


@cache
def local_gather(shape: Shape) -> Helper:
    """Return `(context, local, addresses, mask) -> answer with rows`."""
    address = Value("%address", ROW)
    empty = [Value("zeroinitializer", ROW)] * shape.rows

    def body(code: Code) -> None:
        place = _checked(code, address, shape, empty)
        rows = [_loaded(code, _pointers(code, place, number)) for number in range(shape.rows)]
        if shape.size_bytes < 4:
            rows = [part_of(code, rows[0], _shift(code, place), shape.size_bytes)]
        give(code, DONE, None, rows)

    return helper(f"local_gather_{shape.name}", (CONTEXT, LOCAL, address, MASK), body)


@cache
def local_scatter(shape: Shape) -> Helper:
    """Return `(context, local, addresses, mask, rows) -> answer`."""
    address = Value("%address", ROW)
    data = [Value(f"%row{at}", ROW) for at in range(shape.rows)]

    def body(code: Code) -> None:
        place = _checked(code, address, shape, [])
        for number, row in enumerate(data):
            pointers = _pointers(code, place, number)
            if shape.size_bytes < 4:
                row = with_part(code, _loaded(code, pointers), _shift(code, place), shape.size_bytes, row)
            code.call(
                f"llvm.masked.scatter.v{LANES}i32.v{LANES}p0", "void", row, pointers, Value("4", "i32"),
                code.bitcast(MASK, FLAGS),
            )  # fmt: skip
        give(code, DONE, None, [])

    return helper(f"local_scatter_{shape.name}", (CONTEXT, LOCAL, address, MASK, *data), body)


# generic addresses ----------------------------------------------------------------------------------------------------


def windows_of(code: Code, address: Value, mask: Value) -> list[Value]:
    """Return the lanes (i32) whose addresses lead to shared and to local memory."""
    found = []
    for word in (Own.SHARED_WINDOW, Own.LOCAL_WINDOW):
        base = code.splat(code.load(code.gep(CONTEXT, word, "i64"), "i64", 8), LANES)
        inside = code.icmp("ult", code.op("sub", address, base), code.const(WINDOW_BYTES, WIDE))
        found.append(code.op("and", mask, as_mask(code, inside)))
    return found


def _offset(code: Code, address: Value, word: Own) -> Value:
    base = code.splat(code.load(code.gep(CONTEXT, word, "i64"), "i64", 8), LANES)
    return code.resize(code.op("sub", address, base), "i32")


_Call = tuple[str, tuple[Value, ...]]


def _calls(code: Code, address: Value, names: tuple[str, str, str], data: Sequence[Value]) -> list[tuple[Value, _Call]]:
    """Return for global, shared and local memory the lanes, the helper's name and its arguments."""
    shared, local = windows_of(code, address, MASK)
    rest = code.op("and", MASK, code.invert(code.op("or", shared, local)))
    near, own = (_offset(code, address, one) for one in (Own.SHARED_WINDOW, Own.LOCAL_WINDOW))
    return [
        (rest, (names[0], (CONTEXT, SITE, rest, *data, address))),
        (shared, (names[1], (CONTEXT, SHARED, near, shared, *data))),
        (local, (names[2], (CONTEXT, LOCAL, own, local, *data))),
    ]


def unless_wrong(code: Code, answer: Answer, empty: list[Value]) -> None:
    """Hand on what another helper found wrong."""
    wrong, right = code.fresh("wrong"), code.fresh("right")
    code.branch(code.icmp("ne", answer.status, code.const(DONE, "i64")), wrong, right, likely=False)
    code.block(wrong)
    give(code, answer.status, answer.detail, empty)
    code.block(right)


def _generic(kind: str, shape: Shape, data: list[Value], body: Callable[[Code, Value], None]) -> Helper:
    address = Value("%address", WIDE)
    return helper(
        f"generic_{kind}_{shape.name}",
        (CONTEXT, SITE, SHARED, LOCAL, MASK, address, *data),
        lambda code: body(code, address),
    )


@cache
def generic_gather(shape: Shape) -> Helper:
    """Return `(context, site, shared, local, mask, addresses) -> answer with rows`."""
    empty = [Value("zeroinitializer", ROW)] * shape.rows

    def body(code: Code, address: Value) -> None:
        helpers = gather(shape, strict=True), lds_gather(shape, strict=True), local_gather(shape)
        first, second, third = (one.include(code) for one in helpers)
        rows = empty
        for lanes, (name, args) in _calls(code, address, (first, second, third), ()):
            answer = take(code, name, [ROW] * shape.rows, *args)
            unless_wrong(code, answer, empty)
            flags = code.bitcast(lanes, FLAGS)
            rows = [code.select(flags, new, old) for new, old in zip(answer.rows, rows, strict=True)]
        give(code, DONE, None, rows)

    return _generic("gather", shape, [], body)


@cache
def generic_scatter(shape: Shape) -> Helper:
    """Return `(context, site, shared, local, mask, addresses, rows) -> answer`."""
    data = [Value(f"%row{at}", ROW) for at in range(shape.rows)]

    def body(code: Code, address: Value) -> None:
        helpers = scatter(shape, strict=True), lds_scatter(shape, strict=True), local_scatter(shape)
        first, second, third = (one.include(code) for one in helpers)
        for _, (name, args) in _calls(code, address, (first, second, third), data):
            unless_wrong(code, take(code, name, [], *args), [])
        give(code, DONE, None, [])

    return _generic("scatter", shape, data, body)


@cache
def generic_locate(shape: Shape) -> Helper:
    """Return `(context, site, shared, local, mask, addresses) -> answer with host addresses`, for atomics."""
    empty = [Value("zeroinitializer", WIDE)]

    def body(code: Code, address: Value) -> None:
        first, second, third = (
            one.include(code) for one in (locate(shape), lds_locate(shape, strict=True), local_locate(shape))
        )
        hosts = empty[0]
        for number, (lanes, (name, args)) in enumerate(_calls(code, address, (first, second, third), ())):
            answer = take(code, name, [WIDE, "i32"] if number == 1 else [WIDE], *args)
            unless_wrong(code, answer, empty)
            hosts = code.select(code.bitcast(lanes, FLAGS), answer.rows[0], hosts)
        give(code, DONE, None, [hosts])

    return _generic("locate", shape, [], body)


@cache
def local_locate(shape: Shape) -> Helper:
    """Return `(context, local, addresses, mask) -> answer with host addresses` for words of four bytes."""
    address = Value("%address", ROW)
    empty = [Value("zeroinitializer", WIDE)]

    def body(code: Code) -> None:
        pointers = _pointers(code, _checked(code, address, shape, empty), 0)
        give(code, DONE, None, [code.emit(f"ptrtoint {pointers.type} {pointers.text} to {WIDE}", WIDE)])

    return helper(f"local_locate_{shape.name}", (CONTEXT, LOCAL, address, MASK), body)
