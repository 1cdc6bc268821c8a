"""`Function`: a class with a forward computation and a gradient of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

from ringup.compiler.graph import nodes
from ringup.compiler.tensor.history import no_grad
from ringup.compiler.tensor.tensor import Tensor


class FunctionCtx:
    """What a forward computation leaves for its gradient; any attribute may be set too."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._without: set[int] = set()
        # the tensors that `forward` made: the tensor that the caller got instead, while the gradient is computed
        self._instead: dict[int, Tensor] = {}

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the gradient, which finds them in `saved_tensors`."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """Return the tensors that were kept."""
        return tuple(one if one is None else self._instead.get(id(one), one) for one in self._saved)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that results have no gradient. Integers have none anyway."""
        self._without = {id(one) for one in tensors}

    def mark_dirty(self, *tensors: Tensor) -> NoReturn:
        """Refuse what this language has no need of."""
        raise TypeError("a Function does not change its arguments in place: return a new tensor")

    def set_materialize_grads(self, value: bool) -> None:
        """Take PyTorch's option: gradients of unused results are zeros here, whatever it says."""


def _missing(name: str) -> Callable[..., Any]:
    def missing(*given: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(
            f"a Function defines the static methods forward(ctx, ...) and backward(ctx, ...): {name} is missing"
        )

    return missing


class Function:
    """A function of tensors with a gradient of its own. A subclass defines two static methods: `forward(ctx, *args)`
    returns a tensor or a tuple of them; `backward(ctx, *gradients)`, of the results' gradients, returns one gradient
    for each argument of `forward`, None for those without.

    With a third one, `setup_context(ctx, inputs, output)`, `forward` takes no ctx. `apply` calls it.
    """

    forward: ClassVar[Callable[..., Any]] = staticmethod(_missing("forward"))
    backward: ClassVar[Callable[..., Any]] = staticmethod(_missing("backward"))
    setup_context: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Return what `forward` computes, with this gradient."""
        needs = tuple(isinstance(one, Tensor) and one.dtype.is_inexact for one in args)
        ctx = FunctionCtx(needs)
        with no_grad():
            if cls.setup_context is None:
                made = cls.forward(ctx, *args)
            else:
                made = cls.forward(*args)
                cls.setup_context(ctx, args, made)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        operands = [one for one, needed in zip(args, needs, strict=True) if needed]
        ends: list[Any] = []
        for i, one in enumerate(results):
            if not isinstance(one, Tensor):
                ends.append(one)
                continue
            end = Tensor._of(nodes.alias(one.node))
            if operands and one.dtype.is_inexact and id(one) not in ctx._without:
                end._with_rule(partial(_rule, cls, ctx, i, results), *operands)
            ends.append(end)
        return tuple(ends) if isinstance(made, (tuple, list)) else ends[0]


def _rule(
    cls: type[Function],
    ctx: FunctionCtx,
    place: int,
    results: Sequence[Any],
    gradient: Tensor,
    result: Tensor,
    *operands: Tensor,
) -> list[Tensor | None]:
    """Return the gradient by each operand of one of the results; those of the others are zeros."""
    given = [
        gradient if i == place else one.zeros_like() if isinstance(one, Tensor) else None
        for i, one in enumerate(results)
    ]
    ctx._instead = {id(results[place]): result}
    try:
        made = cls.backward(ctx, *given)
    finally:
        ctx._instead = {}
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    needs = ctx.needs_input_grad
    if len(parts) < len(needs) or any(one is not None for one in parts[len(needs) :]):
        raise ValueError(f"{cls.__name__}.backward gave {len(parts)} gradients for {len(needs)} arguments")
    found = [one for one, needed in zip(parts, needs, strict=False) if needed]
    for one, operand in zip(found, operands, strict=True):
        if one is not None and one.shape != operand.shape:
            raise ValueError(
                f"{cls.__name__}.backward gave a gradient of shape {list(one.shape)} for a tensor of {list(operand.shape)}"
            )
    return found
