"""Activation functions: computed in f32 (f64 for f64) with stable tails, rounded once to the tensor's type."""

from __future__ import annotations

import math
from typing import Self

from ringup.compiler.tensor.functions import Functions

GELU_FORMS = ("none", "tanh")


class Activations(Functions):
    """The functions between the layers of a network."""

    __slots__ = ()

    def relu(self) -> Self:
        """Return max(x, 0); its slope at 0 is 0."""
        return self.maximum(0)._with_rule(_relu_rule, self)

    def relu6(self) -> Self:
        """Return x held between 0 and 6."""
        return self.clip(0, 6)

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """Return x above 0, `slope` x below."""
        return (self > 0).where(self, self * slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """Return x above 0, alpha (exp(x) - 1) below."""
        x = self._wide()
        return (x > 0).where(x, x.minimum(0).expm1() * alpha)._narrow(self)

    def celu(self, alpha: float = 1.0) -> Self:
        """Return x above 0, alpha (exp(x / alpha) - 1) below."""
        x = self._wide()
        return (x > 0).where(x, (x.minimum(0) / alpha).expm1() * alpha)._narrow(self)

    def selu(self) -> Self:
        """Return the self-normalising elu (Klambauer and others, 2017)."""
        x = self._wide()
        return (x.elu(1.6732632423543772) * 1.0507009873554805)._narrow(self)

    def sigmoid(self) -> Self:
        """Return 1 / (1 + exp(-x)), within 4 ulp in both tails."""
        x = self._wide()
        raised = (-x.abs())._exp()
        below = 1 / (raised + 1)
        return (x >= 0).where(below, raised * below)._with_rule(_sigmoid_rule, x)._narrow(self)

    def logsigmoid(self) -> Self:
        """Return log(sigmoid(x))."""
        return -(-self).softplus()

    def hardsigmoid(self) -> Self:
        """Return x / 6 + 1/2 held between 0 and 1."""
        return (self / 6 + 0.5).clip(0, 1)

    def hardtanh(self, low: float = -1.0, high: float = 1.0) -> Self:
        """Return x held between `low` and `high`."""
        return self.clip(low, high)

    def silu(self) -> Self:
        """Return x sigmoid(x)."""
        x = self._wide()
        return (x * x.sigmoid())._narrow(self)

    swish = silu

    def hardswish(self) -> Self:
        """Return x relu6(x + 3) / 6."""
        return self * (self + 3).relu6() / 6

    def softplus(self, beta: float = 1.0) -> Self:
        """Return log(1 + exp(beta x)) / beta."""
        x = self._wide()
        x = x * beta if beta != 1 else x
        made = (x.maximum(0) + (-x.abs())._exp()._log1p())._with_rule(_softplus_rule, x)
        return (made / beta if beta != 1 else made)._narrow(self)

    def softsign(self) -> Self:
        """Return `x / (1 + |x|)`."""
        return self / (self.abs() + 1)

    def mish(self) -> Self:
        """Return x tanh(softplus(x)), by exp alone: n / (n + 2) with n = e (e + 2)."""
        x = self._wide()
        raised = x.minimum(40.0)._exp()
        weight = raised * (raised + 2)
        return (x * (weight / (weight + 2)))._narrow(self)

    def gelu(self, approximate: str = "none") -> Self:
        """Return x times the normal distribution's probability below x; `approximate` "tanh" for the tanh form. Tails
        are stable.
        """
        if approximate not in GELU_FORMS:
            raise ValueError(f"gelu has no form {approximate!r}; there are {', '.join(GELU_FORMS)}")
        x = self._wide()
        if approximate == "tanh":
            inner = (x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi))  # (1 + tanh(u)) / 2 is sigmoid(2 u)
            return (x * inner.sigmoid())._narrow(self)
        return (x * x._normal_below())._narrow(self)

    quick_gelu_factor = 1.702

    def quick_gelu(self) -> Self:
        """Return x sigmoid(1.702 x)."""
        x = self._wide()
        return (x * (x * self.quick_gelu_factor).sigmoid())._narrow(self)

    def _normal_below(self) -> Self:
        """Return erfc(-x / sqrt 2) / 2, the square in its exponent taken from x itself."""
        size = self.abs().minimum(1e3)
        head = size._head()
        tail = (size * math.sqrt(0.5))._erfc_tail(head * head * 0.5, (size - head) * (size + head) * 0.5) * 0.5
        return (self < 0).where(tail, 1 - tail)._with_rule(_normal_rule, self)

    def tanhshrink(self) -> Self:
        """Return x - tanh(x)."""
        return self - self.tanh()

    def hardshrink(self, width: float = 0.5) -> Self:
        """Return x where `|x|` is above `width`, else 0."""
        return (self.abs() > width).where(self, 0)

    def softshrink(self, width: float = 0.5) -> Self:
        """Return x moved toward 0 by `width`, 0 within it."""
        return (self > width).where(self - width, (self < -width).where(self + width, 0))


def _relu_rule(gradient: Activations, result: Activations, x: Activations) -> tuple[Activations]:
    return ((x > 0).where(gradient, 0),)


def _sigmoid_rule(gradient: Activations, result: Activations, x: Activations) -> tuple[Activations]:
    return (gradient * result * (1 - result),)


def _softplus_rule(gradient: Activations, result: Activations, x: Activations) -> tuple[Activations]:
    return (gradient * x.sigmoid(),)


def _normal_rule(gradient: Activations, result: Activations, x: Activations) -> tuple[Activations]:
    return (gradient * (x * x * -0.5)._exp() * (1 / math.sqrt(2 * math.pi)),)
