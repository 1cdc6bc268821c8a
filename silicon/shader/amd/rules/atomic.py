"""Atomics on global memory, through FLAT and buffers, and on LDS.

Source: RDNA3 ISA reference, "LDS Atomic Ops", "Float Memory Atomics", "FLAT, Scratch and Global Instructions".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.global_memory import addresses, global_only
from ringup.silicon.shader.amd.rules.lds import address, lds_rule
from ringup.silicon.shader.amd.writer.memory_counters import count_conflicts, count_lines
from ringup.silicon.shader.amd.writer.memory_forms import operand
from ringup.silicon.shader.amd.writer.memory_ir import lds_address, lds_unwritten, refuse
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.atomic_ops import NO_FLUSH, Flush, atomic
from ringup.silicon.shader.host.context import LDS_UNWRITTEN
from ringup.silicon.shader.host.lds_helpers import lds_locate
from ringup.silicon.shader.host.memory_helpers import locate, spread
from ringup.silicon.shader.host.memory_shape import CONTEXT, Shape, first_lane, take

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.memory_ir import Addresses
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value

# End of the mnemonic: operation, bytes of a lane.
CACHE_ATOMICS = {
    f"{name}_{letter}{8 * size}": (operation, size)
    for size in (4, 8)
    for name, letter, operation in (
        ("swap", "b", "swap"), ("cmpswap", "b", "cmpswap"), ("add", "u", "add"), ("sub", "u", "sub"), ("min", "i", "smin"),
        ("min", "u", "umin"), ("max", "i", "smax"), ("max", "u", "umax"), ("and", "b", "and"), ("or", "b", "or"), ("xor", "b", "xor"),
        ("inc", "u", "inc"), ("dec", "u", "dec"),
    )
} | {
    "csub_u32": ("csub", 4), "cmpswap_f32": ("cmpswap_float", 4), "min_f32": ("min_float", 4), "max_f32": ("max_float", 4),
    "add_f32": ("add_float", 4), "cond_sub_u32": ("cond_sub", 4), "sub_clamp_u32": ("csub", 4),
    "min_num_f32": ("min_num_float", 4), "max_num_f32": ("max_num_float", 4),
}  # fmt: skip
# As above. The key is split where `rtn` is inserted for atomics that return the old value.
LDS_ATOMICS = {
    (name, f"{letter}{8 * size}"): (operation, size)
    for size in (4, 8)
    for name, letter, operation in (
        ("add", "u", "add"), ("sub", "u", "sub"), ("rsub", "u", "rsub"), ("inc", "u", "inc"), ("dec", "u", "dec"), ("min", "i", "smin"),
        ("max", "i", "smax"), ("min", "u", "umin"), ("max", "u", "umax"), ("and", "b", "and"), ("or", "b", "or"), ("xor", "b", "xor"),
        ("mskor", "b", "mskor"), ("cmpstore", "b", "cmpswap"), ("cmpstore", "f", "cmpswap_float"), ("min", "f", "min_float"),
        ("max", "f", "max_float"), ("min_num", "f", "min_num_float"), ("max_num", "f", "max_num_float"),
    )
} | {
    ("add", "f32"): ("add_float", 4), ("cond_sub", "u32"): ("cond_sub", 4), ("sub_clamp", "u32"): ("csub", 4),
}  # fmt: skip
LDS_RETURNING = {
    "ds_storexchg_rtn_b32": ("swap", 4), "ds_storexchg_rtn_b64": ("swap", 8), "ds_wrap_rtn_b32": ("wrap", 4),
}  # fmt: skip


def _data(wave: Wave, source: Operand, size_bytes: int, at: int = 0) -> Value:
    """Return the lanes' data: value number `at` in the registers of an operand."""
    return wave.src(replace(source, index=source.index + at * (size_bytes // 4)), f"i{8 * size_bytes}")


def put_old(wave: Wave, to: Operand, old: Value) -> None:
    """Write the old values of an atomic."""
    code = wave.code
    wave.set_vgpr(to.index, code.resize(old, "i32"))
    if old.element == "i64":
        wave.set_vgpr(to.index + 1, code.cast("trunc", code.op("lshr", old, code.const(32, old.type)), "i32"))


def cache_atomic(
    wave: Wave, where: Addresses, operation: str, size_bytes: int, source: Operand, active: Value
) -> Value:
    """Emit an atomic on memory for the lanes of a mask; return the old values (vector of i32 or i64).

    A compare value follows the data.
    """
    code = wave.code
    shape = Shape(size_bytes, size_bytes, wave.lanes)
    data = _data(wave, source, size_bytes)
    second = _data(wave, source, size_bytes, 1) if operation.startswith("cmpswap") else data
    if wave.counting:
        count_lines(wave, where.every(wave), active, size_bytes)
    site = wave.site()
    places = f"<{wave.lanes} x i64>"
    name = spread(locate(shape), where.spread, shape).include(code)
    found = take(code, name, [places], CONTEXT, site, active, *where.args())
    refuse(wave, found)
    if not wave.generation.flushes_in_memory:
        flush = NO_FLUSH
    elif operation == "add_float":
        flush = Flush(inputs=True)  # hardwired
    elif operation.endswith("_float"):
        flush = Flush(inputs=not wave.mode.denorm_f32 & 1)
    else:
        flush = NO_FLUSH
    function = atomic(operation, data.element, wave.lanes, flush, returns=source.direction != "use")
    return take(code, function.include(code), [data.type], found.rows[0], active, data, second).rows[0]


def _global(wave: Wave, ins: Instruction, operation: str, size_bytes: int) -> None:
    to = next((one for one in ins.operands if one.field == "vdst"), None)
    with global_only(wave, ins):
        source = replace(operand(ins, "data"), direction="use" if to is None else "both")
        old = cache_atomic(wave, addresses(wave, ins), operation, size_bytes, source, wave.exec_bits())
        if to is not None:
            put_old(wave, to, old)


def _lds(wave: Wave, ins: Instruction, operation: str, size_bytes: int) -> None:
    code = wave.code
    shape = Shape(size_bytes, size_bytes, wave.lanes)
    to = next((one for one in ins.operands if one.field == "vdst"), None)
    data = _data(wave, operand(ins, "data0"), size_bytes)
    second = next((_data(wave, one, size_bytes) for one in ins.operands if one.field == "data1"), data)
    # CDNA gives what is compared first.
    if operation.startswith("cmpswap") and wave.generation.is_gcn:
        data, second = second, data
    where, active, places = address(wave, ins, ins.offset), wave.exec_bits(), f"<{wave.lanes} x i64>"
    if wave.counting:
        count_conflicts(wave, where, active, size_bytes)
    name = lds_locate(shape, strict=wave.strict).include(code)
    found = take(code, name, [places, shape.mask], CONTEXT, lds_address(wave), where, active)
    refuse(wave, found)
    if wave.strict:
        undefined = lds_unwritten(wave, where, shape, active)[0]
        lane = code.resize(code.extract(where, first_lane(code, undefined)), "i64")
        detail = code.op("or", lane, code.const(LDS_UNWRITTEN, "i64"))
        wave.fault(code.icmp("ne", undefined, code.const(0, undefined.type)), "uninitialised", detail)
    denorm = wave.mode.denorm_f32 if size_bytes == 4 else wave.mode.denorm_f64
    is_float = operation.endswith("_float")
    flush = Flush(not denorm & 1, operation == "add_float" and not denorm & 2) if is_float else NO_FLUSH
    function = atomic(operation, data.element, wave.lanes, flush, returns=to is not None)
    old = take(code, function.include(code), [data.type], *found.rows, data, second).rows[0]
    if to is not None:
        put_old(wave, to, old)


for _name, (_operation, _size) in CACHE_ATOMICS.items():
    rule(f"global_atomic_{_name}", f"flat_atomic_{_name}")(partial(_global, operation=_operation, size_bytes=_size))
for (_name, _type), (_operation, _size) in LDS_ATOMICS.items():
    lds_rule(f"ds_{_name}_{_type}", f"ds_{_name}_rtn_{_type}")(partial(_lds, operation=_operation, size_bytes=_size))
for _name, (_operation, _size) in LDS_RETURNING.items():
    lds_rule(_name)(partial(_lds, operation=_operation, size_bytes=_size))
