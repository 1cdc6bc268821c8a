"""GLOBAL and FLAT loads and stores.

Source: RDNA3 ISA reference, "Global, Scratch and Flat Address Space".
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.memory_forms import LOADS, STORES, Form, operand, put_loaded, stored
from ringup.silicon.shader.amd.writer.memory_ir import Addresses, load, store
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.memory_shape import as_mask

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value


def addresses(wave: Wave, ins: Instruction) -> Addresses:
    """Return the addresses of a GLOBAL or FLAT instruction.

    They come from a VGPR pair, from an SGPR pair and a VGPR offset, or (ADDTID) from an SGPR pair and the lane.
    """
    code = wave.code
    offset = wave.immediate(ins.offset, "i64")
    scalar = next((one for one in ins.operands if one.field == "saddr" and one.kind == "sgpr"), None)
    lanes = next((one for one in ins.operands if one.field == "addr"), None)
    if scalar is None and lanes is not None:
        return Addresses(offset, wave.src(lanes, "i64"))
    base = offset if scalar is None else code.op("add", wave.scalar(scalar, "i64"), offset)
    return Addresses(base, stride=4) if lanes is None else Addresses(base, wave.src(lanes, "i32"))


def _inside(wave: Wave, lanes: Value, name: str) -> Value:
    """Return the lanes whose flat address (vector of i64) is in an aperture (vector of i1); an aperture at 0 has
    none.
    """
    code = wave.code
    aperture = wave.context(name)
    start = code.op("shl", aperture, code.const(16, "i64"))
    nowhere = code.icmp("eq", aperture, code.const(0, "i64"))
    start = code.select(nowhere, code.const(-1, "i64"), start)
    return code.icmp("eq", code.op("lshr", lanes, wave.const(32, "i64")), wave.splat(start))


def own_lanes(wave: Wave, ins: Instruction) -> Value:
    """Return the lanes of a FLAT instruction that access scratch (mask_type)."""
    return as_mask(wave.code, _inside(wave, wave.src(operand(ins, "addr"), "i64"), "private"))


def in_aperture(wave: Wave, lanes: Value) -> Value:
    """Return whether an active lane's flat address (vector of i64) is in the LDS or the private aperture (i1)."""
    code = wave.code
    shared, private = (_inside(wave, lanes, name) for name in ("shared", "private"))
    there = code.op("and", as_mask(code, shared), wave.exec_bits())
    wave.reaches_lds = code.icmp("ne", there, code.const(0, there.type))
    active = code.op("and", as_mask(code, code.op("or", shared, private)), wave.exec_bits())
    return code.icmp("ne", active, code.const(0, active.type))


def global_only(wave: Wave, ins: Instruction) -> AbstractContextManager[None]:
    """Guard a body that is right for global memory.

    The interpreter executes FLAT instructions that access LDS or scratch.
    """
    if ins.format != "FLAT":
        return nullcontext()
    return wave.unless(in_aperture(wave, wave.src(operand(ins, "addr"), "i64")), ins)


def _load(wave: Wave, ins: Instruction, form: Form) -> None:
    with global_only(wave, ins):
        rows = load(wave, addresses(wave, ins), form.shape(wave))
        put_loaded(wave, operand(ins, "vdst"), form, rows)


def _store(wave: Wave, ins: Instruction, form: Form) -> None:
    with global_only(wave, ins):
        store(wave, addresses(wave, ins), form.shape(wave), stored(wave, operand(ins, "data"), form))


for _family in ("global", "flat"):
    for _name, _form in LOADS.items():
        rule(f"{_family}_load_{_name}")(partial(_load, form=_form))
    for _name, _form in STORES.items():
        rule(f"{_family}_store_{_name}")(partial(_store, form=_form))
rule("global_load_addtid_b32")(partial(_load, form=LOADS["b32"]))
rule("global_store_addtid_b32")(partial(_store, form=STORES["b32"]))
