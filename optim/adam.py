"""Adam and its kin: running means of the gradient and of its square or size."""

from __future__ import annotations

import math

from ringup.compiler.tensor.tensor import Tensor
from ringup.optim.optimizer import Group, Kept, Optimizer, Params, current, moments, running

# RAdam trusts the running mean of squares where its degrees of freedom are above this (Liu and others, 2019)
LEAST_FREEDOM = 5.0


def _decayed(parameter: Tensor, gradient: Tensor, decay: Tensor | None, left: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a parameter's value and its gradient: `decay` adds to the gradient, `left` is what stays of the value."""
    value = current(parameter)
    if decay is not None:
        gradient = gradient + value * decay
    return (value if left is None else value * left), gradient


class Adam(Optimizer):
    """Steps by running means of the gradient and of its square (Kingma and Ba, 2014).

    Weight decay, if any, is added to the gradient unless it is decoupled.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; `betas` weigh the running means. `amsgrad` divides by the greatest mean of squares."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(
            params, {**options, "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay}, rate
        )

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), lr, decay, step = group["betas"], group["lr"], group["weight_decay"], kept["step"]
        size, scale = lr / (1 - first**step), 1 / math.sqrt(1 - second**step)
        rate, new, stays, squared, factor, added, left = self._numbers(
            gradient.dtype, size, 1 - first, second, 1 - second, scale, decay, 1 - lr * decay
        )
        decoupled = group["decoupled_weight_decay"]
        value, gradient = _decayed(
            parameter, gradient, added if decay and not decoupled else None, left if decay and decoupled else None
        )
        mean, square = moments(kept, parameter, gradient, new, stays, squared)
        if group["amsgrad"]:
            greatest = running(kept, "max_exp_avg_sq", parameter)
            square = greatest.assign(greatest.maximum(square))
        parameter.assign(value - mean / (square.sqrt() * factor + group["eps"]) * rate)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017)."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; a step first takes lr times `weight_decay` of each parameter away."""
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True, rate=rate
        )


class Adamax(Optimizer):
    """Adam with the greatest size of the gradient, which decays, in the place of the mean square (Kingma and Ba,
    2014).
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), decay = group["betas"], group["weight_decay"]
        rate, new, stays, added = self._numbers(
            gradient.dtype, group["lr"] / (1 - first ** kept["step"]), 1 - first, second, decay
        )
        value, gradient = _decayed(parameter, gradient, added if decay else None, None)
        mean, size = running(kept, "exp_avg", parameter), running(kept, "exp_inf", parameter)
        mean.assign(mean + (gradient - mean) * new)
        size.assign((size * stays).maximum(gradient.abs() + group["eps"]))
        parameter.assign(value - mean / size * rate)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, which grows over the first steps (Dozat, 2016)."""

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; `momentum_decay` says how slowly the momentum grows."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        super().__init__(
            params, {**options, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}, rate
        )

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), lr, decay, step = group["betas"], group["lr"], group["weight_decay"], kept["step"]
        here, following = (first * (1 - 0.5 * 0.96 ** (at * group["momentum_decay"])) for at in (step, step + 1))
        product = kept["mu_product"] = kept.get("mu_product", 1.0) * here
        by_gradient = lr * (1 - here) / (1 - product)
        by_mean = lr * following / (1 - product * following)
        new_rate, old_rate, new, stays, squared, factor, added, left = self._numbers(
            gradient.dtype, by_gradient, by_mean, 1 - first, second, 1 - second,
            1 / math.sqrt(1 - second**step), decay, 1 - lr * decay,
        )  # fmt: skip
        decoupled = group["decoupled_weight_decay"]
        value, gradient = _decayed(
            parameter, gradient, added if decay and not decoupled else None, left if decay and decoupled else None
        )
        mean, square = moments(kept, parameter, gradient, new, stays, squared)
        parameter.assign(value - (gradient * new_rate + mean * old_rate) / (square.sqrt() * factor + group["eps"]))


class RAdam(Optimizer):
    """Adam that leaves the mean square out of the first steps, where it varies most (Liu and others, 2019)."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**options, "decoupled_weight_decay": decoupled_weight_decay}, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), lr, decay, step = group["betas"], group["lr"], group["weight_decay"], kept["step"]
        size = lr / (1 - first**step)
        rest = 1 - second**step
        most = 2 / (1 - second) - 1
        freedom = most - 2 * step * second**step / rest
        # one graph for both kinds of steps: one of the two factors is 0
        adapted, plain = 0.0, size
        if freedom > LEAST_FREEDOM:
            shrink = (freedom - 4) * (freedom - 2) * most / ((most - 4) * (most - 2) * freedom)
            adapted, plain = size * math.sqrt(shrink) * math.sqrt(rest), 0.0
        by_square, alone, new, stays, squared, added, left = self._numbers(
            gradient.dtype, adapted, plain, 1 - first, second, 1 - second, decay, 1 - lr * decay
        )
        decoupled = group["decoupled_weight_decay"]
        value, gradient = _decayed(
            parameter, gradient, added if decay and not decoupled else None, left if decay and decoupled else None
        )
        mean, square = moments(kept, parameter, gradient, new, stays, squared)
        parameter.assign(value - mean * (by_square / (square.sqrt() + group["eps"]) + alone))
