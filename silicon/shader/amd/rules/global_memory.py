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


# Lanes whose addresses a transposing load uses: how many, and their mask.
_NEAR = 32
USED_ADDRESSES = (1 << _NEAR) - 1


def _given(size_bytes: int, lane: int, at: int) -> tuple[int, int]:
    """Return the lane that loads element `at` of lane `lane` of a wave32, and its number there.

    Source: as in the interpreter's `memory.py`, as a table of lanes: (lane bits from 4 down, numbers from 7 down).
    """
    if size_bytes == 16:
        return lane & 0x18 | at, lane & 7
    return lane & 0x10 | (at & 4) << 1 | (lane & 8) >> 1 | at & 3, lane & 7


def _exchanged(wave: Wave, rows: list[Value], size_bytes: int) -> list[Value]:
    """Return the registers that a transposing load fills, from the registers of a plain load of the same size."""
    code, bits, of_row = wave.code, size_bytes, 32 // size_bytes
    parts = [code.bitcast(row, f"<{of_row * wave.lanes} x i{bits}>") for row in rows]
    both = [code.shuffle(a, b, range(2 * of_row * wave.lanes)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    filled = []
    for register in range(len(rows) * _NEAR // wave.lanes):
        order = []
        for lane in range(wave.lanes):
            for part in range(of_row):
                # The upper lanes of a wave64 have the upper half of what a wave32 has.
                at = lane // _NEAR * (8 * _NEAR // wave.lanes) + register * of_row + part
                source, element = _given(size_bytes, lane % _NEAR, at)
                order.append((element // of_row * wave.lanes + source) * of_row + element % of_row)
        found = code.shuffle(both[0], both[1] if len(both) > 1 else None, order)
        filled.append(code.bitcast(found, wave.row))
    return filled


def _load_transposed(wave: Wave, ins: Instruction, size_bytes: int) -> None:
    """Load and exchange elements; the interpreter does so if a lane is not active."""
    code, active = wave.code, wave.exec_bits()
    with wave.unless(code.icmp("ne", active, code.const(-1, active.type)), ins):
        near = code.const(USED_ADDRESSES, active.type)
        rows = load(wave, addresses(wave, ins), Form(size_bytes).shape(wave), near)
        for at, row in enumerate(_exchanged(wave, rows, size_bytes)):
            wave.set_vgpr(operand(ins, "vdst").index + at, row)


rule("global_load_tr_b128")(partial(_load_transposed, size_bytes=16))
rule("global_load_tr_b64")(partial(_load_transposed, size_bytes=8))

for _family in ("global", "flat"):
    for _name, _form in LOADS.items():
        rule(f"{_family}_load_{_name}")(partial(_load, form=_form))
    for _name, _form in STORES.items():
        rule(f"{_family}_store_{_name}")(partial(_store, form=_form))
rule("global_load_addtid_b32")(partial(_load, form=LOADS["b32"]))
rule("global_store_addtid_b32")(partial(_store, form=STORES["b32"]))
