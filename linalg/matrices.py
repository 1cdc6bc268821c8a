"""What decompositions share: their arguments checked, one step after the other, gradients refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringup.compiler.tensor.core import Core, number_of
from ringup.compiler.tensor.tensor import Tensor


def float_matrices(x: Any, what: str, *, square: bool = False) -> Tensor:
    """Return matrices (…, m, n) in a type that decompositions are computed in: f32, or f64 for f64; complex ones as
    they are.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} of {type(x).__name__}: a tensor")
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ValueError(f"{what} of {list(x.shape)}: {'square ' if square else ''}matrices, over the last two axes")
    return x if x.dtype.is_complex or (x.dtype.is_float and x.dtype.bits >= 32) else x.float()


def sizes(x: Tensor, what: str) -> tuple[int, int]:
    """Return the numbers of rows and columns."""
    return number_of(x.shape[-2], what), number_of(x.shape[-1], what)


def steps(state: tuple[Tensor, ...], count: int, step: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the state after `step(number, *state)` for each number from 0, a tensor: all steps are one graph."""
    for number in range(count):
        state = step(Tensor([number]), *state)
        computed(state)
    return state


def computed(state: tuple[Tensor, ...]) -> None:
    """Compute tensors together."""
    state[0].realize(*state[1:])


def line(x: Tensor, number: Tensor, axis: int) -> Tensor:
    """Return one row or column, as a matrix of one."""
    return x.take(number, axis)


def places(x: Tensor, axis: int) -> Tensor:
    """Return 0, 1, … along the last axis but one or along the last one."""
    counted = Tensor.arange(number_of(x.shape[axis], "a matrix"))
    return counted.unsqueeze(-1) if axis == -2 else counted


def without_gradient(made: Tensor, x: Tensor, what: str) -> Tensor:
    """Return a result whose gradient is an error, since the steps that gave it are not differentiated."""

    def rule(_gradient: Core, _result: Core, _x: Core) -> tuple[Core | None]:
        raise TypeError(f"the gradient of {what} is not known; detach() its result")

    return made._of(made.node)._with_rule(rule, x)
