"""What the vector ALU of CDNA4 has besides CDNA3's: truth tables, random numbers, exchanged rows, shifted bytes.

Source: CDNA4 ISA reference, "VOP1", "VOP3A". GUESS: see `values/cdna4.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.gcn import truth_table
from ringup.silicon.shader.amd.rules.small_floats import random_after
from ringup.silicon.shader.amd.writer.dpp import ROW
from ringup.silicon.shader.amd.writer.wave import rule

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value


@rule("v_prng_b32")
def _random(wave: Wave, ins: Instruction) -> None:
    wave.put(ins.defs[0], random_after(wave, wave.src(ins.uses[0], "i32", ins)), ins)


@rule("v_bitop3_b32", "v_bitop3_b16")
def _by_table(wave: Wave, ins: Instruction) -> None:
    """Combine the bits of three sources by a truth table: the sum of the products that it names, or of the others."""
    code, kind, table = wave.code, "i16" if ins.mnemonic.endswith("16") else "i32", truth_table(ins.fields)
    sources = [wave.src(one, kind, ins) for one in ins.uses if one.direction == "use"]
    negative = table.bit_count() > 4
    found = wave.const(0, kind)
    for at in range(8):
        if bool(table >> at & 1) == negative:
            continue
        term = None
        for place, source in zip((2, 1, 0), sources, strict=True):
            one = source if at >> place & 1 else code.invert(source)
            term = one if term is None else code.op("and", term, one)
        assert term is not None
        found = code.op("or", found, term)
    wave.put(ins.defs[0], code.invert(found) if negative else found, ins)


def _shifted_bytes(wave: Wave, ins: Instruction, low: int, high: int) -> None:
    """Shift two integers, saturate them to bytes, and put these into the half that op_sel selects."""
    code, (first, second, by) = wave.code, (one for one in ins.uses if one.direction == "use")
    distance = code.op("and", wave.src(by, "i32", ins), wave.const(31, "i32"))
    octets = []
    for one in (first, second):
        value = code.op("ashr", wave.src(one, "i32", ins), distance)
        value = code.intrinsic("smin", code.intrinsic("smax", value, wave.const(low, "i32")), wave.const(high, "i32"))
        octets.append(code.op("and", value, wave.const(0xFF, "i32")))
    pair = code.op("or", octets[0], code.op("shl", octets[1], wave.const(8, "i32")))
    place = 16 * (ins.fields["opsel"] >> 3)
    old = code.op("and", wave.vgpr(ins.defs[0].index), wave.const(0xFFFF_0000 >> place, "i32"))
    wave.put(ins.defs[0], code.op("or", old, code.op("shl", pair, wave.const(place, "i32"))), ins)


rule("v_ashr_pk_i8_i32")(partial(_shifted_bytes, low=-128, high=127))
rule("v_ashr_pk_u8_i32")(partial(_shifted_bytes, low=0, high=255))


# Rows of 16 lanes in a block that is exchanged.
SWAPPED = {"v_permlane16_swap_b32": 1, "v_permlane32_swap_b32": 2}


@rule(*SWAPPED)
def _swapped_rows(wave: Wave, ins: Instruction) -> None:
    """Exchange the upper rows of vdst with the lower rows of src0, of each two blocks of rows."""
    code, operands = wave.code, ins.operands
    partners = [lane ^ ROW * SWAPPED[ins.mnemonic] for lane in range(wave.lanes)]
    values = [wave.vgpr(one.index) for one in operands]
    for at, to in enumerate(operands):
        own, other = values[at], values[1 - at]
        moves, empty = (code.bitcast(one, wave.bools) for one in _moving(wave, ins, upper=not at))
        found = code.select(moves, code.shuffle(other, None, partners), own)
        wave.put(to, code.select(empty, wave.const(0, "i32"), found), ins)


def _moving(wave: Wave, ins: Instruction, *, upper: bool) -> tuple[Value, Value]:
    """Return the lanes (masks) that get what their partner has, and those that get 0: op_sel 0 reads inactive lanes
    (FI), op_sel 1 gives 0 for them (BOUND_CTRL).
    """
    code, block, flags = wave.code, ROW * SWAPPED[ins.mnemonic], ins.fields.get("opsel", 0)
    moves = code.const(sum(1 << lane for lane in range(wave.lanes) if bool(lane & block) is upper), wave.mask_type)
    if wave.full or flags & 1:
        return moves, code.const(0, moves.type)
    readable = code.op("and", moves, _partners(wave, wave.exec_bits(), block))
    empty = code.op("and", moves, code.invert(readable)) if flags & 2 else code.const(0, moves.type)
    return readable, empty


def _partners(wave: Wave, lanes: Value, block: int) -> Value:
    """Return a mask with the bits of partners exchanged."""
    code = wave.code
    low = code.const(sum(1 << lane for lane in range(wave.lanes) if not lane & block), lanes.type)
    by = code.const(block, lanes.type)
    down, up = code.op("and", code.op("lshr", lanes, by), low), code.op("shl", code.op("and", lanes, low), by)
    return code.op("or", down, up)


def swapped_lanes(wave: Wave, ins: Instruction, own: Value, other: Value, *, upper: bool) -> Value:
    """Return the lanes of one of the exchanged registers that are defined, from those (masks) of both before."""
    code = wave.code
    moves, empty = _moving(wave, ins, upper=upper)
    moved = code.op("and", moves, _partners(wave, other, ROW * SWAPPED[ins.mnemonic]))
    return code.op("or", code.op("or", moved, code.op("and", own, code.invert(moves))), empty)
