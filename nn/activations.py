"""Activation functions as layers. `inplace` is taken for the sake of programs that give it, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ringup.compiler.tensor.core import DTypeLike
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn.linear import constant, float_type
from ringup.nn.module import Module


class _Function(Module):
    """A function without parameters as a layer; its options are attributes."""

    compute: ClassVar[Callable[..., Tensor]]

    def __init__(self, inplace: bool = False) -> None:
        """Make a layer."""

    def _options(self) -> dict[str, Any]:
        """Return the options that were set."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "training"}

    def forward(self, input: Tensor) -> Tensor:
        """Return the function of the input."""
        return type(self).compute(input, **self._options())

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={value}" for name, value in self._options().items())


class ReLU(_Function):
    """max(x, 0)."""

    compute = staticmethod(F.relu)


class ReLU6(_Function):
    """x held between 0 and 6."""

    compute = staticmethod(F.relu6)


class SELU(_Function):
    """The self-normalising elu."""

    compute = staticmethod(F.selu)


class SiLU(_Function):
    """x sigmoid(x)."""

    compute = staticmethod(F.silu)


class Mish(_Function):
    """x tanh(softplus(x))."""

    compute = staticmethod(F.mish)


class Hardswish(_Function):
    """x relu6(x + 3) / 6."""

    compute = staticmethod(F.hardswish)


class Hardsigmoid(_Function):
    """x / 6 + 1/2 held between 0 and 1."""

    compute = staticmethod(F.hardsigmoid)


class Sigmoid(_Function):
    """1 / (1 + exp(-x))."""

    compute = staticmethod(F.sigmoid)


class Tanh(_Function):
    """The hyperbolic tangent."""

    compute = staticmethod(F.tanh)


class LogSigmoid(_Function):
    """log(sigmoid(x))."""

    compute = staticmethod(F.logsigmoid)


class Softsign(_Function):
    """`x / (1 + |x|)`."""

    compute = staticmethod(F.softsign)


class Tanhshrink(_Function):
    """x - tanh(x)."""

    compute = staticmethod(F.tanhshrink)


class LeakyReLU(_Function):
    """x above 0, `negative_slope` x below."""

    compute = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        """Make a layer."""
        self.negative_slope = negative_slope


class ELU(_Function):
    """x above 0, alpha (exp(x) - 1) below."""

    compute = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        """Make a layer."""
        self.alpha = alpha


class CELU(_Function):
    """x above 0, alpha (exp(x / alpha) - 1) below."""

    compute = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        """Make a layer."""
        self.alpha = alpha


class GELU(_Function):
    """x times the normal distribution's probability below x."""

    compute = staticmethod(F.gelu)

    def __init__(self, approximate: str = "none") -> None:
        """Make a layer; `approximate` "tanh" for the tanh form."""
        self.approximate = approximate


class Softplus(_Function):
    """log(1 + exp(beta x)) / beta."""

    compute = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        """Make a layer; beta x above the threshold is passed on as it is."""
        self.beta, self.threshold = beta, threshold


class Hardtanh(_Function):
    """x held between two values."""

    compute = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        """Make a layer."""
        self.min_val, self.max_val = min_val, max_val


class Hardshrink(_Function):
    """x where `|x|` is above `lambd`, else 0."""

    compute = staticmethod(F.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        """Make a layer."""
        self.lambd = lambd


class Softshrink(_Function):
    """x moved toward 0 by `lambd`, 0 within it."""

    compute = staticmethod(F.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        """Make a layer."""
        self.lambd = lambd


class Threshold(_Function):
    """x above the threshold, `value` elsewhere."""

    compute = staticmethod(F.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        """Make a layer."""
        self.threshold, self.value = threshold, value


class GLU(_Function):
    """The first half along an axis times the sigmoid of the second half."""

    compute = staticmethod(F.glu)

    def __init__(self, dim: int = -1) -> None:
        """Make a layer."""
        self.dim = dim


class Softmax(_Function):
    """The powers of e along an axis, divided by their sum."""

    compute = staticmethod(F.softmax)

    def __init__(self, dim: int) -> None:
        """Make a layer."""
        self.dim = dim


class Softmin(_Function):
    """Softmax of -x."""

    compute = staticmethod(F.softmin)

    def __init__(self, dim: int) -> None:
        """Make a layer."""
        self.dim = dim


class LogSoftmax(_Function):
    """The logarithm of softmax."""

    compute = staticmethod(F.log_softmax)

    def __init__(self, dim: int) -> None:
        """Make a layer."""
        self.dim = dim


class Softmax2d(Module):
    """Softmax over the channels of (…, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the function of the input."""
        return F.softmax(input, -3)


class RReLU(Module):
    """x above 0, below a slope times x: drawn at random while training, else the mean of the bounds."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        """Make a layer."""
        self.lower, self.upper = lower, upper

    def forward(self, input: Tensor) -> Tensor:
        """Return the function of the input."""
        return F.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        """Return the bounds."""
        return f"lower={self.lower}, upper={self.upper}"


class PReLU(Module):
    """x above 0, a trained slope times x below."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: DTypeLike | None = None) -> None:
        """Make a layer with one slope, or one for each channel (axis 1)."""
        self.num_parameters = num_parameters
        self.weight = constant((num_parameters,), init, float_type(dtype))

    def forward(self, input: Tensor) -> Tensor:
        """Return the function of the input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Return the number of slopes."""
        return f"num_parameters={self.num_parameters}"
