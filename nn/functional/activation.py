"""Activation functions, softmax, dropout and distances, with PyTorch's names and arguments.

`inplace` is taken for the sake of programs that give it, and changes nothing: results are stored where they are needed.
"""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import DTypeLike, number_of
from ringup.compiler.tensor.reductions import places_along
from ringup.compiler.tensor.tensor import Tensor


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(x, 0)."""
    return input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x held between 0 and 6."""
    return input.relu6()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x above 0, `negative_slope` x below."""
    return input.leaky_relu(negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return x above 0, `weight` x below; one weight, or one for each channel (axis 1)."""
    if weight.ndim > 1:
        raise ValueError(f"prelu with weights {list(weight.shape)}: one, or one for each channel")
    if weight.size == 1:
        weight = weight.reshape(())
    else:
        weight = weight.reshape(tuple(weight.size if i == min(1, input.ndim - 1) else 1 for i in range(input.ndim)))
    return (input > 0).where(input, input * weight)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return x above 0, a slope times x below: drawn at random while training, else the mean of the bounds."""
    if lower > upper:
        raise ValueError(f"rrelu between {lower} and {upper}: the lower bound first")
    if not training:
        return input.leaky_relu((lower + upper) / 2)
    slopes = input.uniform(*input.shape, low=lower, high=upper, dtype=input.dtype)
    return (input > 0).where(input, input * slopes)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x above 0, alpha (exp(x) - 1) below."""
    return input.elu(alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x above 0, alpha (exp(x / alpha) - 1) below."""
    return input.celu(alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the self-normalising elu."""
    return input.selu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution's probability below x; `approximate` "tanh" for the tanh form."""
    return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x sigmoid(x)."""
    return input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x tanh(softplus(x))."""
    return input.mish()


def sigmoid(input: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return input.tanh()


def logsigmoid(input: Tensor) -> Tensor:
    """Return log(sigmoid(x))."""
    return input.logsigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x / 6 + 1/2 held between 0 and 1."""
    return input.hardsigmoid()


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x relu6(x + 3) / 6."""
    return input.hardswish()


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x held between two values."""
    if min_val > max_val:
        raise ValueError(f"hardtanh between {min_val} and {max_val}: the lesser first")
    return input.hardtanh(min_val, max_val)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold."""
    return (input * beta > threshold).where(input, input.softplus(beta))


def softsign(input: Tensor) -> Tensor:
    """Return `x / (1 + |x|)`."""
    return input.softsign()


def tanhshrink(input: Tensor) -> Tensor:
    """Return x - tanh(x)."""
    return input.tanhshrink()


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x where `|x|` is above `lambd`, else 0."""
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x moved toward 0 by `lambd`, 0 within it."""
    if lambd < 0:
        raise ValueError(f"softshrink by {lambd}: 0 or more")
    return input.softshrink(lambd)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return x above the threshold, `value` elsewhere."""
    return input.threshold(threshold, value)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half along an axis times the sigmoid of the second half."""
    return input.glu(dim)


def softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return the powers of e along an axis, divided by their sum."""
    return (input if dtype is None else input.cast(dtype)).softmax(dim)


def softmin(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return softmax of -x."""
    return softmax(-input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return the logarithm of softmax."""
    return (input if dtype is None else input.cast(dtype)).log_softmax(dim)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Return a random choice along an axis with the probabilities of softmax, made smooth by `tau` (Jang and others,
    2016); with `hard` ones and zeros, which have the gradient of the smooth choice.
    """
    even = logits.rand(*logits.shape, dtype=dtypes.float32)
    # the uniform numbers may be 0
    noise = -(-(even + 2.0**-25).log()).log()
    soft = ((logits + noise.cast(logits.dtype)) / tau).softmax(dim)
    if not hard:
        return soft
    best = soft.argmax(dim, keepdims=True)
    chosen = places_along(soft, soft._axis(dim)).eq(best).cast(soft.dtype)
    return chosen + (soft - soft.detach())


# dropout


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return it with elements set to 0 at random, at the rate `p`, and the others times 1 / (1 - p)."""
    return input.dropout(p, training=training)


def feature_dropout(input: Tensor, p: float, training: bool, axes: int) -> Tensor:
    """Return it with whole channels set to 0 at random: all but the last `axes` axes tell them apart."""
    if not training or p == 0:
        return input
    lead = input.ndim - axes
    ones = input._constant(1.0, input.dtype, (*input.shape[:lead], *[1] * axes))
    return input * ones.dropout(p)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return (…, C, L) with whole channels set to 0 at random."""
    return feature_dropout(input, p, training, 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return (…, C, H, W) with whole channels set to 0 at random."""
    return feature_dropout(input, p, training, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return (…, C, D, H, W) with whole channels set to 0 at random."""
    return feature_dropout(input, p, training, 3)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return it with elements set to selu's lower limit at random, mean and variance kept (Klambauer and others,
    2017).
    """
    return _selu_dropout(input, p, training, input.ndim)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return (N, C, …) with whole channels set to selu's lower limit at random; see `alpha_dropout`."""
    return _selu_dropout(input, p, training, 2)


def _selu_dropout(input: Tensor, p: float, training: bool, apart: int) -> Tensor:
    """Return it with elements of the first axes, as many as are `apart`, set to selu's lower limit together."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout at a rate of {p}: 0 to 1")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    low = -1.7580993408473766
    factor = ((1 - p) * (1 + p * low * low)) ** -0.5
    drawn = tuple(size if i < apart else 1 for i, size in enumerate(input.shape))
    stays: Tensor = input.rand(drawn, dtype=dtypes.float32) >= p
    made: Tensor = stays.where(input, low) * factor - factor * p * low
    return made


# lengths and distances


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Return it divided by its norm along an axis, which counts as `eps` at least."""
    return input / input.norm(p, dim, keepdims=True).maximum(eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along an axis; lengths count as `eps` at least."""
    first, second = (widened(one) for one in x1._fit(x2))
    lengths = [(one * one).sum(dim).sqrt().maximum(eps) for one in (first, second)]
    return narrowed((first * second).sum(dim) / (lengths[0] * lengths[1]), x1)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Return the norm of the difference plus `eps` along the last axis."""
    return (x1 - x2 + eps).norm(p, -1, keepdims=keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the distance of each row from each one behind it, in the order of the upper triangle."""
    if input.ndim != 2 or p < 0:
        raise ValueError(f"pdist of {list(input.shape)} of order {p}: rows (N, M), an order of 0 or more")
    count = number_of(input.shape[0], "pdist")
    first, second = Tensor.triu_indices(count, count, 1).unbind(0)
    return (input.index_select(0, first) - input.index_select(0, second)).norm(p, -1)
