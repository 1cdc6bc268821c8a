"""Matrix instructions of a warp: products of fragments, loads of fragments from shared memory, transpositions.

Source: PTX ISA, mma, ldmatrix, movmatrix; names and operands by Mesa's NAK (MIT). Layouts and rounding are in
`values/matrices.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import RZ
from ringup.silicon.shader.nv.interpreter.memory import addresses, aligned, shared_space
from ringup.silicon.shader.nv.state import EVERY, LANES
from ringup.silicon.shader.nv.values import matrices
from ringup.silicon.shader.nv.values.matrices import Shape, addend, first_factor, scattered, second_factor, unpacked
from ringup.silicon.shader.nv.values.rounding import directed, double_fma

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.nv.decoding.instruction import Operand
    from ringup.silicon.shader.nv.interpreter.step import Lanes, Step

    Doubles = NDArray[np.float64]

ROW_BYTES, MATRIX = 16, 8
# By name: rows, depth; integers of 8 bits and of 4 share names.
FLOAT_SHAPES = {"1684": (16, 4), "1688": (16, 8), "16816": (16, 16)}
INTEGER_SHAPES = {"8816": (8, 16), "8832": (8, 32), "16816": (16, 16), "16832": (16, 32), "16864": (16, 64)}
_LOWEST = {"F16": -14, "BF16": -126, "TF32": -126}


def _whole_warp(step: Step) -> None:
    """Refuse a path of some lanes: PTX says that all threads of the warp execute it together."""
    if step.mask != EVERY:
        raise Unmodelled(f"{step.ins.text}: in some lanes of the warp only")


def _registers(step: Step, operand: Operand, count: int) -> list[Lanes]:
    if operand.value == RZ:
        return [np.zeros(LANES, np.uint32)] * count
    return [step.register(operand.value + number) for number in range(count)]


def _store(step: Step, rd: Operand, rows: NDArray[np.uint32]) -> None:
    if rd.value != RZ:
        for number, row in enumerate(rows):
            step.write_register(rd.value + number, np.ascontiguousarray(row))


def _values(parts: NDArray[np.int64], kind: str) -> Doubles:
    """Return floats of their bits."""
    if kind == "F16":
        return parts.astype(np.uint16).view(np.float16).astype(np.float64)
    # The lower 13 bits of a TF32 do not count. Source: PTX ISA, "Alternate floating point data formats".
    words = parts << 16 if kind == "BF16" else parts & 0xFFFF_E000
    with np.errstate(all="ignore"):
        return words.astype(np.uint32).view(np.float32).astype(np.float64)


def _hmma(step: Step) -> None:
    ins = step.ins
    _whole_warp(step)
    rd, a, b, c = ins.operands
    shape_name, result = ins.modifiers[0], ins.modifiers[1]
    kind = next((one for one in ("BF16", "TF32") if ins.has(one)), "F16")
    if shape_name not in FLOAT_SHAPES:
        raise Unmodelled(f"{ins.text}: products of four threads")
    shape = Shape(*FLOAT_SHAPES[shape_name], packed=1 if kind == "TF32" else 2)
    narrow = result == "F16"
    if not shape.halves or (narrow and kind != "F16"):
        raise Unmodelled(f"{ins.text}: this form")
    row_halves = shape.rows // MATRIX
    left = first_factor(_values(unpacked(_registers(step, a, shape.halves * row_halves), shape.packed), kind), shape)
    right = second_factor(_values(unpacked(_registers(step, b, shape.halves), shape.packed), kind), shape)
    given = _registers(step, c, row_halves if narrow else 2 * row_halves)
    if narrow:
        parts = unpacked(given, 2).transpose(0, 2, 1).reshape(-1, LANES)
        total = _values(parts, "F16")
    else:
        total = np.array(given).view(np.float32).astype(np.float64)
    how = matrices.SUMS[step.machine.target]
    found = matrices.product(
        np.asarray(left, np.float64), np.asarray(right, np.float64), np.asarray(addend(total, shape.rows), np.float64),
        at_once=how.products_tf32 if kind == "TF32" else how.products, bits=how.bits, lowest=_LOWEST[kind], narrow=narrow,
    )  # fmt: skip
    rows = scattered(found).astype(np.uint32)
    _store(step, rd, rows[0::2] | rows[1::2] << np.uint32(16) if narrow else rows)


def _imma(step: Step) -> None:
    """Multiply integers exactly; sums wrap at 32 bits, with `.SAT` they are clamped."""
    ins = step.ins
    _whole_warp(step)
    rd, a, b, c = ins.operands
    kinds = [one for one in ins.modifiers if one in ("U8", "S8", "U4", "S4")]
    packed = 32 // int(kinds[0][1:])
    shape = Shape(*INTEGER_SHAPES[ins.modifiers[0]], packed=packed)
    row_halves = shape.rows // MATRIX
    left = _signed(unpacked(_registers(step, a, shape.halves * row_halves), packed), kinds[0])
    right = _signed(unpacked(_registers(step, b, shape.halves), packed), kinds[1])
    given = np.array(_registers(step, c, 2 * row_halves)).view(np.int32).astype(np.int64)
    total = _whole(first_factor(left, shape)) @ _whole(second_factor(right, shape)) + _whole(addend(given, shape.rows))
    if ins.has("SAT"):
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    _store(step, rd, (scattered(total).astype(np.int64) & 0xFFFF_FFFF).astype(np.uint32))


def _whole(values: NDArray[np.generic]) -> NDArray[np.int64]:
    return np.asarray(values, np.int64)


def _signed(parts: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
    width = int(kind[1:])
    return parts - (parts >> width - 1 << width) if kind[0] == "S" else parts


def _dmma(step: Step) -> None:
    """Multiply f64. GUESS: one fused product after the other, along K."""
    _whole_warp(step)
    rd, a, b, c = step.ins.operands
    mode = next((one for one in ("RM", "RP", "RZ") if step.ins.has(one)), "")
    shape = Shape(8, 4, packed=1)
    left, right = (_pairs(step, one, 1) for one in (a, b))
    left_matrix = np.asarray(first_factor(left[:, :, None], shape), np.float64)
    right_matrix = np.asarray(second_factor(right[:, :, None], shape), np.float64)
    total = np.asarray(addend(_pairs(step, c, 2), 8), np.float64)
    for k in range(4):
        x, y = np.repeat(left_matrix[:, k], 8), np.tile(right_matrix[k], 8)
        given = total.ravel()
        total = directed(double_fma(x, y, given), x, y, given, mode).reshape(8, 8)
    bits = np.ascontiguousarray(scattered(total), np.float64).view(np.uint64)
    for number, row in enumerate(bits):
        step.write64(rd._replace(value=rd.value + 2 * number) if rd.value != RZ else rd, row)


def _pairs(step: Step, operand: Operand, count: int) -> Doubles:
    """Return `(value, lane)` of pairs of registers."""
    words = _registers(step, operand, 2 * count)
    found = [
        words[2 * at].astype(np.uint64) | words[2 * at + 1].astype(np.uint64) << np.uint64(32) for at in range(count)
    ]
    return np.array(found, np.uint64).view(np.float64)


def _ldsm(step: Step) -> None:
    """Load one, two or four matrices of 8 x 8 halves; eight lanes have the addresses of a matrix's rows."""
    ins = step.ins
    _whole_warp(step)
    rd, place = ins.operands
    count = int(next((one for one in ins.modifiers if one in ("2", "4")), "1"))
    where = addresses(step, place)
    space = shared_space(step)
    rows = []
    for lane in range(MATRIX * count):
        aligned(where[lane], ROW_BYTES, lane)
        rows.append(np.frombuffer(space.load(where[lane], ROW_BYTES), "<u2"))
    found = np.array(rows, np.uint32).reshape(count, MATRIX, MATRIX)
    _store(step, rd, _fragments(found, transposed=ins.has("MT88")))


def _fragments(found: NDArray[np.uint32], *, transposed: bool) -> NDArray[np.uint32]:
    """Return `(matrix, lane)`: two neighbours of a row, or of a column, for each lane."""
    ordered = found.transpose(0, 2, 1) if transposed else found
    pairs = ordered.reshape(len(found), LANES, 2)
    return (pairs[:, :, 0] | pairs[:, :, 1] << np.uint32(16)).astype(np.uint32)


def _movm(step: Step) -> None:
    """Transpose a matrix of 8 x 8 halves that lies in one register of the warp."""
    _whole_warp(step)
    rd, source = step.ins.operands
    bits = step.raw(source)
    halves = np.stack([bits & np.uint32(0xFFFF), bits >> np.uint32(16)], axis=1).reshape(1, MATRIX, MATRIX)
    _store(step, rd, _fragments(halves, transposed=True))


RULES: dict[str, Callable[[Step], None]] = {
    "HMMA": _hmma, "IMMA": _imma, "DMMA": _dmma, "LDSM": _ldsm, "MOVM": _movm,
}  # fmt: skip
