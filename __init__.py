"""ringup brings up a GPU from user space and gives programs access to its queues."""

from __future__ import annotations

__version__ = "0.1.0"

# not imported from `typing`, so that `import ringup` loads no other module
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringup import array_api as array_api
    from ringup import autograd as autograd
    from ringup import fft as fft
    from ringup import linalg as linalg
    from ringup import nn as nn
    from ringup import onnx as onnx
    from ringup import optim as optim
    from ringup import special as special
    from ringup.cards import Found as Found
    from ringup.cards import cards as cards
    from ringup.cards import connect as connect
    from ringup.cards import open as open
    from ringup.compiler.graph.dtypes import bfloat16 as bfloat16
    from ringup.compiler.graph.dtypes import bool_ as bool_
    from ringup.compiler.graph.dtypes import complex64 as complex64
    from ringup.compiler.graph.dtypes import complex128 as complex128
    from ringup.compiler.graph.dtypes import float8_e4m3 as float8_e4m3
    from ringup.compiler.graph.dtypes import float8_e5m2 as float8_e5m2
    from ringup.compiler.graph.dtypes import float16 as float16
    from ringup.compiler.graph.dtypes import float32 as float32
    from ringup.compiler.graph.dtypes import float64 as float64
    from ringup.compiler.graph.dtypes import int8 as int8
    from ringup.compiler.graph.dtypes import int16 as int16
    from ringup.compiler.graph.dtypes import int32 as int32
    from ringup.compiler.graph.dtypes import int64 as int64
    from ringup.compiler.graph.dtypes import uint8 as uint8
    from ringup.compiler.graph.dtypes import uint16 as uint16
    from ringup.compiler.graph.dtypes import uint32 as uint32
    from ringup.compiler.graph.dtypes import uint64 as uint64
    from ringup.compiler.runtime.front import device as device
    from ringup.compiler.runtime.front import use as use
    from ringup.compiler.tensor import Size as Size
    from ringup.compiler.tensor import Tensor as Tensor
    from ringup.compiler.tensor import checked as checked
    from ringup.compiler.tensor import custom_gradient as custom_gradient
    from ringup.compiler.tensor import enable_grad as enable_grad
    from ringup.compiler.tensor import finfo as finfo
    from ringup.compiler.tensor import gradient as gradient
    from ringup.compiler.tensor import iinfo as iinfo
    from ringup.compiler.tensor import inference_mode as inference_mode
    from ringup.compiler.tensor import is_grad_enabled as is_grad_enabled
    from ringup.compiler.tensor import load as load
    from ringup.compiler.tensor import load_gguf as load_gguf
    from ringup.compiler.tensor import load_npy as load_npy
    from ringup.compiler.tensor import load_npz as load_npz
    from ringup.compiler.tensor import load_safetensors as load_safetensors
    from ringup.compiler.tensor import load_torch as load_torch
    from ringup.compiler.tensor import manual_seed as manual_seed
    from ringup.compiler.tensor import no_grad as no_grad
    from ringup.compiler.tensor import save as save
    from ringup.compiler.tensor import save_safetensors as save_safetensors
    from ringup.compiler.tensor import set_grad_enabled as set_grad_enabled

    # some three hundred names; `_FUNCTIONS` has them
    from ringup.compiler.tensor.composed.functions import *  # noqa: F403
    from ringup.drivers.amd.card import Radeon as Radeon
    from ringup.drivers.card import Card as Card
    from ringup.errors import RingupError as RingupError
    from ringup.fft.short_time import istft as istft
    from ringup.fft.short_time import stft as stft
    from ringup.fft.windows import bartlett_window as bartlett_window
    from ringup.fft.windows import blackman_window as blackman_window
    from ringup.fft.windows import hamming_window as hamming_window
    from ringup.fft.windows import hann_window as hann_window
    from ringup.fft.windows import kaiser_window as kaiser_window
    from ringup.optim import SGD as SGD
    from ringup.optim import Adam as Adam
    from ringup.optim import AdamW as AdamW

