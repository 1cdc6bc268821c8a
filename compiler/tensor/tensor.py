"""`Tensor`: a lazy array of numbers with NumPy's manners. Everything is a graph until `realize`, `numpy`, `item` or
`tolist` asks for bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import order, realize
from ringup.compiler.tensor.core import Core, DTypeLike, as_dtype
from ringup.compiler.tensor.creation import Creation
from ringup.compiler.tensor.gradients import backward
from ringup.errors import CompileError

Array = np.ndarray[Any, Any]
BY_NUMPY = {one.numpy: one for one in dtypes.ALL}
PLAIN = tuple(
    one for one in dtypes.ALL if one not in (dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2)
)  # types that NumPy itself has


class Tensor(Creation):
    """A lazy tensor from numbers, nested lists, NumPy arrays (whose bytes are copied) or DLPack objects.

    Python integers make int32 (int64 where they need it), floats f32, arrays keep their type; `dtype` converts.
    `requires_grad` counts it among those that `backward` gives a `grad`.
    """

    __slots__ = ()

    def __init__(
        self, data: object, dtype: DTypeLike | None = None, *, requires_grad: bool = False, name: str = ""
    ) -> None:
        kind = None if dtype is None else as_dtype(dtype)
        if isinstance(data, Core):
            self._setup(nodes.cast(data.node, kind or data.dtype))
        elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
            self._setup(nodes.const(data, kind or dtypes.of_scalar(data)))
        else:
            array = _array(data, kind)
            self._setup(_leaf(array, name), owns=True)
            if kind is not None and kind is not self.dtype:
                self._node, self._owns = nodes.cast(self._node, kind), False
        if requires_grad:
            self.requires_grad_()

    def __repr__(self) -> str:
        state = "computed" if realize.is_data(self._node) else self._node.op.value
        return f"<Tensor {list(self.shape)} {self.dtype}, {state}>"

    @classmethod
    def _from_array(cls, array: object, name: str = "") -> Self:
        made = cls._of(_leaf(_array(array, None), name))
        made._owns = True
        return made

    def _from_list(self, values: Sequence[float], dtype: DType) -> Self:
        return self._from_array(np.array(values, dtype.numpy))

    @classmethod
    def from_dlpack(cls, source: Any) -> Self:
        """Return a tensor of the bytes of a DLPack object on the host, copied."""
        if not hasattr(source, "__dlpack__"):
            raise TypeError(f"{type(source).__name__} is no DLPack object: it has no __dlpack__")
        return cls._from_array(np.from_dlpack(source))

    # realizing

    def realize(self, *others: Core, sizes: dict[str, int] | None = None) -> Self:
        """Compute it (and others in the same go); `sizes` binds symbolic sizes by name. It stands for its bytes
        afterwards.
        """
        realize.realize([self, *others], sizes or {})
        return self

    def _data(self, sizes: dict[str, int]) -> tuple[memoryview, tuple[int, ...]]:
        """Return its bytes and shape. A graph over symbolic sizes is not used up: it can be asked again with others."""
        if realize.is_data(self._node):
            order.given_sizes([self._node], sizes)
        elif sizes and realize.is_symbolic([self._node]) and not realize.assigns([self._node]):
            sizes = order.given_sizes([self._node], sizes)
            (data,) = realize.evaluate([self._node], sizes)
            return realize.bytes_of(data), tuple(index.evaluate(size, sizes) for size in self.shape)
        else:
            realize.realize([self], sizes)
        return realize.bytes_of(self._node.arg.data), cast("tuple[int, ...]", self.shape)

    def numpy(self, **sizes: int) -> Array:
        """Return a NumPy array of its own; `numpy(n=17)` binds symbolic sizes. bf16 and float8 need the ml_dtypes
        package.
        """
        kind = _numpy_dtype(self.dtype)
        data, shape = self._data(sizes)
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(data, kind, count).reshape(shape).copy() if count else np.zeros(shape, kind)

    def _plain(self) -> Self:
        return self if self.dtype in PLAIN else self.cast(dtypes.float32)

    def tolist(self, **sizes: int) -> Any:
        """Return nested lists of Python numbers, or one number."""
        return self._plain().numpy(**sizes).tolist()

    def item(self, **sizes: int) -> Any:
        """Return its only element as a Python number."""
        if self.size != 1:
            raise ValueError(f"item of a tensor of shape {list(self.shape)}: it has to hold one element")
        if self.dtype in PLAIN:
            return self.numpy(**sizes).reshape(()).item()
        return self._plain().numpy(**sizes).reshape(()).item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tensor's bytes lie on the card: an array of them is a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __dlpack__(self, **how: Any) -> Any:
        if how.get("copy") is False:
            raise BufferError("a tensor's bytes lie on the card: what is handed out is a copy")
        return self.numpy().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU of dlpack.h: what is handed out is a copy on the host

    # gradients

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Count it among the tensors that `backward` gives a gradient, or no longer. Its value gets memory of its
        own.
        """
        if wanted and not self.dtype.is_float:
            raise TypeError(f"a gradient by a tensor of {self.dtype}: only floats have one")
        self.requires_grad = wanted
        if wanted:
            self._base = None
            self._adopt()
            realize.LEAVES[id(self)] = self
        else:
            realize.LEAVES.pop(id(self), None)
        return self

    def backward(self, seed: Tensor | None = None) -> Self:
        """Add this loss's gradients to `grad` of the tensors that asked for them; `seed` is the gradient of the loss
        unless it is one number.
        """
        backward(self, seed)
        return self

    def clone(self) -> Self:
        """Return the same value, to be assigned to apart from this one."""
        return self._of(self._node)

    @property
    def name(self) -> str:
        """Return what its memory is called in messages, empty for a value that has none."""
        arg = self._node.arg
        return arg.name if isinstance(arg, nodes.Storage) else ""


def _array(data: object, kind: DType | None) -> Array:
    """Return anything array-like as a contiguous NumPy array of a type we have; lists of Python numbers in their
    default types.
    """
    if isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__"):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        array = np.from_dlpack(cast("Any", data))
    else:
        array = _listed(data, kind)
    if array.dtype.name not in BY_NUMPY:
        raise TypeError(f"elements of {array.dtype} have no type here; there are {', '.join(BY_NUMPY)}")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(array.shape)


def _listed(data: object, kind: DType | None) -> Array:
    try:
        array: Array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"the nested lists make no array: {error}") from error
    if array.dtype.kind not in "fiu":
        return array
    exact = kind is not None and kind in PLAIN and (kind.is_float or array.dtype.kind != "f")
    return array.astype(np.dtype(kind.numpy) if exact and kind is not None else _default(array))


def _default(array: Array) -> np.dtype[Any]:
    if array.dtype.kind == "f":
        return np.dtype(np.float32)
    if array.dtype == np.uint64:
        return np.dtype(np.uint64)
    small = not array.size or (array.max() < 1 << 31 and array.min() >= -1 << 31)
    return np.dtype(np.int32 if small else np.int64)


def _leaf(array: Array, name: str) -> nodes.Node:
    data = array.reshape(-1).view(np.uint8).tobytes() if array.dtype != np.bool_ else array.tobytes()
    return nodes.buffer(BY_NUMPY[array.dtype.name], array.shape, name, data)


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype in PLAIN:
        return np.dtype(dtype.numpy)
    try:
        import ml_dtypes  # optional: NumPy has no such types of its own
    except ImportError as error:
        raise CompileError(f"NumPy has no {dtype}: install ml_dtypes, or cast to float32 first") from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.numpy))
    return found
