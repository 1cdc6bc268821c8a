"""Optimisers that look at a parameter as a whole: LAMB at its norm, Muon at its singular values."""

from __future__ import annotations

import math

from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.optim.optimizer import Group, Kept, Optimizer, Params, current, moments, running

ADJUSTMENTS = ("original", "match_rms_adamw")


class LAMB(Optimizer):
    """AdamW whose step is as long as the parameter, times lr (You and others, 2019)."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; a parameter or a step of length 0 takes the step as it is."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), decay, step = group["betas"], group["weight_decay"], kept["step"]
        rate, new, stays, squared, scale, factor, added = self._numbers(
            gradient.dtype, group["lr"], 1 - first, second, 1 - second,
            1 / (1 - first**step), 1 / math.sqrt(1 - second**step), decay,
        )  # fmt: skip
        value = current(parameter)
        mean, square = moments(kept, parameter, gradient, new, stays, squared)
        way = mean * scale / (square.sqrt() * factor + group["eps"])
        if decay:
            way = way + value * added
        lengths = [(one * one).sum().sqrt() for one in (value, way)]
        usable = (lengths[0] > 0).logical_and(lengths[1] > 0)
        ratio = usable.where(lengths[0] / usable.where(lengths[1], 1), 1)
        parameter.assign(value - way * (ratio * rate))


class Muon(Optimizer):
    """Momentum made orthogonal by Newton and Schulz's iteration (Jordan, 2024), for matrices only.

    The iteration runs in the type of the step, f32 or f64.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        rate: float | None = None,
    ) -> None:
        """Take matrices; `ns_coefficients` are those of x, x^3 and x^5 in each of `ns_steps` rounds.

        `adjust_lr_fn` "original" scales lr by the root of rows / columns where that is above 1, "match_rms_adamw" by
        0.2 times the root of the longer side.
        """
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
        more = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**options, **more}, rate)
        for one in self.parameters:
            if one.ndim != 2:
                raise ValueError(f"Muon steps matrices, not a parameter of {list(one.shape)}: give it to AdamW")
        if adjust_lr_fn not in (None, *ADJUSTMENTS):
            raise ValueError(f"adjust_lr_fn of {adjust_lr_fn!r}; there are {', '.join(ADJUSTMENTS)}")

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        lr, turn = group["lr"], group["momentum"]
        rows, columns = (number_of(size, "Muon") for size in parameter.shape)
        longer = 0.2 * math.sqrt(max(rows, columns))
        factor = longer if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))
        rate, new, left = self._numbers(gradient.dtype, lr * factor, 1 - turn, 1 - lr * group["weight_decay"])
        velocity = running(kept, "momentum_buffer", parameter)
        velocity.assign(velocity + (gradient - velocity) * new)
        # the Nesterov form is a mean of the gradient and the new velocity
        way = gradient + (velocity - gradient) * (1 - new) if group["nesterov"] else velocity
        made = _orthogonal(way, group["ns_coefficients"], group["ns_steps"], group["eps"])
        parameter.assign(current(parameter) * left - made * rate)


def _orthogonal(matrix: Tensor, factors: tuple[float, float, float], rounds: int, eps: float) -> Tensor:
    """Return a matrix with its singular values brought near 1."""
    wide = number_of(matrix.shape[0], "Muon") <= number_of(matrix.shape[1], "Muon")
    x = matrix if wide else matrix.mT
    x = x / (x * x).sum().sqrt().maximum(eps)
    first, third, fifth = factors
    for _ in range(rounds):
        gram = x @ x.mT
        x = x * first + (gram * third + (gram @ gram) * fifth) @ x
    return x if wide else x.mT
