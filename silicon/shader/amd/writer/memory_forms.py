"""What loads and stores move, by the end of their mnemonic: bytes, sign, half of the register.

All vector memory families share this. Source: RDNA3 ISA reference, "Data format in VGPRs and Memory".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ringup.silicon.shader.host.memory_shape import Shape

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value


class Form(NamedTuple):
    """Bytes in memory; whether a narrow load extends the sign; the half of the register that a 16-bit form uses."""

    size_bytes: int
    signed: bool = False
    half: Literal["", "low", "high"] = ""

    def shape(self, wave: Wave) -> Shape:
        """Return the access of a lane: aligned to its size, at most to a dword."""
        return Shape(self.size_bytes, min(self.size_bytes, 4), wave.lanes)


LOADS = {
    "u8": Form(1), "i8": Form(1, signed=True), "u16": Form(2), "i16": Form(2, signed=True),
    "b32": Form(4), "b64": Form(8), "b96": Form(12), "b128": Form(16),
    "d16_u8": Form(1, half="low"), "d16_i8": Form(1, signed=True, half="low"), "d16_b16": Form(2, half="low"),
    "d16_hi_u8": Form(1, half="high"), "d16_hi_i8": Form(1, signed=True, half="high"), "d16_hi_b16": Form(2, half="high"),
}  # fmt: skip
STORES = {
    "b8": Form(1), "b16": Form(2), "b32": Form(4), "b64": Form(8), "b96": Form(12), "b128": Form(16),
    "d16_hi_b8": Form(1, half="high"), "d16_hi_b16": Form(2, half="high"),
}  # fmt: skip


def operand(ins: Instruction, field: str) -> Operand:
    """Return the operand of an encoding field."""
    return next(one for one in ins.operands if one.field == field)


def put_loaded(wave: Wave, to: Operand, form: Form, rows: list[Value]) -> None:
    """Write loaded rows to registers; narrow rows come zero-extended."""
    code = wave.code
    if form.size_bytes < 4:
        row = rows[0]
        if form.signed:
            unused = wave.const(32 - 8 * form.size_bytes, "i32")
            row = code.op("ashr", code.op("shl", row, unused), unused)
        if form.half:
            old = wave.vgpr(to.index)
            if form.half == "low":
                kept = code.op("and", old, wave.const(0xFFFF_0000, "i32"))
                row = code.op("and", row, wave.const(0xFFFF, "i32"))
            else:
                kept = code.op("and", old, wave.const(0xFFFF, "i32"))
                row = code.op("shl", row, wave.const(16, "i32"))
            row = code.op("or", kept, row)
        rows = [row]
    for at, row in enumerate(rows):
        wave.set_vgpr(to.index + at, row)


def stored(wave: Wave, source: Operand, form: Form) -> list[Value]:
    """Return the registers to store; the low bytes of narrow ones are used."""
    rows = [wave.vgpr(source.index + at) for at in range(-(-form.size_bytes // 4))]
    if form.half == "high":
        return [wave.code.op("lshr", rows[0], wave.const(16, "i32"))]
    return rows
