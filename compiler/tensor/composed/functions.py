"""Methods of `Tensor` that are called as functions too, with the words of PyTorch and NumPy: `cat([a, b], dim=1)`,
`zeros(2, 3)`, `exp(x)`. The root package gives them all, when they are first used.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.complex_numbers.parts import imag as imag
from ringup.compiler.tensor.complex_numbers.parts import real as real
from ringup.compiler.tensor.composed.numpy_numbers import average as average
from ringup.compiler.tensor.composed.numpy_numbers import bartlett as bartlett
from ringup.compiler.tensor.composed.numpy_numbers import blackman as blackman
from ringup.compiler.tensor.composed.numpy_numbers import compress as compress
from ringup.compiler.tensor.composed.numpy_numbers import convolve as convolve
from ringup.compiler.tensor.composed.numpy_numbers import correlate as correlate
from ringup.compiler.tensor.composed.numpy_numbers import digitize as digitize
from ringup.compiler.tensor.composed.numpy_numbers import divmod as divmod
from ringup.compiler.tensor.composed.numpy_numbers import geomspace as geomspace
from ringup.compiler.tensor.composed.numpy_numbers import hamming as hamming
from ringup.compiler.tensor.composed.numpy_numbers import hanning as hanning
from ringup.compiler.tensor.composed.numpy_numbers import interp as interp
from ringup.compiler.tensor.composed.numpy_numbers import intersect1d as intersect1d
from ringup.compiler.tensor.composed.numpy_numbers import modf as modf
from ringup.compiler.tensor.composed.numpy_numbers import nanargmax as nanargmax
from ringup.compiler.tensor.composed.numpy_numbers import nanargmin as nanargmin
from ringup.compiler.tensor.composed.numpy_numbers import nancumprod as nancumprod
from ringup.compiler.tensor.composed.numpy_numbers import nancumsum as nancumsum
from ringup.compiler.tensor.composed.numpy_numbers import nanprod as nanprod
from ringup.compiler.tensor.composed.numpy_numbers import nanstd as nanstd
from ringup.compiler.tensor.composed.numpy_numbers import nanvar as nanvar
from ringup.compiler.tensor.composed.numpy_numbers import polyval as polyval
from ringup.compiler.tensor.composed.numpy_numbers import setdiff1d as setdiff1d
from ringup.compiler.tensor.composed.numpy_numbers import setxor1d as setxor1d
from ringup.compiler.tensor.composed.numpy_numbers import union1d as union1d
from ringup.compiler.tensor.composed.numpy_numbers import vander as vander
from ringup.compiler.tensor.composed.numpy_shapes import append as append
from ringup.compiler.tensor.composed.numpy_shapes import broadcast_arrays as broadcast_arrays
from ringup.compiler.tensor.composed.numpy_shapes import broadcast_shapes as broadcast_shapes
from ringup.compiler.tensor.composed.numpy_shapes import delete as delete
from ringup.compiler.tensor.composed.numpy_shapes import flatnonzero as flatnonzero
from ringup.compiler.tensor.composed.numpy_shapes import fromfunction as fromfunction
from ringup.compiler.tensor.composed.numpy_shapes import identity as identity
from ringup.compiler.tensor.composed.numpy_shapes import indices as indices
from ringup.compiler.tensor.composed.numpy_shapes import insert as insert
from ringup.compiler.tensor.composed.numpy_shapes import isscalar as isscalar
from ringup.compiler.tensor.composed.numpy_shapes import ix_ as ix_
from ringup.compiler.tensor.composed.numpy_shapes import matrix_transpose as matrix_transpose
from ringup.compiler.tensor.composed.numpy_shapes import ndim as ndim
from ringup.compiler.tensor.composed.numpy_shapes import permute_dims as permute_dims
from ringup.compiler.tensor.composed.numpy_shapes import promote_types as promote_types
from ringup.compiler.tensor.composed.numpy_shapes import ravel_multi_index as ravel_multi_index
from ringup.compiler.tensor.composed.numpy_shapes import resize as resize
from ringup.compiler.tensor.composed.numpy_shapes import result_type as result_type
from ringup.compiler.tensor.composed.numpy_shapes import rollaxis as rollaxis
from ringup.compiler.tensor.composed.numpy_shapes import shape as shape
from ringup.compiler.tensor.composed.numpy_shapes import tri as tri
from ringup.compiler.tensor.composed.numpy_shapes import trim_zeros as trim_zeros
from ringup.compiler.tensor.composed.numpy_shapes import unravel_index as unravel_index
from ringup.compiler.tensor.composed.numpy_shapes import unstack as unstack
from ringup.compiler.tensor.core import DTypeLike, as_dtype
from ringup.compiler.tensor.movement import meshgrid as meshgrid
from ringup.compiler.tensor.tensor import Tensor


def is_tensor(obj: object) -> builtins.bool:
    """Return whether something is a tensor."""
    return isinstance(obj, Tensor)


around, broadcast_tensors = Tensor.round, broadcast_arrays


def is_nonzero(input: Tensor) -> builtins.bool:
    """Return whether a tensor of one element is not 0; it is computed."""
    return builtins.bool(input)


def nonzero_static(input: Tensor, *, size: builtins.int, fill_value: builtins.int = -1) -> Tensor:
    """Return the places of the first `size` elements that are not 0, filled up with places of `fill_value`."""
    made: Tensor = input.nonzero(size=size, fill_value=fill_value)
    return made


def frombuffer(buffer: Any, dtype: DTypeLike = "float32", count: builtins.int = -1, offset: builtins.int = 0) -> Tensor:
    """Return a copy of the elements of bytes from one on, all for a count of -1."""
    kind = as_dtype(dtype)
    data = memoryview(buffer).cast("B")[offset:]
    wanted = len(data) // kind.size_bytes if count < 0 else count
    if wanted * kind.size_bytes > len(data) or (count < 0 and len(data) % kind.size_bytes):
        raise ValueError(f"{len(data)} bytes from byte {offset} on are not {wanted} elements of {kind}")
    return Tensor._of(nodes.buffer(kind, (wanted,), "", bytes(data[: wanted * kind.size_bytes])))


def _typed(kind: DType) -> Callable[..., Tensor]:
    """Return PyTorch's older constructor of a type: of numbers, or of sizes, whose elements are 0 here."""

    def made(*data: Any) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], builtins.int):
            return Tensor(data[0], kind)
        return Tensor.zeros(*data, dtype=kind) if data else Tensor.zeros(0, dtype=kind)

    return made


