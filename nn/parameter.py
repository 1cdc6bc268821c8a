"""`Parameter`: a tensor that belongs to a module and is trained. Also memory that modules keep, as running means."""

from __future__ import annotations

from typing import Any

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import arrays
from ringup.compiler.tensor.memory import adopt
from ringup.compiler.tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module lists among its parameters. It has memory of its own and wants a gradient."""

    __slots__ = ()

    # what is computed from a parameter is a plain tensor
    _of: Any = Tensor._of

    def __init__(self, data: object, requires_grad: bool = True) -> None:
        """Take numbers or a tensor; without `requires_grad` it is frozen."""
        super().__init__(data)
        adopt(self)
        if requires_grad:
            self.requires_grad_()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        made = memo[id(self)] = Parameter(self.detach(), self.requires_grad)
        return made


def kept(data: object) -> Tensor:
    """Return numbers or a tensor's value in memory of its own, which wants no gradient."""
    made = Tensor(data.detach() if isinstance(data, Tensor) else data)
    adopt(made)
    return made


def replace(tensor: Tensor, value: Tensor) -> None:
    """Let a tensor stand for another value, in other memory. What was made of it before still reads the old one, and
    an optimiser that holds it goes on with the new one.
    """
    wanted = tensor.requires_grad
    tensor.requires_grad_(False)
    tensor._setup(value.node, owns=value._owns)
    adopt(tensor)
    if wanted:
        tensor.requires_grad_()


def filled(shape: tuple[int, ...], value: float, dtype: DType) -> Tensor:
    """Return memory of one value, made on the host: nothing has to be compiled for it."""
    return Tensor(arrays.filled(shape, value, dtype), dtype)
