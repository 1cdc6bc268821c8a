"""Complex numbers from parts, and parts from complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.core import Core
from ringup.compiler.tensor.movement import as_copy, as_view

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def join(real: Tensor, imag: Tensor) -> Tensor:
    """Return the complex numbers of two parts of one float type and one shape."""
    return real._of(nodes.joined(real._node, imag._node))


def split(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part of complex numbers."""
    return tensor._of(nodes.part(Op.REAL, tensor._node)), tensor._of(nodes.part(Op.IMAG, tensor._node))


def _with_parts(kind: DType) -> DType:
    """Return the float type of parts that numbers of a real type become."""
    return dtypes.float64 if kind is dtypes.float64 else dtypes.float32


def complex_of(real: Any, imag: Any) -> Tensor:
    """Return complex numbers from their parts, real tensors or numbers that broadcast: complex64, complex128 for
    f64.
    """
    first = cast("Tensor", real if isinstance(real, Core) else imag._lift(real) if isinstance(imag, Core) else None)
    if first is None:
        raise TypeError(f"complex of {type(real).__name__} and {type(imag).__name__}: one of the parts is a tensor")
    x, y = first._fit(imag)
    if x.dtype.is_complex:
        raise TypeError(f"complex of {x.dtype}: the parts are real")
    kind = _with_parts(x.dtype)
    return join(x.cast(kind), y.cast(kind))


def polar(size: Tensor, angle: Any) -> Tensor:
    """Return the complex numbers of those sizes and angles in radians."""
    x, y = size._fit(angle)
    if x.dtype.is_complex:
        raise TypeError(f"polar of {x.dtype}: sizes and angles are real")
    kind = _with_parts(x.dtype)
    x, y = x.cast(kind), y.cast(kind)
    return join(x * y.cos(), x * y.sin())


def real(tensor: Tensor) -> Tensor:
    """Return the real part, a view: assignment to it writes this tensor. Of a real tensor it is the tensor itself."""
    return as_view(tensor, partial(nodes.part, Op.REAL)) if tensor.dtype.is_complex else tensor


def imag(tensor: Tensor) -> Tensor:
    """Return the imaginary part, a view: assignment to it writes this tensor. Of a real tensor it is zeros, which
    refuse assignment.
    """
    if tensor.dtype.is_complex:
        return as_view(tensor, partial(nodes.part, Op.IMAG))
    return as_copy(tensor.full_like(0), "the imaginary part of real numbers")


def conj(tensor: Tensor) -> Tensor:
    """Return it with the imaginary part negated."""
    if not tensor.dtype.is_complex:
        return tensor
    x, y = split(tensor)
    return join(x, -y)._with_rule(_conj_rule, tensor)


def angle(tensor: Tensor) -> Tensor:
    """Return the angle from the positive real axis, -pi to pi; of a real number 0 or pi, NaN of NaN."""
    if not tensor.dtype.is_complex:
        x = tensor.cast(_with_parts(tensor.dtype)) if not tensor.dtype.is_float else tensor
        return x.isnan().where(x, (x < 0).where(x.full_like(3.141592653589793), 0.0))
    x, y = split(tensor)
    return y.atan2(x)


def absolute(tensor: Tensor) -> Tensor:
    """Return the size of complex numbers, without overflow on the way."""
    x, y = split(tensor)
    return tensor._of(x.hypot(y)._node)._with_rule(_absolute_rule, tensor)


def sign(tensor: Tensor) -> Tensor:
    """Return complex numbers divided by their sizes, 0 of 0."""
    x, y = split(tensor)
    # divided by the greater part first: the size itself may overflow
    most = x.abs().maximum(y.abs())
    some = most.eq(0).where(1, most)
    x, y = x / some, y / some
    size = x.hypot(y)
    none = most.eq(0)
    size = none.where(1, size)
    return join(none.where(0, x / size), none.where(0, y / size))._with_rule(_sign_rule, tensor)


def as_real(tensor: Tensor) -> Tensor:
    """Return complex numbers as floats: the two parts along a new last axis."""
    if not tensor.dtype.is_complex:
        raise TypeError(f"view_as_real of {tensor.dtype}: a complex tensor")
    x, y = split(tensor)
    return x.stack(y, axis=-1)


def as_complex(tensor: Tensor) -> Tensor:
    """Return floats (…, 2) as complex numbers: the last axis holds the two parts."""
    if tensor.dtype not in dtypes.WITH_PARTS or not tensor.shape or tensor.shape[-1] != 2:
        raise TypeError(
            f"view_as_complex of {tensor.dtype}{list(tensor.shape)}: floats of 32 or 64 bits, a last axis of 2"
        )
    return join(tensor[..., 0], tensor[..., 1])


def is_complex(tensor: Tensor) -> bool:
    """Return whether its elements are complex numbers."""
    return tensor.dtype.is_complex


def isreal(tensor: Tensor) -> Tensor:
    """Return where the imaginary part is 0."""
    return tensor.imag.eq(0)


def each(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what a function of real numbers makes of each part."""
    return join(*map(function, split(tensor)))


def _conj_rule(gradient: Tensor, _result: Tensor, _x: Tensor) -> tuple[Tensor]:
    return (gradient.conj(),)


def _sign_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    # what of the gradient runs around 0
    across = gradient - result * (gradient * result.conj()).real
    return (x.eq(0).where(0, across / x.abs()),)


def _absolute_rule(gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (sign(x) * gradient,)
