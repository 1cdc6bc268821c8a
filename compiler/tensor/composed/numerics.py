"""More arithmetic by PyTorch's names: floats by their parts, products that are added, norms held, running areas."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ringup.compiler.tensor.conversions import SIGNED, narrowed, widened
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.memory import put
from ringup.compiler.tensor.movement import cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# added to a norm that something is divided by; PyTorch's
LEAST_NORM = 1e-7


class Parts(NamedTuple):
    """A float as mantissa * 2 ** exponent."""

    mantissa: Tensor
    exponent: Tensor


def rsub(tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return another less `alpha` times this."""
    made: Tensor = other - (tensor if alpha == 1 else tensor * alpha)
    return made


def msort(tensor: Tensor) -> Tensor:
    """Return the elements in order along the first axis."""
    return tensor.sort(0).values if tensor.shape else tensor


def ldexp(tensor: Tensor, other: Any) -> Tensor:
    """Return it times two to the power of another; floats."""
    x = tensor if tensor.dtype.is_float else tensor.float()
    power = x._lift(other)
    made: Tensor = x * power.cast(x.dtype).exp2()
    return made


def frexp(tensor: Tensor) -> Parts:
    """Return mantissas, from 0.5 to below 1 in size, and whole exponents: x = mantissa * 2 ** exponent. Of 0, NaN and
    infinities they are x and 0.
    """
    if not tensor.dtype.is_float:
        raise TypeError(f"frexp of {tensor.dtype}: floats")
    x = widened(tensor).detach()
    kind, mantissa = SIGNED[x.dtype.bits], x.dtype.mantissa_bits
    most = (1 << x.dtype.bits - 1 - mantissa) - 1
    # numbers below the least normal one have no exponent of their own
    tiny = x.abs() < x.dtype.smallest_normal
    bits = tiny.where(x * 2.0**64, x).bitcast(kind)
    exponent = ((bits >> mantissa) & most).int() - (most // 2 - 1) - tiny.where(64, 0)
    plain = x.ne(0).logical_and(x.isfinite())
    halved = ((bits & ~(most << mantissa)) | ((most // 2 - 1) << mantissa)).bitcast(x.dtype)
    exponent = plain.where(exponent, 0)
    made = plain.where(halved, x)._with_rule(partial(_frexp_rule, exponent), widened(tensor))
    return Parts(narrowed(made, tensor), exponent)


def _frexp_rule(exponent: Tensor, gradient: Tensor, _result: Tensor, _x: Tensor) -> tuple[Tensor]:
    # that of the division by the power of 2
    return (gradient * (-exponent).cast(gradient.dtype).exp2(),)


def nextafter(tensor: Tensor, other: Any) -> Tensor:
    """Return the next number of the type toward another."""
    x, y = tensor._fit(other)
    if not x.dtype.is_float:
        raise TypeError(f"nextafter of {x.dtype}: floats")
    kind = SIGNED[x.dtype.bits]
    bits = x.bitcast(kind)
    away = (y > x).eq(x > 0)
    moved = (bits + away.where(1, -1).cast(kind)).bitcast(x.dtype)
    least = x._constant(1, kind, x.shape).bitcast(x.dtype)
    made = x.eq(0).where(least.copysign(y), moved)
    made = x.eq(y).where(y, made)
    return (x.isnan() | y.isnan()).where(float("nan"), made)


def addr(tensor: Tensor, first: Tensor, second: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta times this plus alpha times the outer product of two vectors."""
    return _added(tensor, first.outer(second), beta, alpha)


def addbmm(tensor: Tensor, first: Tensor, second: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta times this plus alpha times the sum of the products of two stacks of matrices."""
    y = first._lift(second, weak=False)
    if first.ndim != 3 or y.ndim != 3 or first.shape[0] != y.shape[0] or first.shape[2] != y.shape[1]:
        raise ValueError(f"addbmm of {list(first.shape)} and {list(y.shape)}: (B, M, K) and (B, K, N)")
    # one sum over both axes, which is rounded once
    rows, columns = first.transpose(0, 1).flatten(1), y.flatten(0, 1)
    return _added(tensor, rows.matmul(columns), beta, alpha)


def _added(tensor: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta times a tensor plus alpha times a product; a beta of 0 leaves NaN of the tensor out."""
    made = product if alpha == 1 else product * alpha
    return made if beta == 0 else made + (tensor if beta == 1 else tensor * beta)


def renorm(tensor: Tensor, order: float, axis: int, maxnorm: float) -> Tensor:
    """Return it with each part along an axis shortened to a norm of `maxnorm` where it is longer."""
    if maxnorm < 0:
        raise ValueError(f"renorm to {maxnorm}: 0 or more")
    at, x = tensor._axis(axis), widened(tensor)
    length = x.norm(order, tuple(i for i in range(x.ndim) if i != at), keepdims=True)
    return narrowed((length > maxnorm).where(x * (maxnorm / (length + LEAST_NORM)), x), tensor)


def cumulative_trapezoid(tensor: Tensor, x: Any = None, *, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Return the running area below points along an axis: at places `x`, or `dx` apart."""
    y = tensor if tensor.dtype.is_float else tensor.float()
    at = y._axis(axis)
    size = number_of(y.shape[at], "cumulative_trapezoid")
    heights = cut(y, at, min(1, size), size) + cut(y, at, 0, max(size - 1, 0))
    if x is None:
        return (heights * (dx / 2)).cumsum(at)
    places = y._lift(x, weak=False)
    if places.ndim == 1:
        places = places.reshape(tuple(-1 if i == at else 1 for i in range(y.ndim)))
    axis = places._axis(at - y.ndim)
    widths = cut(places, axis, min(1, size), size) - cut(places, axis, 0, max(size - 1, 0))
    return (heights * widths * 0.5).cumsum(at)


def mvlgamma(tensor: Tensor, p: int) -> Tensor:
    """Return the logarithm of the gamma function of p dimensions."""
    if p < 1:
        raise ValueError(f"mvlgamma of {p} dimensions: 1 or more")
    x = tensor if tensor.dtype.is_float else tensor.float()
    parts = [(x - i / 2).lgamma() for i in range(p)]
    made = parts[0]
    for one in parts[1:]:
        made = made + one
    # p (p - 1) / 4 times the logarithm of pi
    return made + p * (p - 1) / 4 * 1.1447298858494002


# matrices, by ringup.linalg


def _linalg(name: str, *given: Any) -> Any:
    return getattr(import_module("ringup.linalg"), name)(*given)


def det(tensor: Tensor) -> Tensor:
    """Return the determinant of square matrices: `ringup.linalg.det`."""
    made: Tensor = _linalg("det", tensor)
    return made


def logdet(tensor: Tensor) -> Tensor:
    """Return the logarithm of the determinant of square matrices: `ringup.linalg.logdet`."""
    made: Tensor = _linalg("logdet", tensor)
    return made


def slogdet(tensor: Tensor) -> Any:
    """Return (sign, logarithm of the size) of the determinant of square matrices: `ringup.linalg.slogdet`."""
    return _linalg("slogdet", tensor)


def inverse(tensor: Tensor) -> Tensor:
    """Return the inverse of square matrices: `ringup.linalg.inv`."""
    made: Tensor = _linalg("inv", tensor)
    return made


def pinverse(tensor: Tensor, rcond: float = 1e-15) -> Tensor:
    """Return the pseudo-inverse of matrices: `ringup.linalg.pinv`."""
    made: Tensor = _linalg("pinv", tensor, rcond)
    return made


def matrix_power(tensor: Tensor, n: int) -> Tensor:
    """Return square matrices multiplied with themselves n times: `ringup.linalg.matrix_power`."""
    made: Tensor = _linalg("matrix_power", tensor, n)
    return made


def matrix_exp(tensor: Tensor) -> Tensor:
    """Return the exponentials of square matrices: `ringup.linalg.matrix_exp`."""
    made: Tensor = _linalg("matrix_exp", tensor)
    return made


# random numbers in place


def _drawn(tensor: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Set the elements to what becomes of numbers evenly spread over [0, 1)."""
    return put(tensor, of(tensor.rand(tensor.shape)).cast(tensor.dtype))


def exponential_in_place(tensor: Tensor, lambd: float = 1.0) -> Tensor:
    """Set the elements to exponentially distributed random numbers of the rate `lambd`, in place."""
    return _drawn(tensor, lambda even: -(-even).log1p() * (1 / lambd))


def geometric_in_place(tensor: Tensor, p: float) -> Tensor:
    """Set the elements to how many tries the first success of probability `p` takes, in place."""
    if not 0 < p < 1:
        raise ValueError(f"geometric_ of the probability {p}: between 0 and 1")
    return _drawn(tensor, lambda even: ((-even).log1p() * (1 / math.log1p(-p))).ceil().maximum(1.0))


def cauchy_in_place(tensor: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Set the elements to random numbers of Cauchy's distribution, in place."""
    return _drawn(tensor, lambda even: ((even - 0.5) * math.pi).tan() * sigma + median)


def log_normal_in_place(tensor: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    """Set the elements to random numbers whose logarithms are normally distributed, in place."""
    made: Tensor = tensor.normal(tensor.shape, mean=mean, std=std).exp().cast(tensor.dtype)
    return put(tensor, made)


def bernoulli_in_place(tensor: Tensor, p: Any = 0.5) -> Tensor:
    """Set the elements to 1 with the probability `p`, a number or a tensor, else to 0, in place."""
    return put(tensor, (tensor.rand(tensor.shape) < p).cast(tensor.dtype))


def random_in_place(tensor: Tensor, low: int = 0, high: int | None = None) -> Tensor:
    """Set the elements to random whole numbers from `low` to before `high`, in place; `random_(9)` is from 0 on."""
    if high is None:
        low, high = (0, low) if low else (0, _limit(tensor))
    return put(tensor, tensor.randint(low, high, tensor.shape, dtype=tensor.dtype))


def _limit(tensor: Tensor) -> int:
    """Return before what random numbers end unless told: what an int32 or the type holds."""
    kind = tensor.dtype
    if kind.is_float:
        return 1 << min(kind.mantissa_bits + 1, 31)
    return 2 if kind.kind == "bool" else min(int(kind.greatest), (1 << 31) - 1)
