"""Optimisers: what a step does to parameters, as assignments in their memory. Nothing is computed until something is
realized.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import realize
from ringup.compiler.tensor.memory import adopt
from ringup.compiler.tensor.tensor import Tensor


class Optimiser:
    """Parameters and what is kept for each between steps. `step` assigns, `realize` computes, `zero_grad` forgets the
    gradients.
    """

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        """Take parameters that want gradients; `rate` is the learning rate, which `set_rate` may change between
        steps.
        """
        self.parameters = list({id(one): one for one in parameters}.values())
        for one in self.parameters:
            if not one.requires_grad:
                raise ValueError(f"{one!r} is no parameter: make it with requires_grad=True")
        # in memory, so that another rate is other data, not another graph
        self.rate = self._memory(rate)

    @staticmethod
    def _memory(value: float) -> Tensor:
        made = Tensor(value, dtypes.float32)
        adopt(made)
        return made

    def set_rate(self, rate: float) -> None:
        """Use another learning rate from the next step on."""
        self.rate.assign(rate)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    def state(self) -> list[Tensor]:
        """Return what is kept between steps, parameters left out."""
        return [self.rate]

    def step(self) -> None:
        """Assign every parameter that has a gradient its next value."""
        for place, one in enumerate(self.parameters):
            if one.grad is not None:
                self._update(place, one, one.grad.detach().cast(_kept(one)))

    def realize(self, *others: Tensor) -> None:
        """Compute the parameters, the state and others (the loss) in one go."""
        realize.realize([*others, *self.parameters, *self.state()], {})

    def _update(self, place: int, parameter: Tensor, gradient: Tensor) -> None:
        raise NotImplementedError

    def _zeros(self) -> list[Tensor]:
        made = [Tensor.zeros(one.shape, dtype=_kept(one)) for one in self.parameters]
        for one in made:
            adopt(one)
        return made


def _kept(parameter: Tensor) -> dtypes.DType:
    return dtypes.float64 if parameter.dtype is dtypes.float64 else dtypes.float32


class SGD(Optimiser):
    """Stochastic gradient descent: p -= rate * v, v = momentum * v + g (Sutskever and others, 2013, for the Nesterov
    form).
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        rate: float = 1e-3,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        """Take parameters; `weight_decay` is added to the gradient as that much of the parameter."""
        super().__init__(parameters, rate)
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum")
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        self.velocities = self._zeros() if momentum else []

    def state(self) -> list[Tensor]:
        """Return the rate and the velocities."""
        return [self.rate, *self.velocities]

    def _update(self, place: int, parameter: Tensor, gradient: Tensor) -> None:
        value = parameter.detach().cast(gradient.dtype)
        if self.weight_decay:
            gradient = gradient + value * self.weight_decay
        if self.momentum:
            velocity = self.velocities[place].assign(self.velocities[place] * self.momentum + gradient)
            gradient = gradient + velocity * self.momentum if self.nesterov else velocity
        parameter.assign(value - gradient * self.rate.cast(gradient.dtype))


class AdamW(Optimiser):
    """Adam with decoupled weight decay (Kingma and Ba, 2014; Loshchilov and Hutter, 2017)."""

    decoupled = True

    def __init__(
        self,
        parameters: Sequence[Tensor],
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        """Take parameters; `betas` weigh the running means of the gradient and of its square."""
        super().__init__(parameters, rate)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.means, self.squares = self._zeros(), self._zeros()
        # what the running means sum to so far, 1 - beta^steps
        self.weights = [self._memory(0.0), self._memory(0.0)]

    def state(self) -> list[Tensor]:
        """Return the rate, the weights and the running means."""
        return [self.rate, *self.weights, *self.means, *self.squares]

    def step(self) -> None:
        """Assign every parameter that has a gradient its next value."""
        for weight, beta in zip(self.weights, self.betas, strict=True):
            # 1 - beta^steps itself would lose the places that matter
            weight.assign(weight * beta + (1 - beta))
        super().step()

    def _update(self, place: int, parameter: Tensor, gradient: Tensor) -> None:
        value, kind = parameter.detach().cast(gradient.dtype), gradient.dtype
        rate = self.rate.cast(kind)
        if self.weight_decay and not self.decoupled:
            gradient = gradient + value * self.weight_decay
        first, second = self.betas
        mean = self.means[place].assign(self.means[place] * first + gradient * (1 - first))
        square = self.squares[place].assign(self.squares[place] * second + gradient * gradient * (1 - second))
        ahead = (mean / self.weights[0].cast(kind)) / ((square / self.weights[1].cast(kind)).sqrt() + self.eps)
        kept = value * (1 - rate * self.weight_decay) if self.weight_decay and self.decoupled else value
        parameter.assign(kept - ahead * rate)


class Adam(AdamW):
    """Adam; weight decay, if any, is added to the gradient."""

    decoupled = False

    def __init__(
        self,
        parameters: Sequence[Tensor],
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """Take parameters."""
        super().__init__(parameters, rate, betas=betas, eps=eps, weight_decay=weight_decay)
