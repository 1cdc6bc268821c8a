"""Contractions: matrix products, einsum and what is made of them. One graph form for all: REDUCE ADD over MUL of two
EXPANDed views.

Operands of f16, bf16 and float8 are cast to f32 between the view and the MUL, small integers to int32, and the sum is
cast back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.core import DTypeLike, as_dtype, broadcast_shapes, spread, total
from ringup.compiler.tensor.reductions import drop_axes, sum_dtype

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def _accumulator(tensor: Tensor) -> DType:
    """Return the type that products are summed in."""
    if tensor.dtype.is_float:
        return dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
    return sum_dtype(tensor)


def contract(tensor: Tensor, other: Tensor, axes: Sequence[int], dtype: DType | None = None) -> Tensor:
    """Return the products of two tensors of equal rank that broadcast, summed along `axes`, which become 1.

    The sum is kept in f32 (f64, int32, …), the result has the promoted type of the two or `dtype`. Its gradients
    are contractions too.
    """
    kind = dtypes.promote(tensor.dtype, other.dtype)
    x, y = tensor.cast(kind), tensor._of(nodes.cast(other._node, kind))
    shape = broadcast_shapes(x.shape, y.shape)
    wide = _accumulator(x)
    product = nodes.elementwise(Op.MUL, *(nodes.cast(spread(one._node, shape), wide) for one in (x, y)))
    made = x._of(nodes.cast(nodes.reduce(Op.ADD, product, axes), dtype or (kind if kind.is_float else wide)))
    return made._with_rule(partial(_contraction_rule, tuple(axes)), x, y) if made.dtype.is_inexact else made


def matmul(tensor: Tensor, other: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return the matrix product as NumPy has it: (…, M, K) @ (…, K, N), vectors as one row or column, batches
    broadcast.

    f16, bf16 and float8 are summed in f32, integers in int32 or wider; `dtype` of the result, the promoted one
    unless given.
    """
    y = tensor._lift(other, weak=False)
    if not tensor.shape or not y.shape:
        raise ValueError(
            f"matmul of {list(tensor.shape)} and {list(y.shape)}: at least one axis each; use * for a number"
        )
    if tensor.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise ValueError(
            f"matmul of {list(tensor.shape)} and {list(y.shape)}: {tensor.shape[-1]} columns meet {y.shape[-2 if y.ndim > 1 else 0]} rows"
        )
    left = tensor if tensor.ndim > 1 else tensor.unsqueeze(0)
    right = y if y.ndim > 1 else y.unsqueeze(1)
    ndim = max(left.ndim, right.ndim)
    # (…, M, K, 1) and (…, 1, K, N)
    left = left.reshape((*[1] * (ndim - left.ndim), *left.shape, 1))
    right = right.reshape((*[1] * (ndim - right.ndim), *right.shape[:-2], 1, *right.shape[-2:]))
    made = contract(left, right, [ndim - 1], None if dtype is None else as_dtype(dtype))
    shape = [*made.shape[: ndim - 1], made.shape[ndim]]
    if y.ndim == 1:
        shape.pop()
    if tensor.ndim == 1:
        shape.pop(-1 if y.ndim == 1 else -2)
    return made.reshape(shape)


def reverse_matmul(tensor: Tensor, other: Any) -> Tensor:
    """Return the matrix product `other @ tensor`, for an array to the left of a tensor."""
    return tensor._lift(other, weak=False).matmul(tensor)


def dot(tensor: Tensor, other: Any) -> Tensor:
    """Return NumPy's dot: the last axis of this against the last but one (the only one) of the other, no batches;
    numbers multiply.
    """
    y = tensor._lift(other, weak=False)
    if not tensor.shape or not y.shape:
        return tensor * y
    if y.ndim <= 2:
        return tensor.matmul(y)
    return tensor.tensordot(y, ([-1], [-2]))


