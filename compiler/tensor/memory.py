"""Assignment: tensors that own memory, and writing into it or into a part of it. The rule of reads and writes is
`realize`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringup.compiler.graph import nodes
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import Core, Steps, spread
from ringup.compiler.tensor.indexing import basic_part, with_part, without_leading_ones
from ringup.compiler.tensor.movement import base_of, is_view_of

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def adopt(tensor: Tensor) -> None:
    """Give a computed value memory of its own, which later assignments write."""
    if not tensor._owns:
        place = nodes.buffer(tensor.dtype, tensor.shape)
        tensor._node = _stored(place, place, tensor._node)
        tensor._owns = True


def assign(tensor: Tensor, value: Any) -> Tensor:
    """Replace its elements by `value` (broadcast and cast to this tensor) in place: the memory stays the same, and what
    was made of the tensor before still reads the old elements.

    On a plain view (numbers, slices of step 1, reshape, permute, flip of a tensor that is still there) the tensor
    viewed is written.
    """
    return _put(tensor, value, copies=False)


def _put(tensor: Tensor, value: Any, *, copies: bool) -> Tensor:
    """Do what `assign` says; with `copies`, a part that is a copy takes the value alone."""
    new, base = _fitting(tensor, value), base_of(tensor)
    if base is not tensor and tensor._base is not None:
        tensor._node = _write(base, tensor._base[1], new)
    elif tensor._base is None:
        tensor._node = _stored(tensor._node, tensor._node, new) if tensor._owns else new
    elif copies:
        tensor._node = new
    else:
        raise TypeError(
            "assign to a part that is a copy (index arrays, steps, or of a tensor that is gone): write t[...] = value"
        )
    return tensor


def _fitting(tensor: Tensor, value: Any) -> Node:
    """Return a value cast and broadcast to this tensor."""
    y = tensor._lift(value)
    have = (1,) * (tensor.ndim - y.ndim) + y.shape
    if len(have) != tensor.ndim or any(
        size not in (1, wanted) for size, wanted in zip(have, tensor.shape, strict=True)
    ):
        raise ValueError(f"a value of shape {list(y.shape)} does not go into {list(tensor.shape)}")
    return spread(nodes.cast(y._node, tensor.dtype), tensor.shape)


def _write(tensor: Tensor, steps: Steps, value: Node) -> Node:
    """Store a value through a view of this tensor; return the view of what is there then."""
    # ORDER: the view is laid over the node that `adopt` leaves
    adopt(tensor)
    tensor._node = _stored(tensor._node, _laid(steps, tensor._node), value)
    return _laid(steps, tensor._node)


def setitem(tensor: Tensor, key: Any, value: Any) -> None:
    """Replace the elements at `key` by `value`, in place."""
    part, advanced = basic_part(tensor, key)
    # t[key] += x has written already
    if isinstance(value, Core) and value._node is part._node:
        return
    base = base_of(tensor)
    if advanced or not (part is tensor or is_view_of(part, base)):
        # what is not written stays as it is there now
        if base is not tensor and tensor._base is not None:
            tensor._node = _laid(tensor._base[1], base._node)
        _put(tensor, with_part(tensor, key, value), copies=True)
        return
    y = tensor._lift(value)
    new = _fitting(part, y.reshape(without_leading_ones(y.shape, part.ndim)) if y.ndim > part.ndim else y)
    _write(base, () if part is base or part._base is None else part._base[1], new)
    if base is not tensor and tensor._base is not None:
        tensor._node = _laid(tensor._base[1], base._node)


def add_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Add `other` in place."""
    return _put(tensor, tensor + other, copies=True)


def sub_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Subtract `other` in place."""
    return _put(tensor, tensor - other, copies=True)


def mul_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Multiply by `other` in place."""
    return _put(tensor, tensor * other, copies=True)


def div_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Divide by `other` in place."""
    return _put(tensor, tensor / other, copies=True)


def floordiv_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Divide by `other` in place, rounded down."""
    return _put(tensor, tensor // other, copies=True)


def mod_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Replace it by the remainder of a division by `other`."""
    return _put(tensor, tensor % other, copies=True)


def power_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Raise it to the power of `other`, in place."""
    return _put(tensor, tensor**other, copies=True)


def bits_and_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Keep the bits that `other` has too, in place."""
    return _put(tensor, tensor & other, copies=True)


def bits_or_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Set the bits of `other`, in place."""
    return _put(tensor, tensor | other, copies=True)


def bits_xor_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Invert the bits of `other`, in place."""
    return _put(tensor, tensor ^ other, copies=True)


def shift_left_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Shift its bits left by `other`, in place."""
    return _put(tensor, tensor << other, copies=True)


def shift_right_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Shift its bits right by `other`, in place."""
    return _put(tensor, tensor >> other, copies=True)


def _stored(state: Node, view: Node, value: Node) -> Node:
    """Return a state of memory after a value is stored through a view of it."""
    store = nodes.node(Op.STORE, view.dtype, view.shape, (view, value))
    return nodes.node(Op.AFTER, state.dtype, state.shape, (state, store))


def _laid(steps: Steps, node: Node) -> Node:
    """Return the view of a node that the steps make."""
    for step in steps:
        node = step(node)
    return node
