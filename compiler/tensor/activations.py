"""Activation functions: computed in f32 (f64 for f64) with stable tails, rounded once to the tensor's type."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from ringup.compiler.tensor.complex_numbers.functions import analytic
from ringup.compiler.tensor.conversions import narrowed, upper_bits, widened
from ringup.compiler.tensor.functions import erfc_tail

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

GELU_FORMS = ("none", "tanh")


def relu(tensor: Tensor) -> Tensor:
    """Return max(x, 0); its slope at 0 is 0."""
    return tensor.maximum(0)._with_rule(_relu_rule, tensor)


def relu6(tensor: Tensor) -> Tensor:
    """Return x held between 0 and 6; its slope at both is 0."""
    return tensor.hardtanh(0, 6)


def leaky_relu(tensor: Tensor, slope: float = 0.01) -> Tensor:
    """Return x above 0, `slope` x below."""
    return (tensor > 0).where(tensor, tensor * slope)


def elu(tensor: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x above 0, alpha (exp(x) - 1) below."""
    x = widened(tensor)
    below = x <= 0
    return narrowed(below.where(below.where(x, 0).expm1() * alpha, x), tensor)


def celu(tensor: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x above 0, alpha (exp(x / alpha) - 1) below."""
    x = widened(tensor)
    below = x <= 0
    return narrowed(below.where((below.where(x, 0) / alpha).expm1() * alpha, x), tensor)


def selu(tensor: Tensor) -> Tensor:
    """Return the self-normalising elu (Klambauer and others, 2017)."""
    x = widened(tensor)
    return narrowed(x.elu(1.6732632423543772) * 1.0507009873554805, tensor)


def sigmoid(tensor: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x)), within 4 ulp in both tails; of complex numbers too."""
    if tensor.dtype.is_complex:
        return analytic(1 / ((-tensor).exp() + 1), tensor, lambda result, z: result * (1 - result))
    x = widened(tensor)
    raised = (-x.abs()).exp()
    below = 1 / (raised + 1)
    return narrowed((x >= 0).where(below, raised * below)._with_rule(_sigmoid_rule, x), tensor)


def logsigmoid(tensor: Tensor) -> Tensor:
    """Return log(sigmoid(x))."""
    return -(-tensor).softplus()


def hardsigmoid(tensor: Tensor) -> Tensor:
    """Return x / 6 + 1/2 held between 0 and 1; its slope at -3 and 3 is 0."""
    x = tensor if tensor.dtype.is_float else tensor.float()
    return (x / 6 + 0.5).clip(0, 1)._with_rule(_hardsigmoid_rule, x)


def hardtanh(tensor: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return x held between `low` and `high`; its slope at both is 0."""
    return tensor.clip(low, high)._with_rule(partial(_hardtanh_rule, low, high), tensor)


def silu(tensor: Tensor) -> Tensor:
    """Return x sigmoid(x)."""
    x = widened(tensor)
    return narrowed(x * x.sigmoid(), tensor)


def hardswish(tensor: Tensor) -> Tensor:
    """Return x relu6(x + 3) / 6; its slope at -3 is 0, at 3 it is 1."""
    x = tensor if tensor.dtype.is_float else tensor.float()
    return (x * (x + 3).relu6() / 6)._with_rule(_hardswish_rule, x)


def softplus(tensor: Tensor, beta: float = 1.0) -> Tensor:
    """Return log(1 + exp(beta x)) / beta."""
    x = widened(tensor)
    tail = (-(x * beta if beta != 1 else x).abs()).exp().log1p()
    top = x.maximum(0) if beta > 0 else x.minimum(0)
    made = top + (tail / beta if beta != 1 else tail)
    return narrowed(made._with_rule(partial(_softplus_rule, beta), x), tensor)


def softsign(tensor: Tensor) -> Tensor:
    """Return `x / (1 + |x|)`."""
    return tensor / (tensor.abs() + 1)


def mish(tensor: Tensor) -> Tensor:
    """Return x tanh(softplus(x)), by exp alone: n / (n + 2) with n = e (e + 2)."""
    x = widened(tensor)
    raised = x.minimum(40.0).exp()
    weight = raised * (raised + 2)
    return narrowed(x * (weight / (weight + 2)), tensor)


def gelu(tensor: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution's probability below x; `approximate` "tanh" for the tanh form. Tails
    are stable.
    """
    if approximate not in GELU_FORMS:
        raise ValueError(f"gelu has no form {approximate!r}; there are {', '.join(GELU_FORMS)}")
    x = widened(tensor)
    if approximate == "tanh":
        # (1 + tanh(u)) / 2 is sigmoid(2 u)
        inner = (x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi))
        return narrowed(x * inner.sigmoid(), tensor)
    return narrowed(x * _normal_below(x), tensor)


def quick_gelu(tensor: Tensor) -> Tensor:
    """Return x sigmoid(1.702 x)."""
    x = widened(tensor)
    return narrowed(x * (x * 1.702).sigmoid(), tensor)


def _normal_below(x: Tensor) -> Tensor:
    """Return erfc(-x / sqrt 2) / 2, the square in its exponent taken from x itself."""
    size = x.abs().minimum(1e3)
    upper = upper_bits(size)
    tail = erfc_tail(size * math.sqrt(0.5), upper * upper * 0.5, (size - upper) * (size + upper) * 0.5) * 0.5
    return (x < 0).where(tail, 1 - tail)._with_rule(_normal_rule, x)


def tanhshrink(tensor: Tensor) -> Tensor:
    """Return x - tanh(x)."""
    return tensor - tensor.tanh()


def hardshrink(tensor: Tensor, width: float = 0.5) -> Tensor:
    """Return x where `|x|` is above `width`, else 0."""
    return (tensor.abs() <= width).where(0, tensor)


def softshrink(tensor: Tensor, width: float = 0.5) -> Tensor:
    """Return x moved toward 0 by `width`, 0 within it."""
    return (tensor.abs() <= width).where(0, (tensor > 0).where(tensor - width, tensor + width))


def _relu_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((x <= 0).where(0, gradient),)


def _hardtanh_rule(low: float, high: float, gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((x <= low).logical_or(x >= high).where(0, gradient),)


def _hardsigmoid_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((x.abs() < 3).where(gradient * (1 / 6), 0),)


def _hardswish_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((x <= -3).where(0, (x < 3).where(gradient * (x / 3 + 0.5), gradient)),)


def _sigmoid_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * result * (1 - result),)


def _softplus_rule(beta: float, gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (x * beta if beta != 1 else x).sigmoid(),)


def _normal_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi)),)