def tensordot(tensor: Tensor, other: Any, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum over pairs of axes: the last of this with the first of the other for a number, or those
    listed.
    """
    y = tensor._lift(other, weak=False)
    if isinstance(axes, int):
        axes = (range(tensor.ndim - axes, tensor.ndim), range(axes))
    mine, theirs = [tensor._axis(one) for one in axes[0]], [y._axis(one) for one in axes[1]]
    if len(mine) != len(theirs) or any(tensor.shape[a] != y.shape[b] for a, b in zip(mine, theirs, strict=True)):
        raise ValueError(
            f"tensordot of {list(tensor.shape)} and {list(y.shape)} over axes {mine} and {theirs}: sizes differ"
        )
    keep, other_keep = [i for i in range(tensor.ndim) if i not in mine], [i for i in range(y.ndim) if i not in theirs]
    shape = [*(tensor.shape[i] for i in keep), *(y.shape[i] for i in other_keep)]
    inner = total(tensor.shape[i] for i in mine)
    left = tensor.permute([*keep, *mine]).reshape((total(tensor.shape[i] for i in keep), inner))
    right = y.permute([*theirs, *other_keep]).reshape((inner, total(y.shape[i] for i in other_keep)))
    return left.matmul(right).reshape(shape)


def outer(tensor: Tensor, other: Any) -> Tensor:
    """Return the products of each element of this with each of the other, both flattened: (m, n)."""
    return tensor.flatten().unsqueeze(1) * tensor._lift(other, weak=False).flatten().unsqueeze(0)


def inner(tensor: Tensor, other: Any) -> Tensor:
    """Return the sums of products over the last axes of both."""
    y = tensor._lift(other, weak=False)
    return tensor * y if not tensor.shape or not y.shape else tensor.tensordot(y, ([-1], [-1]))


def linear(tensor: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias; weight (outputs, inputs)."""
    made = tensor.matmul(weight.mT if weight.ndim > 1 else weight)
    return made if bias is None else made + bias


def einsum(tensor: Tensor, formula: str, *others: Any) -> Tensor:
    """Return the sum that an Einstein formula such as `ij,jk->ik` names, this the first operand; `...` stands for
    axes that broadcast.
    """
    operands = [tensor, *(tensor._lift(one, weak=False) for one in others)]
    terms, result = _parsed(formula, [one.ndim for one in operands])
    made, letters = _diagonals(operands[0], terms[0])
    for place, (operand, term) in enumerate(zip(operands[1:], terms[1:], strict=True), 1):
        needed = set(result).union(*terms[place + 1 :])
        made, letters = _einsum_step(made, letters, *_diagonals(operand, term), needed)
    gone = [i for i, letter in enumerate(letters) if letter not in result]
    made = made.sum(gone) if gone else made
    letters = [letter for letter in letters if letter in result]
    missing = [letter for letter in result if letter not in letters]
    if missing:
        raise ValueError(f"einsum {formula!r}: {missing[0]} of the result is in no operand")
    return made.permute([letters.index(letter) for letter in result])


def _diagonals(tensor: Tensor, term: list[str]) -> tuple[Tensor, list[str]]:
    """Return an operand with each letter once: letters that come twice take the diagonal."""
    made, letters = tensor, list(term)
    for letter in list(dict.fromkeys(term)):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if made.shape[first] != made.shape[second]:
                raise ValueError(f"einsum: {letter} is {made.shape[first]} and {made.shape[second]} in one operand")
            made = made.diagonal(0, first, second)
            letters = [one for i, one in enumerate(letters) if i not in (first, second)] + [letter]
    return made, letters


def _einsum_step(
    tensor: Tensor, mine: list[str], other: Tensor, theirs: list[str], needed: set[str]
) -> tuple[Tensor, list[str]]:
    """Return the product of two operands, summed over the letters that nothing later needs, and its letters."""
    letters = [*mine, *(letter for letter in theirs if letter not in mine)]
    x = tensor.reshape((*tensor.shape, *[1] * (len(letters) - len(mine))))
    order = [theirs.index(letter) for letter in letters if letter in theirs]
    moved = other.permute(order)
    y = moved.reshape(
        tuple(
            moved.shape[[one for one in letters if one in theirs].index(letter)] if letter in theirs else 1
            for letter in letters
        )
    )
    gone = [i for i, letter in enumerate(letters) if letter not in needed]
    made = contract(x, y, gone) if gone else x * y
    return drop_axes(made, tuple(gone)), [letter for letter in letters if letter in needed]


def _parsed(formula: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand and of the result; the axes under `...` get letters of their own, aligned at
    the last.
    """
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum {formula!r} names {len(terms)} operands, there are {len(ranks)}")
    made, longest = [], 0
    for term, rank in zip(terms, ranks, strict=True):
        named = term.replace("...", "", 1)
        if not all(letter.isalpha() for letter in named) or (
            len(named) > rank if "..." in term else len(named) != rank
        ):
            raise ValueError(f"einsum {formula!r}: {term!r} does not name the axes of an operand with {rank}")
        extra = rank - len(named)
        longest = max(longest, extra)
        before, dots, after = term.partition("...")
        made.append([*before, *(f"...{extra - i}" for i in range(extra)), *after] if dots else list(before))
    dotted = [f"...{longest - i}" for i in range(longest)]
    if not arrow:
        every = [letter for term in made for letter in term if len(letter) == 1]
        return made, dotted + sorted(letter for letter in set(every) if every.count(letter) == 1)
    before, dots, after = right.partition("...")
    result = [*before, *(dotted if dots else []), *after]
    if len(set(result)) != len(result) or not all(letter.isalpha() for letter in before + after):
        raise ValueError(f"einsum {formula!r}: {right!r} is no result, each letter once")
    return made, result


def _contraction_rule(
    axes: tuple[int, ...], gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    return _one_side(gradient, y, x), _one_side(gradient, x, y)


def _one_side(gradient: Tensor, other: Tensor, to: Tensor) -> Tensor:
    """Return the gradient of one operand: that of the result times the other operand, summed over the axes that the
    operand spread along.
    """
    full: tuple[Int, ...] = broadcast_shapes(other.shape, to.shape)
    axes = [i for i, (one, many) in enumerate(zip(to.shape, full, strict=True)) if one != many]
    return contract(gradient.expand(full), other.conj(), axes, to.dtype)
