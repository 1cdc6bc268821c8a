"""The transform along one axis, in steps: a product with a small matrix for each factor of the length (Cooley and
Tukey), or a convolution (Bluestein).

Each step is one real contraction with both parts of its outputs side by side: what the real parts add, and what the
imaginary parts add. A real input has no second term.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.core import number_of, total
from ringup.compiler.tensor.linear import contract
from ringup.compiler.tensor.tensor import Tensor
from ringup.fft import tables

# the real and the imaginary parts (rows, length), None for zeros
Parts: TypeAlias = tuple[Tensor, Tensor | None]


def transform(x: Tensor, sign: int, scale: float, *, real: bool = False) -> Tensor:
    """Return the sums of x[j] exp(sign 2 pi i j k / n) along the last axis, times `scale`; with `real` the real parts
    of these.

    Its gradient is the transform with the other sign.
    """
    length, batch = number_of(x.shape[-1], "a transform"), x.shape[:-1]
    flat = x.reshape((total(batch), length))
    parts: Parts = (flat.real, flat.imag) if x.dtype.is_complex else (flat, None)
    way = _in_steps if tables.is_direct(length) else _convolved
    made = way(parts, length, sign, scale, real=real)
    made = made.reshape((*batch, length)) if real else made.reshape((*batch, length, 2)).view_as_complex()
    return made._with_rule(partial(_rule, sign, scale, not x.dtype.is_complex), x)


def _rule(sign: int, scale: float, real: bool, gradient: Any, _result: Any, _x: Any) -> tuple[Tensor]:
    return (transform(gradient, -sign, scale, real=real),)


def _table(values: Any, kind: DType) -> Tensor:
    """Return constants of the host in the type of parts."""
    return Tensor(np.ascontiguousarray(values).astype(kind.numpy))


def _in_steps(parts: Parts, length: int, sign: int, scale: float, *, real: bool = False) -> Tensor:
    """Return the transform (rows, length, 2), or its real parts (rows, length)."""
    *radices, last = tables.radices(length)
    rows = count = parts[0].shape[0]
    rest = length
    for radix in radices:
        rest //= radix
        lines = [None if part is None else part.reshape((count, radix, rest)).permute([0, 2, 1]) for part in parts]
        made = _step(lines, tables.matrix(radix, sign, 1.0))
        parts = _turned(made, tables.twiddles(radix, rest, sign))
        count *= radix
    # the number of a result counts the last step most and the first one least
    order = [0, *range(len(radices), 0, -1), len(radices) + 1]
    lines = [None if part is None else part.reshape((rows, *radices, last)).permute(order) for part in parts]
    first, second = tables.matrix(last, sign, scale)
    made = _step(lines, (first[:, :1], second[:, :1]) if real else (first, second))
    return made.reshape((rows, length) if real else (rows, length, 2))


def _step(parts: Sequence[Tensor | None], factors: tuple[Any, Any]) -> Tensor:
    """Return transforms along the last axis of (rows, others…, inputs), as (rows, outputs, others…, parts)."""
    terms = []
    for part, values in zip(parts, factors, strict=True):
        if part is None:
            continue
        rows, *others, inputs = part.shape
        outputs, both, _ = values.shape
        table = _table(values, part.dtype).reshape((1, outputs, *(1 for _ in others), both, inputs))
        made = contract(part.reshape((rows, 1, *others, 1, inputs)), table, [len(others) + 3])
        terms.append(made.reshape(made.shape[:-1]))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _turned(made: Tensor, factors: Any) -> tuple[Tensor, Tensor]:
    """Return the parts of (…, 2) times complex factors that broadcast to them."""
    x, y = made[..., 0], made[..., 1]
    c, s = _table(factors.real, x.dtype), _table(factors.imag, x.dtype)
    return x * c - y * s, x * s + y * c


def _convolved(parts: Parts, length: int, sign: int, scale: float, *, real: bool = False) -> Tensor:
    """Return what `_in_steps` does of any length, by a convolution with a chirp (L. Bluestein, 1970)."""
    padded = tables.good_length(2 * length - 1)
    chirp = tables.chirp(length, sign)
    x, y = parts
    c, s = _table(chirp.real, x.dtype), _table(chirp.imag, x.dtype)
    turned = (x * c, x * s) if y is None else (x * c - y * s, x * s + y * c)
    edges = [(0, 0), (0, padded - length)]
    there = _in_steps((turned[0].pad(edges), turned[1].pad(edges)), padded, -1, 1.0)
    spectrum = tables.filtered(length, padded, sign)
    back = _in_steps(_turned(there, spectrum / padded), padded, 1, 1.0)
    real_part, imag_part = _turned(back[:, :length], chirp * scale)
    return real_part if real else real_part.stack(imag_part, axis=-1)
