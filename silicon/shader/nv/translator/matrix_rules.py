"""Matrix instructions as IR. What they compute is as in `interpreter/matrices.py`, which names the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.memory_shape import CONTEXT, take
from ringup.silicon.shader.nv.decoding.instruction import RZ
from ringup.silicon.shader.nv.interpreter.matrices import FLOAT_SHAPES, INTEGER_SHAPES
from ringup.silicon.shader.nv.translator.matrix_helpers import (
    Floats,
    Integers,
    counts,
    loaded_matrices,
    product_of_floats,
    product_of_integers,
    transposed,
)
from ringup.silicon.shader.nv.translator.memory_rules import addresses, refuse
from ringup.silicon.shader.nv.translator.writer import ROW, NotTranslated, Writer
from ringup.silicon.shader.nv.values.matrices import SUMS, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.host.emitter import Value
    from ringup.silicon.shader.host.memory_shape import Helper
    from ringup.silicon.shader.nv.decoding.instruction import Operand


def _registers(w: Writer, operand: Operand, count: int) -> list[Value]:
    if operand.value == RZ:
        return [w.code.const(0, ROW)] * count
    return [w.register(operand.value + number) for number in range(count)]


def _give(w: Writer, rd: Operand, rows: list[Value]) -> None:
    if rd.value != RZ:
        for number, row in enumerate(rows):
            w.write_register(rd.value + number, row)


def _product(w: Writer, shape: Shape, helper: Helper, *, narrow: bool) -> None:
    code = w.code
    rd, *operands = w.ins.operands
    every = counts(shape, narrow=narrow)
    given = [row for one, count in zip(operands, every, strict=True) for row in _registers(w, one, count)]
    _give(w, rd, take(code, helper.include(code), [ROW] * every[-1], *given).rows)


def _hmma(w: Writer) -> None:
    ins = w.ins
    kind = next((one for one in ("BF16", "TF32") if ins.has(one)), "F16")
    narrow = ins.modifiers[1] == "F16"
    if ins.modifiers[0] not in FLOAT_SHAPES or (narrow and kind != "F16"):
        raise NotTranslated(f"{ins.text}: this form")
    shape = Shape(*FLOAT_SHAPES[ins.modifiers[0]], packed=1 if kind == "TF32" else 2)
    how = SUMS[w.target]
    at_once = how.products_tf32 if kind == "TF32" else how.products
    form = Floats(shape, kind, narrow, min(at_once, shape.depth), how.bits)
    if not shape.halves or not form.fits:
        raise NotTranslated(f"{ins.text}: this form")
    w.need_every_lane()
    _product(w, shape, product_of_floats(form), narrow=narrow)


def _imma(w: Writer) -> None:
    ins = w.ins
    first, second = (one for one in ins.modifiers if one in ("U8", "S8", "U4", "S4"))
    shape = Shape(*INTEGER_SHAPES[ins.modifiers[0]], packed=32 // int(first[1:]))
    if first[1:] != second[1:] or not shape.halves:
        raise NotTranslated(f"{ins.text}: this form")
    w.need_every_lane()
    form = Integers(shape, (first, second), ins.has("SAT"))
    _product(w, shape, product_of_integers(form), narrow=False)


def _ldsm(w: Writer) -> None:
    """Load one, two or four matrices of 8 x 8 halves; eight lanes have the addresses of a matrix's rows."""
    w.need_every_lane()
    code = w.code
    rd, place = w.ins.operands
    count = int(next((one for one in w.ins.modifiers if one in ("2", "4")), "1"))
    name = loaded_matrices(count, columns=w.ins.has("MT88")).include(code)
    mask = code.op("and", w.mask, code.const((1 << 8 * count) - 1, "i32"))
    answer = take(code, name, [ROW] * count, CONTEXT, w.shared(), addresses(w, place, "i32"), mask)
    refuse(w, answer)
    _give(w, rd, answer.rows)


def _movm(w: Writer) -> None:
    """Transpose a matrix of 8 x 8 halves that lies in one register of the warp."""
    w.need_every_lane()
    rd, source = w.ins.operands
    _give(w, rd, [transposed(w.code, w.raw(source))])


RULES: dict[str, Callable[[Writer], None]] = {"HMMA": _hmma, "IMMA": _imma, "LDSM": _ldsm, "MOVM": _movm}
