"""Operations on several tensors, which are also called with a list: `Tensor.cat([a, b], dim=1)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor import elementwise, linear, movement
from ringup.compiler.tensor.core import Core, is_list, is_size

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

MODES = {"edge": "replicate", "wrap": "circular"}


def tensors_of(given: Sequence[Any], what: str) -> list[Tensor]:
    """Return tensors that were given one by one, or in a list with a tensor in it."""
    flat: list[Any] = []
    if len(given) > 1 and isinstance(given[0], (list, tuple)) and any(isinstance(one, Core) for one in given[0]):
        raise TypeError(f"{what} of a list of tensors and {type(given[1]).__name__}: all in one list, or one by one")
    for one in given:
        flat += one if isinstance(one, (list, tuple)) and any(isinstance(part, Core) for part in one) else [one]
    first = next((cast("Tensor", one) for one in flat if isinstance(one, Core)), None)
    if first is None:
        raise TypeError(f"{what} of {', '.join(type(one).__name__ for one in flat) or 'nothing'}: give tensors")
    return [first._lift(one, weak=False) for one in flat]


def _axis_last(tensor: Any, others: tuple[Any, ...], axis: int) -> tuple[tuple[Any, ...], int]:
    """Return what follows a list of tensors, and the axis, which may stand behind the list."""
    if isinstance(tensor, (list, tuple)) and len(others) == 1 and isinstance(others[0], int):
        return (), others[0]
    return others, axis


def cat(tensor: Tensor | Sequence[Any], *others: Any, axis: int | None = 0) -> Tensor:
    """Return tensors one after the other along `axis`; the other axes have to be equal. They are given one by one, or
    as a list; flattened for None.
    """
    others, along = _axis_last(tensor, others, 0 if axis is None else axis)
    first, *rest = tensors_of((tensor, *others), "cat")
    if axis is None:
        return movement.cat(first.flatten(), *(one.flatten() for one in rest))
    axis = along
    return movement.cat(first, *rest, axis=axis)


def stack(tensor: Tensor | Sequence[Any], *others: Any, axis: int = 0) -> Tensor:
    """Return tensors of one shape side by side along a new axis. They are given one by one, or as a list."""
    others, axis = _axis_last(tensor, others, axis)
    first, *rest = tensors_of((tensor, *others), "stack")
    return movement.stack(first, *rest, axis=axis)


def vstack(tensor: Tensor | Sequence[Any], *others: Any) -> Tensor:
    """Return tensors one below the other: along the first axis, vectors as rows."""
    return cat([one if one.ndim > 1 else one.reshape(1, -1) for one in tensors_of((tensor, *others), "vstack")])


def hstack(tensor: Tensor | Sequence[Any], *others: Any) -> Tensor:
    """Return tensors beside each other: along the second axis, vectors one after the other."""
    parts = [one if one.ndim else one.reshape(1) for one in tensors_of((tensor, *others), "hstack")]
    return cat(parts, axis=min(parts[0].ndim - 1, 1))


def dstack(tensor: Tensor | Sequence[Any], *others: Any) -> Tensor:
    """Return tensors one behind the other: along the third axis, vectors as rows, matrices as layers."""
    parts = tensors_of((tensor, *others), "dstack")
    return cat(
        [one.reshape((1, -1, 1)) if one.ndim < 2 else one.unsqueeze(2) if one.ndim == 2 else one for one in parts],
        axis=2,
    )


def column_stack(tensor: Tensor | Sequence[Any], *others: Any) -> Tensor:
    """Return tensors beside each other: along the second axis, vectors as columns."""
    parts = tensors_of((tensor, *others), "column_stack")
    return cat([one if one.ndim > 1 else one.reshape((-1, 1)) for one in parts], axis=1)


def einsum(tensor: Tensor | str, formula: Any, *others: Any) -> Tensor:
    """Return the sum that an Einstein formula such as `ij,jk->ik` names, this the first operand; `...` stands for axes
    that broadcast. The formula may come first: `Tensor.einsum("ij,jk->ik", a, b)`.
    """
    text, given = (tensor, (formula, *others)) if isinstance(tensor, str) else (formula, (tensor, *others))
    first, *rest = tensors_of(given, "einsum")
    return linear.einsum(first, text, *rest)


def where(tensor: Tensor, yes: Any, no: Any) -> Tensor:
    """Return `yes` where this bool tensor is true, `no` elsewhere; all three broadcast. On a tensor that is not bool it
    is PyTorch's: `x.where(condition, other)` returns x where the condition is true.
    """
    if tensor.dtype.kind != "bool" and isinstance(yes, Core) and yes.dtype.kind == "bool":
        return elementwise.where(tensor._of(yes.node), tensor, no)
    return elementwise.where(tensor, yes, no)


def pad(
    tensor: Tensor, widths: int | Sequence[Any], mode: str | Scalar = "constant", value: Scalar | str = 0
) -> Tensor:
    """Return it with edges added, negative ones cut off. `widths` is one number for all edges, NumPy's pairs (before,
    after) for each axis, or PyTorch's flat numbers: before and after of the last axis, then of the one before it, ….

    `mode`: constant (`value`), reflect (mirrored without the edge), replicate (the edge), circular (from the other
    side).
    """
    if not isinstance(mode, str):
        mode, value = (value if isinstance(value, str) else "constant"), mode
    pairs: Any = widths
    if is_list(widths) and widths and all(map(is_size, widths)):
        pairs = _from_last(tensor, widths)
    elif is_list(widths) and len(widths) == 1 and tensor.ndim > 1:
        pairs = [widths[0]] * tensor.ndim
    if isinstance(value, str):
        raise TypeError(f"pad with a value of {value!r}: a number")
    return movement.pad(tensor, pairs, value, MODES.get(mode, mode))


def _from_last(tensor: Tensor, widths: Sequence[Int]) -> list[tuple[Int, Int]]:
    """Return (before, after) for each axis from PyTorch's flat numbers."""
    if len(widths) % 2 or len(widths) > 2 * tensor.ndim:
        raise ValueError(
            f"pad of {list(tensor.shape)} by {list(widths)}: a number before and one after for each of the last axes, or pairs"
        )
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)]
    return [(0, 0)] * (tensor.ndim - len(pairs)) + pairs[::-1]
