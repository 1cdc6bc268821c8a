"""Edge values of every dtype, the operations of each dtype, and how near a card's result must come to the
reference's.
"""

from __future__ import annotations

import numpy as np
import numpy_graph

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op

FLOATS = [one for one in dtypes.ALL if one.is_float]
INTEGERS = [one for one in dtypes.ALL if one.is_integer]

# Operations by kind of dtype. The operations that a kind lacks have no meaning for it.
UNARY = {
    "float": [
        Op.NEG,
        Op.ABS,
        Op.SQRT,
        Op.RECIP,
        Op.RSQRT,
        Op.EXP2,
        Op.LOG2,
        Op.SIN,
        Op.FLOOR,
        Op.CEIL,
        Op.TRUNC,
        Op.ROUND,
    ],
    "int": [Op.NEG, Op.ABS, Op.NOT],
    "uint": [Op.NEG, Op.ABS, Op.NOT],
    "bool": [Op.NOT],
}
BINARY = {
    "float": [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.MAX, Op.MIN, Op.POW],
    "int": [Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.POW, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR],
    "bool": [Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR],
}
BINARY["uint"] = BINARY["int"]
COMPARISONS = [Op.LT, Op.LE, Op.EQ, Op.NE]

# Units in the last place of the result's dtype, on top of its own rounding. Everything else is exact. Narrow dtypes use
# f32 arithmetic and round the result, so an error in f32's last place moves the result to its neighbour at most.
ULPS = {
    (Op.RSQRT, "float32"): 1,
    (Op.RSQRT, "float64"): 0,  # the card rounds twice, as the reference does
    (Op.EXP2, "float32"): 2,
    (Op.LOG2, "float32"): 2,
    (Op.SIN, "float32"): 2,
    (Op.POW, "float32"): 1,
    (Op.EXP2, "float64"): 1,
    (Op.LOG2, "float64"): 2,
    (Op.SIN, "float64"): 2,
    (Op.POW, "float64"): 4,
}
SIGN_OF_ZERO_FREE = frozenset((Op.MAX, Op.MIN))  # IEEE 754's maximum of 0 and -0 may be either


def ulps(op, dtype):
    """Return how many units in the last place a result may be off."""
    if op not in (Op.RSQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.POW):
        return 0
    return ULPS.get((op, dtype.name), 1)


def values(dtype):
    """Return the edge values of a dtype, as an array of it."""
    kind = numpy_graph.numpy_dtype(dtype)
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        bits = dtype.bits
        found = {
            0,
            1,
            2,
            3,
            5,
            7,
            10,
            bits - 1,
            bits,
            bits + 1,
            (1 << bits - 1) - 1,
            1 << bits - 1,
            (1 << bits) - 1,
            (1 << bits) - 2,
        }
        found |= {
            1 << bits // 2,
            (1 << bits // 2) + 1,
            0x5A5A5A5A5A5A5A5A & (1 << bits) - 1,
            (1 << bits) - 7,
            (1 << bits - 1) + 1,
        }
        return np.array(sorted(found), f"uint{bits}").view(kind)
    tiny = np.array([1], f"uint{dtype.bits}").view(kind)[0]
    top = float(dtype.greatest) if dtype is dtypes.float8_e4m3 else float(np.finfo(np.float64).max)
    mantissa = dtype.mantissa_bits
    min_normal = 2.0 ** (2 - (1 << dtype.exponent_bits - 1))
    greatest = (
        448.0 if dtype is dtypes.float8_e4m3 else (2 - 2.0**-mantissa) * 2.0 ** ((1 << dtype.exponent_bits - 1) - 1)
    )
    del top
    plain = [0.0, 1.0, 0.5, 1.5, 2.5, 2.0, 3.0, 7.0, 0.1, 10.0, 100.3, 1 + 2.0**-mantissa, 1 - 2.0 ** (-mantissa - 1),
             greatest, greatest / 2, min_normal, min_normal * 0.75, float(tiny), 3 * float(tiny), np.pi, 126.5]  # fmt: skip
    if dtype.bits >= 16:
        plain += [0.49999997, 255.5, 1000.25, 2.0**mantissa + 1, 2.0 ** (mantissa - 1) + 0.5]
    if dtype.bits >= 32:
        plain += [2.0**31, 2.0**31 - 1, 2.0**32, 2.0**63, 1e10, 123456.789]
    found = np.array(plain + [-one for one in plain] + [float("inf"), float("-inf"), float("nan")], np.float64)
    with np.errstate(all="ignore"):
        return found.astype(np.float32).astype(kind) if dtype.bits < 32 else found.astype(kind)


def pairs(dtype):
    """Return two arrays that together hold every pair of edge values."""
    edge = values(dtype)
    return np.repeat(edge, len(edge)), np.tile(edge, len(edge))


def unlike(found, wanted, allowed=0, *, sign_of_zero=True):
    """Return where two arrays of one dtype differ. All NaN are equal; floats may differ by `allowed` units in the last
    place.
    """
    kind = wanted.dtype
    if kind.kind in "iub":
        return np.flatnonzero(found != wanted)
    bits = f"int{kind.itemsize * 8}"
    order = []
    for one in (found, wanted):
        raw = np.ascontiguousarray(one).view(bits).astype(np.int64 if kind.itemsize < 8 else object)
        least = -(1 << kind.itemsize * 8 - 1)
        order.append(np.where(raw < 0, least - raw, raw))
    nan = np.isnan(found.astype(np.float64)), np.isnan(wanted.astype(np.float64))
    near = np.abs(order[0] - order[1]).astype(np.float64) <= allowed
    if sign_of_zero:
        zeros = (found == 0) & (wanted == 0)
        near &= ~zeros | (np.signbit(found.astype(np.float64)) == np.signbit(wanted.astype(np.float64)))
    return np.flatnonzero(~((nan[0] & nan[1]) | (near & ~nan[0] & ~nan[1])))