_TENSORS = "ringup.compiler.tensor"
# functions of tensors, types by PyTorch's names, constants
_FUNCTIONS = """
    BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
    ShortTensor abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin
    aminmax angle any append arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
    argwhere around array array_equal array_split as_strided as_tensor asarray asin asinh atan atan2 atanh
    atleast_1d atleast_2d atleast_3d average baddbmm bartlett bernoulli bincount bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman block_diag bmm bool broadcast_arrays
    broadcast_shapes broadcast_tensors broadcast_to bucketize cartesian_prod cat cbrt cdist cdouble ceil celu cfloat
    chunk clamp clamp_max clamp_min clip clone column_stack combinations complex compress concat concatenate conj
    conj_physical conjugate conv1d conv2d conv3d convolve copy copysign corrcoef correlate cos cosh
    cosine_similarity count_nonzero cov cross cummax cummin cumprod cumsum cumulative_trapezoid deg2rad degrees
    delete det detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma digitize dist div divide
    divmod dot double dropout dsplit dstack e einsum empty empty_like eq equal erf erfc erfinv exp exp2 expand
    expand_dims expm1 eye fix flatnonzero flatten flip fliplr flipud float float_power floor floor_divide fmax fmin
    fmod frac frexp from_dlpack from_numpy frombuffer fromfunction full full_like gather gcd ge geomspace ger
    get_default_dtype greater greater_equal gt half hamming hanning heaviside histc histogram hsplit hstack hypot i0
    identity imag index_add index_copy index_fill index_put index_reduce index_select indices inf inner insert int
    interp intersect1d inverse invert is_complex is_floating_point is_nonzero is_tensor isclose isfinite isin isinf
    isnan isneginf isposinf isreal isscalar ix_ kron kthvalue lcm ldexp le left_shift lerp less less_equal lgamma
    linspace log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
    logical_or logical_xor logit logspace logsumexp long lt masked_fill masked_scatter masked_select matmul
    matrix_exp matrix_power matrix_transpose max maximum mean median meshgrid min minimum mm mode modf moveaxis
    movedim msort mul multinomial multiply mv mvlgamma nan nan_to_num nanargmax nanargmin nancumprod nancumsum
    nanmax nanmean nanmedian nanmin nanprod nanquantile nanstd nansum nanvar narrow ndim ne neg negative newaxis
    nextafter nonzero nonzero_static norm normal not_equal numel one_hot ones ones_like outer pad percentile permute
    permute_dims pi pinverse polar polyval positive pow power prelu prod promote_types ptp put quantile rad2deg
    radians rand rand_like randint randint_like randn randn_like randperm ravel ravel_multi_index real reciprocal
    relu remainder renorm repeat repeat_interleave reshape resize result_type right_shift rint roll rollaxis rot90
    round row_stack rsqrt rsub scatter scatter_add scatter_reduce searchsorted select select_scatter selu setdiff1d
    setxor1d sgn shape short sigmoid sign signbit sin sinc sinh slice_scatter slogdet softmax sort split
    split_with_sizes sqrt square squeeze stack std std_mean sub subtract sum swapaxes swapdims t take
    take_along_axis take_along_dim tan tanh tensor tensor_split tensordot threshold tile topk trace transpose
    trapezoid trapz tri tril tril_indices trim_zeros triu triu_indices true_divide trunc unbind unflatten union1d
    unique unique_consecutive unravel_index unsqueeze unstack vander var var_mean vdot vecdot view_as_complex
    view_as_real vsplit vstack where xlogy zeros zeros_like
"""
# public name: its module, which is imported when the name is first used
_HOME = {
    "open": "ringup.cards",
    "cards": "ringup.cards",
    "connect": "ringup.cards",
    "Found": "ringup.cards",
    "Card": "ringup.drivers.card",
    "Radeon": "ringup.drivers.amd.card",
    "RingupError": "ringup.errors",
    "device": "ringup.compiler.runtime.front",
    "use": "ringup.compiler.runtime.front",
    "Tensor": _TENSORS,
    "Size": _TENSORS,
    "gradient": _TENSORS,
    "custom_gradient": _TENSORS,
    "manual_seed": _TENSORS,
    **dict.fromkeys(("no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled", "inference_mode"), _TENSORS),
    "checked": _TENSORS,
    "SGD": "ringup.optim",
    "Adam": "ringup.optim",
    "AdamW": "ringup.optim",
    "load": _TENSORS,
    "load_gguf": _TENSORS,
    "load_npy": _TENSORS,
    "load_npz": _TENSORS,
    "load_torch": _TENSORS,
    "load_safetensors": _TENSORS,
    "save": _TENSORS,
    "save_safetensors": _TENSORS,
    **dict.fromkeys(("stft", "istft"), "ringup.fft.short_time"),
    **dict.fromkeys(
        ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"), "ringup.fft.windows"
    ),
    "finfo": _TENSORS,
    "iinfo": _TENSORS,
    **dict.fromkeys(_FUNCTIONS.split(), "ringup.compiler.tensor.composed.functions"),
    **dict.fromkeys(
        ("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3", "float8_e5m2",
         "float16", "bfloat16", "float32", "float64", "complex64", "complex128"), "ringup.compiler.graph.dtypes"
    ),
}  # fmt: skip
# packages that are imported when their name is first used
_PACKAGES = ("array_api", "autograd", "fft", "linalg", "nn", "onnx", "optim", "special")
__all__ = sorted((*_HOME, *_PACKAGES))


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    try:
        if name in _PACKAGES:
            return import_module(f"ringup.{name}")
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        from ringup.errors import missing_package

        if reason := missing_package(error, f"ringup.{name}", "tensor"):
            raise reason from error
        raise


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
