"""What functions of the standard take beside arrays: Python's numbers, places, axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ringup.compiler.tensor import realize
from ringup.compiler.tensor.core import Core
from ringup.compiler.tensor.movement import base_of
from ringup.compiler.tensor.tensor import Tensor

Real: TypeAlias = int | float
Number: TypeAlias = Real | complex
Axis: TypeAlias = int | tuple[int, ...] | None


def fitted(x1: Tensor | Number, x2: Tensor | Number) -> tuple[Tensor, Tensor]:
    """Return two operands as arrays, of which one may be a Python number: it takes the type of the other."""
    if isinstance(x1, Tensor):
        return x1, lifted(x1, x2)
    if isinstance(x2, Tensor):
        return lifted(x2, x1), x2
    raise TypeError(f"{type(x1).__name__} and {type(x2).__name__}: one of two operands is an array")


def lifted(x: Tensor, other: Tensor | Number) -> Tensor:
    """Return a number as an array beside another array; numbers of NumPy and lists are no operands."""
    if not isinstance(other, (Tensor, bool, int, float, complex)):
        raise TypeError(f"{type(other).__name__} is no operand: an array or a number of Python; asarray() makes one")
    return x._lift(other)


def own(x: Tensor, made: Tensor) -> Tensor:
    """Return a result that no assignment to the argument changes, nor one to it the argument."""
    return made.clone() if base_of(made) is base_of(x) else made


def placed(made: Tensor, device: Any) -> Tensor:
    """Return an array computed on a device, and at home there; as it is for None and for where it is anyway."""
    if device is None or device is made.device:
        return made
    if realize.is_data(made.node) or not hasattr(device, "evaluate"):
        return made.to(device)
    with realize.device(device):
        made.realize()
    return made


def axes_of(x: Tensor, axis: Any) -> tuple[int, ...]:
    """Return one axis or several, counted from the front, in the order given."""
    given = axis if isinstance(axis, Sequence) else (axis,)
    return tuple(x._axis(one) for one in given)


def check_arrays(arrays: Sequence[Any], what: str) -> None:
    """Refuse anything that is no array of this namespace."""
    for one in arrays:
        if not isinstance(one, Core):
            raise TypeError(f"{what} of {type(one).__name__}: an array of this namespace; asarray() makes one")
