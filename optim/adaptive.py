"""Optimisers that divide each element's step by the size of its gradients so far: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from ringup.compiler.tensor.tensor import Tensor
from ringup.optim.optimizer import Group, Kept, Optimizer, Params, current, running


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of squares (Hinton, 2012), or of the variance where `centered`."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; `alpha` weighs the mean so far."""
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**options, "centered": centered, "maximize": maximize}, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        alpha, decay = group["alpha"], group["weight_decay"]
        rate, stays, new, turn, added = self._numbers(
            gradient.dtype, group["lr"], alpha, 1 - alpha, group["momentum"], decay
        )
        value = current(parameter)
        if decay:
            gradient = gradient + value * added
        square = running(kept, "square_avg", parameter)
        square.assign(square * stays + gradient * gradient * new)
        spread = square
        if group["centered"]:
            mean = running(kept, "grad_avg", parameter)
            mean.assign(mean + (gradient - mean) * new)
            spread = square - mean * mean
        way = gradient / (spread.sqrt() + group["eps"])
        if group["momentum"]:
            velocity = running(kept, "momentum_buffer", parameter)
            way = velocity.assign(velocity * turn + way)
        parameter.assign(value - way * rate)


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of squares (Duchi and others, 2011)."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; step t has the learning rate lr / (1 + (t - 1) lr_decay)."""
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize}
        super().__init__(params, {**options, "initial_accumulator_value": initial_accumulator_value}, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        decay = group["weight_decay"]
        size = group["lr"] / (1 + (kept["step"] - 1) * group["lr_decay"])
        rate, added = self._numbers(gradient.dtype, size, decay)
        value = current(parameter)
        if decay:
            gradient = gradient + value * added
        total = running(kept, "sum", parameter, group["initial_accumulator_value"])
        total.assign(total + gradient * gradient)
        parameter.assign(value - gradient / (total.sqrt() + group["eps"]) * rate)


class Adadelta(Optimizer):
    """Steps whose size follows the running mean of earlier steps (Zeiler, 2012)."""

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        rate: float | None = None,
    ) -> None:
        """Take parameters; `rho` weighs the means so far."""
        options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, rate)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        rho, eps, decay = group["rho"], group["eps"], group["weight_decay"]
        rate, stays, new, added = self._numbers(gradient.dtype, group["lr"], rho, 1 - rho, decay)
        value = current(parameter)
        if decay:
            gradient = gradient + value * added
        square, moved = running(kept, "square_avg", parameter), running(kept, "acc_delta", parameter)
        square.assign(square * stays + gradient * gradient * new)
        way = (moved + eps).sqrt() / (square + eps).sqrt() * gradient
        moved.assign(moved * stays + way * way * new)
        parameter.assign(value - way * rate)