FloatTensor, DoubleTensor, HalfTensor = _typed(dtypes.float32), _typed(dtypes.float64), _typed(dtypes.float16)
BFloat16Tensor, BoolTensor, ByteTensor = _typed(dtypes.bfloat16), _typed(dtypes.bool_), _typed(dtypes.uint8)
CharTensor, ShortTensor = _typed(dtypes.int8), _typed(dtypes.int16)
IntTensor, LongTensor = _typed(dtypes.int32), _typed(dtypes.int64)


def get_default_dtype() -> DType:
    """Return the type of numbers with a point: float32."""
    return dtypes.float32


def asarray(a: Any, dtype: DTypeLike | None = None, *, copy: builtins.bool | None = None, device: Any = None) -> Tensor:
    """Return numbers as a tensor: itself for a tensor of that type, unless a copy is asked for."""
    if isinstance(a, Tensor) and device is None and (dtype is None or a.dtype is as_dtype(dtype)):
        return a.clone() if copy else a
    if copy is False:
        raise ValueError(f"asarray of {type(a).__name__} without a copy: a tensor's memory is its own")
    return Tensor(a, dtype, device=device)


# PyTorch's names of types
half, double, short, long = dtypes.float16, dtypes.float64, dtypes.int16, dtypes.int64
bool, int, float = dtypes.bool_, dtypes.int32, dtypes.float32
cfloat, cdouble = dtypes.complex64, dtypes.complex128
pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
tensor = array = from_numpy = Tensor
as_tensor = asarray
abs, absolute, acos, acosh, add = Tensor.abs, Tensor.absolute, Tensor.acos, Tensor.acosh, Tensor.add
addcdiv, addcmul, addmm, addmv, all = Tensor.addcdiv, Tensor.addcmul, Tensor.addmm, Tensor.addmv, Tensor.all
allclose, amax, amin, aminmax, any = Tensor.allclose, Tensor.amax, Tensor.amin, Tensor.aminmax, Tensor.any
arange, arccos, arccosh, arcsin, arcsinh = Tensor.arange, Tensor.arccos, Tensor.arccosh, Tensor.arcsin, Tensor.arcsinh
arctan, arctan2, arctanh, argmax, argmin = Tensor.arctan, Tensor.arctan2, Tensor.arctanh, Tensor.argmax, Tensor.argmin
argsort, argwhere, array_equal, array_split = Tensor.argsort, Tensor.argwhere, Tensor.array_equal, Tensor.array_split
asin, asinh, atan, atan2, atanh = Tensor.asin, Tensor.asinh, Tensor.atan, Tensor.atan2, Tensor.atanh
atleast_1d, atleast_2d, atleast_3d, baddbmm = Tensor.atleast_1d, Tensor.atleast_2d, Tensor.atleast_3d, Tensor.baddbmm
bernoulli, bincount, bitwise_and = Tensor.bernoulli, Tensor.bincount, Tensor.bitwise_and
bitwise_left_shift, bitwise_not, bitwise_or = Tensor.bitwise_left_shift, Tensor.bitwise_not, Tensor.bitwise_or
bitwise_right_shift, bitwise_xor, block_diag = Tensor.bitwise_right_shift, Tensor.bitwise_xor, Tensor.block_diag
bmm, broadcast_to, bucketize = Tensor.bmm, Tensor.broadcast_to, Tensor.bucketize
cartesian_prod, cat, cbrt, cdist, ceil = Tensor.cartesian_prod, Tensor.cat, Tensor.cbrt, Tensor.cdist, Tensor.ceil
celu, chunk, clamp, clamp_max, clamp_min = Tensor.celu, Tensor.chunk, Tensor.clamp, Tensor.clamp_max, Tensor.clamp_min
clip, clone, column_stack, concat = Tensor.clip, Tensor.clone, Tensor.column_stack, Tensor.concat
concatenate, conv1d, conv2d, conv3d = Tensor.concatenate, Tensor.conv1d, Tensor.conv2d, Tensor.conv3d
copy, copysign, corrcoef, cos, cosh = Tensor.copy, Tensor.copysign, Tensor.corrcoef, Tensor.cos, Tensor.cosh
cosine_similarity, count_nonzero, cov = Tensor.cosine_similarity, Tensor.count_nonzero, Tensor.cov
cross, cummax, cummin, cumprod, cumsum = Tensor.cross, Tensor.cummax, Tensor.cummin, Tensor.cumprod, Tensor.cumsum
deg2rad, degrees, detach, diag = Tensor.deg2rad, Tensor.degrees, Tensor.detach, Tensor.diag
diag_embed, diagflat, diagonal, diff = Tensor.diag_embed, Tensor.diagflat, Tensor.diagonal, Tensor.diff
digamma, dist, div, divide, dot = Tensor.digamma, Tensor.dist, Tensor.div, Tensor.divide, Tensor.dot
dropout, dstack, einsum, empty = Tensor.dropout, Tensor.dstack, Tensor.einsum, Tensor.empty
empty_like, eq, equal, erf, erfc = Tensor.empty_like, Tensor.eq, Tensor.equal, Tensor.erf, Tensor.erfc
erfinv, exp, exp2, expand, expand_dims = Tensor.erfinv, Tensor.exp, Tensor.exp2, Tensor.expand, Tensor.expand_dims
expm1, eye, fix, flatten, flip = Tensor.expm1, Tensor.eye, Tensor.fix, Tensor.flatten, Tensor.flip
fliplr, flipud, float_power, floor = Tensor.fliplr, Tensor.flipud, Tensor.float_power, Tensor.floor
floor_divide, fmax, fmin, fmod, frac = Tensor.floor_divide, Tensor.fmax, Tensor.fmin, Tensor.fmod, Tensor.frac
from_dlpack, full, full_like, gather = Tensor.from_dlpack, Tensor.full, Tensor.full_like, Tensor.gather
gcd, ge, ger, greater, greater_equal = Tensor.gcd, Tensor.ge, Tensor.ger, Tensor.greater, Tensor.greater_equal
gt, heaviside, histc, histogram, hstack = Tensor.gt, Tensor.heaviside, Tensor.histc, Tensor.histogram, Tensor.hstack
hypot, i0, index_add, index_copy = Tensor.hypot, Tensor.i0, Tensor.index_add, Tensor.index_copy
index_fill, index_put, index_select, inner = Tensor.index_fill, Tensor.index_put, Tensor.index_select, Tensor.inner
invert, is_floating_point, isclose = Tensor.invert, Tensor.is_floating_point, Tensor.isclose
isfinite, isin, isinf, isnan, isneginf = Tensor.isfinite, Tensor.isin, Tensor.isinf, Tensor.isnan, Tensor.isneginf
isposinf, kron, kthvalue, lcm, le = Tensor.isposinf, Tensor.kron, Tensor.kthvalue, Tensor.lcm, Tensor.le
left_shift, lerp, less, less_equal = Tensor.left_shift, Tensor.lerp, Tensor.less, Tensor.less_equal
lgamma, linspace, log, log10, log1p = Tensor.lgamma, Tensor.linspace, Tensor.log, Tensor.log10, Tensor.log1p
log2, log_softmax, logaddexp, logaddexp2 = Tensor.log2, Tensor.log_softmax, Tensor.logaddexp, Tensor.logaddexp2
logcumsumexp, logical_and, logical_not = Tensor.logcumsumexp, Tensor.logical_and, Tensor.logical_not
logical_or, logical_xor, logit, logspace = Tensor.logical_or, Tensor.logical_xor, Tensor.logit, Tensor.logspace
logsumexp, lt, masked_fill, masked_scatter = Tensor.logsumexp, Tensor.lt, Tensor.masked_fill, Tensor.masked_scatter
masked_select, matmul, max, maximum = Tensor.masked_select, Tensor.matmul, Tensor.max, Tensor.maximum
mean, median, min, minimum, mm, mode = Tensor.mean, Tensor.median, Tensor.min, Tensor.minimum, Tensor.mm, Tensor.mode
moveaxis, movedim, mul, multinomial = Tensor.moveaxis, Tensor.movedim, Tensor.mul, Tensor.multinomial
multiply, mv, nan_to_num, nanmax = Tensor.multiply, Tensor.mv, Tensor.nan_to_num, Tensor.nanmax
nanmean, nanmedian, nanmin, nanquantile = Tensor.nanmean, Tensor.nanmedian, Tensor.nanmin, Tensor.nanquantile
nansum, narrow, ne, neg, negative = Tensor.nansum, Tensor.narrow, Tensor.ne, Tensor.neg, Tensor.negative
nonzero, norm, normal, not_equal, numel = Tensor.nonzero, Tensor.norm, Tensor.normal, Tensor.not_equal, Tensor.numel
one_hot, ones, ones_like, outer, pad = Tensor.one_hot, Tensor.ones, Tensor.ones_like, Tensor.outer, Tensor.pad
percentile, permute, positive, pow = Tensor.percentile, Tensor.permute, Tensor.positive, Tensor.pow
power, prelu, prod, ptp, quantile = Tensor.power, Tensor.prelu, Tensor.prod, Tensor.ptp, Tensor.quantile
rad2deg, radians, rand, rand_like = Tensor.rad2deg, Tensor.radians, Tensor.rand, Tensor.rand_like
randint, randint_like, randn, randn_like = Tensor.randint, Tensor.randint_like, Tensor.randn, Tensor.randn_like
randperm, ravel, reciprocal, relu = Tensor.randperm, Tensor.ravel, Tensor.reciprocal, Tensor.relu
remainder, repeat, repeat_interleave = Tensor.remainder, Tensor.repeat, Tensor.repeat_interleave
reshape, right_shift, rint, roll, rot90 = Tensor.reshape, Tensor.right_shift, Tensor.rint, Tensor.roll, Tensor.rot90
round, row_stack, rsqrt, scatter = Tensor.round, Tensor.row_stack, Tensor.rsqrt, Tensor.scatter
scatter_add, scatter_reduce, searchsorted = Tensor.scatter_add, Tensor.scatter_reduce, Tensor.searchsorted
select, selu, sgn, sigmoid, sign = Tensor.select, Tensor.selu, Tensor.sgn, Tensor.sigmoid, Tensor.sign
signbit, sin, sinc, sinh, softmax = Tensor.signbit, Tensor.sin, Tensor.sinc, Tensor.sinh, Tensor.softmax
sort, split, sqrt, square, squeeze = Tensor.sort, Tensor.split, Tensor.sqrt, Tensor.square, Tensor.squeeze
stack, std, std_mean, sub, subtract = Tensor.stack, Tensor.std, Tensor.std_mean, Tensor.sub, Tensor.subtract
sum, swapaxes, swapdims, t, take = Tensor.sum, Tensor.swapaxes, Tensor.swapdims, Tensor.t, Tensor.take
take_along_axis, take_along_dim, tan, tanh = Tensor.take_along_axis, Tensor.take_along_dim, Tensor.tan, Tensor.tanh
tensor_split, tensordot, threshold, tile = Tensor.tensor_split, Tensor.tensordot, Tensor.threshold, Tensor.tile
topk, trace, transpose, trapezoid, trapz = Tensor.topk, Tensor.trace, Tensor.transpose, Tensor.trapezoid, Tensor.trapz
tril, tril_indices, triu, triu_indices = Tensor.tril, Tensor.tril_indices, Tensor.triu, Tensor.triu_indices
true_divide, trunc, unbind, unflatten = Tensor.true_divide, Tensor.trunc, Tensor.unbind, Tensor.unflatten
unique, unsqueeze, var, var_mean, vdot = Tensor.unique, Tensor.unsqueeze, Tensor.var, Tensor.var_mean, Tensor.vdot
vstack, where, xlogy, zeros, zeros_like = Tensor.vstack, Tensor.where, Tensor.xlogy, Tensor.zeros, Tensor.zeros_like
angle, complex, conj, conjugate, polar = Tensor.angle, Tensor.complex, Tensor.conj, Tensor.conjugate, Tensor.polar
is_complex, isreal, vecdot = Tensor.is_complex, Tensor.isreal, Tensor.vecdot
view_as_complex, view_as_real = Tensor.view_as_complex, Tensor.view_as_real
hsplit, vsplit, dsplit, split_with_sizes = Tensor.hsplit, Tensor.vsplit, Tensor.dsplit, Tensor.split_with_sizes
as_strided, combinations, index_reduce = (
    Tensor.as_strided,
    Tensor.combinations,
    Tensor.index_reduce,
)
put, select_scatter, slice_scatter, diagonal_scatter = (
    Tensor.put,
    Tensor.select_scatter,
    Tensor.slice_scatter,
    Tensor.diagonal_scatter,
)
unique_consecutive, rsub, ldexp, frexp = Tensor.unique_consecutive, Tensor.rsub, Tensor.ldexp, Tensor.frexp
nextafter, addr, addbmm, det = Tensor.nextafter, Tensor.addr, Tensor.addbmm, Tensor.det
logdet, slogdet, inverse, pinverse = Tensor.logdet, Tensor.slogdet, Tensor.inverse, Tensor.pinverse
matrix_power, matrix_exp, mvlgamma, cumulative_trapezoid = (
    Tensor.matrix_power,
    Tensor.matrix_exp,
    Tensor.mvlgamma,
    Tensor.cumulative_trapezoid,
)
renorm, msort = Tensor.renorm, Tensor.msort
adjoint, conj_physical = Tensor.adjoint, Tensor.conj_physical
