"""Counters of memory instructions, for programs translated with counting: 128-byte lines accessed, LDS bank conflicts.

Source: RDNA3 ISA reference, "Data Share Indexed and Atomic Access": 64 banks of a dword; a wave64 takes two passes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import DONE, Helper, each_lane, give, helper, local, take

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.writer.wave import Wave

LINE_BITS = 7
BANKS = 64


def _add_to_set(code: Code, seen: Value, count: Value, size: int, value: Value) -> Value:
    """Add a value (i64) to a set of up to `size` values in memory; return whether it is new (i1)."""
    type_ = f"<{size} x i64>"
    equal = code.icmp("eq", code.load(seen, type_, 64), code.splat(value, size))
    known = code.intrinsic("vector.reduce.or", equal, result="i1", overload=(equal.type,))
    have = code.load(count, "i64", 8)
    # Stored after the others, the value is in the set only if `count` grows.
    code.store(value, code.gep(seen, have, "i64"), 8)
    new = code.op("xor", known, Value("true", "i1"))
    code.store(code.op("add", have, code.resize(new, "i64")), count, 8)
    return new


def _empty(code: Code, size: int) -> tuple[Value, Value]:
    seen, count = local(code, f"<{size} x i64>"), local(code, "i64")
    code.store(code.const(-1, f"<{size} x i64>"), seen, 64)
    code.store(code.const(0, "i64"), count, 8)
    return seen, count


@cache
def _lines(lanes: int, size_bytes: int) -> Helper:
    """Return `(mask, addresses) -> answer with the number of lines`."""
    mask, address = Value("%mask", f"i{lanes}"), Value("%address", f"<{lanes} x i64>")
    # two lines a lane, and space for a value stored beyond them
    size = 4 * lanes

    def body(code: Code) -> None:
        seen, count = _empty(code, size)
        places = local(code, address.type)
        code.store(address, places, 64)

        def one(lane: Value) -> None:
            start = code.load(code.gep(places, lane, "i64"), "i64", 8)
            for at in {0, size_bytes - 1}:
                byte = code.op("add", start, code.const(at, "i64"))
                _add_to_set(code, seen, count, size, code.op("lshr", byte, code.const(LINE_BITS, "i64")))

        each_lane(code, mask, one)
        give(code, DONE, None, [code.load(count, "i64", 8)])

    return helper(f"lines_{size_bytes}_w{lanes}", (mask, address), body)


@cache
def _conflicts(size_bytes: int) -> Helper:
    """Return `(mask, addresses) -> answer with cycles lost` for half a wave.

    These are the cycles of the busiest bank, beyond what the number of dwords needs.
    """
    mask, address = Value("%mask", "i32"), Value("%address", "<32 x i32>")
    # a misaligned access covers one more
    dwords = (size_bytes + 3) // 4 + 1
    size = 256

    def body(code: Code) -> None:
        seen, count = _empty(code, size)
        places, banks = local(code, address.type), local(code, f"<{BANKS} x i32>")
        code.store(address, places, 64)
        code.store(Value("zeroinitializer", f"<{BANKS} x i32>"), banks, 64)

        def one(lane: Value) -> None:
            start = code.load(code.gep(places, lane, "i32"), "i32", 4)
            last = code.op("lshr", code.op("add", start, code.const(size_bytes - 1, "i32")), code.const(2, "i32"))
            for at in range(dwords):
                dword = code.op("add", code.op("lshr", start, code.const(2, "i32")), code.const(at, "i32"))
                dword = code.intrinsic("umin", dword, last)
                new = _add_to_set(code, seen, count, size, code.resize(dword, "i64"))
                bank = code.gep(banks, code.resize(code.op("and", dword, code.const(BANKS - 1, "i32")), "i64"), "i32")
                code.store(code.op("add", code.load(bank, "i32", 4), code.resize(new, "i32")), bank, 4)

        each_lane(code, mask, one)
        busy = code.load(banks, f"<{BANKS} x i32>", 64)
        worst = code.intrinsic("vector.reduce.umax", busy, result="i32", overload=(busy.type,))
        needed = code.op("add", code.load(count, "i64", 8), code.const(BANKS - 1, "i64"))
        needed = code.op("lshr", needed, code.const(BANKS.bit_length() - 1, "i64"))
        give(code, DONE, None, [code.op("sub", code.resize(worst, "i64"), needed)])

    return helper(f"conflicts_{size_bytes}", (mask, address), body)


def count_lines(wave: Wave, address: Value, active: Value, size_bytes: int, *, first: bool = True) -> None:
    """Count a vector memory instruction that accesses `size_bytes` at addresses (vector of i64) in the lanes of a mask.

    If an instruction's accesses are counted in parts, exactly one of them is the `first`.
    """
    code = wave.code
    name = _lines(wave.lanes, size_bytes).include(code)
    found = take(code, name, ["i64"], active, address).rows[0]
    wave.count("cache_lines", found)
    if first:
        wave.count("memory_transactions", code.resize(code.icmp("ne", found, code.const(0, "i64")), "i64"))


def count_scalar(wave: Wave, gpu_va: Value, size_bytes: int) -> None:
    """Count a scalar load of consecutive bytes."""
    code = wave.code
    ends = (
        code.op("lshr", code.op("add", gpu_va, code.const(at, "i64")), code.const(LINE_BITS, "i64"))
        for at in (size_bytes - 1, 0)
    )
    wave.count("cache_lines", code.op("add", code.op("sub", *ends), code.const(1, "i64")))
    wave.count("memory_transactions", code.const(1, "i64"))


def count_conflicts(wave: Wave, address: Value, active: Value, size_bytes: int) -> None:
    """Count the cycles that an LDS access of `size_bytes` at addresses (vector of i32) loses to bank conflicts.

    32 lanes access LDS at a time.
    """
    code = wave.code
    for first in range(0, wave.lanes, 32):
        half = code.shuffle(address, None, range(first, first + 32))
        mask = code.op("lshr", active, code.const(first, active.type)) if first else active
        name = _conflicts(size_bytes).include(code)
        wave.count("lds_conflicts", take(code, name, ["i64"], code.resize(mask, "i32"), half).rows[0])
