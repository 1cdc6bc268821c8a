"""Gradients of one or several tensors by one or several others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ringup.compiler.tensor.gradients import gradient, gradient_where
from ringup.compiler.tensor.tensor import Tensor

Tensors: TypeAlias = Tensor | Sequence[Tensor]
Seeds: TypeAlias = Tensor | Sequence[Tensor | None] | None


def listed(tensors: Any, what: str) -> list[Tensor]:
    """Return one tensor or several as a list, checked."""
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for one in found:
        if not isinstance(one, Tensor):
            raise TypeError(f"{what} are tensors, and {type(one).__name__} is none")
    return found


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    *,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of outputs, added up, by each input. `grad_outputs` are the gradients of the outputs
    themselves, needed where one is not a single number.

    With `create_graph` the results have gradients too. A ValueError for an input that no output depends on, unless
    `allow_unused` (None in its place) or `materialize_grads` (zeros). Graphs are always retained here.
    """
    if not only_inputs:
        raise ValueError("grad takes only_inputs as True only: backward adds to every tensor that asked for gradients")
    targets = listed(inputs, "inputs")
    loss = _together(listed(outputs, "outputs"), grad_outputs)
    made: list[Tensor | None]
    made = gradient_where(loss, targets) if allow_unused or materialize_grads else [*gradient(loss, targets)]
    if materialize_grads:
        made = [target.zeros_like() if one is None else one for one, target in zip(made, targets, strict=True)]
    return tuple(one if one is None or create_graph else one.detach() for one in made)


def backward(
    tensors: Tensors, grad_tensors: Seeds = None, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Add the gradients of tensors, added up, to `grad` of those that asked for them."""
    _together(listed(tensors, "tensors"), grad_tensors).backward()


def _together(outputs: Sequence[Tensor], seeds: Seeds) -> Tensor:
    """Return one number whose gradients are those of outputs that have the gradients `seeds`."""
    if not outputs:
        raise ValueError("a gradient of no output")
    given: list[Tensor | None]
    given = [seeds] if isinstance(seeds, Tensor) else [None] * len(outputs) if seeds is None else list(seeds)
    if len(given) != len(outputs):
        raise ValueError(f"{len(given)} gradients for {len(outputs)} outputs: one each, or none at all")
    parts = []
    for one, seed in zip(outputs, given, strict=True):
        if seed is None:
            if one.numel() != 1:
                raise ValueError(
                    f"an output of shape {list(one.shape)} is not one number: give its gradient in grad_outputs"
                )
            parts.append(one.reshape(()))
        elif seed.shape != one.shape:
            raise ValueError(f"a gradient of shape {list(seed.shape)} for an output of {list(one.shape)}")
        else:
            parts.append((one * seed).sum())
    first, *rest = parts
    for other in rest:
        first = first + other
    return first
