"""Functions of one element or of two that broadcast. One of two may be a Python number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ringup.array_api.arguments import Number, fitted, lifted, own
from ringup.compiler.tensor.conversions import SIGNED
from ringup.compiler.tensor.tensor import Tensor

Unary: TypeAlias = Callable[[Tensor], Tensor]
Binary: TypeAlias = Callable[[Tensor | Number, Tensor | Number], Tensor]

# what the unary functions are on `Tensor`
UNARY = {
    "abs": ("abs", "absolute value"),
    "acos": ("acos", "arc cosine, NaN outside of -1 … 1"),
    "acosh": ("acosh", "inverse hyperbolic cosine, NaN below 1"),
    "asin": ("asin", "arc sine, NaN outside of -1 … 1"),
    "asinh": ("asinh", "inverse hyperbolic sine"),
    "atan": ("atan", "arc tangent"),
    "atanh": ("atanh", "inverse hyperbolic tangent"),
    "bitwise_invert": ("__invert__", "elements with every bit inverted; bools become their opposite"),
    "ceil": ("ceil", "elements rounded up"),
    "cos": ("cos", "cosine of radians"),
    "cosh": ("cosh", "hyperbolic cosine"),
    "exp": ("exp", "powers of e"),
    "expm1": ("expm1", "powers of e less 1, exact near 0 too"),
    "floor": ("floor", "elements rounded down"),
    "isfinite": ("isfinite", "truth of being neither infinite nor NaN"),
    "isinf": ("isinf", "truth of being plus or minus infinity"),
    "isnan": ("isnan", "truth of being NaN"),
    "log": ("log", "natural logarithm"),
    "log10": ("log10", "logarithm to base 10"),
    "log1p": ("log1p", "natural logarithm of 1 + x, exact near 0 too"),
    "log2": ("log2", "logarithm to base 2"),
    "logical_not": ("logical_not", "truth of being false"),
    "negative": ("__neg__", "elements with their sign changed"),
    "positive": ("__pos__", "elements as they are, in an array of their own"),
    "reciprocal": ("reciprocal", "1 / x"),
    "round": ("round", "elements rounded to the nearest whole number, halves to the even one"),
    "sign": ("sign", "sign: -1, 0 or 1; NaN stays NaN"),
    "signbit": ("signbit", "truth of the sign bit being set, as it is in -0.0"),
    "sin": ("sin", "sine of radians"),
    "sinh": ("sinh", "hyperbolic sine"),
    "sqrt": ("sqrt", "square root, NaN below 0"),
    "square": ("square", "elements times themselves"),
    "tan": ("tan", "tangent of radians"),
    "tanh": ("tanh", "hyperbolic tangent"),
    "trunc": ("trunc", "elements rounded toward zero"),
}
# what the functions of two are on `Tensor`
BINARY = {
    "add": ("__add__", "sum"),
    "atan2": ("atan2", "angle of the point (x2, x1), -pi to pi"),
    "bitwise_and": ("__and__", "bits set in both"),
    "bitwise_left_shift": ("__lshift__", "x1 with its bits shifted left by x2"),
    "bitwise_or": ("__or__", "bits set in either"),
    "bitwise_right_shift": ("__rshift__", "x1 with its bits shifted right by x2, the sign kept"),
    "bitwise_xor": ("__xor__", "bits set in exactly one"),
    "copysign": ("copysign", "x1 with the sign of x2"),
    "divide": ("__truediv__", "quotient as a float"),
    "equal": ("__eq__", "truth of being equal"),
    "greater": ("__gt__", "truth of x1 being greater than x2"),
    "greater_equal": ("__ge__", "truth of x1 being at least x2"),
    "less": ("__lt__", "truth of x1 being less than x2"),
    "less_equal": ("__le__", "truth of x1 being at most x2"),
    "logaddexp": ("logaddexp", "logarithm of exp(x1) + exp(x2), without overflow"),
    "logical_and": ("logical_and", "truth of both"),
    "logical_or": ("logical_or", "truth of either"),
    "logical_xor": ("logical_xor", "truth of exactly one"),
    "maximum": ("maximum", "greater of the two, NaN if either is"),
    "minimum": ("minimum", "lesser of the two, NaN if either is"),
    "multiply": ("__mul__", "product"),
    "not_equal": ("__ne__", "truth of being different, as NaN is from itself"),
    "pow": ("__pow__", "x1 to the power of x2"),
    "remainder": ("__mod__", "remainder of a division, with the sign of x2"),
    "subtract": ("__sub__", "difference"),
}


def _unary(name: str) -> Unary:
    method, what = UNARY[name]
    call: Unary = getattr(Tensor, method)

    def function(x: Tensor, /) -> Tensor:
        return own(x, call(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the {what}."
    return function


def _binary(name: str) -> Binary:
    method, what = BINARY[name]
    call: Callable[[Tensor, Tensor], Tensor] = getattr(Tensor, method)

    def function(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
        return call(*fitted(x1, x2))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the {what}."
    return function


abs = _unary("abs")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_invert = _unary("bitwise_invert")
ceil = _unary("ceil")
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
log = _unary("log")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative")
positive = _unary("positive")
reciprocal = _unary("reciprocal")
round = _unary("round")
sign = _unary("sign")
signbit = _unary("signbit")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc")

add = _binary("add")
atan2 = _binary("atan2")
bitwise_and = _binary("bitwise_and")
bitwise_left_shift = _binary("bitwise_left_shift")
bitwise_or = _binary("bitwise_or")
bitwise_right_shift = _binary("bitwise_right_shift")
bitwise_xor = _binary("bitwise_xor")
copysign = _binary("copysign")
divide = _binary("divide")
equal = _binary("equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
less = _binary("less")
less_equal = _binary("less_equal")
logaddexp = _binary("logaddexp")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
not_equal = _binary("not_equal")
pow = _binary("pow")
remainder = _binary("remainder")
subtract = _binary("subtract")


def floor_divide(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the quotient rounded down. Unlike `//`, which is Python's, a quotient with zeros or infinities is what `/`
    gives, rounded down: inf by 1 is inf, 1 by -inf is -0.0.
    """
    x, y = fitted(x1, x2)
    x, y = x._fit(y)
    if not x.dtype.is_float:
        return x // y
    return (x.eq(0) | x.isinf() | y.isinf()).where((x / y).floor(), x // y)


def clip(x: Tensor, /, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """Return elements held between `min` and `max`, in the type of x; NaN in any of the three gives NaN."""
    low, high = (None if one is None else lifted(x, one) for one in (min, max))
    return own(x, x.clip(low, high)).cast(x.dtype)


def conj(x: Tensor, /) -> Tensor:
    """Return the complex conjugate: real numbers are their own."""
    return own(x, x.conj())


def real(x: Tensor, /) -> Tensor:
    """Return the real part: all of a real number."""
    return own(x, x.real)


def imag(x: Tensor, /) -> Tensor:
    """Return the imaginary part: 0 of a real number."""
    return x.imag


def hypot(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return sqrt(x1² + x2²) without overflow; infinity beside NaN is infinity."""
    x, y = fitted(x1, x2)
    a, b = (one.abs() for one in (x._fit(y)))
    a, b = (one if one.dtype.is_float else one.float() for one in (a, b))
    high, low = a.maximum(b), a.minimum(b)
    ratio = high.eq(0).where(high, low / high)
    made = high * (ratio * ratio + 1).sqrt()
    return (a.isinf() | b.isinf()).where(float("inf"), made)


def nextafter(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the next float after x1 on the way to x2, x2 itself where they are equal."""
    x, y = fitted(x1, x2)
    x, y = x._fit(y)
    if not x.dtype.is_float:
        raise TypeError(f"nextafter of {x.dtype}: floating-point types only")
    bits = SIGNED[x.dtype.bits]
    # without its sign, a float is in the order of its bits
    outward = (y > x) ^ (x < 0)
    here = x.bitcast(bits)
    moved = (here + outward.where(here.full_like(1), -1)).bitcast(x.dtype)
    least = x._constant(1, bits, x.shape).bitcast(x.dtype).copysign(y)
    made = x.eq(0).where(least, moved)
    made = x.eq(y).where(y, made)
    return (x.isnan() | y.isnan()).where(x + y, made)
