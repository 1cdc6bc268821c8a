"""Steps along the gradient or its sign: SGD and Lion."""

from __future__ import annotations

from ringup.compiler.tensor.tensor import Tensor
from ringup.optim.optimizer import Group, Kept, Optimizer, Params, current, running


class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum v + (1 - dampening) g, p -= lr v (Sutskever and others, 2013, for the
    Nesterov form). The first v is g.
    """

    TAKES_COMPLEX = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; `weight_decay` is added to the gradient as that much of the parameter."""
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**options, "nesterov": nesterov, "maximize": maximize}, rate)
        if any(group["nesterov"] and (not group["momentum"] or group["dampening"]) for group in self.param_groups):
            raise ValueError("nesterov needs a momentum, and no dampening")

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        momentum, decay = group["momentum"], group["weight_decay"]
        new = 1.0 if kept["step"] == 1 else 1 - group["dampening"]
        rate, turn, share, decayed = self._numbers(gradient.dtype, group["lr"], momentum, new, decay)
        value = current(parameter)
        if decay:
            gradient = gradient + value * decayed
        if momentum:
            velocity = running(kept, "momentum_buffer", parameter)
            velocity.assign(velocity * turn + (gradient * share if group["dampening"] else gradient))
            gradient = gradient + velocity * turn if group["nesterov"] else velocity
        parameter.assign(value - gradient * rate)


class Lion(Optimizer):
    """Steps of one size, by the sign of a running mean (Chen and others, 2023), with decoupled weight decay."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; the first of `betas` weighs the mean in the step, the second in what is kept."""
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        (first, second), lr = group["betas"], group["lr"]
        rate, left, in_step, in_mean = self._numbers(
            gradient.dtype, lr, 1 - lr * group["weight_decay"], 1 - first, 1 - second
        )
        mean = running(kept, "exp_avg", parameter)
        way = (mean + (gradient - mean) * in_step).sign()
        value = current(parameter) * left if group["weight_decay"] else current(parameter)
        mean.assign(mean + (gradient - mean) * in_mean)
        parameter.assign(value - way * rate)
