"""The Python array API standard, version 2025.12: `import ringup.array_api as xp`.

Its arrays are `ringup.Tensor`.
"""

import math

from ringup.array_api import fft as fft
from ringup.array_api import linalg as linalg
from ringup.array_api.creation import arange as arange
from ringup.array_api.creation import asarray as asarray
from ringup.array_api.creation import empty as empty
from ringup.array_api.creation import empty_like as empty_like
from ringup.array_api.creation import eye as eye
from ringup.array_api.creation import from_dlpack as from_dlpack
from ringup.array_api.creation import full as full
from ringup.array_api.creation import full_like as full_like
from ringup.array_api.creation import linspace as linspace
from ringup.array_api.creation import meshgrid as meshgrid
from ringup.array_api.creation import ones as ones
from ringup.array_api.creation import ones_like as ones_like
from ringup.array_api.creation import tril as tril
from ringup.array_api.creation import triu as triu
from ringup.array_api.creation import zeros as zeros
from ringup.array_api.creation import zeros_like as zeros_like
from ringup.array_api.elementwise import abs as abs
from ringup.array_api.elementwise import acos as acos
from ringup.array_api.elementwise import acosh as acosh
from ringup.array_api.elementwise import add as add
from ringup.array_api.elementwise import asin as asin
from ringup.array_api.elementwise import asinh as asinh
from ringup.array_api.elementwise import atan as atan
from ringup.array_api.elementwise import atan2 as atan2
from ringup.array_api.elementwise import atanh as atanh
from ringup.array_api.elementwise import bitwise_and as bitwise_and
from ringup.array_api.elementwise import bitwise_invert as bitwise_invert
from ringup.array_api.elementwise import bitwise_left_shift as bitwise_left_shift
from ringup.array_api.elementwise import bitwise_or as bitwise_or
from ringup.array_api.elementwise import bitwise_right_shift as bitwise_right_shift
from ringup.array_api.elementwise import bitwise_xor as bitwise_xor
from ringup.array_api.elementwise import ceil as ceil
from ringup.array_api.elementwise import clip as clip
from ringup.array_api.elementwise import conj as conj
from ringup.array_api.elementwise import copysign as copysign
from ringup.array_api.elementwise import cos as cos
from ringup.array_api.elementwise import cosh as cosh
from ringup.array_api.elementwise import divide as divide
from ringup.array_api.elementwise import equal as equal
from ringup.array_api.elementwise import exp as exp
from ringup.array_api.elementwise import expm1 as expm1
from ringup.array_api.elementwise import floor as floor
from ringup.array_api.elementwise import floor_divide as floor_divide
from ringup.array_api.elementwise import greater as greater
from ringup.array_api.elementwise import greater_equal as greater_equal
from ringup.array_api.elementwise import hypot as hypot
from ringup.array_api.elementwise import imag as imag
from ringup.array_api.elementwise import isfinite as isfinite
from ringup.array_api.elementwise import isinf as isinf
from ringup.array_api.elementwise import isnan as isnan
from ringup.array_api.elementwise import less as less
from ringup.array_api.elementwise import less_equal as less_equal
from ringup.array_api.elementwise import log as log
from ringup.array_api.elementwise import log1p as log1p
from ringup.array_api.elementwise import log2 as log2
from ringup.array_api.elementwise import log10 as log10
from ringup.array_api.elementwise import logaddexp as logaddexp
from ringup.array_api.elementwise import logical_and as logical_and
from ringup.array_api.elementwise import logical_not as logical_not
from ringup.array_api.elementwise import logical_or as logical_or
from ringup.array_api.elementwise import logical_xor as logical_xor
from ringup.array_api.elementwise import maximum as maximum
from ringup.array_api.elementwise import minimum as minimum
from ringup.array_api.elementwise import multiply as multiply
from ringup.array_api.elementwise import negative as negative
from ringup.array_api.elementwise import nextafter as nextafter
from ringup.array_api.elementwise import not_equal as not_equal
from ringup.array_api.elementwise import positive as positive
from ringup.array_api.elementwise import pow as pow
from ringup.array_api.elementwise import real as real
from ringup.array_api.elementwise import reciprocal as reciprocal
from ringup.array_api.elementwise import remainder as remainder
from ringup.array_api.elementwise import round as round
from ringup.array_api.elementwise import sign as sign
from ringup.array_api.elementwise import signbit as signbit
from ringup.array_api.elementwise import sin as sin
from ringup.array_api.elementwise import sinh as sinh
from ringup.array_api.elementwise import sqrt as sqrt
from ringup.array_api.elementwise import square as square
from ringup.array_api.elementwise import subtract as subtract
from ringup.array_api.elementwise import tan as tan
from ringup.array_api.elementwise import tanh as tanh
from ringup.array_api.elementwise import trunc as trunc
from ringup.array_api.info import Info as Info
from ringup.array_api.linear import matmul as matmul
from ringup.array_api.linear import matrix_transpose as matrix_transpose
from ringup.array_api.linear import tensordot as tensordot
from ringup.array_api.linear import vecdot as vecdot
from ringup.array_api.manipulation import broadcast_arrays as broadcast_arrays
from ringup.array_api.manipulation import broadcast_shapes as broadcast_shapes
from ringup.array_api.manipulation import broadcast_to as broadcast_to
from ringup.array_api.manipulation import concat as concat
from ringup.array_api.manipulation import expand_dims as expand_dims
from ringup.array_api.manipulation import flip as flip
from ringup.array_api.manipulation import moveaxis as moveaxis
from ringup.array_api.manipulation import permute_dims as permute_dims
from ringup.array_api.manipulation import repeat as repeat
from ringup.array_api.manipulation import reshape as reshape
from ringup.array_api.manipulation import roll as roll
from ringup.array_api.manipulation import squeeze as squeeze
from ringup.array_api.manipulation import stack as stack
from ringup.array_api.manipulation import take as take
from ringup.array_api.manipulation import take_along_axis as take_along_axis
from ringup.array_api.manipulation import tile as tile
from ringup.array_api.manipulation import unstack as unstack
from ringup.array_api.searching import argmax as argmax
from ringup.array_api.searching import argmin as argmin
from ringup.array_api.searching import argsort as argsort
from ringup.array_api.searching import count_nonzero as count_nonzero
from ringup.array_api.searching import isin as isin
from ringup.array_api.searching import nonzero as nonzero
from ringup.array_api.searching import searchsorted as searchsorted
from ringup.array_api.searching import sort as sort
from ringup.array_api.searching import unique_all as unique_all
from ringup.array_api.searching import unique_counts as unique_counts
from ringup.array_api.searching import unique_inverse as unique_inverse
from ringup.array_api.searching import unique_values as unique_values
from ringup.array_api.searching import where as where
from ringup.array_api.statistical import all as all
from ringup.array_api.statistical import any as any
from ringup.array_api.statistical import cumulative_prod as cumulative_prod
from ringup.array_api.statistical import cumulative_sum as cumulative_sum
from ringup.array_api.statistical import diff as diff
from ringup.array_api.statistical import max as max
from ringup.array_api.statistical import mean as mean
from ringup.array_api.statistical import min as min
from ringup.array_api.statistical import prod as prod
from ringup.array_api.statistical import std as std
from ringup.array_api.statistical import sum as sum
from ringup.array_api.statistical import var as var
from ringup.array_api.types import astype as astype
from ringup.array_api.types import can_cast as can_cast
from ringup.array_api.types import finfo as finfo
from ringup.array_api.types import iinfo as iinfo
from ringup.array_api.types import isdtype as isdtype
from ringup.array_api.types import result_type as result_type
from ringup.compiler.graph import dtypes as _dtypes
from ringup.compiler.graph.dtypes import bfloat16 as bfloat16
from ringup.compiler.graph.dtypes import complex64 as complex64
from ringup.compiler.graph.dtypes import complex128 as complex128
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

__array_api_version__ = "2025.12"
__array_namespace_info__ = Info

bool = _dtypes.bool_

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
