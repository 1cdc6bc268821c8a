"""What PyTorch and NumPy users type besides: other names of operations, types by name, places to compute on, operations
in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor import elementwise, realize
from ringup.compiler.tensor.conversions import view as view_as_bits
from ringup.compiler.tensor.core import Core, DTypeLike, as_dtype
from ringup.compiler.tensor.memory import put
from ringup.errors import CompileError

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# shapes and types


def view(tensor: Tensor, *sizes: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return the elements under another shape (`view(2, -1)`), or the same bytes as another type (`view("int32")`): see
    `reshape`, and `bitcast` for the second.
    """
    if dtype is None and len(sizes) == 1 and (isinstance(sizes[0], (str, type)) or dtypes.find(sizes[0]) is not None):
        dtype = sizes[0]
    return tensor.reshape(*sizes) if dtype is None else view_as_bits(tensor, dtype)


def t(tensor: Tensor) -> Tensor:
    """Return a matrix with its axes swapped, a vector or a number as it is."""
    if tensor.ndim > 2:
        raise ValueError(f"t() of {list(tensor.shape)}: two axes at most; use transpose, mT or permute")
    return tensor.transpose(0, 1) if tensor.ndim == 2 else tensor


def ravel(tensor: Tensor) -> Tensor:
    """Return the elements along one axis."""
    return tensor.flatten()


def swapaxes(tensor: Tensor, first: int, second: int) -> Tensor:
    """Return it with two axes swapped."""
    return tensor.transpose(first, second)


def dim(tensor: Tensor) -> int:
    """Return the number of axes."""
    return tensor.ndim


def element_size(tensor: Tensor) -> int:
    """Return the bytes of one element."""
    return tensor.dtype.size_bytes


def is_floating_point(tensor: Tensor) -> bool:
    """Return whether its elements are floats."""
    return tensor.dtype.is_float


def is_contiguous(tensor: Tensor) -> bool:
    """Return True: a tensor that is stored lies in row-major order."""
    return True


def as_type(tensor: Tensor, dtype: DTypeLike | None = None) -> Any:
    """Return the elements converted, or the name of their type for None."""
    return tensor.dtype.name if dtype is None else tensor.cast(dtype)


