"""The values of a tensor on the host: bytes, a Python number, text."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.tensor import order, realize
from ringup.compiler.tensor.arrays import PLAIN
from ringup.compiler.tensor.exchange import dlpack as exchange
from ringup.compiler.tensor.spelling.text import decoded, shown
from ringup.errors import CompileError, RingupError

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# the size of a computed tensor up to which `repr` reads it from the card
MAX_REPR_BYTES = 1 << 24
# PyBUF_WRITABLE of CPython's buffer protocol
WRITABLE = 1


def represented(tensor: Tensor) -> str:
    """Return a tensor as text without computing anything: its values where they are there."""
    if not _is_known(tensor):
        node = tensor.node.sources[0] if nodes.is_stop(tensor.node) else tensor.node
        return _unknown(tensor, f"not computed: {node.op.value}")
    if index.bounds(tensor.node.size)[1] * tensor.dtype.size_bytes > MAX_REPR_BYTES:
        return _unknown(tensor, "computed")
    try:
        return _shown(tensor)
    except (RingupError, OSError, RuntimeError, ValueError) as error:
        return _unknown(tensor, f"computed, but it cannot be read: {error}")


def as_text(tensor: Tensor) -> str:
    """Return a tensor's values as text, computed; in words why nothing can compute it."""
    if realize.is_symbolic([tensor.node]):
        return _unknown(tensor, "not computed: its sizes are open, which numpy() takes by name")
    if not _is_known(tensor):
        try:
            realize.current([tensor.node])
        except CompileError as error:
            return _unknown(tensor, f"not computed: {error}")
        tensor.realize()
    return _shown(tensor)


def number(tensor: Tensor, what: str, instead: str = "tolist()") -> Any:
    """Return the only element of a tensor; a TypeError that says what was asked of it where there are others."""
    if tensor.numel() != 1:
        raise TypeError(f"{what} a tensor of shape {list(tensor.shape)}: only one element has it; there is {instead}")
    return tensor.item()


def _is_known(tensor: Tensor) -> bool:
    """Return whether its values are there without computing anything."""
    return realize.is_data(tensor.node) or tensor.node.op is nodes.Op.CONST


def _shown(tensor: Tensor) -> str:
    """Return the values of a tensor that are known as text."""
    kind, arg = tensor.dtype, tensor.node.arg
    if tensor.node.op is nodes.Op.CONST:
        return shown(np.array(arg, kind.numpy if kind in PLAIN else np.float32), kind)
    return shown(decoded(realize.bytes_of(arg.data), kind, cast("tuple[int, ...]", tensor.shape)), kind)


def _unknown(tensor: Tensor, why: str) -> str:
    """Return what is known of a tensor whose values are not shown."""
    return f"<Tensor {list(tensor.shape)} {tensor.dtype}, {why}>"


def data(tensor: Tensor, sizes: dict[str, int]) -> tuple[memoryview, tuple[int, ...]]:
    """Return a tensor's bytes and shape. A graph over symbolic sizes is kept, so that it can be asked again with other
    sizes.
    """
    node = tensor.node
    if realize.is_data(node):
        order.given_sizes([node], sizes)
    elif sizes and realize.is_symbolic([node]) and not realize.assigns([node]):
        sizes = order.given_sizes([node], sizes)
        (data,) = realize.evaluate([node], sizes)
        return realize.bytes_of(data), tuple(index.evaluate(size, sizes) for size in tensor.shape)
    else:
        realize.realize([tensor], sizes)
    return realize.bytes_of(tensor.node.arg.data), cast("tuple[int, ...]", tensor.shape)


def dlpack(
    tensor: Tensor, stream: Any, max_version: tuple[int, int] | None, device: tuple[Any, int] | None, copy: bool | None
) -> Any:
    """Return a DLPack capsule of a copy of a tensor's elements on the host."""
    if copy is False:
        raise BufferError("a tensor's bytes lie on the card: what is handed out is a copy")
    if device is not None and (int(device[0]), device[1]) != exchange.CPU:
        raise BufferError(f"a tensor is handed to the host, DLPack's device (1, 0), and not to {device}")
    if stream is not None:
        raise BufferError("a tensor is handed to the host, which has no streams: stream=None")
    _check_no_gradient(tensor, "DLPack")
    found, shape = data(tensor, {})
    return exchange.exported(found, tensor.dtype, shape, max_version)


def buffer(tensor: Tensor, flags: int) -> memoryview:
    """Return a read-only buffer of a copy of a tensor's elements on the host."""
    if flags & WRITABLE:
        raise BufferError("a tensor's bytes lie on the card: what a buffer shows is a copy, which is not written")
    _check_no_gradient(tensor, "a buffer")
    if tensor.dtype not in PLAIN:
        raise BufferError(f"the buffer protocol has no {tensor.dtype}: numpy() has it, or cast to float32 first")
    found, shape = data(tensor, {})
    made: Any = np.frombuffer(bytes(found), tensor.dtype.numpy, prod(shape)).reshape(shape)
    return memoryview(made)


def _check_no_gradient(tensor: Tensor, what: str) -> None:
    if tensor.requires_grad:
        raise BufferError(f"{what} of a tensor that wants a gradient, which stays behind: use detach()")


def plain(tensor: Tensor) -> Tensor:
    """Return it in a type that NumPy has: f32 for bf16 and float8."""
    return tensor if tensor.dtype in PLAIN else tensor.cast(dtypes.float32)
