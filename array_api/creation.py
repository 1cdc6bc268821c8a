"""Arrays from numbers, from other arrays and from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringup.array_api.arguments import Number, Real, placed
from ringup.array_api.types import DEFAULT_COMPLEX, DEFAULT_FLOAT
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import movement
from ringup.compiler.tensor.core import Core
from ringup.compiler.tensor.tensor import Tensor

Shape = int | tuple[int, ...]


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return an array of a number, nested lists, an array, or an object with DLPack or a buffer.

    An array is returned as it is where its type and device are those asked for, unless `copy`. Anything else has to be
    copied to the card, so `copy=False` is a ValueError. Numbers that do not fit the default type are int64 or float64.
    """
    if isinstance(obj, Tensor):
        made = placed(obj if dtype in (None, obj.dtype) else obj.cast(dtype), device)
        if made is not obj and copy is False:
            raise ValueError(f"asarray of {obj.dtype} with another type or device and copy=False: it has to be copied")
        return made.clone() if made is obj and copy else made
    if copy is False:
        raise ValueError(
            f"asarray of {type(obj).__name__} with copy=False: the bytes of the host are copied to the card"
        )
    if isinstance(obj, (list, tuple)):
        return placed(_of_lists(obj, dtype), device)
    if isinstance(obj, float) and not isinstance(obj, np.generic):
        if math.isnan(obj):
            # a constant keeps no sign of NaN
            obj = np.array(obj, np.float64 if dtype is dtypes.float64 else np.float32)
        elif dtype is None:
            dtype = _float_for(obj)
    if isinstance(obj, complex) and not isinstance(obj, np.generic) and dtype is None:
        dtype = dtypes.WITH_PARTS[_float_for(max(abs(obj.real), abs(obj.imag)))]
    if not isinstance(obj, (bool, int, float, complex, np.ndarray, np.generic)) and not hasattr(obj, "__dlpack__"):
        obj = np.asarray(obj)
    return placed(Tensor(obj, dtype), device)


def _of_lists(obj: Sequence[Any], dtype: DType | None) -> Tensor:
    """Return nested lists, in which arrays may stand too."""
    if any(isinstance(one, Core) for one in obj):
        parts = [one if isinstance(one, Core) else asarray(one) for one in obj]
        made: Tensor = movement.stack(*parts)  # type: ignore[arg-type]
        return made if dtype is None else made.cast(dtype)
    if any(isinstance(one, (list, tuple)) for one in obj) and _holds_arrays(obj):
        return _of_lists([_of_lists(one, None) for one in obj], dtype)
    if dtype is None and (array := np.asarray(obj)).dtype.kind in "fc":
        both = np.stack([array.real, array.imag])
        dtype = _float_for(float(np.abs(both, where=np.isfinite(both), out=np.zeros_like(both)).max(initial=0)))
        dtype = dtypes.WITH_PARTS[dtype] if array.dtype.kind == "c" else dtype
    return Tensor(obj, dtype)


def _float_for(number: float) -> DType:
    """Return the default type, or float64 for a number that does not fit it."""
    return DEFAULT_FLOAT if dtypes.fits(number, DEFAULT_FLOAT) else dtypes.float64


def _holds_arrays(obj: Any) -> bool:
    """Return whether arrays stand in nested lists."""
    return isinstance(obj, Core) or (isinstance(obj, (list, tuple)) and any(_holds_arrays(one) for one in obj))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return an array of the elements of a DLPack object; one of this namespace is not copied unless asked for."""
    if isinstance(x, Core):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise BufferError("from_dlpack with copy=False: the bytes of the host are copied to the card")
    return placed(Tensor.from_dlpack(x), device)


def arange(
    start: Real,
    /,
    stop: Real | None = None,
    step: Real = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """Return start, start + step, … before `stop`, from 0 where only one number is given."""
    return placed(Tensor.arange(start, stop, step, dtype), device)


def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` numbers evenly spread from `start` to `stop`, which is the last one with `endpoint`."""
    if isinstance(start, complex) or isinstance(stop, complex) or (dtype is not None and dtype.is_complex):
        return _complex_linspace(complex(start), complex(stop), num, dtype, device, endpoint=endpoint)
    kind = DEFAULT_FLOAT if dtype is None else dtype
    made = Tensor.linspace(start, stop, num if endpoint or not num else num + 1, kind)
    return placed(made if endpoint else made[:num], device)


def _complex_linspace(
    start: complex, stop: complex, num: int, dtype: DType | None, device: Any, *, endpoint: bool
) -> Tensor:
    """Return complex numbers evenly spread: both parts are."""
    kind = DEFAULT_COMPLEX if dtype is None else dtype
    if not kind.is_complex:
        raise TypeError(f"linspace of complex numbers as {kind}: a complex type")
    ends = ((start.real, stop.real), (start.imag, stop.imag))
    real, imag = (linspace(low, high, num, dtype=kind.part, endpoint=endpoint) for low, high in ends)
    return placed(real.complex(imag), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """Return a matrix of ones on a diagonal, `k` above the main one, and zeros elsewhere."""
    down = Tensor._counted(n_rows, dtypes.int64).unsqueeze(1)
    across = Tensor._counted(n_rows if n_cols is None else n_cols, dtypes.int64)
    return placed((across - down).eq(k).cast(DEFAULT_FLOAT if dtype is None else dtype), device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return memory that nothing has been written to."""
    return placed(Tensor.empty(shape, dtype=DEFAULT_FLOAT if dtype is None else dtype), device)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return zeros."""
    return full(shape, 0, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def ones(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return ones."""
    return full(shape, 1, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def full(shape: Shape, fill_value: Number, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return an array filled with one value, of the default type of that value unless one is given."""
    if dtype is None and isinstance(fill_value, complex):
        dtype = dtypes.WITH_PARTS[_float_for(max(abs(fill_value.real), abs(fill_value.imag)))]
    return placed(Tensor.full(shape, fill_value, dtype), device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return memory of this shape that nothing has been written to."""
    return empty(_sizes(x), dtype=x.dtype if dtype is None else dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return zeros of this shape."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return ones of this shape."""
    return full_like(x, 1, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Number, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return an array of this shape filled with one value."""
    return full(_sizes(x), fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


def _sizes(x: Tensor) -> tuple[int, ...]:
    return x.shape  # type: ignore[return-value]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid, one array for each axis: the first along columns for "xy", along rows for
    "ij".
    """
    return tuple(one.clone() for one in movement.meshgrid(*arrays, indexing=indexing)) if arrays else ()


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the last two axes with zeros above diagonal `k`."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the last two axes with zeros below diagonal `k`."""
    return x.triu(k)