def type_as(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the elements converted to the type of another tensor."""
    return tensor.cast(other.dtype)


def to_double(tensor: Tensor) -> Tensor:
    """Return it as f64."""
    return tensor.cast(dtypes.float64)


def to_cfloat(tensor: Tensor) -> Tensor:
    """Return it as complex64."""
    return tensor.cast(dtypes.complex64)


def to_cdouble(tensor: Tensor) -> Tensor:
    """Return it as complex128."""
    return tensor.cast(dtypes.complex128)


def to_bfloat16(tensor: Tensor) -> Tensor:
    """Return it as bf16."""
    return tensor.cast(dtypes.bfloat16)


def to_short(tensor: Tensor) -> Tensor:
    """Return it as int16."""
    return tensor.cast(dtypes.int16)


def to_char(tensor: Tensor) -> Tensor:
    """Return it as int8."""
    return tensor.cast(dtypes.int8)


def to_byte(tensor: Tensor) -> Tensor:
    """Return it as uint8."""
    return tensor.cast(dtypes.uint8)


# places

# versions of the array API standard
STANDARDS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def place_of(tensor: Tensor) -> Any:
    """Return what would compute the tensor now, None where nothing was chosen."""
    try:
        return realize.current([tensor.node])
    except CompileError:
        return None


def to(tensor: Tensor, *wanted: Any, dtype: DTypeLike | None = None, device: Any = None, copy: bool = False) -> Tensor:
    """Return it as another type, or on another card: `to("float16")`, `to(other)`, `to(card)`, `to(card, "float16")`.

    A tensor is computed where `ringup.device` says, or where its memory lies. "cpu" asks for nothing: `numpy` brings
    bytes to the host.
    """
    for one in wanted:
        if isinstance(one, Core):
            dtype, device = one.dtype, None
        elif one is None or isinstance(one, bool):
            continue
        elif dtypes.find(one) is not None:
            dtype = one
        else:
            device = one
    made = tensor if dtype is None else tensor.cast(dtype)
    made = _on(made, device)
    return made.clone() if copy and made is tensor else made


def _on(tensor: Tensor, device: Any) -> Tensor:
    """Return a tensor whose memory is at home on an evaluator or an open card."""
    if device is None or device == "cpu" or device is (here := place_of(tensor)):
        return tensor
    if isinstance(device, str):
        if device == getattr(here, "name", None):
            return tensor
        raise ValueError(
            f"to({device!r}): tensors are computed where `with ringup.device({device!r}):` says; to() takes an open card"
        )
    if hasattr(device, "is_closed") and hasattr(device, "tensor"):
        made: Tensor = device.tensor(tensor.numpy(), tensor.dtype)
        return made
    if not hasattr(device, "evaluate"):
        raise TypeError(f"to({device!r:.80}): a type, a tensor, an open card or an evaluator")
    tensor.realize()
    data = bytes(realize.bytes_of(tensor.node.arg.data))
    node = nodes.buffer(tensor.dtype, tensor.shape, tensor.name, data)
    node.arg.home = device
    moved = tensor._of(node)
    moved._owns = True
    return moved


def to_device(tensor: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """Return it on another device, as `to` does; the array API standard's name."""
    if stream is not None:
        raise ValueError(f"to_device with stream {stream!r}: there are no streams to choose from, only None")
    return to(tensor, device=device)


def array_namespace(tensor: Tensor, /, *, api_version: str | None = None) -> Any:
    """Return the namespace of the array API standard, `ringup.array_api`; it serves older versions too."""
    if api_version is not None and api_version not in STANDARDS:
        raise ValueError(
            f"there is no version {api_version} of the array API standard; there are {', '.join(STANDARDS)}"
        )
    # it stands above the compiler, so it is imported by name and only here
    return import_module("ringup.array_api")


def cpu(tensor: Tensor) -> Tensor:
    """Return it as it is: `numpy` brings bytes to the host."""
    return tensor


# arithmetic with a factor or a rounding


def add(tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return the sum; `other` is taken `alpha` times."""
    return elementwise.add(tensor, other if alpha == 1 else tensor._lift(other) * alpha)


def sub(tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return the difference; `other` is taken `alpha` times."""
    return elementwise.sub(tensor, other if alpha == 1 else tensor._lift(other) * alpha)


def div(tensor: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Return the quotient as a float, or rounded: `rounding_mode` "floor" as // does, "trunc" toward zero, of integers
    as an integer.
    """
    if rounding_mode is None:
        return elementwise.div(tensor, other)
    if rounding_mode == "floor":
        return elementwise.floordiv(tensor, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div has no rounding_mode {rounding_mode!r}; there are None, 'floor' and 'trunc'")
    x, y = tensor._fit(other)
    if x.dtype.is_float:
        return (x / y).trunc()
    # away from the floor where that is below zero and something remains
    below = x // y
    return below + ((x % y).ne(0) & ((x < 0) ^ (y < 0))).cast(x.dtype) if x.dtype.kind == "int" else below


# new tensors like this one


def empty_like(tensor: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return memory of this shape that nothing has been written to."""
    return tensor.empty(tensor.shape, dtype=tensor.dtype if dtype is None else dtype)


def rand_like(tensor: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return numbers evenly spread over [0, 1) in this shape."""
    return tensor.rand(tensor.shape, dtype=tensor.dtype if dtype is None else dtype)


def randn_like(tensor: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return normally distributed numbers in this shape."""
    return tensor.randn(tensor.shape, dtype=tensor.dtype if dtype is None else dtype)


def randint_like(tensor: Tensor, low: int, high: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return integers from `low` to before `high` (from 0 for one bound) in this shape, of this type unless given."""
    first, last = (0, low) if high is None else (low, high)
    kind = tensor.dtype if dtype is None else as_dtype(dtype)
    made = tensor.randint(tensor.shape, low=first, high=last, dtype=kind if kind.is_integer else dtypes.int32)
    return made.cast(kind)


def new_full(tensor: Tensor, shape: Int | Sequence[Int], value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return another shape filled with one value, of this type unless given."""
    return tensor.full(shape, value, tensor.dtype if dtype is None else dtype)


def new_zeros(tensor: Tensor, *sizes: Int | Sequence[Int], dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros of this type unless given."""
    return tensor.zeros(*sizes, dtype=tensor.dtype if dtype is None else dtype)


def new_ones(tensor: Tensor, *sizes: Int | Sequence[Int], dtype: DTypeLike | None = None) -> Tensor:
    """Return ones of this type unless given."""
    return tensor.ones(*sizes, dtype=tensor.dtype if dtype is None else dtype)


def new_empty(tensor: Tensor, *sizes: Int | Sequence[Int], dtype: DTypeLike | None = None) -> Tensor:
    """Return memory that nothing has been written to, of this type unless given."""
    return tensor.empty(*sizes, dtype=tensor.dtype if dtype is None else dtype)


def new_tensor(tensor: Tensor, data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of numbers, of this type unless given."""
    return type(tensor)(data, tensor.dtype if dtype is None else dtype)


# in place


# methods that have a form in place, whose name ends in _
IN_PLACE = (
    "clamp_min clamp_max add sub mul div pow neg abs sign square floor_divide remainder fmod lerp exp exp2 expm1 log log2 log10 log1p sqrt"
    " rsqrt reciprocal sin cos tan tanh sigmoid erf floor ceil trunc round clamp clip masked_fill relu relu6 leaky_relu"
    " elu selu celu silu hardtanh scatter scatter_add scatter_reduce tril triu dropout cumsum cumprod logical_not"
    " logical_and logical_or logical_xor eq ne lt gt le ge nan_to_num hypot addmm baddbmm addcmul addcdiv index_add index_copy"
    " index_fill index_put"
)
Class = TypeVar("Class")


def with_in_place(cls: type[Class]) -> type[Class]:
    """Give a class of tensors the forms in place of its methods: `add_` of `add`."""
    for name in IN_PLACE.split():
        setattr(cls, f"{name}_", _over(name))
    return cls


def _over(name: str) -> Callable[..., Tensor]:
    """Return the method of that name as one that writes its result over the tensor."""

    def over(tensor: Tensor, *given: Any, **named: Any) -> Tensor:
        made: Tensor = getattr(tensor, name)(*given, **named)
        return put(tensor, made)

    over.__doc__ = f"Replace it by the result of `{name}`, in place."
    return over


def fill_in_place(tensor: Tensor, value: Any) -> Tensor:
    """Set every element to a value, in place."""
    return tensor.assign(value)


def zero_in_place(tensor: Tensor) -> Tensor:
    """Set every element to 0, in place."""
    return tensor.assign(0)


def copy_in_place(tensor: Tensor, source: Any) -> Tensor:
    """Set the elements to those of another tensor, cast and broadcast to this one, in place."""
    return tensor.assign(source)


def uniform_in_place(tensor: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Set the elements to random numbers evenly spread over [low, high), in place."""
    return put(tensor, tensor.uniform(tensor.shape, low=low, high=high, dtype=tensor.dtype))


def normal_in_place(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Set the elements to normally distributed random numbers, in place."""
    return put(tensor, tensor.normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype))
