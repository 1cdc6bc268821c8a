"""Scalar loads: consecutive dwords through the constant cache into SGPRs.

Source: RDNA3 ISA reference, "Scalar Memory Operations": the low two address bits are ignored; dwords beyond a buffer's
end read 0.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.operands import NULL
from ringup.silicon.shader.amd.writer.memory_counters import count_scalar
from ringup.silicon.shader.amd.writer.memory_forms import operand
from ringup.silicon.shader.amd.writer.memory_ir import either, pointer
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_helpers import SITE, reached
from ringup.silicon.shader.host.memory_shape import CONTEXT, DONE, MEMORY, Helper, Region, give, helper, take

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave

DWORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16}
# Bits of loads that fill a dword, and whether they extend the sign.
SMALL = {"u8": (8, False), "i8": (8, True), "u16": (16, False), "i16": (16, True)}


@cache
def _fetch(count: int, bits: int = 32) -> Helper:
    """Return `(context, site, gpu_va) -> answer with dwords`, or smaller units; each may be in its own region."""
    kind, size_bytes = f"i{bits}", bits // 8
    gpu_va = Value("%gpu_va", "i64")

    def body(code: Code) -> None:
        found: list[Value] = []
        for at in range(count):
            place = code.op("add", gpu_va, code.const(size_bytes * at, "i64"))
            host, left = reached(code, place, write=False)
            lost, good = code.fresh("lost"), code.fresh("good")
            code.branch(code.icmp("ult", left, code.const(size_bytes, "i64")), lost, good, likely=False)
            code.block(lost)
            give(code, MEMORY, place, [code.const(0, kind)] * count)
            code.block(good)
            found.append(code.load(code.cast("inttoptr", host, "ptr"), kind, 1))
        give(code, DONE, None, found)

    return helper(f"fetch_{count}" + f"_{kind}" * (bits != 32), (CONTEXT, SITE, gpu_va), body)


def _fetched(wave: Wave, gpu_va: Value, count: int, bits: int = 32) -> list[Value]:
    """Load dwords, or smaller units, from an address that is a multiple of their size."""
    code, site, kind, size_bytes = wave.code, wave.site(), f"i{bits}", bits // 8
    if wave.counting:
        count_scalar(wave, gpu_va, size_bytes * count)
    region = Region.read(code, site)

    def quick() -> list[Value]:
        place = pointer(wave, code.op("add", gpu_va, region.delta))
        return [code.load(code.gep(place, size_bytes * at), kind, 1) for at in range(count)]

    def slow() -> list[Value]:
        answer = take(code, _fetch(count, bits).include(code), [kind] * count, CONTEXT, site, gpu_va)
        wave.fault(code.icmp("ne", answer.status, code.const(DONE, "i64")), "memory", answer.detail)
        return answer.rows

    return either(wave, region.holds(code, gpu_va, size_bytes * count), quick, slow)


def _put(wave: Wave, ins: Instruction, dwords: list[Value]) -> None:
    first = operand(ins, "sdata").index
    for at, dword in enumerate(dwords):
        wave.set_sgpr(first + at, dword)


def _extended(wave: Wave, units: list[Value], *, signed: bool) -> list[Value]:
    return [wave.code.resize(one, "i32", signed=signed) for one in units]


def _load(wave: Wave, ins: Instruction, count: int, bits: int = 32, *, signed: bool = False) -> None:
    code, register = wave.code, operand(ins, "soffset")
    if wave.strict and ins.offset < 0 and register.index != NULL:
        # the sum of both offsets may not be negative
        wave.bail(ins)
        return
    base = wave.scalar(operand(ins, "sbase"), "i64")
    offset = code.resize(wave.scalar(register, "i32"), "i64")
    gpu_va = code.op("add", code.op("add", base, offset), wave.immediate(ins.offset, "i64"))
    size_bytes = bits // 8
    if wave.strict and size_bytes > 1:
        wave.fault(_misaligned(wave, gpu_va, size_bytes), "alignment", gpu_va)
    units = _fetched(wave, code.op("and", gpu_va, code.const(-size_bytes, "i64")), count, bits)
    _put(wave, ins, _extended(wave, units, signed=signed))


def _misaligned(wave: Wave, gpu_va: Value, size_bytes: int) -> Value:
    code = wave.code
    return code.icmp("ne", code.op("and", gpu_va, code.const(size_bytes - 1, "i64")), code.const(0, "i64"))


def _buffer_load(wave: Wave, ins: Instruction, count: int, bits: int = 32, *, signed: bool = False) -> None:
    """Load through a buffer resource; only base, stride and num_records are used.

    The interpreter executes loads beyond its bounds.
    """
    code, size_bytes = wave.code, bits // 8
    resource = operand(ins, "sbase").index
    low, high, records = (wave.sgpr(resource + at) for at in range(3))
    base = code.op(
        "or",
        code.resize(low, "i64"),
        code.op("shl", code.resize(_bits(wave, high, 0, 16), "i64"), code.const(32, "i64")),
    )
    stride = _bits(wave, high, 16, 14)
    stride = code.select(code.icmp("eq", stride, code.const(0, "i32")), code.const(1, "i32"), stride)
    size = code.op("mul", code.resize(stride, "i64"), code.resize(records, "i64"))
    offset = code.op(
        "add", code.resize(wave.scalar(operand(ins, "soffset"), "i32"), "i64"), wave.immediate(ins.offset, "i64")
    )
    last = code.op("add", offset, code.const(size_bytes * (count - 1), "i64"))
    # A negative offset is a huge unsigned one.
    beyond = code.op("or", code.icmp("uge", offset, size), code.icmp("uge", last, size))
    if wave.strict:
        beyond = code.op("or", beyond, _misaligned(wave, code.op("or", base, offset), size_bytes))
    with wave.unless(beyond, ins):
        aligned = (code.op("and", one, code.const(-size_bytes, "i64")) for one in (base, offset))
        units = _fetched(wave, code.op("add", *aligned), count, bits)
        _put(wave, ins, _extended(wave, units, signed=signed))


def _bits(wave: Wave, word: Value, low: int, count: int) -> Value:
    code = wave.code
    return code.op("and", code.op("lshr", word, code.const(low, "i32")), code.const((1 << count) - 1, "i32"))


for _name, _count in DWORDS.items():
    rule(f"s_load_{_name}")(partial(_load, count=_count))
    rule(f"s_buffer_load_{_name}")(partial(_buffer_load, count=_count))
for _name, (_bits_of, _signed) in SMALL.items():
    rule(f"s_load_{_name}")(partial(_load, count=1, bits=_bits_of, signed=_signed))
    rule(f"s_buffer_load_{_name}")(partial(_buffer_load, count=1, bits=_bits_of, signed=_signed))
